// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Allocations in a stream's order, by memory pools.
//!
//! An allocation is there when the call returns, which is earlier than the stream comes to it. What is freed is nobody's
//! address from then on, and somebody's memory again when the stream has come to the free ([`super::freed`]): that is looked at by
//! whoever needs memory, and now and then by a thread.

use std::{
    sync::{
        Condvar, Mutex, OnceLock, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use gpgpu_protocol::{
    api::{Object, Stream},
    cuda::*,
};

use super::{
    Device, DeviceMemory, cuda, driver_info,
    freed::{Block, StreamKey},
    is_allocation, pool,
    ranges::{Range, Source},
};
use crate::worker::{
    captures,
    common::Common,
    grace::{self, Ending, Name, Ticket},
};

/// How long the thread pauses between two looks: at first, and as long as nothing is over ever longer.
const SHORTEST_PAUSE: Duration = Duration::from_millis(1);
const LONGEST_PAUSE: Duration = Duration::from_millis(50);
/// How long an allocation waits at most for something to be over: what its stream does may wait for the program.
const LONGEST_WAIT: Duration = Duration::from_secs(30);
/// How often it looks.
const LOOK: Duration = Duration::from_micros(200);
/// How often a question about a pool looks for what was freed. The program may have seen the end of a stream's work before the stream is
/// idle for the driver: what it frees then is over a moment later, and is not to count. On a busy host the moment is some milliseconds.
const LOOKS: usize = 100;

/// Gives back what is over, where nobody else looks.
#[derive(Debug, Default)]
pub struct Reaper {
    /// The thread has nothing to look at.
    is_idle: AtomicBool,
    /// Held by who looks what is over, until that is given back.
    turn: Mutex<()>,
    /// What is to be freed by `cuMemFree`, which may block.
    slow: Mutex<Vec<Block>>,
    wake: (Mutex<()>, Condvar),
    started: OnceLock<bool>,
}

impl Reaper {
    /// There is something to look at.
    fn notice(&self, memory: &'static DeviceMemory) {
        let serve = || serve(memory);
        let started = || {
            thread::Builder::new()
                .name("reap".into())
                .spawn(serve)
                .is_ok()
        };
        self.started.get_or_init(started);
        self.wake();
    }

    /// The thread looks again, if it runs.
    fn wake(&self) {
        if self.is_idle.load(Ordering::SeqCst) {
            let (lock, changed) = &self.wake;
            let _lock = lock.lock().unwrap_or_else(PoisonError::into_inner);
            changed.notify_one();
        }
    }

    fn turn(&self) -> std::sync::MutexGuard<'_, ()> {
        self.turn.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn slow(&self) -> std::sync::MutexGuard<'_, Vec<Block>> {
        self.slow.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a range is once it was freed.
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

fn serve(memory: &DeviceMemory) {
    let reaper = &memory.reaper;
    let has_work = || !memory.freed.is_empty() || !reaper.slow().is_empty();
    loop {
        {
            let (lock, changed) = &reaper.wake;
            let mut lock = lock.lock().unwrap_or_else(PoisonError::into_inner);
            reaper.is_idle.store(true, Ordering::SeqCst);
            while !has_work() {
                lock = changed.wait(lock).unwrap_or_else(PoisonError::into_inner);
            }
            reaper.is_idle.store(false, Ordering::SeqCst);
        }
        let mut pause = SHORTEST_PAUSE;
        while has_work() {
            thread::sleep(pause);
            let any = memory.reap_all().is_ok_and(|any| any) | memory.free_slow();
            pause = if any {
                SHORTEST_PAUSE
            } else {
                (pause * 2).min(LONGEST_PAUSE)
            };
        }
    }
}

/// The stream with an id: as the key of what it frees, and the driver's handle. Its context is current then.
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
            // A green context's own.
            (home, green) => Ok(((home, green), raw)),
        };
    }
    let entry = common.objects.entry::<Stream>(id);
    common.enter(entry.ok_or(CUDA_ERROR_INVALID_HANDLE)?.context)?;
    Ok(((common.current(), id), raw))
}

impl DeviceMemory {
    /// The device of a memory pool, by the driver's number.
    ///
    /// # Errors
    ///
    /// `CUDA_ERROR_INVALID_HANDLE` if there is no such pool.
    fn mempool(&self, mempool: u64) -> Result<CUdevice, CUresult> {
        self.mempools
            .device(mempool, |device| self.common.gpu(device))
    }

