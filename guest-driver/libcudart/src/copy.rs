// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! One- and two-dimensional copies, copies between devices, and copies to and from symbols.

use crate::abi::*;
use crate::context::{current, retain};
use crate::driver::Driver;
use crate::error::{self, Result};
use crate::memory::address;
use crate::registration::symbol;
use crate::stream::DefaultStream;
use gpgpu_protocol::cuda::*;
use std::ffi::{c_int, c_void};
use std::ptr::null_mut;

/// The order of a copy: it waits as documented, or is queued in a stream.
#[derive(Clone, Copy)]
pub enum Order {
    Synchronous(DefaultStream),
    Stream(CUstream),
}

/// Runs a copy. The driver has a synchronous form of it for the legacy stream, and a form for a stream. For the
/// per-thread stream, the synchronous copy uses the latter form and waits for it.
///
/// # Safety
/// The parameters of both forms.
pub unsafe fn ordered(
    driver: &Driver,
    order: Order,
    synchronous: impl FnOnce() -> Result<()>,
    queued: impl FnOnce(CUstream) -> Result<()>,
) -> Result<()> {
    match order {
        Order::Synchronous(DefaultStream::Legacy) => synchronous(),
        Order::Synchronous(DefaultStream::PerThread) => {
            let stream = DefaultStream::PerThread.of(null_mut());
            queued(stream)?;
            // SAFETY: the calling thread's own default stream always exists.
            unsafe { driver.cuStreamSynchronize(stream) }
        }
        Order::Stream(stream) => queued(stream),
    }
}

/// `cudaErrorInvalidMemcpyDirection` for an invalid direction.
pub fn check_kind(kind: cudaMemcpyKind) -> Result<()> {
    if kind > MEMCPY_DEFAULT {
        Err(error::INVALID_MEMCPY_DIRECTION)
    } else {
        Ok(())
    }
}

/// Copies `bytes` in the direction `kind`.
///
/// # Safety
/// The ranges are valid for `bytes`, for as long as the copy takes.
pub unsafe fn linear(
    to: *mut c_void,
    from: *const c_void,
    bytes: usize,
    kind: cudaMemcpyKind,
    order: Order,
) -> Result<()> {
    let d = current()?;
    check_kind(kind)?;
    if bytes == 0 {
        return Ok(());
    }
    if to.is_null() || from.is_null() {
        return Err(error::INVALID_VALUE);
    }
    let (dt, df) = (address(to), address(from));
    // SAFETY: promised by the caller.
    unsafe {
        match kind {
            MEMCPY_HOST_TO_DEVICE => ordered(
                d,
                order,
                || d.cuMemcpyHtoD(dt, from, bytes),
                |s| d.cuMemcpyHtoDAsync(dt, from, bytes, s),
            ),
            MEMCPY_DEVICE_TO_HOST => ordered(
                d,
                order,
                || d.cuMemcpyDtoH(to, df, bytes),
                |s| d.cuMemcpyDtoHAsync(to, df, bytes, s),
            ),
            MEMCPY_DEVICE_TO_DEVICE => ordered(
                d,
                order,
                || d.cuMemcpyDtoD(dt, df, bytes),
                |s| d.cuMemcpyDtoDAsync(dt, df, bytes, s),
            ),
            // The driver determines the memory types of the addresses itself.
            _ => ordered(
                d,
                order,
                || d.cuMemcpy(dt, df, bytes),
                |s| d.cuMemcpyAsync(dt, df, bytes, s),
            ),
        }
    }
}

/// The kinds of memory at the source and at the destination of a copy.
pub fn memory_types(kind: cudaMemcpyKind) -> (CUmemorytype, CUmemorytype) {
    match kind {
        MEMCPY_HOST_TO_HOST => (CU_MEMORYTYPE_HOST, CU_MEMORYTYPE_HOST),
        MEMCPY_HOST_TO_DEVICE => (CU_MEMORYTYPE_HOST, CU_MEMORYTYPE_DEVICE),
        MEMCPY_DEVICE_TO_HOST => (CU_MEMORYTYPE_DEVICE, CU_MEMORYTYPE_HOST),
        MEMCPY_DEVICE_TO_DEVICE => (CU_MEMORYTYPE_DEVICE, CU_MEMORYTYPE_DEVICE),
        _ => (CU_MEMORYTYPE_UNIFIED, CU_MEMORYTYPE_UNIFIED),
    }
}

