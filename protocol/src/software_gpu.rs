// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! What the software GPU tells its stand-in for CUPTI: calls of the driver API that give work, and the work that has
//! ended.
//!
//! Both are of one build, and no other program uses this interface. A change of a layout or of a meaning needs another
//! [`VERSION`]: then the software GPU refuses the observer.

use std::ffi::{CStr, c_char};

/// The version of this interface.
pub const VERSION: u32 = 1;

/// The name of the software GPU's function that takes an observer.
pub const OBSERVE: &CStr = c"softwareGpuObserve";

/// `softwareGpuObserve`: makes this the only observer, or ends the observation if it is NULL. The observer is valid as
/// long as the process lives: its functions may be called for a while after the end. Returns a `CUresult`:
/// `CUDA_ERROR_NOT_SUPPORTED` for an observer of another version.
pub type Observe = unsafe extern "C" fn(observer: *const Observer) -> u32;

/// The functions of an observer. The software GPU holds no lock during a call, so they may call the driver API.
#[derive(Debug)]
#[repr(C)]
pub struct Observer {
    /// [`VERSION`].
    pub version: u32,
    /// The calling thread begins a call of the driver API that gives work. The name is the function's, and is constant.
    /// Returns the number of the call, other than 0.
    pub begin: unsafe extern "C" fn(name: *const c_char) -> u32,
    /// The calling thread has ended the call. Its work may have ended before, or may not have begun.
    pub end: unsafe extern "C" fn(call: *const Call),
    /// A piece of work has ended, but no wait for it has. Any thread calls this.
    pub work: unsafe extern "C" fn(work: *const Work),
}

/// A call of the driver API. Times are nanoseconds of the host's real-time clock, as everywhere in this interface.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct Call {
    /// The function's name.
    pub name: *const c_char,
    /// The number that [`Observer::begin`] has given to it.
    pub number: u32,
    /// Its result: a `CUresult`.
    pub result: u32,
    /// The time of its begin.
    pub start: u64,
    /// The time of its end.
    pub end: u64,
}

/// A piece of work.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct Work {
    /// The number of the call that queued it.
    pub call: u32,
    /// The device, by its ordinal.
    pub device: u32,
    /// The context: `cuCtxGetId`.
    pub context: u32,
    /// The stream: `cuStreamGetId`.
    pub stream: u32,
    /// The time of its begin.
    pub start: u64,
    /// The time of its end, which is not before the begin.
    pub end: u64,
    /// The node of a graph, or 0.
    pub node: u64,
    /// The executable graph whose launch it belongs to (`cuGraphExecGetId`), or 0.
    pub graph: u32,
    /// Whether it belongs to a graph that a kernel has launched.
    pub is_of_kernel: bool,
    /// The rest.
    pub detail: Detail,
}

/// A kind of work, and what is known of it.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub enum Detail {
    /// A kernel, or work of a stand-in for a library.
    Kernel(Kernel),
    /// A copy.
    Copy(Copied),
    /// A fill.
    Fill(Fill),
    /// A launch of a graph, whose work has ended.
    Graph,
}

/// A kernel.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct Kernel {
    /// Its name. The pointer is valid during the call.
    pub name: *const c_char,
    /// Blocks of the grid.
    pub grid: [u32; 3],
    /// Threads of a block.
    pub block: [u32; 3],
    /// Blocks of a cluster.
    pub cluster: [u32; 3],
    /// Bytes of shared memory that the kernel declares.
    pub static_shared: u32,
    /// Bytes of shared memory that the launch adds.
    pub dynamic_shared: u32,
    /// Registers of a thread.
    pub registers: u32,
    /// Bytes of local memory of a thread.
    pub local: u32,
    /// Whether it is a cooperative launch.
    pub is_cooperative: bool,
}

/// One side of a copy, or the memory of a fill.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub struct Memory {
    /// Its device, by ordinal, if it is a device's.
    pub device: u32,
    /// Its context: `cuCtxGetId`, if it is in one.
    pub context: u32,
    /// Its kind, of [`cupti::memory_kind`](crate::cupti::memory_kind).
    pub kind: u8,
}

/// A copy.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct Copied {
    /// The source.
    pub from: Memory,
    /// The destination.
    pub to: Memory,
    /// Bytes that it has copied.
    pub bytes: u64,
    /// Whether the call was of the asynchronous form.
    pub is_async: bool,
}

/// A fill.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct Fill {
    /// The memory.
    pub memory: Memory,
    /// The value of each element.
    pub value: u32,
    /// Bytes that it has filled.
    pub bytes: u64,
}
