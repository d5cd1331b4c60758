// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Handles, their settings, and functions about the library itself.

use std::ffi::{c_char, c_int, c_void};

use crate::handle::{Answer, RawHandle, create, destroy, enter, enter_with};
use crate::types::{Result, Status, describe, is_device_mode};
use gpgpu_stand_in::driver::Name;

use super::require;

/// 13.1.0, as `cublas_api.h` counts.
pub const VERSION: [c_int; 3] = [13, 1, 0];

/// The runtime that a cuBLAS of this version is built with.
pub const RUNTIME: usize = 13000;

/// A part of the version: major 0, minor 1, patch level 2.
pub fn version_part(part: c_int) -> Result<c_int> {
    let part = usize::try_from(part).ok().and_then(|p| VERSION.get(p));
    part.copied().ok_or(Status::InvalidValue)
}

/// Defines exported functions without a second variant.
macro_rules! export {
    ($($(#[$m:meta])* fn $name:ident($($a:ident: $t:ty),*) $(|$handle:ident|)? $body:block)*) => {$(
        $(#[$m])*
        #[unsafe(no_mangle)]
        pub extern "C" fn $name($($a: $t),*) -> c_int {
            export!(@call $(($handle))? $body)
        }
    )*};
    (@call ($handle:ident) $body:block) => { enter_with($handle, |$handle| $body) };
    (@call $body:block) => { enter(|| $body) };
}

export! {
    /// Makes a handle in the current context, or in the first device's primary one if there is none.
    fn cublasCreate_v2(out: Answer<RawHandle>) {
        require(!out.is_null())?;
        out.set(create()?)
    }

    /// Waits for the handle's work and destroys the handle.
    fn cublasDestroy_v2(handle: RawHandle) { destroy(handle) }

    /// The version as one number; no handle is needed.
    fn cublasGetVersion_v2(_handle: RawHandle, version: Answer<c_int>) {
        version.set(VERSION[0] * 10_000 + VERSION[1] * 100 + VERSION[2])
    }

    /// The version's parts: major 0, minor 1, patch level 2.
    fn cublasGetProperty(part: c_int, value: Answer<c_int>) {
        value.set(version_part(part)?)
    }

    /// Also returns the handle to its own workspace.
    fn cublasSetStream_v2(handle: RawHandle, stream: *mut c_void) |handle| {
        let mut settings = handle.settings();
        (settings.stream, settings.has_workspace) = (Name(stream), false);
        Ok(())
    }

    /// The stream that was set, or NULL.
    fn cublasGetStream_v2(handle: RawHandle, stream: Answer<*mut c_void>) |handle| {
        stream.set(handle.settings().stream.0)
    }

    /// The place of scalars and results: 0 is the host, 1 the device.
    fn cublasSetPointerMode_v2(handle: RawHandle, mode: c_int) |handle| {
        handle.settings().on_device = is_device_mode(mode)?;
        Ok(())
    }

    /// The mode that was set.
    fn cublasGetPointerMode_v2(handle: RawHandle, mode: Answer<c_int>) |handle| {
        mode.set(handle.settings().on_device.into())
    }

    /// The precision that work may have. This library's is the same in all modes.
    fn cublasSetMathMode(handle: RawHandle, mode: c_int) |handle| {
        const ONLY_FULL_REDUCTION: c_int = 16;
        require(matches!(mode & !ONLY_FULL_REDUCTION, 0..=4 | 8))?;
        handle.settings().math = mode;
        Ok(())
    }

    /// The mode that was set.
    fn cublasGetMathMode(handle: RawHandle, mode: Answer<c_int>) |handle| {
        mode.set(handle.settings().math)
    }

    /// Sets whether the order of additions may differ from run to run. Here it never does.
    fn cublasSetAtomicsMode(handle: RawHandle, mode: c_int) |handle| {
        require(matches!(mode, 0 | 1))?;
        handle.settings().atomics = mode;
        Ok(())
    }

    /// The mode that was set.
    fn cublasGetAtomicsMode(handle: RawHandle, mode: Answer<c_int>) |handle| {
        mode.set(handle.settings().atomics)
    }

    /// Memory for intermediate results, at a multiple of 256 bytes. This library needs none, but without it graphs
    /// allocate some.
    fn cublasSetWorkspace_v2(handle: RawHandle, workspace: *mut c_void, size: usize) |handle| {
        require((workspace as usize).is_multiple_of(256))?;
        handle.settings().has_workspace = size > 0;
        Ok(())
    }

    /// The number of multiprocessors for the work; zero is for all.
    fn cublasSetSmCountTarget(handle: RawHandle, count: c_int) |handle| {
        require(count >= 0)?;
        handle.settings().multiprocessors = count;
        Ok(())
    }

    /// The number that was set.
    fn cublasGetSmCountTarget(handle: RawHandle, count: Answer<c_int>) |handle| {
        count.set(handle.settings().multiprocessors)
    }
}

/// The version of the runtime.
#[unsafe(no_mangle)]
pub extern "C" fn cublasGetCudartVersion() -> usize {
    RUNTIME
}

/// A status's name in `cublas_api.h`.
#[unsafe(no_mangle)]
pub extern "C" fn cublasGetStatusName(status: c_int) -> *const c_char {
    describe(status).0.as_ptr()
}

/// The text of a status.
#[unsafe(no_mangle)]
pub extern "C" fn cublasGetStatusString(status: c_int) -> *const c_char {
    describe(status).1.as_ptr()
}
