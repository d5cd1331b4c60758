// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Memory that the device can reach: its own, and the host memory that was pinned for it.
//!
//! Device addresses are a reserved range in which nothing is mapped; the bytes are in a second range, the backing. So a
//! program that dereferences a device pointer on the CPU crashes as with a real GPU, and every access by the device
//! goes through the map below.

mod physical;
mod reserve;
mod space;

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use gpgpu_locks::{Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};
use gpgpu_protocol::cuda::{
    CU_MEM_ACCESS_FLAGS_PROT_READ, CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
    CU_MEMHOSTREGISTER_READ_ONLY, CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED,
    CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_OUT_OF_MEMORY, CUdevice, CUmemAccess_flags,
};

use crate::api::pool;
use crate::array;
use crate::config::ALLOCATION_ALIGNMENT;
use crate::driver::new_id;
use crate::exec;
use crate::ffi::Result;

pub use physical::{Charge, Handle, Physical};
pub use reserve::Mapped;
use reserve::{Reservation, allows};
pub use space::Mapping;
use space::Space;

/// A device's addresses: twice its memory, so that fragmentation refuses no allocation that fits.
fn addresses(total: u64) -> u64 {
    total * 2
}

type Map = BTreeMap<u64, Arc<Allocation>>;

/// The start of the device's addresses if the kernel grants it: far from where programs and their libraries lie.
const WINDOW: u64 = 0x4000_0000_0000;

/// The bytes that small managed variables share, where each begins, and the most bytes of one.
const VARIABLES: usize = 2 << 20;
const VARIABLE_GRAIN: usize = 512;
const SMALL_VARIABLE: usize = 64 << 10;

/// The kind of an allocation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// `cuMemAlloc` and its like.
    Device,
    /// `cuMemAllocManaged`: the program may use it as well, as it could any other memory here.
    Managed,
    /// `cuMemAllocAsync`: the handle of its pool.
    Pool(u64),
    /// A variable of a module.
    Module,
    /// The same, of managed memory.
    ManagedModule,
    /// The heap of a context. It is no allocation of the API's: only kernels use it.
    Heap,
    /// `cuMemHostAlloc`, with its flags.
    HostAllocated(u32),
    /// `cuMemHostRegister`, with its flags.
    HostRegistered(u32),
    /// `cuMemMap`. It belongs to no context.
    Mapped,
}

/// A range that the device can reach.
#[derive(Debug)]
pub struct Allocation {
    /// First address. For host memory the host's and the device's addresses are the same.
    pub start: u64,
    /// The bytes that the caller requested.
    pub size: u64,
    /// Its kind.
    pub kind: Kind,
    /// The context it belongs to, by id; zero for none.
    pub context: u64,
    /// The device.
    pub device: CUdevice,
    /// `CU_POINTER_ATTRIBUTE_BUFFER_ID`.
    pub id: u64,
    /// `CU_POINTER_ATTRIBUTE_SYNC_MEMOPS`.
    pub sync_memops: AtomicBool,
    /// A stream will free it: no other free is valid.
    pub being_freed: AtomicBool,
    /// The fields of a mapping only.
    pub mapped: Option<Mapped>,
    /// The CPU's address of its first byte.
    bytes: u64,
    /// Host memory to unmap at the end.
    _mapping: Option<Arc<Mapping>>,
}

impl Allocation {
    /// One past the last address.
    pub fn end(&self) -> u64 {
        self.start + self.size
    }

    /// Whether it is the host's memory.
    pub fn is_host(&self) -> bool {
        matches!(self.kind, Kind::HostAllocated(_) | Kind::HostRegistered(_))
    }

    /// Whether the program may use it as well.
    pub fn is_managed(&self) -> bool {
        matches!(self.kind, Kind::Managed | Kind::ManagedModule)
    }

    /// Whether it is not the device's own memory: host memory, or managed memory.
    pub fn is_outside(&self) -> bool {
        self.is_host() || self.is_managed()
    }

    /// A device's access to it.
    pub fn access_of(&self, device: CUdevice) -> CUmemAccess_flags {
        match &self.mapped {
            Some(mapped) => mapped.access_of(device),
            None => self.access(),
        }
    }

