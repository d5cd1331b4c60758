// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The records of calls and of work, and their sizes in a buffer.

use std::ffi::{CStr, c_char};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicI64, Ordering};

use gpgpu_protocol::cupti::{
    Api, ExternalCorrelation, GraphTrace, Kernel, MEMCPY_ASYNC, Memcpy, MemcpyPeer, Memset,
    copy_kind, kind, memory_kind,
};
use gpgpu_protocol::software_gpu::{self, Call, Copied, Fill, Memory, Work};

use crate::names;

/// The bytes of a record of a kind, if it can be in a buffer.
pub fn size(of: u32) -> Option<usize> {
    match of {
        kind::KERNEL | kind::CONCURRENT_KERNEL => Some(size_of::<Kernel>()),
        kind::MEMCPY => Some(size_of::<Memcpy>()),
        kind::MEMCPY2 => Some(size_of::<MemcpyPeer>()),
        kind::MEMSET => Some(size_of::<Memset>()),
        kind::DRIVER => Some(size_of::<Api>()),
        kind::EXTERNAL_CORRELATION => Some(size_of::<ExternalCorrelation>()),
        kind::GRAPH_TRACE => Some(size_of::<GraphTrace>()),
        _ => None,
    }
}

/// A string of the software GPU's.
///
/// # Safety
/// It is a string that is valid for `'a`.
pub unsafe fn text<'a>(string: *const c_char) -> &'a CStr {
    // SAFETY: promised by the caller.
    unsafe { CStr::from_ptr(string) }
}

/// The record of a call of the driver API, whose function is this one.
pub fn call(of: &Call, function: &CStr) -> Api {
    // SAFETY: the functions need nothing. CUPTI also has the thread's name in the C library, cut to 32 bits.
    let (process, thread) = unsafe { (libc::getpid(), libc::pthread_self()) };
    Api {
        kind: kind::DRIVER,
        callback: names::callback(function),
        start: of.start,
        end: of.end,
        process: process as u32,
        thread: thread as u32,
        correlation: of.number,
        result: of.result,
    }
}

/// The record of a number that the program has given to a call.
pub fn external((external_kind, external): (u32, u64), call: u32) -> ExternalCorrelation {
    ExternalCorrelation {
        kind: kind::EXTERNAL_CORRELATION,
        external_kind,
        external,
        correlation: call,
        reserved: 0,
    }
}

/// The record of a kernel with this name, of one of the two kinds.
pub fn kernel(
    of: &Work,
    kernel: &software_gpu::Kernel,
    name: *const c_char,
    record_kind: u32,
) -> Kernel {
    static GRIDS: AtomicI64 = AtomicI64::new(1);
    let threads = |all: u64, of: &u32| all * u64::from(*of);
    let local_total = kernel.block.iter().chain(&kernel.grid).fold(1, threads);
    let local_total = local_total.saturating_mul(kernel.local.into());
    Kernel {
        kind: record_kind,
        cache_config: 0,
        shared_memory_config: 0,
        registers_per_thread: kernel.registers as u16,
        partitioned_requested: 0,
        partitioned_executed: 0,
        start: of.start,
        end: of.end,
        completed: of.end,
        device: of.device,
        context: of.context,
        stream: of.stream,
        grid: kernel.grid.map(|of| of as i32),
        block: kernel.block.map(|of| of as i32),
        static_shared: kernel.static_shared as i32,
        dynamic_shared: kernel.dynamic_shared as i32,
        local_per_thread: kernel.local,
        local_total: local_total as u32,
        correlation: of.call,
        grid_id: GRIDS.fetch_add(1, Ordering::Relaxed),
        name,
        reserved0: null_mut(),
        queued: 0,
        submitted: 0,
        // `CUPTI_ACTIVITY_LAUNCH_TYPE_COOPERATIVE_SINGLE_DEVICE`
        launch_type: kernel.is_cooperative.into(),
        is_carveout_requested: 0,
        carveout_requested: 0,
        padding: 0,
        shared_executed: kernel.static_shared + kernel.dynamic_shared,
        graph_node: of.node,
        shared_limit_config: 0,
        graph: of.graph,
        access_policy: null_mut(),
        channel: 0,
        channel_type: 0,
        cluster: kernel.cluster,
        cluster_policy: 0,
        local_total_v2: local_total,
        max_potential_cluster: 0,
        max_active_clusters: 0,
        is_device_launched: of.is_of_kernel.into(),
        padding3: [0; 7],
    }
}

