// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Green contexts on [`crate::cuda::double`]: which objects end with them, and that none ends while it is in use.

use std::{thread, time::Duration};

use gpgpu_protocol::{
    api::{
        Context, Event, LaunchConfig, Module, MultiprocessorSplit, Object, REMAINING, Stream,
        object_id, request,
    },
    cuda::*,
};

use super::lifetimes_tests::{Rig, run};
use crate::cuda::double;

const GREEN: u64 = 10 << 8 | Context::KIND as u64;
const OTHER: u64 = 11 << 8 | Context::KIND as u64;

/// The time for which the tests wait for an event that must not happen.
const A_WHILE: Duration = Duration::from_millis(300);

/// Two groups of 4 of the device's 16.
const SPLIT: MultiprocessorSplit = MultiprocessorSplit {
    green: 0,
    groups: 2,
    minimum: 4,
    flags: 0,
};

fn create(green: u64, split: MultiprocessorSplit, groups: &[u32]) -> request::gpgpuGreenCtxCreate {
    request::gpgpuGreenCtxCreate {
        green,
        dev: 0,
        split,
        groups: groups.to_vec(),
        flags: 1,
    }
}

/// A client whose first context is the device's primary one, and has a green one.
fn rig() -> Rig {
    let rig = Rig::new();
    let mut primary = rig.session.primary.lock();
    primary.insert(0, rig.contexts[0]);
    drop(primary);
    rig.works(create(GREEN, SPLIT, &[0]), 0);
    rig
}

fn stream(rig: &Rig, serial: u64, green: u64) -> u64 {
    let stream = object_id::<Stream>(serial);
    let make = request::gpgpuGreenCtxStreamCreate {
        stream,
        green,
        flags: 1,
        priority: 0,
    };
    rig.works(make, 0);
    stream
}

fn launch(rig: &Rig, stream: u64) -> request::cuLaunchKernelEx {
    let launch = rig.launch();
    request::cuLaunchKernelEx {
        config: LaunchConfig {
            stream,
            ..launch.config
        },
        ..launch
    }
}

#[test]
fn groups_are_chosen_by_number_and_the_drivers_own_bytes_stay_here() {
    let rig = rig();
    let bad = CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;
    let whole = MultiprocessorSplit::default();
    let many = MultiprocessorSplit {
        groups: u32::MAX,
        ..SPLIT
    };
    let none = MultiprocessorSplit {
        minimum: 17,
        ..SPLIT
    };
    for (split, groups, code) in [
        (SPLIT, &[2][..], bad),
        (SPLIT, &[], bad),
        (whole, &[0], bad),
        (none, &[0], bad),
        (many, &[4], bad),
        (many, &[3, 0, 3], CUDA_SUCCESS),
        (SPLIT, &[REMAINING, 0], CUDA_SUCCESS),
        (whole, &[], CUDA_SUCCESS),
    ] {
        let said = run(rig.session, create(OTHER, split, groups), 0);
        assert_eq!(said, code, "{split:?} {groups:?}");
        if said == CUDA_SUCCESS {
            rig.works(request::gpgpuGreenCtxDestroy { green: OTHER }, 0);
        }
    }
    // The same groups have one descriptor, in whatever order they are named.
    let before = double::calls("cuDevResourceGenerateDesc");
    rig.works(create(OTHER, SPLIT, &[0, REMAINING, 0]), 0);
    assert_eq!(double::calls("cuDevResourceGenerateDesc"), before);
    // The multiprocessors of a green context can be split while it exists.
    let inner = MultiprocessorSplit {
        green: OTHER,
        ..SPLIT
    };
    let third = object_id::<Context>(12);
    rig.works(create(third, inner, &[1]), 0);
    rig.works(request::gpgpuGreenCtxDestroy { green: third }, 0);
    rig.works(request::gpgpuGreenCtxDestroy { green: OTHER }, 0);
    let said = run(rig.session, create(third, inner, &[1]), 0);
    assert_eq!(said, CUDA_ERROR_INVALID_CONTEXT);
    assert_eq!(double::wrong(), [""; 0]);
}

