// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The heap of a context, from which its kernels take memory with `malloc` and to which they return it with `free`.
//!
//! The first `malloc` takes the whole heap from the device's memory; it exists until the context is destroyed. Free and
//! allocated parts are recorded outside of it, so that kernels cannot change the record.

use std::collections::{BTreeMap, BTreeSet};

use gpgpu_locks::{Mutex, MutexGuard};
use gpgpu_protocol::cuda::{CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_OUT_OF_MEMORY};

use crate::api::pool;
use crate::driver;
use crate::ffi::Result;
use crate::memory::{Kind, Owner};

/// The block size: an allocation has a whole number of blocks. CUDA promises an alignment of 16. Blocks are larger than
/// that, so that the record is smaller than the heap: a block has at most one entry, for an allocation or a gap, and an
/// entry takes up to 31 bytes, or twice as much for a gap. Gaps are never adjacent.
const BLOCK: u64 = 64;

/// The free and the allocated blocks. Places and lengths are counted in blocks.
#[derive(Debug, Default)]
struct Blocks {
    /// The length of each gap, by its place.
    gaps: BTreeMap<u32, u32>,
    /// The length and place of each gap.
    by_length: BTreeSet<(u32, u32)>,
    /// The length of each allocation, by its place.
    allocated: BTreeMap<u32, u32>,
}

impl Blocks {
    /// A heap of this number of blocks, all of which are free.
    fn new(count: u32) -> Self {
        let mut blocks = Self::default();
        if count > 0 {
            blocks.add_gap(0, count);
        }
        blocks
    }

    fn add_gap(&mut self, place: u32, length: u32) {
        self.gaps.insert(place, length);
        self.by_length.insert((length, place));
    }

    fn remove_gap(&mut self, place: u32, length: u32) {
        self.gaps.remove(&place);
        self.by_length.remove(&(length, place));
    }

    /// The place of `length` blocks, now allocated, from the shortest gap that has as many.
    fn take(&mut self, length: u32) -> Option<u32> {
        let &(all, place) = self.by_length.range((length, 0)..).next()?;
        self.remove_gap(place, all);
        if all > length {
            self.add_gap(place + length, all - length);
        }
        self.allocated.insert(place, length);
        Some(place)
    }

    /// Frees the allocation at a place; `false` if none begins there.
    fn give(&mut self, place: u32) -> bool {
        let Some(mut length) = self.allocated.remove(&place) else {
            return false;
        };
        let mut start = place;
        if let Some((&before, &gap)) = self.gaps.range(..place).next_back()
            && before + gap == place
        {
            self.remove_gap(before, gap);
            (start, length) = (before, gap + length);
        }
        let end = start + length;
        if let Some(&gap) = self.gaps.get(&end) {
            self.remove_gap(end, gap);
            length += gap;
        }
        self.add_gap(start, length);
        true
    }
}

#[derive(Debug)]
enum State {
    /// No kernel has allocated anything yet. The heap will have this number of bytes.
    Unused(u64),
    /// It has been taken from the device's memory, and begins at this address.
    Made(u64, Blocks),
    /// Its context was destroyed.
    Closed,
}

/// See the module's documentation.
#[derive(Debug)]
pub struct Heap {
    owner: Owner,
    state: Mutex<State>,
}

