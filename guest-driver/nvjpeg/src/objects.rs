// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Handles, and the objects that are made from a handle.

use std::ffi::{c_int, c_uint, c_void};

use gpgpu_client::log;
use gpgpu_library::{
    Object, Status,
    forward::{self, new_object},
};
use gpgpu_protocol::{
    cuda::CUstream,
    libraries::{
        Function, Library,
        nvjpeg::{DEVICE_BACKENDS, status},
    },
};

use crate::{enter, send, stream_id};

const CREATE: &Function = Library::Nvjpeg.find("nvjpegCreateEx");

/// Makes a handle. The program's allocators are refused, because the host cannot call them.
fn create(
    name: &'static str,
    backend: c_int,
    allocators: &[*const c_void],
    flags: c_uint,
    handle: *mut Object,
) -> Status {
    enter(|| {
        refuse_allocators(name, allocators)?;
        refuse_backend(name, backend)?;
        forward::send(CREATE, &[handle as u64, backend as u64, flags.into()])
    })
}

/// Refuses the program's allocators.
fn refuse_allocators(name: &'static str, allocators: &[*const c_void]) -> Result<(), Status> {
    if allocators.iter().all(|allocator| allocator.is_null()) {
        return Ok(());
    }
    log::refuse(name, "is not supported with allocators of the program's");
    Err(status::NOT_SUPPORTED)
}

/// Refuses backends that read JPEGs in device memory.
fn refuse_backend(name: &'static str, backend: c_int) -> Result<(), Status> {
    if !DEVICE_BACKENDS.contains(&backend) {
        return Ok(());
    }
    log::refuse(
        name,
        "is not supported with a backend that reads JPEGs in device memory",
    );
    Err(status::NOT_SUPPORTED)
}

/// `nvjpegCreate`.
///
/// # Safety
///
/// `handle` is NULL or the caller's to write to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvjpegCreate(
    backend: c_int,
    dev_allocator: *const c_void,
    handle: *mut Object,
) -> Status {
    create("nvjpegCreate", backend, &[dev_allocator], 0, handle)
}

/// `nvjpegCreateSimple`.
///
/// # Safety
///
/// `handle` is NULL or the caller's to write to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvjpegCreateSimple(handle: *mut Object) -> Status {
    create("nvjpegCreateSimple", 0, &[], 0, handle)
}

/// `nvjpegCreateEx`.
///
/// # Safety
///
/// `handle` is NULL or the caller's to write to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvjpegCreateEx(
    backend: c_int,
    dev_allocator: *const c_void,
    pinned_allocator: *const c_void,
    flags: c_uint,
    handle: *mut Object,
) -> Status {
    let allocators = [dev_allocator, pinned_allocator];
    create("nvjpegCreateEx", backend, &allocators, flags, handle)
}

/// `nvjpegCreateExV2`.
///
/// # Safety
///
/// `handle` is NULL or the caller's to write to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvjpegCreateExV2(
    backend: c_int,
    dev_allocator: *const c_void,
    pinned_allocator: *const c_void,
    flags: c_uint,
    handle: *mut Object,
) -> Status {
    let allocators = [dev_allocator, pinned_allocator];
    create("nvjpegCreateExV2", backend, &allocators, flags, handle)
}

macro_rules! properties {
    ($($name:ident)*) => {$(
        /// nvJPEG's function of this name.
        ///
        /// # Safety
        ///
        /// `value` is NULL or the caller's to write to.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(kind: c_int, value: *mut c_int) -> Status {
            const FUNCTION: &Function = Library::Nvjpeg.find(stringify!($name));
            enter(|| {
                if value.is_null() {
                    return Err(status::INVALID_PARAMETER);
                }
                forward::send(FUNCTION, &[kind as u64, value as u64])
            })
        }
    )*};
}

properties! { nvjpegGetProperty nvjpegGetCudartProperty }

/// Makes an object from a handle, and returns its id to the program. The call's words are `before`, the object's id,
/// and `behind`.
///
/// # Safety
///
/// `to` is NULL or the caller's to write to.
unsafe fn make(
    function: &'static Function,
    before: &[u64],
    behind: &[u64],
    to: *mut Object,
) -> Result<(), Status> {
    if to.is_null() {
        return Err(status::INVALID_PARAMETER);
    }
    let (_, class) = function.makes().ok_or(status::INTERNAL_ERROR)?;
    let id = new_object(class)?;
    send(function, &[before, &[id], behind].concat(), &[])?;
    // SAFETY: promised by the caller.
    unsafe { to.write(id as Object) };
    Ok(())
}

