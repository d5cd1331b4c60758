// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The time that commands take, and from that the number that may be on their way.

use std::time::Duration;

/// The time of a program's commands and of the pauses between them, learnt as it goes.
#[derive(Debug, Default)]
pub struct Pace {
    /// The time that one command takes, in nanoseconds.
    each: Option<f64>,
    /// For how long the program keeps the GPU busy before it waits for it, in nanoseconds.
    burst: Option<f64>,
}

impl Pace {
    /// Takes note of the time that some commands took.
    pub fn learn(&mut self, commands: u64, took: Duration) {
        let now = (took.as_nanos() as f64 / commands.max(1) as f64).max(100.0);
        self.each = Some(match self.each {
            // Long ones count at once: too much on its way holds others up.
            Some(before) if now < before => before * 0.75 + now * 0.25,
            _ => now,
        });
    }

    /// The program has waited for the GPU after this time, or had so much to do until its turn ended.
    pub fn learn_burst(&mut self, busy: Duration, is_whole: bool) {
        let now = busy.as_nanos() as f64;
        self.burst = Some(match self.burst {
            None => now,
            // A measurement that the turn's end cut short is only a lower bound, and may include the end of another
            // client's work once.
            Some(before) if !is_whole && now < before => before,
            Some(before) => before * 0.75 + now * 0.25,
        });
    }

    /// The time that one command takes, in nanoseconds; 0 while nothing is known.
    pub fn each(&self) -> u64 {
        self.each.unwrap_or(0.0) as u64
    }

    /// For how long the program keeps the GPU busy before it waits for it, in nanoseconds; 0 while nothing is known.
    pub fn burst(&self) -> u64 {
        self.burst.unwrap_or(0.0) as u64
    }

    /// The number of commands that may be on their way: a slice's, and two at least, so that the GPU has the next when
    /// one ends. One while nothing is known.
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
        // A turn of it was over in the middle of much work.
        pace.learn_burst(Duration::from_millis(10), false);
        assert_eq!(pace.burst(), 2_575_000);
        for _ in 0..20 {
            pace.learn_burst(Duration::from_millis(10), false);
        }
        assert!(pace.burst() > 9_900_000, "{pace:?}");
    }
}
