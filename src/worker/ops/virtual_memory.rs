// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Virtual memory: reserved addresses, physical memory, and mappings.

use gpgpu_protocol::{
    api::{reply, request},
    cuda::*,
};

use crate::worker::{
    dispatch::Outcome,
    session::{Data, Session},
};

/// `cuMemAddressReserve`.
pub fn cuMemAddressReserve(
    session: &Session,
    request: request::cuMemAddressReserve,
    _: Data,
) -> Outcome<reply::cuMemAddressReserve> {
    if !request.ptr {
        return Err(CUDA_ERROR_INVALID_VALUE.into());
    }
    let (bytes, alignment) = (request.size as u64, request.alignment as u64);
    let memory = &session.device_memory;
    Ok(reply::cuMemAddressReserve {
        ptr: memory.reserve_addresses(bytes, alignment, request.addr)?,
        ..Default::default()
    })
}

/// `cuMemAddressFree`.
pub fn cuMemAddressFree(
    session: &Session,
    request: request::cuMemAddressFree,
    _: Data,
) -> Outcome<reply::cuMemAddressFree> {
    let bytes = request.size as u64;
    session.device_memory.free_addresses(request.ptr, bytes)?;
    Ok(reply::cuMemAddressFree::default())
}

/// `cuMemCreate`.
pub fn cuMemCreate(
    session: &Session,
    request: request::cuMemCreate,
    _: Data,
) -> Outcome<reply::cuMemCreate> {
    let device = (session.gpu(request.dev)?, request.dev);
    let bytes = request.size as u64;
    session
        .device_memory
        .create_physical(request.handle, bytes, device, false)?;
    Ok(reply::cuMemCreate::default())
}

/// `cuMemCreate` of memory that can be shared with other processes.
pub fn gpgpuCreateShareable(
    session: &Session,
    request: request::gpgpuCreateShareable,
    _: Data,
) -> Outcome<reply::gpgpuCreateShareable> {
    let device = (session.gpu(request.dev)?, request.dev);
    let bytes = request.size as u64;
    session
        .device_memory
        .create_physical(request.handle, bytes, device, true)?;
    Ok(reply::gpgpuCreateShareable::default())
}

/// `cuMemRelease`.
pub fn cuMemRelease(
    session: &Session,
    request: request::cuMemRelease,
    _: Data,
) -> Outcome<reply::cuMemRelease> {
    session.device_memory.release_physical(request.handle)?;
    Ok(reply::cuMemRelease::default())
}

/// `cuMemMap`.
pub fn cuMemMap(
    session: &Session,
    request: request::cuMemMap,
    _: Data,
) -> Outcome<reply::cuMemMap> {
    let (bytes, offset) = (request.size as u64, request.offset as u64);
    let memory = &session.device_memory;
    Ok(reply::cuMemMap {
        dev: memory.map(request.ptr, bytes, offset, request.handle)?,
        ..Default::default()
    })
}

/// `cuMemUnmap`.
pub fn cuMemUnmap(
    session: &Session,
    request: request::cuMemUnmap,
    _: Data,
) -> Outcome<reply::cuMemUnmap> {
    session
        .device_memory
        .unmap(request.ptr, request.size as u64)?;
    Ok(reply::cuMemUnmap::default())
}

/// `cuMemSetAccess`, for one device.
pub fn cuMemSetAccess(
    session: &Session,
    request: request::cuMemSetAccess,
    _: Data,
) -> Outcome<reply::cuMemSetAccess> {
    let device = session.gpu(request.dev)?;
    let (start, bytes) = (request.ptr, request.size as u64);
    session
        .device_memory
        .set_access(start, bytes, device, request.flags)?;
    Ok(reply::cuMemSetAccess::default())
}

/// `cuMemGetAccess`.
pub fn cuMemGetAccess(
    session: &Session,
    request: request::cuMemGetAccess,
    _: Data,
) -> Outcome<reply::cuMemGetAccess> {
    let device = session.gpu(request.dev)?;
    let flags = session.device_memory.access(request.ptr, device)?;
    Ok(reply::cuMemGetAccess {
        flags: flags.into(),
        ..Default::default()
    })
}

/// `cuMemRetainAllocationHandle`.
pub fn cuMemRetainAllocationHandle(
    session: &Session,
    request: request::cuMemRetainAllocationHandle,
    _: Data,
) -> Outcome<reply::cuMemRetainAllocationHandle> {
    let handle = session.device_memory.retain_physical(request.addr)?;
    Ok(reply::cuMemRetainAllocationHandle {
        handle,
        ..Default::default()
    })
}

/// The properties of physical memory.
pub fn gpgpuPhysicalMemory(
    session: &Session,
    request: request::gpgpuPhysicalMemory,
    _: Data,
) -> Outcome<reply::gpgpuPhysicalMemory> {
    let (dev, bytes) = session.device_memory.describe_physical(request.handle)?;
    Ok(reply::gpgpuPhysicalMemory {
        dev,
        bytes,
        ..Default::default()
    })
}
