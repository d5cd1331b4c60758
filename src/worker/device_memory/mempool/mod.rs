// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Memory pools: their settings and their attributes.
//!
//! A pool has no memory of its own: its allocations come from the same chunks as all others. The memory that it *keeps*
//! is a number of idle bytes, limited by its release threshold. They are reused before the device allocates more. The
//! number becomes 0 when memory runs out somewhere.

mod functions;

use std::collections::HashMap;

use gpgpu_locks::{Mutex, MutexGuard};
use gpgpu_protocol::{
    api::{MemPool, Object, device_of_default_pool, object_kind},
    cuda::*,
};

/// The maximum number of a client's pools.
const MOST: usize = 4 << 10;

#[derive(Debug)]
struct Pool {
    /// The device, by the driver's number.
    device: CUdevice,
    /// The maximum size of its allocations in bytes; 0 for no limit.
    most: u64,
    threshold: u64,
    /// The three ways to reuse memory, all allowed until disabled; they have no effect here.
    reuse: [u64; 3],
    /// The bytes of allocations, including freed ones that are not complete.
    used: u64,
    kept: u64,
    most_used: u64,
    most_reserved: u64,
    /// The device's count of pressures at the last check.
    pressures: u64,
    /// Its origin, if it was imported.
    foreign: Option<Foreign>,
}

/// The origin of a pool that belongs to another process, or to this one by its descriptor.
#[derive(Debug, Clone)]
pub struct Foreign {
    /// The number of its worker.
    pub owner: u64,
    /// Its id there.
    pub id: u64,
    /// The other devices that may use its memory, by the driver's numbers.
    pub devices: Vec<CUdevice>,
}

impl Pool {
    fn new(device: CUdevice, most: u64) -> Self {
        Self {
            device,
            most,
            threshold: 0,
            reuse: [1; 3],
            used: 0,
            kept: 0,
            most_used: 0,
            most_reserved: 0,
            pressures: 0,
            foreign: None,
        }
    }

    fn reserved(&self) -> u64 {
        self.used + self.kept
    }

    /// Removes kept memory if memory has run out since the last check.
    fn look(&mut self, pressures: u64) {
        if self.pressures != pressures {
            self.pressures = pressures;
            self.kept = 0;
        }
    }

    /// Reduces the kept memory so that at most `most` bytes are reserved.
    fn trim(&mut self, most: u64) {
        self.kept = self.kept.min(most.saturating_sub(self.used));
    }
}

/// The pools, by id. `pressures` is the number of times that the device's memory has run out, from
/// [`super::pool::Pool::pressures`].
#[derive(Debug, Default)]
pub struct MemPools {
    map: Mutex<HashMap<u64, Pool>>,
}

