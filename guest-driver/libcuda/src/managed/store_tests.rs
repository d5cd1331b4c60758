// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The location of managed memory's pages under the accesses of programs.

use super::*;

const AT: u64 = 0x2000_0000_0000;

fn store(bytes: u64, attach: Attach) -> Store {
    let mut store = Store::new();
    store.insert(Allocation::new(AT, bytes, AT, 1, attach));
    store
}

fn everything(of: &Allocation) -> Range<usize> {
    0..of.advice.len()
}

fn block(store: &mut Store, index: usize) -> Block {
    store.get(AT).unwrap().block(index)
}

#[test]
fn unused_memory_is_not_copied() {
    let mut store = store(3 * BLOCK + 5, Attach::Global);
    assert_eq!(store.owed(), 4);
    assert_eq!(store.send(true, everything), (Vec::new(), false));
    assert_eq!((store.owed(), block(&mut store, 3)), (0, Block::Device));
}

#[test]
fn memory_that_was_only_read_does_not_travel_back() {
    let mut store = store(BLOCK, Attach::Global);
    store.send(true, everything);
    let Answer::Fetch(job) = store.answer(AT + 7, false, false, true) else {
        panic!("it is on the device");
    };
    assert!(job.is_copied && job.protect);
    assert_eq!(store.answer(AT, false, false, true), Answer::Later);
    store.set(&job, Block::Clean);
    let (jobs, _) = store.send(true, everything);
    assert!(!jobs[0].is_copied);
    store.set(&jobs[0], Block::Device);

    let Answer::Fetch(job) = store.answer(AT + 7, false, false, true) else {
        panic!("it is on the device again");
    };
    store.set(&job, Block::Clean);
    assert_eq!(
        store.answer(AT + 9, true, true, true),
        Answer::Unprotect(AT, BLOCK)
    );
    assert!(store.send(true, everything).0[0].is_copied);
}

#[test]
fn programs_that_go_on_are_brought_more_at_a_time() {
    let mut store = store(40 * BLOCK, Attach::Global);
    store.send(true, everything);
    let mut at = 0;
    let mut lengths = Vec::new();
    while at < 40 {
        let Answer::Fetch(job) = store.answer(AT + at as u64 * BLOCK, false, false, true) else {
            panic!("block {at} is on the device");
        };
        assert_eq!(job.blocks.start, at);
        lengths.push(job.blocks.len());
        at = job.blocks.end;
        store.set(&job, Block::Clean);
    }
    assert_eq!(lengths, [1, 2, 4, 8, 8, 8, 8, 1]);
}

#[test]
fn nothing_stays_here_that_work_may_change_while_it_comes() {
    let mut store = store(4 * BLOCK, Attach::Global);
    store.send(true, everything);
    for at in [0, 1] {
        let Answer::Fetch(job) = store.answer(AT + at * BLOCK, true, false, true) else {
            panic!("it is on the device");
        };
        assert_eq!(job.blocks.len() as u64, at + 1);
        assert!(store.owed() > 0, "launches have to say that they were");
        if at == 1 {
            store.send(true, |_| 2..3);
        }
        let outdated = store.arrived(&job, Block::Dirty);
        assert_eq!(outdated.len() as u64, at);
    }
    let blocks = [Block::Dirty, Block::Dirty, Block::Dropping, Block::Device];
    for (index, of) in blocks.into_iter().enumerate() {
        assert_eq!(block(&mut store, index), of, "block {index}");
    }
}

/// A thread whose fault a signal has interrupted uses the pages as soon as they are present.
#[test]
fn work_comes_after_the_use_of_a_block_that_a_thread_waits_for() {
    let mut store = store(2 * BLOCK, Attach::Global);
    store.send(true, everything);
    let Answer::Fetch(job) = store.answer(AT, true, false, true) else {
        panic!("it is on the device");
    };
    assert_eq!(block(&mut store, 0), Block::Awaited);
    assert_eq!(store.send(true, everything), (Vec::new(), true));
    // The end of a function in a stream does not wait for another thread, which may wait for the stream.
    assert_eq!(store.send(false, everything), (Vec::new(), false));
    assert!(store.arrived(&job, Block::Dirty).is_empty());
    let (jobs, _) = store.send(true, everything);
    assert!(jobs[0].is_copied);
}

