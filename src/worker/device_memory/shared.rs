// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Memory of the client that is shared with other processes of its VM, by a descriptor for each of them.
//!
//! Memory that another process has open is *lent*. When it is freed, it is not reused, because the other processes
//! continue to use it: its place in its chunk stays occupied until the last of them has closed it, or has ended.

use std::{
    collections::HashMap,
    os::fd::OwnedFd,
    sync::atomic::{AtomicBool, Ordering},
};

use gpgpu_locks::{Mutex, MutexGuard};
use gpgpu_protocol::cuda::*;

use super::{
    DeviceMemory,
    ranges::{Range, Source},
};
use crate::{ipc::peers::Given, worker::peers::Object};

/// An allocation that other processes have open.
#[derive(Debug, Default)]
struct Loan {
    /// The number of times that it is open.
    times: u32,
    /// The allocation, once it was freed, and whether its stream has not reached the free yet.
    freed: Option<(Range, bool)>,
}

/// An allocation in the form in which it is shared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Lent {
    /// The start address.
    pub start: u64,
    /// The range's id.
    pub id: u64,
    /// The size of the shared part, from its start.
    pub bytes: u64,
}

impl Lent {
    fn new(range: &Range, bytes: u64) -> Self {
        Self {
            start: range.start,
            id: range.id,
            bytes,
        }
    }
}

/// Checks that this many bytes of an allocation can be lent: it must be in a chunk.
fn lendable(range: &Range, bytes: u64) -> Result<(), CUresult> {
    match range.source {
        Source::Pool { .. } if bytes > 0 => Ok(()),
        Source::Driver => Err(CUDA_ERROR_NOT_SUPPORTED),
        _ => Err(CUDA_ERROR_INVALID_VALUE),
    }
}

/// The lent allocations, by number.
#[derive(Debug, Default)]
pub struct Loans {
    /// Whether there was ever a loan.
    any: AtomicBool,
    loans: Mutex<HashMap<u64, Loan>>,
}

impl Loans {
    fn loans(&self) -> MutexGuard<'_, HashMap<u64, Loan>> {
        self.loans.lock()
    }

    fn lend(&self, id: u64) {
        self.any.store(true, Ordering::Release);
        let mut loans = self.loans();
        let loan = loans.entry(id).or_default();
        loan.times = loan.times.saturating_add(1);
    }

    /// Keeps an allocation that was freed, if it is lent.
    pub fn keep(&self, range: &Range, is_ordered: bool) -> bool {
        if !self.any.load(Ordering::Acquire) {
            return false;
        }
        match self.loans().get_mut(&range.id) {
            Some(loan) if loan.times > 0 => {
                loan.freed = Some((*range, is_ordered));
                true
            }
            _ => false,
        }
    }

    /// Ends loans of an allocation, and returns it if its place is free then.
    fn end(&self, id: u64, times: u32) -> Option<Range> {
        let mut loans = self.loans();
        let loan = loans.get_mut(&id)?;
        loan.times = loan.times.saturating_sub(times);
        if loan.times > 0 || matches!(loan.freed, Some((_, true))) {
            return None;
        }
        let (range, _) = loans.remove(&id)?.freed?;
        Some(range)
    }

    /// Records that the stream has reached the free of an allocation, which is returned if its place is free then.
    pub fn pass(&self, id: u64) -> Option<Range> {
        if let Some(Loan {
            freed: Some((_, is_ordered)),
            ..
        }) = self.loans().get_mut(&id)
        {
            *is_ordered = false;
        }
        self.end(id, 0)
    }

    /// Cancels the free of an allocation.
    pub fn unfree(&self, id: u64) {
        if let Some(loan) = self.loans().get_mut(&id) {
            loan.freed = None;
        }
    }
}

impl DeviceMemory {
    /// The allocation that contains an address, as the object of `cuIpcGetMemHandle`; `bytes` is the size that the
    /// guest requested for it.
    ///
    /// # Errors
    ///
    /// `CUDA_ERROR_INVALID_VALUE` if there is none that can be shared in this way; `CUDA_ERROR_NOT_SUPPORTED` if memory
    /// is the driver's own, which has no descriptors.
    pub fn shareable(&self, address: CUdeviceptr, bytes: u64) -> Result<Object, CUresult> {
        let range = self.ranges.find(address);
        let range = range.filter(|range| range.ending.is_none() && range.mempool == 0);
        let range = range.ok_or(CUDA_ERROR_INVALID_VALUE)?;
        let bytes = bytes.min(range.bytes);
        lendable(&range, bytes)?;
        Ok(Object::Memory(Lent::new(&range, bytes)))
    }

