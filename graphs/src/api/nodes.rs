// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Creation, queries and changes of nodes of each type.

use std::{ffi::c_void, sync::Arc};

use gpgpu_protocol::cuda::*;

use super::{edges, get, required, set};
use crate::{
    Gpu, Result,
    abi::*,
    node::{Copy3D, Fill, Host, Kernel, MemOps, Work},
    store::Edge,
    updatable,
};

/// The handle of a context, or of the current one for NULL.
pub(super) fn context_of<G: Gpu>(context: CUcontext) -> Result<u64> {
    match context as u64 {
        0 => G::context(),
        context => {
            G::device(context)?;
            Ok(context)
        }
    }
}

/// A new node's pointer, graph and dependencies.
pub(super) type Place = (*mut CUgraphNode, CUgraph, Vec<Edge>);

/// The checks that all functions that make nodes share.
///
/// # Safety
///
/// As [`edges`].
pub(super) unsafe fn place<G: Gpu>(
    node: *mut CUgraphNode,
    graph: CUgraph,
    dependencies: *const CUgraphNode,
    data: *const c_void,
    count: usize,
) -> Result<Place> {
    G::ready()?;
    required(node)?;
    // SAFETY: promised by the caller.
    let edges = unsafe { edges::<G>(dependencies, data.cast(), count) }?;
    G::store().with(|inner| inner.graph(graph as u64).map(drop))?;
    Ok((node, graph, edges))
}

/// Makes a node.
///
/// # Safety
///
/// The place's pointer is valid.
pub(super) unsafe fn add<G: Gpu>((node, graph, edges): Place, work: Work) -> Result {
    let handle = G::store().with(|inner| inner.add(graph as u64, &edges, work))?;
    // SAFETY: promised by the caller.
    unsafe { set(node, handle as CUgraphNode) }
}

/// A node's content.
pub(super) fn work<G: Gpu>(node: CUgraphNode) -> Result<Work> {
    G::ready()?;
    G::store().with(|inner| Ok(inner.node(node as u64)?.work.clone()))
}

