// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Translates a graph's steps to the steps that the host receives.
//!
//! A copy from or to pageable memory becomes a copy between pinned memory of this library and the device, with a call
//! before or after it that copies between the pinned memory and the program's memory. So the program's bytes are read
//! or written when the launch reaches the node, once for each launch, as natively.

mod copies;
mod steps;

use gpgpu_graphs::{exec::Step, node::Work};
use gpgpu_protocol::{
    api::{GraphStep, graph_edge, graph_step as kind},
    cuda::*,
};
use smallvec::SmallVec;

use super::{calls::Call, library::Part, updatable::numbers_of};
use crate::{client::Client, ffi::Result, graph::left, memop};
use copies::copy;
pub use copies::{check_copy, check_fill, check_mem_ops, is_near};
use steps::{call_step, fill_step, nothing, words_step};
pub use steps::{launch_config, launch_step, put_change};

/// Addresses and sizes.
type Names = SmallVec<[(u64, usize); 2]>;

/// The state of a list on the host.
#[derive(Default)]
pub struct Lowered {
    /// The last step that was made from each of the graph's steps, and whether it is the only one.
    places: Vec<(u32, bool)>,
    /// The calls of each of the graph's steps.
    calls: Vec<Vec<Call>>,
    /// The event that each of the graph's steps records, or 0.
    events: Vec<u64>,
    /// Whether there ever was a call, or an event.
    has_calls: bool,
    has_events: bool,
    /// Whether a kernel of it may print.
    prints: bool,
    /// Whether kernels update launches of it.
    is_updatable: bool,
    /// The memory that each of the graph's steps names, if it is a copy, a fill or memory operations: addresses and
    /// sizes.
    names: Vec<Names>,
}

impl Lowered {
    /// The events that a launch records.
    pub fn events(&self) -> impl Iterator<Item = u64> {
        let events: &[u64] = if self.has_events { &self.events } else { &[] };
        events.iter().copied().filter(|event| *event != 0)
    }

    /// Whether kernels update launches of it.
    pub fn is_updatable(&self) -> bool {
        self.is_updatable
    }

    /// Whether a launch may print.
    pub fn prints(&self) -> bool {
        self.prints
    }

    /// The memory that a launch names, other than that of kernels: addresses and sizes.
    pub fn names(&self) -> impl Iterator<Item = &(u64, usize)> {
        self.names.iter().flatten()
    }

    /// Whether a launch makes any calls.
    pub fn has_calls(&self) -> bool {
        self.has_calls
    }

    /// Expects the calls of a launch, or, with -1, no longer expects them.
    pub fn expect_calls(&self, launches: i64) {
        if self.has_calls {
            for call in self.calls.iter().flatten() {
                call.expect(launches);
            }
        }
    }

    /// Records the library's part of a step: the event that it records and the memory that it names.
    fn note(&mut self, client: &Client, work: &Work, calls: &[Call]) -> Result<(u64, Names)> {
        let event = recorded(work);
        self.has_calls |= !calls.is_empty();
        self.has_events |= event != 0;
        self.prints |= prints(client, work)?;
        Ok((event, names(work)?))
    }

    /// The number of one of the graph's steps on the host, if it is a single step there.
    pub fn place(&self, index: usize) -> Option<u32> {
        let (place, is_single) = self.places[index];
        is_single.then_some(place)
    }

    /// The new form of one of the graph's steps, if it was and remains a single step: its number, its content, and its
    /// calls.
    pub fn single(
        &self,
        client: &Client,
        steps: &[Step],
        index: usize,
    ) -> Result<Option<(u32, GraphStep, Vec<Call>)>> {
        let Some(place) = self.place(index) else {
            return Ok(None);
        };
        let mut list = Vec::new();
        let mut calls = Vec::new();
        one(client, &steps[index], Vec::new(), &mut list, &mut calls)?;
        let step = list.pop().filter(|_| list.is_empty());
        Ok(step.map(|step| (place, step, calls)))
    }

    /// Records that the host has taken it.
    pub fn replace(
        &mut self,
        client: &Client,
        index: usize,
        work: &Work,
        calls: Vec<Call>,
    ) -> Result {
        (self.events[index], self.names[index]) = self.note(client, work, &calls)?;
        // Launches in flight may still make the old calls, which are kept until then.
        self.calls[index] = calls;
        Ok(())
    }
}

/// Whether a launch may print.
fn prints(client: &Client, work: &Work) -> Result<bool> {
    match work {
        Work::Kernel(kernel) => {
            let function = client.objects.function(kernel.function)?;
            function.may_print(client, kernel.function)
        }
        _ => Ok(false),
    }
}

