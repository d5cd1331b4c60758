//! Handles are made and ended here, and what cuBLAS is told of them is kept.

use std::ffi::c_void;

use gpgpu_protocol::{
    cuda::CUstream,
    libraries::{Function, Library, call::PointerMode, status},
};

use crate::{
    Status,
    forward::{ask, post, status_of},
    handle::{self, CublasHandle, Setting, find, insert, sister},
};

/// The functions that this file sends.
mod function {
    use gpgpu_protocol::libraries::{Function, Library::Cublas};

    pub const CREATE: &Function = Cublas.find("cublasCreate_v2");
    pub const DESTROY: &Function = Cublas.find("cublasDestroy_v2");
    pub const VERSION: &Function = Cublas.find("cublasGetVersion_v2");
    pub const PROPERTY: &Function = Cublas.find("cublasGetProperty");
    pub const STREAM: &Function = Cublas.find("cublasSetStream_v2");
    pub const POINTER_MODE: &Function = Cublas.find("cublasSetPointerMode_v2");
    pub const WORKSPACE: &Function = Cublas.find("cublasSetWorkspace_v2");
    pub const MATH: &Function = Cublas.find("cublasSetMathMode");
    pub const ATOMICS: &Function = Cublas.find("cublasSetAtomicsMode");
    pub const SM_COUNT: &Function = Cublas.find("cublasSetSmCountTarget");
    pub const EMULATION: &Function = Cublas.find("cublasSetEmulationStrategy");
}

/// Runs the body of an exported function: no panic leaves it.
pub(crate) fn enter(body: impl FnOnce() -> Result<(), Status>) -> Status {
    let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(body));
    match outcome {
        Ok(Ok(())) => status::SUCCESS,
        Ok(Err(status)) => status,
        Err(_) => status::INTERNAL_ERROR,
    }
}

/// Writes a value to where the program wants it.
///
/// # Safety
///
/// The pointer is NULL or the caller's to write to.
unsafe fn give<T>(to: *mut T, value: T) -> Result<(), Status> {
    if to.is_null() {
        return Err(status::INVALID_VALUE);
    }
    // SAFETY: promised by the caller.
    unsafe { to.write(value) };
    Ok(())
}

/// `cublasCreate`.
///
/// # Safety
///
/// `handle` is NULL or the caller's to write to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cublasCreate_v2(handle: *mut CublasHandle) -> Status {
    enter(|| {
        if handle.is_null() {
            return Err(status::INVALID_VALUE);
        }
        let sister = sister()?;
        sister.context().map_err(status_of)?;
        let kind = Library::Cublas.handle_kind();
        let id = sister.new_id(kind).map_err(status_of)?;
        // A host from before this library has no cuBLAS for its guests.
        let made = ask(function::CREATE, &[id], PointerMode::Host);
        made.map_err(|of| match of {
            status::NOT_SUPPORTED => status::NOT_INITIALIZED,
            other => other,
        })?;
        insert(id);
        // SAFETY: the caller's to write to.
        unsafe { give(handle, id as CublasHandle) }
    })
}

/// `cublasDestroy`.
#[unsafe(no_mangle)]
pub extern "C" fn cublasDestroy_v2(handle: CublasHandle) -> Status {
    enter(|| {
        handle::remove(handle).ok_or(status::NOT_INITIALIZED)?;
        ask(function::DESTROY, &[handle as u64], PointerMode::Host)
    })
}

/// `cublasGetVersion`.
///
/// # Safety
///
/// `version` is NULL or the caller's to write to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cublasGetVersion_v2(handle: CublasHandle, version: *mut i32) -> Status {
    enter(|| {
        find(handle)?;
        if version.is_null() {
            return Err(status::INVALID_VALUE);
        }
        let words = [handle as u64, version as u64];
        ask(function::VERSION, &words, PointerMode::Host)
    })
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
        sister()?.context().map_err(status_of)?;
        let words = [property as u64, value as u64];
        ask(function::PROPERTY, &words, PointerMode::Host)
    })
}

