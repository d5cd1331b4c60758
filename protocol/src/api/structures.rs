// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The structures in requests and replies.

use crate::{
    codec::{Blob, Few},
    cuda::*,
    wire_struct,
};

wire_struct! {
    /// The hello: all constant properties of the host.
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

    /// A library of NVIDIA's that the host uses for clients.
    #[derive(Debug, Clone, Default, PartialEq, Eq)]
    pub struct KnownLibrary {
        /// Its name, as in `libcublas.so`.
        pub name: String,
        /// The version of the host's copy, as it gives it, such as `13.1.0`; empty if there is none that can be opened.
        pub version: String,
    }

    /// Work of a GPU that was traced.
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
    pub struct TracedWork {
        /// The kind of work: 1 is a kernel, 2 a copy, 3 a fill, 4 a graph as a whole.
        pub kind: u32,
        /// The number of the program's call that gave the work (`gpgpuTraceCall`), or 0.
        pub call: u32,
        /// The time of its begin, in nanoseconds of the device's clock (`gpgpuTraceClock`).
        pub start: u64,
        /// The time of its end.
        pub end: u64,
        /// The device, by its number for the client.
        pub device: u32,
        /// A number for its context.
        pub context: u32,
        /// A number for its stream.
        pub stream: u32,
        /// A number for its executable graph, or 0.
        pub graph: u32,
        /// A number for its node in the graph, or 0.
        pub node: u64,
        /// A kernel: the number of its name, from 1 in the order of `gpgpuTraceTake`'s names; 0 if unknown.
        pub name: u32,
        /// A kernel: the grid's size in blocks, x.
        pub grid_x: u32,
        /// The same, y.
        pub grid_y: u32,
        /// The same, z.
        pub grid_z: u32,
        /// A kernel: a block's size in threads, x.
        pub block_x: u32,
        /// The same, y.
        pub block_y: u32,
        /// The same, z.
        pub block_z: u32,
        /// A kernel: a cluster's size in blocks, zeros without clusters, x.
        pub cluster_x: u32,
        /// The same, y.
        pub cluster_y: u32,
        /// The same, z.
        pub cluster_z: u32,
        /// A kernel: the registers of a thread.
        pub registers: u32,
        /// A kernel: a block's static shared memory, in bytes.
        pub static_shared: u32,
        /// A kernel: a block's dynamic shared memory, in bytes.
        pub dynamic_shared: u32,
        /// A kernel: a thread's local memory, in bytes.
        pub local: u32,
        /// A copy or a fill: its bytes.
        pub bytes: u64,
        /// A copy: `CUpti_ActivityMemcpyKind`.
        pub copy: u32,
        /// A copy: the kind of memory that it reads (`CUpti_ActivityMemoryKind`).
        pub from: u32,
        /// A copy or a fill: the kind of memory that it writes.
        pub to: u32,
        /// A copy between devices: the device that it reads.
        pub from_device: u32,
        /// A copy between devices: the device that it writes.
        pub to_device: u32,
        /// A copy or a fill: its flags; 1 if it is asynchronous.
        pub flags: u32,
        /// A fill: the value.
        pub value: u32,
    }

    /// The constant properties of a device.
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
        /// `cuDeviceGetAttribute` by attribute, from 0: the result and the value. Features that no operation can use
        /// are not offered.
        pub attributes: Vec<AttributeValue>,
        /// `cuDeviceGetProperties`: the fields of `CUdevprop` in their order.
        pub properties: Vec<i32>,
    }

    /// A virtual machine's limit and use of a device.
    #[derive(Debug, Clone, Default, PartialEq, Eq)]
    pub struct DeviceUsage {
        /// The bytes that it may have: its limit, or all that the device has.
        pub total: u64,
        /// The bytes that its clients hold, without those that are only kept for the next allocations.
        pub used: u64,
        /// For how long the device had work of it, in nanoseconds since some moment; sampled.
        pub busy_ns: u64,
        /// Its clients that have memory there.
        pub processes: Vec<ProcessUsage>,
    }

    /// One client's use of a device.
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
    pub struct ProcessUsage {
        /// The process's id in the guest, as the client was opened with.
        pub pid: u32,
        /// Bytes, counted as those of `used` in `DeviceUsage`.
        pub bytes: u64,
    }

    /// The value of one of a device's sensors.
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
    pub struct SensorValue {
        /// The sensor's number.
        pub sensor: u32,
        /// The value, in the sensor's unit.
        pub value: u64,
    }

    /// An attribute's value, or the error of its query.
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

    /// The logs of the just-in-time linker.
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

    /// The properties of a function that a launch needs.
    #[derive(Debug, Clone, Default, PartialEq)]
    pub struct FunctionInfo {
        /// The first parameters, in order.
        pub params: Few<ParamInfo, 64>,
        /// Whether there are more: `gpgpuFunctionParams` has them.
        pub has_more: bool,
        /// `cuFuncGetAttribute` by attribute, from 0.
        pub attributes: Few<AttributeValue, 64>,
    }

    /// The place of a parameter in a function's parameter buffer.
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

    /// An attribute of a launch or of a stream, whose value holds no host pointer.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct LaunchAttribute {
        /// The `CUlaunchAttributeID`.
        pub id: u32,
        /// The `CUlaunchAttributeValue`. An event in it is the event's id.
        pub value: [u8; 64],
    }

    /// A step of an executable graph. The steps of one come in an order in which they can be done.
    #[derive(Debug, Clone, Default, PartialEq, Eq)]
    pub struct GraphStep {
        /// The kind: 0 a launch, 1 a copy, 2 a fill, 3 a call of the program, 4 nothing, 5 the record of an event, 6 a
        /// wait for one, 7 a part, 8 words to write and to wait for, 9 a value that conditional steps depend on, 10 a
        /// conditional step, 11 the beginning of a body, 12 the end of the bodies, 13 a copy with an array at one end
        /// or both, 14 the way in which the next step waits.
        ///
        /// Steps 9, 11, 12 and 14 wait for nothing, and no step waits for them. A conditional step depends on an
        /// earlier value on which no other depends. Its bodies follow it, each with a step 11 at its beginning, and
        /// then a step 12. Steps of a body wait only for steps of the same body; a body may have conditional steps. The
        /// first 9 of the list is the value 1, the next one 2, and so on: the numbers for the device's
        /// `cudaGraphSetConditional`.
        pub kind: u32,
        /// The steps that it waits for, by their numbers from 0; each comes before it.
        pub after: Vec<u32>,
        /// Whether it is done; if not, it is as if it did nothing. A call, a record and a wait always are.
        pub enabled: bool,
        /// The context that it runs in, by id; of a launch, a copy of either kind, a fill, a part, words, a value and a conditional step.
        pub context: u64,
        /// The function or kernel of a launch, the number of the callback that `gpgpuNextCallback` gives, the event, the part, or
        /// the number of the value that a conditional step depends on.
        pub object: u64,
        /// The launch; its stream is 0.
        pub launch: LaunchConfig,
        /// The parameter buffer of the launch, as in `cuLaunchKernelEx`.
        pub params: Blob,
        /// Of a launch that kernels update: the id of the graph's nodes and the number of the launch's node, which no other
        /// step has. Of another launch: none. Of a copy: the first byte of the destination and of the source; bytes from row to row of each, rows from
        /// slice to slice of each; bytes of a row, rows, slices. Of a fill: the first byte, bytes from row to row, the
        /// value, the bytes of a value (1, 2 or 4), values in a row, rows. Of a copy with an array: the fields of a
        /// [`BoxCopy`] in their order. Of words: the flags of the batch, then the fields of each operation as in a
        /// [`MemOp`]. Of a value: its value at the start of a launch, and whether it has one (1 or 0). Of a conditional
        /// step: its `CUgraphConditionalNodeType`, and the number of its bodies. Of a step 14: for each step that the
        /// next one waits for, in that order, its `from_port`, 2^8 times its `to_port` and 2^16 times its `type`, of
        /// `CUgraphEdgeData`; without a step 14 they are 0.
        pub numbers: Vec<u64>,
    }

    /// A step of an executable graph that becomes another one.
    #[derive(Debug, Clone, Default, PartialEq, Eq)]
    pub struct GraphChange {
        /// Its number, from 0.
        pub step: u32,
        /// Its new value.
        pub to: GraphStep,
    }

    /// Something that a stream does with a word in memory.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct MemOp {
        /// The `CUstreamBatchMemOpType`.
        pub operation: u32,
        /// Its flags.
        pub flags: u32,
        /// The word's address, as the device has it; ignored for an operation that is about no word.
        pub address: u64,
        /// The value to write or to wait for.
        pub value: u64,
    }

    /// The description of a tensor map: the arguments of CUDA's function.
    #[derive(Debug, Clone, Default, PartialEq, Eq)]
    pub struct TensorForm {
        /// 0: tiled; 1: im2col; 2: im2col in wide mode.
        pub kind: u32,
        /// The `CUtensorMapDataType`.
        pub data_type: u32,
        /// The tensor's address. Nothing is read there.
        pub address: u64,
        /// The size of each dimension, in elements: as many as the tensor has dimensions, 5 at most.
        pub dims: Vec<u64>,
        /// Bytes from one element of a dimension to the next, for all dimensions but the first.
        pub strides: Vec<u64>,
        /// The steps in each dimension.
        pub element_strides: Vec<u32>,
        /// Tiled: the size of the box in each dimension. Otherwise: channels for each pixel, pixels for each column.
        pub box_dims: Vec<u32>,
        /// The lower corner of the box of pixels: none for a tiled map, one number in wide mode, otherwise one for each dimension but two.
        pub lower: Vec<i32>,
        /// The upper corner; as many numbers.
        pub upper: Vec<i32>,
        /// Interleave, then in wide mode the mode, then swizzle, promotion in the L2 cache, and the values outside the
        /// tensor.
        pub modes: Vec<u32>,
    }

    /// A tensor map.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct TensorMap {
        /// The `CUtensorMap`.
        pub bytes: [u8; 128],
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

    /// An array: a `CUDA_ARRAY3D_DESCRIPTOR`.
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
    pub struct ArrayForm {
        /// Elements of a row.
        pub width: usize,
        /// Rows; 0 for an array of one dimension.
        pub height: usize,
        /// Slices, layers or faces; 0 for an array of two dimensions.
        pub depth: usize,
        /// The `CUarray_format`.
        pub format: u32,
        /// Channels of an element.
        pub channels: u32,
        /// `CUDA_ARRAY3D_*`.
        pub flags: u32,
    }

    /// One end of a copy of a box: an array, or memory that the device reaches.
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
    pub struct BoxEnd {
        /// The array's id, or 0 for memory.
        pub array: u64,
        /// Memory: the address of the box's first byte, as the device has it.
        pub address: u64,
        /// Memory: bytes from row to row.
        pub pitch: usize,
        /// Memory: rows from slice to slice.
        pub rows: usize,
        /// An array: the bytes before the box in its row.
        pub x: usize,
        /// An array: the rows before it.
        pub y: usize,
        /// An array: the slices, layers or faces before it.
        pub z: usize,
    }

    /// A copy of a box between arrays and memory.
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
    pub struct BoxCopy {
        /// The destination.
        pub dst: BoxEnd,
        /// The source.
        pub src: BoxEnd,
        /// Bytes of a row.
        pub width: usize,
        /// Rows of a slice.
        pub height: usize,
        /// Slices.
        pub depth: usize,
    }

    /// The resource of a texture or a surface: a `CUDA_RESOURCE_DESC`.
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
    pub struct TextureResource {
        /// The `CUresourcetype`.
        pub kind: u32,
        /// The id of an array or a mipmapped array, or 0.
        pub array: u64,
        /// Memory: its address, as the device has it.
        pub address: u64,
        /// Memory: the `CUarray_format`.
        pub format: u32,
        /// Memory: channels of an element.
        pub channels: u32,
        /// Linear memory: its bytes. Rows: elements of a row.
        pub width: usize,
        /// Rows: how many.
        pub height: usize,
        /// Rows: bytes from one to the next.
        pub pitch: usize,
        /// `CUDA_RESOURCE_DESC::flags`.
        pub flags: u32,
    }

    /// The way a texture reads: a `CUDA_TEXTURE_DESC`.
    #[derive(Debug, Clone, Copy, Default, PartialEq)]
    pub struct TextureForm {
        /// The `CUaddress_mode` in x, y and z.
        pub address_x: u32,
        /// See `address_x`.
        pub address_y: u32,
        /// See `address_x`.
        pub address_z: u32,
        /// The `CUfilter_mode`.
        pub filter: u32,
        /// `CU_TRSF_*`.
        pub flags: u32,
        /// `maxAnisotropy`.
        pub anisotropy: u32,
        /// The `CUfilter_mode` between levels.
        pub mipmap_filter: u32,
        /// `mipmapLevelBias`.
        pub bias: f32,
        /// `minMipmapLevelClamp`.
        pub least_level: f32,
        /// `maxMipmapLevelClamp`.
        pub greatest_level: f32,
        /// The colour of the border.
        pub red: f32,
        /// See `red`.
        pub green: f32,
        /// See `red`.
        pub blue: f32,
        /// See `red`.
        pub alpha: f32,
    }

    /// The view of a texture on an array: a `CUDA_RESOURCE_VIEW_DESC`.
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
    pub struct TextureView {
        /// The `CUresourceViewFormat`.
        pub format: u32,
        /// Elements of a row.
        pub width: usize,
        /// Rows.
        pub height: usize,
        /// Slices.
        pub depth: usize,
        /// The first and the last level.
        pub first_level: u32,
        /// See `first_level`.
        pub last_level: u32,
        /// The first and the last layer.
        pub first_layer: u32,
        /// See `first_layer`.
        pub last_layer: u32,
    }

    /// Multiprocessors of a device: a `CUdevSmResource`.
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
    pub struct Multiprocessors {
        /// The number of multiprocessors: `smCount`.
        pub count: u32,
        /// The fewest of a group that they can be split into: `minSmPartitionSize`; 0 where they cannot.
        pub minimum: u32,
        /// The number of multiprocessors that divides such a group: `smCoscheduledAlignment`; 0 if they cannot be
        /// split.
        pub alignment: u32,
    }

    /// The split of a device's multiprocessors: the arguments of `cuDevSmResourceSplitByCount`. The same split of the same
    /// multiprocessors gives the same groups.
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
    pub struct MultiprocessorSplit {
        /// The green context whose multiprocessors are split, by id; 0 for all of the device's.
        pub green: u64,
        /// The maximum number of groups; 0 for no split.
        pub groups: u32,
        /// The minimum number of multiprocessors of a group.
        pub minimum: u32,
        /// `CU_DEV_SM_RESOURCE_SPLIT_*`.
        pub flags: u32,
    }
}

