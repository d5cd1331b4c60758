// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Encoding.

use std::ffi::{c_int, c_uint, c_void};
use std::sync::Arc;

use gpgpu_stand_in::{
    call::{Answer, Argument},
    driver::Name,
    memory::Vector,
};

use super::export;
use crate::encoded::{Format, Settings, Source};
use crate::objects::{ENCODER_PARAMS, ENCODER_STATES, EncoderState, HANDLES, Raw, find};
use crate::types::{Image, Result, Status, Subsampling};

/// Changes a setting.
fn set(params: Raw, change: impl FnOnce(&mut Settings) -> Result) -> Result {
    change(&mut find(&ENCODER_PARAMS, params)?.0.lock())
}

/// Queues the encoding of an image.
fn encode(
    [handle, state, params]: [Raw; 3],
    image: Argument<Image>,
    format: Format,
    size: [c_int; 2],
    stream: *mut c_void,
) -> Result {
    find(&HANDLES, handle)?;
    let state = find(&ENCODER_STATES, state)?;
    let settings = *find(&ENCODER_PARAMS, params)?.0.lock();
    let [width, height] = size.map(|side| u16::try_from(side).ok());
    let source = Source {
        image: image.get::<Status>()?,
        format,
        width: width.ok_or(Status::InvalidParameter)?,
        height: height.ok_or(Status::InvalidParameter)?,
        settings,
    };
    source.check()?;
    let encoded = Arc::clone(&state.encoded);
    *encoded.lock() = None;
    *state.stream.lock() = Name(stream);
    let work = move |memory| {
        let jpeg = source.encode(memory)?;
        *encoded.lock() = Some(jpeg);
        Ok(())
    };
    let queued = state.work.queue(Name(stream), false, work);
    queued.map_err(|_| Status::ExecutionFailed)
}

/// The JPEG of a state, once its work is done.
fn encoded(handle: Raw, state: &EncoderState) -> Result<Vec<u8>> {
    find(&HANDLES, handle)?;
    let stream = *state.stream.lock();
    state.work.wait(stream);
    let jpeg = state.encoded.lock().clone();
    match jpeg.ok_or(Status::InvalidParameter)? {
        failed if failed.is_empty() => Err(Status::ExecutionFailed),
        jpeg => Ok(jpeg),
    }
}

export! {
    fn nvjpegEncoderParamsSetQuality(params: Raw, quality: c_int, _stream: *mut c_void) {
        set(params, |settings| {
            let quality = u8::try_from(quality).ok().filter(|of| (1..=100).contains(of));
            settings.quality = quality.ok_or(Status::InvalidParameter)?;
            Ok(())
        })
    }

    fn nvjpegEncoderParamsSetEncoding(params: Raw, encoding: c_int, _stream: *mut c_void) {
        set(params, |settings| {
            settings.is_progressive = match encoding {
                0xc0 => false,
                0xc2 => true,
                _ => return Err(Status::InvalidParameter),
            };
            Ok(())
        })
    }

    /// Has no effect: with its own tables an image would have a scan for each component.
    fn nvjpegEncoderParamsSetOptimizedHuffman(params: Raw, _optimized: c_int, _stream: *mut c_void) {
        find(&ENCODER_PARAMS, params).map(drop)
    }

    fn nvjpegEncoderParamsSetSamplingFactors(params: Raw, subsampling: c_int, _stream: *mut c_void) {
        set(params, |settings| {
            let of = Subsampling::from_number(subsampling);
            settings.subsampling = of.ok_or(Status::InvalidParameter)?;
            Ok(())
        })
    }

    /// jpeg-encoder 0.7 writes wrong images with an interval.
    fn nvjpegEncoderParamsSetRestartInterval(params: Raw, interval: c_uint, _stream: *mut c_void) {
        find(&ENCODER_PARAMS, params)?;
        match interval {
            0 => Ok(()),
            _ => Err(Status::NotSupported),
        }
    }

    fn nvjpegEncodeGetBufferSize(
        handle: Raw, params: Raw, width: c_int, height: c_int, length: Answer<usize>,
    ) {
        find(&HANDLES, handle)?;
        find(&ENCODER_PARAMS, params)?;
        let [width, height] = [width, height].map(|side| u16::try_from(side).ok());
        let width = width.ok_or(Status::InvalidParameter)?;
        let height = height.ok_or(Status::InvalidParameter)?;
        length.set(Source::most_bytes(width.into(), height.into()))
    }

    fn nvjpegEncodeYUV(
        handle: Raw, state: Raw, params: Raw, image: Argument<Image>, subsampling: c_int, width: c_int, height: c_int,
        stream: *mut c_void,
    ) {
        let format = Format::from_number(1, Subsampling::from_number(subsampling))?;
        encode([handle, state, params], image, format, [width, height], stream)
    }

    fn nvjpegEncodeImage(
        handle: Raw, state: Raw, params: Raw, image: Argument<Image>, format: c_int, width: c_int, height: c_int,
        stream: *mut c_void,
    ) {
        let format = Format::from_number(format, None)?;
        encode([handle, state, params], image, format, [width, height], stream)
    }

    fn nvjpegEncode(
        handle: Raw, state: Raw, params: Raw, image: Argument<Image>, subsampling: c_int, format: c_int, width: c_int,
        height: c_int, stream: *mut c_void,
    ) {
        let format = Format::from_number(format, Subsampling::from_number(subsampling))?;
        encode([handle, state, params], image, format, [width, height], stream)
    }

    /// Waits for the work; a program may take the bytes as soon as it has their number.
    fn nvjpegEncodeRetrieveBitstream(
        handle: Raw, state: Raw, data: Answer<u8>, length: Answer<usize>, _stream: *mut c_void,
    ) {
        let jpeg = encoded(handle, &*find(&ENCODER_STATES, state)?)?;
        if !data.is_null() {
            let room = length.as_argument().cast::<u64>().get::<Status>()?;
            if room < jpeg.len() as u64 {
                return Err(Status::InvalidParameter);
            }
            let to = data.address() as *mut u8;
            // SAFETY: by the API's contract there is as much room as the caller says.
            unsafe { to.copy_from_nonoverlapping(jpeg.as_ptr(), jpeg.len()) };
        }
        length.set(jpeg.len())
    }

    fn nvjpegEncodeRetrieveBitstreamDevice(
        handle: Raw, state: Raw, data: u64, length: Answer<usize>, stream: *mut c_void,
    ) {
        let state = find(&ENCODER_STATES, state)?;
        let jpeg = encoded(handle, &state)?;
        let bytes = jpeg.len();
        if data != 0 {
            let room = length.as_argument().cast::<u64>().get::<Status>()?;
            if room < bytes as u64 {
                return Err(Status::InvalidParameter);
            }
            let work = move |memory: gpgpu_stand_in::memory::Memory| {
                let to = Vector {
                    address: data,
                    count: jpeg.len() as i64,
                    step: 1,
                };
                memory.set_vector(to, &jpeg)
            };
            let queued = state.work.queue(Name(stream), false, work);
            queued.map_err(|_| Status::ExecutionFailed)?;
        }
        length.set(bytes)
    }
}
