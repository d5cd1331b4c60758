// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Edges, ids and parameters of nodes, and the destruction of graphs.

use super::*;

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
    /// The steps of three launches, the last of which depends on the others by these edges.
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
        // A program cannot add it, whatever the node's type is.
        let refused = inner.add(graph, &edge, Work::Empty);
        assert_eq!(refused, Err(CUDA_ERROR_INVALID_VALUE));
        let (steps, _) = flatten(inner, graph).unwrap();
        assert_eq!(steps.len(), 2);
        inner.forget_graph(graph);
    });
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
    // A removed node's number is not reused, not even in clones.
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
    // An executable graph has its own id.
    let exec = exec::instantiate::<Fake>(graph, 0).unwrap();
    // SAFETY: as above.
    let of_exec = answer(0, |to| unsafe {
        api::cuGraphExecGetId::<Fake, false>(exec as _, to)
    });
    assert!(![id(graph), id(other), id(clone), 0].contains(&of_exec));
    // The printed ids are the same.
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
        // The word after them is the mode: blocking.
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
    // Only the host knows the result of a library's call.
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
    // The driver reuses the name, because the first one's context was destroyed.
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

#[test]
fn pitfall_40_an_update_replaces_the_objects() {
    static ENDED: [AtomicU32; 2] = [AtomicU32::new(0), AtomicU32::new(0)];
    unsafe extern "C" fn ended(data: *mut c_void) {
        ENDED[data as usize].fetch_add(1, Ordering::Relaxed);
    }
    let ends = || ENDED.each_ref().map(|of| of.load(Ordering::Relaxed));
    let _alone = alone();
    // A graph that alone has an object.
    let with_object = |which: usize, values: &[u64]| {
        let graph = chain(values);
        let mut object = std::ptr::null_mut();
        let (data, moves) = (which as *mut c_void, 1);
        // SAFETY: the pointers are to values that live across the calls.
        unsafe {
            api::cuUserObjectCreate::<Fake, false>(&mut object, data, Some(ended), 1, 1).unwrap();
            api::cuGraphRetainUserObject::<Fake, false>(graph as CUgraph, object, 1, moves)
                .unwrap();
        }
        graph
    };
    let graph = with_object(0, &[1, 2]);
    let handle = exec::instantiate::<Fake>(graph, 0).unwrap();
    with(|inner| inner.forget_graph(graph));
    let exec = with(|inner| inner.exec(handle)).unwrap();
    // A refused update changes nothing.
    let other = with_object(1, &[1]);
    update::update(&exec, other).unwrap_err();
    assert_eq!(ends(), [0, 0]);
    with(|inner| inner.forget_graph(other));
    assert_eq!(ends(), [0, 1]);
    let other = with_object(1, &[1, 3]);
    update::update(&exec, other).unwrap();
    assert_eq!(ends(), [1, 1]);
    with(|inner| inner.forget_graph(other));
    assert_eq!(ends(), [1, 1], "the executable graph holds it");
    let plain = chain(&[1, 2]);
    update::update(&exec, plain).unwrap();
    assert_eq!(ends(), [1, 2]);
    with(|inner| inner.forget_graph(plain));
    drop(exec);
    // SAFETY: the handle is one.
    unsafe { api::cuGraphExecDestroy::<Fake, false>(handle as CUgraphExec) }.unwrap();
    assert!(with(|inner| inner.objects.is_empty()));
}
