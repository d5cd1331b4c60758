// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Allocation, pinned host memory, pointer attributes, managed memory and IPC.

use crate::abi::*;
use crate::context::{current, current_device};
use crate::error::{self, Result};
use gpgpu_protocol::cuda::*;
use std::ffi::{c_int, c_uint, c_void};
use std::ptr::null_mut;

/// `cudaMemoryTypeManaged`; lower types have the driver's numbers.
const MEMORY_TYPE_MANAGED: c_uint = 3;
/// `cudaInvalidDeviceId`.
const INVALID_DEVICE_ID: c_int = -2;
/// `cudaCpuDeviceId`.
const CPU_DEVICE_ID: c_int = -1;
/// The element size for which rows are aligned: the largest that the driver knows.
const PITCH_ELEMENT: c_uint = 16;

/// An address in the driver's type.
pub fn address(pointer: *const c_void) -> CUdeviceptr {
    pointer as CUdeviceptr
}

/// The location for a device number of an older interface.
fn location(device: c_int) -> cudaMemLocation {
    if device == CPU_DEVICE_ID {
        cudaMemLocation {
            type_: MEM_LOCATION_HOST,
            id: 0,
        }
    } else {
        cudaMemLocation {
            type_: MEM_LOCATION_DEVICE,
            id: device,
        }
    }
}

