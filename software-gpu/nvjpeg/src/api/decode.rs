// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Decoding: one JPEG, one in three steps, and batches.

use std::ffi::{c_int, c_void};
use std::sync::Arc;

use gpgpu_stand_in::{call::Argument, driver::Name};

use super::export;
use crate::decoded::{Channel, Format, Region, Written, decode};
use crate::objects::{DECODE_PARAMS, DECODERS, Data, HANDLES, Raw, STATES, STREAMS, State, find};
use crate::types::{Image, Result, Status};

/// Queues the writing of decoded channels.
fn write(state: &State, channels: Arc<Vec<Channel>>, image: Image, stream: *mut c_void) -> Result {
    let written = Written::new(channels, image)?;
    let queued = state
        .work
        .queue(Name(stream), false, move |memory| written.write(memory));
    queued.map_err(|_| Status::ExecutionFailed)
}

/// Decodes the JPEG of a stream by parameters.
fn decode_stream(stream: Raw, params: Raw) -> Result<Arc<Vec<Channel>>> {
    let (stream, params) = (find(&STREAMS, stream)?, find(&DECODE_PARAMS, params)?);
    let (format, region) = (*params.format.lock(), params.region.lock().clone());
    let parsed = stream.0.lock();
    let (_, data) = parsed.as_ref().ok_or(Status::InvalidParameter)?;
    Ok(Arc::new(decode(data.bytes(), format, &region)?))
}

/// Decodes a batch in the output format `format`.
fn decode_batch(
    state: &State,
    data: Argument<u64>,
    lengths: Argument<u64>,
    images: Argument<Image>,
    stream: *mut c_void,
    format: impl Fn(usize, Format) -> Result<(Format, Region)>,
) -> Result {
    let (count, own) = state.batch.lock().ok_or(Status::InvalidParameter)?;
    let (data, lengths) = (
        data.array::<Status>(count)?,
        lengths.array::<Status>(count)?,
    );
    let images = images.array::<Status>(count)?;
    // All are decoded before the first is written.
    let mut decoded = Vec::with_capacity(count);
    for at in 0..count {
        let jpeg = Data::new(data[at] as *const u8, lengths[at] as usize)?;
        let (format, region) = format(at, own)?;
        decoded.push(Arc::new(decode(jpeg.bytes(), format, &region)?));
    }
    for (channels, image) in decoded.into_iter().zip(images) {
        write(state, channels, image, stream)?;
    }
    Ok(())
}

export! {
    fn nvjpegDecode(
        handle: Raw, state: Raw, data: *const u8, length: usize, format: c_int, image: Argument<Image>,
        stream: *mut c_void,
    ) {
        find(&HANDLES, handle)?;
        let state = find(&STATES, state)?;
        let (data, image) = (Data::new(data, length)?, image.get::<Status>()?);
        let channels = decode(data.bytes(), Format::from_number(format)?, &None)?;
        write(&state, Arc::new(channels), image, stream)
    }

    fn nvjpegDecodeJpeg(
        handle: Raw, decoder: Raw, state: Raw, jpeg: Raw, image: Argument<Image>, params: Raw,
        stream: *mut c_void,
    ) {
        find(&HANDLES, handle)?;
        find(&DECODERS, decoder)?;
        let (state, image) = (find(&STATES, state)?, image.get::<Status>()?);
        write(&state, decode_stream(jpeg, params)?, image, stream)
    }

    fn nvjpegDecodeJpegHost(handle: Raw, decoder: Raw, state: Raw, params: Raw, jpeg: Raw) {
        find(&HANDLES, handle)?;
        find(&DECODERS, decoder)?;
        let state = find(&STATES, state)?;
        state.check_attached()?;
        let mut decoded = state.decoded.lock();
        *decoded = None;
        *decoded = Some(decode_stream(jpeg, params)?);
        Ok(())
    }

    /// There is nothing to transfer: pixels go with the last step.
    fn nvjpegDecodeJpegTransferToDevice(
        handle: Raw, decoder: Raw, state: Raw, jpeg: Raw, _stream: *mut c_void,
    ) {
        find(&HANDLES, handle)?;
        find(&DECODERS, decoder)?;
        find(&STREAMS, jpeg)?;
        let state = find(&STATES, state)?;
        let decoded = state.decoded.lock();
        decoded.as_ref().map(|_| ()).ok_or(Status::InvalidParameter)
    }

    fn nvjpegDecodeJpegDevice(
        handle: Raw, decoder: Raw, state: Raw, image: Argument<Image>, stream: *mut c_void,
    ) {
        find(&HANDLES, handle)?;
        find(&DECODERS, decoder)?;
        let (state, image) = (find(&STATES, state)?, image.get::<Status>()?);
        state.check_attached()?;
        let decoded = state.decoded.lock().clone();
        write(&state, decoded.ok_or(Status::InvalidParameter)?, image, stream)
    }

    fn nvjpegDecodeBatchedInitialize(
        handle: Raw, state: Raw, count: c_int, _threads: c_int, format: c_int,
    ) {
        find(&HANDLES, handle)?;
        let state = find(&STATES, state)?;
        let mut batch = state.batch.lock();
        *batch = None;
        let count = usize::try_from(count).ok().filter(|count| *count > 0);
        let count = count.ok_or(Status::InvalidParameter)?;
        *batch = Some((count, Format::from_number(format)?));
        Ok(())
    }

    /// Nothing is allocated here.
    fn nvjpegDecodeBatchedPreAllocate(
        handle: Raw, state: Raw, _count: c_int, _width: c_int, _height: c_int, _subsampling: c_int, _format: c_int,
    ) {
        find(&HANDLES, handle)?;
        find(&STATES, state).map(drop)
    }

    fn nvjpegDecodeBatched(
        handle: Raw, state: Raw, data: Argument<u64>, lengths: Argument<u64>, images: Argument<Image>,
        stream: *mut c_void,
    ) {
        find(&HANDLES, handle)?;
        let state = find(&STATES, state)?;
        decode_batch(&state, data, lengths, images, stream, |_, own| Ok((own, None)))
    }

    fn nvjpegDecodeBatchedEx(
        handle: Raw, state: Raw, data: Argument<u64>, lengths: Argument<u64>, images: Argument<Image>,
        params: Argument<u64>, stream: *mut c_void,
    ) {
        find(&HANDLES, handle)?;
        let state = find(&STATES, state)?;
        let (count, _) = state.batch.lock().ok_or(Status::InvalidParameter)?;
        let params = params.array::<Status>(count)?;
        decode_batch(&state, data, lengths, images, stream, |at, own| {
            let params = find(&DECODE_PARAMS, params[at] as Raw)?;
            let region = params.region.lock().clone();
            Ok((own, region))
        })
    }
}
