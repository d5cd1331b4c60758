// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Graph requests of a hostile client, and objects that end before their graphs, on [`crate::cuda::double`].

use std::{sync::atomic::Ordering, time::Duration};

use gpgpu_graphs::abi::DEVICE_LAUNCH;
use gpgpu_protocol::{
    api::{
        Array, BoxCopy, Context, EVENT_ATTRIBUTES, Event, GraphChange, GraphExec, GraphPart,
        GraphStep, LaunchAttribute, Object, Stream, graph_edge, object_id, object_id_of, request,
    },
    codec::{Blob, Writer},
    cuda::*,
    libraries::{
        Library,
        call::{self, PointerMode},
    },
};

use super::{MOST_STEPS, kind};
use crate::{
    cuda::double,
    worker::{
        libraries,
        lifetimes_tests::{Rig, run},
    },
};

const BAD: CUresult = CUDA_ERROR_INVALID_VALUE;
const GONE: CUresult = CUDA_ERROR_INVALID_HANDLE;

/// An id that no other test uses.
fn id(serial: u64) -> u64 {
    object_id::<GraphExec>(0x8000 + serial)
}

fn make(rig: &Rig, id: u64, steps: &[GraphStep]) -> CUresult {
    let made = rig.session.executables.make(rig.session, id, steps, 0);
    made.err().unwrap_or(CUDA_SUCCESS)
}

fn counted(rig: &Rig) -> usize {
    rig.session.executables.counted.load(Ordering::Relaxed)
}

fn launch(rig: &Rig, exec: u64, stream: u64) -> CUresult {
    let request = request::cuGraphLaunch {
        hGraphExec: exec,
        hStream: stream,
    };
    run(rig.session, request, rig.contexts[0])
}

/// A step of one kind.
fn of(rig: &Rig, of: u32) -> GraphStep {
    let mut steps = rig.steps();
    let at = steps.iter().position(|step| step.kind == of).unwrap();
    GraphStep {
        after: Vec::new(),
        ..steps.swap_remove(at)
    }
}

/// Its value begins with an event, which the driver would use as a pointer.
#[test]
fn no_attribute_of_a_step_names_an_event() {
    let rig = Rig::new();
    let mut step = of(&rig, kind::LAUNCH);
    for (serial, id_of) in EVENT_ATTRIBUTES.into_iter().enumerate() {
        step.launch.attributes = vec![LaunchAttribute {
            id: id_of,
            value: [0x41; 64],
        }];
        let made = make(&rig, id(0x100 + serial as u64), &[step.clone()]);
        assert_eq!(made, CUDA_ERROR_NOT_SUPPORTED);
    }
    step.launch.attributes.clear();
    assert_eq!(make(&rig, id(0x100), &[step]), CUDA_SUCCESS);
}

#[test]
fn an_id_is_one_graphs_and_ends_once() {
    let rig = Rig::new();
    let nothing = [of(&rig, kind::NOTHING)];
    let foreign = [
        object_id::<Event>(7),
        object_id::<GraphPart>(7),
        0,
        u64::MAX,
        1 << 56 | 0x8c,
    ];
    for id in foreign {
        assert_eq!(make(&rig, id, &nothing), BAD, "{id:#x}");
    }
    assert_eq!(make(&rig, id(1), &nothing), CUDA_SUCCESS);
    assert_eq!(make(&rig, id(1), &nothing), BAD);
    assert_eq!(launch(&rig, id(1), rig.streams[0]), CUDA_SUCCESS);
    for exec in [id(2), rig.streams[0], 0] {
        assert_eq!(launch(&rig, exec, rig.streams[0]), GONE);
    }
    for stream in [id(1), object_id::<Event>(1), u64::MAX] {
        assert_eq!(launch(&rig, id(1), stream), GONE);
    }
    let end = || {
        run(
            rig.session,
            request::cuGraphExecDestroy { hGraphExec: id(1) },
            0,
        )
    };
    assert_eq!(end(), CUDA_SUCCESS);
    assert_eq!(launch(&rig, id(1), rig.streams[0]), GONE);
    // It might have ended with a context.
    assert_eq!(end(), CUDA_SUCCESS);
    assert_eq!((counted(&rig), double::calls("cuGraphLaunch")), (0, 1));
    assert_eq!(double::wrong(), [""; 0]);
}

/// A rig with a graph of every kind of step.
fn with_graph() -> (Rig, Vec<GraphStep>) {
    let rig = Rig::new();
    let before = double::calls("cuGraphAddKernelNode_v2");
    let all = rig.steps();
    assert_eq!(make(&rig, id(1), &all), CUDA_SUCCESS);
    assert_eq!(double::calls("cuGraphAddKernelNode_v2"), before + 1);
    (rig, all)
}

