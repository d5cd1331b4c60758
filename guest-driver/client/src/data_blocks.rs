// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The ring's data blocks: free, taken by a thread, or lent to copies that are under way.

use gpgpu_locks::Mutex;
use gpgpu_protocol::ring::BLOCKS;

use crate::ring::Ticket;

/// A bit for each block.
type Mask = u32;

const ALL: Mask = ((1_u64 << BLOCKS) - 1) as Mask;

/// Neighbouring blocks, for one copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Run {
    /// The number of the first block.
    pub first: u32,
    /// The number of blocks.
    pub count: usize,
}

impl Run {
    fn mask(self) -> Mask {
        (((1_u64 << self.count) - 1) << self.first) as Mask & ALL
    }
}

struct State {
    free: Mask,
    /// Copies for which no thread waits, and their blocks.
    lent: Vec<(Mask, Ticket)>,
}

/// See the module's documentation.
pub struct DataBlocks(Mutex<State>);

impl Default for DataBlocks {
    fn default() -> Self {
        Self(Mutex::new(State {
            free: ALL,
            lent: Vec::new(),
        }))
    }
}

/// The first run of `most` free blocks, or the longest one.
fn find(free: Mask, most: usize) -> Option<Run> {
    let mut best: Option<Run> = None;
    let mut first = 0;
    while (first as usize) < BLOCKS {
        let count = ((free >> first).trailing_ones() as usize).min(most);
        if count > best.map_or(0, |best| best.count) {
            best = Some(Run { first, count });
            if count == most {
                break;
            }
        }
        first += count.max(1) as u32;
    }
    best
}

impl DataBlocks {
    /// Takes at most `most` neighbouring blocks: free ones, and those of copies that are over, whose tickets go to
    /// `end`.
    pub fn take(
        &self,
        most: usize,
        is_over: impl Fn(Ticket) -> bool,
        mut end: impl FnMut(Ticket),
    ) -> Option<Run> {
        let mut state = self.0.lock();
        let mut run = find(state.free, most);
        let mut over = Vec::new();
        if run.is_none_or(|run| run.count < most) {
            let State { free, lent } = &mut *state;
            over.extend(lent.extract_if(.., |(_, ticket)| is_over(*ticket)));
            *free |= over.iter().fold(0, |all, (mask, _)| all | mask);
            run = find(*free, most);
        }
        if let Some(run) = run {
            state.free &= !run.mask();
        }
        drop(state);
        over.into_iter().for_each(|(_, ticket)| end(ticket));
        run
    }

    /// Returns blocks, immediately or when the copy from them is complete.
    pub fn give(&self, run: Run, pending: Option<Ticket>) {
        let mut state = self.0.lock();
        match pending {
            Some(ticket) => state.lent.push((run.mask(), ticket)),
            None => state.free |= run.mask(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    fn ticket(slot: u32) -> Ticket {
        Ticket {
            slot,
            ..Ticket::default()
        }
    }

    #[test]
    fn blocks_are_taken_side_by_side_and_one_at_a_time() {
        let blocks = DataBlocks::default();
        let take = |most| blocks.take(most, |_| unreachable!(), |_| unreachable!());
        let run = |first, count| Some(Run { first, count });
        assert_eq!(take(4), run(0, 4));
        assert_eq!(take(1), run(4, 1));
        assert_eq!(take(8), run(5, 8));
        assert_eq!(take(4), run(13, 3));
        assert_eq!(take(1), None);
        blocks.give(Run { first: 5, count: 8 }, None);
        blocks.give(Run { first: 1, count: 2 }, None);
        assert_eq!(take(2), run(1, 2));
        assert_eq!(take(2), run(5, 2));
        assert_eq!(take(BLOCKS), run(7, 6));
    }

    #[test]
    fn lent_blocks_come_back_with_their_copies() {
        let blocks = DataBlocks::default();
        let over = RefCell::new(Vec::new());
        let ended = RefCell::new(Vec::new());
        let take = |most| {
            let is_over = |of: Ticket| over.borrow().contains(&of.slot);
            blocks.take(most, is_over, |of| ended.borrow_mut().push(of.slot))
        };
        for slot in 0..4 {
            let run = take(4).unwrap();
            blocks.give(run, Some(ticket(slot)));
        }
        assert_eq!(take(1), None);
        over.borrow_mut().extend([1, 3]);
        assert_eq!(take(8), Some(Run { first: 4, count: 4 }));
        assert_eq!(*ended.borrow(), [1, 3]);
        over.borrow_mut().push(2);
        // Free blocks suffice.
        assert_eq!(
            take(4),
            Some(Run {
                first: 12,
                count: 4
            })
        );
        assert_eq!(*ended.borrow(), [1, 3]);
        assert_eq!(take(4), Some(Run { first: 8, count: 4 }));
        assert_eq!(*ended.borrow(), [1, 3, 2]);
        assert_eq!(take(1), None);
    }
}
