// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! `libnvjpeg.so` for a virtio-gpgpu guest. It sends calls to the host, whose own nvJPEG executes them.
//!
//! JPEGs are sent as bytes ([`jpegs`]), one or a batch ([`batches`]); an encoded JPEG is fetched piece by piece
//! ([`encoded`]). Images are in device memory, and only their addresses are sent. Handles and other objects are made in
//! [`objects`]. [`streams`] has the functions that only need their stream's id.

#![allow(non_snake_case)]

mod batches;
mod encoded;
mod exports;
mod jpegs;
mod objects;
#[cfg(test)]
mod page;
mod streams;
mod unsupported;

use gpgpu_library::{
    Object, Status,
    forward::{self, Request},
    handle,
};
use gpgpu_protocol::libraries::{Class, Function, Library, nvjpeg::status};

/// The library in the tables.
const LIBRARY: Library = Library::Nvjpeg;
/// The class of its handles.
const HANDLE: Class = Class::NvjpegHandle;

/// Runs the body of an exported function, and turns a panic into a status.
fn enter(body: impl FnOnce() -> Result<(), Status>) -> Status {
    gpgpu_library::enter(LIBRARY, body)
}

/// Sends a call on the handle that is its first argument, with the bytes of its blob.
fn send(function: &'static Function, words: &[u64], blob: &[u8]) -> Result<(), Status> {
    handle::with(HANDLE, words[0] as Object, |known| {
        let call = Request::new(function, words);
        Request { blob, ..call }.send(known)
    })
}

/// The id of a stream.
fn stream_id(stream: gpgpu_protocol::cuda::CUstream) -> Result<u64, Status> {
    forward::stream_id(LIBRARY, stream as u64)
}

/// The bytes at an address of the program.
///
/// # Errors
///
/// `INVALID_PARAMETER` if the address is NULL.
///
/// # Safety
///
/// The address is NULL, or there are so many bytes, which do not change while the result is used.
unsafe fn bytes_at<'a>(data: *const u8, length: usize) -> Result<&'a [u8], Status> {
    if data.is_null() || length > isize::MAX as usize {
        return Err(status::INVALID_PARAMETER);
    }
    // SAFETY: promised by the caller.
    Ok(unsafe { std::slice::from_raw_parts(data, length) })
}
