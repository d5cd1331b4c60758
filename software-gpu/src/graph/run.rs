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
    node::Work,
};
use gpgpu_locks::Mutex;
use gpgpu_protocol::cuda::{CUDA_SUCCESS, CUevent, CUresult};

use super::part::{Part, Run, part};
use super::updatable::{self, Records};
use crate::api::event::Event;
use crate::context;
use crate::device_graph::{self, Launches};
use crate::driver;
use crate::ffi::Result;
use crate::observe::Seen;
use crate::stream::{Stream, Ticket};

/// The values of an executable graph, on which its conditional nodes depend. The first one has the number 1.
pub type Values = Arc<[AtomicU32]>;

/// An executable graph; the steps contain the rest.
pub struct Executable {
    values: Values,
    /// The graph as kernels launch it, if they do.
    direct: Option<device_graph::Named>,
    /// The launches that kernels update, if any.
    records: Option<Arc<Records>>,
    /// `cuGraphExecGetId`.
    pub id: AtomicU32,
    /// The last launch, which the next one follows in whichever stream it is.
    last: Mutex<Option<Arc<Ticket>>>,
}

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
            id: AtomicU32::new(0),
            last: Mutex::new(None),
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
        let seen = Seen::queued(stream).graph(self.id.load(Ordering::Relaxed));
        let run = Arc::new(Run {
            values: Arc::clone(&self.values),
            graph: self.device_handle().unwrap_or(0),
            launches: Arc::default(),
            seen: seen.clone(),
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
        parts.push(Part::Work(Box::new(move || {
            let launched =
                |graph, steps: &_, launches: &_| do_launched(graph, steps, launches, &run);
            run.launches.run(launched)
        })));
        // Objects of the steps live until they are done.
        let held = Arc::clone(steps);
        let mut last = self.last.lock();
        after.extend(last.take());
        let launch = context::queue_always_after(stream, after, move |fault| {
            seen.time(|| do_parts(parts, fault));
            drop(held);
        })?;
        *last = Some(launch);
        Ok(())
    }
}

/// Does the parts of a launch, one after the other.
fn do_parts(parts: Vec<Part>, fault: CUresult) {
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

/// Does the steps of a graph that a kernel of a launch has launched by this name.
fn do_launched(graph: u64, steps: &Arc<Vec<Step>>, launches: &Arc<Launches>, by: &Run) -> Result {
    let run = Arc::new(Run {
        values: Values::from([]),
        graph,
        launches: Arc::clone(launches),
        seen: by.seen.of_kernel(),
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

/// The default of a value, if it has one.
fn starts_with(of: &Condition) -> Option<u32> {
    (of.flags & conditional::ASSIGN_DEFAULT != 0).then_some(of.default)
}
