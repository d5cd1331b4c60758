// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Requests that a correct driver never makes.

use gpgpu_protocol::{
    api,
    layout::{
        COMMAND_QUEUE, CONTROL_QUEUE, ControlHeader, MAX_ANSWER_BYTES, MAX_DATA_BYTES,
        MAX_STREAM_BYTES, VERSION, status,
    },
};
use vm_memory::{Bytes, GuestAddress};
use zerocopy::IntoBytes;

use super::{
    guest::{Guest, Vmm},
    host::{Host, echoes},
    worker::OFFSET,
};

/// GPGPU-DEV-11, GPGPU-DEV-14, GPGPU-DEV-17, GPGPU-DEV-26, GPGPU-DEV-64.
#[test]
fn requests_that_make_no_sense() {
    let host = Host::new("normal");
    let mut guest = host.boot(Vmm::qemu());
    let client = guest.open();
    let header = |kind: u32, client: u32| ControlHeader {
        kind: kind.into(),
        client: client.into(),
    };
    for (request, expected) in [
        (header(99, client).as_bytes(), status::UNKNOWN_REQUEST),
        (header(0, client).as_bytes(), status::UNKNOWN_REQUEST),
        (&b""[..], status::MALFORMED),
        (&b"\x02\0\0\0"[..], status::MALFORMED),
        (header(1, 0).as_bytes(), status::MALFORMED),
        (header(3, client).as_bytes(), status::MALFORMED),
        (header(4, client).as_bytes(), status::MALFORMED),
        (header(2, 99).as_bytes(), status::NO_CLIENT),
        (
            Guest::unregister_request(client, 7).as_bytes(),
            status::BAD_ADDRESS,
        ),
        (
            Guest::unregister_request(99, 7).as_bytes(),
            status::NO_CLIENT,
        ),
    ] {
        assert_eq!(guest.control(request).status(), expected, "{request:?}");
    }
    // Clients get their numbers from the device.
    let mut open = Guest::open_request(VERSION, api::issued::FAMILY);
    open.header.client = 7.into();
    assert_eq!(guest.control(open.as_bytes()).status(), status::MALFORMED);
    // Without room for an answer, the chain is returned with nothing written.
    let at = guest.alloc(4096);
    for writable in [&[][..], &[(at + 64, 7)][..]] {
        let head = guest.push_parts(CONTROL_QUEUE, &[(at, 8)], writable);
        guest.kick(CONTROL_QUEUE);
        assert_eq!(guest.wait(CONTROL_QUEUE, head).len, 0);
    }
    echoes(&mut guest, client);
}

/// GPGPU-DEV-23, GPGPU-DEV-24, GPGPU-DEV-26, GPGPU-DEV-27.
#[test]
fn registrations_that_make_no_sense() {
    let host = Host::new("normal");
    let mut guest = host.boot(Vmm::cloud_hypervisor());
    let client = guest.open();
    let (page, at) = (4096, 0x7000_0000);
    let region = guest
        .register(client, at, page, &[(0x20_0000, page)])
        .unwrap();
    let top = 1u64 << 32;
    for (address, length, runs, expected) in [
        (at, page, &[(0x30_0000, page)][..], status::BAD_ADDRESS),
        (
            at - page,
            2 * page,
            &[(0x30_0000, 2 * page)],
            status::BAD_ADDRESS,
        ),
        (
            at + page,
            page,
            &[(top + (16 << 20), page)],
            status::BAD_ADDRESS,
        ),
        (
            at + page,
            2 * page,
            &[(top + (16 << 20) - page, 2 * page)],
            status::BAD_ADDRESS,
        ),
        (
            at + page,
            2 * page,
            &[(0x30_0000, page)],
            status::BAD_ADDRESS,
        ),
        (
            at + page,
            page,
            &[(u64::MAX - 4095, page)],
            status::BAD_ADDRESS,
        ),
        (
            u64::MAX - 4095,
            2 * page,
            &[(0x30_0000, 2 * page)],
            status::BAD_ADDRESS,
        ),
        (at + 1, page, &[(0x30_0000, page)], status::MALFORMED),
        (at + page, 100, &[(0x30_0000, 100)], status::MALFORMED),
        (at + page, page, &[(0x30_0001, page)], status::MALFORMED),
        (at + page, page, &[], status::MALFORMED),
    ] {
        assert_eq!(
            guest.register(client, address, length, runs),
            Err(expected),
            "{address:#x}"
        );
    }
    assert_eq!(
        guest.register(99, at, page, &[(0x20_0000, page)]),
        Err(status::NO_CLIENT)
    );
    // More runs than the request contains.
    let mut request = Guest::register_request(client, at + page, page, &[(0x30_0000, page)]);
    request[24] = 2;
    assert_eq!(guest.control(&request).status(), status::MALFORMED);
    request[24..28].copy_from_slice(&u32::MAX.to_le_bytes());
    assert_eq!(guest.control(&request).status(), status::LIMIT);

    assert_eq!(guest.unregister(client, region), status::OK);
    assert_eq!(
        guest.unregister(client, region),
        status::BAD_ADDRESS,
        "a stale region"
    );
    // The same range again: the failed request has left nothing behind.
    let again = guest
        .register(client, at, 2 * page, &[(0x20_0000, 2 * page)])
        .unwrap();
    assert_ne!(again, region);
}