#[test]
fn objects_of_a_green_context_go_with_the_primary_except_streams() {
    let rig = rig();
    let (session, home) = (rig.session, rig.contexts[0]);
    let (own, made) = (stream(&rig, 20, GREEN), object_id::<Stream>(21));
    let event = object_id::<Event>(20);
    let make = request::cuStreamCreate {
        phStream: made,
        Flags: 0,
    };
    rig.works(make, GREEN);
    let make = request::cuEventCreate {
        phEvent: event,
        Flags: 0,
    };
    rig.works(make, GREEN);
    session.enter(GREEN).unwrap();
    assert_eq!((session.current(), session.entered()), (home, GREEN));
    let of = |id| session.objects.live_context_of(id);
    assert_eq!([own, made].map(of), [Some(GREEN); 2]);
    assert_eq!(of(event), Some(home));
    // The primary context's function runs in each of its streams, and in the default stream of the green context.
    for stream in [own, made, 0, rig.streams[0]] {
        rig.works(launch(&rig, stream), GREEN);
        assert_eq!(session.current(), home);
    }
    rig.works(launch(&rig, 0), GREEN);
    assert_eq!(
        session.entered(),
        GREEN,
        "a default stream is the current context's"
    );
    rig.works(launch(&rig, own), home);
    assert_eq!(session.entered(), GREEN);
    // It is destroyed by the function for green contexts.
    let destroy = request::cuCtxDestroy_v2 { ctx: GREEN };
    assert_eq!(run(session, destroy, 0), CUDA_ERROR_INVALID_CONTEXT);
    let destroy = request::gpgpuGreenCtxDestroy { green: home };
    assert_eq!(run(session, destroy, 0), CUDA_ERROR_INVALID_CONTEXT);
    rig.works(request::gpgpuGreenCtxDestroy { green: GREEN }, GREEN);
    // Its streams were destroyed, and not left to the driver.
    assert_eq!([own, made].map(of), [None; 2]);
    assert_eq!(of(event), Some(home));
    assert!(double::calls("cuStreamDestroy_v2") >= 2);
    let query = request::cuStreamQuery { hStream: own };
    assert_eq!(run(session, query, home), CUDA_ERROR_INVALID_HANDLE);
    let query = request::cuEventQuery { hEvent: event };
    rig.works(query.clone(), home);
    assert_eq!(
        run(session, launch(&rig, 0), GREEN),
        CUDA_ERROR_CONTEXT_IS_DESTROYED
    );
    assert_eq!(double::wrong(), [""; 0]);
}

#[test]
fn a_green_context_does_not_end_under_a_command_that_uses_it() {
    let rig = rig();
    let session = rig.session;
    let own = stream(&rig, 20, GREEN);
    // A launch in its stream, with the primary context current, and one in its default stream.
    for (stream, header) in [(own, rig.contexts[0]), (0, GREEN)] {
        let held = double::hold("cuLaunchKernel");
        let launch = launch(&rig, stream);
        let launching = thread::spawn(move || run(session, launch, header));
        held.wait();
        let destroy = request::gpgpuGreenCtxDestroy { green: GREEN };
        let ending = thread::spawn(move || run(session, destroy, 0));
        assert!(!double::is_called("cuGreenCtxDestroy", A_WHILE));
        drop(held);
        assert_eq!(launching.join().unwrap(), CUDA_SUCCESS);
        assert_eq!(ending.join().unwrap(), CUDA_SUCCESS);
        assert_eq!(double::wrong(), [""; 0]);
        rig.works(create(GREEN, SPLIT, &[0]), 0);
        stream_again(&rig, own);
        double::forget_calls();
    }
    // A wait for an event of the primary context, while the green one is current.
    let held = double::hold("cuEventSynchronize");
    let wait = request::cuEventSynchronize {
        hEvent: rig.events[0],
    };
    let waiting = thread::spawn(move || run(session, wait, GREEN));
    held.wait();
    let destroy = request::gpgpuGreenCtxDestroy { green: GREEN };
    let ending = thread::spawn(move || run(session, destroy, 0));
    assert!(!double::is_called("cuGreenCtxDestroy", A_WHILE));
    drop(held);
    assert_eq!(waiting.join().unwrap(), CUDA_SUCCESS);
    assert_eq!(ending.join().unwrap(), CUDA_SUCCESS);
    assert_eq!(double::wrong(), [""; 0]);
}

fn stream_again(rig: &Rig, id: u64) {
    assert_eq!(stream(rig, id >> 8, GREEN), id);
}

#[test]
fn two_threads_end_one_green_context_and_one_succeeds() {
    let rig = rig();
    let session = rig.session;
    let held = double::hold("cuCtxSynchronize");
    let end = move || run(session, request::gpgpuGreenCtxDestroy { green: GREEN }, 0);
    let threads = [thread::spawn(end), thread::spawn(end)];
    held.wait();
    drop(held);
    let mut codes = threads.map(|thread| thread.join().unwrap());
    codes.sort_unstable();
    assert_eq!(codes, [CUDA_SUCCESS, CUDA_ERROR_INVALID_CONTEXT]);
    assert_eq!(double::calls("cuGreenCtxDestroy"), 1);
    assert_eq!(double::wrong(), [""; 0]);
}

#[test]
fn a_primary_context_ends_after_its_green_ones() {
    let rig = rig();
    let session = rig.session;
    rig.works(create(OTHER, SPLIT, &[1]), 0);
    let own = stream(&rig, 20, OTHER);
    rig.works(request::cuDevicePrimaryCtxRelease_v2 { dev: 0 }, 0);
    let calls = double::all_calls();
    let at = |name| calls.iter().rposition(|called| *called == name);
    assert_eq!(double::calls("cuGreenCtxDestroy"), 2);
    assert!(at("cuGreenCtxDestroy") < at("cuDevicePrimaryCtxRelease_v2"));
    let of = |id| session.objects.live_context_of(id);
    assert_eq!([GREEN, OTHER, own].map(of), [None; 3]);
    let module = object_id::<Module>(1);
    assert_eq!(
        of(module),
        None,
        "what is in the primary context has gone with it"
    );
    let said = run(session, create(GREEN, SPLIT, &[0]), 0);
    assert_eq!(
        said, CUDA_ERROR_INVALID_CONTEXT,
        "there is no primary context"
    );
    assert_eq!(double::wrong(), [""; 0]);
}
