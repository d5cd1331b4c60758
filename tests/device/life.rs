// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! A VM's device during the life of the VM: pauses, new connections, snapshots, stops, and memory changes.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use gpgpu_protocol::layout::{COMMAND_QUEUE, Config, EVENT_QUEUE, event, status};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use vhost::{VhostUserMemoryRegionInfo, vhost_user::VhostUserFrontend};
use vm_memory::{FileOffset, GuestAddress, GuestRegionMmap, MmapRegion};
use zerocopy::FromBytes;

use super::{
    guest::{Guest, Vmm},
    host::{Host, dies, echoes, exists, pid_of, pidfd, pids_of, wait_for_end},
    service::Service,
    tracer_process::Tracer,
    worker::{ECHO, EXIT, HOLD, RELEASE},
};

fn instance(guest: &mut Guest) -> u64 {
    let config = guest.config(0, 64);
    Config::read_from_bytes(&config).unwrap().instance.get()
}

/// Nothing is written to a paused VM's memory, and everything that became due meanwhile is written when it continues.
#[test]
fn pitfall_84_a_vm_that_cloud_hypervisor_pauses_goes_on() {
    let host = Host::new("normal");
    let mut guest = host.boot(Vmm::cloud_hypervisor());
    let (dying, other) = (guest.open(), guest.open());
    let buffer = guest.post_event_buffer(16);
    let held = guest.post(dying, &[HOLD], 8, &[], 0);
    let pid = pid_of(&mut guest, dying);
    let used = |guest: &Guest| [0, 1, 2].map(|queue| guest.used_index(queue));
    let before = used(&guest);
    guest.enable_rings(false);
    let waits = guest.post(other, &[ECHO], 8, &[], 0);
    kill(pid, Signal::SIGKILL).unwrap();
    while exists(pid) {
        std::thread::yield_now();
    }
    guest.config(0, 4);
    assert_eq!(used(&guest), before);
    guest.enable_rings(true);
    let status = guest.wait(COMMAND_QUEUE, held).status();
    assert_eq!(status, status::CLIENT_DEAD);
    assert_eq!(guest.event(buffer).client.get(), dying);
    assert_eq!(guest.wait(COMMAND_QUEUE, waits).status(), status::OK);
    echoes(&mut guest, other);
}

/// QEMU stops the rings in the same way for a paused VM and for a device that is reset. Clients continue after a pause,
/// and end when a new driver starts the rings, whether or not the old one had the time to close them. GPGPU-DEV-8.
#[test]
fn pitfall_84_a_vm_that_qemu_pauses_goes_on_and_one_that_has_crashed_starts_anew() {
    let host = Host::new("normal");
    let mut guest = host.boot(Vmm::qemu());
    let client = guest.open();
    let held = guest.post(client, &[HOLD], 8, &[], 0);
    let pid = pid_of(&mut guest, client);
    for _ in 0..3 {
        let bases = guest.stop_rings();
        assert_eq!(bases[COMMAND_QUEUE], guest.avail(COMMAND_QUEUE));
        guest.start_rings(bases);
        echoes(&mut guest, client);
    }
    assert_eq!(dies(&mut guest, client, RELEASE), status::OK);
    assert_eq!(guest.wait(COMMAND_QUEUE, held).status(), status::OK);
    guest.post(client, &[HOLD], 8, &[], 0);
    assert_eq!(pid_of(&mut guest, client), pid);

    guest.stop_rings();
    assert!(exists(pid));
    guest.clear_driver();
    guest.start_rings([0; 3]);
    let next = guest.open();
    assert!(!exists(pid), "answered while the old worker runs");
    echoes(&mut guest, next);
    assert_eq!(guest.close(client), status::NO_CLIENT);
}

