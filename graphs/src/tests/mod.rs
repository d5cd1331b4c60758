// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Graphs and captures with a driver that does nothing.

mod at_once;
mod captures;
mod device_nodes;
mod memory;
mod nodes;
mod updates;

use std::{
    ffi::c_void,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering},
    },
};

use gpgpu_locks::{Mutex, MutexGuard};
use gpgpu_protocol::cuda::*;

use crate::{
    Gpu, Result, Signature, Stream, abi, api, capture,
    conditional::{Condition, Conditional},
    dot,
    exec::{self, Step, flatten},
    node::{Copy3D, Fill, Host, Kernel, MemOps, Shape, Work},
    store::{Inner, Store},
    updatable::{DeviceNode, Shared},
    update,
};

/// A driver with three streams. Streams 1 and 2 are not ordered with the legacy stream, and stream 3 is.
struct Fake;

static STORE: Store<Fake> = Store::new();
static LAUNCHES: AtomicU32 = AtomicU32::new(0);
/// Whether the driver takes a launch without waiting; the number of launches that it took so; the number of wake-ups.
static HAS_ROOM: AtomicBool = AtomicBool::new(false);
static AT_ONCE: AtomicU32 = AtomicU32::new(0);
static WOKEN: AtomicU32 = AtomicU32::new(0);
static NEXT: AtomicU64 = AtomicU64::new(0x1000);
/// The name that kernels use to launch a graph.
const DEVICE_HANDLE: u64 = 0x7f00_0000_0100;
static FREED: AtomicU64 = AtomicU64::new(0);

/// Captures restrict other threads, so the tests run one after the other.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock()
}

impl Gpu for Fake {
    type Exec = ();

    fn store() -> &'static Store<Self> {
        &STORE
    }
    fn ready() -> Result {
        Ok(())
    }
    fn context() -> Result<u64> {
        Ok(7)
    }
    fn device(_: u64) -> Result<CUdevice> {
        Ok(0)
    }
    fn has_device(device: CUdevice) -> bool {
        device == 0
    }
    fn stream(handle: CUstream, _: bool) -> Result<Stream> {
        Ok(stream(handle as u64))
    }
    fn check_event(event: u64) -> Result {
        if event < 100 {
            Ok(())
        } else {
            Err(CUDA_ERROR_INVALID_HANDLE)
        }
    }
    fn is_recorded(event: u64) -> bool {
        event >= 50
    }
    fn signature(_: u64) -> Result<Signature> {
        Ok(Signature::default())
    }
    fn check_kernel(_: &Kernel) -> Result {
        Ok(())
    }
    fn check_copy(_: &Copy3D) -> Result {
        Ok(())
    }
    fn check_fill(_: &Fill) -> Result {
        Ok(())
    }
    fn check_mem_ops(_: &MemOps) -> Result {
        Ok(())
    }
    fn is_near(_: &Copy3D) -> Result<bool> {
        Ok(false)
    }
    fn check_condition(_: &Condition) -> Result {
        Ok(())
    }
    fn has_partial_edges() -> bool {
        true
    }
    fn allocate(_: u64, bytes: usize) -> Result<u64> {
        Ok(NEXT.fetch_add(bytes as u64, Ordering::Relaxed))
    }
    fn free(address: u64) {
        FREED.store(address, Ordering::Relaxed);
    }
    fn device_nodes() -> Result<Shared> {
        Ok(Arc::new(AtomicU64::new(0)))
    }
    fn device_node(nodes: &Shared, _: &Kernel) -> Result<DeviceNode> {
        let made = nodes.downcast_ref::<AtomicU64>().unwrap();
        Ok(DeviceNode {
            name: 0x100 * (made.fetch_add(1, Ordering::Relaxed) + 1),
            of: Some(Arc::clone(nodes)),
        })
    }
    fn instantiate(_: &[Step], _: u64) -> Result {
        Ok(())
    }
    fn set(_: &(), _: &[Step], _: usize, _: bool) -> Result {
        Ok(())
    }
    fn update(_: &(), _: &[Step], _: Option<&update::Changes>) -> Result {
        Ok(())
    }
    fn launch(_: &(), _: &Arc<Vec<Step>>, _: CUstream, _: bool) -> Result {
        // It may wait for a callback that needs the store.
        with(|_| LAUNCHES.fetch_add(1, Ordering::Relaxed));
        Ok(())
    }
    fn stream_at_once(handle: CUstream, _: bool) -> Option<u64> {
        Some(handle as u64)
    }
    fn launch_at_once(_: &(), _: u64) -> Option<bool> {
        let takes = HAS_ROOM.load(Ordering::Relaxed);
        takes.then(|| AT_ONCE.fetch_add(1, Ordering::Relaxed) == 0)
    }
    fn wake() -> Result {
        with(|_| WOKEN.fetch_add(1, Ordering::Relaxed));
        Ok(())
    }
    fn device_handle(_: &()) -> Option<u64> {
        Some(DEVICE_HANDLE)
    }
    fn upload(_: &(), _: &Arc<Vec<Step>>, _: CUstream, _: bool) -> Result {
        Ok(())
    }
    fn call(_: CUstream, _: bool, what: Box<dyn FnOnce() + Send>) -> Result {
        what();
        Ok(())
    }
}

