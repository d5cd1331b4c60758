// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Memory of nvJPEG. The library allocates by functions of this file, so its memory is charged, and its pinned memory
//! is limited: a guest chooses the sizes of JPEGs and of buffers.

use std::{
    collections::HashMap,
    ffi::{c_int, c_void},
    ptr::null_mut,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use gpgpu_locks::Mutex;
use gpgpu_protocol::cuda::*;

use crate::{
    account::GRANULE,
    cuda::driver,
    worker::{
        captures,
        charges::{Charges, Owner},
        device_memory::DeviceMemory,
    },
};

/// The maximum amount of host memory that the library pins for a client, in bytes.
const MOST_PINNED: u64 = 2 << 30;

/// `cudaErrorMemoryAllocation`, for the library.
const NO_MEMORY: c_int = 2;

/// The bytes that a client has of a limited resource.
#[derive(Debug, Clone, Default)]
pub struct Budget(Arc<AtomicU64>);

/// A part of a [`Budget`], until it is dropped.
#[derive(Debug)]
pub struct Taken {
    of: Budget,
    bytes: u64,
}

impl Budget {
    /// Takes bytes, if the total is at most `most` afterwards.
    pub fn take(&self, bytes: u64, most: u64) -> Option<Taken> {
        let add = |taken: u64| taken.checked_add(bytes).filter(|sum| *sum <= most);
        let added = (self.0).fetch_update(Ordering::Relaxed, Ordering::Relaxed, add);
        added.ok().map(|_| Taken {
            of: self.clone(),
            bytes,
        })
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        self.of.0.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// Allocates or frees memory: the address of [`Memory`], and the library's arguments (`tDevMallocV2`, `tDevFreeV2` and
/// the like).
type Malloc = extern "C" fn(*mut c_void, *mut *mut c_void, usize, *mut c_void) -> c_int;
type Free = extern "C" fn(*mut c_void, *mut c_void, usize, *mut c_void) -> c_int;

/// `nvjpegDevAllocatorV2_t` and `nvjpegPinnedAllocatorV2_t`.
#[repr(C)]
#[derive(Debug)]
struct Allocator {
    malloc: Malloc,
    free: Free,
    context: *const Memory,
}

/// The memory of a handle.
#[derive(Debug)]
struct Memory {
    device_memory: &'static DeviceMemory,
    charges: &'static Charges,
    /// The GPU.
    device: CUdevice,
    /// The context with which the memory ends.
    home: u64,
    pins: Budget,
    /// Pinned memory, by address.
    pinned: Mutex<HashMap<u64, Taken>>,
}

/// The allocators of a handle. The library has their addresses as long as the handle and its objects exist.
#[derive(Debug)]
pub struct Allocators {
    device: Box<Allocator>,
    pinned: Box<Allocator>,
    memory: Box<Memory>,
}

// SAFETY: the pointers are to the box beside them, whose content any thread may use.
unsafe impl Send for Allocators {}
// SAFETY: as above.
unsafe impl Sync for Allocators {}

impl Allocators {
    /// The allocators of a handle on a GPU, whose memory ends with a context.
    pub fn new(
        device_memory: &'static DeviceMemory,
        charges: &'static Charges,
        device: CUdevice,
        home: u64,
        pins: Budget,
    ) -> Self {
        let memory = Box::new(Memory {
            device_memory,
            charges,
            device,
            home,
            pins,
            pinned: Mutex::default(),
        });
        let allocator = |malloc, free| {
            Box::new(Allocator {
                malloc,
                free,
                context: &raw const *memory,
            })
        };
        Self {
            device: allocator(allocate, free),
            pinned: allocator(pin, unpin),
            memory,
        }
    }

    /// The address of the allocator of GPU memory.
    pub fn device(&self) -> u64 {
        &raw const *self.device as u64
    }

    /// The address of the allocator of host memory.
    pub fn pinned(&self) -> u64 {
        &raw const *self.pinned as u64
    }

    /// Handles a handle that has ended with a context other than that of the memory: pinned memory remains, and is
    /// counted.
    pub fn lose(&self) {
        self.memory.pinned.lock().drain().for_each(std::mem::forget);
    }

    /// The context with which the memory ends.
    pub fn home(&self) -> u64 {
        self.memory.home
    }
}

/// Calls `body` with the memory behind a pointer of the library, and converts its result for the library.
fn with(memory: *mut c_void, body: impl FnOnce(&Memory) -> Result<(), CUresult>) -> c_int {
    // SAFETY: the library passes the pointer of its allocator, which lives as long as the handle and its objects.
    match body(unsafe { &*memory.cast::<Memory>() }) {
        Ok(()) => 0,
        Err(_) => NO_MEMORY,
    }
}

/// The bytes of the driver's pages for an allocation. Small allocations share pages, but one of them is enough to keep
/// its page.
fn charged(bytes: u64) -> Option<u64> {
    bytes.checked_next_multiple_of(GRANULE)
}

extern "C" fn allocate(
    memory: *mut c_void,
    to: *mut *mut c_void,
    size: usize,
    _stream: *mut c_void,
) -> c_int {
    with(memory, |memory| {
        let mut address = 0;
        if size > 0 {
            let bytes = charged(size as u64).ok_or(CUDA_ERROR_OUT_OF_MEMORY)?;
            let charge = memory.device_memory.reserve(memory.device, bytes)?;
            let allocate = |to: &mut u64| {
                // SAFETY: the pointer is to a value that lives across the call.
                unsafe { driver::cuMemAlloc_v2(to, size) }
            };
            allocate(&mut address).or_else(|_| {
                // Returns memory that is only kept for the client's next allocation.
                memory.device_memory.give_kept(memory.device);
                allocate(&mut address)
            })?;
            let owner = Owner::Allocation(address);
            memory.charges.keep(owner, memory.home, charge);
        }
        // SAFETY: the library gives an address for the result.
        unsafe { to.write(address as *mut c_void) };
        Ok(())
    })
}

extern "C" fn free(
    memory: *mut c_void,
    address: *mut c_void,
    _size: usize,
    _stream: *mut c_void,
) -> c_int {
    with(memory, |memory| {
        if address.is_null() {
            return Ok(());
        }
        let address = address as u64;
        // First: as soon as the memory is freed, another thread may get the same address.
        let charge = memory.charges.take(Owner::Allocation(address));
        // SAFETY: the library frees what `allocate` gave it, once.
        let freed = unsafe { driver::cuMemFree_v2(address) };
        drop(charge);
        freed
    })
}

extern "C" fn pin(
    memory: *mut c_void,
    to: *mut *mut c_void,
    size: usize,
    _stream: *mut c_void,
) -> c_int {
    with(memory, |memory| {
        let mut address = null_mut();
        if size > 0 {
            let taken = memory.pins.take(size as u64, MOST_PINNED);
            let taken = taken.ok_or(CUDA_ERROR_OUT_OF_MEMORY)?;
            // SAFETY: the pointer is to a value that lives across the call.
            unsafe { driver::cuMemHostAlloc(&mut address, size, 0)? };
            memory.pinned.lock().insert(address as u64, taken);
        }
        // SAFETY: the library gives an address for the result.
        unsafe { to.write(address) };
        Ok(())
    })
}

extern "C" fn unpin(
    memory: *mut c_void,
    address: *mut c_void,
    _size: usize,
    _stream: *mut c_void,
) -> c_int {
    with(memory, |memory| {
        if address.is_null() {
            return Ok(());
        }
        let taken = memory.pinned.lock().remove(&(address as u64));
        // The library expects a free in the stream's order, and work there may still read the memory. For device
        // memory, the driver itself waits for all work of its context.
        let waited = captures::synchronize();
        // SAFETY: the library frees what `pin` gave it, once.
        let freed = unsafe { driver::cuMemFreeHost(address) }.and(waited);
        drop(taken);
        freed
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_pages_are_charged() {
        let charges = [1, 512, GRANULE / 2, GRANULE, GRANULE + 1].map(charged);
        let expected = [1, 1, 1, 1, 2].map(|pages| Some(pages * GRANULE));
        assert_eq!(charges, expected);
        assert_eq!(charged(u64::MAX), None);
    }

    #[test]
    fn a_budget_has_an_end_and_gets_back_what_was_taken() {
        let budget = Budget::default();
        let first = budget.take(6, 10).unwrap();
        assert!(budget.take(5, 10).is_none() && budget.take(u64::MAX, 10).is_none());
        let second = budget.take(4, 10).unwrap();
        assert!(budget.take(1, 10).is_none());
        drop(first);
        assert!(budget.take(6, 10).is_some());
        drop(second);
        assert!(budget.take(10, 10).is_some());
    }
}
