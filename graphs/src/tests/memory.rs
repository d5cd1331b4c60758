// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Memory of graphs.

use std::sync::{Arc, atomic::Ordering};

use gpgpu_protocol::cuda::*;

use super::{FREED, Fake, STORE, alone, end, graph_of, with};
use crate::{exec, node::Work, store::Inner};

#[test]
fn pitfall_68_memory_is_a_graphs_until_nothing_uses_it() {
    let _alone = alone();
    let allocation = STORE.allocate(0, &[], 7, 64).unwrap();
    let address = allocation.address();
    let graph = graph_of(Work::Alloc(allocation));
    let exec = exec::instantiate::<Fake>(graph, 0).unwrap();
    with(|inner| inner.forget_graph(graph));
    let launch = || {
        with(|inner| inner.exec(exec))
            .unwrap()
            .launch(std::ptr::null_mut(), false)
    };
    assert_eq!(
        STORE.free(address),
        Some(Err(CUDA_ERROR_INVALID_VALUE)),
        "no launch has allocated it"
    );
    assert_eq!(launch(), Ok(()));
    assert_eq!(launch(), Err(CUDA_ERROR_INVALID_VALUE), "it was not freed");
    assert_eq!(STORE.free(address), Some(Ok(())));
    assert_eq!(launch(), Ok(()));
    assert_eq!(STORE.free(address), Some(Ok(())));
    end(exec);
    assert_eq!(FREED.load(Ordering::Relaxed), address);
    assert_eq!(STORE.free(address), None);
}

#[test]
fn pitfall_68_allocations_that_follow_each_other_share_memory() {
    let _alone = alone();
    let add = |graph, after: &[u64], work| {
        let edges: Vec<_> = after.iter().map(|of| (*of, Default::default())).collect();
        with(|inner| inner.add(graph, &edges, work)).unwrap()
    };
    let allocate = |graph, after: &[u64], bytes| {
        let edges: Vec<_> = after.iter().map(|of| (*of, Default::default())).collect();
        STORE.allocate(graph, &edges, 7, bytes).unwrap()
    };
    let graph = with(Inner::create);
    let first = allocate(graph, &[], 64);
    let start = add(graph, &[], Work::Alloc(first.clone()));
    let freed = add(graph, &[start], Work::Free(first.clone()));
    let beside = allocate(graph, &[start], 64);
    assert_ne!(beside.address(), first.address(), "it is in use meanwhile");
    let longer = allocate(graph, &[freed], 65);
    assert_ne!(longer.address(), first.address(), "it is too short");
    let other = with(Inner::create);
    let of_other = allocate(other, &[], 64);
    assert_ne!(of_other.address(), first.address(), "it is another graph's");
    let second = allocate(graph, &[freed], 32);
    assert_eq!(second.address(), first.address());
    let node = add(graph, &[freed], Work::Alloc(second.clone()));
    let third = allocate(graph, &[freed], 32);
    assert_ne!(third.address(), first.address(), "the second has it");
    let found = with(|inner| inner.allocation(first.address())).unwrap();
    assert!(Arc::ptr_eq(&found, &second), "the last one is freed there");
    let twice = with(|inner| inner.add(graph, &[], Work::Free(first.clone())));
    assert_eq!(twice, Err(CUDA_ERROR_INVALID_VALUE));
    let ended = add(graph, &[node], Work::Free(second.clone()));
    let fourth = allocate(graph, &[ended], 64);
    assert_eq!(fourth.address(), first.address());
    let address = first.address();
    drop((first, second, found, fourth));
    FREED.store(0, Ordering::Relaxed);
    with(|inner| {
        inner.forget_graph(graph);
        inner.forget_graph(other);
    });
    assert_eq!(FREED.load(Ordering::Relaxed), address);
}

#[test]
fn pitfall_68_a_graph_with_memory_stays_as_it_was_made() {
    let _alone = alone();
    let edge = |of: u64| [(of, Default::default())];
    let (graph, before, after) = with(|inner| {
        let graph = inner.create();
        let before = inner.add(graph, &[], Work::Empty).unwrap();
        let after = inner.add(graph, &edge(before), Work::Empty).unwrap();
        (graph, before, after)
    });
    let memory = STORE.allocate(graph, &[], 7, 64).unwrap();
    with(|inner| {
        // Neither depends on the other.
        inner.add(graph, &[], Work::Free(memory.clone())).unwrap();
        inner.add(graph, &[], Work::Alloc(memory.clone())).unwrap();
        let edge = [(before, after, Default::default())];
        assert_eq!(
            inner.disconnect(graph, &edge),
            Err(CUDA_ERROR_NOT_SUPPORTED)
        );
        assert_eq!(inner.remove_node(after), Err(CUDA_ERROR_NOT_SUPPORTED));
    });
    let exec = exec::instantiate::<Fake>(graph, 0).unwrap();
    let again = || exec::instantiate::<Fake>(graph, 0).map_err(|refused| refused.code);
    assert_eq!(again(), Err(CUDA_ERROR_NOT_SUPPORTED));
    let launch = |exec| {
        let exec = with(|inner| inner.exec(exec)).unwrap();
        exec.launch(std::ptr::null_mut(), false)
    };
    assert_eq!((launch(exec), launch(exec)), (Ok(()), Ok(())));
    assert!(!memory.is_live());
    end(exec);
    end(again().unwrap());
    // Another graph frees memory that no launch has allocated.
    let other = with(|inner| {
        let other = inner.create();
        inner.add(other, &[], Work::Free(memory.clone())).unwrap();
        other
    });
    let exec = exec::instantiate::<Fake>(other, 0).unwrap();
    assert_eq!(launch(exec), Err(CUDA_ERROR_INVALID_VALUE));
    memory.begin().unwrap();
    assert_eq!(launch(exec), Ok(()));
    assert!(!memory.is_live());
    end(exec);
    with(|inner| {
        inner.forget_graph(graph);
        inner.forget_graph(other);
    });
}

#[test]
fn ended_allocations_are_forgotten() {
    let _alone = alone();
    let mut most = 0;
    for _ in 0..1000 {
        let graph = graph_of(Work::Alloc(STORE.allocate(0, &[], 7, 64).unwrap()));
        with(|inner| inner.forget_graph(graph));
        most = with(|inner| inner.known_allocations()).max(most);
    }
    assert!(most < 200, "{most}");
    let kept: Vec<_> = (0..200)
        .map(|_| STORE.allocate(0, &[], 7, 64).unwrap())
        .collect();
    let graphs: Vec<_> = kept
        .iter()
        .cloned()
        .map(Work::Alloc)
        .map(graph_of)
        .collect();
    for allocation in &kept {
        let found = with(|inner| inner.allocation(allocation.address())).unwrap();
        assert!(Arc::ptr_eq(&found, allocation));
    }
    with(|inner| {
        graphs
            .into_iter()
            .for_each(|graph| inner.forget_graph(graph))
    });
}