impl MemPools {
    fn map(&self) -> MutexGuard<'_, HashMap<u64, Pool>> {
        self.map.lock()
    }

    /// Makes a pool.
    ///
    /// # Errors
    ///
    /// `CUDA_ERROR_INVALID_VALUE` for an id that is invalid or in use; `CUDA_ERROR_OUT_OF_MEMORY` above the limit.
    pub fn create(&self, id: u64, device: CUdevice, most: u64) -> Result<(), CUresult> {
        self.insert(id, Pool::new(device, most))
    }

    /// Imports a pool.
    ///
    /// # Errors
    ///
    /// As [`MemPools::create`].
    pub fn import(&self, id: u64, device: CUdevice, foreign: Foreign) -> Result<(), CUresult> {
        let mut pool = Pool::new(device, 0);
        pool.foreign = Some(foreign);
        self.insert(id, pool)
    }

    fn insert(&self, id: u64, pool: Pool) -> Result<(), CUresult> {
        let mut map = self.map();
        let is_new = object_kind(id) == MemPool::KIND
            && device_of_default_pool(id).is_none()
            && !map.contains_key(&id);
        if !is_new {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        if map.len() >= MOST {
            return Err(CUDA_ERROR_OUT_OF_MEMORY);
        }
        map.insert(id, pool);
        Ok(())
    }

    /// Checks that a pool was not imported.
    ///
    /// # Errors
    ///
    /// `CUDA_ERROR_INVALID_VALUE` if it was, `CUDA_ERROR_INVALID_HANDLE` if there is no such pool.
    pub fn check_own(&self, id: u64) -> Result<(), CUresult> {
        let map = self.map();
        match map.get(&id).ok_or(CUDA_ERROR_INVALID_HANDLE)?.foreign {
            None => Ok(()),
            Some(_) => Err(CUDA_ERROR_INVALID_VALUE),
        }
    }

    /// Checks that memory of a pool can be shared: the client itself must have made the pool.
    ///
    /// # Errors
    ///
    /// `CUDA_ERROR_INVALID_VALUE` if it has not.
    pub fn check_shareable(&self, id: u64) -> Result<(), CUresult> {
        let is_default = device_of_default_pool(id).is_some();
        match self.check_own(id) {
            Ok(()) if !is_default => Ok(()),
            _ => Err(CUDA_ERROR_INVALID_VALUE),
        }
    }

    /// The origin of an imported pool, and its device.
    ///
    /// # Errors
    ///
    /// `CUDA_ERROR_INVALID_VALUE` if it is not an imported pool.
    pub fn foreign(&self, id: u64) -> Result<(Foreign, CUdevice), CUresult> {
        let map = self.map();
        let pool = map.get(&id).ok_or(CUDA_ERROR_INVALID_VALUE)?;
        let foreign = pool.foreign.clone().ok_or(CUDA_ERROR_INVALID_VALUE)?;
        Ok((foreign, pool.device))
    }

    /// Gives another device access to the memory of an imported pool.
    pub fn let_in(&self, id: u64, device: CUdevice) {
        if let Some(pool) = self.map().get_mut(&id)
            && let Some(foreign) = &mut pool.foreign
            && !foreign.devices.contains(&device)
        {
            foreign.devices.push(device);
        }
    }

    /// The device of a pool. A device's default pool is made when it is first named; `gpu` returns its device.
    ///
    /// # Errors
    ///
    /// `CUDA_ERROR_INVALID_HANDLE` if there is no such pool; the errors of `gpu`.
    pub fn device(
        &self,
        id: u64,
        gpu: impl FnOnce(CUdevice) -> Result<CUdevice, CUresult>,
    ) -> Result<CUdevice, CUresult> {
        let mut map = self.map();
        if let Some(pool) = map.get(&id) {
            return Ok(pool.device);
        }
        let device = device_of_default_pool(id).ok_or(CUDA_ERROR_INVALID_HANDLE)?;
        let device = gpu(device).map_err(|_| CUDA_ERROR_INVALID_HANDLE)?;
        map.insert(id, Pool::new(device, 0));
        Ok(device)
    }

    /// Destroys a pool, except for its allocations; returns its device.
    ///
    /// # Errors
    ///
    /// `CUDA_ERROR_INVALID_VALUE` for a device's default pool, `CUDA_ERROR_INVALID_HANDLE` if there is none.
    pub fn destroy(&self, id: u64) -> Result<CUdevice, CUresult> {
        if device_of_default_pool(id).is_some() {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let pool = self.map().remove(&id).ok_or(CUDA_ERROR_INVALID_HANDLE)?;
        Ok(pool.device)
    }

    /// Counts an allocation before it is made, so that two threads cannot exceed the pool's size together.
    ///
    /// # Errors
    ///
    /// `CUDA_ERROR_OUT_OF_MEMORY` above the pool's size.
    pub fn reserve(&self, id: u64, taken: u64) -> Result<(), CUresult> {
        let mut map = self.map();
        let pool = map.get_mut(&id).ok_or(CUDA_ERROR_INVALID_HANDLE)?;
        let used = pool.used.checked_add(taken);
        let used = used.ok_or(CUDA_ERROR_OUT_OF_MEMORY)?;
        if pool.most != 0 && used > pool.most {
            return Err(CUDA_ERROR_OUT_OF_MEMORY);
        }
        pool.used = used;
        Ok(())
    }

    /// Confirms a counted allocation, or removes it if it failed.
    pub fn settle(&self, id: u64, taken: u64, pressures: u64, is_there: bool) {
        if let Some(pool) = self.map().get_mut(&id) {
            pool.look(pressures);
            if is_there {
                pool.kept = pool.kept.saturating_sub(taken);
                pool.most_used = pool.most_used.max(pool.used);
                pool.most_reserved = pool.most_reserved.max(pool.reserved());
            } else {
                pool.used = pool.used.saturating_sub(taken);
            }
        }
    }

    /// Counts returned memory of a pool, if the pool still exists: it keeps the memory up to its threshold. `pressures`
    /// was read before the return, because memory may have run out since; `None` means that the memory belongs to the
    /// driver, which keeps nothing.
    pub fn give_back(&self, id: u64, taken: u64, pressures: Option<u64>) {
        if id != 0
            && let Some(pool) = self.map().get_mut(&id)
        {
            pool.used = pool.used.saturating_sub(taken);
            if let Some(pressures) = pressures {
                pool.look(pressures);
                pool.kept += taken;
                let threshold = pool.threshold;
                pool.trim(threshold);
            }
        }
    }

    /// The number of bytes that the pools of a device keep.
    pub fn kept(&self, device: CUdevice, pressures: u64) -> u64 {
        let mut map = self.map();
        let pools = map.values_mut().filter(|pool| pool.device == device);
        pools.fold(0, |sum: u64, pool| {
            pool.look(pressures);
            sum.saturating_add(pool.kept)
        })
    }

    /// Reduces the kept memory so that at most `most` bytes are reserved.
    pub fn trim(&self, id: u64, most: u64) {
        if let Some(pool) = self.map().get_mut(&id) {
            pool.trim(most);
        }
    }

    /// `cuMemPoolGetAttribute`.
    ///
    /// # Errors
    ///
    /// `CUDA_ERROR_INVALID_HANDLE` if there is no such pool, `CUDA_ERROR_INVALID_VALUE` if there is no such attribute.
    pub fn get(
        &self,
        id: u64,
        attribute: CUmemPool_attribute,
        pressures: u64,
    ) -> Result<u64, CUresult> {
        let mut map = self.map();
        let pool = map.get_mut(&id).ok_or(CUDA_ERROR_INVALID_HANDLE)?;
        if pool.foreign.is_some() {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        pool.look(pressures);
        Ok(match attribute {
            CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES
                ..=CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES => {
                pool.reuse[attribute as usize - 1]
            }
            CU_MEMPOOL_ATTR_RELEASE_THRESHOLD => pool.threshold,
            CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT => pool.reserved(),
            CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH => pool.most_reserved,
            CU_MEMPOOL_ATTR_USED_MEM_CURRENT => pool.used,
            CU_MEMPOOL_ATTR_USED_MEM_HIGH => pool.most_used,
            _ => return Err(CUDA_ERROR_INVALID_VALUE),
        })
    }

    /// `cuMemPoolSetAttribute`. A high mark can only be reset, to the current value.
    ///
    /// # Errors
    ///
    /// As [`MemPools::get`].
    pub fn set(
        &self,
        id: u64,
        attribute: CUmemPool_attribute,
        value: u64,
        pressures: u64,
    ) -> Result<(), CUresult> {
        let mut map = self.map();
        let pool = map.get_mut(&id).ok_or(CUDA_ERROR_INVALID_HANDLE)?;
        if pool.foreign.is_some() {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        pool.look(pressures);
        match attribute {
            CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES
                ..=CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES => {
                pool.reuse[attribute as usize - 1] = u64::from(value != 0);
            }
            CU_MEMPOOL_ATTR_RELEASE_THRESHOLD => {
                pool.threshold = value;
                pool.trim(value);
            }
            CU_MEMPOOL_ATTR_USED_MEM_HIGH if value == 0 => pool.most_used = pool.used,
            CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH if value == 0 => {
                pool.most_reserved = pool.reserved();
            }
            _ => return Err(CUDA_ERROR_INVALID_VALUE),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use gpgpu_protocol::api::{Stream, default_pool, object_id};

    use super::*;

    const MIB: u64 = 1 << 20;

    fn allocate(pools: &MemPools, id: u64, bytes: u64) -> Result<(), CUresult> {
        pools.reserve(id, bytes)?;
        pools.settle(id, bytes, 0, true);
        Ok(())
    }

    #[test]
    fn pitfall_68_reserved_memory_is_used_or_kept_under_the_threshold() {
        let pools = MemPools::default();
        let id = default_pool(1);
        assert_eq!(pools.device(id, |device| Ok(device + 4)), Ok(5));
        let ask = |attribute| pools.get(id, attribute, 0).unwrap();
        allocate(&pools, id, 8 * MIB).unwrap();
        pools.give_back(id, 8 * MIB, Some(0));
        assert_eq!(ask(CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT), 0);
        let threshold = CU_MEMPOOL_ATTR_RELEASE_THRESHOLD;
        pools.set(id, threshold, u64::MAX, 0).unwrap();
        for _ in 0..3 {
            allocate(&pools, id, 8 * MIB).unwrap();
            allocate(&pools, id, MIB).unwrap();
            pools.give_back(id, 8 * MIB, Some(0));
            assert_eq!(ask(CU_MEMPOOL_ATTR_USED_MEM_CURRENT), MIB);
            assert_eq!(ask(CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT), 9 * MIB);
            pools.give_back(id, MIB, Some(0));
        }
        assert_eq!(pools.kept(5, 0), 9 * MIB);
        assert_eq!(pools.kept(1, 0), 0);
        allocate(&pools, id, 2 * MIB).unwrap();
        pools.trim(id, 4 * MIB);
        assert_eq!(ask(CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT), 4 * MIB);
        pools.set(id, threshold, 3 * MIB, 0).unwrap();
        assert_eq!(ask(CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT), 3 * MIB);
        assert_eq!(ask(CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH), 9 * MIB);
        assert_eq!(ask(CU_MEMPOOL_ATTR_USED_MEM_HIGH), 9 * MIB);
        // If memory runs out, no memory is kept.
        assert_eq!(
            pools.get(id, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, 1),
            Ok(2 * MIB)
        );
        // This includes memory that was returned before and counted afterwards.
        pools.set(id, threshold, u64::MAX, 1).unwrap();
        allocate(&pools, id, MIB).unwrap();
        pools.give_back(id, MIB, Some(0));
        assert_eq!(pools.kept(5, 1), 0);
        allocate(&pools, id, MIB).unwrap();
        pools.give_back(id, MIB, None);
        assert_eq!(pools.kept(5, 1), 0);
        for mark in [
            CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH,
            CU_MEMPOOL_ATTR_USED_MEM_HIGH,
        ] {
            assert_eq!(pools.set(id, mark, 1, 1), Err(CUDA_ERROR_INVALID_VALUE));
            pools.set(id, mark, 0, 1).unwrap();
            assert_eq!(pools.get(id, mark, 1), Ok(2 * MIB));
        }
    }

    #[test]
    fn a_pool_stays_within_its_size_and_failed_allocations_do_not_count() {
        let pools = MemPools::default();
        let id = object_id::<MemPool>(1);
        pools.create(id, 0, 4 * MIB).unwrap();
        allocate(&pools, id, 3 * MIB).unwrap();
        assert_eq!(pools.reserve(id, 2 * MIB), Err(CUDA_ERROR_OUT_OF_MEMORY));
        assert_eq!(pools.reserve(id, u64::MAX), Err(CUDA_ERROR_OUT_OF_MEMORY));
        pools.reserve(id, MIB).unwrap();
        pools.settle(id, MIB, 0, false);
        allocate(&pools, id, MIB).unwrap();
        assert_eq!(pools.get(id, CU_MEMPOOL_ATTR_USED_MEM_HIGH, 0), Ok(4 * MIB));
    }

    #[test]
    fn pitfall_63_pools_that_are_not_there_and_those_of_devices() {
        let pools = MemPools::default();
        let id = object_id::<MemPool>(1);
        let none = |_| Err(CUDA_ERROR_INVALID_DEVICE);
        assert_eq!(pools.device(id, none), Err(CUDA_ERROR_INVALID_HANDLE));
        assert_eq!(
            pools.device(default_pool(9), none),
            Err(CUDA_ERROR_INVALID_HANDLE)
        );
        assert_eq!(
            pools.destroy(default_pool(0)),
            Err(CUDA_ERROR_INVALID_VALUE)
        );
        for wrong in [default_pool(0), object_id::<Stream>(1), 0] {
            assert!(pools.create(wrong, 0, 0).is_err());
        }
        pools.create(id, 3, 0).unwrap();
        assert!(pools.create(id, 3, 0).is_err());
        assert_eq!(pools.destroy(id), Ok(3));
        assert_eq!(pools.destroy(id), Err(CUDA_ERROR_INVALID_HANDLE));
        // Memory that is returned later is not counted.
        pools.give_back(id, MIB, Some(0));
        for serial in 0..MOST as u64 {
            pools.create(object_id::<MemPool>(serial), 0, 0).unwrap();
        }
        let one_more = object_id::<MemPool>(1 << 20);
        assert_eq!(pools.create(one_more, 0, 0), Err(CUDA_ERROR_OUT_OF_MEMORY));
    }
}
