// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Memory: device allocations, pinned and registered host memory.

use std::ffi::c_void;

use gpgpu_client::transport::Failure;
use gpgpu_protocol::{api::request, cuda::*, layout::PAGE_BYTES};

use crate::{
    argument::{HostPtr, InPtr, OutPtr},
    client::{Client, client},
    cuda,
    device::device,
    ffi::Result,
    graph, host_pool, managed,
    stores::{
        freed::{self, Home},
        pointers::{Kind, Origin, Range},
    },
    thread,
};

/// The granularity that NVIDIA's driver reports for memory on a GPU and on the host, in bytes.
const ALLOCATION_GRANULARITY: usize = 2 << 20;

/// Handles the end of a context, with its memory.
pub fn forget_context(client: &Client, context: u64) {
    client.freed.forget_context(context);
    managed::forget_context(context);
    client.host_pools.forget_context(context);
    for range in client.pointers.remove_context(context) {
        // Memory of a pool remains the program's.
        if matches!(range.kind, Kind::Host { .. }) && !matches!(range.origin, Origin::HostPool(_)) {
            client
                .host
                .unpin(client.transport(), range.start, range.bytes);
        }
    }
}

fn code(failure: Failure) -> CUresult {
    match failure {
        Failure::Os(libc::EFAULT | libc::EINVAL) => CUDA_ERROR_INVALID_VALUE,
        _ => CUDA_ERROR_OUT_OF_MEMORY,
    }
}

/// Records device memory of a context.
pub fn note_device(client: &Client, context: u64, start: u64, bytes: usize) {
    client.pointers.insert(Range {
        start,
        bytes: bytes as u64,
        context,
        kind: Kind::Device,
        origin: Origin::Call,
    });
}

/// Allocates pinned memory.
pub fn allocate_host(bytes: usize, flags: u32) -> Result<*mut c_void> {
    let client = client()?;
    if thread::current_context() == 0 {
        return Err(CUDA_ERROR_INVALID_CONTEXT);
    }
    let known =
        CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP | CU_MEMHOSTALLOC_WRITECOMBINED;
    if flags & !known != 0 {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    // As natively, a size of 0 succeeds with a NULL address.
    if bytes == 0 {
        return Ok(std::ptr::null_mut());
    }
    let addresses = pin_anew(client, bytes)?;
    note_host(client, addresses, bytes, flags, false);
    Ok(addresses.0 as *mut c_void)
}

/// Makes pinned memory in the calling thread's context. Returns its addresses in the program and on the device.
pub fn pin_anew(client: &Client, bytes: usize) -> Result<(u64, u64)> {
    let pinned = client.transport().allocate(bytes).map_err(code)?;
    let start = pinned.address;
    client.host.insert(pinned);
    let flags = CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP;
    let device = pin_in_cuda(client, start, bytes, flags)?;
    Ok((start, device))
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
fn note_host(
    client: &Client,
    (start, device): (u64, u64),
    bytes: usize,
    flags: u32,
    registered: bool,
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
        origin: Origin::Call,
    });
}

/// Frees pinned memory, or unregisters it if that is `wanted`.
pub fn free_host(start: u64, wanted: bool) -> Result {
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
    release_host(client, &range)
}

/// Releases pinned memory.
pub fn release_host(client: &Client, range: &Range) -> Result {
    let address = range.start;
    client.call(&request::cuMemHostUnregister { address })?;
    client.pointers.remove(address);
    // The worker's driver has unpinned the pages, so the device can remove them and the kernel unpin them.
    client.host.unpin(client.transport(), address, range.bytes);
    Ok(())
}

