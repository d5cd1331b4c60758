// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The generic functions for graph nodes, whose parameters contain the node's type.
//!
//! The runtime's structure has the driver's size and type numbers. Its members for kernels, copies, fills and
//! conditions differ from the driver's.

use crate::abi::*;
use crate::context::{current, current_context};
use crate::driver::Driver;
use crate::error::{self, Result};
use crate::graph::{copy_node, kernel_node, launch_from, launch_of};
use crate::registration::launchable;
use gpgpu_protocol::cuda::*;
use std::ffi::{c_int, c_uint, c_void};
use std::ptr::null_mut;

/// `cudaGraphNodeTypeKernel`; a `CUgraphNodeType` is the same number.
const KERNEL: c_uint = 0;
const COPY: c_uint = 1;
const FILL: c_uint = 2;
const CONDITIONAL: c_uint = 13;

/// `cudaGraphNodeParams`, and `CUgraphNodeParams`: the type, and its member.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct NodeParams {
    kind: c_uint,
    reserved0: [c_int; 3],
    of: [u64; 29],
    reserved2: i64,
}

const _: () = assert!(size_of::<NodeParams>() == 256);

/// `cudaKernelNodeParamsV2` of CUDA 13.1. Up to CUDA 13.0 it ends with the parameters, and zeros follow.
#[repr(C)]
#[derive(Clone, Copy)]
struct Kernel {
    parameters: cudaKernelNodeParams,
    context: cudaExecutionContext_t,
    kind: c_uint,
}

/// `cudaKernelFunctionType`: not specified, the stub of a kernel, a `cudaKernel_t`, a `cudaFunction_t`.
const UNSPECIFIED: c_uint = 0;
const DEVICE_ENTRY: c_uint = 1;
const HANDLE: c_uint = 2;
const FUNCTION: c_uint = 3;

