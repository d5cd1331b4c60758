// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Compromised workers and device processes. They send each other and the supervisor arbitrary messages through their
//! channels, and misuse everything that they share. Only their own VM is affected: the supervisor schedules, accepts,
//! starts and stops, has no more descriptors than before and uses little processor time, and a program of another VM
//! continues.
//!
//! The supervisor is the real one, in a separate process. Its device processes and workers are this program, which runs
//! the real device process unless that is to be compromised.

mod common;
#[path = "taken_over/device.rs"]
mod device;
#[path = "common/guest/mod.rs"]
// Some of it is only for the device's tests.
#[allow(dead_code)]
mod guest;
#[path = "taken_over/host.rs"]
mod host;
#[path = "taken_over/worker.rs"]
mod worker;

use std::{
    io::Read,
    os::unix::net::UnixStream,
    time::{Duration, Instant},
};

use gpgpu_protocol::layout::status;

use guest::{Guest, Vmm};
use host::Host;

/// Not a test: the program of the processes.
#[test]
fn role() {
    host::run_role();
}

fn vmm() -> Vmm {
    Vmm {
        regions: vec![(0, 16 << 20, 0)],
        ..Vmm::qemu()
    }
}

/// A program of another VM, which needs its worker and the GPU's lease for each step.
struct Neighbour {
    guest: Guest,
    client: u32,
    /// Buffers from this address on are for the next step.
    mark: u64,
}

impl Neighbour {
    fn new(host: &Host) -> Self {
        let mut guest = Guest::boot(&host.socket(1), vmm());
        let client = guest.open();
        let mark = guest.alloc(0);
        let mut neighbour = Self {
            guest,
            client,
            mark,
        };
        neighbour.works(3);
        neighbour
    }

    fn works(&mut self, rounds: usize) {
        for _ in 0..rounds {
            self.guest.forget_buffers(self.mark);
            let step = [worker::STEP, 2, 3];
            let (status, answer, data) = self.guest.command(self.client, &step, 16, b"data", 4);
            assert_eq!(status, status::OK);
            assert_eq!((&answer[..], &data[..]), (&step[..], &b"data"[..]));
        }
    }

    /// Checks that all functions of the host for a VM still work, and stops the host.
    fn finish(mut self, mut host: Host) {
        self.works(20);
        let mut guest = Guest::boot(&host.socket(1), vmm());
        let client = guest.open();
        assert_eq!(guest.close(client), status::OK);
        self.works(3);
        host.stop();
    }
}

/// Waits until the process with a connection has ended, or has finished its attack.
fn wait_for_attack(host: &Host, mut connection: UnixStream) {
    connection
        .set_read_timeout(Some(Duration::from_millis(20)))
        .unwrap();
    let deadline = Instant::now() + host::LIMIT;
    while !host.is_done() && !matches!(connection.read(&mut [0]), Ok(0)) {
        assert!(Instant::now() < deadline, "the attack never ends");
    }
}

#[test]
fn descriptors_that_a_worker_sends_are_closed() {
    let host = Host::start("worker");
    let neighbour = Neighbour::new(&host);
    let mut guest = Guest::boot(&host.socket(0), vmm());
    let first = guest.open();
    let device = host.device(0);
    let before = host::files_of(device);
    for attack in [worker::MANY_FILES, worker::TWO_FILES, worker::MANY_FILES] {
        let client = guest.open();
        let (status, ..) = guest.command(client, &[attack], 16, &[], 0);
        assert_eq!(status, status::CLIENT_DEAD);
        host.wait_for_files(device, before);
    }
    let (status, ..) = guest.command(first, &[worker::STEP], 16, &[], 0);
    assert_eq!(status, status::OK, "other clients go on");
    drop(guest);
    neighbour.finish(host);
}

