// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Graphs.

use std::{
    ffi::c_void,
    sync::atomic::{AtomicU32, AtomicU64, Ordering},
};

use gpgpu_locks::Mutex;
use gpgpu_protocol::cuda::*;

use super::{call, end, made};

/// The result of a capture: a graph.
pub extern "C" fn cuStreamEndCapture(stream: u64, graph: *mut u64) -> CUresult {
    call("cuStreamEndCapture", &[stream]);
    made(graph)
}

pub extern "C" fn cuGraphCreate(graph: *mut u64, _: u32) -> CUresult {
    made(graph)
}

pub extern "C" fn cuGraphDestroy(graph: u64) -> CUresult {
    end("cuGraphDestroy", graph)
}

/// Each graph has one node, a launch.
pub extern "C" fn cuGraphGetNodes(_: u64, nodes: *mut u64, count: *mut usize) -> CUresult {
    // SAFETY: the caller's pointers are to a number, and to room for so many nodes, or NULL.
    unsafe {
        if !nodes.is_null() {
            nodes.write(1);
        }
        count.write(1);
    }
    CUDA_SUCCESS
}

pub extern "C" fn cuGraphNodeGetType(_: u64, of: *mut u32) -> CUresult {
    // SAFETY: the caller's pointer is to a type.
    unsafe { of.write(0) };
    CUDA_SUCCESS
}

macro_rules! nodes {
    ($($function:ident($($more:ty),*);)*) => {$(
        pub extern "C" fn $function(node: *mut u64, graph: u64, _: *const u64, _: usize $(, _: $more)*) -> CUresult {
            // SAFETY: the caller's pointer is to a node.
            unsafe { node.write(1) };
            call(stringify!($function), &[graph])
        }
    )*};
}

nodes! {
    cuGraphAddKernelNode_v2(*const c_void);
    cuGraphAddMemcpyNode(*const c_void, u64);
    cuGraphAddMemsetNode(*const c_void, u64);
    cuGraphAddBatchMemOpNode(*const c_void);
    cuGraphAddHostNode(*const c_void);
    cuGraphAddEmptyNode();
    cuGraphAddEventRecordNode(u64);
    cuGraphAddEventWaitNode(u64);
    cuGraphAddChildGraphNode(u64);
}

/// A node that kernels update gets a name.
pub extern "C" fn cuGraphKernelNodeSetAttribute(_: u64, id: u32, value: *mut u64) -> CUresult {
    static NAMES: AtomicU64 = AtomicU64::new(0x7f00_0000_0000);
    if id == CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE {
        let name = NAMES.fetch_add(0x100, Ordering::SeqCst);
        // SAFETY: the caller's pointer is to a value of 64 bytes.
        unsafe { value.add(1).write(name) };
    }
    call("cuGraphKernelNodeSetAttribute", &[])
}

/// No node waits for another.
pub extern "C" fn cuGraphNodeGetDependencies_v2(
    _: u64,
    _: *mut u64,
    _: *mut c_void,
    count: *mut usize,
) -> CUresult {
    // SAFETY: the caller's pointer is to a number.
    unsafe { count.write(0) };
    CUDA_SUCCESS
}

/// The values of each graph.
static VALUES: Mutex<Vec<(u64, u64)>> = Mutex::new(Vec::new());

pub extern "C" fn cuGraphAddDependencies_v2(
    graph: u64,
    _: *const u64,
    _: *const u64,
    _: *const c_void,
    _: usize,
) -> CUresult {
    call("cuGraphAddDependencies_v2", &[graph])
}

/// Counts from 1, for each graph.
pub extern "C" fn cuGraphConditionalHandleCreate(
    number: *mut u64,
    graph: u64,
    _: u64,
    _: u32,
    _: u32,
) -> CUresult {
    let mut values = VALUES.lock();
    let count = 1 + values.iter().filter(|(of, _)| *of == graph).count() as u64;
    values.push((graph, count));
    // SAFETY: the caller's pointer is to a value's number.
    unsafe { number.write(count) };
    CUDA_SUCCESS
}

/// Adds a conditional node with the wanted number of bodies. Each body is the graph itself, which this driver knows.
pub extern "C" fn cuGraphAddNode_v2(
    node: *mut u64,
    graph: u64,
    _: *const u64,
    _: *const c_void,
    _: usize,
    params: *mut gpgpu_graphs::abi::CUgraphNodeParams,
) -> CUresult {
    // SAFETY: the caller's pointers are to a node and to a description, whose type says which member it has.
    unsafe {
        node.write(1);
        let of = &mut (*params).of.conditional;
        let bodies = vec![graph as CUgraph; of.size as usize];
        of.phGraph_out = bodies.leak().as_mut_ptr();
    }
    call("cuGraphAddNode_v2", &[graph])
}

pub extern "C" fn cuGraphInstantiateWithFlags(exec: *mut u64, _: u64, _: u64) -> CUresult {
    made(exec)
}

pub extern "C" fn cuGraphExecDestroy(exec: u64) -> CUresult {
    end("cuGraphExecDestroy", exec)
}

/// The result of an update.
static GRAPH_UPDATE: AtomicU32 = AtomicU32::new(CUDA_SUCCESS);

/// Sets the result of later updates of executable graphs.
pub fn set_graph_update(code: CUresult) {
    GRAPH_UPDATE.store(code, Ordering::SeqCst);
}

pub extern "C" fn cuGraphExecUpdate_v2(exec: u64, graph: u64, _: *mut c_void) -> CUresult {
    call("cuGraphExecUpdate_v2", &[exec, graph]);
    GRAPH_UPDATE.load(Ordering::SeqCst)
}

/// The result of a graph's launch.
static GRAPH_LAUNCH: AtomicU32 = AtomicU32::new(CUDA_SUCCESS);

/// Sets the result of later launches of graphs.
pub fn set_graph_launch(code: CUresult) {
    GRAPH_LAUNCH.store(code, Ordering::SeqCst);
}

pub extern "C" fn cuGraphLaunch(exec: u64, stream: u64) -> CUresult {
    call("cuGraphLaunch", &[exec, stream]);
    GRAPH_LAUNCH.load(Ordering::SeqCst)
}

pub extern "C" fn cuGraphUpload(exec: u64, stream: u64) -> CUresult {
    call("cuGraphUpload", &[exec, stream])
}
