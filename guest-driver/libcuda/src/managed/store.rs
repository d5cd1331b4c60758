// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The location of managed memory: on the device or in this process, block by block.
//!
//! No function in this file accesses managed memory or sends a request. So the holder of the store's lock never waits
//! for the thread that handles page faults, which needs that lock.

use std::{collections::BTreeMap, ops::Range};

use super::advice::Advice;

/// The size of a block in bytes; the last block of an allocation has the remainder.
pub const BLOCK: u64 = 2 << 20;

/// Bytes of a page.
pub const PAGE: u64 = 4096;

/// The maximum number of blocks that one fault fetches, if a program accesses its memory sequentially.
const MOST_AT_ONCE: usize = 8;

/// The state of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Block {
    /// Never used: zeros here and on the device.
    Fresh,
    /// On the device; no page is present here.
    Device,
    /// Being fetched for a thread that waits for it. If a signal interrupts that thread, it may already use the pages
    /// that are present.
    Awaited,
    /// Being fetched in advance.
    Fetching,
    /// The same, but work that may change it was submitted to the GPU in the meantime.
    Outdated,
    /// Here, and on the device as well: the program has not written to it. Its pages are write-protected.
    Clean,
    /// Here.
    Dirty,
    /// Being copied to the device; its pages are present, and write-protected.
    Sending,
    /// On the device; its pages here are being dropped.
    Dropping,
}

impl Block {
    /// Whether work of the GPU must wait for it, or move it to the device.
    fn is_owed(self) -> bool {
        !matches!(self, Self::Device | Self::Fetching | Self::Outdated)
    }

    /// Whether a thread is moving it.
    fn is_moving(self) -> bool {
        matches!(
            self,
            Self::Awaited | Self::Fetching | Self::Outdated | Self::Sending | Self::Dropping
        )
    }
}

/// The permitted users of an allocation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Attach {
    /// Any stream: `CU_MEM_ATTACH_GLOBAL`.
    Global,
    /// No stream: `CU_MEM_ATTACH_HOST`. Copies and fills may name it nevertheless.
    Host,
    /// One stream, by its id: `CU_MEM_ATTACH_SINGLE`.
    Single(u64),
}

/// Device memory with one lifetime.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Part {
    /// Its address, here and on the device.
    pub start: u64,
    /// Its bytes.
    pub bytes: u64,
    /// The context with which it ends.
    pub context: u64,
    /// The module or the library of the variable that it belongs to; 0 for none.
    pub image: u64,
}

impl Part {
    /// The intersection with the `bytes` bytes at `start`.
    pub fn within(&self, start: u64, bytes: u64) -> Option<Self> {
        let end = (self.start + self.bytes).min(start + bytes);
        let start = self.start.max(start);
        (start < end).then(|| Self {
            start,
            bytes: end - start,
            ..*self
        })
    }
}

/// A unit of managed memory: an allocation, whole pages of a variable, or a page that several variables share.
#[derive(Debug)]
pub struct Allocation {
    /// Its address, here and on the device.
    pub start: u64,
    /// The size that the program has requested.
    pub bytes: u64,
    /// The start address of the device memory that contains it.
    pub base: u64,
    /// Its device memory. A page of variables has several parts; all others have one, which is the whole.
    pub parts: Vec<Part>,
    /// Whether other variables may have parts of its page.
    pub is_shared: bool,
    /// The attachment to which it returns when its stream ends.
    pub own: Attach,
    /// The present attachment.
    pub attach: Attach,
    /// Streams with work that names it, other than those that may use it by attachment: a thread that accesses it here
    /// waits for them.
    pub used: Vec<u64>,
    /// The program's advice for each block.
    pub advice: Vec<Advice>,
    /// Whether it is pinned memory.
    pub is_pinned: bool,
    blocks: Vec<Block>,
    owed: usize,
    /// The number of blocks that are being fetched in advance and are not outdated.
    fetching: usize,
    /// The next block of a sequential access, and the number of blocks that were fetched the last time.
    ahead: (usize, usize),
}

impl Allocation {
    /// An unused allocation.
    pub fn new(start: u64, bytes: u64, base: u64, context: u64, attach: Attach) -> Self {
        let count = bytes.div_ceil(BLOCK) as usize;
        Self {
            start,
            bytes,
            base,
            parts: vec![Part {
                start,
                bytes,
                context,
                image: 0,
            }],
            is_shared: false,
            own: attach,
            attach,
            used: Vec::new(),
            advice: vec![Advice::default(); count],
            is_pinned: false,
            blocks: vec![Block::Fresh; count],
            owed: count,
            fetching: 0,
            ahead: (0, 0),
        }
    }

