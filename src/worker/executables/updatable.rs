// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Launches of graphs that kernels update (`CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE`).
//!
//! The driver assigns the name of such a launch when it makes the node, and the program needs the name before the graph
//! is complete. So the driver's graph is made before the client's list of steps, with only the nodes of such launches.
//! An executable graph is made from it. When that ends, all other nodes and the edges are removed, and the next list
//! begins with the same nodes.

use std::{
    collections::{BTreeSet, HashSet},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use gpgpu_graphs::abi::CUgraphEdgeData;
use gpgpu_locks::{Mutex, MutexGuard};
use gpgpu_protocol::{
    api::{GraphNodes, GraphStep, graph_step},
    cuda::*,
};

use super::{
    Executable, Executables, MOST_STEPS, Owned,
    bodies::{Bodies, Value},
    charged::Taken,
    kind,
    part::nodes_of,
    reserve,
    step::make,
};
use crate::{cuda::driver, worker::session::Session};

/// The use of the nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Use {
    Free,
    /// An executable graph is being made. A node that is added now would be part of it, without a step.
    Making,
    /// An executable graph exists.
    Made,
    /// Nodes that were added for an executable graph could not be removed.
    Torn,
}

struct State {
    raw: CUgraph,
    nodes: Vec<CUgraphNode>,
    contexts: BTreeSet<u64>,
    used: Use,
    /// The values on which conditional steps depend. They remain in the driver's graph.
    values: Vec<Value>,
    taken: Vec<Taken>,
    /// The counter of the client's nodes, and the number of values counted there.
    counted: Arc<AtomicUsize>,
    counted_values: usize,
}

// SAFETY: the driver's handles can be used by any thread, one at a time, which the lock around them sees to.
unsafe impl Send for State {}

impl Drop for State {
    fn drop(&mut self) {
        // SAFETY: the graph is the driver's, and only this ends it.
        let _ = unsafe { driver::cuGraphDestroy(self.raw) };
        let counted = self.nodes.len() + self.counted_values;
        self.counted.fetch_sub(counted, Ordering::Relaxed);
    }
}

/// The driver's nodes of a client's graph.
pub struct Nodes(Mutex<State>);

impl Nodes {
    fn new(counted: &Arc<AtomicUsize>) -> Result<Self, CUresult> {
        let mut raw = std::ptr::null_mut();
        // SAFETY: the pointer is to a value that lives across the call.
        unsafe { driver::cuGraphCreate(&mut raw, 0) }?;
        Ok(Self(Mutex::new(State {
            raw,
            nodes: Vec::new(),
            contexts: BTreeSet::new(),
            used: Use::Free,
            values: Vec::new(),
            taken: Vec::new(),
            counted: Arc::clone(counted),
            counted_values: 0,
        })))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock()
    }

