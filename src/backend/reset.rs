// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Resets of the device, and the end of its connection. Both end all clients, and are complete once nothing of them
//! writes to the guest's memory any more.

use gpgpu_protocol::layout::NUM_QUEUES;

use super::{
    client::{Client, Phase},
    vm::Vm,
};

/// The reason why no chains are taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Held {
    /// Workers or movers may still write to memory from before a reset. No later request is answered before that ends
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

    /// Whether something that is ending may still write to the guest's memory: moves, and the workers of closed or
    /// reset clients, whether or not their driver waits for the answer.
    pub fn is_ending(&self) -> bool {
        let ends = |client: &Client| matches!(client.phase, Phase::Ending);
        self.is_leaving() || self.clients.values().any(ends)
    }

    /// Handles a reset by the driver: ends all clients and forgets all chains. No chains are taken while
    /// [`Self::is_leaving`].
    pub fn reset(&mut self) {
        self.end_all(true);
        if self.held.is_none() && self.is_leaving() {
            self.held = Some(Held::Reset);
            self.watch.tick(true);
        }
    }

    /// Handles the end of the connection: no chains are taken any more, and all clients are closed. Their workers and
    /// moves have ended once [`Self::is_leaving`] is false.
    pub fn finish(&mut self) {
        self.held = Some(Held::Closed);
        self.end_all(false);
    }

    /// Ends all clients, with `kill` their workers at once, and forgets all chains.
    fn end_all(&mut self, kill: bool) {
        for queue in &mut self.queues {
            queue.reset();
        }
        let ids: Vec<u32> = self.clients.keys().copied().collect();
        for id in ids {
            let Some(mut client) = self.clients.remove(&id) else {
                continue;
            };
            // A worker that has ended sends nothing more; only its moves are waited for.
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

    /// Takes chains again if a reset is complete.
    pub(super) fn end_reset(&mut self) {
        if self.held == Some(Held::Reset) && !self.is_leaving() {
            self.held = None;
            for queue in 0..NUM_QUEUES {
                self.process(queue);
            }
        }
    }

    /// Asks the supervisor again to end the workers that a reset waits for. Usually it has received the first request,
    /// and this does nothing.
    pub(super) fn remind_supervisor(&mut self) {
        if self.held == Some(Held::Reset) {
            for client in self.leaving.clone() {
                self.close_worker(client, true);
            }
        }
    }
}
