// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Graphs and captures on a driver that does nothing.

mod at_once;
mod device_nodes;
mod memory;

use std::{
    ffi::c_void,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering},
    },
};

use gpgpu_locks::{Mutex, MutexGuard};
use gpgpu_protocol::cuda::*;

use crate::{
    Gpu, Result, Signature, Stream, abi, api, capture,
    conditional::{Condition, Conditional},
    dot,
    exec::{self, Step, flatten},
    node::{Copy3D, Fill, Host, Kernel, MemOps, Shape, Work},
    store::{Inner, Store},
    updatable::{DeviceNode, Shared},
    update,
};

/// A driver with two streams, 1 and 2, neither of which is ordered with the legacy stream, and a third, which is.
struct Fake;

static STORE: Store<Fake> = Store::new();
static LAUNCHES: AtomicU32 = AtomicU32::new(0);
/// Whether the driver takes a launch without a wait; those that it took so; and how often it was woken.
static HAS_ROOM: AtomicBool = AtomicBool::new(false);
static AT_ONCE: AtomicU32 = AtomicU32::new(0);
static WOKEN: AtomicU32 = AtomicU32::new(0);
static NEXT: AtomicU64 = AtomicU64::new(0x1000);
/// The name that kernels launch a graph by.
const DEVICE_HANDLE: u64 = 0x7f00_0000_0100;
static FREED: AtomicU64 = AtomicU64::new(0);

/// Captures forbid other threads things, so the tests come one after the other.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock()
}

impl Gpu for Fake {
    type Exec = ();

    fn store() -> &'static Store<Self> {
        &STORE
    }
    fn ready() -> Result {
        Ok(())
    }
    fn context() -> Result<u64> {
        Ok(7)
    }
    fn device(_: u64) -> Result<CUdevice> {
        Ok(0)
    }
    fn has_device(device: CUdevice) -> bool {
        device == 0
    }
    fn stream(handle: CUstream, _: bool) -> Result<Stream> {
        Ok(stream(handle as u64))
    }
    fn check_event(event: u64) -> Result {
        if event < 100 {
            Ok(())
        } else {
            Err(CUDA_ERROR_INVALID_HANDLE)
        }
    }
    fn signature(_: u64) -> Result<Signature> {
        Ok(Signature::default())
    }
    fn check_kernel(_: &Kernel) -> Result {
        Ok(())
    }
    fn check_copy(_: &Copy3D) -> Result {
        Ok(())
    }
    fn check_fill(_: &Fill) -> Result {
        Ok(())
    }
    fn check_mem_ops(_: &MemOps) -> Result {
        Ok(())
    }
    fn is_near(_: &Copy3D) -> Result<bool> {
        Ok(false)
    }
    fn check_condition(_: &Condition) -> Result {
        Ok(())
    }
    fn has_partial_edges() -> bool {
        true
    }
    fn allocate(_: u64, bytes: usize) -> Result<u64> {
        Ok(NEXT.fetch_add(bytes as u64, Ordering::Relaxed))
    }
    fn free(address: u64) {
        FREED.store(address, Ordering::Relaxed);
    }
    fn device_nodes() -> Result<Shared> {
        Ok(Arc::new(AtomicU64::new(0)))
    }
    fn device_node(nodes: &Shared, _: &Kernel) -> Result<DeviceNode> {
        let made = nodes.downcast_ref::<AtomicU64>().unwrap();
        Ok(DeviceNode {
            name: 0x100 * (made.fetch_add(1, Ordering::Relaxed) + 1),
            of: Some(Arc::clone(nodes)),
        })
    }
    fn instantiate(_: &[Step], _: u64) -> Result {
        Ok(())
    }
    fn set(_: &(), _: &[Step], _: usize, _: bool) -> Result {
        Ok(())
    }
    fn update(_: &(), _: &[Step], _: Option<&update::Changes>) -> Result {
        Ok(())
    }
    fn launch(_: &(), _: &Arc<Vec<Step>>, _: CUstream, _: bool) -> Result {
        // It may wait for a callback that needs the store.
        with(|_| LAUNCHES.fetch_add(1, Ordering::Relaxed));
        Ok(())
    }
    fn stream_at_once(handle: CUstream, _: bool) -> Option<u64> {
        Some(handle as u64)
    }
    fn launch_at_once(_: &(), _: u64) -> Option<bool> {
        let takes = HAS_ROOM.load(Ordering::Relaxed);
        takes.then(|| AT_ONCE.fetch_add(1, Ordering::Relaxed) == 0)
    }
    fn wake() -> Result {
        with(|_| WOKEN.fetch_add(1, Ordering::Relaxed));
        Ok(())
    }
    fn device_handle(_: &()) -> Option<u64> {
        Some(DEVICE_HANDLE)
    }
    fn upload(_: &(), _: &Arc<Vec<Step>>, _: CUstream, _: bool) -> Result {
        Ok(())
    }
    fn call(_: CUstream, _: bool, what: Box<dyn FnOnce() + Send>) -> Result {
        what();
        Ok(())
    }
}

fn stream(key: u64) -> Stream {
    Stream {
        key,
        context: 7,
        is_legacy: key == 0,
        is_blocking: key == 3,
    }
}

