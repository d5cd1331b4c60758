// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The launches of libraries' calls.
//!
//! Natively each kernel of cuBLAS, cuDNN and so on is a launch with a number of its own, and some profilers expect one
//! kernel for each number. Here the program's call is one record, because the host's library launches the kernels. So
//! each further kernel of a call gets a launch of its own when its record comes: a number, a record of the launch
//! within the call, and the program's numbers for the call.

use std::collections::BTreeMap;

use gpgpu_locks::Mutex;

/// So many calls at most are known.
const MANY: usize = 1 << 16;

/// A library's call, and the launch of one of its kernels.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Launch {
    /// When it began.
    pub start: u64,
    /// When it ended; its begin while it lasts.
    pub end: u64,
    /// Its thread.
    pub thread: u32,
    /// The program's own numbers for it, by their kinds.
    pub external: Vec<(u32, u64)>,
    /// Whether a kernel has the call's own number.
    is_taken: bool,
}

impl Launch {
    /// A call of a thread that begins, with the program's own numbers for it.
    pub fn new(start: u64, thread: u32, external: Vec<(u32, u64)>) -> Self {
        Self {
            start,
            end: start,
            thread,
            external,
            is_taken: false,
        }
    }
}

/// The latest calls of libraries, by their numbers.
#[derive(Debug)]
pub struct Launches(Mutex<BTreeMap<u32, Launch>>);

impl Launches {
    /// None.
    pub const fn new() -> Self {
        Self(Mutex::new(BTreeMap::new()))
    }

    /// A library's call begins.
    pub fn begin(&self, number: u32, launch: Launch) {
        let mut known = self.0.lock();
        if known.len() >= MANY {
            known.pop_first();
        }
        known.insert(number, launch);
    }

    /// It ends at a time.
    pub fn end(&self, number: u32, time: u64) {
        if let Some(launch) = self.0.lock().get_mut(&number) {
            launch.end = time.max(launch.start);
        }
    }

    /// The launch of a further kernel of a call. `None` for the first one, which has the call's own number, and for a
    /// kernel of another call.
    pub fn further(&self, number: u32) -> Option<Launch> {
        let mut known = self.0.lock();
        let launch = known.get_mut(&number)?;
        let is_first = !std::mem::replace(&mut launch.is_taken, true);
        (!is_first).then(|| launch.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_kernel_has_the_calls_own_number() {
        let launches = Launches::new();
        let launch = |start| Launch::new(start, 5, Vec::new());
        launches.begin(1, launch(10));
        launches.begin(2, launch(20));
        launches.end(1, 15);
        launches.end(3, 15);
        assert_eq!(launches.further(1), None);
        let second = launches.further(1).unwrap();
        assert_eq!((second.start, second.end), (10, 15));
        assert_eq!(launches.further(1), Some(second));
        assert_eq!((launches.further(2), launches.further(3)), (None, None));
        assert_eq!(launches.further(2).unwrap().end, 20);
    }

    #[test]
    fn the_oldest_calls_are_forgotten() {
        let launches = Launches::new();
        for number in 1..=MANY as u32 + 1 {
            launches.begin(number, Launch::new(0, 5, Vec::new()));
        }
        launches.further(1);
        launches.further(2);
        assert_eq!(launches.further(1), None);
        assert!(launches.further(2).is_some());
    }
}
