// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Guest memory: mapped and registered with CUDA in chunks when copies need them.
//!
//! Registration pins a chunk's pages, and takes milliseconds. So a chunk stays registered until there are more than
//! [`MAX_CHUNKS`], or the driver has no room for another. The CPU never accesses the mapping. In both cases the VM with
//! the most chunks loses its least recently used ones: a VM with no more than an equal share keeps all of its own.
//!
//! The host may take pages of a chunk from the guest, and give it other pages later ([`holes`](super::holes)). Such a
//! chunk is registered again before a copy uses it. If the chunks of a VM lose pages frequently, the VM's copies are
//! staged for some time: a registration may hold locks of the driver that copies of other VMs need.
//!
//! Only chunks are mapped: a device process can name terabytes of absent memory, and all VMs share the mover's address
//! space.

use std::{
    collections::HashMap,
    ffi::c_void,
    io,
    num::NonZeroUsize,
    os::fd::OwnedFd,
    ptr::NonNull,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use gpgpu_locks::{Condvar, Mutex, MutexGuard};
use gpgpu_protocol::{cuda::*, layout::PAGE_BYTES};
use nix::sys::{
    mman::{MapFlags, ProtFlags, mmap, munmap},
    statfs::{HUGETLBFS_MAGIC, TMPFS_MAGIC, fstatfs},
};

use super::holes::{Changes, PageTable};
use crate::cuda::driver;

/// The size of a chunk. Registration takes about 0.1 ms plus 0.07 ms for each MiB. Absent pages make it several times
/// slower, and a larger chunk would include more absent pages that no copy needs.
pub const CHUNK_BYTES: u64 = 16 << 20;
/// The maximum number of registered chunks of all VMs together: 256 GiB.
const MAX_CHUNKS: usize = 16 << 10;
/// The time after a failed registration of a file's chunk until the next attempt, when there may be room again.
const HOPELESS: Duration = Duration::from_secs(30);
/// The maximum number of a VM's chunks that are registered again within [`LOSING`] because they have lost pages.
const MOST_LOST: u32 = 64;
/// The period in which losses are counted. It begins with the first loss.
const LOSING: Duration = Duration::from_secs(1);
/// The maximum number of a file's chunks that one sweep checks.
const SWEPT: usize = 64;
/// The number of chunks that are released at a time.
const EVICTED: usize = 16;

/// A part of a guest's memory.
#[derive(Debug)]
pub struct GuestFile {
    id: u64,
    vm: u32,
    file: OwnedFd,
    offset: u64,
    bytes: u64,
    /// The page size of the file. Mappings are multiples of it.
    page: u64,
    changes: Changes,
    /// The time of the last failed registration. For some time after it, no other is attempted.
    hopeless: Mutex<Option<Instant>>,
    /// The last generation for which a sweep found all chunks complete.
    swept: AtomicU64,
}

impl GuestFile {
    /// Takes `bytes` bytes from `offset` of a file that is memory of this VM.
    ///
    /// # Errors
    /// The range does not consist of whole pages, or the file is not memory.
    pub fn new(vm: u32, file: OwnedFd, offset: u64, bytes: u64) -> io::Result<Self> {
        static LAST: AtomicU64 = AtomicU64::new(0);
        // Accesses to pages of other file systems may take for ever, or write to a disk.
        let system = fstatfs(&file)?;
        let (page, has_times) = match system.filesystem_type() {
            TMPFS_MAGIC => (PAGE_BYTES, true),
            HUGETLBFS_MAGIC => {
                let page = u64::try_from(system.block_size()).unwrap_or(PAGE_BYTES);
                (page, false)
            }
            _ => return Err(io::Error::other("the file is not in memory")),
        };
        let whole = |value: u64| value.is_multiple_of(PAGE_BYTES);
        let end = offset.checked_add(bytes);
        if !whole(offset) || !whole(bytes) || bytes == 0 || end.is_none_or(|end| end > MAX_OFFSET) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        Ok(Self {
            id: LAST.fetch_add(1, Ordering::Relaxed),
            vm,
            file,
            offset,
            bytes,
            page: page.max(PAGE_BYTES),
            changes: Changes::new(has_times),
            hopeless: Mutex::new(None),
            swept: AtomicU64::new(0),
        })
    }

    /// The size in bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// See [`Changes::generation`].
    fn generation(&self) -> u64 {
        self.changes.generation(&self.file)
    }

    /// Maps a chunk.
    fn map(&self, index: u64) -> io::Result<Mapping> {
        let within = index * CHUNK_BYTES;
        let bytes = CHUNK_BYTES.min(self.bytes - within);
        let start = self.offset + within;
        let first = start - start % self.page;
        let end = (start + bytes).next_multiple_of(self.page);
        let length = usize::try_from(end - first).map_err(|_| io::ErrorKind::InvalidInput)?;
        let length = NonZeroUsize::new(length).ok_or(io::ErrorKind::InvalidInput)?;
        let protection = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
        let flags = MapFlags::MAP_SHARED | MapFlags::MAP_NORESERVE;
        // SAFETY: a new mapping at an address of the kernel's choice.
        let base = unsafe { mmap(None, length, protection, flags, &self.file, first as i64)? };
        Ok(Mapping {
            base,
            length,
            before: (start - first) as usize,
            bytes: bytes as usize,
        })
    }
}

/// The largest offset of a mapping in a file, less the largest page.
const MAX_OFFSET: u64 = (1 << 63) - (1 << 34);

/// A mapping of a chunk, extended to whole pages at its start and end.
#[derive(Debug)]
struct Mapping {
    base: NonNull<c_void>,
    length: NonZeroUsize,
    /// The number of bytes before the chunk.
    before: usize,
    /// The size of the chunk in bytes.
    bytes: usize,
}

// SAFETY: the address is only passed to the driver; the mapping lives as long as this.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// The chunk's first byte.
    fn start(&self) -> *mut c_void {
        self.base.as_ptr().wrapping_byte_add(self.before)
    }

    /// Registers the chunk, and returns its device address.
    fn register(&self) -> Result<CUdeviceptr, CUresult> {
        let flags = CU_MEMHOSTREGISTER_DEVICEMAP;
        // SAFETY: the range is mapped, and stays so until the mapping's holder has unregistered it.
        unsafe { driver::register_host(self.start(), self.bytes, flags) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping is this value's own; no part of it is registered any more.
        let _ = unsafe { munmap(self.base, self.length.get()) };
    }
}

/// A chunk that CUDA has pinned, until it is dropped.
#[derive(Debug)]
pub struct Chunk {
    file: Arc<GuestFile>,
    offset: u64,
    mapping: Mapping,
    /// The address for kernels and copies.
    device: CUdeviceptr,
    /// The file's generation at the last check that the pinned pages belong to the file.
    current: AtomicU64,
}

impl Chunk {
    /// Registers a chunk of a file, which has this generation. If the driver refuses, tries again once `make_room`
    /// returns that there may be room.
    fn register(
        file: &Arc<GuestFile>,
        (index, generation): (u64, u64),
        make_room: impl FnOnce() -> bool,
    ) -> Result<Self, CUresult> {
        let mapping = file.map(index).map_err(|error| {
            tracing::debug!("Guest memory cannot be mapped: {error}");
            CUDA_ERROR_INVALID_VALUE
        })?;
        let device = match mapping.register() {
            Err(_) if make_room() => mapping.register(),
            registered => registered,
        }?;
        Ok(Self {
            file: Arc::clone(file),
            offset: index * CHUNK_BYTES,
            mapping,
            device,
            current: AtomicU64::new(generation),
        })
    }

    /// Whether the pinned pages belong to the file, which has this generation.
    fn is_current(&self, generation: u64, table: &PageTable) -> bool {
        if self.current.load(Ordering::Relaxed) == generation {
            return true;
        }
        let (start, bytes) = (self.mapping.base.as_ptr() as usize, self.mapping.length);
        let has_all = table.has_all(start, bytes.get(), self.file.page as usize);
        if has_all {
            self.current.store(generation, Ordering::Relaxed);
        }
        has_all
    }
}

impl Drop for Chunk {
    fn drop(&mut self) {
        // SAFETY: registered when this was made, and no copy holds it any more. It is mapped until after this.
        let _ = unsafe { driver::cuMemHostUnregister(self.mapping.start()) };
    }
}

struct Entry {
    chunk: Arc<Chunk>,
    used: u64,
}

#[derive(Default)]
struct State {
    clock: u64,
    chunks: HashMap<(u64, u64), Entry>,
    /// VMs for which other VMs have lost chunks without success, and the time.
    in_vain: HashMap<u32, Instant>,
    /// VMs whose chunks have lost pages: the time of the first loss, and the number of losses within [`LOSING`] of it.
    lost: HashMap<u32, (Instant, u32)>,
}

impl State {
    /// The VM that loses chunks so that this VM gets another one.
    fn loser(&self, asks: u32) -> u32 {
        let lately = |since: &Instant| since.elapsed() < HOPELESS;
        if self.in_vain.get(&asks).is_some_and(lately) {
            return asks;
        }
        let mut counts = HashMap::<u32, usize>::new();
        for entry in self.chunks.values() {
            *counts.entry(entry.chunk.file.vm).or_default() += 1;
        }
        let most = counts
            .into_iter()
            .max_by_key(|(vm, count)| (*count, *vm == asks));
        most.map_or(asks, |(vm, _)| vm)
    }

    /// Records that a chunk of a VM has lost pages.
    fn note_loss(&mut self, vm: u32, now: Instant) {
        let (since, count) = self.lost.entry(vm).or_insert((now, 0));
        if now.duration_since(*since) >= LOSING {
            (*since, *count) = (now, 0);
        }
        *count += 1;
    }

    /// Whether chunks of a VM have lost pages too often.
    fn loses(&self, vm: u32, now: Instant) -> bool {
        let lost = self.lost.get(&vm);
        lost.is_some_and(|(since, count)| {
            *count >= MOST_LOST && now.duration_since(*since) < LOSING
        })
    }

    /// Removes chunks to make room for another chunk of a VM.
    fn take_oldest(&mut self, asks: u32) -> Vec<Entry> {
        let loser = self.loser(asks);
        let of_loser = self.chunks.iter();
        let of_loser = of_loser.filter(|(_, entry)| entry.chunk.file.vm == loser);
        let mut by_age: Vec<_> = of_loser.map(|(&key, entry)| (entry.used, key)).collect();
        by_age.sort_unstable();
        let oldest = by_age.iter().take(EVICTED);
        oldest
            .filter_map(|(_, key)| self.chunks.remove(key))
            .collect()
    }
}

/// The registered chunks of all VMs.
pub struct Chunks {
    most: usize,
    table: PageTable,
    state: Mutex<State>,
    /// Signalled when there is a chunk.
    some: Condvar,
}

/// A piece of guest memory for a copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Piece {
    /// The device address.
    pub address: CUdeviceptr,
    /// The size in bytes.
    pub bytes: u64,
}