    /// The most that any device may do with it.
    pub fn access(&self) -> CUmemAccess_flags {
        match (self.kind, &self.mapped) {
            (_, Some(mapped)) => mapped.access(),
            (Kind::HostRegistered(flags), _) if flags & CU_MEMHOSTREGISTER_READ_ONLY != 0 => {
                CU_MEM_ACCESS_FLAGS_PROT_READ
            }
            _ => CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
        }
    }
}

/// The memory of a copy's address.
#[derive(Debug, Clone)]
pub enum Place {
    /// Inside an allocation, whole.
    Known(Arc<Allocation>),
    /// Host memory that is unknown to the driver.
    Pageable,
}

/// The context that memory belongs to, by id, and its device.
pub type Owner = (u64, CUdevice);

/// Memory as the kernels of a launch see it.
#[derive(Clone, Copy)]
pub struct Seen<'a> {
    memory: &'a DeviceMemory,
    device: CUdevice,
    effects: &'a dyn exec::Effects,
}

/// All memory that the devices can reach: each has its part of the addresses, one after the other.
pub struct DeviceMemory {
    window: u64,
    backing: Mapping,
    total: u64,
    spaces: Vec<Arc<Mutex<Space>>>,
    map: RwLock<Map>,
    reservations: Mutex<BTreeMap<u64, Arc<Reservation>>>,
    /// The memory from which small managed variables are allocated, and its used bytes.
    variables: Mutex<Option<(Arc<Mapping>, usize)>>,
    generation: AtomicU64,
    _reserved: Mapping,
}

impl DeviceMemory {
    /// Devices with `total` bytes each.
    ///
    /// # Errors
    /// The kernel refuses the address space.
    pub fn new(total: u64, devices: usize) -> io::Result<Self> {
        let part = addresses(total);
        let length = part as usize * devices;
        let space = |_| Arc::new(Mutex::new(Space::new(part, total)));
        let reserved = Mapping::reserve(WINDOW as usize, length)?;
        Ok(Self {
            window: reserved.address(),
            backing: Mapping::lazy(length)?,
            total,
            spaces: (0..devices).map(space).collect(),
            map: RwLock::new(BTreeMap::new()),
            reservations: Mutex::default(),
            variables: Mutex::default(),
            generation: AtomicU64::new(0),
            _reserved: reserved,
        })
    }

    /// Memory of each device in bytes.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// Memory of a device that is not allocated, in bytes.
    pub fn free_bytes(&self, device: CUdevice) -> u64 {
        self.space(device as usize).free_bytes()
    }

    /// Counts `bytes` of a device's memory as used until the answer is dropped.
    ///
    /// # Errors
    /// `CUDA_ERROR_OUT_OF_MEMORY`.
    pub fn charge(&self, bytes: u64, device: CUdevice) -> Result<Charge> {
        Charge::new(&self.spaces[device as usize], bytes).ok_or(CUDA_ERROR_OUT_OF_MEMORY)
    }

