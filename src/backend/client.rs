// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! A client: one CUDA process of the guest, and the device's side of its worker.

use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    fs::File,
    sync::Arc,
    time::Instant,
};

use gpgpu_protocol::layout::{CommandHeader, status};

use super::{
    chain::Chain,
    staging::{Block, Staging},
};
use crate::ipc::{self, CommandData, DeviceEnd, Message, Rest, Result, Span, device::ToSupervisor};

/// The most registrations of one client; a worker has room for about twice as many mappings.
pub const MAX_REGIONS: usize = 32 << 10;

/// The minimum size of data that a mover moves, in bytes. For less, the copy through the staging area is as fast.
pub const MOVER_BYTES: u64 = 256 << 10;

/// The maximum number of a client's commands with external data.
const MAX_EXTERNAL: usize = 16;

/// The phase of a client's life.
#[derive(Debug)]
pub enum Phase {
    /// Its worker was not requested yet, because too many were requested recently.
    Waiting {
        /// The `OPEN`.
        chain: Chain,
        /// The request to the supervisor.
        request: ToSupervisor,
    },
    /// Its worker is being started, and the `OPEN` was not answered yet.
    Starting {
        /// The `OPEN`.
        chain: Chain,
        /// The time at which the device gives up.
        deadline: Instant,
    },
    /// Its worker serves it.
    Live,
    /// Its channel is closed, but its worker may still exist and access guest memory.
    Ending,
    /// Its worker has ended.
    Dead,
}

/// A command that waits for room.
#[derive(Debug)]
struct Waiting {
    chain: Chain,
    header: CommandHeader,
    /// The number of bytes of its stream that were already executed. If it is not 0, the data must be staged.
    carried_out: u32,
    staged: bool,
}

/// A command that was sent to the worker, or is about to be.
#[derive(Debug)]
pub struct InFlight {
    /// The command.
    pub chain: Chain,
    /// Its header, copied when it was checked.
    pub header: CommandHeader,
    /// The number of bytes of its stream that were executed before.
    pub carried_out: u32,
    /// Whether its data is not in the staging area.
    pub external: bool,
    /// The block to which the worker writes data for the guest.
    pub out: Option<Block>,
    /// The block with data from the guest; held until the answer.
    input: Option<Block>,
}

/// A control request that was sent to the worker, or is about to be.
#[derive(Debug)]
pub struct Request {
    /// The request.
    pub chain: Chain,
    /// The operation.
    pub kind: RequestKind,
    /// The number of runs in its message. The host keeps them in a file until the worker has read them.
    pub runs: usize,
}

/// The operation of a [`Request`].
#[derive(Debug, Clone, Copy)]
pub enum RequestKind {
    /// Maps this registration.
    Map(u32),
    /// Unmaps this registration.
    Unmap(u32),
}

/// The registrations of a client.
#[derive(Debug, Default)]
pub struct Regions {
    last: u32,
    address_of: HashMap<u32, u64>,
    /// The size of all of them.
    bytes: u64,
    /// Ends of registrations, and their numbers, by address.
    by_address: BTreeMap<u64, (u64, u32)>,
}

impl Regions {
    /// Records a registration, and assigns a number to it.
    ///
    /// # Errors
    /// A [`status`]: `BAD_ADDRESS` where it overlaps another or wraps around, `LIMIT`.
    pub fn insert(&mut self, address: u64, length: u64) -> std::result::Result<u32, u32> {
        let end = address.checked_add(length).ok_or(status::BAD_ADDRESS)?;
        let before = self.by_address.range(..end).next_back();
        if before.is_some_and(|(_, &(before_end, _))| before_end > address) {
            return Err(status::BAD_ADDRESS);
        }
        if self.address_of.len() >= MAX_REGIONS {
            return Err(status::LIMIT);
        }
        loop {
            self.last = self.last.wrapping_add(1);
            if self.last != 0 && !self.address_of.contains_key(&self.last) {
                break;
            }
        }
        self.address_of.insert(self.last, address);
        self.by_address.insert(address, (end, self.last));
        // They do not overlap, so the sum is an address at most.
        self.bytes += length;
        Ok(self.last)
    }

    /// The size of all registrations, in bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Whether there is a registration of this number.
    pub fn contains(&self, region: u32) -> bool {
        self.address_of.contains_key(&region)
    }

    /// Whether there are no registrations.
    pub fn is_empty(&self) -> bool {
        self.address_of.is_empty()
    }

    /// Removes a registration.
    pub fn remove(&mut self, region: u32) {
        if let Some(address) = self.address_of.remove(&region)
            && let Some((end, _)) = self.by_address.remove(&address)
        {
            self.bytes -= end - address;
        }
    }
}

