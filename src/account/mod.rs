// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Memory that the supervisor shares with workers: leases, counters and charges of device memory.
//!
//! The supervisor shares an [`Account`] with one worker, and a [`Ledger`] with all workers of one VM; they can write
//! both. It also shares the VM's [`Terms`], which workers can only read. All are sealed memfds, so no process that maps
//! one can make another fault. A reader of a word that another process writes accepts any number. No guest reaches
//! these pages: a kernel reads registered memory alone, and the worker registers only memory of its guest.

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

/// As many GPUs as any host has.
pub const GPUS: usize = 64;

/// The permission in a [`Lease::grant`]; the rest of the word is its number.
pub mod grant {
    /// Nothing.
    pub const CLOSED: u32 = 0;
    /// No bound: no other VM wants the GPU.
    pub const OPEN: u32 = 1;
    /// Work for about [`super::Lease::slice`] at a time, and giving the lease back when there is none.
    pub const PACED: u32 = 2;
    /// The bits of the word that say which.
    pub const MODE: u32 = 3;
}

/// The right to give one GPU work.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct Lease {
    /// Written by the supervisor, and a futex: one of [`grant`], and above it the number of the grant, which a
    /// revocation keeps.
    pub grant: AtomicU32,
    /// Written by the supervisor: how much work may be on its way under a paced grant, in microseconds.
    pub slice: AtomicU32,
    /// Written by the supervisor: the most commands that may be on their way under a paced grant; 0 for no such bound.
    pub most: AtomicU32,
    /// Written by the supervisor: the end of the turn of a paced grant, in nanoseconds of the monotonic clock; 0 while
    /// no other VM waits for the GPU.
    pub until: AtomicU64,
    /// Written by the worker: how many threads wait for a grant.
    pub wants: AtomicU32,
    /// Written by the worker: the grant (number and mode's bits cleared) of which nothing is under way any more.
    pub returned: AtomicU32,
    /// Written by the worker: the grant (as above) under which nothing more is given to the GPU, of which all but the
    /// last has been done.
    pub ending: AtomicU32,
    /// Written by the worker: how many commands it waits for at [`Self::pass_since`].
    pub pass_commands: AtomicU32,
    /// Written by the worker: since when, in nanoseconds of the monotonic clock; 0 for not.
    pub pass_since: AtomicU64,
    /// Written by the worker: for how long its program mostly keeps the GPU busy before it waits for it, in
    /// nanoseconds; 0 if that is not known.
    pub burst_ns: AtomicU64,
    /// Written by the worker: for how long the GPU had work of it under open grants, in nanoseconds; sampled.
    pub busy_ns: AtomicU64,
}

/// The counters of a worker. It only adds to them, except to gauges.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct Counters {
    /// Kernels launched.
    pub launches: AtomicU64,
    /// Graphs that went to the driver in place of launches.
    pub launch_graphs: AtomicU64,
    /// Bytes copied to device memory.
    pub bytes_to_device: AtomicU64,
    /// Bytes copied from device memory.
    pub bytes_from_device: AtomicU64,
    /// Bytes copied within device memory.
    pub bytes_on_device: AtomicU64,
    /// Copies of all kinds.
    pub copies: AtomicU64,
    /// Commands carried out.
    pub commands: AtomicU64,
    /// The number of waits of commands for the GPU's lease.
    pub waits: AtomicU64,
    /// The total time of these waits, in nanoseconds.
    pub wait_ns: AtomicU64,
    /// For how long the GPU had work of this worker, in nanoseconds; sampled.
    pub busy_ns: AtomicU64,
    /// A gauge: commands in the ring that were not carried out yet.
    pub queued: AtomicU64,
    /// A gauge: bytes of the guest's memory that are registered here.
    pub pinned: AtomicU64,
}

/// The state that the supervisor shares with one worker.
#[derive(Debug)]
#[repr(C)]
pub struct Account {
    /// By GPU.
    pub leases: [Lease; GPUS],
    /// Written by the worker: the GPUs that it has used, a bit for each.
    pub used: AtomicU64,
    /// The worker's counters.
    pub counters: Counters,
}

// SAFETY: made of atomic integers alone.
unsafe impl Words for Account {}

/// Adds to a counter that one process writes and others read.
pub fn add(counter: &AtomicU64, amount: u64) {
    counter.fetch_add(amount, Ordering::Relaxed);
}

/// The monotonic clock in nanoseconds, as all processes of the machine read it.
pub fn monotonic() -> u64 {
    let now = nix::time::clock_gettime(nix::time::ClockId::CLOCK_MONOTONIC);
    now.map_or(1, |now| {
        now.tv_sec() as u64 * 1_000_000_000 + now.tv_nsec() as u64
    })
}