/// Checks that this graph is the only one and works, and that nothing was used after its end.
fn check_graph(rig: &Rig, all: &[GraphStep]) {
    assert_eq!(launch(rig, id(1), rig.streams[0]), CUDA_SUCCESS);
    assert_eq!(counted(rig), all.len());
    assert_eq!(double::wrong(), [""; 0]);
}

/// Makes a graph with a changed step.
fn make_changed(rig: &Rig, kind: u32, change: impl FnOnce(&mut GraphStep)) -> CUresult {
    let mut step = of(rig, kind);
    change(&mut step);
    make(rig, id(2), &[step])
}

#[test]
fn a_steps_objects_are_checked_as_a_commands_are() {
    let (rig, all) = with_graph();
    let before = double::calls("cuGraphAddKernelNode_v2");
    let wrong = |kind, change: &dyn Fn(&mut GraphStep)| make_changed(&rig, kind, change);
    // Steps that wait for themselves, for later ones, or for ones that do not exist.
    for after in [0, 1, u32::MAX] {
        assert_eq!(wrong(kind::NOTHING, &|of| of.after = vec![after]), BAD);
    }
    assert_eq!(wrong(kind::NOTHING, &|of| of.kind = 8), BAD);
    for context in [0, 1, rig.streams[0], 9 << 8 | 0x10] {
        assert_ne!(
            wrong(kind::LAUNCH, &|of| of.context = context),
            CUDA_SUCCESS
        );
        assert_ne!(wrong(kind::COPY, &|of| of.context = context), CUDA_SUCCESS);
    }
    // The function belongs to the first context.
    assert_eq!(
        wrong(kind::LAUNCH, &|of| of.context = rig.contexts[1]),
        GONE
    );
    for object in [0, 1, rig.events[0], rig.function + 0x100] {
        assert_eq!(wrong(kind::LAUNCH, &|of| of.object = object), GONE);
    }
    assert_eq!(wrong(kind::LAUNCH, &|of| of.params.0 = vec![0; 8]), BAD);
    for event in [0, rig.function, object_id::<Event>(99)] {
        assert_eq!(wrong(kind::RECORD, &|of| of.object = event), GONE);
        assert_eq!(wrong(kind::WAIT, &|of| of.object = event), GONE);
    }
    assert_eq!(wrong(kind::NOTHING, &|of| of.kind = kind::PART), GONE);
    assert_eq!(double::calls("cuGraphAddKernelNode_v2"), before);
    check_graph(&rig, &all);
}

#[test]
fn a_steps_memory_sizes_and_arrays_are_checked() {
    let (rig, all) = with_graph();
    let wrong = |kind, change: &dyn Fn(&mut GraphStep)| make_changed(&rig, kind, change);
    // Invalid or too short memory; sizes that overflow; too few numbers.
    for numbers in [
        vec![0, 0, 64, 64, 1, 1, 64, 1, 1],
        vec![0x1000, 0x2000, 64, 64, 1, 1, 64, 1, 1],
        vec![1; 8],
        vec![],
    ] {
        assert_ne!(
            wrong(kind::COPY, &|of| of.numbers = numbers.clone()),
            CUDA_SUCCESS
        );
    }
    for (at, number) in [
        (2, 1),
        (4, 0),
        (6, 0),
        (6, 1 << 40),
        (6, u64::MAX),
        (7, u64::MAX),
        (8, u64::MAX),
        (8, 0),
    ] {
        assert_ne!(
            wrong(kind::COPY, &|of| of.numbers[at] = number),
            CUDA_SUCCESS,
            "{at}"
        );
    }
    // An array with an invalid id, or one that does not exist; too short memory; too few numbers.
    let none = object_id::<Array>(0x7000);
    for (at, number) in [
        (0, none),
        (1, 0x1000),
        (7, 0),
        (7, none),
        (7, rig.events[0]),
        (14, 0),
        (14, u64::MAX),
        (15, u64::MAX),
        (16, 0),
    ] {
        assert_ne!(
            wrong(kind::BOX, &|of| of.numbers[at] = number),
            CUDA_SUCCESS,
            "{at}"
        );
    }
    assert_eq!(wrong(kind::BOX, &|of| of.numbers.truncate(16)), BAD);
    for (at, number) in [
        (0, 1),
        (3, 3),
        (3, 0),
        (4, u64::MAX),
        (4, 0),
        (5, u64::MAX),
        (5, 0),
    ] {
        assert_ne!(
            wrong(kind::FILL, &|of| of.numbers[at] = number),
            CUDA_SUCCESS,
            "{at}"
        );
    }
    check_graph(&rig, &all);
}