    /// Pinned memory, which both sides access: no block of it ever moves.
    pub fn pinned(self) -> Self {
        Self {
            is_pinned: true,
            ..self.on_device()
        }
    }

    /// The pages of a part of a variable, whose initial value is on the device. `is_shared`: it is one page, which
    /// other variables may share.
    pub fn of_image(part: Part, is_shared: bool) -> Self {
        let (start, bytes) = if is_shared {
            (part.start & !(PAGE - 1), PAGE)
        } else {
            (part.start, part.bytes)
        };
        Self {
            parts: vec![part],
            is_shared,
            ..Self::new(start, bytes, start, part.context, Attach::Global).on_device()
        }
    }

    fn on_device(mut self) -> Self {
        self.blocks.fill(Block::Device);
        self.owed = 0;
        self
    }

    /// The size of its pages.
    pub fn span(&self) -> u64 {
        self.bytes.next_multiple_of(PAGE)
    }

    /// The address and the size of some of its blocks, in whole pages.
    pub fn place(&self, blocks: &Range<usize>) -> (u64, u64) {
        let end = (blocks.end as u64 * BLOCK).min(self.span());
        let start = blocks.start as u64 * BLOCK;
        (self.start + start, end - start)
    }

    /// The blocks that contain any of the `bytes` bytes at `address`.
    pub fn blocks_of(&self, address: u64, bytes: u64) -> Range<usize> {
        if address >= self.start + self.bytes {
            return 0..0;
        }
        let first = address.saturating_sub(self.start);
        let end = address.saturating_add(bytes).saturating_sub(self.start);
        let end = end.min(self.bytes).div_ceil(BLOCK) as usize;
        ((first / BLOCK) as usize).min(end)..end
    }

    /// Whether work of a stream may use it, by its attachment.
    pub fn is_for(&self, stream: u64) -> bool {
        match self.attach {
            Attach::Global => true,
            Attach::Host => false,
            Attach::Single(own) => own == stream,
        }
    }

    /// The state of a block.
    #[cfg(test)]
    pub fn block(&self, index: usize) -> Block {
        self.blocks[index]
    }

    fn set(&mut self, blocks: Range<usize>, to: Block) {
        for index in blocks {
            let before = self.blocks[index];
            self.owed -= usize::from(before.is_owed());
            self.owed += usize::from(to.is_owed());
            self.fetching -= usize::from(before == Block::Fetching);
            self.fetching += usize::from(to == Block::Fetching);
            self.blocks[index] = to;
        }
    }

    /// The run of blocks from `first` on that have the same state.
    fn run(&self, first: usize, end: usize) -> Range<usize> {
        let alike = |index: &usize| self.blocks[*index] == self.blocks[first];
        first..first + (first..end).take_while(alike).count()
    }
}

/// Blocks of one allocation that are moved together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Job {
    /// The allocation, by its address.
    pub allocation: u64,
    /// The blocks.
    pub blocks: Range<usize>,
    /// Their start address.
    pub start: u64,
    /// The bytes of their pages.
    pub span: u64,
    /// The device memory in it.
    pub parts: Vec<Part>,
    /// Whether bytes are copied. If not, they are zeros here, or on the device already.
    pub is_copied: bool,
    /// Whether to write-protect the pages of the first block. Those of the others are always protected.
    pub protect: bool,
}

/// The action for a page fault.
#[derive(Debug, PartialEq, Eq)]
pub enum Answer {
    /// Fetch blocks, and call [`Store::set`] afterwards.
    Fetch(Job),
    /// Remove the write protection of a range of pages.
    Unprotect(u64, u64),
    /// Map a page of zeros, because the program has unmapped the page.
    Zero(u64),
    /// Retry the access.
    Again,
    /// None: the thread that moves the block wakes the waiters.
    Later,
}

/// All managed memory.
#[derive(Debug)]
pub struct Store {
    all: BTreeMap<u64, Allocation>,
}

impl Store {
    /// An empty store.
    pub const fn new() -> Self {
        Self {
            all: BTreeMap::new(),
        }
    }

