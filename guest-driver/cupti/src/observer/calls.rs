// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The numbers of the program's calls, and what is known of the latest ones.

use std::sync::{
    OnceLock,
    atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering},
};

use gpgpu_trace::Call;

/// How many of the latest calls are known.
const LATEST: usize = 1 << 16;

#[derive(Debug, Default)]
struct Slot {
    number: AtomicU32,
    has_ended: AtomicBool,
    began: AtomicU64,
    context: AtomicU64,
}

/// The latest calls.
#[derive(Debug)]
pub struct Calls {
    last: AtomicU32,
    since: AtomicU32,
    context: AtomicU64,
    slots: OnceLock<Box<[Slot]>>,
}

impl Calls {
    /// No calls.
    pub const fn new() -> Self {
        Self {
            last: AtomicU32::new(0),
            since: AtomicU32::new(0),
            context: AtomicU64::new(0),
            slots: OnceLock::new(),
        }
    }

    /// Makes the places of the latest calls.
    pub fn prepare(&self) {
        self.slots();
    }

    fn slots(&self) -> &[Slot] {
        let make = || (0..LATEST).map(|_| Slot::default()).collect();
        self.slots.get_or_init(make)
    }

    /// A new number, other than 0.
    pub fn number(&self) -> u32 {
        let next = || self.last.fetch_add(1, Ordering::Relaxed).wrapping_add(1);
        match next() {
            // 0 stands for no call.
            0 => next(),
            number => number,
        }
    }

    /// Gives a call its number, and keeps its begin.
    pub fn begin(&self, call: &mut Call, now: u64) {
        call.number = self.number();
        call.began = now;
        let slot = &self.slots()[call.number as usize % LATEST];
        slot.has_ended.store(false, Ordering::Relaxed);
        slot.began.store(now, Ordering::Relaxed);
        slot.context.store(call.context, Ordering::Relaxed);
        slot.number.store(call.number, Ordering::Release);
        self.used(call.context);
    }

    /// A call has ended.
    pub fn end(&self, call: &Call) {
        if let Some(slot) = self.slot(call.number) {
            slot.context.store(call.context, Ordering::Relaxed);
            slot.has_ended.store(true, Ordering::Release);
        }
        self.used(call.context);
        self.since.fetch_add(1, Ordering::Relaxed);
    }

    fn used(&self, context: u64) {
        if context != 0 && self.context.load(Ordering::Relaxed) != context {
            self.context.store(context, Ordering::Relaxed);
        }
    }

    fn slot(&self, number: u32) -> Option<&Slot> {
        let slot = &self.slots.get()?[number as usize % LATEST];
        let is_known = number != 0 && slot.number.load(Ordering::Acquire) == number;
        is_known.then_some(slot)
    }

    /// The begin and the context of a call, if it is known.
    pub fn of(&self, number: u32) -> Option<(u64, u64)> {
        let slot = self.slot(number)?;
        let began = slot.began.load(Ordering::Relaxed);
        Some((began, slot.context.load(Ordering::Relaxed)))
    }

    /// Whether a call has ended. One that is not known has.
    pub fn has_ended(&self, number: u32) -> bool {
        self.slot(number)
            .is_none_or(|slot| slot.has_ended.load(Ordering::Acquire))
    }

    /// The context of the latest call with one, or 0.
    pub fn last_context(&self) -> u64 {
        self.context.load(Ordering::Relaxed)
    }

    /// How many calls have ended since [`Calls::count_anew`].
    pub fn count(&self) -> u32 {
        self.since.load(Ordering::Relaxed)
    }

    /// Counts a call as so many more.
    pub fn count_more(&self, calls: u32) {
        if calls > 0 {
            self.since.fetch_add(calls, Ordering::Relaxed);
        }
    }

    /// Counts calls from 0 again.
    pub fn count_anew(&self) {
        self.since.store(0, Ordering::Relaxed);
    }

    /// Goes on behind a number.
    #[cfg(test)]
    pub fn last_is(&self, number: u32) {
        self.last.store(number, Ordering::Relaxed);
    }
}
