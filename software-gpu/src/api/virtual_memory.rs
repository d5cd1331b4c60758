// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Virtual memory management: addresses and physical memory apart, and physical memory that other processes import.

use std::ffi::{c_int, c_ulonglong, c_void};
use std::os::fd::{BorrowedFd, IntoRawFd};

use gpgpu_protocol::cuda::{
    CU_MEM_ACCESS_FLAGS_PROT_NONE, CU_MEM_ACCESS_FLAGS_PROT_READ,
    CU_MEM_ACCESS_FLAGS_PROT_READWRITE, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED,
    CU_MEM_ALLOCATION_COMP_GENERIC, CU_MEM_ALLOCATION_TYPE_MANAGED, CU_MEM_ALLOCATION_TYPE_PINNED,
    CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, CU_MEM_LOCATION_TYPE_DEVICE,
    CU_MEM_LOCATION_TYPE_HOST, CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT, CUDA_ERROR_INVALID_VALUE,
    CUDA_ERROR_NOT_SUPPORTED, CUDA_ERROR_OUT_OF_MEMORY, CUdeviceptr, CUmemAccessDesc,
    CUmemAllocationFlags, CUmemAllocationGranularity_flags, CUmemAllocationHandleType,
    CUmemAllocationProp, CUmemGenericAllocationHandle, CUmemLocation,
};

use super::device::check;
use crate::config::GRANULARITY;
use crate::context;
use crate::driver::Driver;
use crate::ffi::{Pointer, Result, export};
use crate::memory::{Handle, Kind, Physical};

const NO_HANDLE_TYPES: CUmemAllocationHandleType = 0;

// The host's memory and its processors' nodes are places that this device has nothing to do with.
fn is_this_device(location: CUmemLocation) -> Result {
    match location.type_ {
        CU_MEM_LOCATION_TYPE_DEVICE => check(location.id),
        CU_MEM_LOCATION_TYPE_HOST..=CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT => {
            Err(CUDA_ERROR_NOT_SUPPORTED)
        }
        _ => Err(CUDA_ERROR_INVALID_VALUE),
    }
}

