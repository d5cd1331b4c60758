// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Tests of launches that are submitted as graphs, on [`crate::cuda::double`].

use std::{os::fd::OwnedFd, sync::Arc};

use gpgpu_protocol::{
    api::{LaunchAttribute, ParamInfo, Request, request},
    codec::{Blob, Writer},
    cuda::*,
    layout::{StreamCommand, status},
    ring::{Area, NO_SLOT, Producer, RING_BYTES},
};
use zerocopy::IntoBytes;

use super::{
    crowds::{CROWD, Crowds, Waiting},
    lifetimes_tests::{Rig, run},
    objects::{Entry, Params},
    ring::{self, Ring},
    threads::Pool,
};
use crate::{
    cuda::double,
    ipc::{MapRun, sealed_memfd},
};

/// The address of the ring in the guest.
const RING: u64 = 0x1234_56a0_0000;

/// A command as encoded in a stream.
pub fn command<R: Request>(request: &R, context: u64) -> Vec<u8> {
    let mut writer = Writer::new();
    writer.put(request);
    let mut arguments = writer.into_bytes();
    arguments.resize(arguments.len().next_multiple_of(8), 0);
    let head = StreamCommand {
        bytes: ((size_of::<StreamCommand>() + arguments.len()) as u32).into(),
        op: R::OP.into(),
        reserved: 0.into(),
        context: context.into(),
    };
    [head.as_bytes(), &arguments].concat()
}

/// A rig whose function takes a word.
fn rig() -> Rig {
    let rig = Rig::new();
    let word = ParamInfo { offset: 0, size: 8 };
    let params = Params {
        list: vec![word],
        places: None,
    };
    let raw = rig.session.objects.function(rig.function).unwrap().raw;
    let function = Entry {
        parent: rig.module,
        params: Some(Arc::new(params)),
        ..Entry::new(raw, rig.contexts[0])
    };
    rig.session.objects.insert(rig.function, function);
    double::set_over(true);
    rig
}

fn launch(rig: &Rig, word: u64) -> request::cuLaunchKernelEx {
    request::cuLaunchKernelEx {
        params: Blob(word.to_le_bytes().to_vec()),
        ..rig.launch()
    }
}

/// This many launches with successive words, beginning at `from`.
fn crowd(rig: &Rig, launches: usize, from: u64) -> Waiting {
    let mut waiting = Waiting::default();
    for index in 0..launches as u64 {
        let launch = launch(rig, from + index);
        assert!(waiting.take(&command(&launch, rig.contexts[0])));
    }
    waiting
}

/// Repeats a crowd until a graph is made of it.
fn make(rig: &Rig, crowds: &mut Crowds) {
    let crowd = crowd(rig, CROWD, 0);
    while !crowds.issue(rig.session, &crowd) {}
    assert_eq!(double::calls("cuGraphLaunch"), 1);
}

#[test]
fn a_crowd_that_comes_back_becomes_a_graph_whose_parameters_follow() {
    let rig = rig();
    let mut crowds = Crowds::default();
    let first = crowd(&rig, CROWD, 0);
    let mut refused = 0;
    while !crowds.issue(rig.session, &first) {
        refused += 1;
    }
    // No graph is made of a crowd that occurs once.
    assert!(refused > 1);
    assert_eq!(double::calls("cuGraphAddKernelNode_v2"), CROWD);
    assert_eq!(double::calls("cuGraphLaunch"), 1);
    let set = || double::calls("cuGraphExecKernelNodeSetParams_v2");
    assert!(crowds.issue(rig.session, &first));
    assert_eq!((double::calls("cuGraphLaunch"), set()), (2, 0));
    // Each launch has another word than before.
    assert!(crowds.issue(rig.session, &crowd(&rig, CROWD, 1)));
    assert_eq!((double::calls("cuGraphLaunch"), set()), (3, CROWD));
    assert_eq!(double::calls("cuGraphAddKernelNode_v2"), CROWD);
    drop(crowds);
    assert_eq!(double::wrong(), [""; 0]);
}

