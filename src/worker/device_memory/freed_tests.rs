// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Frees in streams whose progress the tests control.

use std::{collections::HashMap, sync::Arc};

use gpgpu_locks::Mutex;

use proptest::prelude::*;

use super::*;

const CONTEXT: u64 = 0x110;
const OTHER_CONTEXT: u64 = 0x210;
const STREAM: StreamKey = (CONTEXT, 0x160);
const OTHER: StreamKey = (CONTEXT, 0x260);
const POOL: u64 = 0x180;
const MIB: u64 = 1 << 20;
const NONE: [u64; 0] = [];

/// Streams, by number: their work, and how much of it is done.
#[derive(Debug, Default)]
struct Streams {
    given: HashMap<u64, u64>,
    done: HashMap<u64, u64>,
    /// The place of each event's last recording; only existing events are here.
    events: HashMap<u64, Option<(u64, u64)>>,
    made: u64,
    refuses: Option<CUresult>,
    fails: Option<CUresult>,
}

#[derive(Debug, Default, Clone)]
struct Fake(Arc<Mutex<Streams>>);

impl Fake {
    fn lock(&self) -> gpgpu_locks::MutexGuard<'_, Streams> {
        self.0.lock()
    }

    /// Completes all work of a stream.
    fn finish(&self, stream: u64) {
        let mut streams = self.lock();
        let given = streams.given.get(&stream).copied().unwrap_or(0);
        streams.done.insert(stream, given);
    }
}

impl Events for Fake {
    fn make(&self) -> Result<u64, CUresult> {
        let mut streams = self.lock();
        if let Some(code) = streams.refuses {
            return Err(code);
        }
        streams.made += 1;
        let event = streams.made;
        streams.events.insert(event, None);
        Ok(event)
    }

    fn record(&self, event: u64, stream: u64) -> Result<(), CUresult> {
        let mut streams = self.lock();
        if let Some(code) = streams.fails {
            return Err(code);
        }
        let given = streams.given.entry(stream).or_default();
        *given += 1;
        let place = (stream, *given);
        *streams.events.get_mut(&event).unwrap() = Some(place);
        Ok(())
    }

    fn is_over(&self, event: u64) -> Result<bool, CUresult> {
        let streams = self.lock();
        if let Some(code) = streams.fails {
            return Err(code);
        }
        let (stream, place) = streams.events[&event].unwrap();
        Ok(streams.done.get(&stream).is_some_and(|done| *done >= place))
    }

    fn end(&self, event: u64) {
        self.lock().events.remove(&event).unwrap();
    }
}

fn freed() -> (Fake, Freed<Fake>) {
    let fake = Fake::default();
    let freed = Freed {
        events: fake.clone(),
        state: Mutex::default(),
        count: AtomicUsize::new(0),
    };
    (fake, freed)
}

fn block(start: u64, taken: u64) -> Block {
    Block {
        start,
        taken,
        device: 0,
        context: CONTEXT,
        mempool: POOL,
        source: Source::Pool { taken },
        number: 0,
    }
}

fn push(freed: &Freed<Fake>, key: StreamKey, start: u64, taken: u64) {
    freed.push(key, key.1, block(start, taken)).unwrap();
}

fn over(freed: &Freed<Fake>) -> Vec<u64> {
    let over = freed.over(None, |_| true);
    let mut starts: Vec<_> = over.blocks.iter().map(|block| block.start).collect();
    starts.sort_unstable();
    starts
}

#[test]
fn a_stream_alone_reuses_its_freed_memory_at_once() {
    let (fake, freed) = freed();
    push(&freed, STREAM, 0x1000, 512);
    assert_eq!(freed.take(OTHER, POOL, 512), None);
    assert_eq!(freed.take((OTHER_CONTEXT, STREAM.1), POOL, 512), None);
    assert_eq!(freed.take(STREAM, POOL + 256, 512), None);
    assert_eq!(over(&freed), NONE);
    assert_eq!(freed.take(STREAM, POOL, 1024), None);
    assert_eq!(freed.take(STREAM, POOL, 512), Some(block(0x1000, 512)));
    // Another process uses it, and the end of the stream's earlier work does not end that.
    fake.finish(STREAM.1);
    assert_eq!(over(&freed), NONE);
    assert!(freed.is_empty());
    push(&freed, STREAM, 0x1000, 512);
    fake.finish(OTHER.1);
    assert_eq!(over(&freed), NONE);
    fake.finish(STREAM.1);
    assert_eq!(over(&freed), [0x1000]);
    assert!(freed.is_empty());
    assert_eq!(freed.take(STREAM, POOL, 512), None);
    assert_eq!(fake.lock().made, 1, "one event does for all");
}

