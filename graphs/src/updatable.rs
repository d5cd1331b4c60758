// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Launches of graphs that kernels update (`CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE`).
//!
//! A program gets the name of such a node when it sets the attribute, and passes it to a kernel. Only the driver can
//! create the name, together with a node of its own. So the driver has nodes of a graph before it has the graph. Such a
//! node is permanent: the program can neither destroy it nor remove the attribute. The graph cannot be cloned, and has
//! one executable graph at a time. The results are those of NVIDIA's driver (580), except for bodies of conditional
//! nodes, and for clones and executable graphs of graphs whose child graphs have such nodes.

use std::{any::Any, sync::Arc};

use gpgpu_locks::Mutex;
use gpgpu_protocol::cuda::*;

use crate::{
    Gpu, Result,
    node::{Kernel, Work},
    store::Inner,
};

/// A driver's own data.
pub type Shared = Arc<dyn Any + Send + Sync>;

/// The driver's part of a node.
#[derive(Clone)]
pub struct DeviceNode {
    /// Its name for kernels.
    pub name: u64,
    /// The driver's node. A clone has none: kernels use the name to update the original.
    pub of: Option<Shared>,
}

/// The driver's nodes of a graph.
#[derive(Clone)]
pub(crate) struct DeviceNodes(Shared);

impl std::fmt::Debug for DeviceNodes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("DeviceNodes")
    }
}

/// The attribute's value for a node with this name; 0 for a node that kernels do not update.
pub fn value(name: u64) -> CUlaunchAttributeValue {
    let is_updatable = u64::from(name != 0);
    CUlaunchAttributeValue {
        words: [is_updatable, name, 0, 0, 0, 0, 0, 0],
    }
}

/// Whether the attribute's value asks for a node that kernels update.
///
/// # Errors
///
/// `CUDA_ERROR_INVALID_VALUE` for a number that is neither 0 nor 1, and if the value already has a name.
pub fn asks(value: &CUlaunchAttributeValue) -> Result<bool> {
    // SAFETY: every bit pattern of the union's 64 bytes is one of its words.
    let [is_updatable, name, ..] = unsafe { value.words };
    match (is_updatable as u32, name) {
        (0, 0) => Ok(false),
        (1, 0) => Ok(true),
        _ => Err(CUDA_ERROR_INVALID_VALUE),
    }
}

impl<G: Gpu> Inner<G> {
    /// The graph that keeps the driver's nodes for a graph's launches: the outermost one, which is made executable.
    ///
    /// # Errors
    ///
    /// `CUDA_ERROR_NOT_SUPPORTED` for the body of a conditional node, and graphs inside it.
    fn whole(&mut self, graph: u64) -> Result<u64> {
        self.outermost(graph, |node| matches!(node, Work::Child(_)))
    }

    /// Whether kernels update launches of a graph or of its child graphs.
    pub(crate) fn is_updatable(&self, graph: u64) -> bool {
        let of = self.graphs.get(&graph);
        let is = |node: &u64| match &self.nodes[node].work {
            Work::Child(child) => self.is_updatable(*child),
            work => is_updatable(work),
        };
        of.is_some_and(|of| of.nodes.iter().any(is))
    }

    /// Whether kernels update launches of the graph itself.
    pub(crate) fn has_updatable(&self, graph: u64) -> bool {
        let of = self.graphs.get(&graph);
        of.is_some_and(|of| {
            of.nodes
                .iter()
                .any(|node| is_updatable(&self.nodes[node].work))
        })
    }

    /// Records that a graph has become a child of another: the driver's nodes of both belong to one executable graph.
    ///
    /// # Errors
    ///
    /// `CUDA_ERROR_NOT_SUPPORTED` if both have such nodes; the errors of [`Inner::whole`].
    pub(crate) fn join_device_nodes(&mut self, graph: u64, child: u64) -> Result {
        let Some(of_child) = self.graph(child)?.device_nodes.clone() else {
            return Ok(());
        };
        let whole = self.whole(graph)?;
        let of_whole = &mut self.graph(whole)?.device_nodes;
        if of_whole.is_some() {
            return Err(CUDA_ERROR_NOT_SUPPORTED);
        }
        *of_whole = Some(of_child);
        self.graph(child)?.device_nodes = None;
        Ok(())
    }

    fn launch_of(&mut self, node: u64) -> Result<(u64, Arc<Kernel>)> {
        let node = self.node(node)?;
        match &node.work {
            Work::Kernel(kernel) => Ok((node.graph, Arc::clone(kernel))),
            _ => Err(CUDA_ERROR_INVALID_VALUE),
        }
    }
}

/// Makes a launch one that kernels update, and returns its name for kernels.
///
/// # Errors
///
/// `CUDA_ERROR_INVALID_VALUE` if it is no launch; `CUDA_ERROR_NOT_SUPPORTED` in the body of a conditional node; the
/// driver's errors.
pub fn mark<G: Gpu>(node: u64) -> Result<u64> {
    /// Serialises the creation of a graph's set of driver nodes.
    static ALONE: Mutex<()> = Mutex::new(());
    let _alone = ALONE.lock();
    let (whole, kernel, nodes) = G::store().with(|inner| -> Result<_> {
        let (graph, kernel) = inner.launch_of(node)?;
        let whole = inner.whole(graph)?;
        let nodes = inner.graph(whole)?.device_nodes.clone();
        Ok((whole, kernel, nodes))
    })?;
    if let Some(made) = &kernel.device_node {
        return Ok(made.name);
    }
    let nodes = match nodes {
        Some(DeviceNodes(nodes)) => nodes,
        None => G::device_nodes()?,
    };
    let made = G::device_node(&nodes, &kernel)?;
    let name = made.name;
    // They may be dropped below, which may wait, and must not happen while the store is locked.
    let _kept = (nodes.clone(), made.clone());
    // Another thread may have changed or destroyed the launch meanwhile: the graph cannot be made executable then.
    G::store().with(|inner| {
        inner.graph(whole)?.device_nodes = Some(DeviceNodes(nodes));
        let (_, kernel) = inner.launch_of(node)?;
        let marked = kernel.with_device_node(made);
        inner.node(node)?.work = Work::Kernel(Arc::new(marked));
        inner.discard(kernel);
        Ok(name)
    })
}

/// Whether kernels update a node.
pub(crate) fn is_updatable(work: &Work) -> bool {
    matches!(work, Work::Kernel(kernel) if kernel.driver_node().is_some())
}
