// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Free ranges of addresses: best fit, with coalescing.

use std::collections::{BTreeMap, BTreeSet};

/// The free ranges. All other addresses are taken, or were never added.
#[derive(Debug, Default)]
pub struct Space {
    /// The size of each range, by its start.
    by_start: BTreeMap<u64, u64>,
    /// The same as (bytes, start).
    by_bytes: BTreeSet<(u64, u64)>,
    free: u64,
}

impl Space {
    fn insert(&mut self, start: u64, bytes: u64) {
        self.by_start.insert(start, bytes);
        self.by_bytes.insert((bytes, start));
        self.free += bytes;
    }

    fn remove(&mut self, start: u64) -> Option<u64> {
        let bytes = self.by_start.remove(&start)?;
        self.by_bytes.remove(&(bytes, start));
        self.free -= bytes;
        Some(bytes)
    }

    /// The number of free bytes.
    pub fn free(&self) -> u64 {
        self.free
    }

    /// Adds a range that is not free, and joins it with its neighbours; returns the joined range, as start and size.
    pub fn give(&mut self, mut start: u64, mut bytes: u64) -> (u64, u64) {
        let before = self.by_start.range(..start).next_back();
        if let Some((&before, &length)) = before
            && before + length == start
        {
            self.remove(before);
            (start, bytes) = (before, bytes + length);
        }
        if let Some(behind) = self.remove(start + bytes) {
            bytes += behind;
        }
        self.insert(start, bytes);
        (start, bytes)
    }

    /// Takes `bytes` bytes from the smallest range that is large enough, the lowest of several; `None` if there is
    /// none.
    pub fn take(&mut self, bytes: u64) -> Option<u64> {
        let (length, start) = *self.by_bytes.range((bytes, 0)..).next()?;
        self.remove(start);
        if length > bytes {
            self.insert(start + bytes, length - bytes);
        }
        Some(start)
    }

    /// Takes exactly this range, if it is free as a whole and touches no other free bytes.
    pub fn take_whole(&mut self, start: u64, bytes: u64) -> bool {
        let is_there = self.by_start.get(&start) == Some(&bytes);
        if is_there {
            self.remove(start);
        }
        is_there
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_smallest_range_that_fits_is_taken() {
        let mut space = Space::default();
        space.give(0x1000, 0x1000);
        space.give(0x4000, 0x400);
        assert_eq!(space.take(0x300), Some(0x4000));
        assert_eq!(space.take(0x300), Some(0x1000));
        assert_eq!(space.take(0xd00), Some(0x1300));
        assert_eq!(space.take(0x101), None);
        assert_eq!(space.take(0x100), Some(0x4300));
        assert_eq!(space.free(), 0);
    }

    #[test]
    fn neighbours_become_one_range_in_any_order() {
        for order in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [2, 0, 1], [2, 1, 0]] {
            let mut space = Space::default();
            let joined = order.map(|index| space.give(0x1000 + index * 0x200, 0x200));
            assert_eq!(joined[2], (0x1000, 0x600), "{order:?}");
            assert!(!space.take_whole(0x1000, 0x400));
            assert!(space.take_whole(0x1000, 0x600));
        }
    }
}