#[test]
fn a_refused_change_leaves_the_graph_unchanged() {
    let (rig, all) = with_graph();
    let executable = rig.session.executables.graphs.find(id(1)).unwrap();
    let mut step = of(&rig, kind::LAUNCH);
    let change = |step: usize, to: &GraphStep| GraphChange {
        step: step as u32,
        to: to.clone(),
    };
    let set = |changes: &[GraphChange]| executable.set(rig.session, changes);
    let good = change(0, &step);
    assert_eq!(set(std::slice::from_ref(&good)), Ok(()));
    assert_eq!(set(&[change(1, &step)]), Err(BAD));
    assert_eq!(set(&[change(all.len(), &step)]), Err(BAD));
    step.object += 0x100;
    let gone = change(0, &step);
    assert_eq!(set(std::slice::from_ref(&gone)), Err(GONE));
    // If one of several changes is invalid, none is made.
    let before = double::calls("cuGraphExecKernelNodeSetParams_v2");
    assert_eq!(
        set(&[good.clone(), change(1, &of(&rig, kind::LAUNCH))]),
        Err(BAD)
    );
    assert_eq!(set(&[good.clone(), gone]), Err(GONE));
    assert_eq!(double::calls("cuGraphExecKernelNodeSetParams_v2"), before);
    assert_eq!(set(&[good.clone(), good]), Ok(()));
    assert_eq!(
        double::calls("cuGraphExecKernelNodeSetParams_v2"),
        before + 2
    );
    assert_eq!(executable.update(rig.session, &all[1..]), Err(BAD));
    assert_eq!(executable.update(rig.session, &all), Ok(()));
    check_graph(&rig, &all);
}

#[test]
fn only_a_graph_that_kernels_launch_has_a_name_and_updates_keep_it() {
    let rig = Rig::new();
    let name = |exec| {
        let request = request::gpgpuGraphHandle { exec, handle: true };
        run(rig.session, request, rig.contexts[0])
    };
    let executables = &rig.session.executables;
    let steps = [of(&rig, kind::LAUNCH), of(&rig, kind::NOTHING)];
    let (plain, direct) = (id(0x60), id(0x61));
    assert_eq!(name(plain), GONE);
    assert_eq!(make(&rig, plain, &steps), CUDA_SUCCESS);
    // The driver's handle of this graph is an address of the worker.
    assert_eq!(name(plain), BAD);
    let made = executables.make(rig.session, direct, &steps, DEVICE_LAUNCH);
    assert_eq!(made, Ok(()));
    assert_eq!(name(direct), CUDA_SUCCESS);
    let handle = |exec| executables.graphs.find(exec).and_then(|of| of.handle());
    let before = handle(direct);
    let updates = || double::calls("cuGraphExecUpdate_v2");
    let (count, update) = (updates(), executables.graphs.find(direct).unwrap());
    assert_eq!(update.update(rig.session, &steps), Ok(()));
    assert_eq!((handle(direct), updates()), (before, count + 1));
    // A list with fewer steps, or with steps of other kinds, is another graph: a step may have no node.
    let [launch, nothing] = steps.clone();
    assert_eq!(update.update(rig.session, &[launch]), Err(BAD));
    let swapped = [nothing, steps[0].clone()];
    assert_eq!(update.update(rig.session, &swapped), Err(BAD));
    assert_eq!(updates(), count + 1);
    executables.graphs.end(plain).unwrap();
    executables.graphs.end(direct).unwrap();
    assert_eq!(name(direct), GONE);
}

/// A driver that fails half-way may have taken some of the new steps.
#[test]
fn a_graph_that_kernels_launch_is_not_launched_after_half_an_update() {
    let rig = Rig::new();
    let exec = id(0x62);
    let fill = of(&rig, kind::FILL);
    let fill_of = |memory| {
        let mut numbers = fill.numbers.clone();
        numbers[0] = memory;
        [GraphStep {
            numbers,
            ..fill.clone()
        }]
    };
    let executables = &rig.session.executables;
    let steps = fill_of(rig.alloc());
    let made = executables.make(rig.session, exec, &steps, DEVICE_LAUNCH);
    assert_eq!(made, Ok(()));
    let executable = executables.graphs.find(exec).unwrap();
    // The driver's result of an update, and the result of a launch after the other list's memory was freed.
    let after = |update, launched| {
        let dptr = rig.alloc();
        double::set_graph_update(update);
        let updated = executable.update(rig.session, &fill_of(dptr));
        assert_eq!(updated.err().unwrap_or(CUDA_SUCCESS), update);
        double::set_graph_update(CUDA_SUCCESS);
        rig.works(request::cuMemFree_v2 { dptr }, rig.contexts[0]);
        assert_eq!(launch(&rig, exec, rig.streams[0]), launched, "{update}");
    };
    after(CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE, CUDA_SUCCESS);
    after(CUDA_ERROR_OUT_OF_MEMORY, BAD);
    assert_eq!(executable.update(rig.session, &steps), Ok(()));
    assert_eq!(launch(&rig, exec, rig.streams[0]), CUDA_SUCCESS);
    after(CUDA_SUCCESS, BAD);
    assert_eq!(double::wrong(), [""; 0]);
}