/// Lengths that do not match the chain, and the limits, each next to a valid length. GPGPU-DEV-12, GPGPU-DEV-28.
#[test]
fn pitfall_81_lengths_are_held_against_the_chain() {
    let host = Host::new("normal");
    let mut guest = host.boot(Vmm::qemu());
    let client = guest.open();
    let h = |stream, answer, input, out| Guest::header(client, stream, answer, input, out);
    let most = MAX_DATA_BYTES as u64;
    for (header, readable, writable, expected) in [
        (h(16, 8, 0, 0), 56, 16, status::OK),
        (h(16, 8, 0, 0), 55, 16, status::MALFORMED),
        (h(16, 8, 0, 0), 56, 15, status::MALFORMED),
        (h(16, 8, 1, 0), 56, 16, status::MALFORMED),
        (h(16, 8, 0, 1), 56, 16, status::MALFORMED),
        (h(0, 8, 0, 0), 56, 16, status::MALFORMED),
        (h(16, 8, u64::MAX - 40, 0), 56, 16, status::LIMIT),
        (h(16, 8, 0, u64::MAX - 10), 56, 16, status::LIMIT),
        (h(16, 8, most + 1, 0), 56, 16, status::LIMIT),
        (h(16, 8, 0, most + 1), 56, 16, status::LIMIT),
        (h(16, u32::MAX, 0, 0), 56, 16, status::LIMIT),
        (
            h(16, MAX_ANSWER_BYTES as u32 + 1, 0, 0),
            56,
            16,
            status::LIMIT,
        ),
        (h(MAX_STREAM_BYTES + 1, 8, 0, 0), 56, 16, status::LIMIT),
        (h(u32::MAX as usize, 8, 0, 0), 56, 16, status::LIMIT),
        (h(16, 8, 0, 0), 39, 16, status::MALFORMED),
        (h(16, 8, 0, 0), 0, 16, status::MALFORMED),
        (Guest::header(99, 16, 8, 0, 0), 56, 16, status::NO_CLIENT),
        (Guest::header(0, 16, 8, 0, 0), 56, 16, status::NO_CLIENT),
    ] {
        let head = guest.post_sizes(&header, readable, writable);
        let used = guest.wait(COMMAND_QUEUE, head);
        assert_eq!(
            used.status(),
            expected,
            "{header:?} in {readable} and {writable}"
        );
    }
    let mut part = h(1, 8, 0, 0);
    part.data_offset = (1 << 40).into();
    let at = guest.alloc(64);
    guest
        .memory
        .write_slice(part.as_bytes(), GuestAddress(at))
        .unwrap();
    guest
        .memory
        .write_slice(&[OFFSET], GuestAddress(at + 40))
        .unwrap();
    let answer = guest.alloc(64);
    let head = guest.push_parts(COMMAND_QUEUE, &[(at, 41)], &[(answer, 16)]);
    guest.kick(COMMAND_QUEUE);
    let used = guest.wait(COMMAND_QUEUE, head);
    assert_eq!(used.bytes[8..16], (1u64 << 40).to_le_bytes());
    for writable in [0, 7] {
        let head = guest.post_sizes(&h(16, 8, 0, 0), 56, writable);
        assert_eq!(guest.wait(COMMAND_QUEUE, head).len, 0);
    }
    echoes(&mut guest, client);
}