#[test]
fn the_smallest_piece_is_cut_and_a_chunk_is_not() {
    let (fake, freed) = freed();
    push(&freed, STREAM, 0x40_0000, 4 * MIB);
    push(&freed, STREAM, 0x8_0000, MIB);
    push(&freed, STREAM, 0x1000_0000, 64 * MIB);
    let first = freed.take(STREAM, POOL, 512 << 10).unwrap();
    assert_eq!(first, block(0x8_0000, 512 << 10));
    assert_eq!(freed.len(), 3);
    assert_eq!(freed.take(STREAM, POOL, 32 * MIB), None);
    assert_eq!(freed.take(STREAM, POOL, 5 * MIB), None);
    let whole = freed.take(STREAM, POOL, 64 * MIB).unwrap();
    assert_eq!(whole, block(0x1000_0000, 64 * MIB));
    fake.finish(STREAM.1);
    let mut left = freed.over(Some(CONTEXT), |_| true).blocks;
    left.sort_by_key(|block| block.start);
    let rest = block(0x8_0000 + (512 << 10), 512 << 10);
    assert_eq!(left, [rest, block(0x40_0000, 4 * MIB)]);
}

#[test]
fn memory_that_another_process_has_open_is_not_reused() {
    let (fake, freed) = freed();
    let lent = Block {
        number: 7,
        ..block(0x10_0000, MIB)
    };
    freed.push(STREAM, STREAM.1, lent).unwrap();
    assert_eq!(freed.take(STREAM, POOL, MIB), None);
    // Memory that was reopened and freed again in the meantime has one entry, with its new number.
    for number in 8..100 {
        let again = Block { number, ..lent };
        freed.push(STREAM, STREAM.1, again).unwrap();
    }
    assert_eq!(freed.take(STREAM, POOL, MIB), None);
    fake.finish(STREAM.1);
    let over = freed.over(Some(CONTEXT), |_| true).blocks;
    assert_eq!(over.last().unwrap().number, 99);
    assert!(freed.is_empty());
}

#[test]
fn the_drivers_own_memory_is_reused_in_its_context_and_as_a_whole() {
    let (_, freed) = freed();
    let of = |start, context| Block {
        source: Source::Driver,
        context,
        ..block(start, 4096)
    };
    freed.push(STREAM, 1, of(0x1000, OTHER_CONTEXT)).unwrap();
    assert_eq!(freed.take(STREAM, POOL, 4096), None);
    freed.push(OTHER, 1, of(0x2000, CONTEXT)).unwrap();
    assert_eq!(freed.take(OTHER, POOL, 512), None);
    assert!(freed.take(OTHER, POOL, 4096).is_some());
    let gone = freed.extract(|block| block.context == OTHER_CONTEXT);
    assert_eq!(gone, [of(0x1000, OTHER_CONTEXT)]);
    assert!(freed.is_empty());
}

#[test]
fn pitfall_73_a_million_frees_behind_a_stream_take_few_events() {
    let (fake, freed) = freed();
    for number in 0..10_000 {
        push(&freed, STREAM, number << 10, 512);
    }
    assert!(fake.lock().made as usize <= BATCHES);
    assert_eq!(freed.len(), 10_000);
    fake.lock().done.insert(STREAM.1, 1);
    assert_eq!(over(&freed), [0]);
    // The last event is behind all frees that share it.
    fake.lock().done.insert(STREAM.1, 9_999);
    assert_eq!(over(&freed).len(), BATCHES - 2);
    fake.finish(STREAM.1);
    assert_eq!(over(&freed).len(), 10_000 - BATCHES + 1);
    // A stream that allocates and frees the same bytes repeatedly leaves nothing behind.
    for _ in 0..10_000 {
        push(&freed, STREAM, 0, 512);
        freed.take(STREAM, POOL, 512).unwrap();
    }
    assert!(freed.is_empty() && freed.state().queues.is_empty());
    assert!(fake.lock().made as usize <= BATCHES);
    // The same holds for many streams.
    for stream in 0..2 * SPARE_EVENTS as u64 {
        push(&freed, (CONTEXT, stream), stream << 10, 512);
    }
    for stream in 0..2 * SPARE_EVENTS as u64 {
        fake.finish(stream);
    }
    assert_eq!(over(&freed).len(), 2 * SPARE_EVENTS);
    assert_eq!(fake.lock().events.len(), SPARE_EVENTS);
    assert_eq!(freed.state().events, 0);
}

#[test]
fn a_free_without_an_event_is_over_when_its_context_has_done_all() {
    let (fake, freed) = freed();
    fake.lock().refuses = Some(CUDA_ERROR_OUT_OF_MEMORY);
    push(&freed, STREAM, 0x1000, 512);
    fake.lock().refuses = None;
    assert_eq!(freed.take(STREAM, POOL, 512), None);
    push(&freed, STREAM, 0x2000, 512);
    fake.finish(STREAM.1);
    assert_eq!(over(&freed), [0x2000]);
    let (contexts, latest) = freed.unmarked();
    assert_eq!(contexts, [CONTEXT]);
    assert!(freed.take_unmarked(OTHER_CONTEXT, latest).is_empty());
    assert_eq!(freed.take_unmarked(CONTEXT, latest), [block(0x1000, 512)]);
    assert_eq!(freed.unmarked().0, NONE);
}

