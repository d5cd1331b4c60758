// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Copies of boxes of which an array is one end at least.

use std::ffi::c_void;
use std::sync::Arc;

use gpgpu_graphs::node::{Copy3D, Work};
use gpgpu_protocol::cuda::*;
use gpgpu_protocol::software_gpu::Memory;

use super::copy::{Side, is_host, pointer, syncs};
use super::copy2d::{pitch_of, side, slice_of};
use crate::array::Array;
use crate::context::{self, Context};
use crate::driver;
use crate::ffi::{Result, export};
use crate::graph;
use crate::memory::Place;
use crate::observe::{self, Seen};
use crate::stream::{Null, Stream};

/// Whether a copy is one of these.
pub fn has_array(to: CUmemorytype, from: CUmemorytype) -> bool {
    to == CU_MEMORYTYPE_ARRAY || from == CU_MEMORYTYPE_ARRAY
}

/// One end of a box: where its bytes begin, and the bytes from row to row and from slice to slice.
#[derive(Clone)]
enum End {
    Memory {
        start: u64,
        row: usize,
        slice: usize,
        extent: u64,
        place: Place,
    },
    Array {
        array: Arc<Array>,
        offset: usize,
    },
    Snapshot {
        bytes: Arc<Vec<u8>>,
        row: usize,
        slice: usize,
    },
}

impl End {
    /// The first byte, and the steps.
    fn reach(&self, write: bool) -> Result<(*mut u8, usize, usize)> {
        match self {
            Self::Memory {
                start,
                row,
                slice,
                extent,
                place,
            } => Ok((pointer(*start, place, *extent, write)?, *row, *slice)),
            Self::Array { array, offset } => {
                let image = &array.image;
                Ok((array.start().wrapping_add(*offset), image.row, image.slice))
            }
            Self::Snapshot { bytes, row, slice } => Ok((bytes.as_ptr().cast_mut(), *row, *slice)),
        }
    }

    fn place(&self) -> Option<&Place> {
        match self {
            Self::Memory { place, .. } => Some(place),
            _ => None,
        }
    }
}

impl observe::Side for End {
    fn memory(&self) -> Memory {
        match self {
            Self::Memory { place, .. } => observe::Side::memory(place),
            Self::Array { array, .. } => {
                observe::array(context::of_id(array.context).ok().as_deref())
            }
            Self::Snapshot { .. } => observe::Side::memory(&Place::Pageable),
        }
    }
}

/// Bytes of a row, rows, slices.
type Size = [usize; 3];

fn run(to: &End, from: &End, [width, height, depth]: Size) -> Result {
    let (to, to_row, to_slice) = to.reach(true)?;
    let (from, from_row, from_slice) = from.reach(false)?;
    for z in 0..depth {
        for y in 0..height {
            // SAFETY: both ends were found to hold the box, or are the caller's pageable memory, valid for the copy by
            // the API's contract. The bytes may change meanwhile: nothing is concluded from them.
            unsafe {
                std::ptr::copy(
                    from.wrapping_add(z * from_slice + y * from_row),
                    to.wrapping_add(z * to_slice + y * to_row),
                    width,
                );
            }
        }
    }
    Ok(())
}

