// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The pauses of a thread that looks for something again and again.

use std::{
    hint, thread,
    time::{Duration, Instant},
};

/// The time for which a thread spins before it lets others run between its looks.
const SPIN: Duration = Duration::from_micros(50);
/// The time for which it looks so before it sleeps. A driver in the process would spin all the time, and where timers
/// are as coarse as a millisecond an earlier sleep costs a large copy half of its speed.
const LOOK: Duration = Duration::from_millis(20);
/// A sleep between two looks.
const SLEEP: Duration = Duration::from_micros(200);

/// Spinning, then letting others run, then sleeping.
#[derive(Debug, Default)]
pub struct Pauses {
    start: Option<Instant>,
    spins: u32,
}

impl Pauses {
    /// A wait that begins now.
    #[inline]
    pub const fn new() -> Self {
        Self {
            start: None,
            spins: 0,
        }
    }

    /// A short pause. If it was a sleep, the time from the begin of the wait to that.
    pub fn pause(&mut self) -> Option<Duration> {
        self.spins = self.spins.wrapping_add(1);
        if !self.spins.is_multiple_of(64) {
            hint::spin_loop();
            return None;
        }
        let waited = self.start.get_or_insert_with(Instant::now).elapsed();
        if waited < SPIN {
            return None;
        }
        if waited < LOOK {
            thread::yield_now();
            return None;
        }
        // From now on every pause is a sleep.
        self.spins = 63;
        sleep();
        Some(waited)
    }
}

/// Sleeps for [`SLEEP`]. The C library's functions are points at which a program can cancel the thread, and its
/// cancellation would unwind a call of CUDA, which is no such point.
fn sleep() {
    let time = libc::timespec {
        tv_sec: 0,
        tv_nsec: SLEEP.as_nanos() as libc::c_long,
    };
    let rest = std::ptr::null_mut::<libc::timespec>();
    // SAFETY: the pointers are to a value that lives across the call, and NULL.
    unsafe {
        libc::syscall(
            libc::SYS_clock_nanosleep,
            libc::CLOCK_MONOTONIC,
            0,
            &raw const time,
            rest,
        )
    };
}