fn kernel(function: u64) -> Work {
    let shape = Shape {
        grid: [1; 3],
        block: [1; 3],
        shared: 0,
    };
    Work::Kernel(Arc::new(Kernel::new(
        (function, 7),
        shape,
        Vec::new(),
        Signature::default(),
        &[],
    )))
}

/// A launch of one function with a parameter of eight bytes, for so many blocks.
fn kernel_of(value: u64, blocks: u32) -> Step {
    let signature = Signature {
        layout: Arc::new([(0, 8)]),
        bytes: 8,
        context: 7,
    };
    let shape = Shape {
        grid: [blocks, 1, 1],
        block: [1; 3],
        shared: 0,
    };
    let bytes = value.to_le_bytes();
    let kernel = Kernel::new((1, 7), shape, Vec::new(), signature, &bytes);
    Step {
        node: 1,
        after: Default::default(),
        work: Work::Kernel(Arc::new(kernel)),
        enabled: true,
    }
}

/// A graph of launches of one function with these values, each of which waits for the one before.
fn chain(values: &[u64]) -> u64 {
    with(|inner| {
        let graph = inner.create();
        let mut last = None;
        for value in values {
            let edge = last.map(|node| (node, abi::CUgraphEdgeData::default()));
            let work = kernel_of(*value, 1).work;
            last = Some(inner.add(graph, edge.as_slice(), work).unwrap());
        }
        graph
    })
}

#[test]
fn an_update_takes_the_differing_content_and_leaves_the_rest() {
    let _alone = alone();
    let first = chain(&[1, 2, 3]);
    let handle = exec::instantiate::<Fake>(first, 0).unwrap();
    let exec = with(|inner| inner.exec(handle)).unwrap();
    let values = || -> Vec<_> {
        let steps = Arc::clone(&exec.state().steps);
        let value = |step: &Step| match &step.work {
            Work::Kernel(of) => of.bytes()[0],
            _ => 0,
        };
        steps.iter().map(value).collect()
    };
    let before = Arc::clone(&exec.state().steps);
    let second = chain(&[1, 5, 3]);
    update::update(&exec, second).unwrap();
    assert_eq!(values(), [1, 5, 3]);
    // A list that something else holds is not changed under it.
    assert!(matches!(&before[1].work, Work::Kernel(of) if of.bytes()[0] == 2));
    // The nodes stay the first graph's.
    let steps = Arc::clone(&exec.state().steps);
    let nodes = with(|inner| inner.graph(first).unwrap().nodes.clone());
    assert!(steps.iter().map(|step| step.node).eq(nodes));
    // Another order of the same launches, and fewer of them.
    let other = chain(&[1, 5, 3]);
    with(|inner| {
        let nodes = inner.graph(other).unwrap().nodes.clone();
        let whole = abi::CUgraphEdgeData::default();
        inner
            .connect(other, &[(nodes[0], nodes[2], whole)])
            .unwrap();
    });
    let refused = |graph, result| {
        let (code, difference) = update::update(&exec, graph).unwrap_err();
        assert_eq!(code, CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE);
        assert_eq!(difference.unwrap().0, result);
    };
    refused(other, abi::updated::TOPOLOGY_CHANGED);
    let short = chain(&[1, 5]);
    refused(short, abi::updated::TOPOLOGY_CHANGED);
    assert_eq!(values(), [1, 5, 3]);
    with(|inner| {
        let graphs = [first, second, other, short];
        graphs
            .into_iter()
            .for_each(|graph| inner.forget_graph(graph));
        inner.execs.remove(&handle);
    });
}

/// The program does not wait for the driver's answer to such a change.
#[test]
fn values_of_a_launchs_parameters_alone_are_told_from_other_changes() {
    let before = [kernel_of(1, 1), kernel_of(2, 1)];
    let changes = |first: Step, second: Step| {
        let changes = update::changes(&before, &[first, second]).unwrap();
        (changes.steps, changes.are_parameters)
    };
    assert_eq!(changes(kernel_of(1, 1), kernel_of(2, 1)), (vec![], true));
    assert_eq!(changes(kernel_of(1, 1), kernel_of(3, 1)), (vec![1], true));
    assert_eq!(
        changes(kernel_of(4, 1), kernel_of(3, 1)),
        (vec![0, 1], true)
    );
    assert_eq!(
        changes(kernel_of(4, 2), kernel_of(3, 1)),
        (vec![0, 1], false)
    );
    let of_one = |after: &Step| update::changes_parameters(&before[0], after);
    assert!(of_one(&kernel_of(2, 1)));
    assert!(!of_one(&kernel_of(1, 2)));
    let mut disabled = kernel_of(1, 1);
    disabled.enabled = false;
    assert!(!of_one(&disabled));
}

fn with<T>(body: impl FnOnce(&mut Inner<Fake>) -> T) -> T {
    STORE.with(body)
}

/// A graph of one node.
fn graph_of(work: Work) -> u64 {
    with(|inner| {
        let graph = inner.create();
        inner.add(graph, &[], work).unwrap();
        graph
    })
}

/// Ends an executable graph.
fn end(exec: u64) {
    with(|inner| {
        let gone = inner.execs.remove(&exec);
        inner.discard(gone);
    });
}

