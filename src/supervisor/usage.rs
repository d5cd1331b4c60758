// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The GPU time of each VM while others wanted the GPU too.
//!
//! The time under open grants is in its workers' accounts ([`crate::account::Lease::busy_ns`]).

use std::{
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use crate::account::{self, GPUS, Ledger, Shared};

/// GPU time by VM and GPU. Writers add and readers load, without waiting for each other.
#[derive(Debug)]
pub struct Usage {
    nanoseconds: Vec<[AtomicU64; GPUS]>,
    /// By VM, the ledger from which its own clients read the same values.
    ledgers: Vec<OnceLock<Arc<Shared<Ledger>>>>,
}

impl Usage {
    /// No time yet, for this many VMs.
    pub fn new(vms: usize) -> Self {
        Self {
            nanoseconds: (0..vms)
                .map(|_| [const { AtomicU64::new(0) }; GPUS])
                .collect(),
            ledgers: (0..vms).map(|_| OnceLock::new()).collect(),
        }
    }

    /// Adds a VM's time to its ledger too from now on.
    pub fn tell(&self, vm: usize, ledger: &Arc<Shared<Ledger>>) {
        if let Some(place) = self.ledgers.get(vm) {
            let _ = place.set(Arc::clone(ledger));
        }
    }

    fn word(&self, vm: usize, gpu: usize) -> Option<&AtomicU64> {
        self.nanoseconds.get(vm)?.get(gpu)
    }

    /// Adds GPU time of a VM. VMs have the order of [`super::Config::vms`], GPUs the numbers of the host's driver;
    /// others are ignored.
    pub fn add(&self, vm: usize, gpu: usize, time: Duration) {
        if let Some(word) = self.word(vm, gpu) {
            let nanoseconds = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
            word.fetch_add(nanoseconds, Ordering::Relaxed);
            if let Some(ledger) = self.ledgers[vm].get() {
                account::add(&ledger.busy_ns[gpu], nanoseconds);
            }
        }
    }

    /// The total time of a VM on a GPU.
    pub fn of(&self, vm: usize, gpu: usize) -> Duration {
        let word = self.word(vm, gpu);
        Duration::from_nanos(word.map_or(0, |word| word.load(Ordering::Relaxed)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_adds_up_by_vm_and_gpu() {
        let usage = Usage::new(2);
        usage.add(1, 3, Duration::from_millis(5));
        usage.add(1, 3, Duration::from_millis(2));
        usage.add(0, 0, Duration::from_secs(1));
        usage.add(2, 0, Duration::from_secs(1));
        usage.add(0, GPUS, Duration::from_secs(1));
        assert_eq!(usage.of(1, 3), Duration::from_millis(7));
        assert_eq!(usage.of(0, 0), Duration::from_secs(1));
        assert_eq!(usage.of(1, 0), Duration::ZERO);
        assert_eq!(usage.of(2, 0), Duration::ZERO);
    }

    #[test]
    fn a_vms_own_clients_see_its_time_and_no_other_vms() {
        let usage = Usage::new(2);
        let ledger = Arc::new(Shared::<Ledger>::new(c"test").unwrap());
        usage.tell(1, &ledger);
        usage.tell(2, &ledger);
        usage.add(1, 3, Duration::from_millis(5));
        usage.add(0, 3, Duration::from_millis(7));
        usage.add(1, GPUS, Duration::from_secs(1));
        let seen: Vec<u64> = (ledger.busy_ns.iter())
            .map(|word| word.load(Ordering::Relaxed))
            .collect();
        assert_eq!(seen.iter().sum::<u64>(), 5_000_000);
        assert_eq!(seen[3], 5_000_000);
    }
}
