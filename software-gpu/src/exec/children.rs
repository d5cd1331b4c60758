// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Work after a kernel: launches, copies and fills that its threads have requested. A launch is complete when all of
//! this is.
//!
//! The work of a grid runs when the grid's blocks have ended, in the order of the calls. This keeps the order of the
//! grid's streams, and its events need no further order. A child's work runs before its parent's next work: a child is
//! complete when its children are. A grid's tail launches run when all its other work is complete.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use super::memory::Memory;
use super::module::LoadedModule;
use super::runtime::Runtime;
use super::{Effects, Fault, FaultKind, Launch, run};

/// Work of the device other than a kernel, which is executed after the grid that requested it, unless a fault or
/// `cancel` ends the launch before. It can be a launch of a graph.
pub type Call = Box<dyn FnOnce(&dyn Memory, &AtomicBool) -> Result<(), FaultKind> + Send>;

/// One piece of work.
pub(super) enum Work {
    Kernel(Child),
    Call(Call),
}

/// A launch of a kernel by its number in the module.
pub(super) struct Child {
    pub(super) kernel: usize,
    pub(super) launch: Launch,
    pub(super) params: Vec<u8>,
}

/// The work that remains after a grid.
#[derive(Default)]
pub(super) struct Later {
    pub(super) ordinary: VecDeque<Work>,
    /// After all other work of the grid.
    pub(super) tail: VecDeque<Work>,
}

impl Later {
    fn next(&mut self) -> Option<Work> {
        self.ordinary.pop_front().or_else(|| self.tail.pop_front())
    }

    fn is_empty(&self) -> bool {
        self.ordinary.is_empty() && self.tail.is_empty()
    }
}

/// The next work, of the last grid that has any. A grid without more is forgotten: a kernel may launch itself in its
/// tail for ever.
fn next(grids: &mut Vec<Later>) -> Option<Work> {
    let last = grids.last_mut()?;
    let work = last.next();
    if last.is_empty() {
        grids.pop();
    }
    work
}

fn fault(kind: FaultKind) -> Fault {
    Fault {
        kind,
        kernel: "device runtime".into(),
        line: 0,
        block: [0; 3],
        thread: [0; 3],
    }
}

/// Runs a kernel and all that it launches.
pub(super) fn run(
    module: &LoadedModule,
    first: Child,
    memory: &dyn Memory,
    (cancel, output): (&AtomicBool, &dyn Effects),
) -> Result<(), Fault> {
    // Each piece counts from the call that asks for it until it starts.
    let pending = AtomicUsize::new(1);
    let mut grids = Vec::new();
    let mut work = Some(Work::Kernel(first));
    while let Some(now) = work {
        pending.fetch_sub(1, Ordering::Relaxed);
        match now {
            Work::Kernel(of) => {
                let runtime = Runtime::new(module, &pending, output);
                let program = &module.programs()[of.kernel];
                let effects = (cancel, output, &runtime);
                run::run(program, &of.launch, &of.params, memory, effects)?;
                let later = runtime.finish();
                if !later.is_empty() {
                    grids.push(later);
                }
            }
            Work::Call(_) if cancel.load(Ordering::Relaxed) => {
                return Err(fault(FaultKind::Cancelled));
            }
            Work::Call(call) => call(memory, cancel).map_err(fault)?,
        }
        work = next(&mut grids);
    }
    Ok(())
}
