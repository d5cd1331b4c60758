// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Threads for the calls that may block: as many as there are such calls at a time.
//!
//! The guest thread that made such a call waits for it, so nothing of that thread comes after; other
//! guest threads' commands go on in the meantime.

use std::{
    collections::VecDeque,
    sync::{Arc, Condvar, Mutex},
};

use gpgpu_protocol::{layout::MAX_QUEUE_SIZE, ring::SLOTS};

/// Told whether it runs on a thread of the pool; if not, it must not block.
type Job = Box<dyn FnOnce(bool) + Send>;

#[derive(Default)]
struct State {
    jobs: VecDeque<Job>,
    idle: usize,
    threads: usize,
}

/// The threads.
#[derive(Default, Clone)]
pub struct Pool {
    shared: Arc<(Mutex<State>, Condvar)>,
}

/// Bytes of a thread's stack, as many as a program's threads have: the just-in-time compiler goes deep.
const STACK_BYTES: usize = 8 << 20;

/// More idle threads than this end.
const MAX_IDLE: usize = 8;

/// The most threads. A VM has no more chains under way on its control and its command queue together, and a client no more requests in
/// its ring, so a job never waits for another one to end, of which it might be the condition.
const MAX_THREADS: usize = 2 * MAX_QUEUE_SIZE + SLOTS;

impl Pool {
    /// Runs a job on an idle thread, or on a new one. Where the host has no thread to give, it runs here and now, and is told so: it
    /// must not block then.
    pub fn run(&self, job: impl FnOnce(bool) + Send + 'static) {
        let (state, work) = &*self.shared;
        let mut locked = state
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner());
        locked.jobs.push_back(Box::new(job));
        if locked.idle >= locked.jobs.len() || locked.threads >= MAX_THREADS {
            work.notify_one();
            return;
        }
        locked.threads += 1;
        drop(locked);
        let pool = self.clone();
        if let Err(error) = std::thread::Builder::new()
            .name("wait".into())
            .stack_size(STACK_BYTES)
            .spawn(move || pool.serve())
        {
            if super::may_log() {
                tracing::warn!("Cannot start a thread: {error}");
            }
            // A thread that has become free may have taken it. Waiting for one to become free might be for ever.
            let mut locked = state
                .lock()
                .unwrap_or_else(|poisoned| poisoned.into_inner());
            locked.threads -= 1;
            let job = locked.jobs.pop_back();
            drop(locked);
            if let Some(job) = job {
                job(false);
            }
        }
    }

    fn serve(&self) {
        let (state, work) = &*self.shared;
        let mut locked = state
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner());
        loop {
            if let Some(job) = locked.jobs.pop_front() {
                drop(locked);
                job(true);
                locked = state
                    .lock()
                    .unwrap_or_else(|poisoned| poisoned.into_inner());
            } else if locked.idle >= MAX_IDLE {
                locked.threads -= 1;
                return;
            } else {
                locked.idle += 1;
                locked = work
                    .wait(locked)
                    .unwrap_or_else(|poisoned| poisoned.into_inner());
                locked.idle -= 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    #[test]
    fn pitfall_27_jobs_that_wait_do_not_hold_up_the_next() {
        let pool = Pool::default();
        let (finished, finish) = channel();
        let mut gates = Vec::new();
        for _ in 0..20 {
            let (open, gate) = channel::<()>();
            gates.push(open);
            pool.run(move |_| gate.recv().unwrap());
        }
        pool.run(move |_| finished.send(()).unwrap());
        // Arrives though every job before it still waits.
        finish.recv().unwrap();
        for gate in gates {
            gate.send(()).unwrap();
        }
    }
}
