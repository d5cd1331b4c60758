// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The parts of a launch of a graph: what its steps do.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use gpgpu_graphs::{
    exec::Step,
    node::{Copy3D, Work},
};
use gpgpu_protocol::cuda::{CUDA_ERROR_INVALID_VALUE, CUdevice, CUevent};

use super::run::Values;
use super::updatable;
use super::{function_of, shape_of};
use crate::api::array_copy;
use crate::api::copy::{Rows, copy_now};
use crate::api::event::Event;
use crate::api::launch;
use crate::api::memset::fill_now;
use crate::api::stream_memory;
use crate::context;
use crate::device_graph::Launches;
use crate::effects::OfContext;
use crate::exec::Effects;
use crate::ffi::{Result, as_callback};
use crate::observe::{OfNode, Seen, Side as _};
use crate::stream::Ticket;

/// Work of a library's that a stream has recorded.
#[derive(Clone)]
pub struct Own(pub Arc<dyn Fn() -> Result + Send + Sync>);

/// A launch of a graph.
pub struct Run {
    /// The values of its conditions.
    pub values: Values,
    /// The graph's name in kernels, or 0.
    pub graph: u64,
    /// The launches that its kernels make.
    pub launches: Arc<Launches>,
    /// The launch as an observer knows it.
    pub seen: Seen,
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

/// A part of a launch.
pub enum Part {
    /// Not executed after a fault.
    Work(Box<dyn FnOnce() -> Result + Send>),
    /// An event's record.
    Mark(Arc<Ticket>),
}

/// The part that does a step, if there is anything to do.
pub fn part(step: &Step, run: &Arc<Run>) -> Result<Option<Part>> {
    let work = match &step.work {
        Work::Kernel(kernel) => {
            let function = function_of(kernel)?;
            let (mut shape, kernel) = (shape_of(kernel, &function)?, Arc::clone(kernel));
            let context = context::named(kernel.context)?;
            let (of, device) = (context.effects(), context.device);
            let (run, node) = (Arc::clone(run), step.node);
            Part::Work(Box::new(move || {
                let seen = run.seen.node(node, Some(kernel.context));
                let effects = InGraph {
                    of: &of,
                    run: &run,
                    device,
                };
                let Some((name, _)) = kernel.driver_node() else {
                    return seen.kernel(&function, &shape, || {
                        launch::run(&function, &shape, kernel.bytes(), &effects)
                    });
                };
                let now = updatable::now(name, &kernel)?;
                if !now.enabled {
                    return Ok(());
                }
                shape.grid = now.grid;
                seen.kernel(&function, &shape, || {
                    launch::run(&function, &shape, &now.params, &effects)
                })
            }))
        }
        Work::Copy(of) => {
            let of = **of;
            let (run, node) = (Arc::clone(run), step.node);
            Part::Work(Box::new(move || {
                let seen = run.seen.node(node, Some(of.context));
                let bytes = of.width.saturating_mul(of.height).saturating_mul(of.depth);
                let (to, from) = sides(&of);
                seen.copy((&to, &from), bytes, true);
                seen.time(|| copy(&of))
            }))
        }
        Work::MemOps(of) => Part::Work(stream_memory::node_work(of)?),
        Work::Fill(of) => {
            let of = *of;
            let (run, node) = (Arc::clone(run), step.node);
            Part::Work(Box::new(move || {
                let seen = run.seen.node(node, Some(of.context));
                let side = OfNode::address(of.given.dst);
                let bytes = of.row().saturating_mul(of.given.height);
                seen.fill(|| side.memory(), of.given.value, bytes);
                seen.time(|| fill_now(&of))
            }))
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
            let (call, run, node) = (call.clone(), Arc::clone(run), step.node);
            Part::Work(Box::new(move || {
                run.seen.node(node, None).library(|| call.0())
            }))
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

/// The two sides of a copy, as an observer knows them.
fn sides(of: &Copy3D) -> (OfNode, OfNode) {
    let side = |array: u64, address| OfNode {
        address,
        array: (array != 0).then_some(of.context),
    };
    (side(of.dst_array, of.dst), side(of.src_array, of.src))
}