/// `cudaMemcpyNodeParams`. Up to CUDA 13.0 it has two reserved words, which are zero, in place of the context.
#[repr(C)]
#[derive(Clone, Copy)]
struct Copy {
    flags: c_int,
    reserved: c_int,
    context: cudaExecutionContext_t,
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

/// The index of the context's word in `CUDA_MEMSET_NODE_PARAMS_v2`, and in `CUDA_CONDITIONAL_NODE_PARAMS`. From CUDA
/// 13.1 on it is the same in the runtime's structures.
const FILL_CONTEXT: usize = 5;
const CONDITION_CONTEXT: usize = 3;

const _: () = assert!(size_of::<Kernel>() == 72 && size_of::<Copy>() == 176);

/// The context of a node: the one that its parameters name, which is possible from CUDA 13.1 on, or the current one.
fn context_of(named: cudaExecutionContext_t, current: CUcontext) -> CUcontext {
    if named.is_null() || cudart_abi() < VERSION_13 {
        current
    } else {
        named
    }
}

/// The driver's form of a launch.
///
/// # Safety
/// The parameters' pointers are readable.
unsafe fn launch(driver: &Driver, given: &Kernel) -> Result<CUDA_KERNEL_NODE_PARAMS> {
    let parameters = &given.parameters;
    let (kind, context) = match cudart_abi() {
        VERSION_13.. => (given.kind, given.context),
        _ => (UNSPECIFIED, null_mut()),
    };
    let native = match kind {
        FUNCTION => launch_of(parameters.func.cast(), parameters),
        // A kernel has a function for each context; the driver finds the one for the node's context.
        UNSPECIFIED..=HANDLE if !context.is_null() => CUDA_KERNEL_NODE_PARAMS {
            kern: launchable(driver, parameters.func)?.cast(),
            ..launch_of(null_mut(), parameters)
        },
        // SAFETY: promised by the caller.
        UNSPECIFIED..=HANDLE => unsafe { kernel_node(driver, parameters) }?,
        _ => return Err(error::INVALID_VALUE),
    };
    Ok(CUDA_KERNEL_NODE_PARAMS {
        ctx: context,
        ..native
    })
}

impl NodeParams {
    /// Stores a structure as the type's member.
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
/// `parameters` is NULL, or readable with all that it points to.
unsafe fn native(parameters: *const NodeParams) -> Result<(&'static Driver, NodeParams)> {
    let (driver, context) = current_context()?;
    // SAFETY: promised by the caller, null excepted.
    let given = unsafe { parameters.as_ref() }.ok_or(error::INVALID_VALUE)?;
    let mut to = *given;
    let from = given.of.as_ptr();
    match given.kind {
        KERNEL => {
            // SAFETY: the type says that this member is present, and the union is longer.
            let kernel = unsafe { from.cast::<Kernel>().read() };
            // SAFETY: promised by the caller.
            to.put(unsafe { launch(driver, &kernel) }?);
        }
        COPY => {
            // SAFETY: as above.
            let copy = unsafe { from.cast::<Copy>().read() };
            let is_older = cudart_abi() < VERSION_13;
            if copy.flags != 0 || copy.reserved != 0 || is_older && !copy.context.is_null() {
                return Err(error::INVALID_VALUE);
            }
            // SAFETY: as above.
            let (_, _, parameters) = unsafe { copy_node(&copy.parameters) }?;
            to.put(NativeCopy {
                flags: 0,
                reserved: 0,
                context: context_of(copy.context, context),
                parameters,
            });
        }
        FILL | CONDITIONAL => {
            let place = match given.kind {
                FILL => FILL_CONTEXT,
                _ => CONDITION_CONTEXT,
            };
            to.of[place] = context_of(to.of[place] as CUcontext, context) as u64;
        }
        _ => {}
    }
    Ok((driver, to))
}

/// The runtime's form of the driver's parameters, as in CUDA 13.2.
///
/// # Safety
/// They are the driver's, with all that they point to.
unsafe fn foreign(driver: &Driver, given: &NodeParams) -> Result<NodeParams> {
    let mut to = *given;
    let from = given.of.as_ptr();
    match given.kind {
        KERNEL => {
            // SAFETY: the type says that this member is present.
            let native = unsafe { from.cast::<CUDA_KERNEL_NODE_PARAMS>().read() };
            let (parameters, is_stub) = launch_from(driver, &native);
            let kind = match (is_stub, native.kern.is_null()) {
                (true, _) => DEVICE_ENTRY,
                (false, false) => HANDLE,
                (false, true) => FUNCTION,
            };
            to.put(Kernel {
                parameters,
                context: native.ctx,
                kind,
            });
        }
        COPY => {
            // SAFETY: as above.
            let native = unsafe { from.cast::<NativeCopy>().read() };
            to.put(Copy {
                flags: native.flags,
                reserved: 0,
                context: native.context,
                parameters: crate::array::foreign(driver, &native.parameters)?,
            });
        }
        _ => {}
    }
    Ok(to)
}

/// Adds a node. `add` is given the parameters in the driver's form.
///
/// # Safety
/// `parameters` is NULL, or readable and writable with all that it points to.
unsafe fn add(
    parameters: *mut NodeParams,
    add: impl FnOnce(&Driver, *mut c_void) -> Result<()>,
) -> Result<()> {
    // SAFETY: promised by the caller.
    let (driver, mut to) = unsafe { native(parameters) }?;
    add(driver, (&raw mut to).cast())?;
    if !matches!(to.kind, KERNEL | COPY | FILL) {
        // The driver returns an allocation's address, and the graphs of a condition.
        // SAFETY: promised by the caller, and checked for NULL.
        let given = unsafe { &mut *parameters };
        if to.kind == CONDITIONAL {
            // The program may use the structure again for a node in another context.
            to.of[CONDITION_CONTEXT] = given.of[CONDITION_CONTEXT];
        }
        given.of = to.of;
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

    fn cudaGraphNodeGetParams(node: cudaGraphNode_t, parameters: *mut NodeParams) {
        let driver = current()?;
        if parameters.is_null() {
            return Err(error::INVALID_VALUE);
        }
        let mut native: NodeParams = std::mem::zeroed();
        driver.cuGraphNodeGetParams(node, (&raw mut native).cast())?;
        parameters.write(foreign(driver, &native)?);
        Ok(())
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
