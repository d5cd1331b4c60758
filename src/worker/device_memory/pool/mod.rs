// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! One device's memory: chunks of physical memory in a window of addresses, and allocations in them.
//!
//! A small allocation is a part of a shared chunk; a large one has a chunk of its own. The addresses behind each chunk
//! are unmapped, so that a kernel that accesses memory past a chunk's end faults. An unused chunk is kept for a while
//! for the next allocations, and is returned when memory is short.
//!
//! No lock is held during calls of the driver, so an allocation that finds its place at once never waits for one that
//! does not.

mod insist;

use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    os::fd::OwnedFd,
    sync::{
        Arc,
        atomic::{AtomicU32, AtomicU64, Ordering},
    },
    time::Instant,
};

use gpgpu_locks::{Mutex, MutexGuard};
use gpgpu_protocol::cuda::*;

use super::space::Space;
use crate::worker::grace::Ticket;

/// The alignment of allocations, in bytes. CUDA promises 256 and provides 512.
pub const ALIGNMENT: u64 = 512;
/// The minimum size of an allocation with a chunk of its own.
pub const WHOLE_BYTES: u64 = 32 << 20;
/// The size of the first shared chunk. The driver makes it as fast as a small one.
const FIRST_SHARED_BYTES: u64 = 16 << 20;
/// The maximum size of a shared chunk.
const LARGEST_SHARED_BYTES: u64 = 64 << 20;

/// The wait of an allocation if there is no memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Patience {
    /// None: the caller can try another way.
    None,
    /// For other processes to return kept memory.
    ForOthers,
}

/// Other holders of chunks, by descriptors.
pub trait Holders: std::fmt::Debug + Send + Sync {
    /// The exports with these numbers have ended: no process may keep their memory.
    fn drop_exports(&self, numbers: &[u32]);
}

/// Physical memory of a chunk. It is released when this is dropped and no mapping of it is left.
pub trait Memory {
    /// Sets whether it is in no allocation, and can be returned at any time.
    fn set_kept(&self, is_kept: bool);
}

/// The driver's operations for a pool.
pub trait Backend {
    /// The physical memory of a chunk.
    type Memory: Memory;

    /// Makes `bytes` bytes of memory and maps them for these devices.
    ///
    /// # Errors
    ///
    /// The driver's error code; nothing was made in that case.
    fn create(
        &self,
        address: u64,
        bytes: u64,
        devices: &[CUdevice],
        patience: Patience,
    ) -> Result<Self::Memory, CUresult>;
    /// Unmaps memory; `false` if that fails, in which case the addresses must not be used again.
    fn unmap(&self, address: u64, bytes: u64) -> bool;
    /// Gives another device access to the mapping.
    ///
    /// # Errors
    ///
    /// The driver's error code.
    fn grant(&self, address: u64, bytes: u64, device: CUdevice) -> Result<(), CUresult>;
    /// A descriptor by which other processes import the memory.
    ///
    /// # Errors
    ///
    /// The driver's error code.
    fn export(&self, memory: &Self::Memory) -> Result<OwnedFd, CUresult>;
    /// Reports that exported memory with these numbers was released: other processes must drop it.
    fn released(&self, numbers: &[u32]);
    /// The present time, for [`Self::is_unused`].
    fn now(&self) -> Option<Ticket> {
        None
    }
    /// Whether all commands have ended that may have looked up this memory before a time.
    fn is_unused(&self, _since: Option<Ticket>, _address: u64, _bytes: u64) -> bool {
        true
    }
    /// Whether the allocation would exceed the VM's limit, whatever the device has free.
    fn is_over_limit(&self, _bytes: u64) -> bool {
        false
    }
}

/// The configuration of a pool.
#[derive(Debug, Clone, Copy)]
pub struct Shape {
    /// The start address of its window.
    pub start: u64,
    /// The window's bytes.
    pub bytes: u64,
    /// The unit of the sizes of chunks, in bytes.
    pub granularity: u64,
    /// The number of bytes of idle chunks that are kept.
    pub keep: u64,
    /// The device.
    pub device: CUdevice,
}

/// The place of an address: the export, and the offset in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// The export's number.
    pub export: u32,
    /// Offset in bytes.
    pub offset: u64,
}

/// A number for an export that is unique in the process.
pub fn next_number() -> u32 {
    static NUMBERS: AtomicU32 = AtomicU32::new(1);
    NUMBERS.fetch_add(1, Ordering::Relaxed)
}

#[derive(Debug)]
struct Chunk<M> {
    memory: Arc<M>,
    bytes: u64,
    /// The bytes of its allocations.
    used: u64,
    is_shared: bool,
    number: u32,
    is_exported: bool,
    /// The time since which look-ups do not find it.
    idle_since: Option<Ticket>,
}

