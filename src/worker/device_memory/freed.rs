// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Memory that was freed in stream order, until the stream has reached the free.
//!
//! An event is recorded in the stream behind each free. Later work of the same stream may use the memory at once,
//! because it comes later in the stream; all other work may when the event is complete. If there are too many events, a
//! free has none, and counts as complete when its context has done all its work.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, VecDeque},
    sync::atomic::{AtomicUsize, Ordering},
};

use gpgpu_locks::{Mutex, MutexGuard};
use gpgpu_protocol::cuda::*;

use super::{pool::WHOLE_BYTES, ranges::Source};

/// The maximum number of batches of a stream with an event each. Later frees share the last batch's event.
const BATCHES: usize = 32;
/// The number of events of all streams from which on a stream has only one batch.
const MANY_EVENTS: usize = 4 << 10;
/// The maximum number of events.
const MOST_EVENTS: usize = 64 << 10;
/// The number of a context's events that are kept for the next frees.
const SPARE_EVENTS: usize = 64;

/// Events that mark points in streams.
pub trait Events {
    /// Makes an event in the thread's current context.
    ///
    /// # Errors
    ///
    /// The driver's error code.
    fn make(&self) -> Result<u64, CUresult>;
    /// Records it in a stream of its context.
    ///
    /// # Errors
    ///
    /// The driver's error code.
    fn record(&self, event: u64, stream: u64) -> Result<(), CUresult>;
    /// Whether the stream has reached the last recording. The event's context must be current.
    ///
    /// # Errors
    ///
    /// The driver's error code, for example that of a failed kernel.
    fn is_over(&self, event: u64) -> Result<bool, CUresult>;
    /// Destroys it.
    fn end(&self, event: u64);
}

/// A stream: its context's id and its own, which is 0 for the context's legacy stream. A stream of a green context is
/// one of the primary context, to which its events belong; the default stream of a green context has the green
/// context's id.
pub type StreamKey = (u64, u64);

/// Memory pool, bytes, address and the batch's number.
type Size = (u64, u64, u64, u64);

/// Memory that was freed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Block {
    /// The start address.
    pub start: u64,
    /// Its size in bytes.
    pub taken: u64,
    /// Its device.
    pub device: CUdevice,
    /// The id of the context in which it was allocated.
    pub context: u64,
    /// The id of its memory pool; 0 for none.
    pub mempool: u64,
    /// Its source.
    pub source: Source,
    /// For memory that another process has opened or lent, its number; 0 for other memory. Memory with a number is not
    /// reused before its free is complete.
    pub number: u64,
}

impl Block {
    /// Whether `taken` bytes of it can be allocated for a context. The driver's own memory, and a whole chunk, can be
    /// reused only in its context, and only as a whole.
    fn is_for(&self, context: u64, taken: u64) -> bool {
        match self.source {
            Source::Pool { .. } => self.taken == taken || self.taken < WHOLE_BYTES,
            _ => self.taken == taken && self.context == context,
        }
    }

    /// Its entry in [`Queue::sizes`], as a part of a batch.
    fn size(&self, batch: u64) -> Size {
        (self.mempool, self.taken, self.start, batch)
    }

    /// Cuts the first `taken` bytes off.
    fn split(&mut self, taken: u64) -> Self {
        let part = |start, taken| Self {
            start,
            taken,
            source: Source::Pool { taken },
            ..*self
        };
        let first = part(self.start, taken);
        *self = part(self.start + taken, self.taken - taken);
        first
    }
}

/// Frees before one event.
#[derive(Debug)]
struct Batch {
    number: u64,
    event: Option<u64>,
    /// By their addresses.
    blocks: HashMap<u64, Block>,
}

/// One stream's frees.
#[derive(Debug, Default)]
struct Queue {
    batches: VecDeque<Batch>,
    sizes: BTreeSet<Size>,
}

impl Queue {
    /// Adds a block to a batch; `false` if it is there already, because the memory was reopened in the meantime.
    fn insert(&mut self, index: usize, block: Block) -> bool {
        let batch = &mut self.batches[index];
        if block.number == 0 {
            self.sizes.insert(block.size(batch.number));
        }
        batch.blocks.insert(block.start, block).is_none()
    }

    /// Removes a whole batch.
    fn remove(&mut self, index: usize) -> Option<Batch> {
        let batch = self.batches.remove(index)?;
        for block in batch.blocks.values() {
            let size = block.size(batch.number);
            self.sizes.remove(&size);
        }
        Some(batch)
    }
}

#[derive(Debug, Default)]
struct State {
    queues: BTreeMap<StreamKey, Queue>,
    /// The number of batches.
    batches: u64,
    /// The number of events in batches.
    events: usize,
    /// Events for the next frees, by context.
    spare: HashMap<u64, Vec<u64>>,
    /// Contexts that are about to end: the driver destroys their events.
    leaving: Vec<u64>,
}