macro_rules! makes {
    ($($name:ident;)*) => {$(
        /// nvJPEG's function of this name.
        ///
        /// # Safety
        ///
        /// `made` is NULL or the caller's to write to.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(handle: Object, made: *mut Object) -> Status {
            const FUNCTION: &Function = Library::Nvjpeg.find(stringify!($name));
            // SAFETY: promised by the caller.
            enter(|| unsafe { make(FUNCTION, &[handle as u64], &[], made) })
        }
    )*};
}

makes! {
    nvjpegJpegStateCreate;
    nvjpegJpegStreamCreate;
    nvjpegDecodeParamsCreate;
}

macro_rules! makes_on_stream {
    ($($name:ident;)*) => {$(
        /// nvJPEG's function of this name.
        ///
        /// # Safety
        ///
        /// `made` is NULL or the caller's to write to.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(handle: Object, made: *mut Object, stream: CUstream) -> Status {
            const FUNCTION: &Function = Library::Nvjpeg.find(stringify!($name));
            enter(|| {
                let stream = stream_id(stream)?;
                // SAFETY: promised by the caller.
                unsafe { make(FUNCTION, &[handle as u64], &[stream], made) }
            })
        }
    )*};
}

makes_on_stream! {
    nvjpegEncoderStateCreate;
    nvjpegEncoderParamsCreate;
}

/// `nvjpegEncoderStateCreateWithBackend`.
///
/// # Safety
///
/// `encoder_state` is NULL or the caller's to write to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvjpegEncoderStateCreateWithBackend(
    handle: Object,
    encoder_state: *mut Object,
    backend: c_int,
    stream: CUstream,
) -> Status {
    const FUNCTION: &Function = Library::Nvjpeg.find("nvjpegEncoderStateCreateWithBackend");
    enter(|| {
        let stream = stream_id(stream)?;
        let (before, behind) = ([handle as u64], [backend as u64, stream]);
        // SAFETY: promised by the caller.
        unsafe { make(FUNCTION, &before, &behind, encoder_state) }
    })
}

/// `nvjpegDecoderCreate`.
///
/// # Safety
///
/// `decoder_handle` is NULL or the caller's to write to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvjpegDecoderCreate(
    nvjpeg_handle: Object,
    implementation: c_int,
    decoder_handle: *mut Object,
) -> Status {
    const FUNCTION: &Function = Library::Nvjpeg.find("nvjpegDecoderCreate");
    enter(|| {
        refuse_backend("nvjpegDecoderCreate", implementation)?;
        let before = [nvjpeg_handle as u64, implementation as u64];
        // SAFETY: promised by the caller.
        unsafe { make(FUNCTION, &before, &[], decoder_handle) }
    })
}

/// `nvjpegDecoderStateCreate`.
///
/// # Safety
///
/// `decoder_state` is NULL or the caller's to write to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvjpegDecoderStateCreate(
    nvjpeg_handle: Object,
    decoder_handle: Object,
    decoder_state: *mut Object,
) -> Status {
    const FUNCTION: &Function = Library::Nvjpeg.find("nvjpegDecoderStateCreate");
    let before = [nvjpeg_handle as u64, decoder_handle as u64];
    // SAFETY: promised by the caller.
    enter(|| unsafe { make(FUNCTION, &before, &[], decoder_state) })
}

macro_rules! buffers {
    ($($name:ident by $function:literal;)*) => {$(
        /// nvJPEG's function of this name.
        ///
        /// # Safety
        ///
        /// `buffer` is NULL or the caller's to write to.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(
            handle: Object,
            allocator: *const c_void,
            buffer: *mut Object,
        ) -> Status {
            const FUNCTION: &Function = Library::Nvjpeg.find($function);
            enter(|| {
                refuse_allocators(stringify!($name), &[allocator])?;
                // SAFETY: promised by the caller.
                unsafe { make(FUNCTION, &[handle as u64], &[], buffer) }
            })
        }
    )*};
}

buffers! {
    nvjpegBufferPinnedCreate by "nvjpegBufferPinnedCreate";
    nvjpegBufferPinnedCreateV2 by "nvjpegBufferPinnedCreate";
    nvjpegBufferDeviceCreate by "nvjpegBufferDeviceCreate";
    nvjpegBufferDeviceCreateV2 by "nvjpegBufferDeviceCreate";
}
