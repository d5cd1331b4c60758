// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Memory pools: which there are, which of them a device has and who was let in.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, atomic::AtomicBool},
};

use gpgpu_client::ffi::Result;
use gpgpu_protocol::{
    api::{default_pool, device_of_default_pool},
    cuda::*,
};

/// The pools of the process.
#[derive(Debug)]
pub struct Pools {
    table: Mutex<Table>,
    /// Whether something was ever freed in a stream's order: then memory can come back by itself.
    pub any_freed: AtomicBool,
    /// How many devices there are.
    devices: usize,
}

/// What is known of pools.
#[derive(Debug, Default)]
pub struct Table {
    /// The devices of the pools that were made.
    pub made: HashMap<u64, CUdevice>,
    /// The pools that devices have in place of their own.
    pub current: HashMap<CUdevice, u64>,
    /// The other devices that a pool's memory is for.
    pub access: HashMap<(u64, CUdevice), CUmemAccess_flags>,
}

impl Pools {
    /// The pools of so many devices: each has one.
    pub fn new(devices: usize) -> Self {
        Self {
            table: Mutex::default(),
            any_freed: AtomicBool::new(false),
            devices,
        }
    }

    /// What is known of pools, for one at a time.
    pub fn table(&self) -> MutexGuard<'_, Table> {
        self.table
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// The device of a pool; `CUDA_ERROR_INVALID_HANDLE` if there is no such pool.
    pub fn device(&self, pool: u64) -> Result<CUdevice> {
        let own = device_of_default_pool(pool)
            .filter(|own| usize::try_from(*own).is_ok_and(|own| own < self.devices));
        let made = || self.table().made.get(&pool).copied();
        own.or_else(made).ok_or(CUDA_ERROR_INVALID_HANDLE)
    }

    /// The pool that a device has.
    pub fn current(&self, device: CUdevice) -> u64 {
        let table = self.table();
        let current = table.current.get(&device).copied();
        current.unwrap_or_else(|| default_pool(device))
    }
}
