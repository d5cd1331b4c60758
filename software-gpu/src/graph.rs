// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Graphs and stream capture on this device: `gpgpu-graphs` has them, and this file executes launches.
//!
//! A launch of a graph is one piece of work in its stream, which executes the steps one after the other. CUDA promises
//! only that branches may run at once. Bodies of conditional nodes are executed when the launch reaches the node, by
//! the value at that time.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use gpgpu_graphs::{
    Gpu, Signature, Stream as Named,
    abi::DEVICE_LAUNCH,
    capture,
    conditional::{self, Condition, Conditional},
    exec::Step,
    node::{Copy3D, Fill, Kernel, MemOps, Work},
    objects::Allocation,
    store::Store,
    update::Changes,
};
use gpgpu_protocol::cuda::{
    CU_MEMORYTYPE_HOST, CUDA_ERROR_INVALID_VALUE, CUDA_SUCCESS, CUdevice, CUevent,
    CUlaunchAttribute, CUstream,
};

use crate::api::array_copy;
use crate::api::copy::{Rows, copy_now};
use crate::api::event::Event;
use crate::api::launch;
use crate::api::memory;
use crate::api::memset::fill_now;
use crate::api::stream_memory;
use crate::config::Config;
use crate::context;
use crate::device_graph::{self, Launches};
use crate::driver;
use crate::effects::OfContext;
use crate::exec::{Effects, Launch};
use crate::ffi::{Result, as_callback, refuse_in_callback};
use crate::memory::Place;
use crate::module::Function;
use crate::stream::{Null, Order, STREAMS, Stream, Ticket};

static STORE: Store<Soft> = Store::new();

/// This device.
pub struct Soft;

/// The properties of a stream that a capture needs.
pub fn named(stream: &Stream) -> Named {
    Named {
        key: stream.id,
        context: context::handle_of(stream.owner),
        is_legacy: stream.order == Order::Legacy,
        is_blocking: stream.order == Order::Blocking,
    }
}

/// Records the node of `work` if the stream is captured, and returns whether it is.
pub fn record(stream: &Stream, work: impl FnOnce() -> Result<Work>) -> Result<bool> {
    capture::record_work::<Soft>(&named(stream), work)
}

/// The memory of an allocation that a stream is about to record.
pub fn allocate(stream: &Stream, bytes: usize) -> Result<Arc<Allocation>> {
    capture::allocate::<Soft>(&named(stream), bytes)
}

/// As [`record`], for a launch with attributes, of which `work` gets those that its node has.
pub fn record_launch(
    stream: &Stream,
    attributes: &[CUlaunchAttribute],
    work: impl FnOnce(Vec<CUlaunchAttribute>) -> Result<Work>,
) -> Result<bool> {
    capture::record_launch::<Soft>(&named(stream), attributes, work)
}

/// Whether a stream is captured now.
pub fn records(stream: &Stream) -> Result<bool> {
    capture::records::<Soft>(&named(stream))
}

/// Work that no graph can have is refused in a captured stream.
pub fn refuse(stream: &Stream) -> Result {
    if !capture::any::<Soft>() {
        return Ok(());
    }
    capture::refuse::<Soft>(&named(stream))
}

/// A stream is asked about or waited for.
pub fn observe(stream: &Stream) -> Result {
    capture::observe_stream::<Soft>(&named(stream))
}

/// Records an event in a captured stream, and returns whether the stream is captured.
pub fn record_event(event: u64, stream: &Stream, flags: u32) -> Result<bool> {
    capture::record_event::<Soft>(event, &named(stream), flags & 1 != 0)
}

/// Makes a stream wait for an event in a capture, and returns whether there is one.
pub fn wait_event(stream: &Stream, event: u64, flags: u32) -> Result<bool> {
    capture::wait_event::<Soft>(&named(stream), event, flags & 1 != 0)
}

/// A context ends.
pub fn forget_context(handle: u64) {
    capture::forget_context::<Soft>(handle);
}