fn register(pointer: HostPtr, bytes: usize, flags: u32) -> Result {
    let client = client()?;
    if thread::current_context() == 0 {
        return Err(CUDA_ERROR_INVALID_CONTEXT);
    }
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
    client
        .host
        .pin(client.transport(), start, bytes as u64, read_only)
        .map_err(code)?;
    let device = pin_in_cuda(client, start, bytes, flags | CU_MEMHOSTREGISTER_DEVICEMAP)?;
    note_host(client, (start, device), bytes, flags, true);
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
    /// `cuMemAlloc`.
    fn cuMemAlloc_v2(dptr: OutPtr<CUdeviceptr>, bytesize: usize) {
        let client = client()?;
        let context = thread::home(client);
        if client.ring().is_some() && !dptr.is_null() && let Some(spare) = client.freed.take(Home::of_context(context), freed::length_for(bytesize)) {
            note_device(client, context, spare, bytesize);
            return dptr.set(spare);
        }
        let request = request::cuMemAlloc_v2 { dptr: !dptr.is_null(), bytesize: freed::length_for(bytesize) };
        let reply = client.allocate(|| client.call(&request))?;
        note_device(client, context, reply.dptr, bytesize);
        dptr.set(reply.dptr)
    }

    /// `cuMemAllocPitch`.
    fn cuMemAllocPitch_v2(dptr: OutPtr<CUdeviceptr>, pPitch: OutPtr<usize>, WidthInBytes: usize, Height: usize, ElementSizeBytes: u32) {
        let client = client()?;
        let request = request::cuMemAllocPitch_v2 { dptr: !dptr.is_null(), pPitch: !pPitch.is_null(), WidthInBytes, Height, ElementSizeBytes };
        let reply = client.allocate(|| client.call(&request))?;
        note_device(client, thread::home(client), reply.dptr, reply.pPitch.saturating_mul(Height));
        pPitch.set(reply.pPitch)?;
        dptr.set(reply.dptr)
    }

    /// `cuMemFree`.
    fn cuMemFree_v2(dptr: CUdeviceptr) {
        let client = client()?;
        if let Some(freed) = graph::free(dptr) {
            // A graph's memory belongs to the graph, but its users are waited for in any case.
            return freed.and_then(|()| client.call(&request::cuCtxSynchronize {}).map(drop));
        }
        if let Some(freed) = host_pool::free(client, dptr, None) {
            return freed;
        }
        let range = client.pointers.find(dptr).filter(Range::is_freed_at(dptr));
        client.disown(dptr);
        if let Some(range) = range {
            if range.origin == Origin::Managed {
                return managed::free(client, &range);
            }
            client.pointers.remove(dptr);
            match client.spare(&range) {
                Ok(true) => return Ok(()),
                Ok(false) => {}
                Err(code) => {
                    client.pointers.insert(range);
                    return Err(code);
                }
            }
        }
        client.call(&request::cuMemFree_v2 { dptr }).map(drop).inspect_err(|_| {
            if let Some(range) = range {
                client.pointers.insert(range);
            }
        })
    }

    /// `cuMemGetAddressRange`.
    fn cuMemGetAddressRange_v2(pbase: OutPtr<CUdeviceptr>, psize: OutPtr<usize>, dptr: CUdeviceptr) {
        let client = client()?;
        if let Some(range) = client.pointers.find(dptr) {
            if !host_pool::is_open(client, &range) {
                return Err(CUDA_ERROR_NOT_FOUND);
            }
            pbase.offer(range.far(range.start));
            psize.offer(range.bytes as usize);
            return Ok(());
        }
        client.disown(dptr);
        let reply = client.call(&request::cuMemGetAddressRange_v2 { pbase: true, psize: true, dptr })?;
        pbase.offer(reply.pbase);
        psize.offer(reply.psize);
        Ok(())
    }

    /// `cuMemGetInfo`. Memory that is kept for the program counts as free.
    fn cuMemGetInfo_v2(free: OutPtr<usize>, total: OutPtr<usize>) {
        let client = client()?;
        client.give_back_spare();
        let reply = client.call(&request::cuMemGetInfo_v2 { free: !free.is_null(), total: !total.is_null() })?;
        free.offer(reply.free);
        total.offer(reply.total);
        Ok(())
    }

    /// `cuMemGetAllocationGranularity`. Programs query it before they try to allocate such memory, and work without it
    /// if it is unavailable (`cuMemCreate` reports that). NCCL fails if the query fails.
    fn cuMemGetAllocationGranularity(
        granularity: OutPtr<usize>,
        prop: InPtr<CUmemAllocationProp>,
        option: CUmemAllocationGranularity_flags,
    ) {
        client()?;
        let prop = prop.get()?;
        let is_known = matches!(
            option,
            CU_MEM_ALLOC_GRANULARITY_MINIMUM | CU_MEM_ALLOC_GRANULARITY_RECOMMENDED
        );
        if !is_known || prop.type_ != CU_MEM_ALLOCATION_TYPE_PINNED {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        match prop.location.type_ {
            CU_MEM_LOCATION_TYPE_DEVICE => {
                device(prop.location.id)?;
            }
            CU_MEM_LOCATION_TYPE_HOST
            | CU_MEM_LOCATION_TYPE_HOST_NUMA
            | CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT => {}
            _ => return Err(CUDA_ERROR_INVALID_VALUE),
        }
        granularity.set(ALLOCATION_GRANULARITY)
    }

    /// `cuMemHostAlloc`: the same address in the program, in kernels and in the worker.
    fn cuMemHostAlloc(pp: OutPtr<*mut c_void>, bytesize: usize, Flags: u32) {
        pp.required()?;
        pp.set(allocate_host(bytesize, Flags)?)
    }

    /// `cuMemAllocHost`.
    fn cuMemAllocHost_v2(pp: OutPtr<*mut c_void>, bytesize: usize) {
        pp.required()?;
        pp.set(allocate_host(bytesize, 0)?)
    }

    /// `cuMemFreeHost`.
    fn cuMemFreeHost(p: HostPtr) {
        client()?;
        if p.is_null() {
            return Ok(());
        }
        free_host(p.address(), false)
    }

    /// `cuMemHostRegister`.
    fn cuMemHostRegister_v2(p: HostPtr, bytesize: usize, Flags: u32) {
        register(p, bytesize, Flags)
    }

    /// `cuMemHostUnregister`.
    fn cuMemHostUnregister(p: HostPtr) {
        free_host(p.address(), true)
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