/// Copies of such a graph are in the context of its kernels. The client need not know this.
#[test]
fn a_changed_copy_of_a_graph_that_kernels_launch_may_name_its_own_context() {
    let rig = Rig::new();
    let exec = id(0x63);
    let copy = GraphStep {
        context: rig.contexts[1],
        ..of(&rig, kind::COPY)
    };
    let steps = [of(&rig, kind::FILL), copy.clone()];
    let executables = &rig.session.executables;
    let set = |steps: &[GraphStep], flags| {
        let made = executables.make(rig.session, exec, steps, flags);
        assert_eq!(made, Ok(()));
        let executable = executables.graphs.find(exec).unwrap();
        executables.graphs.end(exec).unwrap();
        let to = copy.clone();
        executable.set(rig.session, &[GraphChange { step: 1, to }])
    };
    assert_eq!(set(&steps, DEVICE_LAUNCH), Ok(()));
    assert_eq!(set(&steps, 0), Ok(()));
    // A step of another kind is not a copy.
    assert_eq!(set(&[steps[0].clone(), steps[0].clone()], 0), Err(BAD));
    assert_eq!(double::wrong(), [""; 0]);
}

/// The ring's thread makes such a graph itself, and other commands wait for that.
#[test]
fn few_steps_are_few() {
    let rig = Rig::new();
    let nothing = of(&rig, kind::NOTHING);
    let make = |serial, count: usize| {
        let mut writer = Writer::new();
        writer.put(&vec![nothing.clone(); count]);
        let few = request::gpgpuGraphInstantiateFew {
            exec: id(serial),
            steps: Blob(writer.into_bytes()),
            flags: 0,
        };
        run(rig.session, few, 0)
    };
    assert_eq!(make(1, kind::FEW), CUDA_SUCCESS);
    assert_eq!(make(2, kind::FEW + 1), BAD);
    assert_eq!(counted(&rig), kind::FEW);
    assert_eq!(launch(&rig, id(1), rig.streams[0]), CUDA_SUCCESS);
    assert_eq!(launch(&rig, id(2), rig.streams[0]), GONE);
}

#[test]
fn a_client_has_so_many_steps() {
    let rig = Rig::new();
    let nothing = of(&rig, kind::NOTHING);
    let many = vec![nothing.clone(); MOST_STEPS];
    for serial in 0..4 {
        assert_eq!(make(&rig, id(serial), &many), CUDA_SUCCESS);
    }
    let full = counted(&rig);
    assert_eq!(
        make(&rig, id(9), std::slice::from_ref(&nothing)),
        CUDA_ERROR_OUT_OF_MEMORY
    );
    rig.works(request::cuGraphExecDestroy { hGraphExec: id(0) }, 0);
    assert_eq!(
        make(&rig, id(9), std::slice::from_ref(&nothing)),
        CUDA_SUCCESS
    );
    let more = vec![nothing.clone(); MOST_STEPS + 1];
    assert_eq!(make(&rig, id(10), &more), CUDA_ERROR_OUT_OF_MEMORY);
    // A step's dependencies are counted too.
    let edges = GraphStep {
        after: vec![0; 8 * MOST_STEPS],
        ..nothing.clone()
    };
    assert_eq!(
        make(&rig, id(10), &[nothing, edges]),
        CUDA_ERROR_OUT_OF_MEMORY
    );
    assert_eq!(counted(&rig), full - MOST_STEPS + 1);
}

