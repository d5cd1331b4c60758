// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The device's side of the movers: large data goes between the guest's pages and device memory without
//! passing through this process or the worker.
//!
//! The worker executes a command with external data except for the data, and reports to which part of which export the
//! data belongs. This module resolves the chain's buffers into runs of files and sends them to the mover of that GPU.
//! The chain is returned when the mover reports that the move has ended, or the supervisor reports the end of the
//! mover's process: until then the chain's pages may be written. Data that was not moved completely goes through the
//! staging area. A partial move does no harm, because the same bytes go to the same places.

mod lifetime;
mod moves;

use std::{
    collections::{BTreeSet, HashMap, HashSet, VecDeque},
    fs::File,
    sync::Arc,
    time::{Duration, Instant},
};

use vm_memory::{GuestAddressSpace, GuestMemoryBackend, GuestMemoryRegion};

use super::{
    client::{Export, InFlight, Phase},
    queue::Memory,
    runs::Part,
    vm::Vm,
    worker_messages::{Heard, ProtocolViolation},
};
use crate::{
    account::GPUS,
    ipc::{
        MAX_WORKER_EXPORTS,
        mover::{DeviceEnd, Direction, MAX_FILES, Message},
    },
};

/// The interval between two requests for a missing mover.
const ASK_AGAIN: Duration = Duration::from_secs(1);
/// The number of messages of a mover that are handled in a row.
const BATCH: usize = 64;

/// A command whose data is to be moved, or is being moved.
#[derive(Debug)]
struct Moving {
    client: u32,
    gpu: u32,
    command: InFlight,
    export: u64,
    offset: u64,
    /// The number of bytes of its stream that the worker has executed.
    carried_out: u32,
    answer: Vec<u8>,
    since: Instant,
}

impl Moving {
    fn direction(&self) -> Direction {
        if self.command.header.in_bytes.get() > 0 {
            Direction::ToDevice
        } else {
            Direction::ToGuest
        }
    }
}

/// The channel to a mover.
#[derive(Debug)]
struct Link {
    end: DeviceEnd,
    slot: usize,
    wants_room: bool,
    ready: bool,
    outbox: VecDeque<Message>,
    /// The guest memory that the mover knows. The index is the number.
    files: Vec<Option<Part>>,
    /// The device memory that the mover knows: its number there, by client and the worker's number.
    exports: HashMap<(u32, u64), u64>,
    under_way: usize,
}

impl Link {
    /// The number of a part of guest memory. A part that the mover does not know is sent to it first.
    fn number(&mut self, part: Part) -> Option<u32> {
        if let Some(known) = self
            .files
            .iter()
            .position(|known| known.as_ref().is_some_and(|known| known.is(&part)))
        {
            return Some(known as u32);
        }
        self.forget_unused();
        let free = self.files.iter().position(Option::is_none);
        let number = free.unwrap_or(self.files.len());
        if number >= MAX_FILES {
            return None;
        }
        if number == self.files.len() {
            self.files.push(None);
        }
        let file = Arc::clone(&part.file);
        let message = Message::file(number as u32, part.offset, part.bytes, file);
        self.outbox.push_back(message);
        self.files[number] = Some(part);
        Some(number as u32)
    }

    /// Withdraws files that no longer back a region.
    fn forget_unused(&mut self) {
        for (number, known) in self.files.iter_mut().enumerate() {
            if known
                .take_if(|part| Arc::strong_count(&part.file) == 1)
                .is_some()
            {
                self.outbox.push_back(Message::forget(number as u32));
            }
        }
    }

    /// The number of an export. One that the mover does not know is sent to it first.
    fn export(&mut self, key: (u32, u64), export: &Export, last: &mut u64) -> u64 {
        *self.exports.entry(key).or_insert_with(|| {
            *last += 1;
            let handle = Arc::clone(&export.handle);
            self.outbox
                .push_back(Message::export(*last, export.bytes, handle));
            *last
        })
    }
}

#[derive(Debug, Default)]
enum State {
    /// It was requested from the supervisor.
    #[default]
    Asked,
    /// It serves moves.
    Open(Link),
    /// It gets no more messages, but may access guest memory until it reports that it has left.
    Leaving(Link),
    /// Its channel is closed, but its process may still exist and access guest memory.
    Closed,
}

#[derive(Debug, Default)]
struct Mover {
    state: State,
    /// The moves that were not sent yet.
    waiting: VecDeque<(u64, Moving)>,
}

