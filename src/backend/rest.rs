// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Rest: while the VMM has stopped or disabled a ring, the workers of open clients write nothing to the guest's memory
//! either.
//!
//! The VMM announces a pause, a snapshot and a reboot in the same way. Each worker is told to stop between two commands
//! and to wait for its GPU work. A worker that does not rest within the VM's limit is killed: nothing may write to
//! memory that a VMM saves or in which another kernel boots. When all rings run again, the workers continue.

use std::time::{Duration, Instant};

use gpgpu_protocol::layout::NUM_QUEUES;

use super::{
    client::{Client, Phase},
    queue::Restart,
    vm::Vm,
};
use crate::policy::DEFAULT_PAUSE_LIMIT;

/// See the module's documentation.
#[derive(Debug)]
pub(super) struct Rest {
    /// The number of the current rest, or 0.
    number: u32,
    last: u32,
    since: Instant,
    limit: Option<Duration>,
}

impl Default for Rest {
    fn default() -> Self {
        Self {
            number: 0,
            last: 0,
            since: Instant::now(),
            limit: Some(DEFAULT_PAUSE_LIMIT),
        }
    }
}

impl Rest {
    /// Whether a client's worker may write to memory that the client has registered, and does not rest yet.
    fn is_awaited(&self, client: &Client) -> bool {
        self.number != 0
            && matches!(client.phase, Phase::Live)
            && !client.regions.is_empty()
            && client
                .rest()
                .is_some_and(|words| !words.is_reached(self.number))
    }
}

impl Vm {
    /// Sets the maximum time for which a rest waits for a worker; `None` for no limit.
    pub fn limit_rests(&mut self, limit: Option<Duration>) {
        self.rest.limit = limit;
    }

    /// Handles the stop or disabling of a ring: the workers must rest.
    pub fn rest(&mut self) {
        if self.rest.number != 0 {
            return;
        }
        self.rest.last = self.rest.last.wrapping_add(1).max(1);
        self.rest.number = self.rest.last;
        self.rest.since = Instant::now();
        self.tell_all_of_rest();
    }

    fn tell_all_of_rest(&self) {
        self.clients
            .values()
            .for_each(|client| self.tell_of_rest(client));
    }

    /// Tells a client's worker whether it must rest.
    pub(super) fn tell_of_rest(&self, client: &Client) {
        if let Some(words) = client.rest() {
            words.want(self.rest.number);
        }
    }

    /// Whether a worker does not rest yet.
    pub fn is_restless(&self) -> bool {
        let mut clients = self.clients.values();
        clients.any(|client| self.rest.is_awaited(client))
    }

    /// Checks the workers that do not rest yet, because a worker may be unable to report it; kills those whose time is
    /// up.
    pub fn hurry_rest(&mut self) {
        let clients = self.clients.iter();
        let awaited = clients.filter(|(_, client)| self.rest.is_awaited(client));
        let awaited: Vec<u32> = awaited.map(|(&id, _)| id).collect();
        let took = self.rest.since.elapsed();
        let is_over = self.rest.limit.is_some_and(|limit| took >= limit);
        for id in awaited {
            self.receive(id);
            if is_over {
                if self.log.allow() {
                    tracing::warn!(
                        "Client {id} terminated: its GPU work was still running {took:.1?} after the pause (pause-limit)"
                    );
                }
                self.end(id, true);
            }
        }
    }

    /// Handles the start, the enabling or a kick of a ring. If all rings run again, the workers continue, and the
    /// device takes the chains on the rings.
    pub fn go_on(&mut self) {
        if self.rest.number == 0 {
            return;
        }
        let mut is_reset = false;
        for queue in &mut self.queues {
            is_reset |= queue.look() == Restart::Reset;
        }
        if is_reset {
            // The new driver's requests wait until nothing of the old driver is left. The VMM does not wait.
            self.reset();
        }
        if self.queues.iter().all(|queue| queue.is_running_or_new()) {
            self.rest.number = 0;
            self.tell_all_of_rest();
            (0..NUM_QUEUES).for_each(|queue| self.process(queue));
        }
    }
}
