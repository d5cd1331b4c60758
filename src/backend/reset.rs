// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Resets of the device, and the end of its connection: both end all clients, and are over once nothing of them writes
//! to the guest's memory any more.

use gpgpu_protocol::layout::NUM_QUEUES;

use super::{
    client::{Client, Phase},
    vm::Vm,
};

/// The reason that no chain is taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Held {
    /// Workers or movers may still write to memory from before a reset: no request from after it is answered
    /// (GPGPU-DEV-8).
    Reset,
    /// The connection is closed.
    Closed,
}

impl Vm {
    /// Whether workers or movers may still write to memory that the driver has taken back.
    pub fn is_leaving(&self) -> bool {
        !self.leaving.is_empty() || self.movers.busy()
    }

    /// Whether anything may still write to the guest's memory that is to end: moves, and the workers of clients that
    /// were closed or reset, whether or not their driver waits for the answer.
    pub fn is_ending(&self) -> bool {
        let ends = |client: &Client| matches!(client.phase, Phase::Ending);
        self.is_leaving() || self.clients.values().any(ends)
    }

    /// Ends all clients and forgets all chains: the driver has reset the device. Until [`Self::is_leaving`] is over, no
    /// further chain is taken.
    pub fn reset(&mut self) {
        self.end_all(true);
        if self.held.is_none() && self.is_leaving() {
            self.held = Some(Held::Reset);
            self.watch.tick(true);
        }
    }

    /// The connection is closed: no chain is taken any more, and all clients end as they do when they are closed.
    /// Their workers and moves have ended once [`Self::is_leaving`] is over.
    pub fn finish(&mut self) {
        self.held = Some(Held::Closed);
        self.end_all(false);
    }

    /// Ends all clients, workers at once if `kill`, and forgets all chains.
    fn end_all(&mut self, kill: bool) {
        for queue in &mut self.queues {
            queue.reset();
        }
        let ids: Vec<u32> = self.clients.keys().copied().collect();
        for id in ids {
            let Some(mut client) = self.clients.remove(&id) else {
                continue;
            };
            // Of a worker that is gone nothing is heard again; its moves are waited for as such.
            let gone = self.movers.forget_late(id)
                || matches!(client.phase, Phase::Waiting { .. } | Phase::Dead);
            let (channel, _) = client.end();
            if let Some(channel) = channel {
                self.unwatch(channel);
            }
            self.forget_moves(id, client.exports);
            if !gone {
                self.leaving.insert(id);
                self.close_worker(id, kill);
            }
        }
        self.cancel_moves();
        self.events.clear();
        self.to_start.clear();
        self.unfinished = [false; NUM_QUEUES];
    }

    /// Takes chains again, if a reset is over.
    pub(super) fn end_reset(&mut self) {
        if self.held == Some(Held::Reset) && !self.is_leaving() {
            self.held = None;
            for queue in 0..NUM_QUEUES {
                self.process(queue);
            }
        }
    }

    /// Asks the supervisor once more to end the workers that a reset waits for. It has mostly heard of them; then this
    /// does nothing.
    pub(super) fn remind_supervisor(&mut self) {
        if self.held == Some(Held::Reset) {
            for client in self.leaving.clone() {
                self.close_worker(client, true);
            }
        }
    }
}
