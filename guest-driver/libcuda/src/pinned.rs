// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Pinned host memory: allocations, and pages of the program that it registers.
//!
//! Small allocations are parts of chunks that are pinned as a whole ([`crate::stores::host_parts`]); others have pages
//! of their own.

use std::ffi::c_void;

use gpgpu_client::transport::Failure;
use gpgpu_protocol::{
    api::request,
    cuda::*,
    layout::{PAGE_BYTES, status},
};

use crate::{
    argument::{HostPtr, OutPtr},
    client::{Client, client},
    cuda,
    ffi::Result,
    graph::left,
    stores::{
        blocks::{Block, Unused},
        host_parts::{CHUNK, LARGEST},
        pointers::{Kind, Origin, Range},
    },
    thread,
};

/// Handles the end of a context, with its chunks.
pub fn forget_context(client: &Client, context: u64) {
    give_back(client, &client.host_parts.forget_context(context));
}

fn code(failure: Failure) -> CUresult {
    match failure {
        Failure::Os(libc::EFAULT | libc::EINVAL) => CUDA_ERROR_INVALID_VALUE,
        // The worker has ended, or the device is gone.
        Failure::Status(status::CLIENT_DEAD | status::NO_CLIENT)
        | Failure::Os(libc::ENOTCONN | libc::ENODEV | libc::EPIPE | libc::ECONNRESET | libc::EIO) => {
            CUDA_ERROR_EXTERNAL_DEVICE
        }
        _ => CUDA_ERROR_OUT_OF_MEMORY,
    }
}