#[test]
fn a_free_that_fails_has_freed_nothing_and_a_failed_context_is_named() {
    let (fake, freed) = freed();
    push(&freed, STREAM, 0x1000, 512);
    fake.lock().fails = Some(CUDA_ERROR_ILLEGAL_ADDRESS);
    let refused = freed.push(OTHER, 1, block(0x2000, 512));
    assert_eq!(refused, Err(CUDA_ERROR_ILLEGAL_ADDRESS));
    assert_eq!(freed.len(), 1);
    let found = freed.over(None, |_| true);
    assert_eq!(found.failed, Some(CUDA_ERROR_ILLEGAL_ADDRESS));
    assert!(found.blocks.is_empty());
    // It goes with its context.
    freed.leave(CONTEXT);
    assert_eq!(over(&freed), NONE);
    assert_eq!(freed.forget_context(CONTEXT), [block(0x1000, 512)]);
    assert!(freed.is_empty());
    assert_eq!(freed.state().events, 0);
}

#[test]
fn the_events_of_a_context_that_ends_are_left_alone() {
    let (fake, freed) = freed();
    push(&freed, STREAM, 0x1000, 512);
    push(&freed, (OTHER_CONTEXT, 7), 0x2000, 512);
    freed.leave(CONTEXT);
    // The driver destroys it with its context.
    fake.lock()
        .events
        .retain(|_, place| place.is_none_or(|(stream, _)| stream != STREAM.1));
    fake.finish(7);
    assert_eq!(over(&freed), [0x2000]);
    push(&freed, STREAM, 0x3000, 512);
    assert_eq!(over(&freed), NONE);
    let mut gone = freed.forget_context(CONTEXT);
    gone.sort_by_key(|block| block.start);
    assert_eq!(gone, [block(0x1000, 512), block(0x3000, 512)]);
    // Another context can have the same number, and has its own events.
    push(&freed, STREAM, 0x1000, 512);
    fake.finish(STREAM.1);
    assert_eq!(over(&freed), [0x1000]);
}

proptest! {
    /// Whatever is freed and taken, no byte has two owners, no free completes before its stream has reached it, and all
    /// complete in the end.
    #[test]
    fn every_byte_is_in_one_place(steps in prop::collection::vec((0_u8..4, 0_u64..3, 1_u64..6), 1..200)) {
        let (fake, freed) = freed();
        // In use: start, bytes and the stream.
        let mut used: Vec<(u64, u64)> = (0..20).map(|number| (number * 0x10_0000, 4096)).collect();
        let all: u64 = used.iter().map(|(_, bytes)| bytes).sum();
        let mut free: Vec<(u64, u64)> = Vec::new();
        // Freed memory, by start: its bytes, its stream and the stream's work at the time.
        let mut waiting: HashMap<u64, (u64, u64, u64)> = HashMap::new();
        for (what, stream, size) in steps {
            let key = (CONTEXT, stream);
            match what {
                0 if !used.is_empty() => {
                    let (start, bytes) = used.swap_remove((size as usize) % used.len());
                    push(&freed, key, start, bytes);
                    let given = fake.lock().given[&stream];
                    waiting.insert(start, (bytes, stream, given));
                }
                1 => if let Some(block) = freed.take(key, POOL, size * 512) {
                    prop_assert_eq!(block.taken, size * 512);
                    let (bytes, of, given) = waiting.remove(&block.start).unwrap();
                    prop_assert_eq!(of, stream);
                    if bytes > block.taken {
                        waiting.insert(block.start + block.taken, (bytes - block.taken, of, given));
                    }
                    used.push((block.start, block.taken));
                },
                2 => {
                    let mut streams = fake.lock();
                    let given = streams.given.get(&stream).copied().unwrap_or(0);
                    let done = streams.done.entry(stream).or_default();
                    *done = (*done + size).min(given);
                }
                _ => for block in freed.over(None, |_| true).blocks {
                    let (bytes, of, given) = waiting.remove(&block.start).unwrap();
                    prop_assert_eq!(bytes, block.taken);
                    let done = fake.lock().done.get(&of).copied().unwrap_or(0);
                    prop_assert!(done >= given, "{block:?}");
                    free.push((block.start, block.taken));
                },
            }
        }
        (0..3).for_each(|stream| fake.finish(stream));
        let rest = freed.over(None, |_| true).blocks;
        free.extend(rest.iter().map(|block| (block.start, block.taken)));
        prop_assert!(freed.is_empty());
        let mut whole: Vec<_> = used.iter().chain(&free).copied().collect();
        whole.sort_unstable();
        prop_assert!(whole.windows(2).all(|pair| pair[0].0 + pair[0].1 <= pair[1].0));
        prop_assert_eq!(whole.iter().map(|(_, bytes)| bytes).sum::<u64>(), all);
    }
}