fn begin(on: u64, mode: CUstreamCaptureMode) {
    capture::begin::<Fake>(&stream(on), mode, None).unwrap();
}

fn record(on: u64) -> Result<bool> {
    capture::record_work::<Fake>(&stream(on), || Ok(kernel(1)))
}

const GLOBAL: CUstreamCaptureMode = CU_STREAM_CAPTURE_MODE_GLOBAL;
const RELAXED: CUstreamCaptureMode = CU_STREAM_CAPTURE_MODE_RELAXED;

#[test]
fn pitfall_37_a_captured_stream_records_and_another_works() {
    let _alone = alone();
    assert_eq!(record(1), Ok(false));
    begin(1, GLOBAL);
    assert_eq!(
        (record(1), record(2), record(0)),
        (Ok(true), Ok(false), Ok(false))
    );
    assert_eq!(record(1), Ok(true));
    let graph = capture::end::<Fake>(&stream(1)).unwrap();
    let (steps, _) = with(|inner| flatten(inner, graph)).unwrap();
    assert_eq!(steps.len(), 2);
    assert_eq!(steps[1].after.as_slice(), [0]);
    assert!(!capture::any::<Fake>() && !capture::any_event::<Fake>());
    with(|inner| inner.forget_graph(graph));
    assert!(with(
        |inner| inner.graphs.is_empty() && inner.nodes.is_empty()
    ));
}

#[test]
fn pitfall_36_a_forbidden_call_ends_the_capture_and_frees_the_stream() {
    let _alone = alone();
    begin(1, GLOBAL);
    assert_eq!(
        capture::guard::<Fake>(),
        Err(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED)
    );
    assert_eq!(record(1), Err(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED));
    assert_eq!(
        capture::end::<Fake>(&stream(1)),
        Err(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED)
    );
    assert_eq!(capture::guard::<Fake>(), Ok(()));
    // A thread that relaxes is forbidden nothing, nor is anybody by a relaxed capture.
    begin(1, GLOBAL);
    assert_eq!(capture::exchange_mode(RELAXED), GLOBAL);
    assert_eq!(capture::guard::<Fake>(), Ok(()));
    assert_eq!(capture::exchange_mode(GLOBAL), RELAXED);
    let graph = capture::end::<Fake>(&stream(1)).unwrap();
    with(|inner| inner.forget_graph(graph));
    begin(3, RELAXED);
    assert_eq!(capture::guard::<Fake>(), Ok(()));
    assert_eq!(record(0), Err(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT));
    assert!(capture::end::<Fake>(&stream(3)).is_err());
    assert!(!capture::any::<Fake>());
}

#[test]
fn pitfall_38_streams_join_by_events_and_have_to_join_again() {
    let _alone = alone();
    for joins in [true, false] {
        begin(1, GLOBAL);
        record(1).unwrap();
        assert_eq!(
            capture::record_event::<Fake>(5, &stream(1), false),
            Ok(true)
        );
        assert_eq!(capture::wait_event::<Fake>(&stream(2), 5, false), Ok(true));
        assert_eq!(record(2), Ok(true));
        if joins {
            assert_eq!(
                capture::record_event::<Fake>(6, &stream(2), false),
                Ok(true)
            );
            assert_eq!(capture::wait_event::<Fake>(&stream(1), 6, false), Ok(true));
        }
        match capture::end::<Fake>(&stream(1)) {
            Ok(graph) => {
                assert!(joins);
                with(|inner| inner.forget_graph(graph));
            }
            Err(code) => assert_eq!((code, joins), (CUDA_ERROR_STREAM_CAPTURE_UNJOINED, false)),
        }
        // Neither stream records any more; the event is of no use until it is recorded again.
        assert_eq!((record(1), record(2)), (Ok(false), Ok(false)));
        assert_eq!(
            capture::use_event::<Fake>(5),
            Err(CUDA_ERROR_CAPTURED_EVENT)
        );
        for event in [5, 6] {
            assert_eq!(
                capture::record_event::<Fake>(event, &stream(2), false),
                Ok(false)
            );
            assert_eq!(capture::use_event::<Fake>(event), Ok(()));
        }
        assert!(!capture::any_event::<Fake>());
    }
}

#[test]
fn pitfall_38_a_stream_that_ends_leaves_its_work_in_the_capture() {
    let _alone = alone();
    let fork = || {
        assert_eq!(
            capture::record_event::<Fake>(5, &stream(1), false),
            Ok(true)
        );
        assert_eq!(capture::wait_event::<Fake>(&stream(2), 5, false), Ok(true));
    };
    // The stream's work is joined, is not, or there is none.
    for (works, joins) in [(true, true), (true, false), (false, false)] {
        begin(1, GLOBAL);
        record(1).unwrap();
        fork();
        if works {
            record(2).unwrap();
        }
        if joins {
            assert_eq!(
                capture::record_event::<Fake>(6, &stream(2), false),
                Ok(true)
            );
            assert_eq!(capture::wait_event::<Fake>(&stream(1), 6, false), Ok(true));
        }
        capture::forget_stream::<Fake>(2);
        assert_eq!((record(2), record(1)), (Ok(false), Ok(true)));
        match capture::end::<Fake>(&stream(1)) {
            Ok(graph) => {
                assert!(joins || !works);
                with(|inner| inner.forget_graph(graph));
            }
            Err(code) => {
                assert_eq!(code, CUDA_ERROR_STREAM_CAPTURE_UNJOINED);
                assert!(works && !joins);
            }
        }
        assert!(!capture::any::<Fake>());
    }
    // The stream in which it began takes it along, and so does a context that ends.
    begin(1, GLOBAL);
    fork();
    capture::forget_stream::<Fake>(1);
    assert!(!capture::any::<Fake>());
    begin(1, GLOBAL);
    fork();
    capture::forget_context::<Fake>(stream(2).context);
    assert!(!capture::any::<Fake>());
    for event in [5, 6] {
        capture::forget_event::<Fake>(event);
    }
}

