// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Moves: from a worker's report of where a command's data belongs to the answer of that command.

use std::{
    collections::{BTreeSet, HashMap, VecDeque},
    os::fd::AsFd,
    time::{Duration, Instant},
};

use gpgpu_protocol::layout::{COMMAND_QUEUE, CommandAnswer, CommandHeader, status};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use vm_memory::GuestAddressSpace;

use super::{BATCH, Moving, State};
use crate::{
    backend::{
        client::{Export, InFlight, Phase},
        queue::{Answer, Out},
        runs,
        vm::Vm,
        worker_messages::{Heard, ProtocolViolation},
    },
    ipc::{
        self,
        mover::{Direction, FromMover, MAX_MOVES, Message, Move},
    },
};

impl Vm {
    /// Ends a client: withdraws its device memory, and drops moves that were not sent yet.
    pub(in crate::backend) fn forget_moves(&mut self, id: u32, exports: HashMap<u64, Export>) {
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

    /// Delays the end of a client whose worker has ended until none of its data is in flight; `false` if there is
    /// nothing to wait for.
    pub(in crate::backend) fn wait_for_moves(&mut self, id: u32, signal: u32) -> bool {
        let busy = self.movers.busy_for(id);
        if busy {
            self.movers.late.insert(id, signal);
        }
        busy
    }

    /// Handles a worker's report of where a command's data belongs.
    pub(in crate::backend) fn move_asked(
        &mut self,
        id: u32,
        seq: u64,
        (export, offset): (u64, u64),
        carried_out: u32,
        answer: &[u8],
    ) -> Result<Heard, ProtocolViolation> {
        let client = self.clients.get_mut(&id).ok_or(ProtocolViolation)?;
        let command = client.in_flight.get(&seq).ok_or(ProtocolViolation)?;
        let header = &command.header;
        let bytes = header.in_bytes.get().max(header.out_bytes.get());
        let place = client.exports.get(&export).ok_or(ProtocolViolation)?;
        if answer.len() > header.answer_bytes.get() as usize
            || offset
                .checked_add(bytes)
                .is_none_or(|end| end > place.bytes)
            || !may_be_carried_out(command, carried_out)
        {
            return Err(ProtocolViolation);
        }
        let gpu = place.gpu;
        let moving = Moving {
            client: id,
            gpu,
            command: client.in_flight.remove(&seq).ok_or(ProtocolViolation)?,
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

    /// Handles a worker's report that a command's data has to be staged.
    pub(in crate::backend) fn not_movable(
        &mut self,
        id: u32,
        seq: u64,
        carried_out: u32,
    ) -> Result<Heard, ProtocolViolation> {
        let client = self.clients.get_mut(&id).ok_or(ProtocolViolation)?;
        if !may_be_carried_out(
            client.in_flight.get(&seq).ok_or(ProtocolViolation)?,
            carried_out,
        ) {
            return Err(ProtocolViolation);
        }
        let command = client.in_flight.remove(&seq).ok_or(ProtocolViolation)?;
        client.external -= 1;
        let carried_out = command.carried_out + carried_out;
        client.push_staged(command.chain, command.header, carried_out);
        Ok(Heard::More)
    }

    /// Ends a move, or one that was not begun: its command is answered, or continues with staged data.
    pub(super) fn moved(&mut self, moving: Moving, done: bool) {
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

    /// Sends the moves that waited for the ring to run.
    pub(in crate::backend) fn pump_movers(&mut self) {
        let gpus: Vec<u32> = self.movers.by_gpu.keys().copied().collect();
        for gpu in gpus {
            self.pump_mover(gpu);
        }
    }

    /// Sends a mover as many requests as there is room for.
    pub(in crate::backend) fn pump_mover(&mut self, gpu: u32) {
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

    /// Sends until nothing is left (`true`) or the channel is full. Moves that a mover cannot do go to `refused`.
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
                    // The receiver handles the end of the channel after the last message. The timer tries again
                    // while too many descriptors are in flight.
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
            // The chain may hold an earlier memory map whose files the mover does not know.
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
    pub(in crate::backend) fn mover_speaks(&mut self, gpu: u32) {
        self.receive_from_mover(gpu);
        self.pump_mover(gpu);
    }

    /// Handles messages of a mover; `true` says that there may be more.
    pub(super) fn receive_from_mover(&mut self, gpu: u32) -> bool {
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
                // Only the report that it has left still counts.
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

    /// Cancels all moves: those that have not begun do not begin, and the others end within milliseconds.
    /// [`super::Movers::busy`] reports when all have ended.
    pub fn cancel_moves(&mut self) {
        let busy: BTreeSet<u32> = self
            .movers
            .under_way
            .values()
            .map(|moving| moving.gpu)
            .collect();
        for gpu in busy {
            // A mover that leaves, or whose channel is closed, begins no moves either.
            let mover = self.movers.by_gpu.get_mut(&gpu);
            if let Some(State::Open(link)) = mover.map(|mover| &mut mover.state) {
                link.outbox.push_back(Message::cancel());
            }
            self.pump_mover(gpu);
        }
    }

    /// Waits for a message of a mover or the supervisor, at most for `limit`, and handles messages of movers.
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
        // A signal only shortens the wait.
        let _ = poll(&mut fds, timeout);
        let gpus: Vec<u32> = open.iter().map(|&(gpu, _)| gpu).collect();
        for gpu in gpus {
            self.mover_speaks(gpu);
        }
    }
}

/// Whether a worker that has executed this much of its stream can still need data.
fn may_be_carried_out(command: &InFlight, carried_out: u32) -> bool {
    let sent = command.header.stream_bytes.get() - command.carried_out;
    command.external && carried_out < sent
}
