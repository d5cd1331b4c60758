// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The blocks of a pool of host memory: parts of chunks that were pinned as a whole.
//!
//! A block that was freed in stream order can be reused at once by that stream, whose later work follows the free. All
//! other work waits until the mark behind the free is complete.

use std::{collections::BTreeMap, sync::Arc};

/// The alignment of blocks in bytes, as in NVIDIA's driver.
pub const GRAIN: u64 = 512;
/// The size of the smallest chunk, and of the largest with more than one large block, in bytes. Chunks grow with their
/// pool, so that a pool of small blocks takes little memory and one of many blocks is seldom extended.
const SMALLEST: u64 = 2 << 20;
const LARGEST: u64 = 32 << 20;

/// The chunks of a pool. `M` is the type of marks, which follow frees in their streams.
#[derive(Debug)]
pub struct Blocks<M> {
    chunks: BTreeMap<u64, Chunk<M>>,
    /// The total size of the blocks in use, as requested by the program.
    pub used: u64,
    /// The maximum of that value.
    pub most_used: u64,
    /// The maximum total size of chunks.
    pub most_reserved: u64,
}

/// Memory that was pinned at once.
#[derive(Debug)]
struct Chunk<M> {
    bytes: u64,
    /// The device address of its first byte.
    device: u64,
    context: u64,
    /// Whether its context has ended: blocks in use remain, and none is added.
    is_orphan: bool,
    /// The whole chunk, by the addresses of its parts.
    parts: BTreeMap<u64, Part<M>>,
}

#[derive(Debug)]
struct Part<M> {
    bytes: u64,
    state: State<M>,
}

#[derive(Debug)]
enum State<M> {
    Idle,
    /// In use, with the requested size.
    Used(u64),
    Freed {
        stream: u64,
        mark: Arc<M>,
    },
}

/// A block that was taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Block {
    /// Its address in the program.
    pub start: u64,
    /// Its address on the device.
    pub device: u64,
    /// The context in which its chunk was pinned.
    pub context: u64,
}

/// A free: in the order of a stream, with a mark behind it, or of memory that is no longer in use.
pub type Order<M> = Option<(u64, Arc<M>)>;

/// A chunk that a pool no longer needs.
#[derive(Debug, PartialEq, Eq)]
pub struct Unused {
    /// Its first address.
    pub start: u64,
    /// Its size in bytes.
    pub bytes: u64,
    /// Whether its context has ended.
    pub is_orphan: bool,
}

impl<M> Default for Blocks<M> {
    fn default() -> Self {
        Self {
            chunks: BTreeMap::new(),
            used: 0,
            most_used: 0,
            most_reserved: 0,
        }
    }
}

impl<M> Part<M> {
    fn is_idle(&self) -> bool {
        matches!(self.state, State::Idle)
    }

    /// Whether later work of a stream comes after the last use.
    fn is_free_for(&self, stream: u64) -> bool {
        matches!(self.state, State::Freed { stream: of, .. } if of == stream)
    }
}

impl<M> Chunk<M> {
    fn is_idle(&self) -> bool {
        self.parts.values().all(Part::is_idle)
    }

    /// Joins adjoining idle parts.
    fn join(&mut self) {
        let mut joined: BTreeMap<u64, Part<M>> = BTreeMap::new();
        for (start, part) in std::mem::take(&mut self.parts) {
            match joined.last_entry() {
                Some(mut last) if last.get().is_idle() && part.is_idle() => {
                    last.get_mut().bytes += part.bytes;
                }
                _ => {
                    joined.insert(start, part);
                }
            }
        }
        self.parts = joined;
    }
}

impl<M> Blocks<M> {
    /// The total size of all chunks.
    pub fn reserved(&self) -> u64 {
        self.chunks.values().map(|chunk| chunk.bytes).sum()
    }

    /// The total size of the idle chunks.
    pub fn idle(&self) -> u64 {
        let idle = self.chunks.values().filter(|chunk| chunk.is_idle());
        idle.map(|chunk| chunk.bytes).sum()
    }

    /// All chunks, idle or not, of contexts that have ended.
    pub fn into_chunks(self) -> Vec<Unused> {
        let chunks = self.chunks.into_iter();
        chunks
            .map(|(start, Chunk { bytes, .. })| Unused {
                start,
                bytes,
                is_orphan: true,
            })
            .collect()
    }

