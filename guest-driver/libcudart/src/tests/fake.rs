// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! A driver for tests: it records calls by thread, and returns prepared answers.
#![allow(clippy::too_many_arguments)]

use gpgpu_protocol::cuda::*;
use std::cell::{Cell, RefCell};
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::ptr::{null_mut, without_provenance_mut};
use std::sync::atomic::{AtomicUsize, Ordering};

thread_local! {
    /// The calls of the driver, oldest first.
    pub static CALLS: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
    /// The result of the next call that can fail.
    pub static NEXT: Cell<CUresult> = const { Cell::new(CUDA_SUCCESS) };
    static CURRENT: Cell<CUcontext> = const { Cell::new(null_mut()) };
    /// The parameters of every node, as words of `CUgraphNodeParams`: the result of a query, and the last setting.
    pub static NODE: Cell<[u64; 32]> = const { Cell::new([0; 32]) };
}

/// The generation of each device's primary context: it starts at 1 and grows by one with each reset of the device.
static GENERATIONS: [AtomicUsize; 2] = [const { AtomicUsize::new(1) }; 2];

fn say(call: String) -> CUresult {
    CALLS.with_borrow_mut(|calls| calls.push(call));
    NEXT.replace(CUDA_SUCCESS)
}

/// The calls since the last query.
pub fn asked() -> Vec<String> {
    CALLS.take()
}

/// Makes the test's own context current, as a program does through the driver API.
pub fn make_current(context: usize) {
    CURRENT.set(without_provenance_mut(context));
}

unsafe extern "C" fn ok() -> CUresult {
    CUDA_SUCCESS
}

unsafe extern "C" fn driver_version(version: *mut c_int) -> CUresult {
    // SAFETY: the library passes its own variable.
    unsafe { version.write(13000) };
    CUDA_SUCCESS
}

/// An attribute's value is its number.
unsafe extern "C" fn kernel_attribute(
    value: *mut c_int,
    attribute: c_uint,
    _kernel: *mut c_void,
    _device: CUdevice,
) -> CUresult {
    // SAFETY: the library passes its own variable.
    unsafe { value.write(attribute.cast_signed()) };
    CUDA_SUCCESS
}

unsafe extern "C" fn instantiate(exec: *mut usize, graph: usize, flags: u64) -> CUresult {
    // SAFETY: the library passes the test's variable.
    unsafe { exec.write(0xe1) };
    say(format!("instantiate {graph:#x} with {flags}"))
}

/// It fails at the node 0xb, for the reason 4.
unsafe extern "C" fn update(exec: usize, graph: usize, result: *mut [usize; 3]) -> CUresult {
    // SAFETY: the library passes its own structure.
    unsafe { result.write([4, 0xb, 0xc]) };
    say(format!("update {exec:#x} by {graph:#x}"));
    CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE
}

unsafe extern "C" fn device_count(count: *mut c_int) -> CUresult {
    // SAFETY: the library passes its own variable.
    unsafe { count.write(2) };
    CUDA_SUCCESS
}

unsafe extern "C" fn device_name(name: *mut c_char, _length: c_int, _device: CUdevice) -> CUresult {
    // SAFETY: the library's buffer is longer.
    unsafe { name.copy_from(c"fake".as_ptr(), 5) };
    CUDA_SUCCESS
}

unsafe extern "C" fn total_mem(bytes: *mut usize, _device: CUdevice) -> CUresult {
    // SAFETY: the library passes its own variable.
    unsafe { bytes.write(1 << 34) };
    CUDA_SUCCESS
}

/// Each attribute's value is its number, except for the limits of launches.
unsafe extern "C" fn device_attribute(
    value: *mut c_int,
    attribute: c_uint,
    _device: CUdevice,
) -> CUresult {
    let answer = match attribute {
        CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK..=CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z => 1024,
        CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X..=CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z => 65535,
        other => other.cast_signed(),
    };
    // SAFETY: the library passes its own variable.
    unsafe { value.write(answer) };
    CUDA_SUCCESS
}

