// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The library's end of the ring: posts cost a few stores, and calls poll words that the worker or the GPU writes.
//!
//! A thread that waits polls for a while, then sleeps between its checks, and from time to time asks the worker through
//! the command queue whether its answer can still arrive. So no thread waits for ever: if the worker has ended, that
//! query fails.

use std::{
    sync::atomic::{AtomicU32, Ordering},
    time::Duration,
};

use gpgpu_locks::{Brief, Condvar, Mutex, Pauses};
use gpgpu_protocol::{
    cuda::*,
    futex,
    ring::{
        Area, BLOCK_BYTES, BLOCK_OFFSET, BLOCKS, ELSEWHERE, KEPT, MAX_RECORD_BYTES, NO_SLOT,
        Producer, RING_BYTES, Record, SLOT_FENCES, SLOTS,
    },
};

use crate::{
    data_blocks::{DataBlocks, Run},
    transport::{Failure, Pinned, Transport},
};

/// The number of pauses of a thread that found the ring full before it checks again: some microseconds.
const FULL_PAUSE: usize = 128;
/// The time after which a waiting thread first asks whether the answer can still arrive.
const FIRST_QUESTION: Duration = Duration::from_millis(25);
/// The maximum interval between two such queries.
const LAST_QUESTION: Duration = Duration::from_millis(320);

/// See the module's documentation.
pub struct Ring {
    area: Area<'static>,
    /// Kept as long as the process exists, because the worker and the GPU write to it.
    _pinned: Pinned,
    producer: Brief<State>,
    slots: Mutex<Vec<u32>>,
    slot_free: Condvar,
    blocks: DataBlocks,
}

struct State {
    producer: Producer<'static>,
    sequence: u32,
}

/// An appended record: its sequence number, its end, and whether its thread must wake the worker.
struct Place {
    sequence: u32,
    position: u64,
    must_wake: bool,
}

/// A request in flight; the default is one that was never sent.
#[derive(Debug, Clone, Copy, Default)]
pub struct Ticket {
    /// Its slot.
    pub slot: u32,
    /// The value that marks the slot's words as belonging to it.
    pub sequence: u32,
    /// The end of its record in the command area.
    pub position: u64,
}

/// The result of a wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Waited {
    /// It is complete.
    Over,
    /// The worker did not execute the command, which has to use the command queue.
    Elsewhere,
    /// It is complete, and its answer has to be fetched through the command queue. The request keeps the slot until
    /// [`Ring::fetched`].
    Kept,
}

impl Ring {
    /// Makes the ring's memory. The worker does not know it yet.
    pub fn new(transport: &dyn Transport) -> Result<Self, Failure> {
        let pinned = transport.allocate(RING_BYTES)?;
        // SAFETY: the memory was allocated in this size, at a page, and is never released.
        let area = unsafe { Area::new(pinned.address as *mut u8) };
        Ok(Self {
            area,
            _pinned: pinned,
            producer: Brief::new(State {
                producer: Producer::new(area, 0),
                sequence: 0,
            }),
            slots: Mutex::new((0..SLOTS as u32).rev().collect()),
            slot_free: Condvar::new(),
            blocks: DataBlocks::default(),
        })
    }

    /// Wakes a worker on this machine.
    #[inline]
    pub fn wake(&self) {
        futex::wake(self.area.sleeping());
    }

    /// The address of the ring's memory.
    pub fn address(&self) -> u64 {
        self.area.at(0) as u64
    }

    /// The number of appended bytes. Commands on other paths are ordered after them.
    #[inline]
    pub fn position(&self) -> u64 {
        self.producer.lock().producer.tail()
    }

    /// Whether commands of `bytes` bytes fit into a record.
    #[inline]
    pub fn fits(bytes: usize) -> bool {
        bytes + size_of::<Record>() <= MAX_RECORD_BYTES
    }

    /// Makes the worker [check again](Producer::relax) before it sleeps.
    pub fn relax(&self) {
        self.producer.lock().producer.relax();
    }

