// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The common part of the tests: the API as a C program sees it, and a stream that a test holds and lets go.
#![allow(dead_code, missing_docs)]

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::process::Command;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicU32, Ordering};

use gpgpu_protocol::cuda::*;
use software_gpu as _;

unsafe extern "C" {
    pub fn cuInit(flags: c_uint) -> CUresult;
    pub fn cuDriverGetVersion(version: *mut c_int) -> CUresult;
    pub fn cuGetErrorName(code: CUresult, name: *mut *const c_char) -> CUresult;
    pub fn cuGetExportTable(table: *mut *const c_void, id: *const CUuuid) -> CUresult;
    pub fn cuDeviceGet(device: *mut CUdevice, ordinal: c_int) -> CUresult;
    pub fn cuDeviceGetCount(count: *mut c_int) -> CUresult;
    pub fn cuDeviceGetUuid_v2(uuid: *mut CUuuid, device: CUdevice) -> CUresult;
    pub fn cuDeviceGetName(name: *mut c_char, length: c_int, device: CUdevice) -> CUresult;
    pub fn cuDeviceGetAttribute(v: *mut c_int, w: CUdevice_attribute, d: CUdevice) -> CUresult;
    pub fn cuDeviceTotalMem_v2(bytes: *mut usize, device: CUdevice) -> CUresult;
    pub fn cuDevicePrimaryCtxRetain(context: *mut CUcontext, device: CUdevice) -> CUresult;
    pub fn cuDevicePrimaryCtxRelease_v2(device: CUdevice) -> CUresult;
    pub fn cuDevicePrimaryCtxSetFlags_v2(device: CUdevice, flags: c_uint) -> CUresult;
    pub fn cuDevicePrimaryCtxReset_v2(device: CUdevice) -> CUresult;
    pub fn cuDevicePrimaryCtxGetState(d: CUdevice, f: *mut c_uint, active: *mut c_int) -> CUresult;
    pub fn cuCtxCreate_v2(context: *mut CUcontext, flags: c_uint, device: CUdevice) -> CUresult;
    pub fn cuCtxDestroy_v2(context: CUcontext) -> CUresult;
    pub fn cuCtxPushCurrent_v2(context: CUcontext) -> CUresult;
    pub fn cuCtxPopCurrent_v2(context: *mut CUcontext) -> CUresult;
    pub fn cuCtxSetCurrent(context: CUcontext) -> CUresult;
    pub fn cuCtxGetCurrent(context: *mut CUcontext) -> CUresult;
    pub fn cuCtxGetDevice(device: *mut CUdevice) -> CUresult;
    pub fn cuCtxSynchronize() -> CUresult;
    pub fn cuMemGetInfo_v2(free: *mut usize, total: *mut usize) -> CUresult;
    pub fn cuMemAlloc_v2(out: *mut CUdeviceptr, size: usize) -> CUresult;
    pub fn cuMemAllocPitch_v2(
        o: *mut CUdeviceptr,
        p: *mut usize,
        w: usize,
        h: usize,
        e: c_uint,
    ) -> CUresult;
    pub fn cuMemFree_v2(address: CUdeviceptr) -> CUresult;
    pub fn cuMemAllocAsync(out: *mut CUdeviceptr, size: usize, stream: CUstream) -> CUresult;
    pub fn cuMemFreeAsync(address: CUdeviceptr, stream: CUstream) -> CUresult;
    pub fn cuMemGetAddressRange_v2(b: *mut CUdeviceptr, s: *mut usize, a: CUdeviceptr) -> CUresult;
    pub fn cuMemAllocManaged(out: *mut CUdeviceptr, size: usize, flags: c_uint) -> CUresult;
    pub fn cuMemGetAllocationGranularity(
        g: *mut usize,
        p: *const CUmemAllocationProp,
        o: CUmemAllocationGranularity_flags,
    ) -> CUresult;
    pub fn cuMemAddressReserve(
        out: *mut CUdeviceptr,
        size: usize,
        alignment: usize,
        wish: CUdeviceptr,
        flags: u64,
    ) -> CUresult;
    pub fn cuMemAddressFree(address: CUdeviceptr, size: usize) -> CUresult;
    pub fn cuMemCreate(
        out: *mut CUmemGenericAllocationHandle,
        size: usize,
        p: *const CUmemAllocationProp,
        flags: u64,
    ) -> CUresult;
    pub fn cuMemRelease(handle: CUmemGenericAllocationHandle) -> CUresult;
    pub fn cuMemMap(
        address: CUdeviceptr,
        size: usize,
        offset: usize,
        handle: CUmemGenericAllocationHandle,
        flags: u64,
    ) -> CUresult;
    pub fn cuMemUnmap(address: CUdeviceptr, size: usize) -> CUresult;
    pub fn cuMemSetAccess(
        address: CUdeviceptr,
        size: usize,
        list: *const CUmemAccessDesc,
        count: usize,
    ) -> CUresult;
    pub fn cuMemGetAccess(f: *mut u64, l: *const CUmemLocation, a: CUdeviceptr) -> CUresult;
    pub fn cuMemExportToShareableHandle(
        out: *mut c_void,
        handle: CUmemGenericAllocationHandle,
        kind: CUmemAllocationHandleType,
        flags: u64,
    ) -> CUresult;
    pub fn cuMemImportFromShareableHandle(
        out: *mut CUmemGenericAllocationHandle,
        shareable: *mut c_void,
        kind: CUmemAllocationHandleType,
    ) -> CUresult;
    pub fn cuMemGetAllocationPropertiesFromHandle(
        out: *mut CUmemAllocationProp,
        handle: CUmemGenericAllocationHandle,
    ) -> CUresult;
    pub fn cuMemRetainAllocationHandle(
        out: *mut CUmemGenericAllocationHandle,
        address: *mut c_void,
    ) -> CUresult;
    pub fn cuMemHostAlloc(out: *mut *mut c_void, size: usize, flags: c_uint) -> CUresult;
    pub fn cuMemFreeHost(pointer: *mut c_void) -> CUresult;
    pub fn cuMemHostRegister_v2(pointer: *mut c_void, size: usize, flags: c_uint) -> CUresult;
    pub fn cuMemHostUnregister(pointer: *mut c_void) -> CUresult;
    pub fn cuMemHostGetDevicePointer_v2(o: *mut CUdeviceptr, p: *mut c_void, f: c_uint)
    -> CUresult;
    pub fn cuPointerGetAttribute(
        data: *mut c_void,
        which: CUpointer_attribute,
        a: CUdeviceptr,
    ) -> CUresult;
    pub fn cuPointerGetAttributes(
        n: c_uint,
        which: *const u32,
        data: *const *mut c_void,
        a: CUdeviceptr,
    ) -> CUresult;
    pub fn cuMemcpy(dst: CUdeviceptr, src: CUdeviceptr, size: usize) -> CUresult;
    pub fn cuMemcpyHtoD_v2(dst: CUdeviceptr, src: *const c_void, size: usize) -> CUresult;
    pub fn cuMemcpyDtoH_v2(dst: *mut c_void, src: CUdeviceptr, size: usize) -> CUresult;
    pub fn cuMemcpyDtoD_v2(dst: CUdeviceptr, src: CUdeviceptr, size: usize) -> CUresult;
    pub fn cuMemcpyHtoDAsync_v2(
        dst: CUdeviceptr,
        src: *const c_void,
        size: usize,
        s: CUstream,
    ) -> CUresult;
    pub fn cuMemcpyDtoHAsync_v2(
        dst: *mut c_void,
        src: CUdeviceptr,
        size: usize,
        s: CUstream,
    ) -> CUresult;
    pub fn cuMemcpyBatchAsync(
        dsts: *mut CUdeviceptr,
        srcs: *mut CUdeviceptr,
        sizes: *mut usize,
        count: usize,
        attributes: *mut CUmemcpyAttributes,
        starts: *mut usize,
        attribute_count: usize,
        failed: *mut usize,
        s: CUstream,
    ) -> CUresult;
    pub fn cuMemcpyBatchAsync_v2(
        dsts: *mut CUdeviceptr,
        srcs: *mut CUdeviceptr,
        sizes: *mut usize,
        count: usize,
        attributes: *mut CUmemcpyAttributes,
        starts: *mut usize,
        attribute_count: usize,
        s: CUstream,
    ) -> CUresult;
    pub fn cuMemcpy2D_v2(what: *const CUDA_MEMCPY2D) -> CUresult;
    pub fn cuMemsetD8_v2(dst: CUdeviceptr, value: u8, count: usize) -> CUresult;
    pub fn cuMemsetD16_v2(dst: CUdeviceptr, value: u16, count: usize) -> CUresult;
    pub fn cuMemsetD32_v2(dst: CUdeviceptr, value: u32, count: usize) -> CUresult;
    pub fn cuMemsetD32Async(dst: CUdeviceptr, value: u32, count: usize, s: CUstream) -> CUresult;
    pub fn cuMemsetD32Async_ptsz(d: CUdeviceptr, v: u32, count: usize, s: CUstream) -> CUresult;
    pub fn cuMemsetD2D16_v2(d: CUdeviceptr, pitch: usize, v: u16, w: usize, h: usize) -> CUresult;
    pub fn cuStreamCreate(stream: *mut CUstream, flags: c_uint) -> CUresult;
    pub fn cuStreamDestroy_v2(stream: CUstream) -> CUresult;
    pub fn cuStreamQuery(stream: CUstream) -> CUresult;
    pub fn cuStreamQuery_ptsz(stream: CUstream) -> CUresult;
    pub fn cuStreamSynchronize(stream: CUstream) -> CUresult;
    pub fn cuStreamSynchronize_ptsz(stream: CUstream) -> CUresult;
    pub fn cuStreamWaitEvent(stream: CUstream, event: CUevent, flags: c_uint) -> CUresult;
    pub fn cuStreamWaitValue32_v2(s: CUstream, a: CUdeviceptr, v: u32, f: c_uint) -> CUresult;
    pub fn cuStreamWaitValue32_v2_ptsz(s: CUstream, a: CUdeviceptr, v: u32, f: c_uint) -> CUresult;
    pub fn cuStreamWriteValue32_v2(s: CUstream, a: CUdeviceptr, v: u32, f: c_uint) -> CUresult;
    pub fn cuStreamAddCallback(
        s: CUstream,
        f: CUstreamCallback,
        data: *mut c_void,
        flags: c_uint,
    ) -> CUresult;
    pub fn cuLaunchHostFunc(s: CUstream, f: CUhostFn, data: *mut c_void) -> CUresult;
    pub fn cuStreamBeginCapture_v2(s: CUstream, mode: CUstreamCaptureMode) -> CUresult;
    pub fn cuStreamIsCapturing(s: CUstream, status: *mut CUstreamCaptureStatus) -> CUresult;
    pub fn cuGraphCreate(graph: *mut CUgraph, flags: c_uint) -> CUresult;
    pub fn cuGraphDestroy(graph: CUgraph) -> CUresult;
    pub fn cuGraphInstantiateWithFlags(
        exec: *mut CUgraphExec,
        graph: CUgraph,
        flags: u64,
    ) -> CUresult;
    pub fn cuEventCreate(event: *mut CUevent, flags: c_uint) -> CUresult;
    pub fn cuEventDestroy_v2(event: CUevent) -> CUresult;
    pub fn cuEventRecord(event: CUevent, stream: CUstream) -> CUresult;
    pub fn cuEventQuery(event: CUevent) -> CUresult;
    pub fn cuEventSynchronize(event: CUevent) -> CUresult;
    pub fn cuEventElapsedTime(ms: *mut f32, start: CUevent, end: CUevent) -> CUresult;
    pub fn cuModuleLoad(module: *mut CUmodule, path: *const c_char) -> CUresult;
    pub fn cuModuleLoadData(module: *mut CUmodule, image: *const c_void) -> CUresult;
    pub fn cuModuleLoadDataEx(
        m: *mut CUmodule,
        i: *const c_void,
        n: c_uint,
        o: *mut CUjit_option,
        v: *mut *mut c_void,
    ) -> CUresult;
    pub fn cuModuleUnload(module: CUmodule) -> CUresult;
    pub fn cuModuleGetFunction(f: *mut CUfunction, m: CUmodule, name: *const c_char) -> CUresult;
    pub fn cuModuleGetGlobal_v2(
        a: *mut CUdeviceptr,
        n: *mut usize,
        m: CUmodule,
        name: *const c_char,
    ) -> CUresult;
    pub fn cuLibraryLoadData(
        l: *mut CUlibrary,
        i: *const c_void,
        jo: *mut CUjit_option,
        jv: *mut *mut c_void,
        jn: c_uint,
        o: *mut CUlibraryOption,
        v: *mut *mut c_void,
        n: c_uint,
    ) -> CUresult;
    pub fn cuLibraryUnload(library: CUlibrary) -> CUresult;
    pub fn cuLibraryGetKernel(k: *mut CUkernel, l: CUlibrary, name: *const c_char) -> CUresult;
    pub fn cuKernelGetFunction(f: *mut CUfunction, k: CUkernel) -> CUresult;
    pub fn cuKernelGetParamInfo(k: CUkernel, i: usize, o: *mut usize, s: *mut usize) -> CUresult;
    pub fn cuFuncGetAttribute(v: *mut c_int, a: CUfunction_attribute, f: CUfunction) -> CUresult;
    pub fn cuFuncSetAttribute(f: CUfunction, a: CUfunction_attribute, v: c_int) -> CUresult;
    pub fn cuFuncGetParamInfo(f: CUfunction, i: usize, o: *mut usize, s: *mut usize) -> CUresult;
    pub fn cuOccupancyMaxActiveBlocksPerMultiprocessor(
        n: *mut c_int,
        f: CUfunction,
        t: c_int,
        s: usize,
    ) -> CUresult;
    pub fn cuLaunchKernel(
        f: CUfunction,
        gx: c_uint,
        gy: c_uint,
        gz: c_uint,
        bx: c_uint,
        by: c_uint,
        bz: c_uint,
        shared: c_uint,
        s: CUstream,
        params: *mut *mut c_void,
        extra: *mut *mut c_void,
    ) -> CUresult;
    pub fn cuLaunchCooperativeKernel(
        f: CUfunction,
        gx: c_uint,
        gy: c_uint,
        gz: c_uint,
        bx: c_uint,
        by: c_uint,
        bz: c_uint,
        shared: c_uint,
        s: CUstream,
        params: *mut *mut c_void,
    ) -> CUresult;
}

