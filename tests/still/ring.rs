// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! A process of a guest that has its kernels launched by a ring: the GPU writes to its memory, and the worker to the ring.

use gpgpu_protocol::{
    api::request,
    layout::COMMAND_QUEUE,
    ring::{Area, NO_SLOT, Producer, RING_BYTES, SLOTS},
};
use vm_memory::{Bytes, GuestAddress, GuestMemoryBackend, GuestMemoryMmap};

use crate::{
    client::{Client, command, launch},
    guest::Guest,
    memory::CHUNK,
};

/// How many kernels are launched in each round, and how long each computes.
const LAUNCHES: u32 = 300;
const TURNS: u32 = 200;
const ANSWER_BYTES: u32 = 64;

/// How much memory it takes: the ring, and what its kernels count in.
pub const RING_PROCESS_BYTES: u64 = (RING_BYTES as u64).next_multiple_of(CHUNK) + CHUNK;

/// See the module's page.
pub struct RingProcess {
    client: u32,
    context: u64,
    stream: u64,
    busy: u64,
    /// Registered memory, in the guest and as kernels see it.
    at: u64,
    device: u64,
    ring: Producer<'static>,
    sequence: u32,
    launched: u32,
    /// In which the ring lies.
    _memory: GuestMemoryMmap,
}

impl RingProcess {
    /// Opens it, with its memory from here on.
    pub fn open(guest: &mut Guest, ring_at: u64) -> Self {
        let at = ring_at + RING_PROCESS_BYTES - CHUNK;
        guest.write(ring_at, &vec![0; RING_PROCESS_BYTES as usize]);
        let memory = guest.memory.clone();
        let base = memory.get_host_address(GuestAddress(ring_at)).unwrap();
        // SAFETY: the ring is a part of the guest's memory, which is mapped for as long as `_memory` is there.
        let area = unsafe { Area::new(base) };
        // Before the worker looks at it, which may go to sleep at once.
        let ring = Producer::new(area, 0);
        let mut client = Client::open(guest);
        client.share_ring(ring_at, RING_BYTES as u64);
        let context = client.context();
        let busy = client.function(1, "busy", context, context);
        let stream = client.stream(2, context);
        let address = (1 << 45) + at;
        let id = client.id();
        let registered = client.guest().register(id, address, CHUNK, &[(at, CHUNK)]);
        registered.expect("not registered");
        let register = request::cuMemHostRegister_v2 {
            address,
            bytes: CHUNK as usize,
            flags: 0,
            device: true,
        };
        let device = client.works(&register, context, &[], 0).0.device;
        Self {
            client: id,
            context,
            stream,
            busy,
            at,
            device,
            ring,
            sequence: 0,
            launched: 0,
            _memory: memory,
        }
    }

    /// Launches the kernels of a round, as many as there is room for; returns the commands that have the ring looked at.
    pub fn work(&mut self, guest: &mut Guest) -> Option<u16> {
        for number in 0..LAUNCHES {
            let launch = launch(self.busy, self.stream, self.device, TURNS);
            let launch = command(&launch, self.context);
            // Some have an answer, which the worker writes.
            let has_answer = number % 16 == 0;
            self.sequence += 1;
            let slot = match has_answer {
                true => self.sequence / 16 % SLOTS as u32,
                false => NO_SLOT,
            };
            if self.ring.append(slot, self.sequence, 0, &launch) {
                self.launched += 1;
            }
        }
        self.ring.must_wake().then(|| {
            let wake = command(&request::gpgpuRingWake {}, 0);
            let head = guest.post_buffers(self.client, &wake, ANSWER_BYTES, &[], false);
            guest.trim(COMMAND_QUEUE, head, 2 * ANSWER_BYTES);
            head
        })
    }

    /// Waits for all kernels, and checks that each ran once.
    pub fn finish(&self, guest: &mut Guest) {
        let after = request::gpgpuRingAfter {
            position: self.ring.tail(),
        };
        let wait = request::cuStreamSynchronize {
            hStream: self.stream,
        };
        let stream = [command(&after, 0), command(&wait, self.context)].concat();
        let head = guest.post_buffers(self.client, &stream, ANSWER_BYTES, &[], false);
        guest.trim(COMMAND_QUEUE, head, 2 * ANSWER_BYTES);
        crate::load::check(&guest.wait(COMMAND_QUEUE, head));
        let count: u32 = guest.memory.read_obj(GuestAddress(self.at)).unwrap();
        assert_eq!(count, self.launched, "kernels of the ring");
    }
}
