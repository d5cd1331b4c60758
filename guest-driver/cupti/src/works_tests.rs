// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Tests of the records of work.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::*;
use gpgpu_protocol::cupti::{Api as ApiRecord, ExternalCorrelation};
use gpgpu_trace::{LIBRARY, RUNTIME};

use crate::{
    fake::{Fake, call, read},
    observer::cuptiActivityPushExternalCorrelationId as push,
};

/// A work of 10 ns.
fn work(kind: u32, call: u32, start: u64) -> TracedWork {
    TracedWork {
        kind,
        call,
        start,
        end: start + 10,
        device: 1,
        context: 3,
        stream: 13,
        ..TracedWork::default()
    }
}

/// A piece of a copy from the host to the device.
fn piece(call: u32, start: u64) -> TracedWork {
    TracedWork {
        bytes: 5,
        copy: u32::from(copy_kind::HTOD),
        from: u32::from(memory_kind::PINNED),
        to: u32::from(memory_kind::DEVICE),
        ..work(traced_work::COPY, call, start)
    }
}

fn copied(call: u32) -> Copied {
    Copied {
        call,
        kind: u32::from(copy_kind::HTOD),
        bytes: 100,
        start: 1000,
        end: 2000,
        stream: 0,
        context: 77,
        device: 2,
        asynchronous: 1,
    }
}

fn taken(works: Vec<TracedWork>) -> Taken {
    Taken {
        works,
        ..Taken::default()
    }
}

/// A profiler whose clock stands still, and whose host's clock is 1000 ns behind.
fn start(kinds: &[u32]) -> (&'static Fake, &'static Profiler) {
    static TIME: AtomicU64 = AtomicU64::new(50_000);
    unsafe extern "C" fn time() -> u64 {
        TIME.load(Relaxed)
    }
    let (host, profiler) = Fake::start();
    profiler.set_clock(Some(time));
    host.time.store(49_000, Relaxed);
    host.context.store(77, Relaxed);
    for kind in kinds {
        profiler.enable(*kind).unwrap();
    }
    host.take_asked();
    (host, profiler)
}

#[test]
fn the_hosts_works_become_records_with_the_programs_call_and_time() {
    let all = [
        kind::CONCURRENT_KERNEL,
        kind::MEMCPY,
        kind::MEMCPY2,
        kind::MEMSET,
        kind::GRAPH_TRACE,
    ];
    let (host, profiler) = start(&all);
    assert_eq!(host.traced.load(Relaxed), 15);
    let call = profiler.runs("cudaLaunchKernel");
    let peers = TracedWork {
        copy: u32::from(copy_kind::PTOP),
        from_device: 1,
        to_device: 2,
        ..piece(call, 60_000)
    };
    let kernel = |name, start| TracedWork {
        name,
        grid_x: 4,
        cluster_z: 2,
        ..work(traced_work::KERNEL, call, start)
    };
    *host.answers.lock() = vec![
        Taken {
            works: vec![
                kernel(2, 60_000),
                work(traced_work::KERNEL, 0, 60_000),
                work(traced_work::FILL, call, 60_000),
                peers,
            ],
            names: vec!["one".into(), "two".into()],
            dropped: 3,
            more: true,
        },
        Taken {
            works: vec![
                work(traced_work::GRAPH, call, 60_000),
                kernel(3, 60_000),
                kernel(9, 60_000),
            ],
            names: vec!["three".into()],
            dropped: 5,
            more: false,
        },
    ];
    profiler.collect(true);
    assert_eq!(host.take_asked(), ["take true", "take false"]);
    assert_eq!(profiler.queue.take_dropped(), 5);
    let records = profiler.records();
    let kinds: Vec<u32> = records.iter().map(|(kind, _)| *kind).collect();
    assert_eq!(kinds, [10, 2, 22, 51, 10, 10]);
    let kernel = read::<Kernel>(&records[0]);
    assert_eq!(
        (kernel.start, kernel.end, kernel.completed),
        (61_000, 61_010, 61_010)
    );
    assert_eq!((kernel.correlation, kernel.device), (call, 1));
    assert_eq!((kernel.context, kernel.stream), (3, 13));
    assert_eq!((kernel.grid[0], kernel.cluster[2]), (4, 2));
    let name = |place: usize| {
        // SAFETY: names are strings that live as long as the process.
        unsafe { CStr::from_ptr(read::<Kernel>(&records[place]).name) }
    };
    assert_eq!([name(0), name(4), name(5)], [c"two", c"three", NAMELESS]);
    let peer = read::<MemcpyPeer>(&records[2]);
    assert_eq!((peer.from_device, peer.to_device, peer.bytes), (1, 2, 5));
    let graph = read::<GraphTrace>(&records[3]);
    assert_eq!((graph.correlation, graph.start), (call, 61_000));
    // The program's handle has the host's number from now on.
    assert_eq!(profiler.contexts.number(77), 3);
}