impl Heap {
    /// A heap of this number of bytes, none of which is allocated yet.
    pub fn new(bytes: usize, owner: Owner) -> Self {
        Self {
            owner,
            state: Mutex::new(State::Unused(bytes as u64)),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// `CU_LIMIT_MALLOC_HEAP_SIZE`.
    ///
    /// # Errors
    /// `CUDA_ERROR_INVALID_VALUE` once a kernel has used the heap.
    pub fn set_limit(&self, bytes: usize) -> Result {
        match &mut *self.lock() {
            State::Unused(limit) => {
                *limit = bytes as u64;
                Ok(())
            }
            _ => Err(CUDA_ERROR_INVALID_VALUE),
        }
    }

    /// Ends allocations and frees of kernels. The context's end returns the memory.
    pub fn close(&self) {
        *self.lock() = State::Closed;
    }

    /// Takes the heap from the device's memory. Pools return kept memory, as for `cuMemAlloc`.
    fn make(&self, bytes: u64) -> Result<State> {
        let driver = driver::get()?;
        let allocate = || driver.memory.allocate(bytes, Kind::Heap, self.owner);
        let allocation = match allocate() {
            Err(CUDA_ERROR_OUT_OF_MEMORY) => {
                pool::trim_all(driver);
                allocate()?
            }
            other => other?,
        };
        let blocks = u32::try_from(bytes / BLOCK).unwrap_or(u32::MAX);
        Ok(State::Made(allocation.start, Blocks::new(blocks)))
    }

    /// `malloc`: the address of this number of bytes. Zero for no bytes, if the heap has no room for them, and if the
    /// device has none for the heap.
    pub fn allocate(&self, bytes: u64) -> u64 {
        let length = match u32::try_from(bytes.div_ceil(BLOCK)) {
            Ok(length) if length > 0 => length,
            _ => return 0,
        };
        let mut state = self.lock();
        // A request that can never fit does not make the heap.
        if let State::Unused(limit) = *state
            && bytes <= limit
            && let Ok(made) = self.make(limit)
        {
            *state = made;
        }
        match &mut *state {
            State::Made(start, blocks) => blocks
                .take(length)
                .map_or(0, |place| *start + u64::from(place) * BLOCK),
            _ => 0,
        }
    }

    /// `free` of an address other than NULL; `false` if no allocation begins there.
    pub fn free(&self, address: u64) -> bool {
        let State::Made(start, blocks) = &mut *self.lock() else {
            return false;
        };
        let offset = address.wrapping_sub(*start);
        let place = u32::try_from(offset / BLOCK);
        offset.is_multiple_of(BLOCK) && place.is_ok_and(|place| blocks.give(place))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gaps(blocks: &Blocks) -> Vec<(u32, u32)> {
        let gaps: Vec<_> = blocks.gaps.iter().map(|(&at, &of)| (at, of)).collect();
        let mut by_length: Vec<_> = blocks.by_length.iter().map(|&(of, at)| (at, of)).collect();
        by_length.sort_unstable();
        assert_eq!(gaps, by_length);
        gaps
    }

    #[test]
    fn gaps_side_by_side_become_one() {
        for order in [
            [0, 1, 2, 3],
            [3, 2, 1, 0],
            [0, 2, 1, 3],
            [1, 3, 0, 2],
            [2, 0, 3, 1],
        ] {
            let mut blocks = Blocks::new(40);
            let places = [(); 4].map(|()| blocks.take(10).unwrap());
            assert_eq!((places, gaps(&blocks)), ([0, 10, 20, 30], vec![]));
            for index in order {
                assert!(blocks.give(places[index]));
                assert!(!blocks.give(places[index]));
            }
            assert_eq!(gaps(&blocks), [(0, 40)]);
            assert!(blocks.allocated.is_empty());
        }
    }

    #[test]
    fn the_shortest_gap_with_room_is_used() {
        let mut blocks = Blocks::new(100);
        let places = [30, 1, 10, 1, 20, 1].map(|length| blocks.take(length).unwrap());
        for index in [0, 2, 4] {
            assert!(blocks.give(places[index]));
        }
        assert_eq!(gaps(&blocks), [(0, 30), (31, 10), (42, 20), (63, 37)]);
        assert_eq!(blocks.take(11), Some(42));
        assert_eq!(blocks.take(10), Some(31));
        assert_eq!(blocks.take(38), None);
        assert_eq!(gaps(&blocks), [(0, 30), (53, 9), (63, 37)]);
    }

    #[test]
    fn no_block_is_allocated_twice() {
        let mut blocks = Blocks::new(1000);
        let (mut held, mut seed) = (Vec::<(u32, u32)>::new(), 1_u64);
        for _ in 0..20_000 {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let (choice, length) = ((seed >> 40) as usize, (seed >> 33) as u32 % 40 + 1);
            if choice.is_multiple_of(2) && !held.is_empty() {
                let (place, _) = held.swap_remove(choice / 2 % held.len());
                assert!(blocks.give(place));
            } else if let Some(place) = blocks.take(length) {
                let apart = |&(at, of): &(u32, u32)| place + length <= at || at + of <= place;
                assert!(place + length <= 1000 && held.iter().all(apart));
                held.push((place, length));
            }
        }
        let free: u32 = gaps(&blocks).iter().map(|(_, length)| length).sum();
        let allocated: u32 = held.iter().map(|(_, length)| length).sum();
        assert_eq!(free + allocated, 1000);
    }
}
