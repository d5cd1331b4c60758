// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The records of calls and of their work.
#![allow(missing_docs)]

mod common;

use std::ptr::null_mut;

use common::*;
use gpgpu_protocol::cupti::{CUSTOM0, copy_kind, kind, memory_kind};
use gpgpu_stand_in::{call, ok};

/// `CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel` and others.
const LAUNCH: u32 = 307;
const HTOD: u32 = 276;
const DTOH_ASYNC: u32 = 279;
const FILL_ASYNC: u32 = 220;

fn push(id: u64) {
    ok!(LIBRARIES, "cuptiActivityPushExternalCorrelationId"; CUSTOM0, id);
}

fn pop() -> u64 {
    let mut id = 0_u64;
    ok!(LIBRARIES, "cuptiActivityPopExternalCorrelationId"; CUSTOM0, &mut id);
    id
}

#[test]
fn each_piece_of_work_has_a_record_with_the_number_of_its_call() {
    let session = Session::new();
    let (f, module) = kernel();
    let (stream, mut back) = (stream(), [0_u32; 4]);
    let (mut stream_id, mut context_id) = (0_u64, 0_u64);
    ok!(LIBRARIES, "cuStreamGetId"; stream, &mut stream_id);
    ok!(LIBRARIES, "cuCtxGetId"; null_mut::<u8>(), &mut context_id);
    Session::enable(&ALL);
    let before = now();
    push(7);
    let at = LIBRARIES.upload(&[40_u32; 4]);
    push(8);
    launch(f, at, stream);
    assert_eq!(pop(), 8);
    ok!(LIBRARIES, "cuMemsetD32Async"; at + 4, 9_u32, 3_usize, stream);
    assert_eq!(pop(), 7);
    ok!(LIBRARIES, "cuMemcpyDtoHAsync_v2"; back.as_mut_ptr(), at, 16_usize, stream);
    ok!(LIBRARIES, "cuStreamSynchronize"; stream);
    let after = now();
    assert_eq!(back, [42, 9, 9, 9]);
    ok!(LIBRARIES, "cuModuleUnload"; module);
    let records = session.records();
    assert_eq!(session.dropped(), 0);

    let calls = only!(records, Call);
    let functions: Vec<_> = calls.iter().map(|of| of.callback).collect();
    assert_eq!(functions, [HTOD, LAUNCH, FILL_ASYNC, DTOH_ASYNC]);
    assert!(
        calls
            .iter()
            .all(|of| of.result == 0 && of.process == std::process::id())
    );
    let numbers: Vec<_> = calls.iter().map(|of| of.correlation).collect();
    assert!(numbers[0] > 0 && numbers.windows(2).all(|pair| pair[0] < pair[1]));

    let external = only!(records, External);
    let given: Vec<_> = external
        .iter()
        .map(|of| (of.external_kind, of.external, of.correlation))
        .collect();
    assert_eq!(
        given,
        [
            (CUSTOM0, 7, numbers[0]),
            (CUSTOM0, 8, numbers[1]),
            (CUSTOM0, 7, numbers[2])
        ]
    );
    let place = |is: &dyn Fn(&Record) -> bool| records.iter().position(is).unwrap();
    for number in &numbers[..3] {
        let first = place(&|of| matches!(of, Record::External(_)) && of.correlation() == *number);
        let second = place(&|of| matches!(of, Record::Call(_)) && of.correlation() == *number);
        assert!(first < second);
    }

    let kernels: Vec<_> = records
        .iter()
        .filter(|of| matches!(of, Record::Kernel(_)))
        .collect();
    assert_eq!(kernels.len(), 1);
    // The module is gone, and the name is not.
    assert_eq!(kernels[0].name(), NAME);
    let kernel = only!(records, Kernel)[0];
    assert_eq!(kernel.kind, kind::CONCURRENT_KERNEL);
    assert_eq!(
        (kernel.grid, kernel.block, kernel.cluster),
        ([2, 1, 1], [4, 1, 1], [1, 1, 1])
    );
    assert_eq!((kernel.static_shared, kernel.dynamic_shared), (64, 32));
    assert_eq!((kernel.correlation, kernel.device), (numbers[1], 0));
    assert_eq!(
        (u64::from(kernel.context), u64::from(kernel.stream)),
        (context_id, stream_id)
    );
    assert_eq!(
        (kernel.graph, kernel.graph_node, kernel.is_device_launched),
        (0, 0, 0)
    );
    assert!(kernel.registers_per_thread > 0);

    let copies = only!(records, Copy);
    let [up, down] = copies[..] else {
        panic!("{copies:?}");
    };
    assert_eq!(
        (up.copy_kind, up.from_kind, up.to_kind, up.flags),
        (
            copy_kind::HTOD,
            memory_kind::PAGEABLE,
            memory_kind::DEVICE,
            0
        )
    );
    assert_eq!(
        (down.copy_kind, down.from_kind, down.to_kind, down.flags),
        (
            copy_kind::DTOH,
            memory_kind::DEVICE,
            memory_kind::PAGEABLE,
            1
        )
    );
    assert_eq!((up.bytes, down.bytes), (16, 16));
    assert_eq!((up.correlation, down.correlation), (numbers[0], numbers[3]));

    let fills = only!(records, Fill);
    assert_eq!(fills.len(), 1);
    assert_eq!((fills[0].value, fills[0].bytes), (9, 12));
    assert_eq!(
        (fills[0].correlation, fills[0].memory_kind),
        (numbers[2], memory_kind::DEVICE.into())
    );

    for (start, end) in records.iter().filter_map(Record::times) {
        assert!(before <= start && start <= end && end <= after);
    }
    // In one stream, the next piece begins when the one before has ended.
    let order = [
        (kernel.start, kernel.end),
        (fills[0].start, fills[0].end),
        (down.start, down.end),
    ];
    assert!(order.windows(2).all(|pair| pair[0].1 <= pair[1].0));
    // The call has begun before its work.
    assert!(calls[1].start <= kernel.start);
}

