// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Copies from and to the staging area, and two-dimensional copies.
//!
//! For the driver, the staging area is pageable memory. So when an asynchronous copy from it returns, its bytes have
//! been read, as CUDA promises for pageable memory, and the area can be reused.

use gpgpu_protocol::{
    api::{Context, Stream, reply, request},
    cuda::*,
};

use crate::cuda::driver;
use crate::worker::{
    counts::{self, Memory},
    dispatch::{Outcome, Until},
    grace::{self, Name},
    session::{Data, Session},
};

/// The driver's handle of a stream.
pub(super) fn stream(session: &Session, id: u64) -> Result<CUstream, CUresult> {
    session.objects.raw::<Stream>(id).map(|raw| raw as CUstream)
}

/// Waits for a stream after a synchronous copy.
pub(super) fn finish(stream: CUstream, synchronous: bool) -> Result<(), CUresult> {
    if !synchronous {
        return Ok(());
    }
    // SAFETY: the stream is the driver's and lives.
    unsafe { driver::cuStreamSynchronize(stream) }
}

/// Checks that a range is device memory or memory that the guest process registered, and returns which. The driver
/// would treat any other address as this process's own pageable memory, and copy from or to the worker itself.
pub fn known(session: &Session, address: u64, bytes: usize) -> Result<Memory, CUresult> {
    let ours = session
        .device_memory
        .check(session.current(), address, bytes as u64);
    if let Some(result) = ours {
        return result.map(|()| Memory::Device);
    }
    if session.regions.holds(address, bytes as u64) {
        return Ok(Memory::Host);
    }
    // For example a module's global that was never looked up by name. No memory ends between the query and the use.
    if !grace::unloads_are_settled() {
        return Err(CUDA_ERROR_NOT_READY);
    }
    let (mut base, mut size) = (0, 0);
    // SAFETY: the pointers are to values that live across the call; the address is only looked up.
    unsafe { driver::cuMemGetAddressRange_v2(&mut base, &mut size, address) }.map_err(|code| {
        match code {
            CUDA_ERROR_NOT_FOUND => CUDA_ERROR_INVALID_VALUE,
            other => other,
        }
    })?;
    let offset = address.wrapping_sub(base);
    if offset < size as u64 && bytes as u64 <= size as u64 - offset {
        Ok(Memory::Device)
    } else {
        Err(CUDA_ERROR_INVALID_VALUE)
    }
}

