// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Copies of rows.

use gpgpu_protocol::cuda::{
    CU_MEMORYTYPE_ARRAY, CU_MEMORYTYPE_DEVICE, CU_MEMORYTYPE_HOST, CU_MEMORYTYPE_UNIFIED,
    CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_NOT_SUPPORTED, CUDA_MEMCPY2D, CUmemorytype, CUstream,
};

use super::copy::{Rows, Side, copy};
use crate::border::{Pointer, Result, export};
use crate::config::MAX_PITCH;
use crate::context::Context;
use crate::stream::Null;

pub(super) fn side(
    memory_type: CUmemorytype,
    (host, device): (u64, u64),
    (x, y): (usize, usize),
    pitch: usize,
    width: usize,
) -> Result<(u64, Side)> {
    let (base, side) = match memory_type {
        CU_MEMORYTYPE_HOST => (host, Side::Any),
        CU_MEMORYTYPE_DEVICE => (device, Side::Device),
        CU_MEMORYTYPE_UNIFIED => (device, Side::Any),
        // No array can have been made.
        CU_MEMORYTYPE_ARRAY => return Err(CUDA_ERROR_NOT_SUPPORTED),
        _ => return Err(CUDA_ERROR_INVALID_VALUE),
    };
    let row = x.checked_add(width).ok_or(CUDA_ERROR_INVALID_VALUE)?;
    if base == 0 || pitch < row || pitch > MAX_PITCH {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    let start = y
        .checked_mul(pitch)
        .and_then(|skip| skip.checked_add(x))
        .and_then(|skip| base.checked_add(skip as u64));
    start.map(|s| (s, side)).ok_or(CUDA_ERROR_INVALID_VALUE)
}

fn rows(
    cx: &Context,
    what: Pointer<CUDA_MEMCPY2D>,
    stream: (CUstream, Null),
    wait: bool,
) -> Result {
    let c = what.get()?;
    if c.WidthInBytes == 0 || c.Height == 0 {
        return Ok(());
    }
    let (dst, dst_side) = side(
        c.dstMemoryType,
        (c.dstHost as u64, c.dstDevice),
        (c.dstXInBytes, c.dstY),
        c.dstPitch,
        c.WidthInBytes,
    )?;
    let (src, src_side) = side(
        c.srcMemoryType,
        (c.srcHost as u64, c.srcDevice),
        (c.srcXInBytes, c.srcY),
        c.srcPitch,
        c.WidthInBytes,
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
    context fn cuMemcpy2DAsync_v2, cuMemcpy2DAsync_v2_ptsz(what: Pointer<CUDA_MEMCPY2D>, stream: CUstream) |cx, null| {
        rows(&cx, what, (stream, null), false)
    }
}