#[test]
fn a_worker_that_talks_nonsense_costs_its_own_client() {
    let host = Host::start("worker");
    let neighbour = Neighbour::new(&host);
    let mut guest = Guest::boot(&host.socket(0), vmm());
    let first = guest.open();
    for attack in [
        worker::SHORT,
        worker::LONG,
        worker::HALF,
        worker::FLOOD,
        worker::WILD,
    ] {
        let client = guest.open();
        let (status, ..) = guest.command(client, &[attack], 16, &[], 0);
        assert_eq!(status, status::CLIENT_DEAD, "{attack}");
        let (status, ..) = guest.command(first, &[worker::STEP], 16, &[], 0);
        assert_eq!(status, status::OK, "other clients go on after {attack}");
    }
    drop(guest);
    neighbour.finish(host);
}

/// The worker shares the doorbell with the supervisor, including its blocking mode.
#[test]
fn a_doorbell_that_its_worker_reads_delays_no_other() {
    let host = Host::start("worker");
    let mut neighbour = Neighbour::new(&host);
    let mut guest = Guest::boot(&host.socket(0), vmm());
    for _ in 0..8 {
        let client = guest.open();
        let (status, ..) = guest.command(client, &[worker::LURE], 16, &[], 0);
        assert_eq!(status, status::OK);
        neighbour.works(3);
    }
    drop(guest);
    neighbour.finish(host);
}

#[test]
fn a_doorbell_that_is_rung_for_ever_delays_no_other() {
    let host = Host::start("worker");
    let mut neighbour = Neighbour::new(&host);
    let mut guest = Guest::boot(&host.socket(0), vmm());
    for _ in 0..2 {
        let client = guest.open();
        let (status, ..) = guest.command(client, &[worker::RING], 16, &[], 0);
        assert_eq!(status, status::OK);
    }
    let (cpu, began) = (host.cpu(), Instant::now());
    neighbour.works(60);
    let (used, passed) = (host.cpu() - cpu, began.elapsed());
    // A burst, and a part of the time that an unbounded loop would take.
    let most = Duration::from_secs(1) + passed / 2;
    assert!(used < most, "{used:?} of {passed:?}");
    drop(guest);
    neighbour.finish(host);
}

/// Workers of a VM meet through the supervisor, which accepts no descriptors from them.
#[test]
fn descriptors_that_a_worker_sends_for_others_are_closed() {
    let host = Host::start("worker");
    let neighbour = Neighbour::new(&host);
    let mut guest = Guest::boot(&host.socket(0), vmm());
    let first = guest.open();
    let client = guest.open();
    let before = host.files();
    let attack = [worker::FILES_FOR_OTHERS];
    let (status, ..) = guest.command(client, &attack, 16, &[], 0);
    assert_eq!(status, status::OK);
    let (status, ..) = guest.command(client, &[worker::STEP], 16, &[], 0);
    assert_eq!(
        status,
        status::OK,
        "it has lost its channel to others alone"
    );
    host.wait_for_files(host.id(), before);
    let (status, ..) = guest.command(first, &[worker::STEP], 16, &[], 0);
    assert_eq!(status, status::OK, "other clients go on");
    drop(guest);
    neighbour.finish(host);
}

#[test]
fn endless_requests_for_meetings_delay_no_other() {
    let host = Host::start("worker");
    let mut neighbour = Neighbour::new(&host);
    let mut guest = Guest::boot(&host.socket(0), vmm());
    let clients: Vec<u32> = (0..4).map(|_| guest.open()).collect();
    let before = host.files();
    for client in &clients {
        let (status, ..) = guest.command(*client, &[worker::MEET], 16, &[], 0);
        assert_eq!(status, status::OK);
    }
    let (cpu, began) = (host.cpu(), Instant::now());
    neighbour.works(60);
    let (used, passed) = (host.cpu() - cpu, began.elapsed());
    let most = Duration::from_secs(1) + passed / 2;
    assert!(used < most, "{used:?} of {passed:?}");
    host.wait_for_files(host.id(), before);
    drop(guest);
    neighbour.finish(host);
}

#[test]
fn output_of_a_worker_is_no_hold_on_the_supervisor() {
    let host = Host::start("worker");
    let neighbour = Neighbour::new(&host);
    let mut guest = Guest::boot(&host.socket(0), vmm());
    let client = guest.open();
    let (status, ..) = guest.command(client, &[worker::PRINT], 16, &[], 0);
    assert_eq!(status, status::OK);
    drop(guest);
    neighbour.finish(host);
}

