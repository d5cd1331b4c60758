//! The structures that requests and replies hold.

use crate::{
    codec::{Blob, Few},
    cuda::*,
    wire_struct,
};

wire_struct! {
    /// What a client learns when it opens: everything about the host that does not change.
    #[derive(Debug, Clone, Default, PartialEq)]
    pub struct Hello {
        /// `cuDriverGetVersion` of the host.
        pub driver_version: i32,
        /// The devices, by ordinal.
        pub devices: Vec<DeviceInfo>,
    }

    /// An operation that the host has.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct KnownOperation {
        /// Its number.
        pub op: u16,
        /// Its layout number.
        pub layout: u64,
    }

    /// A library of NVIDIA's that the host has a table of.
    #[derive(Debug, Clone, Default, PartialEq, Eq)]
    pub struct KnownLibrary {
        /// Its name, as in `libcublas.so`.
        pub name: String,
        /// The version of the host's copy, as in `13.1.0`; empty if there is none that can be opened.
        pub version: String,
    }

    /// What does not change about a device.
    #[derive(Debug, Clone, Default, PartialEq)]
    pub struct DeviceInfo {
        /// `cuDeviceGetName`.
        pub name: String,
        /// `cuDeviceGetUuid_v2`.
        pub uuid: [u8; 16],
        /// `cuDeviceTotalMem_v2`, in bytes.
        pub total_memory: u64,
        /// `cuDeviceGetPCIBusId`.
        pub pci_bus_id: String,
        /// `cuDeviceGetAttribute` by attribute, from 0: the result and the value. What no operation can use is not offered.
        pub attributes: Vec<AttributeValue>,
        /// `cuDeviceGetProperties`: the fields of `CUdevprop` in their order.
        pub properties: Vec<i32>,
    }

    /// An attribute's value, or why there is none.
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
    pub struct AttributeValue {
        /// The `CUresult` of asking.
        pub result: u32,
        /// The value, if the result is success.
        pub value: i32,
    }

    /// One option of the just-in-time linker. The device refuses one whose value is a pointer, but for the logs' buffers, with
    /// `CUDA_ERROR_NOT_SUPPORTED`.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct JitOption {
        /// The `CUjit_option`.
        pub option: u32,
        /// Its value; for a log's buffer or its length, ignored.
        pub value: u64,
    }

    /// What the just-in-time linker wrote.
    #[derive(Debug, Clone, Default, PartialEq)]
    pub struct JitLog {
        /// The information log.
        pub info: Blob,
        /// The error log.
        pub error: Blob,
        /// `CU_JIT_WALL_TIME`, in milliseconds.
        pub wall_time: f32,
        /// `CU_JIT_THREADS_PER_BLOCK` as it came back.
        pub threads_per_block: u32,
    }

    /// What a function is, as far as a launch needs to know.
    #[derive(Debug, Clone, Default, PartialEq)]
    pub struct FunctionInfo {
        /// The first parameters, in order.
        pub params: Few<ParamInfo, 64>,
        /// Whether there are more: `gpgpuFunctionParams` has them.
        pub has_more: bool,
        /// `cuFuncGetAttribute` by attribute, from 0.
        pub attributes: Few<AttributeValue, 64>,
    }

    /// Where a parameter stands in a function's parameter buffer.
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
    pub struct ParamInfo {
        /// Bytes from the start.
        pub offset: u32,
        /// Bytes.
        pub size: u32,
    }

    /// A launch's shape.
    #[derive(Debug, Clone, Default, PartialEq, Eq)]
    pub struct LaunchConfig {
        /// Blocks in x, y and z.
        pub grid_x: u32,
        /// See `grid_x`.
        pub grid_y: u32,
        /// See `grid_x`.
        pub grid_z: u32,
        /// Threads of a block in x, y and z.
        pub block_x: u32,
        /// See `block_x`.
        pub block_y: u32,
        /// See `block_x`.
        pub block_z: u32,
        /// Bytes of dynamic shared memory.
        pub shared_bytes: u32,
        /// The stream's id.
        pub stream: u64,
        /// Launch attributes.
        pub attributes: Vec<LaunchAttribute>,
    }

    /// A launch attribute: one whose value holds no handle and no host pointer.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct LaunchAttribute {
        /// The `CUlaunchAttributeID`.
        pub id: u32,
        /// The `CUlaunchAttributeValue`.
        pub value: [u8; 64],
    }

    /// A two-dimensional copy between device memory and pinned memory.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct Copy2D {
        /// The first byte of the destination.
        pub dst: u64,
        /// Bytes from row to row of the destination.
        pub dst_pitch: usize,
        /// The first byte of the source.
        pub src: u64,
        /// Bytes from row to row of the source.
        pub src_pitch: usize,
        /// Bytes of a row.
        pub width: usize,
        /// Rows.
        pub height: usize,
    }
}

/// The launch attributes that travel: those that hold neither a handle nor a host pointer.
pub const LAUNCH_ATTRIBUTES: &[CUlaunchAttributeID] = &[
    CU_LAUNCH_ATTRIBUTE_IGNORE,
    CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW,
    CU_LAUNCH_ATTRIBUTE_COOPERATIVE,
    CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION,
    CU_LAUNCH_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE,
    CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION,
    CU_LAUNCH_ATTRIBUTE_PRIORITY,
    CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP,
    CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN,
    CU_LAUNCH_ATTRIBUTE_PREFERRED_CLUSTER_DIMENSION,
    CU_LAUNCH_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT,
];
