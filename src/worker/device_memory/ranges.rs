// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The worker's allocations, by address.

use std::collections::BTreeMap;

use gpgpu_locks::{RwLock, RwLockReadGuard, RwLockWriteGuard};
use gpgpu_protocol::cuda::*;

use super::pool::ALIGNMENT;

/// The source of a range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// An allocation in a chunk of the device's pool, which has `taken` bytes for it.
    Pool {
        /// Bytes.
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
        /// The start address of the reservation that it lies in.
        reservation: u64,
        /// The devices' access to it.
        access: Access,
    },
}

/// The devices' access to a mapping: a bit for each, by the driver's numbers.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Access {
    readable: u64,
    writable: u64,
}

impl Access {
    /// The devices that there are bits for.
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

/// A range of device memory that the guest knows of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Range {
    /// The start address.
    pub start: u64,
    /// The bytes that the guest asked for.
    pub bytes: u64,
    /// The id of the context that it was made in and goes with; 0 for none.
    pub context: u64,
    /// The device.
    pub device: CUdevice,
    /// Its source.
    pub source: Source,
    /// The id of the memory pool that it counts in; 0 for none.
    pub mempool: u64,
    /// `CU_POINTER_ATTRIBUTE_BUFFER_ID`: no other range of the process has it, then or later.
    pub id: u64,
    /// `CU_POINTER_ATTRIBUTE_SYNC_MEMOPS`.
    pub sync_memops: bool,
    /// The reason why it ends, if it is about to: nothing begins to use it any more, even if the driver still knows it.
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
    /// The bytes that are given back with it.
    pub fn taken(&self) -> u64 {
        match self.source {
            Source::Pool { taken } => taken,
            _ => self.bytes.next_multiple_of(ALIGNMENT),
        }
    }

    /// Whether `bytes` bytes at `address`, which lies in the range, do too.
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

    /// Their number.
    pub fn len(&self) -> usize {
        self.read().len()
    }

    /// Notes a range; stale ones that start in it are gone.
    pub fn insert(&self, range: Range) {
        let mut map = self.write();
        let end = range.start.saturating_add(range.bytes);
        while let Some((&stale, _)) = map.range(range.start..end).next() {
            map.remove(&stale);
        }
        map.insert(range.start, range);
    }

    /// Forgets the range that starts here and was to be freed. Another one may have taken its place.
    pub fn remove_freed(&self, start: u64) {
        self.remove(start, |range| range.ending == Some(EndsWith::Free));
    }

    /// The range that an address lies in.
    pub fn find(&self, address: u64) -> Option<Range> {
        let map = self.read();
        let (_, range) = map.range(..=address).next_back()?;
        (address - range.start < range.bytes).then_some(*range)
    }

    /// Forgets the range that starts here, if `which` says that it is one to forget.
    pub fn remove(&self, start: u64, which: impl FnOnce(&Range) -> bool) -> Option<Range> {
        let mut map = self.write();
        if !map.get(&start).is_some_and(which) {
            return None;
        }
        map.remove(&start)
    }

    /// Forgets all that `which` says are to be forgotten, and returns them.
    pub fn extract(&self, which: impl Fn(&Range) -> bool) -> Vec<Range> {
        self.write()
            .extract_if(.., |_, range| which(range))
            .map(|(_, range)| range)
            .collect()
    }

    /// The range that starts here is about to end, if `which` says that it may and it does not yet.
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

    /// Changes the end of ranges for which `which` holds.
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

    /// Changes the range that an address lies in; `false` if there is none.
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
