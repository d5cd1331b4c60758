//! Memory: device allocations, pinned and registered host memory.

use std::{collections::HashMap, ffi::c_void, sync::Mutex};

use gpgpu_protocol::{api::request, cuda::*, layout::PAGE_BYTES};

use crate::{
    argument::{HostPtr, OutPtr},
    border::Result,
    client::{Client, client},
    cuda,
    pointer::{Kind, Range},
    thread,
    transport::{Failure, Pinned},
};

/// The pinned memory of the process: what the transport gave for each range.
#[derive(Debug, Default)]
pub struct Host {
    pinned: Mutex<HashMap<u64, Pinned>>,
}

impl Host {
    fn insert(&self, address: u64, pinned: Pinned) {
        self.pinned
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner())
            .insert(address, pinned);
    }

    fn remove(&self, address: u64) -> Option<Pinned> {
        self.pinned
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner())
            .remove(&address)
    }
}

/// A context is gone, and its memory with it.
pub fn forget_context(client: &Client, context: u64) {
    for range in client.pointers.remove_context(context) {
        if let Some(pinned) = client.host.remove(range.start) {
            client.transport.release(pinned);
        }
    }
}

fn code(failure: Failure) -> CUresult {
    match failure {
        Failure::Os(libc::EFAULT | libc::EINVAL) => CUDA_ERROR_INVALID_VALUE,
        _ => CUDA_ERROR_OUT_OF_MEMORY,
    }
}

fn note_device(client: &Client, start: u64, bytes: usize) {
    let context = thread::current_context();
    client.pointers.insert(Range {
        start,
        bytes: bytes as u64,
        context,
        kind: Kind::Device,
    });
}

