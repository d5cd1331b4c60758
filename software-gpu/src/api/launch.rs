// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Launching kernels and host functions.

use std::ffi::{c_uint, c_void};
use std::sync::Arc;

use gpgpu_protocol::cuda::{
    CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW, CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION,
    CU_LAUNCH_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE, CU_LAUNCH_ATTRIBUTE_COOPERATIVE,
    CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE, CU_LAUNCH_ATTRIBUTE_IGNORE,
    CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT, CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN,
    CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP, CU_LAUNCH_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT,
    CU_LAUNCH_ATTRIBUTE_PRIORITY, CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT,
    CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION,
    CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY, CU_LAUNCH_PARAM_BUFFER_POINTER,
    CU_LAUNCH_PARAM_BUFFER_SIZE, CU_LAUNCH_PARAM_END, CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE,
    CUDA_ERROR_INVALID_CLUSTER_SIZE, CUDA_ERROR_INVALID_HANDLE, CUDA_ERROR_INVALID_VALUE,
    CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES, CUDA_ERROR_NOT_SUPPORTED, CUevent, CUfunction, CUhostFn,
    CUlaunchAttribute, CUlaunchAttributeValue, CUlaunchConfig, CUstream, CUstreamCallback,
};

use gpgpu_graphs::abi::CUDA_HOST_NODE_PARAMS;
use gpgpu_graphs::node::{Host, Kernel, Shape, Work};
use gpgpu_graphs::updatable;

use super::event::Event;
use super::occupancy::active_blocks;
use crate::config::{Config, MAX_BLOCK_DIM, MAX_CLUSTER_BLOCKS, MAX_GRID_DIM};
use crate::context::{self, Context};
use crate::driver;
use crate::effects::OfLaunch;
use crate::exec::{self, Effects, Launch};
use crate::ffi::{Pointer, Result, as_callback, export};
use crate::graph;
use crate::module::Function;
use crate::observe::Seen;
use crate::stream::Null;

/// The values of a launch's `kernelParams`: one pointer for each parameter.
type Arguments = Pointer<Pointer<u8>>;
/// `extra[]`: names and values by turns.
type Extra = Pointer<*mut c_void>;

fn product(dimensions: [u32; 3]) -> u64 {
    dimensions
        .iter()
        .fold(1u64, |product, d| product.saturating_mul((*d).into()))
}

fn fits(dimensions: [u32; 3], most: [u32; 3]) -> bool {
    dimensions
        .iter()
        .zip(most)
        .all(|(d, most)| (1..=most).contains(d))
}

/// Launches that CUDA refuses at the call and not later, in a context.
pub(crate) fn check(function: &Function, launch: &Launch, cx: &Context) -> Result {
    check_shape(function, launch)?;
    if launch.cooperative {
        let threads = product(launch.block) as u32;
        let resident = active_blocks(function, threads, launch.dynamic_shared_bytes);
        if product(launch.grid) > u64::from(resident * cx.multiprocessors()) {
            return Err(CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE);
        }
    }
    Ok(())
}

