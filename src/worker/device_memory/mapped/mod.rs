// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The guest's own virtual memory: its reservations, its physical memory, and its mappings.
//!
//! The worker reserves windows of addresses from the driver and never returns them; the guest's reservations lie in
//! them. So an address that the guest unmaps and frees is not reused by the driver: a command that has looked it up
//! gets the driver's error, and does not access memory of the worker itself. Mappings are recorded in [`super::ranges`]
//! like all other memory, which checks of copies and fills use.
//!
//! Physical memory has a reference count: the guest's references and its mappings. It is charged when it is made, and
//! the charge ends with the last reference.

mod physical;

use std::{
    collections::{BTreeMap, HashMap},
    os::fd::OwnedFd,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, Ordering},
    },
};

use gpgpu_locks::{Mutex, MutexGuard};
use gpgpu_protocol::cuda::*;

use super::{
    Device, DeviceMemory,
    addresses::{Addresses, GRANULARITY},
    cuda,
    driver::{export, location, reserve_for_guest},
    pool::{Holders, Place},
    ranges::{Access, Range, Source},
};
use crate::{
    account::Charge,
    worker::grace::{self, Ending, Ticket},
};

/// The maximum number of windows.
const WINDOWS: usize = 4;
/// The maximum number of a client's physical memories, and of its mappings: the driver's cost of each is host memory.
const MOST: usize = 256 << 10;

/// Physical memory, which is released with the last reference to it.
#[derive(Debug)]
struct Physical {
    handle: CUmemGenericAllocationHandle,
    bytes: u64,
    device: CUdevice,
    /// The guest's number of the device.
    guest_device: CUdevice,
    /// Whether the guest has made it to be exported.
    is_exportable: bool,
    /// Its number as an export.
    number: u32,
    is_exported: AtomicBool,
    holders: &'static dyn Holders,
    /// The device's chunks; `None` if memory cannot be exported.
    chunks: Option<Arc<Device>>,
    /// Dropped after the memory was released.
    _charge: Option<Charge>,
}

impl Drop for Physical {
    fn drop(&mut self) {
        if *self.is_exported.get_mut() {
            self.holders.drop_exports(&[self.number]);
            if let Some(device) = &self.chunks {
                device.pool.note_dropped();
            }
        }
        // SAFETY: the handle is the driver's and is released once.
        if let Err(code) = unsafe { cuda::cuMemRelease(self.handle) } {
            tracing::debug!("cuMemRelease: {code}");
        }
    }
}

/// Physical memory with a guest's id.
#[derive(Debug)]
struct Known {
    memory: Arc<Physical>,
    /// The number of the guest's references.
    references: u32,
    mappings: u32,
}

#[derive(Debug)]
struct Mapping {
    bytes: u64,
    /// The guest's id of the mapped memory.
    id: u64,
    memory: Arc<Physical>,
    /// Whether it is being unmapped.
    is_ending: bool,
}

#[derive(Debug, Default)]
struct State {
    addresses: Addresses,
    /// By the guest's ids.
    known: HashMap<u64, Known>,
    /// By their starts.
    mappings: BTreeMap<u64, Mapping>,
    /// The ids of memory that other processes may have imported, by its number.
    exported: HashMap<u32, u64>,
}

impl State {
    fn known(&mut self, id: u64) -> Result<&mut Known, CUresult> {
        let known = self.known.get_mut(&id);
        known
            .filter(|known| known.references > 0)
            .ok_or(CUDA_ERROR_INVALID_VALUE)
    }

    /// Forgets an id without references. The caller drops the memory without the lock.
    fn forget_unused(&mut self, id: u64) -> Option<Known> {
        let known = self.known.get(&id)?;
        if known.references > 0 || known.mappings > 0 {
            return None;
        }
        let number = known.memory.number;
        if self.exported.get(&number) == Some(&id) {
            self.exported.remove(&number);
            // The guest may have the memory under another id too.
            let is_other =
                |(other, known): &(&u64, &Known)| **other != id && known.memory.number == number;
            if Arc::strong_count(&known.memory) > 1
                && let Some((other, _)) = self.known.iter().find(is_other)
            {
                self.exported.insert(number, *other);
            }
        }
        self.known.remove(&id)
    }

