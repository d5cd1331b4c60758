// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! A test double of the driver. Its calls can be blocked inside. It records every use of an object that has ended, and
//! every end of an object in use: with a real driver, either is a use after free.

mod graphs;
mod memory;

use std::{
    cell::Cell,
    collections::{HashMap, HashSet},
    ffi::c_void,
    sync::{
        LazyLock,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use gpgpu_locks::{Condvar, Mutex, MutexGuard};
use gpgpu_protocol::cuda::*;
pub use graphs::*;
pub use memory::*;

#[derive(Debug, Default)]
struct State {
    made: u64,
    alive: HashSet<u64>,
    /// The number of calls that use each object.
    in_use: HashMap<u64, usize>,
    /// Functions whose calls are blocked, and those that were reached.
    held: HashSet<&'static str>,
    reached: HashSet<&'static str>,
    /// Every call that makes no object.
    calls: Vec<&'static str>,
    wrong: Vec<String>,
    /// Device memory, and its size in bytes.
    memory: HashMap<u64, usize>,
    /// The devices of contexts and of device memory; 0 where none is given.
    devices: HashMap<u64, CUdevice>,
}

static STATE: LazyLock<Mutex<State>> = LazyLock::new(Mutex::default);
static CHANGED: Condvar = Condvar::new();

thread_local! {
    static CURRENT: Cell<u64> = const { Cell::new(0) };
    static HERE: Cell<usize> = const { Cell::new(0) };
}

fn state() -> MutexGuard<'static, State> {
    STATE.lock()
}

/// Excludes other tests of this process from the driver until this is dropped, and forgets the recorded calls.
pub fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    let alone = ALONE.lock();
    state().calls.clear();
    alone
}

/// A watchdog for events that never come.
const LIMIT: Duration = Duration::from_secs(60);

/// Blocks calls of one function inside until this is dropped.
pub struct Held(&'static str);

/// Blocks the calls of a function.
pub fn hold(name: &'static str) -> Held {
    state().held.insert(name);
    Held(name)
}

impl Held {
    /// Waits until a call is inside.
    pub fn wait(&self) {
        let is_not_there = |state: &mut State| !state.reached.contains(self.0);
        let (state, waited) = CHANGED.wait_timeout_while(state(), LIMIT, is_not_there);
        drop(state);
        assert!(!waited.timed_out(), "{} is never called", self.0);
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let mut state = state();
        state.held.remove(self.0);
        state.reached.remove(self.0);
        CHANGED.notify_all();
    }
}

/// Whether a function is called, now or within this time.
pub fn is_called(name: &'static str, within: Duration) -> bool {
    let is_missing = |state: &mut State| !state.calls.contains(&name);
    let (state, _) = CHANGED.wait_timeout_while(state(), within, is_missing);
    state.calls.contains(&name)
}

/// The number of calls of a function.
pub fn calls(name: &'static str) -> usize {
    let state = state();
    state.calls.iter().filter(|called| **called == name).count()
}

/// Forgets all calls.
pub fn forget_calls() {
    state().calls.clear();
}

/// All calls so far.
pub fn all_calls() -> Vec<&'static str> {
    state().calls.clone()
}

/// The number of calls by this thread.
pub fn calls_here() -> usize {
    HERE.get()
}

/// The recorded errors: objects that were used after their end, or ended during their use.
pub fn wrong() -> Vec<String> {
    state().wrong.clone()
}

/// The number of bytes of the memory that starts there.
pub fn bytes_at(start: u64) -> Option<usize> {
    state().memory.get(&start).copied()
}

/// Makes an object that no test has to make by a call.
pub fn make() -> u64 {
    let mut state = state();
    state.made += 1;
    let made = 0x7000_0000 + (state.made << 4);
    state.alive.insert(made);
    made
}

fn made(to: *mut u64) -> CUresult {
    // SAFETY: the caller's pointer is to a handle or an address.
    unsafe { to.write(make()) };
    CUDA_SUCCESS
}