/// Cloud Hypervisor connects again when its back end disappears, or when it restores a VM from a snapshot. The driver
/// can detect this: the device does not have its old clients, and new ones work. The event queue continues with its
/// buffers. GPGPU-DEV-71, GPGPU-DEV-72.
#[test]
fn pitfall_84_a_vm_that_connects_anew_in_the_middle_of_work() {
    let host = Host::new("normal");
    let mut guest = host.boot(Vmm::cloud_hypervisor());
    let first = instance(&mut guest);
    assert_eq!(instance(&mut guest), first);
    // The driver is not at the start of its rings, and has buffers for events.
    let mut buffers: Vec<u16> = (0..4).map(|_| guest.post_event_buffer(16)).collect();
    let dying = guest.open();
    assert_eq!(dies(&mut guest, dying, EXIT), status::CLIENT_DEAD);
    guest.event(buffers.remove(0));
    assert_eq!(guest.close(dying), status::OK);
    let clients = [guest.open(), guest.open(), guest.open()];
    for client in clients {
        guest.post(client, &[HOLD], 8, &[], 0);
    }
    echoes(&mut guest, clients[0]);

    for socket in [0, 1] {
        guest.reconnect(&host.socket(socket));
        assert_ne!(instance(&mut guest), first);
        // Pending requests are not returned.
        let answer = guest.command(clients[2], &[ECHO], 8, &[], 0).0;
        assert_eq!(answer, status::NO_CLIENT);
        assert_eq!(guest.close(clients[2]), status::NO_CLIENT);
        let client = guest.open();
        echoes(&mut guest, client);
        assert_eq!(dies(&mut guest, client, EXIT), status::CLIENT_DEAD);
        let died = guest.event(buffers.remove(0));
        assert_eq!(
            (died.kind.get(), died.client.get()),
            (event::CLIENT_DIED, client)
        );
    }
    // The driver resets it, and everything is in the initial state.
    guest.stop_rings();
    guest.reset_driver();
    let client = guest.open();
    echoes(&mut guest, client);
    let buffer = guest.post_event_buffer(16);
    assert_eq!(dies(&mut guest, client, EXIT), status::CLIENT_DEAD);
    assert_eq!(guest.event(buffer).client.get(), client);
}

/// The worker of a client, which is stopped at its exit; `None` if this host does not allow that. A worker that will be
/// killed must not exit by itself as well: Linux does not stop a process that a signal kills while it calls
/// `exit_group`.
fn traced(guest: &mut Guest, client: u32) -> Option<(Pid, Tracer)> {
    let pid = pid_of(guest, client);
    let tracer = Tracer::new(pid.as_raw() as u32, 0);
    if tracer.is_none() {
        eprintln!("skipped: this host lets no process trace another");
    }
    Some((pid, tracer?))
}

/// Checks that the connection hangs up after the worker has ended, and not before.
fn hangs_up_behind(guest: &Guest, mut tracer: Tracer) {
    tracer.holds();
    assert!(!guest.has_hung_up(Some(Duration::ZERO)));
    tracer.let_go();
    assert!(guest.has_hung_up(None));
}

/// If a device process has crashed, the VMM's connection hangs up once the old workers have ended: they may write to
/// the VM's memory until then, and a VMM whose connection is closed connects again. GPGPU-DEV-8.
#[test]
fn pitfall_88_a_vm_whose_device_process_has_crashed_finds_no_old_worker() {
    let host = Host::new("stubborn");
    let mut guest = host.boot(Vmm::cloud_hypervisor());
    let client = guest.open();
    let Some((pid, mut tracer)) = traced(&mut guest, client) else {
        return;
    };
    let devices = pids_of(&host.socket(0), b"device-process");
    assert_eq!(devices.len(), 1);
    kill(devices[0], Signal::SIGKILL).unwrap();
    // The worker has not ended, and the supervisor has noticed the end of the device process.
    tracer.holds();
    while exists(devices[0]) {
        std::thread::yield_now();
    }
    assert!(!guest.has_hung_up(Some(Duration::ZERO)));
    tracer.let_go();
    assert!(guest.has_hung_up(None));
    assert!(!exists(pid));
    guest.reconnect(&host.socket(0));
    let client = guest.open();
    echoes(&mut guest, client);
}

/// The same if the VMM sends an invalid message, and the device closes the connection. GPGPU-DEV-8.
#[test]
fn pitfall_88_a_vm_whose_vmm_is_not_understood_finds_no_old_worker() {
    let host = Host::new("stubborn");
    let mut guest = host.boot(Vmm::cloud_hypervisor());
    let client = guest.open();
    let Some((pid, tracer)) = traced(&mut guest, client) else {
        return;
    };
    guest.send_nonsense();
    // The device has closed its clients.
    hangs_up_behind(&guest, tracer);
    assert!(!exists(pid));
}

/// The same when the service ends. GPGPU-DEV-8.
#[test]
fn pitfall_88_a_vm_whose_service_ends_finds_no_old_worker() {
    let mut host = Host::new("stubborn");
    let mut guest = host.boot(Vmm::cloud_hypervisor());
    let client = guest.open();
    let Some((pid, tracer)) = traced(&mut guest, client) else {
        return;
    };
    std::thread::scope(|scope| {
        scope.spawn(|| host.stop());
        hangs_up_behind(&guest, tracer);
        assert!(!exists(pid));
    });
}

/// The same if the service is killed: no process waits for the worker, but the worker itself holds the connection open.
/// GPGPU-DEV-8.
#[test]
fn pitfall_88_a_vm_whose_service_is_killed_finds_no_old_worker() {
    let mut service = Service::start();
    let mut guest = Guest::boot(&service.socket(), Vmm::cloud_hypervisor());
    let client = guest.open();
    let Some((_, tracer)) = traced(&mut guest, client) else {
        return;
    };
    let devices = pids_of(&service.socket(), b"device-process");
    let device = pidfd(devices[0]);
    service.kill();
    wait_for_end(&device);
    hangs_up_behind(&guest, tracer);
    service.start_again();
    guest.reconnect(&service.socket());
    let client = guest.open();
    echoes(&mut guest, client);
}

