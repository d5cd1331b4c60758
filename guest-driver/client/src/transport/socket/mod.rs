// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! A vhost-user socket: the library is its own front end, with its own memory in place of a guest's RAM.

mod frames;

use std::{
    collections::VecDeque,
    ffi::c_void,
    net::Shutdown,
    os::{
        fd::{AsRawFd, RawFd},
        unix::net::UnixStream,
    },
    path::PathBuf,
    sync::Arc,
};

use gpgpu_locks::{Condvar, Mutex};
use gpgpu_protocol::{
    api,
    layout::{
        COMMAND_QUEUE, CONTROL_QUEUE, CommandAnswer, CommandHeader, ControlAnswer, EVENT_QUEUE,
        MAGIC, MAX_DATA_BYTES, Open, OpenAnswer, Register, RegisterAnswer, Run, Unregister,
        VERSION, control,
    },
};
use vmm_sys_util::eventfd::{EFD_CLOEXEC, EFD_NONBLOCK, EventFd};
use zerocopy::{FromBytes, IntoBytes};

use super::children::{close_in_children, keep_in_children};
use super::{
    Backing, Data, Failure, OpenError, Pinned, Submission, Transport, files,
    front_end::{FrontEnd, Patience},
    process_name,
    queue::{Claimed, Geometry, Part, Queue},
    shared::{RESERVED_BYTES, Shared},
    window,
};
use crate::{parallel_copy, signals};
use frames::{COMMAND, CONTROL, EVENT, answer, check, command_answer, header, is_failure};

const PAGE: u64 = 4096;
const NOTHING: Part = (0, 0);
const BLOCKS: u64 = 40 << 20;
const BLOCK_COUNT: u64 = 8;
/// The maximum number of parts of one transfer in flight; half of the blocks are left for others.
const MAX_FLIGHTS: usize = 4;
/// The minimum size of a part of a longer transfer. Shorter transfers have one part.
const SHORT: usize = 1 << 20;

/// The connection to a device process, and one client of it.
pub struct Socket {
    shared: Arc<Shared>,
    control: Arc<Queue>,
    command: Arc<Queue>,
    blocks: Mutex<Vec<u64>>,
    returned: Condvar,
    client: u32,
    // Kept open, because the device process ends with the connection.
    front_end: FrontEnd,
    /// The same socket, which the interrupt thread watches.
    watched: Arc<UnixStream>,
}

impl Drop for Socket {
    fn drop(&mut self) {
        for fd in self.descriptors() {
            keep_in_children(fd);
        }
        // The thread's wait keeps the connection open. This ends both.
        let _ = self.watched.shutdown(Shutdown::Both);
    }
}

fn event_fd() -> Result<EventFd, String> {
    EventFd::new(EFD_CLOEXEC | EFD_NONBLOCK).map_err(|error| error.to_string())
}

