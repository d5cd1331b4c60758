// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The latest values of a GPU's sensors, in memory that the supervisor writes and workers can only read.

use std::{
    hint,
    sync::atomic::{AtomicU32, AtomicU64, Ordering, fence},
    time::Duration,
};

use gpgpu_protocol::{api::Sensor, futex};

/// The maximum age of a sample that a guest gets. A GPU's sensors are read at most this often.
pub const SAMPLE_AGE: Duration = Duration::from_millis(100);
/// The maximum number of retries of a reader. The supervisor writes for well under a microsecond.
const TRIES: u32 = 1000;
/// The word of a sensor whose value is unknown.
const UNKNOWN: u64 = u64::MAX;

/// The values of a GPU's sensors at one time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sample {
    /// The time, in nanoseconds of the monotonic clock.
    pub at: u64,
    /// The known values, by [`Sensor::number`], in the sensor's unit.
    pub values: [Option<u64>; Sensor::COUNT],
}

impl Sample {
    /// A sample of this time without values.
    pub fn unknown(at: u64) -> Self {
        let values = [None; Sensor::COUNT];
        Self { at, values }
    }
}

/// A [`Sample`] in shared memory: a sequence lock, which one process writes and any other may read without waiting for
/// it.
#[derive(Debug)]
#[repr(C, align(64))]
pub(super) struct Readings {
    /// A futex: it changes before and after each write, and is odd in between.
    sequence: AtomicU32,
    /// The sample's time; 0 for no sample.
    at: AtomicU64,
    /// By sensor, the value or [`UNKNOWN`].
    values: [AtomicU64; Sensor::COUNT],
}

impl Readings {
    /// Replaces the sample, and wakes the threads that wait for a change. Only one thread at a time may call this.
    pub(super) fn write(&self, sample: Option<&Sample>) {
        let sequence = self.sequence.load(Ordering::Relaxed);
        self.sequence
            .store(sequence.wrapping_add(1), Ordering::Relaxed);
        // A reader that sees one of the words below also sees the odd sequence.
        fence(Ordering::Release);
        let at = sample.map_or(0, |sample| sample.at);
        self.at.store(at, Ordering::Relaxed);
        for (number, word) in self.values.iter().enumerate() {
            let value = sample.and_then(|sample| sample.values[number]);
            word.store(value.unwrap_or(UNKNOWN), Ordering::Relaxed);
        }
        self.sequence
            .store(sequence.wrapping_add(2), Ordering::Release);
        futex::wake(&self.sequence);
    }

    /// The sample, if there is one, and a number for [`Self::wait`].
    pub(super) fn read(&self) -> (u32, Option<Sample>) {
        let mut sequence = 0;
        for _ in 0..TRIES {
            sequence = self.sequence.load(Ordering::Acquire);
            if sequence % 2 == 0 {
                let mut sample = Sample::unknown(self.at.load(Ordering::Relaxed));
                for (value, word) in sample.values.iter_mut().zip(&self.values) {
                    *value = Some(word.load(Ordering::Relaxed)).filter(|word| *word != UNKNOWN);
                }
                // The words above are read before the sequence is read again.
                fence(Ordering::Acquire);
                if self.sequence.load(Ordering::Relaxed) == sequence {
                    return (sequence, Some(sample).filter(|sample| sample.at > 0));
                }
            }
            hint::spin_loop();
        }
        // The supervisor stopped in the middle of a write, or wrote during each try.
        (sequence, None)
    }

    /// Sleeps until the first write after the [`Self::read`] that returned this number, at most for `limit`.
    pub(super) fn wait(&self, sequence: u32, limit: Duration) {
        futex::wait_for(&self.sequence, sequence, limit);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn readings() -> Readings {
        Readings {
            sequence: AtomicU32::new(0),
            at: AtomicU64::new(0),
            values: [const { AtomicU64::new(0) }; Sensor::COUNT],
        }
    }

    #[test]
    fn a_sample_is_read_as_it_was_written_until_it_is_cleared() {
        let readings = readings();
        assert_eq!(readings.read(), (0, None));
        let mut sample = Sample::unknown(7);
        sample.values[2] = Some(0);
        sample.values[5] = Some(u64::MAX - 1);
        readings.write(Some(&sample));
        assert_eq!(readings.read(), (2, Some(sample)));
        readings.write(None);
        assert_eq!(readings.read(), (4, None));
        assert!(
            (readings.values.iter()).all(|word| word.load(Ordering::Relaxed) == UNKNOWN),
            "an old value is left"
        );
    }

    #[test]
    fn no_sample_is_half_of_one_and_half_of_another() {
        let readings = readings();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for number in 1..20_000 {
                    let values = [Some(number); Sensor::COUNT];
                    readings.write(Some(&Sample { at: number, values }));
                }
            });
            loop {
                let Some(sample) = readings.read().1 else {
                    continue;
                };
                assert_eq!(sample.values, [Some(sample.at); Sensor::COUNT]);
                if sample.at == 19_999 {
                    break;
                }
            }
        });
    }

    #[test]
    fn an_unfinished_write_holds_no_reader_up() {
        let readings = readings();
        readings.sequence.store(3, Ordering::Relaxed);
        assert_eq!(readings.read(), (3, None));
    }
}