impl Chunks {
    /// An empty set. The page table must be that of this process.
    pub fn new(table: PageTable) -> Self {
        Self {
            most: MAX_CHUNKS,
            table,
            state: Mutex::default(),
            some: Condvar::new(),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// Adds the pieces of a run, one for each chunk, and references that keep them registered. Only one thread at a
    /// time may call this for a file.
    ///
    /// # Errors
    /// The driver's error code: the memory cannot be registered.
    pub fn pieces(
        &self,
        file: &Arc<GuestFile>,
        run: std::ops::Range<u64>,
        pieces: &mut Vec<Piece>,
        held: &mut Vec<Arc<Chunk>>,
    ) -> Result<(), CUresult> {
        let mut at = run.start;
        while at < run.end {
            let index = at / CHUNK_BYTES;
            let end = run.end.min((index + 1) * CHUNK_BYTES);
            let mine = |chunk: &Arc<Chunk>| {
                Arc::ptr_eq(&chunk.file, file) && chunk.offset == index * CHUNK_BYTES
            };
            let chunk = match held.iter().rposition(mine) {
                Some(known) => &held[known],
                None => {
                    held.push(self.chunk(file, index)?);
                    &held[held.len() - 1]
                }
            };
            pieces.push(Piece {
                address: chunk.device + (at - chunk.offset),
                bytes: end - at,
            });
            at = end;
        }
        Ok(())
    }

    fn chunk(&self, file: &Arc<GuestFile>, index: u64) -> Result<Arc<Chunk>, CUresult> {
        let key = (file.id, index);
        let generation = file.generation();
        if let Some(chunk) = self.known(key) {
            if chunk.is_current(generation, &self.table) {
                return Ok(chunk);
            }
            self.lose(&chunk);
        }
        if self.state().loses(file.vm, Instant::now()) {
            return Err(CUDA_ERROR_NOT_SUPPORTED);
        }
        let mut hopeless = file.hopeless.lock();
        if hopeless.is_some_and(|since| since.elapsed() < HOPELESS) {
            return Err(CUDA_ERROR_NOT_SUPPORTED);
        }
        if self.state().chunks.len() >= self.most {
            self.evict(file.vm);
        }
        // The lock is not held, so that copies of other threads continue.
        let mut made_room = false;
        let chunk = Chunk::register(file, (index, generation), || {
            made_room = self.evict(file.vm);
            made_room
        });
        let chunk = Arc::new(chunk.inspect_err(|code| {
            let now = Instant::now();
            *hopeless = Some(now);
            if made_room {
                self.state().in_vain.insert(file.vm, now);
            }
            tracing::warn!(
                "Guest memory cannot be registered ({}): its copies are staged",
                result_name(*code).unwrap_or("unknown")
            );
        })?);
        let mut state = self.state();
        let used = state.clock;
        let entry = Entry {
            chunk: Arc::clone(&chunk),
            used,
        };
        state.chunks.insert(key, entry);
        self.some.notify_all();
        Ok(chunk)
    }

    /// A registered chunk, now marked as used.
    fn known(&self, key: (u64, u64)) -> Option<Arc<Chunk>> {
        let mut state = self.state();
        state.clock += 1;
        let now = state.clock;
        let entry = state.chunks.get_mut(&key)?;
        entry.used = now;
        Some(Arc::clone(&entry.chunk))
    }

    /// Releases chunks to make room for another chunk of a VM; returns whether there were any.
    fn evict(&self, asks: u32) -> bool {
        // Unregistering takes long, so it is done without the lock.
        let gone = self.state().take_oldest(asks);
        !gone.is_empty()
    }

    /// Waits until at least one chunk is registered.
    pub fn wait_for_some(&self) {
        let state = self.state();
        drop(self.some.wait_while(state, |state| state.chunks.is_empty()));
    }

    /// Releases chunks that have lost pages, so that the host gets these pages. For each changed file, it checks the
    /// [`SWEPT`] chunks whose last check is the oldest.
    pub fn sweep(&self) {
        let mut files = HashMap::new();
        for entry in self.state().chunks.values() {
            let file = &entry.chunk.file;
            files.entry(file.id).or_insert_with(|| Arc::clone(file));
        }
        for file in files.into_values() {
            let generation = file.generation();
            if file.swept.load(Ordering::Relaxed) != generation {
                self.sweep_file(&file, generation);
            }
        }
    }

    fn sweep_file(&self, file: &GuestFile, generation: u64) {
        let seen = |chunk: &Arc<Chunk>| chunk.current.load(Ordering::Relaxed);
        let mut old: Vec<Arc<Chunk>> = {
            let state = self.state();
            let chunks = state.chunks.values().map(|entry| &entry.chunk);
            let old = chunks.filter(|chunk| chunk.file.id == file.id && seen(chunk) != generation);
            old.cloned().collect()
        };
        if old.len() > SWEPT {
            old.select_nth_unstable_by_key(SWEPT, seen);
            old.truncate(SWEPT);
        } else {
            file.swept.store(generation, Ordering::Relaxed);
        }
        for chunk in old {
            if !chunk.is_current(generation, &self.table) {
                self.lose(&chunk);
            }
        }
    }

    /// Releases a chunk that has lost pages. Copies that hold it continue: their guest has kept the pages that they
    /// use.
    fn lose(&self, chunk: &Arc<Chunk>) {
        let key = (chunk.file.id, chunk.offset / CHUNK_BYTES);
        let mut state = self.state();
        // Another thread may have registered it again in the meantime.
        let known = state.chunks.get(&key);
        if known.is_some_and(|entry| Arc::ptr_eq(&entry.chunk, chunk)) {
            state.note_loss(chunk.file.vm, Instant::now());
            let gone = state.chunks.remove(&key);
            // Unregistering takes long, so it is done without the lock.
            drop(state);
            drop(gone);
        }
    }

    /// Releases all chunks of a file.
    pub fn forget(&self, file: &GuestFile) {
        let mut state = self.state();
        let keys: Vec<_> = state
            .chunks
            .keys()
            .filter(|key| key.0 == file.id)
            .copied()
            .collect();
        let gone: Vec<_> = keys
            .iter()
            .filter_map(|key| state.chunks.remove(key))
            .collect();
        drop(state);
        drop(gone);
    }
}

#[cfg(test)]
#[path = "guest_tests.rs"]
mod tests;