    fn pressures(&self, device: CUdevice) -> u64 {
        let found = self.known_device(device);
        found.map_or(0, |device| device.pool.pressures())
    }

    /// `cuMemPoolCreate`, on a device by the driver's number.
    ///
    /// # Errors
    ///
    /// `CUDA_ERROR_OUT_OF_MEMORY` for one too many.
    pub fn create_mempool(
        &self,
        mempool: u64,
        device: CUdevice,
        most: u64,
    ) -> Result<(), CUresult> {
        self.mempools.create(mempool, device, most)
    }

    /// `cuMemPoolDestroy`: what was allocated from it stays until it is freed.
    ///
    /// # Errors
    ///
    /// As [`super::mempool::MemPools::destroy`].
    pub fn destroy_mempool(&self, mempool: u64) -> Result<(), CUresult> {
        if self.imports.is_in_use(mempool) {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let device = self.mempools.destroy(mempool)?;
        self.trim_to_promise(device);
        Ok(())
    }

    /// `cuMemPoolTrimTo`.
    ///
    /// # Errors
    ///
    /// `CUDA_ERROR_INVALID_HANDLE` if there is no such pool; the error of a context in which memory was freed.
    pub fn trim_mempool(&self, mempool: u64, most: u64) -> Result<(), CUresult> {
        let device = self.mempool(mempool)?;
        self.mempools.check_own(mempool)?;
        self.reap_all()?;
        self.mempools.trim(mempool, most);
        self.trim_to_promise(device);
        Ok(())
    }

    /// `cuMemPoolGetAttribute`.
    ///
    /// # Errors
    ///
    /// As [`super::mempool::MemPools::get`]; the error of a context in which memory was freed.
    pub fn mempool_attribute(
        &self,
        mempool: u64,
        attribute: CUmemPool_attribute,
    ) -> Result<u64, CUresult> {
        let device = self.mempool(mempool)?;
        self.reap_all()?;
        let is_now = matches!(
            attribute,
            CU_MEMPOOL_ATTR_USED_MEM_CURRENT | CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT
        );
        for _ in 0..LOOKS {
            if !is_now || self.freed.is_empty() {
                break;
            }
            thread::sleep(LOOK);
            self.reap_all()?;
        }
        self.mempools
            .get(mempool, attribute, self.pressures(device))
    }

    /// `cuMemPoolSetAttribute`.
    ///
    /// # Errors
    ///
    /// As [`super::mempool::MemPools::set`]; the error of a context in which memory was freed.
    pub fn set_mempool_attribute(
        &self,
        mempool: u64,
        attribute: CUmemPool_attribute,
        value: u64,
    ) -> Result<(), CUresult> {
        let device = self.mempool(mempool)?;
        self.reap_all()?;
        self.mempools
            .set(mempool, attribute, value, self.pressures(device))?;
        if attribute == CU_MEMPOOL_ATTR_RELEASE_THRESHOLD {
            self.trim_to_promise(device);
        }
        Ok(())
    }

    /// Lets another device, by the driver's number, use the memory of a pool. Nothing is taken away again: what another device
    /// was let in to it can use as long as the process lives.
    ///
    /// # Errors
    ///
    /// `CUDA_ERROR_INVALID_HANDLE` if there is no such pool; the driver's code.
    pub fn set_mempool_access(
        &self,
        mempool: u64,
        device: CUdevice,
        flags: CUmemAccess_flags,
    ) -> Result<(), CUresult> {
        let own = self.mempool(mempool)?;
        match flags {
            // As natively: a device's own access cannot be taken away.
            CU_MEM_ACCESS_FLAGS_PROT_NONE if device == own => Err(CUDA_ERROR_INVALID_DEVICE),
            CU_MEM_ACCESS_FLAGS_PROT_NONE => Ok(()),
            CU_MEM_ACCESS_FLAGS_PROT_READWRITE if device == own => Ok(()),
            CU_MEM_ACCESS_FLAGS_PROT_READWRITE if self.mempools.check_own(mempool).is_err() => {
                self.mempools.let_in(mempool, device);
                self.share_opened(mempool, device)
            }
            CU_MEM_ACCESS_FLAGS_PROT_READWRITE => match self.device(own) {
                Some(own) => own.pool.share(device),
                // Memory of `cuMemAlloc` is let other devices use by contexts.
                None => Err(CUDA_ERROR_INVALID_DEVICE),
            },
            _ => Err(CUDA_ERROR_INVALID_VALUE),
        }
    }

    /// Gives idle memory back, but for what pools are to keep.
    fn trim_to_promise(&self, device: CUdevice) {
        self.promise(device);
        let found = self.known_device(device);
        if let Some(device) = found {
            device.pool.trim(device.pool.keep());
        }
    }

    fn promise(&self, device: CUdevice) {
        let found = self.known_device(device);
        if let Some(found) = found {
            let kept = self.mempools.kept(device, found.pool.pressures());
            found.pool.promise(kept);
        }
    }

    /// Memory of a device was given back, and is no memory pool's any more; `pressures` is from before that.
    pub(super) fn count_out(&self, mempool: u64, device: &Device, taken: u64, pressures: u64) {
        if mempool != 0 {
            self.mempools.give_back(mempool, taken, Some(pressures));
            self.promise(device.pool.device());
        }
    }

    /// `cuMemAllocFromPoolAsync` in a stream, whose context is current.
    ///
    /// It waits for nothing that was freed in a stream's order: where memory is lacking, [`Self::reclaim`] does.
    ///
    /// # Errors
    ///
    /// `CUDA_ERROR_INVALID_VALUE` for no bytes, `CUDA_ERROR_INVALID_HANDLE` if there is no such pool,
    /// `CUDA_ERROR_OUT_OF_MEMORY`; the driver's code.
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
            // It counts in the pool until now, and from now on.
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

    /// A place on a device for an allocation of a stream of a context, whose own device is `own`.
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
        // The driver may take its time, and so may others that are to give memory back.
        grace::narrow(&self.common.used());
        let (_, total) = driver_info()?;
        if own == device {
            if bytes > total as u64 {
                return Err(CUDA_ERROR_OUT_OF_MEMORY);
            }
            // What is freed in order is handed on by its whole units, so the driver's memory has to have them.
            let whole = bytes.checked_next_multiple_of(pool::ALIGNMENT);
            return self.make(device, whole.ok_or(CUDA_ERROR_OUT_OF_MEMORY)?);
        }
        match chunks {
            Some(chunks) => {
                let address = chunks.pool.allocate(taken)?;
                Ok((address, Source::Pool { taken }))
            }
            // `cuMemAlloc`'s memory is the current context's.
            None => Err(CUDA_ERROR_NOT_SUPPORTED),
        }
    }