#[test]
fn pitfall_38_a_capture_is_a_graph_only_in_its_own_stream_and_thread() {
    let _alone = alone();
    let elsewhere = || {
        std::thread::spawn(|| capture::end::<Fake>(&stream(1)))
            .join()
            .unwrap()
    };
    begin(1, GLOBAL);
    assert_eq!(elsewhere(), Err(CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD));
    assert!(!capture::any::<Fake>());
    begin(1, RELAXED);
    let graph = elsewhere().unwrap();
    with(|inner| inner.forget_graph(graph));
    begin(1, GLOBAL);
    assert_eq!(
        capture::record_event::<Fake>(5, &stream(1), false),
        Ok(true)
    );
    assert_eq!(capture::wait_event::<Fake>(&stream(2), 5, false), Ok(true));
    assert_eq!(
        capture::end::<Fake>(&stream(2)),
        Err(CUDA_ERROR_STREAM_CAPTURE_UNMATCHED)
    );
    assert_eq!(elsewhere(), Err(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED));
    assert!(!capture::any::<Fake>());
    begin(1, GLOBAL);
    assert_eq!(
        capture::record_event::<Fake>(5, &stream(1), false),
        Ok(true)
    );
    assert_eq!(capture::wait_event::<Fake>(&stream(2), 5, false), Ok(true));
    assert_eq!(record(2), Ok(true));
    assert_eq!(elsewhere(), Err(CUDA_ERROR_STREAM_CAPTURE_UNJOINED));
    assert!(!capture::any::<Fake>());
    capture::forget_event::<Fake>(5);
}

#[test]
fn pitfall_42_edges_are_added_all_or_none_and_a_cycle_has_no_order() {
    let _alone = alone();
    with(|inner| {
        let (graph, other) = (inner.create(), inner.create());
        let edge = abi::CUgraphEdgeData::default();
        let nodes: Vec<u64> = (0..3)
            .map(|_| inner.add(graph, &[], Work::Empty).unwrap())
            .collect();
        let foreign = inner.add(other, &[], Work::Empty).unwrap();
        let bad = Err(CUDA_ERROR_INVALID_VALUE);
        assert_eq!(
            inner.add(graph, &[(foreign, edge)], Work::Empty),
            Err(CUDA_ERROR_INVALID_VALUE)
        );
        inner
            .connect(
                graph,
                &[(nodes[0], nodes[1], edge), (nodes[1], nodes[2], edge)],
            )
            .unwrap();
        assert_eq!(inner.connect(graph, &[(nodes[0], nodes[0], edge)]), bad);
        assert_eq!(
            inner.connect(
                graph,
                &[(nodes[0], nodes[2], edge), (nodes[0], nodes[1], edge)]
            ),
            bad
        );
        let circle = [(nodes[2], nodes[0], edge)];
        inner.connect(graph, &circle).unwrap();
        assert_eq!(inner.ordered(graph), Err(CUDA_ERROR_INVALID_VALUE));
        assert!(inner.has_circle(graph) && !inner.has_circle(other));
        let clone = inner.clone_graph(graph).unwrap();
        let child = inner.add(other, &[], Work::Child(clone)).unwrap();
        assert!(inner.has_circle(other));
        inner.remove_node(child).unwrap();
        inner.disconnect(graph, &circle).unwrap();
        assert!(!inner.has_circle(graph) && !inner.has_circle(other));
        assert_eq!(inner.connect(graph, &[(nodes[0], foreign, edge)]), bad);
        assert_eq!(inner.nodes[&nodes[2]].dependencies.len(), 1);
        assert_eq!(inner.ordered(graph).unwrap(), nodes);
        inner.remove_node(nodes[1]).unwrap();
        assert!(
            inner.nodes[&nodes[2]].dependencies.is_empty()
                && inner.nodes[&nodes[0]].dependents.is_empty()
        );
        inner.forget_graph(graph);
        inner.forget_graph(other);
        assert!(inner.nodes.is_empty());
    });
}

