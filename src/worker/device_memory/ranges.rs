// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The worker's allocations, by address.

use std::collections::BTreeMap;

use gpgpu_locks::{RwLock, RwLockReadGuard, RwLockWriteGuard};
use gpgpu_protocol::cuda::*;

use super::pool::ALIGNMENT;

/// The source of a range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// An allocation in a chunk of the device's pool, with `taken` bytes.
    Pool {
        /// Size in bytes.
        taken: u64,
    },
    /// An allocation of the driver's own.
    Driver,
    /// A global of the module or library with this id.
    Global(u64),
    /// An allocation of another process of the VM.
    Imported,
    /// A mapping of the guest's own.
    Mapped {
        /// The start address of its reservation.
        reservation: u64,
        /// The devices' access to it.
        access: Access,
    },
}

/// The devices' access to a mapping: two bits for each, by the driver's numbers.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Access {
    readable: u64,
    writable: u64,
}

impl Access {
    /// The number of devices with bits.
    pub const DEVICES: CUdevice = 64;

    /// The access with this permission for a device.
    pub fn with(self, device: CUdevice, flags: CUmemAccess_flags) -> Self {
        let set = |bits: u64, is_set: bool| bits & !(1 << device) | u64::from(is_set) << device;
        Self {
            readable: set(self.readable, flags != CU_MEM_ACCESS_FLAGS_PROT_NONE),
            writable: set(self.writable, flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE),
        }
    }

    /// A device's access.
    pub fn of(self, device: CUdevice) -> CUmemAccess_flags {
        match (self.readable >> device & 1, self.writable >> device & 1) {
            (0, _) => CU_MEM_ACCESS_FLAGS_PROT_NONE,
            (_, 0) => CU_MEM_ACCESS_FLAGS_PROT_READ,
            _ => CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
        }
    }
}

/// A range of device memory of the guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Range {
    /// The start address.
    pub start: u64,
    /// The bytes that the guest asked for.
    pub bytes: u64,
    /// The id of the context in which it was made and with which it ends; 0 for none.
    pub context: u64,
    /// The device.
    pub device: CUdevice,
    /// Its source.
    pub source: Source,
    /// The id of its memory pool; 0 for none.
    pub mempool: u64,
    /// `CU_POINTER_ATTRIBUTE_BUFFER_ID`: unique in the process, also among ended ranges.
    pub id: u64,
    /// `CU_POINTER_ATTRIBUTE_SYNC_MEMOPS`.
    pub sync_memops: bool,
    /// The reason why it is about to end, if it is: no command begins to use it any more, even if the driver still
    /// knows it.
    pub ending: Option<EndsWith>,
}

/// The reason for a range's end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EndsWith {
    /// It is freed.
    Free,
    /// Its module or library is unloaded.
    Owner,
    /// Its context ends.
    Context,
}

impl Range {
    /// The bytes that are freed with it.
    pub fn taken(&self) -> u64 {
        match self.source {
            Source::Pool { taken } => taken,
            _ => self.bytes.next_multiple_of(ALIGNMENT),
        }
    }

    /// Whether `bytes` bytes at `address`, which lies in the range, lie in it too.
    pub fn holds(&self, address: u64, bytes: u64) -> bool {
        bytes <= self.bytes - (address - self.start)
    }
}

/// The ranges.
#[derive(Debug, Default)]
pub struct Ranges {
    map: RwLock<BTreeMap<u64, Range>>,
}

impl Ranges {
    fn read(&self) -> RwLockReadGuard<'_, BTreeMap<u64, Range>> {
        self.map.read()
    }

    fn write(&self) -> RwLockWriteGuard<'_, BTreeMap<u64, Range>> {
        self.map.write()
    }

    /// The number of ranges.
    pub fn len(&self) -> usize {
        self.read().len()
    }

    /// Records a range, which replaces stale ones that start in it.
    pub fn insert(&self, range: Range) {
        let mut map = self.write();
        let end = range.start.saturating_add(range.bytes);
        while let Some((&stale, _)) = map.range(range.start..end).next() {
            map.remove(&stale);
        }
        map.insert(range.start, range);
    }

    /// Removes the range that starts here and was being freed. Another one may have taken its place.
    pub fn remove_freed(&self, start: u64) {
        self.remove(start, |range| range.ending == Some(EndsWith::Free));
    }

    /// The range that contains an address.
    pub fn find(&self, address: u64) -> Option<Range> {
        let map = self.read();
        let (_, range) = map.range(..=address).next_back()?;
        (address - range.start < range.bytes).then_some(*range)
    }

    /// Removes the range that starts here, if `which` holds.
    pub fn remove(&self, start: u64, which: impl FnOnce(&Range) -> bool) -> Option<Range> {
        let mut map = self.write();
        if !map.get(&start).is_some_and(which) {
            return None;
        }
        map.remove(&start)
    }

    /// Removes all ranges for which `which` holds, and returns them.
    pub fn extract(&self, which: impl Fn(&Range) -> bool) -> Vec<Range> {
        self.write()
            .extract_if(.., |_, range| which(range))
            .map(|(_, range)| range)
            .collect()
    }

    /// Marks the range that starts here as ending, if `which` holds and it is not ending yet.
    pub fn end(&self, start: u64, which: impl FnOnce(&Range) -> bool) -> Option<Range> {
        let mut map = self.write();
        let range = map.get_mut(&start)?;
        if range.ending.is_some() || !which(range) {
            return None;
        }
        let found = *range;
        range.ending = Some(EndsWith::Free);
        Some(found)
    }

    /// Sets or clears the end of ranges for which `which` holds.
    pub fn set_ending(
        &self,
        which: impl Fn(&Range) -> bool,
        from: Option<EndsWith>,
        to: Option<EndsWith>,
    ) {
        for range in self.write().values_mut() {
            if range.ending == from && which(range) {
                range.ending = to;
            }
        }
    }

    /// Changes the range that contains an address; `false` if there is none.
    pub fn change(&self, address: u64, change: impl FnOnce(&mut Range)) -> bool {
        let mut map = self.write();
        match map.range_mut(..=address).next_back() {
            Some((_, range)) if address - range.start < range.bytes => {
                change(range);
                true
            }
            _ => false,
        }
    }
}
