// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Device memory, registered memory, and queries about addresses.

use std::ffi::c_void;

use gpgpu_protocol::{
    api::{reply, request},
    cuda::*,
};

use super::copy::known;
use crate::cuda::driver;
use crate::worker::{
    device_memory::{Source, pitched},
    dispatch::Outcome,
    grace,
    session::{Data, Session},
};

/// `cuMemAlloc`.
pub fn cuMemAlloc_v2(
    session: &Session,
    request: request::cuMemAlloc_v2,
    _: Data,
) -> Outcome<reply::cuMemAlloc_v2> {
    let memory = &session.device_memory;
    // Without a pointer for the address the call is as invalid as with a size of 0.
    let bytes = if request.dptr { request.bytesize } else { 0 };
    Ok(reply::cuMemAlloc_v2 {
        dptr: memory.allocate(session.current(), bytes as u64)?,
        ..Default::default()
    })
}

/// `cuMemAllocPitch`.
pub fn cuMemAllocPitch_v2(
    session: &Session,
    request: request::cuMemAllocPitch_v2,
    _: Data,
) -> Outcome<reply::cuMemAllocPitch_v2> {
    let memory = &session.device_memory;
    let size = if request.dptr && request.pPitch {
        pitched(
            request.WidthInBytes,
            request.Height,
            request.ElementSizeBytes,
        )
    } else {
        Err(CUDA_ERROR_INVALID_VALUE)
    };
    let (pitch, bytes) = match size {
        Ok(size) => size,
        Err(code) => {
            // An error of the context takes precedence.
            memory.info()?;
            return Err(code.into());
        }
    };
    Ok(reply::cuMemAllocPitch_v2 {
        dptr: memory.allocate(session.current(), bytes as u64)?,
        pPitch: pitch,
        ..Default::default()
    })
}

/// `cuMemFree`.
pub fn cuMemFree_v2(
    session: &Session,
    request: request::cuMemFree_v2,
    _: Data,
) -> Outcome<reply::cuMemFree_v2> {
    session.device_memory.free(request.dptr)?;
    Ok(reply::cuMemFree_v2::default())
}

/// `cuMemFree` of memory that is no longer in use. The library has checked that it exists; otherwise a context's end
/// has freed it in the meantime.
pub fn gpgpuFreeIdle(
    session: &Session,
    request: request::gpgpuFreeIdle,
    _: Data,
) -> Outcome<reply::gpgpuFreeIdle> {
    match session.device_memory.free_idle(request.dptr) {
        Ok(()) | Err(CUDA_ERROR_INVALID_VALUE) => Ok(reply::gpgpuFreeIdle::default()),
        Err(code) => Err(code.into()),
    }
}

/// Gives a device access to memory of another one.
pub fn gpgpuMemoryReach(
    session: &Session,
    request: request::gpgpuMemoryReach,
    _: Data,
) -> Outcome<reply::gpgpuMemoryReach> {
    let device = session.gpu(request.dev)?;
    let reaches = session.device_memory.let_reach(request.dptr, device)?;
    Ok(reply::gpgpuMemoryReach {
        reaches: reaches.into(),
        ..Default::default()
    })
}

/// `cuMemGetInfo`.
pub fn cuMemGetInfo_v2(
    session: &Session,
    _: request::cuMemGetInfo_v2,
    _: Data,
) -> Outcome<reply::cuMemGetInfo_v2> {
    // If a context has failed, the next call reports it.
    let _ = session.device_memory.reap_all();
    let (free, total) = session.device_memory.info()?;
    Ok(reply::cuMemGetInfo_v2 { free, total })
}

/// `cuMemGetAddressRange`.
pub fn cuMemGetAddressRange_v2(
    session: &Session,
    request: request::cuMemGetAddressRange_v2,
    _: Data,
) -> Outcome<reply::cuMemGetAddressRange_v2> {
    let (pbase, psize) = match session.device_memory.address_range(request.dptr) {
        Some(range) => {
            let (start, bytes) = range?;
            (start, bytes as usize)
        }
        None => {
            let (mut base, mut size) = (0, 0);
            // SAFETY: the pointers are to values that live across the call; the address is only looked up.
            unsafe { driver::cuMemGetAddressRange_v2(&mut base, &mut size, request.dptr)? };
            (base, size)
        }
    };
    Ok(reply::cuMemGetAddressRange_v2 {
        pbase,
        psize,
        ..Default::default()
    })
}

