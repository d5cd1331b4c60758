// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The numbers of graphs, executable graphs and nodes.
//!
//! A program learns the number of an executable graph by its handle, and finds it in the records of the graph's work.
//! The host's records have the host's numbers. So the call that launched the graph leads from one to the other.

use std::{collections::BTreeMap, ffi::c_void};

use gpgpu_locks::Mutex;
use gpgpu_protocol::cupti::{INVALID_PARAMETER, Status};
use gpgpu_trace::Call;

use crate::{
    enter_here, give,
    observer::{handle, name},
    profiler::profiler,
};

/// So many launches at most are known whose records have not come.
const MANY: usize = 1 << 16;

/// The numbers that are known.
#[derive(Debug)]
pub struct Graphs(Mutex<Known>);

#[derive(Debug)]
struct Known {
    /// By the program's handles.
    numbers: BTreeMap<u64, u32>,
    /// By the host's numbers.
    hosts: BTreeMap<u32, u32>,
    /// By the calls that launched them.
    launched: BTreeMap<u32, u32>,
    last: u32,
}

impl Known {
    fn next(&mut self) -> u32 {
        self.last += 1;
        self.last
    }

    fn number(&mut self, handle: u64) -> u32 {
        if let Some(number) = self.numbers.get(&handle) {
            return *number;
        }
        let number = self.next();
        self.numbers.insert(handle, number);
        number
    }
}

impl Graphs {
    /// Nothing is known. The first number is 1.
    pub const fn new() -> Self {
        Self(Mutex::new(Known {
            numbers: BTreeMap::new(),
            hosts: BTreeMap::new(),
            launched: BTreeMap::new(),
            last: 0,
        }))
    }

    /// The number of a graph, an executable graph or a node, by its handle.
    pub fn number(&self, handle: u64) -> u32 {
        self.0.lock().number(handle)
    }

    /// A call begins: it may launch a graph or end one.
    pub fn begin(&self, call: &Call) {
        let name = name(call);
        let api = name.strip_prefix(b"cuGraph");
        let Some(what) = api.or_else(|| name.strip_prefix(b"cudaGraph")) else {
            return;
        };
        let what = what.strip_suffix(b"_ptsz").unwrap_or(what);
        let ends = matches!(what, b"Destroy" | b"ExecDestroy" | b"DestroyNode");
        if what != b"Launch" && !ends {
            return;
        }
        // SAFETY: the first argument of each of these functions is a handle.
        let Some(handle) = (unsafe { handle(call, 0) }) else {
            return;
        };
        let mut known = self.0.lock();
        if ends {
            // Another graph may have the handle then.
            known.numbers.remove(&handle);
            return;
        }
        let number = known.number(handle);
        if known.launched.len() >= MANY {
            known.launched.clear();
        }
        known.launched.insert(call.number, number);
    }

    /// The number for the host's number of an executable graph, which a call has launched. 0 stands for none.
    pub fn of_host(&self, host: u32, call: u32) -> u32 {
        if host == 0 {
            return 0;
        }
        let mut known = self.0.lock();
        if let Some(number) = known.hosts.get(&host) {
            return *number;
        }
        let launched = known.launched.get(&call).copied();
        let number = launched.unwrap_or_else(|| known.next());
        if known.hosts.len() >= MANY {
            known.hosts.clear();
        }
        known.hosts.insert(host, number);
        number
    }
}

/// The number of a handle.
fn of(handle: *mut c_void) -> Result<u32, Status> {
    match handle as u64 {
        0 => Err(INVALID_PARAMETER),
        handle => Ok(profiler().graphs.number(handle)),
    }
}

/// `cuptiGetGraphId`: the number of a graph.
///
/// Fails with `CUPTI_ERROR_INVALID_PARAMETER` if the graph or the pointer is NULL.
///
/// # Safety
///
/// `pId` is NULL or the caller's to write to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuptiGetGraphId(graph: *mut c_void, pId: *mut u32) -> Status {
    // SAFETY: promised by the caller.
    enter_here(|| unsafe { give(pId, of(graph)?) })
}