export! {
    fn cudaMalloc(pointer: *mut *mut c_void, bytes: usize) {
        let driver = current()?;
        if pointer.is_null() {
            return Err(error::INVALID_VALUE);
        }
        if bytes == 0 {
            pointer.write(null_mut());
            return Ok(());
        }
        let result = driver.cuMemAlloc(pointer.cast(), bytes);
        if result.is_err() {
            pointer.write(null_mut());
        }
        result
    }

    fn cudaFree(pointer: *mut c_void) {
        // Programs free NULL in order to get a context.
        let driver = current()?;
        match driver.cuMemFree(address(pointer)) {
            // Freeing NULL fails only in a broken context.
            Err(error::INVALID_VALUE) if pointer.is_null() => Ok(()),
            result => result,
        }
    }

    fn cudaMallocPitch(pointer: *mut *mut c_void, pitch: *mut usize, width: usize, height: usize) {
        let driver = current()?;
        if pointer.is_null() || pitch.is_null() {
            return Err(error::INVALID_VALUE);
        }
        if width == 0 || height == 0 {
            pointer.write(null_mut());
            pitch.write(0);
            return Ok(());
        }
        driver.cuMemAllocPitch(pointer.cast(), pitch, width, height, PITCH_ELEMENT)
    }

    fn cudaMalloc3D(pitched: *mut cudaPitchedPtr, extent: cudaExtent) {
        let driver = current()?;
        if pitched.is_null() {
            return Err(error::INVALID_VALUE);
        }
        let rows = extent.height.checked_mul(extent.depth).ok_or(error::MEMORY_ALLOCATION)?;
        let (mut pointer, mut pitch) = (0, 0);
        if extent.width != 0 && rows != 0 {
            driver.cuMemAllocPitch(&mut pointer, &mut pitch, extent.width, rows, PITCH_ELEMENT)?;
        }
        pitched.write(cudaPitchedPtr {
            ptr: pointer as *mut c_void,
            pitch,
            xsize: extent.width,
            ysize: extent.height,
        });
        Ok(())
    }

    fn cudaMallocHost(pointer: *mut *mut c_void, bytes: usize) {
        host_alloc(pointer, bytes, 0)
    }

    fn cudaHostAlloc(pointer: *mut *mut c_void, bytes: usize, flags: c_uint) {
        host_alloc(pointer, bytes, flags)
    }

    fn cudaFreeHost(pointer: *mut c_void) {
        let driver = current()?;
        if pointer.is_null() {
            return Ok(());
        }
        driver.cuMemFreeHost(pointer)
    }

    pass fn cudaHostRegister(pointer: *mut c_void, bytes: usize, flags: c_uint) => cuMemHostRegister;
    pass fn cudaHostUnregister(pointer: *mut c_void) => cuMemHostUnregister;
    pass fn cudaHostGetFlags(flags: *mut c_uint, pointer: *mut c_void) => cuMemHostGetFlags;
    pass fn cudaMemGetInfo(free: *mut usize, total: *mut usize) => cuMemGetInfo;

    fn cudaHostGetDevicePointer(device: *mut *mut c_void, host: *mut c_void, flags: c_uint) {
        current()?.cuMemHostGetDevicePointer(device.cast(), host, flags)
    }

    fn cudaMallocManaged(pointer: *mut *mut c_void, bytes: usize, flags: c_uint) {
        let driver = current()?;
        if pointer.is_null() {
            return Err(error::INVALID_VALUE);
        }
        // An allocation of 0 bytes succeeds with a null pointer, whatever the flags are.
        if bytes == 0 {
            pointer.write(null_mut());
            return Ok(());
        }
        let result = driver.cuMemAllocManaged(pointer.cast(), bytes, flags);
        if result.is_err() {
            pointer.write(null_mut());
        }
        result
    }

    fn cudaPointerGetAttributes(attributes: *mut cudaPointerAttributes, pointer: *const c_void) {
        // A context is needed first: the driver can be queried about any address.
        let driver = current()?;
        if attributes.is_null() {
            return Err(error::INVALID_VALUE);
        }
        let mut kind: c_uint = 0;
        let mut ordinal: c_int = INVALID_DEVICE_ID;
        let mut managed: c_uint = 0;
        let (mut device, mut host) = (null_mut::<c_void>(), null_mut::<c_void>());
        let mut names = [
            CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
            CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
            CU_POINTER_ATTRIBUTE_IS_MANAGED,
            CU_POINTER_ATTRIBUTE_DEVICE_POINTER,
            CU_POINTER_ATTRIBUTE_HOST_POINTER,
        ];
        let mut values: [*mut c_void; 5] = [
            (&raw mut kind).cast(),
            (&raw mut ordinal).cast(),
            (&raw mut managed).cast(),
            (&raw mut device).cast(),
            (&raw mut host).cast(),
        ];
        driver.cuPointerGetAttributes(5, names.as_mut_ptr(), values.as_mut_ptr(), address(pointer))?;
        let answer = match kind {
            0 => cudaPointerAttributes {
                kind: 0,
                device: INVALID_DEVICE_ID,
                devicePointer: null_mut(),
                hostPointer: pointer.cast_mut(),
            },
            kind => cudaPointerAttributes {
                kind: if managed & 0xff != 0 { MEMORY_TYPE_MANAGED } else { kind },
                device: ordinal,
                devicePointer: device,
                hostPointer: host,
            },
        };
        attributes.write(answer);
        if cudart_abi() >= VERSION_13 {
            // Version 13 has eight more reserved words.
            attributes.add(1).cast::<u64>().write_bytes(0, 8);
        }
        Ok(())
    }

    fn cudart13_cudaMemAdvise(pointer: *const c_void, bytes: usize, advice: c_uint, location: cudaMemLocation) {
        current()?.cuMemAdvise(address(pointer), bytes, advice, location)
    }

    fn cudaMemAdvise_v2(pointer: *const c_void, bytes: usize, advice: c_uint, location: cudaMemLocation) {
        current()?.cuMemAdvise(address(pointer), bytes, advice, location)
    }

    fn cudart12_cudaMemAdvise(pointer: *const c_void, bytes: usize, advice: c_uint, device: c_int) {
        current()?.cuMemAdvise(address(pointer), bytes, advice, location(device))
    }

    fn(ds) cudart13_cudaMemPrefetchAsync, cudart13_cudaMemPrefetchAsync_ptsz(pointer: *const c_void, bytes: usize, location: cudaMemLocation, flags: c_uint, stream: cudaStream_t) {
        current()?.cuMemPrefetchAsync(address(pointer), bytes, location, flags, ds.of(stream))
    }

    fn(ds) cudaMemPrefetchAsync_v2, cudaMemPrefetchAsync_v2_ptsz(pointer: *const c_void, bytes: usize, location: cudaMemLocation, flags: c_uint, stream: cudaStream_t) {
        current()?.cuMemPrefetchAsync(address(pointer), bytes, location, flags, ds.of(stream))
    }

    fn(ds) cudart12_cudaMemPrefetchAsync, cudart12_cudaMemPrefetchAsync_ptsz(pointer: *const c_void, bytes: usize, device: c_int, stream: cudaStream_t) {
        current()?.cuMemPrefetchAsync(address(pointer), bytes, location(device), 0, ds.of(stream))
    }

    pass fn(stream) cudaMemPrefetchBatchAsync, cudaMemPrefetchBatchAsync_ptsz(pointers: *mut CUdeviceptr, sizes: *mut usize, count: usize, locations: *mut cudaMemLocation, indices: *mut usize, number: usize, flags: u64, stream: cudaStream_t) => cuMemPrefetchBatchAsync;
    pass fn(stream) cudaMemDiscardBatchAsync, cudaMemDiscardBatchAsync_ptsz(pointers: *mut CUdeviceptr, sizes: *mut usize, count: usize, flags: u64, stream: cudaStream_t) => cuMemDiscardBatchAsync;
    pass fn(stream) cudaMemDiscardAndPrefetchBatchAsync, cudaMemDiscardAndPrefetchBatchAsync_ptsz(pointers: *mut CUdeviceptr, sizes: *mut usize, count: usize, locations: *mut cudaMemLocation, indices: *mut usize, number: usize, flags: u64, stream: cudaStream_t) => cuMemDiscardAndPrefetchBatchAsync;
    pass fn cudaMemRangeGetAttribute(data: *mut c_void, size: usize, attribute: c_uint, pointer: CUdeviceptr, bytes: usize) => cuMemRangeGetAttribute;
    pass fn cudaMemRangeGetAttributes(data: *mut *mut c_void, sizes: *mut usize, attributes: *mut c_uint, count: usize, pointer: CUdeviceptr, bytes: usize) => cuMemRangeGetAttributes;
    pass fn(stream) cudaStreamAttachMemAsync, cudaStreamAttachMemAsync_ptsz(stream: cudaStream_t, pointer: CUdeviceptr, bytes: usize, flags: c_uint) => cuStreamAttachMemAsync;

    pass fn cudaIpcGetMemHandle(handle: *mut CUipcMemHandle, pointer: CUdeviceptr) => cuIpcGetMemHandle;
    pass fn cudaIpcOpenMemHandle(pointer: *mut CUdeviceptr, handle: CUipcMemHandle, flags: c_uint) => cuIpcOpenMemHandle;
    pass fn cudaIpcCloseMemHandle(pointer: CUdeviceptr) => cuIpcCloseMemHandle;
    pass fn cudaIpcGetEventHandle(handle: *mut CUipcEventHandle, event: cudaEvent_t) => cuIpcGetEventHandle;
    pass fn cudaIpcOpenEventHandle(event: *mut cudaEvent_t, handle: CUipcEventHandle) => cuIpcOpenEventHandle;

    pass fn(stream) cudaMallocAsync, cudaMallocAsync_ptsz(pointer: *mut CUdeviceptr, bytes: usize, stream: cudaStream_t) => cuMemAllocAsync;
    pass fn(stream) cudaFreeAsync, cudaFreeAsync_ptsz(pointer: CUdeviceptr, stream: cudaStream_t) => cuMemFreeAsync;
    pass fn(stream) cudaMallocFromPoolAsync, cudaMallocFromPoolAsync_ptsz(pointer: *mut CUdeviceptr, bytes: usize, pool: cudaMemPool_t, stream: cudaStream_t) => cuMemAllocFromPoolAsync;
    pass fn cudaMemPoolCreate(pool: *mut cudaMemPool_t, properties: *const CUmemPoolProps) => cuMemPoolCreate;
    pass fn cudaMemPoolDestroy(pool: cudaMemPool_t) => cuMemPoolDestroy;
    pass fn cudaMemPoolTrimTo(pool: cudaMemPool_t, keep: usize) => cuMemPoolTrimTo;
    pass fn cudaMemPoolGetAttribute(pool: cudaMemPool_t, attribute: c_uint, value: *mut c_void) => cuMemPoolGetAttribute;
    pass fn cudaMemPoolSetAttribute(pool: cudaMemPool_t, attribute: c_uint, value: *mut c_void) => cuMemPoolSetAttribute;
    pass fn cudaMemPoolGetAccess(flags: *mut c_uint, pool: cudaMemPool_t, location: *mut cudaMemLocation) => cuMemPoolGetAccess;
    pass fn cudaMemPoolSetAccess(pool: cudaMemPool_t, descriptions: *const CUmemAccessDesc, count: usize) => cuMemPoolSetAccess;
    pass fn cudaMemPoolExportPointer(data: *mut c_void, pointer: CUdeviceptr) => cuMemPoolExportPointer;
    pass fn cudaMemPoolImportPointer(pointer: *mut CUdeviceptr, pool: cudaMemPool_t, data: *mut c_void) => cuMemPoolImportPointer;
    pass fn cudaMemGetDefaultMemPool(pool: *mut cudaMemPool_t, location: *mut cudaMemLocation, kind: c_uint) => cuMemGetDefaultMemPool;
    pass fn cudaMemGetMemPool(pool: *mut cudaMemPool_t, location: *mut cudaMemLocation, kind: c_uint) => cuMemGetMemPool;
    pass fn cudaMemSetMemPool(location: *mut cudaMemLocation, kind: c_uint, pool: cudaMemPool_t) => cuMemSetMemPool;

    fn cudaMemPoolExportToShareableHandle(handle: *mut c_void, pool: cudaMemPool_t, kind: c_uint, flags: c_uint) {
        current()?.cuMemPoolExportToShareableHandle(handle, pool, kind, u64::from(flags))
    }

    fn cudaMemPoolImportFromShareableHandle(pool: *mut cudaMemPool_t, handle: *mut c_void, kind: c_uint, flags: c_uint) {
        current()?.cuMemPoolImportFromShareableHandle(pool, handle, kind, u64::from(flags))
    }
}

fn host_alloc(pointer: *mut *mut c_void, bytes: usize, flags: c_uint) -> Result<()> {
    let (driver, _) = current_device()?;
    if pointer.is_null() {
        return Err(error::INVALID_VALUE);
    }
    // SAFETY: not null, and the caller's to write.
    unsafe {
        if bytes == 0 {
            pointer.write(null_mut());
            return Ok(());
        }
        // With unified addressing, every pinned allocation is mapped (observed: the flag reads back as set).
        let result = driver.cuMemHostAlloc(pointer, bytes, flags | CU_MEMHOSTALLOC_DEVICEMAP);
        if result.is_err() {
            pointer.write(null_mut());
        }
        result
    }
}