/// A call that uses the given objects and the current context; NULL is not an object.
fn call(name: &'static str, uses: &[u64]) -> CUresult {
    let uses: Vec<u64> = uses.iter().copied().chain([CURRENT.get()]).collect();
    let mut state = state();
    state.calls.push(name);
    HERE.set(HERE.get() + 1);
    for handle in uses.iter().filter(|handle| **handle > 2) {
        if !state.alive.contains(handle) {
            state.wrong.push(format!("{name} uses a destroyed object"));
        }
        *state.in_use.entry(*handle).or_default() += 1;
    }
    if state.held.contains(name) {
        state.reached.insert(name);
        CHANGED.notify_all();
        let is_held = |state: &mut State| state.held.contains(name);
        state = CHANGED.wait_while(state, is_held);
    }
    for handle in uses.iter().filter(|handle| **handle > 2) {
        if let Some(users) = state.in_use.get_mut(handle) {
            *users -= 1;
        }
    }
    CHANGED.notify_all();
    CUDA_SUCCESS
}

/// Ends an object.
fn end(name: &'static str, handle: u64) -> CUresult {
    let mut state = state();
    state.calls.push(name);
    if !state.alive.remove(&handle) {
        state
            .wrong
            .push(format!("{name} destroys a destroyed object"));
    }
    if state.in_use.get(&handle).is_some_and(|users| *users > 0) {
        state
            .wrong
            .push(format!("{name} destroys an object in use"));
    }
    CHANGED.notify_all();
    CUDA_SUCCESS
}

/// The function with this name; `None` if no test needs it.
pub fn symbol(name: &str) -> Option<*const c_void> {
    macro_rules! find {
        ($($function:ident)*) => {
            match name {
                $(stringify!($function) => Some($function as *const c_void),)*
                _ => on_stream(name),
            }
        };
    }
    find! {
        cuCtxSetCurrent cuCtxGetDevice cuCtxCreate_v2 cuCtxPopCurrent_v2 cuCtxDestroy_v2 cuCtxSynchronize
        cuStreamCreate cuStreamGetFlags cuStreamQuery cuStreamSynchronize cuStreamDestroy_v2
        cuEventCreate cuEventQuery cuEventRecord cuEventSynchronize cuEventDestroy_v2 cuArrayDestroy
        cuModuleUnload cuLaunchKernel
        cuMemGetInfo_v2 cuPointerGetAttribute cuMemAlloc_v2 cuMemFree_v2 cuMemGetAddressRange_v2 cuMemcpyAsync cuMemsetD8_v2
        cuMemHostRegister_v2 cuMemHostGetDevicePointer_v2 cuMemHostUnregister
        cuStreamEndCapture
        cuGraphCreate cuGraphDestroy cuGraphGetNodes cuGraphNodeGetType cuGraphAddKernelNode_v2 cuGraphAddMemcpyNode
        cuGraphAddMemsetNode cuGraphAddBatchMemOpNode cuGraphAddHostNode cuGraphAddEmptyNode cuGraphAddEventRecordNode cuGraphAddEventWaitNode
        cuGraphAddChildGraphNode cuGraphConditionalHandleCreate cuGraphAddNode_v2 cuGraphAddDependencies_v2 cuGraphKernelNodeSetAttribute cuGraphNodeGetDependencies_v2 cuGraphInstantiateWithFlags cuGraphExecDestroy cuGraphExecUpdate_v2 cuGraphLaunch cuGraphUpload
        cuDevicePrimaryCtxRelease_v2 cuDeviceGetDevResource cuGreenCtxGetDevResource cuDevSmResourceSplitByCount
        cuDevResourceGenerateDesc cuGreenCtxCreate cuCtxFromGreenCtx cuGreenCtxStreamCreate cuGreenCtxDestroy
        cuDeviceGet cuMemAddressReserve cuMemCreate cuMemRelease cuMemMap cuMemUnmap cuMemSetAccess
    }
}

