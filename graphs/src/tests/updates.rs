// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Updates of executable graphs.

use super::*;

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
    // A list with other references is not changed in place.
    assert!(matches!(&before[1].work, Work::Kernel(of) if of.bytes()[0] == 2));
    // The nodes are still the first graph's.
    let steps = Arc::clone(&exec.state().steps);
    let nodes = with(|inner| inner.graph(first).unwrap().nodes.clone());
    assert!(steps.iter().map(|step| step.node).eq(nodes));
    // The same launches in another order, and fewer launches.
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

/// The program does not wait for the driver's answer to a change of parameters.
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
        // The first, the child's start, its two steps, its end, the last.
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
    // The driver may refuse another function.
    assert!(!changes.are_parameters);
    // The driver sets a launch's parameters, but not its attributes.
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
    // An attribute with a value of zero is one that is not set.
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
