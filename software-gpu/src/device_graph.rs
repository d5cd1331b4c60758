// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Launches of graphs by kernels.
//!
//! A kernel of a graph's launch can launch graphs that were instantiated for that and uploaded. Such a launch is part
//! of the one that made it. Its work begins when the steps of the graph have ended: first the graphs that were launched
//! to "fire and forget", with all their launches, then the graph's tail launches, in order, then its siblings. CUDA
//! promises no more: concurrency is permitted, but not required. Depth is not implemented by recursion, because a graph
//! may launch itself endlessly.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};

use gpgpu_graphs::exec::Step;
use gpgpu_locks::Mutex;
use gpgpu_protocol::cuda::CUdevice;

use crate::driver;
use crate::ffi::Result;

/// `cudaSuccess` and `cudaErrorInvalidValue`, as kernels get them.
const SUCCESS: u32 = 0;
const INVALID_VALUE: u32 = 1;

/// The streams that a kernel can launch a graph in (`driver_types.h`).
const TAIL: u64 = 1 << 56;
const FIRE_AND_FORGET: u64 = 2 << 56;
const SIBLING: u64 = 3 << 56;

/// A graph that kernels can launch.
pub struct DeviceGraph {
    /// Its name for kernels.
    pub name: u64,
    device: CUdevice,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The steps of its last upload.
    ready: Option<Arc<Vec<Step>>>,
    /// Whether a launch by a kernel is pending.
    pending: bool,
    /// Launches by kernels that are under way.
    running: u32,
}

type All = Mutex<HashMap<u64, Arc<DeviceGraph>>>;

fn all() -> &'static All {
    static ALL: LazyLock<All> = LazyLock::new(Mutex::default);
    &ALL
}

/// The executable graph's own reference: kernels find the graph until this is dropped.
pub struct Named(Arc<DeviceGraph>);

impl Named {
    /// A graph on a device, under a name that no other had: no address either.
    pub fn new(device: CUdevice) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let graph = Arc::new(DeviceGraph {
            name: 0x6a << 48 | NEXT.fetch_add(1, Ordering::Relaxed) << 8,
            device,
            state: Mutex::default(),
        });
        all().lock().insert(graph.name, Arc::clone(&graph));
        Self(graph)
    }

    /// The graph's name.
    pub fn name(&self) -> u64 {
        self.0.name
    }

    /// Later launches by kernels do these steps.
    pub fn upload(&self, steps: &Arc<Vec<Step>>) {
        self.0.state.lock().ready = Some(Arc::clone(steps));
    }
}

impl Drop for Named {
    fn drop(&mut self) {
        all().lock().remove(&self.0.name);
    }
}

/// A pending or running launch by a kernel.
struct Queued {
    graph: Arc<DeviceGraph>,
    steps: Arc<Vec<Step>>,
    is_running: bool,
}

impl Queued {
    fn begin(&mut self) {
        let mut state = self.graph.state.lock();
        state.pending = false;
        state.running += 1;
        self.is_running = true;
    }
}

impl Drop for Queued {
    fn drop(&mut self) {
        let mut state = self.graph.state.lock();
        match self.is_running {
            true => state.running -= 1,
            false => state.pending = false,
        }
    }
}

#[derive(Default)]
struct Lists {
    children: Vec<Queued>,
    tails: Vec<Queued>,
    siblings: Vec<Queued>,
}

/// The launches that kernels of one launch of a graph make.
#[derive(Default)]
pub struct Launches(Mutex<Lists>);

impl Launches {
    /// `cudaGraphLaunch` in a kernel on a device: the result that the kernel gets, or `None` if it names no graph
    /// there, which is an illegal address with NVIDIA's driver.
    pub fn add(&self, name: u64, stream: u64, device: CUdevice) -> Option<u32> {
        let graph = all().lock().get(&name).cloned()?;
        if graph.device != device {
            return None;
        }
        let mut state = graph.state.lock();
        // A running graph can follow itself, but not run concurrently with itself.
        let is_busy = state.pending || (state.running > 0 && stream != TAIL);
        let Some(steps) = state.ready.clone().filter(|_| !is_busy) else {
            return Some(INVALID_VALUE);
        };
        let mut lists = self.0.lock();
        let list = match stream {
            TAIL => &mut lists.tails,
            FIRE_AND_FORGET => &mut lists.children,
            SIBLING => &mut lists.siblings,
            _ => return Some(INVALID_VALUE),
        };
        state.pending = true;
        drop(state);
        list.push(Queued {
            graph,
            steps,
            is_running: false,
        });
        Some(SUCCESS)
    }

    /// Pushes them onto the stack, whose last element is executed next.
    fn put_on(&self, stack: &mut Vec<Queued>) {
        let lists = std::mem::take(&mut *self.0.lock());
        for list in [lists.siblings, lists.tails, lists.children] {
            stack.extend(list.into_iter().rev());
        }
    }

    /// Does all of them, and those that they make. `run` does the steps of the graph with a name.
    ///
    /// # Errors
    /// That of `run`, and then the rest does not happen.
    pub fn run(&self, run: impl Fn(u64, &Arc<Vec<Step>>, &Arc<Self>) -> Result) -> Result {
        let mut stack = Vec::new();
        self.put_on(&mut stack);
        while let Some(mut next) = stack.pop() {
            if driver::get()?.cancel.load(Ordering::Acquire) {
                break;
            }
            next.begin();
            let own = Arc::new(Self::default());
            run(next.graph.name, &next.steps, &own)?;
            own.put_on(&mut stack);
        }
        Ok(())
    }
}
