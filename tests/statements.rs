// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The specification's statements about commands, tested with a real worker: each test names its statements.
//!
//! The back end is the real one, as in `tests/hostile.rs`, on the software GPU or, with `VIRTIO_GPGPU_TEST_GPU=cuda`,
//! on a GPU.

#[path = "common/client.rs"]
// Some of it is only for the tests of hostile guests.
#[allow(dead_code)]
mod client;
mod common;
#[path = "common/guest/mod.rs"]
#[allow(dead_code)]
mod guest;
#[path = "common/hosts/neighbour.rs"]
#[allow(dead_code)]
mod host;
#[path = "common/tracer.rs"]
mod tracer;

use std::{
    sync::{atomic::Ordering, mpsc},
    time::{Duration, Instant},
};

use gpgpu_protocol::{
    api::{Operation, Request, request},
    codec::Blob,
    cuda::*,
    layout::{COMMAND_QUEUE, CommandAnswer, status},
    ring::{COMMAND_BYTES, COMMAND_OFFSET, RING_BYTES, SLOT_BYTES, SLOT_OFFSET},
    with_api,
};
use vhost::vhost_user::VhostUserFrontend;
use vm_memory::{Bytes, GuestAddress};
use zerocopy::IntoBytes;

use client::{Client, command, raw_command};
use common::LIMIT;
use guest::{Guest, Vmm};
use host::Host;
use tracer::Tracer;

const MIB: u64 = 1 << 20;
/// The guest address of the ring.
const RING: u64 = 32 * MIB;
const TAIL: u64 = 128;
/// The offset of an answer in its slot.
const ANSWER: u64 = 128;
fn vmm() -> Vmm {
    Vmm {
        regions: vec![(0, 64 * MIB, 0)],
        ..Vmm::qemu()
    }
}

/// Data for the guest is written whether or not an answer is requested, by the staging area and, if there is one, by
/// the mover. An error without an answer is kept, and `out` does not change. GPGPU-DEV-30, GPGPU-DEV-36, GPGPU-DEV-62.
#[test]
fn data_comes_without_an_answer() {
    let Some(host) = Host::start() else { return };
    let mut guest = host.boot(0, vmm());
    let mut client = Client::open(&mut guest);
    let context = client.context();
    let (small, large) = (16usize, 1usize << 20);
    let address = client.alloc(large, context);
    let data: Vec<u8> = (0..large).map(|at| (at * 7 / 3) as u8).collect();
    let copy_in = request::gpgpuCopyIn {
        dst: address,
        hStream: 0,
        synchronous: true,
    };
    client.works(&copy_in, context, &data, 0);
    let copy_out = |src| command(&request::gpgpuCopyOut { src, hStream: 0 }, context);
    for bytes in [small, large] {
        let used = client.used(&copy_out(address), 0, bytes as u64);
        let head: CommandAnswer = used.head();
        assert_eq!(
            (head.status.get(), head.answer_bytes.get()),
            (status::OK, 0)
        );
        assert_eq!(used.len as usize, 8 + bytes);
        assert!(used.bytes[8..] == data[..bytes], "{bytes} bytes");

        // An unallocated address.
        let used = client.used(&copy_out(1 << 60), 0, bytes as u64);
        assert_eq!((used.status(), used.len), (status::OK, 8));
        let (code, _) = client.call(&request::cuCtxSynchronize {}, context, &[], 0);
        assert_eq!(code, CUDA_ERROR_INVALID_VALUE, "{bytes} bytes");
        // It is reported only once.
        client.works(&request::cuCtxSynchronize {}, context, &[], 0);

        // An answer for which there is no room.
        let used = client.used(&copy_out(address), 4, bytes as u64);
        assert_eq!((used.status(), used.len), (status::LIMIT, 8));
    }
    client.close();
}