fn allocate_host(bytes: usize, flags: u32) -> Result<*mut c_void> {
    let client = client()?;
    if thread::current_context() == 0 {
        return Err(CUDA_ERROR_INVALID_CONTEXT);
    }
    let known =
        CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP | CU_MEMHOSTALLOC_WRITECOMBINED;
    if bytes == 0 || flags & !known != 0 {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    let pinned = client.transport.allocate(bytes).map_err(code)?;
    let start = pinned.address;
    let request = request::cuMemHostRegister_v2 {
        address: start,
        bytes,
        flags: CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP,
        device: true,
    };
    match client.call(&request) {
        Ok(reply) => {
            let kind = Kind::Host {
                device: reply.device,
                flags: flags | CU_MEMHOSTALLOC_DEVICEMAP,
                registered: false,
            };
            client.host.insert(start, pinned);
            client.pointers.insert(Range {
                start,
                bytes: bytes as u64,
                context: thread::current_context(),
                kind,
            });
            Ok(start as *mut c_void)
        }
        Err(code) => {
            client.transport.release(pinned);
            Err(code)
        }
    }
}

fn free_host(start: u64, registered_wanted: bool, unknown: CUresult) -> Result {
    let client = client()?;
    let range = client
        .pointers
        .find(start)
        .filter(|range| range.start == start)
        .ok_or(unknown)?;
    let Kind::Host { registered, .. } = range.kind else {
        return Err(unknown);
    };
    if registered != registered_wanted {
        return Err(unknown);
    }
    client.call(&request::cuMemHostUnregister { address: start })?;
    client.pointers.remove(start);
    // The worker's driver let go of the pages, so the device may forget them and the kernel unpin them.
    if let Some(pinned) = client.host.remove(start) {
        client.transport.release(pinned);
    }
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
    let end = start
        .checked_add(bytes as u64)
        .ok_or(CUDA_ERROR_INVALID_VALUE)?;
    if pointer.is_null() || bytes == 0 || flags & !known != 0 {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    if flags & CU_MEMHOSTREGISTER_IOMEMORY != 0 {
        return Err(CUDA_ERROR_NOT_SUPPORTED);
    }
    if client.pointers.overlaps_host(start, bytes as u64) {
        return Err(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
    }
    let first = start & !(PAGE_BYTES - 1);
    let last = end.next_multiple_of(PAGE_BYTES);
    let read_only = flags & CU_MEMHOSTREGISTER_READ_ONLY != 0;
    let pinned = client
        .transport
        .pin(first, (last - first) as usize, read_only)
        .map_err(|failure| match failure {
            Failure::Status(gpgpu_protocol::layout::status::BAD_ADDRESS) => {
                CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED
            }
            other => code(other),
        })?;
    let request = request::cuMemHostRegister_v2 {
        address: start,
        bytes,
        flags: flags | CU_MEMHOSTREGISTER_DEVICEMAP,
        device: true,
    };
    match client.call(&request) {
        Ok(reply) => {
            let kind = Kind::Host {
                device: reply.device,
                flags,
                registered: true,
            };
            client.host.insert(start, pinned);
            client.pointers.insert(Range {
                start,
                bytes: bytes as u64,
                context: thread::current_context(),
                kind,
            });
            Ok(())
        }
        Err(code) => {
            client.transport.release(pinned);
            Err(code)
        }
    }
}

fn host_range(pointer: HostPtr) -> Result<Range> {
    let range = client()?
        .pointers
        .find(pointer.address())
        .ok_or(CUDA_ERROR_INVALID_VALUE)?;
    match range.kind {
        Kind::Host { .. } => Ok(range),
        Kind::Device => Err(CUDA_ERROR_INVALID_VALUE),
    }
}

cuda! {
    /// `cuMemAlloc`.
    fn cuMemAlloc_v2(dptr: OutPtr<CUdeviceptr>, bytesize: usize) {
        let client = client()?;
        let reply = client.call(&request::cuMemAlloc_v2 { dptr: !dptr.is_null(), bytesize })?;
        note_device(client, reply.dptr, bytesize);
        dptr.set(reply.dptr)
    }

    /// `cuMemAllocPitch`.
    fn cuMemAllocPitch_v2(dptr: OutPtr<CUdeviceptr>, pPitch: OutPtr<usize>, WidthInBytes: usize, Height: usize, ElementSizeBytes: u32) {
        let client = client()?;
        let request = request::cuMemAllocPitch_v2 { dptr: !dptr.is_null(), pPitch: !pPitch.is_null(), WidthInBytes, Height, ElementSizeBytes };
        let reply = client.call(&request)?;
        note_device(client, reply.dptr, reply.pPitch.saturating_mul(Height));
        pPitch.set(reply.pPitch)?;
        dptr.set(reply.dptr)
    }

    /// `cuMemFree`.
    fn cuMemFree_v2(dptr: CUdeviceptr) {
        let client = client()?;
        let range = client.pointers.find(dptr).filter(|range| range.start == dptr && range.kind == Kind::Device);
        if range.is_some() {
            client.pointers.remove(dptr);
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
            pbase.offer(range.far(range.start));
            psize.offer(range.bytes as usize);
            return Ok(());
        }
        let reply = client.call(&request::cuMemGetAddressRange_v2 { pbase: true, psize: true, dptr })?;
        pbase.offer(reply.pbase);
        psize.offer(reply.psize);
        Ok(())
    }

    /// `cuMemAllocManaged`: the device says that it has no managed memory, and this agrees.
    fn cuMemAllocManaged(dptr: OutPtr<CUdeviceptr>, _bytesize: usize, _flags: u32) {
        client()?;
        dptr.set(0)?;
        Err(CUDA_ERROR_NOT_SUPPORTED)
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
        free_host(p.address(), false, CUDA_ERROR_INVALID_VALUE)
    }

    /// `cuMemHostRegister`.
    fn cuMemHostRegister_v2(p: HostPtr, bytesize: usize, Flags: u32) {
        register(p, bytesize, Flags)
    }

    /// `cuMemHostUnregister`.
    fn cuMemHostUnregister(p: HostPtr) {
        free_host(p.address(), true, CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED)
    }

    /// `cuMemHostGetDevicePointer`.
    fn cuMemHostGetDevicePointer_v2(pdptr: OutPtr<CUdeviceptr>, p: HostPtr, Flags: u32) {
        client()?;
        pdptr.required()?;
        if Flags != 0 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        pdptr.set(host_range(p)?.far(p.address()))
    }

    /// `cuMemHostGetFlags`.
    fn cuMemHostGetFlags(pFlags: OutPtr<u32>, p: HostPtr) {
        client()?;
        pFlags.required()?;
        match host_range(p)?.kind {
            Kind::Host { flags, .. } => pFlags.set(flags),
            Kind::Device => Err(CUDA_ERROR_INVALID_VALUE),
        }
    }
}
