// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The functions of memory pools, and the amount of idle memory that a device keeps for them.

use std::thread;

use gpgpu_protocol::cuda::*;

use crate::worker::device_memory::{Device, DeviceMemory, reaper::LOOK};

/// The number of times that a query of a pool checks for freed memory. The program may know that a stream's work has
/// ended before the driver reports the stream as idle. Memory that it frees then is free a moment later, and must not
/// be counted. On a busy host the moment is some milliseconds.
const LOOKS: usize = 100;

impl DeviceMemory {
    /// The device of a memory pool, by the driver's number.
    ///
    /// # Errors
    ///
    /// `CUDA_ERROR_INVALID_HANDLE` if there is no such pool.
    pub(in crate::worker::device_memory) fn mempool(
        &self,
        mempool: u64,
    ) -> Result<CUdevice, CUresult> {
        self.mempools
            .device(mempool, |device| self.common.gpu(device))
    }

    /// `cuMemPoolCreate`, on a device by the driver's number.
    ///
    /// # Errors
    ///
    /// `CUDA_ERROR_OUT_OF_MEMORY` above the limit.
    pub fn create_mempool(
        &self,
        mempool: u64,
        device: CUdevice,
        most: u64,
    ) -> Result<(), CUresult> {
        self.mempools.create(mempool, device, most)
    }

    /// `cuMemPoolDestroy`. Allocations from the pool exist until they are freed.
    ///
    /// # Errors
    ///
    /// As [`super::MemPools::destroy`].
    pub fn destroy_mempool(&self, mempool: u64) -> Result<(), CUresult> {
        if self.imports.is_in_use(mempool) {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let device = self.mempools.destroy(mempool)?;
        self.trim_to_promise(device);
        Ok(())
    }

    /// `cuMemPoolTrimTo`.
    ///
    /// # Errors
    ///
    /// `CUDA_ERROR_INVALID_HANDLE` if there is no such pool; the error of a context in which memory was freed.
    pub fn trim_mempool(&self, mempool: u64, most: u64) -> Result<(), CUresult> {
        let device = self.mempool(mempool)?;
        self.mempools.check_own(mempool)?;
        self.reap_all()?;
        self.mempools.trim(mempool, most);
        self.trim_to_promise(device);
        Ok(())
    }

    /// `cuMemPoolGetAttribute`.
    ///
    /// # Errors
    ///
    /// As [`super::MemPools::get`]; the error of a context in which memory was freed.
    pub fn mempool_attribute(
        &self,
        mempool: u64,
        attribute: CUmemPool_attribute,
    ) -> Result<u64, CUresult> {
        let device = self.mempool(mempool)?;
        self.reap_all()?;
        let is_now = matches!(
            attribute,
            CU_MEMPOOL_ATTR_USED_MEM_CURRENT | CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT
        );
        for _ in 0..LOOKS {
            if !is_now || self.freed.is_empty() {
                break;
            }
            thread::sleep(LOOK);
            self.reap_all()?;
        }
        self.mempools
            .get(mempool, attribute, self.pressures(device))
    }

    /// `cuMemPoolSetAttribute`.
    ///
    /// # Errors
    ///
    /// As [`super::MemPools::set`]; the error of a context in which memory was freed.
    pub fn set_mempool_attribute(
        &self,
        mempool: u64,
        attribute: CUmemPool_attribute,
        value: u64,
    ) -> Result<(), CUresult> {
        let device = self.mempool(mempool)?;
        self.reap_all()?;
        self.mempools
            .set(mempool, attribute, value, self.pressures(device))?;
        if attribute == CU_MEMPOOL_ATTR_RELEASE_THRESHOLD {
            self.trim_to_promise(device);
        }
        Ok(())
    }

    /// Gives another device, by the driver's number, access to the memory of a pool. Access is never withdrawn: the
    /// device keeps it as long as the process exists.
    ///
    /// # Errors
    ///
    /// `CUDA_ERROR_INVALID_HANDLE` if there is no such pool; the driver's error code.
    pub fn set_mempool_access(
        &self,
        mempool: u64,
        device: CUdevice,
        flags: CUmemAccess_flags,
    ) -> Result<(), CUresult> {
        let own = self.mempool(mempool)?;
        match flags {
            // As natively, a device's access to its own memory cannot be withdrawn.
            CU_MEM_ACCESS_FLAGS_PROT_NONE if device == own => Err(CUDA_ERROR_INVALID_DEVICE),
            CU_MEM_ACCESS_FLAGS_PROT_NONE => Ok(()),
            CU_MEM_ACCESS_FLAGS_PROT_READWRITE if device == own => Ok(()),
            CU_MEM_ACCESS_FLAGS_PROT_READWRITE if self.mempools.check_own(mempool).is_err() => {
                self.mempools.let_in(mempool, device);
                self.share_opened(mempool, device)
            }
            CU_MEM_ACCESS_FLAGS_PROT_READWRITE => match self.device(own) {
                Some(own) => own.pool.share(device),
                // Access to memory of `cuMemAlloc` belongs to contexts.
                None => Err(CUDA_ERROR_INVALID_DEVICE),
            },
            _ => Err(CUDA_ERROR_INVALID_VALUE),
        }
    }

    /// Returns idle memory, except the memory that pools keep.
    fn trim_to_promise(&self, device: CUdevice) {
        self.promise(device);
        let found = self.known_device(device);
        if let Some(device) = found {
            device.pool.trim(device.pool.keep());
        }
    }

    /// The number of times that memory ran out for a device.
    pub(in crate::worker::device_memory) fn pressures(&self, device: CUdevice) -> u64 {
        let found = self.known_device(device);
        found.map_or(0, |device| device.pool.pressures())
    }

    /// Tells a device how much idle memory its pools keep.
    pub(in crate::worker::device_memory) fn promise(&self, device: CUdevice) {
        let found = self.known_device(device);
        if let Some(found) = found {
            let kept = self.mempools.kept(device, found.pool.pressures());
            found.pool.promise(kept);
        }
    }

    /// Records that memory of a device was returned and no longer belongs to a memory pool; `pressures` was read before
    /// that.
    pub(in crate::worker::device_memory) fn count_out(
        &self,
        mempool: u64,
        device: &Device,
        taken: u64,
        pressures: u64,
    ) {
        if mempool != 0 {
            self.mempools.give_back(mempool, taken, Some(pressures));
            self.promise(device.pool.device());
        }
    }
}
