// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Rate limits: a burst, and then one event in each period.

use std::time::{Duration, Instant};

/// A token bucket that gains one token in each period, up to its burst.
#[derive(Debug)]
pub struct Pace {
    burst: u32,
    period: Duration,
    left: u32,
    refilled: Instant,
}

impl Pace {
    /// A full bucket.
    pub fn new(burst: u32, period: Duration) -> Self {
        Self {
            burst,
            period,
            left: burst,
            refilled: Instant::now(),
        }
    }

    /// Takes a token, if there is one now.
    pub fn take(&mut self, now: Instant) -> bool {
        let passed = now.saturating_duration_since(self.refilled);
        let periods = passed.as_nanos() / self.period.as_nanos().max(1);
        match u32::try_from(periods) {
            Ok(periods) if periods <= self.burst - self.left => {
                self.left += periods;
                self.refilled += self.period * periods;
            }
            _ => {
                self.left = self.burst;
                self.refilled = now;
            }
        }
        if self.left == 0 {
            return false;
        }
        self.left -= 1;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PERIOD: Duration = Duration::from_millis(50);

    #[test]
    fn a_burst_then_one_after_each_period() {
        let mut pace = Pace::new(16, PERIOD);
        let start = pace.refilled;
        let taken = |pace: &mut Pace, now| (0..1000).filter(|_| pace.take(now)).count();
        assert_eq!(taken(&mut pace, start), 16);
        assert_eq!(taken(&mut pace, start + PERIOD), 1);
        assert_eq!(taken(&mut pace, start + PERIOD * 7 / 2), 2);
        // Fractions of a period are not lost.
        assert_eq!(taken(&mut pace, start + PERIOD * 4), 1);
        assert_eq!(
            taken(&mut pace, start),
            0,
            "a clock that goes back gives nothing"
        );
        assert_eq!(taken(&mut pace, start + PERIOD * 1_000_000), 16);
        assert_eq!(
            taken(&mut pace, start + Duration::from_secs(u64::MAX >> 34)),
            16
        );
    }
}
