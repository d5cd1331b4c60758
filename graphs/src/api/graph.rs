// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Creation, clones, queries and destruction of graphs.

use std::ffi::{CStr, c_char, c_void};

use gpgpu_protocol::cuda::*;

use super::{edges, list, required, set};
use crate::{Gpu, Result, abi::*, dot, node::Work};

/// `cuGraphCreate`.
pub unsafe fn cuGraphCreate<G: Gpu, const PT: bool>(graph: *mut CUgraph, flags: u32) -> Result {
    G::ready()?;
    G::has_graphs()?;
    required(graph)?;
    if flags != 0 {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    let handle = G::store().with(|inner| inner.create());
    // SAFETY: promised by the caller.
    unsafe { set(graph, handle as CUgraph) }
}

/// `cuGraphDestroy`: a child graph is destroyed with its node.
pub unsafe fn cuGraphDestroy<G: Gpu, const PT: bool>(graph: CUgraph) -> Result {
    G::ready()?;
    G::store().with(|inner| {
        let of = inner.graph(graph as u64)?;
        if of.owner.is_some() {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        if of.captures {
            return Err(CUDA_ERROR_ILLEGAL_STATE);
        }
        inner.forget_graph(graph as u64);
        Ok(())
    })
}

/// `cuGraphClone`.
pub unsafe fn cuGraphClone<G: Gpu, const PT: bool>(clone: *mut CUgraph, of: CUgraph) -> Result {
    G::ready()?;
    required(clone)?;
    let handle = G::store().with(|inner| {
        let graph = inner.graph(of as u64)?;
        if graph.captures {
            return Err(CUDA_ERROR_ILLEGAL_STATE);
        }
        // The graph's memory has one address, so it can belong to only one graph.
        let has_memory = graph.has_memory;
        if has_memory || inner.has_updatable(of as u64) {
            return Err(CUDA_ERROR_NOT_SUPPORTED);
        }
        inner.clone_graph(of as u64)
    })?;
    // SAFETY: promised by the caller.
    unsafe { set(clone, handle as CUgraph) }
}

/// `cuGraphNodeFindInClone`: also searches child graphs and bodies.
pub unsafe fn cuGraphNodeFindInClone<G: Gpu, const PT: bool>(
    found: *mut CUgraphNode,
    original: CUgraphNode,
    clone: CUgraph,
) -> Result {
    G::ready()?;
    required(found)?;
    let node = G::store().with(|inner| {
        inner.node(original as u64)?;
        let mut graphs = vec![clone as u64];
        while let Some(graph) = graphs.pop() {
            for handle in inner.graph(graph)?.nodes.clone() {
                let node = inner.node(handle)?;
                if node.origin == Some(original as u64) {
                    return Ok(handle);
                }
                if let Work::Child(child) = node.work {
                    graphs.push(child);
                }
            }
        }
        Err(CUDA_ERROR_INVALID_VALUE)
    })?;
    // SAFETY: promised by the caller.
    unsafe { set(found, node as CUgraphNode) }
}

/// `cuGraphNodeGetType`.
pub unsafe fn cuGraphNodeGetType<G: Gpu, const PT: bool>(
    node: CUgraphNode,
    to: *mut u32,
) -> Result {
    G::ready()?;
    let kind = G::store().with(|inner| inner.node(node as u64).map(|of| of.work.kind()))?;
    // SAFETY: promised by the caller.
    unsafe { set(to, kind) }
}

/// `cuGraphNodeGetContainingGraph`: the graph that the node was added to, which can be a body or a child graph.
pub unsafe fn cuGraphNodeGetContainingGraph<G: Gpu, const PT: bool>(
    node: CUgraphNode,
    to: *mut CUgraph,
) -> Result {
    G::ready()?;
    let graph = G::store().with(|inner| inner.node(node as u64).map(|of| of.graph))?;
    // SAFETY: promised by the caller.
    unsafe { set(to, graph as CUgraph) }
}

/// `cuGraphNodeGetLocalId`: the number that [`cuGraphDebugDotPrint`] prints.
pub unsafe fn cuGraphNodeGetLocalId<G: Gpu, const PT: bool>(
    node: CUgraphNode,
    to: *mut u32,
) -> Result {
    G::ready()?;
    let number = G::store().with(|inner| inner.node(node as u64).map(|of| of.number))?;
    // SAFETY: promised by the caller.
    unsafe { set(to, number) }
}

/// `cuGraphNodeGetToolsId`: the graph's id in the upper half, and the node's in the lower.
pub unsafe fn cuGraphNodeGetToolsId<G: Gpu, const PT: bool>(
    node: CUgraphNode,
    to: *mut u64,
) -> Result {
    G::ready()?;
    let id = G::store().with(|inner| -> Result<_> {
        let (graph, number) = inner.node(node as u64).map(|of| (of.graph, of.number))?;
        Ok(u64::from(inner.graph(graph)?.id) << 32 | u64::from(number))
    })?;
    // SAFETY: promised by the caller.
    unsafe { set(to, id) }
}

/// `cuGraphGetId`: the number that [`cuGraphDebugDotPrint`] prints.
pub unsafe fn cuGraphGetId<G: Gpu, const PT: bool>(graph: CUgraph, to: *mut u32) -> Result {
    G::ready()?;
    let id = G::store().with(|inner| inner.graph(graph as u64).map(|of| of.id))?;
    // SAFETY: promised by the caller.
    unsafe { set(to, id) }
}

/// `cuGraphGetNodes`.
pub unsafe fn cuGraphGetNodes<G: Gpu, const PT: bool>(
    graph: CUgraph,
    nodes: *mut CUgraphNode,
    count: *mut usize,
) -> Result {
    G::ready()?;
    let all: Vec<[u64; 1]> = G::store().with(|inner| -> Result<_> {
        let nodes = &inner.graph(graph as u64)?.nodes;
        Ok(nodes.iter().map(|node| [*node]).collect())
    })?;
    // SAFETY: promised by the caller.
    unsafe { list(&all, [nodes], (std::ptr::null_mut(), &[]), count) }
}

/// `cuGraphGetRootNodes`.
pub unsafe fn cuGraphGetRootNodes<G: Gpu, const PT: bool>(
    graph: CUgraph,
    nodes: *mut CUgraphNode,
    count: *mut usize,
) -> Result {
    G::ready()?;
    let all: Vec<[u64; 1]> = G::store().with(|inner| -> Result<_> {
        let nodes = inner.graph(graph as u64)?.nodes.clone();
        let is_root = |node: &u64| inner.node(*node).is_ok_and(|of| of.dependencies.is_empty());
        Ok(nodes
            .into_iter()
            .filter(is_root)
            .map(|node| [node])
            .collect())
    })?;
    // SAFETY: promised by the caller.
    unsafe { list(&all, [nodes], (std::ptr::null_mut(), &[]), count) }
}

/// `cuGraphGetEdges_v2`.
pub unsafe fn cuGraphGetEdges_v2<G: Gpu, const PT: bool>(
    graph: CUgraph,
    from: *mut CUgraphNode,
    to: *mut CUgraphNode,
    data: *mut c_void,
    count: *mut usize,
) -> Result {
    G::ready()?;
    if from.is_null() != to.is_null() {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    let mut all = Vec::new();
    let mut said = Vec::new();
    G::store().with(|inner| -> Result {
        for handle in inner.graph(graph as u64)?.nodes.clone() {
            for (other, data) in &inner.node(handle)?.dependents {
                all.push([handle, *other]);
                said.push(*data);
            }
        }
        Ok(())
    })?;
    // SAFETY: promised by the caller.
    unsafe { list(&all, [from, to], (data.cast(), &said), count) }
}

/// `cuGraphGetEdges`.
pub unsafe fn cuGraphGetEdges<G: Gpu, const PT: bool>(
    graph: CUgraph,
    from: *mut CUgraphNode,
    to: *mut CUgraphNode,
    count: *mut usize,
) -> Result {
    // SAFETY: promised by the caller.
    unsafe { cuGraphGetEdges_v2::<G, PT>(graph, from, to, std::ptr::null_mut(), count) }
}

/// A node's neighbours.
///
/// # Safety
///
/// As [`list`].
unsafe fn neighbours<G: Gpu>(
    node: CUgraphNode,
    is_before: bool,
    to: *mut CUgraphNode,
    data: *mut c_void,
    count: *mut usize,
) -> Result {
    G::ready()?;
    let found = G::store().with(|inner| -> Result<_> {
        let node = inner.node(node as u64)?;
        let found = if is_before {
            &node.dependencies
        } else {
            &node.dependents
        };
        Ok(found.clone())
    })?;
    let (nodes, said): (Vec<[u64; 1]>, Vec<_>) =
        found.into_iter().map(|(node, data)| ([node], data)).unzip();
    // SAFETY: promised by the caller.
    unsafe { list(&nodes, [to], (data.cast(), &said), count) }
}

/// `cuGraphNodeGetDependencies_v2`.
pub unsafe fn cuGraphNodeGetDependencies_v2<G: Gpu, const PT: bool>(
    node: CUgraphNode,
    to: *mut CUgraphNode,
    data: *mut c_void,
    count: *mut usize,
) -> Result {
    // SAFETY: promised by the caller.
    unsafe { neighbours::<G>(node, true, to, data, count) }
}

/// `cuGraphNodeGetDependencies`.
pub unsafe fn cuGraphNodeGetDependencies<G: Gpu, const PT: bool>(
    node: CUgraphNode,
    to: *mut CUgraphNode,
    count: *mut usize,
) -> Result {
    // SAFETY: promised by the caller.
    unsafe { neighbours::<G>(node, true, to, std::ptr::null_mut(), count) }
}

/// `cuGraphNodeGetDependentNodes_v2`.
pub unsafe fn cuGraphNodeGetDependentNodes_v2<G: Gpu, const PT: bool>(
    node: CUgraphNode,
    to: *mut CUgraphNode,
    data: *mut c_void,
    count: *mut usize,
) -> Result {
    // SAFETY: promised by the caller.
    unsafe { neighbours::<G>(node, false, to, data, count) }
}

/// `cuGraphNodeGetDependentNodes`.
pub unsafe fn cuGraphNodeGetDependentNodes<G: Gpu, const PT: bool>(
    node: CUgraphNode,
    to: *mut CUgraphNode,
    count: *mut usize,
) -> Result {
    // SAFETY: promised by the caller.
    unsafe { neighbours::<G>(node, false, to, std::ptr::null_mut(), count) }
}

type Edges = Vec<(u64, u64, CUgraphEdgeData)>;

/// Edges from two arrays of nodes.
///
/// # Safety
///
/// As [`edges`].
unsafe fn pairs<G: Gpu>(
    from: *const CUgraphNode,
    to: *const CUgraphNode,
    data: *const c_void,
    count: usize,
) -> Result<Edges> {
    // SAFETY: promised by the caller.
    let (from, to) = unsafe {
        (
            edges::<G>(from, data.cast(), count)?,
            edges::<G>(to, std::ptr::null(), count)?,
        )
    };
    let pairs = from.into_iter().zip(to);
    Ok(pairs
        .map(|((from, data), (to, _))| (from, to, data))
        .collect())
}

/// `cuGraphAddDependencies_v2`.
pub unsafe fn cuGraphAddDependencies_v2<G: Gpu, const PT: bool>(
    graph: CUgraph,
    from: *const CUgraphNode,
    to: *const CUgraphNode,
    data: *const c_void,
    count: usize,
) -> Result {
    G::ready()?;
    // SAFETY: promised by the caller.
    let edges = unsafe { pairs::<G>(from, to, data, count) }?;
    G::store().with(|inner| inner.connect(graph as u64, &edges))
}

/// `cuGraphAddDependencies`.
pub unsafe fn cuGraphAddDependencies<G: Gpu, const PT: bool>(
    graph: CUgraph,
    from: *const CUgraphNode,
    to: *const CUgraphNode,
    count: usize,
) -> Result {
    // SAFETY: promised by the caller.
    unsafe { cuGraphAddDependencies_v2::<G, PT>(graph, from, to, std::ptr::null(), count) }
}

/// `cuGraphRemoveDependencies_v2`.
pub unsafe fn cuGraphRemoveDependencies_v2<G: Gpu, const PT: bool>(
    graph: CUgraph,
    from: *const CUgraphNode,
    to: *const CUgraphNode,
    data: *const c_void,
    count: usize,
) -> Result {
    G::ready()?;
    // SAFETY: promised by the caller.
    let edges = unsafe { pairs::<G>(from, to, data, count) }?;
    G::store().with(|inner| inner.disconnect(graph as u64, &edges))
}

/// `cuGraphRemoveDependencies`.
pub unsafe fn cuGraphRemoveDependencies<G: Gpu, const PT: bool>(
    graph: CUgraph,
    from: *const CUgraphNode,
    to: *const CUgraphNode,
    count: usize,
) -> Result {
    // SAFETY: promised by the caller.
    unsafe { cuGraphRemoveDependencies_v2::<G, PT>(graph, from, to, std::ptr::null(), count) }
}

/// `cuGraphDestroyNode`.
pub unsafe fn cuGraphDestroyNode<G: Gpu, const PT: bool>(node: CUgraphNode) -> Result {
    G::ready()?;
    G::store().with(|inner| inner.remove_node(node as u64))
}

/// `cuGraphDebugDotPrint`: writes a file in the language of Graphviz.
pub unsafe fn cuGraphDebugDotPrint<G: Gpu, const PT: bool>(
    graph: CUgraph,
    path: *const c_char,
    _flags: u32,
) -> Result {
    G::ready()?;
    required(path)?;
    let text = G::store().with(|inner| dot::print(inner, graph as u64))?;
    // SAFETY: not NULL, so a string by the API's contract.
    let path = unsafe { CStr::from_ptr(path) };
    use std::os::unix::ffi::OsStrExt;
    let path = std::ffi::OsStr::from_bytes(path.to_bytes());
    std::fs::write(path, text).map_err(|_| CUDA_ERROR_OPERATING_SYSTEM)
}
