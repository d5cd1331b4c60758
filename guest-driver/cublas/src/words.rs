// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Names, logging and versions: cuBLAS's functions that need no GPU.

use std::{
    ffi::{CStr, c_char, c_int, c_void},
    sync::atomic::{AtomicPtr, Ordering},
};

use gpgpu_client::log::{self, Level};
use gpgpu_protocol::libraries::cublas::{STATUSES, status};

use crate::{Status, enter};

/// `cublasGetStatusName`.
#[unsafe(no_mangle)]
pub extern "C" fn cublasGetStatusName(status: Status) -> *const c_char {
    STATUSES.name(status).as_ptr()
}

/// `cublasGetStatusString`.
#[unsafe(no_mangle)]
pub extern "C" fn cublasGetStatusString(status: Status) -> *const c_char {
    STATUSES.text(status).as_ptr()
}

/// `cublasGetCudartVersion`: the version of the driver API that this project's libraries implement.
#[unsafe(no_mangle)]
pub extern "C" fn cublasGetCudartVersion() -> usize {
    13000
}

/// `cublasLoggerConfigure`: nothing is logged, because cuBLAS would log on the host.
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

/// `cublasSetLoggerCallback`: stores the callback, which is never called.
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

/// `cublasXerbla`: reports a wrong parameter to the user.
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