#[test]
fn only_enabled_kinds_have_records() {
    let session = Session::new();
    let (f, _) = kernel();
    let at = LIBRARIES.upload(&[0_u32]);
    launch(f, at, null_mut());
    synchronize();
    assert!(session.records().is_empty());
    Session::enable(&[kind::KERNEL, kind::EXTERNAL_CORRELATION, kind::RUNTIME]);
    push(1);
    launch(f, at, null_mut());
    assert_eq!(pop(), 1);
    assert_eq!(LIBRARIES.download::<u32>(at, 1), [4]);
    // Without records of calls, there is none of their numbers.
    let records = session.records();
    assert_eq!(records.len(), 1);
    assert_eq!(only!(records, Kernel)[0].kind, kind::KERNEL);
    Session::disable(&[kind::KERNEL, kind::EXTERNAL_CORRELATION, kind::RUNTIME]);
    launch(f, at, null_mut());
    synchronize();
    assert!(session.records().is_empty());
    assert_eq!(session.dropped(), 0);
}

#[test]
fn work_that_ends_after_its_kind_was_disabled_has_no_record() {
    let session = Session::new();
    let (f, _) = kernel();
    let (at, stream) = (LIBRARIES.upload(&[0_u32]), stream());
    let mut gate: *mut u32 = null_mut();
    ok!(LIBRARIES, "cuMemHostAlloc"; &mut gate, 4_usize, 0_u32);
    Session::enable(&[kind::CONCURRENT_KERNEL]);
    ok!(LIBRARIES, "cuStreamWaitValue32_v2"; stream, gate, 1_u32, 1_u32);
    launch(f, at, stream);
    Session::disable(&[kind::CONCURRENT_KERNEL]);
    // SAFETY: the allocation has the word, which the stream reads.
    unsafe {
        (*gate.cast::<std::sync::atomic::AtomicU32>())
            .store(1, std::sync::atomic::Ordering::Release)
    };
    ok!(LIBRARIES, "cuStreamSynchronize"; stream);
    assert!(session.records().is_empty());
}

#[test]
fn threads_have_their_own_numbers() {
    let session = Session::new();
    Session::enable(&ALL);
    let worker = |id: u64| {
        move || {
            LIBRARIES.enter();
            let (f, _) = kernel();
            let (at, stream) = (LIBRARIES.allocate(4), stream());
            ok!(LIBRARIES, "cuMemsetD32Async"; at, 0_u32, 1_usize, stream);
            for round in 0..20 {
                push(id + round);
                launch(f, at, stream);
                assert_eq!(pop(), id + round);
            }
            ok!(LIBRARIES, "cuStreamSynchronize"; stream);
        }
    };
    let threads = [100, 200].map(|id| std::thread::spawn(worker(id)));
    for thread in threads {
        thread.join().unwrap();
    }
    let records = session.records();
    let external = only!(records, External);
    let kernels = only!(records, Kernel);
    let calls = only!(records, Call);
    assert_eq!((external.len(), kernels.len()), (40, 40));
    let mut ids: Vec<_> = external.iter().map(|of| of.external).collect();
    ids.sort_unstable();
    assert!(ids.iter().copied().eq((100..120).chain(200..220)));
    // The kernels of a thread are in its stream, and its calls in its own records.
    let mut seen = Vec::new();
    for of in &external {
        let kernel = kernels
            .iter()
            .find(|kernel| kernel.correlation == of.correlation)
            .unwrap();
        let call = calls
            .iter()
            .find(|call| call.correlation == of.correlation)
            .unwrap();
        seen.push((of.external / 100, kernel.stream, call.thread));
    }
    seen.sort_unstable();
    seen.dedup();
    assert_eq!(seen.len(), 2);
    assert!(seen[0].1 != seen[1].1 && seen[0].2 != seen[1].2);
    let mut numbers: Vec<_> = calls.iter().map(|of| of.correlation).collect();
    numbers.sort_unstable();
    let count = numbers.len();
    numbers.dedup();
    assert_eq!(numbers.len(), count);
}

#[test]
fn a_refused_call_has_a_record_with_its_error() {
    let session = Session::new();
    Session::enable(&ALL);
    // No device memory is there.
    assert_ne!(call!(LIBRARIES, "cuMemsetD8_v2"; 8_u64, 0_u8, 4_usize), 0);
    let records = session.records();
    assert_eq!(records.len(), 1);
    assert_eq!(only!(records, Call)[0].result, 1);
}
