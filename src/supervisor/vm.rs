//! A VM: what connects to one socket, and what it may have.

use std::{fs::File, io, sync::Arc, time::Instant};

use super::{cache::Cache, socket::Socket};
use crate::{
    account::{CLIENTS, Ledger, Shared},
    log_limit::LogLimit,
    policy::VmPolicy,
};

/// See the module's page.
pub struct Vm {
    /// What it may have.
    pub policy: VmPolicy,
    /// Where it connects.
    pub socket: Socket,
    /// Where its workers' drivers keep what they compile.
    pub cache: Option<Arc<File>>,
    /// What its processes hold of device memory.
    pub ledger: Shared<Ledger>,
    /// The places in the ledger that clients have.
    slots: Vec<bool>,
    /// What the socket is watched under.
    pub token: u32,
    /// How many connections it has.
    pub connections: usize,
    /// Whether the socket is being watched: not while a device process is about to accept a connection, nor
    /// while there are as many as there may be.
    pub armed: bool,
    /// Whether a device process is about to accept a connection.
    pub accepting: bool,
    /// Until when the socket is left alone, as the host is short of something.
    pub paused: Option<Instant>,
    /// A bound for what connections can have logged.
    pub log: LogLimit,
}

impl Vm {
    /// Listens for it.
    ///
    /// # Errors
    /// The socket cannot be listened at, or the host is out of memory.
    pub fn new(policy: VmPolicy, cache: Option<&Cache>) -> io::Result<Self> {
        let path = &policy.socket;
        let socket = Socket::bind(path)?;
        tracing::info!("Listening at {}", path.display());
        let cache = cache.map(|cache| cache.open(path));
        let cache = cache.transpose().unwrap_or_else(|error| {
            tracing::warn!(
                "{}: what the driver compiles is not kept: {error}",
                path.display()
            );
            None
        });
        let ledger = Shared::<Ledger>::new(c"gpgpu-ledger")?;
        let vm = Self {
            policy,
            socket,
            cache,
            ledger,
            slots: vec![false; CLIENTS],
            token: 0,
            connections: 0,
            armed: false,
            accepting: false,
            paused: None,
            log: LogLimit::default(),
        };
        vm.apply();
        Ok(vm)
    }

    /// Makes the policy known to the VM's workers.
    pub fn apply(&self) {
        self.ledger.set_limit(self.policy.memory);
    }

    /// A place for one more client, if it may have one.
    pub fn take_slot(&mut self) -> Option<u32> {
        let taken = self.slots.iter().filter(|taken| **taken).count();
        if taken >= self.policy.max_clients {
            return None;
        }
        let slot = self.slots.iter().position(|taken| !taken)?;
        self.slots[slot] = true;
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
