// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Copies of boxes.

use std::ffi::c_void;

use gpgpu_protocol::{
    api::{Array, BoxEnd, Object, reply, request},
    cuda::*,
};

use super::{
    copy::{finish, known, stream},
    ring::ring,
};
use crate::cuda::driver;
use crate::worker::{
    counts::{self, Memory},
    dispatch::{Outcome, Until},
    lease::current_gpu,
    session::{Data, Session},
};

/// The size of a row in bytes, the number of rows, and the number of slices.
type Size = [usize; 3];

/// One side of a copy, after its look-up.
pub struct Held {
    of: Memory,
    /// An array's handle.
    pub array: CUarray,
    /// The ids of the array, or 0, of the array to which it belongs, and of its context.
    pub objects: [u64; 3],
    /// The first byte of memory, and the number of bytes from there to the last.
    pub memory: Option<(u64, u64)>,
}

/// The size of a box in bytes; an error if it is empty.
pub fn volume(size: Size) -> Result<usize, CUresult> {
    let [width, height, depth] = size;
    let bytes = width
        .checked_mul(height)
        .and_then(|rows| rows.checked_mul(depth));
    let bytes = bytes.filter(|bytes| *bytes > 0);
    bytes.ok_or(CUDA_ERROR_INVALID_VALUE)
}

/// Looks up an array. The driver checks that a box lies in it.
fn in_array(session: &Session, id: u64) -> Result<Held, CUresult> {
    let entry = session.objects.entry::<Array>(id);
    let entry = entry.ok_or(CUDA_ERROR_INVALID_VALUE)?;
    // A gate belongs to one GPU.
    let device = session.arrays.device(id);
    let is_here =
        device.is_some_and(|device| current_gpu().is_ok_and(|gpu| device as usize == gpu));
    if !is_here {
        return Err(CUDA_ERROR_NOT_SUPPORTED);
    }
    Ok(Held {
        of: Memory::Device,
        array: Array::handle(entry.raw),
        objects: [id, entry.parent, entry.context],
        memory: None,
    })
}

/// Checks that all of a box in memory belongs to the client.
fn in_memory(session: &Session, end: &BoxEnd, size: Size) -> Result<Held, CUresult> {
    let [width, height, depth] = size;
    let fits =
        (height == 1 && depth == 1 || end.pitch >= width) && (depth == 1 || end.rows >= height);
    let bytes = end
        .pitch
        .checked_mul(end.rows)
        .and_then(|slice| slice.checked_mul(depth - 1))
        .and_then(|slices| slices.checked_add(end.pitch.checked_mul(height - 1)?))
        .and_then(|rows| rows.checked_add(width));
    let bytes = bytes.filter(|_| fits).ok_or(CUDA_ERROR_INVALID_VALUE)?;
    Ok(Held {
        of: known(session, end.address, bytes)?,
        array: std::ptr::null_mut(),
        objects: [0; 3],
        memory: Some((end.address, bytes as u64)),
    })
}

/// Looks up one side of a box copy.
pub fn hold(session: &Session, end: &BoxEnd, size: Size) -> Result<Held, CUresult> {
    match end.array {
        0 => in_memory(session, end, size),
        id => in_array(session, id),
    }
}

/// A box of bytes beside the stream, in the command's part of the staging area.
fn beside(bytes: *mut c_void, size: Size) -> (BoxEnd, *mut c_void) {
    let end = BoxEnd {
        pitch: size[0],
        rows: size[1],
        ..BoxEnd::default()
    };
    (end, bytes)
}

/// One side in the driver's form: its type, the host's address, and the structure's other fields.
fn kind(held: Option<&Held>) -> CUmemorytype {
    match held {
        None => CU_MEMORYTYPE_HOST,
        Some(held) if held.array.is_null() => CU_MEMORYTYPE_UNIFIED,
        Some(_) => CU_MEMORYTYPE_ARRAY,
    }
}

/// One side with its look-up, or with its address beside the stream.
pub type End<'a> = (&'a BoxEnd, Option<&'a Held>, *mut c_void);