/// The parameters of a function, for a launch in a context.
pub fn signature(function: &Function, context: u64) -> Signature {
    let info = function.info();
    Signature {
        layout: info.params.iter().map(|of| (of.offset, of.size)).collect(),
        bytes: info.param_bytes,
        context,
    }
}

fn stream_of(handle: CUstream, per_thread: bool) -> Result<Arc<Stream>> {
    let null = if per_thread {
        Null::PerThread
    } else {
        Null::Legacy
    };
    match STREAMS.get(handle as u64) {
        Some(stream) => Ok(stream),
        None => context::current()?.stream(handle, null),
    }
}

fn shape_of(kernel: &Kernel, function: &Function) -> Result<Launch> {
    let mut shape = Launch {
        grid: kernel.grid,
        block: kernel.block,
        dynamic_shared_bytes: kernel.shared as usize,
        ..Launch::default()
    };
    for attribute in &kernel.attributes {
        launch::apply(attribute, &mut shape)?;
    }
    if shape.cluster == [1; 3] {
        shape.cluster = function.cluster().unwrap_or([1; 3]);
    }
    launch::check(function, &shape, &*context::named(kernel.context)?)?;
    Ok(shape)
}

fn function_of(kernel: &Kernel) -> Result<Arc<Function>> {
    Function::named(kernel.function, &*context::named(kernel.context)?)
}

fn copy(of: &Copy3D) -> Result {
    if of.dst_array != 0 || of.src_array != 0 {
        return array_copy::copy_now(&of.given);
    }
    for z in 0..of.depth {
        let (to, from) = (of.dst_pitch * of.dst_height, of.src_pitch * of.src_height);
        copy_now(&Rows {
            dst: of.dst + (z * to) as u64,
            dst_pitch: of.dst_pitch,
            src: of.src + (z * from) as u64,
            src_pitch: of.src_pitch,
            width: of.width,
            height: of.height,
        })?;
    }
    Ok(())
}

/// The values of an executable graph, on which its conditional nodes depend. The first one has the number 1.
pub type Values = Arc<[AtomicU32]>;

/// An executable graph: the steps say the rest.
pub struct Executable {
    values: Values,
    /// The graph as kernels launch it, if they do.
    direct: Option<device_graph::Named>,
}

/// A launch of a graph.
struct Run {
    values: Values,
    /// The graph's name in kernels, or 0.
    graph: u64,
    launches: Arc<Launches>,
}

/// The effects of a graph's kernels beside memory.
struct InGraph<'a> {
    of: &'a OfContext,
    run: &'a Run,
    device: CUdevice,
}

impl Effects for InGraph<'_> {
    fn print(&self, text: Vec<u8>) {
        self.of.print(text);
    }

    fn reaches(&self, context: u64) -> bool {
        self.of.reaches(context)
    }

    fn allocate(&self, bytes: u64) -> u64 {
        self.of.allocate(bytes)
    }

    fn free(&self, address: u64) -> bool {
        self.of.free(address)
    }

    fn limit(&self, limit: u32) -> Option<usize> {
        self.of.limit(limit)
    }

    fn set_condition(&self, number: u64, value: u32) -> bool {
        let index = number
            .checked_sub(1)
            .and_then(|index| usize::try_from(index).ok());
        let found = index.and_then(|index| self.run.values.get(index));
        if let Some(found) = found {
            found.store(value, Ordering::Release);
        }
        found.is_some()
    }

    fn current_graph(&self) -> u64 {
        self.run.graph
    }

    fn launch_graph(&self, graph: u64, stream: u64) -> Option<u32> {
        self.run.launches.add(graph, stream, self.device)
    }
}

/// The steps of each body of the conditional step with this number, and the number of the mark of their end.
fn bodies(steps: &[Step], index: usize) -> (Vec<Range<usize>>, usize) {
    let (mut bodies, mut depth) = (Vec::<Range<usize>>::new(), 0);
    for (at, step) in steps.iter().enumerate().skip(index + 1) {
        match &step.work {
            Work::Body if depth == 0 => {
                if let Some(last) = bodies.last_mut() {
                    last.end = at;
                }
                bodies.push(at + 1..at + 1);
            }
            Work::Conditional(_) => depth += 1,
            Work::EndBodies if depth > 0 => depth -= 1,
            Work::EndBodies => {
                if let Some(last) = bodies.last_mut() {
                    last.end = at;
                }
                return (bodies, at);
            }
            _ => {}
        }
    }
    (bodies, steps.len())
}

