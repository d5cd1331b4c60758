// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! CUDA arrays, copies with arrays and three-dimensional copies.

mod runs;

use crate::abi::*;
use crate::context::{current, retain};
use crate::copy::{Order, check_kind, memory_types, ordered, rows};
use crate::driver::Driver;
use crate::error::{self, Result};
use crate::memory::address;
use gpgpu_protocol::cuda::*;
use runs::{array_rows, between_arrays, into_array, out_of_array};
use std::ffi::{c_int, c_uint, c_void};
use std::ptr::null_mut;

/// `cudaErrorInvalidChannelDescriptor`.
const INVALID_CHANNEL_DESCRIPTOR: cudaError_t = 20;
/// `cudaChannelFormatKind`: signed, unsigned, float.
const SIGNED: c_uint = 0;
const UNSIGNED: c_uint = 1;
const FLOAT: c_uint = 2;

/// The driver's element format and number of channels for a description.
pub fn format_of(description: &cudaChannelFormatDesc) -> Result<(CUarray_format, c_uint)> {
    let bits = [description.x, description.y, description.z, description.w];
    let channels = bits.iter().take_while(|&&bits| bits != 0).count();
    let uniform = bits[..channels].iter().all(|&each| each == bits[0])
        && bits[channels..].iter().all(|&each| each == 0);
    if !uniform || !matches!(channels, 1 | 2 | 4) {
        return Err(INVALID_CHANNEL_DESCRIPTOR);
    }
    let format = match (description.f, bits[0]) {
        (UNSIGNED, 8) => CU_AD_FORMAT_UNSIGNED_INT8,
        (UNSIGNED, 16) => CU_AD_FORMAT_UNSIGNED_INT16,
        (UNSIGNED, 32) => CU_AD_FORMAT_UNSIGNED_INT32,
        (SIGNED, 8) => CU_AD_FORMAT_SIGNED_INT8,
        (SIGNED, 16) => CU_AD_FORMAT_SIGNED_INT16,
        (SIGNED, 32) => CU_AD_FORMAT_SIGNED_INT32,
        (FLOAT, 16) => CU_AD_FORMAT_HALF,
        (FLOAT, 32) => CU_AD_FORMAT_FLOAT,
        _ => return Err(INVALID_CHANNEL_DESCRIPTOR),
    };
    Ok((format, channels as c_uint))
}

/// The description of a format, and the bytes of an element.
pub fn description_of(array: &CUDA_ARRAY3D_DESCRIPTOR) -> Result<(cudaChannelFormatDesc, usize)> {
    let (bits, kind) = match array.Format {
        CU_AD_FORMAT_UNSIGNED_INT8 => (8, UNSIGNED),
        CU_AD_FORMAT_UNSIGNED_INT16 => (16, UNSIGNED),
        CU_AD_FORMAT_UNSIGNED_INT32 => (32, UNSIGNED),
        CU_AD_FORMAT_SIGNED_INT8 => (8, SIGNED),
        CU_AD_FORMAT_SIGNED_INT16 => (16, SIGNED),
        CU_AD_FORMAT_SIGNED_INT32 => (32, SIGNED),
        CU_AD_FORMAT_HALF => (16, FLOAT),
        CU_AD_FORMAT_FLOAT => (32, FLOAT),
        _ => return Err(error::NOT_SUPPORTED),
    };
    let channel = |index| if index < array.NumChannels { bits } else { 0 };
    let description = cudaChannelFormatDesc {
        x: channel(0),
        y: channel(1),
        z: channel(2),
        w: channel(3),
        f: kind,
    };
    Ok((
        description,
        bits.cast_unsigned() as usize / 8 * array.NumChannels as usize,
    ))
}

/// The driver's description of an array.
pub fn describe(driver: &Driver, array: cudaArray_t) -> Result<CUDA_ARRAY3D_DESCRIPTOR> {
    if array.is_null() {
        return Err(error::INVALID_RESOURCE_HANDLE);
    }
    let mut description = CUDA_ARRAY3D_DESCRIPTOR::default();
    // SAFETY: `description` outlives the call.
    unsafe { driver.cuArray3DGetDescriptor(&mut description, array) }?;
    Ok(description)
}