#[test]
fn launches_that_are_no_crowd_stay_launches() {
    let rig = rig();
    let [context, _] = rig.contexts;
    let mut waiting = crowd(&rig, 1, 0);
    // Of another context, in another stream, with an attribute, of another kind, and two at once.
    assert!(!waiting.take(&command(&launch(&rig, 0), rig.contexts[1])));
    let mut other = launch(&rig, 0);
    other.config.stream = rig.streams[1];
    assert!(!waiting.take(&command(&other, context)));
    let mut attributed = launch(&rig, 0);
    attributed.config.attributes.push(LaunchAttribute {
        id: CU_LAUNCH_ATTRIBUTE_COOPERATIVE,
        value: [1; 64],
    });
    assert!(!waiting.take(&command(&attributed, context)));
    let query = request::cuStreamQuery {
        hStream: rig.streams[0],
    };
    let query = command(&query, context);
    assert!(!waiting.take(&query));
    let two = [command(&launch(&rig, 0), context), query].concat();
    assert!(!waiting.take(&two));
    let mut short = command(&launch(&rig, 0), context);
    short.truncate(short.len() - 8);
    assert!(!waiting.take(&short));
    let mut crowds = Crowds::default();
    for _ in 0..100 {
        assert!(!crowds.issue(rig.session, &crowd(&rig, CROWD - 1, 0)));
    }
    // Parameters that the function does not have.
    let mut waiting = Waiting::default();
    for _ in 0..CROWD {
        assert!(waiting.take(&command(&rig.launch(), context)));
    }
    for _ in 0..100 {
        assert!(!crowds.issue(rig.session, &waiting));
    }
    assert_eq!(double::calls("cuGraphLaunch"), 0);
}

#[test]
fn a_graph_ends_with_what_it_was_made_of() {
    let rig = rig();
    let [context, other] = rig.contexts;
    let mut crowds = Crowds::default();
    make(&rig, &mut crowds);
    // A function that has ended is not launched, although the graph still contains it.
    rig.works(request::cuModuleUnload { hmod: rig.module }, context);
    assert!(!crowds.issue(rig.session, &crowd(&rig, CROWD, 0)));
    assert_eq!(double::calls("cuGraphLaunch"), 1);
    crowds.forget();
    assert_eq!(double::calls("cuGraphExecDestroy"), 1);
    // When a context ends, neither graphs nor events of it are left.
    crowds.end_context(context);
    assert_eq!(double::calls("cuEventDestroy_v2"), 1);
    rig.works(request::cuCtxDestroy_v2 { ctx: context }, other);
    drop(crowds);
    assert_eq!(double::wrong(), [""; 0]);
}

#[test]
fn a_context_that_is_about_to_end_gets_no_graph() {
    let rig = rig();
    let mut crowds = Crowds::default();
    make(&rig, &mut crowds);
    crowds.end_context(rig.contexts[0]);
    for _ in 0..100 {
        assert!(!crowds.issue(rig.session, &crowd(&rig, CROWD, 0)));
    }
    // The end of the context was cancelled.
    crowds.settle_context(rig.contexts[0]);
    let crowd = crowd(&rig, CROWD, 0);
    while !crowds.issue(rig.session, &crowd) {}
    assert_eq!(double::calls("cuGraphAddKernelNode_v2"), 2 * CROWD);
    // Attributes of streams apply to launches, but not to nodes.
    crowds.switch_off();
    for _ in 0..100 {
        assert!(!crowds.issue(rig.session, &crowd));
    }
}

#[test]
fn a_graph_that_cannot_be_launched_leaves_it_to_the_launches() {
    let rig = rig();
    let mut crowds = Crowds::default();
    make(&rig, &mut crowds);
    double::set_graph_launch(CUDA_ERROR_OUT_OF_MEMORY);
    let crowd = crowd(&rig, CROWD, 0);
    assert!(!crowds.issue(rig.session, &crowd));
    double::set_graph_launch(CUDA_SUCCESS);
    // No error is stored for the client, and the graph was removed.
    assert_eq!(rig.session.take_deferred(), CUDA_SUCCESS);
    assert_eq!(double::calls("cuGraphExecDestroy"), 1);
    while !crowds.issue(rig.session, &crowd) {}
}

