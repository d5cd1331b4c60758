// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! What a VM's processes hold of device memory, together.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use super::{GPUS, Words};

/// As many clients as one VM can have at a time, over all its connections.
pub const CLIENTS: usize = 1024;

/// What the supervisor shares with all workers of one VM.
#[derive(Debug)]
#[repr(C)]
pub struct Ledger {
    /// Futexes, by GPU: a process that needs memory which others only keep has asked for it.
    pub asked: [AtomicU32; GPUS],
    /// Futexes, by GPU: a process was charged less than before.
    pub given: [AtomicU32; GPUS],
    /// A [`Holding`] by GPU and client: a slot is written by its client's worker, and zeroed by the supervisor once that is
    /// gone.
    pub held: [[AtomicU64; CLIENTS]; GPUS],
    /// By client, the process's id in the guest, as the guest said it: written by the supervisor, for the VM's own clients to read.
    pub processes: [AtomicU32; CLIENTS],
    /// By GPU, for how long it had work of the VM, in nanoseconds: workers add what they see under open grants, the supervisor what
    /// the VM has in its turns.
    pub busy_ns: [AtomicU64; GPUS],
}

/// What is charged is a multiple of this, in bytes: drivers hand physical memory out in such pieces.
pub const GRANULE: u64 = 2 << 20;

/// What clients hold of a GPU's memory.
///
/// A client's is one word, so that whoever reads it sees what is charged and what of that is only kept as they were at one
/// time: memory that is kept in one look and gone in the next would count twice, or not at all.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Holding {
    /// Bytes charged.
    pub charged: u64,
    /// Bytes of that which the worker only keeps, for what is allocated next: it gives them back when it is asked.
    pub kept: u64,
}

impl Holding {
    /// What a client holds that has so many bytes, and only keeps so many of them.
    pub fn of(bytes: u64, kept: u64) -> Self {
        let charged = bytes.div_ceil(GRANULE).min(u32::MAX.into()) * GRANULE;
        let kept = kept / GRANULE * GRANULE;
        Self {
            charged,
            kept: kept.min(charged),
        }
    }

    /// The word of a slot, in whose halves are granules.
    pub fn word(self) -> u64 {
        ((self.charged / GRANULE) << 32) | (self.kept / GRANULE)
    }

    /// What a slot says. Any number is a word.
    pub fn read(slot: &AtomicU64) -> Self {
        let word = slot.load(Ordering::Acquire);
        Self {
            charged: (word >> 32) * GRANULE,
            kept: (word & u64::from(u32::MAX)) * GRANULE,
        }
    }
}

// SAFETY: made of atomic integers alone.
unsafe impl Words for Ledger {}

/// The sum of at most [`CLIENTS`] slots, which is far below 2⁶⁴.
fn sum<'a>(slots: impl Iterator<Item = &'a AtomicU64>) -> Holding {
    slots
        .map(Holding::read)
        .fold(Holding::default(), |sum, one| Holding {
            charged: sum.charged + one.charged,
            kept: sum.kept + one.kept,
        })
}

impl Ledger {
    /// What all clients together are charged on a GPU.
    pub fn used(&self, gpu: usize) -> u64 {
        sum(self.held.get(gpu).into_iter().flatten()).charged
    }

    /// What all clients but one hold on a GPU.
    pub fn others(&self, gpu: usize, client: usize) -> Holding {
        let slots = self.held.get(gpu).into_iter().flatten().enumerate();
        sum(slots
            .filter(|(other, _)| *other != client)
            .map(|(_, slot)| slot))
    }

    /// What each client holds on a GPU that holds anything: its process's id in the guest, and what it holds.
    pub fn holders(&self, gpu: usize) -> impl Iterator<Item = (u32, Holding)> {
        let slots = self.held.get(gpu).into_iter().flatten();
        let holders = slots.zip(&self.processes).map(|(slot, process)| {
            let process = process.load(Ordering::Relaxed);
            (process, Holding::read(slot))
        });
        holders.filter(|(_, holding)| holding.charged > 0)
    }

    /// A client of this process takes a place.
    pub fn enter(&self, client: usize, process: u32) {
        if let Some(word) = self.processes.get(client) {
            word.store(process, Ordering::Relaxed);
        }
    }

    /// A client is gone, and with it all that it held.
    pub fn clear(&self, client: usize) {
        for (slots, given) in self.held.iter().zip(&self.given) {
            if let Some(slot) = slots.get(client)
                && slot.swap(0, Ordering::Relaxed) > 0
            {
                given.fetch_add(1, Ordering::Relaxed);
                gpgpu_protocol::futex::wake(given);
            }
        }
        self.enter(client, 0);
    }
}
