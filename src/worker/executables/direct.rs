// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Executable graphs that kernels can launch too (`CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH`).
//!
//! The driver allows no empty nodes in such a graph, and a child graph leaves empty nodes in the client's list. So a
//! step that waits for one waits for the steps before it. The driver gives the graph a name that kernels use and
//! programs store, so an update changes the driver's object and does not make a new one.

use gpgpu_graphs::abi::{CUgraphExecUpdateResultInfo, DEVICE_LAUNCH, updated};
use gpgpu_protocol::{
    api::{GraphChange, GraphStep, graph_step as kind},
    cuda::*,
};

use super::{Executable, Graph, Handles, MOST_STEPS};
use crate::{cuda::driver, worker::session::Session};

/// The number of an edge that waits for the whole step. It sorts before the others.
const WHOLE: u64 = 0;

/// Whether the flags of an instantiation allow kernels to launch the graph.
pub fn is_direct(flags: u64) -> bool {
    flags & DEVICE_LAUNCH != 0
}

/// The same steps, with all copies in the context of the first launch or fill.
///
/// NVIDIA's driver (580) accepts a copy in another context only for memory of `cuMemAlloc`. The client's memory is
/// mapped.
pub fn in_one_context(mut steps: Vec<GraphStep>) -> Vec<GraphStep> {
    let mut kernels = steps
        .iter()
        .filter(|of| matches!(of.kind, kind::LAUNCH | kind::FILL));
    if let Some(context) = kernels.next().map(|of| of.context) {
        let copies = steps.iter_mut().filter(|of| of.kind == kind::COPY);
        copies.for_each(|of| of.context = context);
    }
    steps
}

/// The same steps, with no step that waits for an empty one. The empty steps remain, without a node.
///
/// # Errors
///
/// `CUDA_ERROR_INVALID_VALUE` if a step waits for a later one, or has edges other than dependencies;
/// `CUDA_ERROR_OUT_OF_MEMORY` if the replaced dependencies exceed the limit of steps, because each empty step can
/// multiply them.
pub fn without_joins(steps: &[GraphStep]) -> Result<Vec<GraphStep>, CUresult> {
    let bad = CUDA_ERROR_INVALID_VALUE;
    let mut done: Vec<GraphStep> = Vec::with_capacity(steps.len());
    let mut added = 0_usize;
    // The step that sets the edges of the next one.
    let mut ahead = None;
    for step in steps {
        if step.kind == kind::EDGES {
            ahead = Some(done.len());
            done.push(step.clone());
            continue;
        }
        let edges = ahead.map(|at| &steps[at].numbers);
        if edges.is_some_and(|edges| edges.len() != step.after.len()) {
            return Err(bad);
        }
        let mut after = Vec::with_capacity(step.after.len());
        for (at, of) in step.after.iter().enumerate() {
            let before = done.get(*of as usize).ok_or(bad)?;
            if before.kind == kind::NOTHING {
                added += before.after.len();
                if added > MOST_STEPS {
                    return Err(CUDA_ERROR_OUT_OF_MEMORY);
                }
                after.extend(before.after.iter().map(|of| (*of, WHOLE)));
            } else {
                after.push((*of, edges.map_or(WHOLE, |edges| edges[at])));
            }
        }
        after.sort_unstable();
        after.dedup();
        // A wait for a whole step includes a wait for a part of it.
        let mut waited = None;
        after.retain(|(of, edge)| match *edge {
            WHOLE => waited.replace(*of) != Some(*of),
            _ => waited != Some(*of),
        });
        match ahead.take() {
            // An empty step has no node for the edges.
            Some(at) if step.kind == kind::NOTHING => done[at].kind = kind::NOTHING,
            Some(at) => done[at].numbers = after.iter().map(|(_, edge)| *edge).collect(),
            None => {}
        }
        done.push(GraphStep {
            after: after.into_iter().map(|(of, _)| of).collect(),
            ..step.clone()
        });
    }
    Ok(done)
}

impl Executable {
    /// The name by which kernels launch it.
    ///
    /// # Errors
    ///
    /// `CUDA_ERROR_INVALID_VALUE` if kernels cannot launch it: the driver's handle is then an address of this process.
    pub fn handle(&self) -> Result<u64, CUresult> {
        if is_direct(self.flags) {
            Ok(self.handles().exec as u64)
        } else {
            Err(CUDA_ERROR_INVALID_VALUE)
        }
    }

    /// The same changes, with copies in the context to which [`in_one_context`] has moved them.
    pub fn in_its_context(&self, changes: &[GraphChange]) -> Vec<GraphChange> {
        let mut changes = changes.to_vec();
        let handles = self.handles();
        for GraphChange { step, to } in &mut changes {
            let kept = handles.graph.steps.get(*step as usize);
            if let Some(kept) = kept.filter(|kept| kept.kind == kind::COPY && to.kind == kept.kind)
            {
                to.context = kept.context;
            }
        }
        changes
    }
}

