//! Guest memory: mapped as a whole, registered with CUDA in chunks as copies need them.
//!
//! Registering pins a chunk's pages, and takes milliseconds; so a chunk stays registered until
//! more than [`MAX_CHUNKS`] are, or the driver has no room for another. The CPU never touches the mapping.

use std::{
    collections::HashMap,
    ffi::c_void,
    io,
    num::NonZeroUsize,
    os::fd::OwnedFd,
    ptr::NonNull,
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use gpgpu_protocol::{cuda::*, layout::PAGE_BYTES};
use nix::sys::{
    mman::{MapFlags, ProtFlags, mmap, munmap},
    statfs::{HUGETLBFS_MAGIC, TMPFS_MAGIC, fstatfs},
};

use super::driver;

/// The size of a chunk. Registering takes about 0.1 ms and 0.07 ms for each MiB, and several times that where pages are not
/// there yet, which in large chunks some never need to be.
pub const CHUNK_BYTES: u64 = 16 << 20;
/// The most chunks that a mover keeps registered, of all VMs together: 256 GiB.
const MAX_CHUNKS: usize = 16 << 10;
/// How long a file is left alone of which a chunk could not be registered. What was full may have room again.
const HOPELESS: Duration = Duration::from_secs(30);
/// How many are let go at a time where the driver has no room.
const EVICTED: usize = 16;

/// A mapping of a part of a guest's memory.
#[derive(Debug)]
pub struct GuestFile {
    id: u64,
    base: NonNull<c_void>,
    bytes: u64,
    /// When registering failed though there was room: then it will again, for a while.
    hopeless: Mutex<Option<Instant>>,
}

// SAFETY: the address is only passed to the driver; the mapping lives as long as this.
unsafe impl Send for GuestFile {}
// SAFETY: as above.
unsafe impl Sync for GuestFile {}

impl GuestFile {
    /// Maps `bytes` bytes from `offset` of a file.
    ///
    /// # Errors
    /// The range is not of whole pages, the file is not memory, or the host is out of addresses.
    pub fn map(file: &OwnedFd, offset: u64, bytes: u64) -> io::Result<Self> {
        static LAST: AtomicU64 = AtomicU64::new(0);
        // Pages of another file system may take for ever to come, and be written back to a disk.
        let system = fstatfs(file)?.filesystem_type();
        if system != TMPFS_MAGIC && system != HUGETLBFS_MAGIC {
            return Err(io::Error::other("it is not in memory"));
        }
        let whole = |value: u64| value.is_multiple_of(PAGE_BYTES);
        let start = i64::try_from(offset).map_err(|_| io::ErrorKind::InvalidInput)?;
        let length = usize::try_from(bytes)
            .ok()
            .filter(|_| whole(offset) && whole(bytes) && offset.checked_add(bytes).is_some())
            .and_then(NonZeroUsize::new)
            .ok_or(io::ErrorKind::InvalidInput)?;
        let protection = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
        let flags = MapFlags::MAP_SHARED | MapFlags::MAP_NORESERVE;
        // SAFETY: a new mapping at an address of the kernel's choice.
        let base = unsafe { mmap(None, length, protection, flags, file, start)? };
        Ok(Self {
            id: LAST.fetch_add(1, Ordering::Relaxed),
            base,
            bytes,
            hopeless: Mutex::new(None),
        })
    }

    /// Bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    fn chunk_bytes(&self, index: u64) -> u64 {
        CHUNK_BYTES.min(self.bytes - index * CHUNK_BYTES)
    }
}

impl Drop for GuestFile {
    fn drop(&mut self) {
        // SAFETY: this mapping's, and no chunk of it is registered any more: each holds the file.
        let _ = unsafe { munmap(self.base, self.bytes as usize) };
    }
}

/// A chunk that CUDA has pinned, until it is dropped.
#[derive(Debug)]
pub struct Chunk {
    file: Arc<GuestFile>,
    offset: u64,
    /// Where kernels and copies find it.
    device: CUdeviceptr,
}

