// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The occupancy of a multiprocessor by a function: cached answers of the host.

use std::sync::atomic::{AtomicU64, Ordering};

use gpgpu_locks::{Mutex, MutexGuard};
use gpgpu_protocol::cuda::*;

/// A query about a function.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Question {
    /// The number of blocks of a multiprocessor: `cuOccupancyMaxActiveBlocksPerMultiprocessor`.
    Blocks {
        /// The number of threads of a block.
        threads: i32,
        /// Dynamic shared memory of a block, in bytes.
        shared: usize,
        /// The flags of CUDA.
        flags: u32,
    },
    /// The shared memory for each of this many blocks: `cuOccupancyAvailableDynamicSMemPerBlock`.
    Shared {
        /// The number of blocks on a multiprocessor.
        blocks: i32,
        /// The number of threads of a block.
        threads: i32,
    },
    /// The grid and block for the most threads: `cuOccupancyMaxPotentialBlockSize`.
    BlockSize {
        /// Dynamic shared memory of a block, in bytes.
        shared: usize,
        /// The maximum number of threads of a block, or 0.
        limit: i32,
        /// The flags of CUDA.
        flags: u32,
    },
}

/// Counts changes that affect the occupancy of any function: attributes, preferences, limits.
static CONFIGURATION: AtomicU64 = AtomicU64::new(0);

/// A number that differs after each such change.
#[inline]
pub fn configuration() -> u64 {
    CONFIGURATION.load(Ordering::Acquire)
}

/// Calls `host` to make a change that may affect occupancy.
pub fn reconfigure<T>(host: impl FnOnce() -> T) -> T {
    CONFIGURATION.fetch_add(1, Ordering::AcqRel);
    let result = host();
    // An answer that was queried in the meantime may be outdated.
    CONFIGURATION.fetch_add(1, Ordering::AcqRel);
    result
}

/// The maximum number of cached answers for one function: few enough for a linear search. A new one replaces the
/// oldest.
const MOST: usize = 64;

/// The cached answers for one function, by device and query.
#[derive(Debug, Default)]
pub struct Occupancy {
    known: Mutex<Answered>,
}

#[derive(Debug, Default)]
struct Answered {
    configuration: u64,
    answers: Vec<((CUdevice, Question), u64)>,
    oldest: usize,
}

impl Occupancy {
    fn known(&self) -> MutexGuard<'_, Answered> {
        self.known.lock()
    }

    /// The answer to a query about a device, if it is cached and still valid.
    pub fn get(&self, device: CUdevice, question: Question) -> Option<u64> {
        let known = self.known();
        if known.configuration != configuration() {
            return None;
        }
        let same = |(asked, _): &&((CUdevice, Question), u64)| *asked == (device, question);
        known.answers.iter().find(same).map(|(_, answer)| *answer)
    }

    /// Caches an answer that was queried in configuration `before`.
    pub fn note(&self, device: CUdevice, question: Question, answer: u64, before: u64) {
        let mut known = self.known();
        if before != configuration() {
            return;
        }
        if known.configuration != before {
            known.answers.clear();
            known.configuration = before;
        }
        let entry = ((device, question), answer);
        if known.answers.len() < MOST {
            known.answers.push(entry);
        } else {
            let oldest = known.oldest;
            known.answers[oldest] = entry;
            known.oldest = (oldest + 1) % MOST;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_holds_for_its_question_and_device_until_something_is_set() {
        let occupancy = Occupancy::default();
        let question = |threads| Question::Blocks {
            threads,
            shared: 0,
            flags: 0,
        };
        // Other tests may change a setting in the meantime. Then the answer is not cached, which this test must not
        // report as an error.
        let before = loop {
            let before = configuration();
            occupancy.note(0, question(32), 16, before);
            if occupancy.get(0, question(32)).is_some() {
                break before;
            }
        };
        assert_eq!(occupancy.get(0, question(64)), None);
        assert_eq!(occupancy.get(1, question(32)), None);
        reconfigure(|| ());
        assert_eq!(occupancy.get(0, question(32)), None);
        occupancy.note(0, question(32), 16, before);
        assert_eq!(occupancy.get(0, question(32)), None);
    }
}
