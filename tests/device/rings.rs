// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The rings and the guest's memory: kicks, stops, resets and changes while commands are pending.

use gpgpu_protocol::layout::{COMMAND_QUEUE, CONTROL_QUEUE, EVENT_QUEUE, status};
use nix::sys::signal::{Signal, kill};
use vhost::vhost_user::VhostUserFrontend;
use vm_memory::{Bytes, GuestAddress, GuestMemoryBackend};
use zerocopy::IntoBytes;

use super::{
    guest::{Guest, Vmm},
    host::{Host, echoes, exists, pid_of, pidfd, wait_for_end},
    worker::{ECHO, HOLD, RELEASE},
};

/// If one descriptor is made available again and again, the device still holds no more chains than the ring has
/// entries. GPGPU-DEV-47.
#[test]
fn pitfall_73_chains_under_way_are_bounded() {
    let host = Host::new("normal");
    let mut guest = host.boot(Vmm {
        queue_size: 16,
        ..Vmm::qemu()
    });
    let client = guest.open();
    let held = guest.post(client, &[HOLD], 8, &[], 0);
    for _ in 0..14 {
        guest.make_available(COMMAND_QUEUE, held);
    }
    // Once this is returned, the device has taken the chains before it.
    let header = Guest::header(99, 16, 8, 0, 0);
    let refused = guest.post_sizes(&header, 56, 16);
    assert_eq!(
        guest.wait(COMMAND_QUEUE, refused).status(),
        status::NO_CLIENT
    );
    for _ in 0..16 {
        guest.make_available(COMMAND_QUEUE, held);
    }
    guest.kick(COMMAND_QUEUE);
    // The control queue is still served, and closing the client returns everything.
    assert_eq!(guest.close(client), status::OK);
    guest.wait_used(COMMAND_QUEUE, 32);
}

/// `EVENT_IDX`: a driver that kicks only when it is asked to never waits forever.
#[test]
fn pitfall_79_no_kick_is_lost() {
    let host = Host::new("normal");
    let mut guest = host.boot(Vmm {
        queue_size: 8,
        ..Vmm::qemu()
    });
    let client = guest.open();
    let header = Guest::header(client, 16, 8, 0, 0);
    let at = guest.alloc(64);
    let answer = guest.alloc(64);
    guest
        .memory
        .write_slice(header.as_bytes(), GuestAddress(at))
        .unwrap();
    guest
        .memory
        .write_slice(&[ECHO; 16], GuestAddress(at + 40))
        .unwrap();
    for round in 0..3000u32 {
        let mut heads = Vec::new();
        if round % 2 == 1 {
            // The device finds nothing, and must not miss a chain that arrives while it checks.
            guest.kick(COMMAND_QUEUE);
        }
        for _ in 0..1 + round % 4 {
            let before = guest.avail(COMMAND_QUEUE);
            heads.push(guest.push_parts(COMMAND_QUEUE, &[(at, 56)], &[(answer, 16)]));
            guest.kick_if_wanted(COMMAND_QUEUE, before);
        }
        for head in heads {
            assert_eq!(guest.wait(COMMAND_QUEUE, head).status(), status::OK);
        }
    }
}

/// A stopped ring is not written to, and pending answers are written when it runs again.
#[test]
fn pitfall_84_a_ring_that_is_stopped_and_goes_on() {
    let host = Host::new("normal");
    let mut guest = host.boot(Vmm::qemu());
    let client = guest.open();
    let held = guest.post(client, &[HOLD, 5], 8, b"before", 6);
    let released = guest.post(client, &[HOLD, 6], 8, &[], 0);
    let pid = pid_of(&mut guest, client);
    let base = guest.stop_ring(COMMAND_QUEUE);
    let written = guest.used_index(COMMAND_QUEUE);
    assert_eq!(base, guest.avail(COMMAND_QUEUE));
    // The worker dies, which completes its requests, and the device has noticed.
    kill(pid, Signal::SIGKILL).unwrap();
    let event = guest.post_event_buffer(16);
    assert_eq!(guest.event(event).client.get(), client);
    assert_eq!(guest.used_index(COMMAND_QUEUE), written);
    guest.start_ring(COMMAND_QUEUE, base);
    assert_eq!(
        guest.wait(COMMAND_QUEUE, held).status(),
        status::CLIENT_DEAD
    );
    assert_eq!(
        guest.wait(COMMAND_QUEUE, released).status(),
        status::CLIENT_DEAD
    );
    let other = guest.open();
    echoes(&mut guest, other);
}

/// A ring continues where it was stopped, even if its index is 0 again: a new driver's ring would be empty.
#[test]
fn pitfall_84_a_ring_that_is_stopped_at_a_wrapped_index_goes_on() {
    let host = Host::new("normal");
    let mut guest = host.boot(Vmm::qemu());
    let client = guest.open();
    let held = guest.post(client, &[HOLD], 8, &[], 0);
    let request = guest.alloc(64);
    let answer = guest.alloc(64);
    guest.write(request, Guest::header(99, 16, 8, 0, 0).as_bytes());
    while guest.avail(COMMAND_QUEUE) != 0 {
        let left = guest.avail(COMMAND_QUEUE).wrapping_neg();
        let heads: Vec<u16> = (0..left.min(256))
            .map(|_| guest.push_parts(COMMAND_QUEUE, &[(request, 56)], &[(answer, 16)]))
            .collect();
        guest.kick(COMMAND_QUEUE);
        for head in heads {
            let status = guest.wait(COMMAND_QUEUE, head).status();
            assert_eq!(status, status::NO_CLIENT);
        }
    }
    let bases = guest.stop_rings();
    assert_eq!(bases[COMMAND_QUEUE], 0);
    guest.start_rings(bases);
    let (status, ..) = guest.command(client, &[RELEASE], 8, &[], 0);
    assert_eq!(status, status::OK);
    assert_eq!(guest.wait(COMMAND_QUEUE, held).status(), status::OK);
    echoes(&mut guest, client);

    // Nothing is pending, and the index is not 0: this is a new driver.
    guest.stop_rings();
    guest.reset_driver();
    assert_eq!(guest.close(client), status::NO_CLIENT);
}

