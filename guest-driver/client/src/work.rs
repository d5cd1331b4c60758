// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! What the GPU was given, and what of it a context is known to have done.

use std::sync::{
    Mutex, MutexGuard,
    atomic::{AtomicU64, Ordering},
};

use gpgpu_protocol::api::{Operation, Property};

use crate::thread;

/// How much the GPU was given.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Given {
    /// What the host can see the end of.
    pub work: u64,
    /// Copies to the device whose callers did not wait for the end.
    writes: u64,
}

/// What work is meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// All work of the context, and all that was written.
    All,
    /// The work that the legacy stream waits for: all but that of non-blocking streams.
    Legacy,
}

/// The counts of a connection.
#[derive(Debug, Default)]
pub struct Work {
    /// Counts what gives the GPU work that the host can see the end of.
    work: AtomicU64,
    /// Counts copies to the device whose callers did not wait for the end.
    writes: AtomicU64,
    idle: Mutex<Idle>,
}

/// How much had been given when a context was last known to have done it.
#[derive(Debug, Default)]
struct Idle {
    context: u64,
    /// All of it.
    all: Given,
    /// The work that the legacy stream waits for.
    legacy: u64,
}

impl Work {
    /// Counts a request that was just sent. Never before: a thread that synchronises in between would take it for done.
    #[inline]
    pub fn count(&self, operation: &Operation) {
        if operation.leaves_work() {
            self.work.fetch_add(1, Ordering::Release);
        }
        if operation.is(Property::Write) {
            self.writes.fetch_add(1, Ordering::Release);
        }
    }

    /// How much the GPU was given.
    #[inline]
    pub fn given(&self) -> Given {
        Given {
            work: self.work.load(Ordering::Acquire),
            writes: self.writes.load(Ordering::Acquire),
        }
    }

    /// The current context has done what was `given`.
    pub fn set_idle(&self, given: Given, scope: Scope) {
        let mut idle = self.idle();
        let context = thread::current_context();
        if idle.context != context {
            *idle = Idle {
                context,
                ..Idle::default()
            };
        }
        idle.legacy = given.work;
        if scope == Scope::All {
            idle.all = given;
        }
    }

    /// Whether the current context is known to have done what it was given.
    pub fn is_idle(&self, scope: Scope) -> bool {
        let (idle, given) = (self.idle(), self.given());
        let is_done = match scope {
            Scope::All => idle.all == given,
            Scope::Legacy => idle.legacy == given.work,
        };
        // A context in which nothing was done counts as busy, which costs little once.
        idle.context == thread::current_context() && is_done
    }

    fn idle(&self) -> MutexGuard<'_, Idle> {
        self.idle
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

#[cfg(test)]
mod tests {
    use gpgpu_protocol::api::{Request, request};

    use super::*;

    #[test]
    fn a_context_is_idle_until_something_is_given_and_no_other_context_is() {
        std::thread::spawn(|| {
            let work = Work::default();
            thread::set_context(1);
            assert!(!work.is_idle(Scope::All));
            work.set_idle(work.given(), Scope::All);
            assert!(work.is_idle(Scope::All) && work.is_idle(Scope::Legacy));
            thread::set_context(2);
            assert!(!work.is_idle(Scope::All));
            thread::set_context(1);
            work.count(request::cuLaunchKernelEx::OPERATION);
            assert!(!work.is_idle(Scope::All) && !work.is_idle(Scope::Legacy));
            work.set_idle(work.given(), Scope::Legacy);
            assert!(!work.is_idle(Scope::All) && work.is_idle(Scope::Legacy));
        })
        .join()
        .unwrap();
    }
}
