// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The device's side of the movers: large data goes between the guest's pages and device memory without
//! passing through this process or the worker.
//!
//! A command whose data is external is carried out by its worker but for the data. The worker says which
//! part of which export the data belongs to; this resolves the chain's buffers into runs of files and asks the
//! mover of that GPU. The chain comes back when the mover says that nothing of the move is under way any
//! more, or the supervisor that the mover's process is gone: until then its pages may be written. Data that
//! was not moved, or not all of it, goes through the staging area instead; that it was moved in part does no harm,
//! as the same bytes go to the same places.

use std::{
    collections::{BTreeSet, HashMap, HashSet, VecDeque},
    fs::File,
    os::fd::{AsFd, OwnedFd},
    sync::Arc,
    time::{Duration, Instant},
};

use gpgpu_protocol::layout::{COMMAND_QUEUE, CommandAnswer, CommandHeader, status};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use vm_memory::{GuestAddressSpace, GuestMemoryBackend, GuestMemoryRegion};

use super::{
    client::{Export, InFlight, Phase},
    heard::{Heard, Nonsense},
    queue::{Answer, Memory, Out},
    runs::{self, Part},
    vm::{Speaker, Vm},
};
use crate::{
    account::GPUS,
    ipc::{
        self, MAX_WORKER_EXPORTS,
        device::ToSupervisor,
        mover::{DeviceEnd, Direction, FromMover, MAX_FILES, MAX_MOVES, MOVE_LIMIT, Message, Move},
    },
};

/// How often a mover that is not there is asked for.
const ASK_AGAIN: Duration = Duration::from_secs(1);
/// How many messages of a mover are handled before others get a turn.
const BATCH: usize = 64;

/// A command whose data is to be moved, or is being moved.
#[derive(Debug)]
struct Moving {
    client: u32,
    gpu: u32,
    command: InFlight,
    export: u64,
    offset: u64,
    /// How many bytes of what the worker was sent it has carried out.
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
    /// What the mover knows of the guest's memory; the index is the number.
    files: Vec<Option<Part>>,
    /// What the mover knows of device memory: its number there, by client and number of the worker's.
    exports: HashMap<(u32, u64), u64>,
    under_way: usize,
}

impl Link {
    /// The number of a part of guest memory, which the mover is told of if it is new.
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

    /// Takes back what is no region's file any more.
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

    /// The number of an export, which the mover is told of if it is new.
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
    /// The supervisor was asked for it.
    #[default]
    Asked,
    /// It is there.
    Open(Link),
    /// It is not spoken to any more, and may still reach guest memory until it says that it has left.
    Leaving(Link),
    /// Its channel is closed, but its process may still be there and reach guest memory.
    Closed,
}

#[derive(Debug, Default)]
struct Mover {
    state: State,
    /// What it was not asked for yet.
    waiting: VecDeque<(u64, Moving)>,
}

impl Mover {
    fn open(&self) -> Option<&Link> {
        match &self.state {
            State::Open(link) => Some(link),
            _ => None,
        }
    }

    /// The channel, on which it may still say something.
    fn heard(&self) -> Option<&Link> {
        match &self.state {
            State::Open(link) | State::Leaving(link) => Some(link),
            _ => None,
        }
    }
}

/// See the module's page.
#[derive(Debug, Default)]
pub struct Movers {
    by_gpu: HashMap<u32, Mover>,
    /// The GPUs of which a mover is wanted.
    wanted: BTreeSet<u32>,
    asked: Option<Instant>,
    /// What movers were asked for, by the number of the command.
    under_way: HashMap<u64, Moving>,
    last_export: u64,
    /// Clients whose workers are gone and that have moves under way, and the signals.
    late: HashMap<u32, u32>,
    ticking: bool,
    /// Whether movers may know of memory that the VMM has removed.
    know_removed: bool,
}