    /// Whether there is no chunk.
    pub fn is_empty(&self) -> bool {
        self.chunks.is_empty()
    }

    /// The size of the chunk to pin for a block of `bytes` bytes, if all chunks together may have `most` bytes, or any
    /// number if that is 0; `None` if it would be too large. A limit applies to whole chunks, as in NVIDIA's driver.
    pub fn next_chunk(&self, bytes: u64, most: u64) -> Option<u64> {
        let needed = bytes.checked_next_multiple_of(SMALLEST)?;
        let reserved = self.reserved();
        let left = match most {
            0 => u64::MAX,
            most => most
                .div_ceil(SMALLEST)
                .saturating_mul(SMALLEST)
                .saturating_sub(reserved),
        };
        let wanted = needed.max(reserved.clamp(SMALLEST, LARGEST)).min(left);
        (needed <= wanted).then_some(wanted)
    }

    /// Adds memory that was pinned in a context, by its addresses in the program and on the device.
    pub fn add(&mut self, (start, device): (u64, u64), bytes: u64, context: u64) {
        let state = State::Idle;
        let chunk = Chunk {
            bytes,
            device,
            context,
            is_orphan: false,
            parts: BTreeMap::from([(start, Part { bytes, state })]),
        };
        self.chunks.insert(start, chunk);
        self.most_reserved = self.most_reserved.max(self.reserved());
    }

    /// The part for a block of `bytes` bytes: the smallest one that is wanted and large enough. Returns the first
    /// addresses of its chunk and of itself.
    fn fitting(&self, bytes: u64, is_wanted: impl Fn(&Part<M>) -> bool) -> Option<(u64, u64)> {
        let length = bytes.checked_next_multiple_of(GRAIN)?;
        let chunks = self.chunks.iter().filter(|(_, chunk)| !chunk.is_orphan);
        let parts = chunks.flat_map(|(first, chunk)| chunk.parts.iter().map(|at| (*first, at)));
        let fitting = parts.filter(|(_, (_, part))| part.bytes >= length && is_wanted(part));
        let best = fitting.min_by_key(|(_, (_, part))| part.bytes);
        best.map(|(first, (start, _))| (first, *start))
    }

    /// Uses the start of a part.
    fn cut(&mut self, (first, start): (u64, u64), bytes: u64) -> Option<Block> {
        let length = bytes.checked_next_multiple_of(GRAIN)?;
        let chunk = self.chunks.get_mut(&first)?;
        let part = chunk.parts.get_mut(&start)?;
        let rest = part.bytes - length;
        let state = std::mem::replace(&mut part.state, State::Used(bytes));
        part.bytes = length;
        if rest > 0 {
            let part = Part { bytes: rest, state };
            chunk.parts.insert(start + length, part);
        }
        self.used += bytes;
        self.most_used = self.most_used.max(self.used);
        Some(Block {
            start,
            device: chunk.device + (start - first),
            context: chunk.context,
        })
    }

    /// Takes a block for a stream: from memory that the stream has freed, or otherwise from idle memory.
    pub fn take(&mut self, bytes: u64, stream: u64) -> Option<Block> {
        let freed = self.fitting(bytes, |part| part.is_free_for(stream));
        let at = freed.or_else(|| self.fitting(bytes, Part::is_idle))?;
        self.cut(at, bytes)
    }

    /// Takes a block of memory that any stream has freed, to be used behind the mark.
    pub fn take_behind(&mut self, bytes: u64) -> Option<(Block, Arc<M>)> {
        let (first, start) =
            self.fitting(bytes, |part| matches!(part.state, State::Freed { .. }))?;
        let State::Freed { mark, .. } = &self.chunks.get(&first)?.parts.get(&start)?.state else {
            return None;
        };
        let mark = Arc::clone(mark);
        Some((self.cut((first, start), bytes)?, mark))
    }

    fn chunk_of(&mut self, address: u64) -> Option<&mut Chunk<M>> {
        let (start, chunk) = self.chunks.range_mut(..=address).next_back()?;
        (address - start < chunk.bytes).then_some(chunk)
    }