unsafe extern "C" fn retain(context: *mut CUcontext, device: CUdevice) -> CUresult {
    let generation = GENERATIONS[device as usize].load(Ordering::Relaxed);
    let address = 0x1000 * generation + device as usize;
    // SAFETY: the library passes its own variable.
    unsafe { context.write(without_provenance_mut(address)) };
    CUDA_SUCCESS
}

unsafe extern "C" fn release(_: CUdevice) -> CUresult {
    CUDA_SUCCESS
}

/// Without this library's reference, no context is active.
unsafe extern "C" fn state(_: CUdevice, flags: *mut u32, active: *mut i32) -> CUresult {
    // SAFETY: the library passes its own variables.
    unsafe {
        flags.write(0);
        active.write(0);
    }
    CUDA_SUCCESS
}

unsafe extern "C" fn reset(device: CUdevice) -> CUresult {
    GENERATIONS[device as usize].fetch_add(1, Ordering::Relaxed);
    say(format!("reset {device}"))
}

unsafe extern "C" fn get_current(context: *mut CUcontext) -> CUresult {
    // SAFETY: the library passes its own variable.
    unsafe { context.write(CURRENT.get()) };
    CUDA_SUCCESS
}

unsafe extern "C" fn set_current(context: CUcontext) -> CUresult {
    CURRENT.set(context);
    CUDA_SUCCESS
}

unsafe extern "C" fn context_device(device: *mut CUdevice) -> CUresult {
    // SAFETY: the library passes its own variable.
    unsafe { device.write((CURRENT.get().addr() & 0xf) as CUdevice) };
    CUDA_SUCCESS
}

unsafe extern "C" fn alloc(pointer: *mut CUdeviceptr, bytes: usize) -> CUresult {
    let result = say(format!("alloc {bytes} in {:#x}", CURRENT.get().addr()));
    // SAFETY: the test's own variable.
    unsafe { pointer.write(0x7000) };
    result
}

unsafe extern "C" fn alloc_managed(
    pointer: *mut CUdeviceptr,
    _bytes: usize,
    _flags: c_uint,
) -> CUresult {
    // SAFETY: the test's own variable.
    unsafe { pointer.write(0xbad) };
    CUDA_ERROR_NOT_SUPPORTED
}

unsafe extern "C" fn stream_query(_stream: CUstream) -> CUresult {
    CUDA_ERROR_NOT_READY
}

unsafe extern "C" fn stream_synchronize(stream: CUstream) -> CUresult {
    say(format!("synchronize {:#x}", stream.addr()))
}

unsafe extern "C" fn htod(_to: CUdeviceptr, _from: *const c_void, bytes: usize) -> CUresult {
    say(format!("HtoD {bytes}"))
}

unsafe extern "C" fn htod_async(
    _to: CUdeviceptr,
    _from: *const c_void,
    bytes: usize,
    stream: CUstream,
) -> CUresult {
    say(format!("HtoDAsync {bytes} {:#x}", stream.addr()))
}

unsafe extern "C" fn load(
    library: *mut CUlibrary,
    code: *const c_void,
    _: *mut c_uint,
    _: *mut *mut c_void,
    _: c_uint,
    _: *mut c_uint,
    _: *mut *mut c_void,
    _: c_uint,
) -> CUresult {
    // SAFETY: the library passes its own variable.
    unsafe { library.write(without_provenance_mut(0x11b)) };
    say(format!("load {:#x}", code.addr()))
}

unsafe extern "C" fn unload(library: CUlibrary) -> CUresult {
    say(format!("unload {:#x}", library.addr()))
}

unsafe extern "C" fn get_kernel(
    kernel: *mut CUkernel,
    _library: CUlibrary,
    name: *const c_char,
) -> CUresult {
    // SAFETY: the test's own name.
    let number = match unsafe { CStr::from_ptr(name) } {
        name if name == c"missing" => return CUDA_ERROR_NOT_FOUND,
        name if name == NODES_KERNEL => 0x4e2,
        _ => 0x4e1,
    };
    // SAFETY: the library passes its own variable.
    unsafe { kernel.write(without_provenance_mut(number)) };
    CUDA_SUCCESS
}