    /// Removes a mapping's reference.
    fn uncount(&mut self, id: u64) -> Option<Known> {
        if let Some(known) = self.known.get_mut(&id) {
            known.mappings -= 1;
        }
        self.forget_unused(id)
    }

    /// The starts of the mappings that make up exactly this range of one reservation. None of them may be in the
    /// process of being unmapped.
    fn whole(&self, start: u64, bytes: u64) -> Result<Vec<u64>, CUresult> {
        let end = start.checked_add(bytes).filter(|_| bytes > 0);
        let end = end.ok_or(CUDA_ERROR_INVALID_VALUE)?;
        let within = self.addresses.holds(start, bytes);
        within.ok_or(CUDA_ERROR_INVALID_VALUE)?;
        let (mut at, mut found) = (start, Vec::new());
        for (&of, mapping) in self.mappings.range(start..end) {
            if of != at || mapping.is_ending {
                return Err(CUDA_ERROR_INVALID_VALUE);
            }
            found.push(of);
            at += mapping.bytes;
        }
        if at == end {
            Ok(found)
        } else {
            Err(CUDA_ERROR_INVALID_VALUE)
        }
    }

    /// The starts of the mappings in this range of one reservation. The range must not cut a mapping, and none may be
    /// in the process of being unmapped.
    fn within(&self, start: u64, bytes: u64) -> Result<Vec<u64>, CUresult> {
        let end = start.checked_add(bytes).filter(|_| bytes > 0);
        let end = end.ok_or(CUDA_ERROR_INVALID_VALUE)?;
        let is_aligned = start.is_multiple_of(GRANULARITY) && bytes.is_multiple_of(GRANULARITY);
        let reservation = self.addresses.holds(start, bytes).filter(|_| is_aligned);
        reservation.ok_or(CUDA_ERROR_INVALID_VALUE)?;
        let found = self.mappings.range(start..end);
        let is_whole = self.is_unmapped(start, 0)
            && found
                .clone()
                .all(|(of, mapping)| of + mapping.bytes <= end && !mapping.is_ending);
        if is_whole {
            Ok(found.map(|(of, _)| *of).collect())
        } else {
            Err(CUDA_ERROR_INVALID_VALUE)
        }
    }

    /// Whether nothing is mapped in a range.
    fn is_unmapped(&self, start: u64, bytes: u64) -> bool {
        let before = self.mappings.range(..start.saturating_add(bytes));
        let before = before.map(|(of, mapping)| of + mapping.bytes).next_back();
        before.is_none_or(|end| end <= start)
    }

    /// The mapping that contains an address.
    fn around(&self, address: u64) -> Option<&Mapping> {
        let (&start, mapping) = self.mappings.range(..=address).next_back()?;
        (address - start < mapping.bytes && !mapping.is_ending).then_some(mapping)
    }
}

/// See the module's documentation.
#[derive(Debug, Default)]
pub struct Mapped {
    /// Starts and sizes, for look-ups without a lock.
    windows: [OnceLock<(u64, u64)>; WINDOWS],
    state: Mutex<State>,
    /// Held while the driver changes mappings. The command is narrow, because other threads may wait for it.
    turn: Mutex<()>,
}

impl Mapped {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    fn turn(&self) -> MutexGuard<'_, ()> {
        self.turn.lock()
    }

    /// Whether an address lies in a window.
    pub fn owns(&self, address: u64) -> bool {
        let windows = self.windows.iter().map_while(OnceLock::get);
        windows
            .into_iter()
            .any(|(start, bytes)| address.wrapping_sub(*start) < *bytes)
    }

    /// Adds a window; `false` if none is available.
    fn add_window(&self, state: &mut State) -> bool {
        let Some(place) = self.windows.iter().find(|place| place.get().is_none()) else {
            return false;
        };
        let Some((start, bytes)) = reserve_for_guest() else {
            return false;
        };
        let _ = place.set((start, bytes));
        state.addresses.add(start, bytes);
        true
    }
}

