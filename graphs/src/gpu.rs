// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The interface that a driver implements for graphs.

use std::sync::Arc;

use gpgpu_protocol::cuda::*;

use crate::{
    Result,
    conditional::Condition,
    exec::Step,
    node::{Copy3D, Fill, Kernel, MemOps},
    store::Store,
    updatable::{DeviceNode, Shared},
    update::Changes,
};

/// The stream of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stream {
    /// A number that is unique to the stream in the process; for a context's legacy stream it has no meaning.
    pub key: u64,
    /// The handle of its context.
    pub context: u64,
    /// Whether it is the legacy stream.
    pub is_legacy: bool,
    /// Whether it and the legacy stream wait for each other.
    pub is_blocking: bool,
    /// Its priority, which captured launches have.
    pub priority: i32,
}

/// The parameters and the context of a function.
#[derive(Debug, Clone, Default)]
pub struct Signature {
    /// Each parameter's offset and bytes in the parameter buffer.
    pub layout: Arc<[(usize, usize)]>,
    /// Bytes of the parameter buffer.
    pub bytes: usize,
    /// The handle of the function's context; 0 for a kernel of a library, which exists in every context.
    pub context: u64,
}

/// A driver: the guest's library, or the software GPU.
pub trait Gpu: Sized + 'static {
    /// The driver's executable graph. It is destroyed with its last reference.
    type Exec: Send + Sync;

    /// The process's graphs.
    fn store() -> &'static Store<Self>;
    /// Checks that the calling thread may use the API now, with or without a context.
    fn ready() -> Result;
    /// Checks that graphs are supported, for functions that create one.
    ///
    /// # Errors
    ///
    /// `CUDA_ERROR_NOT_SUPPORTED` if they are not.
    fn has_graphs() -> Result {
        Ok(())
    }
    /// The handle of the current context.
    fn context() -> Result<u64>;
    /// The device of a context.
    fn device(context: u64) -> Result<CUdevice>;
    /// Whether the device exists.
    fn has_device(device: CUdevice) -> bool;
    /// The stream of a handle; NULL is the thread's own stream if `per_thread` is true.
    fn stream(handle: CUstream, per_thread: bool) -> Result<Stream>;
    /// Checks that a handle is an event: `CUDA_ERROR_INVALID_HANDLE` if not.
    fn check_event(event: u64) -> Result;
    /// Whether an event was ever recorded.
    fn is_recorded(event: u64) -> bool;
    /// The parameters of a function or kernel.
    fn signature(function: u64) -> Result<Signature>;
    /// Checks that a kernel can be launched with these parameters.
    fn check_kernel(kernel: &Kernel) -> Result;
    /// Checks that a copy can be made.
    fn check_copy(copy: &Copy3D) -> Result;
    /// Checks that memory can be filled.
    fn check_fill(fill: &Fill) -> Result;
    /// Checks that words can be written and waited for.
    fn check_mem_ops(ops: &MemOps) -> Result;
    /// Whether one side of a copy is in memory that the GPU cannot access.
    fn is_near(copy: &Copy3D) -> Result<bool>;
    /// Checks that graphs can have this value.
    fn check_condition(condition: &Condition) -> Result;
    /// Whether a step can wait for a part of a launch, and so whether lists of steps have
    /// [`Work::Edges`](crate::node::Work::Edges). The answer never changes. The first call may wait; it comes before
    /// there is such an edge, and the store is not locked.
    fn has_partial_edges() -> bool;
    /// Allocates device memory in a context, for as long as graphs need it.
    fn allocate(context: u64, bytes: usize) -> Result<u64>;
    /// Frees it, once no launched work uses it.
    fn free(address: u64);
    /// Creates the driver's set of nodes for a graph, which is empty.
    ///
    /// # Errors
    ///
    /// `CUDA_ERROR_NOT_SUPPORTED` if the driver does not let kernels update launches.
    fn device_nodes() -> Result<Shared>;
    /// Adds the driver's node for a launch that kernels update to its graph's set of nodes.
    fn device_node(nodes: &Shared, kernel: &Kernel) -> Result<DeviceNode>;
    /// Makes steps executable. They are in an order in which they can be executed.
    fn instantiate(steps: &[Step], flags: u64) -> Result<Self::Exec>;
    /// Tells a driver that wants to know it the id of an executable graph.
    fn tell_id(_exec: &Self::Exec, _id: u32) {}
    /// The name that kernels use to launch it, if it was instantiated with [`DEVICE_LAUNCH`]. The name is also the
    /// program's handle.
    ///
    /// [`DEVICE_LAUNCH`]: crate::abi::DEVICE_LAUNCH
    fn device_handle(exec: &Self::Exec) -> Option<u64>;
    /// Applies the step with this index; no other step has changed. `are_parameters` says that only the values of a
    /// launch's parameters have changed.
    fn set(exec: &Self::Exec, steps: &[Step], index: usize, are_parameters: bool) -> Result;
    /// Applies all steps. If `changed` is given, only those steps have changed, and no launch attribute has.
    fn update(exec: &Self::Exec, steps: &[Step], changed: Option<&Changes>) -> Result;
    /// Executes `steps` in a stream's order.
    fn launch(
        exec: &Self::Exec,
        steps: &Arc<Vec<Step>>,
        stream: CUstream,
        per_thread: bool,
    ) -> Result;
    /// The driver's number of a stream for [`Self::launch_at_once`]. `None` if launches into the stream, or by the
    /// calling thread, need more than that, or if the stream is invalid; [`Self::launch`] then returns the error.
    fn stream_at_once(_stream: CUstream, _per_thread: bool) -> Option<u64> {
        None
    }
    /// Executes the steps of the last launch in a stream's order; `None` if that could wait. It is called while the
    /// store is locked, and the program's callbacks may need the store. `Some(true)` asks for a call of [`Self::wake`]
    /// after the store is unlocked.
    fn launch_at_once(_exec: &Self::Exec, _stream: u64) -> Option<bool> {
        None
    }
    /// Makes the driver notice a launch.
    fn wake() -> Result {
        Ok(())
    }
    /// Prepares a launch of `steps` in a stream, and later launches by kernels.
    fn upload(
        exec: &Self::Exec,
        steps: &Arc<Vec<Step>>,
        stream: CUstream,
        per_thread: bool,
    ) -> Result;
    /// Calls a function once a stream has reached this point.
    fn call(stream: CUstream, per_thread: bool, what: Box<dyn FnOnce() + Send>) -> Result;
}
