// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Launches that kernels update.

use super::*;

/// Marks a node as one that kernels update, and returns its name.
fn mark(node: u64) -> Result<u64> {
    let mut value = CUlaunchAttributeValue {
        words: [1, 0, 0, 0, 0, 0, 0, 0],
    };
    let attribute = CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE;
    let to = (&raw mut value).cast_const().cast();
    // SAFETY: the pointer is to a value that lives across the call.
    unsafe {
        api::cuGraphKernelNodeSetAttribute::<Fake, false>(node as CUgraphNode, attribute, to)?;
        Ok(value.words[1])
    }
}

fn launch_in(graph: u64) -> u64 {
    with(|inner| inner.add(graph, &[], kernel(1))).unwrap()
}

fn steps(graph: u64) -> Vec<Step> {
    with(|inner| flatten(inner, graph)).unwrap().0
}

fn is_updatable(step: &Step) -> bool {
    crate::updatable::is_updatable(&step.work)
}

#[test]
fn a_graph_and_its_child_graphs_have_their_nodes_together() {
    let _alone = alone();
    let (graph, inner_graph) = (with(Inner::create), with(Inner::create));
    launch_in(inner_graph);
    let child = with(|inner| {
        let clone = inner.clone_graph(inner_graph)?;
        inner.add(graph, &[], Work::Child(clone))?;
        Ok::<_, CUresult>(clone)
    })
    .unwrap();
    let inside = with(|inner| inner.graph(child).unwrap().nodes[0]);
    let own = launch_in(graph);
    // The fake driver numbers the nodes of each graph.
    assert_eq!((mark(inside), mark(own)), (Ok(0x100), Ok(0x200)));
    assert_eq!((mark(own), mark(inside)), (Ok(0x200), Ok(0x100)));
    assert_eq!(steps(graph).iter().filter(|of| is_updatable(of)).count(), 2);
    let other = with(Inner::create);
    let plain = launch_in(other);
    assert_eq!(mark(plain), Ok(0x100));
    // Neither the launches nor the child graph's node can be destroyed or copied.
    let child_node = with(|inner| inner.graph(child).unwrap().owner).unwrap();
    for node in [own, inside, child_node] {
        assert_eq!(
            with(|inner| inner.remove_node(node)),
            Err(CUDA_ERROR_NOT_SUPPORTED)
        );
    }
    // In a clone they are plain launches, which have the names of the originals.
    let clone = with(|inner| inner.clone_graph(graph)).unwrap();
    let all = steps(clone);
    let names = all.iter().filter_map(|step| match &step.work {
        Work::Kernel(kernel) => kernel.device_node.as_ref().map(|of| of.name),
        _ => None,
    });
    assert_eq!(names.collect::<Vec<_>>(), [0x100, 0x200]);
    assert!(!all.iter().any(is_updatable));
    // The driver's nodes of two graphs cannot be in one executable graph.
    let joined = with(|inner| inner.add(graph, &[], Work::Child(other)));
    assert_eq!(joined, Err(CUDA_ERROR_NOT_SUPPORTED));
    let whole = with(Inner::create);
    assert!(with(|inner| inner.add(whole, &[], Work::Child(other))).is_ok());
    let next = launch_in(whole);
    assert_eq!(mark(next), Ok(0x200));
    with(|inner| [graph, inner_graph, clone, whole].map(|of| inner.forget_graph(of)));
}

/// The driver might have to rebuild the whole graph, which could then never be launched again.
#[test]
fn no_child_graph_beside_such_a_launch_is_changed() {
    let _alone = alone();
    let (graph, plain) = (with(Inner::create), with(Inner::create));
    launch_in(plain);
    let own = launch_in(graph);
    let child = with(|inner| {
        let clone = inner.clone_graph(plain)?;
        inner.add(graph, &[], Work::Child(clone))?;
        Ok::<_, CUresult>(clone)
    })
    .unwrap();
    let change = || {
        let handle = exec::instantiate::<Fake>(graph, 0).unwrap();
        let made = with(|inner| inner.exec(handle)).unwrap();
        let changed = made.change_child(child, plain);
        // SAFETY: the executable graph is there.
        unsafe { api::cuGraphExecDestroy::<Fake, false>(handle as CUgraphExec) }.unwrap();
        changed
    };
    assert_eq!(change(), Ok(()));
    mark(own).unwrap();
    assert_eq!(change(), Err(CUDA_ERROR_NOT_SUPPORTED));
    with(|inner| [graph, plain].map(|of| inner.forget_graph(of)));
}

#[test]
fn only_launches_outside_bodies_can_be_updated() {
    let _alone = alone();
    let graph = with(Inner::create);
    let empty = with(|inner| inner.add(graph, &[], Work::Empty)).unwrap();
    assert_eq!(mark(empty), Err(CUDA_ERROR_INVALID_VALUE));
    let condition = Condition {
        context: 7,
        default: 1,
        flags: 1,
        node: None,
    };
    let body = with(|inner| {
        let value = inner.add_condition(graph, condition)?;
        let (_, bodies) = inner.add_conditional(graph, &[], (value, 7), (0, 1))?;
        // SAFETY: the node has one body.
        Ok::<_, CUresult>(unsafe { bodies.read() })
    })
    .unwrap();
    let inside = launch_in(body);
    assert_eq!(mark(inside), Err(CUDA_ERROR_NOT_SUPPORTED));
    assert!(!steps(graph).iter().any(is_updatable));
    with(|inner| inner.forget_graph(graph));
}