/// A call, made unsafe once: arguments in these tests are valid or deliberately not.
macro_rules! cu {
    ($call:expr) => {{
        // SAFETY: pointers in these tests are NULL or valid; handles may be anything.
        unsafe { $call }
    }};
}

/// A call that must succeed.
macro_rules! ok {
    ($call:expr) => {
        assert_eq!(
            $crate::common::cu!($call),
            CUDA_SUCCESS,
            "{}",
            stringify!($call)
        )
    };
}

// Some tests do not use both.
#[allow(unused_imports)]
pub(crate) use {cu, ok};

pub const NULL_STREAM: CUstream = null_mut();

/// Initialises the driver and makes a context of the thread's own current.
pub fn context() -> CUcontext {
    ok!(cuInit(0));
    let mut context = null_mut();
    ok!(cuCtxCreate_v2(&mut context, 0, 0));
    context
}

pub fn stream(flags: u32) -> CUstream {
    let mut stream = null_mut();
    ok!(cuStreamCreate(&mut stream, flags));
    stream
}

pub fn event(flags: u32) -> CUevent {
    let mut event = null_mut();
    ok!(cuEventCreate(&mut event, flags));
    event
}

pub fn alloc(size: usize) -> CUdeviceptr {
    let mut address = 0;
    ok!(cuMemAlloc_v2(&mut address, size));
    address
}