/// `cublasSetStream`. The handle has cuBLAS's own workspace afterwards, as there.
#[unsafe(no_mangle)]
pub extern "C" fn cublasSetStream_v2(handle: CublasHandle, stream: CUstream) -> Status {
    enter(|| {
        let known = find(handle)?;
        let id = sister()?.stream(stream as u64).map_err(status_of)?;
        let mut told = known.told();
        let is_new = told.give_stream(stream as usize, id);
        known.set_owed(&told);
        if is_new {
            tell_stream(handle, id)?;
        }
        Ok(())
    })
}

/// Tells cuBLAS a handle's stream.
pub(crate) fn tell_stream(handle: CublasHandle, id: u64) -> Result<(), Status> {
    let words = [handle as u64, id];
    post(function::STREAM, &words, PointerMode::Host)
}

/// `cublasGetStream`.
///
/// # Safety
///
/// `stream` is NULL or the caller's to write to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cublasGetStream_v2(handle: CublasHandle, stream: *mut CUstream) -> Status {
    enter(|| {
        let known = find(handle)?;
        let told = known.told().stream;
        // SAFETY: promised by the caller.
        unsafe { give(stream, told as CUstream) }
    })
}

/// `cublasSetPointerMode`.
#[unsafe(no_mangle)]
pub extern "C" fn cublasSetPointerMode_v2(handle: CublasHandle, mode: i32) -> Status {
    enter(|| {
        let known = find(handle)?;
        let mode = match mode {
            0 => PointerMode::Host,
            1 => PointerMode::Device,
            _ => return Err(status::INVALID_VALUE),
        };
        if known.mode() != mode {
            let words = [handle as u64, mode as u64];
            post(function::POINTER_MODE, &words, PointerMode::Host)?;
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
pub unsafe extern "C" fn cublasGetPointerMode_v2(handle: CublasHandle, mode: *mut i32) -> Status {
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
    handle: CublasHandle,
    workspace: *mut c_void,
    workspaceSizeInBytes: usize,
) -> Status {
    enter(|| {
        let known = find(handle)?;
        let (address, bytes) = (workspace as u64, workspaceSizeInBytes as u64);
        let words = [handle as u64, address, bytes];
        // One that cuBLAS would refuse it refuses itself.
        let is_dubious = address == 0 || bytes == 0 || !address.is_multiple_of(WORKSPACE_ALIGNMENT);
        if is_dubious {
            known.settle(|stream| tell_stream(handle, stream))?;
            ask(function::WORKSPACE, &words, PointerMode::Host)?;
        }
        let mut told = known.told();
        let is_new = told.give_workspace(address, bytes);
        known.set_owed(&told);
        if is_new && !is_dubious {
            post(function::WORKSPACE, &words, PointerMode::Host)?;
        }
        Ok(())
    })
}

/// Tells cuBLAS a setting, unless it was told the same before.
fn set(function: &Function, of: Setting, handle: CublasHandle, value: i32) -> Status {
    enter(|| {
        let known = find(handle)?;
        let mut told = known.told();
        if told.setting(of) != value {
            let words = [handle as u64, value as u64];
            ask(function, &words, PointerMode::Host)?;
            told.set(of, value);
            drop(told);
            known.forget_accepted();
        }
        Ok(())
    })
}

/// Says what cuBLAS was told.
///
/// # Safety
///
/// The pointer is NULL or the caller's to write to.
unsafe fn get(of: Setting, handle: CublasHandle, to: *mut i32) -> Status {
    enter(|| {
        let known = find(handle)?;
        let value = known.told().setting(of);
        // SAFETY: promised by the caller.
        unsafe { give(to, value) }
    })
}

macro_rules! settings {
    ($($set:ident $get:ident $of:ident $op:ident;)*) => {$(
        /// cuBLAS's function of this name.
        #[unsafe(no_mangle)]
        pub extern "C" fn $set(handle: CublasHandle, value: i32) -> Status {
            set(function::$op, Setting::$of, handle, value)
        }

        /// cuBLAS's function of this name.
        ///
        /// # Safety
        ///
        /// `value` is NULL or the caller's to write to.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $get(handle: CublasHandle, value: *mut i32) -> Status {
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
