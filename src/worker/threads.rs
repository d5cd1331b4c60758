// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Threads for calls that may block: as many as there are such calls at a time.
//!
//! The guest thread that made such a call waits for it, so no command of that thread follows; commands of other guest
//! threads continue in the meantime.
//!
//! Such calls often follow each other closely, and waking a thread takes longer than many of them. So one idle thread
//! polls for a moment before it sleeps.

use std::{
    collections::VecDeque,
    hint,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use gpgpu_locks::{Condvar, Mutex, MutexGuard};
use gpgpu_protocol::{layout::MAX_QUEUE_SIZE, ring::SLOTS};

/// A job. Its argument says whether it runs on a thread of the pool; if not, it must not block.
type Job = Box<dyn FnOnce(bool) + Send>;

#[derive(Default)]
struct State {
    jobs: VecDeque<Job>,
    /// The number of sleeping threads.
    idle: usize,
    /// Whether a thread polls.
    is_polling: bool,
    threads: usize,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    work: Condvar,
    /// Whether there may be a job, for threads that poll.
    has_jobs: AtomicBool,
}

/// The threads.
#[derive(Default, Clone)]
pub struct Pool {
    shared: Arc<Shared>,
}

/// The time for which a thread polls: a few times the time that it takes to wake one.
const POLL: Duration = Duration::from_micros(50);

/// The stack size of a thread in bytes, as for a program's threads: the just-in-time compiler uses deep recursion.
const STACK_BYTES: usize = 8 << 20;

/// The maximum number of idle threads. Further ones end.
const MAX_IDLE: usize = 8;

/// The maximum number of threads. A VM has no more chains in flight on its control and its command queue together, and
/// a client no more requests in its ring. So a job never waits for the end of another one, which might wait for it. One
/// more is for [`Ordered`].
const MAX_THREADS: usize = 2 * MAX_QUEUE_SIZE + SLOTS + 1;

impl Pool {
    /// Runs a job on an idle thread, or on a new one. If no thread can be started, the job runs here and now, and must
    /// not block.
    pub fn run(&self, job: impl FnOnce(bool) + Send + 'static) {
        let mut locked = self.lock();
        locked.jobs.push_back(Box::new(job));
        self.shared.has_jobs.store(true, Ordering::Relaxed);
        let polling = usize::from(locked.is_polling);
        if locked.idle + polling >= locked.jobs.len() || locked.threads >= MAX_THREADS {
            if locked.jobs.len() > polling {
                self.shared.work.notify_one();
            }
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
            // A thread that has become idle may have taken the job. Waiting for one to become idle might take for ever.
            let mut locked = self.lock();
            locked.threads -= 1;
            let job = locked.jobs.pop_back();
            drop(locked);
            if let Some(job) = job {
                job(false);
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        let state = &self.shared.state;
        state.lock()
    }

    fn serve(&self) {
        let mut locked = self.lock();
        let mut may_poll = true;
        loop {
            if let Some(job) = locked.jobs.pop_front() {
                let has_jobs = !locked.jobs.is_empty();
                self.shared.has_jobs.store(has_jobs, Ordering::Relaxed);
                drop(locked);
                job(true);
                locked = self.lock();
                may_poll = true;
            } else if may_poll && !locked.is_polling {
                locked.is_polling = true;
                drop(locked);
                self.poll();
                locked = self.lock();
                // A thread that has added a job in the meantime relies on this thread, which checks for it next.
                (locked.is_polling, may_poll) = (false, false);
            } else if locked.idle >= MAX_IDLE {
                locked.threads -= 1;
                return;
            } else {
                locked.idle += 1;
                locked = self.shared.work.wait(locked);
                locked.idle -= 1;
            }
        }
    }

    /// Polls for a job for a moment.
    fn poll(&self) {
        let start = Instant::now();
        while !self.shared.has_jobs.load(Ordering::Relaxed) && start.elapsed() < POLL {
            hint::spin_loop();
        }
    }
}

#[derive(Default)]
struct Line {
    jobs: VecDeque<Job>,
    is_running: bool,
}

/// Jobs that are executed one after the other, in their order, by a thread of a pool.
#[derive(Clone)]
pub struct Ordered {
    pool: Pool,
    line: Arc<Mutex<Line>>,
}

impl Ordered {
    /// Without jobs.
    pub fn new(pool: Pool) -> Self {
        Self {
            pool,
            line: Arc::default(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Line> {
        self.line.lock()
    }

    /// Whether a job is unfinished.
    pub fn is_busy(&self) -> bool {
        self.lock().is_running
    }

    /// Runs a job after unfinished ones. As with [`Pool::run`], its argument says whether it may block.
    pub fn run(&self, job: impl FnOnce(bool) + Send + 'static) {
        let mut line = self.lock();
        line.jobs.push_back(Box::new(job));
        if std::mem::replace(&mut line.is_running, true) {
            return;
        }
        drop(line);
        let ordered = self.clone();
        self.pool.run(move |may_block| ordered.serve(may_block));
    }

    fn serve(&self, may_block: bool) {
        loop {
            let mut line = self.lock();
            let Some(job) = line.jobs.pop_front() else {
                line.is_running = false;
                return;
            };
            drop(line);
            job(may_block);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    #[test]
    fn pitfall_27_each_of_many_jobs_is_done_whether_threads_poll_or_sleep() {
        let pool = Pool::default();
        let (finished, finish) = channel();
        for round in 0..2000_u32 {
            // Some rounds find a polling thread, some a thread that is about to sleep, and some none.
            let jobs = 1 + round % 3;
            for _ in 0..jobs {
                let finished = finished.clone();
                pool.run(move |may_block| finished.send(may_block).unwrap());
            }
            (0..jobs).for_each(|_| assert!(finish.recv().unwrap()));
            if round % 5 == 0 {
                std::thread::sleep(POLL * (round % 3));
            }
        }
    }

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
        // Arrives although every job before it still waits.
        finish.recv().unwrap();
        for gate in gates {
            gate.send(()).unwrap();
        }
    }

    #[test]
    fn ordered_jobs_are_done_one_after_the_other_beside_their_sender() {
        let ordered = Ordered::new(Pool::default());
        let (finished, finish) = channel();
        let (open, gate) = channel::<()>();
        ordered.run(move |_| gate.recv().unwrap());
        for number in 0..1000 {
            let finished = finished.clone();
            ordered.run(move |may_block| finished.send((number, may_block)).unwrap());
        }
        assert!(ordered.is_busy() && finish.try_recv().is_err());
        open.send(()).unwrap();
        (0..1000).for_each(|number| assert_eq!(finish.recv().unwrap(), (number, true)));
    }
}
