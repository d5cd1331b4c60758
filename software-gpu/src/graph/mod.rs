// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Graphs and stream capture on this device: `gpgpu-graphs` implements them, and [`run`] executes launches.

mod part;
mod run;
mod updatable;

use std::sync::Arc;
use std::sync::atomic::Ordering;

use gpgpu_graphs::{
    Gpu, Signature, Stream as Named, capture,
    conditional::Condition,
    exec::Step,
    node::{Copy3D, Fill, Kernel, MemOps, Work},
    objects::Allocation,
    store::Store,
    updatable::{DeviceNode, Shared},
    update::Changes,
};
use gpgpu_protocol::cuda::{
    CU_MEMORYTYPE_HOST, CUDA_ERROR_INVALID_VALUE, CUdevice, CUevent, CUlaunchAttribute, CUstream,
};

use crate::api::array_copy;
use crate::api::event::Event;
use crate::api::launch;
use crate::api::memory;
use crate::api::stream_memory;
use crate::config::Config;
use crate::context;
use crate::driver;
use crate::exec::Launch;
use crate::ffi::{Result, as_callback, refuse_in_callback};
use crate::memory::Place;
use crate::module::Function;
use crate::stream::{Null, Order, STREAMS, Stream};
pub use part::Own;
use run::Executable;

static STORE: Store<Soft> = Store::new();

/// This device.
pub struct Soft;

/// The properties of a stream that a capture needs.
pub fn named(stream: &Stream) -> Named {
    Named {
        key: stream.id,
        context: context::handle_of(stream.owner),
        is_legacy: stream.order == Order::Legacy,
        is_blocking: stream.order == Order::Blocking,
        priority: stream.attributes().priority,
    }
}

/// Records the node of `work` if the stream is captured, and returns whether it is.
pub fn record(stream: &Stream, work: impl FnOnce() -> Result<Work>) -> Result<bool> {
    capture::record_work::<Soft>(&named(stream), work)
}

/// The memory of an allocation that a stream is about to record.
pub fn allocate(stream: &Stream, bytes: usize) -> Result<Arc<Allocation>> {
    capture::allocate::<Soft>(&named(stream), bytes)
}

/// As [`record`], for a launch with attributes: see [`capture::record_launch`].
pub fn record_launch(
    stream: &Stream,
    attributes: &[CUlaunchAttribute],
    work: impl FnOnce(Vec<CUlaunchAttribute>) -> Result<Work>,
) -> Result<Option<u64>> {
    capture::record_launch::<Soft>(&named(stream), attributes, work)
}

/// Whether a stream is captured now.
pub fn records(stream: &Stream) -> Result<bool> {
    capture::records::<Soft>(&named(stream))
}

/// Work that no graph can have is refused in a captured stream.
pub fn refuse(stream: &Stream) -> Result {
    if !capture::any::<Soft>() {
        return Ok(());
    }
    capture::refuse::<Soft>(&named(stream))
}

/// Must be called before a stream is queried or waited for.
pub fn observe(stream: &Stream) -> Result {
    capture::observe_stream::<Soft>(&named(stream))
}

/// Records an event in a captured stream, and returns whether the stream is captured.
pub fn record_event(event: u64, stream: &Stream, flags: u32) -> Result<bool> {
    capture::record_event::<Soft>(event, &named(stream), flags & 1 != 0)
}

/// Makes a stream wait for an event in a capture, and returns whether there is one.
pub fn wait_event(stream: &Stream, event: u64, flags: u32) -> Result<bool> {
    capture::wait_event::<Soft>(&named(stream), event, flags & 1 != 0)
}

/// Removes a destroyed context.
pub fn forget_context(handle: u64) {
    capture::forget_context::<Soft>(handle);
}

/// The parameters of a function, for a launch in a context.
pub fn signature(function: &Function, context: u64) -> Signature {
    let info = function.info();
    Signature {
        layout: info.params.iter().map(|of| (of.offset, of.size)).collect(),
        bytes: info.param_bytes,
        context,
    }
}

fn stream_of(handle: CUstream, per_thread: bool) -> Result<Arc<Stream>> {
    let null = if per_thread {
        Null::PerThread
    } else {
        Null::Legacy
    };
    match STREAMS.get(handle as u64) {
        Some(stream) => Ok(stream),
        None => context::current()?.stream(handle, null),
    }
}

fn shape_of(kernel: &Kernel, function: &Function) -> Result<Launch> {
    let mut shape = Launch {
        grid: kernel.grid,
        block: kernel.block,
        dynamic_shared_bytes: kernel.shared as usize,
        ..Launch::default()
    };
    for attribute in &kernel.attributes {
        launch::apply(attribute, &mut shape)?;
    }
    if shape.cluster == [1; 3] {
        shape.cluster = function.cluster().unwrap_or([1; 3]);
    }
    launch::check(function, &shape, &*context::named(kernel.context)?)?;
    Ok(shape)
}

fn function_of(kernel: &Kernel) -> Result<Arc<Function>> {
    Function::named(kernel.function, &*context::named(kernel.context)?)
}

impl Gpu for Soft {
    type Exec = Executable;