macro_rules! elsewhere {
    ($($(#[doc = $doc:literal])* $op:literal $completion:ident $style:ident $name:ident $($per_thread:ident)? ($($arg:ident : $ty:ty),*) $($is:ident)*;)*) => {
        /// The operations that a ring, or a wide ring, does not accept.
        fn elsewhere(is_wide: bool) -> Vec<(u16, &'static str)> {
            let all = [$(<request::$name as Request>::OPERATION),*];
            let rings = |of: &Operation| if is_wide { of.rings_wide } else { of.rings };
            let elsewhere = all.into_iter().filter(|of| !rings(of));
            elsewhere.map(|of| (of.op, of.name)).collect()
        }
    };
}

with_api!(elsewhere);

/// A client's ring, written by hand.
struct RawRing<'a, 'b> {
    client: &'b mut Client<'a>,
    tail: u64,
    sequence: u32,
}

impl<'a, 'b> RawRing<'a, 'b> {
    fn new(client: &'b mut Client<'a>) -> Self {
        client.guest().write(RING, &vec![0; RING_BYTES]);
        client.share_ring(RING, RING_BYTES as u64);
        Self {
            client,
            tail: 0,
            sequence: 0,
        }
    }

    /// Executes a stream, and returns its result.
    fn result(&mut self, stream: &[u8]) -> CUresult {
        self.sequence += 1;
        let bytes = 16 + stream.len() as u64;
        assert!(
            self.tail + bytes <= COMMAND_BYTES as u64,
            "the test needs a longer ring"
        );
        let place = RING + COMMAND_OFFSET as u64 + self.tail;
        let slot = self.sequence % 64;
        let sequence = self.sequence;
        let record = [bytes as u32, slot, sequence, 1];
        let guest = self.client.guest();
        guest.write(place, record.as_bytes());
        guest.write(place + 16, stream);
        self.tail += bytes;
        let tail = GuestAddress(RING + TAIL);
        guest
            .memory
            .store(self.tail, tail, Ordering::SeqCst)
            .unwrap();
        let wake = command(&request::gpgpuRingWake {}, 0);
        assert_eq!(self.client.raw(&wake, 16, &[], 0).0, status::OK);

        let guest = self.client.guest();
        let slot = RING + (SLOT_OFFSET + slot as usize * SLOT_BYTES) as u64;
        let deadline = Instant::now() + LIMIT;
        let state = || {
            guest
                .memory
                .load::<u32>(GuestAddress(slot), Ordering::SeqCst)
        };
        while state().unwrap() != sequence {
            assert!(Instant::now() < deadline, "no answer in the ring");
            std::thread::yield_now();
        }
        guest.memory.read_obj(GuestAddress(slot + ANSWER)).unwrap()
    }
}

/// A record with an operation that the ring does not accept is an error, and does nothing: a success means that a
/// command was executed. The records after it are executed. GPGPU-DEV-63, GPGPU-DEV-73.
#[test]
fn a_record_that_may_not_travel_by_the_ring_is_an_error() {
    let Some(host) = Host::start() else { return };
    let mut guest = host.boot(0, vmm());
    let mut client = Client::open(&mut guest);
    let context = client.context();
    let address = client.alloc(4096, context);
    let mut ring = RawRing::new(&mut client);
    let query = command(&request::cuStreamQuery { hStream: 0 }, context);
    assert_eq!(ring.result(&query), CUDA_SUCCESS);
    let whole = [
        // With data besides the stream, which a record cannot have.
        command(
            &request::gpgpuCopyOut {
                src: address,
                hStream: 0,
            },
            context,
        ),
        command(
            &request::gpgpuCopyIn {
                dst: address,
                hStream: 0,
                synchronous: true,
            },
            context,
        ),
        command(&request::gpgpuImageWrite { image: 1, bytes: 0 }, context),
        // Commands that may block.
        command(&request::cuMemFree_v2 { dptr: address }, context),
        command(
            &request::cuMemsetD8_v2 {
                dstDevice: address,
                uc: 1,
                N: 1,
            },
            context,
        ),
        // Commands that concern the client itself, and commands with an answer of unlimited length.
        command(&request::gpgpuHello { hello: true }, context),
        command(&request::gpgpuRingAfter { position: 0 }, context),
        command(
            &request::gpgpuErrorText {
                code: 1,
                text: true,
            },
            context,
        ),
    ];
    for stream in &whole {
        assert_eq!(ring.result(stream), CUDA_ERROR_INVALID_VALUE, "{stream:x?}");
        // The same after another command, or before one.
        let first = [&query[..], stream].concat();
        assert_eq!(ring.result(&first), CUDA_ERROR_INVALID_VALUE, "{stream:x?}");
        let last = [stream, &query[..]].concat();
        assert_eq!(ring.result(&last), CUDA_ERROR_INVALID_VALUE, "{stream:x?}");
    }
    let all = elsewhere(false);
    assert!(all.len() > whole.len());
    for (op, name) in all {
        let code = ring.result(&raw_command(op, context, &[]));
        assert_eq!(code, CUDA_ERROR_INVALID_VALUE, "{name}");
    }
    // A wide ring accepts commands that may block, and none of the others.
    ring.client.widen_ring();
    for (op, name) in elsewhere(true) {
        let code = ring.result(&raw_command(op, context, &[]));
        assert_eq!(code, CUDA_ERROR_INVALID_VALUE, "{name}");
    }
    let fill = request::cuMemsetD8_v2 {
        dstDevice: address,
        uc: 9,
        N: 64,
    };
    let fill = command(&fill, context);
    for stream in [fill.clone(), [&fill[..], &fill[..]].concat()] {
        assert_eq!(ring.result(&stream), CUDA_SUCCESS);
    }
    let copy = request::gpgpuCopyOut {
        src: address,
        hStream: 0,
    };
    assert_eq!(ring.client.works(&copy, context, &[], 64).1, [9; 64]);
    // The memory still exists, and commands that the ring accepts work.
    let write = request::gpgpuWrite {
        dst: address,
        hStream: 0,
        bytes: Blob(vec![7; 64]),
    };
    assert_eq!(ring.result(&command(&write, context)), CUDA_SUCCESS);
    assert_eq!(client.works(&copy, context, &[], 64).1, [7; 64]);
    client.close();
}

/// The range of a client's ring stays registered until the client ends.
/// GPGPU-DEV-53.
#[test]
fn the_memory_of_a_ring_is_not_unregistered() {
    let Some(host) = Host::start() else { return };
    let mut guest = host.boot(0, vmm());
    let mut client = Client::open(&mut guest);
    client.share_ring(RING, RING_BYTES as u64);
    let id = client.id();
    // The first region of the client.
    assert_eq!(client.guest().unregister(id, 1), status::BAD_ADDRESS);
    let mut buffer = client.guest().alloc(4096);
    buffer &= !4095;
    let other = client
        .guest()
        .register(id, 1 << 45, 4096, &[(buffer, 4096)]);
    assert_eq!(client.guest().unregister(id, other.unwrap()), status::OK);
    client.close();
}

/// Not a test: the program of [`Tracer`].
#[test]
fn tracer() {
    if let Ok(held) = std::env::var(tracer::HELD) {
        tracer::run(&held);
    }
}

/// A VMM's request before its guest gets its memory back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Asks {
    Reset,
    /// The driver closes its client and then resets the device, which the VMM reports only by stopping a ring.
    StopOfARing,
}

/// A reset, and the stop of a ring after a client was closed, are answered once the worker has ended, and not while it
/// hangs: until then it may write to the guest's registered memory. The log names it. Other VMs continue. GPGPU-DEV-8,
/// GPGPU-DEV-65.
#[test]
fn a_worker_that_cannot_be_ended_keeps_a_reset_from_being_answered() {
    let Some(host) = Host::start() else { return };
    let neighbour = host.neighbour();
    let workers = host.workers();
    for (number, what) in [Asks::Reset, Asks::StopOfARing].into_iter().enumerate() {
        let mut guest = host.boot(0, vmm());
        let mut client = Client::open(&mut guest);
        client.context();
        let (at, address) = (RING, 1u64 << 45);
        let id = client.id();
        let registered = client.guest().register(id, address, 4096, &[(at, 4096)]);
        registered.expect("not registered");
        let worker = host.worker_of(0, number);
        let Some(mut tracer) = Tracer::new(worker, address) else {
            return eprintln!("skipped: no process may trace another here");
        };
        let (answered, answer) = mpsc::channel();
        let memory = guest.memory.clone();
        let vmm = std::thread::spawn(move || {
            ask(&mut guest, id, what);
            let _ = answered.send(());
            guest
        });
        tracer.holds();
        let line = host.logged(|line| line.contains(&format!("worker {worker} was killed")));
        assert!(line.contains("has not exited"), "{line}");
        // By now a device that does not wait for the end would have answered.
        let early = answer.recv_timeout(Duration::from_secs(2));
        assert!(
            early.is_err(),
            "{what:?} is answered while a worker may write"
        );
        tracer.let_go();
        answer.recv_timeout(LIMIT).expect("no answer");
        let last: u64 = memory.read_obj(GuestAddress(at)).unwrap();
        assert_eq!(
            last,
            tracer::LAST_WORD,
            "{what:?}: the last write came before"
        );
        assert_eq!(host.workers(), workers, "{what:?}: it is gone");
        drop(vmm.join().unwrap());
    }
    neighbour.finish();
}

fn ask(guest: &mut Guest, client: u32, what: Asks) {
    if what == Asks::Reset {
        guest.frontend.reset_device().unwrap();
        // The request has no answer, but the next one has.
        guest.frontend.get_queue_num().unwrap();
        return;
    }
    guest.post_control(Guest::close_request(client).as_bytes());
    // Its commands are answered when it is killed, before its worker has ended.
    while guest
        .command(client, &command(&request::gpgpuRingWake {}, 0), 16, &[], 0)
        .0
        != status::CLIENT_DEAD
    {}
    guest.stop_ring(COMMAND_QUEUE);
}
