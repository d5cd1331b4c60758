// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Resets, stops of rings and ends of connections: they are answered only once nothing writes to the guest's memory.

use std::{
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

use gpgpu_protocol::layout::{
    COMMAND_QUEUE, CONTROL_QUEUE, Config, EVENT_QUEUE, NUM_QUEUES, control, status,
};
use vhost_user_backend::{VhostUserBackend, VringT};
use vm_memory::{Bytes, GuestAddress, GuestAddressSpace};
use vmm_sys_util::epoll::EventSet;

use super::{Copying, GUEST_BYTES, RING_BYTES, Rig, USED, header};
use crate::{
    backend::{
        ring::Ring,
        vhost_user::{self, Backend},
        vm::Vm,
    },
    ipc::{
        self, ToWorker,
        device::{ToDevice, ToSupervisor},
        mover::{FromMover, MoverEnd, ToMover},
    },
};

/// A reset waits for moves and for running workers. A worker that has ended sends nothing more.
#[test]
fn a_reset_waits_for_moves_but_not_for_an_ended_worker() {
    for (gone, closed, done) in [
        (true, false, true),
        (true, false, false),
        (true, true, true),
        (false, false, true),
        (false, true, false),
    ] {
        let mut copying = Copying::new();
        if gone {
            copying.rig.worker_exits(copying.client);
        }
        if closed {
            copying.close();
        }
        copying.rig.vm.reset();
        assert!(copying.rig.vm.movers.busy() && copying.rig.vm.is_leaving());
        copying.moves_end(done);
        assert!(!copying.rig.vm.movers.busy());
        assert_eq!(copying.rig.vm.is_leaving(), !gone, "{closed} {done}");
        copying.rig.worker_exits(copying.client);
        assert!(!copying.rig.vm.is_leaving());
        let used = copying.rig.used(COMMAND_QUEUE);
        assert_eq!(used, 0, "what was before the reset is the driver's no more");
    }
}

/// Longer than a device takes that answers without waiting. A loaded machine delays an answer, so it cannot make the
/// test fail.
const NO_ANSWER: Duration = Duration::from_secs(6);
/// A watchdog for events that never come, not a measurement.
const WATCHDOG: Duration = Duration::from_secs(60);

/// The VMM's requests after which nothing may write to the guest's memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Asks {
    Reset,
    StopOfTheRing,
    /// As Cloud Hypervisor does when it pauses a VM.
    RingsDisabled,
    EndOfTheConnection,
}

/// Makes the request in a thread of its own, which returns the answer.
fn ask(vm: Vm, rings: &[Ring; NUM_QUEUES], what: Asks) -> mpsc::Receiver<Backend> {
    let (answered, answer) = mpsc::channel();
    let rings = rings.clone();
    thread::spawn(move || {
        let backend = Backend::new(vm, Config::current()).unwrap();
        kick(&backend, &rings);
        match what {
            Asks::Reset => backend.reset_device(),
            Asks::StopOfTheRing => backend.stop_vring(COMMAND_QUEUE as u32).unwrap(),
            // The command queue first: chains that complete on a ring that still runs are returned.
            Asks::RingsDisabled => [COMMAND_QUEUE, CONTROL_QUEUE, EVENT_QUEUE]
                .iter()
                .for_each(|&queue| rings[queue].set_enabled(false)),
            Asks::EndOfTheConnection => vhost_user::finish(&mut backend.lock()),
        }
        let _ = answered.send(backend);
    });
    answer
}

/// Kicks all rings, or reports as the library does that they were enabled.
fn kick(backend: &Backend, rings: &[Ring; NUM_QUEUES]) {
    for queue in 0..NUM_QUEUES as u16 {
        let event = backend.handle_event(queue, EventSet::IN, rings, 0);
        event.unwrap();
    }
}