/// A copy in the driver's form. A side without a look-up is bytes beside the stream.
pub fn described(dst: End<'_>, src: End<'_>, size: Size) -> CUDA_MEMCPY3D {
    let array = |held: Option<&Held>| held.map_or(std::ptr::null_mut(), |held| held.array);
    CUDA_MEMCPY3D {
        srcXInBytes: src.0.x,
        srcY: src.0.y,
        srcZ: src.0.z,
        srcLOD: 0,
        srcMemoryType: kind(src.1),
        srcHost: src.2,
        srcDevice: src.0.address,
        srcArray: array(src.1),
        reserved0: std::ptr::null_mut(),
        srcPitch: src.0.pitch,
        srcHeight: src.0.rows,
        dstXInBytes: dst.0.x,
        dstY: dst.0.y,
        dstZ: dst.0.z,
        dstLOD: 0,
        dstMemoryType: kind(dst.1),
        dstHost: dst.2,
        dstDevice: dst.0.address,
        dstArray: array(dst.1),
        reserved1: std::ptr::null_mut(),
        dstPitch: dst.0.pitch,
        dstHeight: dst.0.rows,
        WidthInBytes: size[0],
        Height: size[1],
        Depth: size[2],
    }
}

/// Submits a copy to the driver.
///
/// # Safety
///
/// The bytes beside the stream are as many as the box has.
unsafe fn issue(dst: End<'_>, src: End<'_>, size: Size, stream: CUstream) -> Result<(), CUresult> {
    let copy = described(dst, src, size);
    // SAFETY: the structure lives across the call; arrays are the driver's and live, memory is known as a whole, and
    // the caller answers for bytes beside the stream. The driver checks that boxes lie in their arrays.
    unsafe { driver::cuMemcpy3DAsync_v2(&copy, stream) }
}

/// A box in memory with its offsets added to its address, which is that of the first byte.
pub fn plain(end: BoxEnd) -> BoxEnd {
    match end.array {
        0 => BoxEnd {
            x: 0,
            y: 0,
            z: 0,
            ..end
        },
        _ => end,
    }
}

/// Declares that from here on the command uses only the objects that it names. Afterwards it may wait.
fn narrow(session: &Session, stream: u64, ends: &[&Held]) {
    let memory: Vec<_> = ends.iter().filter_map(|held| held.memory).collect();
    let objects: Vec<_> = ends.iter().flat_map(|held| held.objects).collect();
    session.wait_with(stream, &memory, &objects);
}

/// One side of a copy that is not beside the stream, with its look-up.
type Side<'a> = (&'a BoxEnd, &'a Held);

/// Copies a box of this size between two sides.
fn between(dst: Side<'_>, src: Side<'_>, size: Size, stream: CUstream) -> Result<(), CUresult> {
    let end = |(end, held)| (end, Some(held), std::ptr::null_mut());
    // SAFETY: both ends are held.
    unsafe { issue(end(dst), end(src), size, stream)? };
    count(dst.1.of, src.1.of, size);
    Ok(())
}

/// Copies the bytes of a box of this size to its place.
///
/// # Safety
///
/// There are as many bytes as the box has, which the driver may read until the stream has done the copy.
unsafe fn inward(
    (dst, to): Side<'_>,
    bytes: *mut c_void,
    size: Size,
    stream: CUstream,
) -> Result<(), CUresult> {
    let (src, from) = beside(bytes, size);
    let dst = (dst, Some(to), std::ptr::null_mut());
    // SAFETY: promised by the caller; the other end is held.
    unsafe { issue(dst, (&src, None, from), size, stream)? };
    count(to.of, Memory::Host, size);
    Ok(())
}

/// Copies a box of this size to bytes.
///
/// # Safety
///
/// As for [`inward`], for writes.
unsafe fn outward(
    bytes: *mut c_void,
    (src, from): Side<'_>,
    size: Size,
    stream: CUstream,
) -> Result<(), CUresult> {
    let (dst, to) = beside(bytes, size);
    let src = (src, Some(from), std::ptr::null_mut());
    // SAFETY: promised by the caller; the other end is held.
    unsafe { issue((&dst, None, to), src, size, stream)? };
    count(Memory::Host, from.of, size);
    Ok(())
}

/// Counts the copy of a box whose volume was checked.
fn count(to: Memory, from: Memory, size: Size) {
    counts::copy(to, from, size.iter().product::<usize>() as u64);
}

