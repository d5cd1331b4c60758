// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Copies of rows.

use gpgpu_protocol::cuda::{
    CU_MEMORYTYPE_DEVICE, CU_MEMORYTYPE_HOST, CU_MEMORYTYPE_UNIFIED, CUDA_ERROR_INVALID_VALUE,
    CUDA_MEMCPY2D, CUDA_MEMCPY3D, CUmemorytype, CUstream,
};

use super::array_copy;
use super::copy::{Rows, Side, copy};
use crate::context::Context;
use crate::ffi::{Pointer, Result, export};
use crate::stream::Null;

/// The distance between rows. Without a given one the rows follow each other.
pub(super) fn pitch_of(given: usize, x: usize, width: usize) -> Result<usize> {
    let row = x.checked_add(width).ok_or(CUDA_ERROR_INVALID_VALUE)?;
    match given {
        0 => Ok(row),
        short if short < row => Err(CUDA_ERROR_INVALID_VALUE),
        pitch => Ok(pitch),
    }
}

/// The number of rows from one slice to the next. With one slice it has no meaning, and without a given one the slices
/// follow each other.
pub(super) fn slice_of(given: usize, y: usize, height: usize, depth: usize) -> Result<usize> {
    let rows = y.checked_add(height).ok_or(CUDA_ERROR_INVALID_VALUE)?;
    match given {
        0 => Ok(rows),
        short if short < rows && depth > 1 => Err(CUDA_ERROR_INVALID_VALUE),
        rows => Ok(rows),
    }
}

pub(super) fn side(
    memory_type: CUmemorytype,
    (host, device): (u64, u64),
    (x, y): (usize, usize),
    pitch: usize,
) -> Result<(u64, Side)> {
    let (base, side) = match memory_type {
        CU_MEMORYTYPE_HOST => (host, Side::Any),
        CU_MEMORYTYPE_DEVICE => (device, Side::Device),
        CU_MEMORYTYPE_UNIFIED => (device, Side::Any),
        _ => return Err(CUDA_ERROR_INVALID_VALUE),
    };
    if base == 0 {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    let start = y
        .checked_mul(pitch)
        .and_then(|skip| skip.checked_add(x))
        .and_then(|skip| base.checked_add(skip as u64));
    start.map(|s| (s, side)).ok_or(CUDA_ERROR_INVALID_VALUE)
}

/// Rows as a slice.
fn deepened(c: &CUDA_MEMCPY2D) -> CUDA_MEMCPY3D {
    CUDA_MEMCPY3D {
        srcXInBytes: c.srcXInBytes,
        srcY: c.srcY,
        srcZ: 0,
        srcLOD: 0,
        srcMemoryType: c.srcMemoryType,
        srcHost: c.srcHost,
        srcDevice: c.srcDevice,
        srcArray: c.srcArray,
        reserved0: std::ptr::null_mut(),
        srcPitch: c.srcPitch,
        srcHeight: 0,
        dstXInBytes: c.dstXInBytes,
        dstY: c.dstY,
        dstZ: 0,
        dstLOD: 0,
        dstMemoryType: c.dstMemoryType,
        dstHost: c.dstHost,
        dstDevice: c.dstDevice,
        dstArray: c.dstArray,
        reserved1: std::ptr::null_mut(),
        dstPitch: c.dstPitch,
        dstHeight: 0,
        WidthInBytes: c.WidthInBytes,
        Height: c.Height,
        Depth: 1,
    }
}

fn rows(
    cx: &Context,
    what: Pointer<CUDA_MEMCPY2D>,
    stream: (CUstream, Null),
    wait: bool,
) -> Result {
    let mut c = what.get()?;
    if c.WidthInBytes == 0 || c.Height == 0 {
        return Ok(());
    }
    if array_copy::has_array(c.dstMemoryType, c.srcMemoryType) {
        return array_copy::copy(cx, &deepened(&c), stream, wait);
    }
    c.dstPitch = pitch_of(c.dstPitch, c.dstXInBytes, c.WidthInBytes)?;
    c.srcPitch = pitch_of(c.srcPitch, c.srcXInBytes, c.WidthInBytes)?;
    let (dst, dst_side) = side(
        c.dstMemoryType,
        (c.dstHost as u64, c.dstDevice),
        (c.dstXInBytes, c.dstY),
        c.dstPitch,
    )?;
    let (src, src_side) = side(
        c.srcMemoryType,
        (c.srcHost as u64, c.srcDevice),
        (c.srcXInBytes, c.srcY),
        c.srcPitch,
    )?;
    let rows = Rows {
        dst,
        dst_pitch: c.dstPitch,
        src,
        src_pitch: c.srcPitch,
        width: c.WidthInBytes,
        height: c.Height,
    };
    let stream = cx.own_stream(stream.0, stream.1)?;
    copy(&stream, rows, (dst_side, src_side), wait)
}

const NULL: CUstream = std::ptr::null_mut();

export! {
    /// `cuMemcpy2D`.
    context fn cuMemcpy2D_v2, cuMemcpy2D_v2_ptds(what: Pointer<CUDA_MEMCPY2D>) |cx, null| {
        rows(&cx, what, (NULL, null), true)
    }

    /// `cuMemcpy2DUnaligned`: here the same.
    context fn cuMemcpy2DUnaligned_v2, cuMemcpy2DUnaligned_v2_ptds(what: Pointer<CUDA_MEMCPY2D>) |cx, null| {
        rows(&cx, what, (NULL, null), true)
    }

    /// `cuMemcpy2DAsync`.
    work(stream) fn cuMemcpy2DAsync_v2, cuMemcpy2DAsync_v2_ptsz(what: Pointer<CUDA_MEMCPY2D>, stream: CUstream) |cx, null| {
        rows(&cx, what, (stream, null), false)
    }
}