fn create(
    description: *const cudaChannelFormatDesc,
    extent: cudaExtent,
    flags: c_uint,
) -> Result<(&'static Driver, CUDA_ARRAY3D_DESCRIPTOR)> {
    let driver = current()?;
    // SAFETY: the caller's to lend, null excepted.
    let description = unsafe { description.as_ref() }.ok_or(error::INVALID_VALUE)?;
    let (format, channels) = format_of(description)?;
    Ok((
        driver,
        CUDA_ARRAY3D_DESCRIPTOR {
            Width: extent.width,
            Height: extent.height,
            Depth: extent.depth,
            Format: format,
            NumChannels: channels,
            Flags: flags,
        },
    ))
}

/// One side of a copy with arrays.
#[derive(Clone, Copy)]
struct Side {
    array: cudaArray_t,
    pointer: cudaPitchedPtr,
}

/// The driver's form of a copy. Extents and positions in arrays are in elements, all others in bytes.
pub fn native(driver: &Driver, p: &cudaMemcpy3DParms) -> Result<CUDA_MEMCPY3D> {
    check_kind(p.kind)?;
    let source = Side {
        array: p.srcArray,
        pointer: p.srcPtr,
    };
    let destination = Side {
        array: p.dstArray,
        pointer: p.dstPtr,
    };
    let element = |side: Side| {
        if side.array.is_null() {
            if side.pointer.ptr.is_null() {
                return Err(error::INVALID_VALUE);
            }
            return Ok(None);
        }
        if !side.pointer.ptr.is_null() {
            return Err(error::INVALID_VALUE);
        }
        Ok(Some(description_of(&describe(driver, side.array)?)?.1))
    };
    let (from, to) = (element(source)?, element(destination)?);
    if let (Some(from), Some(to)) = (from, to)
        && from != to
    {
        return Err(error::INVALID_VALUE);
    }
    let unit = from.or(to).unwrap_or(1);
    let bytes =
        |elements: usize, size: usize| elements.checked_mul(size).ok_or(error::INVALID_VALUE);
    let (source_type, destination_type) = memory_types(p.kind);
    let of = |array: cudaArray_t, linear| {
        if array.is_null() {
            linear
        } else {
            CU_MEMORYTYPE_ARRAY
        }
    };
    Ok(CUDA_MEMCPY3D {
        srcXInBytes: bytes(p.srcPos.x, from.unwrap_or(1))?,
        srcY: p.srcPos.y,
        srcZ: p.srcPos.z,
        srcLOD: 0,
        srcMemoryType: of(p.srcArray, source_type),
        srcHost: p.srcPtr.ptr,
        srcDevice: address(p.srcPtr.ptr),
        srcArray: p.srcArray,
        reserved0: null_mut(),
        srcPitch: p.srcPtr.pitch,
        srcHeight: p.srcPtr.ysize,
        dstXInBytes: bytes(p.dstPos.x, to.unwrap_or(1))?,
        dstY: p.dstPos.y,
        dstZ: p.dstPos.z,
        dstLOD: 0,
        dstMemoryType: of(p.dstArray, destination_type),
        dstHost: p.dstPtr.ptr,
        dstDevice: address(p.dstPtr.ptr),
        dstArray: p.dstArray,
        reserved1: null_mut(),
        dstPitch: p.dstPtr.pitch,
        dstHeight: p.dstPtr.ysize,
        WidthInBytes: bytes(p.extent.width, unit)?,
        Height: p.extent.height,
        Depth: p.extent.depth,
    })
}

/// Copies a box.
///
/// # Safety
/// The boxes are valid for as long as the copy takes.
unsafe fn copy(parameters: *const cudaMemcpy3DParms, order: Order) -> Result<()> {
    let driver = current()?;
    // SAFETY: promised by the caller, null excepted.
    let p = unsafe { parameters.as_ref() }.ok_or(error::INVALID_VALUE)?;
    if p.extent.width == 0 || p.extent.height == 0 || p.extent.depth == 0 {
        return check_kind(p.kind);
    }
    let copy = native(driver, p)?;
    // SAFETY: promised by the caller.
    let result = unsafe {
        ordered(
            driver,
            order,
            || driver.cuMemcpy3D(&copy),
            |stream| driver.cuMemcpy3DAsync(&copy, stream),
        )
    };
    if result != Err(error::NOT_SUPPORTED) || !p.srcArray.is_null() || !p.dstArray.is_null() {
        return result;
    }
    // The driver has no three-dimensional copies: copy linear memory slice by slice.
    let start = |pointer: cudaPitchedPtr, position: cudaPos, z: usize| {
        let row = (position.z + z)
            .wrapping_mul(pointer.ysize)
            .wrapping_add(position.y);
        pointer
            .ptr
            .wrapping_byte_add(row.wrapping_mul(pointer.pitch).wrapping_add(position.x))
    };
    for z in 0..p.extent.depth {
        // SAFETY: promised by the caller.
        unsafe {
            rows(
                start(p.dstPtr, p.dstPos, z),
                p.dstPtr.pitch,
                start(p.srcPtr, p.srcPos, z),
                p.srcPtr.pitch,
                p.extent.width,
                p.extent.height,
                p.kind,
                order,
            )
        }?;
    }
    Ok(())
}

