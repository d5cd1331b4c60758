// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Creation and destruction of handles, and their settings.

use gpgpu_library::{
    Object, Status, forward,
    forward::{Request, set_stream},
    give,
    handle::find,
};
use gpgpu_protocol::{
    cuda::CUstream,
    libraries::{Function, Library::Cusparse, call::PointerMode, cusparse::status},
};

use crate::{HANDLE, LIBRARY, enter};

const CREATE: &Function = Cusparse.find("cusparseCreate");
const DESTROY: &Function = Cusparse.find("cusparseDestroy");
const POINTER_MODE: &Function = Cusparse.find("cusparseSetPointerMode");

/// `cusparseCreate`.
///
/// # Safety
///
/// `handle` is NULL or the caller's to write to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cusparseCreate(handle: *mut Object) -> Status {
    enter(|| forward::send(CREATE, &[handle as u64]))
}

/// `cusparseDestroy`.
#[unsafe(no_mangle)]
pub extern "C" fn cusparseDestroy(handle: Object) -> Status {
    enter(|| forward::send(DESTROY, &[handle as u64]))
}

/// `cusparseSetStream`.
#[unsafe(no_mangle)]
pub extern "C" fn cusparseSetStream(handle: Object, streamId: CUstream) -> Status {
    enter(|| set_stream(HANDLE, handle, streamId))
}

/// `cusparseGetStream`.
///
/// # Safety
///
/// `streamId` is NULL or the caller's to write to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cusparseGetStream(handle: Object, streamId: *mut CUstream) -> Status {
    enter(|| {
        let told = find(HANDLE, handle)?.told().stream;
        // SAFETY: promised by the caller.
        unsafe { give(LIBRARY, streamId, told as CUstream) }
    })
}

/// `cusparseSetPointerMode`.
#[unsafe(no_mangle)]
pub extern "C" fn cusparseSetPointerMode(handle: Object, mode: i32) -> Status {
    enter(|| {
        let known = find(HANDLE, handle)?;
        let mode = match mode {
            0 => PointerMode::Host,
            1 => PointerMode::Device,
            _ => return Err(status::INVALID_VALUE),
        };
        if known.mode() != mode {
            let words = [handle as u64, mode as u64];
            Request::new(POINTER_MODE, &words).post()?;
            known.set_mode(mode);
        }
        Ok(())
    })
}

/// `cusparseGetPointerMode`.
///
/// # Safety
///
/// `mode` is NULL or the caller's to write to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cusparseGetPointerMode(handle: Object, mode: *mut i32) -> Status {
    enter(|| {
        let known = find(HANDLE, handle)?;
        // SAFETY: promised by the caller.
        unsafe { give(LIBRARY, mode, known.mode() as i32) }
    })
}
