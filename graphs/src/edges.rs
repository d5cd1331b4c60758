// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The edges of graphs: which ones are possible, and the order of nodes that they define.

use std::collections::{HashSet, VecDeque};

use foldhash::fast::RandomState;
use gpgpu_protocol::cuda::*;

use crate::{
    Gpu, Result,
    abi::CUgraphEdgeData,
    node::Work,
    store::{Edge, Inner, Map},
};

impl<G: Gpu> Inner<G> {
    /// Checks edges from nodes of a graph: each node must belong to the graph, and none may occur twice.
    pub(crate) fn check_edges(&mut self, graph: u64, edges: &[Edge]) -> Result {
        for (node, _) in edges {
            if self.node(*node)?.graph != graph {
                return Err(CUDA_ERROR_INVALID_VALUE);
            }
        }
        if edges.len() > 1 {
            let ends = edges.iter();
            let ends = ends.map(|(node, data)| (*node, data.from_port, data.to_port));
            let different: HashSet<_, RandomState> = ends.collect();
            if different.len() != edges.len() {
                return Err(CUDA_ERROR_INVALID_VALUE);
            }
        }
        Ok(())
    }

    /// These nodes and all that they depend on.
    pub fn ancestors(&self, of: &[u64]) -> HashSet<u64, RandomState> {
        self.before(of, |_| true, |_| false)
    }

    /// These nodes and all that have ended when these have. Nodes before an edge that waits for a part are not
    /// included.
    pub fn ended_with(&self, of: &[u64]) -> HashSet<u64, RandomState> {
        self.before(of, CUgraphEdgeData::is_whole, |_| false)
    }

    /// Follows edges back from these nodes until `is_enough` is true for one.
    pub(crate) fn before(
        &self,
        of: &[u64],
        follows: impl Fn(&CUgraphEdgeData) -> bool,
        mut is_enough: impl FnMut(u64) -> bool,
    ) -> HashSet<u64, RandomState> {
        let mut seen: HashSet<u64, _> = of.iter().copied().collect();
        let mut next: Vec<u64> = of.to_vec();
        while let Some(node) = next.pop() {
            if is_enough(node) {
                break;
            }
            let Some(node) = self.nodes.get(&node) else {
                continue;
            };
            for (before, edge) in &node.dependencies {
                if follows(edge) && seen.insert(*before) {
                    next.push(*before);
                }
            }
        }
        seen
    }

    /// Adds edges to a graph; none of them if one is invalid. They may form a cycle: then the graph cannot be
    /// instantiated.
    pub fn connect(&mut self, graph: u64, edges: &[(u64, u64, CUgraphEdgeData)]) -> Result {
        self.graph(graph)?;
        let mut done = Vec::new();
        let mut outcome = Ok(());
        for &(from, to, data) in edges {
            let is_good = self.node(from)?.graph == graph && self.node(to)?.graph == graph;
            let is_known = self
                .node(to)?
                .dependencies
                .iter()
                .any(|(of, _)| *of == from);
            let is_edge = self.nodes[&from].work.leads(&self.nodes[&to].work, data);
            if !is_good || is_known || from == to || !is_edge {
                outcome = Err(CUDA_ERROR_INVALID_VALUE);
                break;
            }
            self.node(to)?.dependencies.push((from, data));
            self.node(from)?.dependents.push((to, data));
            done.push((from, to));
        }
        if outcome.is_err() {
            for (from, to) in done {
                self.cut(from, to);
            }
        }
        outcome
    }

    /// Removes the edges from one node to another.
    pub(crate) fn cut(&mut self, from: u64, to: u64) {
        if let Some(node) = self.nodes.get_mut(&to) {
            node.dependencies.retain(|(of, _)| *of != from);
        }
        if let Some(node) = self.nodes.get_mut(&from) {
            node.dependents.retain(|(of, _)| *of != to);
        }
    }

    /// Removes edges of a graph; none of them if one does not exist. An edge that is described as waiting for the whole
    /// node also does not exist if it waits for a part.
    ///
    /// # Errors
    ///
    /// `CUDA_ERROR_INVALID_VALUE`; `CUDA_ERROR_NOT_SUPPORTED` in a graph with memory.
    pub fn disconnect(&mut self, graph: u64, edges: &[(u64, u64, CUgraphEdgeData)]) -> Result {
        if self.graph(graph)?.has_memory {
            return Err(CUDA_ERROR_NOT_SUPPORTED);
        }
        for &(from, to, data) in edges {
            let node = self.node(to)?;
            let is_it = |(of, edge): &Edge| *of == from && (*edge == data || data.is_whole());
            if node.graph != graph || !node.dependencies.iter().any(is_it) {
                return Err(CUDA_ERROR_INVALID_VALUE);
            }
        }
        for &(from, to, _) in edges {
            self.cut(from, to);
        }
        Ok(())
    }

    /// Whether dependencies form a cycle, in a graph or in one of its child graphs.
    pub fn has_circle(&self, graph: u64) -> bool {
        let Some(of) = self.graphs.get(&graph) else {
            return false;
        };
        let mut within = of
            .nodes
            .iter()
            .flat_map(|node| match &self.nodes[node].work {
                Work::Child(child) => vec![*child],
                Work::Conditional(of) => of.bodies.to_vec(),
                _ => Vec::new(),
            });
        self.ordered(graph).is_err() || within.any(|inner| self.has_circle(inner))
    }

    /// A graph's nodes in topological order.
    ///
    /// # Errors
    ///
    /// `CUDA_ERROR_INVALID_VALUE` if dependencies form a cycle.
    pub fn ordered(&self, graph: u64) -> Result<Vec<u64>> {
        let graph = self.graphs.get(&graph).ok_or(CUDA_ERROR_INVALID_VALUE)?;
        // Usually nodes are created in such an order.
        let follows = |handle: &u64| {
            let node = &self.nodes[handle];
            let mut before = node.dependencies.iter();
            before.all(|(of, _)| self.nodes[of].number < node.number)
        };
        if graph.nodes.iter().all(follows) {
            return Ok(graph.nodes.clone());
        }
        let mut missing = Map::with_capacity_and_hasher(graph.nodes.len(), RandomState::default());
        let mut ready = VecDeque::new();
        for handle in &graph.nodes {
            let count = self.nodes[handle].dependencies.len();
            missing.insert(*handle, count);
            if count == 0 {
                ready.push_back(*handle);
            }
        }
        let mut ordered = Vec::with_capacity(graph.nodes.len());
        while let Some(handle) = ready.pop_front() {
            ordered.push(handle);
            for (to, _) in &self.nodes[&handle].dependents {
                if let Some(count) = missing.get_mut(to) {
                    *count -= 1;
                    if *count == 0 {
                        ready.push_back(*to);
                    }
                }
            }
        }
        if ordered.len() < graph.nodes.len() {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        Ok(ordered)
    }
}
