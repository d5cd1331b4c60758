// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Processes of a guest that have as much pending as they may: copies in both directions, the large ones by a mover,
//! kernels and copies that write to registered memory, and small commands.

use std::ops::Range;

use gpgpu_protocol::{
    api::{Request, request},
    cuda::CUDA_SUCCESS,
    layout::{COMMAND_QUEUE, StreamAnswer, status},
};
use vm_memory::{Bytes, GuestAddress};
use zerocopy::FromBytes;

use crate::{
    client::{Client, command, launch},
    guest::{Guest, Used},
    memory::{CHUNK, bytes},
    registered::register,
    ring::{RING_PROCESS_BYTES, RingProcess},
};

const PAGE: u64 = 4096;
/// The size of a large copy, which a mover makes, and of a small one.
const LARGE: u64 = 512 << 10;
const SMALL: u64 = CHUNK;
/// The number of buffers of each kind, and of large copies in each direction: a process has at most 16 pending, and a
/// VM 32.
const BUFFERS: u64 = 4;
const COPIES: u64 = 8;
/// The offsets of a process's buffers: data from the GPU, data for it, both again for small copies, and registered
/// memory.
const OUT: u64 = 0;
const IN: u64 = OUT + BUFFERS * LARGE;
const SMALL_OUT: u64 = IN + BUFFERS * LARGE;
const SMALL_IN: u64 = SMALL_OUT + BUFFERS * SMALL;
const PINNED: u64 = SMALL_IN + BUFFERS * SMALL;
/// Kernels write to the first half of it, copies to the second.
const PINNED_BYTES: u64 = 2 * CHUNK;
const PROCESS_BYTES: u64 = PINNED + PINNED_BYTES;
/// The offset of `busy`'s counter, after the data in device memory.
const COUNTER: u64 = COPIES * LARGE + BUFFERS * SMALL;
/// The address of registered memory in a process, whatever its address in the guest is.
const ADDRESS: u64 = 1 << 44;
const ANSWER_BYTES: u32 = 64;

/// The number of processes of a load.
pub const PROCESSES: u64 = 2;
/// The bytes of memory that they take.
pub const LOAD_BYTES: u64 = PROCESSES * PROCESS_BYTES + RING_PROCESS_BYTES;

/// The content of a process's buffer, or of the device memory from which it is copied.
fn data(seed: u64, place: u64, count: u64) -> Vec<u8> {
    bytes(!seed, place, count as usize)
}

/// The parts of a buffer, in the order in which data is written to them: every other buffer consists of pages that are
/// not contiguous.
fn parts(buffer: u64, at: u64) -> Vec<(u64, u32)> {
    let count = LARGE / PAGE;
    match buffer % 2 {
        0 => vec![(at, LARGE as u32)],
        _ => (0..count)
            .map(|page| (at + (page * 7 + 3) % count * PAGE, PAGE as u32))
            .collect(),
    }
}

fn post<R: Request>(
    guest: &mut Guest,
    process: &Process,
    request: &R,
    (buffers, to_guest): (&[(u64, u32)], bool),
) -> u16 {
    let stream = command(request, process.context);
    let head = guest.post_buffers(process.id, &stream, ANSWER_BYTES, buffers, to_guest);
    // Data is checked in place.
    guest.trim(COMMAND_QUEUE, head, 2 * ANSWER_BYTES);
    head
}

pub fn check(used: &Used) {
    let (status, answer, _) = used.split(ANSWER_BYTES);
    assert_eq!(status, status::OK);
    let (head, _) = StreamAnswer::read_from_prefix(&answer).unwrap();
    assert_eq!(head.result.get(), CUDA_SUCCESS);
}

/// The GPU's writes to registered memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Writes {
    /// No writes.
    Nothing,
    /// Copies, and a kernel that runs until it is told to stop.
    WithoutEnd,
    /// Copies and finite kernels, also by a ring.
    Finite,
}

/// A process of the guest.
struct Process {
    id: u32,
    context: u64,
    /// The guest address of its buffers.
    at: u64,
    streams: [u64; 2],
    busy: u64,
    scribble: u64,
    /// Device memory that is copied from, and to.
    source: u64,
    sink: u64,
    /// The address of registered memory for kernels.
    pinned: u64,
}