/// The same in any context, which does not matter but for a cooperative launch.
pub(crate) fn check_shape(function: &Function, launch: &Launch) -> Result {
    let info = function.info();
    let threads = product(launch.block);
    if !fits(launch.grid, MAX_GRID_DIM)
        || !fits(launch.block, MAX_BLOCK_DIM)
        || threads > info.max_threads.into()
        || info.required_block.is_some_and(|b| b != launch.block)
        || launch.dynamic_shared_bytes > function.most_dynamic_shared()
    {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    if launch.cluster != [1; 3] {
        if !Config::get().has_clusters() {
            return Err(CUDA_ERROR_NOT_SUPPORTED);
        }
        let divides = launch
            .grid
            .iter()
            .zip(launch.cluster)
            .all(|(g, c)| c > 0 && g % c == 0);
        if !divides || product(launch.cluster) > MAX_CLUSTER_BLOCKS.into() {
            return Err(CUDA_ERROR_INVALID_CLUSTER_SIZE);
        }
    }
    Ok(())
}

fn from_arguments(function: &Function, arguments: Arguments) -> Result<Vec<u8>> {
    let info = function.info();
    let mut buffer = vec![0; info.param_bytes];
    for (index, parameter) in info.params.iter().enumerate() {
        let value = arguments.at(index).get()?.array(parameter.size)?;
        buffer[parameter.offset..parameter.offset + parameter.size].copy_from_slice(&value);
    }
    Ok(buffer)
}

fn from_extra(function: &Function, extra: Extra) -> Result<Vec<u8>> {
    let (mut buffer, mut size) = (Pointer::<u8>::null(), None);
    let mut index = 0;
    loop {
        let name = extra.at(index).get()? as usize;
        if name == CU_LAUNCH_PARAM_END {
            break;
        }
        let value = extra.at(index + 1).cast::<Pointer<u8>>().get()?;
        match name {
            CU_LAUNCH_PARAM_BUFFER_POINTER => buffer = value,
            CU_LAUNCH_PARAM_BUFFER_SIZE => size = Some(value.cast::<usize>().get()?),
            _ => return Err(CUDA_ERROR_INVALID_VALUE),
        }
        index += 2;
    }
    let needed = function.info().param_bytes;
    match size {
        Some(size) if size > needed.next_multiple_of(4) => Err(CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES),
        // Missing bytes are zero.
        Some(size) => {
            let mut bytes = buffer.array(needed.min(size))?;
            bytes.resize(needed, 0);
            Ok(bytes)
        }
        None if needed == 0 => Ok(Vec::new()),
        _ => Err(CUDA_ERROR_INVALID_VALUE),
    }
}

fn parameters(function: &Function, arguments: Arguments, extra: Extra) -> Result<Vec<u8>> {
    match (arguments.is_null(), extra.is_null()) {
        (false, false) => Err(CUDA_ERROR_INVALID_VALUE),
        (true, false) => from_extra(function, extra),
        _ => from_arguments(function, arguments),
    }
}

/// Launches a function. If a capture has recorded the launch, with the events of its attributes, this returns the
/// node's name for kernels; see [`graph::record_launch`].
fn launch(
    cx: &Context,
    function: CUfunction,
    mut launch: Launch,
    stream: (CUstream, Null),
    (arguments, extra): (Arguments, Extra),
    attributes: Vec<CUlaunchAttribute>,
) -> Result<Option<u64>> {
    let handle = function as u64;
    let function = Function::named(handle, cx)?;
    let stream = cx.stream(stream.0, stream.1)?;
    if stream.context != function.context {
        return Err(CUDA_ERROR_INVALID_HANDLE);
    }
    if launch.cluster == [1; 3] {
        launch.cluster = function.cluster().unwrap_or([1; 3]);
    }
    check(&function, &launch, &*context::of(&stream)?)?;
    let parameters = parameters(&function, arguments, extra)?;
    let recorded = graph::record_launch(&stream, &attributes, |attributes| {
        let shape = Shape {
            grid: launch.grid,
            block: launch.block,
            shared: launch.dynamic_shared_bytes as u32,
        };
        let context = context::of(&stream)?.handle;
        let kernel = Kernel::new(
            (handle, context),
            shape,
            attributes,
            graph::signature(&function, context),
            &parameters,
        );
        Ok(Work::Kernel(Arc::new(kernel)))
    })?;
    if recorded.is_some() {
        return Ok(recorded);
    }
    if attributes.iter().any(is_of_graphs) {
        return Err(CUDA_ERROR_NOT_SUPPORTED);
    }
    // As NVIDIA's driver, which lets only kernels of graphs launch graphs.
    if function.loaded.launches_graphs(&function.info().name) {
        return Err(CUDA_ERROR_NOT_SUPPORTED);
    }
    let effects = context::of(&stream)?.effects();
    // As CUDA does, which makes room for this kernel's output.
    effects.printed.put_out();
    let seen = Seen::queued(&stream);
    context::queue(&stream, Vec::new(), move || {
        seen.kernel(&function, &launch, || {
            run(&function, &launch, &parameters, &effects)
        })
    })
    .map(|_| None)
}

/// Whether an attribute only applies to launches in graphs.
fn is_of_graphs(attribute: &CUlaunchAttribute) -> bool {
    attribute.id == CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE
}

/// Runs a launch now, with all that its kernel launches.
pub(crate) fn run(
    function: &Arc<Function>,
    launch: &Launch,
    parameters: &[u8],
    effects: &dyn Effects,
) -> Result {
    let driver = driver::get()?;
    let name = &function.info().name;
    exec::launch(
        &function.loaded,
        name,
        launch,
        parameters,
        &driver.memory.seen_by(function.device, effects),
        &driver.cancel,
        &OfLaunch::new(effects, function),
    )
    .map_err(|fault| driver.code_of(&fault))
}

fn attributes(
    config: &CUlaunchConfig,
    launch: &mut Launch,
    events: &mut Vec<Arc<Event>>,
) -> Result {
    // SAFETY: by the API's contract `attrs` points to `numAttrs` attributes.
    let list = unsafe { Pointer::new(config.attrs) };
    for attribute in list.array(config.numAttrs as usize)? {
        match attribute.id {
            CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT
            | CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT => {
                // SAFETY: any bytes are words; the first is the event.
                let [event, ..] = unsafe { attribute.value.words };
                let event = Event::named(event as CUevent)?;
                if !event.is_for_launches() {
                    return Err(CUDA_ERROR_INVALID_VALUE);
                }
                events.push(event);
            }
            _ => apply(&attribute, launch)?,
        }
    }
    Ok(())
}

/// The meaning of an attribute for a launch, or for a node of a graph, which records no event.
pub(crate) fn apply(attribute: &CUlaunchAttribute, launch: &mut Launch) -> Result {
    match attribute.id {
        CU_LAUNCH_ATTRIBUTE_COOPERATIVE => {
            // SAFETY: the id says which member was written.
            launch.cooperative = unsafe { attribute.value.cooperative } != 0;
        }
        CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION => {
            // SAFETY: the id says which member was written.
            let cluster = unsafe { attribute.value.clusterDim };
            launch.cluster = [cluster.x, cluster.y, cluster.z];
        }
        // Hints, and permission to overlap with the kernel before, which need not be used.
        CU_LAUNCH_ATTRIBUTE_IGNORE
        | CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW
        | CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY
        | CU_LAUNCH_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE
        | CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
        | CU_LAUNCH_ATTRIBUTE_PRIORITY
        | CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP
        | CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN
        | CU_LAUNCH_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT
        | CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE => {}
        id if id < gpgpu_protocol::cuda::CU_LAUNCH_ATTRIBUTE_MAX => {
            return Err(CUDA_ERROR_NOT_SUPPORTED);
        }
        _ => return Err(CUDA_ERROR_INVALID_VALUE),
    }
    Ok(())
}

/// A launch from `cuLaunchKernelEx`'s configuration, and the events that it records.
pub(super) fn from_config(config: &CUlaunchConfig) -> Result<(Launch, Vec<Arc<Event>>)> {
    let mut launch = Launch {
        grid: [config.gridDimX, config.gridDimY, config.gridDimZ],
        block: [config.blockDimX, config.blockDimY, config.blockDimZ],
        dynamic_shared_bytes: config.sharedMemBytes as usize,
        ..Launch::default()
    };
    let mut events = Vec::new();
    attributes(config, &mut launch, &mut events)?;
    Ok((launch, events))
}

struct UserData(*mut c_void);
// SAFETY: never dereferenced here, only handed back to the caller's own function.
unsafe impl Send for UserData {}

impl UserData {
    fn get(&self) -> *mut c_void {
        self.0
    }
}

struct Handle(CUstream);
// SAFETY: a number that names a stream; never dereferenced.
unsafe impl Send for Handle {}

impl Handle {
    fn get(&self) -> CUstream {
        self.0
    }
}

/// The stream of a launch, or NULL without a configuration.
fn stream_of(config: Pointer<CUlaunchConfig>) -> CUstream {
    config
        .get()
        .map_or(std::ptr::null_mut(), |config| config.hStream)
}

export! {
    /// `cuLaunchKernel`; takes a `CUkernel` as well.
    work(stream) fn cuLaunchKernel, cuLaunchKernel_ptsz(
        function: CUfunction, grid_x: c_uint, grid_y: c_uint, grid_z: c_uint, block_x: c_uint, block_y: c_uint, block_z: c_uint,
        shared: c_uint, stream: CUstream, arguments: Arguments, extra: Extra,
    ) |cx, null| {
        let shape = Launch {
            grid: [grid_x, grid_y, grid_z],
            block: [block_x, block_y, block_z],
            dynamic_shared_bytes: shared as usize,
            ..Launch::default()
        };
        launch(&cx, function, shape, (stream, null), (arguments, extra), Vec::new()).map(drop)
    }

    /// `cuLaunchCooperativeKernel`: `CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE` for more blocks than can be resident.
    work(stream) fn cuLaunchCooperativeKernel, cuLaunchCooperativeKernel_ptsz(
        function: CUfunction, grid_x: c_uint, grid_y: c_uint, grid_z: c_uint, block_x: c_uint, block_y: c_uint, block_z: c_uint,
        shared: c_uint, stream: CUstream, arguments: Arguments,
    ) |cx, null| {
        let shape = Launch {
            grid: [grid_x, grid_y, grid_z],
            block: [block_x, block_y, block_z],
            dynamic_shared_bytes: shared as usize,
            cooperative: true,
            ..Launch::default()
        };
        let attribute = CUlaunchAttribute {
            id: CU_LAUNCH_ATTRIBUTE_COOPERATIVE,
            pad: [0; 4],
            value: CUlaunchAttributeValue { words: [1, 0, 0, 0, 0, 0, 0, 0] },
        };
        launch(&cx, function, shape, (stream, null), (arguments, Pointer::null()), vec![attribute]).map(drop)
    }

    /// `cuLaunchKernelEx`: attributes that this device cannot honour are `CUDA_ERROR_NOT_SUPPORTED`.
    work(stream_of(config)) fn cuLaunchKernelEx, cuLaunchKernelEx_ptsz(config: Pointer<CUlaunchConfig>, function: CUfunction, arguments: Arguments, extra: Extra) |cx, null| {
        let config = config.get()?;
        let (shape, events) = from_config(&config)?;
        // SAFETY: by the API's contract `attrs` points to `numAttrs` attributes.
        let list = unsafe { Pointer::new(config.attrs) };
        let attributes = list.array(config.numAttrs as usize)?;
        let recorded = launch(&cx, function, shape, (config.hStream, null), (arguments, extra), attributes.clone())?;
        // The earliest permitted time is when its blocks have begun; here it is when they have ended.
        for event in events.into_iter().filter(|_| recorded.is_none()) {
            event.record(&cx, config.hStream, null, 0)?;
        }
        let named = recorded.filter(|name| *name != 0);
        for (index, attribute) in attributes.into_iter().enumerate() {
            if let Some(name) = named.filter(|_| is_of_graphs(&attribute)) {
                let value = updatable::value(name);
                list.at(index).set(CUlaunchAttribute { value, ..attribute })?;
            }
        }
        Ok(())
    }

    /// `cuLaunchHostFunc`: not called after a fault.
    context fn cuLaunchHostFunc, cuLaunchHostFunc_ptsz(stream: CUstream, function: CUhostFn, data: *mut c_void) |cx, null| {
        let function = function.ok_or(CUDA_ERROR_INVALID_VALUE)?;
        let stream = cx.stream(stream, null)?;
        let node = Host(CUDA_HOST_NODE_PARAMS { function: Some(function), userData: data });
        if graph::record(&stream, || Ok(Work::Host(node)))? {
            return Ok(());
        }
        let data = UserData(data);
        context::queue(&stream, Vec::new(), move || {
            // SAFETY: the caller's function with the caller's argument, as it asked.
            as_callback(|| unsafe { function(data.get()) });
            Ok(())
        })
        .map(|_| ())
    }

    /// `cuStreamAddCallback`: called even after a fault, with its code.
    context fn cuStreamAddCallback, cuStreamAddCallback_ptsz(handle: CUstream, function: CUstreamCallback, data: *mut c_void, flags: c_uint) |cx, null| {
        let function = function.ok_or(CUDA_ERROR_INVALID_VALUE)?;
        if flags != 0 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let stream = cx.stream(handle, null)?;
        let (data, handle) = (UserData(data), Handle(handle));
        let printed = Arc::clone(&context::of(&stream)?.printed);
        context::queue_always(&stream, move |status| {
            printed.put_out();
            // SAFETY: the caller's function with the caller's argument, as it asked.
            as_callback(|| unsafe { function(handle.get(), status, data.get()) });
        })
        .map(|_| ())
    }
}
