// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The occupancy of a multiprocessor by a function, as the host has answered.

use std::sync::atomic::{AtomicU64, Ordering};

use gpgpu_locks::{Mutex, MutexGuard};
use gpgpu_protocol::cuda::*;

/// A question about a function.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Question {
    /// The number of blocks of a multiprocessor: `cuOccupancyMaxActiveBlocksPerMultiprocessor`.
    Blocks {
        /// Of a block.
        threads: i32,
        /// Dynamic shared memory of a block, in bytes.
        shared: usize,
        /// As CUDA numbers them.
        flags: u32,
    },
    /// The shared memory for each of so many blocks: `cuOccupancyAvailableDynamicSMemPerBlock`.
    Shared {
        /// On a multiprocessor.
        blocks: i32,
        /// Of a block.
        threads: i32,
    },
    /// The grid and block for the most threads: `cuOccupancyMaxPotentialBlockSize`.
    BlockSize {
        /// Dynamic shared memory of a block, in bytes.
        shared: usize,
        /// The most threads of a block, or 0.
        limit: i32,
        /// As CUDA numbers them.
        flags: u32,
    },
}

/// Counts changes that affect the occupancy of any function: attributes, preferences, limits.
static CONFIGURATION: AtomicU64 = AtomicU64::new(0);

/// A number that is another one after each such change.
#[inline]
pub fn configuration() -> u64 {
    CONFIGURATION.load(Ordering::Acquire)
}

/// Has `host` make a change that may affect occupancy.
pub fn reconfigure<T>(host: impl FnOnce() -> T) -> T {
    CONFIGURATION.fetch_add(1, Ordering::AcqRel);
    let result = host();
    // An answer that was queried meanwhile may be from before.
    CONFIGURATION.fetch_add(1, Ordering::AcqRel);
    result
}

/// The most answers about one function: few enough to look through. A newer one takes the oldest one's place.
const MOST: usize = 64;

/// The answers about one function, by device and question.
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

    /// The answer to a question about a device, if it is known and still holds.
    pub fn get(&self, device: CUdevice, question: Question) -> Option<u64> {
        let known = self.known();
        if known.configuration != configuration() {
            return None;
        }
        let same = |(asked, _): &&((CUdevice, Question), u64)| *asked == (device, question);
        known.answers.iter().find(same).map(|(_, answer)| *answer)
    }

    /// Notes an answer that was asked for in configuration `before`.
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
        // Other tests may set something meanwhile: then the answer is not kept, which this must not take for a fault.
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