impl Socket {
    /// Connects, sets up the device as a VMM and a driver would, and makes this process a client.
    pub fn connect(path: PathBuf) -> Result<Self, OpenError> {
        let _whole = signals::Whole::begin();
        let broken = |reason: String| OpenError::Socket(path.clone(), reason);
        let stream = UnixStream::connect(&path).map_err(|error| broken(error.to_string()))?;
        let patience = Patience::start(&stream).map_err(|error| broken(error.to_string()))?;
        let watched = stream.try_clone().map(Arc::new);
        let watched = watched.map_err(|error| broken(error.to_string()))?;
        let shared = Arc::new(Shared::new().map_err(|error| broken(error.to_string()))?);
        let (front_end, config) =
            FrontEnd::negotiate(stream, &shared).map_err(|error| broken(patience.reason(error)))?;
        if (
            config.magic.get(),
            config.version.get(),
            config.api_family.get(),
        ) != (MAGIC, VERSION, api::issued::FAMILY)
        {
            return Err(OpenError::Version);
        }
        let mut queues = Vec::new();
        let mut calls = Vec::new();
        for (index, geometry) in [
            (CONTROL_QUEUE, CONTROL),
            (COMMAND_QUEUE, COMMAND),
            (EVENT_QUEUE, EVENT),
        ] {
            let (kick, call) = (event_fd().map_err(broken)?, event_fd().map_err(broken)?);
            front_end
                .start_queue(index, &geometry, &shared, &kick, &call)
                .map_err(|error| broken(patience.reason(error)))?;
            queues.push(Arc::new(Queue::new(Arc::clone(&shared), geometry, kick)));
            calls.push(call);
        }
        drop(patience);
        let mut socket = Self {
            shared,
            control: Arc::clone(&queues[CONTROL_QUEUE]),
            command: Arc::clone(&queues[COMMAND_QUEUE]),
            blocks: Mutex::new(
                (0..BLOCK_COUNT)
                    .map(|i| BLOCKS + i * MAX_DATA_BYTES as u64)
                    .collect(),
            ),
            returned: Condvar::new(),
            client: 0,
            front_end,
            watched,
        };
        for fd in socket.descriptors() {
            close_in_children(fd);
        }
        watch(queues, calls, Arc::clone(&socket.watched))
            .map_err(|error| broken(error.to_string()))?;
        socket.client = socket.open_client().map_err(OpenError::Refused)?;
        Ok(socket)
    }

    /// The descriptors of the connection: of both queues, of the memory, and of the socket itself.
    fn descriptors(&self) -> [RawFd; 5] {
        [
            self.front_end.descriptor(),
            self.watched.as_raw_fd(),
            self.shared.file().as_raw_fd(),
            self.control.kick(),
            self.command.kick(),
        ]
    }

    fn open_client(&self) -> Result<u32, Failure> {
        let open = Open {
            header: header(control::OPEN, 0),
            version: VERSION.into(),
            pid: std::process::id().into(),
            api_family: api::issued::FAMILY.into(),
            name: process_name(),
        };
        let answer: OpenAnswer = self.request(&[open.as_bytes()])?;
        check(answer.status.get())?;
        Ok(answer.client.get())
    }

    /// A request on the control queue.
    fn request<A: FromBytes + IntoBytes>(&self, pieces: &[&[u8]]) -> Result<A, Failure> {
        let slot = self.control.claim()?;
        let request = slot.write(pieces)?;
        slot.send([request, NOTHING], [slot.answer(size_of::<A>())?, NOTHING])?;
        Ok(answer(&slot))
    }

    fn register(&self, address: u64, offset: u64, bytes: usize) -> Result<u32, Failure> {
        let register = Register {
            header: header(control::REGISTER, self.client),
            address: address.into(),
            length: (bytes as u64).into(),
            runs: 1.into(),
            reserved: 0.into(),
        };
        let run = Run {
            address: offset.into(),
            length: (bytes as u64).into(),
        };
        let answer: RegisterAnswer = self.request(&[register.as_bytes(), run.as_bytes()])?;
        check(answer.status.get())?;
        Ok(answer.region.get())
    }

    fn unregister(&self, region: u32) -> Result<(), Failure> {
        let header = header(control::UNREGISTER, self.client);
        let unregister = Unregister {
            header,
            region: region.into(),
            reserved: 0.into(),
        };
        let answer: ControlAnswer = self.request(&[unregister.as_bytes()])?;
        check(answer.status.get())
    }

    /// Pins pages that the program shares with other mappings or processes, so that they stay shared: the device
    /// process gets their file. `None` if they do not belong to an in-memory file.
    fn pin_shared(
        &self,
        address: u64,
        bytes: usize,
        read_only: bool,
    ) -> Result<Option<Pinned>, Failure> {
        if !self.front_end.can_add() {
            return Ok(None);
        }
        let own = self.shared.identity();
        let Some(mapped) = files::behind(address, bytes as u64, !read_only)
            .filter(|mapped| Some(mapped.identity) != own)
        else {
            return Ok(None);
        };
        let added = self.front_end.add(mapped, bytes as u64)?;
        let registered = self.register(address, added.address, bytes);
        let region = registered.inspect_err(|_| self.front_end.remove(added))?;
        Ok(Some(Pinned {
            address,
            bytes,
            region,
            backing: Backing::Added(added),
        }))
    }

