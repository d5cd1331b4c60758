// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Conditional nodes: whether their bodies are executed depends on a value that kernels set.
//!
//! A value belongs to a graph, which numbers its values from 1. A kernel takes the number as a parameter and uses it to
//! set the value. So the driver that executes the graph must assign the same numbers. NVIDIA's driver (580) numbers the
//! values of a graph and of all bodies in it together, in the order of their creation, and so does this module.

use gpgpu_protocol::cuda::*;

use crate::{
    Gpu, Result,
    exec::Step,
    node::Work,
    store::{Edge, Inner},
};

/// `CU_GRAPH_COND_ASSIGN_DEFAULT`: each launch starts with the default.
pub const ASSIGN_DEFAULT: u32 = 1;

/// `CUgraphConditionalNodeType`.
pub mod kind {
    /// One body, and optionally another one for zero.
    pub const IF: u32 = 0;
    /// One body, which is repeated.
    pub const WHILE: u32 = 1;
    /// One of several bodies.
    pub const SWITCH: u32 = 2;
}

/// The most bodies of a node.
const MOST_BODIES: u32 = 1 << 16;

/// A value that a node depends on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Condition {
    /// The handle of its context.
    pub context: u64,
    /// Its value at the start of a launch, if the flags say so.
    pub default: u32,
    /// [`ASSIGN_DEFAULT`] or nothing.
    pub flags: u32,
    /// The node that depends on it.
    pub node: Option<u64>,
}

/// A node that depends on a value.
#[derive(Debug, PartialEq, Eq)]
pub struct Conditional {
    /// The number of the value.
    pub condition: u64,
    /// See [`kind`].
    pub kind: u32,
    /// The handle of its context.
    pub context: u64,
    /// The graphs' handles. Programs get the address of the first.
    pub bodies: Box<[u64]>,
}

impl Conditional {
    /// The body that is executed for a value, if any.
    pub fn chosen(&self, value: u32) -> Option<usize> {
        let index = match (self.kind, value) {
            (kind::SWITCH, value) => value as usize,
            (kind::IF, 0) => 1,
            (_, 0) => return None,
            _ => 0,
        };
        (index < self.bodies.len()).then_some(index)
    }
}

/// Whether a node of this type can have this number of bodies.
fn has_bodies(of: u32, count: u32) -> bool {
    match of {
        kind::IF => matches!(count, 1 | 2),
        kind::WHILE => count == 1,
        kind::SWITCH => count > 0,
        _ => false,
    }
}

impl<G: Gpu> Inner<G> {
    /// The graph that contains this graph at the outermost level.
    ///
    /// # Errors
    ///
    /// `CUDA_ERROR_NOT_SUPPORTED` if `may_have` is false for one of the nodes in between.
    pub(crate) fn outermost(
        &mut self,
        graph: u64,
        may_have: impl Fn(&Work) -> bool,
    ) -> Result<u64> {
        let mut at = graph;
        while let Some(owner) = self.graph(at)?.owner {
            let owner = self.node(owner)?;
            if !may_have(&owner.work) {
                return Err(CUDA_ERROR_NOT_SUPPORTED);
            }
            at = owner.graph;
        }
        Ok(at)
    }

    /// The same for a graph with values.
    ///
    /// # Errors
    ///
    /// `CUDA_ERROR_NOT_SUPPORTED` for the graph of a child graph node, and graphs inside it.
    fn root(&mut self, graph: u64) -> Result<u64> {
        self.outermost(graph, |node| !matches!(node, Work::Child(_)))
    }

    /// Adds a value for nodes of a graph and of all graphs that contain it. Returns its number.
    ///
    /// # Errors
    ///
    /// The errors of [`Inner::root`].
    pub fn add_condition(&mut self, graph: u64, condition: Condition) -> Result<u64> {
        let root = self.root(graph)?;
        let conditions = &mut self.graph(root)?.conditions;
        conditions.push(condition);
        Ok(conditions.len() as u64)
    }

