// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Bounds for the log lines that a guest can cause.

use std::time::{Duration, Instant};

use crate::pace::Pace;

/// Lines that may come at once, and how long until one more may come.
const LINES: (u32, Duration) = (16, Duration::from_secs(2));
/// The bound of the supervisor's lines about a VM: if each program is a connection, it takes four lines.
const SUPERVISORS: (u32, Duration) = (32, Duration::from_secs(2));

/// A bucket of log lines: a burst, then a trickle.
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

    /// For the supervisor's lines about a VM's connections and clients.
    pub fn of_supervisor() -> Self {
        Self::new(SUPERVISORS)
    }

    /// Whether a line may be logged now.
    pub fn allow(&mut self) -> bool {
        let allowed = self.pace.take(Instant::now());
        self.missed += u64::from(!allowed);
        allowed
    }

    /// The number of lines that were not allowed since the last call.
    pub fn take_missed(&mut self) -> u64 {
        std::mem::take(&mut self.missed)
    }
}
