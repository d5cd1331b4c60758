// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Requests of a hostile client for launches that kernels update, on [`crate::cuda::double`].

use std::sync::atomic::Ordering;

use gpgpu_protocol::{
    api::{Event, GraphExec, GraphNodes, GraphStep, object_id, request},
    cuda::*,
};

use super::kind;
use crate::{
    cuda::double,
    worker::lifetimes_tests::{Rig, run},
};

const BAD: CUresult = CUDA_ERROR_INVALID_VALUE;
const GONE: CUresult = CUDA_ERROR_INVALID_HANDLE;
const REFUSED: CUresult = CUDA_ERROR_NOT_SUPPORTED;

struct Client {
    rig: Rig,
    launch: GraphStep,
}

impl Client {
    fn new() -> Self {
        let rig = Rig::new();
        let launch = rig.steps().swap_remove(0);
        assert_eq!(launch.kind, kind::LAUNCH);
        Self { rig, launch }
    }

    fn run<R: gpgpu_protocol::api::Request>(&self, request: R) -> CUresult {
        run(self.rig.session, request, self.rig.contexts[0])
    }

    fn nodes(&self, serial: u64) -> u64 {
        let nodes = object_id::<GraphNodes>(serial);
        assert_eq!(self.run(request::gpgpuGraphNodes { nodes }), CUDA_SUCCESS);
        nodes
    }

    fn add(&self, nodes: u64, step: &GraphStep) -> CUresult {
        let (step, node, name) = (step.clone(), true, true);
        self.run(request::gpgpuGraphNode {
            nodes,
            step,
            node,
            name,
        })
    }

    /// A launch that kernels update.
    fn own(&self, nodes: u64, number: u64) -> GraphStep {
        GraphStep {
            numbers: vec![nodes, number],
            ..self.launch.clone()
        }
    }

    fn make(&self, exec: u64, steps: &[GraphStep]) -> CUresult {
        let executables = &self.rig.session.executables;
        let made = executables.make(self.rig.session, exec, steps, 0);
        made.err().unwrap_or(CUDA_SUCCESS)
    }

    fn end(&self, exec: u64) {
        assert_eq!(self.rig.session.executables.graphs.end(exec), Ok(()));
    }

    fn counted(&self) -> usize {
        self.rig.session.executables.counted.load(Ordering::Relaxed)
    }
}

fn exec(serial: u64) -> u64 {
    object_id::<GraphExec>(0x9000 + serial)
}

#[test]
fn an_executable_graph_has_all_nodes_of_its_graph_once() {
    let client = Client::new();
    let (nodes, others) = (client.nodes(1), client.nodes(2));
    for _ in 0..2 {
        assert_eq!(client.add(nodes, &client.launch), CUDA_SUCCESS);
    }
    assert_eq!(client.add(others, &client.launch), CUDA_SUCCESS);
    let own = |number| client.own(nodes, number);
    let gone = object_id::<GraphNodes>(3);
    for (steps, result) in [
        (vec![own(0)], BAD),
        (vec![own(0), own(0)], BAD),
        (vec![own(0), own(2)], BAD),
        (vec![own(0), own(u64::MAX)], BAD),
        (vec![own(0), own(1), own(1)], BAD),
        (vec![own(0), own(1), client.own(others, 0)], GONE),
        (vec![own(0), client.own(others, 0)], GONE),
        (vec![client.own(gone, 0)], GONE),
        (vec![client.own(exec(0), 0)], GONE),
    ] {
        assert_eq!(client.make(exec(1), &steps), result, "{steps:?}");
    }
    let strange = GraphStep {
        numbers: vec![nodes],
        ..own(0)
    };
    assert_eq!(client.make(exec(1), &[strange]), BAD);
    // A refused list leaves nothing in the driver's graph.
    assert_eq!(client.make(exec(1), &[own(1), own(0)]), CUDA_SUCCESS);
    assert_eq!(client.make(exec(2), &[own(0), own(1)]), REFUSED);
    let made = client.rig.session.executables.graphs.find(exec(1)).unwrap();
    let updated = made.update(client.rig.session, &[own(0), own(1)]);
    assert_eq!(updated, Err(REFUSED));
    drop(made);
    client.end(exec(1));
    assert_eq!(client.make(exec(2), &[own(0), own(1)]), CUDA_SUCCESS);
    assert_eq!(double::wrong(), [""; 0]);
}

