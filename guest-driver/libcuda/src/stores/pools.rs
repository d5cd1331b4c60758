// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Memory pools: all pools, the current pools of devices, and granted access.

use std::{collections::HashMap, sync::atomic::AtomicBool};

use gpgpu_client::ffi::Result;
use gpgpu_locks::{Mutex, MutexGuard};
use gpgpu_protocol::{
    api::{default_pool, device_of_default_pool},
    codec::Blob,
    cuda::*,
};

/// The pools of the process.
#[derive(Debug)]
pub struct Pools {
    table: Mutex<Table>,
    /// Whether memory was ever freed in stream order, so that it can become available without a call.
    pub any_freed: AtomicBool,
    /// The number of devices.
    devices: usize,
}

/// A pool that the program has made or imported.
#[derive(Debug)]
pub struct Pool {
    /// Its device.
    pub device: CUdevice,
    /// The processes that can use its memory.
    pub sharing: Sharing,
}

/// The processes that can use a pool's memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Sharing {
    /// Only this process.
    Private,
    /// Also other processes, by descriptors.
    Exportable,
    /// This process, from another one: the pool has this name.
    Imported(Blob),
}

/// The state of pools.
#[derive(Debug, Default)]
pub struct Table {
    /// The pools that were made or imported.
    pub made: HashMap<u64, Pool>,
    /// The pools that the program has set for devices in place of their default ones.
    pub current: HashMap<CUdevice, u64>,
    /// The access that was granted to other devices.
    pub access: HashMap<(u64, CUdevice), CUmemAccess_flags>,
}

impl Pools {
    /// The pools of this many devices: each has a default one.
    pub fn new(devices: usize) -> Self {
        Self {
            table: Mutex::default(),
            any_freed: AtomicBool::new(false),
            devices,
        }
    }

    /// The state of pools, under a lock.
    pub fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock()
    }

    /// The device of a pool; `CUDA_ERROR_INVALID_HANDLE` if there is no such pool.
    pub fn device(&self, pool: u64) -> Result<CUdevice> {
        let own = device_of_default_pool(pool)
            .filter(|own| usize::try_from(*own).is_ok_and(|own| own < self.devices));
        let made = || self.table().made.get(&pool).map(|pool| pool.device);
        own.or_else(made).ok_or(CUDA_ERROR_INVALID_HANDLE)
    }

    /// The processes that can use a pool's memory; only this one for a device's default pool.
    pub fn sharing(&self, pool: u64) -> Sharing {
        if device_of_default_pool(pool).is_some() {
            return Sharing::Private;
        }
        let table = self.table();
        let made = table.made.get(&pool).map(|pool| pool.sharing.clone());
        made.unwrap_or(Sharing::Private)
    }

    /// The device of a pool that was not imported.
    ///
    /// # Errors
    ///
    /// `CUDA_ERROR_INVALID_VALUE` if it was, `CUDA_ERROR_INVALID_HANDLE` if there is no such pool.
    pub fn own_device(&self, pool: u64) -> Result<CUdevice> {
        match self.sharing(pool) {
            Sharing::Imported(_) => Err(CUDA_ERROR_INVALID_VALUE),
            _ => self.device(pool),
        }
    }

    /// The current pool of a device.
    pub fn current(&self, device: CUdevice) -> u64 {
        let table = self.table();
        let current = table.current.get(&device).copied();
        current.unwrap_or_else(|| default_pool(device))
    }
}
