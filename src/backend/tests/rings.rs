// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Rings that a VMM stops, disables and starts again, and memory that it removes.

use std::{
    os::fd::IntoRawFd,
    sync::{Arc, mpsc},
    thread,
    time::Duration,
};

use gpgpu_protocol::layout::{
    COMMAND_QUEUE, CONTROL_QUEUE, Config, EVENT_QUEUE, NUM_QUEUES, control,
};
use vhost_user_backend::{VhostUserBackend, VringT};
use virtio_bindings::virtio_ring::VRING_DESC_F_WRITE;
use vm_memory::{Bytes, GuestAddress, GuestAddressSpace, GuestMemoryMmap};
use vmm_sys_util::{
    epoll::EventSet,
    event::{EventFlag, new_event_consumer_and_notifier},
};

use super::{AVAIL, Copying, GUEST_BYTES, HEAP, RING_BYTES, Rig, USED, guest_memory, header, ring};
use crate::{
    backend::{
        queue::{Answer, Queue, Restart},
        ring::Ring,
        vhost_user::{self, Backend},
    },
    ipc::{
        device::{ToDevice, ToSupervisor},
        mover::{FromMover, ToMover},
    },
};

/// The guest address of the buffer for an event.
const HEAP_OF_EVENTS: u64 = GUEST_BYTES - 4096;
/// A watchdog for events that never come, not a measurement.
const WATCHDOG: Duration = Duration::from_secs(60);

fn kick(backend: &Backend, rings: &[Ring; NUM_QUEUES], queue: usize) {
    let event = backend.handle_event(queue as u16, EventSet::IN, rings, 0);
    event.unwrap();
}

/// A ring whose indices wrap to 0 just as it is stopped, with a chain in flight: the device tells a ring that continues
/// at 0 from one that a new driver has set up.
#[test]
fn a_ring_that_is_stopped_at_index_0_goes_on() {
    for goes_on in [true, false] {
        let memory = guest_memory();
        let guest = memory.memory();
        let ring = ring(&memory, 0);
        ring.set_queue_next_avail(u16::MAX);
        ring.set_queue_next_used(u16::MAX);
        guest.write_obj(HEAP, GuestAddress(0)).unwrap();
        guest.write_obj(8u32, GuestAddress(8)).unwrap();
        guest.write_obj(0u16, GuestAddress(AVAIL + 2)).unwrap();
        let mut queue = Queue::new(COMMAND_QUEUE);
        assert_eq!(queue.attach(&ring), Restart::None);
        let chain = queue.pop(&memory).expect("no chain");
        ring.set_queue_ready(false);
        queue.stop();
        assert_eq!(ring.queue_next_avail(), 0);

        ring.set_queue_next_avail(0);
        ring.set_queue_next_used(if goes_on { u16::MAX } else { 0 });
        ring.set_queue_ready(true);
        let expected = if goes_on {
            Restart::None
        } else {
            Restart::Reset
        };
        assert_eq!(queue.attach(&ring), expected);
        if goes_on {
            queue.complete(chain, Answer::None);
            let used: u16 = guest.read_obj(GuestAddress(USED + 2)).unwrap();
            assert_eq!((used, queue.outstanding()), (0, 0));
        }
    }
}

/// If a VMM starts a ring at another index than it was stopped at, the ring is a new one: otherwise the chains in
/// flight would be returned twice.
#[test]
fn a_ring_that_goes_on_elsewhere_is_a_new_one() {
    let memory = guest_memory();
    let ring = ring(&memory, 0);
    ring.set_queue_next_avail(7);
    ring.set_queue_next_used(5);
    let mut queue = Queue::new(CONTROL_QUEUE);
    queue.attach(&ring);
    for (available, used, expected) in [
        (7, 5, Restart::None),
        (5, 5, Restart::Reset),
        (7, 6, Restart::Reset),
        (7, 6, Restart::None),
    ] {
        ring.set_queue_ready(false);
        queue.stop();
        assert_eq!(queue.attach(&ring), Restart::None, "it does not run");
        ring.set_queue_next_avail(available);
        ring.set_queue_next_used(used);
        ring.set_queue_ready(true);
        assert_eq!(queue.attach(&ring), expected, "{available} {used}");
        assert_eq!(queue.attach(&ring), Restart::None, "a kick");
        if expected == Restart::Reset {
            queue.reset();
        }
    }
}