#[test]
fn descriptors_that_a_device_process_sends_are_closed() {
    let host = Host::start("descriptors");
    let neighbour = Neighbour::new(&host);
    let before = host.files();
    for _ in 0..3 {
        let connection = UnixStream::connect(host.socket(0)).unwrap();
        wait_for_attack(&host, connection);
    }
    host.wait_for_files(host.id(), before);
    neighbour.finish(host);
}

#[test]
fn a_device_process_that_never_stops_talking_is_ended() {
    let host = Host::start("flood");
    let mut neighbour = Neighbour::new(&host);
    let connection = UnixStream::connect(host.socket(0)).unwrap();
    neighbour.works(20);
    wait_for_attack(&host, connection);
    neighbour.finish(host);
}

/// The supervisor's standard error is shared with no process that a guest can reach.
#[test]
fn a_device_process_cannot_stop_the_log() {
    let host = Host::start("log");
    let neighbour = Neighbour::new(&host);
    let connection = UnixStream::connect(host.socket(0)).unwrap();
    wait_for_attack(&host, connection);
    neighbour.finish(host);
}

/// Connections beyond a socket's limit wait, whatever the other connections' device processes do.
#[test]
fn a_device_process_has_one_connection() {
    let host = Host::start("greedy");
    let neighbour = Neighbour::new(&host);
    let mut first = UnixStream::connect(host.socket(0)).unwrap();
    let mut own = [0; 4];
    first.read_exact(&mut own).unwrap();
    for _ in 0..8 {
        let mut other = UnixStream::connect(host.socket(0)).unwrap();
        let mut from = [0; 4];
        other.read_exact(&mut from).unwrap();
        assert_ne!(from, own, "another process's connection");
    }
    neighbour.finish(host);
}

/// A mover is shared by all VMs.
#[test]
fn a_device_process_cannot_have_a_mover_killed() {
    let host = Host::start("kill-mover");
    let neighbour = Neighbour::new(&host);
    let mover = host.mover();
    for _ in 0..3 {
        let connection = UnixStream::connect(host.socket(0)).unwrap();
        wait_for_attack(&host, connection);
    }
    assert_eq!(host.mover(), mover, "another mover");
    neighbour.finish(host);
}

#[test]
fn a_device_process_has_few_channels_to_a_mover() {
    let host = Host::start("channels");
    let neighbour = Neighbour::new(&host);
    let mover = host.mover();
    let before = host::files_of(mover);
    let connection = UnixStream::connect(host.socket(0)).unwrap();
    wait_for_attack(&host, connection);
    let after = host::files_of(mover);
    assert!(after < before + 20, "{before} descriptors, then {after}");
    neighbour.finish(host);
}

#[test]
fn a_device_process_starts_few_workers_at_a_time() {
    let host = Host::start("workers");
    let neighbour = Neighbour::new(&host);
    let connection = UnixStream::connect(host.socket(0)).unwrap();
    wait_for_attack(&host, connection);
    let started = host.done();
    assert!(started < 200, "{started} of 400 were started");
    neighbour.finish(host);
}

#[test]
fn a_worker_learns_of_the_sensors_of_its_own_gpus_alone_and_only_if_its_vm_may() {
    let host = Host::start("worker");
    let mut neighbour = Neighbour::new(&host);
    let mut guest = Guest::boot(&host.socket(0), vmm());
    let client = guest.open();
    let sense = |guest: &mut Guest, client| {
        let (status, answer, _) = guest.command(client, &[worker::SENSE, 0], 16, &[], 0);
        assert_eq!(status, status::OK);
        answer[1]
    };
    assert_eq!(sense(&mut guest, client), 0, "its VM may not");
    // It has asked for all GPUs; it gets only the one that its VM has.
    assert_eq!(sense(&mut neighbour.guest, neighbour.client), 1);
    assert_eq!(sense(&mut guest, client), 0, "another VM has asked");
    drop(guest);
    neighbour.finish(host);
}