unsafe extern "C" fn get_global(
    pointer: *mut CUdeviceptr,
    bytes: *mut usize,
    _library: CUlibrary,
    _name: *const c_char,
) -> CUresult {
    // SAFETY: the library passes its own variables.
    unsafe {
        pointer.write(0x5000);
        bytes.write(16);
    }
    CUDA_SUCCESS
}

unsafe extern "C" fn launch(
    function: CUfunction,
    gx: c_uint,
    _: c_uint,
    _: c_uint,
    bx: c_uint,
    _: c_uint,
    _: c_uint,
    shared: c_uint,
    stream: CUstream,
    _: *mut *mut c_void,
    _: *mut *mut c_void,
) -> CUresult {
    say(format!(
        "launch {:#x} {gx} {bx} {shared} {:#x}",
        function.addr(),
        stream.addr()
    ))
}

unsafe extern "C" fn pointer_attributes(
    _count: c_uint,
    _names: *mut c_uint,
    values: *mut *mut c_void,
    pointer: CUdeviceptr,
) -> CUresult {
    if pointer == 0x7000 {
        // SAFETY: the library's five variables, of the attributes' types.
        unsafe {
            (*values).cast::<c_uint>().write(CU_MEMORYTYPE_DEVICE);
            (*values.add(1)).cast::<c_int>().write(1);
            (*values.add(3)).cast::<u64>().write(pointer);
        }
    }
    CUDA_SUCCESS
}

/// The name of a kernel with its own handle. All tests share one registry, which finds a stub by its kernel's handle.
pub const NODES_KERNEL: &CStr = c"kernel of nodes";
/// The distance of a function's handle from its kernel's.
pub const FUNCTION: usize = 0x1000;
/// The number of each kernel's parameters.
pub const PARAMETERS: usize = 3;

unsafe extern "C" fn kernel_function(function: *mut CUfunction, kernel: CUkernel) -> CUresult {
    // SAFETY: the library passes its own variable.
    unsafe { function.write(without_provenance_mut(kernel.addr() + FUNCTION)) };
    CUDA_SUCCESS
}

unsafe extern "C" fn param_count(kernel: CUkernel, count: *mut usize) -> CUresult {
    // SAFETY: the test's own variable.
    unsafe { count.write(PARAMETERS) };
    say(format!("count {:#x}", kernel.addr()))
}

unsafe extern "C" fn param_info(
    _kernel: CUkernel,
    index: usize,
    _offset: *mut usize,
    _size: *mut usize,
) -> CUresult {
    match index < PARAMETERS {
        true => say(format!("parameter {index}")),
        false => CUDA_ERROR_INVALID_VALUE,
    }
}

unsafe extern "C" fn condition(
    _handle: *mut u64,
    graph: CUgraph,
    context: CUcontext,
    value: c_uint,
    flags: c_uint,
) -> CUresult {
    let (graph, context) = (graph.addr(), context.addr());
    say(format!("condition {graph:#x} {context:#x} {value} {flags}"))
}

unsafe extern "C" fn batch(
    dsts: *mut CUdeviceptr,
    srcs: *mut CUdeviceptr,
    sizes: *mut usize,
    count: usize,
    attributes: *mut CUmemcpyAttributes,
    starts: *mut usize,
    kinds: usize,
    stream: CUstream,
) -> CUresult {
    // SAFETY: arrays with an entry each.
    let (dst, src, size, order, start) = unsafe {
        let order = attributes.as_ref().map(|of| of.srcAccessOrder);
        (*dsts, *srcs, *sizes, order, *starts)
    };
    let stream = stream.addr();
    say(format!(
        "batch {count} {dst:#x} {src:#x} {size} {kinds} {start} {order:?} {stream:#x}"
    ))
}

unsafe extern "C" fn batch3d(
    count: usize,
    list: *mut c_void,
    flags: u64,
    stream: CUstream,
) -> CUresult {
    let (list, stream) = (list.addr(), stream.addr());
    say(format!("batch3d {count} {list:#x} {flags} {stream:#x}"))
}

unsafe extern "C" fn host(stream: CUstream, _function: CUhostFn, data: *mut c_void) -> CUresult {
    say(format!("host {:#x} {:#x}", stream.addr(), data.addr()))
}