/// See the module's documentation.
#[derive(Debug, Default)]
pub struct Freed<E> {
    events: E,
    state: Mutex<State>,
    count: AtomicUsize,
}

/// The result of [`Freed::over`].
#[derive(Debug, Default)]
pub struct Over {
    /// Memory that all work may use again.
    pub blocks: Vec<Block>,
    /// The error of a context. Its events do not complete for that reason.
    pub failed: Option<CUresult>,
}

impl<E: Events> Freed<E> {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// The number of pieces of memory.
    pub fn len(&self) -> usize {
        self.count.load(Ordering::SeqCst)
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Keeps or destroys an event that belongs to no batch any more.
    fn keep(&self, state: &mut State, context: u64, event: Option<u64>) {
        let Some(event) = event else {
            return;
        };
        state.events -= 1;
        let spare = state.spare.entry(context).or_default();
        if spare.len() < SPARE_EVENTS {
            spare.push(event);
        } else {
            self.events.end(event);
        }
    }

    /// Frees memory when a stream has done its earlier work. `raw` is the stream's handle, and its context must be
    /// current.
    ///
    /// # Errors
    ///
    /// The driver's error code; nothing was freed in that case.
    pub fn push(&self, key: StreamKey, raw: u64, block: Block) -> Result<(), CUresult> {
        let (context, _) = key;
        let mut state = self.state();
        let is_full = state.events >= MANY_EVENTS;
        if let Some(queue) = state.queues.get_mut(&key)
            && let Some(last) = queue.batches.len().checked_sub(1)
            && (last + 1 >= BATCHES || is_full)
        {
            // This batch then completes a little later than it could.
            if let Some(event) = queue.batches[last].event {
                self.events.record(event, raw)?;
            }
            let added = queue.insert(last, block);
            self.count.fetch_add(added.into(), Ordering::SeqCst);
            return Ok(());
        }
        let event = if state.events >= MOST_EVENTS || state.leaving.contains(&context) {
            None
        } else {
            state.events += 1;
            let spare = state.spare.get_mut(&context).and_then(Vec::pop);
            drop(state);
            // If the stream has no room, the driver blocks, so no lock is held that another thread needs.
            let event = spare.map_or_else(|| self.events.make(), Ok);
            let recorded = event.and_then(|event| {
                let recorded = self.events.record(event, raw);
                recorded
                    .map(|()| event)
                    .inspect_err(|_| self.events.end(event))
            });
            state = self.state();
            match recorded {
                Ok(event) if !state.leaving.contains(&context) => Some(event),
                Ok(_) | Err(CUDA_ERROR_OUT_OF_MEMORY) => {
                    state.events -= 1;
                    None
                }
                Err(code) => {
                    state.events -= 1;
                    return Err(code);
                }
            }
        };
        state.batches += 1;
        let batch = Batch {
            number: state.batches,
            event,
            blocks: HashMap::new(),
        };
        let queue = state.queues.entry(key).or_default();
        queue.batches.push_back(batch);
        queue.insert(queue.batches.len() - 1, block);
        self.count.fetch_add(1, Ordering::SeqCst);
        Ok(())
    }

    /// Takes `taken` bytes of a memory pool that the same stream has freed: from the smallest piece that is large
    /// enough.
    pub fn take(&self, key: StreamKey, mempool: u64, taken: u64) -> Option<Block> {
        if self.is_empty() {
            return None;
        }
        let mut state = self.state();
        let queue = state.queues.get_mut(&key)?;
        let &size = queue.sizes.range((mempool, taken, 0, 0)..).next()?;
        let (of, bytes, start, number) = size;
        if of != mempool {
            return None;
        }
        let found = queue.batches.binary_search_by_key(&number, |of| of.number);
        let index = found.ok()?;
        let batch = &mut queue.batches[index];
        // Later work of other streams comes after the stream's event if CUDA makes them wait for this stream, as the
        // legacy stream does.
        if batch.event.is_none() || !batch.blocks.get(&start)?.is_for(key.0, taken) {
            return None;
        }
        let mut rest = batch.blocks.remove(&start)?;
        queue.sizes.remove(&size);
        if bytes != taken {
            let first = rest.split(taken);
            queue.insert(index, rest);
            return Some(first);
        }
        self.count.fetch_sub(1, Ordering::SeqCst);
        if batch.blocks.is_empty() {
            let event = queue.batches.remove(index).and_then(|batch| batch.event);
            if queue.batches.is_empty() {
                state.queues.remove(&key);
            }
            self.keep(&mut state, key.0, event);
        }
        Some(rest)
    }

    /// Takes memory whose free is complete: of one context, which is current, or of all contexts that `enter` can make
    /// current.
    pub fn over(&self, only: Option<u64>, mut enter: impl FnMut(u64) -> bool) -> Over {
        let mut over = Over::default();
        if self.is_empty() {
            return over;
        }
        let mut state = self.state();
        let from = only.unwrap_or(0);
        let to = only.unwrap_or(u64::MAX);
        let keys: Vec<_> = state.queues.range((from, 0)..=(to, u64::MAX)).collect();
        let keys: Vec<_> = keys.into_iter().map(|(key, _)| *key).collect();
        let mut entered = only;
        for key in keys {
            let (context, _) = key;
            if state.leaving.contains(&context) {
                continue;
            }
            if entered != Some(context) {
                if !enter(context) {
                    continue;
                }
                entered = Some(context);
            }
            let mut index = 0;
            while let Some(queue) = state.queues.get_mut(&key)
                && let Some(batch) = queue.batches.get(index)
            {
                let Some(event) = batch.event else {
                    index += 1;
                    continue;
                };
                match self.events.is_over(event) {
                    Ok(true) => {}
                    Ok(false) => break,
                    Err(code) => {
                        over.failed = Some(code);
                        break;
                    }
                }
                let batch = queue.remove(index);
                if queue.batches.is_empty() {
                    state.queues.remove(&key);
                }
                if let Some(batch) = batch {
                    over.blocks.extend(batch.blocks.into_values());
                    self.keep(&mut state, context, batch.event);
                }
            }
        }
        self.count.fetch_sub(over.blocks.len(), Ordering::SeqCst);
        over
    }

    /// The contexts with frees without an event, and the number of the latest batch.
    pub fn unmarked(&self) -> (Vec<u64>, u64) {
        let state = self.state();
        let has_unmarked = |queue: &Queue| queue.batches.iter().any(|batch| batch.event.is_none());
        let queues = state.queues.iter().filter(|(_, queue)| has_unmarked(queue));
        let mut contexts: Vec<_> = queues.map(|((context, _), _)| *context).collect();
        contexts.dedup();
        (contexts, state.batches)
    }

    /// Takes the frees of a context without an event, up to a batch: the context has done all its earlier work.
    pub fn take_unmarked(&self, context: u64, latest: u64) -> Vec<Block> {
        self.take_where(context, |batch| {
            batch.event.is_none() && batch.number <= latest
        })
    }

    fn take_where(&self, context: u64, which: impl Fn(&Batch) -> bool) -> Vec<Block> {
        let mut state = self.state();
        let mut blocks = Vec::new();
        let mut events = Vec::new();
        for (_, queue) in state.queues.range_mut((context, 0)..=(context, u64::MAX)) {
            let mut index = 0;
            while let Some(batch) = queue.batches.get(index) {
                if !which(batch) {
                    index += 1;
                } else if let Some(batch) = queue.remove(index) {
                    blocks.extend(batch.blocks.into_values());
                    events.push(batch.event);
                }
            }
        }
        state.queues.retain(|_, queue| !queue.batches.is_empty());
        for event in events {
            self.keep(&mut state, context, event);
        }
        self.count.fetch_sub(blocks.len(), Ordering::SeqCst);
        blocks
    }

    /// Prepares for the end of a context: its events are no longer used.
    pub fn leave(&self, context: u64) {
        let mut state = self.state();
        // Only once, even if the end fails and is tried again.
        if !state.leaving.contains(&context) {
            state.leaving.push(context);
        }
        state.spare.remove(&context);
        let mut gone = 0;
        for (_, queue) in state.queues.range_mut((context, 0)..=(context, u64::MAX)) {
            for batch in &mut queue.batches {
                gone += usize::from(batch.event.take().is_some());
            }
        }
        state.events -= gone;
    }

    /// Takes the memory that was freed in the streams of a context that has ended, with all its work.
    pub fn forget_context(&self, context: u64) -> Vec<Block> {
        let blocks = self.take_where(context, |_| true);
        let mut state = self.state();
        // The driver has destroyed them with the context.
        state.spare.remove(&context);
        state.leaving.retain(|other| *other != context);
        blocks
    }

    /// Takes all blocks for which `which` holds, complete or not.
    pub fn extract(&self, which: impl Fn(&Block) -> bool) -> Vec<Block> {
        let mut state = self.state();
        let mut blocks = Vec::new();
        for queue in state.queues.values_mut() {
            for batch in &mut queue.batches {
                let number = batch.number;
                for (_, block) in batch.blocks.extract_if(|_, block| which(block)) {
                    let size = block.size(number);
                    queue.sizes.remove(&size);
                    blocks.push(block);
                }
            }
        }
        self.count.fetch_sub(blocks.len(), Ordering::SeqCst);
        blocks
    }
}

#[cfg(test)]
#[path = "freed_tests.rs"]
mod tests;