fn stream(key: u64) -> Stream {
    Stream {
        key,
        context: 7,
        is_legacy: key == 0,
        is_blocking: key == 3,
        priority: if key == 5 { -2 } else { 0 },
    }
}

fn kernel(function: u64) -> Work {
    let shape = Shape {
        grid: [1; 3],
        block: [1; 3],
        shared: 0,
    };
    Work::Kernel(Arc::new(Kernel::new(
        (function, 7),
        shape,
        Vec::new(),
        Signature::default(),
        &[],
    )))
}

/// A launch of one function with a parameter of eight bytes and this number of blocks.
fn kernel_of(value: u64, blocks: u32) -> Step {
    let signature = Signature {
        layout: Arc::new([(0, 8)]),
        bytes: 8,
        context: 7,
    };
    let shape = Shape {
        grid: [blocks, 1, 1],
        block: [1; 3],
        shared: 0,
    };
    let bytes = value.to_le_bytes();
    let kernel = Kernel::new((1, 7), shape, Vec::new(), signature, &bytes);
    Step {
        node: 1,
        after: Default::default(),
        work: Work::Kernel(Arc::new(kernel)),
        enabled: true,
    }
}

/// A graph of launches of one function with these values. Each launch depends on the one before.
fn chain(values: &[u64]) -> u64 {
    with(|inner| {
        let graph = inner.create();
        let mut last = None;
        for value in values {
            let edge = last.map(|node| (node, abi::CUgraphEdgeData::default()));
            let work = kernel_of(*value, 1).work;
            last = Some(inner.add(graph, edge.as_slice(), work).unwrap());
        }
        graph
    })
}

fn with<T>(body: impl FnOnce(&mut Inner<Fake>) -> T) -> T {
    STORE.with(body)
}

/// A graph with one node.
fn graph_of(work: Work) -> u64 {
    with(|inner| {
        let graph = inner.create();
        inner.add(graph, &[], work).unwrap();
        graph
    })
}

/// Destroys an executable graph.
fn end(exec: u64) {
    with(|inner| {
        let gone = inner.execs.remove(&exec);
        inner.discard(gone);
    });
}

fn begin(on: u64, mode: CUstreamCaptureMode) {
    capture::begin::<Fake>(&stream(on), mode, None).unwrap();
}

fn record(on: u64) -> Result<bool> {
    capture::record_work::<Fake>(&stream(on), || Ok(kernel(1)))
}

const GLOBAL: CUstreamCaptureMode = CU_STREAM_CAPTURE_MODE_GLOBAL;
const RELAXED: CUstreamCaptureMode = CU_STREAM_CAPTURE_MODE_RELAXED;

/// The result that a function writes to an address.
fn answer<T: Copy>(nothing: T, ask: impl FnOnce(*mut T) -> Result) -> T {
    let mut to = nothing;
    ask(&raw mut to).unwrap();
    to
}