    /// Whether a block in use begins at an address.
    pub fn is_used(&mut self, address: u64) -> bool {
        let part = self
            .chunk_of(address)
            .and_then(|chunk| chunk.parts.get(&address));
        part.is_some_and(|part| matches!(part.state, State::Used(_)))
    }

    /// Frees the block at an address; `false` if none in use begins there.
    pub fn free(&mut self, address: u64, order: Order<M>) -> bool {
        let Some(chunk) = self.chunk_of(address) else {
            return false;
        };
        let Some(part) = chunk.parts.get_mut(&address) else {
            return false;
        };
        let State::Used(bytes) = part.state else {
            return false;
        };
        part.state = match order {
            Some((stream, mark)) => State::Freed { stream, mark },
            None => State::Idle,
        };
        chunk.join();
        self.used -= bytes;
        true
    }

    /// The marks for which freed blocks wait, each once.
    pub fn marks(&self) -> Vec<Arc<M>> {
        let mut marks: Vec<Arc<M>> = Vec::new();
        let parts = self.chunks.values().flat_map(|chunk| chunk.parts.values());
        for part in parts {
            if let State::Freed { mark, .. } = &part.state
                && !marks.iter().any(|known| Arc::ptr_eq(known, mark))
            {
                marks.push(Arc::clone(mark));
            }
        }
        marks
    }

    /// Makes the blocks idle whose marks are complete.
    pub fn settle(&mut self, over: &[Arc<M>]) {
        for chunk in self.chunks.values_mut() {
            for part in chunk.parts.values_mut() {
                if let State::Freed { mark, .. } = &part.state
                    && over.iter().any(|done| Arc::ptr_eq(done, mark))
                {
                    part.state = State::Idle;
                }
            }
            chunk.join();
        }
    }

    /// Removes idle chunks until at most `most` bytes are left, and those whose context has ended.
    pub fn shed(&mut self, most: u64) -> Vec<Unused> {
        let mut reserved = self.reserved();
        let unused = self.chunks.extract_if(.., |_, chunk| {
            let is_unused = chunk.is_idle() && (reserved > most || chunk.is_orphan);
            reserved -= if is_unused { chunk.bytes } else { 0 };
            is_unused
        });
        unused
            .map(|(start, chunk)| Unused {
                start,
                bytes: chunk.bytes,
                is_orphan: chunk.is_orphan,
            })
            .collect()
    }

