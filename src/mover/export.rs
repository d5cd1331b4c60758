// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Imports of workers' device memory.
//!
//! An import occupies addresses, and all VMs share a mover's address space. So the imports of a VM are limited to twice
//! the GPU's memory: a VM cannot have more memory than the GPU, but returns and exports arrive on different channels.

use std::{
    collections::HashMap,
    os::fd::{AsRawFd, OwnedFd},
    sync::Arc,
};

use gpgpu_locks::{Mutex, MutexGuard};
use gpgpu_protocol::cuda::*;

use crate::cuda::driver;

/// The imported bytes of each VM.
#[derive(Debug)]
pub struct Imported {
    most: u64,
    by_vm: Mutex<HashMap<u32, u64>>,
}

impl Imported {
    /// The limits for a GPU with this much memory, in bytes.
    pub fn new(memory: u64) -> Self {
        Self {
            most: memory.saturating_mul(2),
            by_vm: Mutex::default(),
        }
    }

    fn by_vm(&self) -> MutexGuard<'_, HashMap<u32, u64>> {
        self.by_vm.lock()
    }

    /// Reserves bytes of a VM's limit; `None` if it would be exceeded.
    pub fn take(self: &Arc<Self>, vm: u32, bytes: u64) -> Option<Share> {
        let mut by_vm = self.by_vm();
        let has = by_vm.entry(vm).or_default();
        *has = has.checked_add(bytes).filter(|sum| *sum <= self.most)?;
        Some(Share {
            of: Arc::clone(self),
            vm,
            bytes,
        })
    }
}

/// A reservation of a VM's limit, until this is dropped.
#[derive(Debug)]
pub struct Share {
    of: Arc<Imported>,
    vm: u32,
    bytes: u64,
}

impl Drop for Share {
    fn drop(&mut self) {
        if let Some(has) = self.of.by_vm().get_mut(&self.vm) {
            *has -= self.bytes;
        }
    }
}

/// An import: mapped for this mover's device until it is dropped. The memory belongs to the worker, which can reuse it
/// only after the mover has unmapped it.
#[derive(Debug)]
pub struct Import {
    address: CUdeviceptr,
    bytes: u64,
    _share: Share,
}

impl Import {
    /// Maps the memory of `handle`, which lies on device `dev` and is as large as the share. The context must be
    /// current.
    ///
    /// # Errors
    /// The handle is not such memory, or the driver's error code.
    pub fn new(handle: &OwnedFd, share: Share, dev: CUdevice) -> Result<Self, CUresult> {
        let bytes = share.bytes;
        let mut memory = 0;
        let shared = handle.as_raw_fd() as usize as *mut std::ffi::c_void;
        let kind = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
        // SAFETY: the pointer is to a value that lives across the call; the descriptor is open.
        unsafe { driver::cuMemImportFromShareableHandle(&mut memory, shared, kind)? };
        let mapped = map(memory, bytes, dev);
        // SAFETY: the handle was just given; a mapping keeps the memory itself.
        let _ = unsafe { driver::cuMemRelease(memory) };
        mapped.map(|address| Self {
            address,
            bytes,
            _share: share,
        })
    }

    /// The address of `bytes` bytes from `offset` on; `None` if the range exceeds the import.
    pub fn address(&self, offset: u64, bytes: u64) -> Option<CUdeviceptr> {
        let end = offset.checked_add(bytes)?;
        (end <= self.bytes).then(|| self.address + offset)
    }
}

impl Drop for Import {
    fn drop(&mut self) {
        let length = self.bytes as usize;
        // SAFETY: the range was mapped as a whole, and no copy holds it any more.
        unsafe {
            let _ = driver::cuMemUnmap(self.address, length);
            let _ = driver::cuMemAddressFree(self.address, length);
        }
    }
}

fn map(
    memory: CUmemGenericAllocationHandle,
    bytes: u64,
    dev: CUdevice,
) -> Result<CUdeviceptr, CUresult> {
    let mut properties = CUmemAllocationProp {
        type_: CU_MEM_ALLOCATION_TYPE_INVALID,
        requestedHandleTypes: 0,
        location: CUmemLocation::default(),
        win32HandleMetaData: std::ptr::null_mut(),
        allocFlags: CUmemAllocationFlags::default(),
    };
    let mut address = 0;
    let length = bytes as usize;
    // SAFETY: pointers are to values that live across the calls; the handle is the driver's.
    unsafe {
        driver::cuMemGetAllocationPropertiesFromHandle(&mut properties, memory)?;
        let location = properties.location;
        if (location.type_, location.id) != (CU_MEM_LOCATION_TYPE_DEVICE, dev) {
            return Err(CUDA_ERROR_INVALID_DEVICE);
        }
        driver::cuMemAddressReserve(&mut address, length, 0, 0, 0)?;
        let access = CUmemAccessDesc {
            location,
            flags: CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
        };
        let mapped = driver::cuMemMap(address, length, 0, memory, 0);
        let mapped = mapped.and_then(|()| {
            driver::cuMemSetAccess(address, length, &access, 1).inspect_err(|_| {
                let _ = driver::cuMemUnmap(address, length);
            })
        });
        if let Err(code) = mapped {
            let _ = driver::cuMemAddressFree(address, length);
            return Err(code);
        }
    }
    Ok(address)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_vm_imports_twice_the_gpus_memory_at_most_whatever_others_do() {
        let imported = Arc::new(Imported::new(100));
        let first = imported.take(1, 150).unwrap();
        assert!(imported.take(1, 51).is_none());
        assert!(imported.take(1, u64::MAX).is_none());
        let _second = imported.take(1, 50).unwrap();
        let _other = imported.take(2, 200).unwrap();
        drop(first);
        let _again = imported.take(1, 150).unwrap();
        assert!(imported.take(1, 1).is_none());
    }
}
