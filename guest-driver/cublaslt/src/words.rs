// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Functions about the library itself: versions, texts of statuses, the logger, and settings that concern only this
//! process.

use std::{
    ffi::{c_char, c_int, c_uint, c_void},
    sync::atomic::{AtomicU32, AtomicUsize, Ordering},
};

use gpgpu_library::{Status, forward::Request};
use gpgpu_protocol::libraries::{
    Function,
    Library::CublasLt,
    cublaslt::{STATUSES, status},
};

use crate::enter;

const VERSION: &Function = CublasLt.find("cublasLtGetVersion");
const PROPERTY: &Function = CublasLt.find("cublasLtGetProperty");

/// `cublasLtGetVersion`: the version of the host's library; 0 if there is none.
#[unsafe(no_mangle)]
pub extern "C" fn cublasLtGetVersion() -> usize {
    let mut version = 0_u64;
    enter(|| Request::new(VERSION, &[(&raw mut version) as u64]).ask());
    version as usize
}

/// `cublasLtGetProperty`.
///
/// # Safety
///
/// `value` is NULL or the caller's to write to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cublasLtGetProperty(r#type: c_int, value: *mut c_int) -> Status {
    enter(|| {
        if value.is_null() {
            return Err(status::INVALID_VALUE);
        }
        Request::new(PROPERTY, &[r#type as u64, value as u64]).ask()
    })
}

/// `cublasLtGetStatusName`.
#[unsafe(no_mangle)]
pub extern "C" fn cublasLtGetStatusName(status: Status) -> *const c_char {
    STATUSES.name(status).as_ptr()
}

/// `cublasLtGetStatusString`.
#[unsafe(no_mangle)]
pub extern "C" fn cublasLtGetStatusString(status: Status) -> *const c_char {
    STATUSES.text(status).as_ptr()
}

/// `cublasLtGetCudartVersion`: the version of the driver API that this project's libraries implement.
#[unsafe(no_mangle)]
pub extern "C" fn cublasLtGetCudartVersion() -> usize {
    13000
}

/// The reported capacity of the heuristics' cache, until the program sets one. The default is cuBLASLt's.
static CAPACITY: AtomicUsize = AtomicUsize::new(8192);

/// `cublasLtHeuristicsCacheGetCapacity`.
///
/// # Safety
///
/// `capacity` is NULL or the caller's to write to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cublasLtHeuristicsCacheGetCapacity(capacity: *mut usize) -> Status {
    if capacity.is_null() {
        return status::INVALID_VALUE;
    }
    // SAFETY: promised by the caller.
    unsafe { capacity.write(CAPACITY.load(Ordering::Relaxed)) };
    status::SUCCESS
}

/// `cublasLtHeuristicsCacheSetCapacity`: stores the value, and 0 disables this library's cache.
#[unsafe(no_mangle)]
pub extern "C" fn cublasLtHeuristicsCacheSetCapacity(capacity: usize) -> Status {
    CAPACITY.store(capacity, Ordering::Relaxed);
    status::SUCCESS
}

/// Whether the heuristics' cache is enabled.
pub fn keeps_heuristics() -> bool {
    CAPACITY.load(Ordering::Relaxed) != 0
}

static MASK: AtomicU32 = AtomicU32::new(0);

/// `cublasLtDisableCpuInstructionsSetMask`: only stores the mask, because the library runs on the host's CPU.
#[unsafe(no_mangle)]
pub extern "C" fn cublasLtDisableCpuInstructionsSetMask(mask: c_uint) -> c_uint {
    MASK.swap(mask, Ordering::Relaxed)
}

/// `cublasLtLoggerSetCallback`: nothing is logged, because the library would log on the host. The callback is never
/// called.
#[unsafe(no_mangle)]
pub extern "C" fn cublasLtLoggerSetCallback(_callback: *mut c_void) -> Status {
    status::SUCCESS
}

/// `cublasLtLoggerSetFile`: nothing is logged.
#[unsafe(no_mangle)]
pub extern "C" fn cublasLtLoggerSetFile(_file: *mut c_void) -> Status {
    status::SUCCESS
}

/// `cublasLtLoggerOpenFile`: nothing is logged, and no file is created.
#[unsafe(no_mangle)]
pub extern "C" fn cublasLtLoggerOpenFile(_logFile: *const c_char) -> Status {
    status::SUCCESS
}

/// `cublasLtLoggerSetLevel`.
#[unsafe(no_mangle)]
pub extern "C" fn cublasLtLoggerSetLevel(level: c_int) -> Status {
    match level {
        0.. => status::SUCCESS,
        _ => status::INVALID_VALUE,
    }
}

/// `cublasLtLoggerSetMask`.
#[unsafe(no_mangle)]
pub extern "C" fn cublasLtLoggerSetMask(_mask: c_int) -> Status {
    status::SUCCESS
}

/// `cublasLtLoggerForceDisable`.
#[unsafe(no_mangle)]
pub extern "C" fn cublasLtLoggerForceDisable() -> Status {
    status::SUCCESS
}
