//! Names, logging and versions: what cuBLAS does without a GPU.

use std::{
    ffi::{CStr, c_char, c_int, c_void},
    sync::atomic::{AtomicPtr, Ordering},
};

use gpgpu_client::log::{self, Level};
use gpgpu_protocol::libraries::status;

use crate::{Status, state::enter};

/// The statuses that have names.
const NAMES: &[(Status, &CStr, &CStr)] = &[
    (0, c"CUBLAS_STATUS_SUCCESS", c"success"),
    (
        1,
        c"CUBLAS_STATUS_NOT_INITIALIZED",
        c"the library was not initialized",
    ),
    (
        3,
        c"CUBLAS_STATUS_ALLOC_FAILED",
        c"the resource allocation failed",
    ),
    (
        7,
        c"CUBLAS_STATUS_INVALID_VALUE",
        c"an unsupported value or parameter was passed to the function",
    ),
    (
        8,
        c"CUBLAS_STATUS_ARCH_MISMATCH",
        c"the function requires a feature absent from the device architecture",
    ),
    (
        11,
        c"CUBLAS_STATUS_MAPPING_ERROR",
        c"an access to GPU memory space failed",
    ),
    (
        13,
        c"CUBLAS_STATUS_EXECUTION_FAILED",
        c"the GPU program failed to execute",
    ),
    (
        14,
        c"CUBLAS_STATUS_INTERNAL_ERROR",
        c"an internal operation failed",
    ),
    (
        15,
        c"CUBLAS_STATUS_NOT_SUPPORTED",
        c"the requested functionality is not supported",
    ),
    (
        16,
        c"CUBLAS_STATUS_LICENSE_ERROR",
        c"the requested functionality requires some license",
    ),
];

/// `cublasGetStatusName`.
#[unsafe(no_mangle)]
pub extern "C" fn cublasGetStatusName(status: Status) -> *const c_char {
    let found = NAMES.iter().find(|(number, ..)| *number == status);
    found
        .map_or(c"CUBLAS_STATUS_<unknown>", |(_, name, _)| name)
        .as_ptr()
}

/// `cublasGetStatusString`.
#[unsafe(no_mangle)]
pub extern "C" fn cublasGetStatusString(status: Status) -> *const c_char {
    let found = NAMES.iter().find(|(number, ..)| *number == status);
    found
        .map_or(c"unknown status", |(_, _, text)| text)
        .as_ptr()
}

/// `cublasGetCudartVersion`: the version of the driver API that this project's libraries answer to.
#[unsafe(no_mangle)]
pub extern "C" fn cublasGetCudartVersion() -> usize {
    13000
}

/// `cublasLoggerConfigure`: cuBLAS's log would be the host's, which is the operator's. Nothing is logged.
#[unsafe(no_mangle)]
pub extern "C" fn cublasLoggerConfigure(
    _logIsOn: c_int,
    _logToStdOut: c_int,
    _logToStdErr: c_int,
    _logFileName: *const c_char,
) -> Status {
    status::SUCCESS
}

static CALLBACK: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());

/// `cublasSetLoggerCallback`: the callback is kept and never called.
#[unsafe(no_mangle)]
pub extern "C" fn cublasSetLoggerCallback(userCallback: *mut c_void) -> Status {
    CALLBACK.store(userCallback, Ordering::Relaxed);
    status::SUCCESS
}

/// `cublasGetLoggerCallback`.
///
/// # Safety
///
/// `userCallback` is NULL or the caller's to write to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cublasGetLoggerCallback(userCallback: *mut *mut c_void) -> Status {
    enter(|| {
        if userCallback.is_null() {
            return Err(status::INVALID_VALUE);
        }
        // SAFETY: promised by the caller.
        unsafe { userCallback.write(CALLBACK.load(Ordering::Relaxed)) };
        Ok(())
    })
}

/// `cublasXerbla`: tells the user of a wrong parameter.
///
/// # Safety
///
/// `srName` is NULL or a string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cublasXerbla(srName: *const c_char, info: c_int) {
    if srName.is_null() {
        return;
    }
    // SAFETY: promised by the caller.
    let name = unsafe { CStr::from_ptr(srName) };
    log::say(Level::Error, || {
        let name = name.to_string_lossy();
        format!("On entry to {name} parameter number {info} had an illegal value")
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_status_of_the_protocol_has_a_name() {
        for of in [
            status::SUCCESS,
            status::NOT_INITIALIZED,
            status::ALLOC_FAILED,
            status::INVALID_VALUE,
            status::EXECUTION_FAILED,
            status::INTERNAL_ERROR,
            status::NOT_SUPPORTED,
        ] {
            assert!(NAMES.iter().any(|(number, ..)| *number == of), "{of}");
        }
        // SAFETY: a string of this library.
        let unknown = unsafe { CStr::from_ptr(cublasGetStatusName(99)) };
        assert_eq!(unknown, c"CUBLAS_STATUS_<unknown>");
    }
}
