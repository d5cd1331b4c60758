// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Hostile guests: at the virtqueues, in the ring that they share with their worker, and through the API itself.
//! Another VM of the same host computes all the time, and the memory and the log of every process of the host stay
//! within bounds.
//!
//! The supervisor, the device processes and the workers are the real ones, on the software GPU: the one in the
//! directory that `VIRTIO_GPGPU_STAGE` names, or the one that was built with this program. If there is none, these
//! tests print that they have nothing to run on. With `VIRTIO_GPGPU_TEST_GPU=cuda` they run on a GPU.

#[path = "hostile/attack.rs"]
mod attack;
#[path = "hostile/bounds.rs"]
mod bounds;
#[path = "common/client.rs"]
mod client;
mod common;
#[path = "hostile/descriptors.rs"]
mod descriptors;
#[path = "hostile/gates.rs"]
mod gates;
#[path = "common/guest/mod.rs"]
// Some of it is only for the device's tests.
#[allow(dead_code)]
mod guest;
#[path = "common/hosts/neighbour.rs"]
mod host;
#[path = "hostile/jpegs.rs"]
mod jpegs;
#[path = "hostile/libraries.rs"]
mod libraries;
#[path = "hostile/load.rs"]
mod load;
#[path = "hostile/mappings.rs"]
mod mappings;
#[path = "hostile/recordings.rs"]
mod recordings;
#[path = "hostile/shares.rs"]
mod shares;
#[path = "hostile/solvers.rs"]
mod solvers;
#[path = "hostile/structured.rs"]
mod structured;

use std::time::Instant;

use gpgpu_protocol::{
    api::{Context, Event, Function, Library, Module, Stream, object_id, request},
    codec::Blob,
    cuda::*,
    layout::{COMMAND_QUEUE, CONTROL_QUEUE, CommandHeader, status},
    ring::{COMMAND_OFFSET, RING_BYTES},
};
use vm_memory::{Bytes, GuestAddress};
use zerocopy::IntoBytes;

use client::{Client, command};
use guest::Vmm;
use host::{Host, Random, on_gpu};

const MIB: u64 = 1 << 20;

fn vmm() -> Vmm {
    Vmm {
        regions: vec![(0, 64 * MIB, 0)],
        ..Vmm::qemu()
    }
}

/// The most log lines that a VM can have caused since then: a burst from each of its sources, and then a few per
/// second, with a line that counts the dropped ones.
fn most_lines(since: Instant) -> usize {
    72 + 4 * since.elapsed().as_secs() as usize
}

/// Invalid requests, as fast as they can be made: each is answered, few are logged, and nothing stays behind.
#[test]
fn pitfall_81_floods_of_nonsense_cost_a_few_lines() {
    let Some(host) = Host::start() else { return };
    let neighbour = host.neighbour();
    let mut guest = host.boot(0, vmm());
    let id = guest.open();
    let mark = guest.alloc(0);
    let before = host.memory();
    let lines = host.lines();
    let mut random = Random(1);
    for round in 0..4000 {
        guest.forget_buffers(mark);
        // Arbitrary bytes, then requests with arbitrary fields.
        let length = random.below(120) as usize;
        let mut bytes = random.bytes(length);
        if round % 2 == 0 && length >= 8 {
            bytes[..4].copy_from_slice(&(random.below(6) as u32).to_le_bytes());
            bytes[4..8].copy_from_slice(&id.to_le_bytes());
            // Keep the client that is still needed.
            if bytes[0] == 2 {
                bytes[4] ^= 0x80;
            }
        }
        guest.control(&bytes);
        let header = CommandHeader {
            client: (if round % 3 == 0 {
                id
            } else {
                random.next() as u32
            })
            .into(),
            thread: (random.next() as u32).into(),
            stream_bytes: random.size().into(),
            answer_bytes: random.size().into(),
            in_bytes: u64::from(random.size()).into(),
            out_bytes: u64::from(random.size()).into(),
            data_offset: random.next().into(),
        };
        let (readable, writable) = (random.below(300) as u32, 8 + random.below(300) as u32);
        let head = guest.post_sizes(&header, readable, writable);
        guest.wait(COMMAND_QUEUE, head);
    }
    // Chains that loop or do not exist, and an available index that is too far ahead.
    for round in 0..200u16 {
        guest.forget_buffers(mark);
        let at = guest.alloc(64);
        let head = guest.push_raw(COMMAND_QUEUE, &[(at, 56, 0)], vec![]);
        guest.loop_descriptor(COMMAND_QUEUE, head);
        guest.kick(COMMAND_QUEUE);
        guest.wait(COMMAND_QUEUE, head);
        guest.make_available(COMMAND_QUEUE, 0xff00 | round);
        let index = guest.avail(CONTROL_QUEUE);
        guest.break_available(CONTROL_QUEUE, index.wrapping_add(2000 + round));
        guest.kick(CONTROL_QUEUE);
        guest.break_available(CONTROL_QUEUE, index);
    }
    guest.forget_buffers(mark);
    assert_eq!(guest.close(id), status::OK);
    assert!(host.lines() - lines < 64, "{} lines", host.lines() - lines);
    host.check_memory(&before, 64 * MIB);
    neighbour.finish();
}