impl Handles {
    /// Updates the driver's object to another graph's steps.
    ///
    /// # Errors
    ///
    /// `CUDA_ERROR_INVALID_VALUE` if a step is of another kind, because only one of the two may have a node; the
    /// driver's error code. After a driver's error the object may have steps of both graphs, and cannot be launched
    /// until another update succeeds.
    pub fn become_graph(&mut self, session: &Session, mut graph: Graph) -> Result<(), CUresult> {
        graph.check(session)?;
        let (own, other) = (self.graph.steps.iter(), graph.steps.iter());
        if own.map(|step| step.kind).ne(other.map(|step| step.kind)) {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let mut info = CUgraphExecUpdateResultInfo {
            result: updated::ERROR,
            errorNode: std::ptr::null_mut(),
            errorFromNode: std::ptr::null_mut(),
        };
        // SAFETY: both are the driver's and live; the structure is the driver's and outlives the call.
        let updated =
            unsafe { driver::cuGraphExecUpdate_v2(self.exec, graph.raw, (&raw mut info).cast()) };
        if let Err(code) = updated {
            // Only this code guarantees that nothing has changed.
            self.is_torn |= code != CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
            return Err(code);
        }
        self.is_torn = true;
        // The driver identifies nodes of an executable graph by the nodes from which it was made, so those remain.
        for (index, step) in graph.steps.drain(..).enumerate() {
            let kept = &mut self.graph.steps[index];
            (kept.context, kept.uses) = (step.context, step.uses);
            self.set_enabled(index, step.enabled)?;
        }
        self.is_torn = false;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(of: u32, after: &[u32]) -> GraphStep {
        GraphStep {
            kind: of,
            after: after.to_vec(),
            ..GraphStep::default()
        }
    }

    #[test]
    fn a_step_waits_for_the_steps_before_one_that_does_nothing() {
        let steps = [
            step(kind::LAUNCH, &[]),
            step(kind::LAUNCH, &[]),
            step(kind::NOTHING, &[0, 1]),
            step(kind::NOTHING, &[2, 1]),
            step(kind::LAUNCH, &[3, 0]),
            step(kind::NOTHING, &[]),
            step(kind::LAUNCH, &[5, 4]),
        ];
        let done = without_joins(&steps).unwrap();
        let after: Vec<_> = done.iter().map(|step| step.after.clone()).collect();
        assert_eq!(
            after[2..],
            [vec![0, 1], vec![0, 1], vec![0, 1], vec![], vec![4]]
        );
        for late in [0, 7] {
            let steps = [step(kind::LAUNCH, &[late])];
            assert_eq!(without_joins(&steps).err(), Some(CUDA_ERROR_INVALID_VALUE));
        }
    }

    #[test]
    fn copies_are_where_the_kernels_are() {
        let of = |kind, context| GraphStep {
            context,
            ..step(kind, &[])
        };
        let all = [
            (kind::COPY, 1),
            (kind::FILL, 2),
            (kind::COPY, 3),
            (kind::BOX, 4),
        ];
        let steps = in_one_context(all.map(|(kind, context)| of(kind, context)).to_vec());
        let contexts: Vec<_> = steps.iter().map(|of| of.context).collect();
        assert_eq!(contexts, [2, 2, 2, 4]);
        let alone = in_one_context(vec![of(kind::COPY, 1)]);
        assert_eq!(alone[0].context, 1);
    }

    #[test]
    fn edges_are_those_of_the_dependencies_that_stay() {
        let edges = |numbers: &[u64]| GraphStep {
            numbers: numbers.to_vec(),
            ..step(kind::EDGES, &[])
        };
        let steps = [
            step(kind::LAUNCH, &[]),
            step(kind::LAUNCH, &[]),
            step(kind::NOTHING, &[1, 0]),
            step(kind::NOTHING, &[1]),
            edges(&[7, WHOLE, 8]),
            step(kind::LAUNCH, &[0, 3, 1]),
            edges(&[7, 8]),
            step(kind::LAUNCH, &[1, 0]),
            edges(&[7]),
            step(kind::NOTHING, &[0]),
            step(kind::LAUNCH, &[9]),
        ];
        let done = without_joins(&steps).unwrap();
        assert_eq!(
            (&done[4].numbers, &done[5].after),
            (&vec![7, WHOLE], &vec![0, 1])
        );
        assert_eq!(
            (&done[6].numbers, &done[7].after),
            (&vec![8, 7], &vec![0, 1])
        );
        let kinds = [done[8].kind, done[9].kind];
        assert_eq!((kinds, &done[10].after), ([kind::NOTHING; 2], &vec![0]));
        for wrong in [&[][..], &[WHOLE; 2]] {
            let steps = [
                step(kind::LAUNCH, &[]),
                edges(wrong),
                step(kind::LAUNCH, &[0]),
            ];
            assert_eq!(without_joins(&steps).err(), Some(CUDA_ERROR_INVALID_VALUE));
        }
    }

    #[test]
    fn a_client_cannot_have_the_worker_multiply_dependencies() {
        let first = 1 << 12;
        let mut steps: Vec<_> = (0..first).map(|_| step(kind::LAUNCH, &[])).collect();
        let all: Vec<u32> = (0..first).collect();
        steps.push(step(kind::NOTHING, &all));
        steps.extend((0..first).map(|_| step(kind::LAUNCH, &[first])));
        assert_eq!(without_joins(&steps).err(), Some(CUDA_ERROR_OUT_OF_MEMORY));
    }
}
