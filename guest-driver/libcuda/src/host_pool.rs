// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Memory pools of host memory.
//!
//! Their memory is pinned memory of this process, and the host does not know the pools: an event of this library behind
//! each free shows when another stream may use the memory. Unlike with NVIDIA's driver, all devices can access the
//! memory, with or without permission; attributes and queries report the granted access. A pool of a NUMA node uses
//! memory wherever the guest's kernel allocates it.

use std::{
    ffi::c_void,
    path::Path,
    sync::{Arc, atomic::Ordering},
};

use gpgpu_protocol::{
    api::{Event, MemPool, request},
    cuda::*,
};

use crate::{
    argument::{InPtr, OutPtr},
    client::Client,
    device::device,
    ffi::Result,
    graph,
    memory_pool::is_flag,
    pinned,
    stores::{
        blocks::{Block, Order, Unused},
        host_pools::{HostPool, Mark, Place},
        pointers::{Kind, Origin, Range},
    },
    thread,
};

/// The index of the kind of reuse that makes streams wait for each other.
const REUSE_BEHIND: usize = CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES as usize - 1;

/// The place for a location on the host; `None` for a device.
///
/// # Errors
///
/// `CUDA_ERROR_INVALID_VALUE` for other locations, and nodes that the machine does not have.
pub fn place(location: CUmemLocation) -> Result<Option<Place>> {
    match location.type_ {
        CU_MEM_LOCATION_TYPE_DEVICE => Ok(None),
        CU_MEM_LOCATION_TYPE_HOST => Ok(Some(Place::Host)),
        CU_MEM_LOCATION_TYPE_HOST_NUMA if has_node(location.id) => {
            Ok(Some(Place::Node(location.id)))
        }
        _ => Err(CUDA_ERROR_INVALID_VALUE),
    }
}

/// Whether the machine has a NUMA node. A kernel without NUMA has only the first.
fn has_node(node: i32) -> bool {
    node == 0 || Path::new(&format!("/sys/devices/system/node/node{node}")).exists()
}

/// `cuMemPoolCreate`. Host memory is not shared with other processes.
pub fn create(client: &Client, place: Place, properties: &CUmemPoolProps) -> Result<u64> {
    match (place, properties.handleTypes) {
        (_, CU_MEM_HANDLE_TYPE_NONE) => {}
        // NVIDIA's driver supports these.
        (Place::Node(_), CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) => {
            return Err(CUDA_ERROR_NOT_SUPPORTED);
        }
        _ => return Err(CUDA_ERROR_INVALID_VALUE),
    }
    let id = client.new_id::<MemPool>();
    let pool = HostPool::new(place, properties.maxSize as u64, false);
    client.host_pools.add(id, pool);
    Ok(id)
}

/// The default pool of a place.
pub fn own(client: &Client, place: Place) -> u64 {
    if let Some(id) = client.host_pools.table().own.get(&place) {
        return *id;
    }
    let id = client.new_id::<MemPool>();
    client.host_pools.add(id, HostPool::new(place, 0, true));
    // Another thread may have been faster; then this pool is unused.
    let mut table = client.host_pools.table();
    *table.own.entry(place).or_insert(id)
}

/// The current pool of a place.
pub fn current(client: &Client, place: Place) -> u64 {
    let given = client.host_pools.table().current.get(&place).copied();
    given.unwrap_or_else(|| own(client, place))
}