#[test]
fn a_graphs_objects_may_end_and_its_launch_is_then_refused() {
    let rig = Rig::new();
    let [context, other] = rig.contexts;
    let calls = double::calls("cuGraphLaunch");
    let (copy, record) = (of(&rig, kind::COPY), of(&rig, kind::RECORD));
    let dst = copy.numbers[0];
    for (serial, step) in [copy, record, of(&rig, kind::LAUNCH)]
        .into_iter()
        .enumerate()
    {
        assert_eq!(make(&rig, id(serial as u64), &[step]), CUDA_SUCCESS);
    }
    rig.works(request::cuMemFree_v2 { dptr: dst }, context);
    assert_eq!(launch(&rig, id(0), rig.streams[0]), BAD);
    let event = rig.events[0];
    rig.works(request::cuEventDestroy_v2 { hEvent: event }, context);
    assert_eq!(launch(&rig, id(1), rig.streams[0]), GONE);
    // Another object with its id is not the one in the driver's graph.
    let again = request::cuEventCreate {
        phEvent: event,
        Flags: 0,
    };
    rig.works(again, context);
    assert_eq!(launch(&rig, id(1), rig.streams[0]), GONE);
    let boxed = of(&rig, kind::BOX);
    let array = BoxCopy::of_numbers(&boxed.numbers).unwrap().src.array;
    assert_eq!(make(&rig, id(3), &[boxed]), CUDA_SUCCESS);
    assert_eq!(launch(&rig, id(3), rig.streams[0]), CUDA_SUCCESS);
    let calls = calls + 1;
    rig.works(request::cuArrayDestroy { hArray: array }, context);
    assert_eq!(launch(&rig, id(3), rig.streams[0]), GONE);
    rig.works(request::cuModuleUnload { hmod: rig.module }, context);
    assert_eq!(launch(&rig, id(2), rig.streams[0]), GONE);
    assert_eq!(double::calls("cuGraphLaunch"), calls);
    // The end of a context ends the graphs in it.
    rig.works(request::cuCtxDestroy_v2 { ctx: context }, other);
    for serial in [0, 2] {
        let launch = request::cuGraphLaunch {
            hGraphExec: id(serial),
            hStream: rig.streams[1],
        };
        assert_eq!(run(rig.session, launch, other), GONE);
    }
    assert_eq!(counted(&rig), 1);
    assert_eq!(double::wrong(), [""; 0]);
}

#[test]
fn a_graph_that_is_launched_ends_after_that() {
    let rig = Rig::new();
    assert_eq!(make(&rig, id(1), &rig.steps()), CUDA_SUCCESS);
    let held = double::hold("cuGraphLaunch");
    let (session, stream, context) = (rig.session, rig.streams[0], rig.contexts[0]);
    let request = request::cuGraphLaunch {
        hGraphExec: id(1),
        hStream: stream,
    };
    let launched = std::thread::spawn(move || run(session, request, context));
    held.wait();
    rig.works(request::cuGraphExecDestroy { hGraphExec: id(1) }, 0);
    assert!(!double::is_called("cuGraphExecDestroy", Duration::ZERO));
    drop(held);
    assert_eq!(launched.join().unwrap(), CUDA_SUCCESS);
    assert!(double::is_called("cuGraphExecDestroy", Duration::ZERO));
    assert_eq!((counted(&rig), double::wrong()), (0, Vec::new()));
}

/// The driver orders the launches of one object of its own. An update makes another, whose first launch waits for those
/// before.
#[test]
fn launches_keep_their_order_over_an_update() {
    let rig = Rig::new();
    let steps = [of(&rig, kind::FILL)];
    assert_eq!(make(&rig, id(1), &steps), CUDA_SUCCESS);
    let update = || {
        let executable = rig.session.executables.graphs.find(id(1)).unwrap();
        executable.update(rig.session, &steps).unwrap();
    };
    let waits = || ["cuEventRecord", "cuStreamWaitEvent"].map(double::calls);
    let begin = waits();
    let since = || {
        let now = waits();
        [now[0] - begin[0], now[1] - begin[1]]
    };
    update();
    assert_eq!(launch(&rig, id(1), rig.streams[0]), CUDA_SUCCESS);
    assert_eq!(since(), [0, 0], "there was no launch before");
    update();
    assert_eq!(since(), [1, 0]);
    for _ in 0..2 {
        assert_eq!(launch(&rig, id(1), rig.streams[0]), CUDA_SUCCESS);
        assert_eq!(since(), [1, 1], "the first launch waits");
    }
    let end = request::cuStreamDestroy_v2 {
        hStream: rig.streams[0],
    };
    rig.works(end, rig.contexts[0]);
    update();
    assert_eq!(since(), [1, 1], "there is no stream any more");
    assert_eq!(double::wrong(), [""; 0]);
}