    /// A block for data. Waits for one if necessary.
    fn block(&self) -> Block<'_> {
        let mut blocks = self.blocks.lock();
        loop {
            if let Some(at) = blocks.pop() {
                return Block { socket: self, at };
            }
            blocks = self.returned.wait(blocks);
        }
    }

    /// A block for data, unless all are in use.
    fn spare_block(&self) -> Option<Block<'_>> {
        let mut blocks = self.blocks.lock();
        blocks.pop().map(|at| Block { socket: self, at })
    }

    fn command_header(
        &self,
        thread: u32,
        stream: &[u8],
        answer: usize,
        input: usize,
        output: usize,
    ) -> CommandHeader {
        CommandHeader {
            client: self.client.into(),
            thread: thread.into(),
            stream_bytes: (stream.len() as u32).into(),
            answer_bytes: (answer as u32).into(),
            in_bytes: (input as u64).into(),
            out_bytes: (output as u64).into(),
            data_offset: 0.into(),
        }
    }

    /// Sends a part of a transfer.
    fn start<'a>(
        &'a self,
        thread: u32,
        stream: &[u8],
        data: &Data<'_>,
        answer: usize,
        (offset, bytes): (usize, usize),
        block: Block<'a>,
    ) -> Result<Flight<'a>, Failure> {
        let part = (block.at, bytes);
        let (input, output) = match data {
            Data::In(from) => {
                let from = &from[offset..][..bytes];
                // SAFETY: the block is this transfer's alone and long enough.
                unsafe { parallel_copy::copy(self.shared.at(block.at), from.as_ptr(), bytes) };
                (part, NOTHING)
            }
            Data::Out(_) => (NOTHING, part),
        };
        let slot = self.command.claim()?;
        let mut head = self.command_header(thread, stream, answer, input.1, output.1);
        head.data_offset = (offset as u64).into();
        let request = slot.write(&[head.as_bytes(), stream])?;
        let answer = slot.answer(size_of::<CommandAnswer>() + answer)?;
        slot.start([request, input], [answer, output]);
        Ok(Flight {
            slot,
            block,
            offset,
            bytes,
        })
    }

    fn exchange(&self, submission: Submission<'_>, at: u64) -> Result<usize, Failure> {
        let Submission {
            thread,
            stream,
            input,
            answer: to,
            output,
        } = submission;
        if input.len() + output.len() > MAX_DATA_BYTES {
            return Err(Failure::Os(libc::E2BIG));
        }
        if !input.is_empty() {
            // SAFETY: the block is this exchange's alone and long enough.
            unsafe {
                self.shared
                    .at(at)
                    .copy_from_nonoverlapping(input.as_ptr(), input.len())
            };
        }
        let slot = self.command.claim()?;
        let head = self.command_header(thread, stream, to.len(), input.len(), output.len());
        let request = slot.write(&[head.as_bytes(), stream])?;
        let answer_part = slot.answer(size_of::<CommandAnswer>() + to.len())?;
        let out_at = at + input.len() as u64;
        slot.send(
            [request, (at, input.len())],
            [answer_part, (out_at, output.len())],
        )?;
        let length = command_answer(&slot, to)?;
        if !output.is_empty() {
            // SAFETY: as above; the device has returned the block.
            unsafe {
                self.shared
                    .at(out_at)
                    .copy_to_nonoverlapping(output.as_mut_ptr(), output.len())
            };
        }
        Ok(length)
    }
}

/// A block of the shared memory for data. Dropping it after the exchange frees it.
struct Block<'a> {
    socket: &'a Socket,
    at: u64,
}