/// Whether a range is a mapping.
fn is_mapping(range: &Range) -> bool {
    matches!(range.source, Source::Mapped { .. })
}

/// Checks that a device has a bit in [`Access`].
fn check_device(device: CUdevice) -> Result<(), CUresult> {
    let mut found = 0;
    // SAFETY: the pointer is to a value that lives across the call.
    unsafe { cuda::cuDeviceGet(&mut found, device)? };
    if (0..Access::DEVICES).contains(&device) {
        Ok(())
    } else {
        Err(CUDA_ERROR_INVALID_DEVICE)
    }
}

impl DeviceMemory {
    /// `cuMemAddressReserve`.
    ///
    /// # Errors
    ///
    /// `CUDA_ERROR_INVALID_VALUE` for a size of 0 or one that is not a multiple of the granularity, or an alignment
    /// that is not a power of two; `CUDA_ERROR_OUT_OF_MEMORY` above the limits.
    pub fn reserve_addresses(
        &self,
        bytes: u64,
        alignment: u64,
        wish: u64,
    ) -> Result<CUdeviceptr, CUresult> {
        let is_aligned = alignment == 0 || alignment.is_power_of_two();
        if bytes == 0 || !bytes.is_multiple_of(GRANULARITY) || !is_aligned {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let mut state = self.mapped.state();
        if state.addresses.has_many() {
            return Err(CUDA_ERROR_OUT_OF_MEMORY);
        }
        loop {
            if let Some(start) = state.addresses.reserve(bytes, alignment, wish) {
                return Ok(start);
            }
            if !self.mapped.add_window(&mut state) {
                return Err(CUDA_ERROR_OUT_OF_MEMORY);
            }
        }
    }

    /// `cuMemAddressFree`.
    ///
    /// # Errors
    ///
    /// `CUDA_ERROR_INVALID_VALUE` unless it is a whole reservation without mappings.
    pub fn free_addresses(&self, start: u64, bytes: u64) -> Result<(), CUresult> {
        grace::narrow(&[]);
        let _turn = self.mapped.turn();
        let mut state = self.mapped.state();
        if state.is_unmapped(start, bytes) && state.addresses.free(start, bytes) {
            Ok(())
        } else {
            Err(CUDA_ERROR_INVALID_VALUE)
        }
    }

    /// `cuMemMap`; returns the guest's number of the memory's device.
    ///
    /// # Errors
    ///
    /// `CUDA_ERROR_INVALID_VALUE` for an id as [`Self::release_physical`], 0 bytes, and addresses that do not belong to
    /// one reservation or are already mapped; `CUDA_ERROR_NOT_SUPPORTED` for an offset other than 0, and another size
    /// than the memory's; `CUDA_ERROR_OUT_OF_MEMORY` above the limit of mappings; the driver's error code.
    pub fn map(&self, start: u64, bytes: u64, offset: u64, id: u64) -> Result<CUdevice, CUresult> {
        grace::narrow(&[]);
        let _turn = self.mapped.turn();
        let (memory, reservation) = {
            let mut state = self.mapped.state();
            let reservation = state.addresses.holds(start, bytes);
            let is_free = state.is_unmapped(start, bytes);
            let has_many = state.mappings.len() >= MOST || self.has_many();
            let known = state.known(id)?;
            if bytes == 0 {
                return Err(CUDA_ERROR_INVALID_VALUE);
            }
            if offset != 0 || bytes != known.memory.bytes {
                return Err(CUDA_ERROR_NOT_SUPPORTED);
            }
            if !start.is_multiple_of(GRANULARITY) || !is_free {
                return Err(CUDA_ERROR_INVALID_VALUE);
            }
            let reservation = reservation.ok_or(CUDA_ERROR_INVALID_VALUE)?;
            if has_many {
                return Err(CUDA_ERROR_OUT_OF_MEMORY);
            }
            let mappings = known.mappings.checked_add(1);
            known.mappings = mappings.ok_or(CUDA_ERROR_OUT_OF_MEMORY)?;
            (Arc::clone(&known.memory), reservation)
        };
        // SAFETY: the addresses are of a window of the guest's, and nothing is mapped there; the handle lives.
        let mapped = unsafe { cuda::cuMemMap(start, bytes as usize, 0, memory.handle, 0) };
        let mut state = self.mapped.state();
        if let Err(code) = mapped {
            let gone = state.uncount(id);
            drop(state);
            drop(gone);
            return Err(code);
        }
        let (device, guest_device) = (memory.device, memory.guest_device);
        let mapping = Mapping {
            bytes,
            id,
            memory,
            is_ending: false,
        };
        state.mappings.insert(start, mapping);
        let source = Source::Mapped {
            reservation,
            access: Access::default(),
        };
        self.note_in(start, bytes, (0, device), source, 0);
        Ok(guest_device)
    }

    /// `cuMemUnmap`: waits for commands that use the memory, but not for the GPU.
    ///
    /// # Errors
    ///
    /// `CUDA_ERROR_INVALID_VALUE` for a range that cuts a mapping or does not lie in one reservation; the driver's
    /// error code. The range may have holes, or no mapping at all.
    pub fn unmap(&self, start: u64, bytes: u64) -> Result<(), CUresult> {
        let ending: Vec<Range> = {
            let mut state = self.mapped.state();
            let whole = state.within(start, bytes)?;
            for start in &whole {
                if let Some(mapping) = state.mappings.get_mut(start) {
                    mapping.is_ending = true;
                }
            }
            let whole = whole.into_iter();
            whole
                .filter_map(|start| self.ranges.end(start, is_mapping))
                .collect()
        };
        let ticket = Ticket::now();
        grace::narrow(&self.common.used());
        ticket.wait(Ending::Memory { start, bytes });
        let _turn = self.mapped.turn();
        let mut result = Ok(());
        for range in ending {
            if result.is_ok() {
                // SAFETY: this was mapped as one piece, and no command uses it any more.
                result = unsafe { cuda::cuMemUnmap(range.start, range.bytes as usize) };
            }
            let mut state = self.mapped.state();
            if result.is_err() {
                if let Some(mapping) = state.mappings.get_mut(&range.start) {
                    mapping.is_ending = false;
                }
                self.ranges.insert(range);
                continue;
            }
            self.ranges.remove_freed(range.start);
            let gone = state.mappings.remove(&range.start);
            let unused = gone.as_ref().and_then(|mapping| state.uncount(mapping.id));
            drop(state);
            drop((gone, unused));
        }
        result
    }

    /// `cuMemSetAccess` for one device, by the driver's number.
    ///
    /// # Errors
    ///
    /// As [`Self::unmap`]; `CUDA_ERROR_INVALID_DEVICE`; `CUDA_ERROR_INVALID_VALUE` for invalid flags.
    pub fn set_access(
        &self,
        start: u64,
        bytes: u64,
        device: CUdevice,
        flags: CUmemAccess_flags,
    ) -> Result<(), CUresult> {
        check_device(device)?;
        if !matches!(
            flags,
            CU_MEM_ACCESS_FLAGS_PROT_NONE
                | CU_MEM_ACCESS_FLAGS_PROT_READ
                | CU_MEM_ACCESS_FLAGS_PROT_READWRITE
        ) {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        grace::narrow(&[]);
        let _turn = self.mapped.turn();
        let whole = self.mapped.state().whole(start, bytes)?;
        let wish = CUmemAccessDesc {
            location: location(device),
            flags,
        };
        // SAFETY: the range is mapped, by the guest; the pointer is to a value that lives across the call.
        unsafe { cuda::cuMemSetAccess(start, bytes as usize, &wish, 1)? };
        for start in whole {
            self.ranges.change(start, |range| {
                if let Source::Mapped { access, .. } = &mut range.source {
                    *access = access.with(device, flags);
                }
            });
        }
        Ok(())
    }

    /// `cuMemGetAccess`, for a device by the driver's number.
    ///
    /// # Errors
    ///
    /// `CUDA_ERROR_INVALID_VALUE` if there is no memory; `CUDA_ERROR_INVALID_DEVICE`.
    pub fn access(&self, address: u64, device: CUdevice) -> Result<CUmemAccess_flags, CUresult> {
        check_device(device)?;
        let range = self.ranges.find(address);
        match range.filter(|range| range.ending.is_none()) {
            Some(Range {
                source: Source::Mapped { access, .. },
                ..
            }) => Ok(access.of(device)),
            // NVIDIA's driver (580) returns this for allocated memory, whatever the access.
            Some(_) => Ok(0),
            None => Err(CUDA_ERROR_INVALID_VALUE),
        }
    }

    /// `cuMemRetainAllocationHandle`.
    ///
    /// # Errors
    ///
    /// `CUDA_ERROR_INVALID_VALUE` where nothing is mapped.
    pub fn retain_physical(&self, address: u64) -> Result<u64, CUresult> {
        let mut state = self.mapped.state();
        let id = state.around(address).ok_or(CUDA_ERROR_INVALID_VALUE)?.id;
        let known = state.known.get_mut(&id).ok_or(CUDA_ERROR_INVALID_VALUE)?;
        let references = known.references.checked_add(1);
        known.references = references.ok_or(CUDA_ERROR_OUT_OF_MEMORY)?;
        Ok(id)
    }

    /// Checks that the bytes at an address are in this mapping and the following ones of its reservation, and that the
    /// context's device or the memory's own device may read them. The driver checks everything else.
    pub(super) fn check_mapped(
        &self,
        context: u64,
        range: Range,
        address: u64,
        bytes: u64,
    ) -> Result<(), CUresult> {
        let device = self.device_of(context).ok();
        let end = address.checked_add(bytes).ok_or(CUDA_ERROR_INVALID_VALUE)?;
        let mut at = range;
        loop {
            let (Source::Mapped { access, .. }, None) = (at.source, at.ending) else {
                return Err(CUDA_ERROR_INVALID_VALUE);
            };
            let of = |device: CUdevice| access.of(device) != CU_MEM_ACCESS_FLAGS_PROT_NONE;
            if !of(at.device) && !device.is_some_and(of) {
                return Err(CUDA_ERROR_INVALID_VALUE);
            }
            let behind = at.start + at.bytes;
            if end <= behind {
                return Ok(());
            }
            let next = self.ranges.find(behind);
            at = next
                .filter(|next| same_reservation(next, &range))
                .ok_or(CUDA_ERROR_INVALID_VALUE)?;
        }
    }

    /// [`DeviceMemory::place`] of a mapping. If its own device may not write to the memory, only the driver accesses
    /// it, and checks the access.
    pub(super) fn place_mapped(&self, address: u64, bytes: u64) -> Option<Place> {
        let range = self.ranges.find(address)?;
        let Source::Mapped { access, .. } = range.source else {
            return None;
        };
        let is_open = access.of(range.device) == CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
        if !is_open || !range.holds(address, bytes) {
            return None;
        }
        let mut state = self.mapped.state();
        let Mapping { id, memory, .. } = state.around(address)?;
        memory.chunks.as_ref()?;
        memory.is_exported.store(true, Ordering::Relaxed);
        let (export, id) = (memory.number, *id);
        state.exported.insert(export, id);
        Some(Place {
            export,
            offset: address - range.start,
        })
    }

    /// [`DeviceMemory::export`] of a mapping; `None` if its number differs.
    pub(super) fn export_mapped(
        &self,
        number: u32,
    ) -> Option<Result<(OwnedFd, u64, CUdevice), CUresult>> {
        // No reference may outlive the lock: dropping the last one notifies the holders, which may be calling this
        // function.
        let state = self.mapped.state();
        let memory = &state.known.get(state.exported.get(&number)?)?.memory;
        let fd = export(memory.handle);
        Some(fd.map(|fd| (fd, memory.bytes, memory.device)))
    }
}

/// Whether two mappings are of the same reservation.
fn same_reservation(one: &Range, other: &Range) -> bool {
    let of = |range: &Range| match range.source {
        Source::Mapped { reservation, .. } => Some(reservation),
        _ => None,
    };
    of(one).is_some() && of(one) == of(other)
}