/// The driver's form of a copy between devices.
///
/// # Safety
/// `parameters` is readable.
unsafe fn between_devices(
    driver: &Driver,
    parameters: *const cudaMemcpy3DPeerParms,
) -> Result<CUDA_MEMCPY3D> {
    // SAFETY: promised by the caller, null excepted.
    let p = unsafe { parameters.as_ref() }.ok_or(error::INVALID_VALUE)?;
    crate::device::check_ordinal(driver, p.srcDevice)?;
    crate::device::check_ordinal(driver, p.dstDevice)?;
    let one = cudaMemcpy3DParms {
        srcArray: p.srcArray,
        srcPos: p.srcPos,
        srcPtr: p.srcPtr,
        dstArray: p.dstArray,
        dstPos: p.dstPos,
        dstPtr: p.dstPtr,
        extent: p.extent,
        kind: MEMCPY_DEVICE_TO_DEVICE,
    };
    let mut copy = native(driver, &one)?;
    // CUDA_MEMCPY3D_PEER is the same structure with the contexts in the reserved words.
    copy.reserved0 = retain(driver, p.srcDevice)?.cast();
    copy.reserved1 = retain(driver, p.dstDevice)?.cast();
    Ok(copy)
}

export! {
    fn(ds) cudaMemcpy3D, cudaMemcpy3D_ptds(parameters: *const cudaMemcpy3DParms) {
        copy(parameters, Order::Synchronous(ds))
    }

    fn(ds) cudaMemcpy3DAsync, cudaMemcpy3DAsync_ptsz(parameters: *const cudaMemcpy3DParms, stream: cudaStream_t) {
        copy(parameters, Order::Stream(ds.of(stream)))
    }

    fn(ds) cudaMemcpy3DPeer, cudaMemcpy3DPeer_ptds(parameters: *const cudaMemcpy3DPeerParms) {
        let driver = current()?;
        let copy = between_devices(driver, parameters)?;
        ordered(driver, Order::Synchronous(ds), || driver.cuMemcpy3DPeer(&raw const copy), |stream| driver.cuMemcpy3DPeerAsync(&raw const copy, stream))
    }

    fn(ds) cudaMemcpy3DPeerAsync, cudaMemcpy3DPeerAsync_ptsz(parameters: *const cudaMemcpy3DPeerParms, stream: cudaStream_t) {
        let driver = current()?;
        let copy = between_devices(driver, parameters)?;
        driver.cuMemcpy3DPeerAsync(&raw const copy, ds.of(stream))
    }

    fn(ds) cudaMemcpy2DToArray, cudaMemcpy2DToArray_ptds(to: cudaArray_t, x: usize, y: usize, from: *const c_void, pitch: usize, width: usize, height: usize, kind: cudaMemcpyKind) {
        array_rows((to, null_mut()), (x, y), 0, (null_mut(), from), (0, 0), pitch, width, height, kind, Order::Synchronous(ds))
    }

    fn(ds) cudaMemcpy2DToArrayAsync, cudaMemcpy2DToArrayAsync_ptsz(to: cudaArray_t, x: usize, y: usize, from: *const c_void, pitch: usize, width: usize, height: usize, kind: cudaMemcpyKind, stream: cudaStream_t) {
        array_rows((to, null_mut()), (x, y), 0, (null_mut(), from), (0, 0), pitch, width, height, kind, Order::Stream(ds.of(stream)))
    }

    fn(ds) cudaMemcpy2DFromArray, cudaMemcpy2DFromArray_ptds(to: *mut c_void, pitch: usize, from: cudaArray_t, x: usize, y: usize, width: usize, height: usize, kind: cudaMemcpyKind) {
        array_rows((null_mut(), to), (0, 0), pitch, (from, null_mut()), (x, y), 0, width, height, kind, Order::Synchronous(ds))
    }

    fn(ds) cudaMemcpy2DFromArrayAsync, cudaMemcpy2DFromArrayAsync_ptsz(to: *mut c_void, pitch: usize, from: cudaArray_t, x: usize, y: usize, width: usize, height: usize, kind: cudaMemcpyKind, stream: cudaStream_t) {
        array_rows((null_mut(), to), (0, 0), pitch, (from, null_mut()), (x, y), 0, width, height, kind, Order::Stream(ds.of(stream)))
    }

    fn(ds) cudaMemcpy2DArrayToArray, cudaMemcpy2DArrayToArray_ptds(to: cudaArray_t, to_x: usize, to_y: usize, from: cudaArray_t, from_x: usize, from_y: usize, width: usize, height: usize, kind: cudaMemcpyKind) {
        array_rows((to, null_mut()), (to_x, to_y), 0, (from, null_mut()), (from_x, from_y), 0, width, height, kind, Order::Synchronous(ds))
    }

    fn(ds) cudaMemcpyArrayToArray, cudaMemcpyArrayToArray_ptds(to: cudaArray_t, to_x: usize, to_y: usize, from: cudaArray_t, from_x: usize, from_y: usize, bytes: usize, kind: cudaMemcpyKind) {
        between_arrays((to, (to_x, to_y)), (from, (from_x, from_y)), bytes, kind, Order::Synchronous(ds))
    }

    fn(ds) cudaMemcpyToArray, cudaMemcpyToArray_ptds(to: cudaArray_t, x: usize, y: usize, from: *const c_void, bytes: usize, kind: cudaMemcpyKind) {
        into_array(to, x, y, from, bytes, kind, Order::Synchronous(ds))
    }

    fn(ds) cudaMemcpyToArrayAsync, cudaMemcpyToArrayAsync_ptsz(to: cudaArray_t, x: usize, y: usize, from: *const c_void, bytes: usize, kind: cudaMemcpyKind, stream: cudaStream_t) {
        into_array(to, x, y, from, bytes, kind, Order::Stream(ds.of(stream)))
    }

    fn(ds) cudaMemcpyFromArray, cudaMemcpyFromArray_ptds(to: *mut c_void, from: cudaArray_t, x: usize, y: usize, bytes: usize, kind: cudaMemcpyKind) {
        out_of_array(to, from, x, y, bytes, kind, Order::Synchronous(ds))
    }

    fn(ds) cudaMemcpyFromArrayAsync, cudaMemcpyFromArrayAsync_ptsz(to: *mut c_void, from: cudaArray_t, x: usize, y: usize, bytes: usize, kind: cudaMemcpyKind, stream: cudaStream_t) {
        out_of_array(to, from, x, y, bytes, kind, Order::Stream(ds.of(stream)))
    }

    fn cudaMallocArray(array: *mut cudaArray_t, description: *const cudaChannelFormatDesc, width: usize, height: usize, flags: c_uint) {
        let (driver, native) = create(description, cudaExtent { width, height, depth: 0 }, flags)?;
        driver.cuArrayCreate3D(array, &native)
    }

    fn cudaMalloc3DArray(array: *mut cudaArray_t, description: *const cudaChannelFormatDesc, extent: cudaExtent, flags: c_uint) {
        let (driver, native) = create(description, extent, flags)?;
        driver.cuArrayCreate3D(array, &native)
    }

    fn cudaMallocMipmappedArray(array: *mut *mut c_void, description: *const cudaChannelFormatDesc, extent: cudaExtent, levels: c_uint, flags: c_uint) {
        let (driver, native) = create(description, extent, flags)?;
        driver.cuMipmappedArrayCreate(array, &native, levels)
    }

    fn cudaFreeArray(array: cudaArray_t) {
        let driver = current()?;
        if array.is_null() {
            return Ok(());
        }
        driver.cuArrayDestroy(array)
    }

    fn cudaFreeMipmappedArray(array: *mut c_void) {
        let driver = current()?;
        if array.is_null() {
            return Ok(());
        }
        driver.cuMipmappedArrayDestroy(array)
    }

    fn cudaArrayGetInfo(description: *mut cudaChannelFormatDesc, extent: *mut cudaExtent, flags: *mut c_uint, array: cudaArray_t) {
        let native = describe(current()?, array)?;
        if !description.is_null() {
            description.write(description_of(&native)?.0);
        }
        if !extent.is_null() {
            extent.write(cudaExtent { width: native.Width, height: native.Height, depth: native.Depth });
        }
        if !flags.is_null() {
            flags.write(native.Flags);
        }
        Ok(())
    }

    fn cudaGetChannelDesc(description: *mut cudaChannelFormatDesc, array: cudaArray_t) {
        let native = describe(current()?, array)?;
        if description.is_null() {
            return Err(error::INVALID_VALUE);
        }
        description.write(description_of(&native)?.0);
        Ok(())
    }

    pass fn cudaGetMipmappedArrayLevel(level: *mut cudaArray_t, array: *mut c_void, index: c_uint) => cuMipmappedArrayGetLevel;
    pass fn cudaArrayGetPlane(plane: *mut cudaArray_t, array: cudaArray_t, index: c_uint) => cuArrayGetPlane;
    pass fn cudaArrayGetMemoryRequirements(requirements: *mut CUDA_ARRAY_MEMORY_REQUIREMENTS, array: cudaArray_t, device: c_int) => cuArrayGetMemoryRequirements;
    pass fn cudaArrayGetSparseProperties(properties: *mut c_void, array: cudaArray_t) => cuArrayGetSparseProperties;
    pass fn cudaMipmappedArrayGetMemoryRequirements(requirements: *mut CUDA_ARRAY_MEMORY_REQUIREMENTS, array: *mut c_void, device: c_int) => cuMipmappedArrayGetMemoryRequirements;
    pass fn cudaMipmappedArrayGetSparseProperties(properties: *mut c_void, array: *mut c_void) => cuMipmappedArrayGetSparseProperties;
}

