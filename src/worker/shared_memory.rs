// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The memory that this worker shares with the supervisor.

use std::{fs::File, io, sync::Arc};

use gpgpu_protocol::cuda::*;

use crate::{
    account::{Account, Quota, Shared, TermsView},
    ipc::{Serving, peers::WorkerEnd},
};

/// See the module's page.
#[derive(Debug)]
pub struct Shares {
    /// Leases and counters.
    pub account: Shared<Account>,
    /// The client's charges, in the ledger of its VM.
    pub quota: Quota,
    /// By which the supervisor looks at the account.
    pub doorbell: File,
    /// The channel by which it meets other workers of its VM.
    pub peers: WorkerEnd,
    /// Its number for these.
    pub number: u64,
    /// The GPUs that the client may use, as the driver numbers them, in the order in which the guest sees them; empty
    /// for all, in the driver's own order.
    pub gpus: Vec<u32>,
}

impl Shares {
    /// Maps the supervisor's memory.
    ///
    /// # Errors
    /// It is invalid, or the host is out of memory.
    pub fn new(serving: Serving) -> io::Result<Self> {
        let ledger = Arc::new(Shared::map(Arc::new(serving.ledger.into()))?);
        let terms = TermsView::map(Arc::new(serving.terms.into()))?;
        Ok(Self {
            account: Shared::map(Arc::new(serving.account.into()))?,
            quota: Quota::new(ledger, terms, serving.slot as usize),
            doorbell: serving.doorbell.into(),
            peers: WorkerEnd::new(serving.peers),
            number: serving.number,
            gpus: serving.gpus,
        })
    }

    /// The GPU that the client sees first, as the driver numbers it.
    pub fn first_gpu(&self) -> CUdevice {
        self.gpus.first().map_or(0, |gpu| *gpu as CUdevice)
    }
}

/// The GPU that a client whose GPUs these are means by a number.
///
/// # Errors
/// `CUDA_ERROR_INVALID_DEVICE`.
pub fn host_gpu(gpus: &[u32], dev: CUdevice) -> Result<CUdevice, CUresult> {
    if gpus.is_empty() {
        // All of them in the driver's order; it knows which there are.
        return Ok(dev);
    }
    let dev = usize::try_from(dev).ok();
    let gpu = dev.and_then(|dev| gpus.get(dev));
    gpu.map(|gpu| *gpu as CUdevice)
        .ok_or(CUDA_ERROR_INVALID_DEVICE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_reaches_its_gpus_and_no_others() {
        let gpus = [2, 0];
        assert_eq!(host_gpu(&gpus, 0), Ok(2));
        assert_eq!(host_gpu(&gpus, 1), Ok(0));
        for wrong in [-1, 2, i32::MAX, i32::MIN] {
            assert_eq!(host_gpu(&gpus, wrong), Err(CUDA_ERROR_INVALID_DEVICE));
        }
        assert_eq!(host_gpu(&[], 3), Ok(3));
    }
}