impl Movers {
    /// Whether there is a mover.
    pub fn serve(&self) -> bool {
        let ready = |mover: &Mover| mover.open().is_some_and(|link| link.ready);
        self.by_gpu.values().any(ready)
    }

    /// Whether moves are under way.
    pub fn busy(&self) -> bool {
        !self.under_way.is_empty()
    }

    /// Forgets that a client's end waits for its moves; `true` says that it did: its worker is gone.
    pub fn forget_late(&mut self, client: u32) -> bool {
        self.late.remove(&client).is_some()
    }

    /// Whether moves of a client are under way.
    fn busy_for(&self, client: u32) -> bool {
        self.under_way
            .values()
            .any(|moving| moving.client == client)
    }
}

impl Vm {
    /// Notes that the VMM has added or removed memory.
    pub(super) fn memory_changed(&mut self, memory: Memory) {
        self.memory = memory;
        self.movers.know_removed = true;
    }

    /// Has movers let go of memory that was removed, once no chain lies in it any more: an idle mover has it mapped, and pinned
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

    /// Asks for the mover of a GPU, now and whenever it is gone and there is use for it.
    pub(super) fn want_mover(&mut self, gpu: u32) {
        if self.movers.wanted.insert(gpu) {
            self.movers.asked = None;
        }
        self.ask_for_movers();
    }

    /// Asks for the movers that are not there, unless it was asked lately.
    pub(super) fn ask_for_movers(&mut self) {
        let movers = &mut self.movers;
        if movers.wanted.len() == movers.by_gpu.len()
            || movers
                .asked
                .is_some_and(|asked| asked.elapsed() < ASK_AGAIN)
        {
            return;
        }
        movers.asked = Some(Instant::now());
        for &gpu in &movers.wanted {
            if movers.by_gpu.contains_key(&gpu) {
                continue;
            }
            match self.link.send(&ToSupervisor::StartMover { gpu }) {
                Ok(()) => drop(movers.by_gpu.insert(gpu, Mover::default())),
                Err(error) => tracing::error!("GPU {gpu}: cannot ask for its mover: {error}"),
            }
        }
    }

    pub(super) fn mover_started(&mut self, gpu: u32, channel: OwnedFd) {
        let slot = self.take_slot(Speaker::Mover(gpu));
        let mover = self.movers.by_gpu.get_mut(&gpu);
        let Some(mover) = mover.filter(|mover| matches!(mover.state, State::Asked)) else {
            return self.give_slot_back(slot);
        };
        let end = DeviceEnd::new(channel);
        if let Err(error) = self.watch.add(end.as_fd(), slot, false) {
            tracing::error!("GPU {gpu}: cannot watch its mover: {error}");
            self.movers.by_gpu.remove(&gpu);
            return self.give_slot_back(slot);
        }
        mover.state = State::Open(Link {
            end,
            slot,
            wants_room: false,
            ready: false,
            outbox: VecDeque::new(),
            files: Vec::new(),
            exports: HashMap::new(),
            under_way: 0,
        });
    }

    pub(super) fn mover_failed(&mut self, gpu: u32) {
        self.stage_waiting(gpu);
        self.movers.by_gpu.remove(&gpu);
    }

    /// Takes note of the end of a mover's process: it writes nothing any more.
    pub(super) fn mover_exited(&mut self, gpu: u32) {
        // What it said before it went still counts.
        while self.receive_from_mover(gpu) {}
        let mover = self.movers.by_gpu.get(&gpu);
        // It had left, and the next was asked for: an answer to that is on its way.
        if mover.is_some_and(|mover| !matches!(mover.state, State::Asked)) {
            self.end_mover(gpu);
        }
    }

    /// Ends what a mover was asked for: it writes nothing of that any more.
    fn end_mover(&mut self, gpu: u32) {
        self.close_mover(gpu);
        self.movers.by_gpu.remove(&gpu);
        let lost: Vec<u64> = self
            .movers
            .under_way
            .iter()
            .filter(|(_, moving)| moving.gpu == gpu)
            .map(|(&seq, _)| seq)
            .collect();
        for seq in lost {
            if let Some(moving) = self.movers.under_way.remove(&seq) {
                self.moved(moving, false);
            }
        }
        self.ask_for_movers();
    }

