//! Device memory of workers, imported here.

use std::os::fd::{AsRawFd, OwnedFd};

use gpgpu_protocol::cuda::*;

use super::driver;

/// An import: mapped for this mover's device until it is dropped. The memory is the worker's, who
/// gets it back only once it is not mapped here any more.
#[derive(Debug)]
pub struct Import {
    address: CUdeviceptr,
    bytes: u64,
}

impl Import {
    /// Maps what `handle` stands for: `bytes` bytes of memory of device `dev`. The context is current.
    ///
    /// # Errors
    /// It is not such memory, or the driver's own code.
    pub fn new(handle: &OwnedFd, bytes: u64, dev: CUdevice) -> Result<Self, CUresult> {
        let mut memory = 0;
        let shared = handle.as_raw_fd() as usize as *mut std::ffi::c_void;
        let kind = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
        // SAFETY: the pointer is to a value that lives across the call; the descriptor is open.
        unsafe { driver::cuMemImportFromShareableHandle(&mut memory, shared, kind)? };
        let mapped = Self::map(memory, bytes, dev);
        // SAFETY: the handle was just given; a mapping keeps the memory itself.
        let _ = unsafe { driver::cuMemRelease(memory) };
        mapped
    }

    fn map(
        memory: CUmemGenericAllocationHandle,
        bytes: u64,
        dev: CUdevice,
    ) -> Result<Self, CUresult> {
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
        Ok(Self { address, bytes })
    }

    /// The address of `bytes` bytes from `offset` on; `None` if they are not all in it.
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