/// QEMU passes on any size that a driver chooses. With another size than the driver's, the device would write beyond
/// its ring.
#[test]
fn a_ring_whose_size_is_no_power_of_two_is_not_served() {
    let host = Host::new("normal");
    let mut guest = host.boot(Vmm::qemu());
    guest.stop_rings();
    guest.clear_driver();
    guest.start_ring_of(COMMAND_QUEUE, 1000);
    guest.start_ring(CONTROL_QUEUE, 0);
    guest.start_ring(EVENT_QUEUE, 0);
    let refused = Guest::header(99, 16, 8, 0, 0);
    let head = guest.post_sizes(&refused, 56, 16);
    // The control queue is still served.
    let client = guest.open();
    assert_eq!(guest.stop_ring(COMMAND_QUEUE), 0);
    assert_eq!(guest.used_index(COMMAND_QUEUE), 0);
    guest.start_ring(COMMAND_QUEUE, 0);
    assert_eq!(guest.wait(COMMAND_QUEUE, head).status(), status::NO_CLIENT);
    echoes(&mut guest, client);
}

/// After a reset, a guest has no former clients, whether or not it closed them. GPGPU-DEV-8.
#[test]
fn a_reset_ends_all_clients() {
    for told in [true, false] {
        let host = Host::new("normal");
        let mut guest = host.boot(Vmm::qemu());
        let client = guest.open();
        let pid = pid_of(&mut guest, client);
        guest.post(client, &[HOLD], 8, b"data", 4);
        for queue in 0..3 {
            guest.stop_ring(queue);
        }
        if told {
            guest.frontend.reset_device().unwrap();
            // The request has no answer, but the next one has.
            guest.frontend.get_queue_num().unwrap();
            assert!(!exists(pid));
        }
        guest.reset_driver();
        assert_eq!(guest.close(client), status::NO_CLIENT);
        assert!(
            !exists(pid),
            "a request of the new driver was answered before the worker was gone"
        );
        assert_eq!(
            guest.command(client, &[ECHO], 8, &[], 0).0,
            status::NO_CLIENT
        );
        assert_eq!(
            guest.used_index(COMMAND_QUEUE),
            1,
            "what was under way is forgotten"
        );
        let next = guest.open();
        assert_ne!(next, client);
        echoes(&mut guest, next);
    }
}

/// The VM disappears during a command: its workers end, and the socket serves the next VM.
#[test]
fn a_vm_that_disconnects_in_the_middle_of_a_command() {
    let host = Host::new("normal");
    let mut guest = host.boot(Vmm::qemu());
    let client = guest.open();
    let pid = pid_of(&mut guest, client);
    let pidfd = pidfd(pid);
    guest.post(client, &[HOLD], 8, b"data", 4);
    drop(guest);
    wait_for_end(&pidfd);
    let mut guest = host.boot(Vmm::cloud_hypervisor());
    let client = guest.open();
    echoes(&mut guest, client);
}

/// Memory is added and removed while a command is pending; the command uses the memory that existed when it arrived.
#[test]
fn memory_changes_while_a_command_is_under_way() {
    let host = Host::new("normal");
    let mut guest = host.boot(Vmm::cloud_hypervisor());
    let client = guest.open();
    let high = 1u64 << 32;
    let header = Guest::header(client, 16, 8, 0, 4);
    let at = guest.alloc(64);
    guest
        .memory
        .write_slice(header.as_bytes(), GuestAddress(at))
        .unwrap();
    guest
        .memory
        .write_slice(&[HOLD; 16], GuestAddress(at + 40))
        .unwrap();
    let head = guest.push_parts(COMMAND_QUEUE, &[(at, 56)], &[(high, 20)]);
    guest.kick(COMMAND_QUEUE);
    let pid = pid_of(&mut guest, client);
    let last = guest.memory.iter().last().unwrap();
    let info = vhost::VhostUserMemoryRegionInfo::from_guest_region(last).unwrap();
    guest.frontend.remove_mem_region(&info).unwrap();
    // It can no longer be used, neither for a registration nor as a buffer.
    assert_eq!(
        guest.register(client, 0, 4096, &[(high, 4096)]),
        Err(status::BAD_ADDRESS)
    );
    kill(pid, Signal::SIGKILL).unwrap();
    assert_eq!(
        guest.wait(COMMAND_QUEUE, head).status(),
        status::CLIENT_DEAD
    );
    guest.frontend.add_mem_region(&info).unwrap();
    let client = guest.open();
    guest
        .register(client, 0x1000, 4096, &[(high, 4096)])
        .unwrap();
    echoes(&mut guest, client);
}
