// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The client's memory that other processes of its VM are given, by descriptors that are made for each of them.
//!
//! Memory that one of them has open is *lent*. Lent memory is not reused when it is freed, because the processes that
//! have it open continue to use it: its place in its chunk stays taken until the last of them has closed it, or has
//! ended.

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

/// An allocation that others have open.
#[derive(Debug, Default)]
struct Loan {
    /// The number of times that it is open.
    times: u32,
    /// The allocation, once it was freed, and whether its stream has yet to reach the free.
    freed: Option<(Range, bool)>,
}

/// An allocation, as others are given it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Lent {
    /// The start address.
    pub start: u64,
    /// The range's number.
    pub id: u64,
    /// The number of shared bytes, from its start.
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

/// Checks that so many bytes of an allocation can be lent: only those of a chunk.
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
    /// Whether there was ever one.
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

    /// Ends loans of an allocation, and gives it if its place is free then.
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

    /// The stream has reached the free of an allocation, which is returned if its place is free then.
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

    /// An allocation is not freed after all.
    pub fn unfree(&self, id: u64) {
        if let Some(loan) = self.loans().get_mut(&id) {
            loan.freed = None;
        }
    }
}

impl DeviceMemory {
    /// The allocation that an address lies in, as the object of `cuIpcGetMemHandle`; `bytes` is the size that the guest
    /// requested for it.
    ///
    /// # Errors
    ///
    /// `CUDA_ERROR_INVALID_VALUE` if none lies there that can be shared so; `CUDA_ERROR_NOT_SUPPORTED` where memory is
    /// the driver's own, which has no descriptors.
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
    /// `CUDA_ERROR_INVALID_VALUE` for a device's own pool, for one that was imported, and if there is no such pool.
    pub fn shareable_pool(&self, mempool: u64) -> Result<CUdevice, CUresult> {
        self.mempools.check_shareable(mempool)?;
        let own = |_| Err(CUDA_ERROR_INVALID_VALUE);
        self.mempools.device(mempool, own)
    }

    /// The allocation of a memory pool that starts at an address, as the object of `cuMemPoolExportPointer`.
    ///
    /// # Errors
    ///
    /// As [`Self::shareable`]; `CUDA_ERROR_INVALID_VALUE` for a device's own pool, and for one that was imported.
    pub fn shareable_pooled(&self, address: CUdeviceptr) -> Result<Object, CUresult> {
        let range = self.ranges.find(address);
        let range = range.filter(|range| range.ending.is_none() && range.start == address);
        let range = range.ok_or(CUDA_ERROR_INVALID_VALUE)?;
        self.mempools.check_shareable(range.mempool)?;
        lendable(&range, range.bytes)?;
        let memory = Lent::new(&range, range.bytes);
        Ok(Object::Pooled(memory, range.mempool))
    }

    /// The allocation that starts here, if it is still the one with this number.
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

    /// The reply to another process for a shared allocation: a descriptor made for it; `None` if it is gone. It is that
    /// of the allocation's chunk, with all other allocations there. The allocation is lent from then on.
    pub fn give_allocation(&self, lent: Lent) -> Option<(Given, OwnedFd)> {
        let Lent { start, id, bytes } = lent;
        // First, so that a thread that frees it meanwhile keeps its place.
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

    /// Another process has closed an allocation, so many times.
    pub fn end_loans(&self, id: u64, times: u32) {
        if let Some(range) = self.loans.end(id, times) {
            self.give_freed(&range);
        }
    }

    /// The stream has reached the free of an allocation that others had open then.
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
