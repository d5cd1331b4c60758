// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Memory pools, and stream-ordered memory.
//!
//! The pools, the current pool of each device and granted access are [stored here](crate::stores::pools); the host has
//! the memory of pools. [`crate::shared_pool`] shares them between processes. [`crate::host_pool`] implements those of
//! host memory.

use std::ffi::c_void;

use gpgpu_graphs::{Gpu, capture, node::Work};
use gpgpu_protocol::{
    api::{MemPool, Object, default_pool, device_of_default_pool, request},
    cuda::*,
};

use crate::{
    argument::{InPtr, OutPtr},
    client::client,
    cuda,
    device::device,
    ffi::Result,
    graph::{self, Guest},
    green, host_pool,
    launch::DefaultStream,
    shared_pool,
    stores::{
        freed::{self, Home},
        host_pools::Place,
        pointers::{Kind, Origin, Range},
        pools::{Pool, Sharing},
    },
    stream, thread,
};

fn allocate(
    dptr: OutPtr<CUdeviceptr>,
    bytesize: usize,
    pool: Option<CUmemoryPool>,
    (shape, hStream): (DefaultStream, CUstream),
) -> Result {
    let client = client()?;
    dptr.required()?;
    let hStream = stream::lower(shape, hStream)?;
    let context = green::home(client, stream::context(hStream as CUstream)?);
    let pool = match pool {
        Some(pool) => MemPool::id(pool),
        None => {
            let device = client.objects.context_device(context);
            client
                .pools
                .current(device.ok_or(CUDA_ERROR_INVALID_CONTEXT)?)
        }
    };
    if client.host_pools.has(pool) {
        return dptr.set(match bytesize {
            0 => 0,
            _ => host_pool::allocate(client, pool, bytesize, hStream)?,
        });
    }
    let device = client.pools.own_device(pool)?;
    let mut address = 0;
    let recorded = graph::record(client, hStream, |stream| {
        if bytesize == 0 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let allocation = capture::allocate::<Guest>(stream, bytesize)?;
        address = allocation.address();
        Ok(Work::Alloc(allocation))
    })?;
    if recorded {
        return dptr.set(address);
    }
    // As natively: no memory, and no error.
    if bytesize == 0 {
        return dptr.set(0);
    }
    let spare = freed::Place::of(hStream, pool).map(|place| Home {
        context,
        order: Some(place),
    });
    let spare = spare.filter(|_| !client.is_corrupted());
    let kept = spare.and_then(|spare| client.freed.take(spare, bytesize));
    let start = match kept {
        Some(start) => start,
        None => {
            let request = request::cuMemAllocFromPoolAsync {
                dptr: true,
                bytesize,
                pool,
                hStream,
            };
            client.allocate(|| client.call(&request))?.dptr
        }
    };
    client.pointers.insert(Range {
        start,
        bytes: bytesize as u64,
        context,
        kind: Kind::Device,
        origin: Origin::Pool { pool, device },
    });
    dptr.set(start)
}

fn free(dptr: CUdeviceptr, (shape, hStream): (DefaultStream, CUstream)) -> Result {
    let client = client()?;
    let hStream = stream::lower(shape, hStream)?;
    let context = stream::context(hStream as CUstream)?;
    if dptr == 0 {
        return Ok(());
    }
    if let Some(freed) = host_pool::free(client, dptr, Some((hStream, context))) {
        return freed;
    }
    let recorded = graph::record(client, hStream, |_| {
        let found = Guest::store().with(|inner| inner.allocation(dptr));
        found.map(Work::Free).ok_or(CUDA_ERROR_INVALID_VALUE)
    })?;
    if recorded {
        return Ok(());
    }
    if let Some(freed) = graph::free(dptr) {
        return freed;
    }
    client.disown(dptr);
    let range = client.pointers.find(dptr).filter(Range::is_freed_at(dptr));
    if range.as_ref().is_some_and(|range| range.is_managed()) {
        return Err(CUDA_ERROR_NOT_SUPPORTED);
    }
    let request = request::cuMemFreeAsync { dptr, hStream };
    // The legacy stream belongs to the current context.
    let is_known = client.objects.knows_stream(hStream)
        && client.objects.contains(context)
        && thread::has_context(client);
    if range.is_some() {
        client.pointers.remove(dptr);
    }
    let pools = range.as_ref().and_then(|range| match range.origin {
        Origin::Pool { pool, .. } => Some((range, pool)),
        _ => None,
    });
    let freed = match pools.filter(|_| is_known) {
        Some((range, pool)) => {
            // Only the host can end memory that is shared with other processes. Another context's stream may end before
            // the memory's context.
            if let Some(place) = freed::Place::of(hStream, pool)
                && context == range.context
                && client.pools.sharing(pool) == Sharing::Private
                && client.freed.free_in_order(client, range, place)
            {
                return Ok(());
            }
            client.post(&request)
        }
        None => client.call(&request).map(drop),
    };
    match (freed, range) {
        (Ok(()), _) => client.note_freed(true),
        (Err(_), Some(range)) => client.pointers.insert(range),
        (Err(_), None) => {}
    }
    freed
}