/// Descriptors that loop, lie outside of memory or are in the wrong order do no harm. GPGPU-DEV-9, GPGPU-DEV-10,
/// GPGPU-DEV-50.
#[test]
fn pitfall_81_descriptors_that_make_no_sense() {
    let host = Host::new("normal");
    let mut guest = host.boot(Vmm::qemu());
    let client = guest.open();
    let header = Guest::header(client, 16, 8, 0, 0);
    let at = guest.alloc(4096);
    guest
        .memory
        .write_slice(header.as_bytes(), GuestAddress(at))
        .unwrap();
    let answer = at + 1024;
    let far = 1 << 40;
    for (readable, writable, expected) in [
        (
            vec![(at, 40), (far, 16)],
            vec![(answer, 16)],
            Some(status::BAD_ADDRESS),
        ),
        (
            vec![(far, 56)],
            vec![(answer, 16)],
            Some(status::BAD_ADDRESS),
        ),
        (vec![(at, 56)], vec![(answer, 8), (far, 8)], None),
        (vec![(at, 56)], vec![(far, 16)], None),
        (vec![(at, 56)], vec![(u64::MAX - 3, 16)], None),
        // Empty descriptors between others are ignored.
        (
            vec![(at, 20), (far, 0), (at + 20, 36)],
            vec![(answer, 0), (answer, 16)],
            Some(status::OK),
        ),
        (
            vec![(at, 56)],
            vec![(answer, u32::MAX), (answer, u32::MAX)],
            None,
        ),
    ] {
        let head = guest.push_parts(COMMAND_QUEUE, &readable, &writable[..]);
        // Do not keep gigabytes of written data.
        guest.kick(COMMAND_QUEUE);
        guest.trim(COMMAND_QUEUE, head, 64);
        let used = guest.wait(COMMAND_QUEUE, head);
        if let Some(expected) = expected {
            let bytes = used.bytes.clone();
            assert_eq!(
                used.status(),
                expected,
                "{readable:?} {writable:?} {bytes:?}"
            );
        }
    }
    // Readable after writable.
    let parts = [(answer, 16, 2), (at, 56, 0)];
    let head = guest.push_raw(COMMAND_QUEUE, &parts, vec![(answer, 16)]);
    guest.kick(COMMAND_QUEUE);
    assert_eq!(guest.wait(COMMAND_QUEUE, head).status(), status::MALFORMED);
    // A descriptor that is its own successor.
    let head = guest.push_raw(COMMAND_QUEUE, &[(at, 56, 0)], vec![]);
    guest.loop_descriptor(COMMAND_QUEUE, head);
    guest.kick(COMMAND_QUEUE);
    assert_eq!(guest.wait(COMMAND_QUEUE, head).len, 0);
    // Invalid heads, and an available index that is too far ahead.
    guest.make_available(COMMAND_QUEUE, 0xffff);
    guest.kick(COMMAND_QUEUE);
    echoes(&mut guest, client);
    let index = guest.avail(COMMAND_QUEUE);
    guest.break_available(COMMAND_QUEUE, index.wrapping_add(5000));
    guest.kick(COMMAND_QUEUE);
    guest.break_available(COMMAND_QUEUE, index);
    echoes(&mut guest, client);
    assert_eq!(guest.close(client), status::OK);
}

/// If an answer's status cannot be written, the used length is 0. If its other bytes cannot be written, the status
/// reports that. GPGPU-DEV-11, GPGPU-DEV-28, GPGPU-DEV-29.
#[test]
fn answers_that_cannot_be_written() {
    let host = Host::new("normal");
    let mut guest = host.boot(Vmm::qemu());
    let client = guest.open();
    let at = guest.alloc(4096);
    guest.write(at, Guest::header(client, 16, 8, 0, 0).as_bytes());
    guest.write(at + 512, Guest::close_request(99).as_bytes());
    let (answer, far) = (at + 1024, 1 << 40);
    for (queue, readable, writable, expected) in [
        (COMMAND_QUEUE, (at, 56), vec![(far, 16)], None),
        (COMMAND_QUEUE, (at, 56), vec![(u64::MAX - 3, 16)], None),
        (COMMAND_QUEUE, (at, 56), vec![(answer, 4), (far, 12)], None),
        (
            COMMAND_QUEUE,
            (at, 56),
            vec![(answer, 8), (far, 8)],
            Some(status::BAD_ADDRESS),
        ),
        (CONTROL_QUEUE, (at + 512, 8), vec![(far, 8)], None),
        (
            CONTROL_QUEUE,
            (at + 512, 8),
            vec![(answer, 4), (far, 4)],
            None,
        ),
    ] {
        let head = guest.push_parts(queue, &[readable], &writable);
        guest.kick(queue);
        let used = guest.wait(queue, head);
        match expected {
            Some(status) => assert_eq!((used.status(), used.len), (status, 8)),
            None => assert_eq!(used.len, 0, "{writable:?}"),
        }
    }
    echoes(&mut guest, client);
}

/// A head that is not a descriptor of the queue is skipped, and the next chain is served. GPGPU-DEV-10.
#[test]
fn heads_that_the_queue_does_not_have_are_skipped() {
    let host = Host::new("normal");
    let mut guest = host.boot(Vmm {
        queue_size: 16,
        ..Vmm::qemu()
    });
    let client = guest.open();
    for head in [16, 17, 0xffff] {
        let before = guest.used_index(COMMAND_QUEUE);
        guest.make_available(COMMAND_QUEUE, head);
        guest.kick(COMMAND_QUEUE);
        echoes(&mut guest, client);
        assert_eq!(guest.used_index(COMMAND_QUEUE), before + 1, "head {head}");
    }
}
