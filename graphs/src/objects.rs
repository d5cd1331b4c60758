// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The objects that graphs hold: memory of their allocation nodes, and objects of the program.

use std::{
    ffi::c_void,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use gpgpu_locks::Mutex;
use gpgpu_protocol::cuda::*;

use crate::{Gpu, Result};

/// The values of `cuDeviceGetGraphMemAttribute` for a device: used, peak of used, reserved, peak of reserved.
type Usage = [u64; 4];

/// By device.
static USAGE: Mutex<Vec<Usage>> = Mutex::new(Vec::new());

fn with_usage<T>(device: CUdevice, change: impl FnOnce(&mut Usage) -> T) -> T {
    let mut all = USAGE.lock();
    let device = device.max(0) as usize;
    if all.len() <= device {
        all.resize(device + 1, [0; 4]);
    }
    change(&mut all[device])
}

/// A `CUgraphMem_attribute` of a device, in bytes.
///
/// # Errors
///
/// `CUDA_ERROR_INVALID_VALUE` if there is no such attribute.
pub fn usage(device: CUdevice, attribute: u32) -> Result<u64> {
    with_usage(device, |usage| usage.get(attribute as usize).copied())
        .ok_or(CUDA_ERROR_INVALID_VALUE)
}

/// Sets the high-water mark of a device to its current use.
///
/// # Errors
///
/// `CUDA_ERROR_INVALID_VALUE` for an attribute that is no high-water mark, and for a value other than 0.
pub fn reset_usage(device: CUdevice, attribute: u32, value: u64) -> Result {
    if value != 0 || !matches!(attribute, 1 | 3) {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    with_usage(device, |usage| {
        usage[attribute as usize] = usage[attribute as usize - 1];
    });
    Ok(())
}

fn more(usage: &mut Usage, at: usize, bytes: u64) {
    usage[at] += bytes;
    usage[at + 1] = usage[at + 1].max(usage[at]);
}

/// Device memory of allocation nodes of one graph. Nodes whose allocations follow each other use it in turn.
#[derive(Debug)]
pub struct Memory {
    /// The address.
    pub address: u64,
    /// Bytes.
    pub bytes: usize,
    /// The handle of the context that it is in.
    pub context: u64,
    /// The device.
    pub device: CUdevice,
    /// A launch has allocated it, and no graph is left that frees it: it is the program's.
    is_programs: AtomicBool,
    free: fn(u64),
}

impl Memory {
    /// Allocates.
    ///
    /// # Errors
    ///
    /// Those of `cuMemAlloc`.
    pub fn new<G: Gpu>(context: u64, bytes: usize) -> Result<Self> {
        let device = G::device(context)?;
        let address = G::allocate(context, bytes)?;
        with_usage(device, |usage| more(usage, 2, bytes as u64));
        Ok(Self {
            address,
            bytes,
            context,
            device,
            is_programs: AtomicBool::new(false),
            free: G::free,
        })
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        with_usage(self.device, |usage| usage[2] -= self.bytes as u64);
        if !*self.is_programs.get_mut() {
            (self.free)(self.address);
        }
    }
}

/// The allocation of a node. It has its address from the node's creation on, and exists as long as a node or an
/// executable graph may use it. An allocation that is *live* then, because no free followed its launch, is the
/// program's to free.
#[derive(Debug)]
pub struct Allocation {
    /// Bytes: at most those of its memory.
    pub bytes: usize,
    memory: Arc<Memory>,
    /// The graph of its node.
    graph: u64,
    /// A node of that graph frees it.
    is_freed_there: AtomicBool,
    live: AtomicBool,
}

impl Allocation {
    /// The allocation of a node of this graph, in memory that no other node uses at that time.
    pub fn new(graph: u64, bytes: usize, memory: Arc<Memory>) -> Self {
        Self {
            bytes,
            memory,
            graph,
            is_freed_there: AtomicBool::new(false),
            live: AtomicBool::new(false),
        }
    }

    /// The address.
    pub fn address(&self) -> u64 {
        self.memory.address
    }

    /// The device.
    pub fn device(&self) -> CUdevice {
        self.memory.device
    }

    /// A node of a graph is about to free it. Returns the memory for nodes behind that one, if it is the allocation's
    /// own graph: launches of another graph have an order of their own.
    ///
    /// # Errors
    ///
    /// `CUDA_ERROR_INVALID_VALUE` if a node of the same graph frees it already.
    pub fn freed_by(&self, graph: u64) -> Result<Option<Arc<Memory>>> {
        if graph != self.graph {
            return Ok(None);
        }
        if self.is_freed_there.swap(true, Ordering::AcqRel) {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        Ok(Some(Arc::clone(&self.memory)))
    }

    /// A launch allocates it.
    ///
    /// # Errors
    ///
    /// `CUDA_ERROR_INVALID_VALUE` if one has done so before, and it was not freed.
    pub fn begin(&self) -> Result {
        if self.live.swap(true, Ordering::AcqRel) {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        with_usage(self.device(), |usage| more(usage, 0, self.bytes as u64));
        Ok(())
    }

    /// It is freed: by a launch, or by the program. `false` if it was not live.
    pub fn end(&self) -> bool {
        let was = self.live.swap(false, Ordering::AcqRel);
        if was {
            with_usage(self.device(), |usage| usage[0] -= self.bytes as u64);
        }
        was
    }

    /// Whether it is live.
    pub fn is_live(&self) -> bool {
        self.live.load(Ordering::Acquire)
    }
}

impl Drop for Allocation {
    fn drop(&mut self) {
        if self.end() {
            self.memory.is_programs.store(true, Ordering::Release);
        }
    }
}

/// An object of the program that graphs hold: `cuUserObjectCreate`.
#[derive(Debug)]
pub struct UserObject {
    destroy: unsafe extern "C" fn(*mut c_void),
    data: *mut c_void,
    /// References, of the program and of graphs.
    pub count: u64,
}

// SAFETY: the pointer is handed to the program's function and used in no other way; CUDA calls it on any thread.
unsafe impl Send for UserObject {}

impl UserObject {
    /// An object with so many references.
    pub fn new(destroy: unsafe extern "C" fn(*mut c_void), data: *mut c_void, count: u64) -> Self {
        Self {
            destroy,
            data,
            count,
        }
    }

    /// Calls the program's function: the last reference is gone.
    pub fn end(self) {
        // SAFETY: the program gave the function for this pointer; it is called once, as this takes the object.
        unsafe { (self.destroy)(self.data) }
    }
}