/// Does the bodies of a conditional step as its value says.
fn choose(steps: &[Step], bodies: &[Range<usize>], of: &Conditional, run: &Arc<Run>) -> Result {
    let value = &run.values[of.condition as usize - 1];
    while let Some(chosen) = of.chosen(value.load(Ordering::Acquire)) {
        if driver::get()?.cancel.load(Ordering::Acquire) {
            break;
        }
        do_body(steps, bodies[chosen].clone(), run)?;
        if of.kind != conditional::kind::WHILE {
            break;
        }
    }
    Ok(())
}

/// Does the steps of a body, or of a graph that a kernel has launched.
fn do_body(steps: &[Step], body: Range<usize>, run: &Arc<Run>) -> Result {
    let mut at = body.start;
    while at < body.end {
        let step = &steps[at];
        if let Work::Conditional(of) = &step.work {
            let (own, end) = bodies(steps, at);
            choose(steps, &own, of, run)?;
            at = end;
        } else if step.enabled
            && let Some(Part::Work(work)) = part(step, run)?
        {
            work()?;
        }
        at += 1;
    }
    Ok(())
}

/// Does the steps of a graph that a kernel has launched by this name.
fn do_launched(graph: u64, steps: &Arc<Vec<Step>>, launches: &Arc<Launches>) -> Result {
    let run = Arc::new(Run {
        values: Values::from([]),
        graph,
        launches: Arc::clone(launches),
    });
    do_body(steps, 0..steps.len(), &run)
}

/// The context that a step is in, of those that a graph for kernels has.
fn context_of(work: &Work) -> Option<u64> {
    match work {
        Work::Kernel(of) => Some(of.context),
        Work::Copy(of) => Some(of.context),
        Work::Fill(of) => Some(of.context),
        _ => None,
    }
}

/// A part of a launch.
enum Part {
    /// Not done after a fault.
    Work(Box<dyn FnOnce() -> Result + Send>),
    /// An event's record.
    Mark(Arc<Ticket>),
}

fn part(step: &Step, run: &Arc<Run>) -> Result<Option<Part>> {
    let work = match &step.work {
        Work::Kernel(kernel) => {
            let function = function_of(kernel)?;
            let (shape, kernel) = (shape_of(kernel, &function)?, Arc::clone(kernel));
            let context = context::named(kernel.context)?;
            let (of, device) = (context.effects(), context.device);
            let run = Arc::clone(run);
            Part::Work(Box::new(move || {
                let effects = InGraph {
                    of: &of,
                    run: &run,
                    device,
                };
                launch::run(&function, &shape, kernel.bytes(), &effects)
            }))
        }
        Work::Copy(of) => {
            let of = **of;
            Part::Work(Box::new(move || copy(&of)))
        }
        Work::MemOps(of) => Part::Work(stream_memory::node_work(of)?),
        Work::Fill(of) => {
            let of = *of;
            Part::Work(Box::new(move || fill_now(&of)))
        }
        Work::Host(of) => {
            let of = *of;
            Part::Work(Box::new(move || {
                let call = of;
                if let Some(function) = call.0.function {
                    // SAFETY: the program's function with the program's argument, as it asked.
                    as_callback(|| unsafe { function(call.0.userData) });
                }
                Ok(())
            }))
        }
        Work::Record(event) => {
            let ticket = Arc::new(Ticket::default());
            Event::named(*event as CUevent)?.record_by(Arc::clone(&ticket));
            Part::Mark(ticket)
        }
        Work::Own(of) => {
            let Some(call) = of.downcast_ref::<Own>() else {
                return Err(CUDA_ERROR_INVALID_VALUE);
            };
            let call = call.clone();
            Part::Work(Box::new(move || call.0()))
        }
        Work::Child(_)
        | Work::Empty
        | Work::Wait(_)
        | Work::Alloc(_)
        | Work::Free(_)
        | Work::Conditional(_)
        | Work::Condition(_)
        | Work::Edges(_)
        | Work::Body
        | Work::EndBodies => return Ok(None),
    };
    Ok(Some(work))
}