/// In place of a group's number: the remainder of a split.
pub const REMAINING: u32 = u32::MAX;

impl Default for LaunchAttribute {
    fn default() -> Self {
        Self {
            id: CU_LAUNCH_ATTRIBUTE_IGNORE,
            value: [0; 64],
        }
    }
}

impl Default for TensorMap {
    fn default() -> Self {
        Self { bytes: [0; 128] }
    }
}

/// The launch attributes whose value begins with an event.
pub const EVENT_ATTRIBUTES: [CUlaunchAttributeID; 2] = [
    CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT,
    CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT,
];

impl LaunchAttribute {
    /// The event that one of [`EVENT_ATTRIBUTES`] begins with, by id.
    pub fn event(&self) -> u64 {
        let [a, b, c, d, e, f, g, h, ..] = self.value;
        u64::from_le_bytes([a, b, c, d, e, f, g, h])
    }
}

/// The launch attributes that travel: those that hold no host pointer, and no handle but an event's.
pub const LAUNCH_ATTRIBUTES: &[CUlaunchAttributeID] = &[
    CU_LAUNCH_ATTRIBUTE_IGNORE,
    CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW,
    CU_LAUNCH_ATTRIBUTE_COOPERATIVE,
    CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY,
    CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION,
    CU_LAUNCH_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE,
    CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION,
    CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT,
    CU_LAUNCH_ATTRIBUTE_PRIORITY,
    CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP,
    CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN,
    CU_LAUNCH_ATTRIBUTE_PREFERRED_CLUSTER_DIMENSION,
    CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT,
    CU_LAUNCH_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT,
];

