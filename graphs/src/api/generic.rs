// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The functions for nodes of any type.

use std::ffi::c_void;

use gpgpu_protocol::cuda::*;

use super::{
    conditional,
    exec::change,
    get, memory,
    nodes::{self, add, context_of, place, replace, work},
    required, set,
};
use crate::{Gpu, Result, abi::*, node::Work};

/// Reads CUDA's structure, whose reserved words must be 0.
///
/// # Safety
///
/// The pointer is NULL or valid.
pub(super) unsafe fn read(params: *const CUgraphNodeParams) -> Result<CUgraphNodeParams> {
    // SAFETY: promised by the caller.
    let given = unsafe { get(params) }?;
    if given.reserved0 != [0; 3] || given.reserved2 != 0 {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    Ok(given)
}

/// The work of CUDA's structure. `before` is the node's earlier content, if it exists.
///
/// # Safety
///
/// The pointer is NULL or valid, and so are the pointers in the structure.
unsafe fn described<G: Gpu>(
    params: *const CUgraphNodeParams,
    before: Option<&Work>,
) -> Result<Work> {
    // SAFETY: promised by the caller.
    let given = unsafe { read(params) }?;
    if before.is_some_and(|before| before.kind() != given.type_) {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    let of = given.of;
    // SAFETY: the type says which member was written; the caller vouches for its pointers.
    unsafe {
        match given.type_ {
            kind::KERNEL => {
                let before = match before {
                    Some(Work::Kernel(kernel)) => Some(&**kernel),
                    _ => None,
                };
                nodes::kernel::<G>(&of.kernel, before)
            }
            kind::MEMCPY => {
                let context = context_of::<G>(of.memcpy.copyCtx)?;
                nodes::copy::<G>(&of.memcpy.copyParams, context)
            }
            kind::MEMSET => {
                let context = context_of::<G>(of.memset.ctx)?;
                nodes::fill::<G>((&raw const of.memset.fill).cast(), context)
            }
            kind::HOST => nodes::host((&raw const of.host).cast()),
            kind::BATCH_MEM_OP => nodes::mem_ops::<G>((&raw const of.memOp).cast()),
            // NVIDIA's driver also accepts invalid numbers.
            kind::GRAPH => match of.child.ownership {
                CU_GRAPH_CHILD_GRAPH_OWNERSHIP_MOVE if before.is_none() => {
                    nodes::moved::<G>(of.child.graph)
                }
                _ => nodes::child::<G>(of.child.graph),
            },
            kind::EMPTY => Ok(Work::Empty),
            kind::EVENT_RECORD => {
                G::check_event(of.event as u64)?;
                Ok(Work::Record(of.event as u64))
            }
            kind::WAIT_EVENT => {
                G::check_event(of.event as u64)?;
                Ok(Work::Wait(of.event as u64))
            }
            kind::MEM_FREE if before.is_none() => memory::free::<G>(of.dptr),
            // An allocation is made with its node, and cannot change.
            other if other <= kind::CONDITIONAL => Err(CUDA_ERROR_NOT_SUPPORTED),
            _ => Err(CUDA_ERROR_INVALID_VALUE),
        }
    }
}

/// `cuGraphAddNode_v2`.
pub unsafe fn cuGraphAddNode_v2<G: Gpu, const PT: bool>(
    node: *mut CUgraphNode,
    graph: CUgraph,
    dependencies: *const CUgraphNode,
    data: *const c_void,
    count: usize,
    params: *mut c_void,
) -> Result {
    // SAFETY: promised by the caller.
    unsafe {
        let place = place::<G>(node, graph, dependencies, data, count)?;
        required(params)?;
        let params = params.cast::<CUgraphNodeParams>();
        match get(params)?.type_ {
            kind::CONDITIONAL => return conditional::add::<G>(place, params),
            kind::MEM_ALLOC => {
                read(params)?;
                let at = (&raw mut (*params).of).cast::<CUDA_MEM_ALLOC_NODE_PARAMS>();
                let work = memory::allocation::<G>(graph, &place.2, at)?;
                return add::<G>(place, work);
            }
            _ => {}
        }
        let work = described::<G>(params, None)?;
        let child = match work {
            Work::Child(graph) => Some(graph),
            _ => None,
        };
        add::<G>(place, work).inspect_err(|_| {
            if let Some(child) = child {
                G::store().with(|inner| inner.give_back(child));
            }
        })
    }
}

/// `cuGraphAddNode`, of CUDA 12.2.
pub unsafe fn cuGraphAddNode<G: Gpu, const PT: bool>(
    node: *mut CUgraphNode,
    graph: CUgraph,
    dependencies: *const CUgraphNode,
    count: usize,
    params: *mut c_void,
) -> Result {
    let none = std::ptr::null();
    // SAFETY: promised by the caller.
    unsafe { cuGraphAddNode_v2::<G, PT>(node, graph, dependencies, none, count, params) }
}

/// A node's work as the union of CUDA's structure. Its pointers point into the work.
fn to_abi(work: &Work) -> Result<CUgraphNodeParamsOf> {
    let mut of = CUgraphNodeParamsOf { reserved: [0; 29] };
    match work {
        Work::Kernel(kernel) => of.kernel = kernel.to_abi(),
        Work::Copy(copy) => {
            of.memcpy = CUDA_MEMCPY_NODE_PARAMS {
                flags: 0,
                reserved: 0,
                copyCtx: copy.context as CUcontext,
                copyParams: copy.given,
            };
        }
        Work::Fill(fill) => {
            of.memset = CUDA_MEMSET_NODE_PARAMS_v2 {
                fill: fill.given,
                ctx: fill.context as CUcontext,
            };
        }
        // The mode of CUDA 13.2 is not kept: the thread that makes the call always blocks, which is mode 0.
        Work::Host(host) => of.host = host.0,
        Work::MemOps(ops) => of.memOp = ops.to_abi(),
        Work::Child(graph) => {
            of.child = CUDA_CHILD_GRAPH_NODE_PARAMS {
                graph: *graph as CUgraph,
                ownership: CU_GRAPH_CHILD_GRAPH_OWNERSHIP_INVALID,
            };
        }
        Work::Conditional(conditional) => {
            of.conditional = CUDA_CONDITIONAL_NODE_PARAMS {
                handle: conditional.condition,
                type_: conditional.kind,
                size: conditional.bodies.len() as u32,
                phGraph_out: conditional.bodies.as_ptr() as *mut CUgraph,
                ctx: conditional.context as CUcontext,
            };
        }
        Work::Record(event) | Work::Wait(event) => of.event = *event as CUevent,
        Work::Alloc(allocation) => of.alloc = memory::to_abi(allocation),
        Work::Free(allocation) => of.dptr = allocation.address(),
        // Only the host knows the graph that a library's call became.
        Work::Own(_) => return Err(CUDA_ERROR_NOT_SUPPORTED),
        Work::Empty | Work::Condition(_) | Work::Edges(_) | Work::Body | Work::EndBodies => {}
    }
    Ok(of)
}

/// `cuGraphNodeGetParams`: the returned pointers are valid until the node changes or is destroyed.
pub unsafe fn cuGraphNodeGetParams<G: Gpu, const PT: bool>(
    node: CUgraphNode,
    params: *mut c_void,
) -> Result {
    let work = work::<G>(node)?;
    let given = CUgraphNodeParams {
        type_: work.kind(),
        reserved0: [0; 3],
        of: to_abi(&work)?,
        reserved2: 0,
    };
    // SAFETY: promised by the caller.
    unsafe { set(params.cast(), given) }
}

/// `cuGraphNodeSetParams`.
pub unsafe fn cuGraphNodeSetParams<G: Gpu, const PT: bool>(
    node: CUgraphNode,
    params: *mut c_void,
) -> Result {
    let before = work::<G>(node)?;
    // SAFETY: promised by the caller.
    let after = unsafe { described::<G>(params.cast(), Some(&before)) }?;
    if let Work::Child(clone) = after {
        return G::store().with(|inner| {
            let changed = inner.change_child(node as u64, clone);
            changed.inspect_err(|_| inner.forget_graph(clone))
        });
    }
    replace::<G>(node, after)
}

/// `cuGraphExecNodeSetParams`.
pub unsafe fn cuGraphExecNodeSetParams<G: Gpu, const PT: bool>(
    exec: CUgraphExec,
    node: CUgraphNode,
    params: *mut c_void,
) -> Result {
    let before = work::<G>(node)?;
    if let Work::Child(_) = before {
        // SAFETY: promised by the caller; the type says that the member was written.
        let graph = unsafe {
            let given: CUgraphNodeParams = get(params.cast())?;
            if given.type_ != kind::GRAPH {
                return Err(CUDA_ERROR_INVALID_VALUE);
            }
            given.of.child.graph
        };
        return super::exec::change_child::<G>(exec, node, graph);
    }
    // SAFETY: promised by the caller.
    change::<G>(exec, node, unsafe {
        described::<G>(params.cast(), Some(&before))
    }?)
}
