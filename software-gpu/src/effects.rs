// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The effects of a context's kernels other than on memory.

use std::sync::Arc;

use gpgpu_locks::Mutex;

use crate::api::{device, launch, occupancy};
use crate::config::Config;
use crate::exec::{Effects, Launch};
use crate::heap::Heap;
use crate::module::{FUNCTIONS, Function, MODULES};
use crate::printed::Printed;

/// The part of its context that a launch needs, and that it may outlive.
#[derive(Debug, Clone)]
pub struct OfContext {
    /// The destination of the text that they print.
    pub printed: Arc<Printed>,
    /// The heap that they allocate from.
    pub heap: Arc<Heap>,
    /// Its limits when the launch was made.
    pub limits: [usize; 7],
    /// The contexts whose memory they reach.
    pub peers: Arc<Peers>,
}

/// The contexts of other devices whose memory the kernels of a context reach, by their ids.
#[derive(Debug, Default)]
pub struct Peers(Mutex<Vec<u64>>);

impl Peers {
    /// Adds a context; `false` if it was there.
    pub fn add(&self, context: u64) -> bool {
        let mut all = self.0.lock();
        let is_new = !all.contains(&context);
        if is_new {
            all.push(context);
        }
        is_new
    }

    /// Removes a context; `false` if it was not there.
    pub fn remove(&self, context: u64) -> bool {
        let mut all = self.0.lock();
        let at = all.iter().position(|of| *of == context);
        at.map(|at| all.swap_remove(at)).is_some()
    }
}

impl Effects for OfContext {
    fn print(&self, text: Vec<u8>) {
        self.printed.print(text);
    }

    fn reaches(&self, context: u64) -> bool {
        self.peers.0.lock().contains(&context)
    }

    fn allocate(&self, bytes: u64) -> u64 {
        self.heap.allocate(bytes)
    }

    fn free(&self, address: u64) -> bool {
        self.heap.free(address)
    }

    fn limit(&self, limit: u32) -> Option<usize> {
        self.limits.get(limit as usize).copied()
    }
}

/// The effects of a launch, with the answers of the device runtime on its device and the kernels of its module.
pub struct OfLaunch<'a> {
    of: &'a dyn Effects,
    function: &'a Function,
}

impl<'a> OfLaunch<'a> {
    /// For a launch of a function with these effects.
    pub fn new(of: &'a dyn Effects, function: &'a Function) -> Self {
        Self { of, function }
    }

    /// A kernel by its number. None if another thread has launched this one while the module was unloaded.
    fn kernel(&self, number: usize) -> Option<Arc<Function>> {
        let module = MODULES.find(self.function.module)?;
        FUNCTIONS.find(*module.functions.get(number)?)
    }
}

impl Effects for OfLaunch<'_> {
    fn print(&self, text: Vec<u8>) {
        self.of.print(text);
    }

    fn set_condition(&self, number: u64, value: u32) -> bool {
        self.of.set_condition(number, value)
    }

    fn current_graph(&self) -> u64 {
        self.of.current_graph()
    }

    fn launch_graph(&self, graph: u64, stream: u64) -> Option<u32> {
        self.of.launch_graph(graph, stream)
    }

    fn allocate(&self, bytes: u64) -> u64 {
        self.of.allocate(bytes)
    }

    fn free(&self, address: u64) -> bool {
        self.of.free(address)
    }

    fn device(&self) -> (i32, u32) {
        (self.function.device, Config::get().devices as u32)
    }

    fn device_attribute(&self, attribute: u32, device: i32) -> std::result::Result<i32, u32> {
        device::check(device).and_then(|()| device::attribute(attribute, device))
        // The runtime's codes for these errors are the same.
    }

    fn limit(&self, limit: u32) -> Option<usize> {
        self.of.limit(limit)
    }

    fn kernel_attribute(&self, kernel: usize, attribute: u32) -> i32 {
        let of = self.kernel(kernel);
        of.and_then(|of| of.attribute(attribute).ok()).unwrap_or(0)
    }

    fn active_blocks(&self, kernel: usize, threads: u32, shared: usize) -> u32 {
        let of = self.kernel(kernel);
        of.map_or(0, |of| occupancy::active_blocks(&of, threads, shared))
    }

    fn prepare(&self, kernel: usize, launch: &mut Launch) -> bool {
        let Some(of) = self.kernel(kernel) else {
            return false;
        };
        launch.cluster = of.cluster().unwrap_or([1; 3]);
        launch::check_shape(&of, launch).is_ok()
    }
}
