// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The program's buffers, and the functions that have no records.
#![allow(missing_docs)]

mod common;

use std::ffi::{CStr, c_char};
use std::ptr::null_mut;
use std::sync::atomic::Ordering;

use common::*;
use gpgpu_protocol::cupti::{self, CUSTOM0, kind};
use gpgpu_stand_in::{call, ok};

const KERNEL: usize = size_of::<cupti::Kernel>();

/// Launches a kernel this number of times, and waits.
fn launches(count: usize) {
    let (f, _) = kernel();
    let at = LIBRARIES.allocate(4);
    for _ in 0..count {
        launch(f, at, null_mut());
    }
    synchronize();
}

#[test]
fn records_without_a_buffer_are_counted() {
    let session = Session::new();
    Session::enable(&[kind::CONCURRENT_KERNEL]);
    for too_small in [0, KERNEL - 8] {
        BUFFER.store(too_small, Ordering::Relaxed);
        launches(3);
        assert!(session.records().is_empty());
        assert_eq!(session.dropped(), 3);
        // The question sets the number to zero.
        assert_eq!(session.dropped(), 0);
    }
    BUFFER.store(KERNEL, Ordering::Relaxed);
    launches(3);
    assert_eq!(session.records().len(), 3);
    assert_eq!(session.dropped(), 0);
}

#[test]
fn full_buffers_are_delivered_in_order() {
    let session = Session::new();
    Session::enable(&[kind::CONCURRENT_KERNEL]);
    for (bytes, most) in [(2 * KERNEL + 8, 0), (16 * KERNEL, 2)] {
        BUFFER.store(bytes, Ordering::Relaxed);
        MOST.store(most, Ordering::Relaxed);
        let before = DELIVERED.load(Ordering::Relaxed);
        launches(5);
        let records = session.records();
        assert_eq!(DELIVERED.load(Ordering::Relaxed) - before, 3);
        assert_eq!(LENT.load(Ordering::Relaxed), 0);
        let numbers: Vec<_> = records.iter().map(Record::correlation).collect();
        assert_eq!(numbers.len(), 5);
        assert!(numbers.windows(2).all(|pair| pair[0] < pair[1]));
    }
}

#[test]
fn many_threads_lose_no_record() {
    let session = Session::new();
    Session::enable(&[kind::CONCURRENT_KERNEL, kind::DRIVER]);
    BUFFER.store(3 * KERNEL, Ordering::Relaxed);
    let threads = [(); 4].map(|()| {
        std::thread::spawn(|| {
            LIBRARIES.enter();
            let (f, _) = kernel();
            let (at, stream) = (LIBRARIES.allocate(4), stream());
            for _ in 0..25 {
                launch(f, at, stream);
            }
            ok!(LIBRARIES, "cuStreamSynchronize"; stream);
        })
    });
    for thread in threads {
        thread.join().unwrap();
    }
    let records = session.records();
    assert_eq!(only!(records, Kernel).len(), 100);
    assert_eq!(only!(records, Call).len(), 100);
    assert_eq!(session.dropped(), 0);
}

#[test]
fn a_callback_may_call_the_driver() {
    let session = Session::new();
    Session::enable(&[kind::CONCURRENT_KERNEL, kind::MEMSET, kind::DRIVER]);
    BUFFER.store(KERNEL, Ordering::Relaxed);
    *IN_CALLBACK.lock().unwrap() = Some(|| {
        // The stream's threads have no context.
        LIBRARIES.enter();
        let (at, stream) = (LIBRARIES.allocate(4), stream());
        ok!(LIBRARIES, "cuMemsetD32Async"; at, 1_u32, 1_usize, stream);
        ok!(LIBRARIES, "cuStreamSynchronize"; stream);
    });
    launches(4);
    let mut records = session.records();
    // The callback may have been in this flush.
    records.extend(session.records());
    assert!(IN_CALLBACK.lock().unwrap().is_none());
    assert_eq!(only!(records, Kernel).len(), 4);
    assert_eq!(only!(records, Fill).len(), 1);
    // A record that the callback's own thread makes has only the room that is there.
    assert_eq!(only!(records, Call).len() + session.dropped(), 5);
    assert_eq!(LENT.load(Ordering::Relaxed), 0);
}