/// Whether a node of a graph can have a launch attribute: it records no event.
pub fn is_node_attribute(id: CUlaunchAttributeID) -> bool {
    LAUNCH_ATTRIBUTES.contains(&id) && !EVENT_ATTRIBUTES.contains(&id)
}

/// An edge as a number of a step [`graph_step::EDGES`], of its `from_port`, `to_port` and `type`: see [`GraphStep::numbers`].
pub fn graph_edge([from_port, to_port, type_]: [u8; 3]) -> u64 {
    u64::from_le_bytes([from_port, to_port, type_, 0, 0, 0, 0, 0])
}

/// The same the other way round; `None` for a number that says more.
pub fn graph_edge_of(number: u64) -> Option<[u8; 3]> {
    match number.to_le_bytes() {
        [from_port, to_port, type_, 0, 0, 0, 0, 0] => Some([from_port, to_port, type_]),
        _ => None,
    }
}

/// The kinds of traced work, by number: see [`TracedWork::kind`].
#[allow(missing_docs)]
pub mod traced_work {
    pub const KERNEL: u32 = 1;
    pub const COPY: u32 = 2;
    pub const FILL: u32 = 3;
    pub const GRAPH: u32 = 4;

    /// The bit of a kind in `gpgpuTraceWork`'s `kinds`.
    pub const fn bit(kind: u32) -> u32 {
        1 << (kind - 1)
    }
}