#[test]
fn pitfall_42_steps_say_how_they_wait_in_one_order() {
    let _alone = alone();
    let (whole, part) = (
        abi::CUgraphEdgeData::default(),
        abi::CUgraphEdgeData::PROGRAMMATIC,
    );
    /// The steps of three launches, the last of which waits for the others by these edges.
    fn steps_of(edges: [(usize, abi::CUgraphEdgeData); 2]) -> Vec<crate::exec::Step> {
        with(|inner| {
            let graph = inner.create();
            let nodes = [1, 2, 3].map(|of| inner.add(graph, &[], kernel(of)).unwrap());
            for (from, edge) in edges {
                inner
                    .connect(graph, &[(nodes[from], nodes[2], edge)])
                    .unwrap();
            }
            let (steps, _) = flatten(inner, graph).unwrap();
            inner.forget_graph(graph);
            steps
        })
    }
    let steps = steps_of([(0, whole), (1, part)]);
    let Work::Edges(edges) = &steps[2].work else {
        panic!("no edges");
    };
    assert_eq!(
        (&edges[..], &steps[3].after[..]),
        (&[whole, part][..], &[0, 1][..])
    );
    let turned = steps_of([(1, part), (0, whole)]);
    assert_eq!(update::compare_steps(&steps, &turned), None);
    assert_eq!(update::changes(&steps, &turned).unwrap().steps, []);
    for other in [
        [(0, part), (1, part)],
        [(0, part), (1, whole)],
        [(0, whole), (1, whole)],
    ] {
        let update::Difference(result, ..) =
            update::compare_steps(&steps, &steps_of(other)).unwrap();
        assert_eq!(result, abi::updated::TOPOLOGY_CHANGED);
    }
}

#[test]
fn pitfall_37_an_edge_that_no_graph_can_be_given_waits_for_all() {
    let _alone = alone();
    begin(1, GLOBAL);
    record(1).unwrap();
    let launch = with(|inner| *inner.nodes.keys().next().unwrap());
    let edge = [(launch, abi::CUgraphEdgeData::PROGRAMMATIC)];
    capture::set_dependencies::<Fake>(&stream(1), &edge, false).unwrap();
    assert!(capture::info::<Fake>(&stream(1)).unwrap().is_partial);
    capture::record_work::<Fake>(&stream(1), || Ok(Work::Empty)).unwrap();
    let graph = capture::end::<Fake>(&stream(1)).unwrap();
    with(|inner| {
        let dependents = inner.nodes[&launch].dependents.iter();
        let shown: Vec<_> = dependents.map(|(_, edge)| *edge).collect();
        assert_eq!(shown, [edge[0].1]);
        // A program cannot add it, whatever it makes the node with.
        let refused = inner.add(graph, &edge, Work::Empty);
        assert_eq!(refused, Err(CUDA_ERROR_INVALID_VALUE));
        let (steps, _) = flatten(inner, graph).unwrap();
        assert_eq!(steps.len(), 2);
        inner.forget_graph(graph);
    });
}

/// A function's result at a given address.
fn answer<T: Copy>(nothing: T, ask: impl FnOnce(*mut T) -> Result) -> T {
    let mut to = nothing;
    ask(&raw mut to).unwrap();
    to
}

#[test]
fn graphs_and_nodes_have_ids_that_stay() {
    let _alone = alone();
    let edge = abi::CUgraphEdgeData::default();
    let (graph, other, nodes) = with(|inner| {
        let (graph, other) = (inner.create(), inner.create());
        let nodes = [(); 3].map(|()| inner.add(graph, &[], Work::Empty).unwrap());
        inner.connect(graph, &[(nodes[0], nodes[2], edge)]).unwrap();
        (graph, other, nodes)
    });
    let id = |graph: u64| {
        // SAFETY: the places are valid for the calls.
        answer(0, |to| unsafe {
            api::cuGraphGetId::<Fake, false>(graph as _, to)
        })
    };
    let number = |node: u64| {
        // SAFETY: as above.
        answer(9, |to| unsafe {
            api::cuGraphNodeGetLocalId::<Fake, false>(node as _, to)
        })
    };
    let tools = |node: u64| {
        // SAFETY: as above.
        answer(0, |to| unsafe {
            api::cuGraphNodeGetToolsId::<Fake, false>(node as _, to)
        })
    };
    let within = |node: u64| {
        // SAFETY: as above.
        answer(std::ptr::null_mut(), |to| unsafe {
            api::cuGraphNodeGetContainingGraph::<Fake, false>(node as _, to)
        }) as u64
    };
    assert_ne!(id(graph), id(other));
    assert_eq!(nodes.map(number), [0, 1, 2]);
    assert_eq!(nodes.map(within), [graph; 3]);
    let above = u64::from(id(graph)) << 32;
    assert_eq!(nodes.map(tools), [above, above | 1, above | 2]);
    // A removed node's number is not reused, in clones either.
    let (last, clone) = with(|inner| {
        inner.remove_node(nodes[1]).unwrap();
        let last = inner.add(graph, &[], Work::Empty).unwrap();
        (last, inner.clone_graph(graph).unwrap())
    });
    assert_eq!((number(nodes[2]), number(last)), (2, 3));
    let (cloned, added) = with(|inner| {
        let cloned = inner.graph(clone).unwrap().nodes.clone();
        (cloned, inner.add(clone, &[], Work::Empty).unwrap())
    });
    let numbers: Vec<u32> = cloned.iter().map(|node| number(*node)).collect();
    assert_eq!((numbers, number(added)), (vec![0, 2, 3], 4));
    assert_eq!((within(cloned[0]), within(added)), (clone, clone));
    assert_ne!(id(clone), id(graph));
    // An executable graph has an id of its own.
    let exec = exec::instantiate::<Fake>(graph, 0).unwrap();
    // SAFETY: as above.
    let of_exec = answer(0, |to| unsafe {
        api::cuGraphExecGetId::<Fake, false>(exec as _, to)
    });
    assert!(![id(graph), id(other), id(clone), 0].contains(&of_exec));
    // The ids are those of the print.
    let text = with(|inner| dot::print(inner, graph)).unwrap();
    let number = id(graph);
    let edge = format!("\"graph_{number}_node_0\" -> \"graph_{number}_node_2\"\n");
    assert!(text.contains(&edge), "{text}");
    assert!(text.contains(&format!("handle {last:#x}\"]")), "{text}");
    let bad = Err(CUDA_ERROR_INVALID_VALUE);
    // SAFETY: as above; NULL is refused, and a handle that ended is none.
    unsafe {
        assert_eq!(
            api::cuGraphGetId::<Fake, false>(graph as _, std::ptr::null_mut()),
            bad
        );
        assert_eq!(
            api::cuGraphExecGetId::<Fake, false>(exec as _, std::ptr::null_mut()),
            bad
        );
        let node = nodes[0] as CUgraphNode;
        assert_eq!(
            api::cuGraphNodeGetLocalId::<Fake, false>(node, std::ptr::null_mut()),
            bad
        );
        assert_eq!(
            api::cuGraphNodeGetToolsId::<Fake, false>(node, std::ptr::null_mut()),
            bad
        );
        let gone = nodes[1] as CUgraphNode;
        let mut to = std::ptr::null_mut();
        let found = api::cuGraphNodeGetContainingGraph::<Fake, false>(gone, &raw mut to);
        assert_eq!(found, bad);
        api::cuGraphExecDestroy::<Fake, false>(exec as _).unwrap();
    }
    with(|inner| [graph, other, clone].map(|graph| inner.forget_graph(graph)));
}