/// While a ring is disabled no move begins. Finished moves are reported once it is enabled.
#[test]
fn chains_that_a_pause_has_held_come_after_it() {
    let Copying {
        rig,
        mover,
        seq,
        worker: _worker,
        ..
    } = Copying::new();
    let Rig {
        vm, rings, memory, ..
    } = rig;
    let used = || {
        let at = GuestAddress(COMMAND_QUEUE as u64 * RING_BYTES + USED + 2);
        memory.memory().read_obj::<u16>(at).unwrap()
    };
    let backend = Arc::new(Backend::new(vm, Config::current()).unwrap());
    for queue in 0..NUM_QUEUES {
        kick(&backend, &rings, queue);
    }
    let (paused, is_paused) = mpsc::channel();
    let vmm = rings.clone();
    thread::spawn(move || {
        // The command queue first: chains that complete on a ring that still runs are returned.
        vmm.iter()
            .rev()
            .skip(1)
            .for_each(|ring| ring.set_enabled(false));
        paused.send(()).unwrap();
    });
    let mut buffer = Vec::new();
    let told = std::iter::from_fn(|| mover.recv(&mut buffer).ok());
    let cancelled = told.into_iter().any(|told| matches!(told, ToMover::Cancel));
    assert!(cancelled);
    assert!(is_paused.try_recv().is_err());
    mover.send(FromMover::Moved { seq, done: true });
    is_paused.recv_timeout(WATCHDOG).expect("no answer");
    assert_eq!(used(), 0);
    for (queue, ring) in rings.iter().enumerate() {
        ring.set_enabled(true);
        kick(&backend, &rings, queue);
    }
    assert_eq!(used(), 1);
}

/// Chains of another ring that complete while a ring is being stopped are announced before the VMM is answered.
#[test]
fn an_event_that_comes_while_a_ring_is_stopped_is_announced() {
    let mut rig = Rig::new();
    let (closing, _worker) = rig.served();
    while rig.next().is_some() {}
    let (dying, _other) = rig.served();
    let base = EVENT_QUEUE as u64 * RING_BYTES;
    rig.write(&HEAP_OF_EVENTS, base);
    rig.write(&16u32, base + 8);
    rig.write(&(VRING_DESC_F_WRITE as u16), base + 12);
    rig.make_available(EVENT_QUEUE, 1);
    rig.send(CONTROL_QUEUE, &header(control::CLOSE, closing), 0);
    let (called, call) = new_event_consumer_and_notifier(EventFlag::NONBLOCK).unwrap();
    // SAFETY: no other code has the descriptor.
    let call = unsafe { std::os::fd::FromRawFd::from_raw_fd(call.into_raw_fd()) };
    rig.rings[EVENT_QUEUE].set_call(Some(call));
    for client in [dying, closing] {
        let (code, signal) = (0, 9);
        let exited = ToDevice::WorkerExited {
            client,
            code,
            signal,
        };
        rig.supervisor.send(&exited).unwrap();
    }
    let backend = Backend::new(rig.vm, Config::current()).unwrap();
    rig.rings[COMMAND_QUEUE].set_queue_ready(false);
    backend.stop_vring(COMMAND_QUEUE as u32).unwrap();
    assert!(called.consume().is_ok(), "no notification");
}

/// After the end of its connection a device takes no chains, even if its guest continues and kicks.
#[test]
fn a_connection_that_has_ended_takes_no_chain() {
    let mut rig = Rig::new();
    let (client, _worker) = rig.served();
    rig.worker_exits(client);
    while rig.next().is_some() {}
    let before = rig.used(CONTROL_QUEUE);
    let backend = Backend::new(rig.vm, Config::current()).unwrap();
    vhost_user::finish(&mut backend.lock());
    let entry = u64::from(rig.made_available[CONTROL_QUEUE]);
    let guest = rig.memory.memory();
    let available = GuestAddress(AVAIL + 2);
    guest.write_obj((entry + 1) as u16, available).unwrap();
    for queue in 0..NUM_QUEUES {
        kick(&backend, &rig.rings, queue);
    }
    backend
        .handle_event(vhost_user::AGAIN_EVENT, EventSet::IN, &rig.rings, 0)
        .unwrap();
    assert_eq!(backend.lock().queues[CONTROL_QUEUE].outstanding(), 0);
    let used: u16 = guest.read_obj(GuestAddress(USED + 2)).unwrap();
    assert_eq!(used, before);
    assert_eq!(rig.supervisor.recv().unwrap(), None::<ToSupervisor>);
}

/// An idle mover forgets memory that the VMM has removed, once the last chain that lies in it was returned.
#[test]
fn a_mover_lets_go_of_memory_that_was_removed() {
    let Copying {
        mut rig,
        mover,
        seq,
        worker: _worker,
        ..
    } = Copying::new();
    // All memory, as by a VMM that sends the same memory table again: the rings are at the same addresses.
    let other = GuestMemoryMmap::clone(&guest_memory().memory());
    rig.memory.lock().unwrap().replace(other);
    rig.vm.memory_changed(rig.memory.clone());
    rig.vm.settle();
    rig.vm.cancel_moves();
    let mut buffer = Vec::new();
    let told = mover.recv(&mut buffer);
    assert!(
        matches!(told, Ok(ToMover::Cancel)),
        "a move is under way in it"
    );
    mover.send(FromMover::Moved { seq, done: true });
    rig.hear();
    rig.vm.settle();
    // No other request precedes this one.
    rig.vm.finish();
    let told = mover.recv(&mut buffer);
    assert!(
        matches!(told, Ok(ToMover::Forget { number: 0 })),
        "{told:?}"
    );
}