    /// Adds the node of a launch; returns its number, and its name for kernels.
    ///
    /// # Errors
    ///
    /// `CUDA_ERROR_INVALID_VALUE` for another kind of step; `CUDA_ERROR_NOT_SUPPORTED` while an executable graph is
    /// being made; `CUDA_ERROR_OUT_OF_MEMORY` above the limits; the driver's error code.
    pub fn add(&self, session: &Session, step: &GraphStep) -> Result<(u32, u64), CUresult> {
        if step.kind != kind::LAUNCH || !step.numbers.is_empty() {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        // It gets its attributes when the executable graph is made.
        let mut plain = step.clone();
        plain.launch.attributes.clear();
        let mut last = None;
        let (made, _) = make(session, &plain, &mut last)?;
        let gpu = last.ok_or(CUDA_ERROR_INVALID_CONTEXT)?.gpu;
        let device = CUdevice::try_from(gpu).map_err(|_| CUDA_ERROR_INVALID_DEVICE)?;
        let executables = &session.executables;
        let bytes = graph_step::BYTES_OF_STEP;
        let taken = (executables.account).take(session.device_memory, device, bytes)?;
        let mut state = self.lock();
        if !matches!(state.used, Use::Free | Use::Made) {
            return Err(CUDA_ERROR_NOT_SUPPORTED);
        }
        if state.nodes.len() >= MOST_STEPS {
            return Err(CUDA_ERROR_OUT_OF_MEMORY);
        }
        reserve(&state.counted, 1)?;
        let added = made.add(state.raw, &[]);
        let node = added.inspect_err(|_| {
            state.counted.fetch_sub(1, Ordering::Relaxed);
        })?;
        state.nodes.push(node);
        state.taken.push(taken);
        state.contexts.insert(step.context);
        let mut value = CUlaunchAttributeValue {
            words: [1, 0, 0, 0, 0, 0, 0, 0],
        };
        let id = CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE;
        // SAFETY: the node is the driver's; the value outlives the call, which writes the name to it.
        let marked =
            unsafe { driver::cuGraphKernelNodeSetAttribute(node, id, (&raw mut value).cast()) };
        // SAFETY: every bit pattern of the union is one of its words.
        let [_, name, ..] = unsafe { value.words };
        let marked = marked.and(if name == 0 {
            Err(CUDA_ERROR_NOT_SUPPORTED)
        } else {
            Ok(name)
        });
        let name = marked.inspect_err(|_| {
            state.nodes.pop();
            state.taken.pop();
            state.counted.fetch_sub(1, Ordering::Relaxed);
            // SAFETY: the node is the driver's, and no other code has it.
            if unsafe { driver::cuGraphDestroyNode(node) }.is_err() {
                state.used = Use::Torn;
            }
        })?;
        Ok((state.nodes.len() as u32 - 1, name))
    }

    /// Takes the nodes for an executable graph of a list with this many values.
    ///
    /// # Errors
    ///
    /// `CUDA_ERROR_NOT_SUPPORTED` if an executable graph exists; `CUDA_ERROR_OUT_OF_MEMORY` above the limit.
    fn take(self: &Arc<Self>, values: usize) -> Result<Taking, CUresult> {
        let mut state = self.lock();
        if state.used != Use::Free {
            return Err(CUDA_ERROR_NOT_SUPPORTED);
        }
        // The driver's graph keeps them when the executable graph ends.
        let more = values.saturating_sub(state.counted_values);
        reserve(&state.counted, more)?;
        state.counted_values += more;
        state.used = Use::Making;
        let left = state.nodes.iter().copied().map(Some).collect();
        Ok(Taking {
            nodes: Arc::clone(self),
            raw: state.raw,
            values: state.values.clone(),
            left,
        })
    }
}

/// The nodes while an executable graph has them, until this is dropped.
pub struct Taking {
    nodes: Arc<Nodes>,
    /// The driver's graph.
    pub raw: CUgraph,
    /// The values that it has already.
    pub values: Vec<Value>,
    /// The nodes that have no step yet.
    left: Vec<Option<CUgraphNode>>,
}

impl Taking {
    /// Takes the nodes that steps name; `None` if they name none.
    ///
    /// # Errors
    ///
    /// `CUDA_ERROR_INVALID_HANDLE` if there are no such nodes; as [`Nodes::take`].
    pub fn of(executables: &Executables, steps: &[GraphStep]) -> Result<Option<Self>, CUresult> {
        let named = |of: &GraphStep| of.kind == kind::LAUNCH && !of.numbers.is_empty();
        let Some(step) = steps.iter().find(|of| named(of)) else {
            return Ok(None);
        };
        let values = steps.iter().filter(|of| of.kind == kind::VALUE).count();
        executables
            .nodes
            .find(step.numbers[0])?
            .take(values)
            .map(Some)
    }