#[test]
fn kinds_and_numbers_are_checked() {
    let _session = Session::new();
    for kind in [0, 7, 36, 45, 64, 200, u32::MAX] {
        for name in ["cuptiActivityEnable", "cuptiActivityDisable"] {
            let code = call!(LIBRARIES, name; kind);
            assert_eq!(code, cupti::INVALID_KIND as i32, "{kind}");
        }
    }
    let (push, pop) = (
        "cuptiActivityPushExternalCorrelationId",
        "cuptiActivityPopExternalCorrelationId",
    );
    let mut id = 5_u64;
    for kind in [0, 6] {
        assert_eq!(
            call!(LIBRARIES, push; kind, 1_u64),
            cupti::INVALID_PARAMETER as i32
        );
        assert_eq!(
            call!(LIBRARIES, pop; kind, &mut id),
            cupti::INVALID_PARAMETER as i32
        );
    }
    assert_eq!(
        call!(LIBRARIES, pop; CUSTOM0, &mut id),
        cupti::QUEUE_EMPTY as i32
    );
    assert_eq!(id, 5);
    ok!(LIBRARIES, push; CUSTOM0, 1_u64);
    ok!(LIBRARIES, push; CUSTOM0, 2_u64);
    ok!(LIBRARIES, push; CUSTOM0 + 1, 3_u64);
    ok!(LIBRARIES, pop; CUSTOM0, &mut id);
    assert_eq!(id, 2);
    ok!(LIBRARIES, pop; CUSTOM0, null_mut::<u64>());
    assert_eq!(
        call!(LIBRARIES, pop; CUSTOM0, &mut id),
        cupti::QUEUE_EMPTY as i32
    );
    ok!(LIBRARIES, pop; CUSTOM0 + 1, &mut id);
    assert_eq!(id, 3);
}

#[test]
fn attributes_are_kept() {
    let _session = Session::new();
    let (mut size, mut value) = (8_usize, 0_usize);
    ok!(LIBRARIES, "cuptiActivityGetAttribute"; cupti::DEVICE_BUFFER_POOL_LIMIT, &mut size, &mut value);
    assert_eq!((size, value), (8, 250));
    value = 1 << 20;
    ok!(LIBRARIES, "cuptiActivitySetAttribute"; cupti::DEVICE_BUFFER_SIZE, &mut size, &mut value);
    value = 0;
    ok!(LIBRARIES, "cuptiActivityGetAttribute"; cupti::DEVICE_BUFFER_SIZE, &mut size, &mut value);
    assert_eq!(value, 1 << 20);
    size = 4;
    for name in ["cuptiActivityGetAttribute", "cuptiActivitySetAttribute"] {
        let code = call!(LIBRARIES, name; cupti::DEVICE_BUFFER_SIZE, &mut size, &mut value);
        assert_eq!(code, cupti::SIZE_NOT_SUFFICIENT as i32);
        let code = call!(LIBRARIES, name; 99_u32, &mut size, &mut value);
        assert_eq!(code, cupti::INVALID_PARAMETER as i32);
        let code = call!(LIBRARIES, name; 0_u32, null_mut::<usize>(), &mut value);
        assert_eq!(code, cupti::INVALID_PARAMETER as i32);
    }
}

#[test]
fn the_library_says_what_it_is() {
    let _session = Session::new();
    let mut version = 0_u32;
    ok!(LIBRARIES, "cuptiGetVersion"; &mut version);
    assert_eq!(version, cupti::VERSION);
    let mut text: *const c_char = null_mut();
    ok!(LIBRARIES, "cuptiGetResultString"; cupti::QUEUE_EMPTY, &mut text);
    // SAFETY: a constant string.
    let text = unsafe { CStr::from_ptr(text) };
    assert_eq!(text, c"CUPTI_ERROR_QUEUE_EMPTY");
    let mut text: *const c_char = null_mut();
    let code = call!(LIBRARIES, "cuptiGetResultString"; 12345_u32, &mut text);
    assert_eq!(code, cupti::INVALID_PARAMETER as i32);
    assert!(now() <= now());
}