/// Changes a node to other work of its kind.
pub(super) fn replace<G: Gpu>(node: CUgraphNode, work: Work) -> Result {
    G::store().with(|inner| {
        let of = inner.node(node as u64)?;
        if of.work.kind() != work.kind() {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let before = std::mem::replace(&mut of.work, work);
        inner.discard(before);
        Ok(())
    })
}

/// A launch, from CUDA's structure.
///
/// # Safety
///
/// As [`Kernel::read`].
pub(super) unsafe fn kernel<G: Gpu>(
    params: *const CUDA_KERNEL_NODE_PARAMS,
    before: Option<&Kernel>,
) -> Result<Work> {
    // SAFETY: promised by the caller.
    let kernel = unsafe { Kernel::read::<G>(&get(params)?, before) }?;
    Ok(Work::Kernel(Arc::new(kernel)))
}

/// The older structure, converted to the current one.
///
/// # Safety
///
/// The pointer is NULL or valid.
pub(super) unsafe fn widen(params: *const c_void) -> Result<CUDA_KERNEL_NODE_PARAMS> {
    // SAFETY: promised by the caller.
    let of = unsafe { get(params.cast::<CUDA_KERNEL_NODE_PARAMS_v1>()) }?;
    Ok(CUDA_KERNEL_NODE_PARAMS {
        func: of.func,
        gridDimX: of.gridDimX,
        gridDimY: of.gridDimY,
        gridDimZ: of.gridDimZ,
        blockDimX: of.blockDimX,
        blockDimY: of.blockDimY,
        blockDimZ: of.blockDimZ,
        sharedMemBytes: of.sharedMemBytes,
        kernelParams: of.kernelParams,
        extra: of.extra,
        kern: std::ptr::null_mut(),
        ctx: std::ptr::null_mut(),
    })
}

/// A node's launch.
pub(super) fn kernel_of<G: Gpu>(node: CUgraphNode) -> Result<Arc<Kernel>> {
    match work::<G>(node)? {
        Work::Kernel(kernel) => Ok(kernel),
        _ => Err(CUDA_ERROR_INVALID_VALUE),
    }
}

/// A copy, from CUDA's structure.
///
/// # Safety
///
/// The pointer is NULL or valid.
pub(super) unsafe fn copy<G: Gpu>(params: *const CUDA_MEMCPY3D, context: u64) -> Result<Work> {
    // SAFETY: promised by the caller.
    let copy = Copy3D::new(&unsafe { get(params) }?, context)?;
    G::check_copy(&copy)?;
    Ok(Work::Copy(Box::new(copy)))
}

/// A fill, from CUDA's structure.
///
/// # Safety
///
/// The pointer is NULL or valid.
pub(super) unsafe fn fill<G: Gpu>(params: *const c_void, context: u64) -> Result<Work> {
    // SAFETY: promised by the caller.
    let fill = Fill::new(unsafe { get(params.cast()) }?, context)?;
    G::check_fill(&fill)?;
    Ok(Work::Fill(fill))
}

/// A batch of memory operations, from CUDA's structure.
///
/// # Safety
///
/// The pointer is NULL or valid, and so are the pointers in the structure.
pub(super) unsafe fn mem_ops<G: Gpu>(params: *const c_void) -> Result<Work> {
    // SAFETY: promised by the caller.
    let ops = unsafe {
        let given: CUDA_BATCH_MEM_OP_NODE_PARAMS = get(params.cast())?;
        MemOps::read(&given, context_of::<G>(given.ctx)?)?
    };
    G::check_mem_ops(&ops)?;
    Ok(Work::MemOps(Arc::new(ops)))
}

/// A host function, from CUDA's structure.
///
/// # Safety
///
/// The pointer is NULL or valid.
pub(super) unsafe fn host(params: *const c_void) -> Result<Work> {
    // SAFETY: promised by the caller.
    let host: CUDA_HOST_NODE_PARAMS = unsafe { get(params.cast()) }?;
    if host.function.is_none() {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    Ok(Work::Host(Host(host)))
}

/// A clone of a graph for a node.
pub(super) fn child<G: Gpu>(graph: CUgraph) -> Result<Work> {
    G::store().with(|inner| {
        if inner.graph(graph as u64)?.moved {
            return Err(CUDA_ERROR_NOT_SUPPORTED);
        }
        let mut graphs = vec![graph as u64];
        while let Some(graph) = graphs.pop() {
            let of = inner.graph(graph)?;
            if of.captures {
                return Err(CUDA_ERROR_ILLEGAL_STATE);
            }
            for node in of.nodes.clone() {
                match inner.node(node)?.work {
                    Work::Alloc(_) | Work::Free(_) | Work::Conditional(_) => {
                        return Err(CUDA_ERROR_NOT_SUPPORTED);
                    }
                    Work::Child(child) => graphs.push(child),
                    _ => {}
                }
            }
        }
        Ok(Work::Child(inner.clone_graph(graph as u64)?))
    })
}

/// A graph that becomes a child graph without a clone: `CU_GRAPH_CHILD_GRAPH_OWNERSHIP_MOVE`. Its nodes keep their
/// handles.
pub(super) fn moved<G: Gpu>(graph: CUgraph) -> Result<Work> {
    G::store().with(|inner| {
        let of = inner.graph(graph as u64)?;
        if of.captures {
            return Err(CUDA_ERROR_ILLEGAL_STATE);
        }
        if of.moved {
            return Err(CUDA_ERROR_NOT_SUPPORTED);
        }
        if of.owner.is_some() {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        if inner.is_conditional(graph as u64)? {
            return Err(CUDA_ERROR_NOT_SUPPORTED);
        }
        inner.graph(graph as u64)?.moved = true;
        Ok(Work::Child(graph as u64))
    })
}

/// `cuGraphAddKernelNode_v2`.
pub unsafe fn cuGraphAddKernelNode_v2<G: Gpu, const PT: bool>(
    node: *mut CUgraphNode,
    graph: CUgraph,
    dependencies: *const CUgraphNode,
    count: usize,
    params: *const CUDA_KERNEL_NODE_PARAMS,
) -> Result {
    // SAFETY: promised by the caller.
    unsafe {
        let place = place::<G>(node, graph, dependencies, std::ptr::null(), count)?;
        add::<G>(place, kernel::<G>(params, None)?)
    }
}

/// `cuGraphAddKernelNode`, of CUDA 10.
pub unsafe fn cuGraphAddKernelNode<G: Gpu, const PT: bool>(
    node: *mut CUgraphNode,
    graph: CUgraph,
    dependencies: *const CUgraphNode,
    count: usize,
    params: *const c_void,
) -> Result {
    // SAFETY: promised by the caller.
    unsafe {
        let params = widen(params)?;
        cuGraphAddKernelNode_v2::<G, PT>(node, graph, dependencies, count, &params)
    }
}

/// `cuGraphKernelNodeGetParams_v2`: the returned pointers are valid until the node changes or is destroyed.
pub unsafe fn cuGraphKernelNodeGetParams_v2<G: Gpu, const PT: bool>(
    node: CUgraphNode,
    params: *mut CUDA_KERNEL_NODE_PARAMS,
) -> Result {
    // SAFETY: promised by the caller.
    unsafe { set(params, kernel_of::<G>(node)?.to_abi()) }
}

/// `cuGraphKernelNodeGetParams`, of CUDA 10.
pub unsafe fn cuGraphKernelNodeGetParams<G: Gpu, const PT: bool>(
    node: CUgraphNode,
    params: *mut c_void,
) -> Result {
    let all = kernel_of::<G>(node)?.to_abi();
    // SAFETY: promised by the caller; the older structure is the first part of today's.
    unsafe {
        set(
            params.cast(),
            *(&raw const all).cast::<CUDA_KERNEL_NODE_PARAMS_v1>(),
        )
    }
}

/// `cuGraphKernelNodeSetParams_v2`.
pub unsafe fn cuGraphKernelNodeSetParams_v2<G: Gpu, const PT: bool>(
    node: CUgraphNode,
    params: *const CUDA_KERNEL_NODE_PARAMS,
) -> Result {
    let before = kernel_of::<G>(node)?;
    // SAFETY: promised by the caller. The node owns the memory of its parameters until they have been read.
    replace::<G>(node, unsafe { kernel::<G>(params, Some(&before)) }?)
}

/// `cuGraphKernelNodeSetParams`, of CUDA 10.
pub unsafe fn cuGraphKernelNodeSetParams<G: Gpu, const PT: bool>(
    node: CUgraphNode,
    params: *const c_void,
) -> Result {
    // SAFETY: promised by the caller.
    unsafe { cuGraphKernelNodeSetParams_v2::<G, PT>(node, &widen(params)?) }
}

/// Whether the launch attribute exists, and nodes can have it. Edges replace the attributes for overlapping launches.
fn is_of_nodes(attribute: u32) -> bool {
    (1..=CU_LAUNCH_ATTRIBUTE_MAX).contains(&attribute)
        && attribute != CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
}

/// `cuGraphKernelNodeGetAttribute`: zero if the attribute is not set.
pub unsafe fn cuGraphKernelNodeGetAttribute<G: Gpu, const PT: bool>(
    node: CUgraphNode,
    attribute: u32,
    value: *mut c_void,
) -> Result {
    let kernel = kernel_of::<G>(node)?;
    if !is_of_nodes(attribute) {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    let nothing = CUlaunchAttributeValue { pad: [0; 64] };
    // SAFETY: promised by the caller.
    unsafe { set(value.cast(), kernel.attribute(attribute).unwrap_or(nothing)) }
}

/// `cuGraphKernelNodeSetAttribute`.
pub unsafe fn cuGraphKernelNodeSetAttribute<G: Gpu, const PT: bool>(
    node: CUgraphNode,
    attribute: u32,
    value: *const c_void,
) -> Result {
    let kernel = kernel_of::<G>(node)?;
    if !is_of_nodes(attribute) {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    // SAFETY: promised by the caller.
    let given = value.cast_mut().cast::<CUlaunchAttributeValue>();
    // SAFETY: promised by the caller.
    let value = unsafe { get(given) }?;
    if attribute == CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE {
        let name = match updatable::asks(&value)? {
            true => updatable::mark::<G>(node as u64)?,
            // Kernels can update the launch for the rest of its life.
            false if kernel.device_node.is_some() => return Err(CUDA_ERROR_NOT_SUPPORTED),
            false => 0,
        };
        // SAFETY: promised by the caller: CUDA writes the name to the value.
        return unsafe { set(given, updatable::value(name)) };
    }
    let mut attributes = kernel.attributes.clone();
    attributes.retain(|of| of.id != attribute);
    attributes.push(CUlaunchAttribute {
        id: attribute,
        pad: [0; 4],
        value,
    });
    let kernel = kernel.with_attributes(attributes);
    G::check_kernel(&kernel)?;
    replace::<G>(node, Work::Kernel(Arc::new(kernel)))
}

/// `cuGraphKernelNodeCopyAttributes`.
pub unsafe fn cuGraphKernelNodeCopyAttributes<G: Gpu, const PT: bool>(
    to: CUgraphNode,
    from: CUgraphNode,
) -> Result {
    let (to_kernel, from) = (kernel_of::<G>(to)?, kernel_of::<G>(from)?);
    if to_kernel.device_node.is_some() || from.device_node.is_some() {
        return Err(CUDA_ERROR_NOT_SUPPORTED);
    }
    let kernel = to_kernel.with_attributes(from.attributes.clone());
    G::check_kernel(&kernel)?;
    replace::<G>(to, Work::Kernel(Arc::new(kernel)))
}

/// `cuGraphAddMemcpyNode`.
pub unsafe fn cuGraphAddMemcpyNode<G: Gpu, const PT: bool>(
    node: *mut CUgraphNode,
    graph: CUgraph,
    dependencies: *const CUgraphNode,
    count: usize,
    params: *const CUDA_MEMCPY3D,
    context: CUcontext,
) -> Result {
    // SAFETY: promised by the caller.
    unsafe {
        let place = place::<G>(node, graph, dependencies, std::ptr::null(), count)?;
        add::<G>(place, copy::<G>(params, context_of::<G>(context)?)?)
    }
}

/// `cuGraphMemcpyNodeGetParams`.
pub unsafe fn cuGraphMemcpyNodeGetParams<G: Gpu, const PT: bool>(
    node: CUgraphNode,
    params: *mut CUDA_MEMCPY3D,
) -> Result {
    let Work::Copy(copy) = work::<G>(node)? else {
        return Err(CUDA_ERROR_INVALID_VALUE);
    };
    // SAFETY: promised by the caller.
    unsafe { set(params, copy.given) }
}

/// `cuGraphMemcpyNodeSetParams`.
pub unsafe fn cuGraphMemcpyNodeSetParams<G: Gpu, const PT: bool>(
    node: CUgraphNode,
    params: *const CUDA_MEMCPY3D,
) -> Result {
    let Work::Copy(before) = work::<G>(node)? else {
        return Err(CUDA_ERROR_INVALID_VALUE);
    };
    // SAFETY: promised by the caller.
    replace::<G>(node, unsafe { copy::<G>(params, before.context) }?)
}

/// `cuGraphAddMemsetNode`.
pub unsafe fn cuGraphAddMemsetNode<G: Gpu, const PT: bool>(
    node: *mut CUgraphNode,
    graph: CUgraph,
    dependencies: *const CUgraphNode,
    count: usize,
    params: *const c_void,
    context: CUcontext,
) -> Result {
    // SAFETY: promised by the caller.
    unsafe {
        let place = place::<G>(node, graph, dependencies, std::ptr::null(), count)?;
        add::<G>(place, fill::<G>(params, context_of::<G>(context)?)?)
    }
}

/// `cuGraphMemsetNodeGetParams`.
pub unsafe fn cuGraphMemsetNodeGetParams<G: Gpu, const PT: bool>(
    node: CUgraphNode,
    params: *mut c_void,
) -> Result {
    let Work::Fill(fill) = work::<G>(node)? else {
        return Err(CUDA_ERROR_INVALID_VALUE);
    };
    // SAFETY: promised by the caller.
    unsafe { set(params.cast(), fill.given) }
}

/// `cuGraphMemsetNodeSetParams`.
pub unsafe fn cuGraphMemsetNodeSetParams<G: Gpu, const PT: bool>(
    node: CUgraphNode,
    params: *const c_void,
) -> Result {
    let Work::Fill(before) = work::<G>(node)? else {
        return Err(CUDA_ERROR_INVALID_VALUE);
    };
    // SAFETY: promised by the caller.
    replace::<G>(node, unsafe { fill::<G>(params, before.context) }?)
}

/// `cuGraphAddBatchMemOpNode`.
pub unsafe fn cuGraphAddBatchMemOpNode<G: Gpu, const PT: bool>(
    node: *mut CUgraphNode,
    graph: CUgraph,
    dependencies: *const CUgraphNode,
    count: usize,
    params: *const c_void,
) -> Result {
    // SAFETY: promised by the caller.
    unsafe {
        let place = place::<G>(node, graph, dependencies, std::ptr::null(), count)?;
        add::<G>(place, mem_ops::<G>(params)?)
    }
}

/// `cuGraphBatchMemOpNodeGetParams`: the operations belong to the node, and are valid until it changes.
pub unsafe fn cuGraphBatchMemOpNodeGetParams<G: Gpu, const PT: bool>(
    node: CUgraphNode,
    params: *mut c_void,
) -> Result {
    let Work::MemOps(ops) = work::<G>(node)? else {
        return Err(CUDA_ERROR_INVALID_VALUE);
    };
    // SAFETY: promised by the caller.
    unsafe { set(params.cast(), ops.to_abi()) }
}

/// `cuGraphBatchMemOpNodeSetParams`.
pub unsafe fn cuGraphBatchMemOpNodeSetParams<G: Gpu, const PT: bool>(
    node: CUgraphNode,
    params: *const c_void,
) -> Result {
    let Work::MemOps(_) = work::<G>(node)? else {
        return Err(CUDA_ERROR_INVALID_VALUE);
    };
    // SAFETY: promised by the caller.
    replace::<G>(node, unsafe { mem_ops::<G>(params) }?)
}

/// `cuGraphAddHostNode`.
pub unsafe fn cuGraphAddHostNode<G: Gpu, const PT: bool>(
    node: *mut CUgraphNode,
    graph: CUgraph,
    dependencies: *const CUgraphNode,
    count: usize,
    params: *const c_void,
) -> Result {
    // SAFETY: promised by the caller.
    unsafe {
        let place = place::<G>(node, graph, dependencies, std::ptr::null(), count)?;
        add::<G>(place, host(params)?)
    }
}

/// `cuGraphHostNodeGetParams`.
pub unsafe fn cuGraphHostNodeGetParams<G: Gpu, const PT: bool>(
    node: CUgraphNode,
    params: *mut c_void,
) -> Result {
    let Work::Host(host) = work::<G>(node)? else {
        return Err(CUDA_ERROR_INVALID_VALUE);
    };
    // SAFETY: promised by the caller.
    unsafe { set(params.cast(), host.0) }
}

/// `cuGraphHostNodeSetParams`.
pub unsafe fn cuGraphHostNodeSetParams<G: Gpu, const PT: bool>(
    node: CUgraphNode,
    params: *const c_void,
) -> Result {
    G::ready()?;
    // SAFETY: promised by the caller.
    replace::<G>(node, unsafe { host(params) }?)
}

/// `cuGraphAddChildGraphNode`: the node has a clone of the graph.
pub unsafe fn cuGraphAddChildGraphNode<G: Gpu, const PT: bool>(
    node: *mut CUgraphNode,
    graph: CUgraph,
    dependencies: *const CUgraphNode,
    count: usize,
    of: CUgraph,
) -> Result {
    // SAFETY: promised by the caller.
    unsafe {
        let place = place::<G>(node, graph, dependencies, std::ptr::null(), count)?;
        let work = child::<G>(of)?;
        let Work::Child(clone) = work else {
            return Err(CUDA_ERROR_UNKNOWN);
        };
        add::<G>(place, work).inspect_err(|_| G::store().with(|inner| inner.forget_graph(clone)))
    }
}

/// `cuGraphChildGraphNodeGetGraph`: the node's own graph.
pub unsafe fn cuGraphChildGraphNodeGetGraph<G: Gpu, const PT: bool>(
    node: CUgraphNode,
    to: *mut CUgraph,
) -> Result {
    match work::<G>(node)? {
        // SAFETY: promised by the caller.
        Work::Child(graph) => unsafe { set(to, graph as CUgraph) },
        Work::Own(_) => Err(CUDA_ERROR_NOT_SUPPORTED),
        _ => Err(CUDA_ERROR_INVALID_VALUE),
    }
}

/// `cuGraphAddEmptyNode`.
pub unsafe fn cuGraphAddEmptyNode<G: Gpu, const PT: bool>(
    node: *mut CUgraphNode,
    graph: CUgraph,
    dependencies: *const CUgraphNode,
    count: usize,
) -> Result {
    // SAFETY: promised by the caller.
    unsafe {
        let place = place::<G>(node, graph, dependencies, std::ptr::null(), count)?;
        add::<G>(place, Work::Empty)
    }
}

macro_rules! events {
    ($($add:ident $get:ident $set:ident $work:ident;)*) => {$(
        #[doc = concat!("`", stringify!($add), "`.")]
        pub unsafe fn $add<G: Gpu, const PT: bool>(
            node: *mut CUgraphNode,
            graph: CUgraph,
            dependencies: *const CUgraphNode,
            count: usize,
            event: CUevent,
        ) -> Result {
            // SAFETY: promised by the caller.
            unsafe {
                let place = place::<G>(node, graph, dependencies, std::ptr::null(), count)?;
                G::check_event(event as u64)?;
                add::<G>(place, Work::$work(event as u64))
            }
        }

        #[doc = concat!("`", stringify!($get), "`.")]
        pub unsafe fn $get<G: Gpu, const PT: bool>(node: CUgraphNode, to: *mut CUevent) -> Result {
            let Work::$work(event) = work::<G>(node)? else {
                return Err(CUDA_ERROR_INVALID_VALUE);
            };
            // SAFETY: promised by the caller.
            unsafe { set(to, event as CUevent) }
        }

        #[doc = concat!("`", stringify!($set), "`.")]
        pub unsafe fn $set<G: Gpu, const PT: bool>(node: CUgraphNode, event: CUevent) -> Result {
            G::ready()?;
            G::check_event(event as u64)?;
            replace::<G>(node, Work::$work(event as u64))
        }
    )*};
}

events! {
    cuGraphAddEventRecordNode cuGraphEventRecordNodeGetEvent cuGraphEventRecordNodeSetEvent Record;
    cuGraphAddEventWaitNode cuGraphEventWaitNodeGetEvent cuGraphEventWaitNodeSetEvent Wait;
}
