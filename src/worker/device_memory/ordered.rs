// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Stream-ordered allocations from memory pools.
//!
//! An allocation exists when the call returns, before the stream reaches it. A freed address is invalid from then on,
//! and its memory is reused when the stream has reached the free ([`super::freed`], [`super::reaper`]).

use gpgpu_protocol::{
    api::{Object, Stream},
    cuda::*,
};

use super::{
    DeviceMemory, cuda, driver_info,
    freed::{Block, StreamKey},
    is_allocation, pool,
    ranges::{Range, Source},
};
use crate::worker::{common::Common, grace};

/// A range as freed memory.
fn block(range: &Range) -> Block {
    Block {
        start: range.start,
        taken: range.taken(),
        device: range.device,
        context: range.context,
        mempool: range.mempool,
        source: range.source,
        number: 0,
    }
}

/// The stream with an id: the key of its frees, and the driver's handle. Its context is current afterwards.
///
/// # Errors
///
/// `CUDA_ERROR_INVALID_HANDLE` if there is no such stream, `CUDA_ERROR_INVALID_CONTEXT` without a context.
pub fn enter_stream(common: &Common, id: u64) -> Result<(StreamKey, u64), CUresult> {
    let raw = common.objects.raw::<Stream>(id)?;
    if Stream::SPECIAL.contains(&id) {
        return match (common.current(), common.entered()) {
            (0, _) => Err(CUDA_ERROR_INVALID_CONTEXT),
            (home, entered) if home == entered => Ok(((home, 0), raw)),
            // The default stream of a green context.
            (home, green) => Ok(((home, green), raw)),
        };
    }
    let entry = common.objects.entry::<Stream>(id);
    common.enter(entry.ok_or(CUDA_ERROR_INVALID_HANDLE)?.context)?;
    Ok(((common.current(), id), raw))
}

impl DeviceMemory {
    /// `cuMemAllocFromPoolAsync` in a stream, whose context is current.
    ///
    /// It does not wait for memory that was freed in stream order. If memory is lacking, [`Self::reclaim`] does.
    ///
    /// # Errors
    ///
    /// `CUDA_ERROR_INVALID_VALUE` for a size of 0, `CUDA_ERROR_INVALID_HANDLE` if there is no such pool,
    /// `CUDA_ERROR_OUT_OF_MEMORY`; the driver's error code.
    pub fn allocate_ordered(
        &self,
        key: StreamKey,
        mempool: u64,
        bytes: u64,
    ) -> Result<CUdeviceptr, CUresult> {
        let (context, _) = key;
        if bytes == 0 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        if cuda::has_failed() {
            driver_info()?;
        }
        let device = self.mempool(mempool)?;
        self.mempools.check_own(mempool)?;
        let own = self.device_of(context)?;
        let chunks = self.device(device);
        let taken = match &chunks {
            Some(chunks) => chunks.pool.taken(bytes),
            None => bytes.checked_next_multiple_of(pool::ALIGNMENT),
        };
        let taken = taken.ok_or(CUDA_ERROR_OUT_OF_MEMORY)?;
        if let Some(block) = self.freed.take(key, mempool, taken) {
            // The pool has counted it so far, and continues to.
            self.note_in(block.start, bytes, (context, device), block.source, mempool);
            return Ok(block.start);
        }
        if self.has_many() {
            return Err(CUDA_ERROR_OUT_OF_MEMORY);
        }
        self.mempools.reserve(mempool, taken)?;
        let made = self.find_place(context, (own, device), bytes, taken);
        let pressures = self.pressures(device);
        self.mempools
            .settle(mempool, taken, pressures, made.is_ok());
        let (address, source) = made?;
        self.note_in(address, bytes, (context, device), source, mempool);
        Ok(address)
    }

