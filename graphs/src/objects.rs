// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The objects that graphs hold: the memory of their allocation nodes, and user objects.

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

/// The values for each device.
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

/// Device memory of a graph's allocation nodes. Several nodes can use it one after the other.
#[derive(Debug)]
pub struct Memory {
    /// The address.
    pub address: u64,
    /// Its size in bytes.
    pub bytes: usize,
    /// The handle of its context.
    pub context: u64,
    /// The device.
    pub device: CUdevice,
    /// Whether a launch has allocated it and no graph remains that frees it, so that it belongs to the program.
    is_programs: AtomicBool,
    free: fn(u64),
}

impl Memory {
    /// Allocates memory.
    ///
    /// # Errors
    ///
    /// The errors of `cuMemAlloc`.
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
/// executable graph may use it. If it is *live* then, because no free followed its launch, the program must free it.
#[derive(Debug)]
pub struct Allocation {
    /// Its size in bytes, which is at most that of its memory.
    pub bytes: usize,
    memory: Arc<Memory>,
    /// The graph of its node.
    graph: u64,
    /// Whether a node of that graph frees it.
    is_freed_there: AtomicBool,
    live: AtomicBool,
}

impl Allocation {
    /// The allocation of a node of this graph, in memory that no other node uses at the same time.
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

    /// Records that a node of a graph frees it. Returns the memory for later nodes if the graph is the allocation's
    /// own: the order of another graph's launches is unknown.
    ///
    /// # Errors
    ///
    /// `CUDA_ERROR_INVALID_VALUE` if a node of the same graph already frees it.
    pub fn freed_by(&self, graph: u64) -> Result<Option<Arc<Memory>>> {
        if graph != self.graph {
            return Ok(None);
        }
        if self.is_freed_there.swap(true, Ordering::AcqRel) {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        Ok(Some(Arc::clone(&self.memory)))
    }

    /// Records that a launch allocates it.
    ///
    /// # Errors
    ///
    /// `CUDA_ERROR_INVALID_VALUE` if an earlier launch has allocated it, and it was not freed.
    pub fn begin(&self) -> Result {
        if self.live.swap(true, Ordering::AcqRel) {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        with_usage(self.device(), |usage| more(usage, 0, self.bytes as u64));
        Ok(())
    }

    /// Records that a launch or the program frees it. Returns `false` if it was not live.
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

/// A user object: `cuUserObjectCreate`.
#[derive(Debug)]
pub struct UserObject {
    destroy: unsafe extern "C" fn(*mut c_void),
    data: *mut c_void,
    /// The number of references, of the program and of graphs.
    pub count: u64,
}

// SAFETY: the pointer is handed to the program's function and used in no other way; CUDA calls it on any thread.
unsafe impl Send for UserObject {}

impl UserObject {
    /// A user object with this number of references.
    pub fn new(destroy: unsafe extern "C" fn(*mut c_void), data: *mut c_void, count: u64) -> Self {
        Self {
            destroy,
            data,
            count,
        }
    }

    /// Calls the program's function, after the last reference was released.
    pub fn end(self) {
        // SAFETY: the program gave the function for this pointer; it is called once, as this takes the object.
        unsafe { (self.destroy)(self.data) }
    }
}
