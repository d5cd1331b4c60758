// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Nothing writes to a guest's memory after a reset, a stop, a pause or the end of a connection is complete, whatever
//! was pending.
//!
//! The supervisor, the device processes, the mover and the workers are the real ones, on the software GPU
//! (`VIRTIO_GPGPU_STAGE`, as for `tests/mover.rs`); the VMM and the guest's driver are simulated. Processes of the
//! guest have as much pending as they may, and in each round another part of it is complete when the VMM sends its
//! request. As soon as the request is answered, the VMM fills the guest's memory with a pattern. Then everything that
//! could still write is ended: workers, and the mover's turns. No byte may have changed.
//!
//! Memory that a paused VM's device may read (commands that it has taken, and their data) is not filled, but must not
//! change: the VM continues, and its processes find the right data.

#[path = "quiescence/callbacks.rs"]
mod callbacks;
#[path = "common/client.rs"]
// Some of it is only for the tests of hostile guests.
#[allow(dead_code)]
mod client;
mod common;
#[path = "common/guest/mod.rs"]
// Some of it is only for the device's tests.
#[allow(dead_code)]
mod guest;
#[path = "common/hosts/movers.rs"]
#[allow(dead_code)]
mod host;
#[path = "quiescence/load.rs"]
mod load;
#[path = "quiescence/memory.rs"]
mod memory;
#[path = "quiescence/registered.rs"]
mod registered;
#[path = "quiescence/ring.rs"]
mod ring;

use std::{ops::Range, path::PathBuf, time::Duration};

use gpgpu_protocol::{
    api::request,
    layout::{COMMAND_QUEUE, CONTROL_QUEUE, status},
};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use vhost::vhost_user::VhostUserFrontend;
use vhost_device_gpgpu::policy::VmPolicy;
use vm_memory::GuestMemoryMmap;
use zerocopy::IntoBytes;

use client::{Client, command};
use guest::{Guest, Vmm};
use host::{Host, wait_for};
use load::{LOAD_BYTES, Load, Writes};
use memory::{Whole, maps};

/// The number of repetitions of each event.
const ROUNDS: u64 = 100;
const MIB: u64 = 1 << 20;
/// A driver and its processes use one half of the guest's memory, and those after a reset the other half.
const HALF: u64 = 17 * MIB;
/// The offset of the processes' buffers in a half.
const BUFFERS: u64 = 4 * MIB;
const _: () = assert!(BUFFERS + LOAD_BYTES <= HALF);

fn start() -> Option<Host> {
    Host::new(&common::program(), &["worker-process"], &[], false)
}

fn qemu() -> Vmm {
    Vmm {
        regions: vec![(0, 2 * HALF, 0)],
        ..Vmm::qemu()
    }
}

fn cloud_hypervisor() -> Vmm {
    Vmm {
        regions: vec![(0, HALF, 0), (1 << 32, 2 * MIB, 0)],
        ..Vmm::cloud_hypervisor()
    }
}

/// A VM next to the tested one.
struct Neighbour {
    guest: Guest,
    client: u32,
    context: u64,
    device: u64,
    buffers: u64,
    mark: u64,
    worker: Pid,
}

impl Neighbour {
    const BYTES: u64 = 4 * MIB;

    fn new(host: &Host) -> Self {
        let vmm = Vmm {
            regions: vec![(0, 12 * MIB, 0)],
            ..Vmm::qemu()
        };
        let mut guest = Guest::boot(&host.socket(1), vmm);
        let mut client = Client::open(&mut guest);
        let context = client.context();
        let device = client.alloc(Self::BYTES as usize, context);
        let client = client.id();
        let buffers = guest.alloc(2 * Self::BYTES as usize);
        let mark = guest.alloc(0);
        let worker = host.processes("worker-process")[0];
        let mut this = Self {
            guest,
            client,
            context,
            device,
            buffers,
            mark,
            worker,
        };
        let mover = host.mover();
        wait_for("a mover that serves", || {
            this.copy();
            maps(mover, &this.guest.memory).then_some(())
        });
        this
    }

