// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Memory that is allocated and freed in a stream's order.
//!
//! An allocation is made at the call, so its address is usable in other streams too early rather than too late; a free
//! happens when the stream reaches it. Up to its release threshold a pool keeps freed memory, for allocations of the
//! same size.

use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use gpgpu_graphs::Gpu;
use gpgpu_graphs::node::Work;
use gpgpu_locks::Mutex;
use gpgpu_protocol::cuda::{
    CU_MEM_ACCESS_FLAGS_PROT_NONE, CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
    CU_MEM_ALLOCATION_TYPE_PINNED, CU_MEM_HANDLE_TYPE_NONE, CU_MEM_LOCATION_TYPE_DEVICE,
    CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT,
    CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH, CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES,
    CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES, CU_MEMPOOL_ATTR_USED_MEM_CURRENT,
    CU_MEMPOOL_ATTR_USED_MEM_HIGH, CUDA_ERROR_INVALID_HANDLE, CUDA_ERROR_INVALID_VALUE,
    CUDA_ERROR_NOT_SUPPORTED, CUDA_ERROR_OUT_OF_MEMORY, CUdevice, CUdeviceptr, CUmemAccess_flags,
    CUmemAccessDesc, CUmemLocation, CUmemPool_attribute, CUmemPoolProps, CUmemoryPool, CUstream,
};

use super::device::check;
use crate::config::{ALLOCATION_ALIGNMENT, MAX_DEVICES};
use crate::context::{self, Context};
use crate::driver::{self, Driver};
use crate::ffi::{Pointer, Result, export};
use crate::graph::{self, Soft};
use crate::handle::Table;
use crate::memory::{Allocation, Kind};
use crate::stream::Null;

/// All pools.
static POOLS: Table<Pool> = Table::new(0x90);
// By device.
static CURRENT: [AtomicU64; MAX_DEVICES] = [const { AtomicU64::new(0) }; MAX_DEVICES];

/// A pool.
struct Pool {
    handle: u64,
    device: CUdevice,
    most: u64,
    // The other devices that reach its memory, a bit for each.
    open: AtomicU64,
    state: Mutex<State>,
}

/// Whether a device reaches a pool's memory.
pub fn opens(pool: u64, device: CUdevice) -> bool {
    POOLS.find(pool).is_some_and(|pool| pool.opens(device))
}

struct State {
    // The three ways to reuse, all allowed until switched off; without effect here.
    reuse: [c_int; 3],
    threshold: u64,
    used: u64,
    most_used: u64,
    // Freed and not given back to the device.
    kept: Vec<Arc<Allocation>>,
    most_reserved: u64,
}

impl State {
    fn kept_bytes(&self) -> u64 {
        self.kept.iter().map(|a| a.size).sum()
    }

    fn reserved(&self) -> u64 {
        self.used + self.kept_bytes()
    }

    // Returns kept memory until no more than `most` bytes are reserved.
    fn trim(&mut self, driver: &Driver, most: u64) {
        while self.reserved() > most {
            let Some(block) = self.kept.pop() else {
                return;
            };
            driver.memory.release(&block);
        }
    }

    fn take_kept(&mut self, size: u64) -> Option<Arc<Allocation>> {
        let rounded = size.checked_next_multiple_of(ALLOCATION_ALIGNMENT)?;
        let fits = |a: &Arc<Allocation>| a.size.next_multiple_of(ALLOCATION_ALIGNMENT) == rounded;
        let index = self.kept.iter().position(fits)?;
        Some(self.kept.swap_remove(index))
    }
}

fn new_pool(device: CUdevice, most: u64) -> Arc<Pool> {
    POOLS.insert_with(|handle| Pool {
        handle,
        device,
        most,
        open: AtomicU64::new(0),
        state: Mutex::new(State {
            reuse: [1; 3],
            threshold: 0,
            used: 0,
            most_used: 0,
            kept: Vec::new(),
            most_reserved: 0,
        }),
    })
}

fn default_pool(device: CUdevice) -> &'static Arc<Pool> {
    static DEFAULT: [OnceLock<Arc<Pool>>; MAX_DEVICES] = [const { OnceLock::new() }; MAX_DEVICES];
    DEFAULT[device as usize].get_or_init(|| new_pool(device, 0))
}