/// The driver ends events with their context. A graph that ends with another context must have none there.
#[test]
fn a_graph_keeps_no_event_of_another_context() {
    let rig = Rig::new();
    let [own, other] = rig.contexts;
    let steps = [of(&rig, kind::FILL)];
    assert_eq!(make(&rig, id(1), &steps), CUDA_SUCCESS);
    let launch = |stream, context| {
        let request = request::cuGraphLaunch {
            hGraphExec: id(1),
            hStream: stream,
        };
        run(rig.session, request, context)
    };
    assert_eq!(launch(rig.streams[1], other), CUDA_SUCCESS);
    let executable = rig.session.executables.graphs.find(id(1)).unwrap();
    let records = double::calls("cuEventRecord");
    executable.update(rig.session, &steps).unwrap();
    assert_eq!(double::calls("cuEventRecord"), records);
    drop(executable);
    rig.works(request::cuCtxDestroy_v2 { ctx: other }, own);
    assert_eq!(launch(rig.streams[0], own), CUDA_SUCCESS);
    rig.works(request::cuGraphExecDestroy { hGraphExec: id(1) }, 0);
    assert_eq!(double::wrong(), [""; 0]);
}

#[test]
fn a_librarys_work_is_recorded_in_a_stream_of_its_own() {
    let rig = Rig::new();
    let (session, [context, other]) = (rig.session, rig.contexts);
    let handle = object_id_of(0x90, 1);
    let send = |name: &str, words: &[u64]| {
        let function = Library::Cublas.find(name);
        let mut writer = gpgpu_protocol::codec::Writer::new();
        let read = |_: u64, to: &mut [u8]| to.fill(0);
        call::put(function, words, PointerMode::Host, &mut writer, read).unwrap();
        (function.operation.op, writer.into_bytes())
    };
    let create = send("cublasCreate_v2", &[handle]);
    let made = libraries::carry_out(
        session,
        create.0,
        context,
        &create.1,
        crate::worker::session::Way::Queue,
    );
    assert!(made.is_ok());
    let record = |serial: u64, (op, arguments): (u16, Vec<u8>)| {
        let wanted = libraries::Wanted {
            part: object_id::<GraphPart>(serial),
            workspace: None,
        };
        libraries::record(session, wanted, op, &arguments).map(|of| of.commands)
    };
    // Commands that submit no work to the GPU, commands that make an object, and invalid commands.
    for (op, arguments) in [
        send("cublasSetStream_v2", &[handle, rig.streams[0]]),
        create,
        (0x0e03, Vec::new()),
        (0xffff, Vec::new()),
    ] {
        assert!(record(1, (op, arguments)).is_err(), "{op:#x}");
    }
    let scale = || send("cublasSscal_v2", &[handle, 4, 1, 0x7000, 1]);
    assert_eq!(record(1, scale()).unwrap(), Ok(1));
    assert_eq!(counted(&rig), 1);
    assert_eq!(double::calls("cuStreamEndCapture"), 1);
    // The id is in use; arguments of another length are invalid.
    assert!(matches!(record(1, scale()), Ok(Ok(0)) | Err(_)) || counted(&rig) == 1);
    assert!(record(2, (scale().0, vec![1; 3])).is_err());
    let part = GraphStep {
        kind: kind::PART,
        object: object_id::<GraphPart>(1),
        context,
        enabled: true,
        ..GraphStep::default()
    };
    assert_eq!(make(&rig, id(1), std::slice::from_ref(&part)), CUDA_SUCCESS);
    let elsewhere = GraphStep {
        context: other,
        ..part
    };
    assert_eq!(make(&rig, id(2), &[elsewhere]), GONE);
    rig.works(
        request::gpgpuGraphForget {
            part: object_id::<GraphPart>(1),
        },
        context,
    );
    // The executable graph keeps the objects in use.
    assert_eq!(launch(&rig, id(1), rig.streams[0]), CUDA_SUCCESS);
    rig.works(request::cuGraphExecDestroy { hGraphExec: id(1) }, 0);
    assert_eq!((counted(&rig), double::wrong()), (0, Vec::new()));
    assert_eq!(GraphPart::KIND, 0x8d);
}

