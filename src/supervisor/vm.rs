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

/// The number of connections that a socket may accept at once, and the interval for one more. Each costs the host a
/// process; without a VM, each program makes one.
const CONNECT_BURST: u32 = 64;
/// See [`CONNECT_BURST`].
pub const CONNECT_PERIOD: Duration = Duration::from_millis(50);

/// See the module's documentation.
pub struct Vm {
    /// Its limits.
    pub policy: VmPolicy,
    /// The socket to which it connects.
    pub socket: Socket,
    /// Its compile cache.
    pub cache: Option<Arc<File>>,
    /// The device memory of its processes.
    pub ledger: Arc<Shared<Ledger>>,
    /// The limits of its processes.
    pub terms: Arc<Terms>,
    /// The GPUs that its clients see, in order, while it has clients.
    pub gpus: Vec<u32>,
    /// The slots of the ledger that are in use.
    slots: Vec<bool>,
    /// The socket's number in the event loop.
    pub token: u32,
    /// The number of its connections.
    pub connections: usize,
    /// Whether the socket is watched. It is not while the VM has its maximum number of connections.
    pub armed: bool,
    /// The end of a pause of the socket, because the host lacks a resource.
    pub paused: Option<Instant>,
    /// The limit of the supervisor's log lines about its connections and clients.
    log: LogLimit,
    /// The rate limit of its connections.
    pub connects: Pace,
    /// The limit of its workers' log lines.
    pub said: child_output::Limit,
    /// The limit of its device processes' log lines.
    pub devices_said: child_output::Limit,
}

impl Vm {
    /// The VM's description for movers, with this number.
    pub fn tenant(&self, number: usize) -> Tenant {
        Tenant {
            vm: number as u32,
            weight: self.policy.weight,
        }
    }

    /// Binds the VM's socket.
    ///
    /// # Errors
    /// The socket cannot be bound, or the host is out of memory.
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

    /// Whether the supervisor may now log a line that the VM has caused.
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

    /// Passes the policy to the VM's workers.
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

    /// A slot for one more client, if the VM may have one; `process` is its process in the guest, as the guest reports
    /// it.
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

    /// Frees the slot of a client that has ended.
    pub fn give_slot(&mut self, slot: u32) {
        self.ledger.clear(slot as usize);
        if let Some(taken) = self.slots.get_mut(slot as usize) {
            *taken = false;
        }
    }
}