    /// Makes the mover copy as much in both directions as another VM may have in flight. VMs take turns there by bytes,
    /// so earlier copies of another VM are complete then.
    fn copy(&mut self) {
        let out = request::gpgpuCopyOut {
            src: self.device,
            hStream: 0,
        };
        let into = request::gpgpuCopyIn {
            dst: self.device,
            hStream: 0,
            synchronous: true,
        };
        let both = [
            (command(&out, self.context), self.buffers, true),
            (
                command(&into, self.context),
                self.buffers + Self::BYTES,
                false,
            ),
        ];
        self.guest.forget_buffers(self.mark);
        for _ in 0..2 {
            let heads = both.each_ref().map(|(stream, at, to_guest)| {
                let buffer = [(*at, Self::BYTES as u32)];
                let guest = &mut self.guest;
                let head = guest.post_buffers(self.client, stream, 64, &buffer, *to_guest);
                guest.trim(COMMAND_QUEUE, head, 72);
                head
            });
            for head in heads {
                let status = self.guest.wait(COMMAND_QUEUE, head).status();
                assert_eq!(status, status::OK);
            }
        }
    }
}

/// A host, and its observable state.
struct Scene {
    neighbour: Neighbour,
    host: Host,
    /// Whether a mover was seen with the guest's memory mapped.
    moved: bool,
}

impl Scene {
    fn new() -> Option<Self> {
        let host = start()?;
        let neighbour = Neighbour::new(&host);
        Some(Self {
            neighbour,
            host,
            moved: false,
        })
    }

    fn socket(&self) -> PathBuf {
        self.host.socket(0)
    }

    /// The workers of the tested VM.
    fn workers(&mut self, guest: &Guest) -> Vec<Pid> {
        self.moved |= maps(self.host.mover(), &guest.memory);
        let mut workers = self.host.processes("worker-process");
        workers.retain(|&worker| worker != self.neighbour.worker);
        workers
    }

    /// Waits until nothing that ever wrote to the memory can write any more, and checks the filled memory.
    fn check(&mut self, what: &str, round: u64, ended: &[Pid], whole: &Whole) {
        wait_for("the end of workers", || {
            (!ended.iter().any(is_there)).then_some(())
        });
        self.neighbour.copy();
        let changed = whole.changed(round);
        assert!(changed.is_empty(), "{what}, round {round}: {changed:x?}");
    }

    /// The same if the connection is closed: the mover unmaps the memory.
    fn check_unmapped(
        &mut self,
        what: &str,
        round: u64,
        ended: &[Pid],
        memory: &GuestMemoryMmap,
        whole: &Whole,
    ) {
        let mover = self.host.mover();
        wait_for("memory that no mover has", || {
            (!maps(mover, memory)).then_some(())
        });
        self.check(what, round, ended, whole);
    }

    /// The device process that serves this memory.
    fn device(&self, memory: &GuestMemoryMmap) -> Pid {
        let devices = self.host.processes("device-process");
        let mut devices = devices.into_iter().filter(|&device| maps(device, memory));
        devices.next().expect("no device process")
    }
}

fn is_there(&pid: &Pid) -> bool {
    kill(pid, None).is_ok()
}

/// Called as soon as the VMM is answered: fills memory, and checks that the workers had ended before.
fn fill(what: &str, round: u64, workers: &[Pid], whole: &Whole) {
    let left = workers.iter().filter(|pid| is_there(pid)).count();
    whole.fill(round);
    assert_eq!(left, 0, "workers after {what}, round {round}");
}

/// Waits until the supervisor has noticed the end of a device process.
fn wait_for_end(device: Pid) {
    wait_for("the end of the device process", || {
        (!is_there(&device)).then_some(())
    });
}

/// The memory that the device writes to most, for a load with buffers at this address.
fn busiest(load: &Load, at: u64) -> Vec<Range<u64>> {
    let mut busiest = load.pinned();
    busiest.push(at..at + LOAD_BYTES);
    busiest
}

/// Starts a driver, with everything that its processes have pending.
fn work(guest: &mut Guest, half: u64, round: u64) -> (Load, Whole) {
    let mut load = Load::open(guest, half + BUFFERS, Writes::WithoutEnd);
    let whole = Whole::new(&guest.memory, &busiest(&load, half + BUFFERS));
    load.work(guest, round);
    (load, whole)
}