    /// Whether there is no allocation.
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Adds an allocation.
    pub fn insert(&mut self, allocation: Allocation) {
        self.all.insert(allocation.start, allocation);
    }

    /// Forgets an allocation.
    pub fn remove(&mut self, start: u64) -> Option<Allocation> {
        self.all.remove(&start)
    }

    /// The allocation that starts at an address.
    pub fn get(&mut self, start: u64) -> Option<&mut Allocation> {
        self.all.get_mut(&start)
    }

    /// The allocation that contains an address.
    pub fn at(&mut self, address: u64) -> Option<&mut Allocation> {
        let (_, found) = self.all.range_mut(..=address).next_back()?;
        (address - found.start < found.span()).then_some(found)
    }

    /// The allocations that contain any of the `bytes` bytes at `address`.
    pub fn within(&mut self, address: u64, bytes: u64) -> impl Iterator<Item = &mut Allocation> {
        let first = self.at(address).map_or(address, |of| of.start);
        let end = match bytes {
            0 => first,
            _ => address.saturating_add(bytes).max(first),
        };
        let of = self.all.range_mut(first..end);
        of.map(|(_, of)| of)
    }

    /// Adds a part to the page that contains it; returns whether the page is on the device, where the part's value is.
    pub fn share(&mut self, part: Part) -> bool {
        let page = self.all.get_mut(&(part.start & !(PAGE - 1)));
        let Some(page) = page.filter(|of| of.blocks[0] == Block::Device) else {
            return false;
        };
        page.parts.push(part);
        true
    }

    /// Removes parts of an allocation; returns whether none is left.
    pub fn remove_parts(&mut self, start: u64, is_gone: impl Fn(&Part) -> bool) -> bool {
        let Some(of) = self.all.get_mut(&start) else {
            return false;
        };
        of.parts.retain(|part| !is_gone(part));
        of.parts.is_empty()
    }

    /// All of them.
    pub fn iter(&mut self) -> impl Iterator<Item = &mut Allocation> {
        self.all.values_mut()
    }

    /// The number of blocks that a launch may have to move.
    pub fn owed(&self) -> usize {
        let of = self.all.values();
        of.filter(|of| of.attach != Attach::Host)
            .map(|of| of.owed + of.fetching)
            .sum()
    }

    /// Whether any block of an allocation is moving.
    pub fn is_moving(&self, start: u64) -> bool {
        let of = self.all.get(&start);
        of.is_some_and(|of| of.blocks.iter().any(|block| block.is_moving()))
    }

    /// Sets the state of blocks that have arrived.
    pub fn set(&mut self, job: &Job, to: Block) {
        if let Some(of) = self.all.get_mut(&job.allocation) {
            of.set(job.blocks.clone(), to);
        }
    }

    /// Begins to move the blocks in `wants` of each allocation to the device. Returns the jobs, and whether the caller
    /// has to wait for other threads that move some of them: with `is_patient`, also for those that threads wait for.
    pub fn send(
        &mut self,
        is_patient: bool,
        wants: impl Fn(&Allocation) -> Range<usize>,
    ) -> (Vec<Job>, bool) {
        let (mut jobs, mut others) = (Vec::new(), false);
        for of in self.all.values_mut() {
            if of.owed == 0 && of.fetching == 0 {
                continue;
            }
            let wanted = wants(of);
            let mut first = wanted.start;
            while first < wanted.end {
                let run = of.run(first, wanted.end);
                first = run.end;
                match of.blocks[run.start] {
                    Block::Fresh => of.set(run, Block::Device),
                    Block::Clean => {
                        of.set(run.clone(), Block::Dropping);
                        jobs.push(of.job(run, false));
                    }
                    Block::Dirty => {
                        of.set(run.clone(), Block::Sending);
                        jobs.push(of.job(run, true));
                    }
                    Block::Sending | Block::Dropping => others = true,
                    // What its thread does with it comes before the caller's work.
                    Block::Awaited => others |= is_patient,
                    Block::Fetching => of.set(run, Block::Outdated),
                    Block::Device | Block::Outdated => {}
                }
            }
        }
        (jobs, others)
    }

    /// Records that blocks have arrived here; the awaited one becomes `awaited`. The returned ones are outdated and must
    /// be dropped again.
    pub fn arrived(&mut self, job: &Job, awaited: Block) -> Vec<Job> {
        let mut outdated = Vec::new();
        if let Some(of) = self.all.get_mut(&job.allocation) {
            for index in job.blocks.clone() {
                let to = match of.blocks[index] {
                    Block::Awaited => awaited,
                    Block::Outdated => Block::Dropping,
                    _ => Block::Clean,
                };
                of.set(index..index + 1, to);
                if to == Block::Dropping {
                    outdated.push(of.job(index..index + 1, false));
                }
            }
        }
        outdated
    }

