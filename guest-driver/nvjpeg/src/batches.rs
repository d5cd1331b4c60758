// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Batches: arrays whose length was set in the state.

use std::{collections::HashMap, ffi::c_int};

use gpgpu_library::{Object, Status, forward};
use gpgpu_locks::{Mutex, MutexGuard};
use gpgpu_protocol::{
    cuda::CUstream,
    libraries::{
        Function, Library,
        nvjpeg::{
            INLINE, MOST_IMAGES,
            form::{Batch, IMAGE_WORDS, Image},
            status,
        },
    },
};

use crate::{bytes_at, enter, jpegs::ahead, send, stream_id};

/// The number of a batch's images, by state. The entry of a destroyed state may stay, because ids are never reused.
fn sizes() -> MutexGuard<'static, Option<HashMap<u64, usize>>> {
    static SIZES: Mutex<Option<HashMap<u64, usize>>> = Mutex::new(None);
    SIZES.lock()
}

/// `nvjpegDecodeBatchedInitialize`. The host chooses the number of threads, up to `max_cpu_threads`.
#[unsafe(no_mangle)]
pub extern "C" fn nvjpegDecodeBatchedInitialize(
    handle: Object,
    jpeg_handle: Object,
    batch_size: c_int,
    max_cpu_threads: c_int,
    output_format: c_int,
) -> Status {
    const FUNCTION: &Function = Library::Nvjpeg.find("nvjpegDecodeBatchedInitialize");
    enter(|| {
        let state = jpeg_handle as u64;
        let told = [batch_size, max_cpu_threads, output_format].map(|word| word as u64);
        let [size, threads, format] = told;
        forward::send(FUNCTION, &[handle as u64, state, size, threads, format])?;
        let size = usize::try_from(batch_size).unwrap_or(0);
        sizes().get_or_insert_default().insert(state, size);
        Ok(())
    })
}

/// Arrays of the program, each with one value for each image of its batch.
struct Arrays {
    data: *const *const u8,
    lengths: *const usize,
    destinations: *const [u64; IMAGE_WORDS],
    /// NULL if there are no parameters.
    params: *const Object,
}

impl Arrays {
    /// An image's JPEG and its destination.
    ///
    /// # Safety
    ///
    /// The arrays have one, and the JPEG as many bytes as its length says.
    unsafe fn image<'a>(&self, at: usize) -> Result<(&'a [u8], Image), Status> {
        // SAFETY: promised by the caller.
        let (jpeg, destination) = unsafe {
            let data = self.data.add(at).read();
            let jpeg = bytes_at(data, self.lengths.add(at).read())?;
            (jpeg, self.destinations.add(at).read())
        };
        let params = match self.params.is_null() {
            true => 0,
            // SAFETY: promised by the caller.
            false => unsafe { self.params.add(at).read() as u64 },
        };
        let length = jpeg.len() as u64;
        Ok((
            jpeg,
            Image {
                length,
                destination,
                params,
            },
        ))
    }

    /// Sends a call with all images.
    ///
    /// # Safety
    ///
    /// As [`Arrays::image`], for as many images as the state was told.
    unsafe fn decode(
        &self,
        function: &'static Function,
        handle: Object,
        state: Object,
        stream: CUstream,
    ) -> Result<(), Status> {
        let count = sizes()
            .as_ref()
            .and_then(|all| all.get(&(state as u64)).copied());
        let count = count.filter(|count| (1..=MOST_IMAGES).contains(count));
        let count = count.ok_or(status::INVALID_PARAMETER)?;
        if self.data.is_null() || self.lengths.is_null() || self.destinations.is_null() {
            return Err(status::INVALID_PARAMETER);
        }
        // SAFETY: promised by the caller.
        let all = (0..count).map(|at| unsafe { self.image(at) });
        let (jpegs, images): (Vec<_>, Vec<_>) =
            all.collect::<Result<Vec<_>, _>>()?.into_iter().unzip();
        let stream = stream_id(stream)?;
        let call = |blob: &Batch, more| {
            let words = [handle as u64, state as u64, 0, more, stream];
            send(function, &words, &blob.bytes())
        };
        let mut batch = Batch {
            images,
            data: Vec::new(),
        };
        let described = batch.bytes().len() as u64;
        let total = batch.total().ok_or(status::INVALID_PARAMETER)?;
        if total.saturating_add(described) <= INLINE as u64 {
            batch.data = jpegs.concat();
            return call(&batch, 0);
        }
        ahead(handle, &jpegs, |id| call(&batch, id))
    }
}

/// `nvjpegDecodeBatched`.
///
/// # Safety
///
/// Arrays are NULL or have as many values as the state was told, and each JPEG as many bytes as its length says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvjpegDecodeBatched(
    handle: Object,
    jpeg_handle: Object,
    data: *const *const u8,
    lengths: *const usize,
    destinations: *const [u64; IMAGE_WORDS],
    stream: CUstream,
) -> Status {
    const FUNCTION: &Function = Library::Nvjpeg.find("nvjpegDecodeBatched");
    let arrays = Arrays {
        data,
        lengths,
        destinations,
        params: std::ptr::null(),
    };
    // SAFETY: promised by the caller.
    enter(|| unsafe { arrays.decode(FUNCTION, handle, jpeg_handle, stream) })
}

/// `nvjpegDecodeBatchedEx`.
///
/// # Safety
///
/// As [`nvjpegDecodeBatched`]; `decode_params` is such an array, too.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvjpegDecodeBatchedEx(
    handle: Object,
    jpeg_handle: Object,
    data: *const *const u8,
    lengths: *const usize,
    destinations: *const [u64; IMAGE_WORDS],
    decode_params: *const Object,
    stream: CUstream,
) -> Status {
    const FUNCTION: &Function = Library::Nvjpeg.find("nvjpegDecodeBatchedEx");
    let arrays = Arrays {
        data,
        lengths,
        destinations,
        params: decode_params,
    };
    enter(|| {
        if decode_params.is_null() {
            return Err(status::INVALID_PARAMETER);
        }
        // SAFETY: promised by the caller.
        unsafe { arrays.decode(FUNCTION, handle, jpeg_handle, stream) }
    })
}