#[test]
fn edges_are_those_of_the_step_behind_them() {
    let rig = Rig::new();
    let step = |of: u32, after: &[u32], numbers: &[u64]| GraphStep {
        kind: of,
        after: after.to_vec(),
        numbers: numbers.to_vec(),
        enabled: true,
        ..GraphStep::default()
    };
    let nothing = |after: &[u32]| step(kind::NOTHING, after, &[]);
    let edges = |numbers: &[u64]| step(kind::EDGES, &[], numbers);
    let first = [nothing(&[]), nothing(&[])];
    let list = |rest: &[GraphStep]| [&first, rest].concat();
    let one = graph_edge([1, 0, 1]);

    let made = || double::calls("cuGraphAddDependencies_v2");
    let before = made();
    let good = list(&[edges(&[one, 0]), nothing(&[0, 1]), nothing(&[3])]);
    assert_eq!(make(&rig, id(1), &good), CUDA_SUCCESS);
    assert_eq!(made(), before + 1);
    assert_eq!(launch(&rig, id(1), rig.streams[0]), CUDA_SUCCESS);
    // More or fewer edges than dependencies, reserved bits, a repetition, edges before a mark or at the end; edges that
    // wait, or for which a step waits.
    for rest in [
        vec![edges(&[one]), nothing(&[0, 1])],
        vec![edges(&[one, 0, 0]), nothing(&[0, 1])],
        vec![edges(&[]), nothing(&[0])],
        vec![edges(&[1 << 24]), nothing(&[0])],
        vec![edges(&[one]), edges(&[one]), nothing(&[0])],
        vec![edges(&[one]), step(kind::BODY, &[], &[])],
        vec![edges(&[one])],
        vec![step(kind::EDGES, &[0], &[one]), nothing(&[0])],
        vec![edges(&[one]), nothing(&[0]), nothing(&[2])],
    ] {
        assert_eq!(make(&rig, id(2), &list(&rest)), BAD, "{rest:?}");
    }
    assert_eq!(made(), before + 2, "the last of them has good edges");
}

/// A launch passes the gates of all GPUs to which the graph submits work, even if the list was changed in the meantime.
#[test]
fn a_graph_over_several_gpus_passes_the_gates_of_all() {
    let rig = Rig::new();
    let context = object_id::<Context>(9);
    let stream = object_id::<Stream>(9);
    let (pctx, flags, dev) = (context, 0, 3);
    rig.works(request::cuCtxCreate_v2 { pctx, flags, dev }, 0);
    let create = request::cuStreamCreate {
        phStream: stream,
        Flags: 0,
    };
    rig.works(create, context);
    let far = rig.alloc_in(context);
    let (here, there) = (1 << 0, 1 << 3);
    let mut fill = of(&rig, kind::FILL);
    let elsewhere = GraphStep {
        context,
        ..fill.clone()
    };
    let copy = of(&rig, kind::COPY);
    let mut far_copy = copy.clone();
    far_copy.numbers[0] = far;
    let find = |exec| rig.session.executables.graphs.find(exec).unwrap();
    let lists = [
        (vec![fill.clone()], here),
        (vec![copy.clone()], here),
        (vec![far_copy.clone()], here | there),
        (vec![fill.clone(), elsewhere.clone()], here | there),
    ];
    for (serial, (list, gpus)) in lists.iter().enumerate() {
        let exec = id(serial as u64);
        assert_eq!(make(&rig, exec, list), CUDA_SUCCESS);
        assert_eq!(find(exec).gpus(), *gpus, "{list:?}");
        // In streams of both.
        for stream in [rig.streams[0], stream] {
            assert_eq!(launch(&rig, exec, stream), CUDA_SUCCESS, "{list:?}");
        }
    }
    // A command that has passed only the gate of its stream.
    let alone = |exec| {
        rig.session.enter(rig.contexts[0]).unwrap();
        find(exec).launch(rig.session, 0)
    };
    assert_eq!((alone(id(0)), alone(id(3))), (Ok(()), Err(GONE)));
    // Another list, refused or not, and another step.
    let changed = find(id(1));
    let longer = [far_copy.clone(), far_copy.clone()];
    assert_eq!(changed.update(rig.session, &longer), Err(BAD));
    assert_eq!((changed.gpus(), alone(id(1))), (here, Ok(())));
    let set = |to: &GraphStep| {
        let to = to.clone();
        changed.set(rig.session, &[GraphChange { step: 0, to }])
    };
    assert_eq!(set(&far_copy), Ok(()));
    assert_eq!((changed.gpus(), alone(id(1))), (here | there, Err(GONE)));
    assert_eq!(launch(&rig, id(1), rig.streams[0]), CUDA_SUCCESS);
    assert_eq!(changed.update(rig.session, &[copy]), Ok(()));
    assert_eq!((changed.gpus(), alone(id(1))), (here, Ok(())));
    // When one of its contexts ends, the graph ends.
    fill.context = context;
    assert_eq!(make(&rig, id(4), &[fill]), CUDA_SUCCESS);
    rig.works(request::cuCtxDestroy_v2 { ctx: context }, 0);
    for exec in [id(3), id(4)] {
        assert_eq!(launch(&rig, exec, rig.streams[0]), GONE);
    }
    assert_eq!(double::wrong(), [""; 0]);
}

