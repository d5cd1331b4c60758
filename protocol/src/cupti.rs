// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The interface of CUPTI's activities: the layouts and numbers of `cupti_activity.h` and `cupti_result.h` of CUDA 13.0.
//!
//! The worker reads records of the host's CUPTI, and the guest's library and the software GPU's stand-in write some. A
//! later version of CUPTI only appends fields to a record. The fields up to `cluster_policy` of [`Kernel`], and up to
//! `channel_type` of the others, exist since CUDA 12.0. A reader relies on those alone.

use std::ffi::{c_char, c_void};

/// `CUPTI_API_VERSION` of CUDA 13.0.
pub const VERSION: u32 = 130_001;

/// `CUptiResult`.
pub type Status = u32;

/// `CUPTI_SUCCESS`.
pub const SUCCESS: Status = 0;
/// `CUPTI_ERROR_INVALID_PARAMETER`.
pub const INVALID_PARAMETER: Status = 1;
/// `CUPTI_ERROR_INVALID_OPERATION`.
pub const INVALID_OPERATION: Status = 7;
/// `CUPTI_ERROR_PARAMETER_SIZE_NOT_SUFFICIENT`.
pub const SIZE_NOT_SUFFICIENT: Status = 10;
/// `CUPTI_ERROR_MAX_LIMIT_REACHED`: a buffer has no further record.
pub const MAX_LIMIT_REACHED: Status = 12;
/// `CUPTI_ERROR_NOT_INITIALIZED`.
pub const NOT_INITIALIZED: Status = 15;
/// `CUPTI_ERROR_QUEUE_EMPTY`.
pub const QUEUE_EMPTY: Status = 18;
/// `CUPTI_ERROR_INVALID_KIND`.
pub const INVALID_KIND: Status = 21;
/// `CUPTI_ERROR_NOT_SUPPORTED`.
pub const NOT_SUPPORTED: Status = 27;
/// `CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED`.
pub const MULTIPLE_SUBSCRIBERS: Status = 39;
/// `CUPTI_ERROR_UNKNOWN`.
pub const UNKNOWN: Status = 999;

/// `CUpti_ActivityKind`.
pub mod kind {
    /// A copy.
    pub const MEMCPY: u32 = 1;
    /// A fill.
    pub const MEMSET: u32 = 2;
    /// A kernel; kernels run one by one.
    pub const KERNEL: u32 = 3;
    /// A call of the driver API.
    pub const DRIVER: u32 = 4;
    /// A call of the runtime API.
    pub const RUNTIME: u32 = 5;
    /// A kernel.
    pub const CONCURRENT_KERNEL: u32 = 10;
    /// Time that the tracing takes.
    pub const OVERHEAD: u32 = 17;
    /// A copy between devices.
    pub const MEMCPY2: u32 = 22;
    /// A record of an event.
    pub const CUDA_EVENT: u32 = 36;
    /// A wait of the program.
    pub const SYNCHRONIZATION: u32 = 38;
    /// A number that the program has given to a call.
    pub const EXTERNAL_CORRELATION: u32 = 39;
    /// A launch of a graph, as a whole.
    pub const GRAPH_TRACE: u32 = 51;
}

/// `CUpti_ActivityMemcpyKind`.
pub mod copy_kind {
    /// From the host to the device.
    pub const HTOD: u8 = 1;
    /// From the device to the host.
    pub const DTOH: u8 = 2;
    /// From the host to an array.
    pub const HTOA: u8 = 3;
    /// From an array to the host.
    pub const ATOH: u8 = 4;
    /// From an array to an array.
    pub const ATOA: u8 = 5;
    /// From an array to the device.
    pub const ATOD: u8 = 6;
    /// From the device to an array.
    pub const DTOA: u8 = 7;
    /// From the device to the device.
    pub const DTOD: u8 = 8;
    /// From the host to the host.
    pub const HTOH: u8 = 9;
    /// From a device to another device.
    pub const PTOP: u8 = 10;
}

/// `CUpti_ActivityMemoryKind`.
pub mod memory_kind {
    /// Not known.
    pub const UNKNOWN: u8 = 0;
    /// Pageable memory of the host.
    pub const PAGEABLE: u8 = 1;
    /// Pinned memory of the host.
    pub const PINNED: u8 = 2;
    /// Memory of a device.
    pub const DEVICE: u8 = 3;
    /// An array.
    pub const ARRAY: u8 = 4;
    /// Managed memory.
    pub const MANAGED: u8 = 5;
}

/// `CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM0`.
pub const CUSTOM0: u32 = 3;

/// `CUPTI_ACTIVITY_FLAG_MEMCPY_ASYNC`.
pub const MEMCPY_ASYNC: u8 = 1;

/// `CUPTI_ACTIVITY_ATTR_DEVICE_BUFFER_SIZE`: bytes of one of CUPTI's buffers for a context, in device memory.
pub const DEVICE_BUFFER_SIZE: u32 = 0;
/// `CUPTI_ACTIVITY_ATTR_DEVICE_BUFFER_POOL_LIMIT`: the maximum number of such buffers of a context.
pub const DEVICE_BUFFER_POOL_LIMIT: u32 = 2;

/// The alignment of a record in a buffer: `ACTIVITY_RECORD_ALIGNMENT`.
pub const ALIGNMENT: usize = 8;