/// The default of a value, if it has one.
fn starts_with(of: &Condition) -> Option<u32> {
    (of.flags & conditional::ASSIGN_DEFAULT != 0).then_some(of.default)
}

/// Work of a library's that a stream has recorded.
#[derive(Clone)]
pub struct Own(pub Arc<dyn Fn() -> Result + Send + Sync>);

impl Gpu for Soft {
    type Exec = Executable;

    fn store() -> &'static Store<Self> {
        &STORE
    }

    fn ready() -> Result {
        let driver = driver::get()?;
        refuse_in_callback()?;
        driver.fault()
    }

    fn context() -> Result<u64> {
        Ok(context::current()?.handle)
    }

    fn device(context: u64) -> Result<CUdevice> {
        Ok(context::named(context)?.device)
    }

    fn has_device(device: CUdevice) -> bool {
        (0..Config::get().devices as CUdevice).contains(&device)
    }

    fn stream(handle: CUstream, per_thread: bool) -> Result<Named> {
        Ok(named(&*stream_of(handle, per_thread)?))
    }

    fn check_event(event: u64) -> Result {
        Event::named(event as CUevent).map(drop)
    }

    fn signature(handle: u64) -> Result<Signature> {
        let current = context::current()?;
        let function = Function::named(handle, &current)?;
        Ok(signature(&function, context::handle_of(function.context)))
    }

    fn check_kernel(kernel: &Kernel) -> Result {
        shape_of(kernel, &*function_of(kernel)?).map(drop)
    }

    fn check_copy(of: &Copy3D) -> Result {
        if of.dst_array != 0 || of.src_array != 0 {
            return array_copy::check(&of.given);
        }
        let memory = &driver::get()?.memory;
        let sides = [
            (of.dst, of.dst_extent()?, of.given.dstMemoryType, true),
            (of.src, of.src_extent()?, of.given.srcMemoryType, false),
        ];
        for (address, bytes, kind, writes) in sides {
            let place = memory.classify(address, bytes as u64, writes)?;
            let is_device = kind == gpgpu_protocol::cuda::CU_MEMORYTYPE_DEVICE;
            if matches!(place, Place::Pageable) && is_device && kind != CU_MEMORYTYPE_HOST {
                return Err(CUDA_ERROR_INVALID_VALUE);
            }
        }
        Ok(())
    }

    fn check_fill(of: &Fill) -> Result {
        let memory = &driver::get()?.memory;
        match memory.classify(of.given.dst, of.extent()? as u64, true)? {
            Place::Known(_) => Ok(()),
            Place::Pageable => Err(CUDA_ERROR_INVALID_VALUE),
        }
    }

    fn check_mem_ops(of: &MemOps) -> Result {
        stream_memory::node_work(of).map(drop)
    }

    fn allocate(context: u64, bytes: usize) -> Result<u64> {
        memory::allocate(bytes, &*context::named(context)?)
    }

    fn free(address: u64) {
        // If the context is gone, so is its memory.
        if let Ok(driver) = driver::get() {
            let _ = memory::free(driver, address);
        }
    }

    fn is_near(of: &Copy3D) -> Result<bool> {
        let memory = &driver::get()?.memory;
        let mut is_near = false;
        for (array, address, bytes, writes) in [
            (of.dst_array, of.dst, of.dst_extent()?, true),
            (of.src_array, of.src, of.src_extent()?, false),
        ] {
            if array != 0 {
                continue;
            }
            let place = memory.classify(address, bytes as u64, writes)?;
            is_near |= matches!(place, Place::Pageable);
        }
        Ok(is_near)
    }

    fn check_condition(_: &Condition) -> Result {
        Ok(())
    }

    /// Steps are done one after the other, so each waits for all before it.
    fn has_partial_edges() -> bool {
        true
    }

    fn instantiate(steps: &[Step], flags: u64) -> Result<Executable> {
        let values = steps.iter().filter_map(|step| match step.work {
            Work::Condition(of) => Some(AtomicU32::new(starts_with(&of).unwrap_or(0))),
            _ => None,
        });
        let context = steps.iter().find_map(|step| context_of(&step.work));
        let direct = match context.filter(|_| flags & DEVICE_LAUNCH != 0) {
            Some(context) => Some(device_graph::Named::new(Self::device(context)?)),
            None => None,
        };
        Ok(Executable {
            values: values.collect(),
            direct,
        })
    }

    fn device_handle(exec: &Executable) -> Option<u64> {
        exec.direct.as_ref().map(device_graph::Named::name)
    }

    fn set(_: &Executable, _: &[Step], _: usize, _: bool) -> Result {
        Ok(())
    }

    fn update(_: &Executable, _: &[Step], _: Option<&Changes>) -> Result {
        Ok(())
    }

    fn launch(
        exec: &Executable,
        steps: &Arc<Vec<Step>>,
        stream: CUstream,
        per_thread: bool,
    ) -> Result {
        let stream = stream_of(stream, per_thread)?;
        refuse(&stream)?;
        if let Some(direct) = &exec.direct {
            direct.upload(steps);
        }
        let run = Arc::new(Run {
            values: Arc::clone(&exec.values),
            graph: Self::device_handle(exec).unwrap_or(0),
            launches: Arc::default(),
        });
        let mut after = Vec::new();
        let mut parts = Vec::new();
        let mut at = 0;
        while at < steps.len() {
            let (index, step) = (at, &steps[at]);
            at += 1;
            if let Work::Conditional(of) = &step.work {
                let own;
                (own, at) = bodies(steps, index);
                let (steps, of, run) = (Arc::clone(steps), Arc::clone(of), Arc::clone(&run));
                let work = move || choose(&steps, &own, &of, &run);
                parts.push(Part::Work(Box::new(work)));
                continue;
            }
            if !step.enabled {
                continue;
            }
            if let Work::Condition(of) = step.work
                && let Some(value) = starts_with(&of)
            {
                let values = Arc::clone(&run.values);
                parts.push(Part::Work(Box::new(move || {
                    values[index].store(value, Ordering::Release);
                    Ok(())
                })));
            }
            if let Work::Wait(event) = step.work {
                let recorded = Event::named(event as CUevent)?.recorded();
                let own = |ticket: &Arc<Ticket>| {
                    parts
                        .iter()
                        .any(|part| matches!(part, Part::Mark(of) if Arc::ptr_eq(of, ticket)))
                };
                after.extend(recorded.filter(|ticket| !own(ticket)));
            }
            parts.extend(part(step, &run)?);
        }
        parts.push(Part::Work(Box::new(move || run.launches.run(do_launched))));
        // Objects of the steps live until they are done.
        let held = Arc::clone(steps);
        context::queue_always_after(&stream, after, move |fault| {
            let mut code = fault;
            for part in parts {
                match part {
                    Part::Work(work) if code == CUDA_SUCCESS => {
                        if let Err(failed) = work() {
                            code = failed;
                            let _ = driver::get().map(|driver| driver.fail(failed));
                        }
                    }
                    Part::Work(_) => {}
                    Part::Mark(ticket) => ticket.finish(),
                }
            }
            drop(held);
        })
        .map(drop)
    }

    fn upload(
        exec: &Executable,
        steps: &Arc<Vec<Step>>,
        stream: CUstream,
        per_thread: bool,
    ) -> Result {
        refuse(&*stream_of(stream, per_thread)?)?;
        if let Some(direct) = &exec.direct {
            direct.upload(steps);
        }
        Ok(())
    }

    fn call(stream: CUstream, per_thread: bool, what: Box<dyn FnOnce() + Send>) -> Result {
        let stream = stream_of(stream, per_thread)?;
        context::queue_always(&stream, move |_| as_callback(what)).map(drop)
    }
}