    /// Closes the channel of a mover. What it was asked for waits for the end of its process.
    fn close_mover(&mut self, gpu: u32) {
        let Some(mover) = self.movers.by_gpu.get_mut(&gpu) else {
            return;
        };
        let state = std::mem::replace(&mut mover.state, State::Closed);
        if let State::Open(link) | State::Leaving(link) = state {
            self.watch.remove(link.end.as_fd(), link.slot);
            self.give_slot_back(link.slot);
        }
        self.stage_waiting(gpu);
    }

    /// Sends what a mover was not asked for yet through the staging area.
    fn stage_waiting(&mut self, gpu: u32) {
        let mover = self.movers.by_gpu.get_mut(&gpu);
        let waiting = mover.map(|mover| std::mem::take(&mut mover.waiting));
        for (_, moving) in waiting.into_iter().flatten() {
            self.moved(moving, false);
        }
    }

    /// Notes device memory of a client.
    pub(super) fn exported(
        &mut self,
        id: u32,
        number: u64,
        bytes: u64,
        gpu: u32,
        handle: File,
    ) -> Result<Heard, Nonsense> {
        let client = self.clients.get_mut(&id).ok_or(Nonsense)?;
        if !matches!(client.phase, Phase::Live)
            || client.exports.contains_key(&number)
            || client.exports.len() >= MAX_WORKER_EXPORTS
            || gpu as usize >= GPUS
        {
            return Err(Nonsense);
        }
        let handle = Arc::new(handle);
        client.exports.insert(number, Export { bytes, gpu, handle });
        self.want_mover(gpu);
        Ok(Heard::More)
    }

