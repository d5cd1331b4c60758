// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause

use std::{sync::mpsc::channel, thread};

use super::*;

fn callbacks() -> &'static Callbacks {
    Box::leak(Box::default())
}

#[test]
fn pitfall_57_two_callbacks_run_one_after_the_other_and_are_told_apart() {
    let callbacks = callbacks();
    let stream = thread::spawn(|| {
        callbacks.run(1, 0, CUDA_SUCCESS);
        callbacks.run(2, 0, CUDA_ERROR_UNKNOWN);
    });
    assert_eq!(callbacks.next(), (1, CUDA_SUCCESS));
    callbacks.done(1);
    assert_eq!(callbacks.next(), (2, CUDA_ERROR_UNKNOWN));
    callbacks.done(2);
    stream.join().unwrap();
}

#[test]
fn pitfall_57_streams_that_come_to_one_callback_wait_for_a_run_each() {
    let callbacks = callbacks();
    let (over, is_over) = channel();
    for _ in 0..2 {
        let over = over.clone();
        thread::spawn(move || {
            callbacks.run(7, 0, CUDA_SUCCESS);
            over.send(()).unwrap();
        });
    }
    while callbacks.state.lock().due.len() < 2 {
        thread::yield_now();
    }
    for left in [1, 0] {
        assert_eq!(callbacks.next(), (7, CUDA_SUCCESS));
        callbacks.done(7);
        is_over.recv().unwrap();
        assert_eq!(callbacks.state.lock().running.len(), left);
    }
}

#[test]
fn pitfall_88_no_callback_is_over_while_they_are_held() {
    let callbacks = callbacks();
    let (over, is_over) = channel();
    thread::spawn(move || {
        callbacks.run(7, 0, CUDA_SUCCESS);
        over.send(()).unwrap();
    });
    assert_eq!(callbacks.next(), (7, CUDA_SUCCESS));
    callbacks.hold();
    let done = thread::spawn(|| callbacks.done(7));
    assert_eq!(is_over.try_recv().ok(), None);
    assert!(callbacks.blocked().is_some());
    callbacks.let_go();
    done.join().unwrap();
    is_over.recv().unwrap();
    assert!(callbacks.blocked().is_none());
}

#[test]
fn pitfall_88_the_legacy_stream_and_those_that_it_waits_for_wait_for_each_others_callbacks() {
    const APART: [u64; 1] = [9];
    let reached = |stream| Blocked {
        reached: vec![Place { context: 1, stream }],
        passed: Vec::new(),
    };
    let has = |blocked: &Blocked, context, stream| blocked.has(Place { context, stream }, &APART);
    let by_legacy = reached(0);
    assert!(has(&by_legacy, 1, 0) && has(&by_legacy, 1, 5));
    assert!(!has(&by_legacy, 1, 9) && !has(&by_legacy, 2, 5));
    let by_joined = reached(5);
    assert!(has(&by_joined, 1, 0) && has(&by_joined, 1, 5));
    assert!(!has(&by_joined, 1, 6) && !has(&by_joined, 2, 0));
    let by_apart = reached(9);
    assert!(has(&by_apart, 1, 9));
    assert!(!has(&by_apart, 1, 0) && !has(&by_apart, 1, 5));
    // A mark does not show the state of other streams: they may have got work between it and the callback.
    let passed = Blocked {
        reached: Vec::new(),
        passed: vec![Place {
            context: 1,
            stream: 5,
        }],
    };
    assert!(has(&passed, 1, 5) && !has(&passed, 1, 0));
}