/// Copies rows of `width` bytes.
///
/// # Safety
/// The ranges are valid for `height` rows, for as long as the copy takes.
#[allow(clippy::too_many_arguments)]
pub unsafe fn rows(
    to: *mut c_void,
    to_pitch: usize,
    from: *const c_void,
    from_pitch: usize,
    width: usize,
    height: usize,
    kind: cudaMemcpyKind,
    order: Order,
) -> Result<()> {
    let d = current()?;
    check_kind(kind)?;
    if width == 0 || height == 0 {
        return Ok(());
    }
    // For one row the driver decides: it needs no pitch.
    if height > 1 && (width > to_pitch || width > from_pitch) {
        return Err(error::INVALID_PITCH_VALUE);
    }
    if to.is_null() || from.is_null() {
        return Err(error::INVALID_VALUE);
    }
    let (source, destination) = memory_types(kind);
    let copy = CUDA_MEMCPY2D {
        srcXInBytes: 0,
        srcY: 0,
        srcMemoryType: source,
        srcHost: from,
        srcDevice: address(from),
        srcArray: null_mut(),
        srcPitch: from_pitch,
        dstXInBytes: 0,
        dstY: 0,
        dstMemoryType: destination,
        dstHost: to,
        dstDevice: address(to),
        dstArray: null_mut(),
        dstPitch: to_pitch,
        WidthInBytes: width,
        Height: height,
    };
    // SAFETY: promised by the caller.
    unsafe {
        ordered(
            d,
            order,
            || d.cuMemcpy2DUnaligned(&copy),
            |s| d.cuMemcpy2DAsync(&copy, s),
        )
    }
}

/// The address of a copy to or from a symbol, with its direction checked.
pub fn within_symbol(
    of: *const c_void,
    bytes: usize,
    offset: usize,
    kind: cudaMemcpyKind,
    allowed: [cudaMemcpyKind; 2],
) -> Result<*mut c_void> {
    if kind != MEMCPY_DEFAULT && !allowed.contains(&kind) {
        return Err(error::INVALID_MEMCPY_DIRECTION);
    }
    let (start, size) = symbol(of)?;
    match offset.checked_add(bytes) {
        Some(end) if end <= size => Ok(start.wrapping_byte_add(offset)),
        _ => Err(error::INVALID_VALUE),
    }
}

/// The directions of copies to symbols, beside the default one.
pub const TO_SYMBOL: [cudaMemcpyKind; 2] = [MEMCPY_HOST_TO_DEVICE, MEMCPY_DEVICE_TO_DEVICE];
/// The directions of copies from symbols, beside the default one.
pub const FROM_SYMBOL: [cudaMemcpyKind; 2] = [MEMCPY_DEVICE_TO_HOST, MEMCPY_DEVICE_TO_DEVICE];

