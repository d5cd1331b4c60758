// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Charges the device memory of executable graphs to the VM's limit.
//!
//! The driver keeps an executable graph's memory on its GPU, and does not report its size; when the graph ends, it
//! keeps the memory for the next one. On an H200 (driver 580.159.04), 512 graphs of one kernel took 112 KiB each, 512
//! graphs of 200 kernels 460 KiB each, 64 graphs of 2000 kernels 1 MiB each, and their ends returned nothing. So a
//! client is charged for the peak of its graphs, until it ends.

use std::{collections::HashMap, sync::Arc};

use gpgpu_locks::{Mutex, MutexGuard};
use gpgpu_protocol::{api::graph_step, cuda::*};

use crate::{account::Charge, worker::device_memory::DeviceMemory};

#[derive(Debug, Default)]
struct Used {
    now: u64,
    charged: u64,
    charges: Vec<Charge>,
}

/// The memory of a client's executable graphs on each GPU.
#[derive(Debug, Clone, Default)]
pub struct Account(Arc<Mutex<HashMap<CUdevice, Used>>>);

/// The size of an executable graph with this number of nodes.
pub fn bytes_of(nodes: usize) -> u64 {
    graph_step::BYTES + graph_step::BYTES_OF_STEP * nodes as u64
}

/// A graph's part of it, until this is dropped.
#[derive(Debug)]
pub struct Taken {
    account: Account,
    device: CUdevice,
    bytes: u64,
}

impl Account {
    fn lock(&self) -> MutexGuard<'_, HashMap<CUdevice, Used>> {
        self.0.lock()
    }

    /// Adds bytes, and charges a new peak.
    ///
    /// # Errors
    ///
    /// `CUDA_ERROR_OUT_OF_MEMORY` above the VM's limit.
    pub fn take(
        &self,
        memory: &DeviceMemory,
        device: CUdevice,
        bytes: u64,
    ) -> Result<Taken, CUresult> {
        let missing = {
            let mut all = self.lock();
            let used = all.entry(device).or_default();
            used.now += bytes;
            let missing = used.now.saturating_sub(used.charged);
            used.charged += missing;
            missing
        };
        // Dropping this removes the bytes again if the charge is refused.
        let taken = Taken {
            account: self.clone(),
            device,
            bytes,
        };
        // Without the lock: this may wait for other processes to return memory.
        match memory.reserve(device, missing) {
            Ok(charge) => {
                let mut all = self.lock();
                let used = all.entry(device).or_default();
                used.charges.extend(charge);
                Ok(taken)
            }
            Err(code) => {
                self.lock().entry(device).or_default().charged -= missing;
                Err(code)
            }
        }
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        let mut all = self.account.lock();
        all.entry(self.device).or_default().now -= self.bytes;
    }
}