impl Mover {
    fn open(&self) -> Option<&Link> {
        match &self.state {
            State::Open(link) => Some(link),
            _ => None,
        }
    }

    /// The channel, if messages of the mover may still arrive.
    fn heard(&self) -> Option<&Link> {
        match &self.state {
            State::Open(link) | State::Leaving(link) => Some(link),
            _ => None,
        }
    }
}

/// See the module's documentation.
#[derive(Debug, Default)]
pub struct Movers {
    by_gpu: HashMap<u32, Mover>,
    /// The GPUs whose movers are needed.
    wanted: BTreeSet<u32>,
    asked: Option<Instant>,
    /// The moves in flight, by the command's number.
    under_way: HashMap<u64, Moving>,
    last_export: u64,
    /// Clients whose workers have ended while moves are in flight, and the workers' signals.
    late: HashMap<u32, u32>,
    ticking: bool,
    /// Whether movers may know memory that the VMM has removed.
    know_removed: bool,
}

impl Movers {
    /// Whether any mover is ready for moves.
    pub fn any_ready(&self) -> bool {
        let ready = |mover: &Mover| mover.open().is_some_and(|link| link.ready);
        self.by_gpu.values().any(ready)
    }

    /// Whether moves are in flight.
    pub fn busy(&self) -> bool {
        !self.under_way.is_empty()
    }

    /// Cancels the wait of a client's end for its moves; `true` if it waited, which means that its worker has ended.
    pub fn forget_late(&mut self, client: u32) -> bool {
        self.late.remove(&client).is_some()
    }

    /// Whether moves of a client are in flight.
    fn busy_for(&self, client: u32) -> bool {
        self.under_way
            .values()
            .any(|moving| moving.client == client)
    }
}
impl Vm {
    /// Records that the VMM has added or removed memory.
    pub(super) fn memory_changed(&mut self, memory: Memory) {
        self.memory = memory;
        self.movers.know_removed = true;
    }

    /// Makes movers forget removed memory once no chain lies in it any more: an idle mover keeps it mapped, and pinned
    /// for its GPU.
    pub(super) fn forget_removed_memory(&mut self) {
        if !std::mem::take(&mut self.movers.know_removed) {
            return;
        }
        let memory = self.memory.memory();
        let backing = memory.iter().filter_map(|region| region.file_offset());
        let files: HashSet<_> = backing.map(|at| Arc::as_ptr(at.arc())).collect();
        let removed = |part: &Part| !files.contains(&Arc::as_ptr(&part.file));
        for mover in self.movers.by_gpu.values_mut() {
            if let State::Open(link) = &mut mover.state
                && link.files.iter().flatten().any(removed)
            {
                link.forget_unused();
                self.movers.know_removed |= link.files.iter().flatten().any(removed);
            }
        }
        self.pump_movers();
    }

    /// Records exported device memory of a client.
    pub(super) fn exported(
        &mut self,
        id: u32,
        number: u64,
        bytes: u64,
        gpu: u32,
        handle: File,
    ) -> Result<Heard, ProtocolViolation> {
        let client = self.clients.get_mut(&id).ok_or(ProtocolViolation)?;
        if !matches!(client.phase, Phase::Live)
            || client.exports.contains_key(&number)
            || client.exports.len() >= MAX_WORKER_EXPORTS
            || gpu as usize >= GPUS
        {
            return Err(ProtocolViolation);
        }
        let handle = Arc::new(handle);
        client.exports.insert(number, Export { bytes, gpu, handle });
        self.want_mover(gpu);
        Ok(Heard::More)
    }

    /// Removes exported device memory of a client.
    pub(super) fn unexported(&mut self, id: u32, number: u64) -> Result<Heard, ProtocolViolation> {
        let client = self.clients.get_mut(&id).ok_or(ProtocolViolation)?;
        let export = client.exports.remove(&number).ok_or(ProtocolViolation)?;
        self.forget_export((id, number), export.gpu);
        self.pump_mover(export.gpu);
        Ok(Heard::More)
    }

    fn forget_export(&mut self, key: (u32, u64), gpu: u32) {
        let mover = self.movers.by_gpu.get_mut(&gpu);
        if let Some(State::Open(link)) = mover.map(|mover| &mut mover.state)
            && let Some(number) = link.exports.remove(&key)
        {
            link.outbox.push_back(Message::unexport(number));
        }
    }
}