#[unsafe(no_mangle)]
extern "C" fn cudaCreateChannelDesc(
    x: c_int,
    y: c_int,
    z: c_int,
    w: c_int,
    f: c_uint,
) -> cudaChannelFormatDesc {
    cudaChannelFormatDesc { x, y, z, w, f }
}

/// The runtime's form of a copy that the driver describes.
pub fn foreign(driver: &Driver, copy: &CUDA_MEMCPY3D) -> Result<cudaMemcpy3DParms> {
    let side =
        |kind, host: *const c_void, device: CUdeviceptr, array: cudaArray_t, pitch, height| {
            let (array, ptr) = match kind {
                CU_MEMORYTYPE_ARRAY => (array, null_mut()),
                CU_MEMORYTYPE_HOST => (null_mut(), host.cast_mut()),
                _ => (null_mut(), device as *mut c_void),
            };
            (
                array,
                cudaPitchedPtr {
                    ptr,
                    pitch,
                    xsize: copy.WidthInBytes,
                    ysize: height,
                },
            )
        };
    let (srcArray, srcPtr) = side(
        copy.srcMemoryType,
        copy.srcHost,
        copy.srcDevice,
        copy.srcArray,
        copy.srcPitch,
        copy.srcHeight,
    );
    let (dstArray, dstPtr) = side(
        copy.dstMemoryType,
        copy.dstHost,
        copy.dstDevice,
        copy.dstArray,
        copy.dstPitch,
        copy.dstHeight,
    );
    let element = |array: cudaArray_t| {
        if array.is_null() {
            return Ok::<_, cudaError_t>(1);
        }
        Ok(description_of(&describe(driver, array)?)?.1)
    };
    let (from, to) = (element(srcArray)?, element(dstArray)?);
    let kind = match (copy.srcMemoryType, copy.dstMemoryType) {
        (CU_MEMORYTYPE_UNIFIED, _) | (_, CU_MEMORYTYPE_UNIFIED) => MEMCPY_DEFAULT,
        (CU_MEMORYTYPE_HOST, CU_MEMORYTYPE_HOST) => MEMCPY_HOST_TO_HOST,
        (CU_MEMORYTYPE_HOST, _) => MEMCPY_HOST_TO_DEVICE,
        (_, CU_MEMORYTYPE_HOST) => MEMCPY_DEVICE_TO_HOST,
        _ => MEMCPY_DEVICE_TO_DEVICE,
    };
    Ok(cudaMemcpy3DParms {
        srcArray,
        srcPos: cudaPos {
            x: copy.srcXInBytes / from,
            y: copy.srcY,
            z: copy.srcZ,
        },
        srcPtr,
        dstArray,
        dstPos: cudaPos {
            x: copy.dstXInBytes / to,
            y: copy.dstY,
            z: copy.dstZ,
        },
        dstPtr,
        extent: cudaExtent {
            width: copy.WidthInBytes / from.max(to),
            height: copy.Height,
            depth: copy.Depth,
        },
        kind,
    })
}