#[test]
fn a_nodes_parameters_come_back_by_its_type() {
    let _alone = alone();
    // SAFETY: all members are numbers and pointers, of which zero is a value.
    let nothing: abi::CUgraphNodeParams = unsafe { std::mem::zeroed() };
    let of = |work: Work| {
        let (graph, node) = with(|inner| {
            let graph = inner.create();
            (graph, inner.add(graph, &[], work).unwrap())
        });
        // SAFETY: the place is valid for the call.
        let given = answer(nothing, |to| unsafe {
            api::cuGraphNodeGetParams::<Fake, false>(node as _, to.cast())
        });
        with(|inner| inner.forget_graph(graph));
        given
    };
    let bodies = [11, 12];
    let conditional = Arc::new(Conditional {
        condition: 3,
        kind: 0,
        context: 7,
        bodies: bodies.into(),
    });
    let fill = abi::CUDA_MEMSET_NODE_PARAMS {
        dst: 0x80,
        pitch: 4,
        value: 5,
        elementSize: 1,
        width: 4,
        height: 1,
    };
    let line = Copy3D::line(
        (CU_MEMORYTYPE_DEVICE, 0x20),
        (CU_MEMORYTYPE_HOST, 0x10),
        8,
        7,
    );
    unsafe extern "C" fn called(_: *mut c_void) {}
    let host = abi::CUDA_HOST_NODE_PARAMS {
        function: Some(called),
        userData: 0x99 as *mut c_void,
    };
    let allocation = STORE.allocate(0, &[], 7, 64).unwrap();
    let address = allocation.address();
    let ops = MemOps {
        context: 7,
        flags: 0,
        ops: [[1; 6], [2; 6]].into(),
    };
    // SAFETY: the type of each says which member was written.
    unsafe {
        let given = of(kernel(0x55));
        assert_eq!(given.type_, abi::kind::KERNEL);
        let launch = given.of.kernel;
        assert_eq!((launch.func as u64, launch.gridDimX), (0x55, 1));
        assert_eq!(launch.ctx as u64, 7);
        let given = of(Work::Copy(Box::new(line.unwrap())));
        assert_eq!(given.type_, abi::kind::MEMCPY);
        let copy = given.of.memcpy;
        assert_eq!((copy.flags, copy.copyCtx as u64), (0, 7));
        let copy = copy.copyParams;
        assert_eq!((copy.dstDevice, copy.WidthInBytes), (0x20, 8));
        let given = of(Work::Fill(Fill::new(fill, 7).unwrap()));
        assert_eq!(given.type_, abi::kind::MEMSET);
        assert_eq!(given.of.memset.fill, fill);
        assert_eq!(given.of.memset.ctx as u64, 7);
        let given = of(Work::Host(Host(host)));
        assert_eq!(given.type_, abi::kind::HOST);
        assert_eq!(given.of.host.userData, host.userData);
        // The word behind them is the mode, which is that of blocking.
        assert_eq!(given.of.reserved[2], 0);
        let given = of(Work::MemOps(Arc::new(ops)));
        assert_eq!(given.type_, abi::kind::BATCH_MEM_OP);
        assert_eq!(given.of.memOp.count, 2);
        let given = of(Work::Conditional(conditional.clone()));
        assert_eq!(given.type_, abi::kind::CONDITIONAL);
        let condition = given.of.conditional;
        assert_eq!((condition.handle, condition.size), (3, 2));
        assert_eq!(
            condition.phGraph_out as *const u64,
            conditional.bodies.as_ptr()
        );
        for (work, kind) in [
            (Work::Record(4), abi::kind::EVENT_RECORD),
            (Work::Wait(4), abi::kind::WAIT_EVENT),
        ] {
            let given = of(work);
            assert_eq!((given.type_, given.of.event as u64), (kind, 4));
        }
        let given = of(Work::Alloc(allocation.clone()));
        assert_eq!(given.type_, abi::kind::MEM_ALLOC);
        assert_eq!(
            (given.of.alloc.dptr, given.of.alloc.bytesize),
            (address, 64)
        );
        let given = of(Work::Free(allocation));
        assert_eq!((given.type_, given.of.dptr), (abi::kind::MEM_FREE, address));
        let child = with(|inner| inner.create());
        let given = of(Work::Child(child));
        assert_eq!(given.type_, abi::kind::GRAPH);
        assert_eq!(
            (given.of.child.graph as u64, given.of.child.ownership),
            (child, -1)
        );
        let given = of(Work::Empty);
        assert_eq!(
            (given.type_, given.of.reserved),
            (abi::kind::EMPTY, [0; 29])
        );
    }
    // The result of a library's call is the host's.
    let (graph, node) = with(|inner| {
        let graph = inner.create();
        (
            graph,
            inner.add(graph, &[], Work::Own(Arc::new(()))).unwrap(),
        )
    });
    let mut to = nothing;
    // SAFETY: the place is valid for the call.
    let own = unsafe { api::cuGraphNodeGetParams::<Fake, false>(node as _, (&raw mut to).cast()) };
    assert_eq!(own, Err(CUDA_ERROR_NOT_SUPPORTED));
    with(|inner| inner.forget_graph(graph));
}

