// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Handles, and functions about the library itself.

use std::ffi::{CStr, c_char, c_int};

use gpgpu_stand_in::{call::Answer, driver::Name};

use super::export;
use crate::handle::{Raw, create, destroy, find};
use crate::types::{Status, describe, last};

/// 9.10.0.
const VERSION: [c_int; 3] = [9, 10, 0];

/// The runtime that a cuDNN of this version is built with.
const RUNTIME: usize = 13000;

export! {
    /// Makes a handle in the current context, or in the first device's primary one if there is none.
    fn cudnnCreate(out: Answer<Raw>) {
        if out.is_null() {
            return Err(Status::NullPointer);
        }
        out.set(create()?)
    }

    /// Waits for the handle's work and destroys the handle.
    fn cudnnDestroy(handle: Raw) { destroy(handle) }

    /// Sets the stream of the handle's work from now on.
    fn cudnnSetStream(handle: Raw, stream: Raw) {
        *find(handle)?.stream() = Name(stream);
        Ok(())
    }

    /// The stream that was set, or NULL.
    fn cudnnGetStream(handle: Raw, stream: Answer<Raw>) {
        let name = *find(handle)?.stream();
        stream.set(name.0)
    }

    /// The version's parts: major 0, minor 1, patch level 2.
    fn cudnnGetProperty(part: c_int, value: Answer<c_int>) {
        let part = usize::try_from(part).ok().and_then(|part| VERSION.get(part));
        value.set(*part.ok_or(Status::BadParam)?)
    }
}

/// The version as one number.
#[unsafe(no_mangle)]
pub extern "C" fn cudnnGetVersion() -> usize {
    (VERSION[0] * 10_000 + VERSION[1] * 100 + VERSION[2]) as usize
}

/// The newest device architecture that it supports.
#[unsafe(no_mangle)]
pub extern "C" fn cudnnGetMaxDeviceVersion() -> usize {
    1200
}

/// The runtime that it is built with.
#[unsafe(no_mangle)]
pub extern "C" fn cudnnGetCudartVersion() -> usize {
    RUNTIME
}

/// A status's name.
#[unsafe(no_mangle)]
pub extern "C" fn cudnnGetErrorString(status: c_int) -> *const c_char {
    describe(status).as_ptr()
}

/// The name of this thread's last status that was not success.
///
/// # Safety
/// `message` is NULL or has room for `size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudnnGetLastErrorString(message: *mut c_char, size: usize) {
    let text: &CStr = match last() {
        0 => c"",
        status => describe(status),
    };
    let bytes = text.to_bytes();
    let Some(room) = size.checked_sub(1).filter(|_| !message.is_null()) else {
        return;
    };
    let count = bytes.len().min(room);
    // SAFETY: there is room for one byte more than is copied.
    unsafe {
        std::ptr::copy_nonoverlapping(bytes.as_ptr(), message.cast(), count);
        message.add(count).write(0);
    }
}