/// The side of a copy that is an array, if it contains the box. The box may cut elements.
fn in_array(array: CUarray, [x, y, z]: [usize; 3], [width, height, depth]: Size) -> Result<End> {
    let array = Array::named(array).map_err(|_| CUDA_ERROR_INVALID_VALUE)?;
    let image = &array.image;
    let fits =
        |at: usize, size: usize, of: usize| at.checked_add(size).is_some_and(|end| end <= of);
    let is_good = !array.is_deferred()
        && fits(x, width, image.row)
        && fits(y, height, image.height as usize)
        && fits(z, depth, image.depth as usize);
    if !is_good {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    let offset = z * image.slice + y * image.row + x;
    Ok(End::Array { array, offset })
}

/// The meaning of an end's fields.
struct Given {
    kind: CUmemorytype,
    host: u64,
    device: u64,
    array: CUarray,
    at: [usize; 3],
    pitch: usize,
    rows: usize,
    level: usize,
}

fn end(given: &Given, size: Size, write: bool) -> Result<End> {
    if given.level != 0 {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    if given.kind == CU_MEMORYTYPE_ARRAY {
        return in_array(given.array, given.at, size);
    }
    let [x, y, z] = given.at;
    let [width, height, depth] = size;
    let bad = CUDA_ERROR_INVALID_VALUE;
    let pitch = pitch_of(given.pitch, x, width)?;
    let rows = slice_of(given.rows, y, height, depth)?;
    let base = (given.host, given.device);
    let (start, kind) = side(given.kind, base, (x, y), pitch)?;
    let slice = pitch.checked_mul(rows).ok_or(bad)?;
    let skipped = z.checked_mul(slice).ok_or(bad)?;
    let start = start.checked_add(skipped as u64).ok_or(bad)?;
    let extent = (depth - 1)
        .checked_mul(slice)
        .and_then(|bytes| bytes.checked_add((height - 1).checked_mul(pitch)?))
        .and_then(|bytes| bytes.checked_add(width))
        .ok_or(bad)? as u64;
    let place = driver::get()?.memory.classify(start, extent, write)?;
    if kind == Side::Device && matches!(place, Place::Pageable) {
        return Err(bad);
    }
    Ok(End::Memory {
        start,
        row: pitch,
        slice,
        extent,
        place,
    })
}

/// The two sides of a copy: the destination and the source.
fn ends(c: &CUDA_MEMCPY3D) -> Result<(End, End)> {
    let size = [c.WidthInBytes, c.Height, c.Depth];
    let to = end(
        &Given {
            kind: c.dstMemoryType,
            host: c.dstHost as u64,
            device: c.dstDevice,
            array: c.dstArray,
            at: [c.dstXInBytes, c.dstY, c.dstZ],
            pitch: c.dstPitch,
            rows: c.dstHeight,
            level: c.dstLOD,
        },
        size,
        true,
    )?;
    let from = end(
        &Given {
            kind: c.srcMemoryType,
            host: c.srcHost as u64,
            device: c.srcDevice,
            array: c.srcArray,
            at: [c.srcXInBytes, c.srcY, c.srcZ],
            pitch: c.srcPitch,
            rows: c.srcHeight,
            level: c.srcLOD,
        },
        size,
        false,
    )?;
    Ok((to, from))
}

/// Checks that a copy can be made.
///
/// # Errors
/// `CUDA_ERROR_INVALID_VALUE`.
pub fn check(c: &CUDA_MEMCPY3D) -> Result {
    ends(c).map(drop)
}

/// Copies a box now: a node of a graph.
pub fn copy_now(c: &CUDA_MEMCPY3D) -> Result {
    let (to, from) = ends(c)?;
    run(&to, &from, [c.WidthInBytes, c.Height, c.Depth])
}

/// Copies a box in a stream's order.
pub fn copy(cx: &Context, c: &CUDA_MEMCPY3D, stream: (CUstream, Null), wait: bool) -> Result {
    let size = [c.WidthInBytes, c.Height, c.Depth];
    if size.contains(&0) {
        return Ok(());
    }
    let (to, from) = ends(c)?;
    let stream = cx.own_stream(stream.0, stream.1)?;
    let node = || Ok(Work::Copy(Box::new(Copy3D::new(c, cx.handle)?)));
    if graph::record(&stream, node)? {
        return Ok(());
    }
    queue(&stream, to, from, size, wait)
}

fn queue(stream: &Arc<Stream>, to: End, mut from: End, size: Size, wait: bool) -> Result {
    let seen = Seen::queued(stream);
    let bytes = size
        .iter()
        .fold(1, |all: usize, of| all.saturating_mul(*of));
    seen.copy((&to, &from), bytes, !wait);
    let of_host = |end: &End| end.place().is_some_and(is_host);
    let of_sync = |end: &End| end.place().is_some_and(syncs);
    let is_pageable = |end: &End| matches!(end.place(), Some(Place::Pageable));
    let mut wait = (wait && (of_host(&to) || of_host(&from))) || of_sync(&to) || of_sync(&from);
    wait |= is_pageable(&to);
    if is_pageable(&from) && !wait {
        let [width, height, depth] = size;
        let mut bytes = vec![0_u8; width * height * depth];
        let (start, row, slice) = from.reach(false)?;
        for (at, to) in bytes.chunks_exact_mut(width).enumerate() {
            let from = start.wrapping_add(at / height * slice + at % height * row);
            // SAFETY: the caller's pageable memory, valid by the API's contract.
            unsafe { std::ptr::copy(from, to.as_mut_ptr(), width) };
        }
        from = End::Snapshot {
            bytes: Arc::new(bytes),
            row: width,
            slice: width * height,
        };
    }
    let ticket = context::queue(stream, Vec::new(), move || {
        seen.time(|| run(&to, &from, size))
    })?;
    if wait {
        return context::wait_for(stream.context, &ticket);
    }
    Ok(())
}

/// An end of a copy of one range.
#[derive(Clone, Copy)]
enum Line {
    Array(CUarray, usize),
    Host(u64),
    Device(u64),
}

/// A copy of this number of bytes in an array's first row.
fn line(
    cx: &Context,
    (to, from): (Line, Line),
    bytes: usize,
    stream: (CUstream, Null),
    wait: bool,
) -> Result {
    let nothing = std::ptr::null_mut();
    let place = |line: Line| match line {
        Line::Array(array, offset) => (CU_MEMORYTYPE_ARRAY, 0, array, offset),
        Line::Host(address) => (CU_MEMORYTYPE_HOST, address, nothing, 0),
        Line::Device(address) => (CU_MEMORYTYPE_DEVICE, address, nothing, 0),
    };
    let (dstMemoryType, to, dstArray, dstXInBytes) = place(to);
    let (srcMemoryType, from, srcArray, srcXInBytes) = place(from);
    let row = CUDA_MEMCPY3D {
        srcXInBytes,
        srcY: 0,
        srcZ: 0,
        srcLOD: 0,
        srcMemoryType,
        srcHost: from as *const c_void,
        srcDevice: from,
        srcArray,
        reserved0: std::ptr::null_mut(),
        srcPitch: 0,
        srcHeight: 0,
        dstXInBytes,
        dstY: 0,
        dstZ: 0,
        dstLOD: 0,
        dstMemoryType,
        dstHost: to as *mut c_void,
        dstDevice: to,
        dstArray,
        reserved1: std::ptr::null_mut(),
        dstPitch: 0,
        dstHeight: 0,
        WidthInBytes: bytes,
        Height: 1,
        Depth: 1,
    };
    copy(cx, &row, stream, wait)
}

const NULL: CUstream = std::ptr::null_mut();

export! {
    /// `cuMemcpyHtoA`.
    context fn cuMemcpyHtoA_v2, cuMemcpyHtoA_v2_ptds(to: CUarray, offset: usize, from: *const c_void, bytes: usize) |cx, null| {
        line(&cx, (Line::Array(to, offset), Line::Host(from as u64)), bytes, (NULL, null), true)
    }

    /// `cuMemcpyHtoAAsync`.
    context fn cuMemcpyHtoAAsync_v2, cuMemcpyHtoAAsync_v2_ptsz(to: CUarray, offset: usize, from: *const c_void, bytes: usize, stream: CUstream) |cx, null| {
        line(&cx, (Line::Array(to, offset), Line::Host(from as u64)), bytes, (stream, null), false)
    }

    /// `cuMemcpyAtoH`.
    context fn cuMemcpyAtoH_v2, cuMemcpyAtoH_v2_ptds(to: *mut c_void, from: CUarray, offset: usize, bytes: usize) |cx, null| {
        line(&cx, (Line::Host(to as u64), Line::Array(from, offset)), bytes, (NULL, null), true)
    }

    /// `cuMemcpyAtoHAsync`.
    context fn cuMemcpyAtoHAsync_v2, cuMemcpyAtoHAsync_v2_ptsz(to: *mut c_void, from: CUarray, offset: usize, bytes: usize, stream: CUstream) |cx, null| {
        line(&cx, (Line::Host(to as u64), Line::Array(from, offset)), bytes, (stream, null), false)
    }

    /// `cuMemcpyDtoA`.
    context fn cuMemcpyDtoA_v2, cuMemcpyDtoA_v2_ptds(to: CUarray, offset: usize, from: CUdeviceptr, bytes: usize) |cx, null| {
        line(&cx, (Line::Array(to, offset), Line::Device(from)), bytes, (NULL, null), true)
    }

    /// `cuMemcpyAtoD`.
    context fn cuMemcpyAtoD_v2, cuMemcpyAtoD_v2_ptds(to: CUdeviceptr, from: CUarray, offset: usize, bytes: usize) |cx, null| {
        line(&cx, (Line::Device(to), Line::Array(from, offset)), bytes, (NULL, null), true)
    }

    /// `cuMemcpyAtoA`.
    context fn cuMemcpyAtoA_v2, cuMemcpyAtoA_v2_ptds(to: CUarray, to_offset: usize, from: CUarray, from_offset: usize, bytes: usize) |cx, null| {
        line(&cx, (Line::Array(to, to_offset), Line::Array(from, from_offset)), bytes, (NULL, null), true)
    }
}