/// GPGPU-DEV-8.
#[test]
fn pitfall_88_after_a_reset() {
    let Some(mut scene) = Scene::new() else {
        return;
    };
    let mut guest = Guest::boot(&scene.socket(), qemu());
    for round in 0..ROUNDS {
        if round > 0 {
            // Everything that the new driver does uses the other half of memory.
            guest.move_driver(round % 2 * HALF);
            guest.reset_driver();
        }
        let (_, whole) = work(&mut guest, round % 2 * HALF, round);
        let workers = scene.workers(&guest);
        guest.frontend.reset_device().unwrap();
        fill("a reset", round, &workers, &whole);
        scene.check("a reset", round, &workers, &whole);
    }
    assert!(scene.moved);
}

/// QEMU reports the reset of a device only by stopping rings. The driver has closed its clients before, whether or not
/// it was answered. GPGPU-DEV-65.
#[test]
fn pitfall_88_after_a_reboot() {
    let Some(mut scene) = Scene::new() else {
        return;
    };
    let mut guest = Guest::boot(&scene.socket(), qemu());
    for round in 0..ROUNDS {
        if round > 0 {
            guest.move_driver(round % 2 * HALF);
            guest.clear_driver();
            guest.start_rings([0; 3]);
        }
        let (load, whole) = work(&mut guest, round % 2 * HALF, round);
        let workers = scene.workers(&guest);
        // Workers that do not end by themselves are killed after half a second.
        let stuck = match round % 20 {
            7 => &workers[..],
            _ => &[],
        };
        stuck
            .iter()
            .for_each(|&worker| kill(worker, Signal::SIGSTOP).unwrap());
        let closes = load.clients().into_iter().map(|client| {
            let close = Guest::close_request(client);
            guest.post_control(close.as_bytes())
        });
        let closes: Vec<u16> = closes.collect();
        // Once this is answered, the device has taken all earlier chains.
        assert_eq!(guest.close(u32::MAX), status::NO_CLIENT);
        if round % 2 == 0 {
            for close in closes {
                let closed = guest.wait(CONTROL_QUEUE, close);
                assert_eq!(closed.status(), status::OK);
            }
        }
        guest.stop_rings();
        fill("a reboot", round, &workers, &whole);
        for &worker in stuck {
            // The worker has ended.
            let _ = kill(worker, Signal::SIGCONT);
        }
        scene.check("a reboot", round, &workers, &whole);
    }
    assert!(scene.moved);
}

/// How a VMM pauses a VM.
#[derive(Clone, Copy, PartialEq)]
enum Pause {
    Qemu,
    CloudHypervisor,
}

/// Pauses a VM repeatedly; it must continue each time and find its work done.
fn pauses(how: Pause, writes: Writes) {
    let Some(mut scene) = Scene::new() else {
        return;
    };
    let vmm = match how {
        Pause::Qemu => Vmm {
            regions: vec![(0, HALF, 0)],
            ..qemu()
        },
        Pause::CloudHypervisor => cloud_hypervisor(),
    };
    let mut guest = Guest::boot(&scene.socket(), vmm);
    let mut load = Load::open(&mut guest, BUFFERS, writes);
    let whole = Whole::new(&guest.memory, &busiest(&load, BUFFERS));
    let mut whole = whole.reading(load.read());
    for round in 0..ROUNDS {
        load.work(&mut guest, round);
        scene.workers(&guest);
        let bases = match how {
            Pause::Qemu => guest.stop_rings(),
            Pause::CloudHypervisor => {
                guest.enable_rings(false);
                [0; 3]
            }
        };
        whole.take(round);
        scene.check("a pause", round, &[], &whole);
        whole.put_back(&guest.memory);
        match how {
            Pause::Qemu => guest.start_rings(bases),
            Pause::CloudHypervisor => guest.enable_rings(true),
        }
        load.finish(&mut guest, round);
    }
    assert!(scene.moved);
}

#[test]
fn pitfall_88_after_a_pause_of_qemu() {
    pauses(Pause::Qemu, Writes::Nothing);
}

#[test]
fn pitfall_88_after_a_pause_of_qemu_with_kernels() {
    pauses(Pause::Qemu, Writes::Finite);
}

#[test]
fn pitfall_88_after_a_pause_of_cloud_hypervisor() {
    pauses(Pause::CloudHypervisor, Writes::Nothing);
}

