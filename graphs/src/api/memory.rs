// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Nodes that allocate and free memory.

use std::ffi::c_void;

use gpgpu_protocol::cuda::*;

use super::{
    get,
    nodes::{add, place, work},
    set,
};
use crate::{Gpu, Result, abi::*, node::Work, objects::Allocation, store::Edge};

/// An allocation for a node after the given dependencies. Its address is written to CUDA's structure.
///
/// # Safety
///
/// The pointer is valid.
pub(super) unsafe fn allocation<G: Gpu>(
    graph: CUgraph,
    after: &[Edge],
    params: *mut CUDA_MEM_ALLOC_NODE_PARAMS,
) -> Result<Work> {
    // SAFETY: promised by the caller.
    let mut of = unsafe { get(params) }?;
    let props = &of.poolProps;
    // NVIDIA's driver accepts the same.
    if matches!(
        props.location.type_,
        CU_MEM_LOCATION_TYPE_HOST | CU_MEM_LOCATION_TYPE_HOST_NUMA
    ) {
        return Err(CUDA_ERROR_NOT_SUPPORTED);
    }
    if props.allocType != CU_MEM_ALLOCATION_TYPE_PINNED
        || props.location.type_ != CU_MEM_LOCATION_TYPE_DEVICE
        || of.bytesize == 0
    {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    if props.handleTypes != CU_MEM_HANDLE_TYPE_NONE {
        return Err(CUDA_ERROR_NOT_SUPPORTED);
    }
    let context = G::context()?;
    if G::device(context)? != props.location.id {
        // The memory would have to be in another context than the current one.
        return Err(CUDA_ERROR_NOT_SUPPORTED);
    }
    let allocation = G::store().allocate(graph as u64, after, context, of.bytesize)?;
    of.dptr = allocation.address();
    // SAFETY: promised by the caller.
    unsafe { set(params, of) }?;
    Ok(Work::Alloc(allocation))
}

/// An allocation as CUDA's structure.
pub(super) fn to_abi(of: &Allocation) -> CUDA_MEM_ALLOC_NODE_PARAMS {
    // SAFETY: all members are numbers and pointers, of which zero is a value.
    let mut given: CUDA_MEM_ALLOC_NODE_PARAMS = unsafe { std::mem::zeroed() };
    given.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    given.poolProps.location = CUmemLocation {
        type_: CU_MEM_LOCATION_TYPE_DEVICE,
        id: of.device(),
    };
    (given.bytesize, given.dptr) = (of.bytes, of.address());
    given
}

/// The work of a node that frees a graph's memory.
pub(super) fn free<G: Gpu>(address: CUdeviceptr) -> Result<Work> {
    let found = G::store().with(|inner| inner.allocation(address));
    found.map(Work::Free).ok_or(CUDA_ERROR_INVALID_VALUE)
}

/// `cuGraphAddMemAllocNode`.
pub unsafe fn cuGraphAddMemAllocNode<G: Gpu, const PT: bool>(
    node: *mut CUgraphNode,
    graph: CUgraph,
    dependencies: *const CUgraphNode,
    count: usize,
    params: *mut c_void,
) -> Result {
    // SAFETY: promised by the caller.
    unsafe {
        let place = place::<G>(node, graph, dependencies, std::ptr::null(), count)?;
        let work = allocation::<G>(graph, &place.2, params.cast())?;
        add::<G>(place, work)
    }
}

/// `cuGraphMemAllocNodeGetParams`.
pub unsafe fn cuGraphMemAllocNodeGetParams<G: Gpu, const PT: bool>(
    node: CUgraphNode,
    params: *mut c_void,
) -> Result {
    let Work::Alloc(of) = work::<G>(node)? else {
        return Err(CUDA_ERROR_INVALID_VALUE);
    };
    // SAFETY: promised by the caller.
    unsafe { set(params.cast(), to_abi(&of)) }
}

/// `cuGraphAddMemFreeNode`.
pub unsafe fn cuGraphAddMemFreeNode<G: Gpu, const PT: bool>(
    node: *mut CUgraphNode,
    graph: CUgraph,
    dependencies: *const CUgraphNode,
    count: usize,
    address: CUdeviceptr,
) -> Result {
    // SAFETY: promised by the caller.
    unsafe {
        let place = place::<G>(node, graph, dependencies, std::ptr::null(), count)?;
        add::<G>(place, free::<G>(address)?)
    }
}

/// `cuGraphMemFreeNodeGetParams`.
pub unsafe fn cuGraphMemFreeNodeGetParams<G: Gpu, const PT: bool>(
    node: CUgraphNode,
    to: *mut CUdeviceptr,
) -> Result {
    let Work::Free(of) = work::<G>(node)? else {
        return Err(CUDA_ERROR_INVALID_VALUE);
    };
    // SAFETY: promised by the caller.
    unsafe { set(to, of.address()) }
}