impl Process {
    fn open(guest: &mut Guest, at: u64) -> Self {
        guest.write(at + OUT, &data(0, at, BUFFERS * LARGE));
        guest.write(at + PINNED, &[0; PINNED_BYTES as usize]);
        let mut client = Client::open(guest);
        let context = client.context();
        let [busy, scribble] = [(1, "busy"), (2, "scribble")]
            .map(|(serial, name)| client.function(serial, name, context, context));
        let streams = [1, 2].map(|serial| client.stream(serial, context));
        let source = client.alloc((BUFFERS * LARGE) as usize, context);
        let sink = client.alloc((COUNTER + PAGE) as usize, context);
        let id = client.id();
        let pinned = register(&mut client, ADDRESS, (at + PINNED, PINNED_BYTES), context);
        let this = Self {
            id,
            context,
            at,
            streams,
            busy,
            scribble,
            source,
            sink,
            pinned,
        };
        let whole = [(at + OUT, (BUFFERS * LARGE) as u32)];
        let head = this.copy_in(guest, source, &whole);
        check(&guest.wait(COMMAND_QUEUE, head));
        this
    }

    fn copy_in(&self, guest: &mut Guest, dst: u64, from: &[(u64, u32)]) -> u16 {
        let copy = request::gpgpuCopyIn {
            dst,
            hStream: 0,
            synchronous: true,
        };
        post(guest, self, &copy, (from, false))
    }

    fn copy_out(&self, guest: &mut Guest, src: u64, to: &[(u64, u32)]) -> u16 {
        let copy = request::gpgpuCopyOut { src, hStream: 0 };
        post(guest, self, &copy, (to, true))
    }

    /// Lets a kernel write to registered memory until it is told to stop.
    fn scribble(&self, guest: &mut Guest, seed: u64) -> u16 {
        guest.write(self.at + PINNED, &[0; 64]);
        let scribble = launch(self.scribble, self.streams[0], self.pinned, seed as u32);
        post(guest, self, &scribble, (&[], false))
    }

    /// Writes the data for a round.
    fn prepare(&self, guest: &Guest, seed: u64) {
        guest.write(self.at + OUT, &vec![0; (BUFFERS * LARGE) as usize]);
        guest.write(self.at + SMALL_OUT, &vec![0; (BUFFERS * SMALL) as usize]);
        guest.write(self.at + IN, &data(seed, self.at, BUFFERS * LARGE));
        guest.write(self.at + SMALL_IN, &data(seed, !self.at, BUFFERS * SMALL));
    }

    /// Sends a part of the work.
    fn work(&self, guest: &mut Guest, part: u64, writes: Writes) -> Vec<u16> {
        let buffer = part % BUFFERS;
        let large = buffer * LARGE;
        let small = buffer * SMALL;
        let at = |place: u64| vec![(self.at + place + small, SMALL as u32)];
        let turn = launch(self.busy, self.streams[1], self.sink + COUNTER, 100);
        let sink = self.sink + COPIES * LARGE;
        let mut heads = vec![
            self.copy_out(
                guest,
                self.source + large,
                &parts(buffer, self.at + OUT + large),
            ),
            self.copy_in(
                guest,
                self.sink + part * LARGE,
                &parts(buffer, self.at + IN + large),
            ),
            self.copy_out(guest, self.source + large, &at(SMALL_OUT)),
            self.copy_in(guest, sink + small, &at(SMALL_IN)),
        ];
        if writes == Writes::Finite {
            let count = launch(self.busy, self.streams[0], self.pinned, 2000);
            heads.push(post(guest, self, &count, (&[], false)));
        }
        if writes != Writes::Nothing {
            heads.push(post(guest, self, &turn, (&[], false)));
            let copy = request::cuMemcpyAsync {
                dst: ADDRESS + CHUNK,
                src: self.source + large,
                ByteCount: CHUNK as usize,
                hStream: self.streams[1],
            };
            heads.push(post(guest, self, &copy, (&[], false)));
        }
        heads
    }

    fn holds(&self, guest: &Guest, parts: &[(u64, u32)], expected: &[u8]) {
        let mut found = vec![0; expected.len()];
        let mut rest = &mut found[..];
        for &(at, len) in parts {
            let (part, after) = rest.split_at_mut(len as usize);
            guest.memory.read_slice(part, GuestAddress(at)).unwrap();
            rest = after;
        }
        assert!(found == expected, "wrong data at {:#x}", parts[0].0);
    }

