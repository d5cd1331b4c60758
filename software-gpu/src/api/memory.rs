// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Device memory.

use std::ffi::c_uint;
use std::sync::atomic::Ordering;

use gpgpu_graphs::Gpu;
use gpgpu_protocol::cuda::{
    CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_NOT_FOUND, CUDA_ERROR_OUT_OF_MEMORY, CUdeviceptr,
};

use crate::config::{MAX_PITCH, PITCH_ALIGNMENT};
use crate::context::{self, Context};
use crate::driver::{self, Driver};
use crate::ffi::{Pointer, Result, export};
use crate::graph::Soft;
use crate::memory::Kind;

/// `cuMemFree` of memory from either allocator: waits for all work first, as CUDA does.
pub(crate) fn free(driver: &'static Driver, address: CUdeviceptr) -> Result {
    let ours = |a: &crate::memory::Allocation| {
        matches!(a.kind, Kind::Device | Kind::Managed | Kind::Pool(_))
            && !a.being_freed.load(Ordering::Acquire)
    };
    let allocation = driver
        .memory
        .find(address)
        .filter(|a| a.start == address && ours(a))
        .ok_or(CUDA_ERROR_INVALID_VALUE)?;
    context::wait_for_users(&allocation);
    let gone = driver
        .memory
        .remove(address, ours)
        .ok_or(CUDA_ERROR_INVALID_VALUE)?;
    match gone.kind {
        Kind::Pool(_) => super::pool::give_back(driver, gone),
        _ => context::retire(driver, gone),
    }
    driver.fault()
}

// If memory is short, the pools return kept memory.
pub(crate) fn allocate(size: usize, cx: &Context) -> Result<u64> {
    let driver = driver::get()?;
    let owner = (cx.id, cx.device);
    let allocate = || driver.memory.allocate(size as u64, Kind::Device, owner);
    let allocation = match allocate() {
        Err(CUDA_ERROR_OUT_OF_MEMORY) => {
            super::pool::trim_all(driver);
            allocate()?
        }
        other => other?,
    };
    Ok(allocation.start)
}

export! {
    /// `cuMemGetInfo`: either out pointer may be NULL.
    context fn cuMemGetInfo_v2(free: Pointer<usize>, total: Pointer<usize>) |cx| {
        let memory = &driver::get()?.memory;
        free.set_if(memory.free_bytes(cx.device) as usize);
        total.set_if(memory.total() as usize);
        Ok(())
    }

    /// `cuMemAlloc`.
    context fn cuMemAlloc_v2(out: Pointer<CUdeviceptr>, size: usize) |cx| {
        out.required()?;
        out.set(allocate(size, &cx)?)
    }

    /// `cuMemAllocPitch`: rows start at multiples of 512 bytes.
    context fn cuMemAllocPitch_v2(out: Pointer<CUdeviceptr>, pitch_out: Pointer<usize>, width: usize, height: usize, element: c_uint) |cx| {
        out.required()?;
        pitch_out.required()?;
        if width == 0 || height == 0 || !matches!(element, 4 | 8 | 16) {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let pitch = width
            .checked_next_multiple_of(PITCH_ALIGNMENT)
            .filter(|p| *p <= MAX_PITCH)
            .ok_or(CUDA_ERROR_INVALID_VALUE)?;
        let size = pitch.checked_mul(height).ok_or(CUDA_ERROR_OUT_OF_MEMORY)?;
        let address = allocate(size, &cx)?;
        pitch_out.set(pitch)?;
        out.set(address)
    }

    /// `cuMemFree`: NULL is nothing; anything but the start of an allocation is `CUDA_ERROR_INVALID_VALUE`.
    /// It needs no current context.
    healthy fn cuMemFree_v2(address: CUdeviceptr) |driver| {
        match address {
            0 => Ok(()),
            // A graph's memory is the graph's still.
            address => match Soft::store().free(address) {
                Some(freed) => {
                    context::wait_for_all();
                    freed.and(driver.fault())
                }
                None => free(driver, address),
            },
        }
    }

    /// `cuMemGetAddressRange`: either out pointer may be NULL; `CUDA_ERROR_NOT_FOUND` outside of all allocations.
    context fn cuMemGetAddressRange_v2(base: Pointer<CUdeviceptr>, size: Pointer<usize>, address: CUdeviceptr) |_| {
        let allocation = driver::get()?.memory.find(address).ok_or(CUDA_ERROR_NOT_FOUND)?;
        base.set_if(allocation.start);
        size.set_if(allocation.size as usize);
        Ok(())
    }

    /// `cuMemAllocManaged`: it is this process's memory, so program and kernels see each other's writes at once.
    context fn cuMemAllocManaged(out: Pointer<CUdeviceptr>, size: usize, flags: c_uint) |cx| {
        out.required()?;
        out.set_if(0);
        if size == 0 || !matches!(flags, 1 | 2) {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let owner = (cx.id, cx.device);
        let allocation = driver::get()?.memory.allocate_managed(size as u64, owner)?;
        out.set(allocation.start)
    }
}