    fn space(&self, device: usize) -> MutexGuard<'_, Space> {
        self.spaces[device].lock()
    }

    // Locked before the map where both are.
    fn reservations(&self) -> MutexGuard<'_, BTreeMap<u64, Arc<Reservation>>> {
        self.reservations.lock()
    }

    fn read_map(&self) -> RwLockReadGuard<'_, Map> {
        self.map.read()
    }

    fn write_map(&self) -> RwLockWriteGuard<'_, Map> {
        self.map.write()
    }

    /// Kernels that run look their ranges up again.
    pub fn forget_ranges(&self) {
        self.generation.fetch_add(1, Ordering::AcqRel);
    }

    fn in_window(&self, address: u64) -> bool {
        address.wrapping_sub(self.window) < self.backing.length() as u64
    }

    // Whether an address can only be the device's.
    fn is_device(&self, address: u64) -> bool {
        self.in_window(address) || self.is_reserved(address)
    }

    fn add(&self, allocation: Allocation) -> Arc<Allocation> {
        let allocation = Arc::new(allocation);
        self.write_map()
            .insert(allocation.start, allocation.clone());
        allocation
    }

    /// Allocates device memory, zeroed.
    ///
    /// # Errors
    /// `CUDA_ERROR_INVALID_VALUE` for no bytes, `CUDA_ERROR_OUT_OF_MEMORY`.
    pub fn allocate(&self, size: u64, kind: Kind, owner: Owner) -> Result<Arc<Allocation>> {
        if size == 0 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let device = owner.1 as usize;
        let taken = self.space(device).take(size);
        let offset = taken.ok_or(CUDA_ERROR_OUT_OF_MEMORY)? + addresses(self.total) * device as u64;
        Ok(self.allocate_again(self.window + offset, size, kind, owner))
    }

    /// Makes an allocation of bytes at `start` that were removed but not released, and as many when rounded.
    pub fn allocate_again(
        &self,
        start: u64,
        size: u64,
        kind: Kind,
        (context, device): Owner,
    ) -> Arc<Allocation> {
        self.add(Allocation {
            start,
            size,
            kind,
            context,
            device,
            id: new_id(),
            sync_memops: AtomicBool::new(false),
            being_freed: AtomicBool::new(false),
            mapped: None,
            bytes: self.backing.address() + (start - self.window),
            _mapping: None,
        })
    }

    /// Allocates pinned host memory, zeroed and page-aligned.
    ///
    /// # Errors
    /// `CUDA_ERROR_INVALID_VALUE` for no bytes, `CUDA_ERROR_OUT_OF_MEMORY`.
    pub fn allocate_host(&self, size: u64, flags: u32, owner: Owner) -> Result<Arc<Allocation>> {
        self.map_pages(size, Kind::HostAllocated(flags), owner, Mapping::host)
    }

    /// Allocates managed memory, zeroed: pages of the process, which kernels reach as they reach pinned memory.
    ///
    /// # Errors
    /// `CUDA_ERROR_INVALID_VALUE` for no bytes, `CUDA_ERROR_OUT_OF_MEMORY` for more than the device has in all.
    pub fn allocate_managed(&self, size: u64, owner: Owner) -> Result<Arc<Allocation>> {
        self.check_managed(size)?;
        self.map_pages(size, Kind::Managed, owner, Mapping::host)
    }

    /// Allocates a managed variable of a module. Small ones lie one after the other in a piece of memory, as with
    /// NVIDIA's driver, which is used once: its pages are zeros.
    ///
    /// # Errors
    /// As [`DeviceMemory::allocate_managed`].
    pub fn allocate_variable(&self, size: u64, owner: Owner) -> Result<Arc<Allocation>> {
        self.check_managed(size)?;
        if size == 0 || size > SMALL_VARIABLE as u64 {
            return self.map_pages(size, Kind::ManagedModule, owner, Mapping::variables);
        }
        let mut variables = self.variables.lock();
        let length = (size as usize).next_multiple_of(VARIABLE_GRAIN);
        let (piece, at) = match variables.take() {
            Some((piece, used)) if piece.length() - used >= length => (piece, used),
            _ => {
                let piece = Mapping::variables(VARIABLES);
                (Arc::new(piece.map_err(|_| CUDA_ERROR_OUT_OF_MEMORY)?), 0)
            }
        };
        *variables = Some((piece.clone(), at + length));
        drop(variables);
        let start = piece.address() + at as u64;
        Ok(self.add_mapped((start, size), Kind::ManagedModule, owner, piece))
    }

    fn check_managed(&self, size: u64) -> Result {
        let fits = size <= self.total;
        fits.then_some(()).ok_or(CUDA_ERROR_OUT_OF_MEMORY)
    }

    fn map_pages(
        &self,
        size: u64,
        kind: Kind,
        owner: Owner,
        map: impl FnOnce(usize) -> io::Result<Mapping>,
    ) -> Result<Arc<Allocation>> {
        if size == 0 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let length = usize::try_from(size).map_err(|_| CUDA_ERROR_OUT_OF_MEMORY)?;
        let mapping = map(length).map_err(|_| CUDA_ERROR_OUT_OF_MEMORY)?;
        let place = (mapping.address(), size);
        Ok(self.add_mapped(place, kind, owner, Arc::new(mapping)))
    }

    /// Adds memory that is part of a mapping.
    fn add_mapped(
        &self,
        (start, size): (u64, u64),
        kind: Kind,
        (context, device): Owner,
        mapping: Arc<Mapping>,
    ) -> Arc<Allocation> {
        self.add(Allocation {
            start,
            size,
            kind,
            context,
            device,
            id: new_id(),
            sync_memops: AtomicBool::new(false),
            being_freed: AtomicBool::new(false),
            mapped: None,
            bytes: start,
            _mapping: Some(mapping),
        })
    }

    /// Makes the program's own memory reachable.
    ///
    /// # Errors
    /// `CUDA_ERROR_INVALID_VALUE` if nothing is mapped, for memory that cannot be written unless the flags say so, and
    /// for the driver's own; `CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED` for an overlap.
    pub fn register(&self, start: u64, size: u64, flags: u32, (context, device): Owner) -> Result {
        let end = start.checked_add(size).ok_or(CUDA_ERROR_INVALID_VALUE)?;
        if start == 0
            || size == 0
            || [start, end - 1].iter().any(|a| self.is_device(*a))
            || !space::is_mapped(start, size)
        {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let only_read = flags & CU_MEMHOSTREGISTER_READ_ONLY != 0;
        if !only_read && !space::is_writable(start, size) {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        // Pinning makes pages resident, or fails: no copy may find later that one is unavailable.
        space::populate(start, size, !only_read)?;
        let mut map = self.write_map();
        if let Some((_, other)) = map.range(..end).next_back()
            && other.end() > start
        {
            return Err(match other.kind {
                Kind::HostRegistered(_) => CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED,
                _ => CUDA_ERROR_INVALID_VALUE,
            });
        }
        let allocation = Allocation {
            start,
            size,
            kind: Kind::HostRegistered(flags),
            context,
            device,
            id: new_id(),
            sync_memops: AtomicBool::new(false),
            being_freed: AtomicBool::new(false),
            mapped: None,
            bytes: start,
            _mapping: None,
        };
        map.insert(start, Arc::new(allocation));
        Ok(())
    }

    /// The allocation of the API's that holds `address`.
    pub fn find(&self, address: u64) -> Option<Arc<Allocation>> {
        self.find_any(address).filter(|a| a.kind != Kind::Heap)
    }

    // The same, or the heap.
    fn find_any(&self, address: u64) -> Option<Arc<Allocation>> {
        let map = self.read_map();
        let (_, allocation) = map.range(..=address).next_back()?;
        (address < allocation.end()).then(|| allocation.clone())
    }

    // The allocation that contains a range, or the first of the allocations of one reservation that contain it. Some
    // device must have read, or write, access: between devices the driver copies with the one that has it.
    fn span(&self, address: u64, length: u64, write: bool) -> Option<Arc<Allocation>> {
        let end = address.checked_add(length)?;
        let map = self.read_map();
        let (_, first) = map.range(..=address).next_back()?;
        let mut last = first;
        if address >= first.end() || !allows(first.access(), write) {
            return None;
        }
        while last.end() < end {
            let next = map.get(&last.end())?;
            let (Some(this), Some(other)) = (&last.mapped, &next.mapped) else {
                return None;
            };
            if !this.is_beside(other) || !allows(other.access(), write) {
                return None;
            }
            last = next;
        }
        Some(first.clone())
    }

    /// The memory of `length` bytes at `address`, to read or write. `CUDA_ERROR_INVALID_VALUE` for device addresses
    /// that are not allocated or may not be accessed so, and for a range that leaves the allocation in which it begins
    /// (unless into the next mapping of the same reservation) or enters device memory. The same holds for the heap of a
    /// context. A range that begins before host memory is pageable, as with NVIDIA's driver.
    pub fn classify(&self, address: u64, length: u64, write: bool) -> Result<Place> {
        let end = address
            .checked_add(length)
            .ok_or(CUDA_ERROR_INVALID_VALUE)?;
        if let Some(allocation) = self.span(address, length, write) {
            let is_heap = allocation.kind == Kind::Heap;
            return (!is_heap)
                .then_some(Place::Known(allocation))
                .ok_or(CUDA_ERROR_INVALID_VALUE);
        }
        if address == 0 || self.find(address).is_some() || self.is_device(address) {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let enters_device = |(_, entered): (&u64, &Arc<Allocation>)| !entered.is_host();
        if self.read_map().range(address..end).any(enters_device) {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        Ok(Place::Pageable)
    }

    /// Removes the allocation that starts at `address` from the map if `which` accepts it. Running kernels may still
    /// reach its bytes: the caller waits for them, then calls [`DeviceMemory::release`].
    pub fn remove(
        &self,
        address: u64,
        which: impl Fn(&Allocation) -> bool,
    ) -> Option<Arc<Allocation>> {
        let mut map = self.write_map();
        if !map.get(&address).is_some_and(|a| which(a)) {
            return None;
        }
        let allocation = map.remove(&address);
        self.forget_ranges();
        allocation
    }

    /// Takes all allocations of a context out of the map.
    pub fn remove_context(&self, context: u64) -> Vec<Arc<Allocation>> {
        let mut map = self.write_map();
        let mut removed = Vec::new();
        map.retain(|_, a| {
            let stays = a.context != context;
            if !stays {
                removed.push(a.clone());
            }
            stays
        });
        self.forget_ranges();
        removed
    }

    /// Gives the bytes of a removed allocation back; host memory is unmapped with its last reference.
    pub fn release(&self, allocation: &Allocation) {
        if self.in_window(allocation.start) {
            let offset = allocation.start - self.window;
            let rounded = allocation.size.next_multiple_of(ALLOCATION_ALIGNMENT);
            self.backing.scrub(offset as usize, rounded as usize);
            let part = addresses(self.total);
            let mut space = self.space((offset / part) as usize);
            space.give(offset % part, rounded);
        }
    }

    /// The memory as a launch's kernels see it, on a device.
    pub fn seen_by<'a>(&'a self, device: CUdevice, effects: &'a dyn exec::Effects) -> Seen<'a> {
        Seen {
            memory: self,
            device,
            effects,
        }
    }

    /// The host's pointer to `length` bytes at a device address, or `None` if they are not all in one allocation (or in
    /// mappings of one reservation) that the device may read, or write.
    pub fn host_pointer(&self, address: u64, length: u64, write: bool) -> Option<*mut u8> {
        let first = self.span(address, length, write)?;
        Some((first.bytes + (address - first.start)) as *mut u8)
    }
}

// SAFETY: the backing of the window stays mapped for the process's life, at the window's own alignment (both are whole
// pages). So does a reservation's until it is freed, which waits likewise; mappings in it are replaced and never
// removed. Host memory that the driver allocated is unmapped only after `remove` has changed the generation and all
// running work has been waited for (`api::memory`); memory that the program registered stays mapped until it is
// unregistered by CUDA's contract, and its device address is its host address.
unsafe impl exec::Memory for Seen<'_> {
    fn range_of(&self, addr: u64) -> Option<exec::Range> {
        let allocation = self.memory.find_any(addr)?;
        let access = match allocation.kind {
            _ if allocation.device == self.device => allocation.access_of(self.device),
            // As with NVIDIA's driver, peers can only access memory that the program itself allocates.
            Kind::Module | Kind::Heap => return None,
            Kind::Device => {
                let reaches = self.effects.reaches(allocation.context);
                reaches.then(|| allocation.access())?
            }
            Kind::Pool(pool) => pool::opens(pool, self.device).then(|| allocation.access())?,
            _ => allocation.access_of(self.device),
        };
        allows(access, false).then(|| exec::Range {
            start: allocation.start,
            end: allocation.end(),
            base: allocation.bytes as *mut u8,
            writable: allows(access, true),
        })
    }

    fn generation(&self) -> u64 {
        self.memory.generation.load(Ordering::Acquire)
    }

    fn texture(&self, handle: u64) -> Option<Arc<exec::Texture>> {
        array::TEXTURES
            .find(handle)
            .map(|object| object.seen.clone())
    }

    fn surface(&self, handle: u64) -> Option<Arc<exec::Surface>> {
        array::SURFACES
            .find(handle)
            .map(|object| object.seen.clone())
    }
}

#[cfg(test)]
mod tests;
