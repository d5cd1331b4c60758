// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Handles, and functions about the library itself.

use std::ffi::{c_char, c_int};

use gpgpu_library::{
    Object, Status,
    forward::{self, Request},
};
use gpgpu_protocol::libraries::{Function, Library::CusparseLt, cusparselt::status};

use crate::{
    LIBRARY, enter, enter_on,
    kept::{self, Opaque},
};

const INIT: &Function = CusparseLt.find("cusparseLtInit");
const DESTROY: &Function = CusparseLt.find("cusparseLtDestroy");
const VERSION: &Function = CusparseLt.find("cusparseLtGetVersion");
const PROPERTY: &Function = CusparseLt.find("cusparseLtGetProperty");

/// `cusparseLtInit`.
///
/// # Safety
///
/// `handle` is NULL or the caller's to write to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cusparseLtInit(handle: *mut Opaque) -> Status {
    enter(|| {
        if handle.is_null() {
            return Err(status::INVALID_VALUE);
        }
        let mut made: Object = std::ptr::null_mut();
        forward::send(INIT, &[&raw mut made as u64])?;
        // SAFETY: promised by the caller.
        unsafe { kept::write(handle, made as u64, 0) }
    })
}

/// `cusparseLtDestroy`.
///
/// # Safety
///
/// `handle` is NULL or to a structure of the caller's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cusparseLtDestroy(handle: *const Opaque) -> Status {
    enter(|| {
        // SAFETY: promised by the caller.
        let id = unsafe {
            kept::read_handle(handle)?;
            kept::end::<u64>(handle)?
        };
        forward::send(DESTROY, &[id])
    })
}

/// `cusparseLtGetVersion`.
///
/// # Safety
///
/// `handle` is NULL or a structure of the caller's; `version` is NULL or the caller's to write to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cusparseLtGetVersion(
    handle: *const Opaque,
    version: *mut c_int,
) -> Status {
    // SAFETY: promised by the caller.
    unsafe {
        enter_on(handle, |on| {
            if version.is_null() {
                return Err(status::INVALID_VALUE);
            }
            on.send(VERSION, &[], [version as u64])
        })
    }
}

/// `cusparseLtGetProperty`.
///
/// # Safety
///
/// `value` is NULL or the caller's to write to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cusparseLtGetProperty(propertyType: c_int, value: *mut c_int) -> Status {
    enter(|| {
        if value.is_null() {
            return Err(status::INVALID_VALUE);
        }
        Request::new(PROPERTY, &[propertyType as u64, value as u64]).ask()
    })
}

/// `cusparseLtGetErrorName`.
#[unsafe(no_mangle)]
pub extern "C" fn cusparseLtGetErrorName(status: Status) -> *const c_char {
    LIBRARY.statuses().name(status).as_ptr()
}

/// `cusparseLtGetErrorString`.
#[unsafe(no_mangle)]
pub extern "C" fn cusparseLtGetErrorString(status: Status) -> *const c_char {
    LIBRARY.statuses().text(status).as_ptr()
}