/// The kinds of steps of executable graphs, by number: see [`GraphStep::kind`].
#[allow(missing_docs)]
pub mod graph_step {
    pub const LAUNCH: u32 = 0;
    pub const COPY: u32 = 1;
    pub const FILL: u32 = 2;
    pub const CALL: u32 = 3;
    pub const NOTHING: u32 = 4;
    pub const RECORD: u32 = 5;
    pub const WAIT: u32 = 6;
    pub const PART: u32 = 7;
    pub const WORDS: u32 = 8;
    pub const VALUE: u32 = 9;
    pub const CONDITIONAL: u32 = 10;
    pub const BODY: u32 = 11;
    pub const END: u32 = 12;
    /// Devices that have `gpgpuModuleReference` have it too.
    pub const BOX: u32 = 13;
    /// Devices that have `gpgpuGraphEdges` have it too.
    pub const EDGES: u32 = 14;
    /// So many steps `gpgpuGraphInstantiateFew` takes.
    pub const FEW: usize = 256;
    /// Bytes of its GPU that an executable graph is charged, beside its steps.
    pub const BYTES: u64 = 112 << 10;
    /// Bytes that each of its steps is charged.
    pub const BYTES_OF_STEP: u64 = 2560;
}

impl BoxEnd {
    fn numbers(&self) -> [u64; 7] {
        let places = [self.pitch, self.rows, self.x, self.y, self.z].map(|number| number as u64);
        let [pitch, rows, x, y, z] = places;
        [self.array, self.address, pitch, rows, x, y, z]
    }

    fn of([array, address, pitch, rows, x, y, z]: [u64; 7]) -> Self {
        let [pitch, rows, x, y, z] = [pitch, rows, x, y, z].map(|number| number as usize);
        Self {
            array,
            address,
            pitch,
            rows,
            x,
            y,
            z,
        }
    }
}

impl BoxCopy {
    /// The fields as a [`GraphStep`] has them.
    pub fn numbers(&self) -> Vec<u64> {
        let size = [self.width, self.height, self.depth].map(|number| number as u64);
        [&self.dst.numbers()[..], &self.src.numbers(), &size].concat()
    }

    /// The copy of a step's numbers; `None` if these are too many or too few.
    pub fn of_numbers(numbers: &[u64]) -> Option<Self> {
        let (dst, rest) = numbers.split_first_chunk()?;
        let (src, size) = rest.split_first_chunk()?;
        let size: [u64; 3] = size.try_into().ok()?;
        let [width, height, depth] = size.map(|number| number as usize);
        Some(Self {
            dst: BoxEnd::of(*dst),
            src: BoxEnd::of(*src),
            width,
            height,
            depth,
        })
    }
}