/// A VM that connects again and again, and sends invalid messages each time: the limit of lines is the VM's, however
/// often it connects.
#[test]
fn connecting_again_does_not_bring_more_lines() {
    let Some(host) = Host::start() else { return };
    let neighbour = host.neighbour();
    let lines = host.lines();
    let begin = Instant::now();
    let connections = 60;
    for _ in 0..connections {
        let mut guest = host.boot(0, vmm());
        for _ in 0..30 {
            assert_eq!(guest.control(&[0xff; 8]).status(), status::UNKNOWN_REQUEST);
        }
    }
    let lines = host.lines() - lines;
    assert!(
        lines < most_lines(begin),
        "{lines} lines in {:?}",
        begin.elapsed()
    );
    neighbour.finish();
}

/// Every operation with handles that are stale, of another kind, or never existed, and with sizes and addresses at
/// every edge.
#[test]
fn pitfall_63_wild_handles_and_sizes_find_nothing() {
    let Some(host) = Host::start() else { return };
    let neighbour = host.neighbour();
    let mut guest = host.boot(0, vmm());
    let lines = host.lines();
    let mut random = Random(2);
    let mut died = 0;
    for _ in 0..if on_gpu() { 2 } else { 3 } {
        let mut client = Client::open(&mut guest);
        let pool = client.handles();
        for _ in 0..600 {
            let bytes = random.command(&pool);
            let (status, _, _) = client.raw(&bytes, 4096, &[], 0);
            if status == status::CLIENT_DEAD {
                // A fault of a kernel or of the driver, which costs the guest's own process, as natively.
                died += 1;
                break;
            }
        }
        client.close();
    }
    // No request of a guest may end the software GPU.
    assert!(on_gpu() || died == 0, "{died} workers died");
    assert!(host.lines() - lines < 64, "{} lines", host.lines() - lines);
    neighbour.finish();
}

/// A guest continues to write to its ring while its worker reads it.
#[test]
fn pitfall_81_a_ring_that_is_rewritten_costs_its_own_client() {
    let Some(host) = Host::start() else { return };
    let neighbour = host.neighbour();
    let mut guest = host.boot(0, vmm());
    let before = host.memory();
    let lines = host.lines();
    let mut random = Random(3);
    let ring = 32 * MIB;
    let good = [
        command(&request::gpgpuHello { hello: true }, 0),
        command(&request::cuStreamQuery { hStream: 0 }, 0),
        command(
            &request::gpgpuWrite {
                dst: 1 << 44,
                hStream: 0,
                bytes: Blob(vec![1; 64]),
            },
            0,
        ),
    ]
    .concat();
    for round in 0..8 {
        guest.write(ring, &vec![0; RING_BYTES]);
        let mut client = Client::open(&mut guest);
        client.share_ring(ring, RING_BYTES as u64);
        let guest = client.guest();
        let mut tail = 0u64;
        for step in 0..3000u64 {
            let at = ring + COMMAND_OFFSET as u64 + random.below(4096);
            match random.below(if round < 4 { 3 } else { 5 }) {
                // A record, usually a valid one.
                0 | 1 => {
                    let place = ring + COMMAND_OFFSET as u64 + tail % (256 << 10);
                    let bytes = 16 + good.len() as u64;
                    let slot = random.below(70) as u32;
                    let record = [bytes as u32, slot, step as u32 + 1, 7];
                    if tail % (256 << 10) + bytes <= 256 << 10 {
                        guest.write(place, record.as_bytes());
                        guest.write(place + 16, &good);
                        tail += bytes;
                    }
                }
                2 => guest.write(at & !7, &random.bytes(16)),
                3 => tail = tail.wrapping_add(random.below(300_000)),
                _ => tail = tail.wrapping_sub(random.below(64) * 8),
            }
            let index = GuestAddress(ring + 128);
            guest
                .memory
                .store(tail, index, std::sync::atomic::Ordering::SeqCst)
                .unwrap();
        }
        // The worker may have given up the ring by now, and with it its client.
        let (status, _, _) = client.raw(&command(&request::gpgpuRingWake {}, 0), 16, &[], 0);
        assert!(
            [status::OK, status::CLIENT_DEAD].contains(&status),
            "{status}"
        );
        client.close();
    }
    assert!(host.lines() - lines < 80, "{} lines", host.lines() - lines);
    host.check_memory(&before, 64 * MIB);
    neighbour.finish();
}

