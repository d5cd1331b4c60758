// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! CUDA's structures and numbers that only concern graphs, as in `cuda.h`.
#![allow(non_camel_case_types, missing_docs)]

use std::ffi::{c_int, c_uint, c_void};

use gpgpu_protocol::cuda::*;

/// `CUgraphNodeType`.
pub mod kind {
    pub const KERNEL: u32 = 0;
    pub const MEMCPY: u32 = 1;
    pub const MEMSET: u32 = 2;
    pub const HOST: u32 = 3;
    pub const GRAPH: u32 = 4;
    pub const EMPTY: u32 = 5;
    pub const WAIT_EVENT: u32 = 6;
    pub const EVENT_RECORD: u32 = 7;
    pub const MEM_ALLOC: u32 = 10;
    pub const MEM_FREE: u32 = 11;
    pub const BATCH_MEM_OP: u32 = 12;
    pub const CONDITIONAL: u32 = 13;
}

/// `CUgraphInstantiate_flags`.
pub const AUTO_FREE_ON_LAUNCH: u64 = 1;
pub const UPLOAD: u64 = 2;
pub const DEVICE_LAUNCH: u64 = 4;
pub const USE_NODE_PRIORITY: u64 = 8;

/// `CUgraphInstantiateResult`.
pub const INSTANTIATE_SUCCESS: u32 = 0;
pub const INSTANTIATE_ERROR: u32 = 1;
/// `CUDA_GRAPH_INSTANTIATE_INVALID_STRUCTURE`.
pub const INSTANTIATE_INVALID_STRUCTURE: u32 = 2;
/// `CUDA_GRAPH_INSTANTIATE_NODE_OPERATION_NOT_SUPPORTED`.
pub const INSTANTIATE_NODE_NOT_SUPPORTED: u32 = 3;
/// `CUDA_GRAPH_INSTANTIATE_MULTIPLE_CTXS_NOT_SUPPORTED`.
pub const INSTANTIATE_SEVERAL_CONTEXTS: u32 = 4;

/// `CUgraphExecUpdateResult`.
pub mod updated {
    pub const SUCCESS: u32 = 0;
    pub const ERROR: u32 = 1;
    pub const TOPOLOGY_CHANGED: u32 = 2;
    pub const NODE_TYPE_CHANGED: u32 = 3;
    pub const FUNCTION_CHANGED: u32 = 4;
    pub const PARAMETERS_CHANGED: u32 = 5;
    pub const NOT_SUPPORTED: u32 = 6;
    pub const ATTRIBUTES_CHANGED: u32 = 8;
}

/// `CU_USER_OBJECT_NO_DESTRUCTOR_SYNC`.
pub const USER_OBJECT_NO_DESTRUCTOR_SYNC: u32 = 1;
/// `CU_GRAPH_USER_OBJECT_MOVE`.
pub const GRAPH_USER_OBJECT_MOVE: u32 = 1;
/// `CU_STREAM_ADD_CAPTURE_DEPENDENCIES` and `CU_STREAM_SET_CAPTURE_DEPENDENCIES`.
pub const ADD_CAPTURE_DEPENDENCIES: u32 = 0;
pub const SET_CAPTURE_DEPENDENCIES: u32 = 1;

/// `CUDA_KERNEL_NODE_PARAMS` as before CUDA 12: the first part of today's.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct CUDA_KERNEL_NODE_PARAMS_v1 {
    pub func: CUfunction,
    pub gridDimX: c_uint,
    pub gridDimY: c_uint,
    pub gridDimZ: c_uint,
    pub blockDimX: c_uint,
    pub blockDimY: c_uint,
    pub blockDimZ: c_uint,
    pub sharedMemBytes: c_uint,
    pub kernelParams: *mut *mut c_void,
    pub extra: *mut *mut c_void,
}

/// `CUDA_MEMSET_NODE_PARAMS`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CUDA_MEMSET_NODE_PARAMS {
    pub dst: CUdeviceptr,
    pub pitch: usize,
    pub value: c_uint,
    pub elementSize: c_uint,
    pub width: usize,
    pub height: usize,
}

/// `CUDA_HOST_NODE_PARAMS`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct CUDA_HOST_NODE_PARAMS {
    pub function: CUhostFn,
    pub userData: *mut c_void,
}

/// `CUDA_MEM_ALLOC_NODE_PARAMS`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct CUDA_MEM_ALLOC_NODE_PARAMS {
    pub poolProps: CUmemPoolProps,
    pub accessDescs: *const CUmemAccessDesc,
    pub accessDescCount: usize,
    pub bytesize: usize,
    pub dptr: CUdeviceptr,
}

/// `CUDA_MEMCPY_NODE_PARAMS`, of the generic functions.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct CUDA_MEMCPY_NODE_PARAMS {
    pub flags: c_int,
    pub reserved: c_int,
    pub copyCtx: CUcontext,
    pub copyParams: CUDA_MEMCPY3D,
}

/// `CUDA_MEMSET_NODE_PARAMS_v2`, of the generic functions.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct CUDA_MEMSET_NODE_PARAMS_v2 {
    pub fill: CUDA_MEMSET_NODE_PARAMS,
    pub ctx: CUcontext,
}

/// `CUstreamBatchMemOpParams`, as words.
pub type CUstreamBatchMemOpParams = [u64; 6];

/// `CUDA_BATCH_MEM_OP_NODE_PARAMS`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct CUDA_BATCH_MEM_OP_NODE_PARAMS {
    pub ctx: CUcontext,
    pub count: c_uint,
    pub paramArray: *mut CUstreamBatchMemOpParams,
    pub flags: c_uint,
}