impl Chunk {
    fn register(file: &Arc<GuestFile>, index: u64) -> Result<Self, CUresult> {
        let offset = index * CHUNK_BYTES;
        let start = file.base.as_ptr().wrapping_byte_add(offset as usize);
        let bytes = file.chunk_bytes(index) as usize;
        let mut device = 0;
        // SAFETY: the range is mapped, and stays so while this holds the file.
        unsafe {
            driver::cuMemHostRegister_v2(start, bytes, CU_MEMHOSTREGISTER_DEVICEMAP)?;
            driver::cuMemHostGetDevicePointer_v2(&mut device, start, 0).inspect_err(|_| {
                let _ = driver::cuMemHostUnregister(start);
            })?;
        }
        Ok(Self {
            file: Arc::clone(file),
            offset,
            device,
        })
    }
}

impl Drop for Chunk {
    fn drop(&mut self) {
        let base = self.file.base.as_ptr();
        let start = base.wrapping_byte_add(self.offset as usize);
        // SAFETY: registered when this was made, and no copy holds it any more.
        let _ = unsafe { driver::cuMemHostUnregister(start) };
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
}

/// The chunks that are registered, of all VMs.
#[derive(Default)]
pub struct Chunks {
    state: Mutex<State>,
}

/// A piece of guest memory that a copy can name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Piece {
    /// Where the device finds it.
    pub address: CUdeviceptr,
    /// Bytes.
    pub bytes: u64,
}

impl Chunks {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Adds the pieces of a run, one for each chunk, and what keeps them registered. Runs of one file are
    /// only ever asked for by one thread.
    ///
    /// # Errors
    /// The driver's code: the memory cannot be registered.
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
        {
            let mut state = self.state();
            state.clock += 1;
            let now = state.clock;
            if let Some(entry) = state.chunks.get_mut(&key) {
                entry.used = now;
                return Ok(Arc::clone(&entry.chunk));
            }
        }
        let mut hopeless = file
            .hopeless
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner());
        if hopeless.is_some_and(|since| since.elapsed() < HOPELESS) {
            return Err(CUDA_ERROR_NOT_SUPPORTED);
        }
        if self.state().chunks.len() >= MAX_CHUNKS {
            self.evict();
        }
        // Others' copies go on meanwhile: the lock is not held.
        let chunk = Chunk::register(file, index).or_else(|_| {
            self.evict();
            Chunk::register(file, index)
        });
        let chunk = Arc::new(chunk.inspect_err(|code| {
            *hopeless = Some(Instant::now());
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
        Ok(chunk)
    }

    /// Lets go of the chunks that were not used for the longest time.
    fn evict(&self) {
        let mut state = self.state();
        let mut by_age: Vec<_> = state
            .chunks
            .iter()
            .map(|(&key, entry)| (entry.used, key))
            .collect();
        by_age.sort_unstable();
        let gone: Vec<_> = by_age
            .iter()
            .take(EVICTED)
            .filter_map(|(_, key)| state.chunks.remove(key))
            .collect();
        drop(state);
        drop(gone);
    }

    /// Lets go of all chunks of a file.
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
mod tests {
    use super::*;
    use crate::ipc::sealed_memfd;

    #[test]
    fn only_whole_pages_of_memory_are_mapped() {
        let memory = OwnedFd::from(sealed_memfd(c"test", 4 * PAGE_BYTES).unwrap());
        let map = |offset, bytes| GuestFile::map(&memory, offset, bytes);
        assert_eq!(map(PAGE_BYTES, PAGE_BYTES).unwrap().bytes(), PAGE_BYTES);
        assert!(map(1, PAGE_BYTES).is_err());
        assert!(map(0, 1).is_err());
        assert!(map(0, 0).is_err());
        assert!(map(u64::MAX - 4095, PAGE_BYTES).is_err());
        assert!(map(PAGE_BYTES, u64::MAX - 4095).is_err());
        let program = OwnedFd::from(std::fs::File::open("/proc/self/exe").unwrap());
        assert!(GuestFile::map(&program, 0, PAGE_BYTES).is_err());
    }
}