fn current_pool(device: CUdevice) -> Arc<Pool> {
    POOLS
        .get(CURRENT[device as usize].load(Ordering::Acquire))
        .unwrap_or_else(|| default_pool(device).clone())
}

fn named(pool: CUmemoryPool) -> Result<Arc<Pool>> {
    POOLS.get(pool as u64).ok_or(CUDA_ERROR_INVALID_HANDLE)
}

impl Pool {
    fn opens(&self, device: CUdevice) -> bool {
        device == self.device || self.open.load(Ordering::Acquire) & 1 << device != 0
    }

    fn state(&self) -> gpgpu_locks::MutexGuard<'_, State> {
        self.state.lock()
    }

    // Counts first and allocates then, so that two threads cannot both pass the limit.
    fn allocate(&self, size: u64, context: u64) -> Result<u64> {
        let memory = &driver::get()?.memory;
        let owner = (context, self.device);
        {
            let mut state = self.state();
            let used = state
                .used
                .checked_add(size)
                .ok_or(CUDA_ERROR_OUT_OF_MEMORY)?;
            if self.most != 0 && used > self.most {
                return Err(CUDA_ERROR_OUT_OF_MEMORY);
            }
            state.used = used;
            state.most_used = state.most_used.max(used);
            let kept = state.take_kept(size);
            state.most_reserved = state.most_reserved.max(state.reserved());
            if let Some(block) = kept {
                let kind = Kind::Pool(self.handle);
                let again = memory.allocate_again(block.start, size, kind, owner);
                return Ok(again.start);
            }
        }
        let allocated = memory.allocate(size, Kind::Pool(self.handle), owner);
        allocated
            .map(|a| a.start)
            .inspect_err(|_| self.state().used -= size)
    }
}

/// Takes back memory that was freed out of its pool: kept up to the pool's threshold, else released.
pub fn give_back(driver: &Driver, gone: Arc<Allocation>) {
    if let Kind::Pool(handle) = gone.kind
        && let Some(pool) = POOLS.get(handle)
    {
        let mut state = pool.state();
        state.used -= gone.size;
        if state.reserved().saturating_add(gone.size) <= state.threshold {
            state.kept.push(gone);
            return;
        }
    }
    driver.memory.release(&gone);
}

/// Gives back all that pools keep.
pub fn trim_all(driver: &Driver) {
    for pool in POOLS.all() {
        pool.state().trim(driver, 0);
    }
}

/// Counts memory that was freed out of its pool and given back otherwise.
pub fn settle(gone: &Allocation) {
    if let Kind::Pool(handle) = gone.kind
        && let Some(pool) = POOLS.get(handle)
    {
        pool.state().used -= gone.size;
    }
}

fn allocate(
    cx: &Context,
    pool: &Pool,
    out: Pointer<CUdeviceptr>,
    size: usize,
    stream: CUstream,
    null: Null,
) -> Result {
    out.required()?;
    let stream = cx.own_stream(stream, null)?;
    let mut address = 0;
    let recorded = graph::record(&stream, || {
        if size == 0 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let allocation = graph::allocate(&stream, size)?;
        address = allocation.address();
        Ok(Work::Alloc(allocation))
    })?;
    if recorded {
        return out.set(address);
    }
    // The driver returns no memory and no error, too.
    if size == 0 {
        return out.set(0);
    }
    let address = match pool.allocate(size as u64, cx.id) {
        // Memory of earlier frees of this stream may be enough.
        Err(CUDA_ERROR_OUT_OF_MEMORY) => {
            context::wait(&stream)?;
            trim_all(driver::get()?);
            pool.allocate(size as u64, cx.id)?
        }
        other => other?,
    };
    out.set(address)
}

fn is_this_device(location: Pointer<CUmemLocation>) -> Result {
    let location = location.get()?;
    if location.type_ != CU_MEM_LOCATION_TYPE_DEVICE {
        return Err(CUDA_ERROR_NOT_SUPPORTED);
    }
    check(location.id)
}

