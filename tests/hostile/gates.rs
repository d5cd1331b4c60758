// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Whatever a command's header says, its work is delayed and charged as work of the context in which it runs.

use gpgpu_protocol::{
    api::{Context, GraphExec, GraphStep, Request, object_id, request, traced_work},
    codec::Writer,
    cuda::*,
    layout::status,
};

use crate::{
    MIB,
    client::{Client, command, launch},
    guest::Guest,
    host::{Host, on_gpu},
    vmm,
};

/// With a limit that no kernel here reaches, a VM always has turns, even if it is alone, and each of them is charged
/// exactly.
const TURNS: &str = "longest-kernel = \"60s\"";

/// The parameters of the kernels.
struct Work {
    context: u64,
    busy: u64,
    stream: u64,
    address: u64,
    turns: u32,
}

impl Work {
    fn new(client: &mut Client<'_>, serial: u64, context: u64) -> Self {
        let busy = client.function(serial, "busy", context, context);
        let stream = client.stream(serial, context);
        let address = client.alloc(MIB as usize, context);
        let turns = client.turns(busy, address, stream, context);
        Self {
            context,
            busy,
            stream,
            address,
            turns,
        }
    }
}

/// The GPU time that a VM is charged while `give` submits work `count` times, and until the stream has finished it.
fn charged(
    host: &Host,
    (gpu, count): (usize, usize),
    client: &mut Client<'_>,
    (stream, context): (u64, u64),
    mut give: impl FnMut(&mut Client<'_>) -> CUresult,
) -> f64 {
    let before = host.settled_gpu_seconds(0, gpu);
    (0..count).for_each(|_| assert_eq!(give(client), CUDA_SUCCESS));
    assert_eq!(client.synchronize(stream, context), CUDA_SUCCESS);
    host.settled_gpu_seconds(0, gpu) - before
}

/// The number of repetitions that make a cost measurable, and the minimum cost: the software GPU uses this machine's
/// time, as other processes do.
fn measured(mut charged: impl FnMut(usize) -> f64) -> (usize, f64) {
    let mut count = 4;
    loop {
        let least = (0..3).map(|_| charged(count)).fold(f64::MAX, f64::min);
        if least > 0.2 {
            return (count, least);
        }
        assert!(count < 1 << 10, "{least} s for {count} times");
        count *= 2;
    }
}

/// Kernels with a header that names no context, or another one, cost their VM as much as with the right one.
#[test]
fn the_header_of_a_command_does_not_choose_its_charge() {
    let Some(host) = Host::with(TURNS, 1) else {
        return;
    };
    let mut guest = host.boot(0, vmm());
    let mut client = Client::open(&mut guest);
    let context = client.context();
    let other = client.create_context(2, 0);
    let own = Work::new(&mut client, 1, context);
    let Work {
        busy,
        address,
        turns,
        ..
    } = own;
    // A function that was requested in another context than its module's still belongs to its module's.
    let asked = client.function(2, "busy", context, other);
    let (legacy, on) = ((0, context), (own.stream, context));
    let usual = launch(busy, own.stream, address, turns);
    let give = |launch: request::cuLaunchKernelEx, header| {
        move |client: &mut Client<'_>| client.call(&launch, header, &[], 0).0
    };
    let (count, honest) = measured(|count| {
        charged(
            &host,
            (0, count),
            &mut client,
            on,
            give(usual.clone(), context),
        )
    });
    let by_default = |stream| launch(busy, stream, address, turns);
    let ways = [
        ("no context", on, 0, usual.clone()),
        ("another context", on, other, usual),
        ("no context, default stream", legacy, 0, by_default(0)),
        ("no context, legacy stream", legacy, 0, by_default(1)),
        (
            "another context, default stream",
            legacy,
            other,
            by_default(0),
        ),
        (
            "a function asked for elsewhere",
            legacy,
            other,
            launch(asked, 0, address, turns),
        ),
    ];
    for (way, on, header, launch) in ways {
        let had = charged(&host, (0, count), &mut client, on, give(launch, header));
        assert!(
            had > honest / 10.0,
            "{way}: {had} s, and {honest} s as it should be"
        );
    }
    client.close();
}

/// The same for fills and copies. The memory is so large that they take some time.
#[test]
fn copies_and_fills_without_a_context_are_charged() {
    let Some(host) = Host::with(TURNS, 1) else {
        return;
    };
    let mut guest = host.boot(0, vmm());
    let mut client = Client::open(&mut guest);
    let context = client.context();
    let stream = client.stream(1, context);
    let bytes = if on_gpu() { 8 << 30 } else { 256 << 20 };
    let address = client.alloc(bytes, context);
    let half = bytes / 2;
    let fill = command_of(request::cuMemsetD8Async {
        dstDevice: address,
        uc: 1,
        N: bytes,
        hStream: stream,
    });
    let copy = command_of(request::cuMemcpyAsync {
        dst: address,
        src: address + half as u64,
        ByteCount: half,
        hStream: stream,
    });
    // The host allocates its pages at their first use.
    fill(&mut client, context);
    assert_eq!(client.synchronize(stream, context), CUDA_SUCCESS);
    for (name, give) in [("fills", fill), ("copies", copy)] {
        let mut cost = |header, count| {
            let on = (stream, context);
            charged(&host, (0, count), &mut client, on, |client| {
                give(client, header)
            })
        };
        let (count, honest) = measured(|count| cost(context, count));
        let without = cost(0, count);
        assert!(
            without > honest / 10.0,
            "{name}: {without} s, and {honest} s with a context"
        );
    }
    client.close();
}

type Give = Box<dyn Fn(&mut Client<'_>, u64) -> CUresult>;

/// Sends a request in a context.
fn command_of<R: Request + 'static>(request: R) -> Give {
    Box::new(move |client, header| client.call(&request, header, &[], 0).0)
}

/// A command without any context is refused, and never reaches the driver.
#[test]
fn work_without_a_context_is_refused() {
    let Some(host) = Host::start() else { return };
    let mut guest = host.boot(0, vmm());
    let mut client = Client::open(&mut guest);
    let context = client.context();
    let address = client.alloc(4096, context);
    let fill = |stream| request::cuMemsetD8Async {
        dstDevice: address,
        uc: 1,
        N: 16,
        hStream: stream,
    };
    for stream in [0, 1] {
        let code = client.call(&fill(stream), 0, &[], 0).0;
        assert_eq!(code, CUDA_ERROR_INVALID_CONTEXT);
    }
    let never = object_id::<Context>(99);
    let code = client.call(&fill(0), never, &[], 0).0;
    assert_eq!(code, CUDA_ERROR_CONTEXT_IS_DESTROYED);
    // An id of another kind is not accepted as a stream either.
    let code = client.call(&fill(context), context, &[], 0).0;
    assert_eq!(code, CUDA_ERROR_INVALID_HANDLE);
    client.close();
}

fn ends(guest: &mut Guest, header: impl Fn(u64) -> u64, stream: bool) {
    let mut client = Client::open(guest);
    let context = client.context();
    let endless = client.function(1, "endless", context, context);
    let address = client.alloc(4096, context);
    let fill = request::cuMemsetD8_v2 {
        dstDevice: address,
        uc: 0,
        N: 4096,
    };
    client.works(&fill, context, &[], 0);
    let stream = match stream {
        true => client.stream(1, context),
        false => 0,
    };
    client.works(
        &launch(endless, stream, address, 0),
        header(context),
        &[],
        0,
    );
    // It never returns from here unless the worker is killed.
    let wait = command(&request::cuStreamSynchronize { hStream: stream }, context);
    let (said, _, _) = client.raw(&wait, 64, &[], 0);
    assert_eq!(said, status::CLIENT_DEAD);
    client.close();
}

/// `longest-kernel` also applies to a kernel that was launched without a context.
#[test]
fn an_endless_kernel_without_a_context_is_ended() {
    let Some(host) = Host::with("longest-kernel = \"500ms\"", 1) else {
        return;
    };
    let mut guest = host.boot(0, vmm());
    ends(&mut guest, |context| context, true);
    ends(&mut guest, |_| 0, true);
    ends(&mut guest, |_| 0, false);
}

/// A graph with a chain of launches, the last of which is this one.
fn graph_of(
    client: &mut Client<'_>,
    context: u64,
    count: u32,
    last: &request::cuLaunchKernelEx,
    other: &request::cuLaunchKernelEx,
) -> u64 {
    let step = |at: u32| {
        let of = if at + 1 == count { last } else { other };
        GraphStep {
            after: (at > 0).then(|| at - 1).into_iter().collect(),
            enabled: true,
            context,
            object: of.func,
            launch: of.config.clone(),
            params: of.params.clone(),
            ..GraphStep::default()
        }
    };
    let steps: Vec<GraphStep> = (0..count).map(step).collect();
    let mut writer = Writer::new();
    writer.put(&steps);
    let exec = object_id::<GraphExec>(u64::from(count));
    let make = request::gpgpuGraphInstantiate {
        exec,
        image: 0,
        flags: 0,
    };
    client.works(&make, context, &writer.into_bytes(), 0);
    exec
}

/// A graph's launches are charged like single ones, whatever the launch's header says.
#[test]
fn pitfall_74_a_launch_of_a_graph_is_charged_for_all_that_it_has() {
    let Some(host) = Host::with(TURNS, 1) else {
        return;
    };
    let mut guest = host.boot(0, vmm());
    let mut client = Client::open(&mut guest);
    let context = client.context();
    let own = Work::new(&mut client, 1, context);
    let on = (own.stream, context);
    let alone = launch(own.busy, own.stream, own.address, own.turns);
    let in_graph = launch(own.busy, 0, own.address, own.turns);
    let give = |client: &mut Client<'_>| client.call(&alone, context, &[], 0).0;
    let (count, honest) = measured(|count| charged(&host, (0, count), &mut client, on, give));
    let exec = graph_of(&mut client, context, count as u32, &in_graph, &in_graph);
    for header in [context, 0] {
        let launch = request::cuGraphLaunch {
            hGraphExec: exec,
            hStream: own.stream,
        };
        let had = charged(&host, (0, 1), &mut client, on, |client| {
            client.call(&launch, header, &[], 0).0
        });
        assert!(had > honest / 10.0, "{had} s, and {honest} s one by one");
    }
    client.close();
}

/// An endless kernel in a graph costs its client like one that was launched alone, after the limit for each of the
/// graph's kernels.
#[test]
fn pitfall_74_an_endless_kernel_in_a_graph_is_ended() {
    let Some(host) = Host::with("longest-kernel = \"200ms\"", 1) else {
        return;
    };
    let neighbour = host.neighbour();
    let mut guest = host.boot(0, vmm());
    for count in [1, 4] {
        let mut client = Client::open(&mut guest);
        let context = client.context();
        let endless = client.function(1, "endless", context, context);
        let busy = client.function(2, "busy", context, context);
        let stream = client.stream(1, context);
        let address = client.alloc(4096, context);
        let fill = request::cuMemsetD8_v2 {
            dstDevice: address,
            uc: 0,
            N: 4096,
        };
        client.works(&fill, context, &[], 0);
        let (last, other) = (launch(endless, 0, address, 1), launch(busy, 0, address, 1));
        let exec = graph_of(&mut client, context, count, &last, &other);
        let launch = request::cuGraphLaunch {
            hGraphExec: exec,
            hStream: stream,
        };
        client.works(&launch, context, &[], 0);
        let synchronise = request::cuStreamSynchronize { hStream: stream };
        let (ended, _, _) = client.raw(&command(&synchronise, context), 16, &[], 0);
        assert_eq!(ended, status::CLIENT_DEAD);
        client.close();
    }
    neighbour.finish();
}

/// Stacks are charged to the context in which the kernel runs, and returned with it.
#[test]
fn the_stacks_of_a_kernel_are_charged_to_its_context() {
    let Some(host) = Host::start() else { return };
    let mut guest = host.boot(0, vmm());
    let mut client = Client::open(&mut guest);
    let memory = || host.metric("memory_bytes", 0, Some(0));
    let kept = client.create_context(1, 0);
    let before = memory();
    for header in [None, Some(kept), Some(0)] {
        let serial = 10 + header.map_or(0, |header| 1 + header);
        let context = client.create_context(serial, 0);
        let deep = client.function(serial, "deep", context, context);
        let stream = client.stream(serial, context);
        let address = client.alloc(4096, context);
        let had = memory();
        let header = header.unwrap_or(context);
        client.works(&launch(deep, stream, address, 1), header, &[], 0);
        assert_eq!(client.synchronize(stream, context), CUDA_SUCCESS);
        assert!(memory() > had, "the stacks are not charged");
        let end = request::cuCtxDestroy_v2 { ctx: context };
        client.works(&end, 0, &[], 0);
        host.wait_until("what a context had is given back", || memory() <= before);
    }
    client.close();
}

/// Traces are charged to each context, also to one with the id of a context that has ended.
#[test]
fn the_traces_of_a_context_are_charged() {
    let Some(host) = Host::start() else { return };
    let mut guest = host.boot(0, vmm());
    let mut client = Client::open(&mut guest);
    let memory = || host.metric("memory_bytes", 0, Some(0));
    let trace = |client: &mut Client<'_>, kinds| {
        let work = request::gpgpuTraceWork {
            kinds,
            version: true,
        };
        client.call(&work, 0, &[], 0).0
    };
    let kinds = traced_work::bit(traced_work::KERNEL);
    client.create_context(1, 0);
    if trace(&mut client, kinds) == CUDA_ERROR_NOT_SUPPORTED {
        eprintln!("skipped: there is no CUPTI");
        return client.close();
    }
    let before = memory();
    for _ in 0..2 {
        assert_eq!(trace(&mut client, 0), CUDA_SUCCESS);
        let context = client.create_context(2, 0);
        let had = memory();
        assert_eq!(trace(&mut client, kinds), CUDA_SUCCESS);
        assert!(memory() > had, "the traces are not charged");
        let end = request::cuCtxDestroy_v2 { ctx: context };
        client.works(&end, 0, &[], 0);
        host.wait_until("what a context had is given back", || memory() <= before);
    }
    client.close();
}

