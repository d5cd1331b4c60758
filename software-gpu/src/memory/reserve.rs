// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Reserved device addresses, and physical memory that is mapped at them.
//!
//! As in the driver's own window, nothing is mapped at the addresses themselves. The bytes are in a second range of the
//! same length, so that a range over several mappings is contiguous for the CPU too.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use gpgpu_locks::Mutex;
use gpgpu_protocol::cuda::{
    CU_MEM_ACCESS_FLAGS_PROT_NONE, CU_MEM_ACCESS_FLAGS_PROT_READ,
    CU_MEM_ACCESS_FLAGS_PROT_READWRITE, CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_NOT_SUPPORTED,
    CUDA_ERROR_OUT_OF_MEMORY, CUdevice, CUmemAccess_flags, CUmemAccessDesc,
};

use super::physical::Handle;
use super::{Allocation, DeviceMemory, Kind, Mapping};
use crate::config::{GRANULARITY, MAX_DEVICES};
use crate::driver::new_id;
use crate::ffi::Result;

/// The area of reservations that wish for no address: beyond the largest window, below where programs lie.
const AREA: u64 = 0x4800_0000_0000;

/// Addresses that the program has reserved.
#[derive(Debug)]
pub struct Reservation {
    start: u64,
    size: u64,
    backing: Mapping,
    // Until the reservation is freed; the backing may be needed longer.
    addresses: Mutex<Option<Mapping>>,
}

impl Reservation {
    fn end(&self) -> u64 {
        self.start + self.size
    }

    fn backing_of(&self, address: u64) -> u64 {
        self.backing.address() + (address - self.start)
    }
}

/// The further fields of an allocation of [`Kind::Mapped`].
#[derive(Debug)]
pub struct Mapped {
    handle: Arc<Handle>,
    reservation: Arc<Reservation>,
    // A `CUmemAccess_flags` for each device: two bits, the first device's lowest.
    access: AtomicU64,
}

// There are enough bits.
const _: () = assert!(MAX_DEVICES <= 32);

fn bits(device: CUdevice, access: CUmemAccess_flags) -> u64 {
    u64::from(access & CU_MEM_ACCESS_FLAGS_PROT_READWRITE) << (2 * device)
}

impl Mapped {
    /// The handle it was mapped with.
    pub fn handle(&self) -> &Arc<Handle> {
        &self.handle
    }

    /// A device's access.
    pub fn access_of(&self, device: CUdevice) -> CUmemAccess_flags {
        (self.access.load(Ordering::Acquire) >> (2 * device)) as CUmemAccess_flags
            & CU_MEM_ACCESS_FLAGS_PROT_READWRITE
    }

    /// The most that any device may do.
    pub fn access(&self) -> CUmemAccess_flags {
        let devices = 0..MAX_DEVICES as CUdevice;
        let most = devices.map(|device| self.access_of(device)).max();
        most.unwrap_or(CU_MEM_ACCESS_FLAGS_PROT_NONE)
    }

    /// The reservation: its start and bytes.
    pub fn reservation(&self) -> (u64, u64) {
        (self.reservation.start, self.reservation.size)
    }

    fn allow(&self, device: CUdevice, access: CUmemAccess_flags) {
        let change = |was: u64| {
            let others = was & !bits(device, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
            Some(others | bits(device, access))
        };
        let _ = self
            .access
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, change);
    }

    /// Whether `other` belongs to the same reservation, so that the bytes of neighbours lie side by side.
    pub fn is_beside(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.reservation, &other.reservation)
    }
}

