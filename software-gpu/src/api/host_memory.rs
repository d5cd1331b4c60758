// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Pinned host memory.

use std::ffi::{c_uint, c_void};

use gpgpu_protocol::cuda::{
    CU_MEMHOSTALLOC_DEVICEMAP, CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED, CUDA_ERROR_INVALID_VALUE,
    CUdeviceptr,
};

use crate::context::{self, Context};
use crate::driver;
use crate::ffi::{Pointer, Result, export};
use crate::memory::{Allocation, Kind};

type HostPointer = *mut c_void;

fn allocate(cx: &Context, out: Pointer<HostPointer>, size: usize, flags: c_uint) -> Result {
    out.required()?;
    if flags & !7 != 0 {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    // The driver returns no memory and no error, too.
    if size == 0 {
        return out.set(std::ptr::null_mut());
    }
    let allocation = driver::get()?
        .memory
        .allocate_host(size as u64, flags, (cx.id, cx.device))?;
    out.set(allocation.start as HostPointer)
}

fn register(cx: &Context, pointer: HostPointer, size: usize, flags: c_uint) -> Result {
    if flags & !15 != 0 {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    driver::get()?
        .memory
        .register(pointer as u64, size as u64, flags, (cx.id, cx.device))
}

// The program may unmap its own memory at once, so this waits for everything that could access it.
fn remove(address: u64, which: fn(&Allocation) -> bool, otherwise: u32) -> Result {
    let driver = driver::get()?;
    let allocation = driver
        .memory
        .find(address)
        .filter(|a| a.start == address && which(a))
        .ok_or(otherwise)?;
    context::wait_for_users(&allocation);
    let gone = driver.memory.remove(address, which).ok_or(otherwise)?;
    if is_registered(&gone) {
        context::wait_for_all();
    }
    drop(allocation);
    context::retire(driver, gone);
    driver.fault()
}

fn is_registered(allocation: &Allocation) -> bool {
    matches!(allocation.kind, Kind::HostRegistered(_))
}

fn is_allocated(allocation: &Allocation) -> bool {
    matches!(allocation.kind, Kind::HostAllocated(_))
}

export! {
    /// `cuMemHostAlloc`: every allocation is mapped for the device at its own address.
    context fn cuMemHostAlloc(out: Pointer<HostPointer>, size: usize, flags: c_uint) |cx| {
        allocate(&cx, out, size, flags)
    }

    /// `cuMemAllocHost`.
    context fn cuMemAllocHost_v2(out: Pointer<HostPointer>, size: usize) |cx| {
        allocate(&cx, out, size, 0)
    }

    /// As [`cuMemAllocHost_v2`], of CUDA 2.0: with a size of 32 bits.
    context fn cuMemAllocHost(out: Pointer<HostPointer>, size: c_uint) |cx| {
        allocate(&cx, out, size as usize, 0)
    }

    /// `cuMemFreeHost`: NULL is nothing. It needs no current context.
    healthy fn cuMemFreeHost(pointer: HostPointer) |_| {
        if pointer.is_null() {
            return Ok(());
        }
        remove(pointer as u64, is_allocated, CUDA_ERROR_INVALID_VALUE)
    }

    /// `cuMemHostRegister`.
    context fn cuMemHostRegister_v2(pointer: HostPointer, size: usize, flags: c_uint) |cx| {
        register(&cx, pointer, size, flags)
    }

    /// As [`cuMemHostRegister_v2`].
    context fn cuMemHostRegister(pointer: HostPointer, size: usize, flags: c_uint) |cx| {
        register(&cx, pointer, size, flags)
    }

    /// `cuMemHostUnregister`: `CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED` for memory that the driver does not know,
    /// `CUDA_ERROR_INVALID_VALUE` for memory in other use or with another beginning. It needs no current context.
    healthy fn cuMemHostUnregister(pointer: HostPointer) |driver| {
        let known = driver.memory.find(pointer as u64);
        if pointer.is_null() || known.is_some_and(|a| a.start != pointer as u64 || !is_registered(&a)) {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        remove(pointer as u64, is_registered, CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED)
    }

    /// `cuMemHostGetDevicePointer`: the same address.
    context fn cuMemHostGetDevicePointer_v2(out: Pointer<CUdeviceptr>, pointer: HostPointer, flags: c_uint) |_| {
        out.required()?;
        let found = driver::get()?.memory.find(pointer as u64).filter(|a| a.is_host());
        if flags != 0 || found.is_none() {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        out.set(pointer as CUdeviceptr)
    }

    /// `cuMemHostGetFlags`: with unified addresses, everything is mapped.
    context fn cuMemHostGetFlags(flags: Pointer<c_uint>, pointer: HostPointer) |_| {
        flags.required()?;
        match driver::get()?.memory.find(pointer as u64).map(|a| a.kind) {
            Some(Kind::Managed | Kind::ManagedModule) => flags.set(CU_MEMHOSTALLOC_DEVICEMAP),
            Some(Kind::HostAllocated(f) | Kind::HostRegistered(f)) => flags.set(f | CU_MEMHOSTALLOC_DEVICEMAP),
            _ => Err(CUDA_ERROR_INVALID_VALUE),
        }
    }
}