const ALL: [Asks; 4] = [
    Asks::Reset,
    Asks::StopOfTheRing,
    Asks::RingsDisabled,
    Asks::EndOfTheConnection,
];

/// Runs the test for all of them in parallel, because each takes a while.
fn at_once(all: &[Asks], test: impl Fn(Asks) + Sync) {
    thread::scope(|scope| {
        for &what in all {
            let test = &test;
            scope.spawn(move || test(what));
        }
    });
}

/// The request to the supervisor to end a worker.
fn close(client: u32, kill: bool) -> ToSupervisor {
    ToSupervisor::CloseWorker { client, kill }
}

const LAST_WRITE: u64 = GUEST_BYTES - 8;

/// A reset, the stop or disabling of a ring after a client was closed, and the end of a connection are answered once
/// the worker has ended, however long that takes: until then it may write to the guest's memory. GPGPU-DEV-8.
#[test]
fn a_reset_is_answered_after_the_last_write_of_a_worker() {
    at_once(&ALL, |what| {
        let is_stop = matches!(what, Asks::StopOfTheRing | Asks::RingsDisabled);
        let mut rig = Rig::new();
        let (client, worker) = rig.served();
        if is_stop {
            // As a driver does before it resets the device.
            rig.send(CONTROL_QUEUE, &header(control::CLOSE, client), 0);
        }
        while rig
            .next()
            .is_some_and(|asked| asked != close(client, false))
        {}
        let answer = ask(rig.vm, &rig.rings, what);
        // The device closes the channel, and the supervisor ends the worker.
        assert!(matches!(worker.recv(), Ok(None) | Err(ipc::Error::Closed)));
        let early = answer.recv_timeout(NO_ANSWER);
        assert!(early.is_err(), "{what:?} is answered while the worker runs");
        if !is_stop {
            let close = close(client, what == Asks::Reset);
            assert_eq!(rig.supervisor.recv().unwrap(), Some(close));
        }

        let guest = rig.memory.memory();
        guest.write_obj(1u64, GuestAddress(LAST_WRITE)).unwrap();
        let (code, signal) = (0, 9);
        let exited = ToDevice::WorkerExited {
            client,
            code,
            signal,
        };
        rig.supervisor.send(&exited).unwrap();
        let backend = answer.recv_timeout(WATCHDOG).expect("no answer");
        assert!(!backend.lock().is_ending(), "{what:?}");
    });
}

/// A reset, the stop or disabling of a ring and the end of a connection are answered once the mover has ended the move
/// in flight, and the mover is told to begin no others. GPGPU-DEV-8.
#[test]
fn a_reset_is_answered_after_the_last_write_of_a_mover() {
    at_once(&ALL, |what| {
        let Copying {
            mut rig,
            client,
            mover,
            seq,
            ..
        } = Copying::new();
        rig.worker_exits(client);
        let answer = ask(rig.vm, &rig.rings, what);
        let mut buffer = Vec::new();
        let told = std::iter::from_fn(|| mover.recv(&mut buffer).ok());
        let cancelled = told.into_iter().any(|told| matches!(told, ToMover::Cancel));
        assert!(cancelled, "{what:?}");
        let early = answer.recv_timeout(NO_ANSWER);
        assert!(early.is_err(), "{what:?} is answered while data moves");

        let guest = rig.memory.memory();
        guest.write_obj(1u64, GuestAddress(LAST_WRITE)).unwrap();
        mover.send(FromMover::Moved { seq, done: false });
        let backend = answer.recv_timeout(WATCHDOG).expect("no answer");
        assert!(!backend.lock().is_ending(), "{what:?}");
        let used = rig
            .memory
            .memory()
            .read_obj::<u16>(GuestAddress(COMMAND_QUEUE as u64 * RING_BYTES + USED + 2));
        assert_eq!(used.unwrap(), 0, "{what:?}: nothing is written to the ring");
    });
}

