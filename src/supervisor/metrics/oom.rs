// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Detects processes that the kernel has killed for lack of memory.

use std::{
    fs,
    sync::atomic::{AtomicU64, Ordering},
};

/// The kernel's count of processes that it has killed for lack of memory, at the last check.
///
/// The kernel does not report why a process was killed, so a recent increase of this count is the best evidence. It is
/// checked with each metrics request and after each kill of a worker.
#[derive(Debug)]
pub struct Oom(AtomicU64);

fn kills() -> u64 {
    let counters = fs::read_to_string("/proc/vmstat").unwrap_or_default();
    count(&counters)
}

fn count(counters: &str) -> u64 {
    let line = counters
        .lines()
        .find_map(|line| line.strip_prefix("oom_kill "));
    line.and_then(|count| count.trim().parse().ok())
        .unwrap_or(0)
}

impl Oom {
    /// Counts from now on.
    pub fn new() -> Self {
        Self(AtomicU64::new(kills()))
    }

    /// Whether the kernel has killed any process since the last call.
    pub fn look(&self) -> bool {
        let kills = kills();
        self.0.swap(kills, Ordering::Relaxed) < kills
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_count_is_found() {
        let counters = "pgfault 12\noom_kill 3\noom_kill_other 9\n";
        assert_eq!(count(counters), 3);
        assert_eq!(count(""), 0);
    }
}
