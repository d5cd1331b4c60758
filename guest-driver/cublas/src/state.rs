// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Creation and destruction of handles, and their settings.

use std::{ffi::c_void, sync::Arc};

use gpgpu_library::{
    Object, Status,
    forward::{self, Request, set_stream, settle},
    handle::{self, Handle},
};
use gpgpu_protocol::{
    cuda::CUstream,
    libraries::{Function, call::PointerMode, cublas::status},
};

use crate::{HANDLE, enter, give};

/// The functions that this file sends.
mod function {
    use gpgpu_protocol::libraries::{Function, Library::Cublas};

    pub const CREATE: &Function = Cublas.find("cublasCreate_v2");
    pub const DESTROY: &Function = Cublas.find("cublasDestroy_v2");
    pub const VERSION: &Function = Cublas.find("cublasGetVersion_v2");
    pub const PROPERTY: &Function = Cublas.find("cublasGetProperty");
    pub const POINTER_MODE: &Function = Cublas.find("cublasSetPointerMode_v2");
    pub const WORKSPACE: &Function = Cublas.find("cublasSetWorkspace_v2");
    pub const MATH: &Function = Cublas.find("cublasSetMathMode");
    pub const ATOMICS: &Function = Cublas.find("cublasSetAtomicsMode");
    pub const SM_COUNT: &Function = Cublas.find("cublasSetSmCountTarget");
    pub const EMULATION: &Function = Cublas.find("cublasSetEmulationStrategy");
}

/// The settings of a handle that can be read back, besides its stream and its pointer mode.
#[derive(Debug, Clone, Copy)]
enum Setting {
    /// `cublasSetMathMode`.
    Math,
    /// `cublasSetAtomicsMode`.
    Atomics,
    /// `cublasSetSmCountTarget`.
    SmCount,
    /// `cublasSetEmulationStrategy`.
    Emulation,
}

/// The handle behind a program's pointer.
fn find(handle: Object) -> Result<Arc<Handle>, Status> {
    handle::find(HANDLE, handle)
}

fn ask(function: &'static Function, words: &[u64]) -> Result<(), Status> {
    Request::new(function, words).ask()
}

fn post(function: &'static Function, words: &[u64]) -> Result<(), Status> {
    Request::new(function, words).post()
}

/// `cublasCreate`.
///
/// # Safety
///
/// `handle` is NULL or the caller's to write to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cublasCreate_v2(handle: *mut Object) -> Status {
    enter(|| forward::send(function::CREATE, &[handle as u64]))
}

/// `cublasDestroy`.
#[unsafe(no_mangle)]
pub extern "C" fn cublasDestroy_v2(handle: Object) -> Status {
    enter(|| forward::send(function::DESTROY, &[handle as u64]))
}

/// `cublasGetVersion`. Programs may call it without a handle, as JAX does before it makes one.
///
/// # Safety
///
/// `version` is NULL or the caller's to write to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cublasGetVersion_v2(handle: Object, version: *mut i32) -> Status {
    enter(|| {
        if !handle.is_null() {
            find(handle)?;
        }
        if version.is_null() {
            return Err(status::INVALID_VALUE);
        }
        if handle.is_null() {
            let version_is = version_by_parts()?;
            // SAFETY: promised by the caller, and not NULL.
            unsafe { version.write(version_is) };
            return Ok(());
        }
        let words = [handle as u64, version as u64];
        ask(function::VERSION, &words)
    })
}

/// The version, computed like `CUBLAS_VERSION` from its parts, which the host's library reports without a handle.
fn version_by_parts() -> Result<i32, Status> {
    let mut version = 0;
    for (property, factor) in (0..).zip([10_000, 100, 1]) {
        let mut part = 0_i32;
        ask(function::PROPERTY, &[property, &raw mut part as u64])?;
        version += part * factor;
    }
    Ok(version)
}

/// `cublasGetProperty`.
///
/// # Safety
///
/// `value` is NULL or the caller's to write to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cublasGetProperty(property: i32, value: *mut i32) -> Status {
    enter(|| {
        if value.is_null() {
            return Err(status::INVALID_VALUE);
        }
        let words = [property as u64, value as u64];
        ask(function::PROPERTY, &words)
    })
}

/// `cublasSetStream`. As natively, the handle has cuBLAS's own workspace afterwards.
#[unsafe(no_mangle)]
pub extern "C" fn cublasSetStream_v2(handle: Object, stream: CUstream) -> Status {
    enter(|| set_stream(HANDLE, handle, stream))
}

