// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Pauses while the GPU waits for host callbacks, which a paused guest does not run.

use std::time::Duration;

use gpgpu_protocol::{
    api::{Event, object_id, request},
    cuda::{CU_EVENT_DISABLE_TIMING, CUDA_SUCCESS},
};
use vhost_device_gpgpu::policy::VmPolicy;
use vm_memory::{Bytes, GuestAddress};

use crate::{
    client::{Client, launch},
    guest::{Guest, Vmm},
    host::{Host, wait_for},
    memory::CHUNK,
    registered::register,
    start,
};

/// The address of the registered memory in the process.
const ADDRESS: u64 = 1 << 44;

/// A process that has registered memory.
struct Process<'a> {
    client: Client<'a>,
    context: u64,
    /// The memory's address in the guest, and for kernels.
    at: u64,
    pinned: u64,
}

impl<'a> Process<'a> {
    fn open(guest: &'a mut Guest) -> Self {
        let at = guest.alloc(CHUNK as usize);
        guest.write(at, &[0; CHUNK as usize]);
        let mut client = Client::open(guest);
        let context = client.context();
        let pinned = register(&mut client, ADDRESS, (at, CHUNK), context);
        Self {
            client,
            context,
            at,
            pinned,
        }
    }

    fn word(&mut self, place: u64) -> u32 {
        let memory = &self.client.guest().memory;
        memory.read_obj(GuestAddress(self.at + place)).unwrap()
    }

    fn callback(&mut self, stream: u64, callback: u64) {
        let launch = request::cuLaunchHostFunc {
            hStream: stream,
            callback,
        };
        self.client.works(&launch, self.context, &[], 0);
    }

    /// Waits until a stream has reached a callback.
    fn reached(&mut self) -> u64 {
        let next = request::gpgpuNextCallback {
            callback: true,
            status: true,
        };
        self.client.works(&next, self.context, &[], 0).0.callback
    }

    fn launch(&mut self, function: u64, stream: u64, turns: u32) {
        let launch = launch(function, stream, self.pinned, turns);
        self.client.works(&launch, self.context, &[], 0);
    }

    fn function(&mut self, name: &str) -> u64 {
        self.client.function(1, name, self.context, self.context)
    }

    fn stream(&mut self, serial: u64) -> u64 {
        self.client.stream(serial, self.context)
    }

    /// Pauses the VM, and lets it continue.
    fn pause(&mut self) {
        let bases = self.client.guest().stop_rings();
        self.client.guest().start_rings(bases);
    }
}

#[test]
fn pitfall_88_a_callback_under_way_outlives_a_pause() {
    let Some(host) = start() else {
        return;
    };
    let mut guest = Guest::boot(&host.socket(0), Vmm::qemu());
    let mut process = Process::open(&mut guest);
    let callback = process.client.block(process.context);
    process.pause();
    process.client.unblock(callback);
    let done = process.client.synchronize(0, process.context);
    assert_eq!(done, CUDA_SUCCESS);
}

/// One callback is in progress; another stream has reached the next one, and a third stream waits for an event after
/// that.
#[test]
fn pitfall_88_streams_behind_callbacks_outlive_a_pause() {
    let Some(host) = start() else {
        return;
    };
    let mut guest = Guest::boot(&host.socket(0), Vmm::qemu());
    let mut process = Process::open(&mut guest);
    let context = process.context;
    let busy = process.function("busy");
    let [first, second, third] = [1, 2, 3].map(|serial| process.stream(serial));
    process.callback(first, 1);
    assert_eq!(process.reached(), 1);
    process.launch(busy, first, 100);
    process.launch(busy, second, 100_000);
    process.callback(second, 2);
    process.launch(busy, second, 100);
    let event = object_id::<Event>(1);
    let make = request::cuEventCreate {
        phEvent: event,
        Flags: CU_EVENT_DISABLE_TIMING,
    };
    process.client.works(&make, context, &[], 0);
    let record = request::cuEventRecord {
        hEvent: event,
        hStream: second,
    };
    process.client.works(&record, context, &[], 0);
    process.launch(busy, third, 100);
    let wait = request::cuStreamWaitEvent {
        hStream: third,
        hEvent: event,
        Flags: 0,
    };
    process.client.works(&wait, context, &[], 0);
    process.launch(busy, third, 100);
    for _ in 0..2 {
        let bases = process.client.guest().stop_rings();
        // Only the kernels before the callbacks have run.
        assert_eq!(process.word(0), 2);
        process.client.guest().start_rings(bases);
    }
    process.client.unblock(1);
    assert_eq!(process.reached(), 2);
    process.pause();
    assert_eq!(process.word(0), 3);
    process.client.unblock(2);
    for stream in [first, second, third] {
        assert_eq!(process.client.synchronize(stream, context), CUDA_SUCCESS);
    }
    assert_eq!(process.word(0), 5);
}

/// A kernel in another stream continues to write; a pending callback does not make that acceptable.
#[test]
fn pitfall_88_a_pause_ends_a_writer_beside_a_callback() {
    let limit = |policy: &mut VmPolicy| policy.pause_limit = Some(Duration::from_secs(3));
    let program = crate::common::program();
    let host = Host::with_policy(&program, &["worker-process"], &[], false, limit);
    let Some(host) = host else {
        return;
    };
    let mut guest = Guest::boot(&host.socket(0), Vmm::qemu());
    let mut process = Process::open(&mut guest);
    let worker = host.processes("worker-process")[0];
    let scribble = process.function("scribble");
    let stream = process.stream(1);
    process.callback(0, 1);
    assert_eq!(process.reached(), 1);
    process.launch(scribble, stream, 0);
    wait_for("a kernel that writes", || {
        (process.word(CHUNK / 2) != 0).then_some(())
    });
    process.client.guest().stop_rings();
    assert!(!host.processes("worker-process").contains(&worker));
    let pattern = [0xa5; CHUNK as usize];
    let (at, guest) = (process.at, process.client.guest());
    guest.write(at, &pattern);
    let mut found = [0; CHUNK as usize];
    guest
        .memory
        .read_slice(&mut found, GuestAddress(at))
        .unwrap();
    assert!(found == pattern);
}
