// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The version of CUPTI that the functions are of.

use std::{
    ffi::{CStr, c_void},
    mem::MaybeUninit,
};

use gpgpu_protocol::cupti::{INVALID_PARAMETER, SUCCESS, Status, VERSION};
use libc::{Dl_info, dladdr};

/// `CUPTI_API_VERSION` of CUDA 12.6 and of CUDA 13.0 Update 1, by the names of the libraries.
const VERSIONS: [(&[u8], u32); 2] = [(b"libcupti.so.12", 24), (b"libcupti.so.13", VERSION)];

/// `cuptiGetVersion`: the version of these functions. JAX calls it when it starts, and an error makes it report a
/// broken installation.
///
/// Fails with `CUPTI_ERROR_INVALID_PARAMETER` if `version` is NULL.
///
/// # Safety
///
/// `version` is NULL or the caller's to write to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuptiGetVersion(version: *mut u32) -> Status {
    if version.is_null() {
        return INVALID_PARAMETER;
    }
    // SAFETY: promised by the caller, and not NULL.
    unsafe { version.write(version_of(&own_file())) };
    SUCCESS
}

/// The version for the file from which this code was loaded; for any other name, the newer one's.
fn version_of(file: &[u8]) -> u32 {
    let of = VERSIONS.iter().find(|(name, _)| file.ends_with(name));
    of.unwrap_or(&VERSIONS[1]).1
}

/// The path of the file from which this code was loaded; empty if the loader does not know it.
fn own_file() -> Vec<u8> {
    let mut found = MaybeUninit::<Dl_info>::zeroed();
    let here: unsafe extern "C" fn(*mut u32) -> u32 = cuptiGetVersion;
    // SAFETY: any address may be queried, and the structure is writable.
    if unsafe { dladdr(here as *const c_void, found.as_mut_ptr()) } == 0 {
        return Vec::new();
    }
    // SAFETY: all zero is a value of it, and the loader has filled it in.
    let name = unsafe { found.assume_init() }.dli_fname;
    if name.is_null() {
        return Vec::new();
    }
    // SAFETY: the loader's name of a file that stays loaded while its code runs.
    unsafe { CStr::from_ptr(name) }.to_bytes().to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// JAX uses no GPU if the answer is an error or too old.
    #[test]
    fn the_version_is_that_of_the_librarys_name() {
        let mut version = 0;
        // SAFETY: the pointer is to a value that lives across the call; NULL is refused.
        unsafe {
            assert_eq!(cuptiGetVersion(&mut version), SUCCESS);
            assert_eq!(cuptiGetVersion(std::ptr::null_mut()), INVALID_PARAMETER);
        }
        assert_eq!(version, 130_001);
        assert_eq!(version_of(b"/lib/libcupti.so.12"), 24);
        assert_eq!(version_of(b"/lib/libcupti.so.13"), 130_001);
    }
}