    /// Adds a node that depends on the value with this number, with empty bodies.
    ///
    /// # Errors
    ///
    /// `CUDA_ERROR_INVALID_VALUE` if there is no such value, if another node depends on it, if the type is invalid, and
    /// if it cannot have this number of bodies; the errors of [`Inner::root`].
    pub fn add_conditional(
        &mut self,
        graph: u64,
        dependencies: &[Edge],
        (condition, context): (u64, u64),
        (of, count): (u32, u32),
    ) -> Result<(u64, *const u64)> {
        let root = self.root(graph)?;
        let conditions = &self.graph(root)?.conditions;
        let index = usize::try_from(condition)
            .ok()
            .and_then(|number| number.checked_sub(1));
        let found = index.and_then(|index| conditions.get(index));
        if found.is_none_or(|found| found.node.is_some()) || !has_bodies(of, count) {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        if count > MOST_BODIES {
            return Err(CUDA_ERROR_OUT_OF_MEMORY);
        }
        let bodies: Box<[u64]> = (0..count).map(|_| self.create()).collect();
        let made = std::sync::Arc::new(Conditional {
            condition,
            kind: of,
            context,
            bodies,
        });
        let added = self.add(graph, dependencies, Work::Conditional(made.clone()));
        let node = added.inspect_err(|_| {
            for body in &made.bodies {
                self.forget_graph(*body);
            }
        })?;
        for body in &made.bodies {
            self.graph(*body)?.owner = Some(node);
        }
        let index = index.ok_or(CUDA_ERROR_INVALID_VALUE)?;
        self.graph(root)?.conditions[index].node = Some(node);
        Ok((node, made.bodies.as_ptr()))
    }

    /// Releases the value of a destroyed node, so that another node may depend on it.
    pub(crate) fn free_condition(&mut self, graph: u64, node: u64) {
        let Ok(root) = self.root(graph) else { return };
        let Ok(root) = self.graph(root) else { return };
        for condition in &mut root.conditions {
            if condition.node == Some(node) {
                condition.node = None;
            }
        }
    }

    /// Whether a graph has values, or conditional nodes.
    ///
    /// # Errors
    ///
    /// `CUDA_ERROR_INVALID_VALUE` if there is no such graph.
    pub fn is_conditional(&mut self, graph: u64) -> Result<bool> {
        let of = self.graph(graph)?;
        if !of.conditions.is_empty() {
            return Ok(true);
        }
        let nodes = of.nodes.clone();
        let is = |node: &u64| {
            let node = self.nodes.get(node);
            node.is_some_and(|node| matches!(node.work, Work::Conditional(_)))
        };
        Ok(nodes.iter().any(is))
    }

    /// Checks that the values and the memory of a graph permit its instantiation now.
    ///
    /// # Errors
    ///
    /// `CUDA_ERROR_INVALID_VALUE` if no node depends on one of the values; `CUDA_ERROR_NOT_SUPPORTED` if the graph has
    /// values, memory or launches that kernels update, and already has an executable graph.
    pub(crate) fn check_instantiable(&mut self, graph: u64) -> Result {
        let of = self.graph(graph)?;
        if of.conditions.iter().any(|of| of.node.is_none()) {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let is_alone = !of.conditions.is_empty() || of.has_memory || of.device_nodes.is_some();
        let exec = of.exec.filter(|_| is_alone);
        if exec.is_some_and(|exec| self.execs.contains_key(&exec)) {
            return Err(CUDA_ERROR_NOT_SUPPORTED);
        }
        Ok(())
    }
}

/// Checks that bodies have only steps that a body can have: launches, fills and copies of memory that the GPU can
/// access, and further bodies. Also checks that the values of all conditional steps belong to the list: those of a body
/// that is instantiated by itself belong to its graph.
///
/// # Errors
///
/// `CUDA_ERROR_INVALID_VALUE` if a check fails.
pub fn check_bodies<G: Gpu>(steps: &[Step]) -> Result {
    let (mut depth, mut values) = (0_usize, 0);
    for step in steps {
        match &step.work {
            Work::Condition(_) => values += 1,
            Work::Conditional(of) if of.condition > values => {
                return Err(CUDA_ERROR_INVALID_VALUE);
            }
            Work::Conditional(_) => depth += 1,
            Work::EndBodies => depth -= 1,
            Work::Copy(copy) if depth > 0 && G::is_near(copy)? => {
                return Err(CUDA_ERROR_INVALID_VALUE);
            }
            Work::Host(_)
            | Work::MemOps(_)
            | Work::Record(_)
            | Work::Wait(_)
            | Work::Alloc(_)
            | Work::Free(_)
                if depth > 0 =>
            {
                return Err(CUDA_ERROR_INVALID_VALUE);
            }
            _ => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_chooses_a_body_by_the_nodes_type() {
        let chosen = |kind: u32, count: u64, value: u32| {
            let of = Conditional {
                condition: 1,
                kind,
                context: 7,
                bodies: (0..count).collect(),
            };
            of.chosen(value)
        };
        assert_eq!(
            [0, 1, 9].map(|value| chosen(kind::IF, 1, value)),
            [None, Some(0), Some(0)]
        );
        assert_eq!(
            [0, 1, 9].map(|value| chosen(kind::IF, 2, value)),
            [Some(1), Some(0), Some(0)]
        );
        assert_eq!(
            [0, 9].map(|value| chosen(kind::WHILE, 1, value)),
            [None, Some(0)]
        );
        assert_eq!(
            [0, 2, 3].map(|value| chosen(kind::SWITCH, 3, value)),
            [Some(0), Some(2), None]
        );
        for (kind, count) in [
            (kind::IF, 0),
            (kind::IF, 3),
            (kind::WHILE, 2),
            (kind::SWITCH, 0),
            (3, 1),
        ] {
            assert!(!has_bodies(kind, count), "{kind} {count}");
        }
    }
}