#[test]
fn each_kernel_of_a_librarys_call_has_a_launch() {
    let kinds = [
        kind::CONCURRENT_KERNEL,
        kind::RUNTIME,
        kind::EXTERNAL_CORRELATION,
    ];
    let (host, profiler) = start(&kinds);
    push(1, 60);
    let mut library = call(LIBRARY, "cublasSgemm_v2");
    profiler.begin(&mut library);
    profiler.end(&mut library);
    push(1, 61);
    let other = profiler.runs("cudaLaunchKernel");
    let number = library.number;
    let kernel = |call| work(traced_work::KERNEL, call, 60_000);
    let works = vec![
        kernel(number),
        kernel(number),
        work(traced_work::FILL, number, 60_000),
        kernel(other),
        kernel(other),
        kernel(number),
    ];
    *host.answers.lock() = vec![taken(works)];
    profiler.collect(true);
    let mut launches = Vec::new();
    let mut kernels = Vec::new();
    for record in profiler.records() {
        match record.0 {
            kind::EXTERNAL_CORRELATION => {
                let external = read::<ExternalCorrelation>(&record);
                launches.push((external.correlation, external.external));
            }
            kind::RUNTIME => {
                let api = read::<ApiRecord>(&record);
                // The number of the launch comes ahead of it.
                assert_eq!(launches.last().unwrap().0, api.correlation);
                assert_eq!((api.callback, api.start, api.end), (211, 50_000, 50_000));
            }
            _ => {
                let kernel = read::<Kernel>(&record);
                assert!(
                    launches
                        .iter()
                        .any(|(number, _)| *number == kernel.correlation)
                );
                kernels.push(kernel.correlation);
            }
        }
    }
    let further = [other + 1, other + 2];
    assert_eq!(kernels, [number, further[0], other, other, further[1]]);
    let expected = [
        (number, 60),
        (other, 61),
        (further[0], 60),
        (further[1], 60),
    ];
    assert_eq!(launches, expected);
}

#[test]
fn work_does_not_begin_before_its_call() {
    let (host, profiler) = start(&[kind::KERNEL, kind::MEMSET]);
    let call = profiler.runs("cudaLaunchKernel");
    *host.answers.lock() = vec![taken(vec![
        work(traced_work::KERNEL, call, 48_995),
        work(traced_work::FILL, call, 40_000),
    ])];
    profiler.collect(true);
    let records = profiler.records();
    let kernel = read::<Kernel>(&records[0]);
    assert_eq!((kernel.kind, kernel.start, kernel.end), (3, 50_000, 50_005));
    let memset = read::<Memset>(&records[1]);
    assert_eq!((memset.start, memset.end), (50_000, 50_000));
}