/// Values, conditional steps and the marks of their bodies must come in the one valid order.
#[test]
fn a_list_of_bodies_is_whole_or_refused() {
    let rig = Rig::new();
    let step = |of: u32, object: u64, numbers: &[u64]| GraphStep {
        kind: of,
        context: rig.contexts[0],
        object,
        numbers: numbers.to_vec(),
        enabled: true,
        ..GraphStep::default()
    };
    let after = |of: &GraphStep, after: &[u32]| GraphStep {
        after: after.to_vec(),
        ..of.clone()
    };
    let value = step(kind::VALUE, 0, &[1, 1]);
    let node = |value: u64, count: u64| step(kind::CONDITIONAL, value, &[2, count]);
    let [body, end, nothing] = [kind::BODY, kind::END, kind::NOTHING].map(|of| step(of, 0, &[]));
    let refused = |serial: u64, steps: &[GraphStep]| {
        let made = make(&rig, id(serial), steps);
        assert_eq!(made, BAD, "{steps:?}");
    };

    // Two bodies, the second with a node of its own, and a step after all of them.
    let all = [
        value.clone(),
        value.clone(),
        node(1, 2),
        body.clone(),
        nothing.clone(),
        body.clone(),
        nothing.clone(),
        after(&node(2, 1), &[6]),
        body.clone(),
        end.clone(),
        after(&nothing, &[7]),
        end.clone(),
        after(&nothing, &[2]),
    ];
    assert_eq!(make(&rig, id(1), &all), CUDA_SUCCESS);
    assert_eq!(launch(&rig, id(1), rig.streams[0]), CUDA_SUCCESS);
    let executable = rig.session.executables.graphs.find(id(1)).unwrap();
    for index in [0, 2, 3, 11] {
        let change = GraphChange {
            step: index as u32,
            to: all[index].clone(),
        };
        assert_eq!(executable.set(rig.session, &[change]), Err(BAD));
    }
    drop(executable);
    let made = double::calls("cuGraphAddNode_v2");
    // A truncated list is invalid.
    for length in 3..12 {
        refused(2, &all[..length]);
    }
    // Dependencies on a step of another body, of the graph from a body, on a mark, and on a step without a node.
    for (at, behind) in [(6, 4), (4, 2), (12, 4), (12, 10), (12, 3), (12, 0), (10, 4)] {
        let mut list = all.to_vec();
        list[at].after = vec![behind];
        refused(2, &list);
    }
    // Marks with dependencies.
    for at in [1, 3, 9] {
        let mut list = all.to_vec();
        list[at].after = vec![0];
        refused(2, &list);
    }
    let before = double::calls("cuGraphAddNode_v2");
    // Invalid values, and more bodies than steps: these do not reach the driver.
    for (value_of, count) in [(0, 1), (2, 1), (u64::MAX, 1), (1, 0), (1, 3), (1, 1 << 31)] {
        let list = [
            value.clone(),
            node(value_of, count),
            body.clone(),
            end.clone(),
        ];
        refused(2, &list);
    }
    for numbers in [&[0, 1 << 32][..], &[1 << 32, 1], &[1], &[0, 1, 1], &[]] {
        let wrong = step(kind::CONDITIONAL, 1, numbers);
        refused(2, &[value.clone(), wrong, body.clone(), end.clone()]);
    }
    assert_eq!(double::calls("cuGraphAddNode_v2"), before);
    for list in [
        vec![body.clone()],
        vec![end.clone()],
        vec![
            value.clone(),
            node(1, 1),
            nothing.clone(),
            body.clone(),
            end.clone(),
        ],
        vec![value.clone(), node(1, 1), end.clone(), body.clone()],
        vec![
            value.clone(),
            node(1, 1),
            body.clone(),
            body.clone(),
            end.clone(),
        ],
        vec![
            value.clone(),
            node(1, 2),
            body.clone(),
            end.clone(),
            nothing.clone(),
        ],
        vec![
            value.clone(),
            node(1, 1),
            node(1, 1),
            body.clone(),
            end.clone(),
        ],
    ] {
        refused(2, &list);
    }
    // In no context, and in an invalid one.
    for context in [0, rig.streams[0]] {
        let wrong = GraphStep {
            context,
            ..value.clone()
        };
        assert_ne!(make(&rig, id(2), &[wrong]), CUDA_SUCCESS);
    }
    assert!(made > 0);
    rig.works(request::cuGraphExecDestroy { hGraphExec: id(1) }, 0);
    assert_eq!((counted(&rig), double::wrong()), (0, Vec::new()));
}
