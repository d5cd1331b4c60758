// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! A driver for tests: it keeps per thread what was asked of it, and answers as it is told to.
#![allow(clippy::too_many_arguments)]

use gpgpu_protocol::cuda::*;
use std::cell::{Cell, RefCell};
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::ptr::{null_mut, without_provenance_mut};
use std::sync::atomic::{AtomicUsize, Ordering};

thread_local! {
    /// What the driver was asked, oldest first.
    pub static CALLS: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
    /// What the next call that may fail answers.
    pub static NEXT: Cell<CUresult> = const { Cell::new(CUDA_SUCCESS) };
    static CURRENT: Cell<CUcontext> = const { Cell::new(null_mut()) };
}

/// How often each device's primary context was made anew.
static GENERATIONS: [AtomicUsize; 2] = [const { AtomicUsize::new(1) }; 2];

fn say(call: String) -> CUresult {
    CALLS.with_borrow_mut(|calls| calls.push(call));
    NEXT.replace(CUDA_SUCCESS)
}

/// What was asked since the last time.
pub fn asked() -> Vec<String> {
    CALLS.take()
}

/// Makes a context of the test's own current, as a program does through the driver API.
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

/// Each attribute's value is its number, the limits of launches excepted.
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
    // SAFETY: the library passes its own variable and the test's name.
    let name = unsafe {
        kernel.write(without_provenance_mut(0x4e1));
        CStr::from_ptr(name)
    };
    if name == c"missing" {
        return CUDA_ERROR_NOT_FOUND;
    }
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

/// The functions that this driver has.
pub fn find(name: &CStr) -> *mut c_void {
    let address = match name.to_str().unwrap_or("") {
        "cuInit" => ok as *const (),
        "cuDriverGetVersion" => driver_version as *const (),
        "cuDeviceGetCount" => device_count as *const (),
        "cuDeviceGetName" => device_name as *const (),
        "cuDeviceTotalMem_v2" => total_mem as *const (),
        "cuDeviceGetAttribute" => device_attribute as *const (),
        "cuDevicePrimaryCtxRetain" => retain as *const (),
        "cuDevicePrimaryCtxReset_v2" => reset as *const (),
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
        _ => std::ptr::null(),
    };
    address.cast_mut().cast()
}
