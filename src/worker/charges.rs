// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The charges for the guest's contexts and for the code and objects in them.

use std::{collections::HashMap, sync::Arc};

use gpgpu_locks::Mutex;
use gpgpu_protocol::cuda::*;

use super::{device_memory::DeviceMemory, places::Places};
use crate::account::Charge;

/// The owner of a charge, by the guest's ids.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Owner {
    /// The context itself.
    Context(u64),
    /// A raised limit of a context.
    Limit(u64, CUlimit),
    /// A module.
    Module(u64),
    /// A handle of a library.
    Handle(u64),
    /// An array, or a mipmapped one.
    Array(u64),
    /// The traces of a context's work.
    Traces(u64),
    /// Memory that a library allocates through a function of the worker, by its address.
    Allocation(u64),
}

#[derive(Debug)]
struct Held {
    context: u64,
    charge: Charge,
}

/// The charges, by owner. Those of library handles are in their [`Places`].
#[derive(Debug, Default)]
pub struct Charges {
    held: Mutex<HashMap<Owner, Vec<Held>>>,
    libraries: Mutex<HashMap<u64, Arc<Places>>>,
}

impl Charges {
    /// Keeps a charge until its owner ends, or the context that the owner is or belongs to.
    pub fn keep(&self, owner: Owner, context: u64, charge: Option<Charge>) {
        if let Some(charge) = charge {
            let held = Held { context, charge };
            self.held.lock().entry(owner).or_default().push(held);
        }
    }

    /// The charge of an owner, in bytes.
    pub fn bytes(&self, owner: Owner) -> u64 {
        let all = self.held.lock();
        let held = all.get(&owner).into_iter().flatten();
        held.map(|held| held.charge.bytes()).sum()
    }

    /// Drops the charges of an owner that has ended.
    pub fn forget(&self, owner: Owner) {
        drop(self.take(owner));
    }

    /// Takes the charges of an owner that is about to end. Dropping them ends them.
    pub fn take(&self, owner: Owner) -> Vec<Charge> {
        let held = self.held.lock().remove(&owner);
        held.into_iter().flatten().map(|held| held.charge).collect()
    }

    /// Stores the charges of a library for the contexts in which it is used.
    pub fn keep_library(&self, library: u64, places: Arc<Places>) {
        self.libraries.lock().insert(library, places);
    }

    /// The charges of a library for the contexts in which it is used; `None` if there are none.
    pub fn library(&self, library: u64) -> Option<Arc<Places>> {
        self.libraries.lock().get(&library).cloned()
    }

    /// Drops the charges of a library that has ended.
    pub fn forget_library(&self, library: u64) {
        let gone = self.libraries.lock().remove(&library);
        drop(gone);
    }

    /// Drops the charges of a context that has ended, with everything in it.
    pub fn forget_context(&self, context: u64) {
        let mut gone = Vec::new();
        let mut all = self.held.lock();
        for charges in all.values_mut() {
            gone.extend(charges.extract_if(.., |held| held.context == context));
        }
        all.retain(|_, charges| !charges.is_empty());
        drop(all);
        self.leave_libraries(context);
    }

    /// Drops the charges of all libraries in a context that has ended.
    pub fn leave_libraries(&self, context: u64) {
        for library in self.all_libraries() {
            library.leave(context);
        }
    }

    /// Gives the charges in the context that was made in advance to the client's context.
    pub fn take_over(&self, context: u64) {
        for library in self.all_libraries() {
            library.take_over(context);
        }
    }

    fn all_libraries(&self) -> Vec<Arc<Places>> {
        self.libraries.lock().values().cloned().collect()
    }
}

impl DeviceMemory {
    /// Charges device memory; `None` if there is nothing to charge, or no limit. If necessary, memory that the VM's
    /// workers only keep is returned first.
    ///
    /// # Errors
    ///
    /// `CUDA_ERROR_OUT_OF_MEMORY` if the VM would exceed its limit.
    pub fn reserve(&self, device: CUdevice, bytes: u64) -> Result<Option<Charge>, CUresult> {
        let Some(shares) = self.common.shares.get().filter(|_| bytes > 0) else {
            return Ok(None);
        };
        if let Ok(charge) = shares.quota.reserve(device, bytes) {
            return Ok(Some(charge));
        }
        self.give_kept(device);
        let charge = shares.quota.reserve_patiently(device, bytes);
        if charge.is_err() && super::may_log() {
            tracing::info!(
                "{} MiB on GPU {device} refused: the VM's limit is {} MiB",
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
    /// As [`Self::reserve`].
    pub fn reserve_context(&self, device: CUdevice) -> Result<Option<Charge>, CUresult> {
        let shares = self.common.shares.get();
        let cost = shares.map_or(0, |shares| shares.quota.context_cost(device));
        self.reserve(device, cost)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::account::{Ledger, Quota, Shared, Terms, TermsView};

    fn quota() -> Quota {
        let ledger = Shared::<Ledger>::new(c"test-ledger").unwrap();
        let terms = Terms::new().unwrap();
        let view = TermsView::map(Arc::clone(terms.file())).unwrap();
        Quota::new(Arc::new(ledger), view, 0)
    }

    #[test]
    fn a_charge_is_given_back_with_its_owner_or_its_context_alone() {
        let (charges, quota) = (Charges::default(), quota());
        let charge = || Some(quota.reserve(0, 1 << 20).unwrap());
        let (one, other) = (0x110, 0x210);
        let limit = Owner::Limit(one, CU_LIMIT_STACK_SIZE);
        let all = [Owner::Context(one), limit, Owner::Module(0x330)];
        for owner in all {
            charges.keep(owner, one, charge());
        }
        charges.keep(Owner::Context(other), other, charge());
        // An earlier version kept a limit's charge under such a number.
        charges.forget_context(one | 1 << 56);
        charges.forget(Owner::Context(one | 1 << 56));
        assert_eq!(all.map(|owner| charges.bytes(owner)), [1 << 20; 3]);
        charges.forget(Owner::Module(0x330));
        assert_eq!(all.map(|owner| charges.bytes(owner)), [1 << 20, 1 << 20, 0]);
        charges.forget_context(one);
        assert_eq!(all.map(|owner| charges.bytes(owner)), [0; 3]);
        assert_eq!(charges.bytes(Owner::Context(other)), 1 << 20);
    }
}