    fn store() -> &'static Store<Self> {
        &STORE
    }

    fn ready() -> Result {
        let driver = driver::get()?;
        refuse_in_callback()?;
        driver.fault()
    }

    fn context() -> Result<u64> {
        Ok(context::current()?.handle)
    }

    fn device(context: u64) -> Result<CUdevice> {
        Ok(context::named(context)?.device)
    }

    fn has_device(device: CUdevice) -> bool {
        (0..Config::get().devices as CUdevice).contains(&device)
    }

    fn stream(handle: CUstream, per_thread: bool) -> Result<Named> {
        Ok(named(&*stream_of(handle, per_thread)?))
    }

    fn check_event(event: u64) -> Result {
        Event::named(event as CUevent).map(drop)
    }

    fn is_recorded(event: u64) -> bool {
        Event::named(event as CUevent).is_ok_and(|event| event.recorded().is_some())
    }

    fn signature(handle: u64) -> Result<Signature> {
        let current = context::current()?;
        let function = Function::named(handle, &current)?;
        Ok(signature(&function, context::handle_of(function.context)))
    }

    fn check_kernel(kernel: &Kernel) -> Result {
        shape_of(kernel, &*function_of(kernel)?).map(drop)
    }

    fn check_copy(of: &Copy3D) -> Result {
        if of.dst_array != 0 || of.src_array != 0 {
            return array_copy::check(&of.given);
        }
        let memory = &driver::get()?.memory;
        let sides = [
            (of.dst, of.dst_extent()?, of.given.dstMemoryType, true),
            (of.src, of.src_extent()?, of.given.srcMemoryType, false),
        ];
        for (address, bytes, kind, writes) in sides {
            let place = memory.classify(address, bytes as u64, writes)?;
            let is_device = kind == gpgpu_protocol::cuda::CU_MEMORYTYPE_DEVICE;
            if matches!(place, Place::Pageable) && is_device && kind != CU_MEMORYTYPE_HOST {
                return Err(CUDA_ERROR_INVALID_VALUE);
            }
        }
        Ok(())
    }

    fn check_fill(of: &Fill) -> Result {
        let memory = &driver::get()?.memory;
        match memory.classify(of.given.dst, of.extent()? as u64, true)? {
            Place::Known(_) => Ok(()),
            Place::Pageable => Err(CUDA_ERROR_INVALID_VALUE),
        }
    }

    fn check_mem_ops(of: &MemOps) -> Result {
        stream_memory::node_work(of).map(drop)
    }

    fn allocate(context: u64, bytes: usize) -> Result<u64> {
        memory::allocate(bytes, &*context::named(context)?)
    }

    fn free(address: u64) {
        let Ok(driver) = driver::get() else { return };
        // If the context was destroyed, so was its memory.
        let Some(allocation) = driver.memory.find(address) else {
            return;
        };
        // The end of a graph waits for no work, so its memory may end later.
        if let Ok(context) = context::of_id(allocation.context) {
            context.after_all(move || {
                if let Some(gone) = driver.memory.remove(address, |a| a.id == allocation.id) {
                    context::retire(driver, gone);
                }
            });
        }
    }

    fn is_near(of: &Copy3D) -> Result<bool> {
        let memory = &driver::get()?.memory;
        let mut is_near = false;
        for (array, address, bytes, writes) in [
            (of.dst_array, of.dst, of.dst_extent()?, true),
            (of.src_array, of.src, of.src_extent()?, false),
        ] {
            if array != 0 {
                continue;
            }
            let place = memory.classify(address, bytes as u64, writes)?;
            is_near |= matches!(place, Place::Pageable);
        }
        Ok(is_near)
    }

    fn check_condition(_: &Condition) -> Result {
        Ok(())
    }

    /// Steps are done one after the other, so each waits for all before it.
    fn has_partial_edges() -> bool {
        true
    }

    fn device_nodes() -> Result<Shared> {
        Ok(Arc::new(()))
    }

    fn device_node(_: &Shared, kernel: &Kernel) -> Result<DeviceNode> {
        updatable::device_node(kernel)
    }

    fn instantiate(steps: &[Step], flags: u64) -> Result<Executable> {
        Executable::new(steps, flags)
    }

    fn tell_id(exec: &Executable, id: u32) {
        exec.id.store(id, Ordering::Relaxed);
    }

    fn device_handle(exec: &Executable) -> Option<u64> {
        exec.device_handle()
    }

    fn set(_: &Executable, _: &[Step], _: usize, _: bool) -> Result {
        Ok(())
    }

    fn update(_: &Executable, _: &[Step], _: Option<&Changes>) -> Result {
        Ok(())
    }

    fn launch(
        exec: &Executable,
        steps: &Arc<Vec<Step>>,
        stream: CUstream,
        per_thread: bool,
    ) -> Result {
        let stream = stream_of(stream, per_thread)?;
        refuse(&stream)?;
        exec.launch(steps, &stream)
    }

    fn upload(
        exec: &Executable,
        steps: &Arc<Vec<Step>>,
        stream: CUstream,
        per_thread: bool,
    ) -> Result {
        let stream = stream_of(stream, per_thread)?;
        refuse(&stream)?;
        exec.upload(steps, &stream)
    }

    fn call(stream: CUstream, per_thread: bool, what: Box<dyn FnOnce() + Send>) -> Result {
        let stream = stream_of(stream, per_thread)?;
        context::queue_always(&stream, move |_| as_callback(what)).map(drop)
    }
}