    /// Finds memory on a device for an allocation of a stream of a context, whose device is `own`.
    fn find_place(
        &self,
        context: u64,
        (own, device): (CUdevice, CUdevice),
        bytes: u64,
        taken: u64,
    ) -> Result<(CUdeviceptr, Source), CUresult> {
        let chunks = self.device(device);
        if let Some(chunks) = &chunks {
            if own != device {
                chunks.pool.share(own)?;
            }
            let source = Source::Pool { taken };
            if let Some(address) = chunks.pool.try_allocate(taken) {
                return Ok((address, source));
            }
            {
                let _turn = self.reaper.turn();
                let over = self.freed.over(Some(context), |_| true);
                self.settle_freed(over.blocks);
            }
            if let Some(address) = chunks.pool.try_allocate(taken) {
                return Ok((address, source));
            }
        }
        // The driver may take long, and so may other processes that have to return memory.
        grace::narrow(&self.common.used());
        let (_, total) = driver_info()?;
        if own == device {
            if bytes > total as u64 {
                return Err(CUDA_ERROR_OUT_OF_MEMORY);
            }
            // Memory that is freed in stream order is reused in whole units, so the driver's memory must consist of
            // whole units.
            let whole = bytes.checked_next_multiple_of(pool::ALIGNMENT);
            return self.make(device, whole.ok_or(CUDA_ERROR_OUT_OF_MEMORY)?);
        }
        match chunks {
            Some(chunks) => {
                let address = chunks.pool.allocate(taken)?;
                Ok((address, Source::Pool { taken }))
            }
            // `cuMemAlloc`'s memory belongs to the current context.
            None => Err(CUDA_ERROR_NOT_SUPPORTED),
        }
    }

    /// `cuMemFreeAsync` in a stream, whose context is current.
    ///
    /// # Errors
    ///
    /// `CUDA_ERROR_INVALID_VALUE` if no allocation starts there; the driver's error code.
    pub fn free_ordered(
        &'static self,
        key: StreamKey,
        raw: u64,
        address: CUdeviceptr,
    ) -> Result<(), CUresult> {
        let Some(range) = self.ranges.end(address, is_allocation) else {
            if self.is_pooled_import(address) {
                return self.close_ordered(key, raw, address);
            }
            driver_info()?;
            return Err(CUDA_ERROR_INVALID_VALUE);
        };
        // The driver still knows its own memory until it is freed.
        if range.source != Source::Driver {
            self.ranges.remove_freed(range.start);
        }
        let mut block = block(&range);
        if self.loans.keep(&range, true) {
            block.number = range.id;
        }
        if let Err(code) = self.freed.push(key, raw, block) {
            self.loans.unfree(block.number);
            self.ranges.insert(range);
            return Err(code);
        }
        self.reaper.notice(self);
        Ok(())
    }

    /// The same for memory of an imported pool, which is closed.
    fn close_ordered(
        &'static self,
        key: StreamKey,
        raw: u64,
        address: CUdeviceptr,
    ) -> Result<(), CUresult> {
        let block = self.closing_block(address)?;
        if let Err(code) = self.freed.push(key, raw, block) {
            self.stay_open(address, block.number);
            return Err(code);
        }
        self.reaper.notice(self);
        Ok(())
    }

    /// Begins to close memory of an imported pool; returns the block to close once it is no longer in use.
    fn closing_block(&self, address: CUdeviceptr) -> Result<Block, CUresult> {
        let (range, number) = self.begin_close(address)?;
        Ok(Block {
            number,
            ..block(&range)
        })
    }

    /// Closes memory of an imported pool that nothing uses any more. Does not wait for the close.
    pub(super) fn close_later(&'static self, address: CUdeviceptr) -> Result<(), CUresult> {
        let block = self.closing_block(address)?;
        self.reaper.slow().push(block);
        self.reaper.notice(self);
        Ok(())
    }

    /// Frees memory of `cuMemAlloc` once no command uses it any more.
    pub(super) fn free_later(&'static self, range: &Range) {
        self.mempools.give_back(range.mempool, range.taken(), None);
        self.reaper.slow().push(block(range));
        self.reaper.notice(self);
    }

    /// Prepares for the end of a context.
    pub(super) fn leave(&self, context: u64) {
        self.freed.leave(context);
    }

    /// Handles the end of a context: the frees in its streams are complete, and its memory of the driver no longer
    /// exists.
    pub(super) fn forget_freed(&self, context: u64) {
        let of_driver = |block: &Block| block.context == context && block.source == Source::Driver;
        let _turn = self.reaper.turn();
        let gone = self.freed.extract(of_driver);
        for block in &gone {
            self.mempools.give_back(block.mempool, block.taken, None);
        }
        let slow: Vec<_> = (self.reaper.slow())
            .extract_if(.., |block| of_driver(block))
            .collect();
        for block in gone.into_iter().chain(slow) {
            self.charges().remove(&block.start);
        }
        self.settle_freed(self.freed.forget_context(context));
    }
}
