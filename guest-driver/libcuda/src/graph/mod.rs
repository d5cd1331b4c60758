// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Graphs and stream capture.
//!
//! Graphs are implemented in this process (`gpgpu-graphs`): captures, creation, changes and queries send nothing. When
//! a graph is instantiated, it is sent to the host as a list of steps ([`mod@lower`]), and a launch is a post. Calls of
//! NVIDIA's libraries on a captured stream are the exception: only the host's copies know their work, so they are
//! recorded there ([`library`]).

mod accepted;
pub mod calls;
mod executable;
pub mod left;
pub mod library;
mod lower;
mod updatable;

use std::{
    ffi::{c_char, c_void},
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, Ordering},
    },
};

use gpgpu_graphs::{
    Gpu, Signature, Stream as Named,
    abi::{
        CUDA_HOST_NODE_PARAMS, CUDA_MEMSET_NODE_PARAMS, CUstreamBatchMemOpParams, DEVICE_LAUNCH,
        USE_NODE_PRIORITY,
    },
    api, capture,
    conditional::Condition,
    exec::Step,
    node::{Copy3D, Fill, Host, Kernel, MemOps, Work},
    store::Store,
    updatable::{DeviceNode, Shared},
    update::Changes,
};
use gpgpu_protocol::{
    api::{Event, GraphExec, Object, Request, Stream, graph_step, request},
    cuda::*,
    with_driver_api,
};

use crate::{
    callback,
    client::{Client, client},
    environment::environment,
    event,
    ffi::{Result, end, enter, traced},
    launch::{self, DefaultStream},
    managed, memory,
    stores::{freed, function::FunctionData},
    stream, thread,
};

use accepted::Place;
pub use executable::Exec;
use executable::{contexts, send};
use lower::{Lowered, lower};
pub use lower::{launch_config, launch_step};

static STORE: Store<Guest> = Store::new();

/// Whether a graph that kernels launch may print. Then any launch of a graph may.
static KERNELS_LAUNCH_PRINTING: AtomicBool = AtomicBool::new(false);

/// Records whether a graph that has this name for kernels may print, if kernels launch it.
fn note_printing(name: Option<u64>, now: &Lowered) {
    if name.is_some() && now.prints() {
        KERNELS_LAUNCH_PRINTING.store(true, Ordering::Relaxed);
    }
}

/// The guest's library as the driver of `gpgpu-graphs`.
pub struct Guest;

macro_rules! function {
    (graph $symbol:ident [] $arguments:tt) => {
        function!(@ $symbol false $symbol $arguments);
    };
    (graph $symbol:ident [$per_thread:ident] $arguments:tt) => {
        function!(@ $symbol false $symbol $arguments);
        function!(@ $symbol true $per_thread $arguments);
    };
    (@ $body:ident $is_per_thread:literal $symbol:ident ($($arg:ident : $ty:ty),*)) => {
        /// As CUDA's documentation of the driver API describes it.
        ///
        /// # Safety
        ///
        /// Pointers are NULL or valid for the function's accesses.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $symbol($($arg: $ty),*) -> CUresult {
            let traced = traced!($symbol ($($arg: $ty),*));
            // SAFETY: promised by the caller.
            let code = enter(stringify!($symbol), || unsafe { api::$body::<Guest, $is_per_thread>($($arg),*) });
            end(traced, code)
        }
    };
    ($other:ident $($rest:tt)*) => {};
}

macro_rules! functions {
    ($($name:ident $since:literal $guest:ident $symbol:ident $($per_thread:ident)? ($($arg:ident : $ty:ty),*);)*) => {
        $(function!($guest $symbol [$($per_thread)?] ($($arg: $ty),*));)*
    };
}

with_driver_api!(functions);

/// The properties of a stream that a capture needs.
fn named(client: &Client, id: u64) -> Result<Named> {
    let is_legacy = Stream::SPECIAL.contains(&id);
    Ok(Named {
        key: id,
        context: stream::context(Stream::handle(id))?,
        is_legacy,
        is_blocking: !is_legacy && stream::is_blocking(client, id)?,
        priority: match is_legacy {
            true => 0,
            false => stream::priority_of(client, id)?,
        },
    })
}

/// Adds a stream's next work as a node, if the stream is captured, and returns whether it is.
pub fn record(
    client: &Client,
    stream: u64,
    work: impl FnOnce(&Named) -> Result<Work>,
) -> Result<bool> {
    if !capture::any::<Guest>() {
        return Ok(false);
    }
    let stream = named(client, stream)?;
    capture::record_work::<Guest>(&stream, || work(&stream))
}