#[test]
fn a_copy_of_pageable_memory_is_one_record() {
    let (host, profiler) = start(&[kind::MEMCPY]);
    let mut calls = [0; 4].map(|_| profiler.runs("cudaMemcpyAsync"));
    calls.sort();
    let [whole, pinned, alone, late] = calls;
    // The pieces come before the flush, and in two answers.
    *host.answers.lock() = vec![taken(vec![piece(whole, 60_000)])];
    profiler.collect(false);
    assert!(profiler.records().is_empty());
    for call in [whole, alone, alone] {
        profiler.copied(copied(call));
    }
    profiler.copied(Copied {
        kind: u32::from(copy_kind::DTOH),
        stream: 500,
        ..copied(late)
    });
    profiler.copied(copied(0));
    *host.answers.lock() = vec![taken(vec![piece(whole, 60_100), piece(pinned, 60_200)])];
    profiler.collect(true);
    let copies =
        |profiler: &Profiler| -> Vec<Memcpy> { profiler.records().iter().map(read).collect() };
    let records = copies(profiler);
    let numbers: Vec<u32> = records.iter().map(|copy| copy.correlation).collect();
    assert_eq!(numbers, [pinned, whole, alone, late]);
    let known = |copy: &Memcpy| {
        (
            copy.bytes,
            copy.start,
            copy.end,
            copy.from_kind,
            copy.to_kind,
        )
    };
    assert_eq!(known(&records[0]), (5, 61_200, 61_210, 2, 3));
    assert_eq!(known(&records[1]), (100, 61_000, 61_110, 1, 3));
    assert_eq!((records[1].stream, records[1].flags), (13, 1));
    // Without records of the host, the report's own times count.
    assert_eq!(known(&records[2]), (200, 1000, 2000, 1, 3));
    let place = (records[2].device, records[2].context, records[2].stream);
    assert_eq!(place, (2, 3, 7));
    // The numbers of other streams are the host's, so the latest one is taken.
    assert_eq!(known(&records[3]), (100, 1000, 2000, 3, 1));
    assert_eq!((records[3].copy_kind, records[3].stream), (2, 13));
    // The host's record comes behind the flush that has made one without it, and behind another one.
    profiler.collect(true);
    assert!(copies(profiler).is_empty());
    *host.answers.lock() = vec![taken(vec![piece(late, 60_300)])];
    profiler.collect(true);
    assert!(copies(profiler).is_empty());
}

#[test]
fn a_copy_waits_for_the_end_of_its_call() {
    let (host, profiler) = start(&[kind::MEMCPY]);
    let mut call = crate::fake::call(gpgpu_trace::RUNTIME, "cudaMemcpy");
    profiler.begin(&mut call);
    *host.answers.lock() = vec![taken(vec![piece(call.number, 60_000)])];
    profiler.collect(true);
    assert!(profiler.records().is_empty());
    profiler.copied(copied(call.number));
    profiler.collect(true);
    assert!(profiler.records().is_empty());
    profiler.end(&mut call);
    profiler.collect(true);
    let records = profiler.records();
    assert_eq!(records.len(), 1);
    assert_eq!(read::<Memcpy>(&records[0]).bytes, 100);
}

/// A profiler that takes full buffers, and never flushes.
#[test]
fn many_copies_do_not_wait_for_a_flush() {
    let (host, profiler) = start(&[kind::MEMCPY]);
    let call = profiler.runs("cudaMemcpyAsync");
    let copies = |count| {
        vec![taken(
            (0..count).map(|at| piece(call, 60_000 + at)).collect(),
        )]
    };
    *host.answers.lock() = copies(10);
    profiler.collect(false);
    assert!(profiler.records().is_empty());
    *host.answers.lock() = copies(MANY_COPIES as u64);
    profiler.collect(false);
    profiler.collect(false);
    assert_eq!(profiler.records().len(), 10 + MANY_COPIES);
}

#[test]
fn a_late_piece_of_a_copy_makes_no_other_record() {
    let (host, profiler) = start(&[kind::MEMCPY]);
    let mut call = crate::fake::call(gpgpu_trace::RUNTIME, "cudaMemcpy");
    profiler.begin(&mut call);
    profiler.copied(copied(call.number));
    profiler.end(&mut call);
    *host.answers.lock() = vec![taken(vec![piece(call.number, 60_000)])];
    profiler.collect(true);
    *host.answers.lock() = vec![taken(vec![piece(call.number, 60_010)])];
    profiler.collect(true);
    assert_eq!(profiler.records().len(), 1);
}

#[test]
fn records_of_a_disabled_kind_are_delivered_until_the_next_flush() {
    let (host, profiler) = start(&[kind::MEMSET]);
    let call = profiler.runs("cudaMemset");
    let give = || *host.answers.lock() = vec![taken(vec![work(traced_work::FILL, call, 60_000)])];
    give();
    profiler.disable(kind::MEMSET).unwrap();
    assert_eq!(host.take_asked(), ["take true", "trace 0"]);
    assert_eq!(profiler.records().len(), 1);
    // Work that ended after that.
    give();
    profiler.flush(crate::buffers::When::Flush);
    assert_eq!(profiler.records().len(), 1);
    give();
    host.take_asked();
    profiler.flush(crate::buffers::When::Flush);
    assert!(profiler.records().is_empty() && host.take_asked().is_empty());
}

