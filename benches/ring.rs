// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The ring's two ends: the cost of appending and of taking a record with the size of a launch.

// criterion's macros generate public functions without documentation.
#![allow(missing_docs)]

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::hint::black_box;

use criterion::{Criterion, criterion_group, criterion_main};
use gpgpu_protocol::ring::{Area, Consumer, NO_SLOT, Producer, RING_BYTES};

/// Bytes of a launch with three parameters, with its command's header.
const LAUNCH: usize = 168;

fn ring(criterion: &mut Criterion) {
    let layout = Layout::from_size_align(RING_BYTES, 4096).expect("a layout");
    // SAFETY: the layout has a size other than 0.
    let memory = unsafe { alloc_zeroed(layout) };
    assert!(!memory.is_null());
    // SAFETY: RING_BYTES bytes, aligned to a page, which live until both ends are gone.
    let area = unsafe { Area::new(memory) };
    let mut producer = Producer::new(area, 0);
    let mut consumer = Consumer::new(area, 0);
    let launch = [5; LAUNCH];
    let mut taken = Vec::new();
    criterion.bench_function("ring: append a launch, take it (one thread)", |bencher| {
        bencher.iter(|| {
            assert!(producer.append(NO_SLOT, 1, 1, black_box(&launch)));
            let woken = producer.must_wake();
            let record = consumer
                .next(&mut taken)
                .expect("a ring")
                .expect("a record");
            consumer.awake();
            assert!(!woken && taken.len() == LAUNCH / 8);
            record.bytes
        });
    });
    // SAFETY: allocated above with this layout; neither end is used any more.
    unsafe { dealloc(memory, layout) };
}

criterion_group!(benches, ring);
criterion_main!(benches);