/// A mover that sends an invalid message, or that leaves by itself, continues to serve others. Its report that it has
/// left promises that it writes no more. If its channel closes without that report, the process may have ended with
/// copies in flight. GPGPU-DEV-8.
#[test]
fn a_reset_is_answered_once_an_abandoned_mover_has_left() {
    type End = fn(&MoverEnd);
    let nonsense: End = |mover| {
        let (seq, done) = (99, true);
        mover.send(FromMover::Moved { seq, done });
    };
    for (end, leaves) in [
        (nonsense, true),
        (nonsense, false),
        (MoverEnd::stop_hearing, true),
        (MoverEnd::stop_hearing, false),
    ] {
        let Copying {
            mut rig,
            client,
            mover,
            ..
        } = Copying::new();
        rig.worker_exits(client);
        end(&mover);
        rig.hear();
        rig.vm.reset();
        assert!(rig.vm.is_leaving());
        if !leaves {
            mover.close();
            rig.hear();
            rig.vm.tick(Instant::now());
            assert!(rig.vm.is_leaving(), "its process may still copy");
            let told = ToDevice::MoverExited { gpu: 0 };
            rig.supervisor.send(&told).unwrap();
        }
        let answer = ask(rig.vm, &rig.rings, Asks::Reset);
        if leaves {
            mover.leave();
        }
        let backend = answer.recv_timeout(WATCHDOG).expect("no answer");
        assert!(!backend.lock().is_ending());
    }
}

/// The moves of a mover that has left go through the staging area, and another channel is requested and taken.
#[test]
fn a_mover_that_has_left_is_asked_for_again() {
    let mut copying = Copying::new();
    while copying.rig.next().is_some() {}
    copying.mover.leave();
    copying.rig.hear();
    assert!(!copying.rig.vm.movers.busy());
    let staged = copying.worker.recv();
    let seq = match staged {
        Ok(Some(ToWorker::Command { seq, .. })) => seq,
        other => panic!("{other:?}"),
    };
    assert_ne!(seq, copying.seq);
    copying.rig.vm.want_mover(1);
    let asked: Vec<_> = std::iter::from_fn(|| copying.rig.next()).collect();
    let again = [0, 1].map(|gpu| ToSupervisor::StartMover { gpu });
    assert_eq!(asked, again);
    let rig = &mut copying.rig;
    // The end of the process that has left does not affect its successor.
    rig.vm.supervisor_says(ToDevice::MoverExited { gpu: 0 });
    let (ours, channel) = ipc::pair().unwrap();
    rig.vm
        .supervisor_says(ToDevice::MoverStarted { gpu: 0, channel });
    let next = MoverEnd::new(ours);
    next.send(FromMover::Ready);
    rig.hear();
    assert!(rig.vm.movers.any_ready());
}

/// If a driver starts again without an announcement by its VMM, it gets no answers until its predecessor's requests
/// have ended, and then gets all of them. The VMM never waits for this. GPGPU-DEV-8.
#[test]
fn a_new_driver_is_answered_once_the_old_ones_workers_have_ended() {
    let mut rig = Rig::new();
    let (client, _worker) = rig.served();
    rig.vm.reset();
    let before = rig.used(CONTROL_QUEUE);
    let answer = rig.send(CONTROL_QUEUE, &header(control::CLOSE, client), 0);
    rig.vm.settle();
    rig.vm.tick(Instant::now() + Duration::from_secs(600));
    assert_eq!(
        rig.used(CONTROL_QUEUE),
        before,
        "answered while the worker runs"
    );
    assert!(rig.asked.lock().clock);
    let asked: Vec<_> = std::iter::from_fn(|| rig.next()).collect();
    assert!(asked.contains(&close(client, true)), "{asked:?}");

    rig.worker_exits(client);
    rig.vm.settle();
    assert_eq!(rig.used(CONTROL_QUEUE), before + 1);
    assert_eq!(rig.status(answer), status::NO_CLIENT);
}
