//! Bounds for the log lines that a guest can cause.

use std::time::{Duration, Instant};

use crate::pace::Pace;

/// Lines that may come at once.
const BURST: u32 = 16;
/// How long until one more may come.
const REFILL: Duration = Duration::from_secs(2);

/// A bucket of log lines: a burst, then a trickle.
#[derive(Debug)]
pub struct LogLimit(Pace);

impl Default for LogLimit {
    fn default() -> Self {
        Self(Pace::new(BURST, REFILL))
    }
}

impl LogLimit {
    /// Whether a line may be logged now.
    pub fn allow(&mut self) -> bool {
        self.0.take(Instant::now())
    }
}
