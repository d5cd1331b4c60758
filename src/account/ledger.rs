//! What a VM's processes hold of device memory, together.

use std::sync::atomic::{AtomicU64, Ordering};

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
    /// Bytes charged, by GPU and client: a slot is written by its client's worker, and zeroed by the supervisor once that
    /// is gone.
    pub charged: [[AtomicU64; CLIENTS]; GPUS],
}

// SAFETY: made of atomic integers alone.
unsafe impl Words for Ledger {}

impl Ledger {
    /// Sets the limit.
    pub fn set_limit(&self, limit: Option<u64>) {
        self.limit.store(limit.unwrap_or(0), Ordering::Relaxed);
    }

    /// The limit, if there is one.
    pub fn limit(&self) -> Option<u64> {
        Some(self.limit.load(Ordering::Relaxed)).filter(|limit| *limit > 0)
    }

    /// What all clients together are charged on a GPU.
    pub fn used(&self, gpu: usize) -> u64 {
        let slots = self.charged.get(gpu).into_iter().flatten();
        slots.fold(0, |sum, slot| {
            sum.saturating_add(slot.load(Ordering::Relaxed))
        })
    }

    /// A client is gone, and with it all that it held.
    pub fn clear(&self, client: usize) {
        for slot in self.charged.iter().filter_map(|gpu| gpu.get(client)) {
            slot.store(0, Ordering::Relaxed);
        }
    }
}
