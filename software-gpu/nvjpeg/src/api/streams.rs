// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Parsed JPEGs, and parameters of decoding.

use std::ffi::{c_int, c_uint};

use gpgpu_stand_in::call::Answer;

use super::export;
use crate::decoded::Format;
use crate::header::Header;
use crate::objects::{DECODE_PARAMS, DECODERS, Data, HANDLES, Raw, STREAMS, find};
use crate::types::{COMPONENTS, Result, Status};

/// Describes the JPEG of a stream.
fn header(stream: Raw) -> Result<Header> {
    let stream = find(&STREAMS, stream)?;
    let parsed = stream.0.lock();
    let parsed = parsed.as_ref().ok_or(Status::InvalidParameter)?;
    Ok(parsed.0.clone())
}

fn parse(handle: Raw, data: *const u8, length: usize, stream: Raw) -> Result {
    find(&HANDLES, handle)?;
    let stream = find(&STREAMS, stream)?;
    let mut parsed = stream.0.lock();
    *parsed = None;
    let data = Data::new(data, length)?;
    *parsed = Some((Header::read(data.bytes())?, data));
    Ok(())
}

/// 0 if a stream is decoded here, and 1 if not.
fn support(stream: Raw) -> Result<c_int> {
    let header = header(stream)?;
    let is_good = matches!(header.encoding, 0xc0..=0xc2)
        && matches!(header.components.len(), 1 | 3)
        && header.precision == 8;
    Ok(c_int::from(!is_good))
}

export! {
    fn nvjpegGetImageInfo(
        handle: Raw, data: *const u8, length: usize, components: Answer<c_int>, subsampling: Answer<c_int>,
        widths: Answer<c_int>, heights: Answer<c_int>,
    ) {
        find(&HANDLES, handle)?;
        let data = Data::new(data, length)?;
        let header = Header::read(data.bytes())?;
        components.set::<Status>(header.components.len() as c_int)?;
        subsampling.set::<Status>(header.subsampling().map_or(-1, |of| of.number()))?;
        for at in 0..COMPONENTS {
            let (width, height) = header.size(at).unwrap_or_default();
            widths.at(at).set::<Status>(width as c_int)?;
            heights.at(at).set::<Status>(height as c_int)?;
        }
        Ok(())
    }

    fn nvjpegJpegStreamParse(
        handle: Raw, data: *const u8, length: usize, _metadata: c_int, _save: c_int, stream: Raw,
    ) {
        parse(handle, data, length, stream)
    }

    fn nvjpegJpegStreamParseHeader(handle: Raw, data: *const u8, length: usize, stream: Raw) {
        parse(handle, data, length, stream)
    }

    fn nvjpegJpegStreamGetJpegEncoding(stream: Raw, encoding: Answer<c_int>) {
        encoding.set(header(stream)?.encoding.into())
    }

    fn nvjpegJpegStreamGetFrameDimensions(stream: Raw, width: Answer<c_uint>, height: Answer<c_uint>) {
        let header = header(stream)?;
        width.set::<Status>(header.width as c_uint)?;
        height.set(header.height as c_uint)
    }

    fn nvjpegJpegStreamGetComponentsNum(stream: Raw, count: Answer<c_uint>) {
        count.set(header(stream)?.components.len() as c_uint)
    }

    fn nvjpegJpegStreamGetComponentDimensions(
        stream: Raw, component: c_uint, width: Answer<c_uint>, height: Answer<c_uint>,
    ) {
        let size = header(stream)?.size(component as usize);
        let (columns, rows) = size.ok_or(Status::InvalidParameter)?;
        width.set::<Status>(columns as c_uint)?;
        height.set(rows as c_uint)
    }

    fn nvjpegJpegStreamGetExifOrientation(stream: Raw, orientation: Answer<c_int>) {
        orientation.set(header(stream)?.orientation.into())
    }

    fn nvjpegJpegStreamGetSamplePrecision(stream: Raw, precision: Answer<c_uint>) {
        precision.set(header(stream)?.precision.into())
    }

    fn nvjpegJpegStreamGetChromaSubsampling(stream: Raw, subsampling: Answer<c_int>) {
        subsampling.set(header(stream)?.subsampling().map_or(-1, |of| of.number()))
    }

    fn nvjpegDecoderJpegSupported(decoder: Raw, stream: Raw, params: Raw, supported: Answer<c_int>) {
        find(&DECODERS, decoder)?;
        find(&DECODE_PARAMS, params)?;
        supported.set(support(stream)?)
    }

    fn nvjpegDecodeBatchedSupported(handle: Raw, stream: Raw, supported: Answer<c_int>) {
        find(&HANDLES, handle)?;
        supported.set(support(stream)?)
    }

    fn nvjpegDecodeBatchedSupportedEx(handle: Raw, stream: Raw, params: Raw, supported: Answer<c_int>) {
        find(&HANDLES, handle)?;
        find(&DECODE_PARAMS, params)?;
        supported.set(support(stream)?)
    }

    fn nvjpegDecodeParamsSetOutputFormat(params: Raw, format: c_int) {
        *find(&DECODE_PARAMS, params)?.format.lock() = Format::from_number(format)?;
        Ok(())
    }

    /// A side of -1 is the whole image.
    fn nvjpegDecodeParamsSetROI(params: Raw, x: c_int, y: c_int, width: c_int, height: c_int) {
        let params = find(&DECODE_PARAMS, params)?;
        let region = match (width, height) {
            (-1, -1) => None,
            _ => {
                let [x, y, width, height] = [x, y, width, height].map(usize::try_from);
                let wrong = |_| Status::InvalidParameter;
                let (x, y) = (x.map_err(wrong)?, y.map_err(wrong)?);
                Some((x..x + width.map_err(wrong)?, y..y + height.map_err(wrong)?))
            }
        };
        *params.region.lock() = region;
        Ok(())
    }

    /// Scaling is not supported.
    fn nvjpegDecodeParamsSetScaleFactor(params: Raw, factor: c_int) {
        find(&DECODE_PARAMS, params)?;
        match factor {
            0 => Ok(()),
            _ => Err(Status::NotSupported),
        }
    }

    /// Images are not rotated.
    fn nvjpegDecodeParamsSetExifOrientation(params: Raw, orientation: c_int) {
        find(&DECODE_PARAMS, params)?;
        match orientation {
            0 | 1 => Ok(()),
            _ => Err(Status::NotSupported),
        }
    }

    /// Images of four components are not decoded here.
    fn nvjpegDecodeParamsSetAllowCMYK(params: Raw, allow: c_int) {
        find(&DECODE_PARAMS, params)?;
        match allow {
            0 => Ok(()),
            _ => Err(Status::NotSupported),
        }
    }
}
