// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! A process of a guest that launches kernels through a ring: the GPU writes to its memory, and the worker to the ring.

use gpgpu_protocol::{
    api::{default_pool, request},
    layout::COMMAND_QUEUE,
    ring::{Area, NO_SLOT, Producer, RING_BYTES, SLOTS},
};
use vm_memory::{Bytes, GuestAddress, GuestMemoryBackend, GuestMemoryMmap};

use crate::{
    client::{Client, command, launch},
    guest::Guest,
    memory::CHUNK,
    registered::register,
};

/// The number of kernels that are launched in each round, and the number of turns of each.
const LAUNCHES: u32 = 300;
const TURNS: u32 = 200;
/// The number of slots for requests that may block.
const WAITS: u32 = 8;
const ANSWER_BYTES: u32 = 64;

/// The size of its memory: the ring, and its kernels' counters.
pub const RING_PROCESS_BYTES: u64 = (RING_BYTES as u64).next_multiple_of(CHUNK) + CHUNK;

/// See the module's documentation.
pub struct RingProcess {
    client: u32,
    context: u64,
    stream: u64,
    busy: u64,
    /// The address of registered memory, in the guest and for kernels.
    at: u64,
    device: u64,
    area: Area<'static>,
    ring: Producer<'static>,
    sequence: u32,
    /// The pending requests that threads of the worker answer: slots and sequences.
    waits: Vec<(u32, u32)>,
    launched: u32,
    /// The memory that contains the ring.
    _memory: GuestMemoryMmap,
}

impl RingProcess {
    /// Opens it, with its memory from this address on.
    pub fn open(guest: &mut Guest, ring_at: u64) -> Self {
        let at = ring_at + RING_PROCESS_BYTES - CHUNK;
        guest.write(ring_at, &vec![0; RING_PROCESS_BYTES as usize]);
        let memory = guest.memory.clone();
        let base = memory.get_host_address(GuestAddress(ring_at)).unwrap();
        // SAFETY: the ring is a part of the guest's memory, which is mapped for as long as `_memory` is there.
        let area = unsafe { Area::new(base) };
        // Before the worker reads it, which may then sleep at once.
        let ring = Producer::new(area, 0);
        let mut client = Client::open(guest);
        client.share_ring(ring_at, RING_BYTES as u64);
        client.widen_ring();
        let context = client.context();
        let busy = client.function(1, "busy", context, context);
        let stream = client.stream(2, context);
        let address = (1 << 45) + at;
        let id = client.id();
        let device = register(&mut client, address, (at, CHUNK), context);
        Self {
            client: id,
            context,
            stream,
            busy,
            at,
            device,
            area,
            ring,
            sequence: 0,
            waits: Vec::new(),
            launched: 0,
            _memory: memory,
        }
    }

    /// Launches the kernels of a round, as many as there is room for; returns the command that makes the worker look at
    /// the ring.
    pub fn work(&mut self, guest: &mut Guest) -> Option<u16> {
        for number in 0..LAUNCHES {
            let launch = launch(self.busy, self.stream, self.device, TURNS);
            let launch = command(&launch, self.context);
            // Some have an answer, which the worker writes.
            let has_answer = number % 16 == 0;
            self.sequence += 1;
            let slot = match has_answer {
                true => self.sequence / 16 % (SLOTS as u32 - WAITS),
                false => NO_SLOT,
            };
            if self.ring.append(slot, self.sequence, 0, &launch) {
                self.launched += 1;
            }
            if number % 4 == 0 {
                self.wait();
            }
        }
        self.ring.must_wake().then(|| {
            let wake = command(&request::gpgpuRingWake {}, 0);
            let head = guest.post_buffers(self.client, &wake, ANSWER_BYTES, &[], false);
            guest.trim(COMMAND_QUEUE, head, 2 * ANSWER_BYTES);
            head
        })
    }

    /// Sends a request that another thread than the ring's answers, if there is a free slot.
    fn wait(&mut self) {
        let area = self.area;
        self.waits
            .retain(|&(slot, sequence)| area.slot(slot as usize).answered(sequence).is_none());
        let is_free = |slot: &u32| self.waits.iter().all(|(of, _)| of != slot);
        let Some(slot) = (SLOTS as u32 - WAITS..SLOTS as u32).find(is_free) else {
            return;
        };
        let trim = request::cuMemPoolTrimTo {
            pool: default_pool(0),
            minBytesToKeep: 0,
        };
        self.sequence += 1;
        area.slot(slot as usize).clear();
        let trim = command(&trim, self.context);
        if self.ring.append(slot, self.sequence, 0, &trim) {
            self.waits.push((slot, self.sequence));
        }
    }

    /// Waits for all kernels, and checks that each has run exactly once.
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
