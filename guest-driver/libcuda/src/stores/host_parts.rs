// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Small allocations of pinned host memory: parts of chunks that are pinned as a whole.
//!
//! NVIDIA's driver has such chunks of 2 MiB, too. An allocation takes it 2.4 µs if there is room in a chunk, and 500 µs
//! if not; it returns a chunk when its last part is freed (H200, driver 580). Here some idle chunks stay for the next
//! allocation.

use std::collections::{HashMap, VecDeque};

use gpgpu_locks::{Mutex, MutexGuard, RwLock};
use gpgpu_protocol::layout::PAGE_BYTES;

use super::{
    blocks::{Block, Blocks, Unused},
    pointers::Range,
};

/// The size of a chunk in bytes.
pub const CHUNK: usize = 2 << 20;
/// The size of the largest part in bytes.
pub const LARGEST: usize = 1 << 20;
/// The maximum size of all idle chunks of a context in bytes.
const MOST_IDLE: u64 = 4 << 20;

/// Parts are used in no stream's order, so no mark follows them.
type Parts = Blocks<()>;

/// The chunks, by the context in which they were pinned, with which they end.
#[derive(Debug, Default)]
pub struct HostParts {
    state: Mutex<State>,
    /// Read while a part is cleared: its chunk stays meanwhile.
    clears: RwLock<()>,
}

#[derive(Debug, Default)]
struct State {
    contexts: HashMap<u64, Parts>,
    /// The number of contexts that have ended.
    ends: u64,
    /// The ids of the last of them.
    ended: VecDeque<u64>,
}

/// The maximum number of ended contexts whose ids are known.
const MOST_ENDED: usize = 4096;

impl State {
    fn has_ended(&self, context: u64, since: u64) -> bool {
        let count = self.ends.wrapping_sub(since) as usize;
        let mut last = self.ended.iter().rev().take(count);
        count > self.ended.len() || last.any(|id| *id == context)
    }
}

/// Whole pages, so that parts are aligned to pages and share none.
fn length_for(bytes: usize) -> u64 {
    (bytes as u64).next_multiple_of(PAGE_BYTES)
}

impl HostParts {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// The number of contexts that have ended, for [`Self::has_ended`].
    pub fn ends(&self) -> u64 {
        self.state().ends
    }

    /// Whether a context has ended since so many had ended, or may have: if very many have ended. A primary context has
    /// the same id each time that it is made.
    pub fn has_ended(&self, context: u64, since: u64) -> bool {
        self.state().has_ended(context, since)
    }

    /// Takes a part for `bytes` bytes, if a chunk of the context has room.
    pub fn take(&self, context: u64, bytes: usize) -> Option<Block> {
        self.state()
            .contexts
            .get_mut(&context)?
            .take(length_for(bytes), 0)
    }

    /// Adds a chunk, by its addresses in the program and on the device, and takes a part of it. `None` if the context
    /// [has ended](Self::has_ended).
    pub fn extend(
        &self,
        context: u64,
        addresses: (u64, u64),
        bytes: usize,
        since: u64,
    ) -> Option<Block> {
        let mut state = self.state();
        if state.has_ended(context, since) {
            return None;
        }
        let parts = state.contexts.entry(context).or_default();
        parts.add(addresses, CHUNK as u64, context);
        parts.take(length_for(bytes), 0)
    }

    /// Frees a part after `clear`, during which its chunk stays, and removes the idle chunks that are not kept. `None` if
    /// its context has ended.
    pub fn free(&self, range: &Range, clear: impl FnOnce()) -> Option<Vec<Unused>> {
        let _clearing = self.clears.read();
        let is_used = |state: &mut State| {
            let parts = state.contexts.get_mut(&range.context);
            parts.is_some_and(|parts| parts.is_used(range.start))
        };
        if !is_used(&mut self.state()) {
            return None;
        }
        // Other threads take and free parts meanwhile.
        clear();
        let mut state = self.state();
        let parts = state.contexts.get_mut(&range.context)?;
        parts.free(range.start, None);
        Some(parts.shed(parts.reserved() - parts.idle() + MOST_IDLE))
    }

    /// Removes all idle chunks.
    pub fn take_idle(&self) -> Vec<Unused> {
        let mut state = self.state();
        let contexts = state.contexts.values_mut();
        contexts.flat_map(|parts| parts.shed(0)).collect()
    }

