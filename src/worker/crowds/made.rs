// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Executable graphs of launches.

use std::ffi::c_void;

use gpgpu_protocol::{
    api::{Context, Kernel, LaunchConfig, Object, object_kind},
    cuda::*,
};

use super::Launch;
use crate::{
    cuda::driver,
    worker::{objects::Entry, session::Session},
};

/// The properties that a launch shares with the previous ones. Changing one of them in a node and launching the graph
/// takes NVIDIA's driver as long as a launch.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Shape {
    function: u64,
    grid: [u32; 3],
    block: [u32; 3],
    shared: u32,
}

impl Shape {
    pub fn of(launch: &Launch) -> Self {
        let LaunchConfig {
            grid_x,
            grid_y,
            grid_z,
            block_x,
            block_y,
            block_z,
            shared_bytes,
            ..
        } = launch.config;
        Self {
            function: launch.func,
            grid: [grid_x, grid_y, grid_z],
            block: [block_x, block_y, block_z],
            shared: shared_bytes,
        }
    }
}

/// A launch in a graph.
struct Node {
    raw: CUgraphNode,
    params: CUDA_KERNEL_NODE_PARAMS,
    /// The pointers of `params`: an address in `bytes` for each parameter.
    _pointers: Box<[*mut c_void]>,
    bytes: Box<[u8]>,
}

impl Node {
    /// The node of a launch of an existing function.
    fn new(launch: &Launch, function: &Entry, context: CUcontext) -> Result<Self, CUresult> {
        let mut bytes: Box<[u8]> = launch.params.0.as_slice().into();
        if bytes.len() != function.param_bytes() {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let start = bytes.as_mut_ptr();
        let mut pointers: Box<[*mut c_void]> = function
            .params()
            .iter()
            .map(|of| start.wrapping_add(of.offset as usize).cast())
            .collect();
        let is_kernel = object_kind(launch.func) == Kernel::KIND;
        let of = &launch.config;
        let params = CUDA_KERNEL_NODE_PARAMS {
            func: if is_kernel { 0 } else { function.raw } as CUfunction,
            gridDimX: of.grid_x,
            gridDimY: of.grid_y,
            gridDimZ: of.grid_z,
            blockDimX: of.block_x,
            blockDimY: of.block_y,
            blockDimZ: of.block_z,
            sharedMemBytes: of.shared_bytes,
            kernelParams: pointers.as_mut_ptr(),
            extra: std::ptr::null_mut(),
            kern: if is_kernel { function.raw } else { 0 } as CUkernel,
            ctx: context,
        };
        Ok(Self {
            raw: std::ptr::null_mut(),
            params,
            _pointers: pointers,
            bytes,
        })
    }
}

/// A graph that executes launches one after the other, in one context.
pub(super) struct Made {
    graph: CUgraph,
    exec: CUgraphExec,
    nodes: Vec<Node>,
    /// The number of its last launch, counted over all graphs.
    pub used: u64,
}

// SAFETY: the handles are the driver's, which any thread may use; the nodes' pointers lead into their own buffers.
unsafe impl Send for Made {}

impl Drop for Made {
    fn drop(&mut self) {
        // SAFETY: both are the driver's, and only this ends them. Pending launches still complete.
        unsafe {
            if !self.exec.is_null() {
                let _ = driver::cuGraphExecDestroy(self.exec);
            }
            let _ = driver::cuGraphDestroy(self.graph);
        }
    }
}

impl Made {
    /// A graph of launches with their functions, in the current context.
    ///
    /// # Errors
    ///
    /// The driver's error code; `CUDA_ERROR_INVALID_VALUE` for parameters that a function does not have.
    pub fn new<'a>(
        session: &Session,
        launches: impl IntoIterator<Item = (&'a Launch, &'a Entry)>,
    ) -> Result<Self, CUresult> {
        let context = session.objects.raw::<Context>(session.entered())? as CUcontext;
        let mut graph = std::ptr::null_mut();
        // SAFETY: the pointer is to a value that lives across the call.
        unsafe { driver::cuGraphCreate(&mut graph, 0) }?;
        let mut made = Self {
            graph,
            exec: std::ptr::null_mut(),
            nodes: Vec::new(),
            used: 0,
        };
        for (launch, function) in launches {
            let mut node = Node::new(launch, function, context)?;
            let after = made.nodes.last().map(|of| of.raw);
            let (first, count) = (after.as_slice().as_ptr(), after.as_slice().len());
            // SAFETY: the graph, the node, the function and the context are the driver's and live; the structure and
            // its pointers outlive the call, which copies them.
            unsafe {
                let to = &raw mut node.raw;
                driver::cuGraphAddKernelNode_v2(to, graph, first, count, &node.params)?;
            }
            made.nodes.push(node);
        }
        // SAFETY: the graph is the driver's and lives; the pointer is to a value that lives across the call.
        unsafe { driver::cuGraphInstantiateWithFlags(&mut made.exec, graph, 0) }?;
        Ok(made)
    }

    /// Sets the parameters of nodes that differ from these launches, and launches the graph. The shapes are equal, and
    /// the functions exist.
    ///
    /// # Errors
    ///
    /// The driver's error code. Nothing was launched in that case, and the parameters of the nodes are unknown.
    pub fn launch<'a>(
        &mut self,
        launches: impl IntoIterator<Item = &'a Launch>,
        stream: CUstream,
    ) -> Result<(), CUresult> {
        for (node, launch) in self.nodes.iter_mut().zip(launches) {
            let bytes = launch.params.0.as_slice();
            if *node.bytes == *bytes {
                continue;
            }
            if node.bytes.len() != bytes.len() {
                return Err(CUDA_ERROR_INVALID_VALUE);
            }
            node.bytes.copy_from_slice(bytes);
            // SAFETY: the executable graph was made of the graph with this node, and its function lives; the structure
            // and its pointers outlive the call, which copies them.
            unsafe {
                driver::cuGraphExecKernelNodeSetParams_v2(self.exec, node.raw, &node.params)
            }?;
        }
        // SAFETY: the executable graph and the stream are the driver's and live, and so does all that the graph uses.
        unsafe { driver::cuGraphLaunch(self.exec, stream) }
    }
}