/// Clients that are opened and closed all the time: no process, descriptor or memory stays behind.
#[test]
fn opening_and_closing_all_the_time_leaves_nothing_behind() {
    let Some(host) = Host::start() else { return };
    let neighbour = host.neighbour();
    let mut guest = host.boot(0, vmm());
    let workers = host.workers();
    let mark = guest.alloc(0);
    let id = guest.open();
    guest.close(id);
    host.wait_for_workers(workers);
    let (before, files) = (host.memory(), host.files());
    let (lines, begin) = (host.lines(), Instant::now());
    for _ in 0..4 {
        guest.forget_buffers(mark);
        let opens: Vec<u16> = (0..10).map(|_| guest.post_open()).collect();
        // Open all of them first: the number of a returned chain is reused.
        let ids: Vec<u32> = opens
            .into_iter()
            .map(|open| {
                let answer = guest.wait(CONTROL_QUEUE, open);
                assert_eq!(answer.status(), status::OK);
                u32::from_le_bytes(answer.bytes[4..8].try_into().unwrap())
            })
            .collect();
        for id in ids {
            assert_eq!(guest.close(id), status::OK);
        }
    }
    // Only the neighbour's own worker is left.
    host.wait_for_workers(workers);
    host.wait_for_files(files);
    let lines = host.lines() - lines;
    assert!(
        lines < most_lines(begin),
        "{lines} lines in {:?}",
        begin.elapsed()
    );
    host.check_memory(&before, 32 * MIB);
    neighbour.finish();
}

/// A thread of a guest destroys objects that its other threads use. The driver gets no destroyed object, no thread
/// waits forever, and the client survives.
#[test]
#[allow(non_snake_case)]
fn pitfall_63_a_thread_can_destroy_objects_that_another_uses() {
    let Some(host) = Host::start() else { return };
    let neighbour = host.neighbour();
    let mut guest = host.boot(0, vmm());
    let mut client = Client::open(&mut guest);
    let context = client.context();
    let mark = client.guest().alloc(0);
    let gate = client.block(context);
    // Each waits for the legacy stream, in its own thread.
    let (hStream, hEvent) = (object_id::<Stream>(7), object_id::<Event>(7));
    let make = request::cuStreamCreate {
        phStream: hStream,
        Flags: 0,
    };
    client.works(&make, context, &[], 0);
    let make = request::cuEventCreate {
        phEvent: hEvent,
        Flags: CU_EVENT_DISABLE_TIMING,
    };
    client.works(&make, context, &[], 0);
    client.works(&request::cuEventRecord { hEvent, hStream }, context, &[], 0);
    let waits = [
        command(&request::cuStreamSynchronize { hStream }, context),
        command(&request::cuEventSynchronize { hEvent }, context),
    ];
    let waits = waits.map(|wait| client.post(&wait, 16));
    let kept = client.guest().alloc(0);
    // Neither answer is waited for.
    let destroy = |client: &mut Client<'_>| {
        let stream = command(&request::cuStreamDestroy_v2 { hStream }, context);
        let event = command(&request::cuEventDestroy_v2 { hEvent }, context);
        [stream, event].map(|ends| client.post(&ends, 16))
    };
    for head in destroy(&mut client) {
        let used = client.guest().wait(COMMAND_QUEUE, head);
        assert_eq!(used.status(), status::OK);
    }
    client.guest().forget_buffers(kept);
    let done = command(&request::gpgpuCallbackDone { callback: gate }, 0);
    let done = client.post(&done, 16);
    for head in waits.into_iter().chain([done]) {
        let used = client.guest().wait(COMMAND_QUEUE, head);
        assert_eq!(used.status(), status::OK);
    }
    // The same in random order, many times.
    for round in 0..if on_gpu() { 50 } else { 300 } {
        client.guest().forget_buffers(mark);
        let ctx = object_id::<Context>(100 + round);
        let make = request::cuCtxCreate_v2 {
            pctx: ctx,
            flags: 0,
            dev: 0,
        };
        let is_own = round % 8 == 0;
        let context = if is_own { ctx } else { context };
        if is_own {
            client.works(&make, 0, &[], 0);
        }
        client.guest().forget_buffers(mark);
        let (hStream, hEvent) = (
            object_id::<Stream>(100 + round),
            object_id::<Event>(100 + round),
        );
        let (phStream, phEvent) = (hStream, hEvent);
        let make = [
            command(&request::cuStreamCreate { phStream, Flags: 1 }, context),
            command(&request::cuEventCreate { phEvent, Flags: 2 }, context),
            command(&request::cuEventRecord { hEvent, hStream }, context),
        ];
        let mut streams = vec![
            make.concat(),
            command(&request::cuEventSynchronize { hEvent }, context),
            command(&request::cuStreamSynchronize { hStream }, context),
            command(&request::cuCtxSynchronize {}, context),
        ];
        if is_own {
            streams.push(command(&request::cuCtxDestroy_v2 { ctx }, 0));
        }
        streams.extend([
            command(&request::cuStreamDestroy_v2 { hStream }, context),
            command(&request::cuEventDestroy_v2 { hEvent }, context),
        ]);
        let posted: Vec<_> = (streams.iter())
            .map(|stream| client.post(stream, 16))
            .collect();
        for head in posted {
            let used = client.guest().wait(COMMAND_QUEUE, head);
            assert_eq!(used.status(), status::OK, "round {round}");
        }
    }
    let sync = request::cuCtxSynchronize {};
    client.guest().forget_buffers(mark);
    // A stale object is reported once.
    client.call(&sync, context, &[], 0);
    client.works(&sync, context, &[], 0);
    client.close();
    neighbour.finish();
}