/// `cublasGetStream`.
///
/// # Safety
///
/// `stream` is NULL or the caller's to write to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cublasGetStream_v2(handle: Object, stream: *mut CUstream) -> Status {
    enter(|| {
        let known = find(handle)?;
        let told = known.told().stream;
        // SAFETY: promised by the caller.
        unsafe { give(stream, told as CUstream) }
    })
}

/// `cublasSetPointerMode`.
#[unsafe(no_mangle)]
pub extern "C" fn cublasSetPointerMode_v2(handle: Object, mode: i32) -> Status {
    enter(|| {
        let known = find(handle)?;
        let mode = match mode {
            0 => PointerMode::Host,
            1 => PointerMode::Device,
            _ => return Err(status::INVALID_VALUE),
        };
        if known.mode() != mode {
            let words = [handle as u64, mode as u64];
            post(function::POINTER_MODE, &words)?;
            known.set_mode(mode);
        }
        Ok(())
    })
}

/// `cublasGetPointerMode`.
///
/// # Safety
///
/// `mode` is NULL or the caller's to write to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cublasGetPointerMode_v2(handle: Object, mode: *mut i32) -> Status {
    enter(|| {
        let known = find(handle)?;
        // SAFETY: promised by the caller.
        unsafe { give(mode, known.mode() as i32) }
    })
}

/// The alignment of a workspace, in bytes.
const WORKSPACE_ALIGNMENT: u64 = 256;

/// `cublasSetWorkspace`.
#[unsafe(no_mangle)]
pub extern "C" fn cublasSetWorkspace_v2(
    handle: Object,
    workspace: *mut c_void,
    workspaceSizeInBytes: usize,
) -> Status {
    enter(|| {
        let known = find(handle)?;
        let (address, bytes) = (workspace as u64, workspaceSizeInBytes as u64);
        let words = [handle as u64, address, bytes];
        // cuBLAS itself refuses an invalid workspace.
        let is_dubious = address == 0 || bytes == 0 || !address.is_multiple_of(WORKSPACE_ALIGNMENT);
        if is_dubious {
            drop(settle(HANDLE, handle as u64, &known)?);
            ask(function::WORKSPACE, &words)?;
        }
        let mut told = known.told();
        let is_new = told.give_workspace(address, bytes);
        known.set_owed(&told);
        if is_new && !is_dubious {
            post(function::WORKSPACE, &words)?;
        }
        Ok(())
    })
}

/// Sends a setting to cuBLAS, unless it has that value already.
fn set(function: &'static Function, of: Setting, handle: Object, value: i32) -> Status {
    enter(|| {
        let known = find(handle)?;
        let mut told = known.told();
        if told.setting(of as usize) != value {
            let words = [handle as u64, value as u64];
            // Programs change settings before each product, and back after it.
            match told.accepts(of as usize, value) {
                true => post(function, &words)?,
                false => ask(function, &words)?,
            }
            known.set(&mut told, of as usize, value);
        }
        Ok(())
    })
}

/// Returns a setting's value.
///
/// # Safety
///
/// The pointer is NULL or the caller's to write to.
unsafe fn get(of: Setting, handle: Object, to: *mut i32) -> Status {
    enter(|| {
        let known = find(handle)?;
        let value = known.told().setting(of as usize);
        // SAFETY: promised by the caller.
        unsafe { give(to, value) }
    })
}

macro_rules! settings {
    ($($set:ident $get:ident $of:ident $op:ident;)*) => {$(
        /// cuBLAS's function of this name.
        #[unsafe(no_mangle)]
        pub extern "C" fn $set(handle: Object, value: i32) -> Status {
            set(function::$op, Setting::$of, handle, value)
        }

        /// cuBLAS's function of this name.
        ///
        /// # Safety
        ///
        /// `value` is NULL or the caller's to write to.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $get(handle: Object, value: *mut i32) -> Status {
            // SAFETY: promised by the caller.
            unsafe { get(Setting::$of, handle, value) }
        }
    )*};
}

settings! {
    cublasSetMathMode cublasGetMathMode Math MATH;
    cublasSetAtomicsMode cublasGetAtomicsMode Atomics ATOMICS;
    cublasSetSmCountTarget cublasGetSmCountTarget SmCount SM_COUNT;
    cublasSetEmulationStrategy cublasGetEmulationStrategy Emulation EMULATION;
}