/// The same for a launch with attributes: see [`capture::record_launch`].
pub fn record_launch(
    client: &Client,
    stream: u64,
    attributes: &[CUlaunchAttribute],
    work: impl FnOnce(&Named, Vec<CUlaunchAttribute>) -> Result<Work>,
) -> Result<Option<u64>> {
    if !capture::any::<Guest>() {
        return Ok(None);
    }
    let stream = named(client, stream)?;
    capture::record_launch::<Guest>(&stream, attributes, |kept| work(&stream, kept))
}

/// Whether a stream is captured.
pub fn records(client: &Client, stream: u64) -> Result<bool> {
    if !capture::any::<Guest>() {
        return Ok(false);
    }
    capture::records::<Guest>(&named(client, stream)?)
}

/// Refuses work that no graph can have, if the stream is captured.
pub fn refuse(client: &Client, stream: u64) -> Result {
    if !capture::any::<Guest>() {
        return Ok(());
    }
    capture::refuse::<Guest>(&named(client, stream)?)
}

/// Handles a query of, or a wait for, a stream.
pub fn observe_stream(stream: u64) -> Result {
    if !capture::any::<Guest>() {
        return Ok(());
    }
    capture::observe_stream::<Guest>(&named(client()?, stream)?)
}

/// Records an event in a captured stream, and returns whether the stream is captured.
pub fn record_event(stream: u64, event: u64, flags: u32) -> Result<bool> {
    if !capture::any_event::<Guest>() {
        return Ok(false);
    }
    capture::record_event::<Guest>(event, &named(client()?, stream)?, flags & 1 != 0)
}

/// Makes a stream wait for an event in a capture, and returns whether there is one.
pub fn wait_event(stream: u64, event: u64, flags: u32) -> Result<bool> {
    if !capture::any_event::<Guest>() {
        return Ok(false);
    }
    capture::wait_event::<Guest>(&named(client()?, stream)?, event, flags & 1 != 0)
}

/// The node of a copy, after a check of the copy.
pub fn copy(client: &Client, copy: Copy3D) -> Result<Work> {
    lower::check_copy(client, &copy)?;
    Ok(Work::Copy(Box::new(copy)))
}

/// Adds a fill as a node, if its stream is captured, and returns whether it is: of rows at a distance of `pitch` bytes,
/// with a value of `size` bytes.
pub fn fill(
    client: &Client,
    stream: u64,
    (dst, pitch): (u64, usize),
    (value, size): (u32, usize),
    (width, height): (usize, usize),
) -> Result<bool> {
    record(client, stream, |stream| {
        let given = CUDA_MEMSET_NODE_PARAMS {
            dst,
            pitch,
            value,
            elementSize: size as u32,
            width,
            height,
        };
        let fill = Fill::new(given, stream.context)?;
        lower::check_fill(client, &fill)?;
        Ok(Work::Fill(fill))
    })
}

/// Adds memory operations as a node, if their stream is captured, and returns whether it is.
pub fn mem_ops(
    client: &Client,
    stream: u64,
    ops: &[CUstreamBatchMemOpParams],
    flags: u32,
) -> Result<bool> {
    record(client, stream, |stream| {
        let ops = MemOps {
            context: stream.context,
            flags,
            ops: ops.into(),
        };
        lower::check_mem_ops(client, &ops)?;
        Ok(Work::MemOps(Arc::new(ops)))
    })
}

/// Adds a host function as a node, if its stream is captured, and returns whether it is.
pub fn host(
    client: &Client,
    stream: u64,
    function: unsafe extern "C" fn(*mut c_void),
    data: *mut c_void,
) -> Result<bool> {
    record(client, stream, |_| {
        Ok(Work::Host(Host(CUDA_HOST_NODE_PARAMS {
            function: Some(function),
            userData: data,
        })))
    })
}

/// Frees memory of a graph; `None` if it does not belong to one.
pub fn free(address: u64) -> Option<Result> {
    STORE.free(address)
}

/// The parameters of a function in the form of `gpgpu-graphs`.
pub fn signature(function: &FunctionData) -> Signature {
    Signature {
        layout: Arc::clone(&function.layout),
        bytes: function.param_bytes,
        context: function.context,
    }
}

fn shape(per_thread: bool) -> DefaultStream {
    if per_thread {
        DefaultStream::PerThread
    } else {
        DefaultStream::Legacy
    }
}

impl Gpu for Guest {
    type Exec = Exec;

