// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Transfers an encoded JPEG to the program's memory.

use gpgpu_library::{Object, Status, forward::Request, handle};
use gpgpu_protocol::{
    cuda::CUstream,
    libraries::{
        Function, Library,
        nvjpeg::{PIECE, status},
    },
};

use crate::{HANDLE, enter, stream_id};

/// `nvjpegEncodeRetrieveBitstream`: returns the length if `data` is NULL, and the bytes otherwise. They are fetched in
/// pieces, and the call returns when all have arrived.
///
/// # Safety
///
/// `length` is NULL or the caller's to read and write; `data` is NULL or has as much room as it says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvjpegEncodeRetrieveBitstream(
    handle: Object,
    encoder_state: Object,
    data: *mut u8,
    length: *mut usize,
    stream: CUstream,
) -> Status {
    const FUNCTION: &Function = Library::Nvjpeg.find("nvjpegEncodeRetrieveBitstream");
    enter(|| {
        if length.is_null() {
            return Err(status::INVALID_PARAMETER);
        }
        let stream = stream_id(stream)?;
        let room = match data.is_null() {
            true => 0,
            // SAFETY: promised by the caller.
            false => unsafe { length.read() },
        };
        let mut told = 0_u64;
        let mut from = 0;
        loop {
            let words = [
                handle as u64,
                encoder_state as u64,
                room as u64,
                from as u64,
                stream,
                &raw mut told as u64,
                u64::from(!data.is_null()),
            ];
            let piece = handle::with(HANDLE, handle, |_| {
                let call = Request::new(FUNCTION, &words);
                let longest = PIECE.min(room - from);
                Request { longest, ..call }.ask_for()
            })?;
            if data.is_null() {
                break;
            }
            // Copy no more than the room that was announced to the host.
            let is_last = (from + piece.len()) as u64 >= told;
            if piece.len() > room - from || (piece.is_empty() && !is_last) {
                return Err(status::INTERNAL_ERROR);
            }
            // SAFETY: the caller has so much room, and the pieces are within it.
            unsafe {
                data.add(from)
                    .copy_from_nonoverlapping(piece.as_ptr(), piece.len())
            };
            from += piece.len();
            if is_last {
                break;
            }
        }
        let told = usize::try_from(told).map_err(|_| status::INTERNAL_ERROR)?;
        // SAFETY: promised by the caller.
        unsafe { length.write(told) };
        Ok(())
    })
}
