// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Memory that the supervisor shares with workers: leases, counters and charges of device memory.
//!
//! The supervisor shares an [`Account`] with one worker, and a [`Ledger`] with all workers of one VM; both sides can
//! write them. It also shares the VM's [`Terms`], which workers can only read. All are sealed memfds, so a process
//! cannot truncate one and make another process fault. A reader of a word that another process writes accepts any
//! value. Guests cannot reach these pages: a kernel accesses only registered memory, and the worker registers only
//! memory of its guest.

mod ledger;
mod quota;
mod readings;
mod shared;
mod terms;

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

pub use ledger::{CLIENTS, GRANULE, Holding, Ledger};
pub use quota::{Charge, Quota, Room};
pub use readings::{SAMPLE_AGE, Sample};
pub use shared::{Shared, Words};
pub use terms::{Terms, TermsView};

/// The maximum number of GPUs of a host.
pub const GPUS: usize = 64;

/// The modes of [`Lease::grant`]. The other bits of the word are the grant's number.
pub mod grant {
    /// No permission.
    pub const CLOSED: u32 = 0;
    /// Permission without a limit: no other VM wants the GPU.
    pub const OPEN: u32 = 1;
    /// Permission for about [`super::Lease::slice`] of work at a time. The worker returns the lease when it has no
    /// work.
    pub const PACED: u32 = 2;
    /// The mask of the bits that hold the mode.
    pub const MODE: u32 = 3;
}

/// The right to submit work to one GPU.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct Lease {
    /// Written by the supervisor; a futex. The mode (see [`grant`]), and above it the number of the grant. A revocation
    /// keeps the number.
    pub grant: AtomicU32,
    /// Written by the supervisor: the maximum amount of submitted, unfinished work under a paced grant, in
    /// microseconds.
    pub slice: AtomicU32,
    /// Written by the supervisor: the maximum number of submitted, unfinished commands under a paced grant; 0 for no
    /// limit.
    pub most: AtomicU32,
    /// Written by the supervisor: the end of the turn of a paced grant, in nanoseconds of the monotonic clock; 0 while
    /// no other VM waits for the GPU.
    pub until: AtomicU64,
    /// Written by the worker: how many threads wait for a grant.
    pub wants: AtomicU32,
    /// Written by the worker: the last grant (with the mode bits cleared) all of whose work has completed.
    pub returned: AtomicU32,
    /// Written by the worker: the last grant (as above) under which it submits no more work, and of which all work but
    /// the last command has completed.
    pub ending: AtomicU32,
    /// Written by the worker: the number of commands whose completion it waits for.
    pub pass_commands: AtomicU32,
    /// Written by the worker: the start of that wait, in nanoseconds of the monotonic clock; 0 if it does not wait.
    pub pass_since: AtomicU64,
    /// Written by the worker: the typical time for which its program keeps the GPU busy before it waits for it, in
    /// nanoseconds; 0 if unknown.
    pub burst_ns: AtomicU64,
    /// Written by the worker: the time for which the GPU had work of this worker under open grants, in nanoseconds;
    /// sampled.
    pub busy_ns: AtomicU64,
}

/// The counters of a worker. The worker only adds to them, except for gauges.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct Counters {
    /// Kernels launched.
    pub launches: AtomicU64,
    /// Graphs that were launched in place of single kernels.
    pub launch_graphs: AtomicU64,
    /// Bytes copied to device memory.
    pub bytes_to_device: AtomicU64,
    /// Bytes copied from device memory.
    pub bytes_from_device: AtomicU64,
    /// Bytes copied within device memory.
    pub bytes_on_device: AtomicU64,
    /// Copies of all kinds.
    pub copies: AtomicU64,
    /// Commands executed.
    pub commands: AtomicU64,
    /// The number of waits of commands for the GPU's lease.
    pub waits: AtomicU64,
    /// The total time of these waits, in nanoseconds.
    pub wait_ns: AtomicU64,
    /// The time for which the GPU had work of this worker, in nanoseconds; sampled.
    pub busy_ns: AtomicU64,
    /// A gauge: commands in the ring that were not executed yet.
    pub queued: AtomicU64,
    /// A gauge: registered bytes of the guest's memory.
    pub pinned: AtomicU64,
}

/// The state that the supervisor shares with one worker.
#[derive(Debug)]
#[repr(C)]
pub struct Account {
    /// By GPU.
    pub leases: [Lease; GPUS],
    /// Written by the worker: a bit for each GPU that it has used.
    pub used: AtomicU64,
    /// The worker's counters.
    pub counters: Counters,
}

// SAFETY: made of atomic integers alone.
unsafe impl Words for Account {}

/// Adds to a counter that one process writes and other processes read.
pub fn add(counter: &AtomicU64, amount: u64) {
    counter.fetch_add(amount, Ordering::Relaxed);
}

/// The monotonic clock in nanoseconds, which is the same for all processes of the machine.
pub fn monotonic() -> u64 {
    let now = nix::time::clock_gettime(nix::time::ClockId::CLOCK_MONOTONIC);
    now.map_or(1, |now| {
        now.tv_sec() as u64 * 1_000_000_000 + now.tv_nsec() as u64
    })
}
