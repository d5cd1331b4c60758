// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Bounds on a client's objects, sizes and unfinished work.

use gpgpu_protocol::{
    api::{Event, Stream, object_id, request},
    codec::Blob,
    cuda::*,
    layout::{COMMAND_QUEUE, CONTROL_QUEUE, MAX_DATA_BYTES, MAX_RUNS, status},
};

use crate::{
    MIB,
    client::{Client, command},
    guest::Guest,
    host::{Host, on_gpu},
    vmm,
};

/// Annex A, A.4: `out` of an operation that returns no data keeps nothing of an earlier command.
#[test]
fn operations_without_output_write_none() {
    let Some(host) = Host::start() else { return };
    let mut guest = host.boot(0, vmm());
    let mut client = Client::open(&mut guest);
    let context = client.context();
    let secret = [0x5a_u8; 4096];
    let at = client.alloc(secret.len(), context);
    let fill = request::cuMemsetD8_v2 {
        dstDevice: at,
        uc: secret[0],
        N: secret.len(),
    };
    client.works(&fill, context, &[], 0);
    let copy = command(
        &request::gpgpuCopyOut {
            src: at,
            hStream: 0,
        },
        context,
    );
    let (status, _, out) = client.raw(&copy, 64, &[], secret.len() as u64);
    assert_eq!((status, &out[..]), (status::OK, &secret[..]));
    let synchronize = command(&request::cuCtxSynchronize {}, context);
    for answer in [0, 64] {
        let used = client.used(&synchronize, answer, secret.len() as u64);
        assert_eq!(used.status(), status::OK);
        assert!(used.len <= 8 + answer, "{} bytes", used.len);
    }
}

/// An unlimited number of objects, and sizes that no host has.
#[test]
fn pitfall_73_the_resources_of_a_client_are_bounded() {
    let Some(host) = Host::start() else { return };
    let neighbour = host.neighbour();
    let mut guest = host.boot(0, vmm());
    let before = host.memory();
    let mut client = Client::open(&mut guest);
    let context = client.context();
    // Many in each chain; only the last one is answered, and the next command that synchronises reports an error of the
    // others.
    let make = |client: &mut Client<'_>, count: u64, one: &dyn Fn(u64) -> Vec<u8>| {
        let mut failed = 0;
        let mut serial = 1000;
        while serial < 1000 + count {
            let mut stream = Vec::new();
            while stream.len() < 60_000 && serial < 1000 + count {
                stream.extend(one(serial));
                serial += 1;
            }
            let (status, answer, _) = client.raw(&stream, 64, &[], 0);
            assert_eq!(status, status::OK);
            if u32::from_le_bytes(answer[..4].try_into().unwrap()) != CUDA_SUCCESS {
                failed += 1;
            }
        }
        failed
    };
    let event = |serial| {
        let id = object_id::<Event>(serial);
        command(
            &request::cuEventCreate {
                phEvent: id,
                Flags: CU_EVENT_DISABLE_TIMING,
            },
            context,
        )
    };
    assert_eq!(
        make(&mut client, 10_000, &event),
        0,
        "a program may have 10,000 events"
    );
    let stream = |serial| {
        let id = object_id::<Stream>(serial);
        command(
            &request::cuStreamCreateWithPriority {
                phStream: id,
                flags: 1,
                priority: 0,
            },
            context,
        )
    };
    let (count, most) = if on_gpu() { (1000, 0) } else { (20_000, 1000) };
    let failed = make(&mut client, count, &stream);
    assert!(
        failed <= most && (on_gpu() || failed > 0),
        "{failed} of {count} streams"
    );
    // No such allocation, image or registration is made; each is answered with an error.
    let sync = command(&request::cuCtxSynchronize {}, context);
    client.raw(&sync, 64, &[], 0);
    for bytesize in [usize::MAX, 1 << 62, 1 << 45, usize::MAX - 511] {
        let alloc = request::cuMemAlloc_v2 {
            dptr: true,
            bytesize,
        };
        let (code, _) = client.call(&alloc, context, &[], 0);
        assert!(code != CUDA_SUCCESS, "{bytesize:#x} bytes");
    }
    for bytes in [u64::MAX, 1 << 62, 3 << 30] {
        let write = request::gpgpuImageWrite { image: 5, bytes };
        let (code, _) = client.call(&write, context, &[7; 64], 0);
        assert_ne!(code, CUDA_SUCCESS, "an image of {bytes:#x} bytes");
    }
    // As many images as can be begun, each with a size that is never sent.
    for image in 100..1300 {
        let bytes = 1 << 20;
        client.call(
            &request::gpgpuImageWrite { image, bytes },
            context,
            &[7; 64],
            0,
        );
    }
    client.close();
    // Registrations with very many runs of the same page.
    let client = Client::open(&mut guest).id();
    let runs = vec![(0u64, 4096u64); MAX_RUNS];
    let request = Guest::register_request(client, 1 << 40, (MAX_RUNS as u64) << 12, &runs);
    let mark = guest.alloc(0);
    let at = guest.alloc(request.len());
    guest.write(at, &request);
    for round in 0..40u64 {
        guest.write(at + 8, &((1 << 40) + (round << 30)).to_le_bytes());
        let answer = guest.alloc(8);
        guest.push_parts(CONTROL_QUEUE, &[(at, request.len() as u32)], &[(answer, 8)]);
    }
    guest.kick(CONTROL_QUEUE);
    guest.wait_order(CONTROL_QUEUE, 40);
    guest.forget_buffers(mark);
    assert_eq!(guest.close(client), status::OK);
    host.check_memory(&before, 256 * MIB);
    neighbour.finish();
}

/// Endless work behind a blocked stream: the worker does not store all of it.
#[test]
fn pitfall_73_work_behind_a_blocked_stream_is_bounded() {
    let Some(host) = Host::start() else { return };
    let neighbour = host.neighbour();
    let mut guest = host.boot(0, vmm());
    let mut client = Client::open(&mut guest);
    let context = client.context();
    let before = host.memory();
    let address = client.alloc(1 << 20, context);
    let gate = client.block(context);
    let mut posted = Vec::new();
    // 60 KiB each, by the command queue without an answer; the queue's descriptors limit their number.
    let mark = client.guest().alloc(0);
    let write = request::gpgpuWrite {
        dst: address,
        hStream: 0,
        bytes: Blob(vec![3; 60 << 10]),
    };
    let bytes = command(&write, context);
    for _ in 0..if on_gpu() { 20 } else { 300 } {
        client.guest().forget_buffers(mark);
        posted.push(client.post(&bytes, 0));
    }
    let data = vec![5; MAX_DATA_BYTES];
    let copy = request::gpgpuCopyIn {
        dst: address,
        hStream: 0,
        synchronous: false,
    };
    let copy = command(&copy, context);
    for _ in 0..2 {
        posted.push(client.post_data(&copy, 16, &data[..1 << 20]));
    }
    host.check_memory(&before, 160 * MIB);
    client.unblock(gate);
    for head in posted {
        let status = client.guest().wait(COMMAND_QUEUE, head).status();
        assert_eq!(status, status::OK);
    }
    client.close();
    neighbour.finish();
}
