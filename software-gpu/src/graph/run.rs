// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The execution of graphs.
//!
//! A launch of a graph is one piece of work in its stream, which executes the steps one after the other. CUDA promises
//! only that branches may run at once. Bodies of conditional nodes are executed when the launch reaches the node, by
//! the value at that time.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use gpgpu_graphs::{
    abi::DEVICE_LAUNCH,
    conditional::{self, Condition, Conditional},
    exec::Step,
    node::{Copy3D, Work},
};
use gpgpu_protocol::cuda::{CUDA_ERROR_INVALID_VALUE, CUDA_SUCCESS, CUdevice, CUevent};

use super::updatable::{self, Records};
use super::{function_of, shape_of};
use crate::api::array_copy;
use crate::api::copy::{Rows, copy_now};
use crate::api::event::Event;
use crate::api::launch;
use crate::api::memset::fill_now;
use crate::api::stream_memory;
use crate::context;
use crate::device_graph::{self, Launches};
use crate::driver;
use crate::effects::OfContext;
use crate::exec::Effects;
use crate::ffi::{Result, as_callback};
use crate::stream::{Stream, Ticket};

/// The values of an executable graph, on which its conditional nodes depend. The first one has the number 1.
type Values = Arc<[AtomicU32]>;

/// An executable graph; the steps contain the rest.
pub struct Executable {
    values: Values,
    /// The graph as kernels launch it, if they do.
    direct: Option<device_graph::Named>,
    /// The launches that kernels update, if any.
    records: Option<Arc<Records>>,
}

/// Work of a library's that a stream has recorded.
#[derive(Clone)]
pub struct Own(pub Arc<dyn Fn() -> Result + Send + Sync>);

impl Executable {
    /// The executable graph of these steps.
    pub fn new(steps: &[Step], flags: u64) -> Result<Self> {
        let values = steps.iter().filter_map(|step| match step.work {
            Work::Condition(of) => Some(AtomicU32::new(starts_with(&of).unwrap_or(0))),
            _ => None,
        });
        let context = steps.iter().find_map(|step| context_of(&step.work));
        let direct = match context.filter(|_| flags & DEVICE_LAUNCH != 0) {
            Some(context) => Some(device_graph::Named::new(context::named(context)?.device)),
            None => None,
        };
        Ok(Self {
            values: values.collect(),
            direct,
            records: updatable::any(steps).then(Arc::default),
        })
    }

    /// The graph's name in kernels, if they launch it.
    pub fn device_handle(&self) -> Option<u64> {
        self.direct.as_ref().map(device_graph::Named::name)
    }

    /// Makes these the steps that kernels launch, and those that they update, in a stream's order.
    pub fn upload(&self, steps: &Arc<Vec<Step>>, stream: &Arc<Stream>) -> Result {
        self.ready(steps);
        if let Some(records) = self.records.clone() {
            let steps = Arc::clone(steps);
            context::queue(stream, Vec::new(), move || records.write(&steps))?;
        }
        Ok(())
    }

    fn ready(&self, steps: &Arc<Vec<Step>>) {
        if let Some(direct) = &self.direct {
            direct.upload(steps);
        }
    }

    /// Queues a launch in a stream.
    pub fn launch(&self, steps: &Arc<Vec<Step>>, stream: &Arc<Stream>) -> Result {
        self.ready(steps);
        let run = Arc::new(Run {
            values: Arc::clone(&self.values),
            graph: self.device_handle().unwrap_or(0),
            launches: Arc::default(),
        });
        let mut after = Vec::new();
        let mut parts = Vec::new();
        if let Some(records) = self.records.clone() {
            let steps = Arc::clone(steps);
            parts.push(Part::Work(Box::new(move || records.write(&steps))));
        }
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
            if !step.enabled && updatable::name(step).is_none() {
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
        context::queue_always_after(stream, after, move |fault| {
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

/// A launch of a graph.
struct Run {
    values: Values,
    /// The graph's name in kernels, or 0.
    graph: u64,
    launches: Arc<Launches>,
}

/// The effects of a graph's kernels other than on memory.
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

/// Executes the bodies of a conditional step that its value selects.
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
        } else if (step.enabled || updatable::name(step).is_some())
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
    /// Not executed after a fault.
    Work(Box<dyn FnOnce() -> Result + Send>),
    /// An event's record.
    Mark(Arc<Ticket>),
}

fn part(step: &Step, run: &Arc<Run>) -> Result<Option<Part>> {
    let work = match &step.work {
        Work::Kernel(kernel) => {
            let function = function_of(kernel)?;
            let (mut shape, kernel) = (shape_of(kernel, &function)?, Arc::clone(kernel));
            let context = context::named(kernel.context)?;
            let (of, device) = (context.effects(), context.device);
            let run = Arc::clone(run);
            Part::Work(Box::new(move || {
                let effects = InGraph {
                    of: &of,
                    run: &run,
                    device,
                };
                let Some((name, _)) = kernel.driver_node() else {
                    return launch::run(&function, &shape, kernel.bytes(), &effects);
                };
                let now = updatable::now(name, &kernel)?;
                if !now.enabled {
                    return Ok(());
                }
                shape.grid = now.grid;
                launch::run(&function, &shape, &now.params, &effects)
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
