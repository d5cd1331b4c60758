// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Returns memory that was freed in stream order. Threads that need memory check for completed frees, and so does a
//! separate thread from time to time.

use std::{
    sync::{
        OnceLock,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use gpgpu_locks::{Condvar, Mutex};
use gpgpu_protocol::cuda::*;

use super::{DeviceMemory, freed::Block, ranges::Source};
use crate::worker::{
    captures,
    grace::{self, Ending, Name, Ticket},
};

/// The first interval between two checks of the thread. It grows as long as no free completes.
const SHORTEST_PAUSE: Duration = Duration::from_millis(1);

const LONGEST_PAUSE: Duration = Duration::from_millis(50);

/// The maximum time for which an allocation waits for a free to complete: the stream's work may wait for the program.
const LONGEST_WAIT: Duration = Duration::from_secs(30);

/// The interval between two checks during that wait.
pub const LOOK: Duration = Duration::from_micros(200);

/// Returns memory of completed frees if no other thread does.
#[derive(Debug, Default)]
pub struct Reaper {
    /// Whether the thread has nothing to check.
    is_idle: AtomicBool,
    /// Held from a check for completed frees until their memory is returned.
    turn: Mutex<()>,
    /// The memory to free by `cuMemFree`, which may block.
    slow: Mutex<Vec<Block>>,
    wake: (Mutex<()>, Condvar),
    started: OnceLock<bool>,
}

impl Reaper {
    /// Records that there is something to check.
    pub fn notice(&self, memory: &'static DeviceMemory) {
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

    /// Wakes the thread, if it runs.
    fn wake(&self) {
        if self.is_idle.load(Ordering::SeqCst) {
            let (lock, changed) = &self.wake;
            let _lock = lock.lock();
            changed.notify_one();
        }
    }

    /// The lock of the thread that checks for completed frees.
    pub fn turn(&self) -> gpgpu_locks::MutexGuard<'_, ()> {
        self.turn.lock()
    }

    /// The memory to free by `cuMemFree`.
    pub fn slow(&self) -> gpgpu_locks::MutexGuard<'_, Vec<Block>> {
        self.slow.lock()
    }
}

fn serve(memory: &DeviceMemory) {
    let reaper = &memory.reaper;
    let has_work = || !memory.freed.is_empty() || !reaper.slow().is_empty();
    loop {
        {
            let (lock, changed) = &reaper.wake;
            let mut lock = lock.lock();
            reaper.is_idle.store(true, Ordering::SeqCst);
            while !has_work() {
                lock = changed.wait(lock);
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

impl DeviceMemory {
    /// Returns memory of completed frees in any context; `true` if there was any. All frees that were complete at the
    /// call are included, even if another thread has found them.
    ///
    /// # Errors
    ///
    /// The error of a context in which memory was freed.
    pub fn reap_all(&self) -> Result<bool, CUresult> {
        let _turn = self.reaper.turn();
        if self.freed.is_empty() {
            return Ok(false);
        }
        // The contexts do not end in the meantime.
        let _uses = grace::enter(0, false);
        let entered = self.common.entered();
        let over = self
            .freed
            .over(None, |context| self.common.enter(context).is_ok());
        if self.common.entered() != entered {
            // If the context was destroyed in the meantime, its next use reports it.
            let _ = self.common.enter(entered);
        }
        let any = !over.blocks.is_empty();
        self.settle_freed(over.blocks);
        match over.failed {
            Some(code) => Err(code),
            None => Ok(any),
        }
    }

    /// Handles a lack of memory: waits until a stream-ordered free is complete, and returns its memory; `false` if
    /// there is none, or none completes for long.
    ///
    /// # Errors
    ///
    /// The error of a context in which memory was freed.
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

    /// Waits for the contexts with frees without an event, and returns their memory.
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

    /// Returns memory of completed frees, immediately if that does not block.
    pub(super) fn settle_freed(&self, blocks: Vec<Block>) {
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

    /// Frees memory of `cuMemAlloc` whose free is complete: the driver may wait for all work of its context. The
    /// calling thread's command must be outside or narrow.
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
                // It was freed with its context.
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
}
