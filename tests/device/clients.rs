// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Several clients: their ends, their events, and their effects on each other.

use gpgpu_protocol::layout::{
    COMMAND_QUEUE, CONTROL_QUEUE, EVENT_QUEUE, MAX_STREAM_BYTES, event, status,
};
use nix::sys::signal::{Signal, kill};
use zerocopy::IntoBytes;

use super::{
    guest::{Guest, Vmm},
    host::{Host, dies, echoes, exists, pid_of, pid_of_worker},
    worker::{CRASH, ECHO, EXIT, HOLD, LIE, REFUSE, RELEASE, STUCK},
};

/// A worker that is killed costs only its own client. GPGPU-DEV-44, GPGPU-DEV-45, GPGPU-DEV-46.
#[test]
fn a_worker_that_dies_costs_its_client_alone() {
    let host = Host::new("normal");
    let mut guest = host.boot(Vmm::qemu());
    let (first, second) = (guest.open(), guest.open());
    let region = guest
        .register(first, 0x1000, 4096, &[(0x20_0000, 4096)])
        .unwrap();
    let event = guest.post_event_buffer(16);
    let held = guest.post(first, &[HOLD], 8, &[], 0);
    assert_eq!(dies(&mut guest, first, CRASH), status::CLIENT_DEAD);
    assert_eq!(
        guest.wait(COMMAND_QUEUE, held).status(),
        status::CLIENT_DEAD
    );
    let died = guest.event(event);
    assert_eq!(
        (died.kind.get(), died.client.get(), died.detail.get()),
        (event::CLIENT_DIED, first, libc::SIGSEGV as u32)
    );
    echoes(&mut guest, second);
    assert_eq!(
        guest.command(first, &[ECHO], 8, &[], 0).0,
        status::CLIENT_DEAD
    );
    assert_eq!(guest.unregister(first, region), status::CLIENT_DEAD);
    let again = guest.register(first, 0x4000, 4096, &[(0x20_0000, 4096)]);
    assert_eq!(again, Err(status::CLIENT_DEAD));
    assert_eq!(guest.close(first), status::OK);
    assert_eq!(guest.close(first), status::NO_CLIENT);
    assert_eq!(
        guest.command(first, &[ECHO], 8, &[], 0).0,
        status::NO_CLIENT
    );
    let third = guest.open();
    assert!(third != first && third != second);
    echoes(&mut guest, third);
}

/// An event waits for a buffer, and buffers that are too small are returned. GPGPU-DEV-42, GPGPU-DEV-43.
#[test]
fn events_wait_for_buffers() {
    let host = Host::new("normal");
    let mut guest = host.boot(Vmm::qemu());
    let clients = [guest.open(), guest.open(), guest.open()];
    assert_eq!(dies(&mut guest, clients[0], EXIT), status::CLIENT_DEAD);
    assert_eq!(
        guest.unregister(clients[0], 1),
        status::CLIENT_DEAD,
        "the worker is gone"
    );
    let small = guest.post_event_buffer(15);
    let buffers = [guest.post_event_buffer(16), guest.post_event_buffer(64)];
    assert_eq!(guest.wait(EVENT_QUEUE, small).len, 0);
    let died = guest.event(buffers[0]);
    assert_eq!((died.client.get(), died.detail.get()), (clients[0], 0));
    // The driver gets no event for a client that it has closed itself.
    assert_eq!(guest.close(clients[1]), status::OK);
    assert_eq!(dies(&mut guest, clients[2], LIE), status::CLIENT_DEAD);
    assert_eq!(guest.event(buffers[1]).client.get(), clients[2]);
}

/// Once a `CLOSE` is answered, the worker has ended and every command was returned. GPGPU-DEV-21, GPGPU-DEV-22.
#[test]
fn pitfall_88_close_is_answered_once_the_worker_is_gone() {
    for mode in ["normal", "stubborn"] {
        let host = Host::new(mode);
        let mut guest = host.boot(Vmm::qemu());
        let client = guest.open();
        let pid = pid_of(&mut guest, client);
        assert!(exists(pid));
        let held: Vec<u16> = (0..3)
            .map(|_| guest.post(client, &[HOLD], 8, b"data", 4))
            .collect();
        // The order between queues is undefined, so the commands must have arrived first.
        assert_eq!(pid_of(&mut guest, client), pid);
        assert_eq!(guest.close(client), status::OK);
        assert!(!exists(pid), "{mode}");
        for head in held {
            assert_eq!(
                guest.wait(COMMAND_QUEUE, head).status(),
                status::CLIENT_DEAD
            );
        }
    }
}