    /// Forgets device memory of a client.
    pub(super) fn unexported(&mut self, id: u32, number: u64) -> Result<Heard, Nonsense> {
        let client = self.clients.get_mut(&id).ok_or(Nonsense)?;
        let export = client.exports.remove(&number).ok_or(Nonsense)?;
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

    /// A client ends: its device memory is given back, and what movers were not asked for is not asked for.
    pub(super) fn forget_moves(&mut self, id: u32, exports: HashMap<u64, Export>) {
        for (number, export) in exports {
            self.forget_export((id, number), export.gpu);
        }
        let gpus: Vec<u32> = self.movers.by_gpu.keys().copied().collect();
        for gpu in gpus {
            let Some(mover) = self.movers.by_gpu.get_mut(&gpu) else {
                continue;
            };
            let waiting = std::mem::take(&mut mover.waiting);
            let (gone, kept): (VecDeque<_>, VecDeque<_>) = waiting
                .into_iter()
                .partition(|(_, moving)| moving.client == id);
            mover.waiting = kept;
            for (_, moving) in gone {
                self.complete(moving.command.chain, Answer::refusal(status::CLIENT_DEAD));
            }
            self.pump_mover(gpu);
        }
    }

    /// Waits with the end of a client whose worker is gone until none of its data moves any more; `false`
    /// if it need not.
    pub(super) fn wait_for_moves(&mut self, id: u32, signal: u32) -> bool {
        let busy = self.movers.busy_for(id);
        if busy {
            self.movers.late.insert(id, signal);
        }
        busy
    }

    /// Takes up a worker's word of where a command's data belongs.
    pub(super) fn move_asked(
        &mut self,
        id: u32,
        seq: u64,
        (export, offset): (u64, u64),
        carried_out: u32,
        answer: &[u8],
    ) -> Result<Heard, Nonsense> {
        let client = self.clients.get_mut(&id).ok_or(Nonsense)?;
        let command = client.in_flight.get(&seq).ok_or(Nonsense)?;
        let header = &command.header;
        let bytes = header.in_bytes.get().max(header.out_bytes.get());
        let place = client.exports.get(&export).ok_or(Nonsense)?;
        if answer.len() > header.answer_bytes.get() as usize
            || offset
                .checked_add(bytes)
                .is_none_or(|end| end > place.bytes)
            || !may_be_carried_out(command, carried_out)
        {
            return Err(Nonsense);
        }
        let gpu = place.gpu;
        let moving = Moving {
            client: id,
            gpu,
            command: client.in_flight.remove(&seq).ok_or(Nonsense)?,
            export,
            offset,
            carried_out,
            answer: answer.to_vec(),
            since: Instant::now(),
        };
        match self.movers.by_gpu.get_mut(&gpu) {
            Some(mover) if mover.open().is_some() => {
                mover.waiting.push_back((seq, moving));
                self.pump_mover(gpu);
            }
            _ => self.moved(moving, false),
        }
        Ok(Heard::More)
    }

    /// Takes up a worker's word that a command's data has to be staged.
    pub(super) fn not_movable(
        &mut self,
        id: u32,
        seq: u64,
        carried_out: u32,
    ) -> Result<Heard, Nonsense> {
        let client = self.clients.get_mut(&id).ok_or(Nonsense)?;
        if !may_be_carried_out(client.in_flight.get(&seq).ok_or(Nonsense)?, carried_out) {
            return Err(Nonsense);
        }
        let command = client.in_flight.remove(&seq).ok_or(Nonsense)?;
        client.external -= 1;
        let carried_out = command.carried_out + carried_out;
        client.push_staged(command.chain, command.header, carried_out);
        Ok(Heard::More)
    }

    /// A move has ended, or was not begun: its command is answered, or goes on by way of the staging area.
    fn moved(&mut self, moving: Moving, done: bool) {
        let id = moving.client;
        let to_guest = moving.direction() == Direction::ToGuest;
        let InFlight {
            chain,
            header,
            carried_out,
            ..
        } = moving.command;
        let client = self.clients.get_mut(&id);
        match client.filter(|client| matches!(client.phase, Phase::Live)) {
            None => self.complete(chain, Answer::refusal(status::CLIENT_DEAD)),
            Some(client) if done => {
                client.external -= 1;
                let answer = Answer::Command {
                    status: status::OK,
                    answer: moving.answer,
                    wanted: header.answer_bytes.get(),
                    out: to_guest.then(|| Out::Placed(header.out_bytes.get())),
                };
                self.complete(chain, answer);
            }
            Some(client) => {
                client.external -= 1;
                client.push_staged(chain, header, carried_out + moving.carried_out);
            }
        }
        self.pump(id);
        if !self.movers.busy_for(id)
            && let Some(signal) = self.movers.late.remove(&id)
        {
            self.worker_exited(id, signal);
        }
    }

    /// Asks movers for what waited for the ring.
    pub(super) fn pump_movers(&mut self) {
        let gpus: Vec<u32> = self.movers.by_gpu.keys().copied().collect();
        for gpu in gpus {
            self.pump_mover(gpu);
        }
    }

    /// Sends a mover what there is room for.
    pub(super) fn pump_mover(&mut self, gpu: u32) {
        let mut refused = Vec::new();
        let full = self.send_to_mover(gpu, &mut refused);
        let mover = self.movers.by_gpu.get_mut(&gpu);
        if let Some(State::Open(link)) = mover.map(|mover| &mut mover.state)
            && link.wants_room != full
        {
            link.wants_room = full;
            if let Err(error) = self.watch.set_room(link.end.as_fd(), link.slot, full) {
                tracing::error!("GPU {gpu}: cannot watch its mover: {error}");
                self.give_up_mover(gpu);
            }
        }
        for moving in refused {
            self.moved(moving, false);
        }
    }

    /// Sends until there is nothing left, or the channel is full: `true`. What a mover cannot do goes to
    /// `refused`.
    fn send_to_mover(&mut self, gpu: u32, refused: &mut Vec<Moving>) -> bool {
        let may_write = self.queues[COMMAND_QUEUE].may_write();
        let movers = &mut self.movers;
        let Some(mover) = movers.by_gpu.get_mut(&gpu) else {
            return false;
        };
        let State::Open(link) = &mut mover.state else {
            return false;
        };
        loop {
            while let Some(message) = link.outbox.front() {
                match link.end.send(message) {
                    Ok(true) => drop(link.outbox.pop_front()),
                    Ok(false) => return true,
                    // Its end is handled where it is heard, after what it said last.
                    Err(_) => return false,
                }
            }
            if !may_write || !link.ready || link.under_way >= MAX_MOVES {
                return false;
            }
            let Some((seq, moving)) = mover.waiting.pop_front() else {
                return false;
            };
            let client = self.clients.get(&moving.client);
            let Some(export) = client.and_then(|client| client.exports.get(&moving.export)) else {
                refused.push(moving);
                continue;
            };
            let header = &moving.command.header;
            let chain = &moving.command.chain;
            let direction = moving.direction();
            let (segments, at, bytes) = match direction {
                Direction::ToDevice => {
                    let before = size_of::<CommandHeader>() as u64;
                    let before = before + u64::from(header.stream_bytes.get());
                    (&chain.readable, before, header.in_bytes.get())
                }
                Direction::ToGuest => {
                    let before = size_of::<CommandAnswer>() as u64;
                    let before = before + u64::from(header.answer_bytes.get());
                    (&chain.writable, before, header.out_bytes.get())
                }
            };
            // The chain's memory may be one from before a change, of which the mover is told only now.
            movers.know_removed |= !std::ptr::eq(&*chain.memory, &*self.memory.memory());
            let resolved =
                runs::resolve(&chain.memory, segments, at, bytes, |part| link.number(part));
            let Ok(runs) = resolved else {
                refused.push(moving);
                continue;
            };
            let key = (moving.client, moving.export);
            let what = Move {
                seq,
                direction,
                export: link.export(key, export, &mut movers.last_export),
                offset: moving.offset,
                runs,
            };
            link.outbox.push_back(Message::r#move(&what));
            link.under_way += 1;
            movers.under_way.insert(seq, moving);
            if !std::mem::replace(&mut movers.ticking, true) {
                self.watch.tick(true);
            }
        }
    }

    /// Handles an event of a mover's channel.
    pub(super) fn mover_speaks(&mut self, gpu: u32) {
        self.receive_from_mover(gpu);
        self.pump_mover(gpu);
    }

    /// Handles messages of a mover; `true` says that there may be more.
    fn receive_from_mover(&mut self, gpu: u32) -> bool {
        for _ in 0..BATCH {
            let mover = self.movers.by_gpu.get_mut(&gpu);
            let (link, is_leaving) = match mover.map(|mover| &mut mover.state) {
                Some(State::Open(link)) => (link, false),
                Some(State::Leaving(link)) => (link, true),
                _ => return false,
            };
            match link.end.recv() {
                Ok(None) => return false,
                Ok(Some(FromMover::Left)) => {
                    self.end_mover(gpu);
                    return false;
                }
                Err(ipc::Error::Closed) => {
                    self.close_mover(gpu);
                    return false;
                }
                // Nothing but its last word counts.
                _ if is_leaving => {}
                Ok(Some(FromMover::Ready)) => link.ready = true,
                Ok(Some(FromMover::Moved { seq, done })) => {
                    let under_way = &mut self.movers.under_way;
                    if under_way.get(&seq).is_none_or(|moving| moving.gpu != gpu) {
                        tracing::error!("GPU {gpu}: protocol violation by its mover");
                        self.give_up_mover(gpu);
                        return false;
                    }
                    link.under_way -= 1;
                    if let Some(moving) = under_way.remove(&seq) {
                        self.moved(moving, done);
                    }
                }
                Err(error) => {
                    tracing::error!("GPU {gpu}: its mover: {error}");
                    self.give_up_mover(gpu);
                    return false;
                }
            }
        }
        true
    }

    /// Has a mover leave that makes no sense. What it was asked for waits until it says that it has left, or for the end of its
    /// process: others may need it, so it is not for this process to end.
    fn give_up_mover(&mut self, gpu: u32) {
        let Some(mover) = self.movers.by_gpu.get_mut(&gpu) else {
            return;
        };
        let State::Open(mut link) = std::mem::replace(&mut mover.state, State::Closed) else {
            return;
        };
        link.end.leave();
        link.wants_room = false;
        if let Err(error) = self.watch.set_room(link.end.as_fd(), link.slot, false) {
            // The clock looks at what it says.
            tracing::error!("GPU {gpu}: cannot watch its mover: {error}");
        }
        mover.state = State::Leaving(link);
        self.stage_waiting(gpu);
    }

    /// Has the supervisor look whether a mover is stuck, which ends it then.
    fn tell_that_late(&self, gpu: u32) {
        if let Err(error) = self.link.send(&ToSupervisor::MoverLate { gpu }) {
            tracing::error!("GPU {gpu}: cannot report its mover to the supervisor: {error}");
        }
    }

    /// Tells of movers that take long; `true` says that the clock is still wanted.
    pub(super) fn tick_movers(&mut self, now: Instant) -> bool {
        let is_late = |moving: &&Moving| now.saturating_duration_since(moving.since) > MOVE_LIMIT;
        let late: BTreeSet<u32> = self
            .movers
            .under_way
            .values()
            .filter(is_late)
            .map(|moving| moving.gpu)
            .collect();
        for gpu in late {
            self.tell_that_late(gpu);
        }
        for gpu in self.movers.by_gpu.keys().copied().collect::<Vec<_>>() {
            self.receive_from_mover(gpu);
        }
        self.movers.ticking = self.movers.busy();
        self.movers.ticking
    }

    /// Ends all moves: those that have not begun do not begin, and those that have begun end within milliseconds.
    /// [`Movers::busy`] says when.
    pub fn cancel_moves(&mut self) {
        let busy: BTreeSet<u32> = self
            .movers
            .under_way
            .values()
            .map(|moving| moving.gpu)
            .collect();
        for gpu in busy {
            // One that leaves, or whose channel is closed, begins none either.
            let mover = self.movers.by_gpu.get_mut(&gpu);
            if let Some(State::Open(link)) = mover.map(|mover| &mut mover.state) {
                link.outbox.push_back(Message::cancel());
            }
            self.pump_mover(gpu);
        }
    }

    /// Waits until a mover or the supervisor has something to say, or the time is up, and handles what
    /// movers say.
    pub fn wait_for_movers(&mut self, limit: Duration) {
        let timeout = PollTimeout::try_from(limit).unwrap_or(PollTimeout::MAX);
        let movers = self.movers.by_gpu.iter();
        let open: Vec<_> = movers
            .filter_map(|(&gpu, mover)| Some((gpu, mover.heard()?)))
            .collect();
        let mut fds: Vec<_> = open
            .iter()
            .map(|(_, link)| {
                let mut events = PollFlags::POLLIN;
                events.set(PollFlags::POLLOUT, link.wants_room);
                PollFd::new(link.end.as_fd(), events)
            })
            .chain([PollFd::new(self.link.as_fd(), PollFlags::POLLIN)])
            .collect();
        // An interrupted wait is a short one.
        let _ = poll(&mut fds, timeout);
        let gpus: Vec<u32> = open.iter().map(|&(gpu, _)| gpu).collect();
        for gpu in gpus {
            self.mover_speaks(gpu);
        }
    }
}

/// Whether a worker may have carried out so much of what it was sent and still want data.
fn may_be_carried_out(command: &InFlight, carried_out: u32) -> bool {
    let sent = command.header.stream_bytes.get() - command.carried_out;
    command.external && carried_out < sent
}