    /// Checks the results of a round.
    fn check(&self, guest: &mut Guest, seed: u64) {
        let source = data(0, self.at, BUFFERS * LARGE);
        let from = |data: &[u8], buffer: u64, each: u64| {
            let start = (buffer * each) as usize;
            data[start..start + each as usize].to_vec()
        };
        for buffer in 0..BUFFERS {
            let at = parts(buffer, self.at + OUT + buffer * LARGE);
            self.holds(guest, &at, &from(&source, buffer, LARGE));
            let at = [(self.at + SMALL_OUT + buffer * SMALL, SMALL as u32)];
            self.holds(
                guest,
                &at,
                &source[(buffer * LARGE) as usize..][..SMALL as usize],
            );
        }
        // Received data is sent out again. Its parts arrived in some order.
        let came = data(seed, self.at, BUFFERS * LARGE);
        for copy in 0..COPIES {
            let buffer = copy % BUFFERS;
            let to = parts(buffer, self.at + OUT + buffer * LARGE);
            let head = self.copy_out(guest, self.sink + copy * LARGE, &to);
            check(&guest.wait(COMMAND_QUEUE, head));
            let whole = [(self.at + OUT + buffer * LARGE, LARGE as u32)];
            self.holds(guest, &whole, &from(&came, buffer, LARGE));
        }
        let came = data(seed, !self.at, BUFFERS * SMALL);
        let small = self.at + SMALL_OUT;
        let sink = self.sink + COPIES * LARGE;
        let head = self.copy_out(guest, sink, &[(small, (BUFFERS * SMALL) as u32)]);
        check(&guest.wait(COMMAND_QUEUE, head));
        self.holds(guest, &[(small, (BUFFERS * SMALL) as u32)], &came);
    }
}

/// See the module's documentation.
pub struct Load {
    processes: Vec<Process>,
    posted: Vec<u16>,
    /// The start of the commands' buffers.
    mark: u64,
    writes: Writes,
    ring: Option<RingProcess>,
}

impl Load {
    /// Opens the processes; their buffers are in [`LOAD_BYTES`] from this address on.
    pub fn open(guest: &mut Guest, at: u64, writes: Writes) -> Self {
        guest.indirect = true;
        let places = (0..PROCESSES).map(|process| at + process * PROCESS_BYTES);
        let processes = places.map(|at| Process::open(guest, at)).collect();
        let ring_at = at + PROCESSES * PROCESS_BYTES;
        let ring = (writes == Writes::Finite).then(|| RingProcess::open(guest, ring_at));
        Self {
            processes,
            posted: Vec::new(),
            mark: guest.alloc(0),
            writes,
            ring,
        }
    }

    /// The numbers of the clients.
    pub fn clients(&self) -> Vec<u32> {
        self.processes.iter().map(|process| process.id).collect()
    }

    /// The memory that the processes have registered.
    pub fn pinned(&self) -> Vec<Range<u64>> {
        let pinned = |process: &Process| {
            let at = process.at + PINNED;
            at..at + PINNED_BYTES
        };
        self.processes.iter().map(pinned).collect()
    }

    /// The memory that the device reads for commands that it has taken, including the room for their answers.
    pub fn read(&self) -> Vec<Range<u64>> {
        let of_process = |process: &Process| {
            let at = |place: u64| process.at + place;
            [at(IN)..at(SMALL_OUT), at(SMALL_IN)..at(PINNED)]
        };
        let data = self.processes.iter().flat_map(of_process);
        data.chain([self.commands()]).collect()
    }

    /// The guest addresses of commands, their answers and lists of their buffers.
    fn commands(&self) -> Range<u64> {
        self.mark & !(CHUNK - 1)..self.processes[0].at
    }

    /// Sends all the work of a round at once, and waits until a part of it was answered; the part differs in each
    /// round.
    pub fn work(&mut self, guest: &mut Guest, round: u64) {
        guest.forget_buffers(self.mark);
        guest.forget_order(COMMAND_QUEUE);
        // This makes an answer that comes too late visible.
        let bytes = (self.processes[0].at - self.mark) as usize;
        guest.write(self.mark, &vec![0; bytes]);
        for process in &self.processes {
            process.prepare(guest, round);
        }
        if self.writes == Writes::WithoutEnd {
            for process in &self.processes[..1] {
                let head = process.scribble(guest, round);
                check(&guest.wait(COMMAND_QUEUE, head));
            }
        }
        for part in 0..COPIES {
            for process in &self.processes {
                let heads = process.work(guest, part, self.writes);
                self.posted.extend(heads);
            }
        }
        if let Some(ring) = &mut self.ring {
            self.posted.extend(ring.work(guest));
        }
        let part = round as usize * 37 % self.posted.len();
        guest.wait_order(COMMAND_QUEUE, part);
    }

    /// Waits for the end of the work of a round, and checks all data.
    pub fn finish(&mut self, guest: &mut Guest, round: u64) {
        for head in self.posted.drain(..) {
            check(&guest.wait(COMMAND_QUEUE, head));
        }
        if let Some(ring) = &self.ring {
            ring.finish(guest);
        }
        if self.writes != Writes::Nothing {
            for process in &self.processes {
                guest.write(process.at + PINNED + 8, &[1]);
            }
            for process in &self.processes {
                for stream in process.streams {
                    let wait = request::cuStreamSynchronize { hStream: stream };
                    let head = post(guest, process, &wait, (&[], false));
                    check(&guest.wait(COMMAND_QUEUE, head));
                }
            }
        }
        for process in &self.processes {
            process.check(guest, round);
        }
    }
}
