// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The state of a VM's device: its queues and its clients.
//!
//! One lock guards it. No thread waits while it holds the lock: long operations are requested, and continue when the
//! answer arrives as an event.

use std::{
    collections::{HashMap, HashSet, VecDeque},
    os::fd::AsFd,
    sync::Arc,
    time::Instant,
};

use gpgpu_protocol::layout::{
    self, COMMAND_QUEUE, CONTROL_QUEUE, EVENT_QUEUE, Event, NUM_QUEUES, PAGE_BYTES, status,
};
use zerocopy::IntoBytes;

use super::{
    chain::Chain,
    client::{Channel, Client, Phase, Pumped},
    control::start_pace,
    movers::Movers,
    queue::{Answer, Memory, Queue},
    reset::Held,
    rest::Rest,
    staging::Staging,
    watch::Watch,
    worker_messages::Heard,
};
use crate::{
    ipc::{
        self,
        device::{DeviceEnd, ToDevice, ToSupervisor},
    },
    log_limit::LogLimit,
    pace::Pace,
};

const _: () = assert!(PAGE_BYTES == 4096);

/// The peer whose channel has a slot of the event loop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Speaker {
    /// A client's worker.
    Client(u32),
    /// The mover of a GPU.
    Mover(u32),
}

/// See the module's documentation.
pub struct Vm {
    /// The guest's memory, as the VMM last described it.
    pub(super) memory: Memory,
    /// The three virtqueues.
    pub queues: [Queue; NUM_QUEUES],
    pub(super) clients: HashMap<u32, Client>,
    /// Forgotten clients whose worker may still exist.
    pub leaving: HashSet<u32>,
    pub(super) link: DeviceEnd,
    pub(super) log: LogLimit,
    pub(super) next_seq: u64,
    /// Clients whose workers were not requested yet, oldest first.
    pub(super) to_start: VecDeque<u32>,
    pub(super) starts: Pace,
    last_client: u32,
    pub(super) slots: Vec<Option<Speaker>>,
    pub(super) movers: Movers,
    /// Queues with chains left after a batch.
    pub(super) unfinished: [bool; NUM_QUEUES],
    /// The reason why no chains are taken, if any: a reset that is not complete, or the end of the connection.
    pub(super) held: Option<Held>,
    /// Whether a worker's messages wait until fewer descriptors are in flight on the host.
    is_crowded: bool,
    /// The state of the workers' rest.
    pub(super) rest: Rest,
    pub(super) events: VecDeque<Event>,
    pub(super) watch: Box<dyn Watch>,
    /// The buffer for a worker's message.
    pub(super) buffer: Vec<u8>,
}

impl Vm {
    /// A device without clients.
    pub fn new(memory: Memory, link: DeviceEnd, watch: Box<dyn Watch>) -> Self {
        Self {
            memory,
            queues: std::array::from_fn(Queue::new),
            clients: HashMap::new(),
            leaving: HashSet::new(),
            link,
            log: LogLimit::default(),
            next_seq: 0,
            to_start: VecDeque::new(),
            starts: start_pace(),
            last_client: 0,
            slots: Vec::new(),
            movers: Movers::default(),
            unfinished: [false; NUM_QUEUES],
            held: None,
            is_crowded: false,
            rest: Rest::default(),
            events: VecDeque::new(),
            watch,
            buffer: Vec::new(),
        }
    }

    /// Replaces the event loop's interface for channels.
    pub fn set_watch(&mut self, watch: Box<dyn Watch>) {
        self.watch = watch;
    }

    /// Handles the chains of a queue.
    pub fn process(&mut self, queue: usize) {
        if self.held.is_some() {
            return;
        }
        self.queues[queue].flush();
        match queue {
            EVENT_QUEUE => self.send_events(),
            _ => self.drain(queue),
        }
        if queue == COMMAND_QUEUE {
            self.pump_movers();
            // Answers that waited for the ring held blocks of the staging areas.
            let ids: Vec<u32> = self.clients.keys().copied().collect();
            for id in ids {
                self.pump(id);
            }
        }
    }