#[test]
fn another_clock_is_compared_anew() {
    const MS: u64 = 1_000_000;
    static CYCLES: AtomicU64 = AtomicU64::new(7 * MS);
    unsafe extern "C" fn time() -> u64 {
        CYCLES.load(Relaxed)
    }
    let (host, profiler) = start(&[kind::MEMSET]);
    profiler.set_clock(Some(time));
    let call = profiler.runs("cudaMemset");
    // The program's clock counts three cycles in a nanosecond.
    host.time.store(49_000 + 20 * MS, Relaxed);
    CYCLES.store(67 * MS, Relaxed);
    *host.answers.lock() = vec![taken(vec![work(traced_work::FILL, call, 49_000 + 10 * MS)])];
    profiler.collect(true);
    let records = profiler.records();
    assert_eq!(read::<Memset>(&records[0]).start, 37 * MS);
}

#[test]
fn a_copy_without_the_hosts_records_has_its_streams_numbers() {
    let (host, profiler) = Fake::start();
    *host.numbers.lock() = Some(Numbers {
        context: 5,
        stream: 40,
    });
    profiler.enable(kind::MEMCPY).unwrap();
    host.take_asked();
    for _ in 0..2 {
        let mut call = call(RUNTIME, "cudaMemcpyAsync");
        profiler.begin(&mut call);
        profiler.copied(Copied {
            start: 1,
            end: 2,
            stream: 3 << 8,
            ..copied(call.number)
        });
        profiler.end(&mut call);
    }
    let asked = host.take_asked();
    let numbers: Vec<_> = asked
        .iter()
        .filter(|of| of.starts_with("numbers"))
        .collect();
    assert_eq!(numbers, ["numbers 768"], "each stream is asked for once");
    profiler.collect(true);
    for record in profiler.records() {
        let copy: Memcpy = read(&record);
        assert_eq!((copy.context, copy.stream), (5, 40));
    }
}

#[test]
fn a_copy_without_the_hosts_records_begins_behind_its_streams_work() {
    let (host, profiler) = Fake::start();
    *host.numbers.lock() = Some(Numbers {
        context: 3,
        stream: 13,
    });
    profiler.enable(kind::MEMCPY).unwrap();
    profiler.enable(kind::KERNEL).unwrap();
    let mut copy = call(RUNTIME, "cudaMemcpyAsync");
    profiler.begin(&mut copy);
    profiler.copied(Copied {
        stream: 3 << 8,
        ..copied(copy.number)
    });
    profiler.end(&mut copy);
    // Without calls that are known, and so without the clamp to their begin.
    profiler.works.lock().calibration = Calibration::new(true);
    let kernels = [1600, 1200, 2500].map(|start| work(traced_work::KERNEL, 5000, start));
    let other = TracedWork {
        stream: 14,
        ..work(traced_work::KERNEL, 5000, 1900)
    };
    let mut works = kernels.to_vec();
    works.push(other);
    let (mut records, mut finished) = (Records::new(), Records::new());
    profiler
        .works
        .lock()
        .absorb(taken(works), profiler, &mut records);
    profiler.works.lock().finish(profiler, &mut finished);
    profiler.queue.take();
    profiler.queue.append(&finished);
    let copies = profiler.records();
    assert_eq!(copies.len(), 1);
    let copy: Memcpy = read(&copies[0]);
    assert_eq!((copy.start, copy.end), (1610, 2000));
}

#[test]
fn ends_of_work_are_kept_for_copies_alone_and_not_without_limit() {
    let absorb = |kinds: &[u32], count: usize| {
        let (_, profiler) = start(kinds);
        let call = profiler.runs("cudaLaunchKernel");
        let kernels = (0..count as u64).map(|at| work(traced_work::KERNEL, call, 60_000 + at));
        let mut works = profiler.works.lock();
        works.absorb(taken(kernels.collect()), profiler, &mut Records::new());
        (
            works.ends.get(&13).map(Vec::len),
            works.last_end(13, u64::MAX),
        )
    };
    assert_eq!(absorb(&[kind::KERNEL], 3), (None, None));
    let last = |count: usize| Some(61_000 + count as u64 - 1 + 10);
    let both = [kind::KERNEL, kind::MEMCPY];
    assert_eq!(absorb(&both, 3), (Some(3), last(3)));
    assert_eq!(
        absorb(&both, MANY + 1),
        (Some(MANY / 2 + 1), last(MANY + 1))
    );
}
