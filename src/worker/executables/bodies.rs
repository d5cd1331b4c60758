// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Converts a list of steps to nodes of a driver's graph and of the bodies of its conditional nodes.

use gpgpu_graphs::abi::{
    CUDA_CONDITIONAL_NODE_PARAMS, CUgraphEdgeData, CUgraphNodeParams, CUgraphNodeParamsOf,
};
use gpgpu_protocol::{
    api::{GraphStep, graph_edge_of, graph_step as kind},
    cuda::*,
};
use smallvec::SmallVec;

use super::step::Made;
use crate::cuda::driver;

/// `CU_GRAPH_NODE_TYPE_CONDITIONAL`.
const CONDITIONAL: u32 = gpgpu_graphs::abi::kind::CONDITIONAL;

/// The remaining bodies of a conditional node, and the place where the list continues after them.
struct Open {
    /// In reverse.
    left: Vec<CUgraph>,
    behind: Place,
}

/// A graph, and a number that no other graph of the list has.
#[derive(Clone, Copy)]
struct Place {
    graph: CUgraph,
    number: u32,
}

/// The edge that a number in a step [`kind::EDGES`] stands for; `None` for an unknown number.
fn edge(number: u64) -> Option<CUgraphEdgeData> {
    let [from_port, to_port, type_] = graph_edge_of(number)?;
    Some(CUgraphEdgeData {
        from_port,
        to_port,
        type_,
        reserved: [0; 5],
    })
}