/// The memory that a step names, other than that of kernels.
fn names(work: &Work) -> Result<Names> {
    let mut names = Names::new();
    match work {
        Work::Copy(of) => {
            if of.dst_array == 0 {
                names.push((of.dst, of.dst_extent()?));
            }
            if of.src_array == 0 {
                names.push((of.src, of.src_extent()?));
            }
        }
        Work::Fill(of) => names.push((of.given.dst, of.extent()?)),
        Work::MemOps(of) => {
            let ops = of.ops.iter().map(memop::read);
            // A word has at most 8 bytes, and a 4-byte word is not the last one of its allocation.
            names.extend(ops.map(|op| (op.address, 4)));
        }
        _ => {}
    }
    Ok(names)
}

fn recorded(work: &Work) -> u64 {
    match work {
        Work::Record(event) => *event,
        _ => 0,
    }
}

/// Encodes the steps.
pub fn lower(client: &Client, steps: &[Step]) -> Result<(Vec<GraphStep>, Lowered)> {
    left::free_idle(client);
    let mut list = Vec::with_capacity(steps.len());
    let mut lowered = Lowered::default();
    for step in steps {
        let after = step.after.iter();
        let after = after.map(|of| lowered.places[*of as usize].0).collect();
        let (first, mut calls) = (list.len(), Vec::new());
        one(client, step, after, &mut list, &mut calls)?;
        let is_single = list.len() - first == 1;
        lowered.places.push((list.len() as u32 - 1, is_single));
        let (event, names) = lowered.note(client, &step.work, &calls)?;
        lowered.is_updatable |=
            matches!(&step.work, Work::Kernel(of) if of.driver_node().is_some());
        lowered.events.push(event);
        lowered.names.push(names);
        lowered.calls.push(calls);
    }
    Ok((list, lowered))
}

/// Appends the steps of a node.
fn one(
    client: &Client,
    step: &Step,
    after: Vec<u32>,
    list: &mut Vec<GraphStep>,
    calls: &mut Vec<Call>,
) -> Result {
    let made = match &step.work {
        Work::Kernel(kernel) => GraphStep {
            numbers: numbers_of(kernel)?,
            ..launch_step(kernel)?
        },
        Work::Fill(fill) => fill_step(fill),
        Work::MemOps(of) => words_step(client, of),
        Work::Copy(of) => return copy(client, of, step.enabled, after, list, calls),
        Work::Host(host) => {
            let of = *host;
            let call = Call::new(client, move || {
                let call = of;
                if let Some(function) = call.0.function {
                    // SAFETY: the program gave this function and this pointer for every launch of the graph.
                    unsafe { function(call.0.userData) }
                }
            });
            let made = call_step(Vec::new(), &call);
            calls.push(call);
            made
        }
        Work::Record(event) => GraphStep {
            kind: kind::RECORD,
            object: *event,
            ..nothing()
        },
        Work::Wait(event) => GraphStep {
            kind: kind::WAIT,
            object: *event,
            ..nothing()
        },
        Work::Condition(of) => GraphStep {
            kind: kind::VALUE,
            context: of.context,
            numbers: vec![of.default.into(), of.flags.into()],
            ..nothing()
        },
        Work::Conditional(of) => GraphStep {
            kind: kind::CONDITIONAL,
            context: of.context,
            object: of.condition,
            numbers: vec![of.kind.into(), of.bodies.len() as u64],
            ..nothing()
        },
        Work::Edges(edges) => {
            let edges = edges.iter();
            let numbers = edges.map(|of| graph_edge([of.from_port, of.to_port, of.type_]));
            GraphStep {
                kind: kind::EDGES,
                numbers: numbers.collect(),
                ..nothing()
            }
        }
        Work::Body => GraphStep {
            kind: kind::BODY,
            ..nothing()
        },
        Work::EndBodies => GraphStep {
            kind: kind::END,
            ..nothing()
        },
        Work::Child(_) | Work::Empty | Work::Alloc(_) | Work::Free(_) => nothing(),
        Work::Own(of) => {
            let part = of.downcast_ref::<Part>();
            let part = part.ok_or(CUDA_ERROR_INVALID_VALUE)?;
            GraphStep {
                kind: kind::PART,
                object: part.id,
                context: part.context,
                ..nothing()
            }
        }
    };
    let enabled = step.enabled || matches!(made.kind, kind::CALL..=kind::END);
    list.push(GraphStep {
        after,
        enabled,
        ..made
    });
    Ok(())
}