    /// Begins to fetch some blocks for reading. Returns the jobs, and whether other threads move some of them.
    pub fn fetch(&mut self, start: u64, wanted: Range<usize>) -> (Vec<Job>, bool) {
        let (mut jobs, mut others) = (Vec::new(), false);
        let Some(of) = self.all.get_mut(&start).filter(|of| !of.is_pinned) else {
            return (jobs, others);
        };
        let mut first = wanted.start;
        while first < wanted.end {
            let run = of.run(first, wanted.end);
            first = run.end;
            match of.blocks[run.start] {
                Block::Device => {
                    for index in run.step_by(MOST_AT_ONCE) {
                        let run = of.run(index, wanted.end.min(index + MOST_AT_ONCE));
                        of.set(run.clone(), Block::Fetching);
                        let job = of.job(run, true);
                        jobs.push(Job {
                            protect: true,
                            ..job
                        });
                    }
                }
                Block::Awaited
                | Block::Fetching
                | Block::Outdated
                | Block::Sending
                | Block::Dropping => others = true,
                // Zeros need not be fetched.
                Block::Fresh | Block::Clean | Block::Dirty => {}
            }
        }
        (jobs, others)
    }

    /// The action for an access that waits.
    ///
    /// More than the block itself is fetched only if writes to it would be `seen`.
    pub fn answer(&mut self, address: u64, writes: bool, is_protected: bool, seen: bool) -> Answer {
        let page = address & !(PAGE - 1);
        let Some(of) = self.at(address) else {
            return Answer::Again;
        };
        let index = ((address - of.start) / BLOCK) as usize;
        match (of.blocks[index], is_protected) {
            (Block::Fresh | Block::Device, false) => {
                let (expected, last) = of.ahead;
                let many = if index == expected && seen {
                    (last * 2).clamp(1, MOST_AT_ONCE)
                } else {
                    1
                };
                let run = of.run(index, (index + many).min(of.blocks.len()));
                of.ahead = (run.end, run.len());
                let is_copied = of.blocks[index] == Block::Device;
                of.set(run.clone(), Block::Fetching);
                of.set(index..index + 1, Block::Awaited);
                let protect = !writes;
                Answer::Fetch(Job {
                    protect,
                    ..of.job(run, is_copied)
                })
            }
            // The device's copy becomes outdated.
            (Block::Clean, true) => {
                of.set(index..index + 1, Block::Dirty);
                let (start, span) = of.place(&(index..index + 1));
                Answer::Unprotect(start, span)
            }
            (Block::Clean | Block::Dirty | Block::Sending, false) => Answer::Zero(page),
            (Block::Fresh | Block::Device | Block::Dirty, true) => Answer::Again,
            (Block::Sending, true)
            | (Block::Awaited | Block::Fetching | Block::Outdated | Block::Dropping, _) => {
                Answer::Later
            }
        }
    }

    /// Handles a present page that the program has unmapped: the device's copy of its block is no longer valid.
    pub fn was_taken(&mut self, page: u64) -> Option<(u64, u64)> {
        let of = self.at(page)?;
        let index = ((page - of.start) / BLOCK) as usize;
        if of.blocks[index] != Block::Clean {
            return None;
        }
        of.set(index..index + 1, Block::Dirty);
        Some(of.place(&(index..index + 1)))
    }

    /// Handles the end of a stream: memory attached to it returns to the attachment of its allocation.
    pub fn forget_stream(&mut self, stream: u64) {
        for of in self.all.values_mut() {
            if of.attach == Attach::Single(stream) {
                of.attach = of.own;
            }
        }
    }
}

impl Allocation {
    fn job(&self, blocks: Range<usize>, is_copied: bool) -> Job {
        let (start, span) = self.place(&blocks);
        Job {
            allocation: self.start,
            blocks,
            start,
            span,
            parts: self
                .parts
                .iter()
                .filter_map(|part| part.within(start, span))
                .collect(),
            is_copied,
            protect: false,
        }
    }
}

#[cfg(test)]
#[path = "store_tests.rs"]
mod tests;