#[derive(Debug)]
struct State<M> {
    /// Free addresses of the window.
    addresses: Space,
    /// Free bytes of shared chunks.
    pieces: Space,
    /// By their addresses.
    chunks: BTreeMap<u64, Chunk<M>>,
    /// The address of each chunk, by its number.
    numbers: HashMap<u32, u64>,
    /// Chunks without allocations, the longest unused first.
    idle: VecDeque<u64>,
    idle_bytes: u64,
    /// The number of shared chunks made so far.
    shared_made: u32,
    /// The devices with access: the device itself, and those whose contexts have used it.
    devices: Vec<CUdevice>,
}

impl<M: Memory> State<M> {
    fn containing(&mut self, address: u64) -> Option<(u64, &mut Chunk<M>)> {
        let (&start, chunk) = self.chunks.range_mut(..=address).next_back()?;
        (address - start < chunk.bytes).then_some((start, chunk))
    }

    fn set_idle(&mut self, start: u64, since: Option<Ticket>) {
        if let Some(chunk) = self.chunks.get_mut(&start) {
            chunk.idle_since = since;
            self.idle.push_back(start);
            self.idle_bytes += chunk.bytes;
            chunk.memory.set_kept(true);
        }
    }

    /// Marks the idle chunk at an index as in use.
    fn set_busy(&mut self, index: usize) -> Option<(u64, &mut Chunk<M>)> {
        let start = self.idle.remove(index)?;
        let chunk = self.chunks.get_mut(&start)?;
        self.idle_bytes -= chunk.bytes;
        chunk.memory.set_kept(false);
        Some((start, chunk))
    }

    /// Takes memory for a small allocation from a shared chunk.
    fn carve(&mut self, bytes: u64) -> Option<u64> {
        let address = self.pieces.take(bytes)?;
        let (start, chunk) = self.containing(address)?;
        let was = chunk.used;
        chunk.used += bytes;
        if was == 0
            && let Some(index) = self.idle.iter().position(|idle| *idle == start)
        {
            self.set_busy(index);
        }
        Some(address)
    }

    /// Takes an idle chunk for a large allocation.
    fn reuse(&mut self, bytes: u64) -> Option<u64> {
        // The chunk used last, because its pages are the likeliest to be in a cache.
        let index = self.idle.iter().rposition(|start| {
            let chunk = &self.chunks[start];
            !chunk.is_shared && chunk.bytes == bytes
        })?;
        let (start, chunk) = self.set_busy(index)?;
        chunk.used = bytes;
        Some(start)
    }

    /// Removes the oldest unused chunks from the tables until at most `keep` bytes are idle. They count as kept until
    /// they were returned to the driver.
    fn evict(
        &mut self,
        keep: u64,
        is_unused: impl Fn(u64, &Chunk<M>) -> bool,
    ) -> Vec<(u64, Chunk<M>)> {
        let mut gone = Vec::new();
        let mut index = 0;
        while self.idle_bytes > keep {
            let Some(&start) = self.idle.get(index) else {
                break;
            };
            if (self.chunks.get(&start)).is_some_and(|chunk| !is_unused(start, chunk)) {
                index += 1;
                continue;
            }
            self.idle.remove(index);
            let Some(chunk) = self.chunks.remove(&start) else {
                continue;
            };
            self.idle_bytes -= chunk.bytes;
            self.numbers.remove(&chunk.number);
            if chunk.is_shared {
                self.pieces.take_whole(start, chunk.bytes);
            }
            gone.push((start, chunk));
        }
        gone
    }
}

/// See the module's documentation.
#[derive(Debug)]
pub struct Pool<B: Backend> {
    backend: B,
    shape: Shape,
    state: Mutex<State<B::Memory>>,
    /// The devices with access; locked while access is granted.
    granting: Mutex<Vec<CUdevice>>,
    /// The number of returned chunks; locked while chunks are returned.
    discards: Mutex<u64>,
    /// The last time at which exported memory was returned.
    dropped: Mutex<Option<Instant>>,
    /// The number of idle bytes that the program has asked to keep.
    promised: AtomicU64,
    /// The number of times that all idle chunks were returned because memory had run out.
    pressures: AtomicU64,
}

impl<B: Backend> Pool<B> {
    /// A pool without a chunk.
    pub fn new(backend: B, shape: Shape) -> Self {
        let mut addresses = Space::default();
        // The first granule stays free, to guard the first chunk from below.
        addresses.give(
            shape.start + shape.granularity,
            shape.bytes - shape.granularity,
        );
        let state = State {
            addresses,
            pieces: Space::default(),
            chunks: BTreeMap::new(),
            numbers: HashMap::new(),
            idle: VecDeque::new(),
            idle_bytes: 0,
            shared_made: 0,
            devices: vec![shape.device],
        };
        Self {
            backend,
            shape,
            state: Mutex::new(state),
            granting: Mutex::new(vec![shape.device]),
            discards: Mutex::new(0),
            dropped: Mutex::default(),
            promised: AtomicU64::new(0),
            pressures: AtomicU64::new(0),
        }
    }