#[test]
fn a_node_is_a_plain_launch() {
    let client = Client::new();
    let nodes = client.nodes(4);
    for step in client.rig.steps().iter().skip(1) {
        assert_eq!(client.add(nodes, step), BAD, "{step:?}");
    }
    assert_eq!(client.add(nodes, &client.own(nodes, 0)), BAD);
    let mut step = client.launch.clone();
    step.object += 0x100;
    assert_eq!(client.add(nodes, &step), GONE);
    step = client.launch.clone();
    step.context = 0;
    assert_eq!(client.add(nodes, &step), CUDA_ERROR_INVALID_CONTEXT);
    for id in [0, u64::MAX, exec(1), object_id::<Event>(1)] {
        assert_eq!(client.run(request::gpgpuGraphNodes { nodes: id }), BAD);
        assert_eq!(client.add(id, &client.launch), GONE);
        let forget = request::gpgpuGraphNodesForget { nodes: id };
        assert_eq!(client.run(forget), CUDA_SUCCESS);
    }
    assert_eq!(client.run(request::gpgpuGraphNodes { nodes }), BAD);
    // In the body of a conditional step.
    let mark = |kind, object, numbers: &[u64]| GraphStep {
        kind,
        object,
        context: if matches!(kind, kind::BODY | kind::END) {
            0
        } else {
            client.rig.contexts[0]
        },
        numbers: numbers.to_vec(),
        ..GraphStep::default()
    };
    assert_eq!(client.add(nodes, &client.launch), CUDA_SUCCESS);
    let value = mark(kind::VALUE, 0, &[1, 1]);
    let inside = [
        value.clone(),
        mark(kind::CONDITIONAL, 1, &[0, 1]),
        mark(kind::BODY, 0, &[]),
        client.own(nodes, 0),
        mark(kind::END, 0, &[]),
    ];
    assert_eq!(client.make(exec(1), &inside), REFUSED);
    // The driver's graph keeps its values, so the next list must have the same ones.
    assert_eq!(
        client.make(exec(1), &[value, client.own(nodes, 0)]),
        CUDA_SUCCESS
    );
    client.end(exec(1));
    let other = mark(kind::VALUE, 0, &[2, 1]);
    assert_eq!(
        client.make(exec(1), &[other, client.own(nodes, 0)]),
        REFUSED
    );
}

#[test]
fn nodes_count_and_end_with_their_context() {
    let client = Client::new();
    let before = client.counted();
    let nodes = client.nodes(5);
    assert_eq!(client.add(nodes, &client.launch), CUDA_SUCCESS);
    assert_eq!(client.counted(), before + 1);
    let value = GraphStep {
        kind: kind::VALUE,
        context: client.rig.contexts[0],
        numbers: vec![1, 1],
        ..GraphStep::default()
    };
    // The driver's graph keeps the value.
    for _ in 0..2 {
        let steps = [value.clone(), client.own(nodes, 0)];
        assert_eq!(client.make(exec(1), &steps), CUDA_SUCCESS);
        assert_eq!(client.counted(), before + 4);
        client.end(exec(1));
        assert_eq!(client.counted(), before + 2);
    }
    assert_eq!(client.make(exec(1), &[client.own(nodes, 0)]), CUDA_SUCCESS);
    // The executable graph keeps the nodes.
    assert_eq!(
        client.run(request::gpgpuGraphNodesForget { nodes }),
        CUDA_SUCCESS
    );
    assert_eq!(client.add(nodes, &client.launch), GONE);
    assert_eq!(client.counted(), before + 3);
    client.end(exec(1));
    assert_eq!(client.counted(), before);
    let nodes = client.nodes(6);
    assert_eq!(client.add(nodes, &client.launch), CUDA_SUCCESS);
    client
        .rig
        .session
        .executables
        .end_context(client.rig.contexts[1]);
    assert_eq!(client.add(nodes, &client.launch), CUDA_SUCCESS);
    client
        .rig
        .session
        .executables
        .end_context(client.rig.contexts[0]);
    assert_eq!(client.add(nodes, &client.launch), GONE);
    assert_eq!(client.counted(), before);
}