/// A driver that adds buffers to the event queue before the VMM starts it gets its events in them.
#[test]
fn buffers_that_are_there_before_the_event_queue_is_started_are_used() {
    let host = Host::new("normal");
    let mut guest = host.boot(Vmm::cloud_hypervisor());
    guest.stop_rings();
    guest.clear_driver();
    let buffer = guest.post_event_buffer(16);
    for queue in 0..3 {
        guest.start_ring(queue, guest.avail(queue));
    }
    let client = guest.open();
    assert_eq!(dies(&mut guest, client, EXIT), status::CLIENT_DEAD);
    assert_eq!(guest.event(buffer).client.get(), client);
}

/// A VMM may set the driver's interrupt late: the driver polls, and gets interrupts from then on.
#[test]
fn a_ring_without_a_call_descriptor_works() {
    let host = Host::new("normal");
    let mut guest = host.boot(Vmm::cloud_hypervisor());
    let client = guest.open();
    let base = guest.stop_ring(COMMAND_QUEUE);
    guest.start_silent_ring(COMMAND_QUEUE, base);
    let head = guest.post(client, &[ECHO], 8, &[], 0);
    guest.wait_used(COMMAND_QUEUE, 1);
    assert_eq!(
        guest.poll(COMMAND_QUEUE, head).unwrap().status(),
        status::OK
    );
    guest.set_call(COMMAND_QUEUE);
    echoes(&mut guest, client);
}

/// A driver that makes chains available without a pause must not delay a VMM that stops a ring, changes memory or
/// disconnects: the VMM is answered, and the processes end.
#[test]
fn a_driver_that_never_rests_delays_no_other() {
    let host = Host::new("normal");
    let mut guest = host.boot(Vmm::qemu());
    let client = guest.open();
    // A chain that is returned at once, in each entry of the ring.
    let head = guest.post_sizes(&Guest::header(client, 0, 0, 0, 0), 40, 8);
    let used = guest.wait(COMMAND_QUEUE, head);
    assert_eq!(used.status(), status::MALFORMED);
    let rests = AtomicBool::new(false);
    let spin = guest.spinner(COMMAND_QUEUE, head);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !rests.load(Ordering::Relaxed) {
                spin();
                std::thread::yield_now();
            }
        });
        for _ in 0..50 {
            guest.stop_ring(EVENT_QUEUE);
            guest.start_ring(EVENT_QUEUE, 0);
            assert_eq!(guest.close(client + 1), status::NO_CLIENT);
        }
        assert_eq!(guest.close(client), status::OK);
        // The VMM disconnects while its guest continues.
        drop(guest);
        let mut next = host.boot(Vmm::qemu());
        let client = next.open();
        echoes(&mut next, client);
        drop(host);
        rests.store(true, Ordering::Relaxed);
    });
}

/// Hundreds of memory regions that are added one by one can be registered and accessed; removed memory cannot.
#[test]
fn hundreds_of_regions_come_and_go_one_by_one() {
    const REGIONS: u64 = 400;
    const BASE: u64 = 1 << 40;
    let host = Host::new("normal");
    let mut guest = host.boot(Vmm::cloud_hypervisor());
    let client = guest.open();
    for round in 0..2 {
        let file = tempfile::tempfile().unwrap();
        file.set_len(REGIONS * 4096).unwrap();
        let regions: Vec<_> = (0..REGIONS)
            .map(|number| {
                let at = FileOffset::new(file.try_clone().unwrap(), number * 4096);
                let map = MmapRegion::<()>::from_file(at, 4096).unwrap();
                let place = GuestAddress(BASE + number * 8192);
                GuestRegionMmap::new(map, place).unwrap()
            })
            .collect();
        let infos: Vec<_> = regions
            .iter()
            .map(|region| VhostUserMemoryRegionInfo::from_guest_region(region).unwrap())
            .collect();
        for info in &infos {
            guest.frontend.add_mem_region(info).unwrap();
        }
        for number in [0, 1, REGIONS / 2, REGIONS - 1] {
            let at = BASE + number * 8192;
            let region = guest.register(client, 0x1000, 4096, &[(at, 4096)]).unwrap();
            assert_eq!(guest.unregister(client, region), status::OK);
        }
        for info in &infos {
            guest.frontend.remove_mem_region(info).unwrap();
        }
        let gone = guest.register(client, 0x1000, 4096, &[(BASE, 4096)]);
        assert_eq!(gone, Err(status::BAD_ADDRESS), "round {round}");
    }
    echoes(&mut guest, client);
    assert_eq!(guest.close(client), status::OK);
}