/// The name under which calls of a library's functions are recorded.
pub const LIBRARY: &str = "a library's function";

/// The function of a library with this name.
pub fn library_symbol(name: &str) -> *const c_void {
    extern "C" fn create(to: *mut u64) -> CUresult {
        made(to)
    }
    extern "C" fn destroy(handle: u64) -> CUresult {
        end("destroy", handle)
    }
    // Works with any arguments, because the caller removes them again.
    extern "C" fn other() -> CUresult {
        call(LIBRARY, &[])
    }
    let mut functions = gpgpu_protocol::libraries::functions();
    match functions.find(|of| of.operation.name == name) {
        Some(of) if of.makes().is_some_and(|(at, _)| at == 0) => create as *const c_void,
        Some(of) if of.ends().is_some() => destroy as *const c_void,
        _ => other as *const c_void,
    }
}

/// Functions that take a stream or none, and do nothing.
macro_rules! on_stream {
    ($(fn $function:ident($($before:ty),*; $stream:tt $(, $after:ty)*);)*) => {
        fn on_stream(name: &str) -> Option<*const c_void> {
            match name {
                $(stringify!($function) => Some($function as *const c_void),)*
                _ => None,
            }
        }

        $(on_stream!(@ $function ($($before),*) $stream ($($after),*));)*
    };
    (@ $function:ident ($($before:ty),*) stream ($($after:ty),*)) => {
        #[allow(clippy::too_many_arguments)]
        extern "C" fn $function($(_: $before,)* stream: u64 $(, _: $after)*) -> CUresult {
            call(stringify!($function), &[stream])
        }
    };
    (@ $function:ident ($($before:ty),*) none ()) => {
        extern "C" fn $function($(_: $before),*) -> CUresult {
            call(stringify!($function), &[])
        }
    };
}

on_stream! {
    fn cuCtxResetPersistingL2Cache(; none);
    fn cuCtxRecordEvent(u64, u64; none);
    fn cuCtxWaitEvent(u64, u64; none);
    fn cuStreamWaitEvent(; stream, u64, u32);
    fn cuStreamBeginCapture_v2(; stream, u32);
    fn cuGraphKernelNodeSetParams_v2(u64, *const c_void; none);
    fn cuGraphDestroyNode(u64; none);
    fn cuGraphExecKernelNodeSetParams_v2(u64, u64, *const c_void; none);
    fn cuGraphExecMemcpyNodeSetParams(u64, u64, *const CUDA_MEMCPY3D, u64; none);
    fn cuGraphNodeSetEnabled(u64, u64, u32; none);
    fn cuEventRecordWithFlags(u64; stream, u32);
    fn cuStreamWriteValue32_v2(; stream, u64, u32, u32);
    fn cuStreamBatchMemOp_v2(; stream, u32, *const c_void, u32);
    fn cuLaunchHostFunc(; stream, *const c_void, *mut c_void);
    fn cuStreamAddCallback(; stream, *const c_void, *mut c_void, u32);
    fn cuMemcpyDtoD_v2(u64, u64, usize; none);
    fn cuMemcpyPeer(u64, u64, u64, u64, usize; none);
    fn cuMemcpyPeerAsync(u64, u64, u64, u64, usize; stream);
    fn cuMemcpyHtoDAsync_v2(u64, *const c_void, usize; stream);
    fn cuMemcpyDtoHAsync_v2(*mut c_void, u64, usize; stream);
    fn cuMemcpy2DAsync_v2(*const CUDA_MEMCPY2D; stream);
    fn cuMemcpy3DAsync_v2(*const CUDA_MEMCPY3D; stream);
    fn cuMemsetD8Async(u64, u8, usize; stream);
    fn cuMemsetD16_v2(u64, u16, usize; none);
    fn cuMemsetD16Async(u64, u16, usize; stream);
    fn cuMemsetD32_v2(u64, u32, usize; none);
    fn cuMemsetD32Async(u64, u32, usize; stream);
    fn cuMemsetD2D8_v2(u64, usize, u8, usize, usize; none);
    fn cuMemsetD2D8Async(u64, usize, u8, usize, usize; stream);
    fn cuMemsetD2D16_v2(u64, usize, u16, usize, usize; none);
    fn cuMemsetD2D16Async(u64, usize, u16, usize, usize; stream);
    fn cuMemsetD2D32_v2(u64, usize, u32, usize, usize; none);
    fn cuMemsetD2D32Async(u64, usize, u32, usize, usize; stream);
}

