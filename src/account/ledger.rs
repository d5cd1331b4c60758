//! What a VM's processes hold of device memory, together.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use super::{GPUS, Words};

/// As many clients as one VM can have at a time, over all its connections.
pub const CLIENTS: usize = 1024;

/// What the supervisor shares with all workers of one VM.
#[derive(Debug)]
#[repr(C)]
pub struct Ledger {
    /// Written by the supervisor: the most bytes on each GPU; 0 for no limit.
    pub limit: AtomicU64,
    /// Written by the supervisor: what a context costs, in bytes, as was measured on each GPU; 0 if it was not.
    pub context: [AtomicU64; GPUS],
    /// Futexes, by GPU: a process that needs memory which others only keep has asked for it.
    pub asked: [AtomicU32; GPUS],
    /// Futexes, by GPU: a process was charged less than before.
    pub given: [AtomicU32; GPUS],
    /// Bytes charged, by GPU and client: a slot is written by its client's worker, and zeroed by the supervisor once that
    /// is gone.
    pub charged: [[AtomicU64; CLIENTS]; GPUS],
    /// What of that the worker only keeps, for what is allocated next: it gives it back when it is asked.
    pub kept: [[AtomicU64; CLIENTS]; GPUS],
}

// SAFETY: made of atomic integers alone.
unsafe impl Words for Ledger {}

fn sum<'a>(slots: impl Iterator<Item = &'a AtomicU64>) -> u64 {
    slots.fold(0, |sum, slot| {
        sum.saturating_add(slot.load(Ordering::Relaxed))
    })
}

fn others(slots: Option<&[AtomicU64; CLIENTS]>, client: usize) -> impl Iterator<Item = &AtomicU64> {
    let slots = slots.into_iter().flatten().enumerate();
    slots
        .filter(move |(other, _)| *other != client)
        .map(|(_, slot)| slot)
}

impl Ledger {
    /// Sets the limit.
    pub fn set_limit(&self, limit: Option<u64>) {
        self.limit.store(limit.unwrap_or(0), Ordering::Relaxed);
    }

    /// The limit, if there is one.
    pub fn limit(&self) -> Option<u64> {
        Some(self.limit.load(Ordering::Relaxed)).filter(|limit| *limit > 0)
    }

    /// Says what a context costs, in bytes by GPU.
    pub fn set_context_costs(&self, costs: &[u64]) {
        for (word, cost) in self.context.iter().zip(costs) {
            word.store(*cost, Ordering::Relaxed);
        }
    }

    /// What a context on a GPU costs, in bytes.
    pub fn context_cost(&self, gpu: usize) -> u64 {
        let word = self.context.get(gpu);
        word.map_or(0, |word| word.load(Ordering::Relaxed))
    }

    /// What all clients together are charged on a GPU.
    pub fn used(&self, gpu: usize) -> u64 {
        sum(self.charged.get(gpu).into_iter().flatten())
    }

    /// What all clients but one are charged on a GPU.
    pub fn used_by_others(&self, gpu: usize, client: usize) -> u64 {
        sum(others(self.charged.get(gpu), client))
    }

    /// What all clients but one only keep on a GPU.
    pub fn kept_by_others(&self, gpu: usize, client: usize) -> u64 {
        sum(others(self.kept.get(gpu), client))
    }

    /// A client is gone, and with it all that it held.
    pub fn clear(&self, client: usize) {
        for slot in self.kept.iter().filter_map(|gpu| gpu.get(client)) {
            slot.store(0, Ordering::Relaxed);
        }
        for (slots, given) in self.charged.iter().zip(&self.given) {
            if let Some(slot) = slots.get(client)
                && slot.swap(0, Ordering::Relaxed) > 0
            {
                given.fetch_add(1, Ordering::Relaxed);
                gpgpu_protocol::futex::wake(given);
            }
        }
    }
}