    /// Handles the end of a context: removes its chunks.
    pub fn forget_context(&self, context: u64) -> Vec<Unused> {
        let _no_clearing = self.clears.write();
        let mut state = self.state();
        state.ends += 1;
        state.ended.push_back(context);
        if state.ended.len() > MOST_ENDED {
            state.ended.pop_front();
        }
        let parts = state.contexts.remove(&context);
        parts.map(Parts::into_chunks).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stores::pointers::{Kind, Origin};

    const BASE: u64 = 0x1000_0000;
    const FAR: u64 = 0x7000_0000;

    fn range(start: u64, context: u64) -> Range {
        Range {
            start,
            bytes: 1,
            context,
            kind: Kind::Device,
            origin: Origin::Part,
        }
    }

    #[test]
    fn parts_share_no_page_and_belong_to_their_context() {
        let parts = HostParts::default();
        assert_eq!(parts.take(1, 1), None);
        let of = |offset| {
            Some(Block {
                start: BASE + offset,
                device: FAR + offset,
                context: 1,
            })
        };
        assert_eq!(parts.extend(1, (BASE, FAR), 1, 0), of(0));
        assert_eq!(parts.take(1, 5000), of(4096));
        assert_eq!(parts.take(1, 4096), of(3 * 4096));
        assert_eq!(parts.take(2, 1), None);
        let never = || panic!("it is not this context's");
        assert_eq!(parts.free(&range(BASE + 4096, 2), never), None);
        assert_eq!(parts.free(&range(BASE + 2 * 4096, 1), never), None);
        assert_eq!(parts.take(1, 8192), of(4 * 4096), "another context's free");
        let mut clears = 0;
        let freed = parts.free(&range(BASE + 4096, 1), || clears += 1);
        assert_eq!((freed, clears), (Some(Vec::new()), 1));
        assert_eq!(parts.take(1, 8000), of(4096));
        assert_eq!(parts.take(1, CHUNK), None);
    }

    #[test]
    fn a_few_idle_chunks_stay_until_memory_runs_out_or_the_context_ends() {
        let parts = HostParts::default();
        let at = |chunk: u64| BASE + chunk * CHUNK as u64;
        for chunk in 0..4 {
            let taken = parts.extend(1, (at(chunk), at(chunk)), LARGEST, 0);
            assert_eq!(taken.map(|part| part.start), Some(at(chunk)));
            let second = parts.take(1, LARGEST).map(|part| part.start);
            assert_eq!(second, Some(at(chunk) + LARGEST as u64));
        }
        for chunk in 0..4 {
            assert_eq!(parts.free(&range(at(chunk), 1), || {}), Some(Vec::new()));
        }
        let mut returned = 0;
        for chunk in 0..3 {
            let unused = parts.free(&range(at(chunk) + LARGEST as u64, 1), || {});
            let unused = unused.unwrap();
            returned += unused.len();
            assert!(unused.iter().all(|of| of.bytes == CHUNK as u64));
        }
        assert_eq!(returned, 1);
        assert_eq!(parts.take_idle().len(), 2);
        assert!(parts.take_idle().is_empty());
        let left = parts.forget_context(1);
        assert_eq!(left.len(), 1);
        assert!(left[0].is_orphan && left[0].start == at(3));
        assert_eq!(parts.take(1, 1), None);
    }

    #[test]
    fn nothing_is_kept_for_a_context_that_has_ended() {
        let parts = HostParts::default();
        let ends = parts.ends();
        assert!(parts.extend(1, (BASE, FAR), 1, ends).is_some());
        parts.forget_context(1);
        let cleared = || panic!("its chunk is gone");
        assert_eq!(parts.free(&range(BASE, 1), cleared), None);
        // It was pinned before the end.
        assert_eq!(parts.extend(1, (BASE, FAR), 1, ends), None);
        assert!(parts.take_idle().is_empty() && parts.take(1, 1).is_none());
        // A primary context may begin again with the same id.
        let ends = parts.ends();
        // The ends of others make no difference, unless they are too many.
        for other in 2..2 + MOST_ENDED as u64 {
            parts.forget_context(other);
            assert!(parts.has_ended(other, ends) && !parts.has_ended(1, ends));
        }
        assert!(parts.extend(1, (BASE, FAR), 1, ends).is_some());
        parts.forget_context(2);
        assert!(parts.has_ended(1, ends));
    }
}