impl Drop for Block<'_> {
    fn drop(&mut self) {
        self.socket.blocks.lock().push(self.at);
        self.socket.returned.notify_one();
    }
}

/// A part of a transfer in flight.
struct Flight<'a> {
    slot: Claimed<'a>,
    block: Block<'a>,
    offset: usize,
    bytes: usize,
}

/// The size of a transfer's next part in bytes: the first is short, so that the device begins early.
fn part_bytes(total: usize, sent: usize) -> usize {
    let most = if sent == 0 && total > SHORT {
        SHORT / 2
    } else {
        (total / 4).clamp(SHORT, MAX_DATA_BYTES)
    };
    most.min(total - sent)
}

/// The thread that receives the device's interrupts, and detects its end.
fn watch(
    queues: Vec<Arc<Queue>>,
    calls: Vec<EventFd>,
    socket: Arc<UnixStream>,
) -> std::io::Result<()> {
    let run = move || {
        let poll = |fd: RawFd, events: libc::c_short| libc::pollfd {
            fd,
            events,
            revents: 0,
        };
        // Other threads read the answers to the front end's messages; here only the end of the connection matters.
        let mut fds: Vec<_> = calls
            .iter()
            .map(|call| poll(call.as_raw_fd(), libc::POLLIN))
            .chain([poll(socket.as_raw_fd(), libc::POLLRDHUP)])
            .collect();
        loop {
            // SAFETY: the array is as long as it is said to be.
            let ready = unsafe { libc::poll(fds.as_mut_ptr(), fds.len() as libc::nfds_t, -1) };
            if ready < 0
                && std::io::Error::last_os_error().kind() != std::io::ErrorKind::Interrupted
            {
                break;
            }
            for (call, queue) in calls.iter().zip(&queues) {
                // The counter is read before the ring, so that a chain that is returned in between is handled next
                // time.
                let _ = call.read();
                queue.reap();
            }
            if ready > 0 && fds[calls.len()].revents != 0 {
                break;
            }
        }
        for queue in &queues {
            queue.bury();
        }
    };
    signals::spawn("gpgpu-interrupts", run)
}

impl Transport for Socket {
    fn submit(&self, submission: Submission<'_>) -> Result<usize, Failure> {
        if submission.input.is_empty() && submission.output.is_empty() {
            return self.exchange(submission, 0);
        }
        let block = self.block();
        self.exchange(submission, block.at)
    }

    fn transfer(
        &self,
        thread: u32,
        stream: &[u8],
        mut data: Data<'_>,
        answer: &mut [u8],
    ) -> Result<usize, Failure> {
        let total = data.bytes();
        if total == 0 {
            return self.submit(Submission {
                thread,
                stream,
                input: &[],
                answer,
                output: &mut [],
            });
        }
        let mut flights = VecDeque::<Flight<'_>>::new();
        let (mut sent, mut failed, mut outcome) = (0, false, Ok(0));
        loop {
            while !failed && sent < total && flights.len() < MAX_FLIGHTS {
                // A transfer with parts in flight waits for those, not for blocks that others may keep for long.
                let block = if flights.is_empty() {
                    self.block()
                } else if let Some(block) = self.spare_block() {
                    block
                } else {
                    break;
                };
                let bytes = part_bytes(total, sent);
                let part = (sent, bytes);
                match self.start(thread, stream, &data, answer.len(), part, block) {
                    Ok(flight) => flights.push_back(flight),
                    Err(failure) => (failed, outcome) = (true, Err(failure)),
                }
                sent += bytes;
            }
            // Parts in flight are waited for also after a failure, because the device uses their blocks until then.
            let Some(flight) = flights.pop_front() else {
                return outcome;
            };
            flight.slot.finish()?;
            if failed {
                continue;
            }
            outcome = command_answer(&flight.slot, answer);
            failed = outcome.map_or(true, |length| is_failure(&answer[..length]));
            if let Data::Out(to) = &mut data
                && !failed
            {
                let to = &mut to[flight.offset..][..flight.bytes];
                // SAFETY: the device has returned the block, which is this transfer's alone and long enough.
                unsafe {
                    parallel_copy::copy(to.as_mut_ptr(), self.shared.at(flight.block.at), to.len())
                };
            }
        }
    }

