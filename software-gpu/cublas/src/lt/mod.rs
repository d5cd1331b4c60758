// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The cuBLASLt API, whose handles are those of cuBLAS: one library has both names.
//!
//! - [`descriptor`]: descriptors and their attributes;
//! - [`algorithm`]: the only algorithm, and queries about it;
//! - [`product`]: products, and computing them;
//! - [`transform`]: copies of matrices in another order.
#![allow(non_snake_case)]
// cuBLASLt's functions have this many arguments.
#![allow(clippy::too_many_arguments)]

pub mod algorithm;
pub mod descriptor;
pub mod product;
pub mod transform;

use std::ffi::{c_char, c_int};

use gpgpu_stand_in::call::{Answer, Argument};
use gpgpu_stand_in::memory::{Plain, Scalar};

use crate::api::helper::{RUNTIME, VERSION, version_part};
use crate::handle::{RawHandle, create, destroy, enter};
use crate::types::{Result, Status, describe};

/// Makes a handle, which is one of cuBLAS too.
#[unsafe(no_mangle)]
extern "C" fn cublasLtCreate(out: Answer<RawHandle>) -> c_int {
    enter(|| match out.is_null() {
        true => Err(Status::InvalidValue),
        false => out.set(create()?),
    })
}

/// Ends it.
#[unsafe(no_mangle)]
extern "C" fn cublasLtDestroy(handle: RawHandle) -> c_int {
    enter(|| destroy(handle))
}

/// The version as one number.
#[unsafe(no_mangle)]
extern "C" fn cublasLtGetVersion() -> usize {
    (VERSION[0] * 10_000 + VERSION[1] * 100 + VERSION[2]) as usize
}

/// The version of the runtime.
#[unsafe(no_mangle)]
extern "C" fn cublasLtGetCudartVersion() -> usize {
    RUNTIME
}

/// The version's parts: major 0, minor 1, patch level 2.
#[unsafe(no_mangle)]
extern "C" fn cublasLtGetProperty(part: c_int, value: Answer<c_int>) -> c_int {
    enter(|| value.set(version_part(part)?))
}

/// A status's name.
#[unsafe(no_mangle)]
extern "C" fn cublasLtGetStatusName(status: c_int) -> *const c_char {
    describe(status).0.as_ptr()
}

/// The text of a status.
#[unsafe(no_mangle)]
extern "C" fn cublasLtGetStatusString(status: c_int) -> *const c_char {
    describe(status).1.as_ptr()
}

/// A scalar at the place that a descriptor's pointer mode says.
fn scalar<T: Plain>(pointer: Argument<T>, on_device: bool) -> Result<Scalar<T>> {
    match on_device {
        true if pointer.is_null() => Err(Status::InvalidValue),
        true => Ok(Scalar::Device(pointer.address())),
        false => pointer.get().map(Scalar::Host),
    }
}

/// Whether a `cublasLtPointerMode_t` means that scalars are in device memory. Vectors of scalars are not supported.
fn on_device(mode: u64) -> Result<bool> {
    match mode {
        0 => Ok(false),
        1 => Ok(true),
        2..=4 => Err(Status::NotSupported),
        _ => Err(Status::InvalidValue),
    }
}

/// Writes bytes to the caller's buffer, or returns their number if the caller has no buffer.
fn give(value: &[u8], to: *mut u8, room: usize, written: Answer<usize>, is_right: bool) -> Result {
    if room == 0 {
        return written.set(value.len());
    }
    if to.is_null() || !is_right || value.len() > room {
        return Err(Status::InvalidValue);
    }
    // SAFETY: not NULL, so as much room as the caller says by the API's contract.
    unsafe { std::ptr::copy_nonoverlapping(value.as_ptr(), to, value.len()) };
    match written.is_null() {
        true => Ok(()),
        false => written.set(value.len()),
    }
}