    /// Handles the end of a context: its chunks get no more blocks.
    pub fn forget_context(&mut self, context: u64) {
        let chunks = self.chunks.values_mut();
        for chunk in chunks.filter(|chunk| chunk.context == context) {
            chunk.is_orphan = true;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BASE: u64 = 0x1000_0000;
    const FAR: u64 = 0x7000_0000;

    fn at(offset: u64) -> Option<Block> {
        Some(Block {
            start: BASE + offset,
            device: FAR + offset,
            context: 1,
        })
    }

    fn with_chunk() -> Blocks<&'static str> {
        let mut blocks = Blocks::default();
        blocks.add((BASE, FAR), SMALLEST, 1);
        blocks
    }

    #[test]
    fn blocks_lie_side_by_side_and_join_when_they_are_idle() {
        let mut blocks = with_chunk();
        assert_eq!(blocks.take(100, 7), at(0));
        assert_eq!(blocks.take(600, 7), at(GRAIN));
        let (one, other) = (BASE, BASE + GRAIN);
        assert_eq!((blocks.used, blocks.most_used), (700, 700));
        assert!(!blocks.free(one + 4, None), "no block begins there");
        assert!(blocks.free(one, None) && blocks.free(other, None));
        assert!(!blocks.free(one, None), "it is free");
        assert_eq!((blocks.used, blocks.most_used), (0, 700));
        assert_eq!(blocks.take(SMALLEST, 7), at(0));
        assert_eq!(blocks.take(1, 7), None);
    }

    #[test]
    fn a_freed_block_is_its_streams_at_once_and_anybodys_when_its_mark_is_over() {
        let mut blocks = with_chunk();
        let block = blocks.take(SMALLEST, 7).unwrap().start;
        let mark = Arc::new("mark");
        assert!(blocks.free(block, Some((7, Arc::clone(&mark)))));
        assert_eq!(blocks.take(100, 8), None, "the other stream may be ahead");
        assert_eq!(blocks.take(100, 7), at(0));
        assert_eq!(blocks.take(100, 8), None, "nor the rest of it");
        assert_eq!(blocks.marks().len(), 1);
        let (behind, after) = blocks.take_behind(100).unwrap();
        assert_eq!((behind.start, *after), (block + GRAIN, "mark"));
        assert!(blocks.free(behind.start, Some((8, Arc::clone(&after)))));
        blocks.settle(&[Arc::new("another")]);
        assert_eq!(blocks.take(600, 8), None);
        blocks.settle(&[mark]);
        assert!(blocks.marks().is_empty());
        assert_eq!(blocks.take(100, 8), at(GRAIN));
    }

    #[test]
    fn chunks_are_shed_down_to_the_limit_unless_something_uses_them() {
        let mut blocks = with_chunk();
        blocks.add((BASE + LARGEST, FAR), LARGEST, 1);
        blocks.add((BASE + 3 * LARGEST, FAR), SMALLEST, 1);
        let block = blocks.take(LARGEST, 7).unwrap().start;
        assert!(blocks.shed(SMALLEST * 2 + LARGEST).is_empty());
        let one = |start| Unused {
            start,
            bytes: SMALLEST,
            is_orphan: false,
        };
        assert_eq!(blocks.shed(SMALLEST + LARGEST), [one(BASE)]);
        assert_eq!(blocks.shed(0), [one(BASE + 3 * LARGEST)]);
        let mark = Arc::new("mark");
        assert!(blocks.free(block, Some((7, Arc::clone(&mark)))));
        assert!(blocks.shed(0).is_empty(), "the GPU may still use it");
        blocks.settle(&[mark]);
        assert_eq!(blocks.shed(0).len(), 1);
        assert!(blocks.is_empty());
        assert_eq!(blocks.most_reserved, 2 * SMALLEST + LARGEST);
    }

    #[test]
    fn chunks_of_an_ended_context_keep_their_blocks_and_get_no_more() {
        let mut blocks = with_chunk();
        let mut take = || blocks.take(100, 7).unwrap().start;
        let (kept, freed) = (take(), take());
        assert!(blocks.free(freed, Some((7, Arc::new("mark")))));
        blocks.forget_context(2);
        let again = blocks.take(100, 7).unwrap().start;
        assert!(blocks.free(again, Some((7, Arc::new("mark")))));
        blocks.forget_context(1);
        assert_eq!(blocks.take(100, 7), None);
        assert!(blocks.take_behind(100).is_none());
        // Work of another context may use them.
        let marks = blocks.marks();
        assert_eq!(marks.len(), 1);
        blocks.settle(&marks);
        assert!(blocks.is_used(kept) && blocks.shed(u64::MAX).is_empty());
        assert!(blocks.free(kept, None));
        let shed = blocks.shed(u64::MAX);
        assert!(matches!(
            shed[..],
            [Unused {
                is_orphan: true,
                ..
            }]
        ));
    }

    #[test]
    fn chunks_grow_with_their_pool() {
        let mut blocks = Blocks::<()>::default();
        assert_eq!(blocks.next_chunk(1, 0), Some(SMALLEST));
        assert_eq!(blocks.next_chunk(SMALLEST + 1, 0), Some(2 * SMALLEST));
        assert_eq!(blocks.next_chunk(u64::MAX, 0), None);
        blocks.add((BASE, FAR), 3 * SMALLEST, 1);
        assert_eq!(blocks.next_chunk(1, 0), Some(3 * SMALLEST));
        blocks.add((2 * BASE, FAR), 10 * LARGEST, 1);
        assert_eq!(blocks.next_chunk(1, 0), Some(LARGEST));
    }

    #[test]
    fn chunks_stay_within_the_limit_of_their_pool() {
        let mut blocks = Blocks::<()>::default();
        assert_eq!(blocks.next_chunk(1, 1), Some(SMALLEST));
        assert_eq!(blocks.next_chunk(SMALLEST + 1, 1), None);
        assert_eq!(blocks.next_chunk(1, u64::MAX), Some(SMALLEST));
        blocks.add((BASE, FAR), 3 * SMALLEST, 1);
        assert_eq!(blocks.next_chunk(1, 5 * SMALLEST), Some(2 * SMALLEST));
        assert_eq!(blocks.next_chunk(1, 3 * SMALLEST), None);
    }
}