fn attribute(state: &mut State, attribute: CUmemPool_attribute) -> Result<&mut c_int> {
    match attribute {
        CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES
            ..=CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES => {
            Ok(&mut state.reuse[attribute as usize - 1])
        }
        _ => Err(CUDA_ERROR_INVALID_VALUE),
    }
}

export! {
    /// `cuMemAllocAsync`, from the device's current pool.
    work(stream) fn cuMemAllocAsync, cuMemAllocAsync_ptsz(out: Pointer<CUdeviceptr>, size: usize, stream: CUstream) |cx, null| {
        allocate(&cx, &current_pool(cx.device), out, size, stream, null)
    }

    /// `cuMemAllocFromPoolAsync`.
    work(stream) fn cuMemAllocFromPoolAsync, cuMemAllocFromPoolAsync_ptsz(out: Pointer<CUdeviceptr>, size: usize, pool: CUmemoryPool, stream: CUstream) |cx, null| {
        let pool = named(pool)?;
        allocate(&cx, &pool, out, size, stream, null)
    }

    /// `cuMemFreeAsync`, of memory from either allocator; NULL is nothing.
    work(stream) fn cuMemFreeAsync, cuMemFreeAsync_ptsz(address: CUdeviceptr, stream: CUstream) |cx, null| {
        if address == 0 {
            return cx.own_stream(stream, null).map(|_| ());
        }
        let stream_of = cx.own_stream(stream, null)?;
        let recorded = graph::record(&stream_of, || {
            let found = Soft::store().with(|inner| inner.allocation(address));
            found.map(Work::Free).ok_or(CUDA_ERROR_INVALID_VALUE)
        })?;
        if recorded {
            return Ok(());
        }
        if let Some(freed) = Soft::store().free(address) {
            return freed;
        }
        let memory = &driver::get()?.memory;
        let allocation = memory.find(address).filter(|a| a.start == address);
        if allocation.as_ref().is_some_and(|a| a.is_managed()) {
            return Err(CUDA_ERROR_NOT_SUPPORTED);
        }
        let allocation = allocation
            .filter(|a| matches!(a.kind, Kind::Device | Kind::Pool(_)))
            .ok_or(CUDA_ERROR_INVALID_VALUE)?;
        let stream = cx.own_stream(stream, null)?;
        if allocation.being_freed.swap(true, Ordering::AcqRel) {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        context::queue(&stream, Vec::new(), move || {
            let driver = driver::get()?;
            // Its context was destroyed meanwhile, so there is nothing to do.
            let Some(gone) = driver.memory.remove(address, |a| a.id == allocation.id) else {
                return Ok(());
            };
            give_back(driver, gone);
            Ok(())
        })
        .map(|_| ())
    }

    /// `cuDeviceGetDefaultMemPool`.
    initialised fn cuDeviceGetDefaultMemPool(out: Pointer<CUmemoryPool>, device: CUdevice) |_| {
        check(device)?;
        out.set(default_pool(device).handle as CUmemoryPool)
    }

    /// `cuDeviceGetMemPool`.
    initialised fn cuDeviceGetMemPool(out: Pointer<CUmemoryPool>, device: CUdevice) |_| {
        check(device)?;
        out.set(current_pool(device).handle as CUmemoryPool)
    }

    /// `cuDeviceSetMemPool`.
    initialised fn cuDeviceSetMemPool(device: CUdevice, pool: CUmemoryPool) |_| {
        check(device)?;
        let pool = named(pool)?;
        if pool.device != device {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        CURRENT[device as usize].store(pool.handle, Ordering::Release);
        Ok(())
    }

    /// `cuMemPoolCreate`: of a device's memory, to be shared with no other process.
    healthy fn cuMemPoolCreate(out: Pointer<CUmemoryPool>, props: Pointer<CUmemPoolProps>) |_| {
        out.required()?;
        let props = props.get()?;
        if props.allocType != CU_MEM_ALLOCATION_TYPE_PINNED || !props.win32SecurityAttributes.is_null() {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        if props.handleTypes != CU_MEM_HANDLE_TYPE_NONE || props.location.type_ != CU_MEM_LOCATION_TYPE_DEVICE {
            return Err(CUDA_ERROR_NOT_SUPPORTED);
        }
        check(props.location.id)?;
        out.set(new_pool(props.location.id, props.maxSize as u64).handle as CUmemoryPool)
    }

    /// `cuMemPoolDestroy`: allocations from it stay until they are freed. The default pool stays.
    healthy fn cuMemPoolDestroy(pool: CUmemoryPool) |driver| {
        let pool = named(pool)?;
        if pool.handle == default_pool(pool.device).handle {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        POOLS.remove(pool.handle);
        pool.state().trim(driver, 0);
        Ok(())
    }

    /// `cuMemPoolTrimTo`.
    healthy fn cuMemPoolTrimTo(pool: CUmemoryPool, keep: usize) |driver| {
        named(pool)?.state().trim(driver, keep as u64);
        Ok(())
    }

    /// `cuMemPoolGetAttribute`.
    healthy fn cuMemPoolGetAttribute(pool: CUmemoryPool, which: CUmemPool_attribute, value: Pointer<c_void>) |_| {
        let pool = named(pool)?;
        value.required()?;
        let mut state = pool.state();
        let long = match which {
            CU_MEMPOOL_ATTR_RELEASE_THRESHOLD => state.threshold,
            CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT => state.reserved(),
            CU_MEMPOOL_ATTR_USED_MEM_CURRENT => state.used,
            CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH => state.most_reserved,
            CU_MEMPOOL_ATTR_USED_MEM_HIGH => state.most_used,
            _ => return value.cast::<c_int>().set(*attribute(&mut state, which)?),
        };
        value.cast::<u64>().set(long)
    }

    /// `cuMemPoolSetAttribute`: high-water marks can only be set to zero, which sets them to the current use.
    healthy fn cuMemPoolSetAttribute(pool: CUmemoryPool, which: CUmemPool_attribute, value: Pointer<c_void>) |driver| {
        let pool = named(pool)?;
        let mut state = pool.state();
        match which {
            CU_MEMPOOL_ATTR_RELEASE_THRESHOLD => {
                state.threshold = value.cast::<u64>().get()?;
                let most = state.threshold;
                state.trim(driver, most);
            }
            CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH | CU_MEMPOOL_ATTR_USED_MEM_HIGH => {
                if value.cast::<u64>().get()? != 0 {
                    return Err(CUDA_ERROR_INVALID_VALUE);
                }
                match which {
                    CU_MEMPOOL_ATTR_USED_MEM_HIGH => state.most_used = state.used,
                    _ => state.most_reserved = state.reserved(),
                }
            }
            _ => *attribute(&mut state, which)? = (value.cast::<c_int>().get()? != 0).into(),
        }
        Ok(())
    }

    /// `cuMemPoolGetAccess`: its device reads and writes.
    healthy fn cuMemPoolGetAccess(flags: Pointer<CUmemAccess_flags>, pool: CUmemoryPool, location: Pointer<CUmemLocation>) |_| {
        let pool = named(pool)?;
        is_this_device(location)?;
        flags.set(match pool.opens(location.get()?.id) {
            true => CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
            false => CU_MEM_ACCESS_FLAGS_PROT_NONE,
        })
    }

    /// `cuMemPoolSetAccess`: the device's own access cannot be taken away.
    healthy fn cuMemPoolSetAccess(pool: CUmemoryPool, list: Pointer<CUmemAccessDesc>, count: usize) |driver| {
        let pool = named(pool)?;
        let wishes = list.array(count)?;
        let mut open = pool.open.load(Ordering::Acquire);
        for wish in wishes {
            let device = wish.location.id;
            check(device)?;
            match wish.flags {
                CU_MEM_ACCESS_FLAGS_PROT_READWRITE => open |= 1 << device,
                CU_MEM_ACCESS_FLAGS_PROT_NONE if device != pool.device => open &= !(1 << device),
                _ => return Err(CUDA_ERROR_INVALID_VALUE),
            }
        }
        pool.open.store(open, Ordering::Release);
        driver.memory.forget_ranges();
        Ok(())
    }
}