/// Pinned memory, as words.
pub fn pinned(words: usize) -> &'static [AtomicU32] {
    let mut p = null_mut();
    ok!(cuMemHostAlloc(&mut p, words * 4, 0));
    // SAFETY: the allocation has that many words, zeroed; no test uses it after freeing it.
    unsafe { std::slice::from_raw_parts(p.cast(), words) }
}

/// Words of device memory.
pub fn read(address: CUdeviceptr, words: usize) -> Vec<u32> {
    let mut out = vec![0u32; words];
    ok!(cuMemcpyDtoH_v2(out.as_mut_ptr().cast(), address, words * 4));
    out
}

/// A stream that stands still until the test opens it.
pub struct Gate(&'static AtomicU32);

impl Gate {
    pub fn hold(stream: CUstream) -> Self {
        let gate = Self::unheld();
        ok!(cuStreamWaitValue32_v2(stream, gate.address(), 1, 1));
        gate
    }

    pub fn address(&self) -> CUdeviceptr {
        self.0.as_ptr() as CUdeviceptr
    }

    pub fn unheld() -> Self {
        Self(&pinned(1)[0])
    }

    pub fn open(&self) {
        self.0.store(1, Ordering::Release);
    }
}

/// Runs the rest of the test called `name` in a separate process, because it makes its process unusable. Returns true
/// in that process.
pub fn in_child(name: &str) -> bool {
    in_child_with(name, 1)
}

/// Like [`in_child`], with this number of devices.
pub fn in_child_with(name: &str, devices: usize) -> bool {
    const MARK: &str = "SOFTWARE_GPU_TEST_CHILD";
    if std::env::var_os(MARK).is_some() {
        return true;
    }
    let exe = std::env::current_exe().unwrap();
    let output = Command::new(exe)
        .args([name, "--exact", "--nocapture"])
        .env(MARK, "1")
        .env("VIRTIO_GPGPU_SOFTWARE_MEMORY", "64")
        .env("VIRTIO_GPGPU_SOFTWARE_DEVICES", devices.to_string())
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        output.status.success() && text.contains("1 passed"),
        "{}\n{text}\n{}",
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
    false
}

/// Loads PTX text.
pub fn module(text: &CStr) -> CUmodule {
    let mut module = null_mut();
    ok!(cuModuleLoadData(&mut module, text.as_ptr().cast()));
    module
}

pub fn function(module: CUmodule, name: &CStr) -> CUfunction {
    let mut function = null_mut();
    ok!(cuModuleGetFunction(&mut function, module, name.as_ptr()));
    function
}

/// Launches one-dimensional blocks with arguments by pointer.
pub fn launch(
    f: CUfunction,
    grid: u32,
    block: u32,
    stream: CUstream,
    arguments: &mut [*mut c_void],
) -> CUresult {
    let p = match arguments {
        [] => null_mut(),
        some => some.as_mut_ptr(),
    };
    cu!(cuLaunchKernel(
        f,
        grid,
        1,
        1,
        block,
        1,
        1,
        0,
        stream,
        p,
        null_mut()
    ))
}