    fn store() -> &'static Store<Self> {
        &STORE
    }

    fn ready() -> Result {
        client().map(drop)
    }

    fn has_graphs() -> Result {
        client()?.require(request::gpgpuGraphInstantiate::OPERATION)
    }

    fn context() -> Result<u64> {
        match thread::current_context() {
            0 => Err(CUDA_ERROR_INVALID_CONTEXT),
            context => Ok(context),
        }
    }

    fn device(context: u64) -> Result<CUdevice> {
        let device = client()?.objects.context_device(context);
        device.ok_or(CUDA_ERROR_INVALID_CONTEXT)
    }

    fn has_device(device: CUdevice) -> bool {
        crate::device::device(device).is_ok()
    }

    fn stream(handle: CUstream, per_thread: bool) -> Result<Named> {
        named(client()?, stream::lower(shape(per_thread), handle)?)
    }

    fn check_event(event: u64) -> Result {
        use crate::argument::GuestArg;
        if Event::is_known(client()?, &event) {
            Ok(())
        } else {
            Err(CUDA_ERROR_INVALID_HANDLE)
        }
    }

    fn is_recorded(event: u64) -> bool {
        event::is_recorded(event)
    }

    fn signature(function: u64) -> Result<Signature> {
        Ok(signature(&*client()?.objects.function(function)?))
    }

    fn check_kernel(kernel: &Kernel) -> Result {
        launch::check(client()?, kernel)
    }

    fn check_copy(copy: &Copy3D) -> Result {
        lower::check_copy(client()?, copy)
    }

    fn check_fill(fill: &Fill) -> Result {
        lower::check_fill(client()?, fill)
    }

    fn check_mem_ops(ops: &MemOps) -> Result {
        lower::check_mem_ops(client()?, ops)
    }

    fn is_near(copy: &Copy3D) -> Result<bool> {
        lower::is_near(client()?, copy)
    }

    fn check_condition(condition: &Condition) -> Result {
        let client = client()?;
        client.require(request::gpgpuGraphCondition::OPERATION)?;
        let (default, flags) = (condition.default, condition.flags);
        thread::push_context(condition.context)?;
        let checked = client.call(&request::gpgpuGraphCondition { default, flags });
        thread::pop_context();
        checked.map(drop)
    }

    fn has_partial_edges() -> bool {
        static ANSWER: OnceLock<bool> = OnceLock::new();
        let Ok(client) = client() else { return false };
        let asks = || {
            client.has(request::gpgpuGraphEdges::OPERATION.op)
                && client.call(&request::gpgpuGraphEdges {}).is_ok()
        };
        *ANSWER.get_or_init(asks)
    }

    fn allocate(context: u64, bytes: usize) -> Result<u64> {
        let client = client()?;
        let request = request::cuMemAlloc_v2 {
            dptr: true,
            bytesize: freed::length_for(bytes),
        };
        thread::push_context(context)?;
        let made = client.allocate(|| client.call(&request));
        thread::pop_context();
        let address = made?.dptr;
        memory::note_device(client, context, address, bytes);
        Ok(address)
    }

    fn free(address: u64) {
        if let Ok(client) = client() {
            left::leave(client, address);
        }
    }

    fn device_nodes() -> Result<Shared> {
        updatable::Nodes::shared(client()?)
    }

    fn device_node(nodes: &Shared, kernel: &Kernel) -> Result<DeviceNode> {
        updatable::add(client()?, nodes, kernel)
    }

    fn instantiate(steps: &[Step], flags: u64) -> Result<Exec> {
        let client = client()?;
        let for_device = flags & DEVICE_LAUNCH != 0;
        if for_device {
            client.require(request::gpgpuGraphHandle::OPERATION)?;
        }
        let (list, now) = lower(client, steps)?;
        let exec = client.new_id::<GraphExec>();
        let priority = environment().uses_node_priority;
        let flags = flags | if priority { USE_NODE_PRIORITY } else { 0 };
        let contexts = contexts(&list);
        let devices = contexts.iter();
        let devices = devices.filter_map(|of| client.objects.context_device(*of));
        let (place, is_sure) = Place::take(&list, flags, devices);
        let beside = |image| request::gpgpuGraphInstantiate { exec, image, flags };
        let has_few = client.has(request::gpgpuGraphInstantiateFew::OP);
        let is_few = list.len() <= graph_step::FEW && has_few;
        // The host assigns its name.
        let waits = for_device || !(is_few && is_sure);
        if is_few {
            let few = |steps| request::gpgpuGraphInstantiateFew { exec, steps, flags };
            send(client, &list, waits, few, beside)?;
        } else {
            let here = |steps| request::gpgpuGraphInstantiateHere { exec, steps, flags };
            send(client, &list, waits, here, beside)?;
        }
        if waits {
            place.is_made();
        }
        let made = Exec::new(exec, contexts, now, place);
        if for_device {
            made.named(client)
        } else {
            Ok(made)
        }
    }

    fn device_handle(exec: &Exec) -> Option<u64> {
        exec.handle
    }

    fn set(exec: &Exec, steps: &[Step], index: usize, are_parameters: bool) -> Result {
        let client = client()?;
        let mut now = exec.now();
        if now.is_old {
            return Ok(());
        }
        if are_parameters && exec.set_parameters(client, &now, steps, &[index])? {
            return Ok(());
        }
        if let Some((step, to, call)) = now.lowered.single(client, steps, index)? {
            let set = client.call(&request::gpgpuGraphSetStep {
                exec: exec.id,
                step,
                to,
            });
            match set {
                Ok(_) => {
                    now.lowered
                        .replace(client, index, &steps[index].work, call)?;
                    note_printing(exec.handle, &now.lowered);
                    return Ok(());
                }
                // The host's driver updates a copy in place only between memory of the same kinds, and memory of one
                // kind natively can be of two kinds there: allocations lie in chunks, variables of modules do not. So
                // the whole graph is made again, but later: other nodes may name memory that no longer exists, until
                // the program has changed them too.
                Err(CUDA_ERROR_INVALID_VALUE)
                    if exec.can_be_made_anew(&now)
                        && matches!(steps[index].work, Work::Copy(_)) =>
                {
                    now.is_old = true;
                    return Ok(());
                }
                Err(code) => return Err(code),
            }
        }
        exec.renew(client, &mut now, steps)
    }

    fn update(exec: &Exec, steps: &[Step], changed: Option<&Changes>) -> Result {
        let client = client()?;
        let mut now = exec.now();
        if let Some(changed) = changed {
            let list = &changed.steps;
            if changed.are_parameters && exec.set_parameters(client, &now, steps, list)? {
                return Ok(());
            }
            if exec.change(client, &mut now, steps, list)? {
                note_printing(exec.handle, &now.lowered);
                return Ok(());
            }
        }
        // Until the whole graph is made again, the host may have steps of both. If that fails, the next launch must do
        // the work of the previous graph.
        now.is_old = true;
        exec.renew(client, &mut now, steps)
    }

    fn launch(exec: &Exec, steps: &Arc<Vec<Step>>, stream: CUstream, per_thread: bool) -> Result {
        let client = client()?;
        let hStream = stream::lower(shape(per_thread), stream)?;
        let mut now = exec.now();
        if now.is_old {
            exec.renew(client, &mut now, steps)?;
        }
        let now = &now.lowered;
        for event in now.events() {
            event::forget_word(event);
        }
        if now.has_calls() {
            callback::start(client);
        }
        now.expect_calls(1);
        if managed::any() {
            for (address, bytes) in now.names() {
                managed::names(client, *address, *bytes, hStream);
            }
        }
        let request = request::cuGraphLaunch {
            hGraphExec: exec.id,
            hStream,
        };
        let launched = if client.objects.knows_stream(hStream) && thread::has_context(client) {
            client.post(&request)
        } else {
            client.call(&request).map(drop)
        };
        launched.inspect_err(|_| now.expect_calls(-1))?;
        if now.prints() || KERNELS_LAUNCH_PRINTING.load(Ordering::Relaxed) {
            client.launched_printing();
        }
        if launch::is_blocking() {
            client.call(&request::cuStreamSynchronize { hStream })?;
        }
        Ok(())
    }

    fn stream_at_once(stream: CUstream, per_thread: bool) -> Option<u64> {
        let client = client().ok()?;
        let stream = stream::lower(shape(per_thread), stream).ok()?;
        let is_posted = client.objects.knows_stream(stream) && thread::has_context(client);
        let needs_more = managed::any()
            || launch::is_blocking()
            || KERNELS_LAUNCH_PRINTING.load(Ordering::Relaxed);
        (is_posted && !needs_more).then_some(stream)
    }

    fn launch_at_once(exec: &Exec, stream: u64) -> Option<bool> {
        let client = client().ok().filter(|_| exec.is_plain())?;
        client.try_post(&request::cuGraphLaunch {
            hGraphExec: exec.id,
            hStream: stream,
        })
    }

    fn wake() -> Result {
        client()?.wake_worker()
    }

    fn upload(exec: &Exec, steps: &Arc<Vec<Step>>, stream: CUstream, per_thread: bool) -> Result {
        let client = client()?;
        let hStream = stream::lower(shape(per_thread), stream)?;
        refuse(client, hStream)?;
        let mut now = exec.now();
        if now.is_old && exec.handle.is_some() {
            // A kernel may launch it next.
            exec.renew(client, &mut now, steps)?;
        }
        if now.is_old {
            // The next launch sends the whole graph.
            return Ok(());
        }
        drop(now);
        let request = request::cuGraphUpload {
            hGraphExec: exec.id,
            hStream,
        };
        client.call(&request).map(drop)
    }

    fn call(stream: CUstream, per_thread: bool, what: Box<dyn FnOnce() + Send>) -> Result {
        callback::call(stream::lower(shape(per_thread), stream)?, what)
    }
}