fn create(pool: OutPtr<CUmemoryPool>, properties: InPtr<CUmemPoolProps>) -> Result {
    let client = client()?;
    pool.required()?;
    let properties = properties.get()?;
    // Pools of managed memory need devices that can use it concurrently with the program.
    if properties.allocType == CU_MEM_ALLOCATION_TYPE_MANAGED {
        return Err(CUDA_ERROR_NOT_SUPPORTED);
    }
    if properties.allocType != CU_MEM_ALLOCATION_TYPE_PINNED
        || !properties.win32SecurityAttributes.is_null()
    {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    if let Some(place) = host_pool::place(properties.location)? {
        let id = host_pool::create(client, place, &properties)?;
        return pool.set(MemPool::handle(id));
    }
    let sharing = match properties.handleTypes {
        CU_MEM_HANDLE_TYPE_NONE => Sharing::Private,
        CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR if shared_pool::is_served(client) => {
            Sharing::Exportable
        }
        CU_MEM_HANDLE_TYPE_WIN32 | CU_MEM_HANDLE_TYPE_WIN32_KMT => {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        // Memory for fabrics does not exist.
        _ => return Err(CUDA_ERROR_NOT_SUPPORTED),
    };
    let dev = properties.location.id;
    device(dev).map_err(|_| CUDA_ERROR_INVALID_VALUE)?;
    let id = client.new_id::<MemPool>();
    client.call(&request::cuMemPoolCreate {
        pool: id,
        dev,
        maxSize: properties.maxSize,
    })?;
    let made = Pool {
        device: dev,
        sharing,
    };
    client.pools.table().made.insert(id, made);
    pool.set(MemPool::handle(id))
}

fn destroy(pool: CUmemoryPool) -> Result {
    let client = client()?;
    let pool = MemPool::id(pool);
    if client.host_pools.has(pool) {
        return host_pool::destroy(client, pool);
    }
    client.pools.device(pool)?;
    if device_of_default_pool(pool).is_some() {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    client.give_back_spare();
    client.call(&request::cuMemPoolDestroy { pool })?;
    let mut table = client.pools.table();
    table.made.remove(&pool);
    // A device whose current pool it was gets its default pool again.
    table.current.retain(|_, current| *current != pool);
    table.access.retain(|(of, _), _| *of != pool);
    Ok(())
}

fn set_current(dev: CUdevice, pool: CUmemoryPool) -> Result {
    let client = client()?;
    device(dev)?;
    let pool = MemPool::id(pool);
    if client.host_pools.has(pool) {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    if client.pools.own_device(pool)? != dev {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    client.pools.table().current.insert(dev, pool);
    Ok(())
}

/// The device of a location.
fn of_location(location: CUmemLocation) -> Result<CUdevice> {
    if location.type_ != CU_MEM_LOCATION_TYPE_DEVICE {
        return Err(CUDA_ERROR_NOT_SUPPORTED);
    }
    device(location.id)?;
    Ok(location.id)
}

/// The place of memory of a kind: a place on the host, or, if `None`, the location's device.
fn of_kind(location: CUmemLocation, kind: CUmemAllocationType) -> Result<Option<Place>> {
    match (kind, location.type_) {
        (_, CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT) | (CU_MEM_ALLOCATION_TYPE_MANAGED, _) => {
            Err(CUDA_ERROR_NOT_SUPPORTED)
        }
        (CU_MEM_ALLOCATION_TYPE_PINNED, CU_MEM_LOCATION_TYPE_DEVICE) => {
            device(location.id).map(|_| None)
        }
        (CU_MEM_ALLOCATION_TYPE_PINNED, _) => host_pool::place(location),
        _ => Err(CUDA_ERROR_INVALID_VALUE),
    }
}

/// Whether an attribute is an `int`; the others have 64 bits.
pub fn is_flag(attribute: CUmemPool_attribute) -> Result<bool> {
    match attribute {
        CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES
            ..=CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES => Ok(true),
        CU_MEMPOOL_ATTR_RELEASE_THRESHOLD..=CU_MEMPOOL_ATTR_USED_MEM_HIGH => Ok(false),
        _ => Err(CUDA_ERROR_INVALID_VALUE),
    }
}

cuda! {
    /// `cuMemAllocAsync`, from the current pool of the stream's device.
    fn cuMemAllocAsync(dptr: OutPtr<CUdeviceptr>, bytesize: usize, hStream: CUstream) {
        allocate(dptr, bytesize, None, (DefaultStream::Legacy, hStream))
    }

    fn cuMemAllocAsync_ptsz(dptr: OutPtr<CUdeviceptr>, bytesize: usize, hStream: CUstream) {
        allocate(dptr, bytesize, None, (DefaultStream::PerThread, hStream))
    }

    /// `cuMemAllocFromPoolAsync`.
    fn cuMemAllocFromPoolAsync(dptr: OutPtr<CUdeviceptr>, bytesize: usize, pool: CUmemoryPool, hStream: CUstream) {
        allocate(dptr, bytesize, Some(pool), (DefaultStream::Legacy, hStream))
    }

    fn cuMemAllocFromPoolAsync_ptsz(dptr: OutPtr<CUdeviceptr>, bytesize: usize, pool: CUmemoryPool, hStream: CUstream) {
        allocate(dptr, bytesize, Some(pool), (DefaultStream::PerThread, hStream))
    }

    /// `cuMemFreeAsync`, of memory of a pool or of `cuMemAlloc`; NULL is ignored.
    fn cuMemFreeAsync(dptr: CUdeviceptr, hStream: CUstream) {
        free(dptr, (DefaultStream::Legacy, hStream))
    }

    fn cuMemFreeAsync_ptsz(dptr: CUdeviceptr, hStream: CUstream) {
        free(dptr, (DefaultStream::PerThread, hStream))
    }

    fn cuDeviceGetDefaultMemPool(pool_out: OutPtr<CUmemoryPool>, dev: CUdevice) {
        device(dev)?;
        pool_out.set(MemPool::handle(default_pool(dev)))
    }

    fn cuDeviceGetMemPool(pool: OutPtr<CUmemoryPool>, dev: CUdevice) {
        device(dev)?;
        pool.set(MemPool::handle(client()?.pools.current(dev)))
    }

    fn cuDeviceSetMemPool(dev: CUdevice, pool: CUmemoryPool) {
        set_current(dev, pool)
    }

    /// `cuMemGetDefaultMemPool`: as `cuDeviceGetDefaultMemPool`, by location.
    fn cuMemGetDefaultMemPool(pool_out: OutPtr<CUmemoryPool>, location: InPtr<CUmemLocation>, kind: CUmemAllocationType) {
        let client = client()?;
        pool_out.required()?;
        let location = location.get()?;
        let id = match of_kind(location, kind)? {
            Some(place) => host_pool::own(client, place),
            None => default_pool(location.id),
        };
        pool_out.set(MemPool::handle(id))
    }

    /// `cuMemGetMemPool`: as `cuDeviceGetMemPool`, by location.
    fn cuMemGetMemPool(pool: OutPtr<CUmemoryPool>, location: InPtr<CUmemLocation>, kind: CUmemAllocationType) {
        let client = client()?;
        pool.required()?;
        let location = location.get()?;
        let id = match of_kind(location, kind)? {
            Some(place) => host_pool::current(client, place),
            None => client.pools.current(location.id),
        };
        pool.set(MemPool::handle(id))
    }

    /// `cuMemSetMemPool`: as `cuDeviceSetMemPool`, by location.
    fn cuMemSetMemPool(location: InPtr<CUmemLocation>, kind: CUmemAllocationType, pool: CUmemoryPool) {
        let client = client()?;
        let location = location.get()?;
        match of_kind(location, kind)? {
            Some(place) => host_pool::set_current(client, place, MemPool::id(pool)),
            None => set_current(location.id, pool),
        }
    }

    /// `cuMemPoolCreate`: of host memory, or of a device's memory, which can be shared by descriptors.
    fn cuMemPoolCreate(pool: OutPtr<CUmemoryPool>, poolProps: InPtr<CUmemPoolProps>) {
        create(pool, poolProps)
    }

    /// `cuMemPoolDestroy`. Allocations from the pool exist until they are freed. A device's default pool cannot be
    /// destroyed.
    fn cuMemPoolDestroy(pool: CUmemoryPool) {
        destroy(pool)
    }

    fn cuMemPoolTrimTo(pool: CUmemoryPool, minBytesToKeep: usize) {
        let client = client()?;
        let pool = MemPool::id(pool);
        if client.host_pools.has(pool) {
            return host_pool::trim(client, pool, minBytesToKeep as u64);
        }
        client.pools.own_device(pool)?;
        client.give_back_spare();
        client.call(&request::cuMemPoolTrimTo { pool, minBytesToKeep }).map(drop)
    }

    fn cuMemPoolGetAttribute(pool: CUmemoryPool, attr: CUmemPool_attribute, value: OutPtr<c_void>) {
        let client = client()?;
        let pool = MemPool::id(pool);
        if client.host_pools.has(pool) {
            return host_pool::attribute(client, pool, attr, value.required()?.raw());
        }
        client.pools.own_device(pool)?;
        let value = value.required()?.raw();
        let is_flag = is_flag(attr)?;
        client.give_back_spare();
        let answer = client.call(&request::cuMemPoolGetAttribute { pool, attr, value: true })?.value;
        if is_flag {
            OutPtr::nested(value).set(answer as i32)
        } else {
            OutPtr::nested(value).set(answer)
        }
    }

    fn cuMemPoolSetAttribute(pool: CUmemoryPool, attr: CUmemPool_attribute, value: *mut c_void) {
        let client = client()?;
        let pool = MemPool::id(pool);
        if client.host_pools.has(pool) {
            return host_pool::set_attribute(client, pool, attr, value);
        }
        client.pools.own_device(pool)?;
        let value = if is_flag(attr)? {
            u64::from(InPtr::<i32>::nested(value).get()? != 0)
        } else {
            InPtr::<u64>::nested(value).get()?
        };
        client.give_back_spare();
        client.call(&request::cuMemPoolSetAttribute { pool, attr, value }).map(drop)
    }

    /// `cuMemPoolSetAccess`. A device's access to its own memory cannot be withdrawn.
    fn cuMemPoolSetAccess(pool: CUmemoryPool, map: InPtr<CUmemAccessDesc>, count: usize) {
        let client = client()?;
        let pool = MemPool::id(pool);
        if client.host_pools.has(pool) {
            return (0..count).try_for_each(|index| host_pool::set_access(client, pool, map.at(index)?));
        }
        let own = client.pools.device(pool)?;
        for index in 0..count {
            let wish = map.at(index)?;
            let dev = of_location(wish.location)?;
            client.call(&request::cuMemPoolSetAccess { pool, dev, flags: wish.flags })?;
            if dev != own {
                client.pools.table().access.insert((pool, dev), wish.flags);
            }
        }
        Ok(())
    }

    fn cuMemPoolGetAccess(flags: OutPtr<CUmemAccess_flags>, memPool: CUmemoryPool, location: InPtr<CUmemLocation>) {
        let client = client()?;
        flags.required()?;
        let pool = MemPool::id(memPool);
        if client.host_pools.has(pool) {
            return flags.set(host_pool::access(client, pool, location.get()?)?);
        }
        let own = client.pools.device(pool)?;
        let dev = of_location(location.get()?)?;
        if dev == own {
            return flags.set(CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
        }
        let known = client.pools.table().access.get(&(pool, dev)).copied();
        flags.set(known.unwrap_or(CU_MEM_ACCESS_FLAGS_PROT_NONE))
    }
}