/// `CUDA_CHILD_GRAPH_NODE_PARAMS`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct CUDA_CHILD_GRAPH_NODE_PARAMS {
    pub graph: CUgraph,
    pub ownership: c_int,
}

/// `CUgraphChildGraphNodeOwnership`: the graph itself becomes the node's, without a clone.
pub const CU_GRAPH_CHILD_GRAPH_OWNERSHIP_MOVE: c_int = 1;
/// The ownership that a query returns (CUDA 13.2): the graph belongs to the node.
pub const CU_GRAPH_CHILD_GRAPH_OWNERSHIP_INVALID: c_int = -1;

/// `CUDA_CONDITIONAL_NODE_PARAMS`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct CUDA_CONDITIONAL_NODE_PARAMS {
    pub handle: u64,
    pub type_: u32,
    pub size: c_uint,
    pub phGraph_out: *mut CUgraph,
    pub ctx: CUcontext,
}

/// The union of [`CUgraphNodeParams`].
#[repr(C)]
#[derive(Clone, Copy)]
pub union CUgraphNodeParamsOf {
    pub reserved: [i64; 29],
    pub kernel: CUDA_KERNEL_NODE_PARAMS,
    pub memcpy: CUDA_MEMCPY_NODE_PARAMS,
    pub memset: CUDA_MEMSET_NODE_PARAMS_v2,
    pub host: CUDA_HOST_NODE_PARAMS,
    pub child: CUDA_CHILD_GRAPH_NODE_PARAMS,
    pub conditional: CUDA_CONDITIONAL_NODE_PARAMS,
    pub event: CUevent,
    pub alloc: CUDA_MEM_ALLOC_NODE_PARAMS,
    pub memOp: CUDA_BATCH_MEM_OP_NODE_PARAMS,
    pub dptr: CUdeviceptr,
}

/// `CUgraphNodeParams`: the parameters of the generic functions.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct CUgraphNodeParams {
    pub type_: u32,
    pub reserved0: [c_int; 3],
    pub of: CUgraphNodeParamsOf,
    pub reserved2: i64,
}

/// `CUgraphEdgeData`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CUgraphEdgeData {
    pub from_port: u8,
    pub to_port: u8,
    pub type_: u8,
    pub reserved: [u8; 5],
}

/// `CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC`: the edge begins when all blocks of the launch have allowed the next launch
/// to begin, or have ended.
const PORT_PROGRAMMATIC: u8 = 1;
/// `CU_GRAPH_KERNEL_NODE_PORT_LAUNCH_ORDER`: the edge begins when all blocks of the launch have begun.
const PORT_LAUNCH_ORDER: u8 = 2;
/// `CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC`: an edge between launches, of which the later one itself waits for the rest
/// of the earlier one.
const TYPE_PROGRAMMATIC: u8 = 1;

impl CUgraphEdgeData {
    /// The edge to a launch that may begin before the preceding launch has ended.
    pub const PROGRAMMATIC: Self = Self {
        from_port: PORT_PROGRAMMATIC,
        type_: TYPE_PROGRAMMATIC,
        to_port: 0,
        reserved: [0; 5],
    };
    /// The same, beginning when the blocks have begun.
    pub const PROGRAMMATIC_FROM_START: Self = Self {
        from_port: PORT_LAUNCH_ORDER,
        ..Self::PROGRAMMATIC
    };
    /// The edge that begins when a launch's blocks have begun.
    pub const LAUNCH_ORDER: Self = Self {
        type_: 0,
        ..Self::PROGRAMMATIC_FROM_START
    };

    /// Whether the edge waits for the whole earlier node.
    pub fn is_whole(&self) -> bool {
        *self == Self::default()
    }
}

/// `CUDA_GRAPH_INSTANTIATE_PARAMS`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct CUDA_GRAPH_INSTANTIATE_PARAMS {
    pub flags: u64,
    pub hUploadStream: CUstream,
    pub hErrNode_out: CUgraphNode,
    pub result_out: u32,
}

/// `CUgraphExecUpdateResultInfo`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct CUgraphExecUpdateResultInfo {
    pub result: u32,
    pub errorNode: CUgraphNode,
    pub errorFromNode: CUgraphNode,
}

const _: () = {
    assert!(size_of::<CUDA_KERNEL_NODE_PARAMS_v1>() == 56);
    assert!(size_of::<CUDA_MEMSET_NODE_PARAMS>() == 40);
    assert!(size_of::<CUDA_MEMSET_NODE_PARAMS_v2>() == 48);
    assert!(size_of::<CUDA_MEM_ALLOC_NODE_PARAMS>() == 120);
    assert!(size_of::<CUDA_BATCH_MEM_OP_NODE_PARAMS>() == 32);
    assert!(size_of::<CUDA_MEMCPY_NODE_PARAMS>() == 216);
    assert!(size_of::<CUDA_CHILD_GRAPH_NODE_PARAMS>() == 16);
    assert!(size_of::<CUDA_CONDITIONAL_NODE_PARAMS>() == 32);
    assert!(size_of::<CUgraphNodeParams>() == 256);
    assert!(size_of::<CUgraphEdgeData>() == 8);
    assert!(size_of::<CUDA_GRAPH_INSTANTIATE_PARAMS>() == 32);
    assert!(size_of::<CUgraphExecUpdateResultInfo>() == 24);
};
