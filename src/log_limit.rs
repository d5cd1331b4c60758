//! Bounds for the log lines that a guest can cause.

use std::time::{Duration, Instant};

/// Lines that may come at once.
const BURST: u32 = 16;
/// How long until one more may come.
const REFILL: Duration = Duration::from_secs(2);

/// A bucket of log lines: a burst, then a trickle.
#[derive(Debug)]
pub struct LogLimit {
    left: u32,
    refilled: Instant,
}

impl Default for LogLimit {
    fn default() -> Self {
        Self {
            left: BURST,
            refilled: Instant::now(),
        }
    }
}

impl LogLimit {
    /// Whether a line may be logged now.
    pub fn allow(&mut self) -> bool {
        self.allow_at(Instant::now())
    }

    fn allow_at(&mut self, now: Instant) -> bool {
        let periods = (now - self.refilled).as_secs() / REFILL.as_secs();
        if periods > 0 {
            self.left = BURST.min(
                self.left
                    .saturating_add(periods.min(u64::from(BURST)) as u32),
            );
            self.refilled = now;
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

    #[test]
    fn a_burst_then_a_trickle() {
        let mut limit = LogLimit::default();
        let start = limit.refilled;
        let allowed = (0..1000).filter(|_| limit.allow_at(start)).count();
        assert_eq!(allowed, BURST as usize);
        assert!(limit.allow_at(start + REFILL));
        assert!(!limit.allow_at(start + REFILL));
        let later = start + REFILL * 1_000_000;
        assert_eq!(
            (0..1000).filter(|_| limit.allow_at(later)).count(),
            BURST as usize
        );
    }
}
