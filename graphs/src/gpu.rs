// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The interface that graphs need of a driver.

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

/// A stream that a call names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stream {
    /// A number that no other stream of the process has; the one of a context's legacy stream has no meaning.
    pub key: u64,
    /// The handle of its context.
    pub context: u64,
    /// It is the legacy stream.
    pub is_legacy: bool,
    /// The legacy stream waits for it, and it for the legacy stream.
    pub is_blocking: bool,
}

/// The parameters of a function, and where it is.
#[derive(Debug, Clone, Default)]
pub struct Signature {
    /// Each parameter's offset and bytes in the parameter buffer.
    pub layout: Arc<[(usize, usize)]>,
    /// Bytes of the parameter buffer.
    pub bytes: usize,
    /// The handle of the context that the function is in; 0 for a kernel of a library, which is in every context.
    pub context: u64,
}

/// A driver: the guest's library, or the software GPU.
pub trait Gpu: Sized + 'static {
    /// The driver's executable graph. It ends with its last reference.
    type Exec: Send + Sync;

    /// The process's graphs.
    fn store() -> &'static Store<Self>;
    /// Checks that the calling thread may use the API now, in any context or none.
    fn ready() -> Result;
    /// Checks that graphs are supported, for functions that begin with one.
    ///
    /// # Errors
    ///
    /// `CUDA_ERROR_NOT_SUPPORTED`.
    fn has_graphs() -> Result {
        Ok(())
    }
    /// The handle of the current context.
    fn context() -> Result<u64>;
    /// The device of a context.
    fn device(context: u64) -> Result<CUdevice>;
    /// Whether there is such a device.
    fn has_device(device: CUdevice) -> bool;
    /// The stream that a handle names; NULL is the thread's own where `per_thread`.
    fn stream(handle: CUstream, per_thread: bool) -> Result<Stream>;
    /// Checks that a handle is an event's: `CUDA_ERROR_INVALID_HANDLE` if not.
    fn check_event(event: u64) -> Result;
    /// The parameters of a function or kernel.
    fn signature(function: u64) -> Result<Signature>;
    /// Checks that a kernel can be launched as it is.
    fn check_kernel(kernel: &Kernel) -> Result;
    /// Checks that a copy can be made.
    fn check_copy(copy: &Copy3D) -> Result;
    /// Checks that memory can be filled.
    fn check_fill(fill: &Fill) -> Result;
    /// Checks that words can be written and waited for.
    fn check_mem_ops(ops: &MemOps) -> Result;
    /// Whether one end of a copy is in memory that the GPU does not reach.
    fn is_near(copy: &Copy3D) -> Result<bool>;
    /// Checks that graphs can have such a value.
    fn check_condition(condition: &Condition) -> Result;
    /// Whether a step can wait for a part of a launch: whether lists of steps have
    /// [`Work::Edges`](crate::node::Work::Edges). The answer stays. It may take its time the first time, which is
    /// before there is such an edge, and without the store's lock.
    fn has_partial_edges() -> bool;
    /// Allocates device memory in a context, for as long as graphs need it.
    fn allocate(context: u64, bytes: usize) -> Result<u64>;
    /// Frees it, once nothing that was launched uses it.
    fn free(address: u64);
    /// The driver's nodes of a graph, none yet.
    ///
    /// # Errors
    ///
    /// `CUDA_ERROR_NOT_SUPPORTED` if the driver lets no kernel update launches.
    fn device_nodes() -> Result<Shared>;
    /// Adds the driver's node of a launch that kernels update to those of its graph.
    fn device_node(nodes: &Shared, kernel: &Kernel) -> Result<DeviceNode>;
    /// Makes steps executable. They come in an order in which they can be done.
    fn instantiate(steps: &[Step], flags: u64) -> Result<Self::Exec>;
    /// The name by which kernels launch it, of one that was instantiated with [`DEVICE_LAUNCH`]: it is the program's
    /// handle as well.
    ///
    /// [`DEVICE_LAUNCH`]: crate::abi::DEVICE_LAUNCH
    fn device_handle(exec: &Self::Exec) -> Option<u64>;
    /// Applies the step with this number; no other one changed. `are_parameters` says that nothing of it changed but
    /// the values of a launch's parameters.
    fn set(exec: &Self::Exec, steps: &[Step], index: usize, are_parameters: bool) -> Result;
    /// Applies all steps. If `changed` names some, no other one changed, and no attribute of a launch among them.
    fn update(exec: &Self::Exec, steps: &[Step], changed: Option<&Changes>) -> Result;
    /// Executes `steps` in a stream's order.
    fn launch(
        exec: &Self::Exec,
        steps: &Arc<Vec<Step>>,
        stream: CUstream,
        per_thread: bool,
    ) -> Result;
    /// The driver's number of a stream for [`Self::launch_at_once`]; `None` if launches into it, or by the calling
    /// thread, need more, or if it is none: [`Self::launch`] has the error.
    fn stream_at_once(_stream: CUstream, _per_thread: bool) -> Option<u64> {
        None
    }
    /// Executes the steps of the last launch in a stream's order; `None` if that could wait for anything. It is called
    /// with the store's lock, which callbacks of the program may need. `Some(true)` asks for [`Self::wake`] without it.
    fn launch_at_once(_exec: &Self::Exec, _stream: u64) -> Option<bool> {
        None
    }
    /// Has the driver notice a launch.
    fn wake() -> Result {
        Ok(())
    }
    /// Readies a launch of `steps` in a stream, and later launches by kernels.
    fn upload(
        exec: &Self::Exec,
        steps: &Arc<Vec<Step>>,
        stream: CUstream,
        per_thread: bool,
    ) -> Result;
    /// Calls a function once a stream has come so far.
    fn call(stream: CUstream, per_thread: bool, what: Box<dyn FnOnce() + Send>) -> Result;
}
