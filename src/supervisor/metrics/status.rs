// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The status of VMs and clients at one moment. As JSON, it is also the page that `top` reads.

use std::{
    collections::BTreeMap,
    sync::atomic::{AtomicU64, Ordering},
};

use serde::{Deserialize, Serialize};

use crate::account::Counters;

/// The service with all its VMs.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// This program's version.
    pub version: String,
    /// The time since its start.
    pub uptime_seconds: f64,
    /// Workers that wait for a client.
    pub warm_workers: u64,
    /// Movers that are running.
    pub movers: u64,
    /// The VMs, in the order of their configuration.
    pub vms: Vec<VmStatus>,
}

/// A VM.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct VmStatus {
    /// Its name.
    pub name: String,
    /// The path of its socket.
    pub socket: String,
    /// Its weight.
    pub weight: u32,
    /// The limit of device memory on each GPU, in bytes.
    pub memory_limit_bytes: Option<u64>,
    /// The maximum number of clients.
    pub max_clients: u64,
    /// The maximum run time of one kernel.
    pub longest_kernel_seconds: Option<f64>,
    /// The number of its connections.
    pub connections: u64,
    /// Its use of each GPU.
    pub gpus: Vec<GpuStatus>,
    /// The work of its clients, including ended ones.
    pub totals: Totals,
    /// Commands that wait in its clients' rings.
    pub queued_commands: u64,
    /// Bytes of its memory that are pinned for copies.
    pub pinned_bytes: u64,
    /// The number of clients since the start, including the present ones.
    pub clients_opened: u64,
    /// The number of clients that have ended, by reason.
    pub client_ends: BTreeMap<String, u64>,
    /// The present clients.
    pub clients: Vec<ClientStatus>,
}

/// A VM's use of a GPU.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct GpuStatus {
    /// The GPU, by the host driver's number.
    pub gpu: u32,
    /// The GPU time of the VM.
    pub seconds: f64,
    /// The charged bytes of its memory.
    pub memory_bytes: u64,
}

/// A client: a process of a guest.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ClientStatus {
    /// Its number, which is unique only in its connection: several connections of a VM can use the same.
    pub client: u32,
    /// The process's name, escaped.
    pub name: String,
    /// The process's id in the guest.
    pub guest_process: u32,
    /// Its worker's process id on the host.
    pub worker: u32,
    /// The time since it was opened, in seconds.
    pub seconds: f64,
    /// The charged bytes of device memory, on all GPUs.
    pub memory_bytes: u64,
    /// The time for which GPUs had work of it while no other VM wanted them; sampled.
    pub alone_seconds: f64,
    /// Its work.
    pub totals: Totals,
    /// Commands that wait in its ring.
    pub queued_commands: u64,
    /// Bytes of its memory that are pinned for copies.
    pub pinned_bytes: u64,
}

/// Amounts of work, which never decrease.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Totals {
    /// Kernels launched.
    pub launches: u64,
    /// Graphs that were launched in place of single kernels.
    pub launch_graphs: u64,
    /// Copies made.
    pub copies: u64,
    /// Bytes copied to device memory.
    pub bytes_to_device: u64,
    /// Bytes copied from device memory.
    pub bytes_from_device: u64,
    /// Bytes copied within device memory.
    pub bytes_on_device: u64,
    /// Commands executed.
    pub commands: u64,
    /// The number of waits of commands for the GPU's lease.
    pub waits: u64,
    /// The total time of these waits, in nanoseconds.
    pub wait_nanoseconds: u64,
}

impl Totals {
    /// The counters of a worker.
    pub fn of(counters: &Counters) -> Self {
        let read = |word: &AtomicU64| word.load(Ordering::Relaxed);
        Self {
            launches: read(&counters.launches),
            launch_graphs: read(&counters.launch_graphs),
            copies: read(&counters.copies),
            bytes_to_device: read(&counters.bytes_to_device),
            bytes_from_device: read(&counters.bytes_from_device),
            bytes_on_device: read(&counters.bytes_on_device),
            commands: read(&counters.commands),
            waits: read(&counters.waits),
            wait_nanoseconds: read(&counters.wait_ns),
        }
    }

    /// Combines each pair of values by `how`.
    fn with(self, other: Self, how: impl Fn(u64, u64) -> u64) -> Self {
        Self {
            launches: how(self.launches, other.launches),
            launch_graphs: how(self.launch_graphs, other.launch_graphs),
            copies: how(self.copies, other.copies),
            bytes_to_device: how(self.bytes_to_device, other.bytes_to_device),
            bytes_from_device: how(self.bytes_from_device, other.bytes_from_device),
            bytes_on_device: how(self.bytes_on_device, other.bytes_on_device),
            commands: how(self.commands, other.commands),
            waits: how(self.waits, other.waits),
            wait_nanoseconds: how(self.wait_nanoseconds, other.wait_nanoseconds),
        }
    }

    /// The sum of both.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        self.with(other, u64::saturating_add)
    }

    /// The larger value of each pair.
    #[must_use]
    pub fn most(self, other: Self) -> Self {
        self.with(other, u64::max)
    }

    /// The differences from another one.
    #[must_use]
    pub fn since(self, other: Self) -> Self {
        self.with(other, u64::saturating_sub)
    }

    /// The sum of the copied bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes_to_device
            .saturating_add(self.bytes_from_device)
            .saturating_add(self.bytes_on_device)
    }
}