extern "C" fn cuCtxSetCurrent(context: u64) -> CUresult {
    CURRENT.set(context);
    CUDA_SUCCESS
}

extern "C" fn cuCtxGetDevice(device: *mut CUdevice) -> CUresult {
    // SAFETY: the caller's pointer is to a device.
    unsafe { device.write(current_device()) };
    CUDA_SUCCESS
}

fn current_device() -> CUdevice {
    let device = state().devices.get(&CURRENT.get()).copied();
    device.unwrap_or(0)
}

extern "C" fn cuCtxCreate_v2(context: *mut u64, _: u32, device: CUdevice) -> CUresult {
    let handle = make();
    state().devices.insert(handle, device);
    // SAFETY: the caller's pointer is to a handle.
    unsafe { context.write(handle) };
    CUDA_SUCCESS
}

extern "C" fn cuCtxPopCurrent_v2(_: *mut u64) -> CUresult {
    CURRENT.set(0);
    CUDA_SUCCESS
}

extern "C" fn cuCtxDestroy_v2(context: u64) -> CUresult {
    end("cuCtxDestroy_v2", context)
}

extern "C" fn cuDevicePrimaryCtxRelease_v2(_: CUdevice) -> CUresult {
    call("cuDevicePrimaryCtxRelease_v2", &[])
}

/// The bytes of a resource that belong to the driver. Only the driver may write them.
pub const INTERNAL: u32 = 0x5ec_2e70;

/// A resource of this many multiprocessors. The first word names its source.
fn resource(from: u32, count: u32) -> CUdevResource {
    let mut internal = [INTERNAL; 23];
    internal[0] = from;
    CUdevResource {
        type_: CU_DEV_RESOURCE_TYPE_SM,
        internal,
        sm: CUdevSmResource {
            smCount: count,
            ..CUdevSmResource::default()
        },
        ..CUdevResource::default()
    }
}

/// Whether this driver returned the resource, unchanged.
fn is_own(resource: &CUdevResource) -> bool {
    resource.internal[1..].iter().all(|word| *word == INTERNAL)
}

extern "C" fn cuDeviceGetDevResource(_: CUdevice, to: *mut CUdevResource, _: u32) -> CUresult {
    // SAFETY: the caller's pointer is to a resource.
    unsafe { to.write(resource(0, 16)) };
    call("cuDeviceGetDevResource", &[])
}

extern "C" fn cuGreenCtxGetDevResource(of: u64, to: *mut CUdevResource, _: u32) -> CUresult {
    // SAFETY: the caller's pointer is to a resource.
    unsafe { to.write(resource(0, 8)) };
    call("cuGreenCtxGetDevResource", &[of])
}

extern "C" fn cuDevSmResourceSplitByCount(
    groups: *mut CUdevResource,
    count: *mut u32,
    input: *const CUdevResource,
    remaining: *mut CUdevResource,
    _: u32,
    minimum: u32,
) -> CUresult {
    // SAFETY: the caller's pointers are to a resource and a number.
    let (input, most) = unsafe { (*input, *count) };
    if !is_own(&input) || minimum == 0 || minimum > input.sm.smCount {
        return CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;
    }
    let made = most.min(input.sm.smCount / minimum);
    // SAFETY: there is room for as many groups as the caller says, and for the remainder.
    unsafe {
        for at in 0..made {
            groups.add(at as usize).write(resource(at + 1, minimum));
        }
        *count = made;
        remaining.write(resource(99, input.sm.smCount - made * minimum));
    }
    call("cuDevSmResourceSplitByCount", &[])
}

