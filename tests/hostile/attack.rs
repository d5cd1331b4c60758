// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! A client that starts with valid commands and then changes them: the context in the header, the ids, the streams, the
//! addresses and lengths, the order. It sends them by its ring and as chains of the command queue at once, so that
//! several threads of its worker execute them, and one destroys objects that another uses. It always has long kernels
//! to run.
//!
//! Its commands follow from a seed, which is printed; `VIRTIO_GPGPU_TEST_SEED` sets it.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};

use gpgpu_protocol::{
    api::{Module, Request, object_id, request},
    codec::{Reader, Wire},
    cuda::*,
    layout::{StreamAnswer, StreamCommand, status},
    ring::{Area, NO_SLOT, Producer, RING_BYTES, SLOTS},
};
use vm_memory::{GuestAddress, GuestMemoryBackend};
use zerocopy::FromBytes;

use crate::{
    MIB,
    client::{Client, command},
    guest::Guest,
    host::Random,
};

#[path = "graphs.rs"]
mod graphs;
#[path = "green.rs"]
mod green;
#[path = "textures.rs"]
mod textures;
#[path = "traces.rs"]
mod traces;
#[path = "valid.rs"]
mod valid;

/// The guest addresses of the ring, and of pages that it registers with CUDA.
const RING: u64 = 32 * MIB;
const PINNED: u64 = 48 * MIB;
/// The offset of the client's own addresses.
const CLIENT: u64 = 1 << 44;
/// The size of each allocation.
const BYTES: usize = 64 << 10;
/// Physical memory is allocated in pieces of this length, and addresses are reserved for four.
const PIECE: u64 = 2 << 20;
const RESERVED: u64 = 4 * PIECE;
/// The number of commands that are sent before all of them are waited for.
const ROUND: u64 = 24;

/// A command that is ready to be sent.
struct Sent {
    bytes: Vec<u8>,
    input: Vec<u8>,
    out: u64,
    /// Words of the arguments that can be changed without making a kernel endless.
    words: Option<&'static [usize]>,
    /// Whether only the command queue accepts it.
    by_queue: bool,
}

impl Sent {
    fn new<R: Request>(request: &R, context: u64) -> Self {
        Self {
            bytes: command(request, context),
            input: Vec::new(),
            out: 0,
            words: None,
            by_queue: !R::OPERATION.rings_wide,
        }
    }

    fn with(self, input: &[u8], out: u64) -> Self {
        Self {
            input: input.to_vec(),
            out,
            ..self
        }
    }
}

/// A context, and the objects made in it.
#[derive(Clone)]
struct Place {
    context: u64,
    streams: Vec<u64>,
    events: Vec<u64>,
    functions: Vec<u64>,
    modules: Vec<u64>,
    memory: Vec<u64>,
}

/// See the module's documentation.
struct Attack<'a> {
    client: Client<'a>,
    random: Random,
    ring: Producer<'a>,
    places: Vec<Place>,
    pools: Vec<u64>,
    /// Reservations, of [`RESERVED`] bytes each, and ids of physical memory.
    reserved: Vec<u64>,
    physical: Vec<u64>,
    /// Executable graphs, and the number of each one's steps.
    executables: Vec<(u64, u32)>,
    /// The nodes of launches that kernels update.
    graph_nodes: u64,
    /// Green contexts of the first place's context.
    greens: Vec<u64>,
    /// Destroyed objects.
    gone: Vec<u64>,
    serial: u64,
    sequence: u32,
    turns: u32,
}