#[test]
fn a_streams_memory_and_the_programs_stay_where_they_are() {
    let mut store = store(BLOCK, Attach::Single(7));
    let of = |stream| move |of: &Allocation| if of.is_for(stream) { 0..1 } else { 0..0 };
    store.send(true, of(8));
    assert_eq!(block(&mut store, 0), Block::Fresh);
    store.send(true, of(7));
    assert_eq!(block(&mut store, 0), Block::Device);
    store.get(AT).unwrap().own = Attach::Host;
    store.forget_stream(7);
    assert!(!store.get(AT).unwrap().is_for(7));
}

#[test]
fn data_in_transit_is_not_taken_for_zeros() {
    let mut store = store(BLOCK, Attach::Global);
    let Answer::Fetch(job) = store.answer(AT, true, false, true) else {
        panic!("unexpected use");
    };
    assert!(!job.is_copied && !job.protect);
    store.set(&job, Block::Dirty);
    assert_eq!(
        store.answer(AT + 4097, true, false, true),
        Answer::Zero(AT + 4096)
    );
    let (jobs, _) = store.send(true, everything);
    assert_eq!(store.answer(AT, false, false, true), Answer::Zero(AT));
    assert_eq!(store.answer(AT, true, true, true), Answer::Later);
    store.set(&jobs[0], Block::Dropping);
    assert_eq!(store.answer(AT, false, false, true), Answer::Later);
    assert!(store.send(true, everything).1 && store.is_moving(AT));
}

#[test]
fn the_last_block_has_the_remaining_length() {
    let mut store = store(BLOCK + 5000, Attach::Global);
    let of = store.get(AT).unwrap();
    assert_eq!(of.place(&(1..2)), (AT + BLOCK, 8192));
    assert_eq!(of.blocks_of(AT + BLOCK - 1, 2), 0..2);
    assert_eq!(of.blocks_of(AT + BLOCK, 1), 1..2);
    assert_eq!(of.job(0..2, true).parts[0].bytes, BLOCK + 5000);
    assert_eq!(of.job(1..2, true).parts[0].bytes, 5000);
    assert!(store.at(AT + BLOCK + 8191).is_some() && store.at(AT + BLOCK + 8192).is_none());
}

#[test]
fn variables_share_a_page_and_end_one_by_one() {
    let part = |start, image| Part {
        start,
        bytes: 16,
        context: 1,
        image,
    };
    let [one, other] = [part(AT + 512, 7), part(AT + 1024, 8)];
    let mut store = Store::new();
    assert!(!store.share(one), "there is no page yet");
    store.insert(Allocation::of_image(one, true));
    let Answer::Fetch(job) = store.answer(AT, true, false, true) else {
        panic!("the page is on the device");
    };
    assert_eq!((job.start, job.span), (AT, 4096));
    assert_eq!(job.parts, [one]);
    assert!(!store.share(other), "the page is on its way here");
    store.set(&job, Block::Dirty);
    assert!(!store.share(other), "the page is here");
    let (jobs, _) = store.send(true, everything);
    assert_eq!(jobs[0].parts, [one]);
    store.set(&jobs[0], Block::Device);
    assert!(store.share(other));
    let within: Vec<_> = store.within(AT + 1030, 1).map(|of| of.start).collect();
    assert_eq!(within, [AT]);
    assert!(!store.remove_parts(AT, |part| part.image == 7));
    let Answer::Fetch(job) = store.answer(AT, false, false, true) else {
        panic!("the page is on the device");
    };
    assert_eq!(job.parts, [other]);
    assert!(store.remove_parts(AT, |part| part.image == 8));
}

#[test]
fn a_range_finds_the_allocations_in_it() {
    let mut store = store(BLOCK, Attach::Global);
    store.insert(Allocation::new(
        AT + BLOCK,
        4096,
        AT + BLOCK,
        1,
        Attach::Global,
    ));
    let mut count = |address, bytes| store.within(address, bytes).count();
    for (address, bytes, expected) in [
        (AT - 1, 1, 0),
        (AT - 1, 2, 1),
        (AT + 5, 1, 1),
        (AT + BLOCK - 1, 1, 1),
        (AT + BLOCK - 1, 2, 2),
        (AT + BLOCK + 4096, 1, 0),
        (AT, u64::MAX, 2),
        (AT + 5, 0, 0),
    ] {
        assert_eq!(count(address, bytes), expected, "{address:#x}, {bytes}");
    }
}
