// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Connects workers of one VM that share objects of their guest processes. The supervisor does not see their messages.

use std::time::{Duration, Instant};

use event_manager::{EventOps, EventSet, Events};

use super::Supervisor;
use crate::{
    ipc::{
        self,
        peers::{MAX_UNTAKEN, SupervisorEnd, ToSupervisor, ToWorker},
    },
    pace::Pace,
};

/// The number of messages of a worker that are handled in a row.
const BATCH: usize = 16;
/// The number of messages that a worker may send at once, and the interval for one more. A worker limits itself to
/// three quarters of that.
const MESSAGE_BURST: u32 = 256;
/// See [`MESSAGE_BURST`].
const MESSAGE_PERIOD: Duration = Duration::from_millis(5);

/// A worker's channel for connections to other workers.
pub struct Peers {
    /// `None` after an invalid message: the messages that were sent further on are gone with their descriptors.
    end: Option<SupervisorEnd>,
    /// The channel's number in the event loop.
    pub token: u32,
    /// The worker's number for other workers.
    number: u64,
    /// Whether it accepts visitors.
    listens: bool,
    /// The number of descriptors that were sent to it and that it has not confirmed.
    untaken: u32,
    /// The rate limit for its messages, including requests for sensors. A worker that exceeds it is compromised.
    messages: Pace,
    /// Whether its end is watched.
    is_watched: bool,
}

impl Peers {
    /// The channel of a worker with this number.
    pub fn new(end: SupervisorEnd, token: u32, number: u64) -> Self {
        Self {
            end: Some(end),
            token,
            number,
            listens: false,
            untaken: 0,
            messages: Pace::new(MESSAGE_BURST, MESSAGE_PERIOD),
            is_watched: false,
        }
    }

    /// Watches the channel. Without that it is of no use to its worker.
    pub fn watch(&mut self, ops: &mut EventOps<'_>) {
        let Some(end) = &self.end else { return };
        let events = Events::with_data(end, self.token, EventSet::IN);
        match ops.add(events) {
            Ok(()) => self.is_watched = true,
            Err(error) => tracing::error!("Cannot watch a worker's channel to others: {error}"),
        }
    }

    /// Closes the channel.
    pub fn close(&mut self, ops: &mut EventOps<'_>) {
        let end = self.end.take();
        if let Some(end) = end.filter(|_| std::mem::take(&mut self.is_watched)) {
            let _ = ops.remove(Events::with_data(&end, self.token, EventSet::IN));
        }
        self.listens = false;
    }

    /// Sends a message; `false` if the worker does not read its messages.
    fn tell(&mut self, message: &ToWorker) -> bool {
        let has_file = matches!(message, ToWorker::Met(..) | ToWorker::Visitor(..));
        if has_file && self.untaken >= MAX_UNTAKEN {
            return false;
        }
        let sent = self.end.as_ref().map(|end| end.send(message));
        let told = matches!(sent, Some(Ok(())));
        self.untaken += u32::from(told && has_file);
        told
    }

    /// Records that it has received a descriptor; `false` if none was pending.
    fn taken(&mut self) -> bool {
        let left = self.untaken.checked_sub(1);
        self.untaken = left.unwrap_or(0);
        left.is_some()
    }
}

impl Supervisor {
    /// Handles a limited number of messages of a worker.
    pub(super) fn hear_worker(&mut self, key: u32, ops: &mut EventOps<'_>) {
        for _ in 0..BATCH {
            let Some(worker) = self.workers.get_mut(&key) else {
                return;
            };
            let peers = &mut worker.peers;
            let vm = worker.vm;
            let Some(end) = &peers.end else { return };
            let message = match end.recv() {
                Ok(None) => return,
                // There are no more of these than descriptors were sent to it.
                Ok(Some(ToSupervisor::Taken)) => match peers.taken() {
                    true => Ok(ToSupervisor::Taken),
                    false => Err(ipc::Error::Malformed("a channel that was never sent")),
                },
                Ok(Some(_)) if !peers.messages.take(Instant::now()) => {
                    Err(ipc::Error::Malformed("message limit of a worker exceeded"))
                }
                Ok(Some(message)) => Ok(message),
                Err(error) => Err(error),
            };
            match message {
                Ok(ToSupervisor::Listen) => peers.listens = true,
                Ok(ToSupervisor::Meet(number)) => self.meet(key, number),
                Ok(ToSupervisor::Sense(gpu)) => self.sense(vm, gpu),
                Ok(ToSupervisor::Taken) => {}
                Err(error) => {
                    // The worker continues without connections to others.
                    peers.close(ops);
                    let is_news = !matches!(error, ipc::Error::Closed);
                    let id = worker.process.id();
                    if is_news && self.vms[worker.vm].may_log() {
                        tracing::error!("Worker {id}: {error}");
                    }
                    return;
                }
            }
        }
    }

    /// Connects a worker to the one with this number, if both serve the same VM.
    fn meet(&mut self, key: u32, number: u64) {
        let Some(visitor) = self.workers.get(&key) else {
            return;
        };
        let (vm, own) = (visitor.vm, visitor.peers.number);
        let mut others = self.workers.iter_mut();
        let host = others
            .find(|(_, worker)| worker.peers.number == number && worker.vm == vm && !worker.closed);
        let host = host.filter(|(of, worker)| **of != key && worker.peers.listens);
        let answer = match host {
            None => ToWorker::NotMet(number),
            Some((_, host)) => {
                let told = ipc::pair().map(|(channel, theirs)| {
                    let told = host.peers.tell(&ToWorker::Visitor(own, theirs));
                    told.then_some(channel)
                });
                match told {
                    Ok(Some(channel)) => ToWorker::Met(number, channel),
                    // It has not received earlier descriptors yet, or this process has no free descriptor at present.
                    _ => ToWorker::Busy(number),
                }
            }
        };
        if let Some(visitor) = self.workers.get_mut(&key) {
            // A worker that does not read is compromised, and waits for ever.
            visitor.peers.tell(&answer);
        }
    }
}