#[test]
fn graphs_that_are_not_over_keep_others_back() {
    let rig = rig();
    let mut crowds = Crowds::default();
    let crowd = crowd(&rig, CROWD, 0);
    while !crowds.issue(rig.session, &crowd) {}
    double::set_over(false);
    let mut given = 0;
    while crowds.issue(rig.session, &crowd) {
        given += 1;
    }
    // The number of launches in flight does not exceed the room of the driver's own queue: 1024.
    assert!(given > 1 && given * CROWD <= 1024, "{given}");
    double::set_over(true);
    assert!(crowds.issue(rig.session, &crowd));
}

#[test]
fn crowds_of_many_shapes_leave_few_graphs() {
    let rig = rig();
    let mut crowds = Crowds::default();
    for shape in 1..200 {
        let mut waiting = Waiting::default();
        for index in 0..CROWD as u32 {
            let mut launch = launch(&rig, 0);
            launch.config.grid_x = shape;
            launch.config.block_x = 1 + index;
            assert!(waiting.take(&command(&launch, rig.contexts[0])));
        }
        for _ in 0..100 {
            crowds.issue(rig.session, &waiting);
        }
    }
    let made = double::calls("cuGraphAddKernelNode_v2") / CROWD;
    let left = made - double::calls("cuGraphExecDestroy");
    assert!(made > left && left <= 16, "{made} made, {left} left");
}

#[test]
fn a_ring_with_a_backlog_gives_the_driver_graphs_and_every_launch() {
    let rig = rig();
    let session = rig.session;
    // Each graph is a crowd's.
    session.singles.switch_off();
    let bytes = (RING_BYTES as u64).next_multiple_of(4096);
    let file = Arc::new(OwnedFd::from(sealed_memfd(c"ring", bytes).unwrap()));
    let run = MapRun {
        file,
        offset: 0,
        length: bytes,
    };
    assert_eq!(session.regions.map(1, RING, bytes, &[run]), status::OK);
    Ring::set_up(session, RING).unwrap();
    let base = session.regions.keep(RING, bytes).unwrap();
    // SAFETY: the regions keep the memory mapped from now on.
    let area = unsafe { Area::new(base as *mut u8) };
    let mut producer = Producer::new(area, 0);
    // More than a whole number of crowds, with other commands in between.
    let (launches, queries) = (21 * CROWD + 5, 2);
    let query = request::cuStreamQuery {
        hStream: rig.streams[0],
    };
    let mut append = |command: &[u8]| assert!(producer.append(NO_SLOT, 0, 0, command));
    for index in 0..launches {
        if index == 3 || index == 15 * CROWD {
            append(&command(&query, rig.contexts[0]));
        }
        append(&command(&launch(&rig, index as u64), rig.contexts[0]));
    }
    let end = producer.tail();
    ring::serve(session, Pool::default()).unwrap();
    session.ring.get().unwrap().wait(end).unwrap();
    let graphs = double::calls("cuGraphLaunch");
    assert!(graphs > 10, "{graphs} graphs");
    assert_eq!(double::calls("cuLaunchKernel") + graphs * CROWD, launches);
    assert_eq!(double::calls("cuStreamQuery"), queries);
    assert_eq!(double::wrong(), [""; 0]);
}

/// Executes launches, each as a separate command; returns the number of those submitted as graphs.
fn launched(rig: &Rig, launches: impl IntoIterator<Item = request::cuLaunchKernelEx>) -> usize {
    let graphs = double::calls("cuGraphLaunch");
    let plain = double::calls("cuLaunchKernel");
    let mut count = 0;
    for launch in launches {
        rig.works(launch, rig.contexts[0]);
        count += 1;
    }
    let graphs = double::calls("cuGraphLaunch") - graphs;
    // Each is launched once.
    assert_eq!(double::calls("cuLaunchKernel") - plain, count - graphs);
    graphs
}

/// Launches of one shape, each with its own word.
fn recurring(rig: &Rig, launches: u64) -> impl Iterator<Item = request::cuLaunchKernelEx> {
    (0..launches).map(|word| launch(rig, word))
}

