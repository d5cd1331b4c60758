// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Device memory for a guest's library itself. It is allocated by libcuda, so it counts like the program's own.

use std::{
    ffi::{CStr, c_void},
    sync::OnceLock,
};

use gpgpu_protocol::{cuda::*, driver_api::signature, libraries::Library};

use crate::{Status, forward::context};

/// The functions of libcuda that this module uses.
struct Driver {
    allocate: signature::cuMemAlloc_v2,
    free: signature::cuMemFree_v2,
    copy_out: signature::cuMemcpyDtoH_v2,
}

fn driver() -> Option<&'static Driver> {
    fn find(name: &CStr) -> Option<*mut c_void> {
        // SAFETY: names are strings; libcuda is loaded, for there is a context, and is never unloaded.
        let found = unsafe {
            let library = libc::dlopen(c"libcuda.so.1".as_ptr(), libc::RTLD_NOW);
            libc::dlsym(library, name.as_ptr())
        };
        (!found.is_null()).then_some(found)
    }
    static DRIVER: OnceLock<Option<Driver>> = OnceLock::new();
    let found = DRIVER.get_or_init(|| {
        let names = [c"cuMemAlloc_v2", c"cuMemFree_v2", c"cuMemcpyDtoH_v2"];
        let [Some(allocate), Some(free), Some(copy_out)] = names.map(find) else {
            return None;
        };
        // SAFETY: libcuda's functions of these names are of these types.
        Some(unsafe {
            Driver {
                allocate: std::mem::transmute::<*mut c_void, signature::cuMemAlloc_v2>(allocate),
                free: std::mem::transmute::<*mut c_void, signature::cuMemFree_v2>(free),
                copy_out: std::mem::transmute::<*mut c_void, signature::cuMemcpyDtoH_v2>(copy_out),
            }
        })
    });
    found.as_ref()
}

/// Memory in the context that was current. It is freed explicitly, not when it is dropped: the memory is lost with its
/// context, and its address may be reused.
#[derive(Debug)]
pub struct DeviceMemory(u64);

impl DeviceMemory {
    /// Allocates this number of bytes, or one byte for 0.
    ///
    /// # Errors
    ///
    /// The status for libcuda's code.
    pub fn allocate(library: Library, bytes: u64) -> Result<Self, Status> {
        context(library)?;
        let statuses = library.statuses();
        let driver = driver().ok_or(statuses.not_initialized)?;
        let mut address = 0;
        // SAFETY: the pointer is to a value that lives across the call.
        match unsafe { (driver.allocate)(&mut address, bytes as usize) } {
            CUDA_SUCCESS => Ok(Self(address)),
            code => Err(statuses.of_code(code)),
        }
    }

    /// The address.
    pub fn address(&self) -> u64 {
        self.0
    }

    /// Copies from its beginning to the program's memory, after the legacy stream's earlier work.
    ///
    /// # Errors
    ///
    /// The status for libcuda's code.
    ///
    /// # Safety
    ///
    /// There is room for this number of bytes.
    pub unsafe fn copy_to(
        &self,
        library: Library,
        to: *mut c_void,
        bytes: u64,
    ) -> Result<(), Status> {
        let statuses = library.statuses();
        let driver = driver().ok_or(statuses.not_initialized)?;
        // SAFETY: promised by the caller.
        match unsafe { (driver.copy_out)(to, self.0, bytes as usize) } {
            CUDA_SUCCESS => Ok(()),
            code => Err(statuses.of_code(code)),
        }
    }

    /// Frees the memory.
    pub fn free(self) {
        if let Some(driver) = driver() {
            // The code is ignored: a later call of the program reports the same error. SAFETY: the memory is this
            // one's, and it is freed once.
            let _ = unsafe { (driver.free)(self.0) };
        }
    }
}
