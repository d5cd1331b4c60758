// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The times of records: the process's clock, and the conversion of the host's times to it.

use std::sync::atomic::{AtomicUsize, Ordering};

use gpgpu_protocol::cupti::{INVALID_PARAMETER, Status};

use crate::{enter, enter_here, give, profiler::profiler};

/// `CUpti_TimestampCallbackFunc`.
pub type Timestamp = unsafe extern "C" fn() -> u64;

/// The clock of a process: the real-time clock, or the program's own function.
#[derive(Debug)]
pub struct Clock(AtomicUsize);

impl Clock {
    /// The real-time clock.
    pub const fn new() -> Self {
        Self(AtomicUsize::new(0))
    }

    /// Uses the program's function from now on; the real-time clock with `None`. Returns whether it is another one.
    pub fn set(&self, function: Option<Timestamp>) -> bool {
        let address = function.map_or(0, |function| function as usize);
        self.0.swap(address, Ordering::AcqRel) != address
    }

    /// The time in nanoseconds. It may call the program, so no lock may be held.
    #[inline]
    pub fn now(&self) -> u64 {
        let address = self.0.load(Ordering::Acquire);
        if address == 0 {
            return real_time();
        }
        // SAFETY: `set` has stored the address of a function of this type.
        let function = unsafe { std::mem::transmute::<usize, Timestamp>(address) };
        // SAFETY: the program promises that it may be called until another one is set.
        unsafe { function() }
    }
}

fn real_time() -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the structure is writable.
    unsafe { libc::clock_gettime(libc::CLOCK_REALTIME, &mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// The host's time and the process's at about the same moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sample {
    /// The host's time.
    pub host: u64,
    /// The process's time.
    pub own: u64,
    /// The time in which the host was asked. The two times differ by no more than half of it.
    pub trip: u64,
}

/// Asks the host for its time a few times, and keeps the answer with the shortest round trip.
pub fn sample(clock: &Clock, mut host: impl FnMut() -> Option<u64>) -> Option<Sample> {
    let ask = |_| {
        let before = clock.now();
        let host = host()?;
        let trip = clock.now().saturating_sub(before);
        let own = before + trip / 2;
        Some(Sample { host, own, trip })
    };
    (0..TRIES).map_while(ask).min_by_key(|sample| sample.trip)
}

/// How often the host is asked for a sample.
const TRIES: usize = 5;
/// The host's time, in nanoseconds, between two samples that tell the speeds of the clocks well.
const APART: u64 = 10_000_000;
/// The speeds of two real-time clocks differ by less than one in so many, unless a clock was set.
const SPEEDS: i128 = 100;

/// The relation of the host's clock to the process's.
#[derive(Debug, Default)]
pub struct Calibration {
    older: Option<Sample>,
    newer: Option<Sample>,
    /// Whether the process's clock counts nanoseconds. The program's own clock need not: torch's profiler gives cycles
    /// of the processor, and converts the times of the records.
    is_real: bool,
}

impl Calibration {
    /// No relation: the host's times stay as they are. `is_real` says whether the process's clock is the real-time
    /// clock.
    pub const fn new(is_real: bool) -> Self {
        Self {
            older: None,
            newer: None,
            is_real,
        }
    }

    /// Adds a sample. Of close ones, that with the shortest round trip is kept, but the two that are kept are apart as
    /// soon as any are.
    pub fn add(&mut self, sample: Sample) {
        let (Some(older), Some(newer)) = (self.older, self.newer) else {
            (self.older, self.newer) = (self.newer, Some(sample));
            return;
        };
        if newer.host.saturating_sub(older.host) < APART {
            if newer.trip < older.trip {
                self.older = self.newer;
            }
            self.newer = Some(sample);
        } else if sample.host.saturating_sub(newer.host) >= APART {
            (self.older, self.newer) = (self.newer, Some(sample));
        } else if sample.trip <= newer.trip {
            self.newer = Some(sample);
        }
    }

    /// The process's time for a time of the host.
    pub fn own(&self, host: u64) -> u64 {
        let Some(newer) = self.newer else {
            return host;
        };
        let since = i128::from(host) - i128::from(newer.host);
        let scaled = match self.older {
            Some(older) => self.scale(since, older, newer),
            None => since,
        };
        let own = i128::from(newer.own) + scaled;
        own.clamp(0, i128::from(u64::MAX)) as u64
    }

    /// Scales a time of the host to the process's clock by two samples.
    fn scale(&self, time: i128, older: Sample, newer: Sample) -> i128 {
        let host = i128::from(newer.host) - i128::from(older.host);
        let own = i128::from(newer.own) - i128::from(older.own);
        // A clock that was set between the samples tells nothing about its speed.
        let was_set = self.is_real && (own - host).abs() * SPEEDS > host.max(i128::from(APART));
        if host <= 0 || own < 0 || was_set {
            return time;
        }
        time * own / host
    }
}

/// `cuptiGetTimestamp`: the time of the clock that stamps records.
///
/// Fails with `CUPTI_ERROR_INVALID_PARAMETER` if `timestamp` is NULL.
///
/// # Safety
///
/// `timestamp` is NULL or the caller's to write to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuptiGetTimestamp(timestamp: *mut u64) -> Status {
    // SAFETY: promised by the caller.
    enter(|| unsafe { give(timestamp, profiler().clock.now()) })
}