/// With several GPUs, the stream's GPU is charged, and memory on another GPU is charged there.
#[test]
fn work_counts_on_the_gpu_that_does_it() {
    if let Some(host) = Host::with(TURNS, 2) {
        work_counts_where_it_is_done(&host);
    }
}

/// Without peer access, such copies go through the driver's own memory.
#[test]
fn work_counts_on_the_gpu_that_does_it_without_peers() {
    if let Some(host) = Host::with_peers(TURNS, 2, false).filter(|_| !on_gpu()) {
        work_counts_where_it_is_done(&host);
    }
}

fn work_counts_where_it_is_done(host: &Host) {
    let mut guest = host.boot(0, vmm());
    let mut client = Client::open(&mut guest);
    let hello = client
        .works(&request::gpgpuHello { hello: true }, 0, &[], 0)
        .0
        .hello;
    if hello.devices.len() < 2 {
        eprintln!("skipped: there is one GPU");
        return client.close();
    }
    let [first, second] = [0, 1].map(|dev| client.create_context(1 + dev, dev as i32));
    let work = Work::new(&mut client, 1, first);
    let Work {
        busy,
        stream,
        address,
        turns,
        context,
    } = work;
    let far = client.alloc(MIB as usize * 256, second);
    let on = (stream, context);
    let usual = launch(busy, stream, address, turns);
    let cost = |client: &mut Client<'_>, gpu, count, header| {
        charged(host, (gpu, count), client, on, |client| {
            client.call(&usual, header, &[], 0).0
        })
    };
    // The index of the client's first GPU in the host.
    let had = || [0, 1].map(|gpu| host.gpu_seconds(0, Some(gpu)));
    host.wait_until("kernels are charged", || had().iter().any(|had| *had > 0.0));
    let (here, there) = if had()[0] > 0.0 { (0, 1) } else { (1, 0) };
    let (count, _) = measured(|count| cost(&mut client, here, count, context));
    let before = host.settled_gpu_seconds(0, there);
    let had = cost(&mut client, here, count, second);
    assert!(had > 0.1, "{had} s where the kernels ran");
    let beside = host.settled_gpu_seconds(0, there) - before;
    assert!(
        beside < had / 3.0,
        "{beside} s where nothing ran, beside {had} s"
    );
    // A fill of the other GPU's memory is work for both.
    let fill = request::cuMemsetD8Async {
        dstDevice: far,
        uc: 1,
        N: 256 << 20,
        hStream: stream,
    };
    let before = host.settled_gpu_seconds(0, there);
    let (_, had) = measured(|count| {
        charged(host, (here, count), &mut client, on, |client| {
            client.call(&fill, 0, &[], 0).0
        })
    });
    let beside = host.settled_gpu_seconds(0, there) - before;
    assert!(
        beside > had / 10.0,
        "{beside} s on the memory's GPU, {had} s on the stream's"
    );
    // So is a graph with the other GPU's kernels.
    let theirs = Work::new(&mut client, 2, second);
    let alone = launch(theirs.busy, theirs.stream, theirs.address, theirs.turns);
    let in_graph = launch(theirs.busy, 0, theirs.address, theirs.turns);
    let there_on = (theirs.stream, second);
    let (count, honest) = measured(|count| {
        charged(host, (there, count), &mut client, there_on, |client| {
            client.call(&alone, second, &[], 0).0
        })
    });
    let exec = graph_of(&mut client, second, count as u32, &in_graph, &in_graph);
    for on in [on, there_on] {
        let launch = request::cuGraphLaunch {
            hGraphExec: exec,
            hStream: on.0,
        };
        let had = charged(host, (there, 1), &mut client, on, |client| {
            client.call(&launch, 0, &[], 0).0
        });
        assert!(had > honest / 10.0, "{had} s, and {honest} s one by one");
    }
    client.close();
}