    fn state(&self) -> MutexGuard<'_, State<B::Memory>> {
        self.state.lock()
    }

    /// Whether an address lies in the window.
    pub fn owns(&self, address: u64) -> bool {
        address.wrapping_sub(self.shape.start) < self.shape.bytes
    }

    /// The device.
    pub fn device(&self) -> CUdevice {
        self.shape.device
    }

    /// Whether there is a chunk.
    pub fn has_chunks(&self) -> bool {
        !self.state().chunks.is_empty()
    }

    /// The bytes that an allocation takes in a chunk; `None` if no pool can have that many.
    pub fn taken(&self, bytes: u64) -> Option<u64> {
        let step = if bytes < WHOLE_BYTES {
            ALIGNMENT
        } else {
            self.shape.granularity
        };
        bytes.checked_next_multiple_of(step)
    }

    /// Memory of `taken` bytes, if there is any without a call of the driver.
    pub fn try_allocate(&self, taken: u64) -> Option<u64> {
        let mut state = self.state();
        if taken < WHOLE_BYTES {
            state.carve(taken)
        } else {
            state.reuse(taken)
        }
    }

    /// Memory of `taken` bytes.
    ///
    /// # Errors
    ///
    /// `CUDA_ERROR_OUT_OF_MEMORY`, or the driver's own error code.
    pub fn allocate(&self, taken: u64) -> Result<u64, CUresult> {
        if let Some(address) = self.try_allocate(taken) {
            return Ok(address);
        }
        if taken >= WHOLE_BYTES {
            return self.create(taken, None, Patience::ForOthers);
        }
        let least = taken.next_multiple_of(self.shape.granularity);
        let wish = (FIRST_SHARED_BYTES << self.state().shared_made.min(16))
            .min(LARGEST_SHARED_BYTES)
            .next_multiple_of(self.shape.granularity);
        if wish > least {
            match self.create(wish, Some(taken), Patience::None) {
                Err(CUDA_ERROR_OUT_OF_MEMORY) => {}
                made => return made,
            }
            // Another thread may have freed some in the meantime.
            if let Some(address) = self.try_allocate(taken) {
                return Ok(address);
            }
        }
        // As a last resort, take only the requested bytes.
        self.create(least, Some(taken), Patience::ForOthers)
    }

    /// Makes a chunk: a shared one for a first allocation of `carved` bytes, or one that is a single allocation.
    fn create(&self, bytes: u64, carved: Option<u64>, patience: Patience) -> Result<u64, CUresult> {
        let reserved = bytes + self.shape.granularity;
        let (address, devices) = {
            let mut state = self.state();
            let address = state
                .addresses
                .take(reserved)
                .ok_or(CUDA_ERROR_OUT_OF_MEMORY)?;
            (address, state.devices.clone())
        };
        let create = |patience| self.backend.create(address, bytes, &devices, patience);
        let made = self.insist(bytes, patience, create);
        let mut state = self.state();
        let memory = match made {
            Ok(memory) => Arc::new(memory),
            Err(code) => {
                state.addresses.give(address, reserved);
                return Err(code);
            }
        };
        let late: Vec<CUdevice> = state.devices[devices.len()..].to_vec();
        let number = next_number();
        let chunk = Chunk {
            memory,
            bytes,
            used: carved.unwrap_or(bytes),
            is_shared: carved.is_some(),
            number,
            is_exported: false,
            idle_since: None,
        };
        state.chunks.insert(address, chunk);
        state.numbers.insert(number, address);
        if let Some(carved) = carved {
            state.shared_made += 1;
            if carved < bytes {
                state.pieces.give(address + carved, bytes - carved);
            }
        }
        drop(state);
        for device in late {
            if let Err(code) = self.backend.grant(address, bytes, device) {
                self.free(address, carved.unwrap_or(bytes));
                return Err(code);
            }
        }
        Ok(address)
    }

    /// Frees an allocation of `taken` bytes that is no longer in use. Returns the number of idle bytes.
    pub fn free(&self, address: u64, taken: u64) -> u64 {
        let mut state = self.state();
        let Some((start, chunk)) = state.containing(address) else {
            return state.idle_bytes;
        };
        chunk.used -= taken;
        let (used, is_shared) = (chunk.used, chunk.is_shared);
        if is_shared {
            state.pieces.give(address, taken);
        }
        if used == 0 {
            state.set_idle(start, self.backend.now());
        }
        state.idle_bytes
    }

    /// The maximum number of bytes of idle chunks that are kept.
    pub fn keep(&self) -> u64 {
        self.shape.keep.max(self.promised())
    }

    /// The number of bytes of idle chunks to keep while memory is not short.
    pub fn promised(&self) -> u64 {
        self.promised.load(Ordering::Relaxed)
    }

    /// Sets that number.
    pub fn promise(&self, bytes: u64) {
        self.promised.store(bytes, Ordering::Relaxed);
    }

    /// Returns all idle chunks, because memory has run out somewhere; `false` if there were none. Cancels promises to
    /// keep memory.
    pub fn press(&self) -> bool {
        self.pressures.fetch_add(1, Ordering::Relaxed);
        self.promise(0);
        self.trim(0)
    }

    /// The number of times that memory had run out.
    pub fn pressures(&self) -> u64 {
        self.pressures.load(Ordering::Relaxed)
    }

    /// Returns idle chunks until at most `keep` bytes are idle; `false` if there was nothing to return.
    pub fn trim(&self, keep: u64) -> bool {
        let mut discards = self.discards();
        let gone = self.state().evict(keep, |start, chunk| {
            let since = chunk.idle_since;
            self.backend.is_unused(since, start, chunk.bytes)
        });
        *discards += gone.len() as u64;
        let exported = gone.iter().filter(|(_, chunk)| chunk.is_exported);
        let exported: Vec<u32> = exported.map(|(_, chunk)| chunk.number).collect();
        if !exported.is_empty() {
            self.backend.released(&exported);
            self.note_dropped();
        }
        let any = !gone.is_empty();
        for (start, chunk) in gone {
            let bytes = chunk.bytes;
            if self.backend.unmap(start, bytes) {
                drop(chunk);
                let mut state = self.state();
                state.addresses.give(start, bytes + self.shape.granularity);
            } else {
                // The memory still exists, and so counts as used.
                chunk.memory.set_kept(false);
                std::mem::forget(chunk);
            }
        }
        any
    }

    fn discards(&self) -> MutexGuard<'_, u64> {
        self.discards.lock()
    }

    /// Calls `ask` while this process returns no memory to the driver.
    pub fn with_nothing_on_its_way<T>(&self, ask: impl FnOnce() -> T) -> T {
        let _discards = self.discards();
        ask()
    }

    /// The bytes that the driver counts as used although they are free.
    pub fn free_bytes(&self) -> u64 {
        let state = self.state();
        let whole = state.idle.iter().map(|start| &state.chunks[start]);
        let whole: u64 = whole
            .filter(|chunk| !chunk.is_shared)
            .map(|chunk| chunk.bytes)
            .sum();
        whole + state.pieces.free()
    }

    /// Gives another device access to all of the pool's memory, including later chunks.
    ///
    /// # Errors
    ///
    /// The driver's error code; the other device may already have access to some of the memory.
    pub fn share(&self, device: CUdevice) -> Result<(), CUresult> {
        let mut granted = self.granting.lock();
        if granted.contains(&device) {
            return Ok(());
        }
        let chunks: Vec<(u64, u64)> = {
            let mut state = self.state();
            // Chunks that are made from now on include the device.
            if !state.devices.contains(&device) {
                state.devices.push(device);
            }
            let chunks = state.chunks.iter();
            chunks.map(|(start, chunk)| (*start, chunk.bytes)).collect()
        };
        for (start, bytes) in chunks {
            let result = self.backend.grant(start, bytes, device);
            // A chunk that no longer exists needs no access.
            if result.is_err() && self.state().chunks.contains_key(&start) {
                return result;
            }
        }
        granted.push(device);
        Ok(())
    }

    /// The place of `bytes` bytes at an address, if all of them are in one chunk. The chunk counts as exported from now
    /// on.
    pub fn place(&self, address: u64, bytes: u64) -> Option<Place> {
        let mut state = self.state();
        let (start, chunk) = state.containing(address)?;
        let offset = address - start;
        if bytes > chunk.bytes - offset {
            return None;
        }
        chunk.is_exported = true;
        Some(Place {
            export: chunk.number,
            offset,
        })
    }

    /// A descriptor for the chunk with this number, and the chunk's size; `None` if the pool does not have it.
    pub fn export(&self, number: u32) -> Option<Result<(OwnedFd, u64), CUresult>> {
        let (memory, bytes) = {
            let mut state = self.state();
            let start = *state.numbers.get(&number)?;
            let chunk = state.chunks.get_mut(&start)?;
            chunk.is_exported = true;
            (Arc::clone(&chunk.memory), chunk.bytes)
        };
        Some(self.backend.export(&memory).map(|fd| (fd, bytes)))
    }
}

#[cfg(test)]
mod tests;