unsafe extern "C" fn host_in(
    stream: CUstream,
    _function: CUhostFn,
    data: *mut c_void,
    mode: c_uint,
) -> CUresult {
    let (stream, data) = (stream.addr(), data.addr());
    say(format!("host {stream:#x} {data:#x} in mode {mode}"))
}

/// Arrays of bytes with four rows. The last digit of an array's handle is the length of its rows.
unsafe extern "C" fn describe(to: *mut CUDA_ARRAY3D_DESCRIPTOR, array: CUarray) -> CUresult {
    let description = CUDA_ARRAY3D_DESCRIPTOR {
        Width: array.addr() & 0xf,
        Height: 4,
        Depth: 0,
        Format: CU_AD_FORMAT_UNSIGNED_INT8,
        NumChannels: 1,
        Flags: 0,
    };
    // SAFETY: the library passes its own variable.
    unsafe { to.write(description) };
    CUDA_SUCCESS
}

fn copy_rows(copy: &CUDA_MEMCPY2D) -> String {
    let end = |kind, array: CUarray, x: usize, y: usize| match kind {
        CU_MEMORYTYPE_ARRAY => format!("{:#x}[{x},{y}]", array.addr()),
        other => format!("memory of type {other}"),
    };
    let to = end(
        copy.dstMemoryType,
        copy.dstArray,
        copy.dstXInBytes,
        copy.dstY,
    );
    let from = end(
        copy.srcMemoryType,
        copy.srcArray,
        copy.srcXInBytes,
        copy.srcY,
    );
    format!("{}x{} {to} from {from}", copy.WidthInBytes, copy.Height)
}

unsafe extern "C" fn copy2d(copy: *const CUDA_MEMCPY2D) -> CUresult {
    // SAFETY: the library's own structure.
    say(copy_rows(unsafe { &*copy }))
}

unsafe extern "C" fn copy2d_async(copy: *const CUDA_MEMCPY2D, stream: CUstream) -> CUresult {
    // SAFETY: as above.
    let rows = copy_rows(unsafe { &*copy });
    say(format!("{rows} {:#x}", stream.addr()))
}

/// Functions that answer with a number: the sum of their own and the object's handle.
macro_rules! numbers {
    ($($name:ident $object:ty, $number:ty = $own:literal;)*) => {$(
        unsafe extern "C" fn $name(object: $object, to: *mut $number) -> CUresult {
            // SAFETY: the test's own variable.
            unsafe { to.write(($own + object.addr()) as $number) };
            say(stringify!($name).into())
        }
    )*};
}

numbers! {
    containing_graph CUgraphNode, CUgraph = 0x100;
    local_id CUgraphNode, c_uint = 0x200;
    tools_id CUgraphNode, u64 = 0x300;
    graph_id CUgraph, c_uint = 0x400;
    exec_id CUgraphExec, c_uint = 0x500;
}

unsafe extern "C" fn node_get(_node: CUgraphNode, to: *mut c_void) -> CUresult {
    // SAFETY: the library's own structure.
    unsafe { to.cast::<[u64; 32]>().write(NODE.get()) };
    say("get".into())
}

unsafe extern "C" fn node_set(_node: CUgraphNode, from: *mut c_void) -> CUresult {
    // SAFETY: as above.
    NODE.set(unsafe { from.cast::<[u64; 32]>().read() });
    say("set".into())
}

unsafe extern "C" fn node_add(
    _node: *mut CUgraphNode,
    _graph: CUgraph,
    _dependencies: *const CUgraphNode,
    _edges: *const c_void,
    _count: usize,
    parameters: *mut c_void,
) -> CUresult {
    // SAFETY: as above.
    unsafe { node_set(null_mut(), parameters) }
}

/// Formats the nonzero words of each semaphore's parameters, with their indices.
fn semaphores(what: &str, parameters: *const c_void, count: c_uint, stream: CUstream) -> CUresult {
    let mut text = format!("{what} {:#x}", stream.addr());
    if parameters.is_null() {
        text += " of nothing";
    } else {
        for index in 0..count as usize {
            // SAFETY: so many structures of 36 words, the last of which pads and may hold anything.
            let words = unsafe {
                parameters
                    .cast::<[u32; 36]>()
                    .add(index)
                    .cast::<[u32; 35]>()
                    .read()
            };
            let words = words.iter().enumerate().filter(|(_, word)| **word != 0);
            text += &format!(" {:?}", words.collect::<Vec<_>>());
        }
    }
    say(text)
}