extern "C" fn cuDevResourceGenerateDesc(
    to: *mut u64,
    resources: *const CUdevResource,
    count: u32,
) -> CUresult {
    for at in 0..count as usize {
        // SAFETY: the caller's list is so long.
        if !is_own(unsafe { &*resources.add(at) }) {
            state().wrong.push("a resource of somebody else's".into());
        }
    }
    call("cuDevResourceGenerateDesc", &[]);
    made(to)
}

extern "C" fn cuGreenCtxCreate(to: *mut u64, descriptor: u64, _: CUdevice, _: u32) -> CUresult {
    call("cuGreenCtxCreate", &[descriptor]);
    made(to)
}

extern "C" fn cuCtxFromGreenCtx(to: *mut u64, green: u64) -> CUresult {
    // SAFETY: the caller's pointer is to a handle.
    unsafe { to.write(green) };
    CUDA_SUCCESS
}

extern "C" fn cuGreenCtxStreamCreate(to: *mut u64, green: u64, _: u32, _: i32) -> CUresult {
    call("cuGreenCtxStreamCreate", &[green]);
    made(to)
}

extern "C" fn cuGreenCtxDestroy(green: u64) -> CUresult {
    end("cuGreenCtxDestroy", green)
}

extern "C" fn cuCtxSynchronize() -> CUresult {
    call("cuCtxSynchronize", &[])
}

extern "C" fn cuStreamCreate(stream: *mut u64, _: u32) -> CUresult {
    call("cuStreamCreate", &[]);
    made(stream)
}

extern "C" fn cuStreamGetFlags(_: u64, flags: *mut u32) -> CUresult {
    // SAFETY: the caller's pointer is to flags.
    unsafe { flags.write(0) };
    CUDA_SUCCESS
}

extern "C" fn cuStreamQuery(stream: u64) -> CUresult {
    call("cuStreamQuery", &[stream])
}

extern "C" fn cuStreamSynchronize(stream: u64) -> CUresult {
    call("cuStreamSynchronize", &[stream])
}

extern "C" fn cuStreamDestroy_v2(stream: u64) -> CUresult {
    end("cuStreamDestroy_v2", stream)
}

extern "C" fn cuEventCreate(event: *mut u64, _: u32) -> CUresult {
    made(event)
}

extern "C" fn cuEventRecord(event: u64, stream: u64) -> CUresult {
    call("cuEventRecord", &[event, stream])
}

/// Whether recorded events count as complete.
static ARE_OVER: AtomicBool = AtomicBool::new(true);

/// Sets whether events, recorded before or after this call, count as complete.
pub fn set_over(are_over: bool) {
    ARE_OVER.store(are_over, Ordering::SeqCst);
}

extern "C" fn cuEventQuery(event: u64) -> CUresult {
    call("cuEventQuery", &[event]);
    match ARE_OVER.load(Ordering::SeqCst) {
        true => CUDA_SUCCESS,
        false => CUDA_ERROR_NOT_READY,
    }
}

extern "C" fn cuEventSynchronize(event: u64) -> CUresult {
    call("cuEventSynchronize", &[event])
}

extern "C" fn cuArrayDestroy(array: u64) -> CUresult {
    end("cuArrayDestroy", array)
}

extern "C" fn cuEventDestroy_v2(event: u64) -> CUresult {
    end("cuEventDestroy_v2", event)
}

extern "C" fn cuModuleUnload(module: u64) -> CUresult {
    end("cuModuleUnload", module)
}

/// A function here is its module.
#[allow(clippy::too_many_arguments)]
extern "C" fn cuLaunchKernel(
    function: u64,
    _: u32,
    _: u32,
    _: u32,
    _: u32,
    _: u32,
    _: u32,
    _: u32,
    stream: u64,
    _: *mut *mut c_void,
    _: *mut *mut c_void,
) -> CUresult {
    call("cuLaunchKernel", &[function, stream])
}