#[test]
fn a_launch_that_recurs_goes_as_a_graph_whose_parameters_follow() {
    let rig = rig();
    let first = launched(&rig, recurring(&rig, 100));
    assert!(first > 50, "{first}");
    let nodes = || double::calls("cuGraphAddKernelNode_v2");
    let set = || double::calls("cuGraphExecKernelNodeSetParams_v2");
    assert_eq!(nodes(), 1);
    let before = set();
    assert_eq!(launched(&rig, recurring(&rig, 10)), 10);
    assert_eq!(set() - before, 10);
    // The same parameters as before.
    assert_eq!(launched(&rig, [launch(&rig, 9)]), 1);
    assert_eq!(set() - before, 10);
    // Another shape is another launch, and so is the same launch in another stream: its graph would wait for the first
    // one's.
    let mut other = launch(&rig, 0);
    other.config.grid_x = 2;
    assert_eq!(launched(&rig, [other.clone()]), 0);
    other.config.grid_x = 1;
    other.config.stream = 0;
    assert_eq!(launched(&rig, [other.clone()]), 0);
    assert!(launched(&rig, vec![other; 100]) > 50);
    assert_eq!(nodes(), 2);
    assert_eq!(double::wrong(), [""; 0]);
}

#[test]
fn the_graph_of_a_launch_ends_with_what_it_was_made_of() {
    let rig = rig();
    let [context, other] = rig.contexts;
    let destroyed = || double::calls("cuGraphExecDestroy");
    launched(&rig, recurring(&rig, 100));
    // This driver does not know the function. A failed change may still have an effect.
    run(
        rig.session,
        request::cuCtxSetLimit { limit: 0, value: 1 },
        context,
    );
    assert_eq!(destroyed(), 1);
    assert_eq!(launched(&rig, recurring(&rig, 2)), 0);
    launched(&rig, recurring(&rig, 100));
    // A context that is about to end gets no graph.
    rig.session.singles.end_context(context);
    assert_eq!(destroyed(), 2);
    assert_eq!(launched(&rig, recurring(&rig, 100)), 0);
    rig.session.singles.settle_context(context);
    assert!(launched(&rig, recurring(&rig, 100)) > 50);
    rig.works(request::cuModuleUnload { hmod: rig.module }, context);
    assert_eq!(destroyed(), 3);
    rig.works(request::cuCtxDestroy_v2 { ctx: context }, other);
    assert_eq!(double::wrong(), [""; 0]);
}

#[test]
fn launches_with_attributes_and_of_clients_that_set_any_stay_launches() {
    let rig = rig();
    let mut attributed = launch(&rig, 0);
    attributed.config.attributes.push(LaunchAttribute {
        id: CU_LAUNCH_ATTRIBUTE_PRIORITY,
        value: [0; 64],
    });
    for _ in 0..100 {
        // This driver does not know them.
        let code = run(rig.session, attributed.clone(), rig.contexts[0]);
        assert_eq!(code, CUDA_ERROR_NOT_SUPPORTED);
    }
    assert_eq!(double::calls("cuGraphLaunch"), 0);
    launched(&rig, recurring(&rig, 100));
    rig.session.forget_crowds(true);
    assert_eq!(double::calls("cuGraphExecDestroy"), 1);
    assert_eq!(launched(&rig, recurring(&rig, 100)), 0);
}

#[test]
fn a_launch_whose_graph_fails_is_launched() {
    let rig = rig();
    launched(&rig, recurring(&rig, 100));
    double::set_graph_launch(CUDA_ERROR_OUT_OF_MEMORY);
    let (graphs, plain) = (
        double::calls("cuGraphLaunch"),
        double::calls("cuLaunchKernel"),
    );
    rig.works(launch(&rig, 5), rig.contexts[0]);
    double::set_graph_launch(CUDA_SUCCESS);
    assert_eq!(double::calls("cuGraphLaunch"), graphs + 1);
    assert_eq!(double::calls("cuLaunchKernel"), plain + 1);
    assert_eq!(double::calls("cuGraphExecDestroy"), 1);
    assert!(launched(&rig, recurring(&rig, 100)) > 50);
}

#[test]
fn launches_of_many_shapes_leave_few_graphs() {
    let rig = rig();
    for grid in 1..300 {
        let mut launch = launch(&rig, 0);
        launch.config.grid_x = grid;
        launched(&rig, vec![launch; 100]);
    }
    let made = double::calls("cuGraphAddKernelNode_v2");
    let left = made - double::calls("cuGraphExecDestroy");
    assert!(made > left && left <= 64, "{made} made, {left} left");
}