unsafe extern "C" fn signal(
    _semaphores: *const *mut c_void,
    parameters: *const c_void,
    count: c_uint,
    stream: CUstream,
) -> CUresult {
    semaphores("signal", parameters, count, stream)
}

unsafe extern "C" fn wait(
    _semaphores: *const *mut c_void,
    parameters: *const c_void,
    count: c_uint,
    stream: CUstream,
) -> CUresult {
    semaphores("wait", parameters, count, stream)
}

/// Looks up a function of this driver.
pub fn find(name: &CStr) -> *mut c_void {
    let address = match name.to_str().unwrap_or("") {
        "cuInit" => ok as *const (),
        "virtio_gpgpu_trace" => super::traced::switch as *const (),
        "cuDriverGetVersion" => driver_version as *const (),
        "cuDeviceGetCount" => device_count as *const (),
        "cuDeviceGetName" => device_name as *const (),
        "cuDeviceTotalMem_v2" => total_mem as *const (),
        "cuDeviceGetAttribute" => device_attribute as *const (),
        "cuDevicePrimaryCtxRetain" => retain as *const (),
        "cuDevicePrimaryCtxRelease_v2" => release as *const (),
        "cuDevicePrimaryCtxReset_v2" => reset as *const (),
        "cuDevicePrimaryCtxGetState" => state as *const (),
        "cuCtxGetCurrent" => get_current as *const (),
        "cuCtxSetCurrent" => set_current as *const (),
        "cuCtxGetDevice" => context_device as *const (),
        "cuMemAlloc_v2" => alloc as *const (),
        "cuMemAllocManaged" => alloc_managed as *const (),
        "cuStreamQuery" => stream_query as *const (),
        "cuStreamSynchronize" => stream_synchronize as *const (),
        "cuMemcpyHtoD_v2" => htod as *const (),
        "cuMemcpyHtoDAsync_v2" => htod_async as *const (),
        "cuLibraryLoadData" => load as *const (),
        "cuLibraryUnload" => unload as *const (),
        "cuLibraryGetKernel" => get_kernel as *const (),
        "cuLibraryGetGlobal" => get_global as *const (),
        "cuLaunchKernel" => launch as *const (),
        "cuPointerGetAttributes" => pointer_attributes as *const (),
        "cuKernelGetFunction" => kernel_function as *const (),
        "cuKernelGetParamCount" => param_count as *const (),
        "cuKernelGetParamInfo" => param_info as *const (),
        "cuGraphConditionalHandleCreate" => condition as *const (),
        "cuMemcpyBatchAsync_v2" => batch as *const (),
        "cuMemcpy3DBatchAsync_v2" => batch3d as *const (),
        "cuLaunchHostFunc" => host as *const (),
        "cuLaunchHostFunc_v2" => host_in as *const (),
        "cuArray3DGetDescriptor_v2" => describe as *const (),
        "cuMemcpy2DUnaligned_v2" => copy2d as *const (),
        "cuMemcpy2DAsync_v2" => copy2d_async as *const (),
        "cuGraphNodeGetContainingGraph" => containing_graph as *const (),
        "cuGraphNodeGetLocalId" => local_id as *const (),
        "cuGraphNodeGetToolsId" => tools_id as *const (),
        "cuGraphGetId" => graph_id as *const (),
        "cuGraphExecGetId" => exec_id as *const (),
        "cuGraphNodeGetParams" => node_get as *const (),
        "cuGraphNodeSetParams" => node_set as *const (),
        "cuGraphAddNode_v2" => node_add as *const (),
        "cuGraphInstantiateWithFlags" => instantiate as *const (),
        "cuGraphExecUpdate_v2" => update as *const (),
        "cuKernelGetAttribute" => kernel_attribute as *const (),
        "cuSignalExternalSemaphoresAsync" => signal as *const (),
        "cuWaitExternalSemaphoresAsync" => wait as *const (),
        _ => std::ptr::null(),
    };
    address.cast_mut().cast()
}