#[test]
fn pitfall_41_a_graph_in_a_graph_lies_flat_and_updates_are_compared() {
    let _alone = alone();
    let (steps, other) = with(|inner| {
        let inside = inner.create();
        for function in 0..2 {
            inner.add(inside, &[], kernel(function)).unwrap();
        }
        let graph = inner.create();
        let edge = |node| [(node, abi::CUgraphEdgeData::default())];
        let first = inner.add(graph, &[], kernel(3)).unwrap();
        let clone = inner.clone_graph(inside).unwrap();
        let child = inner.add(graph, &edge(first), Work::Child(clone)).unwrap();
        inner.add(graph, &edge(child), Work::Empty).unwrap();
        let (steps, places) = flatten(inner, graph).unwrap();
        // The first, the child's start, its two, its end, the last.
        let after: Vec<_> = steps.iter().map(|step| step.after.to_vec()).collect();
        assert_eq!(
            after,
            [vec![], vec![0], vec![1], vec![1], vec![2, 3], vec![4]]
        );
        assert_eq!(places[&child], 4);
        let other = inner.clone_graph(graph).unwrap();
        inner.forget_graph(graph);
        inner.forget_graph(inside);
        let (other_steps, _) = flatten(inner, other).unwrap();
        inner.forget_graph(other);
        assert!(inner.graphs.is_empty() && inner.nodes.is_empty());
        (steps, other_steps)
    });
    assert_eq!(update::compare_steps(&steps, &other), None);
    assert_eq!(update::changes(&steps, &other).unwrap().steps, []);
    let mut changed = other.clone();
    changed[0].work = kernel(4);
    changed[3].work = kernel(5);
    assert_eq!(update::compare_steps(&steps, &changed), None);
    let changes = update::changes(&steps, &changed).unwrap();
    assert_eq!(changes.steps, [0, 3]);
    // Another function may be refused.
    assert!(!changes.are_parameters);
    // The driver sets a launch's parameters, and not its attributes.
    let Work::Kernel(of) = &other[0].work else {
        panic!("no launch");
    };
    let attribute = CUlaunchAttribute {
        id: CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION,
        pad: [0; 4],
        value: CUlaunchAttributeValue { pad: [0; 64] },
    };
    let mut value = attribute;
    value.value.words = [1; 8];
    changed[0].work = Work::Kernel(Arc::new(of.with_attributes(vec![value])));
    assert_eq!(update::compare_steps(&steps, &changed), None);
    assert_eq!(update::changes(&steps, &changed), None);
    // An attribute that is set to nothing is one that is not set.
    changed[0].work = Work::Kernel(Arc::new(of.with_attributes(vec![attribute])));
    assert_eq!(update::changes(&steps, &changed).unwrap().steps, [3]);
    let mut changed = other.clone();
    changed[0].work = Work::Empty;
    let update::Difference(result, node, _) = update::compare_steps(&steps, &changed).unwrap();
    assert_eq!(
        (result, node),
        (abi::updated::NODE_TYPE_CHANGED, other[0].node)
    );
    let mut changed = other.clone();
    changed[5].after.clear();
    let update::Difference(result, ..) = update::compare_steps(&steps, &changed).unwrap();
    assert_eq!(result, abi::updated::TOPOLOGY_CHANGED);
    let update::Difference(result, ..) = update::compare_steps(&steps, &other[1..]).unwrap();
    assert_eq!(result, abi::updated::TOPOLOGY_CHANGED);
}