fn end_of(start: u64, size: u64) -> Result<u64> {
    if size == 0 || !start.is_multiple_of(GRANULARITY) || !size.is_multiple_of(GRANULARITY) {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    start.checked_add(size).ok_or(CUDA_ERROR_INVALID_VALUE)
}

fn around(all: &BTreeMap<u64, Arc<Reservation>>, address: u64) -> Option<&Arc<Reservation>> {
    let (_, reservation) = all.range(..=address).next_back()?;
    (address < reservation.end()).then_some(reservation)
}

impl DeviceMemory {
    /// The reservation that contains `address`: its start and size.
    pub fn reservation(&self, address: u64) -> Option<(u64, u64)> {
        around(&self.reservations(), address).map(|r| (r.start, r.size))
    }

    /// Whether `address` is one of those that the program has reserved.
    pub(super) fn is_reserved(&self, address: u64) -> bool {
        around(&self.reservations(), address).is_some()
    }

    /// Reserves `size` bytes of addresses, at `wish` if that is aligned and free.
    ///
    /// # Errors
    /// `CUDA_ERROR_INVALID_VALUE` for a size that is no multiple of the granularity or an alignment that is no power of
    /// two; `CUDA_ERROR_OUT_OF_MEMORY` where no addresses are left.
    pub fn reserve(&self, size: u64, alignment: u64, wish: u64) -> Result<u64> {
        if alignment != 0 && !alignment.is_power_of_two() {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        end_of(0, size)?;
        let alignment = alignment.max(GRANULARITY);
        let mut reservations = self.reservations();
        let mut gap = AREA.next_multiple_of(alignment);
        for reservation in reservations.range(AREA..).map(|(_, r)| r) {
            if reservation.start.saturating_sub(gap) >= size {
                break;
            }
            gap = reservation
                .end()
                .checked_next_multiple_of(alignment)
                .ok_or(CUDA_ERROR_OUT_OF_MEMORY)?;
        }
        let behind_all = reservations
            .range(AREA..)
            .next_back()
            .and_then(|(_, r)| r.end().checked_next_multiple_of(alignment));
        let wish = Some(wish).filter(|w| *w != 0 && w.is_multiple_of(alignment));
        let addresses = wish
            .into_iter()
            .chain([gap])
            // A mapping that is not the driver's may be in the gap.
            .chain(behind_all)
            .find_map(|at| Mapping::reserve_at(at, size).ok())
            .map_or_else(|| Mapping::reserve_aligned(size, alignment), Ok)
            .map_err(|_| CUDA_ERROR_OUT_OF_MEMORY)?;
        let reservation = Reservation {
            start: addresses.address(),
            size,
            // No page exists before the first mapping, so that a huge reservation costs nothing.
            backing: Mapping::reserve_aligned(size, GRANULARITY)
                .map_err(|_| CUDA_ERROR_OUT_OF_MEMORY)?,
            addresses: Mutex::new(Some(addresses)),
        };
        let start = reservation.start;
        reservations.insert(start, Arc::new(reservation));
        Ok(start)
    }

    /// Removes a whole reservation without mappings. The addresses are free at once. Running work may still access the
    /// bytes: the caller must wait for that before it drops the result.
    ///
    /// # Errors
    /// `CUDA_ERROR_INVALID_VALUE` for anything else.
    pub fn unreserve(&self, start: u64, size: u64) -> Result<Arc<Reservation>> {
        let mut reservations = self.reservations();
        let known = reservations.get(&start).ok_or(CUDA_ERROR_INVALID_VALUE)?;
        let end = known.end();
        let mapped = self.read_map().range(start..end).next().is_some();
        if known.size != size || mapped {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let gone = reservations
            .remove(&start)
            .ok_or(CUDA_ERROR_INVALID_VALUE)?;
        gone.addresses.lock().take();
        Ok(gone)
    }

    /// Maps all of a handle's memory at free reserved addresses, without any access yet.
    ///
    /// # Errors
    /// `CUDA_ERROR_NOT_SUPPORTED` for any other size; `CUDA_ERROR_INVALID_VALUE` for other addresses;
    /// `CUDA_ERROR_OUT_OF_MEMORY`.
    pub fn map(&self, start: u64, size: u64, handle: &Arc<Handle>) -> Result {
        let physical = handle.physical();
        if size != physical.size() {
            return Err(CUDA_ERROR_NOT_SUPPORTED);
        }
        let end = end_of(start, size)?;
        let reservations = self.reservations();
        let reservation = around(&reservations, start)
            .filter(|r| end <= r.end())
            .ok_or(CUDA_ERROR_INVALID_VALUE)?;
        let mut map = self.write_map();
        let taken = map.range(..end).next_back();
        if taken.is_some_and(|(_, a)| a.end() > start) {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        handle.mapped()?;
        let offset = (start - reservation.start) as usize;
        if reservation
            .backing
            .show(offset, size as usize, physical.file())
            .is_err()
        {
            handle.unmapped();
            return Err(CUDA_ERROR_OUT_OF_MEMORY);
        }
        let allocation = Allocation {
            start,
            size,
            kind: Kind::Mapped,
            context: 0,
            device: physical.device(),
            id: new_id(),
            sync_memops: AtomicBool::new(false),
            being_freed: AtomicBool::new(false),
            bytes: reservation.backing_of(start),
            mapped: Some(Mapped {
                handle: handle.clone(),
                reservation: reservation.clone(),
                access: AtomicU64::new(0),
            }),
            _mapping: None,
        };
        map.insert(start, Arc::new(allocation));
        Ok(())
    }

    // The mappings that make up exactly `start..start + size`.
    fn mappings(
        map: &super::Map,
        start: u64,
        size: u64,
    ) -> Result<Vec<(&Arc<Allocation>, &Mapped)>> {
        let end = end_of(start, size)?;
        let mut at = start;
        let mut found = Vec::new();
        for allocation in map.range(start..end).map(|(_, a)| a) {
            match &allocation.mapped {
                Some(mapped) if allocation.start == at => found.push((allocation, mapped)),
                _ => return Err(CUDA_ERROR_INVALID_VALUE),
            }
            at = allocation.end();
        }
        let is_one = found.windows(2).all(|two| two[0].1.is_beside(two[1].1));
        if at != end || !is_one {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        Ok(found)
    }

    /// Checks that whole mappings make up a range.
    ///
    /// # Errors
    /// `CUDA_ERROR_INVALID_VALUE` if not.
    pub fn check_mapped(&self, start: u64, size: u64) -> Result {
        Self::mappings(&self.read_map(), start, size).map(|_| ())
    }

    /// The mappings of a range of one reservation, which must not cut any of them.
    fn within(
        reservations: &BTreeMap<u64, Arc<Reservation>>,
        map: &super::Map,
        start: u64,
        size: u64,
    ) -> Result<Vec<u64>> {
        let end = end_of(start, size)?;
        let reservation = around(reservations, start).filter(|r| end <= r.end());
        reservation.ok_or(CUDA_ERROR_INVALID_VALUE)?;
        let before = map.range(..start).next_back();
        let found = map.range(start..end).map(|(_, a)| a);
        if before.is_some_and(|(_, a)| a.end() > start) || found.clone().any(|a| a.end() > end) {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        Ok(found.map(|a| a.start).collect())
    }

    /// Checks that a range may be unmapped.
    ///
    /// # Errors
    /// As [`DeviceMemory::unmap`].
    pub fn check_unmap(&self, start: u64, size: u64) -> Result {
        let reservations = self.reservations();
        Self::within(&reservations, &self.read_map(), start, size).map(|_| ())
    }

    /// Takes the mappings of a range away, which may have holes; the addresses stay reserved. Work that still runs
    /// finds other memory there.
    ///
    /// # Errors
    /// `CUDA_ERROR_INVALID_VALUE` for a range that cuts a mapping in two, or does not lie in one reservation.
    pub fn unmap(&self, start: u64, size: u64) -> Result {
        let reservations = self.reservations();
        let mut map = self.write_map();
        for start in Self::within(&reservations, &map, start, size)? {
            let Some(gone) = map.remove(&start) else {
                continue;
            };
            self.forget_ranges();
            let Some(mapped) = &gone.mapped else {
                continue;
            };
            let backing = &mapped.reservation.backing;
            let offset = (start - mapped.reservation.start) as usize;
            backing.hide(offset, gone.size as usize);
            mapped.handle.unmapped();
        }
        Ok(())
    }

    /// Whether one of these is less than a device's present access to a mapping of a range.
    ///
    /// # Errors
    /// As [`DeviceMemory::set_access`].
    pub fn lessens_access(
        &self,
        start: u64,
        size: u64,
        wishes: &[CUmemAccessDesc],
    ) -> Result<bool> {
        let map = self.read_map();
        let mappings = Self::mappings(&map, start, size)?;
        let lessens =
            |wish: &CUmemAccessDesc, m: &Mapped| m.access_of(wish.location.id) > wish.flags;
        Ok(mappings
            .iter()
            .any(|(_, m)| wishes.iter().any(|wish| lessens(wish, m))))
    }

    /// Sets the devices' access to the mappings of a range.
    ///
    /// # Errors
    /// `CUDA_ERROR_INVALID_VALUE` for a range that is not exactly one or several of them.
    pub fn set_access(&self, start: u64, size: u64, wishes: &[CUmemAccessDesc]) -> Result {
        let map = self.read_map();
        for (_, mapped) in Self::mappings(&map, start, size)? {
            for wish in wishes {
                mapped.allow(wish.location.id, wish.flags);
            }
        }
        self.forget_ranges();
        Ok(())
    }
}

/// Whether `access` allows to read, or to write.
pub fn allows(access: CUmemAccess_flags, write: bool) -> bool {
    access
        > if write {
            CU_MEM_ACCESS_FLAGS_PROT_READ
        } else {
            CU_MEM_ACCESS_FLAGS_PROT_NONE
        }
}
