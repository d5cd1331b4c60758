// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The guest's device memory: its allocations, their contexts and their places.
//!
//! Allocations come from chunks that another process can import ([`pool`]), at addresses in a window of each device. A
//! device whose driver cannot do that has `cuMemAlloc`'s memory instead. In both cases all allocations are recorded
//! ([`ranges`]), so queries of addresses need no call of the driver.

mod addresses;
mod driver;
mod endings;
mod freed;
mod idle;
mod imported;
mod lookups;
mod mapped;
mod mempool;
mod ordered;
mod pool;
mod ranges;
mod reaper;
mod shared;
mod space;

use std::{
    collections::HashMap,
    os::fd::OwnedFd,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use gpgpu_locks::{Mutex, RwLock};
use gpgpu_protocol::cuda::*;

use self::{
    driver::{Chunks, DriverEvents},
    freed::Freed,
    idle::{Device, Trimmer},
    imported::Imports,
    mapped::Mapped,
    mempool::MemPools,
    pool::Pool,
    ranges::Ranges,
    reaper::Reaper,
    shared::Loans,
};
pub use self::{
    imported::Lender,
    ordered::enter_stream,
    pool::{Holders, Place},
    ranges::{Range, Source},
    shared::Lent,
};
use super::{
    captures,
    common::Common,
    grace::{self, Ending, Name, Ticket},
};
use crate::{
    account::{Charge, Quota},
    cuda::driver as cuda,
};

/// The maximum number of allocations: their records occupy this process's memory.
const MAX_ALLOCATIONS: usize = 1 << 22;
/// The first id of a buffer. The driver's own ids begin at 1.
const FIRST_ID: u64 = 1 << 48;
/// The driver's alignment of the rows of `cuMemAllocPitch`, in bytes.
const PITCH_ALIGNMENT: usize = 512;

/// See the module's documentation.
#[derive(Debug)]
pub struct DeviceMemory {
    pub(super) common: &'static Common,
    /// Other holders of chunks.
    holders: &'static dyn Holders,
    ranges: Ranges,
    /// By device; `None` if it has no chunks.
    devices: RwLock<HashMap<CUdevice, Option<Arc<Device>>>>,
    /// Whether there are several such devices.
    spans_devices: AtomicBool,
    /// The device of each context in which something was allocated.
    contexts: RwLock<HashMap<u64, CUdevice>>,
    ids: AtomicU64,
    /// Whether a range was ever made synchronous.
    any_synchronous: AtomicBool,
    /// The quota for its charges, once there is a client.
    quota: OnceLock<Quota>,
    /// The charges for the driver's own allocations, by address.
    charges: Mutex<HashMap<u64, Charge>>,
    /// Memory that was freed in stream order, until the free is complete.
    freed: Freed<DriverEvents>,
    reaper: Reaper,
    mempools: MemPools,
    mapped: Mapped,
    imports: Imports,
    loans: Loans,
    lender: OnceLock<&'static dyn Lender>,
}

/// The device of the thread's current context.
fn current_device() -> Result<CUdevice, CUresult> {
    let mut device = 0;
    // SAFETY: the pointer is to a value that lives across the call.
    unsafe { cuda::cuCtxGetDevice(&mut device)? };
    Ok(device)
}

/// The memory of the current context's device, from the driver: free and total bytes. This reports the failure of an
/// earlier kernel.
fn driver_info() -> Result<(usize, usize), CUresult> {
    let (mut free, mut total) = (0, 0);
    // SAFETY: the pointers are to values that live across the call.
    unsafe { cuda::cuMemGetInfo_v2(&mut free, &mut total)? };
    Ok((free, total))
}

impl DeviceMemory {
    /// An empty set; `holders` are told when they have to release chunks.
    pub fn new(common: &'static Common, holders: &'static dyn Holders) -> Self {
        Self {
            common,
            holders,
            ranges: Ranges::default(),
            devices: RwLock::default(),
            spans_devices: AtomicBool::new(false),
            contexts: RwLock::default(),
            ids: AtomicU64::new(0),
            any_synchronous: AtomicBool::new(false),
            quota: OnceLock::new(),
            charges: Mutex::default(),
            freed: Freed::default(),
            reaper: Reaper::default(),
            mempools: MemPools::default(),
            mapped: Mapped::default(),
            imports: Imports::default(),
            loans: Loans::default(),
            lender: OnceLock::new(),
        }
    }

    /// Sets the receiver of memory that other processes have lent.
    pub fn give_back_to(&self, lender: &'static dyn Lender) {
        let _ = self.lender.set(lender);
    }

    /// Charges all allocations from now on.
    pub fn limit_by(&self, quota: Quota) {
        let _ = self.quota.set(quota);
    }

    /// Returns the memory of a device that is only kept.
    pub fn give_kept(&self, device: CUdevice) {
        let found = self.known_device(device);
        if let Some(device) = found {
            device.pool.press();
        }
    }

    fn charges(&self) -> gpgpu_locks::MutexGuard<'_, HashMap<u64, Charge>> {
        self.charges.lock()
    }

    /// The device of a context, which must be the thread's current one.
    fn device_of(&self, context: u64) -> Result<CUdevice, CUresult> {
        if let Some(device) = self.contexts.read().get(&context) {
            return Ok(*device);
        }
        let device = current_device()?;
        self.contexts.write().insert(context, device);
        Ok(device)
    }

    /// Whether there is, or was, memory on more than one device.
    pub fn spans_devices(&self) -> bool {
        self.spans_devices.load(Ordering::Relaxed)
    }

    /// A device that is known to have chunks.
    fn known_device(&self, device: CUdevice) -> Option<Arc<Device>> {
        self.devices.read().get(&device).cloned().flatten()
    }

    /// A device that has chunks.
    fn device(&self, device: CUdevice) -> Option<Arc<Device>> {
        if let Some(known) = self.devices.read().get(&device) {
            return known.clone();
        }
        let mut devices = self.devices.write();
        let made = devices.entry(device).or_insert_with(|| {
            let quota = self.quota.get().cloned();
            let made = Chunks::new(device, quota.clone(), self.holders)
                .inspect_err(|why| tracing::info!("GPU {device} has no exportable memory: {why}"));
            let (chunks, shape) = made.ok()?;
            let made = Arc::new(Device {
                pool: Pool::new(chunks, shape),
                is_refused: AtomicBool::new(false),
                trimmer: Trimmer::default(),
            });
            if let Some(quota) = quota {
                made.listen(quota);
            }
            Some(made)
        });
        let made = made.clone();
        if devices.len() > 1 {
            self.spans_devices.store(true, Ordering::Relaxed);
        }
        made
    }

    /// The device whose window contains an address.
    fn owner(&self, address: u64) -> Option<Arc<Device>> {
        let devices = self.devices.read();
        let device = devices
            .values()
            .flatten()
            .find(|device| device.pool.owns(address))?;
        Some(Arc::clone(device))
    }

    /// Whether an address lies in a window. Then it belongs to recorded memory, or to none.
    fn is_ours(&self, address: u64) -> bool {
        let devices = self.devices.read();
        let mut pools = devices.values().flatten();
        pools.any(|device| device.pool.owns(address))
            || self.mapped.owns(address)
            || self.imports.owns(address)
    }

    fn note(&self, start: u64, bytes: u64, context: u64, device: CUdevice, source: Source) {
        self.note_in(start, bytes, (context, device), source, 0);
    }

    /// Records a range of a memory pool, or of none, with its context and device.
    fn note_in(
        &self,
        start: u64,
        bytes: u64,
        (context, device): (u64, CUdevice),
        source: Source,
        mempool: u64,
    ) {
        self.ranges.insert(Range {
            start,
            bytes,
            context,
            device,
            source,
            mempool,
            id: self.next_id(),
            sync_memops: false,
            ending: None,
        });
    }

    /// A number that is unique for this client.
    fn next_id(&self) -> u64 {
        FIRST_ID + self.ids.fetch_add(1, Ordering::Relaxed)
    }

    /// `cuMemAlloc` from memory at hand: this does not call the driver, and never blocks. `None` means that
    /// [`DeviceMemory::allocate`] has to be called.
    pub fn try_alloc_cached(&self, context: u64, bytes: u64) -> Option<CUdeviceptr> {
        if bytes == 0 || cuda::has_failed() || self.has_many() {
            return None;
        }
        let device = *self.contexts.read().get(&context)?;
        let found = self.devices.read().get(&device)?.clone()?;
        let taken = found.pool.taken(bytes)?;
        let address = found.pool.try_allocate(taken)?;
        self.note(address, bytes, context, device, Source::Pool { taken });
        Some(address)
    }

    /// `cuMemAlloc` in the thread's current context, whose id is given.
    ///
    /// # Errors
    ///
    /// The driver's error code: `CUDA_ERROR_INVALID_VALUE` for a size of 0, `CUDA_ERROR_OUT_OF_MEMORY`, or that of an
    /// earlier failure.
    pub fn allocate(&self, context: u64, bytes: u64) -> Result<CUdeviceptr, CUresult> {
        if let Some(address) = self.try_alloc_cached(context, bytes) {
            return Ok(address);
        }
        // The driver may take long, and so may other processes that have to return memory.
        grace::narrow(&[Name::Object(context)]);
        // Making chunks would succeed even after a failure of the context.
        let (_, total) = driver_info()?;
        if bytes == 0 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        if bytes > total as u64 || self.has_many() {
            return Err(CUDA_ERROR_OUT_OF_MEMORY);
        }
        let ordinal = self.device_of(context)?;
        let (address, source) = self.make(ordinal, bytes)?;
        self.note(address, bytes, context, ordinal, source);
        Ok(address)
    }

    /// Whether the maximum number of allocations is reached.
    fn has_many(&self) -> bool {
        self.ranges.len() + self.freed.len() >= MAX_ALLOCATIONS
    }

    /// Allocates memory on the current context's device.
    fn make(&self, ordinal: CUdevice, bytes: u64) -> Result<(CUdeviceptr, Source), CUresult> {
        if let Some(device) = self.device(ordinal)
            && !device.is_refused.load(Ordering::Relaxed)
        {
            let taken = device.pool.taken(bytes).ok_or(CUDA_ERROR_OUT_OF_MEMORY)?;
            match device.pool.allocate(taken) {
                Ok(address) => return Ok((address, Source::Pool { taken })),
                Err(code) if code == CUDA_ERROR_OUT_OF_MEMORY || device.pool.has_chunks() => {
                    return Err(code);
                }
                Err(code) => {
                    tracing::info!("GPU {ordinal} has no exportable memory: driver error {code}");
                    device.is_refused.store(true, Ordering::Relaxed);
                }
            }
        }
        let charge = self.quota.get().map(|quota| {
            // The driver gives large allocations whole pages. Small ones share pages, and are rounded up together.
            let unit = if bytes >= crate::account::GRANULE / 2 {
                crate::account::GRANULE
            } else {
                pool::ALIGNMENT
            };
            let taken = bytes.checked_next_multiple_of(unit);
            quota.reserve_patiently(ordinal, taken.ok_or(CUDA_ERROR_OUT_OF_MEMORY)?)
        });
        let charge = charge.transpose()?;
        let mut address = 0;
        // SAFETY: the pointer is to a value that lives across the call.
        unsafe { cuda::cuMemAlloc_v2(&mut address, bytes as usize)? };
        if let Some(charge) = charge {
            self.charges().insert(address, charge);
        }
        Ok((address, Source::Driver))
    }

    /// `cuMemFree`: waits for the work of the context to which the memory belongs, as the driver does.
    ///
    /// # Errors
    ///
    /// `CUDA_ERROR_INVALID_VALUE` if no allocation starts there; the driver's error code.
    pub fn free(&self, address: CUdeviceptr) -> Result<(), CUresult> {
        let Some(range) = self.ranges.end(address, is_allocation) else {
            return match self.is_pooled_import(address) {
                true => self.close(address),
                false => self.free_unknown(address),
            };
        };
        let ticket = Ticket::now();
        let result = match range.source {
            Source::Pool { .. } => wait_for(self.common, range.context),
            _ => {
                let [home, entered] = self.common.used();
                grace::narrow(&[Name::Object(range.context), home, entered]);
                let (start, bytes) = (range.start, range.bytes);
                ticket.wait(Ending::Memory { start, bytes });
                Ok(())
            }
        };
        self.finish_free(range, result)
    }

    /// Frees a range that is ending, if `result` is `Ok`.
    fn finish_free(&self, range: Range, result: Result<(), CUresult>) -> Result<(), CUresult> {
        let is_drivers = range.source == Source::Driver;
        // The driver still knows its own memory until it is freed.
        if !is_drivers {
            self.ranges.remove_freed(range.start);
        }
        let result = result.and_then(|()| self.give_back(&range));
        match result {
            Ok(()) if is_drivers => self.ranges.remove_freed(range.start),
            Ok(()) => {}
            Err(_) => self.ranges.insert(range),
        }
        result
    }

    /// `cuMemFree` of memory that is no longer in use, because the context has done its work. It does not block for
    /// memory of a chunk.
    ///
    /// # Errors
    ///
    /// As [`DeviceMemory::free`].
    pub fn free_idle(&'static self, address: CUdeviceptr) -> Result<(), CUresult> {
        let Some(range) = self.ranges.end(address, is_allocation) else {
            return match self.is_pooled_import(address) {
                true => self.close_later(address),
                false => self.free_unknown(address),
            };
        };
        // The driver frees memory in any context, but not without one.
        if self.common.entered() == 0 {
            let _ = self.common.enter(range.context);
        }
        if range.source == Source::Driver {
            let (start, bytes) = (range.start, range.bytes);
            if !Ticket::now().has_passed(Ending::Memory { start, bytes }) {
                self.free_later(&range);
                return Ok(());
            }
        }
        self.finish_free(range, Ok(()))
    }

    fn give_back(&self, range: &Range) -> Result<(), CUresult> {
        match range.source {
            Source::Pool { taken } => {
                if let Some((device, idle)) = self.give_to_pool(range, taken) {
                    device.trimmer.notice(&device, idle);
                }
                Ok(())
            }
            Source::Driver => {
                self.give_to_driver(range.start)?;
                self.mempools.give_back(range.mempool, range.taken(), None);
                Ok(())
            }
            Source::Global(_) | Source::Imported | Source::Mapped { .. } => {
                Err(CUDA_ERROR_INVALID_VALUE)
            }
        }
    }

    /// Frees memory of a chunk; returns its device, and the number of idle bytes there.
    fn give_to_pool(&self, range: &Range, taken: u64) -> Option<(Arc<Device>, u64)> {
        if self.loans.keep(range, false) {
            return None;
        }
        let device = self.known_device(range.device)?;
        let pressures = device.pool.pressures();
        let idle = device.pool.free(range.start, taken);
        self.count_out(range.mempool, &device, taken, pressures);
        Some((device, idle))
    }

    /// Frees memory of `cuMemAlloc`.
    fn give_to_driver(&self, start: CUdeviceptr) -> Result<(), CUresult> {
        // As soon as it is freed, another thread may get the same address.
        let charge = self.charges().remove(&start);
        // SAFETY: the address is the driver's, and was not freed: it was noted until now.
        let freed = unsafe { cuda::cuMemFree_v2(start) };
        if let (Err(_), Some(charge)) = (freed, charge) {
            self.charges().insert(start, charge);
        }
        freed
    }

    fn free_unknown(&self, address: CUdeviceptr) -> Result<(), CUresult> {
        // Another thread may be about to free memory that only the driver still knows.
        let is_ending = (self.ranges.find(address)).is_some_and(|range| range.ending.is_some());
        if self.is_ours(address) || is_ending {
            driver_info()?;
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        // SAFETY: an address that the driver did not give out it refuses, and NULL is nothing to free.
        unsafe { cuda::cuMemFree_v2(address) }
    }

    /// `cuMemGetInfo` of the thread's current context: free and total bytes.
    ///
    /// # Errors
    ///
    /// The driver's error code.
    pub fn info(&self) -> Result<(usize, usize), CUresult> {
        let device = current_device()?;
        let found = self.known_device(device);
        let Some(found) = found else {
            return driver_info().map(|(free, total)| self.within_limit(device, free, total, 0));
        };
        found.pool.with_nothing_on_its_way(|| {
            let (free, total) = driver_info()?;
            Ok(self.within_limit(device, free, total, found.pool.free_bytes()))
        })
    }

    /// Free and total bytes for the guest, from the VM's limit, the GPU's memory, and the memory kept here.
    fn within_limit(
        &self,
        device: CUdevice,
        free: usize,
        total: usize,
        kept: u64,
    ) -> (usize, usize) {
        let free = (free as u64).saturating_add(kept);
        let room = self.quota.get().and_then(|quota| quota.room(device));
        let Some(room) = room else {
            return ((free as usize).min(total), total);
        };
        let total = room.limit.min(total as u64);
        // Other processes return kept memory when this one needs it.
        let room = (room.limit)
            .saturating_sub(room.used)
            .saturating_add(kept)
            .saturating_add(room.kept_by_others);
        (free.min(room).min(total) as usize, total as usize)
    }

    /// The place of the `bytes` bytes at an address for another process: a chunk, and the offset in it. `None` if they
    /// do not belong to one chunk.
    pub fn place(&self, address: CUdeviceptr, bytes: u64) -> Option<Place> {
        match self.owner(address) {
            Some(owner) => owner.pool.place(address, bytes),
            None => self.place_mapped(address, bytes),
        }
    }

    /// A descriptor by which another process imports a chunk, the size of the chunk and its device.
    ///
    /// # Errors
    ///
    /// `CUDA_ERROR_INVALID_VALUE` if the chunk no longer exists, or the driver's error code.
    pub fn export(&self, number: u32) -> Result<(OwnedFd, u64, CUdevice), CUresult> {
        let devices: Vec<_> = self.devices.read().values().flatten().cloned().collect();
        for device in devices {
            if let Some(exported) = device.pool.export(number) {
                let (fd, bytes) = exported?;
                return Ok((fd, bytes, device.pool.device()));
            }
        }
        let mapped = self.export_mapped(number);
        mapped.unwrap_or(Err(CUDA_ERROR_INVALID_VALUE))
    }
}

/// Whether `cuMemFree` accepts it.
fn is_allocation(range: &Range) -> bool {
    !matches!(
        range.source,
        Source::Global(_) | Source::Imported | Source::Mapped { .. }
    )
}

/// Waits until a context has done its work.
fn wait_for(common: &Common, context: u64) -> Result<(), CUresult> {
    let entered = common.entered();
    if entered != context {
        common.enter(context)?;
    }
    grace::narrow(&[context, entered].map(Name::Object));
    let result = captures::synchronize();
    if entered != context {
        common.enter(entered)?;
    }
    result
}

/// The pitch and the size for `cuMemAllocPitch`.
///
/// # Errors
///
/// `CUDA_ERROR_INVALID_VALUE`, also if the product is a multiple of 2⁶⁴, as with the driver; `CUDA_ERROR_OUT_OF_MEMORY`
/// for other products above 2⁶⁴.
pub fn pitched(
    width: usize,
    height: usize,
    element_bytes: u32,
) -> Result<(usize, usize), CUresult> {
    if !matches!(element_bytes, 4 | 8 | 16) {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    let pitch = width.wrapping_add(PITCH_ALIGNMENT - 1) / PITCH_ALIGNMENT * PITCH_ALIGNMENT;
    if pitch.wrapping_mul(height) == 0 {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    let bytes = pitch.checked_mul(height).ok_or(CUDA_ERROR_OUT_OF_MEMORY)?;
    Ok((pitch, bytes))
}

#[cfg(test)]
mod tests;
