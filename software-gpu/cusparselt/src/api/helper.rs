// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Handles, and functions about the library itself.

use std::ffi::{c_char, c_int};

use crate::handle::{Answer, Argument, RawHandle, create, destroy};
use crate::types::{Status, name};

use super::export;

/// 0.10.0: the number of the interface.
const VERSION: [c_int; 3] = [0, 10, 0];

export! {
    /// Makes a handle in the current context, or in the first device's primary one if there is none.
    fn cusparseLtInit(handle: Answer<RawHandle>) { create(handle) }

    /// Ends it.
    fn cusparseLtDestroy(handle: Answer<RawHandle>) { destroy(handle) }

    /// The version as one number.
    fn cusparseLtGetVersion(handle: Argument<RawHandle>, version: Answer<c_int>) |handle| {
        let _ = handle;
        version.set(VERSION[0] * 1_000_000 + VERSION[1] * 100 + VERSION[2])
    }

    /// The version's parts: major 0, minor 1, patch level 2.
    fn cusparseLtGetProperty(part: c_int, value: Answer<c_int>) {
        let part = usize::try_from(part).ok().and_then(|part| VERSION.get(part));
        value.set(*part.ok_or(Status::InvalidValue)?)
    }
}

/// A status's name in `cusparse.h`.
#[unsafe(no_mangle)]
pub extern "C" fn cusparseLtGetErrorName(status: c_int) -> *const c_char {
    name(status).as_ptr()
}

/// The name of a status.
#[unsafe(no_mangle)]
pub extern "C" fn cusparseLtGetErrorString(status: c_int) -> *const c_char {
    name(status).as_ptr()
}