    /// Appends commands without an answer; `wake` wakes a sleeping worker. Once they are appended, `appended` is
    /// called, by one thread at a time.
    #[inline]
    pub fn post(
        &self,
        thread: u32,
        commands: &[u8],
        appended: impl Fn(),
        wake: impl FnOnce() -> Result<(), Failure>,
        ask: impl FnMut() -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        self.append(NO_SLOT, thread, commands, appended, wake, ask)
            .map(drop)
    }

    /// Appends commands whose answer arrives in the ticket's slot.
    #[inline]
    pub fn request(
        &self,
        thread: u32,
        commands: &[u8],
        wake: impl FnOnce() -> Result<(), Failure>,
        ask: impl FnMut() -> Result<(), Failure>,
    ) -> Result<Ticket, Failure> {
        let slot = self.claim();
        self.request_in(slot, thread, commands, wake, ask)
    }

    /// The same for commands that may take long; `None` if no more than `left` slots are free, so that waits leave slots
    /// for the commands that end them.
    #[inline]
    pub fn request_leaving(
        &self,
        left: usize,
        thread: u32,
        commands: &[u8],
        wake: impl FnOnce() -> Result<(), Failure>,
        ask: impl FnMut() -> Result<(), Failure>,
    ) -> Option<Result<Ticket, Failure>> {
        let slot = {
            let mut slots = self.slots.lock();
            if slots.len() <= left {
                return None;
            }
            slots.pop()?
        };
        Some(self.request_in(slot, thread, commands, wake, ask))
    }

    fn request_in(
        &self,
        slot: u32,
        thread: u32,
        commands: &[u8],
        wake: impl FnOnce() -> Result<(), Failure>,
        ask: impl FnMut() -> Result<(), Failure>,
    ) -> Result<Ticket, Failure> {
        self.area.slot(slot as usize).clear();
        match self.append(slot, thread, commands, || (), wake, ask) {
            Ok((sequence, position)) => Ok(Ticket {
                slot,
                sequence,
                position,
            }),
            Err(failure) => {
                self.free(slot);
                Err(failure)
            }
        }
    }

    fn append(
        &self,
        slot: u32,
        thread: u32,
        commands: &[u8],
        appended: impl Fn(),
        wake: impl FnOnce() -> Result<(), Failure>,
        mut ask: impl FnMut() -> Result<(), Failure>,
    ) -> Result<(u32, u64), Failure> {
        let mut patience = Patience::new();
        loop {
            if let Some(place) = self.try_append(slot, thread, commands, &appended) {
                if place.must_wake {
                    wake()?;
                }
                return Ok((place.sequence, place.position));
            }
            // The worker is behind by a whole ring: it is awake, and reads of its words only slow it down.
            for _ in 0..FULL_PAUSE {
                std::hint::spin_loop();
            }
            if patience.pause() {
                ask()?;
            }
        }
    }

    /// Appends commands without an answer if there is room now; returns whether the worker sleeps, so that the caller
    /// must wake it.
    #[inline]
    pub fn try_post(&self, thread: u32, commands: &[u8], appended: impl Fn()) -> Option<bool> {
        let place = self.try_append(NO_SLOT, thread, commands, appended)?;
        Some(place.must_wake)
    }

    #[inline]
    fn try_append(
        &self,
        slot: u32,
        thread: u32,
        commands: &[u8],
        appended: impl Fn(),
    ) -> Option<Place> {
        let mut state = self.producer.lock();
        let sequence = state.sequence.wrapping_add(1).max(1);
        if !state.producer.append(slot, sequence, thread, commands) {
            return None;
        }
        state.sequence = sequence;
        appended();
        Some(Place {
            sequence,
            position: state.producer.tail(),
            must_wake: state.producer.must_wake(),
        })
    }

    #[inline]
    fn claim(&self) -> u32 {
        let mut slots = self.slots.lock();
        loop {
            if let Some(slot) = slots.pop() {
                return slot;
            }
            slots = self.slot_free.wait(slots);
        }
    }