/// The channel to a worker, and the commands in flight on it.
#[derive(Debug)]
pub struct Channel {
    /// The channel.
    pub end: DeviceEnd,
    /// Its slot in the event loop.
    pub slot: usize,
    /// Whether the event loop watches for room in it.
    pub wants_room: bool,
    staging: Arc<Staging>,
    /// Messages that precede all further commands: the setup, maps and unmaps, and one command that did not fit.
    outbox: VecDeque<Message>,
}

impl Channel {
    /// A channel, with the setup to be sent.
    pub fn new(end: DeviceEnd, slot: usize, staging: Arc<Staging>) -> Self {
        let setup = Message::setup(staging.file(), super::staging::STAGING_BYTES);
        Self {
            end,
            slot,
            wants_room: false,
            staging,
            outbox: VecDeque::from([setup]),
        }
    }
}

/// The reason why [`Client::pump`] stopped.
#[derive(Debug, PartialEq, Eq)]
pub enum Pumped {
    /// Nothing is left to send, or the rest depends on answers of the worker.
    Idle,
    /// The channel is full.
    Full,
    /// Too many descriptors are in flight on the host.
    Crowded,
    /// The worker has closed the channel.
    Closed,
}

/// See the module's documentation.
#[derive(Debug)]
pub struct Client {
    /// The phase of its life.
    pub phase: Phase,
    /// The channel, in phases `Starting` and `Live`.
    pub channel: Option<Channel>,
    /// Commands for which there is no room in the channel or the staging area yet, oldest first.
    waiting: VecDeque<Waiting>,
    /// Commands that the worker has.
    pub in_flight: HashMap<u64, InFlight>,
    /// Control requests that the worker has.
    pub requests: HashMap<u64, Request>,
    /// Control requests that get `CLIENT_DEAD` after the worker's end: until then it can access the memory that they
    /// name.
    pub deferred: Vec<Chain>,
    /// The `CLOSE`, once there is one.
    pub closing: Option<Chain>,
    /// The registered memory.
    pub regions: Regions,
    /// Device memory that its worker has exported, by number.
    pub exports: HashMap<u64, Export>,
    /// The number of its commands with external data that a worker or a mover has.
    pub external: usize,
}

/// Exported device memory of a client.
#[derive(Debug)]
pub struct Export {
    /// Its size in bytes.
    pub bytes: u64,
    /// The GPU of the memory.
    pub gpu: u32,
    /// The shareable handle.
    pub handle: Arc<File>,
}

impl Client {
    /// A client whose worker was not requested yet.
    pub fn new(chain: Chain, request: ToSupervisor) -> Self {
        Self {
            phase: Phase::Waiting { chain, request },
            channel: None,
            waiting: VecDeque::new(),
            in_flight: HashMap::new(),
            requests: HashMap::new(),
            deferred: Vec::new(),
            closing: None,
            regions: Regions::default(),
            exports: HashMap::new(),
            external: 0,
        }
    }

    /// Appends a command to the queue.
    pub fn push_command(&mut self, chain: Chain, header: CommandHeader) {
        self.waiting.push_back(Waiting {
            chain,
            header,
            carried_out: 0,
            staged: false,
        });
    }

    /// Puts the rest of a command whose data could not be moved at the front of the queue.
    pub fn push_staged(&mut self, chain: Chain, header: CommandHeader, carried_out: u32) {
        self.waiting.push_front(Waiting {
            chain,
            header,
            carried_out,
            staged: true,
        });
    }

    /// Appends a control request.
    pub fn push_request(&mut self, seq: u64, message: Message, request: Request) {
        if let Some(channel) = &mut self.channel {
            channel.outbox.push_back(message);
            self.requests.insert(seq, request);
        }
    }

    /// The number of runs of memory that the worker has not mapped yet.
    pub fn runs_under_way(&self) -> usize {
        self.requests.values().map(|request| request.runs).sum()
    }

    /// Whether there is a registration of this number that is neither being made nor being removed.
    pub fn can_unmap(&self, region: u32) -> bool {
        let busy = |request: &Request| {
            let (RequestKind::Map(other) | RequestKind::Unmap(other)) = request.kind;
            other == region
        };
        self.regions.contains(region) && !self.requests.values().any(busy)
    }

    /// The shared words that tell its worker to rest, if it has a worker.
    pub fn rest(&self) -> Option<&Rest> {
        self.channel.as_ref().map(|channel| channel.staging.rest())
    }

