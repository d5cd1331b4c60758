// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Contexts that end while their work is waited for. The driver is never called in them.

use std::{sync::mpsc::channel, thread, time::Duration};

use gpgpu_protocol::api::{Context, Object};

use super::*;
use crate::worker::objects::Entry;

const CONTEXT: u64 = 1 << 8 | Context::KIND as u64;

/// A GPU with a context whose end has begun.
fn ending() -> (&'static Common, &'static Gpu) {
    let common: &'static Common = Box::leak(Box::default());
    let gpu: &'static Gpu = Box::leak(Box::new(Gpu::new(common)));
    common.objects.insert(CONTEXT, Entry::new(1, 0));
    gpu.join(CONTEXT);
    common.objects.end_context(CONTEXT).unwrap();
    (common, gpu)
}

/// Checks that a wait for the work begins before `end` and is over after it.
fn waits_until(gpu: &'static Gpu, end: impl FnOnce()) {
    let (say, drained) = channel();
    thread::spawn(move || {
        gpu.drain();
        say.send(()).unwrap();
    });
    let too_early = drained.recv_timeout(Duration::from_millis(50));
    assert!(too_early.is_err(), "the driver may still run its work");
    end();
    drained.recv_timeout(Duration::from_secs(30)).unwrap();
}

#[test]
fn the_work_of_a_context_counts_until_the_driver_has_destroyed_it() {
    let (common, gpu) = ending();
    let mark = Mark {
        context: CONTEXT,
        number: 1,
        event: 5,
    };
    assert!(!gpu.has_passed(&mark));
    waits_until(gpu, || {
        gpu.leave(CONTEXT);
        common.objects.remove_context(CONTEXT);
        gpu.settle();
    });
    assert!(gpu.has_passed(&mark));
    gpu.drain();
}

#[test]
fn a_wait_for_an_ending_context_is_over_when_that_is_kept() {
    let (common, gpu) = ending();
    waits_until(gpu, || {
        common.objects.keep_context(CONTEXT);
        gpu.settle();
    });
}

#[test]
fn a_context_that_joins_after_its_end_delays_nothing() {
    let (common, gpu) = ending();
    common.objects.remove_context(CONTEXT);
    gpu.drain();
}

#[test]
fn events_of_a_context_do_not_outlive_it() {
    let (_, gpu) = ending();
    let mark = |event| Mark {
        context: CONTEXT,
        number: 1,
        event,
    };
    gpu.release(mark(5));
    assert_eq!(gpu.event(CONTEXT).unwrap().event, 5);
    gpu.leave(CONTEXT);
    // Another context with its id.
    gpu.join(CONTEXT);
    gpu.release(mark(5));
    assert!(gpu.lock().contexts[0].events.is_empty());
}
