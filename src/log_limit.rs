// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Limits for the log lines that a guest can cause.

use std::time::{Duration, Instant};

use crate::pace::Pace;

/// The number of lines that may be logged at once, and the interval after which one more may follow.
const LINES: (u32, Duration) = (16, Duration::from_secs(2));
/// The limit for the supervisor's lines about a VM. A program that opens a connection of its own causes four lines.
const SUPERVISORS: (u32, Duration) = (32, Duration::from_secs(2));

/// A token bucket for log lines.
#[derive(Debug)]
pub struct LogLimit {
    pace: Pace,
    missed: u64,
}

impl Default for LogLimit {
    fn default() -> Self {
        Self::new(LINES)
    }
}

impl LogLimit {
    fn new((burst, refill): (u32, Duration)) -> Self {
        Self {
            pace: Pace::new(burst, refill),
            missed: 0,
        }
    }

    /// The limit for the supervisor's lines about a VM's connections and clients.
    pub fn of_supervisor() -> Self {
        Self::new(SUPERVISORS)
    }

    /// Whether a line may be logged now.
    pub fn allow(&mut self) -> bool {
        let allowed = self.pace.take(Instant::now());
        self.missed += u64::from(!allowed);
        allowed
    }

    /// The number of suppressed lines since the last call.
    pub fn take_missed(&mut self) -> u64 {
        std::mem::take(&mut self.missed)
    }
}
