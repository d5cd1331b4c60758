// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Launches of graphs that kernels update. Their nodes exist on the host before the graph.

use std::sync::Arc;

use gpgpu_graphs::{
    node::Kernel,
    updatable::{DeviceNode, Shared},
};
use gpgpu_locks::Mutex;
use gpgpu_protocol::{
    api::{GraphNodes, Request, request},
    cuda::CUDA_ERROR_INVALID_VALUE,
};

use super::{
    executable::{Contexts, end},
    launch_step,
};
use crate::{client::Client, ffi::Result};

/// The host's nodes of a graph, until this is dropped.
pub struct Nodes {
    id: u64,
    /// Their contexts. The host ends all nodes with the first of these.
    contexts: Mutex<Contexts>,
}

impl Drop for Nodes {
    fn drop(&mut self) {
        let nodes = self.id;
        end(
            &self.contexts.lock(),
            &request::gpgpuGraphNodesForget { nodes },
        );
    }
}

/// One of them.
struct Node {
    nodes: Arc<Nodes>,
    number: u32,
}

impl Nodes {
    /// The nodes of a new graph.
    ///
    /// # Errors
    ///
    /// `CUDA_ERROR_NOT_SUPPORTED` if the host is too old.
    pub fn shared(client: &Client) -> Result<Shared> {
        client.require(request::gpgpuGraphNodes::OPERATION)?;
        let nodes = client.new_id::<GraphNodes>();
        client.call(&request::gpgpuGraphNodes { nodes })?;
        Ok(Arc::new(Self {
            id: nodes,
            contexts: Mutex::new(Contexts::new()),
        }))
    }
}

/// Adds the node of a launch.
///
/// # Errors
///
/// Those of the host.
pub fn add(client: &Client, nodes: &Shared, kernel: &Kernel) -> Result<DeviceNode> {
    let nodes = Arc::clone(nodes).downcast::<Nodes>();
    let nodes = nodes.map_err(|_| CUDA_ERROR_INVALID_VALUE)?;
    let reply = client.call(&request::gpgpuGraphNode {
        nodes: nodes.id,
        step: launch_step(kernel)?,
        node: true,
        name: true,
    })?;
    let mut contexts = nodes.contexts.lock();
    if !contexts.contains(&kernel.context) {
        contexts.push(kernel.context);
    }
    drop(contexts);
    let number = reply.node;
    Ok(DeviceNode {
        name: reply.name,
        of: Some(Arc::new(Node { nodes, number })),
    })
}

/// The numbers of a launch's step, which name its node if kernels update it.
///
/// # Errors
///
/// `CUDA_ERROR_INVALID_VALUE` if the host does not have its node.
pub fn numbers_of(kernel: &Kernel) -> Result<Vec<u64>> {
    let Some((_, of)) = kernel.driver_node() else {
        return Ok(Vec::new());
    };
    let node = of.downcast_ref::<Node>();
    let node = node.ok_or(CUDA_ERROR_INVALID_VALUE)?;
    Ok(vec![node.nodes.id, node.number.into()])
}
