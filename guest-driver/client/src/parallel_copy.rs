// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Copies large memory with several threads: one core copies about 10 GB/s, a fraction of the bandwidth of a GPU's
//! link.
//!
//! The threads start with the first long copy and sleep otherwise.

use std::{
    sync::{
        OnceLock,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use gpgpu_locks::{Condvar, Mutex};

use crate::signals;

/// The minimum size of a copy for which threads are woken.
pub const WORTH_IT: usize = 512 << 10;
/// The number of bytes of a contiguous copy that a thread copies at a time.
const CHUNK: usize = 128 << 10;
/// The maximum number of steps in which the threads take the parts of a copy.
const STEPS: usize = 32;
/// The maximum number of threads in addition to the caller.
const MAX_HELPERS: usize = 3;
/// The time for which a thread polls for the next job before it sleeps.
const SPIN: Duration = Duration::from_micros(30);

/// A part of a copy, which one thread copies.
#[derive(Debug, Clone, Copy)]
pub struct Part {
    /// The first byte of the destination.
    pub dst: *mut u8,
    /// The first byte of the source.
    pub src: *const u8,
    /// The number of bytes.
    pub bytes: usize,
}

impl Part {
    /// # Safety
    ///
    /// As for [`copy`].
    unsafe fn copy(self) {
        // SAFETY: promised by the caller.
        unsafe { self.dst.copy_from_nonoverlapping(self.src, self.bytes) };
    }
}

/// Copies `bytes` bytes, and returns when all are copied.
///
/// # Safety
///
/// Both ranges are mapped, the destination for writing, and do not overlap. Concurrent writes to the source may or may
/// not be copied.
pub unsafe fn copy(dst: *mut u8, src: *const u8, bytes: usize) {
    if bytes < WORTH_IT {
        // SAFETY: promised by the caller.
        return unsafe { dst.copy_from_nonoverlapping(src, bytes) };
    }
    let parts: Vec<_> = parts(dst, src, bytes).collect();
    // SAFETY: promised by the caller.
    unsafe { copy_parts(&parts) };
}

/// The parts of a contiguous copy.
pub fn parts(dst: *mut u8, src: *const u8, bytes: usize) -> impl Iterator<Item = Part> {
    (0..bytes).step_by(CHUNK).map(move |start| Part {
        dst: dst.wrapping_add(start),
        src: src.wrapping_add(start),
        bytes: CHUNK.min(bytes - start),
    })
}

/// Copies parts, and returns when all are copied.
///
/// # Safety
///
/// As for [`copy`], for each part; no two destinations overlap.
pub unsafe fn copy_parts(parts: &[Part]) {
    let bytes: usize = parts.iter().map(|part| part.bytes).sum();
    if bytes >= WORTH_IT
        && let Some(helpers) = Helpers::get()
        && let Some(_only) = helpers.caller.try_lock()
    {
        return helpers.copy(Job {
            parts: parts.as_ptr() as usize,
            count: parts.len(),
        });
    }
    for part in parts {
        // SAFETY: promised by the caller.
        unsafe { part.copy() };
    }
}

/// The parts of a copy, by the address of the first.
#[derive(Debug, Clone, Copy)]
struct Job {
    parts: usize,
    count: usize,
}

#[derive(Default)]
struct State {
    /// The job, while there are parts left for helpers.
    job: Option<Job>,
    /// Distinguishes jobs.
    serial: u64,
}

struct Helpers {
    /// The process of the threads: a forked child has none.
    process: u32,
    /// Held by the caller whose copy is the job. Other callers copy by themselves in the meantime.
    caller: Mutex<()>,
    state: Mutex<State>,
    changed: Condvar,
    /// The serial of the last job, for threads that poll without the lock.
    published: AtomicUsize,
    /// The next part of the job.
    next: AtomicUsize,
    /// The number of helpers that have joined the job and not left it.
    joined: AtomicUsize,
}

impl Helpers {
    fn get() -> Option<&'static Self> {
        static HELPERS: OnceLock<Helpers> = OnceLock::new();
        static STARTED: OnceLock<usize> = OnceLock::new();
        let helpers = HELPERS.get_or_init(|| Self {
            process: std::process::id(),
            caller: Mutex::new(()),
            state: Mutex::default(),
            changed: Condvar::new(),
            published: AtomicUsize::new(0),
            next: AtomicUsize::new(0),
            joined: AtomicUsize::new(0),
        });
        if helpers.process != std::process::id() {
            return None;
        }
        let started = *STARTED.get_or_init(|| {
            let cores = thread::available_parallelism().map_or(1, usize::from);
            (0..MAX_HELPERS.min(cores - 1))
                .filter(|_| signals::spawn("gpgpu-copy", || helpers.serve()).is_ok())
                .count()
        });
        (started > 0).then_some(helpers)
    }

    fn copy(&self, job: Job) {
        let mut state = self.state.lock();
        self.next.store(0, Ordering::Relaxed);
        state.job = Some(job);
        state.serial += 1;
        self.published
            .store(state.serial as usize, Ordering::Release);
        drop(state);
        self.changed.notify_all();
        self.take_parts(job);
        // No further helper joins; those that have joined are copying their last part.
        self.state.lock().job = None;
        while self.joined.load(Ordering::Acquire) > 0 {
            std::hint::spin_loop();
            // Another thread may need this core to finish.
            if self.joined.load(Ordering::Acquire) > 0 {
                thread::yield_now();
            }
        }
    }

    fn take_parts(&self, job: Job) {
        // Many short parts are taken together, because each step costs as much as a short copy.
        let each = job.count.div_ceil(STEPS);
        loop {
            let first = self.next.fetch_add(each, Ordering::Relaxed);
            if first >= job.count {
                return;
            }
            for part in first..job.count.min(first + each) {
                // SAFETY: the caller of `copy_parts` vouches for the parts until that returns, which waits for all
                // helpers that joined; each part is taken once.
                unsafe { (*(job.parts as *const Part).add(part)).copy() };
            }
        }
    }

    fn serve(&self) {
        let mut seen = 0;
        loop {
            // In a long transfer the next block follows soon.
            let start = Instant::now();
            while self.published.load(Ordering::Acquire) as u64 == seen && start.elapsed() < SPIN {
                std::hint::spin_loop();
            }
            let mut state = self.state.lock();
            while state.serial == seen {
                state = self.changed.wait(state);
            }
            seen = state.serial;
            let Some(job) = state.job else { continue };
            // Under the lock, so that the caller sees it after it has removed the job.
            self.joined.fetch_add(1, Ordering::Relaxed);
            drop(state);
            self.take_parts(job);
            self.joined.fetch_sub(1, Ordering::Release);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_is_copied_once_whatever_the_length() {
        for bytes in [0, 1, CHUNK, WORTH_IT - 1, WORTH_IT, WORTH_IT + 1, 3_000_001] {
            let from: Vec<u8> = (0..bytes).map(|i| (i / 7 + i % 251) as u8).collect();
            let mut to = vec![0xaa; bytes + 2];
            // SAFETY: the middle of `to` is as long as `from`.
            unsafe { copy(to.as_mut_ptr().add(1), from.as_ptr(), bytes) };
            assert!(to[1..=bytes] == from[..], "{bytes}");
            assert_eq!((to[0], to[bytes + 1]), (0xaa, 0xaa));
        }
    }

    #[test]
    fn several_threads_copy_at_once() {
        thread::scope(|scope| {
            for seed in 0..4u8 {
                scope.spawn(move || {
                    for round in 0..8 {
                        let from = vec![seed * 16 + round; 2 << 20];
                        let mut to = vec![0; from.len()];
                        // SAFETY: both are as long.
                        unsafe { copy(to.as_mut_ptr(), from.as_ptr(), from.len()) };
                        assert!(to == from);
                    }
                });
            }
        });
    }
}
