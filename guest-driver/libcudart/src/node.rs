// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Nodes of graphs by the generic functions, whose parameters say of which type they are.
//!
//! The runtime's structure has the driver's size and types; what is in it of kernels, copies, fills and conditions is not the same.

use crate::abi::*;
use crate::context::current_context;
use crate::driver::Driver;
use crate::error::{self, Result};
use crate::graph::{copy_node, kernel_node};
use gpgpu_protocol::cuda::*;
use std::ffi::{c_int, c_uint, c_void};

/// `cudaGraphNodeTypeKernel`; a `CUgraphNodeType` is the same number.
const KERNEL: c_uint = 0;
const COPY: c_uint = 1;
const FILL: c_uint = 2;
const CONDITIONAL: c_uint = 13;

/// `cudaGraphNodeParams`, and `CUgraphNodeParams`: the type, and what belongs to it.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct NodeParams {
    kind: c_uint,
    reserved0: [c_int; 3],
    of: [u64; 29],
    reserved2: i64,
}

const _: () = assert!(size_of::<NodeParams>() == 256);

/// `cudaMemcpyNodeParams`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Copy {
    flags: c_int,
    reserved: [c_int; 3],
    parameters: cudaMemcpy3DParms,
}

/// `CUDA_MEMCPY_NODE_PARAMS`.
#[repr(C)]
#[derive(Clone, Copy)]
struct NativeCopy {
    flags: c_int,
    reserved: c_int,
    context: CUcontext,
    parameters: CUDA_MEMCPY3D,
}

/// The place of the context in `CUDA_MEMSET_NODE_PARAMS_v2`, in words; and in `CUDA_CONDITIONAL_NODE_PARAMS`.
const FILL_CONTEXT: usize = 5;
const CONDITION_CONTEXT: usize = 3;

impl NodeParams {
    /// Puts a structure into the place of what belongs to the type.
    fn put<T>(&mut self, value: T) {
        const { assert!(size_of::<T>() <= 232 && align_of::<T>() <= 8) };
        self.of = [0; 29];
        // SAFETY: it fits, as was checked when this was compiled.
        unsafe { self.of.as_mut_ptr().cast::<T>().write(value) };
    }
}

/// The driver's form of a node's parameters.
///
/// # Safety
/// `parameters` is NULL, or readable with what it refers to.
unsafe fn native(parameters: *const NodeParams) -> Result<(&'static Driver, NodeParams)> {
    let (driver, context) = current_context()?;
    // SAFETY: promised by the caller, null excepted.
    let given = unsafe { parameters.as_ref() }.ok_or(error::INVALID_VALUE)?;
    let mut to = *given;
    let from = given.of.as_ptr();
    match given.kind {
        KERNEL => {
            // SAFETY: the type says that such a structure is there.
            to.put(unsafe { kernel_node(driver, from.cast()) }?);
        }
        COPY => {
            // SAFETY: as above.
            let copy = unsafe { from.cast::<Copy>().read() };
            if copy.flags != 0 || copy.reserved != [0; 3] {
                return Err(error::INVALID_VALUE);
            }
            // SAFETY: as above.
            let (_, _, parameters) = unsafe { copy_node(&copy.parameters) }?;
            to.put(NativeCopy {
                flags: 0,
                reserved: 0,
                context,
                parameters,
            });
        }
        FILL => to.of[FILL_CONTEXT] = context as u64,
        CONDITIONAL => to.of[CONDITION_CONTEXT] = context as u64,
        _ => {}
    }
    Ok((driver, to))
}

/// Adds a node. `add` is given the parameters in the driver's form.
///
/// # Safety
/// `parameters` is NULL, or readable and writable with what it refers to.
unsafe fn add(
    parameters: *mut NodeParams,
    add: impl FnOnce(&Driver, *mut c_void) -> Result<()>,
) -> Result<()> {
    // SAFETY: promised by the caller.
    let (driver, mut to) = unsafe { native(parameters) }?;
    add(driver, (&raw mut to).cast())?;
    if !matches!(to.kind, KERNEL | COPY | FILL) {
        // An allocation's address, and the graphs of a condition, come back.
        // SAFETY: promised by the caller, and not NULL by now.
        unsafe { (*parameters).of = to.of };
    }
    Ok(())
}

export! {
    fn cudart12_cudaGraphAddNode(node: *mut cudaGraphNode_t, graph: cudaGraph_t, dependencies: *const cudaGraphNode_t, count: usize, parameters: *mut NodeParams) {
        add(parameters, |driver, to| driver.cuGraphAddNode(node, graph, dependencies, count, to))
    }

    fn cudart13_cudaGraphAddNode(node: *mut cudaGraphNode_t, graph: cudaGraph_t, dependencies: *const cudaGraphNode_t, edges: *const c_void, count: usize, parameters: *mut NodeParams) {
        add(parameters, |driver, to| driver.cuGraphAddNode2(node, graph, dependencies, edges, count, to))
    }

    fn cudaGraphAddNode_v2(node: *mut cudaGraphNode_t, graph: cudaGraph_t, dependencies: *const cudaGraphNode_t, edges: *const c_void, count: usize, parameters: *mut NodeParams) {
        add(parameters, |driver, to| driver.cuGraphAddNode2(node, graph, dependencies, edges, count, to))
    }

    fn cudaGraphNodeSetParams(node: cudaGraphNode_t, parameters: *const NodeParams) {
        let (driver, mut to) = native(parameters)?;
        driver.cuGraphNodeSetParams(node, (&raw mut to).cast())
    }

    fn cudaGraphExecNodeSetParams(exec: cudaGraphExec_t, node: cudaGraphNode_t, parameters: *const NodeParams) {
        let (driver, mut to) = native(parameters)?;
        driver.cuGraphExecNodeSetParams(exec, node, (&raw mut to).cast())
    }
}
