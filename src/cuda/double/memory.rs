// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Memory.

use std::{ffi::c_void, num::NonZeroUsize, ptr::NonNull};

use gpgpu_protocol::cuda::*;
use nix::sys::mman::{MapFlags, ProtFlags, mmap_anonymous, munmap};

use super::{call, current_device, end, made, state};

pub extern "C" fn cuMemGetInfo_v2(free: *mut usize, total: *mut usize) -> CUresult {
    // SAFETY: the caller's pointers are to sizes.
    unsafe {
        free.write(1 << 30);
        total.write(1 << 30);
    }
    CUDA_SUCCESS
}

pub extern "C" fn cuPointerGetAttribute(value: *mut i32, which: u32, at: u64) -> CUresult {
    let state = state();
    let covers =
        |(start, bytes): &(&u64, &usize)| (0..**bytes as u64).contains(&at.wrapping_sub(**start));
    let Some((start, _)) = state.memory.iter().find(covers) else {
        return CUDA_ERROR_INVALID_VALUE;
    };
    let answer = match which {
        CU_POINTER_ATTRIBUTE_MEMORY_TYPE => CU_MEMORYTYPE_DEVICE as i32,
        CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL => state.devices[start],
        _ => return CUDA_ERROR_NOT_SUPPORTED,
    };
    // SAFETY: the caller's pointer is to the attribute's value.
    unsafe { value.write(answer) };
    CUDA_SUCCESS
}

/// Memory whose addresses the kernel may reuse once it is freed.
pub extern "C" fn cuMemAlloc_v2(address: *mut u64, bytes: usize) -> CUresult {
    let protection = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
    let length = NonZeroUsize::new(bytes).unwrap();
    // SAFETY: a new mapping at an address of the kernel's choice.
    let mapped = unsafe { mmap_anonymous(None, length, protection, MapFlags::MAP_PRIVATE) };
    let start = mapped.unwrap().as_ptr() as u64;
    let device = current_device();
    let mut state = state();
    state.devices.insert(start, device);
    state.alive.insert(start);
    state.memory.insert(start, bytes);
    // SAFETY: the caller's pointer is to an address.
    unsafe { address.write(start) };
    CUDA_SUCCESS
}

pub extern "C" fn cuMemFree_v2(address: u64) -> CUresult {
    let Some(bytes) = state().memory.remove(&address) else {
        return CUDA_ERROR_INVALID_VALUE;
    };
    end("cuMemFree_v2", address);
    // SAFETY: it was mapped as one piece.
    unsafe { munmap(NonNull::new(address as *mut c_void).unwrap(), bytes).unwrap() };
    CUDA_SUCCESS
}

pub extern "C" fn cuMemGetAddressRange_v2(base: *mut u64, bytes: *mut usize, at: u64) -> CUresult {
    let state = state();
    let Some((start, size)) = (state.memory.iter()).find(|(start, _)| **start == at) else {
        return CUDA_ERROR_NOT_FOUND;
    };
    // SAFETY: the caller's pointers are to an address and a size.
    unsafe {
        base.write(*start);
        bytes.write(*size);
    }
    CUDA_SUCCESS
}

/// Copies at the end of the call, so the memory may have changed by then.
pub extern "C" fn cuMemcpyAsync(to: u64, from: u64, bytes: usize, stream: u64) -> CUresult {
    call("cuMemcpyAsync", &[to, from, stream]);
    // SAFETY: the caller says that both ranges are there.
    unsafe { std::ptr::copy(from as *const u8, to as *mut u8, bytes) };
    CUDA_SUCCESS
}

pub extern "C" fn cuMemsetD8_v2(to: u64, _: u8, _: usize) -> CUresult {
    call("cuMemsetD8_v2", &[to])
}

/// Memory of this length cannot be registered.
pub const REFUSED_BYTES: usize = 3 << 12;

pub extern "C" fn cuMemHostRegister_v2(address: u64, bytes: usize, _: u32) -> CUresult {
    if bytes == REFUSED_BYTES {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    state().alive.insert(address);
    CUDA_SUCCESS
}

pub extern "C" fn cuMemHostGetDevicePointer_v2(to: *mut u64, address: u64, _: u32) -> CUresult {
    // SAFETY: the caller's pointer is to an address.
    unsafe { to.write(address) };
    CUDA_SUCCESS
}

pub extern "C" fn cuMemHostUnregister(address: u64) -> CUresult {
    end("cuMemHostUnregister", address)
}

pub extern "C" fn cuDeviceGet(device: *mut CUdevice, number: i32) -> CUresult {
    // SAFETY: the caller's pointer is to a device's number.
    unsafe { device.write(number) };
    CUDA_SUCCESS
}

/// Grants every requested address.
pub extern "C" fn cuMemAddressReserve(
    to: *mut u64,
    _: usize,
    _: usize,
    at: u64,
    _: u64,
) -> CUresult {
    // SAFETY: the caller's pointer is to an address.
    unsafe { to.write(at) };
    CUDA_SUCCESS
}

pub extern "C" fn cuMemCreate(
    to: *mut u64,
    _: usize,
    _: *const CUmemAllocationProp,
    _: u64,
) -> CUresult {
    made(to)
}

pub extern "C" fn cuMemRelease(handle: u64) -> CUresult {
    end("cuMemRelease", handle)
}

pub extern "C" fn cuMemMap(at: u64, _: usize, _: usize, handle: u64, _: u64) -> CUresult {
    call("cuMemMap", &[handle]);
    state().alive.insert(at);
    CUDA_SUCCESS
}

pub extern "C" fn cuMemUnmap(at: u64, _: usize) -> CUresult {
    end("cuMemUnmap", at)
}

pub extern "C" fn cuMemSetAccess(
    at: u64,
    _: usize,
    _: *const CUmemAccessDesc,
    _: usize,
) -> CUresult {
    call("cuMemSetAccess", &[at])
}
