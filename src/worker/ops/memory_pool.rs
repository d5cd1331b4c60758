// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Memory pools, and stream-ordered memory.

use gpgpu_protocol::api::{reply, request};

use crate::worker::{
    device_memory::enter_stream,
    dispatch::Outcome,
    session::{Data, Session},
};

/// `cuMemAllocFromPoolAsync`, and `cuMemAllocAsync` after the guest's library has looked up the pool.
pub fn cuMemAllocFromPoolAsync(
    session: &Session,
    request: request::cuMemAllocFromPoolAsync,
    _: Data,
) -> Outcome<reply::cuMemAllocFromPoolAsync> {
    let (key, _) = enter_stream(session, request.hStream)?;
    // Without a pointer for the address the call is as invalid as with a size of 0.
    let bytes = if request.dptr { request.bytesize } else { 0 };
    let memory = &session.device_memory;
    let dptr = memory.allocate_ordered(key, request.pool, bytes as u64)?;
    Ok(reply::cuMemAllocFromPoolAsync {
        dptr,
        ..Default::default()
    })
}

/// `cuMemFreeAsync`.
pub fn cuMemFreeAsync(
    session: &Session,
    request: request::cuMemFreeAsync,
    _: Data,
) -> Outcome<reply::cuMemFreeAsync> {
    let (key, raw) = enter_stream(session, request.hStream)?;
    session.device_memory.free_ordered(key, raw, request.dptr)?;
    Ok(reply::cuMemFreeAsync::default())
}

/// `cuMemPoolCreate`.
pub fn cuMemPoolCreate(
    session: &Session,
    request: request::cuMemPoolCreate,
    _: Data,
) -> Outcome<reply::cuMemPoolCreate> {
    let device = session.gpu(request.dev)?;
    session
        .device_memory
        .create_mempool(request.pool, device, request.maxSize as u64)?;
    Ok(reply::cuMemPoolCreate::default())
}

/// `cuMemPoolDestroy`.
pub fn cuMemPoolDestroy(
    session: &Session,
    request: request::cuMemPoolDestroy,
    _: Data,
) -> Outcome<reply::cuMemPoolDestroy> {
    session.device_memory.destroy_mempool(request.pool)?;
    Ok(reply::cuMemPoolDestroy::default())
}

/// `cuMemPoolTrimTo`.
pub fn cuMemPoolTrimTo(
    session: &Session,
    request: request::cuMemPoolTrimTo,
    _: Data,
) -> Outcome<reply::cuMemPoolTrimTo> {
    session
        .device_memory
        .trim_mempool(request.pool, request.minBytesToKeep as u64)?;
    Ok(reply::cuMemPoolTrimTo::default())
}

/// `cuMemPoolGetAttribute`.
pub fn cuMemPoolGetAttribute(
    session: &Session,
    request: request::cuMemPoolGetAttribute,
    _: Data,
) -> Outcome<reply::cuMemPoolGetAttribute> {
    let value = session
        .device_memory
        .mempool_attribute(request.pool, request.attr)?;
    Ok(reply::cuMemPoolGetAttribute {
        value,
        ..Default::default()
    })
}

/// `cuMemPoolSetAttribute`.
pub fn cuMemPoolSetAttribute(
    session: &Session,
    request: request::cuMemPoolSetAttribute,
    _: Data,
) -> Outcome<reply::cuMemPoolSetAttribute> {
    session
        .device_memory
        .set_mempool_attribute(request.pool, request.attr, request.value)?;
    Ok(reply::cuMemPoolSetAttribute::default())
}

/// `cuMemPoolSetAccess`, for one device.
pub fn cuMemPoolSetAccess(
    session: &Session,
    request: request::cuMemPoolSetAccess,
    _: Data,
) -> Outcome<reply::cuMemPoolSetAccess> {
    let device = session.gpu(request.dev)?;
    session
        .device_memory
        .set_mempool_access(request.pool, device, request.flags)?;
    Ok(reply::cuMemPoolSetAccess::default())
}

/// Waits until memory that was freed in stream order is available, and returns whether there is any.
pub fn gpgpuReclaim(
    session: &Session,
    _: request::gpgpuReclaim,
    _: Data,
) -> Outcome<reply::gpgpuReclaim> {
    let more = session.device_memory.reclaim()?;
    Ok(reply::gpgpuReclaim { more: more.into() })
}