    /// Takes the node of a step, which no other step can use afterwards; `None` for a step that kernels do not update.
    ///
    /// # Errors
    ///
    /// `CUDA_ERROR_INVALID_VALUE` if there is no such node, or another step has it; `CUDA_ERROR_INVALID_HANDLE` for
    /// nodes of another graph.
    pub fn node(
        &mut self,
        executables: &Executables,
        step: &GraphStep,
    ) -> Result<Option<CUgraphNode>, CUresult> {
        if step.kind != kind::LAUNCH || step.numbers.is_empty() {
            return Ok(None);
        }
        let [nodes, number] = super::step::numbers(step)?;
        if !Arc::ptr_eq(&executables.nodes.find(nodes as u64)?, &self.nodes) {
            return Err(CUDA_ERROR_INVALID_HANDLE);
        }
        let node = self.left.get_mut(number).and_then(Option::take);
        node.map(Some).ok_or(CUDA_ERROR_INVALID_VALUE)
    }

    /// Keeps the values of a list in the driver's graph. From then on the nodes end with the values' contexts.
    pub fn keep(&mut self, bodies: &Bodies, steps: &[GraphStep]) {
        let mut state = self.nodes.lock();
        state.values = bodies.values().to_vec();
        let values = steps.iter().filter(|of| of.kind == kind::VALUE);
        state.contexts.extend(values.map(|of| of.context));
    }

    /// Checks that each node has a step, because an executable graph includes all of them.
    ///
    /// # Errors
    ///
    /// `CUDA_ERROR_INVALID_VALUE` if a node has none.
    pub fn check(&self) -> Result<(), CUresult> {
        match self.left.iter().all(Option::is_none) {
            true => Ok(()),
            false => Err(CUDA_ERROR_INVALID_VALUE),
        }
    }

    /// Records that the executable graph was made.
    pub fn made(&self) {
        self.nodes.lock().used = Use::Made;
    }
}

/// Removes everything that was added for an executable graph: other nodes, including one that a refused step has left,
/// and the edges between these nodes.
fn restore(raw: CUgraph, nodes: &[CUgraphNode]) -> Result<(), CUresult> {
    let kept: HashSet<_> = nodes.iter().copied().collect();
    for node in nodes_of(raw)? {
        if !kept.contains(&node) {
            // SAFETY: the node is the driver's, and only this graph has it.
            unsafe { driver::cuGraphDestroyNode(node) }?;
        }
    }
    for node in nodes {
        let mut count = 0;
        let none = std::ptr::null_mut();
        // SAFETY: the node is the driver's; NULL asks for the number alone.
        unsafe { driver::cuGraphNodeGetDependencies_v2(*node, none, none.cast(), &mut count) }?;
        if count == 0 {
            continue;
        }
        let mut from = vec![std::ptr::null_mut(); count];
        let mut edges = vec![CUgraphEdgeData::default(); count];
        let to = vec![*node; count];
        // SAFETY: there is room for so many; all arrays have as many entries.
        unsafe {
            let data = edges.as_mut_ptr().cast();
            driver::cuGraphNodeGetDependencies_v2(*node, from.as_mut_ptr(), data, &mut count)?;
            let (from, to, data) = (from.as_ptr(), to.as_ptr(), edges.as_ptr().cast());
            driver::cuGraphRemoveDependencies_v2(raw, from, to, data, count)?;
        }
    }
    Ok(())
}

impl Drop for Taking {
    fn drop(&mut self) {
        let mut state = self.nodes.lock();
        state.used = match restore(self.raw, &state.nodes) {
            Ok(()) => Use::Free,
            Err(_) => Use::Torn,
        };
    }
}

impl Owned for Nodes {
    type Kind = GraphNodes;
    const MOST: usize = <Executable as Owned>::MOST;

    fn is_in(&self, context: u64) -> bool {
        self.lock().contexts.contains(&context)
    }
}

impl Executables {
    /// Makes an empty set of nodes with this id.
    ///
    /// # Errors
    ///
    /// As [`ById::add`](super::ById::add); the driver's.
    pub fn make_nodes(&self, id: u64) -> Result<(), CUresult> {
        self.nodes.check(id)?;
        let nodes = Nodes::new(&self.counted)?;
        // They belong to no context yet.
        self.nodes.add(id, nodes, |_| true)
    }
}