/// `cuptiGetGraphExecId`: the number of an executable graph, as in the records of its work.
///
/// Fails as [`cuptiGetGraphId`].
///
/// # Safety
///
/// As for [`cuptiGetGraphId`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuptiGetGraphExecId(graph: *mut c_void, pId: *mut u32) -> Status {
    // SAFETY: promised by the caller.
    unsafe { cuptiGetGraphId(graph, pId) }
}

/// `cuptiGetGraphNodeId`: the number of a node. Records name nodes by the host's numbers, which are others.
///
/// Fails as [`cuptiGetGraphId`].
///
/// # Safety
///
/// `nodeId` is NULL or the caller's to write to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuptiGetGraphNodeId(node: *mut c_void, nodeId: *mut u64) -> Status {
    // SAFETY: promised by the caller.
    enter_here(|| unsafe { give(nodeId, u64::from(of(node)?)) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::call;
    use gpgpu_trace::{DRIVER, RUNTIME};

    fn begins(graphs: &Graphs, domain: u32, name: &'static str, handle: u64, number: u32) {
        let arguments = [handle, 7];
        let mut call = call(domain, name);
        call.arguments = (&raw const arguments).cast();
        call.number = number;
        graphs.begin(&call);
    }

    #[test]
    fn records_have_the_numbers_that_the_program_learns() {
        let graphs = Graphs::new();
        let (first, second) = (graphs.number(0x10), graphs.number(0x20));
        assert_eq!((first, second, graphs.number(0x10)), (1, 2, 1));
        begins(&graphs, DRIVER, "cuGraphLaunch", 0x20, 100);
        begins(&graphs, RUNTIME, "cudaGraphLaunch_ptsz", 0x10, 101);
        begins(&graphs, DRIVER, "cuGraphLaunch", 0x30, 102);
        assert_eq!(graphs.of_host(50, 101), first);
        assert_eq!(graphs.of_host(51, 100), second);
        let third = graphs.of_host(52, 102);
        assert_eq!((third, graphs.number(0x30)), (3, 3));
        // Later launches of the same graph, and work of no graph.
        assert_eq!(
            (graphs.of_host(50, 999), graphs.of_host(0, 100)),
            (first, 0)
        );
        // A launch that is unknown.
        assert_eq!((graphs.of_host(53, 999), graphs.of_host(53, 998)), (4, 4));
    }

    #[test]
    fn a_handle_that_comes_again_is_another_graph() {
        let graphs = Graphs::new();
        for (name, handle) in [
            ("cuGraphDestroy", 1),
            ("cudaGraphExecDestroy", 2),
            ("cuGraphDestroyNode", 3),
        ] {
            let before = graphs.number(handle);
            begins(&graphs, DRIVER, "cuGraphAddNode", handle, 1);
            assert_eq!(graphs.number(handle), before);
            begins(&graphs, DRIVER, name, handle, 2);
            assert_ne!(graphs.number(handle), before);
        }
    }

    #[test]
    fn launches_without_records_are_forgotten() {
        let graphs = Graphs::new();
        for number in 0..=MANY as u32 {
            begins(&graphs, DRIVER, "cuGraphLaunch", 0x10, number);
        }
        assert_eq!(graphs.0.lock().launched.len(), 1);
        for host in 1..=MANY as u32 + 1 {
            graphs.of_host(host, 0);
        }
        assert_eq!(graphs.0.lock().hosts.len(), 1);
    }

    #[test]
    fn null_is_refused() {
        let null = std::ptr::null_mut::<c_void>();
        let (mut number, mut node) = (0, 0);
        // SAFETY: the pointers are NULL or to values that live across the calls.
        unsafe {
            assert_eq!(cuptiGetGraphId(null, &mut number), INVALID_PARAMETER);
            assert_eq!(cuptiGetGraphNodeId(null, &mut node), INVALID_PARAMETER);
            let some = std::ptr::dangling_mut::<c_void>();
            assert_eq!(
                cuptiGetGraphExecId(some, std::ptr::null_mut()),
                INVALID_PARAMETER
            );
        }
        assert_eq!((number, node), (0, 0));
    }
}