    fn drain(&mut self, queue: usize) {
        let memory = self.memory.clone();
        let handle = if queue == CONTROL_QUEUE {
            Self::control
        } else {
            Self::command
        };
        self.unfinished[queue] = Queue::drain(self, |vm| &mut vm.queues[queue], &memory, handle);
    }

    /// Takes the chains for which there is room again, and notifies the driver; `true` means that [`Self::resume`] has
    /// remaining work, to be done after other threads had the lock.
    pub fn settle(&mut self) -> bool {
        self.end_reset();
        self.forget_removed_memory();
        for queue in [CONTROL_QUEUE, COMMAND_QUEUE] {
            if self.queues[queue].has_room_again() {
                self.drain(queue);
            }
        }
        for queue in &mut self.queues {
            queue.announce();
        }
        self.unfinished.contains(&true)
    }

    /// Continues with queues that had chains left after a batch.
    pub fn resume(&mut self) -> bool {
        for queue in [CONTROL_QUEUE, COMMAND_QUEUE] {
            if self.unfinished[queue] {
                self.drain(queue);
            }
        }
        self.settle()
    }

    pub(super) fn complete(&mut self, chain: Chain, answer: Answer) {
        self.queues[chain.queue].complete(chain, answer);
    }

    /// A number for a new client: not 0, and not used recently.
    pub(super) fn new_client_id(&mut self) -> u32 {
        loop {
            self.last_client = self.last_client.wrapping_add(1);
            let id = self.last_client;
            if id != 0 && !self.clients.contains_key(&id) && !self.leaving.contains(&id) {
                return id;
            }
        }
    }

    fn is_opening(&self) -> bool {
        self.clients
            .values()
            .any(|client| matches!(client.phase, Phase::Waiting { .. } | Phase::Starting { .. }))
    }

    /// Starts the timer for a client that is about to be opened.
    pub(super) fn want_clock(&mut self) {
        if !self.is_opening() {
            self.watch.tick(true);
        }
    }

    /// Starts workers as the rate limit allows, and gives up those that do not become ready.
    pub fn tick(&mut self, now: Instant) {
        let late: Vec<u32> = self
            .clients
            .iter()
            .filter(|(_, client)| matches!(client.phase, Phase::Starting { deadline, .. } if deadline <= now))
            .map(|(&id, _)| id)
            .collect();
        for id in late {
            if self.log.allow() {
                tracing::error!("Client {id}: its worker did not become ready in time");
            }
            self.fail_open(id, status::NO_RESOURCES);
        }
        self.start_workers(now);
        let moving = self.tick_movers(now);
        if std::mem::take(&mut self.is_crowded) {
            for id in self.clients.keys().copied().collect::<Vec<_>>() {
                self.pump(id);
            }
        }
        let opening = self.is_opening();
        // Setting the timer again also consumes its event.
        self.watch
            .tick(moving || opening || self.held.is_some() || self.is_crowded);
        self.remind_supervisor();
    }

    /// Receives the next message of the supervisor.
    ///
    /// # Errors
    /// See [`DeviceEnd::recv`].
    pub fn receive_from_supervisor(&self) -> ipc::Result<Option<ToDevice>> {
        self.link.recv()
    }

    /// Handles a message of the supervisor.
    pub fn supervisor_says(&mut self, message: ToDevice) {
        match message {
            ToDevice::WorkerStarted { client, channel } => self.worker_started(client, channel),
            ToDevice::WorkerFailed { client, status } => {
                self.fail_open(client, status);
                self.leaving.remove(&client);
            }
            ToDevice::WorkerExited { client, signal, .. } => self.worker_exited(client, signal),
            ToDevice::MoverStarted { gpu, channel } => self.mover_started(gpu, channel),
            ToDevice::MoverFailed { gpu } => self.mover_failed(gpu),
            ToDevice::MoverExited { gpu } => self.mover_exited(gpu),
            ToDevice::Serve { .. } => {}
        }
    }

