// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Device memory: allocations and queries.

use gpgpu_protocol::{api::request, cuda::*};

use crate::{
    argument::{InPtr, OutPtr},
    client::{Client, client},
    cuda,
    device::device,
    graph::{self, left},
    host_pool, managed, pinned,
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
    left::forget_context(context);
    managed::forget_context(context);
    client.host_pools.forget_context(context);
    pinned::forget_context(client, context);
    for range in client.pointers.remove_context(context) {
        // Memory of a pool remains the program's, and a part was unpinned with its chunk.
        let is_within = matches!(range.origin, Origin::HostPool(_) | Origin::Part);
        if matches!(range.kind, Kind::Host { .. }) && !is_within {
            client
                .host
                .unpin(client.transport(), range.start, range.bytes);
        }
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
        // The host's allocation is longer than the program's.
        let bytes = dptr.saturating_sub(reply.pbase).saturating_add(1);
        if client.pointers.overruns(reply.pbase, bytes as usize) {
            return Err(CUDA_ERROR_NOT_FOUND);
        }
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
}