impl<'a> Attack<'a> {
    fn open(guest: &'a mut Guest, seed: u64, turns: u32) -> Self {
        guest.write(RING, &vec![0; RING_BYTES]);
        let base = guest.memory.get_host_address(GuestAddress(RING)).unwrap();
        // SAFETY: the guest's memory is mapped as long as the guest lives, and the ring is a part of it.
        let area = unsafe { Area::new(base) };
        // Before the worker reads it, which may then sleep at once.
        let ring = Producer::new(area, 0);
        let mut client = Client::open(guest);
        client.share_ring(RING, RING_BYTES as u64);
        client.widen_ring();
        let mut attack = Self {
            client,
            random: Random(seed),
            ring,
            places: Vec::new(),
            pools: Vec::new(),
            reserved: Vec::new(),
            physical: Vec::new(),
            executables: Vec::new(),
            graph_nodes: 0,
            greens: Vec::new(),
            gone: Vec::new(),
            serial: 100,
            sequence: 0,
            turns,
        };
        let first = attack.client.context();
        attack.furnish(first);
        let second = attack.client.create_context(2, 0);
        attack.furnish(second);
        for _ in 0..2 {
            let reserve = request::cuMemAddressReserve {
                ptr: true,
                size: RESERVED as usize,
                alignment: 0,
                addr: 0,
            };
            let (said, _) = attack.client.works(&reserve, 0, &[], 0);
            attack.reserved.push(said.ptr);
        }
        let pinned = (CLIENT + PINNED, BYTES as u64);
        let id = attack.client.id();
        let registered =
            attack
                .client
                .guest()
                .register(id, pinned.0, pinned.1, &[(PINNED, pinned.1)]);
        registered.expect("not registered");
        attack
    }

    fn next_serial(&mut self) -> u64 {
        self.serial += 1;
        self.serial
    }

