// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The device memory that the processes of a VM hold together.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use super::{GPUS, Words};

/// The maximum number of clients of a VM at a time, over all its connections.
pub const CLIENTS: usize = 1024;

/// The state that the supervisor shares with all workers of one VM.
#[derive(Debug)]
#[repr(C)]
pub struct Ledger {
    /// Futexes, by GPU: changes when a process needs memory that other processes only keep.
    pub asked: [AtomicU32; GPUS],
    /// Futexes, by GPU: changes when the charge of a process becomes smaller.
    pub given: [AtomicU32; GPUS],
    /// A [`Holding`] by GPU and client. The client's worker writes the slot; the supervisor clears it after the
    /// worker's end.
    pub held: [[AtomicU64; CLIENTS]; GPUS],
    /// The id of each client's process in the guest, as the guest reported it. The supervisor writes it, and the VM's
    /// own clients read it.
    pub processes: [AtomicU32; CLIENTS],
    /// By GPU, the time in nanoseconds for which it had work of the VM. Workers add the time that they observe under
    /// open grants; the supervisor adds the time of the VM's turns.
    pub busy_ns: [AtomicU64; GPUS],
}

/// The unit of charges, in bytes. Drivers allocate physical memory in pieces of this size.
pub const GRANULE: u64 = 2 << 20;

/// The GPU memory that clients hold.
///
/// A client's entry is one word, so a reader gets the charged and the kept bytes of the same moment. With two words,
/// memory that is kept in one read and returned before the next would count twice, or not at all.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Holding {
    /// Bytes charged.
    pub charged: u64,
    /// The part of `charged` that the worker keeps for its next allocations. It returns these bytes on request.
    pub kept: u64,
}

impl Holding {
    /// The entry of a client that holds `bytes` bytes, of which it only keeps `kept`.
    pub fn of(bytes: u64, kept: u64) -> Self {
        let charged = bytes.div_ceil(GRANULE).min(u32::MAX.into()) * GRANULE;
        let kept = kept / GRANULE * GRANULE;
        Self {
            charged,
            kept: kept.min(charged),
        }
    }

    /// The value of a slot: the granules of both fields, one in each half.
    pub fn word(self) -> u64 {
        ((self.charged / GRANULE) << 32) | (self.kept / GRANULE)
    }

    /// Decodes a slot. Any value is valid.
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
    /// The sum of all clients' charges on a GPU.
    pub fn used(&self, gpu: usize) -> u64 {
        sum(self.held.get(gpu).into_iter().flatten()).charged
    }

    /// The bytes that all clients but one hold on a GPU.
    pub fn others(&self, gpu: usize, client: usize) -> Holding {
        let slots = self.held.get(gpu).into_iter().flatten().enumerate();
        sum(slots
            .filter(|(other, _)| *other != client)
            .map(|(_, slot)| slot))
    }

    /// The clients that hold memory of a GPU: the id of the process in the guest, and the bytes.
    pub fn holders(&self, gpu: usize) -> impl Iterator<Item = (u32, Holding)> {
        let slots = self.held.get(gpu).into_iter().flatten();
        let holders = slots.zip(&self.processes).map(|(slot, process)| {
            let process = process.load(Ordering::Relaxed);
            (process, Holding::read(slot))
        });
        holders.filter(|(_, holding)| holding.charged > 0)
    }

    /// Records that a client of this guest process occupies a slot.
    pub fn enter(&self, client: usize, process: u32) {
        if let Some(word) = self.processes.get(client) {
            word.store(process, Ordering::Relaxed);
        }
    }

    /// Clears the slot of a client that has ended.
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
