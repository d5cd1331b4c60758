// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! A VM: the connections of one socket, and their limits.

use std::{
    fs::File,
    io,
    sync::Arc,
    time::{Duration, Instant},
};

use super::{cache::Cache, child_output, socket::Socket};
use crate::{
    account::{CLIENTS, GPUS, Ledger, Shared, Terms},
    ipc::mover::Tenant,
    log_limit::LogLimit,
    pace::Pace,
    policy::VmPolicy,
};

/// Connections that a socket may have at once, and how long until it may have one more. Each costs the host a process;
/// without a VM each program is one.
const CONNECT_BURST: u32 = 64;
/// See [`CONNECT_BURST`].
pub const CONNECT_PERIOD: Duration = Duration::from_millis(50);

/// See the module's page.
pub struct Vm {
    /// Its limits.
    pub policy: VmPolicy,
    /// The socket that it connects to.
    pub socket: Socket,
    /// Its compile cache.
    pub cache: Option<Arc<File>>,
    /// The device memory of its processes.
    pub ledger: Arc<Shared<Ledger>>,
    /// Their limits.
    pub terms: Arc<Terms>,
    /// The GPUs that its clients see, in their order, while it has any.
    pub gpus: Vec<u32>,
    /// The places in the ledger that clients have.
    slots: Vec<bool>,
    /// The socket's number in the event loop.
    pub token: u32,
    /// The number of its connections.
    pub connections: usize,
    /// Whether the socket is being watched: not while there are as many as there may be.
    pub armed: bool,
    /// Until when the socket is left alone, as the host is short of something.
    pub paused: Option<Instant>,
    /// The bound on the supervisor's lines about its connections and clients.
    log: LogLimit,
    /// A bound for how often it connects.
    pub connects: Pace,
    /// The bound on its workers' log lines.
    pub said: child_output::Limit,
    /// The bound on its device processes' log lines.
    pub devices_said: child_output::Limit,
}

impl Vm {
    /// The VM's description for movers, by its number.
    pub fn tenant(&self, number: usize) -> Tenant {
        Tenant {
            vm: number as u32,
            weight: self.policy.weight,
        }
    }

    /// Listens for it.
    ///
    /// # Errors
    /// The socket cannot be listened at, or the host is out of memory.
    pub fn new(policy: VmPolicy, cache: Option<&Cache>, context_costs: &[u64]) -> io::Result<Self> {
        let path = &policy.socket;
        let socket = Socket::bind(path)?;
        tracing::info!("Listening at {}", path.display());
        let cache = cache.map(|cache| cache.open(path));
        let cache = cache.transpose().unwrap_or_else(|error| {
            tracing::warn!("{}: driver compile cache disabled: {error}", path.display());
            None
        });
        let ledger = Arc::new(Shared::<Ledger>::new(c"gpgpu-ledger")?);
        let terms = Arc::new(Terms::new()?);
        terms.set_context_costs(context_costs);
        let vm = Self {
            policy,
            socket,
            cache,
            ledger,
            terms,
            gpus: Vec::new(),
            slots: vec![false; CLIENTS],
            token: 0,
            connections: 0,
            armed: false,
            paused: None,
            log: LogLimit::of_supervisor(),
            connects: Pace::new(CONNECT_BURST, CONNECT_PERIOD),
            said: child_output::Limit::default(),
            devices_said: child_output::Limit::default(),
        };
        vm.apply();
        Ok(vm)
    }

    /// Whether the supervisor may log a line now that the VM has caused.
    pub fn may_log(&mut self) -> bool {
        if !self.log.allow() {
            return false;
        }
        let missed = self.log.take_missed();
        if missed > 0 {
            tracing::warn!(
                vm = self.policy.name,
                "{}: {missed} more lines about connections and clients dropped",
                self.socket.path().display()
            );
        }
        true
    }

    /// Makes the policy known to the VM's workers.
    pub fn apply(&self) {
        let limit = self.policy.memory;
        self.terms.set_limit(limit);
        self.terms.allow_sensors(self.policy.sensors);
        for (gpu, cost) in (0..GPUS).map(|gpu| (gpu, self.terms.context_cost(gpu))) {
            let is_used = self
                .policy
                .gpus
                .as_ref()
                .is_none_or(|gpus| gpus.contains(&(gpu as u32)));
            if is_used && limit.is_some_and(|limit| limit < cost) {
                tracing::warn!(
                    "{}: memory limit below the {} MiB of one context on GPU {gpu}; no program of the VM can use that GPU",
                    self.policy.name,
                    cost >> 20
                );
            }
        }
    }

    /// A place for one more client, if it may have one; `process` is its process in the guest, as the guest says.
    pub fn take_slot(&mut self, process: u32) -> Option<u32> {
        let taken = self.slots.iter().filter(|taken| **taken).count();
        if taken >= self.policy.max_clients {
            return None;
        }
        let slot = self.slots.iter().position(|taken| !taken)?;
        self.slots[slot] = true;
        self.ledger.enter(slot, process);
        Some(slot as u32)
    }

    /// The client that had the place is gone.
    pub fn give_slot(&mut self, slot: u32) {
        self.ledger.clear(slot as usize);
        if let Some(taken) = self.slots.get_mut(slot as usize) {
            *taken = false;
        }
    }
}
