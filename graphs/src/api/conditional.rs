// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Conditional handles and nodes.

use gpgpu_protocol::cuda::*;

use super::{
    generic,
    nodes::{Place, context_of},
    required, set,
};
use crate::{
    Gpu, Result,
    abi::CUgraphNodeParams,
    conditional::{ASSIGN_DEFAULT, Condition},
};

/// `cuGraphConditionalHandleCreate`.
pub unsafe fn cuGraphConditionalHandleCreate<G: Gpu, const PT: bool>(
    handle: *mut u64,
    graph: CUgraph,
    context: CUcontext,
    default: u32,
    flags: u32,
) -> Result {
    G::ready()?;
    required(handle)?;
    G::store().with(|inner| inner.graph(graph as u64).map(drop))?;
    if context.is_null() {
        return Err(CUDA_ERROR_INVALID_CONTEXT);
    }
    if flags & !ASSIGN_DEFAULT != 0 {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    let condition = Condition {
        context: context_of::<G>(context)?,
        default,
        flags,
        node: None,
    };
    G::check_condition(&condition)?;
    let number = G::store().with(|inner| inner.add_condition(graph as u64, condition))?;
    // SAFETY: promised by the caller.
    unsafe { set(handle, number) }
}

/// Adds a conditional node from CUDA's structure, and writes the addresses of its bodies to the structure.
///
/// # Safety
///
/// The pointers are valid.
pub(super) unsafe fn add<G: Gpu>(
    (node, graph, edges): Place,
    params: *mut CUgraphNodeParams,
) -> Result {
    // SAFETY: promised by the caller; the type says that the member was written.
    let of = unsafe { generic::read(params)?.of.conditional };
    let context = context_of::<G>(of.ctx)?;
    let (handle, bodies) = G::store().with(|inner| {
        let value = (of.handle, context);
        inner.add_conditional(graph as u64, &edges, value, (of.type_, of.size))
    })?;
    // SAFETY: as above.
    unsafe {
        (&raw mut (*params).of.conditional.phGraph_out).write_unaligned(bodies as *mut CUgraph);
        set(node, handle as CUgraphNode)
    }
}