    /// `cuMemFreeAsync` in a stream, whose context is current.
    ///
    /// # Errors
    ///
    /// `CUDA_ERROR_INVALID_VALUE` if no allocation starts there; the driver's code.
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
        // What is the driver's own it still knows until it is freed.
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

    /// The same for memory of an imported pool: it is closed.
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

    /// Begins to close memory of an imported pool: what is to be closed once nothing uses it.
    fn closing_block(&self, address: CUdeviceptr) -> Result<Block, CUresult> {
        let (range, number) = self.begin_close(address)?;
        Ok(Block {
            number,
            ..block(&range)
        })
    }

    /// Closes memory of an imported pool that nothing uses any more, without waiting for that.
    pub(super) fn close_later(&'static self, address: CUdeviceptr) -> Result<(), CUresult> {
        let block = self.closing_block(address)?;
        self.reaper.slow().push(block);
        self.reaper.notice(self);
        Ok(())
    }

    /// Frees what `cuMemAlloc` gave when no command uses it any more.
    pub(super) fn free_later(&'static self, range: &Range) {
        self.mempools.give_back(range.mempool, range.taken(), None);
        self.reaper.slow().push(block(range));
        self.reaper.notice(self);
    }

    /// Gives back what is over in any context; says whether there was something. All that was over when this was called is
    /// given back, whoever has found it.
    ///
    /// # Errors
    ///
    /// What a context has failed with in which memory was freed.
    pub fn reap_all(&self) -> Result<bool, CUresult> {
        let _turn = self.reaper.turn();
        if self.freed.is_empty() {
            return Ok(false);
        }
        // The contexts do not end meanwhile.
        let _uses = grace::enter(0, false);
        let entered = self.common.entered();
        let over = self
            .freed
            .over(None, |context| self.common.enter(context).is_ok());
        if self.common.entered() != entered {
            // A context that was destroyed meanwhile is found out by whoever uses it.
            let _ = self.common.enter(entered);
        }
        let any = !over.blocks.is_empty();
        self.settle_freed(over.blocks);
        match over.failed {
            Some(code) => Err(code),
            None => Ok(any),
        }
    }