/// Whether a copy is between the memories of two devices.
pub fn is_between_devices(of: &Copied) -> bool {
    let is_on_device = |of: &Memory| matches!(of.kind, memory_kind::DEVICE | memory_kind::ARRAY);
    is_on_device(&of.from) && is_on_device(&of.to) && of.from.device != of.to.device
}

fn copy_kind_of(from: u8, to: u8) -> u8 {
    let is_host = |kind| matches!(kind, memory_kind::PAGEABLE | memory_kind::PINNED);
    let is_array = |kind| kind == memory_kind::ARRAY;
    match (from, to) {
        (from, to) if is_array(from) && is_array(to) => copy_kind::ATOA,
        (from, to) if is_array(from) && is_host(to) => copy_kind::ATOH,
        (from, _) if is_array(from) => copy_kind::ATOD,
        (from, to) if is_host(from) && is_array(to) => copy_kind::HTOA,
        (_, to) if is_array(to) => copy_kind::DTOA,
        (from, to) if is_host(from) && is_host(to) => copy_kind::HTOH,
        (from, _) if is_host(from) => copy_kind::HTOD,
        (_, to) if is_host(to) => copy_kind::DTOH,
        _ => copy_kind::DTOD,
    }
}

fn flags_of(is_async: bool) -> u8 {
    if is_async { MEMCPY_ASYNC } else { 0 }
}

/// The record of a copy.
pub fn copy(of: &Work, copy: &Copied) -> Memcpy {
    Memcpy {
        kind: kind::MEMCPY,
        copy_kind: copy_kind_of(copy.from.kind, copy.to.kind),
        from_kind: copy.from.kind,
        to_kind: copy.to.kind,
        flags: flags_of(copy.is_async),
        bytes: copy.bytes,
        start: of.start,
        end: of.end,
        device: of.device,
        context: of.context,
        stream: of.stream,
        correlation: of.call,
        runtime_correlation: 0,
        pad: 0,
        reserved0: null_mut(),
        graph_node: of.node,
        graph: of.graph,
        channel: 0,
        channel_type: 0,
        is_device_launched: of.is_of_kernel.into(),
        pad2: [0; 3],
        count: 1,
    }
}

/// The record of a copy between devices.
pub fn peer_copy(of: &Work, copy: &Copied) -> MemcpyPeer {
    MemcpyPeer {
        kind: kind::MEMCPY2,
        copy_kind: copy_kind::PTOP,
        from_kind: copy.from.kind,
        to_kind: copy.to.kind,
        flags: flags_of(copy.is_async),
        bytes: copy.bytes,
        start: of.start,
        end: of.end,
        device: of.device,
        context: of.context,
        stream: of.stream,
        from_device: copy.from.device,
        from_context: copy.from.context,
        to_device: copy.to.device,
        to_context: copy.to.context,
        correlation: of.call,
        reserved0: null_mut(),
        graph_node: of.node,
        graph: of.graph,
        channel: 0,
        channel_type: 0,
        pad: 0,
    }
}

/// The record of a fill.
pub fn fill(of: &Work, fill: &Fill) -> Memset {
    Memset {
        kind: kind::MEMSET,
        value: fill.value,
        bytes: fill.bytes,
        start: of.start,
        end: of.end,
        device: of.device,
        context: of.context,
        stream: of.stream,
        correlation: of.call,
        flags: 0,
        memory_kind: fill.memory.kind.into(),
        pad: 0,
        reserved0: null_mut(),
        graph_node: of.node,
        graph: of.graph,
        channel: 0,
        channel_type: 0,
        is_device_launched: of.is_of_kernel.into(),
        pad2: [0; 3],
    }
}

/// The record of a launch of a graph.
pub fn graph(of: &Work) -> GraphTrace {
    GraphTrace {
        kind: kind::GRAPH_TRACE,
        correlation: of.call,
        start: of.start,
        end: of.end,
        device: of.device,
        graph: of.graph,
        context: of.context,
        stream: of.stream,
        reserved: null_mut(),
        end_device: of.device,
        end_context: of.context,
    }
}