    /// Sends as many messages as there is room for. `refuse` gets commands whose buffers cannot be read, with a
    /// [`status`]. `movable` says whether a mover can move large data.
    pub fn pump(
        &mut self,
        next_seq: &mut u64,
        movable: bool,
        mut refuse: impl FnMut(Chain, u32),
    ) -> Pumped {
        let Some(channel) = &mut self.channel else {
            return Pumped::Idle;
        };
        loop {
            while let Some(message) = channel.outbox.front() {
                match channel.end.send(message) {
                    Ok(true) => drop(channel.outbox.pop_front()),
                    Ok(false) => return Pumped::Full,
                    Err(ipc::Error::Crowded) => return Pumped::Crowded,
                    Err(_) => return Pumped::Closed,
                }
            }
            let Some(Waiting { header, staged, .. }) = self.waiting.front() else {
                return Pumped::Idle;
            };
            let external = movable && !staged && is_large(header);
            let blocks = if external {
                (self.external < MAX_EXTERNAL).then_some((None, None))
            } else {
                channel
                    .staging
                    .blocks(header.in_bytes.get(), header.out_bytes.get())
            };
            // Blocks are returned with answers, and each answer leads to another call of this function.
            let Some((input, out)) = blocks else {
                return Pumped::Idle;
            };
            let Some(waiting) = self.waiting.pop_front() else {
                return Pumped::Idle;
            };
            *next_seq += 1;
            let command = InFlight {
                chain: waiting.chain,
                header: waiting.header,
                carried_out: waiting.carried_out,
                external,
                out,
                input,
            };
            match prepare(&command, *next_seq) {
                Ok(message) => {
                    self.external += usize::from(external);
                    self.in_flight.insert(*next_seq, command);
                    channel.outbox.push_back(message);
                }
                Err(error) => refuse(command.chain, error.status()),
            }
        }
    }

    /// Closes the channel, and returns the commands that will not be answered by the worker.
    pub fn end(&mut self) -> (Option<Channel>, Vec<Chain>) {
        let waiting = self.waiting.drain(..).map(|command| command.chain);
        let mut in_flight: Vec<_> = self.in_flight.drain().collect();
        in_flight.sort_unstable_by_key(|&(seq, _)| seq);
        let commands = in_flight
            .into_iter()
            .map(|(_, command)| command.chain)
            .chain(waiting)
            .collect();
        self.deferred
            .extend(self.requests.drain().map(|(_, request)| request.chain));
        self.phase = Phase::Ending;
        (self.channel.take(), commands)
    }

    /// Receives the next message of the worker.
    ///
    /// # Errors
    /// See [`DeviceEnd::recv`].
    pub fn recv<'a>(&self, buffer: &'a mut Vec<u8>) -> Result<Option<crate::ipc::FromWorker<'a>>> {
        self.channel
            .as_ref()
            .map_or(Ok(None), |channel| channel.end.recv(buffer))
    }
}

/// Whether a mover should move a command's data: there is much of it, all in one direction.
pub fn is_large(header: &CommandHeader) -> bool {
    let (input, out) = (header.in_bytes.get(), header.out_bytes.get());
    input.max(out) >= MOVER_BYTES && input.min(out) == 0
}

/// Copies a command out of the guest's memory.
fn prepare(command: &InFlight, seq: u64) -> std::result::Result<Message, super::chain::Error> {
    let InFlight { chain, header, .. } = command;
    let stream_at = size_of::<CommandHeader>() as u64;
    let stream_bytes = header.stream_bytes.get();
    if let Some(block) = &command.input
        && let Some(data) = block.slice(header.in_bytes.get())
    {
        chain.read_volatile(stream_at + u64::from(stream_bytes), data)?;
    }
    let span = |block: &Option<Block>, len| match block {
        Some(block) => block.span(),
        // For external data only the length is known.
        None => Span { offset: 0, len },
    };
    let data = CommandData {
        external: command.external,
        input: span(&command.input, header.in_bytes.get()),
        output: span(&command.out, header.out_bytes.get()),
        offset: header.data_offset.get(),
    };
    let mut message = Message::command(
        seq,
        header.thread.get(),
        header.answer_bytes.get(),
        data,
        (stream_bytes - command.carried_out) as usize,
    );
    chain.read(
        stream_at + u64::from(command.carried_out),
        message.payload_mut(),
    )?;
    Ok(message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn registrations_do_not_overlap() {
        let mut regions = Regions::default();
        let first = regions.insert(0x2000, 0x2000).unwrap();
        assert_ne!(first, 0);
        for (address, length) in [
            (0x2000, 0x2000),
            (0x1000, 0x2000),
            (0x3000, 0x1000),
            (0x0, 0x10000),
            (0x3000, 0x9000),
        ] {
            assert_eq!(regions.insert(address, length), Err(status::BAD_ADDRESS));
        }
        assert_eq!(regions.bytes(), 0x2000);
        let before = regions.insert(0x1000, 0x1000).unwrap();
        let after = regions.insert(0x4000, 0x1000).unwrap();
        assert_eq!(
            regions.insert(u64::MAX - 0xfff, 0x2000),
            Err(status::BAD_ADDRESS)
        );
        regions.remove(first);
        assert!(!regions.contains(first));
        assert_eq!(regions.bytes(), 0x2000);
        let again = regions.insert(0x2000, 0x2000).unwrap();
        assert!(![first, before, after].contains(&again));
    }
}
