// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Executable graphs that kernels launch too (`CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH`).
//!
//! The driver lets such a graph have no empty nodes, which a graph that is a node leaves behind in the client's list. So
//! a step that waits for one waits for the steps before that. The driver gives the graph a name, which kernels use and
//! programs keep, so an update changes the driver's object and makes no new one.

use gpgpu_graphs::abi::{CUgraphExecUpdateResultInfo, DEVICE_LAUNCH, updated};
use gpgpu_protocol::{
    api::{GraphStep, graph_step as kind},
    cuda::*,
};

use super::{Executable, Graph, Handles, MOST_STEPS};
use crate::{cuda::driver, worker::session::Session};

/// Whether flags of an instantiation say that kernels launch the graph too.
pub fn is_direct(flags: u64) -> bool {
    flags & DEVICE_LAUNCH != 0
}

/// The same steps, none of which waits for a step that does nothing. Those steps stay, without a node.
///
/// # Errors
///
/// `CUDA_ERROR_INVALID_VALUE` if a step waits for a later one; `CUDA_ERROR_OUT_OF_MEMORY` if there are more dependencies
/// than a graph can have steps: each step that does nothing can multiply them.
pub fn without_joins(steps: &[GraphStep]) -> Result<Vec<GraphStep>, CUresult> {
    let mut done: Vec<GraphStep> = Vec::with_capacity(steps.len());
    let mut edges = 0_usize;
    for step in steps {
        let mut after = Vec::with_capacity(step.after.len());
        for of in &step.after {
            let before = done.get(*of as usize).ok_or(CUDA_ERROR_INVALID_VALUE)?;
            let more = match before.kind {
                kind::NOTHING => &before.after[..],
                _ => std::slice::from_ref(of),
            };
            edges += more.len();
            if edges > MOST_STEPS {
                return Err(CUDA_ERROR_OUT_OF_MEMORY);
            }
            after.extend_from_slice(more);
        }
        after.sort_unstable();
        after.dedup();
        done.push(GraphStep {
            after,
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
    /// `CUDA_ERROR_INVALID_VALUE` if they do not: then the driver's handle is an address of this process.
    pub fn handle(&self) -> Result<u64, CUresult> {
        if is_direct(self.flags) {
            Ok(self.handles().exec as u64)
        } else {
            Err(CUDA_ERROR_INVALID_VALUE)
        }
    }
}

impl Handles {
    /// Has the driver's object take another graph's steps.
    ///
    /// # Errors
    ///
    /// The driver's. Steps may be enabled or not as before then, as far as the driver has come.
    pub fn become_graph(&mut self, session: &Session, mut graph: Graph) -> Result<(), CUresult> {
        graph.check(session)?;
        let mut info = CUgraphExecUpdateResultInfo {
            result: updated::ERROR,
            errorNode: std::ptr::null_mut(),
            errorFromNode: std::ptr::null_mut(),
        };
        // SAFETY: both are the driver's and live; the structure is the driver's and outlives the call.
        unsafe { driver::cuGraphExecUpdate_v2(self.exec, graph.raw, (&raw mut info).cast()) }?;
        // The driver knows nodes of an executable graph by those that it was made of.
        std::mem::swap(&mut self.graph.steps, &mut graph.steps);
        for index in 0..self.graph.steps.len() {
            let enabled = self.graph.steps[index].enabled;
            if enabled != graph.steps[index].enabled {
                self.enable(index, enabled)?;
            }
        }
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
    fn a_client_cannot_have_the_worker_multiply_dependencies() {
        let first = 1 << 12;
        let mut steps: Vec<_> = (0..first).map(|_| step(kind::LAUNCH, &[])).collect();
        let all: Vec<u32> = (0..first).collect();
        steps.push(step(kind::NOTHING, &all));
        steps.extend((0..first).map(|_| step(kind::LAUNCH, &[first])));
        assert_eq!(without_joins(&steps).err(), Some(CUDA_ERROR_OUT_OF_MEMORY));
    }
}