export! {
    fn(ds) cudaMemcpy, cudaMemcpy_ptds(to: *mut c_void, from: *const c_void, bytes: usize, kind: cudaMemcpyKind) {
        linear(to, from, bytes, kind, Order::Synchronous(ds))
    }

    fn(ds) cudaMemcpyAsync, cudaMemcpyAsync_ptsz(to: *mut c_void, from: *const c_void, bytes: usize, kind: cudaMemcpyKind, stream: cudaStream_t) {
        linear(to, from, bytes, kind, Order::Stream(ds.of(stream)))
    }

    fn(ds) cudaMemcpy2D, cudaMemcpy2D_ptds(to: *mut c_void, to_pitch: usize, from: *const c_void, from_pitch: usize, width: usize, height: usize, kind: cudaMemcpyKind) {
        rows(to, to_pitch, from, from_pitch, width, height, kind, Order::Synchronous(ds))
    }

    fn(ds) cudaMemcpy2DAsync, cudaMemcpy2DAsync_ptsz(to: *mut c_void, to_pitch: usize, from: *const c_void, from_pitch: usize, width: usize, height: usize, kind: cudaMemcpyKind, stream: cudaStream_t) {
        rows(to, to_pitch, from, from_pitch, width, height, kind, Order::Stream(ds.of(stream)))
    }

    fn(ds) cudaMemcpyToSymbol, cudaMemcpyToSymbol_ptds(symbol: *const c_void, from: *const c_void, bytes: usize, offset: usize, kind: cudaMemcpyKind) {
        let to = within_symbol(symbol, bytes, offset, kind, TO_SYMBOL)?;
        linear(to, from, bytes, kind, Order::Synchronous(ds))
    }

    fn(ds) cudaMemcpyFromSymbol, cudaMemcpyFromSymbol_ptds(to: *mut c_void, symbol: *const c_void, bytes: usize, offset: usize, kind: cudaMemcpyKind) {
        let from = within_symbol(symbol, bytes, offset, kind, FROM_SYMBOL)?;
        linear(to, from, bytes, kind, Order::Synchronous(ds))
    }

    fn(ds) cudaMemcpyToSymbolAsync, cudaMemcpyToSymbolAsync_ptsz(symbol: *const c_void, from: *const c_void, bytes: usize, offset: usize, kind: cudaMemcpyKind, stream: cudaStream_t) {
        let to = within_symbol(symbol, bytes, offset, kind, TO_SYMBOL)?;
        linear(to, from, bytes, kind, Order::Stream(ds.of(stream)))
    }

    fn(ds) cudaMemcpyFromSymbolAsync, cudaMemcpyFromSymbolAsync_ptsz(to: *mut c_void, symbol: *const c_void, bytes: usize, offset: usize, kind: cudaMemcpyKind, stream: cudaStream_t) {
        let from = within_symbol(symbol, bytes, offset, kind, FROM_SYMBOL)?;
        linear(to, from, bytes, kind, Order::Stream(ds.of(stream)))
    }

    fn cudaMemcpyPeer(to: *mut c_void, to_device: c_int, from: *const c_void, from_device: c_int, bytes: usize) {
        let driver = peers(to_device, from_device)?;
        if bytes == 0 {
            return Ok(());
        }
        driver.cuMemcpyPeer(address(to), retain(driver, to_device)?, address(from), retain(driver, from_device)?, bytes)
    }

    fn cudaMemcpyPeerAsync(to: *mut c_void, to_device: c_int, from: *const c_void, from_device: c_int, bytes: usize, stream: cudaStream_t) {
        let driver = peers(to_device, from_device)?;
        if bytes == 0 {
            return Ok(());
        }
        driver.cuMemcpyPeerAsync(address(to), retain(driver, to_device)?, address(from), retain(driver, from_device)?, bytes, stream)
    }

    fn(ds) cudart12_cudaMemcpyBatchAsync, cudart12_cudaMemcpyBatchAsync_ptsz(to: *mut CUdeviceptr, from: *mut CUdeviceptr, sizes: *mut usize, count: usize, attributes: *mut CUmemcpyAttributes, indices: *mut usize, number: usize, failed: *mut usize, stream: cudaStream_t) {
        current()?.cuMemcpyBatchAsync12(to, from, sizes, count, attributes, indices, number, failed, ds.of(stream))
    }

    fn(ds) cudart13_cudaMemcpyBatchAsync, cudart13_cudaMemcpyBatchAsync_ptsz(to: *mut CUdeviceptr, from: *mut CUdeviceptr, sizes: *mut usize, count: usize, attributes: *mut CUmemcpyAttributes, indices: *mut usize, number: usize, stream: cudaStream_t) {
        current()?.cuMemcpyBatchAsync13(to, from, sizes, count, attributes, indices, number, ds.of(stream))
    }

    // An operation of the batch has the driver's form.
    fn(ds) cudart12_cudaMemcpy3DBatchAsync, cudart12_cudaMemcpy3DBatchAsync_ptsz(count: usize, operations: *mut c_void, failed: *mut usize, flags: u64, stream: cudaStream_t) {
        current()?.cuMemcpy3DBatchAsync12(count, operations, failed, flags, ds.of(stream))
    }

    fn(ds) cudart13_cudaMemcpy3DBatchAsync, cudart13_cudaMemcpy3DBatchAsync_ptsz(count: usize, operations: *mut c_void, flags: u64, stream: cudaStream_t) {
        current()?.cuMemcpy3DBatchAsync13(count, operations, flags, ds.of(stream))
    }

    // A copy with attributes follows the rules of a batch. So it is sent as a batch of one, which every driver of CUDA
    // 13 supports.
    fn(ds) cudaMemcpyWithAttributesAsync, cudaMemcpyWithAttributesAsync_ptsz(to: *mut c_void, from: *const c_void, bytes: usize, attributes: *mut CUmemcpyAttributes, stream: cudaStream_t) {
        let (mut to, mut from, mut bytes, mut first) = (address(to), address(from), bytes, 0);
        current()?.cuMemcpyBatchAsync13(&raw mut to, &raw mut from, &raw mut bytes, 1, attributes, &raw mut first, 1, ds.of(stream))
    }

    // As above; an operation has the driver's form.
    fn(ds) cudaMemcpy3DWithAttributesAsync, cudaMemcpy3DWithAttributesAsync_ptsz(operation: *mut c_void, flags: u64, stream: cudaStream_t) {
        current()?.cuMemcpy3DBatchAsync13(1, operation, flags, ds.of(stream))
    }

    fn(ds) cudaMemset, cudaMemset_ptds(to: *mut c_void, value: c_int, bytes: usize) {
        set(to, bytes, value, bytes, 1, Order::Synchronous(ds))
    }

    fn(ds) cudaMemsetAsync, cudaMemsetAsync_ptsz(to: *mut c_void, value: c_int, bytes: usize, stream: cudaStream_t) {
        set(to, bytes, value, bytes, 1, Order::Stream(ds.of(stream)))
    }

    fn(ds) cudaMemset2D, cudaMemset2D_ptds(to: *mut c_void, pitch: usize, value: c_int, width: usize, height: usize) {
        set(to, pitch, value, width, height, Order::Synchronous(ds))
    }

    fn(ds) cudaMemset2DAsync, cudaMemset2DAsync_ptsz(to: *mut c_void, pitch: usize, value: c_int, width: usize, height: usize, stream: cudaStream_t) {
        set(to, pitch, value, width, height, Order::Stream(ds.of(stream)))
    }

    fn(ds) cudaMemset3D, cudaMemset3D_ptds(to: cudaPitchedPtr, value: c_int, extent: cudaExtent) {
        set_box(to, value, extent, Order::Synchronous(ds))
    }

    fn(ds) cudaMemset3DAsync, cudaMemset3DAsync_ptsz(to: cudaPitchedPtr, value: c_int, extent: cudaExtent, stream: cudaStream_t) {
        set_box(to, value, extent, Order::Stream(ds.of(stream)))
    }
}