#[test]
fn pitfall_88_after_a_pause_of_cloud_hypervisor_with_kernels() {
    pauses(Pause::CloudHypervisor, Writes::Finite);
}

/// An endless kernel is ended with its process, because it is unknown whether the guest continues. Other processes
/// continue.
#[test]
fn pitfall_88_a_pause_ends_a_client_that_does_not_come_to_rest() {
    let limit = |policy: &mut VmPolicy| policy.pause_limit = Some(Duration::from_secs(5));
    let program = common::program();
    let host = Host::with_policy(&program, &["worker-process"], &[], false, limit);
    let Some(host) = host else {
        return;
    };
    let vmm = Vmm {
        regions: vec![(0, HALF, 0)],
        ..qemu()
    };
    let mut guest = Guest::boot(&host.socket(0), vmm);
    let mut load = Load::open(&mut guest, BUFFERS, Writes::WithoutEnd);
    load.work(&mut guest, 0);
    let [endless, other] = load.clients()[..] else {
        panic!("there are two processes");
    };
    let mut whole = Whole::new(&guest.memory, &load.pinned()).reading(load.read());
    let bases = guest.stop_rings();
    whole.take(0);
    assert_eq!(host.processes("worker-process").len(), 1);
    assert_eq!(whole.changed(0), []);
    whole.put_back(&guest.memory);
    guest.start_rings(bases);
    let echo = request::cuCtxSynchronize {};
    let ask = |guest: &mut Guest, client| {
        let head = guest.post(client, &command(&echo, 0), 64, &[], 0);
        guest.wait(COMMAND_QUEUE, head).status()
    };
    assert_eq!(ask(&mut guest, endless), status::CLIENT_DEAD);
    assert_eq!(ask(&mut guest, other), status::OK);
}

/// A VMM that disconnects gets no answer, so the end of the device process counts.
#[test]
fn pitfall_88_after_the_end_of_a_connection() {
    let Some(mut scene) = Scene::new() else {
        return;
    };
    for round in 0..ROUNDS {
        let vmm = Vmm {
            regions: vec![(0, HALF, 0)],
            ..qemu()
        };
        let mut guest = Guest::boot(&scene.socket(), vmm);
        let (_, whole) = work(&mut guest, 0, round);
        let (workers, memory) = (scene.workers(&guest), guest.memory.clone());
        let device = scene.device(&memory);
        drop(guest);
        wait_for_end(device);
        fill("the end of a connection", round, &workers, &whole);
        scene.check_unmapped("the end of a connection", round, &workers, &memory, &whole);
    }
    assert!(scene.moved);
}

/// Cloud Hypervisor saves the memory of a paused VM. Then that VM continues, or the saved memory becomes another VM
/// with a fresh device: its driver resets the device, and all later requests work.
#[test]
fn pitfall_88_after_a_snapshot() {
    let Some(mut scene) = Scene::new() else {
        return;
    };
    let mut guest = Guest::boot(&scene.socket(), cloud_hypervisor());
    let mut load = Load::open(&mut guest, BUFFERS, Writes::Finite);
    for round in 0..ROUNDS {
        let whole = Whole::new(&guest.memory, &busiest(&load, BUFFERS));
        let mut whole = whole.reading(load.read());
        load.work(&mut guest, round);
        let workers = scene.workers(&guest);
        guest.enable_rings(false);
        whole.take(round);
        scene.check("a snapshot", round, &[], &whole);
        if round % 2 == 0 {
            whole.put_back(&guest.memory);
            guest.enable_rings(true);
            load.finish(&mut guest, round);
            continue;
        }
        // The VMM that has saved it disconnects at some time.
        let old = guest.memory.clone();
        let device = scene.device(&old);
        guest.restore(&scene.socket(), |memory| whole.put_back(memory));
        wait_for_end(device);
        scene.check_unmapped("a snapshot", round, &workers, &old, &whole);
        guest.stop_rings();
        guest.move_driver(0);
        guest.reset_driver();
        load = Load::open(&mut guest, BUFFERS, Writes::Finite);
        load.work(&mut guest, round);
        load.finish(&mut guest, round);
    }
    assert!(scene.moved);
}