/// Makes a node wait for others, with one edge for each. The driver checks the kinds of edges.
///
/// # Errors
///
/// `CUDA_ERROR_INVALID_VALUE` if the numbers of nodes and edges differ; the driver's error code.
pub fn connect(
    graph: CUgraph,
    from: &[CUgraphNode],
    to: CUgraphNode,
    edges: &[CUgraphEdgeData],
) -> Result<(), CUresult> {
    if from.len() != edges.len() {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    if from.is_empty() {
        return Ok(());
    }
    let to: SmallVec<[CUgraphNode; 4]> = SmallVec::from_elem(to, from.len());
    let (count, edges) = (from.len(), edges.as_ptr().cast());
    // SAFETY: the graph and its nodes are the driver's and live; each array has as many entries.
    unsafe { driver::cuGraphAddDependencies_v2(graph, from.as_ptr(), to.as_ptr(), edges, count) }
}

/// A value of a driver's graph: its default and flags, and its context.
pub type Value = ([u32; 2], CUcontext);

/// The place of the next node in a graph and its bodies.
pub struct Bodies {
    root: CUgraph,
    /// `None` between a conditional step and its first body.
    at: Option<Place>,
    open: Vec<Open>,
    /// The number of graphs.
    graphs: u32,
    /// The number of values.
    values: usize,
    /// Values of the driver's graph.
    known: Vec<Value>,
    /// The graph of each step's node, by number; 0 for a step without a node.
    places: Vec<u32>,
    /// The edges from the next node to each of those before it, if a step has set them.
    edges: Option<Vec<CUgraphEdgeData>>,
}

impl Bodies {
    /// The graph itself without bodies. It already has these values.
    pub fn new(root: CUgraph, known: Vec<Value>) -> Self {
        Self {
            root,
            at: Some(Place {
                graph: root,
                number: 1,
            }),
            open: Vec::new(),
            graphs: 1,
            values: 0,
            known,
            places: Vec::new(),
            edges: None,
        }
    }

    /// Executes a step after other nodes, and returns its node, or NULL for a step without one. `own` is the node of a
    /// launch that kernels update. `left` is the number of steps that follow.
    ///
    /// # Errors
    ///
    /// `CUDA_ERROR_INVALID_VALUE` for a step that is not allowed here; `CUDA_ERROR_NOT_SUPPORTED` if the driver numbers
    /// values differently; the driver's error code.
    pub fn add(
        &mut self,
        made: &Made,
        (step, own): (&GraphStep, Option<CUgraphNode>),
        nodes: &[CUgraphNode],
        left: usize,
    ) -> Result<CUgraphNode, CUresult> {
        let bad = CUDA_ERROR_INVALID_VALUE;
        if !matches!(
            step.kind,
            kind::VALUE | kind::BODY | kind::END | kind::EDGES
        ) {
            let place = self.at.ok_or(bad)?;
            let after = step.after.iter().map(|of| {
                let is_here = self.places.get(*of as usize) == Some(&place.number);
                nodes.get(*of as usize).copied().filter(|_| is_here)
            });
            let after: SmallVec<[CUgraphNode; 4]> = after.collect::<Option<_>>().ok_or(bad)?;
            let edges = self.edges.take();
            let whole = if edges.is_none() { &after[..] } else { &[] };
            let node = match (made, own) {
                (Made::Conditional(value, [of, count], context), _) => {
                    self.conditional(whole, *value, (*of, *count, left), *context)?
                }
                // Such a node must be in the graph itself.
                (_, Some(_)) if place.number != 1 => return Err(CUDA_ERROR_NOT_SUPPORTED),
                (_, Some(node)) => made.take(place.graph, node, whole).map(|()| node)?,
                (_, None) => made.add(place.graph, whole)?,
            };
            if let Some(edges) = edges {
                connect(place.graph, &after, node, &edges)?;
            }
            self.places.push(place.number);
            return Ok(node);
        }
        if !step.after.is_empty() || self.edges.is_some() {
            return Err(bad);
        }
        match *made {
            Made::Value(numbers, context) => self.value(numbers, context)?,
            _ if step.kind == kind::EDGES => {
                let edges = step.numbers.iter().map(|number| edge(*number));
                self.edges = Some(edges.collect::<Option<_>>().ok_or(bad)?);
            }
            _ if step.kind == kind::BODY => {
                let body = self.open.last_mut().and_then(|open| open.left.pop());
                self.graphs += 1;
                self.at = Some(Place {
                    graph: body.ok_or(bad)?,
                    number: self.graphs,
                });
            }
            _ => {
                let open = self.open.pop_if(|open| open.left.is_empty());
                self.at = Some(open.ok_or(bad)?.behind);
            }
        }
        self.places.push(0);
        Ok(std::ptr::null_mut())
    }

    /// The values of the driver's graph.
    pub fn values(&self) -> &[Value] {
        &self.known
    }

    /// Skips a step without a node, for which nothing waits.
    pub fn skip(&mut self) -> CUgraphNode {
        self.places.push(0);
        std::ptr::null_mut()
    }

    /// Ends the list.
    ///
    /// # Errors
    ///
    /// `CUDA_ERROR_INVALID_VALUE` if bodies are missing, or the step for which edges were set.
    pub fn end(self) -> Result<(), CUresult> {
        if self.open.is_empty() && self.edges.is_none() {
            Ok(())
        } else {
            Err(CUDA_ERROR_INVALID_VALUE)
        }
    }

    /// Makes a value, whose number the client already knows.
    fn value(&mut self, [default, flags]: [u32; 2], context: CUcontext) -> Result<(), CUresult> {
        let asked = ([default, flags], context);
        if let Some(known) = self.known.get(self.values) {
            self.values += 1;
            let is_same = *known == asked;
            return is_same.then_some(()).ok_or(CUDA_ERROR_NOT_SUPPORTED);
        }
        let mut number = 0;
        // SAFETY: the graph and the context are the driver's and live; the pointer is to a value that lives across the
        // call.
        unsafe {
            driver::cuGraphConditionalHandleCreate(
                &mut number,
                self.root,
                context,
                default,
                flags,
            )?;
        }
        self.values += 1;
        self.known.push(asked);
        if number == self.values as u64 {
            Ok(())
        } else {
            Err(CUDA_ERROR_NOT_SUPPORTED)
        }
    }

    fn conditional(
        &mut self,
        after: &[CUgraphNode],
        value: u64,
        (of, count, left): (u32, u32, usize),
        context: CUcontext,
    ) -> Result<CUgraphNode, CUresult> {
        let place = self.at.take().ok_or(CUDA_ERROR_INVALID_VALUE)?;
        // Each body needs a step of its own, so limit the number of graphs that the driver is asked to make.
        if value == 0 || value > self.values as u64 || count == 0 || count as usize >= left {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let conditional = CUDA_CONDITIONAL_NODE_PARAMS {
            handle: value,
            type_: of,
            size: count,
            phGraph_out: std::ptr::null_mut(),
            ctx: context,
        };
        let mut params = CUgraphNodeParams {
            type_: CONDITIONAL,
            reserved0: [0; 3],
            of: CUgraphNodeParamsOf { reserved: [0; 29] },
            reserved2: 0,
        };
        params.of.conditional = conditional;
        let mut node = std::ptr::null_mut();
        // SAFETY: the graph, its nodes and the context are the driver's and live; the structure outlives the call,
        // which writes the address of an array to it that has as many graphs as were asked for and lives as long as the
        // node.
        let bodies = unsafe {
            let none = std::ptr::null();
            let to = (&raw mut params).cast();
            driver::cuGraphAddNode_v2(
                &mut node,
                place.graph,
                after.as_ptr(),
                none,
                after.len(),
                to,
            )?;
            let bodies = params.of.conditional.phGraph_out;
            if bodies.is_null() {
                return Err(CUDA_ERROR_UNKNOWN);
            }
            std::slice::from_raw_parts(bodies, count as usize)
        };
        self.open.push(Open {
            left: bodies.iter().rev().copied().collect(),
            behind: place,
        });
        Ok(node)
    }
}