// Checks that such memory is supported.
fn check_properties(prop: &CUmemAllocationProp) -> Result {
    match prop.type_ {
        CU_MEM_ALLOCATION_TYPE_PINNED => {}
        CU_MEM_ALLOCATION_TYPE_MANAGED => return Err(CUDA_ERROR_NOT_SUPPORTED),
        _ => return Err(CUDA_ERROR_INVALID_VALUE),
    }
    is_this_device(prop.location)?;
    let flags = &prop.allocFlags;
    if !prop.win32HandleMetaData.is_null()
        || flags.compressionType > CU_MEM_ALLOCATION_COMP_GENERIC
        || flags.reserved != [0; 4]
    {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    // Compression is only a request; the handle's properties show that it was not granted.
    if prop.requestedHandleTypes & !CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR != NO_HANDLE_TYPES
        || flags.gpuDirectRDMACapable != 0
        || flags.usage != 0
    {
        return Err(CUDA_ERROR_NOT_SUPPORTED);
    }
    Ok(())
}

fn create(driver: &'static Driver, size: usize, prop: &CUmemAllocationProp) -> Result<u64> {
    check_properties(prop)?;
    let size = size as u64;
    if size == 0 || !size.is_multiple_of(GRANULARITY) {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    let charge = match driver.memory.charge(size, prop.location.id) {
        Err(CUDA_ERROR_OUT_OF_MEMORY) => {
            super::pool::trim_all(driver);
            driver.memory.charge(size, prop.location.id)?
        }
        other => other?,
    };
    let physical = Physical::create(size, prop.location.id, prop.requestedHandleTypes, charge)?;
    Ok(Handle::announce(physical))
}

// Functions that take memory away first wait for the work of the calling thread's context, as `cuMemFree` does.
fn wait_for_work() {
    if let Ok(context) = context::current() {
        context.wait();
    }
}

fn set_access(
    driver: &'static Driver,
    (address, size): (u64, usize),
    wishes: &[CUmemAccessDesc],
) -> Result {
    driver.memory.check_mapped(address, size as u64)?;
    for wish in wishes {
        is_this_device(wish.location)?;
        if !matches!(
            wish.flags,
            CU_MEM_ACCESS_FLAGS_PROT_NONE
                | CU_MEM_ACCESS_FLAGS_PROT_READ
                | CU_MEM_ACCESS_FLAGS_PROT_READWRITE
        ) {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
    }
    if wishes.is_empty() {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    let size = size as u64;
    if driver.memory.lessens_access(address, size, wishes)? {
        wait_for_work();
    }
    driver.memory.set_access(address, size, wishes)
}

export! {
    /// `cuMemGetAllocationGranularity`: 2 MiB, the least and the best.
    healthy fn cuMemGetAllocationGranularity(granularity: Pointer<usize>, prop: Pointer<CUmemAllocationProp>, option: CUmemAllocationGranularity_flags) |_| {
        granularity.required()?;
        check_properties(&prop.get()?)?;
        if option > CU_MEM_ALLOC_GRANULARITY_RECOMMENDED {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        granularity.set(GRANULARITY as usize)
    }

    /// `cuMemAddressReserve`: at `wish` if that is free and aligned, else elsewhere. Sizes are multiples of the
    /// granularity.
    healthy fn cuMemAddressReserve(out: Pointer<CUdeviceptr>, size: usize, alignment: usize, wish: CUdeviceptr, flags: c_ulonglong) |driver| {
        out.required()?;
        if flags != 0 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        out.set(driver.memory.reserve(size as u64, alignment as u64, wish)?)
    }

    /// `cuMemAddressFree`: a whole reservation, in which nothing is mapped any more.
    healthy fn cuMemAddressFree(address: CUdeviceptr, size: usize) |driver| {
        let gone = driver.memory.unreserve(address, size as u64)?;
        context::drop_when_unused(gone);
        Ok(())
    }

    /// `cuMemCreate`: device memory, which can be exported as a file descriptor if the properties request it.
    healthy fn cuMemCreate(out: Pointer<CUmemGenericAllocationHandle>, size: usize, prop: Pointer<CUmemAllocationProp>, flags: c_ulonglong) |driver| {
        out.required()?;
        let prop = prop.get()?;
        if flags != 0 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        out.set(create(driver, size, &prop)?)
    }

    /// `cuMemRelease`: the memory itself exists as long as it is mapped or imported somewhere.
    healthy fn cuMemRelease(handle: CUmemGenericAllocationHandle) |_| {
        Handle::named(handle)?.release()
    }

    /// `cuMemMap`: the whole of a handle's memory. Another offset than zero and another size than the memory's are not
    /// supported.
    healthy fn cuMemMap(address: CUdeviceptr, size: usize, offset: usize, handle: CUmemGenericAllocationHandle, flags: c_ulonglong) |driver| {
        let handle = Handle::named(handle)?;
        if size == 0 || flags != 0 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        if offset != 0 {
            return Err(CUDA_ERROR_NOT_SUPPORTED);
        }
        driver.memory.map(address, size as u64, &handle)
    }

    /// `cuMemUnmap`: the whole mappings of a range, which may have holes.
    healthy fn cuMemUnmap(address: CUdeviceptr, size: usize) |driver| {
        driver.memory.check_unmap(address, size as u64)?;
        wait_for_work();
        driver.memory.unmap(address, size as u64)?;
        driver.fault()
    }

    /// `cuMemSetAccess`: of one or several whole mappings that lie side by side. The host has no access.
    healthy fn cuMemSetAccess(address: CUdeviceptr, size: usize, list: Pointer<CUmemAccessDesc>, count: usize) |driver| {
        set_access(driver, (address, size), &list.array(count)?)
    }

    /// `cuMemGetAccess`.
    healthy fn cuMemGetAccess(flags: Pointer<c_ulonglong>, location: Pointer<CUmemLocation>, address: CUdeviceptr) |driver| {
        flags.required()?;
        let location = location.get()?;
        is_this_device(location)?;
        let found = driver.memory.find(address).ok_or(CUDA_ERROR_INVALID_VALUE)?;
        let access = match (&found.mapped, &found.kind) {
            (Some(mapped), _) => mapped.access_of(location.id),
            // The answer of NVIDIA's driver (580) for allocated memory, whatever the access.
            (None, Kind::Device | Kind::Pool(_)) => 0,
            (None, _) => return Err(CUDA_ERROR_INVALID_VALUE),
        };
        flags.set(access.into())
    }

    /// `cuMemExportToShareableHandle`: writes a file descriptor, an `int`, which the caller closes.
    healthy fn cuMemExportToShareableHandle(out: Pointer<c_void>, handle: CUmemGenericAllocationHandle, kind: CUmemAllocationHandleType, flags: c_ulonglong) |_| {
        out.required()?;
        let handle = Handle::named(handle)?;
        let physical = handle.physical();
        if flags != 0 || kind != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR || physical.handle_types() & kind == 0 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        out.cast::<c_int>().set(physical.export()?.into_raw_fd())
    }

    /// `cuMemImportFromShareableHandle`: of a file descriptor, passed in place of the pointer; it stays the caller's.
    healthy fn cuMemImportFromShareableHandle(out: Pointer<CUmemGenericAllocationHandle>, shareable: *mut c_void, kind: CUmemAllocationHandleType) |_| {
        out.required()?;
        let fd = c_int::try_from(shareable as usize).map_err(|_| CUDA_ERROR_INVALID_VALUE)?;
        if kind != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        // SAFETY: the caller keeps the descriptor open during the call; a closed one only makes system calls fail.
        let fd = unsafe { BorrowedFd::borrow_raw(fd) };
        out.set(Handle::announce(Physical::import(fd)?))
    }

    /// `cuMemGetAllocationPropertiesFromHandle`.
    healthy fn cuMemGetAllocationPropertiesFromHandle(out: Pointer<CUmemAllocationProp>, handle: CUmemGenericAllocationHandle) |_| {
        out.required()?;
        let handle = Handle::named(handle)?;
        out.set(CUmemAllocationProp {
            type_: CU_MEM_ALLOCATION_TYPE_PINNED,
            requestedHandleTypes: handle.physical().handle_types(),
            location: CUmemLocation {
                type_: CU_MEM_LOCATION_TYPE_DEVICE,
                id: handle.physical().device(),
            },
            win32HandleMetaData: std::ptr::null_mut(),
            allocFlags: CUmemAllocationFlags::default(),
        })
    }

    /// `cuMemRetainAllocationHandle`: of any mapped address; the same handle that it was mapped with.
    healthy fn cuMemRetainAllocationHandle(out: Pointer<CUmemGenericAllocationHandle>, address: *mut c_void) |driver| {
        out.required()?;
        let found = driver.memory.find(address as u64).ok_or(CUDA_ERROR_INVALID_VALUE)?;
        let mapped = found.mapped.as_ref().ok_or(CUDA_ERROR_INVALID_VALUE)?;
        out.set(mapped.handle().retain()?)
    }
}