/// Sets the current pool of a place.
pub fn set_current(client: &Client, place: Place, id: u64) -> Result {
    let mut table = client.host_pools.table();
    if table.pool(id)?.place != place {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    table.current.insert(place, id);
    Ok(())
}

/// `cuMemPoolDestroy`. Allocations exist until they are freed.
pub fn destroy(client: &Client, id: u64) -> Result {
    {
        let mut table = client.host_pools.table();
        let pool = table.pool(id)?;
        if pool.is_own {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        pool.is_destroyed = true;
        table.current.retain(|_, current| *current != id);
    }
    settle_all(client);
    Ok(())
}

/// `cuMemAllocFromPoolAsync`: allocates a block, in stream order.
pub fn allocate(client: &Client, id: u64, bytes: usize, stream: u64) -> Result<u64> {
    // As natively, the capture continues.
    if graph::records(client, stream)? {
        return Err(CUDA_ERROR_NOT_SUPPORTED);
    }
    thread::required_context()?;
    let bytes = bytes as u64;
    let block = find_room(client, id, bytes, stream)?;
    client.pointers.insert(Range {
        start: block.start,
        bytes,
        // It ends with the context of its chunk, whichever the thread's is.
        context: block.context,
        kind: Kind::Host {
            device: block.device,
            flags: CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP,
            registered: false,
        },
        origin: Origin::HostPool(id),
    });
    Ok(block.start)
}

/// Takes a block. The last resorts, in this order, are to pin more memory, to take it from other pools, and to make the
/// stream wait for others.
fn find_room(client: &Client, id: u64, bytes: u64, hStream: u64) -> Result<Block> {
    let take = || {
        let mut table = client.host_pools.table();
        let pool = table.pool(id)?;
        let block = pool.blocks.take(bytes, hStream);
        Result::Ok((block, pool.blocks.next_chunk(bytes, pool.most)))
    };
    let (block, _) = take()?;
    if let Some(block) = block {
        return Ok(block);
    }
    settle(client);
    let mut has_shed = false;
    loop {
        let chunk = match take()? {
            (Some(block), _) => return Ok(block),
            (None, Some(chunk)) => chunk,
            (None, None) => return take_behind(client, id, bytes, hStream),
        };
        match pinned::pin_anew(client, chunk as usize) {
            Ok(addresses) => {
                let context = thread::home(client);
                let mut table = client.host_pools.table();
                match table.pool(id) {
                    Ok(pool) => pool.blocks.add(addresses, chunk, context),
                    Err(code) => {
                        // Another thread has destroyed the pool.
                        drop(table);
                        let unused = Unused {
                            start: addresses.0,
                            bytes: chunk,
                            is_orphan: false,
                        };
                        pinned::give_back(client, &[unused]);
                        return Err(code);
                    }
                }
            }
            Err(CUDA_ERROR_OUT_OF_MEMORY) if !has_shed => {
                has_shed = true;
                shed(client, |_, pool| pool.blocks.shed(0));
            }
            Err(CUDA_ERROR_OUT_OF_MEMORY) => return take_behind(client, id, bytes, hStream),
            Err(code) => return Err(code),
        }
    }
}

/// Takes a block that another stream has freed, and makes the stream wait for that free.
fn take_behind(client: &Client, id: u64, bytes: u64, hStream: u64) -> Result<Block> {
    let (block, mark) = {
        let mut table = client.host_pools.table();
        let pool = table.pool(id)?;
        let may_wait = pool.reuse[REUSE_BEHIND];
        let taken = may_wait.then(|| pool.blocks.take_behind(bytes)).flatten();
        taken.ok_or(CUDA_ERROR_OUT_OF_MEMORY)?
    };
    let (hEvent, Flags) = (mark.event.id, 0);
    // The work of a context that has ended is complete.
    if client.objects.contains(mark.event.context) {
        client.post(&request::cuStreamWaitEvent {
            hStream,
            hEvent,
            Flags,
        })?;
    }
    Ok(block)
}

/// Frees a block in stream order, or, without a stream, when the context is idle; `None` if no block begins at the
/// address.
pub fn free(client: &Client, address: u64, stream: Option<(u64, u64)>) -> Option<Result> {
    if !client.host_pools.any() {
        return None;
    }
    let id = {
        let mut table = client.host_pools.table();
        let mut pools = table.pools.iter_mut();
        let found = pools.find_map(|(id, pool)| pool.blocks.is_used(address).then_some(*id));
        found?
    };
    Some(free_of(client, id, address, stream))
}

fn free_of(client: &Client, id: u64, address: u64, stream: Option<(u64, u64)>) -> Result {
    let order = match stream {
        // A graph can free only its own memory.
        Some((stream, _)) if graph::records(client, stream)? => {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        Some((stream, _)) if client.is_stream_idle(stream) => None,
        Some((stream, context)) => mark(client, stream, context)?,
        None => {
            client.call(&request::cuCtxSynchronize {})?;
            None
        }
    };
    {
        let mut table = client.host_pools.table();
        let pool = table.pools.get_mut(&id);
        if !pool.is_some_and(|pool| pool.blocks.free(address, order)) {
            // Another thread was faster.
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        // Under the lock: another thread may get the next block there.
        client.pointers.remove(address);
    }
    client.host_pools.any_freed.store(true, Ordering::Release);
    if stream.is_none() {
        waited(client);
    }
    Ok(())
}

/// An event after all work of a stream. If none can be recorded, waits and returns `None`.
fn mark(client: &Client, hStream: u64, context: u64) -> Result<Order<Mark>> {
    let is_own = thread::current_context() == context && client.objects.contains(context);
    if !is_own || !client.objects.knows_stream(hStream) {
        client.call(&request::cuStreamSynchronize { hStream })?;
        return Ok(None);
    }
    let mark = client.host_pools.mark(context, || {
        let phEvent = client.new_id::<Event>();
        let Flags = CU_EVENT_DISABLE_TIMING;
        client.post(&request::cuEventCreate { phEvent, Flags })?;
        Ok(phEvent)
    })?;
    let hEvent = mark.event.id;
    client.post(&request::cuEventRecord { hEvent, hStream })?;
    // The default streams wait for others, and others for them, so a free in one does not precede all of its later
    // work.
    let stream = if hStream > CU_STREAM_PER_THREAD as u64 {
        hStream
    } else {
        u64::MAX
    };
    Ok(Some((stream, Arc::new(mark))))
}

/// Checks which freed blocks are idle.
fn settle(client: &Client) {
    let marks: Vec<_> = {
        let table = client.host_pools.table();
        let marks = table.pools.values().map(|pool| pool.blocks.marks());
        marks.flatten().collect()
    };
    let is_over = |mark: &Arc<Mark>| {
        // If its context has ended, the work before the event is complete.
        if !client.objects.contains(mark.event.context) {
            return true;
        }
        let hEvent = mark.event.id;
        match client.call(&request::cuEventQuery { hEvent }) {
            Ok(_) => true,
            // After a failure no work runs any more. Other errors do not concern the work.
            Err(_) => client.is_corrupted(),
        }
    };
    let (over, _): (Vec<_>, Vec<_>) = marks.into_iter().partition(is_over);
    for pool in client.host_pools.table().pools.values_mut() {
        pool.blocks.settle(&over);
    }
}

/// Called when the program has waited for the GPU: pools return the idle memory that they do not keep, as natively.
#[inline]
pub fn waited(client: &Client) {
    if client.host_pools.any_freed.load(Ordering::Acquire) {
        settle_all(client);
    }
}

fn settle_all(client: &Client) {
    client.host_pools.any_freed.store(false, Ordering::Release);
    settle(client);
    shed(client, |_, pool| pool.shed());
    let mut table = client.host_pools.table();
    let mut pools = table.pools.values();
    if pools.any(|pool| !pool.blocks.marks().is_empty()) {
        client.host_pools.any_freed.store(true, Ordering::Release);
    }
    table
        .pools
        .retain(|_, pool| !pool.is_destroyed || !pool.blocks.is_empty());
}

/// Returns chunks that are taken out of pools.
fn shed(client: &Client, take: impl Fn(u64, &mut HostPool) -> Vec<Unused>) {
    let unused: Vec<_> = {
        let mut table = client.host_pools.table();
        let pools = table.pools.iter_mut();
        pools.flat_map(|(id, pool)| take(*id, pool)).collect()
    };
    pinned::give_back(client, &unused);
}

/// `cuMemPoolTrimTo`.
pub fn trim(client: &Client, id: u64, most: u64) -> Result {
    client.host_pools.table().pool(id)?;
    settle(client);
    shed(client, |of, pool| match of == id {
        true => pool.blocks.shed(most),
        false => Vec::new(),
    });
    Ok(())
}

/// `cuMemPoolGetAttribute`.
pub fn attribute(
    client: &Client,
    id: u64,
    attribute: CUmemPool_attribute,
    value: *mut c_void,
) -> Result {
    let mut table = client.host_pools.table();
    let pool = table.pool(id)?;
    if is_flag(attribute)? {
        let flag = pool.reuse[attribute as usize - 1];
        return OutPtr::nested(value).set(i32::from(flag));
    }
    OutPtr::nested(value).set(match attribute {
        CU_MEMPOOL_ATTR_RELEASE_THRESHOLD => pool.threshold,
        CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT => pool.blocks.reserved(),
        CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH => pool.blocks.most_reserved,
        CU_MEMPOOL_ATTR_USED_MEM_CURRENT => pool.blocks.used,
        _ => pool.blocks.most_used,
    })
}

/// `cuMemPoolSetAttribute`. High marks can only be reset to the current use, by 0.
pub fn set_attribute(
    client: &Client,
    id: u64,
    attribute: CUmemPool_attribute,
    value: *mut c_void,
) -> Result {
    let mut table = client.host_pools.table();
    let pool = table.pool(id)?;
    if is_flag(attribute)? {
        pool.reuse[attribute as usize - 1] = InPtr::<i32>::nested(value).get()? != 0;
        return Ok(());
    }
    let value = InPtr::<u64>::nested(value).get()?;
    match (attribute, value) {
        (CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, _) => pool.threshold = value,
        (CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH, 0) => {
            pool.blocks.most_reserved = pool.blocks.reserved();
        }
        (CU_MEMPOOL_ATTR_USED_MEM_HIGH, 0) => pool.blocks.most_used = pool.blocks.used,
        _ => return Err(CUDA_ERROR_INVALID_VALUE),
    }
    Ok(())
}

/// `cuMemPoolSetAccess` of a device: read and write, or none.
pub fn set_access(client: &Client, id: u64, wish: CUmemAccessDesc) -> Result {
    let mut table = client.host_pools.table();
    let pool = table.pool(id)?;
    let wished = wish.flags;
    let place = place(wish.location)?;
    match wished {
        CU_MEM_ACCESS_FLAGS_PROT_READWRITE => {}
        CU_MEM_ACCESS_FLAGS_PROT_NONE if place.is_none() => {}
        CU_MEM_ACCESS_FLAGS_PROT_NONE | CU_MEM_ACCESS_FLAGS_PROT_READ => {
            return Err(CUDA_ERROR_NOT_SUPPORTED);
        }
        _ => return Err(CUDA_ERROR_INVALID_VALUE),
    }
    if place.is_none() {
        device(wish.location.id)?;
        pool.access.insert(wish.location.id, wished);
    }
    Ok(())
}

/// `cuMemPoolGetAccess`. The host always has full access.
pub fn access(client: &Client, id: u64, location: CUmemLocation) -> Result<CUmemAccess_flags> {
    let mut table = client.host_pools.table();
    let pool = table.pool(id)?;
    if place(location)?.is_some() {
        return Ok(CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    }
    device(location.id).map_err(|_| CUDA_ERROR_INVALID_VALUE)?;
    let granted = pool.access.get(&location.id).copied();
    Ok(granted.unwrap_or(CU_MEM_ACCESS_FLAGS_PROT_NONE))
}

/// Whether the current context's device was given access to memory of a host pool; true for other memory.
pub fn is_open(client: &Client, range: &Range) -> bool {
    let Origin::HostPool(pool) = range.origin else {
        return true;
    };
    let device = client.objects.context_device(thread::current_context());
    client.host_pools.is_open_to(pool, device)
}
