// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The thread that NVIDIA's driver starts with a process's first context.
//!
//! The thread waits for events of the GPU with a time-out of 100 ms. So each idle process with a context wakes ten
//! times a second, which costs 0.09 % of a processor (H200, driver 580). A host has several such processes for each
//! GPU. Linux may delay a thread's time-outs by its timer slack, which a thread inherits from its creator (`prctl(2)`,
//! `PR_SET_TIMERSLACK`). An event still ends the wait at once.

use std::time::Duration;

use nix::sys::prctl;

/// The maximum delay of a time-out of the driver's thread.
const SLACK: Duration = Duration::from_secs(2);

/// Restores a thread's timer slack.
struct Restore(u64);

impl Drop for Restore {
    fn drop(&mut self) {
        set(self.0);
    }
}

/// Calls `make`, which makes a context. Threads that it starts have a timer slack of two seconds, as the calling thread
/// has during the call.
pub fn with_slack<T>(make: impl FnOnce() -> T) -> T {
    // A failure only means that the thread keeps the usual slack, which costs more.
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