    fn worker_started(&mut self, id: u32, socket: std::os::fd::OwnedFd) {
        // The client may have been given up in the meantime; its worker then sees that its channel is closed.
        if !self.clients.contains_key(&id) {
            return;
        }
        let staging = match Staging::new() {
            Ok(staging) => Arc::new(staging),
            Err(error) => {
                if self.log.allow() {
                    tracing::error!("Client {id}: no staging area: {error}");
                }
                return self.fail_open(id, status::NO_RESOURCES);
            }
        };
        let slot = self.take_slot(Speaker::Client(id));
        let channel = Channel::new(ipc::DeviceEnd::new(socket), slot, staging);
        if let Err(error) = self.watch.add(channel.end.as_fd(), slot, false) {
            if self.log.allow() {
                tracing::error!("Client {id}: cannot watch its worker: {error}");
            }
            self.give_slot_back(slot);
            return self.fail_open(id, status::NO_RESOURCES);
        }
        if let Some(client) = self.clients.get_mut(&id) {
            client.channel = Some(channel);
        }
        if let Some(client) = self.clients.get(&id) {
            // The VM may be paused.
            self.tell_of_rest(client);
        }
        self.pump(id);
    }

    /// A slot of the event loop for a channel.
    pub(super) fn take_slot(&mut self, speaker: Speaker) -> usize {
        let slot = free_slot(&mut self.slots);
        self.slots[slot] = Some(speaker);
        slot
    }

    /// Frees a slot.
    pub(super) fn give_slot_back(&mut self, slot: usize) {
        self.slots[slot] = None;
    }

    /// Answers an `OPEN` with a failure, and forgets the client.
    pub(super) fn fail_open(&mut self, id: u32, status: u32) {
        let starting = |client: &Client| matches!(client.phase, Phase::Starting { .. });
        if !self.clients.get(&id).is_some_and(starting) {
            return;
        }
        let Some(mut client) = self.clients.remove(&id) else {
            return;
        };
        if let Some(channel) = client.channel.take() {
            self.unwatch(channel);
        }
        self.leaving.insert(id);
        self.close_worker(id, true);
        if let Phase::Starting { chain, .. } = client.phase {
            self.complete(chain, Answer::control(status, 0));
        }
    }

    pub(super) fn unwatch(&mut self, channel: Channel) {
        self.watch.remove(channel.end.as_fd(), channel.slot);
        self.give_slot_back(channel.slot);
    }

    pub(super) fn close_worker(&mut self, client: u32, kill: bool) {
        if let Err(error) = self.link.send(&ToSupervisor::CloseWorker { client, kill }) {
            // The closed channel also ends the worker, unless it is stuck.
            if self.log.allow() {
                tracing::error!("Client {client}: cannot tell the supervisor to end it: {error}");
            }
        }
    }

    /// Ends a client's worker. Its commands are answered now, and its control requests that name memory after the
    /// worker's end. If the client is still being opened, this only fails its `OPEN`.
    pub(super) fn end(&mut self, id: u32, kill: bool) {
        self.fail_open(id, status::NO_RESOURCES);
        let Some(client) = self.clients.get_mut(&id) else {
            return;
        };
        let (channel, commands) = client.end();
        if let Some(channel) = channel {
            self.unwatch(channel);
        }
        self.close_worker(id, kill);
        let exports = self
            .clients
            .get_mut(&id)
            .map(|client| std::mem::take(&mut client.exports));
        self.forget_moves(id, exports.unwrap_or_default());
        for chain in commands {
            self.complete(chain, Answer::refusal(status::CLIENT_DEAD));
        }
    }

