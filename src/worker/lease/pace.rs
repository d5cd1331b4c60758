// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Learns the time of commands, and derives the number that may be in flight.

use std::time::Duration;

/// The measured time of a program's commands and of the pauses between them.
#[derive(Debug, Default)]
pub struct Pace {
    /// The time of one command, in nanoseconds.
    each: Option<f64>,
    /// The time for which the program keeps the GPU busy before it waits for it, in nanoseconds.
    burst: Option<f64>,
}

impl Pace {
    /// Learns the time that some commands took.
    pub fn learn(&mut self, commands: u64, took: Duration) {
        let now = (took.as_nanos() as f64 / commands.max(1) as f64).max(100.0);
        self.each = Some(match self.each {
            // A longer time counts at once, because too much work in flight delays other VMs.
            Some(before) if now < before => before * 0.75 + now * 0.25,
            _ => now,
        });
    }

    /// Learns that the program has waited for the GPU after this time, or had work until its turn ended.
    pub fn learn_burst(&mut self, busy: Duration, is_whole: bool) {
        let now = busy.as_nanos() as f64;
        self.burst = Some(match self.burst {
            None => now,
            // A measurement that the end of the turn cut short is only a lower bound, and may once include the end of
            // another client's work.
            Some(before) if !is_whole && now < before => before,
            Some(before) => before * 0.75 + now * 0.25,
        });
    }

    /// The time of one command, in nanoseconds; 0 if unknown.
    pub fn each(&self) -> u64 {
        self.each.unwrap_or(0.0) as u64
    }

    /// The time for which the program keeps the GPU busy before it waits for it, in nanoseconds; 0 if unknown.
    pub fn burst(&self) -> u64 {
        self.burst.unwrap_or(0.0) as u64
    }

    /// The number of commands that may be in flight: those of a slice, and at least two, so that the GPU has the next
    /// one when one ends. One if their time is unknown.
    pub fn window(&self, slice: Duration) -> u64 {
        self.each.map_or(1, |each| {
            ((slice.as_nanos() as f64 / each) as u64).clamp(2, 1 << 16)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SLICE: Duration = Duration::from_millis(3);

    #[test]
    fn long_commands_shorten_the_window_at_once() {
        let mut pace = Pace::default();
        assert_eq!(pace.window(SLICE), 1, "nothing is known");
        pace.learn(1, Duration::from_micros(100));
        assert_eq!(pace.window(SLICE), 30);
        pace.learn(30, Duration::from_millis(150));
        assert_eq!(pace.window(SLICE), 2);
        for _ in 0..30 {
            pace.learn(3, Duration::from_micros(300));
        }
        assert!((28..=30).contains(&pace.window(SLICE)), "{pace:?}");
    }

    #[test]
    fn a_program_that_waits_for_each_kernel_differs_from_one_that_never_waits() {
        let mut pace = Pace::default();
        assert_eq!(pace.burst(), 0, "nothing is known");
        for _ in 0..20 {
            pace.learn_burst(Duration::from_micros(100), true);
            pace.learn_burst(Duration::from_micros(30), false);
        }
        assert_eq!(pace.burst(), 100_000);
        // A turn of it ended in the middle of much work.
        pace.learn_burst(Duration::from_millis(10), false);
        assert_eq!(pace.burst(), 2_575_000);
        for _ in 0..20 {
            pace.learn_burst(Duration::from_millis(10), false);
        }
        assert!(pace.burst() > 9_900_000, "{pace:?}");
    }
}