/// Memory that is being registered when the client dies belongs to the guest again only after the worker has ended.
/// GPGPU-DEV-44.
#[test]
fn pitfall_88_a_registration_outlives_a_dying_worker() {
    let host = Host::new("normal");
    let mut guest = host.boot(Vmm::qemu());
    let client = guest.open();
    let pid = pid_of(&mut guest, client);
    let stuck = guest.post(client, &[STUCK], 8, &[], 0);
    let barrier = guest.command(99, &[ECHO], 8, &[], 0).0;
    assert_eq!(barrier, status::NO_CLIENT);
    let request = Guest::register_request(client, 0x1000, 4096, &[(0x20_0000, 4096)]);
    let register = guest.post_control(&request);
    let close = guest.post_control(Guest::close_request(client).as_bytes());
    assert_eq!(
        guest.wait(COMMAND_QUEUE, stuck).status(),
        status::CLIENT_DEAD
    );
    assert_eq!(
        guest.wait(CONTROL_QUEUE, register).status(),
        status::CLIENT_DEAD
    );
    assert!(!exists(pid));
    assert_eq!(guest.wait(CONTROL_QUEUE, close).status(), status::OK);
}

/// More data than the staging area can hold: the rest waits, in order, and other clients do not.
#[test]
fn pitfall_82_full_staging_keeps_the_order() {
    let host = Host::new("normal");
    let mut guest = host.boot(Vmm::qemu());
    guest.indirect = true;
    let (first, second) = (guest.open(), guest.open());
    // Each needs two of sixteen blocks.
    let mut heads: Vec<u16> = (0..24u8)
        .map(|number| guest.post(first, &[HOLD, number], 8, &[number; 5000], 5000))
        .collect();
    echoes(&mut guest, second);
    guest.forget_order(COMMAND_QUEUE);
    // Blocks become free in pairs: this command comes after all of them, and needs its own block.
    for _ in 0..3 {
        heads.push(guest.post(first, &[ECHO, 99], 8, &[99; 5000], 5000));
    }
    let small = guest.post(first, &[RELEASE], 8, &[], 0);
    // A command without data waits behind those with data, so the worker must get its order in another way.
    let pid = pid_of_worker(&host, first);
    kill(pid, Signal::SIGKILL).unwrap();
    let order = guest.wait_order(COMMAND_QUEUE, heads.len() + 1);
    heads.push(small);
    assert_eq!(
        order, heads,
        "commands are given back in the order in which they came"
    );
    for head in heads {
        assert_eq!(
            guest.take(COMMAND_QUEUE, head).status(),
            status::CLIENT_DEAD
        );
    }
    // The same with a worker that continues: many more blocks than exist, all of which are executed in order.
    let heads: Vec<u16> = (0..40u8)
        .map(|number| guest.post(second, &[ECHO, number], 8, &[number; 9000], 9000))
        .collect();
    assert_eq!(guest.wait_order(COMMAND_QUEUE, heads.len()), heads);
    for (number, head) in heads.into_iter().enumerate() {
        let (status, answer, data) = guest.take(COMMAND_QUEUE, head).split(8);
        assert_eq!(
            (status, &answer[..]),
            (status::OK, &[ECHO, number as u8][..])
        );
        assert!(data.iter().all(|&byte| byte == number as u8));
    }
}

/// A worker that does not read fills its channel, and no other client is delayed.
#[test]
fn pitfall_82_a_full_channel_holds_up_its_own_client_alone() {
    let host = Host::new("normal");
    let mut guest = host.boot(Vmm::qemu());
    let (first, second) = (guest.open(), guest.open());
    let mut heads = vec![guest.post(first, &[STUCK], 8, &[], 0)];
    for _ in 0..60 {
        heads.push(guest.post(first, &vec![ECHO; MAX_STREAM_BYTES], 8, &[], 0));
    }
    for _ in 0..10 {
        echoes(&mut guest, second);
    }
    guest.forget_order(COMMAND_QUEUE);
    let close = guest.post_control(Guest::close_request(first).as_bytes());
    assert_eq!(guest.wait_order(COMMAND_QUEUE, heads.len()), heads);
    assert_eq!(guest.wait(CONTROL_QUEUE, close).status(), status::OK);
    echoes(&mut guest, second);
}

/// A worker's error is passed on, and data that the worker did not produce leaves the guest's buffer unchanged.
/// GPGPU-DEV-13, GPGPU-DEV-29, GPGPU-DEV-30.
#[test]
fn memory_that_a_failed_command_did_not_write_stays() {
    let host = Host::new("normal");
    let mut guest = host.boot(Vmm::qemu());
    let client = guest.open();
    let head = guest.post(client, &[REFUSE], 8, &[], 16);
    let used = guest.wait(COMMAND_QUEUE, head);
    assert_eq!((used.status(), used.len), (status::MALFORMED, 8));
    // Half of the room.
    let head = guest.post(client, &[ECHO, 1], 8, &[7; 8], 16);
    let used = guest.wait(COMMAND_QUEUE, head);
    assert_eq!(used.len, 8 + 8 + 8);
    let (status, answer, data) = used.split(8);
    assert_eq!((status, &answer[..]), (status::OK, &[ECHO, 1][..]));
    assert_eq!(&data[..], [7, 7, 7, 7, 7, 7, 7, 7, 0, 0, 0, 0, 0, 0, 0, 0]);
}
