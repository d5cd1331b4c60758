//! Device memory that is charged to what the guest made: contexts, and what is loaded into them.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use gpgpu_protocol::cuda::*;

use super::session::Session;
use crate::account::Charge;

#[derive(Debug)]
struct Held {
    owner: u64,
    context: u64,
    charge: Option<Charge>,
}

/// The charges, by the ids of what they are for.
#[derive(Debug, Default)]
pub struct Charges {
    held: Mutex<HashMap<u64, Vec<Held>>>,
}

impl Charges {
    fn held(&self) -> MutexGuard<'_, HashMap<u64, Vec<Held>>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps a charge until its owner is gone, or the context that the owner is in; an id of 0 is in none.
    pub fn keep(&self, owner: u64, context: u64, charge: Option<Charge>) {
        if charge.is_some() {
            self.held().entry(owner).or_default().push(Held {
                owner,
                context,
                charge,
            });
        }
    }

    /// What an owner is charged, in bytes.
    pub fn bytes(&self, owner: u64) -> u64 {
        let all = self.held();
        let held = all.get(&owner).into_iter().flatten();
        held.filter_map(|held| held.charge.as_ref())
            .map(Charge::bytes)
            .sum()
    }

    /// The owner is gone.
    pub fn forget(&self, owner: u64) {
        let gone = self.held().remove(&owner);
        drop(gone);
    }

    /// A context is gone, and all that was in it.
    pub fn forget_context(&self, context: u64) {
        let is_gone = |held: &mut Held| held.owner == context || held.context == context;
        let mut gone = Vec::new();
        let mut all = self.held();
        for charges in all.values_mut() {
            gone.extend(charges.extract_if(.., is_gone));
        }
        all.retain(|_, charges| !charges.is_empty());
        drop(all);
    }
}

impl Session {
    /// Charges device memory; `None` if there is nothing to charge, or nobody. What workers of the VM only keep is given
    /// back first, if that is needed.
    ///
    /// # Errors
    ///
    /// `CUDA_ERROR_OUT_OF_MEMORY` if the VM would have more than its limit.
    pub fn reserve(&self, device: CUdevice, bytes: u64) -> Result<Option<Charge>, CUresult> {
        let Some(shares) = self.shares.get().filter(|_| bytes > 0) else {
            return Ok(None);
        };
        if let Ok(charge) = shares.quota.reserve(device, bytes) {
            return Ok(Some(charge));
        }
        self.device_memory.give_kept(device);
        let charge = shares.quota.reserve_patiently(device, bytes);
        if charge.is_err() && super::may_log() {
            tracing::info!(
                "{} MiB on GPU {device} are refused: the VM's limit is {} MiB",
                bytes.div_ceil(1 << 20),
                shares.quota.limit().unwrap_or(0) >> 20
            );
        }
        charge.map(Some)
    }

    /// Charges a context.
    ///
    /// # Errors
    ///
    /// As [`Session::reserve`].
    pub fn reserve_context(&self, device: CUdevice) -> Result<Option<Charge>, CUresult> {
        let shares = self.shares.get();
        let cost = shares.map_or(0, |shares| shares.quota.context_cost(device));
        self.reserve(device, cost)
    }
}
