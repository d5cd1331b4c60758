// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Copies of boxes: slices of rows, one after the other in the stream.

use gpgpu_graphs::node::{Copy3D, Work};
use gpgpu_protocol::cuda::{CUDA_ERROR_INVALID_VALUE, CUDA_MEMCPY3D, CUstream};

use super::array_copy;
use super::copy::{Reading, Rows, copy_reading};
use super::copy2d::{pitch_of, side, slice_of};
use crate::context::{self, Context};
use crate::driver;
use crate::ffi::{Pointer, Result, export};
use crate::graph;
use crate::observe::Seen;
use crate::stream::Null;

// The bytes from one slice to the next, and from the first byte of the box to its last.
fn steps(c: &CUDA_MEMCPY3D, pitch: usize, height: usize, y: usize) -> Result<(usize, usize)> {
    let height = slice_of(height, y, c.Height, c.Depth)?;
    let slice = pitch.checked_mul(height).ok_or(CUDA_ERROR_INVALID_VALUE)?;
    let extent = (c.Depth - 1)
        .checked_mul(slice)
        .and_then(|slices| slices.checked_add((c.Height - 1).checked_mul(pitch)?))
        .and_then(|rows| rows.checked_add(c.WidthInBytes));
    Ok((slice, extent.ok_or(CUDA_ERROR_INVALID_VALUE)?))
}

/// `CUDA_MEMCPY3D_PEER` has the contexts in reserved fields of the other structure.
fn between(
    cx: &Context,
    what: Pointer<CUDA_MEMCPY3D>,
    stream: (CUstream, Null),
    wait: bool,
) -> Result {
    let mut c = what.get()?;
    let (to, from) = (c.reserved1 as u64, c.reserved0 as u64);
    let ends = [context::named(to)?, context::named(from)?];
    (c.reserved0, c.reserved1) = (std::ptr::null_mut(), std::ptr::null_mut());
    let of = cx.own_stream(stream.0, stream.1)?;
    graph::refuse(&of)?;
    if wait {
        context::finish_legacy(&ends)?;
    }
    boxes(cx, c, stream, wait)
}

fn boxes(cx: &Context, mut c: CUDA_MEMCPY3D, stream: (CUstream, Null), wait: bool) -> Result {
    if array_copy::has_array(c.dstMemoryType, c.srcMemoryType) {
        return array_copy::copy(cx, &c, stream, wait);
    }
    if !c.reserved0.is_null() || !c.reserved1.is_null() {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    if c.WidthInBytes == 0 || c.Height == 0 || c.Depth == 0 {
        return Ok(());
    }
    c.dstPitch = pitch_of(c.dstPitch, c.dstXInBytes, c.WidthInBytes)?;
    c.srcPitch = pitch_of(c.srcPitch, c.srcXInBytes, c.WidthInBytes)?;
    let (src_slice, src_extent) = steps(&c, c.srcPitch, c.srcHeight, c.srcY)?;
    let (dst_slice, dst_extent) = steps(&c, c.dstPitch, c.dstHeight, c.dstY)?;
    let place = (c.dstXInBytes, c.dstY);
    let (dst, dst_side) = side(
        c.dstMemoryType,
        (c.dstHost as u64, c.dstDevice),
        place,
        c.dstPitch,
    )?;
    let place = (c.srcXInBytes, c.srcY);
    let (src, src_side) = side(
        c.srcMemoryType,
        (c.srcHost as u64, c.srcDevice),
        place,
        c.srcPitch,
    )?;
    let start = |base: u64, z: usize, slice: usize| {
        let skip = z.checked_mul(slice).ok_or(CUDA_ERROR_INVALID_VALUE)?;
        base.checked_add(skip as u64)
            .ok_or(CUDA_ERROR_INVALID_VALUE)
    };
    let (dst, src) = (
        start(dst, c.dstZ, dst_slice)?,
        start(src, c.srcZ, src_slice)?,
    );
    // The whole box is looked at first: a copy that is refused has copied nothing.
    let memory = &driver::get()?.memory;
    memory.classify(dst, dst_extent as u64, true)?;
    memory.classify(src, src_extent as u64, false)?;
    let stream = cx.own_stream(stream.0, stream.1)?;
    if graph::record(&stream, || {
        Ok(Work::Copy(Box::new(Copy3D::new(&c, cx.handle)?)))
    })? {
        return Ok(());
    }
    let seen = Seen::queued(&stream);
    for z in 0..c.Depth {
        let rows = Rows {
            dst: dst + (z * dst_slice) as u64,
            dst_pitch: c.dstPitch,
            src: src + (z * src_slice) as u64,
            src_pitch: c.srcPitch,
            width: c.WidthInBytes,
            height: c.Height,
        };
        let how = (Reading::Usual, Some(&seen));
        copy_reading(&stream, rows, (dst_side, src_side), wait, how)?;
    }
    Ok(())
}

const NULL: CUstream = std::ptr::null_mut();

export! {
    /// `cuMemcpy3D`.
    context fn cuMemcpy3D_v2, cuMemcpy3D_v2_ptds(what: Pointer<CUDA_MEMCPY3D>) |cx, null| {
        boxes(&cx, what.get()?, (NULL, null), true)
    }

    /// `cuMemcpy3DAsync`.
    work(stream) fn cuMemcpy3DAsync_v2, cuMemcpy3DAsync_v2_ptsz(what: Pointer<CUDA_MEMCPY3D>, stream: CUstream) |cx, null| {
        boxes(&cx, what.get()?, (stream, null), false)
    }

    /// `cuMemcpy3DPeer`: a copy between contexts of the one device, or of two.
    context fn cuMemcpy3DPeer, cuMemcpy3DPeer_ptds(what: Pointer<CUDA_MEMCPY3D>) |cx, null| {
        between(&cx, what, (NULL, null), true)
    }

    /// `cuMemcpy3DPeerAsync`.
    work(stream) fn cuMemcpy3DPeerAsync, cuMemcpy3DPeerAsync_ptsz(what: Pointer<CUDA_MEMCPY3D>, stream: CUstream) |cx, null| {
        between(&cx, what, (stream, null), false)
    }
}