/// A context is destroyed while a thread waits for endless work in it. CUDA does not define the result for that thread;
/// here it costs only the client, after some seconds.
#[test]
fn pitfall_63_a_context_destroyed_under_a_waiting_thread_costs_its_client() {
    let Some(host) = Host::start() else { return };
    let neighbour = host.neighbour();
    let mut guest = host.boot(0, vmm());
    let mut client = Client::open(&mut guest);
    let ctx = object_id::<Context>(2);
    let make = request::cuCtxCreate_v2 {
        pctx: ctx,
        flags: 0,
        dev: 0,
    };
    client.works(&make, 0, &[], 0);
    client.block(ctx);
    let waits = command(&request::cuCtxSynchronize {}, ctx);
    let destroys = command(&request::cuCtxDestroy_v2 { ctx }, 0);
    let both = [waits, destroys].map(|stream| client.post(&stream, 16));
    for head in both {
        let used = client.guest().wait(COMMAND_QUEUE, head);
        assert_eq!(used.status(), status::CLIENT_DEAD);
    }
    client.close();
    // The VM continues.
    let mut next = Client::open(&mut guest);
    next.context();
    next.close();
    neighbour.finish();
}

/// A function from a library's module is destroyed with the library.
#[test]
fn pitfall_63_functions_of_a_librarys_module_end_with_the_library() {
    let Some(host) = Host::start() else { return };
    let mut guest = host.boot(0, vmm());
    let mut client = Client::open(&mut guest);
    let context = client.context();
    let (library, module, function) = (
        object_id::<Library>(1),
        object_id::<Module>(1),
        object_id::<Function>(1),
    );
    let load = request::cuLibraryLoadData {
        library,
        image: 0,
        options: Vec::new(),
        eager: false,
        log: false,
    };
    let ptx =
        b".version 6.4\n.target sm_70\n.address_size 64\n.visible .entry nothing() { ret; }\n";
    client.works(&load, context, ptx, 0);
    client.works(
        &request::cuLibraryGetModule { module, library },
        context,
        &[],
        0,
    );
    let find = request::cuModuleGetFunction {
        function,
        hmod: module,
        name: "nothing".into(),
        info: true,
    };
    client.works(&find, context, &[], 0);
    let ask = request::cuFuncIsLoaded {
        state: true,
        function,
    };
    client.works(&ask, context, &[], 0);
    client.works(&request::cuLibraryUnload { library }, context, &[], 0);
    let (code, _) = client.call(&ask, context, &[], 0);
    assert_eq!(code, CUDA_ERROR_INVALID_HANDLE);
    let unload = request::cuModuleUnload { hmod: module };
    let (code, _) = client.call(&unload, context, &[], 0);
    assert_eq!(code, CUDA_ERROR_INVALID_HANDLE);
    client.close();
}