/// `cuPointerSetAttribute`.
pub fn cuPointerSetAttribute(
    session: &Session,
    request: request::cuPointerSetAttribute,
    _: Data,
) -> Outcome<reply::cuPointerSetAttribute> {
    let value = request.value;
    // The driver has this attribute for `cuMemAlloc`'s memory, not for chunks.
    let ours = match (request.attribute, value) {
        (CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, Some(value)) => session
            .device_memory
            .set_sync_memops(request.ptr, value != 0),
        _ => None,
    };
    match ours {
        Some(result) => result?,
        None => {
            let value = value
                .as_ref()
                .map_or(std::ptr::null(), std::ptr::from_ref)
                .cast::<c_void>();
            // SAFETY: the pointer is NULL or to a value that lives across the call, and is as large as the one
            // attribute that can be set.
            unsafe { driver::cuPointerSetAttribute(value, request.attribute, request.ptr)? };
        }
    }
    Ok(reply::cuPointerSetAttribute::default())
}

/// Pins memory that the device process has mapped here before.
pub fn cuMemHostRegister_v2(
    session: &Session,
    request: request::cuMemHostRegister_v2,
    _: Data,
) -> Outcome<reply::cuMemHostRegister_v2> {
    // The mapping in this process decides whether memory is read-only or I/O memory, not the guest.
    let flags = request.flags & (CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP);
    // Pinning much memory takes long.
    grace::narrow(&session.used());
    let device = session.regions.register(
        session.current(),
        request.address,
        request.bytes as u64,
        flags,
    )?;
    session.count_pinned();
    Ok(reply::cuMemHostRegister_v2 {
        device,
        ..Default::default()
    })
}

/// Unpins it.
pub fn cuMemHostUnregister(
    session: &Session,
    request: request::cuMemHostUnregister,
    _: Data,
) -> Outcome<reply::cuMemHostUnregister> {
    session.regions.unregister(session, request.address)?;
    session.count_pinned();
    Ok(reply::cuMemHostUnregister::default())
}

/// `cuPointerGetAttribute`, for attributes that only the host knows and that contain no pointer.
pub fn gpgpuPointerAttribute(
    session: &Session,
    request: request::gpgpuPointerAttribute,
    _: Data,
) -> Outcome<reply::gpgpuPointerAttribute> {
    const TOLD: &[CUpointer_attribute] = &[
        CU_POINTER_ATTRIBUTE_BUFFER_ID,
        CU_POINTER_ATTRIBUTE_SYNC_MEMOPS,
        CU_POINTER_ATTRIBUTE_ACCESS_FLAGS,
        CU_POINTER_ATTRIBUTE_IS_MANAGED,
        CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE,
    ];
    if !TOLD.contains(&request.attribute) {
        return Err(CUDA_ERROR_INVALID_VALUE.into());
    }
    let answer = |value| reply::gpgpuPointerAttribute {
        value,
        ..Default::default()
    };
    let range = session.device_memory.find(request.ptr);
    match range.filter(|range| range.ending.is_none()) {
        Some(range) if matches!(range.source, Source::Pool { .. } | Source::Imported) => {
            // For these the driver would describe the whole chunk.
            match request.attribute {
                CU_POINTER_ATTRIBUTE_BUFFER_ID => return Ok(answer(range.id)),
                CU_POINTER_ATTRIBUTE_SYNC_MEMOPS => return Ok(answer(range.sync_memops.into())),
                _ => {}
            }
        }
        // Whether or not any device may access it.
        Some(range) if matches!(range.source, Source::Mapped { .. }) => {}
        _ => drop(known(session, request.ptr, 0)?),
    }
    // None of these attributes is larger. Bytes that the driver does not write stay zero.
    let mut value = 0_u64;
    let to: *mut c_void = std::ptr::from_mut(&mut value).cast();
    // SAFETY: the pointer is to a value that lives across the call and is as large as any of these attributes.
    unsafe { driver::cuPointerGetAttribute(to, request.attribute, request.ptr)? };
    Ok(answer(value))
}