    pub(super) fn worker_exited(&mut self, id: u32, signal: u32) {
        self.leaving.remove(&id);
        if !self.clients.contains_key(&id) {
            return;
        }
        // Its earlier messages are still valid.
        while self
            .clients
            .get(&id)
            .is_some_and(|client| client.channel.is_some())
        {
            if self.receive(id) == Heard::Last {
                break;
            }
        }
        self.fail_open(id, status::NO_RESOURCES);
        self.leaving.remove(&id);
        let Some(client) = self.clients.get(&id) else {
            return;
        };
        if client.channel.is_some() {
            self.end(id, false);
        }
        if self.wait_for_moves(id, signal) {
            return;
        }
        let Some(client) = self.clients.get_mut(&id) else {
            return;
        };
        client.phase = Phase::Dead;
        let deferred = std::mem::take(&mut client.deferred);
        let closing = client.closing.take();
        for chain in deferred {
            self.complete(chain, Answer::control(status::CLIENT_DEAD, 0));
        }
        if let Some(chain) = closing {
            self.clients.remove(&id);
            self.complete(chain, Answer::control(status::OK, 0));
            return;
        }
        self.events.push_back(Event {
            kind: layout::event::CLIENT_DIED.into(),
            client: id.into(),
            detail: signal.into(),
            reserved: 0.into(),
        });
        self.send_events();
    }

    /// Forgets a client whose worker has ended, and its unsent events.
    pub(super) fn forget(&mut self, id: u32) {
        self.clients.remove(&id);
        self.events.retain(|event| event.client.get() != id);
    }

    /// Puts events into the driver's buffers, as many as there are buffers.
    fn send_events(&mut self) {
        let memory = self.memory.clone();
        // A driver that returns useless buffers could keep this loop running: a ring has no more buffers than this.
        for _ in 0..layout::MAX_QUEUE_SIZE {
            if self.events.is_empty() {
                return;
            }
            let queue = &mut self.queues[EVENT_QUEUE];
            // The device needs kicks for new buffers only if there is no buffer now.
            let chain = queue
                .pop(&memory)
                .or_else(|| queue.notify_me(true).then(|| queue.pop(&memory)).flatten());
            let Some(chain) = chain else { return };
            if chain.misshapen || chain.writable.bytes() < size_of::<Event>() as u64 {
                queue.complete(chain, Answer::None);
            } else if let Some(event) = self.events.pop_front() {
                queue.complete(chain, Answer::Bytes(event.as_bytes().to_vec()));
            }
        }
    }

    /// Sends a client's worker as many messages as fit.
    pub(super) fn pump(&mut self, id: u32) {
        let Some(client) = self.clients.get_mut(&id) else {
            return;
        };
        let movable = self.movers.any_ready();
        let queues = &mut self.queues;
        let pumped = client.pump(&mut self.next_seq, movable, |chain, status| {
            queues[chain.queue].complete(chain, Answer::refusal(status));
        });
        // Room in the channel would be no sign that the message can be sent.
        if pumped == Pumped::Crowded && !std::mem::replace(&mut self.is_crowded, true) {
            self.watch.tick(true);
        }
        if let Some(channel) = &mut client.channel {
            let full = pumped == Pumped::Full;
            if channel.wants_room != full {
                channel.wants_room = full;
                if let Err(error) = self.watch.set_room(channel.end.as_fd(), channel.slot, full) {
                    if self.log.allow() {
                        tracing::error!("Client {id}: cannot watch its worker: {error}");
                    }
                    self.end(id, true);
                }
            }
        }
        // A closed channel is readable: the receiver handles its end after the last message.
    }
}

/// A free slot, appended if necessary.
fn free_slot(slots: &mut Vec<Option<Speaker>>) -> usize {
    let free = slots.iter().position(Option::is_none);
    free.unwrap_or_else(|| {
        slots.push(None);
        slots.len() - 1
    })
}