    /// The device of a memory pool that can be shared, by the driver's number.
    ///
    /// # Errors
    ///
    /// `CUDA_ERROR_INVALID_VALUE` for a device's default pool, for an imported pool, and if there is no such pool.
    pub fn shareable_pool(&self, mempool: u64) -> Result<CUdevice, CUresult> {
        self.mempools.check_shareable(mempool)?;
        let own = |_| Err(CUDA_ERROR_INVALID_VALUE);
        self.mempools.device(mempool, own)
    }

    /// The allocation of a memory pool that starts at an address, as the object of `cuMemPoolExportPointer`.
    ///
    /// # Errors
    ///
    /// As [`Self::shareable`]; `CUDA_ERROR_INVALID_VALUE` for a device's default pool, and for an imported pool.
    pub fn shareable_pooled(&self, address: CUdeviceptr) -> Result<Object, CUresult> {
        let range = self.ranges.find(address);
        let range = range.filter(|range| range.ending.is_none() && range.start == address);
        let range = range.ok_or(CUDA_ERROR_INVALID_VALUE)?;
        self.mempools.check_shareable(range.mempool)?;
        lendable(&range, range.bytes)?;
        let memory = Lent::new(&range, range.bytes);
        Ok(Object::Pooled(memory, range.mempool))
    }

    /// The allocation that starts here, if it still has this id.
    fn still(&self, start: u64, id: u64) -> Option<Range> {
        let range = self.ranges.find(start)?;
        (range.start == start && range.id == id && range.ending.is_none()).then_some(range)
    }

    /// Whether the shared allocation still exists.
    pub fn is_allocation(&self, start: u64, id: u64) -> bool {
        self.still(start, id).is_some()
    }

    /// Whether another process has the allocation with this number open.
    pub fn is_lent(&self, id: u64) -> bool {
        let loans = self.loans.loans();
        loans.get(&id).is_some_and(|loan| loan.times > 0)
    }

    /// The reply to another process for a shared allocation: a new descriptor; `None` if the allocation no longer
    /// exists. It is a descriptor of the allocation's chunk, which includes all other allocations there. The allocation
    /// is lent from then on.
    pub fn give_allocation(&self, lent: Lent) -> Option<(Given, OwnedFd)> {
        let Lent { start, id, bytes } = lent;
        // First, so that its place stays occupied if a thread frees it in the meantime.
        self.loans.lend(id);
        let given = self.still(start, id).and_then(|_| {
            let place = self.place(start, bytes)?;
            self.give(place.export, Some((place.offset, bytes)))
        });
        if given.is_none() {
            self.end_loans(id, 1);
        }
        given
    }

    /// Records that another process has closed an allocation, `times` times.
    pub fn end_loans(&self, id: u64, times: u32) {
        if let Some(range) = self.loans.end(id, times) {
            self.give_freed(&range);
        }
    }

    /// Records that the stream has reached the free of an allocation that others had open then.
    pub(super) fn pass_loan(&self, id: u64) {
        if let Some(range) = self.loans.pass(id) {
            self.give_freed(&range);
        }
    }

    fn give_freed(&self, range: &Range) {
        if let Err(code) = self.give_back(range) {
            tracing::debug!("Cannot free lent memory: {code}");
        }
    }

    /// The same for physical memory.
    pub fn give_physical(&self, number: u32) -> Option<(Given, OwnedFd)> {
        self.give(number, None)
    }

    fn give(&self, number: u32, part: Option<(u64, u64)>) -> Option<(Given, OwnedFd)> {
        let (file, bytes, device) = self.export(number).ok()?;
        let (offset, length) = part.unwrap_or((0, bytes));
        let given = Given {
            number: number.into(),
            bytes,
            offset,
            length,
            gpu: device as u32,
            detail: 0,
        };
        Some((given, file))
    }
}