    #[inline]
    fn free(&self, slot: u32) {
        self.slots.lock().push(slot);
        self.slot_free.notify_one();
    }

    /// Waits until the request is complete, and takes its answer; `ask` returns whether the worker has finished it.
    ///
    /// # Errors
    ///
    /// The error of `ask`: the slot is lost in that case, because a late write may still follow. `CUDA_ERROR_UNKNOWN`
    /// if the worker has finished the request and there is no answer, because this process has overwritten it or the
    /// record.
    pub fn wait(
        &self,
        ticket: Ticket,
        answer: &mut Vec<u8>,
        mut ask: impl FnMut() -> Result<bool, CUresult>,
    ) -> Result<Waited, CUresult> {
        let mut patience = Patience::new();
        let waited = loop {
            if let Some(waited) = self.outcome(ticket) {
                break Ok(waited);
            }
            // Earlier writes of the worker must be visible now.
            if patience.pause() && ask()? {
                break self.outcome(ticket).ok_or(CUDA_ERROR_UNKNOWN);
            }
        };
        if waited == Ok(Waited::Kept) {
            return waited;
        }
        self.area.slot(ticket.slot as usize).take(answer);
        self.free(ticket.slot);
        waited
    }

    /// Frees the slot of a request whose kept answer was fetched.
    pub fn fetched(&self, ticket: Ticket) {
        self.free(ticket.slot);
    }

    /// The result of a complete request.
    #[inline]
    fn outcome(&self, ticket: Ticket) -> Option<Waited> {
        let slot = self.area.slot(ticket.slot as usize);
        match slot.answered(ticket.sequence)? {
            ELSEWHERE => Some(Waited::Elsewhere),
            KEPT => Some(Waited::Kept),
            fences => (0..SLOT_FENCES.min(fences as usize))
                .all(|index| slot.fence(index).load(Ordering::Acquire) == ticket.sequence)
                .then_some(Waited::Over),
        }
    }

    /// Whether the request is complete.
    #[inline]
    fn is_over(&self, ticket: Ticket) -> bool {
        self.outcome(ticket).is_some()
    }

    /// Takes at most `most` neighbouring data blocks that are free, or whose copies are complete.
    #[inline]
    pub fn take_blocks(&self, most: usize) -> Option<Run> {
        let is_over = |ticket| self.is_over(ticket);
        self.blocks
            .take(most, is_over, |ticket| self.free(ticket.slot))
    }

    /// Returns blocks, immediately or when the copy from them is complete.
    #[inline]
    pub fn give_blocks(&self, run: Run, pending: Option<Ticket>) {
        self.blocks.give(run, pending);
    }

    /// The word of an event.
    #[inline]
    pub fn word(&self, word: u32) -> &AtomicU32 {
        self.area.word(word as usize)
    }

    /// A block's memory.
    #[inline]
    pub fn block(&self, block: u32) -> *mut u8 {
        self.area
            .at(BLOCK_OFFSET + block as usize % BLOCKS * BLOCK_BYTES)
    }
}

/// [`Pauses`] with queries.
pub struct Patience {
    pauses: Pauses,
    question: Duration,
}

impl Patience {
    /// A wait that begins now.
    #[inline]
    pub fn new() -> Self {
        Self {
            pauses: Pauses::new(),
            question: FIRST_QUESTION,
        }
    }

    /// A short pause; `true` if it is time to ask whether the answer can still arrive.
    pub fn pause(&mut self) -> bool {
        let Some(waited) = self
            .pauses
            .pause()
            .filter(|waited| *waited >= self.question)
        else {
            return false;
        };
        self.question = waited + (waited - FIRST_QUESTION / 2).min(LAST_QUESTION);
        true
    }
}

impl Default for Patience {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    #[test]
    fn a_long_wait_checks_now_and_then_that_it_can_end() {
        let mut patience = Patience::new();
        let start = Instant::now();
        while !patience.pause() {}
        assert!(start.elapsed() >= FIRST_QUESTION);
    }
}
