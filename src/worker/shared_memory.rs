// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The memory that this worker shares with the supervisor.

use std::{fs::File, io, sync::Arc};

use gpgpu_protocol::cuda::*;

use crate::{
    account::{Account, Quota, Shared, TermsView},
    ipc::{Serving, peers::WorkerEnd},
};

/// See the module's documentation.
#[derive(Debug)]
pub struct Shares {
    /// Leases and counters.
    pub account: Shared<Account>,
    /// The client's charges, in the ledger of its VM.
    pub quota: Quota,
    /// An eventfd that makes the supervisor read the account.
    pub doorbell: File,
    /// The channel for connections to other workers of its VM.
    pub peers: WorkerEnd,
    /// The worker's number for those.
    pub number: u64,
    /// The GPUs that the client may use, by the host driver's numbers, in the order in which the guest sees them; empty
    /// for all, in the driver's own order.
    pub gpus: Vec<u32>,
}

impl Shares {
    /// Maps the supervisor's memory.
    ///
    /// # Errors
    /// The memory is invalid, or the host is out of memory.
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

    /// The GPU that the client sees first, by the driver's number.
    pub fn first_gpu(&self) -> CUdevice {
        self.gpus.first().map_or(0, |gpu| *gpu as CUdevice)
    }
}

/// The driver's number of the GPU with this number of a client with these GPUs.
///
/// # Errors
/// `CUDA_ERROR_INVALID_DEVICE`.
pub fn host_gpu(gpus: &[u32], dev: CUdevice) -> Result<CUdevice, CUresult> {
    if gpus.is_empty() {
        // All GPUs, in the driver's order. The driver checks the number.
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