/// A copy between arrays, or between an array and memory that the worker can access.
pub fn gpgpuBoxCopy(
    session: &Session,
    request: request::gpgpuBoxCopy,
    _: Data,
) -> Outcome<reply::gpgpuBoxCopy> {
    let stream = stream(session, request.hStream)?;
    let copy = request.copy;
    let size = [copy.width, copy.height, copy.depth];
    volume(size)?;
    let (dst, src) = (plain(copy.dst), plain(copy.src));
    let to = hold(session, &dst, size)?;
    let from = hold(session, &src, size)?;
    if to.array.is_null() && from.array.is_null() {
        return Err(CUDA_ERROR_INVALID_VALUE.into());
    }
    narrow(session, request.hStream, &[&to, &from]);
    between((&dst, &to), (&src, &from), size, stream)?;
    finish(stream, request.synchronous)?;
    Ok(reply::gpgpuBoxCopy::default())
}

/// A copy between arrays and memory that the worker can access, without a wait.
pub fn gpgpuBoxCopyAsync(
    session: &Session,
    request: request::gpgpuBoxCopyAsync,
    _: Data,
) -> Outcome<reply::gpgpuBoxCopyAsync> {
    let stream = stream(session, request.hStream)?;
    let copy = request.copy;
    let size = [copy.width, copy.height, copy.depth];
    volume(size)?;
    let (dst, src) = (plain(copy.dst), plain(copy.src));
    let (to, from) = (hold(session, &dst, size)?, hold(session, &src, size)?);
    between((&dst, &to), (&src, &from), size, stream)?;
    Ok(reply::gpgpuBoxCopyAsync::default())
}

/// A copy from data blocks to an array or to memory.
pub fn gpgpuBlockBoxIn(
    session: &Session,
    request: request::gpgpuBlockBoxIn,
) -> Result<Until, CUresult> {
    let stream = stream(session, request.hStream)?;
    let size = [request.width, request.height, request.depth];
    let bytes = volume(size)?;
    let dst = plain(request.to);
    let to = hold(session, &dst, size)?;
    let block = ring(session)?.block(session, request.block, bytes)?;
    // SAFETY: the source is in the ring's registered blocks, and as long as the box.
    unsafe { inward((&dst, &to), block, size, stream)? };
    Ok(Until::Stream(request.hStream))
}

/// A copy from an array or from memory to data blocks.
pub fn gpgpuBlockBoxOut(
    session: &Session,
    request: request::gpgpuBlockBoxOut,
) -> Result<Until, CUresult> {
    let stream = stream(session, request.hStream)?;
    let size = [request.width, request.height, request.depth];
    let bytes = volume(size)?;
    let src = plain(request.from);
    let from = hold(session, &src, size)?;
    let block = ring(session)?.block(session, request.block, bytes)?;
    // SAFETY: as above, the other way round.
    unsafe { outward(block, (&src, &from), size, stream)? };
    Ok(Until::Stream(request.hStream))
}

/// Checks that the bytes beside the stream are those of a box. The command must not be one part of several.
fn check(size: Size, there: usize, data: Data) -> Result<(), CUresult> {
    if volume(size)? == there && data.offset == 0 {
        Ok(())
    } else {
        Err(CUDA_ERROR_INVALID_VALUE)
    }
}

/// A copy into an array, whose source came with the command.
pub fn gpgpuBoxIn(
    session: &Session,
    request: request::gpgpuBoxIn,
    data: Data,
) -> Outcome<reply::gpgpuBoxIn> {
    let stream = stream(session, request.hStream)?;
    let size = [request.width, request.height, request.depth];
    check(size, data.input_bytes, data)?;
    let to = in_array(session, request.to.array)?;
    narrow(session, request.hStream, &[&to]);
    // SAFETY: the source is the command's part of the staging area, and as long as the box.
    unsafe { inward((&request.to, &to), data.input.cast_mut(), size, stream)? };
    finish(stream, request.synchronous)?;
    Ok(reply::gpgpuBoxIn::default())
}

/// A copy from an array, whose bytes are returned with the answer.
pub fn gpgpuBoxOut(
    session: &Session,
    request: request::gpgpuBoxOut,
    data: Data,
) -> Outcome<reply::gpgpuBoxOut> {
    let stream = stream(session, request.hStream)?;
    let size = [request.width, request.height, request.depth];
    check(size, data.output_bytes, data)?;
    let from = in_array(session, request.from.array)?;
    narrow(session, request.hStream, &[&from]);
    // SAFETY: the destination is the command's part of the staging area, and as long as the box.
    unsafe { outward(data.output, (&request.from, &from), size, stream)? };
    finish(stream, true)?;
    Ok(reply::gpgpuBoxOut::default())
}
