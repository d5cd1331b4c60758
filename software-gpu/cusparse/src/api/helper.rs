// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Handles, their settings, and functions about the library itself.

use std::ffi::{c_char, c_int, c_void};

use gpgpu_stand_in::driver::Name;

use crate::handle::{Answer, Raw, create, destroy};
use crate::types::{Status, name, require};

use super::export;

/// 12.6.3, as `cusparse.h` counts.
const VERSION: [c_int; 3] = [12, 6, 3];

export! {
    /// Makes a handle in the current context, or in the first device's primary one if there is none.
    fn cusparseCreate(out: Answer<Raw>) {
        require(!out.is_null())?;
        out.set(create()?)
    }

    /// Waits for the handle's work and destroys the handle.
    fn cusparseDestroy(handle: Raw) { destroy(handle) }

    /// The version as one number.
    fn cusparseGetVersion(handle: Raw, version: Answer<c_int>) |handle| {
        let _ = handle;
        version.set(VERSION[0] * 1000 + VERSION[1] * 100 + VERSION[2])
    }

    /// The version's parts: major 0, minor 1, patch level 2.
    fn cusparseGetProperty(part: c_int, value: Answer<c_int>) {
        let part = usize::try_from(part).ok().and_then(|p| VERSION.get(p));
        value.set(*part.ok_or(Status::InvalidValue)?)
    }

    /// The stream of later work.
    fn cusparseSetStream(handle: Raw, stream: *mut c_void) |handle| {
        handle.settings().stream = Name(stream);
        Ok(())
    }

    /// The stream that was set, or NULL.
    fn cusparseGetStream(handle: Raw, stream: Answer<*mut c_void>) |handle| {
        stream.set(handle.settings().stream.0)
    }

    /// The place of scalars and results: 0 is the host, 1 the device.
    fn cusparseSetPointerMode(handle: Raw, mode: c_int) |handle| {
        require(matches!(mode, 0 | 1))?;
        handle.settings().on_device = mode == 1;
        Ok(())
    }

    /// The mode that was set.
    fn cusparseGetPointerMode(handle: Raw, mode: Answer<c_int>) |handle| {
        mode.set(handle.settings().on_device.into())
    }
}

/// A status's name in `cusparse.h`.
#[unsafe(no_mangle)]
pub extern "C" fn cusparseGetErrorName(status: c_int) -> *const c_char {
    name(status).as_ptr()
}

/// The name of a status.
#[unsafe(no_mangle)]
pub extern "C" fn cusparseGetErrorString(status: c_int) -> *const c_char {
    name(status).as_ptr()
}