/// Checks every byte from the first to the last that a pitched copy or fill accesses.
pub fn known_plane(
    session: &Session,
    start: u64,
    pitch: usize,
    width: usize,
    height: usize,
) -> Result<Memory, CUresult> {
    // The driver takes rows with a pitch of zero as if they followed each other.
    if height > 1 && pitch < width {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    let rows = height
        .checked_sub(1)
        .and_then(|rows| rows.checked_mul(pitch));
    let bytes = rows
        .and_then(|bytes| bytes.checked_add(width))
        .ok_or(CUDA_ERROR_INVALID_VALUE)?;
    known(session, start, bytes)
}

/// The number of bytes from the first to the last that a pitched copy or fill accesses, after [`known_plane`] has
/// checked them.
pub fn plane_bytes(pitch: usize, width: usize, height: usize) -> u64 {
    let rows = height.saturating_sub(1).saturating_mul(pitch);
    rows.saturating_add(width) as u64
}

/// A two-dimensional copy between addresses whose kind CUDA detects itself.
fn plane(
    dst: u64,
    dst_pitch: usize,
    src: u64,
    src_pitch: usize,
    width: usize,
    height: usize,
) -> CUDA_MEMCPY2D {
    CUDA_MEMCPY2D {
        srcXInBytes: 0,
        srcY: 0,
        srcMemoryType: CU_MEMORYTYPE_UNIFIED,
        srcHost: std::ptr::null(),
        srcDevice: src,
        srcArray: std::ptr::null_mut(),
        srcPitch: src_pitch,
        dstXInBytes: 0,
        dstY: 0,
        dstMemoryType: CU_MEMORYTYPE_UNIFIED,
        dstHost: std::ptr::null_mut(),
        dstDevice: dst,
        dstArray: std::ptr::null_mut(),
        dstPitch: dst_pitch,
        WidthInBytes: width,
        Height: height,
    }
}

/// The size of packed rows, which must be the data of the command. The command must not be one part of several.
fn packed(width: usize, height: usize, there: usize, data: Data) -> Result<(), CUresult> {
    if width.checked_mul(height) == Some(there) && data.offset == 0 {
        Ok(())
    } else {
        Err(CUDA_ERROR_INVALID_VALUE)
    }
}

/// A copy whose source came with the command.
pub fn gpgpuCopyIn(
    session: &Session,
    request: request::gpgpuCopyIn,
    data: Data,
) -> Outcome<reply::gpgpuCopyIn> {
    let stream = stream(session, request.hStream)?;
    let dst = data.at(request.dst)?;
    let memory = known(session, dst, data.input_bytes)?;
    session.wait_in(request.hStream, &[(dst, data.input_bytes as u64)]);
    // SAFETY: the source is the command's part of the staging area; the driver checks the destination.
    unsafe { driver::cuMemcpyHtoDAsync_v2(dst, data.input, data.input_bytes, stream)? };
    counts::copy_part(memory, Memory::Host, data.input_bytes as u64, data.offset);
    finish(stream, request.synchronous)?;
    Ok(reply::gpgpuCopyIn::default())
}

/// A copy whose bytes are returned with the answer.
pub fn gpgpuCopyOut(
    session: &Session,
    request: request::gpgpuCopyOut,
    data: Data,
) -> Outcome<reply::gpgpuCopyOut> {
    let stream = stream(session, request.hStream)?;
    let src = data.at(request.src)?;
    let memory = known(session, src, data.output_bytes)?;
    session.wait_in(request.hStream, &[(src, data.output_bytes as u64)]);
    // SAFETY: the destination is the command's part of the staging area; the driver checks the source.
    unsafe { driver::cuMemcpyDtoHAsync_v2(data.output, src, data.output_bytes, stream)? };
    counts::copy_part(Memory::Host, memory, data.output_bytes as u64, data.offset);
    finish(stream, true)?;
    Ok(reply::gpgpuCopyOut::default())
}

/// A two-dimensional copy between memory that the worker can access.
pub fn gpgpuCopy2D(
    session: &Session,
    request: request::gpgpuCopy2D,
    _: Data,
) -> Outcome<reply::gpgpuCopy2D> {
    let stream = stream(session, request.hStream)?;
    let copy = request.copy;
    let copy = plane(
        copy.dst,
        copy.dst_pitch,
        copy.src,
        copy.src_pitch,
        copy.width,
        copy.height,
    );
    let to = known_plane(
        session,
        copy.dstDevice,
        copy.dstPitch,
        copy.WidthInBytes,
        copy.Height,
    )?;
    let from = known_plane(
        session,
        copy.srcDevice,
        copy.srcPitch,
        copy.WidthInBytes,
        copy.Height,
    )?;
    let bytes = |pitch| plane_bytes(pitch, copy.WidthInBytes, copy.Height);
    let to_range = (copy.dstDevice, bytes(copy.dstPitch));
    let from_range = (copy.srcDevice, bytes(copy.srcPitch));
    session.wait_in(request.hStream, &[to_range, from_range]);
    // SAFETY: the structure lives across the call; both ends are memory that the driver knows.
    unsafe { driver::cuMemcpy2DAsync_v2(&copy, stream)? };
    counts::copy(to, from, (copy.WidthInBytes * copy.Height) as u64);
    finish(stream, request.synchronous)?;
    Ok(reply::gpgpuCopy2D::default())
}

/// A two-dimensional copy whose rows came with the command.
pub fn gpgpuCopyIn2D(
    session: &Session,
    request: request::gpgpuCopyIn2D,
    data: Data,
) -> Outcome<reply::gpgpuCopyIn2D> {
    let stream = stream(session, request.hStream)?;
    packed(request.width, request.height, data.input_bytes, data)?;
    let memory = known_plane(
        session,
        request.dst,
        request.pitch,
        request.width,
        request.height,
    )?;
    let bytes = plane_bytes(request.pitch, request.width, request.height);
    session.wait_in(request.hStream, &[(request.dst, bytes)]);
    let mut copy = plane(
        request.dst,
        request.pitch,
        0,
        request.width,
        request.width,
        request.height,
    );
    (copy.srcMemoryType, copy.srcHost) = (CU_MEMORYTYPE_HOST, data.input);
    // SAFETY: as above; the source is the command's part of the staging area.
    unsafe { driver::cuMemcpy2DAsync_v2(&copy, stream)? };
    counts::copy(memory, Memory::Host, data.input_bytes as u64);
    finish(stream, request.synchronous)?;
    Ok(reply::gpgpuCopyIn2D::default())
}

/// A two-dimensional copy whose rows are returned with the answer.
pub fn gpgpuCopyOut2D(
    session: &Session,
    request: request::gpgpuCopyOut2D,
    data: Data,
) -> Outcome<reply::gpgpuCopyOut2D> {
    let stream = stream(session, request.hStream)?;
    packed(request.width, request.height, data.output_bytes, data)?;
    let memory = known_plane(
        session,
        request.src,
        request.pitch,
        request.width,
        request.height,
    )?;
    let bytes = plane_bytes(request.pitch, request.width, request.height);
    session.wait_in(request.hStream, &[(request.src, bytes)]);
    let mut copy = plane(
        0,
        request.width,
        request.src,
        request.pitch,
        request.width,
        request.height,
    );
    (copy.dstMemoryType, copy.dstHost) = (CU_MEMORYTYPE_HOST, data.output);
    // SAFETY: as above; the destination is the command's part of the staging area.
    unsafe { driver::cuMemcpy2DAsync_v2(&copy, stream)? };
    counts::copy(Memory::Host, memory, data.output_bytes as u64);
    finish(stream, true)?;
    Ok(reply::gpgpuCopyOut2D::default())
}

/// `cuMemcpy` between memory that the worker can access.
pub fn cuMemcpy(session: &Session, request: request::cuMemcpy) -> Result<Until, CUresult> {
    let to = known(session, request.dst, request.ByteCount)?;
    let from = known(session, request.src, request.ByteCount)?;
    let legacy = std::ptr::null_mut();
    // SAFETY: both ranges are memory that the driver knows.
    unsafe { driver::cuMemcpyAsync(request.dst, request.src, request.ByteCount, legacy)? };
    counts::copy(to, from, request.ByteCount as u64);
    Ok(Until::Stream(0))
}

/// `cuMemcpyAsync` between memory that the worker can access.
pub fn cuMemcpyAsync(
    session: &Session,
    request: request::cuMemcpyAsync,
    _: Data,
) -> Outcome<reply::cuMemcpyAsync> {
    let to = known(session, request.dst, request.ByteCount)?;
    let from = known(session, request.src, request.ByteCount)?;
    let stream = stream(session, request.hStream)?;
    // SAFETY: as above; the stream is the driver's and lives.
    unsafe { driver::cuMemcpyAsync(request.dst, request.src, request.ByteCount, stream)? };
    counts::copy(to, from, request.ByteCount as u64);
    Ok(reply::cuMemcpyAsync::default())
}

/// `cuMemcpyDtoD`.
pub fn cuMemcpyDtoD_v2(
    session: &Session,
    request: request::cuMemcpyDtoD_v2,
    _: Data,
) -> Outcome<reply::cuMemcpyDtoD_v2> {
    if request.ByteCount > 0 {
        known(session, request.dstDevice, request.ByteCount)?;
        known(session, request.srcDevice, request.ByteCount)?;
    }
    let bytes = request.ByteCount as u64;
    session.wait_in(0, &[(request.dstDevice, bytes), (request.srcDevice, bytes)]);
    // SAFETY: both ranges are memory that the driver knows, or empty.
    unsafe { driver::cuMemcpyDtoD_v2(request.dstDevice, request.srcDevice, request.ByteCount)? };
    session
        .device_memory
        .settle(&[request.dstDevice, request.srcDevice])?;
    counts::copy(Memory::Device, Memory::Device, bytes);
    Ok(reply::cuMemcpyDtoD_v2::default())
}

/// `cuMemcpyPeer`.
pub fn cuMemcpyPeer(
    session: &Session,
    request: request::cuMemcpyPeer,
    _: Data,
) -> Outcome<reply::cuMemcpyPeer> {
    let dst = session.objects.raw::<Context>(request.dstContext)? as CUcontext;
    let src = session.objects.raw::<Context>(request.srcContext)? as CUcontext;
    known(session, request.dstDevice, request.ByteCount)?;
    known(session, request.srcDevice, request.ByteCount)?;
    let bytes = request.ByteCount as u64;
    session.wait_in(0, &[(request.dstDevice, bytes), (request.srcDevice, bytes)]);
    grace::narrow(&[request.dstContext, request.srcContext].map(Name::Object));
    // SAFETY: the contexts are the driver's and live; the ranges are memory that it knows.
    unsafe {
        driver::cuMemcpyPeer(
            request.dstDevice,
            dst,
            request.srcDevice,
            src,
            request.ByteCount,
        )?
    };
    counts::copy(Memory::Device, Memory::Device, bytes);
    Ok(reply::cuMemcpyPeer::default())
}

/// `cuMemcpyPeerAsync`.
pub fn cuMemcpyPeerAsync(
    session: &Session,
    request: request::cuMemcpyPeerAsync,
    _: Data,
) -> Outcome<reply::cuMemcpyPeerAsync> {
    let dst = session.objects.raw::<Context>(request.dstContext)? as CUcontext;
    let src = session.objects.raw::<Context>(request.srcContext)? as CUcontext;
    let stream = stream(session, request.hStream)?;
    known(session, request.dstDevice, request.ByteCount)?;
    known(session, request.srcDevice, request.ByteCount)?;
    // SAFETY: as above; the stream is the driver's and lives.
    unsafe {
        driver::cuMemcpyPeerAsync(
            request.dstDevice,
            dst,
            request.srcDevice,
            src,
            request.ByteCount,
            stream,
        )?
    };
    let bytes = request.ByteCount as u64;
    counts::copy(Memory::Device, Memory::Device, bytes);
    Ok(reply::cuMemcpyPeerAsync::default())
}