    fn post(&self, thread: u32, stream: &[u8]) -> Result<(), Failure> {
        let slot = self.command.claim()?;
        let head = self.command_header(thread, stream, 0, 0, 0);
        let request = slot.write(&[head.as_bytes(), stream])?;
        let answer = slot.answer(size_of::<CommandAnswer>())?;
        slot.post([request, NOTHING], [answer, NOTHING]);
        Ok(())
    }

    fn block_bytes(&self) -> usize {
        MAX_DATA_BYTES
    }

    fn is_on_this_machine(&self) -> bool {
        true
    }

    fn allocate(&self, bytes: usize) -> Result<Pinned, Failure> {
        let _whole = signals::Whole::begin();
        let bytes = bytes
            .checked_next_multiple_of(PAGE as usize)
            .ok_or(Failure::Os(libc::ENOMEM))?;
        let offset = self.shared.take(bytes as u64)?;
        let placed = self.shared.map(offset, bytes).and_then(|memory| {
            let registered = self.register(memory as u64, offset, bytes);
            registered
                .map(|region| (memory, region))
                .inspect_err(|_| window::unmap(memory, bytes))
        });
        match placed {
            Ok((memory, region)) => {
                let backing = Backing::Shared {
                    offset,
                    program: false,
                };
                Ok(Pinned {
                    address: memory as u64,
                    bytes,
                    region,
                    backing,
                })
            }
            Err(failure) => {
                self.shared.give_back(offset, bytes as u64);
                Err(failure)
            }
        }
    }

    fn pin(&self, address: u64, bytes: usize, read_only: bool) -> Result<Pinned, Failure> {
        let _whole = signals::Whole::begin();
        if let Some(pinned) = self.pin_shared(address, bytes, read_only)? {
            return Ok(pinned);
        }
        let offset = self.shared.take(bytes as u64)?;
        let placed = self.shared.replace(offset, address, bytes, read_only);
        let registered = placed.and_then(|()| {
            self.register(address, offset, bytes)
                .inspect_err(|_| self.shared.restore(address, bytes))
        });
        match registered {
            Ok(region) => Ok(Pinned {
                address,
                bytes,
                region,
                backing: Backing::Shared {
                    offset,
                    program: true,
                },
            }),
            Err(failure) => {
                self.shared.give_back(offset, bytes as u64);
                Err(failure)
            }
        }
    }

    fn release(&self, pinned: Pinned) {
        let _whole = signals::Whole::begin();
        match pinned.backing {
            Backing::Shared { program: true, .. } => {
                self.shared.restore(pinned.address, pinned.bytes);
            }
            Backing::Shared { program: false, .. } => {
                window::unmap(pinned.address as *mut c_void, pinned.bytes);
            }
            Backing::Added(_) | Backing::Own | Backing::Program => {}
        }
        // If the device has not unregistered it, the memory stays allocated, so that it is not reused.
        if self.unregister(pinned.region).is_err() {
            return;
        }
        match pinned.backing {
            Backing::Shared { offset, .. } => self.shared.give_back(offset, pinned.bytes as u64),
            Backing::Added(added) => self.front_end.remove(added),
            Backing::Own | Backing::Program => {}
        }
    }
}

const _: () = {
    assert!(CONTROL.rings_end() <= CONTROL.buffers && CONTROL.buffers_end() <= EVENT.start);
    assert!(EVENT.buffers_end() <= COMMAND.start && COMMAND.rings_end() <= COMMAND.buffers);
    assert!(COMMAND.buffers_end() <= BLOCKS);
    assert!(BLOCKS + BLOCK_COUNT * MAX_DATA_BYTES as u64 <= RESERVED_BYTES);
};