/// `cuptiActivityRegisterTimestampCallback`: stamps records by a function of the program.
///
/// Fails with `CUPTI_ERROR_INVALID_PARAMETER` if it is NULL.
///
/// # Safety
///
/// The function may be called by any thread until `cuptiFinalize`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuptiActivityRegisterTimestampCallback(
    funcTimestamp: Option<Timestamp>,
) -> Status {
    enter_here(|| {
        let function = funcTimestamp.ok_or(INVALID_PARAMETER)?;
        profiler().set_clock(Some(function));
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn at(host: u64, own: u64, trip: u64) -> Sample {
        Sample { host, own, trip }
    }

    #[test]
    fn times_are_interpolated_between_two_samples() {
        let mut calibration = Calibration::new(true);
        assert_eq!(calibration.own(5), 5);
        calibration.add(at(10 * SECOND, 1000 * SECOND, 100));
        assert_eq!(calibration.own(11 * SECOND), 1001 * SECOND);
        // The process's clock is faster by one in a thousand.
        calibration.add(at(12 * SECOND, 1002 * SECOND + 2 * SECOND / 1000, 100));
        assert_eq!(calibration.own(11 * SECOND), 1001 * SECOND + SECOND / 1000);
        assert_eq!(
            calibration.own(13 * SECOND),
            1003 * SECOND + 3 * SECOND / 1000
        );
    }

    #[test]
    fn the_programs_clock_has_any_unit() {
        let mut calibration = Calibration::new(false);
        calibration.add(at(10 * SECOND, 500, 100));
        // Soon after: the two already tell the unit.
        calibration.add(at(10 * SECOND + 1000, 3500, 100));
        assert_eq!(calibration.own(10 * SECOND + 500), 2000);
        calibration.add(at(12 * SECOND, 500 + 6 * SECOND, 100));
        assert_eq!(calibration.own(11 * SECOND), 500 + 3 * SECOND);
        // It was set back.
        calibration.add(at(13 * SECOND, 500, 100));
        assert_eq!(calibration.own(13 * SECOND + 5), 505);
    }

    #[test]
    fn samples_are_kept_apart() {
        const MS: u64 = 1_000_000;
        let mut calibration = Calibration::new(true);
        let kept = |calibration: &Calibration| {
            let host = |sample: Option<Sample>| sample.unwrap().host / MS;
            (host(calibration.older), host(calibration.newer))
        };
        let mut add = |host, trip| {
            calibration.add(at(host * MS, host * MS, trip));
            calibration.older.is_some().then(|| kept(&calibration))
        };
        assert_eq!(add(1, 50), None);
        // Kinds are enabled one after the other: the first samples are close, and the best one stays.
        assert_eq!(add(2, 40), Some((1, 2)));
        assert_eq!(add(3, 60), Some((2, 3)));
        assert_eq!(add(20, 60), Some((2, 20)));
        assert_eq!(add(21, 70), Some((2, 20)));
        assert_eq!(add(22, 50), Some((2, 22)));
        assert_eq!(add(40, 90), Some((22, 40)));
    }

    #[test]
    fn a_clock_that_was_set_gives_an_offset_alone() {
        let mut calibration = Calibration::new(true);
        calibration.add(at(10 * SECOND, 1000 * SECOND, 100));
        calibration.add(at(12 * SECOND, 5000 * SECOND, 100));
        assert_eq!(calibration.own(13 * SECOND), 5001 * SECOND);
        assert_eq!(calibration.own(11 * SECOND), 4999 * SECOND);
        calibration.add(at(14 * SECOND, 4000 * SECOND, 100));
        assert_eq!(calibration.own(13 * SECOND), 3999 * SECOND);
    }

    #[test]
    fn the_shortest_round_trip_counts() {
        use std::sync::atomic::AtomicU64;
        static TIMES: AtomicU64 = AtomicU64::new(0);
        /// Each second question of the time comes 10, 9, … later.
        unsafe extern "C" fn time() -> u64 {
            let n = TIMES.fetch_add(1, Ordering::Relaxed);
            100 * n + if n % 2 == 1 { 30 - n } else { 0 }
        }
        let clock = Clock::new();
        clock.set(Some(time));
        let mut host = 0;
        let kept = sample(&clock, || {
            host += 1000;
            Some(host)
        });
        assert_eq!(kept, Some(at(5000, 800 + 121 / 2, 121)));
        // A host without an answer is asked once.
        let mut asked = 0;
        let nothing = sample(&clock, || {
            asked += 1;
            None
        });
        assert_eq!((nothing, asked), (None, 1));
        clock.set(None);
        assert!(clock.now() > 1_600_000_000 * SECOND);
    }
}
