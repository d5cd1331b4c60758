// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Functions that take a JPEG at an address of the program. Its bytes are sent in the call, or ahead of it if they do
//! not fit.

use std::ffi::{c_int, c_void};

use gpgpu_library::{
    Object, Status,
    forward::{self, new_object},
};
use gpgpu_protocol::{
    cuda::CUstream,
    libraries::{
        Class, Function, Library,
        nvjpeg::{INLINE, PIECE},
    },
};

use crate::{bytes_at, enter, send, stream_id};

const BYTES: &Function = Library::Nvjpeg.find("gpgpuJpegBytes");
const FILL: &Function = Library::Nvjpeg.find("gpgpuJpegBytesFill");
const END: &Function = Library::Nvjpeg.find("gpgpuJpegBytesEnd");

/// Sends bytes ahead of a call, then lets `call` send it with the id of the object that holds them.
///
/// # Errors
///
/// `ALLOCATOR_FAILURE` if the host keeps too many bytes for this process; the status for libcuda's code; the errors of
/// `call`.
pub fn ahead(
    handle: Object,
    parts: &[&[u8]],
    call: impl FnOnce(u64) -> Result<(), Status>,
) -> Result<(), Status> {
    let length: usize = parts.iter().map(|part| part.len()).sum();
    let id = new_object(Class::NvjpegBytes)?;
    send(BYTES, &[handle as u64, id, length as u64], &[])?;
    let fill = || {
        let mut at = 0;
        for piece in parts.iter().flat_map(|part| part.chunks(PIECE)) {
            send(FILL, &[handle as u64, id, at, 0], piece)?;
            at += piece.len() as u64;
        }
        Ok(())
    };
    let done = fill().and_then(|()| call(id));
    // The host keeps what the call needs. An error here would hide the call's result.
    let _ = forward::send(END, &[id]);
    done
}

/// Makes a call with a JPEG. `call` gets the bytes that the call carries, and the id of the object with the bytes that
/// were sent ahead.
fn with(
    handle: Object,
    jpeg: &[u8],
    call: impl FnOnce(&[u8], u64) -> Result<(), Status>,
) -> Result<(), Status> {
    match jpeg.len() {
        ..=INLINE => call(jpeg, 0),
        _ => ahead(handle, &[jpeg], |id| call(&[], id)),
    }
}

/// `nvjpegGetImageInfo`. Each result pointer may be NULL.
///
/// # Safety
///
/// `data` has `length` bytes. The others are NULL or the caller's to write to; `widths` and `heights` have four numbers
/// each.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvjpegGetImageInfo(
    handle: Object,
    data: *const u8,
    length: usize,
    nComponents: *mut c_int,
    subsampling: *mut c_int,
    widths: *mut [c_int; 4],
    heights: *mut [c_int; 4],
) -> Status {
    const FUNCTION: &Function = Library::Nvjpeg.find("nvjpegGetImageInfo");
    enter(|| {
        // SAFETY: promised by the caller.
        let jpeg = unsafe { bytes_at(data, length) }?;
        let (mut components, mut sampling) = (0, 0);
        let (mut all_widths, mut all_heights) = ([0; 4], [0; 4]);
        with(handle, jpeg, |data, more| {
            let words = [
                handle as u64,
                0,
                more,
                &raw mut components as u64,
                &raw mut sampling as u64,
                &raw mut all_widths as u64,
                &raw mut all_heights as u64,
            ];
            send(FUNCTION, &words, data)
        })?;
        // SAFETY: promised by the caller.
        unsafe {
            if let Some(to) = nComponents.as_mut() {
                *to = components;
            }
            if let Some(to) = subsampling.as_mut() {
                *to = sampling;
            }
            if let Some(to) = widths.as_mut() {
                *to = all_widths;
            }
            if let Some(to) = heights.as_mut() {
                *to = all_heights;
            }
        }
        Ok(())
    })
}

/// `nvjpegDecode`.
///
/// # Safety
///
/// `data` has `length` bytes; `destination` is NULL or an image.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvjpegDecode(
    handle: Object,
    jpeg_handle: Object,
    data: *const u8,
    length: usize,
    output_format: c_int,
    destination: *const c_void,
    stream: CUstream,
) -> Status {
    const FUNCTION: &Function = Library::Nvjpeg.find("nvjpegDecode");
    enter(|| {
        // SAFETY: promised by the caller.
        let jpeg = unsafe { bytes_at(data, length) }?;
        let stream = stream_id(stream)?;
        with(handle, jpeg, |data, more| {
            let words = [
                handle as u64,
                jpeg_handle as u64,
                0,
                more,
                output_format as u64,
                destination as u64,
                stream,
            ];
            send(FUNCTION, &words, data)
        })
    })
}

/// `nvjpegDecodeBatchedParseJpegTables`.
///
/// # Safety
///
/// `data` has `length` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvjpegDecodeBatchedParseJpegTables(
    handle: Object,
    jpeg_handle: Object,
    data: *const u8,
    length: usize,
) -> Status {
    const FUNCTION: &Function = Library::Nvjpeg.find("nvjpegDecodeBatchedParseJpegTables");
    enter(|| {
        // SAFETY: promised by the caller.
        let jpeg = unsafe { bytes_at(data, length) }?;
        with(handle, jpeg, |data, more| {
            send(
                FUNCTION,
                &[handle as u64, jpeg_handle as u64, 0, more],
                data,
            )
        })
    })
}

/// `nvjpegJpegStreamParse`. The host keeps the bytes as long as the stream needs them, whatever the program asks.
///
/// # Safety
///
/// `data` has `length` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvjpegJpegStreamParse(
    handle: Object,
    data: *const u8,
    length: usize,
    save_metadata: c_int,
    save_stream: c_int,
    jpeg_stream: Object,
) -> Status {
    const FUNCTION: &Function = Library::Nvjpeg.find("nvjpegJpegStreamParse");
    enter(|| {
        // SAFETY: promised by the caller.
        let jpeg = unsafe { bytes_at(data, length) }?;
        with(handle, jpeg, |data, more| {
            let words = [
                handle as u64,
                0,
                more,
                save_metadata as u64,
                save_stream as u64,
                jpeg_stream as u64,
            ];
            send(FUNCTION, &words, data)
        })
    })
}

macro_rules! parse {
    ($($name:ident;)*) => {$(
        /// nvJPEG's function of this name.
        ///
        /// # Safety
        ///
        /// `data` has `length` bytes.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(
            handle: Object,
            data: *const u8,
            length: usize,
            jpeg_stream: Object,
        ) -> Status {
            const FUNCTION: &Function = Library::Nvjpeg.find(stringify!($name));
            enter(|| {
                // SAFETY: promised by the caller.
                let jpeg = unsafe { bytes_at(data, length) }?;
                with(handle, jpeg, |data, more| {
                    send(FUNCTION, &[handle as u64, 0, more, jpeg_stream as u64], data)
                })
            })
        }
    )*};
}

parse! {
    nvjpegJpegStreamParseHeader;
    nvjpegJpegStreamParseTables;
}
