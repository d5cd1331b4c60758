// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Turns of threads in which callbacks of the program run.

use std::thread::{self, ThreadId};

use gpgpu_locks::{Condvar, Mutex};

/// One thread at a time has the turn. Unlike with a lock, the thread may ask for it once more, as a callback does that
/// calls CUPTI: it then does not get it, and does not wait either.
#[derive(Debug)]
pub struct Turn {
    owner: Mutex<Option<ThreadId>>,
    ended: Condvar,
}

/// The turn, until it is dropped.
#[derive(Debug)]
pub struct Taken<'a>(&'a Turn);

impl Turn {
    /// A turn that no thread has.
    pub const fn new() -> Self {
        Self {
            owner: Mutex::new(None),
            ended: Condvar::new(),
        }
    }

    /// Waits for the turn; `None` if this thread has it already.
    pub fn wait(&self) -> Option<Taken<'_>> {
        let me = thread::current().id();
        let owner = self.owner.lock();
        let mut owner = self
            .ended
            .wait_while(owner, |owner| owner.is_some_and(|owner| owner != me));
        if owner.is_some() {
            return None;
        }
        *owner = Some(me);
        Some(Taken(self))
    }

    /// The turn, if no thread has it.
    pub fn take(&self) -> Option<Taken<'_>> {
        let mut owner = self.owner.lock();
        if owner.is_some() {
            return None;
        }
        *owner = Some(thread::current().id());
        Some(Taken(self))
    }
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        *self.0.owner.lock() = None;
        self.0.ended.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

    use super::*;

    #[test]
    fn threads_wait_for_each_other() {
        const TIMES: u32 = 500;
        let (turn, count) = (Turn::new(), AtomicU32::new(0));
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..TIMES {
                        let _turn = turn.wait().expect("the thread does not have it");
                        let before = count.load(Relaxed);
                        // Another thread runs meanwhile, and has to wait.
                        thread::yield_now();
                        count.store(before + 1, Relaxed);
                    }
                });
            }
        });
        assert_eq!(count.load(Relaxed), 4 * TIMES);
    }

    #[test]
    fn a_thread_has_one_turn() {
        let turn = Turn::new();
        let mine = turn.take().unwrap();
        assert!(turn.wait().is_none() && turn.take().is_none());
        thread::scope(|scope| {
            scope.spawn(|| assert!(turn.take().is_none()));
        });
        drop(mine);
        assert!(turn.wait().is_some() && turn.take().is_some());
    }
}
