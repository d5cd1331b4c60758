// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The thread that NVIDIA's driver starts with a process's first context.
//!
//! It waits for events of the GPU, with a time-out of 100 ms. So each idle process with a context wakes ten times a
//! second, which costs 0.09 % of a processor (H200, driver 580). A host has several such processes for each GPU. Linux
//! may end a thread's time-outs late, by its timer slack, which a thread inherits from its creator (`prctl(2)`,
//! `PR_SET_TIMERSLACK`). An event still ends the wait at once.

use std::time::Duration;

use nix::sys::prctl;

/// The time by which a time-out of the driver's thread may be late.
const SLACK: Duration = Duration::from_secs(2);

/// Puts a thread's timer slack back.
struct Restore(u64);

impl Drop for Restore {
    fn drop(&mut self) {
        set(self.0);
    }
}

/// Makes a context: threads that `make` starts have a timer slack of two seconds. The calling thread has it meanwhile,
/// and its own again afterwards.
pub fn with_slack<T>(make: impl FnOnce() -> T) -> T {
    // A thread that keeps the usual slack only costs more.
    let own = prctl::get_timerslack().ok();
    let _restore = own.and_then(|own| u64::try_from(own).ok()).map(|own| {
        set(SLACK.as_nanos() as u64);
        Restore(own)
    });
    make()
}

fn set(nanoseconds: u64) {
    if let Err(error) = prctl::set_timerslack(nanoseconds) {
        tracing::debug!("The timer slack stays as it is: {error}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_started_with_a_context_may_wake_late_and_others_not() {
        let slack = || prctl::get_timerslack().unwrap();
        let own = slack();
        let inner = with_slack(|| std::thread::spawn(slack).join().unwrap());
        assert_eq!(inner as u128, SLACK.as_nanos());
        assert_eq!(slack(), own);
        assert_eq!(std::thread::spawn(slack).join().unwrap(), own);
    }
}