    /// Makes a program's usual objects in a context.
    fn furnish(&mut self, context: u64) {
        let serials = [(); 2].map(|()| self.next_serial());
        let client = &mut self.client;
        let place = Place {
            context,
            streams: serials.map(|serial| client.stream(serial, context)).into(),
            events: Vec::new(),
            functions: serials
                .map(|serial| client.function(serial, "busy", context, context))
                .into(),
            modules: serials.map(object_id::<Module>).into(),
            memory: [(); 3].map(|()| client.alloc(BYTES, context)).into(),
        };
        self.places.push(place);
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> Option<T> {
        let index = self.random.below(from.len().max(1) as u64) as usize;
        from.get(index).copied()
    }

    /// An arbitrary replacement for a number.
    fn wild(&mut self) -> u64 {
        let at = self.random.below(self.places.len() as u64) as usize;
        let place = self.places[at].clone();
        let address = self.pick(&place.memory).unwrap_or(CLIENT + PINNED);
        let ids = [
            place.streams,
            place.events,
            place.functions,
            place.modules,
            vec![place.context],
            self.greens.clone(),
            self.pools.clone(),
            self.physical.clone(),
        ]
        .concat();
        let gone = self.gone.clone();
        let reserved = self.reserved[self.random.below(2) as usize];
        match self.random.below(9) {
            8 => reserved + self.random.below(5) * PIECE + self.random.below(2) * (PIECE - 1),
            0 | 1 => self.pick(&ids).unwrap_or(0),
            2 => self.pick(&gone).unwrap_or(2),
            3 => address + self.random.below(BYTES as u64 + 2),
            4 => CLIENT + PINNED + self.random.below(BYTES as u64 + 2) - 1,
            // Lengths, and ids of another VM's client.
            5 => BYTES as u64 + self.random.below(3) - 1,
            6 => self.random.below(1024) << 8 | self.random.below(9) << 4,
            _ => {
                let edges = [
                    0,
                    1,
                    2,
                    8,
                    4096,
                    1 << 31,
                    1 << 32,
                    1 << 47,
                    1 << 63,
                    u64::MAX,
                ];
                self.pick(&edges).unwrap_or(0)
            }
        }
    }

    /// Changes a command into one that no correct program sends.
    fn change(&mut self, sent: &mut Sent) {
        const HEAD: usize = size_of::<StreamCommand>();
        let words = (sent.bytes.len() - HEAD) / 8;
        let places = self.places.iter().map(|place| place.context);
        let contexts: Vec<u64> = places.chain(self.greens.iter().copied()).collect();
        if self.random.below(2) == 0 || words == 0 {
            let context = match self.random.below(4) {
                0 => 0,
                1 | 2 => self.pick(&contexts).unwrap_or(0),
                _ => self.wild(),
            };
            sent.bytes[HEAD - 8..HEAD].copy_from_slice(&context.to_le_bytes());
            return;
        }
        let word = match sent.words {
            Some(words) => self.pick(words).unwrap_or(0),
            None => self.random.below(words as u64) as usize,
        };
        let at = HEAD + word * 8;
        let wild = self.wild();
        if let Some(place) = sent.bytes.get_mut(at..at + 8) {
            place.copy_from_slice(&wild.to_le_bytes());
        }
    }

    /// Sends a command by the ring, if there is room: with a slot for the answer, or without.
    fn append(&mut self, bytes: &[u8]) -> bool {
        self.sequence += 1;
        let slot = match self.random.below(2) {
            0 => NO_SLOT,
            _ => self.random.below(SLOTS as u64) as u32,
        };
        self.ring.append(slot, self.sequence, 1, bytes)
    }

    /// Sends some commands at once and waits for the answers; returns `false` if the worker is dead.
    fn round(&mut self) -> bool {
        self.client.forget();
        let mut posted = Vec::new();
        for step in 0..ROUND {
            let mut sent = if step < 3 {
                // So the GPU always has work.
                let at = self.random.below(self.places.len() as u64) as usize;
                let place = self.places[at].clone();
                let stream = self.pick(&place.streams).unwrap_or(0);
                self.launch(&place, stream, 1)
            } else {
                self.valid()
            };
            if self.random.below(5) < 2 {
                self.change(&mut sent);
            }
            let by_ring = !sent.by_queue && self.random.below(2) == 0;
            if by_ring && self.append(&sent.bytes) {
                continue;
            }
            let answer = [0, 64, 4096][self.random.below(3) as usize];
            posted.push(match (sent.input.is_empty(), sent.out) {
                (false, _) => self.client.post_data(&sent.bytes, answer, &sent.input),
                (true, 0) => self.client.post(&sent.bytes, answer),
                (true, out) => self.client.post_out(&sent.bytes, answer, out),
            });
        }
        if self.ring.must_wake() {
            let wake = command(&request::gpgpuRingWake {}, 0);
            posted.push(self.client.post(&wake, 0));
        }
        let mut lives = true;
        for head in posted {
            lives &= self.client.wait(head) != status::CLIENT_DEAD;
        }
        lives
    }

    /// Replaces destroyed objects, and returns whether the GPU's state is good.
    fn refresh(&mut self) -> bool {
        for at in 0..self.places.len() {
            let context = self.places[at].context;
            let ask = |request: &[u8], client: &mut Client<'_>| {
                let (said, answer, _) = client.raw(request, 64, &[], 0);
                let (head, reply) = StreamAnswer::read_from_prefix(&answer).ok()?;
                (said == status::OK).then(|| (head.result.get(), reply.to_vec()))
            };
            let sync = command(&request::cuCtxSynchronize {}, context);
            match ask(&sync, &mut self.client) {
                Some((code, _)) if code < CUDA_ERROR_ILLEGAL_ADDRESS => {}
                _ => return false,
            }
            let alloc = request::cuMemAlloc_v2 {
                dptr: true,
                bytesize: BYTES,
            };
            if let Some((CUDA_SUCCESS, reply)) = ask(&command(&alloc, context), &mut self.client)
                && let Ok(address) = u64::get(&mut Reader::new(&reply))
            {
                self.places[at].memory.insert(0, address);
                self.places[at].memory.truncate(3);
            }
        }
        true
    }
}

/// The results of attacks.
#[derive(Debug, Default)]
pub struct Tally {
    /// Commands that were sent.
    pub commands: AtomicUsize,
    /// Workers that died.
    pub deaths: AtomicUsize,
    /// Clients that were opened after another one had ended, for example because of a kernel's fault.
    pub reopened: AtomicUsize,
}

/// Attacks until it is told to stop, with kernels of this number of turns.
pub fn attack(mut guest: Guest, seed: u64, turns: u32, stop: &AtomicBool, tally: &Tally) {
    for number in 0.. {
        if stop.load(Relaxed) {
            break;
        }
        if number > 0 {
            tally.reopened.fetch_add(1, Relaxed);
        }
        let mut attack = Attack::open(&mut guest, seed.wrapping_add(number << 32), turns);
        let mut rounds = 0;
        while !stop.load(Relaxed) {
            if !attack.round() {
                tally.deaths.fetch_add(1, Relaxed);
                break;
            }
            tally.commands.fetch_add(ROUND as usize, Relaxed);
            rounds += 1;
            if rounds % 8 == 0 && !attack.refresh() {
                break;
            }
        }
        attack.client.close();
    }
}
