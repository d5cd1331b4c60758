// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The time for which the ring's thread polls before it sleeps.
//!
//! As with KVM's halt polling (`Documentation/virt/kvm/halt-polling.rst`), the length of the last idle time determines
//! it. The thread polls longer if polling could have covered that time, and shorter if not. A thread that slept and was
//! woken soon also polls longer. Otherwise a program whose commands come at intervals just above the limit would have
//! to wake it each time, and the limit would not change.

use std::time::Duration;

/// The shortest time for which the thread polls.
pub const SHORTEST_POLL: Duration = Duration::from_micros(20);
/// The longest time for which the thread polls.
const LONGEST_POLL: Duration = Duration::from_millis(1);

/// The limit of polling, which follows the idle times.
#[derive(Debug)]
pub struct Polling(Duration);

impl Polling {
    /// The limit of a new ring.
    pub fn new() -> Self {
        Self(LONGEST_POLL / 4)
    }

    /// The time for which to poll.
    pub fn limit(&self) -> Duration {
        self.0
    }

    /// Adjusts the limit after the ring was idle for this time, polling or asleep.
    pub fn idled(&mut self, time: Duration) {
        self.0 = if time < LONGEST_POLL {
            (self.0 * 2).min(LONGEST_POLL)
        } else {
            (self.0 / 2).max(SHORTEST_POLL)
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ring_with_long_pauses_is_polled_for_a_short_time() {
        let mut polling = Polling::new();
        for _ in 0..10 {
            polling.idled(Duration::from_secs(1));
        }
        assert_eq!(polling.limit(), SHORTEST_POLL);
    }

    #[test]
    fn short_pauses_are_polled_through_soon_even_if_the_thread_slept_in_the_first_ones() {
        let mut polling = Polling(SHORTEST_POLL);
        let pause = Duration::from_micros(100);
        let mut slept = 0;
        while polling.limit() < pause {
            slept += 1;
            assert!(slept < 10);
            polling.idled(pause);
        }
        for _ in 0..20 {
            polling.idled(Duration::ZERO);
        }
        assert_eq!(polling.limit(), LONGEST_POLL);
    }
}