/// Allocates pinned memory.
pub fn allocate(bytes: usize, flags: u32) -> Result<*mut c_void> {
    let client = client()?;
    thread::required_context()?;
    let known =
        CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP | CU_MEMHOSTALLOC_WRITECOMBINED;
    if flags & !known != 0 {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    // As natively, a size of 0 succeeds with a NULL address.
    if bytes == 0 {
        return Ok(std::ptr::null_mut());
    }
    let start = recorded(client, bytes, (flags, false), || {
        match take_part(client, bytes) {
            Some(part) => Ok(((part.start, part.device), Origin::Part)),
            None => Ok((pin_anew(client, bytes)?, Origin::Call)),
        }
    })?;
    Ok(start as *mut c_void)
}

/// Allocates pinned memory with pages of its own, and returns its address.
pub fn allocate_pages(client: &Client, bytes: usize, flags: u32) -> Result<u64> {
    recorded(client, bytes, (flags, false), || {
        Ok((pin_anew(client, bytes)?, Origin::Call))
    })
}

/// Pins memory by `pin`, and records it. Returns its address.
fn recorded(
    client: &Client,
    bytes: usize,
    told: (u32, bool),
    pin: impl Fn() -> Result<((u64, u64), Origin)>,
) -> Result<u64> {
    loop {
        let (context, ends) = (thread::home(client), client.host_parts.ends());
        let (addresses, origin) = pin()?;
        note(client, addresses, bytes, told, origin);
        if !client.host_parts.has_ended(context, ends) {
            return Ok(addresses.0);
        }
        // Another thread has ended the context, and may have done so before the memory was recorded. Then nothing else
        // removes the record. Whether the thread has a new context, the next attempt finds out.
        let known = client.pointers.find(addresses.0);
        let is_own = known.is_some_and(|of| of.context == context && of.start == addresses.0);
        if is_own && let Some(range) = client.pointers.remove(addresses.0) {
            match range.origin {
                Origin::Part => {
                    let unused = client.host_parts.free(&range, || {});
                    abandon_chunks(client, context, &unused.unwrap_or_default())?;
                }
                _ => abandon(client, range.start, range.bytes)
                    .inspect_err(|_| client.pointers.insert(range))?,
            }
        }
    }
}

/// Unpins chunks of a context, which may have ended. Those that the worker may still use stay pinned until the process
/// ends.
fn abandon_chunks(client: &Client, context: u64, chunks: &[Unused]) -> Result {
    if chunks.is_empty() {
        return Ok(());
    }
    thread::within(context, || {
        for chunk in chunks {
            let _ = abandon(client, chunk.start, chunk.bytes);
        }
        Ok(())
    })
}

/// Unpins memory of the calling thread's context, which may have ended: then the worker has forgotten it.
fn abandon(client: &Client, address: u64, bytes: u64) -> Result {
    match client.call(&request::cuMemHostUnregister { address }) {
        Ok(_) | Err(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED | CUDA_ERROR_CONTEXT_IS_DESTROYED) => {
            client.host.unpin(client.transport(), address, bytes);
            Ok(())
        }
        Err(code) => Err(code),
    }
}

/// Takes a part of a chunk for a small allocation; `None` for a large one, after a failure, and if no chunk can be
/// pinned.
fn take_part(client: &Client, bytes: usize) -> Option<Block> {
    // In a failed context the host answers with the error.
    if bytes > LARGEST || client.is_corrupted() {
        return None;
    }
    let context = thread::home(client);
    client.host_parts.take(context, bytes).or_else(|| {
        let ends = client.host_parts.ends();
        let addresses = pin_anew(client, CHUNK).ok()?;
        let part = client.host_parts.extend(context, addresses, bytes, ends);
        if part.is_none() {
            // It stays pinned if that fails.
            let _ = abandon(client, addresses.0, CHUNK as u64);
        }
        part
    })
}

/// Makes pinned memory in the calling thread's context. Returns its addresses in the program and on the device.
pub fn pin_anew(client: &Client, bytes: usize) -> Result<(u64, u64)> {
    let flags = CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP;
    with_room(client, || {
        let pinned = client.transport().allocate(bytes).map_err(code)?;
        let start = pinned.address;
        client.host.insert(pinned);
        let device = pin_in_cuda(client, start, bytes, flags)?;
        Ok((start, device))
    })
}

/// Pins by `ask`. If there is no room, first returns the chunks that are idle.
fn with_room<T>(client: &Client, ask: impl Fn() -> Result<T>) -> Result<T> {
    match ask() {
        Err(CUDA_ERROR_OUT_OF_MEMORY) => {
            let any_left = left::free_all(client);
            let idle = client.host_parts.take_idle();
            if idle.is_empty() && !any_left {
                return Err(CUDA_ERROR_OUT_OF_MEMORY);
            }
            give_back(client, &idle);
            ask()
        }
        other => other,
    }
}

/// Returns chunks of pinned memory. Those that the worker may still use stay pinned until the process ends.
pub fn give_back(client: &Client, chunks: &[Unused]) {
    for chunk in chunks {
        let address = chunk.start;
        // If its context has ended, the worker has forgotten the memory.
        if chunk.is_orphan
            || client
                .call(&request::cuMemHostUnregister { address })
                .is_ok()
        {
            client.host.unpin(client.transport(), address, chunk.bytes);
        }
    }
}

/// Makes CUDA pin memory that the worker has mapped; releases it if that fails. Returns the device address.
fn pin_in_cuda(client: &Client, start: u64, bytes: usize, flags: u32) -> Result<u64> {
    let request = request::cuMemHostRegister_v2 {
        address: start,
        bytes,
        flags,
        device: true,
    };
    let reply = client
        .call(&request)
        .inspect_err(|_| client.host.unpin(client.transport(), start, bytes as u64))?;
    Ok(reply.device)
}

/// Records pinned memory.
fn note(
    client: &Client,
    (start, device): (u64, u64),
    bytes: usize,
    (flags, registered): (u32, bool),
    origin: Origin,
) {
    // All of it is mapped for the device, requested or not, as its flags report.
    let kind = Kind::Host {
        device,
        flags: flags | CU_MEMHOSTALLOC_DEVICEMAP,
        registered,
    };
    client.pointers.insert(Range {
        start,
        bytes: bytes as u64,
        context: thread::home(client),
        kind,
        origin,
    });
}

/// Frees pinned memory, or unregisters it if that is `wanted`.
pub fn free(start: u64, wanted: bool) -> Result {
    let client = client()?;
    let range = client.pointers.find(start);
    let Some((range, Kind::Host { registered, .. })) = range.map(|range| (range, range.kind))
    else {
        // Only memory that CUDA does not know at all was never registered.
        let nowhere = wanted && range.is_none() && start != 0;
        return Err(if nowhere {
            CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED
        } else {
            CUDA_ERROR_INVALID_VALUE
        });
    };
    let is_other = range.is_managed() || matches!(range.origin, Origin::HostPool(_));
    if range.start != start || registered != wanted || is_other {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    match range.origin {
        Origin::Part => free_part(client, &range),
        _ => release(client, &range),
    }
}

/// Frees a part of a chunk, once no work of its context uses it.
fn free_part(client: &Client, range: &Range) -> Result {
    thread::within(range.context, || client.finish_context())?;
    // Another thread may have been faster.
    let range = client.pointers.remove(range.start);
    let range = range.ok_or(CUDA_ERROR_INVALID_VALUE)?;
    let unused = client.host_parts.free(&range, || {
        // The next owner finds zeros, as in memory that was pinned for it.
        HostPtr::at(range.start)
            .bytes_mut(range.bytes as usize)
            .fill(0);
    });
    abandon_chunks(
        client,
        range.context,
        &unused.ok_or(CUDA_ERROR_INVALID_VALUE)?,
    )
}

/// Releases pinned memory with pages of its own.
pub fn release(client: &Client, range: &Range) -> Result {
    let address = range.start;
    let unregistered = client.call(&request::cuMemHostUnregister { address });
    match unregistered {
        // It may have ended with its context before it was recorded.
        Ok(_) | Err(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED) => {}
        Err(code) => return Err(code),
    }
    client.pointers.remove(address);
    // The worker's driver has unpinned the pages, so the device can remove them and the kernel unpin them.
    client.host.unpin(client.transport(), address, range.bytes);
    unregistered.map(drop)
}

fn register(pointer: HostPtr, bytes: usize, flags: u32) -> Result {
    let client = client()?;
    thread::required_context()?;
    let known = CU_MEMHOSTREGISTER_PORTABLE
        | CU_MEMHOSTREGISTER_DEVICEMAP
        | CU_MEMHOSTREGISTER_IOMEMORY
        | CU_MEMHOSTREGISTER_READ_ONLY;
    let start = pointer.address();
    let overflows = start
        .checked_add(bytes as u64)
        .is_none_or(|end| end > u64::MAX - PAGE_BYTES);
    if pointer.is_null() || bytes == 0 || flags & !known != 0 || overflows {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    if flags & CU_MEMHOSTREGISTER_IOMEMORY != 0 {
        return Err(CUDA_ERROR_NOT_SUPPORTED);
    }
    if client
        .pointers
        .find(start)
        .is_some_and(|range| range.is_managed())
    {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    match client.pointers.overlapping_host(start, bytes as u64) {
        Some(Kind::Host {
            registered: false, ..
        }) => return Err(CUDA_ERROR_INVALID_VALUE),
        Some(_) => return Err(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED),
        None => {}
    }
    let read_only = flags & CU_MEMHOSTREGISTER_READ_ONLY != 0;
    let pin = || {
        client
            .host
            .pin(client.transport(), start, bytes as u64, read_only)
            .map_err(code)?;
        pin_in_cuda(client, start, bytes, flags | CU_MEMHOSTREGISTER_DEVICEMAP)
    };
    // NVIDIA's driver does not report this one.
    let told = flags & !CU_MEMHOSTREGISTER_READ_ONLY;
    recorded(client, bytes, (told, true), || {
        Ok(((start, with_room(client, pin)?), Origin::Call))
    })?;
    Ok(())
}

fn host_range(pointer: HostPtr) -> Result<Range> {
    let range = client()?
        .pointers
        .find(pointer.address())
        .ok_or(CUDA_ERROR_INVALID_VALUE)?;
    match (range.kind, range.origin) {
        (Kind::Host { .. }, Origin::HostPool(_)) => Err(CUDA_ERROR_INVALID_VALUE),
        (Kind::Host { .. }, _) => Ok(range),
        (Kind::Device, _) => Err(CUDA_ERROR_INVALID_VALUE),
    }
}

cuda! {
    /// `cuMemHostAlloc`: the same address in the program, in kernels and in the worker.
    fn cuMemHostAlloc(pp: OutPtr<*mut c_void>, bytesize: usize, Flags: u32) {
        pp.required()?;
        pp.set(allocate(bytesize, Flags)?)
    }

    /// `cuMemAllocHost`.
    fn cuMemAllocHost_v2(pp: OutPtr<*mut c_void>, bytesize: usize) {
        pp.required()?;
        pp.set(allocate(bytesize, 0)?)
    }

    /// `cuMemFreeHost`.
    fn cuMemFreeHost(p: HostPtr) {
        client()?;
        if p.is_null() {
            return Ok(());
        }
        free(p.address(), false)
    }

    /// `cuMemHostRegister`.
    fn cuMemHostRegister_v2(p: HostPtr, bytesize: usize, Flags: u32) {
        register(p, bytesize, Flags)
    }

    /// `cuMemHostUnregister`.
    fn cuMemHostUnregister(p: HostPtr) {
        free(p.address(), true)
    }

    /// `cuMemHostGetDevicePointer`.
    fn cuMemHostGetDevicePointer_v2(pdptr: OutPtr<CUdeviceptr>, p: HostPtr, Flags: u32) {
        client()?;
        pdptr.required()?;
        if Flags != 0 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let range = host_range(p)?;
        if range.is_managed() {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        pdptr.set(range.far(p.address()))
    }

    /// `cuMemHostGetFlags`.
    fn cuMemHostGetFlags(pFlags: OutPtr<u32>, p: HostPtr) {
        client()?;
        pFlags.required()?;
        let range = client()?.pointers.find(p.address());
        if range.is_some_and(|range| range.is_managed()) {
            // As NVIDIA's driver reports for managed memory.
            return pFlags.set(CU_MEMHOSTALLOC_DEVICEMAP);
        }
        match host_range(p)?.kind {
            Kind::Host { flags, .. } => pFlags.set(flags),
            Kind::Device => Err(CUDA_ERROR_INVALID_VALUE),
        }
    }
}