/// `CUpti_ActivityKernel10`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
#[allow(missing_docs)]
pub struct Kernel {
    pub kind: u32,
    pub cache_config: u8,
    pub shared_memory_config: u8,
    pub registers_per_thread: u16,
    pub partitioned_requested: u32,
    pub partitioned_executed: u32,
    pub start: u64,
    pub end: u64,
    pub completed: u64,
    pub device: u32,
    pub context: u32,
    pub stream: u32,
    pub grid: [i32; 3],
    pub block: [i32; 3],
    pub static_shared: i32,
    pub dynamic_shared: i32,
    pub local_per_thread: u32,
    pub local_total: u32,
    pub correlation: u32,
    pub grid_id: i64,
    pub name: *const c_char,
    pub reserved0: *mut c_void,
    pub queued: u64,
    pub submitted: u64,
    pub launch_type: u8,
    pub is_carveout_requested: u8,
    pub carveout_requested: u8,
    pub padding: u8,
    pub shared_executed: u32,
    pub graph_node: u64,
    pub shared_limit_config: u32,
    pub graph: u32,
    pub access_policy: *mut c_void,
    pub channel: u32,
    pub channel_type: u32,
    pub cluster: [u32; 3],
    pub cluster_policy: u32,
    pub local_total_v2: u64,
    pub max_potential_cluster: u32,
    pub max_active_clusters: u32,
    pub is_device_launched: u8,
    pub padding3: [u8; 7],
}

/// `CUpti_ActivityMemcpy6`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
#[allow(missing_docs)]
pub struct Memcpy {
    pub kind: u32,
    pub copy_kind: u8,
    pub from_kind: u8,
    pub to_kind: u8,
    pub flags: u8,
    pub bytes: u64,
    pub start: u64,
    pub end: u64,
    pub device: u32,
    pub context: u32,
    pub stream: u32,
    pub correlation: u32,
    pub runtime_correlation: u32,
    pub pad: u32,
    pub reserved0: *mut c_void,
    pub graph_node: u64,
    pub graph: u32,
    pub channel: u32,
    pub channel_type: u32,
    pub is_device_launched: u8,
    pub pad2: [u8; 3],
    pub count: u64,
}

/// `CUpti_ActivityMemcpyPtoP4`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
#[allow(missing_docs)]
pub struct MemcpyPeer {
    pub kind: u32,
    pub copy_kind: u8,
    pub from_kind: u8,
    pub to_kind: u8,
    pub flags: u8,
    pub bytes: u64,
    pub start: u64,
    pub end: u64,
    pub device: u32,
    pub context: u32,
    pub stream: u32,
    pub from_device: u32,
    pub from_context: u32,
    pub to_device: u32,
    pub to_context: u32,
    pub correlation: u32,
    pub reserved0: *mut c_void,
    pub graph_node: u64,
    pub graph: u32,
    pub channel: u32,
    pub channel_type: u32,
    pub pad: u32,
}

/// `CUpti_ActivityMemset4`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
#[allow(missing_docs)]
pub struct Memset {
    pub kind: u32,
    pub value: u32,
    pub bytes: u64,
    pub start: u64,
    pub end: u64,
    pub device: u32,
    pub context: u32,
    pub stream: u32,
    pub correlation: u32,
    pub flags: u16,
    pub memory_kind: u16,
    pub pad: u32,
    pub reserved0: *mut c_void,
    pub graph_node: u64,
    pub graph: u32,
    pub channel: u32,
    pub channel_type: u32,
    pub is_device_launched: u8,
    pub pad2: [u8; 3],
}

/// `CUpti_ActivityAPI`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
#[allow(missing_docs)]
pub struct Api {
    pub kind: u32,
    pub callback: u32,
    pub start: u64,
    pub end: u64,
    pub process: u32,
    pub thread: u32,
    pub correlation: u32,
    pub result: u32,
}

/// `CUpti_ActivityExternalCorrelation`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
#[allow(missing_docs)]
pub struct ExternalCorrelation {
    pub kind: u32,
    pub external_kind: u32,
    pub external: u64,
    pub correlation: u32,
    pub reserved: u32,
}

/// `CUpti_ActivityGraphTrace2`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
#[allow(missing_docs)]
pub struct GraphTrace {
    pub kind: u32,
    pub correlation: u32,
    pub start: u64,
    pub end: u64,
    pub device: u32,
    pub graph: u32,
    pub context: u32,
    pub stream: u32,
    pub reserved: *mut c_void,
    pub end_device: u32,
    pub end_context: u32,
}

const _: () = {
    assert!(size_of::<GraphTrace>() == 56 && std::mem::offset_of!(GraphTrace, reserved) == 40);
    assert!(size_of::<Kernel>() == 216 && std::mem::offset_of!(Kernel, name) == 104);
    assert!(std::mem::offset_of!(Kernel, cluster) == 176);
    assert!(size_of::<Memcpy>() == 96 && std::mem::offset_of!(Memcpy, graph_node) == 64);
    assert!(size_of::<MemcpyPeer>() == 96 && std::mem::offset_of!(MemcpyPeer, reserved0) == 64);
    assert!(size_of::<Memset>() == 88 && std::mem::offset_of!(Memset, reserved0) == 56);
    assert!(size_of::<Api>() == 40 && size_of::<ExternalCorrelation>() == 24);
};