    /// Memory ran out: waits until something is over that was freed in a stream's order, and gives it back; `false` if there is
    /// nothing more, or it is not over for long.
    ///
    /// # Errors
    ///
    /// What a context has failed with in which memory was freed.
    pub fn reclaim(&self) -> Result<bool, CUresult> {
        let start = Instant::now();
        grace::narrow(&[]);
        loop {
            if self.reap_all()? | self.free_slow() | self.free_unmarked()? {
                return Ok(true);
            }
            if self.freed.is_empty() || start.elapsed() > LONGEST_WAIT {
                return Ok(false);
            }
            thread::sleep(LOOK);
        }
    }

    /// Waits for the contexts in which something was freed without an event, and gives that back.
    fn free_unmarked(&self) -> Result<bool, CUresult> {
        let (contexts, latest) = self.freed.unmarked();
        let entered = self.common.entered();
        let mut any = false;
        for context in contexts {
            let _uses = grace::enter(context, false);
            if self.common.enter(context).is_err() {
                continue;
            }
            grace::narrow(&[Name::Object(context)]);
            captures::synchronize()?;
            let blocks = self.freed.take_unmarked(context, latest);
            any |= !blocks.is_empty();
            self.settle_freed(blocks);
        }
        if self.common.entered() != entered {
            let _uses = grace::enter(entered, false);
            let _ = self.common.enter(entered);
        }
        Ok(any)
    }

    /// Gives back what is over, at once where that does not block.
    fn settle_freed(&self, blocks: Vec<Block>) {
        let mut idle: Vec<(CUdevice, u64)> = Vec::new();
        let mut any_slow = false;
        for block in blocks {
            match block.source {
                Source::Pool { .. } if block.number != 0 => self.pass_loan(block.number),
                Source::Imported => {
                    self.reaper.slow().push(block);
                    any_slow = true;
                }
                Source::Pool { taken } => {
                    let device = self.known_device(block.device);
                    if let Some(device) = device {
                        let pressures = device.pool.pressures();
                        let bytes = device.pool.free(block.start, taken);
                        self.mempools
                            .give_back(block.mempool, taken, Some(pressures));
                        idle.retain(|(other, _)| *other != block.device);
                        idle.push((block.device, bytes));
                    }
                }
                _ => {
                    self.mempools.give_back(block.mempool, block.taken, None);
                    self.reaper.slow().push(block);
                    any_slow = true;
                }
            }
        }
        if any_slow {
            self.reaper.wake();
        }
        for (device, bytes) in idle {
            self.promise(device);
            let device = self.known_device(device);
            if let Some(device) = device {
                device.trimmer.notice(&device, bytes);
            }
        }
    }

    /// Frees what is over and `cuMemAlloc` gave: the driver may wait for all that its context does. The calling thread's command is
    /// outside or narrow.
    fn free_slow(&self) -> bool {
        let blocks = std::mem::take(&mut *self.reaper.slow());
        let any = !blocks.is_empty();
        let ticket = Ticket::now();
        for block in blocks {
            let (start, bytes) = (block.start, block.taken);
            ticket.wait(Ending::Memory { start, bytes });
            if block.source == Source::Imported {
                self.finish_close(start, block.number);
                continue;
            }
            let _uses = grace::enter(block.context, false);
            if self.common.enter(block.context).is_err() {
                // It went with its context.
                drop(self.charges().remove(&start));
            } else {
                grace::narrow(&[Name::Object(block.context)]);
                if let Err(code) = self.give_to_driver(start) {
                    tracing::debug!("cuMemFree: {code}");
                }
            }
            self.ranges.remove_freed(start);
        }
        any
    }

    /// A context is about to end.
    pub(super) fn leave(&self, context: u64) {
        self.freed.leave(context);
    }

    /// A context is gone: what was freed in its streams is over, and what was the driver's own of its memory is gone.
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