#[test]
fn pitfall_40_objects_end_with_their_last_holder() {
    static ENDED: AtomicU32 = AtomicU32::new(0);
    unsafe extern "C" fn ended(_: *mut c_void) {
        ENDED.fetch_add(1, Ordering::Relaxed);
    }
    let _alone = alone();
    let mut object = std::ptr::null_mut();
    let graph = with(|inner| inner.create());
    // SAFETY: the pointers are to values that live across the calls.
    unsafe {
        let data = std::ptr::null_mut();
        api::cuUserObjectCreate::<Fake, false>(&mut object, data, Some(ended), 1, 1).unwrap();
        let graph = graph as CUgraph;
        api::cuGraphRetainUserObject::<Fake, false>(graph, object, 1, 1).unwrap();
        let code = api::cuUserObjectRelease::<Fake, false>(object, 2);
        assert_eq!(code, Err(CUDA_ERROR_INVALID_VALUE));
    }
    let exec = exec::instantiate::<Fake>(graph, 0).unwrap();
    with(|inner| inner.forget_graph(graph));
    assert_eq!(ENDED.load(Ordering::Relaxed), 0);
    let launches = LAUNCHES.load(Ordering::Relaxed);
    // SAFETY: as above.
    unsafe { api::cuGraphLaunch::<Fake, false>(exec as CUgraphExec, 1 as CUstream) }.unwrap();
    assert_eq!(LAUNCHES.load(Ordering::Relaxed), launches + 1);
    // SAFETY: as above.
    unsafe { api::cuGraphExecDestroy::<Fake, false>(exec as CUgraphExec) }.unwrap();
    assert_eq!(ENDED.load(Ordering::Relaxed), 1);
    assert!(with(
        |inner| inner.objects.is_empty() && inner.execs.is_empty()
    ));
}

#[test]
fn pitfall_36_a_stream_that_ends_leaves_the_capture_that_it_joined() {
    let _alone = alone();
    let (origin, other) = (stream(1), stream(2));
    for is_joined in [true, false] {
        capture::begin::<Fake>(&origin, CU_STREAM_CAPTURE_MODE_RELAXED, None).unwrap();
        let record = |stream: &Stream| {
            capture::record_work::<Fake>(stream, || Ok(Work::Empty)).unwrap();
        };
        record(&origin);
        capture::record_event::<Fake>(5, &origin, false).unwrap();
        let joined = capture::wait_event::<Fake>(&other, 5, false);
        assert_eq!(joined, Ok(true));
        record(&other);
        if is_joined {
            capture::record_event::<Fake>(6, &other, false).unwrap();
            capture::wait_event::<Fake>(&origin, 6, false).unwrap();
        }
        capture::forget_stream::<Fake>(2);
        record(&origin);
        let graph = capture::end::<Fake>(&origin);
        match is_joined {
            true => with(|inner| inner.forget_graph(graph.unwrap())),
            false => assert_eq!(graph, Err(CUDA_ERROR_STREAM_CAPTURE_UNJOINED)),
        }
        capture::forget_event::<Fake>(5);
        capture::forget_event::<Fake>(6);
    }
}

#[test]
fn a_graph_that_kernels_launch_has_the_driver_s_handle_and_only_nodes_of_the_gpu() {
    let _alone = alone();
    let instantiate = |graph, flags| exec::instantiate::<Fake>(graph, abi::DEVICE_LAUNCH | flags);
    let refused = |result, node| exec::Refused {
        code: CUDA_ERROR_INVALID_VALUE,
        result,
        node,
    };
    let graph = with(|inner| inner.create());
    assert_eq!(instantiate(graph, 0), Err(refused(1, 0)));
    with(|inner| inner.add(graph, &[], kernel(1)).unwrap());
    let (inner_graph, within) = with(|inner| {
        let within = inner.create();
        let node = inner.add(within, &[], Work::Record(5)).unwrap();
        (within, node)
    });
    assert_eq!(instantiate(inner_graph, 0), Err(refused(3, within)));
    assert_eq!(
        instantiate(graph, abi::AUTO_FREE_ON_LAUNCH),
        Err(refused(1, 0))
    );
    assert_eq!(
        instantiate(graph, abi::USE_NODE_PRIORITY),
        Ok(DEVICE_HANDLE)
    );
    // The driver gives the name again: the context of the first one has ended.
    let first = with(|inner| inner.exec(DEVICE_HANDLE)).unwrap();
    assert_eq!(instantiate(graph, 0), Ok(DEVICE_HANDLE));
    let second = with(|inner| inner.exec(DEVICE_HANDLE)).unwrap();
    assert!(!Arc::ptr_eq(&first, &second) && Arc::strong_count(&first) == 1);
    end(DEVICE_HANDLE);
    with(|inner| {
        inner.forget_graph(graph);
        inner.forget_graph(inner_graph);
    });
}
