// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Launches of graphs: records of their nodes, or one of the whole.
#![allow(missing_docs)]

mod common;

use std::ptr::null_mut;

use common::*;
use gpgpu_protocol::cupti::{copy_kind, kind};
use gpgpu_stand_in::ok;

/// `CUPTI_DRIVER_TRACE_CBID_cuGraphLaunch`.
const GRAPH_LAUNCH: u32 = 514;

struct Graph {
    exec: Raw,
    id: u32,
    stream: Raw,
}

/// A graph of a fill, a kernel and a copy.
fn graph() -> Graph {
    let (f, _) = kernel();
    let (at, stream) = (LIBRARIES.allocate(8), stream());
    let (mut graph, mut exec): (Raw, Raw) = (null_mut(), null_mut());
    ok!(LIBRARIES, "cuStreamBeginCapture_v2"; stream, 0_u32);
    ok!(LIBRARIES, "cuMemsetD32Async"; at, 5_u32, 1_usize, stream);
    launch(f, at, stream);
    ok!(LIBRARIES, "cuMemcpyDtoDAsync_v2"; at + 4, at, 4_usize, stream);
    ok!(LIBRARIES, "cuStreamEndCapture"; stream, &mut graph);
    ok!(LIBRARIES, "cuGraphInstantiateWithFlags"; &mut exec, graph, 0_u64);
    let mut id = 0_u32;
    ok!(LIBRARIES, "cuGraphExecGetId"; exec, &mut id);
    ok!(LIBRARIES, "cuGraphDestroy"; graph);
    Graph { exec, id, stream }
}

impl Graph {
    fn launch(&self) {
        ok!(LIBRARIES, "cuGraphLaunch"; self.exec, self.stream);
    }

    fn wait(&self) {
        ok!(LIBRARIES, "cuStreamSynchronize"; self.stream);
    }
}

#[test]
fn the_nodes_of_a_launch_have_its_number() {
    let session = Session::new();
    let graph = graph();
    Session::enable(&ALL);
    let before = now();
    graph.launch();
    graph.launch();
    graph.wait();
    let after = now();
    let records = session.records();
    let calls = only!(records, Call);
    assert_eq!(calls.len(), 2);
    assert!(calls.iter().all(|of| of.callback == GRAPH_LAUNCH));
    let mut nodes = Vec::new();
    for call in calls {
        let of = |record: &&Record| {
            record.correlation() == call.correlation && !matches!(record, Record::Call(_))
        };
        let own: Vec<_> = records.iter().filter(of).copied().collect();
        assert_eq!(own.len(), 3);
        let (kernel, fill, copy) = (
            only!(own, Kernel)[0],
            only!(own, Fill)[0],
            only!(own, Copy)[0],
        );
        assert_eq!([kernel.graph, fill.graph, copy.graph], [graph.id; 3]);
        assert_eq!((kernel.grid, kernel.dynamic_shared), ([2, 1, 1], 32));
        assert_eq!((fill.value, fill.bytes), (5, 4));
        assert_eq!((copy.copy_kind, copy.bytes), (copy_kind::DTOD, 4));
        assert!(before <= fill.start && fill.end <= kernel.start);
        assert!(kernel.end <= copy.start && copy.end <= after);
        nodes.push([fill.graph_node, kernel.graph_node, copy.graph_node]);
    }
    // A node has its own number, the same in each launch.
    assert_eq!(nodes[0], nodes[1]);
    let [fill, kernel, copy] = nodes[0];
    assert!(fill != 0 && fill != kernel && kernel != copy && copy != fill);
}

#[test]
fn a_launch_has_one_record_on_request() {
    let session = Session::new();
    let graph = graph();
    Session::enable(&ALL);
    Session::enable(&[kind::GRAPH_TRACE]);
    graph.launch();
    graph.wait();
    let records = session.records();
    assert_eq!(records.len(), 2, "{records:?}");
    let (of, call) = (only!(records, Graph)[0], only!(records, Call)[0]);
    assert_eq!((of.graph, of.correlation), (graph.id, call.correlation));
    assert!(of.start <= of.end);
    assert_eq!((of.device, of.end_device), (0, 0));
}