fn peers(one: c_int, other: c_int) -> Result<&'static Driver> {
    let driver = current()?;
    crate::device::check_ordinal(driver, one)?;
    crate::device::check_ordinal(driver, other)?;
    Ok(driver)
}

/// Sets `height` rows of `width` bytes. Both orders return before the work is done: setting device memory is
/// asynchronous, in the stream's order.
///
/// # Safety
/// The rows are the caller's to write.
unsafe fn set(
    to: *mut c_void,
    pitch: usize,
    value: c_int,
    width: usize,
    height: usize,
    order: Order,
) -> Result<()> {
    let d = current()?;
    if width == 0 || height == 0 {
        return Ok(());
    }
    if width > pitch && height > 1 {
        return Err(error::INVALID_VALUE);
    }
    // CUDA documents that the value is used as an unsigned char.
    let (to, value) = (address(to), value as u8);
    // SAFETY: promised by the caller.
    unsafe {
        match (order, height) {
            (Order::Synchronous(DefaultStream::Legacy), 1) => d.cuMemsetD8(to, value, width),
            (Order::Synchronous(DefaultStream::Legacy), _) => {
                d.cuMemsetD2D8(to, pitch, value, width, height)
            }
            (Order::Synchronous(ds), _) => {
                let stream = ds.of(null_mut());
                match height {
                    1 => d.cuMemsetD8Async(to, value, width, stream)?,
                    _ => d.cuMemsetD2D8Async(to, pitch, value, width, height, stream)?,
                }
                // The call does not wait for device memory, but does for host memory.
                let mut kind = 0_u32;
                let attribute = CU_POINTER_ATTRIBUTE_MEMORY_TYPE;
                d.cuPointerGetAttribute((&raw mut kind).cast(), attribute, to)?;
                match kind {
                    CU_MEMORYTYPE_DEVICE => Ok(()),
                    _ => d.cuStreamSynchronize(stream),
                }
            }
            (Order::Stream(stream), 1) => d.cuMemsetD8Async(to, value, width, stream),
            (Order::Stream(stream), _) => {
                d.cuMemsetD2D8Async(to, pitch, value, width, height, stream)
            }
        }
    }
}

/// Sets a box inside a pitched allocation, slice by slice if slices are not adjacent.
///
/// # Safety
/// The box is the caller's to write.
unsafe fn set_box(
    to: cudaPitchedPtr,
    value: c_int,
    extent: cudaExtent,
    order: Order,
) -> Result<()> {
    if extent.width > to.pitch && (extent.height > 1 || extent.depth > 1) {
        return Err(error::INVALID_VALUE);
    }
    // SAFETY: promised by the caller.
    unsafe {
        if extent.height == to.ysize || extent.depth <= 1 {
            let rows = extent
                .height
                .checked_mul(extent.depth)
                .ok_or(error::INVALID_VALUE)?;
            return set(to.ptr, to.pitch, value, extent.width, rows, order);
        }
        let slice = to.pitch.checked_mul(to.ysize).ok_or(error::INVALID_VALUE)?;
        for z in 0..extent.depth {
            set(
                to.ptr.wrapping_byte_add(z.wrapping_mul(slice)),
                to.pitch,
                value,
                extent.width,
                extent.height,
                order,
            )?;
        }
    }
    Ok(())
}
