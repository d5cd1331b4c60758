// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Tests of the runtime with a simulated driver. Each test runs in its own thread, so it has its own last error,
//! current context and record of driver calls.

mod eleven;
pub mod fake;
mod newer;
pub mod traced;

use crate::abi::*;
use fake::{NEXT, asked};
use gpgpu_protocol::cuda::*;
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::ptr::{null, null_mut, without_provenance, without_provenance_mut};

unsafe extern "C" {
    safe fn cudaGetLastError() -> cudaError_t;
    safe fn cudaPeekAtLastError() -> cudaError_t;
    safe fn cudaGetErrorName(error: cudaError_t) -> *const c_char;
    safe fn cudaGetErrorString(error: cudaError_t) -> *const c_char;
    safe fn cudaSetDevice(device: c_int) -> cudaError_t;
    safe fn cudaGetDevice(device: &mut c_int) -> cudaError_t;
    safe fn cudaDeviceReset() -> cudaError_t;
    safe fn cudaMalloc(pointer: &mut *mut c_void, bytes: usize) -> cudaError_t;
    safe fn cudaMallocManaged(
        pointer: &mut *mut c_void,
        bytes: usize,
        flags: c_uint,
    ) -> cudaError_t;
    safe fn cudaPointerGetAttributes(
        attributes: &mut [u64; 11],
        pointer: *const c_void,
    ) -> cudaError_t;
    safe fn cudaStreamQuery(stream: cudaStream_t) -> cudaError_t;
    safe fn cudaGraphCreate(graph: &mut cudaGraph_t, flags: c_uint) -> cudaError_t;
    safe fn cudaMemcpy(
        to: *mut c_void,
        from: *const c_void,
        bytes: usize,
        kind: c_uint,
    ) -> cudaError_t;
    safe fn cudaMemcpy_ptds(
        to: *mut c_void,
        from: *const c_void,
        bytes: usize,
        kind: c_uint,
    ) -> cudaError_t;
    safe fn cudaMemcpyAsync_ptsz(
        to: *mut c_void,
        from: *const c_void,
        bytes: usize,
        kind: c_uint,
        stream: cudaStream_t,
    ) -> cudaError_t;
    safe fn cudaMemcpy2D(
        to: *mut c_void,
        tp: usize,
        from: *const c_void,
        fp: usize,
        width: usize,
        height: usize,
        kind: c_uint,
    ) -> cudaError_t;
    safe fn cudaMemcpyToSymbol(
        symbol: *const c_void,
        from: *const c_void,
        bytes: usize,
        offset: usize,
        kind: c_uint,
    ) -> cudaError_t;
    safe fn cudaGetSymbolSize(size: &mut usize, symbol: *const c_void) -> cudaError_t;
    safe fn cudaLaunchKernel(
        function: *const c_void,
        grid: dim3,
        block: dim3,
        parameters: *mut *mut c_void,
        shared: usize,
        stream: cudaStream_t,
    ) -> cudaError_t;
    safe fn cudaLaunchKernel_ptsz(
        function: *const c_void,
        grid: dim3,
        block: dim3,
        parameters: *mut *mut c_void,
        shared: usize,
        stream: cudaStream_t,
    ) -> cudaError_t;
    safe fn cudart12_cudaGetDeviceProperties(prop: *mut u8, device: c_int) -> cudaError_t;
    safe fn cudart13_cudaGetDeviceProperties(prop: *mut u8, device: c_int) -> cudaError_t;
    safe fn __cudaRegisterFatBinary(wrapper: *const c_void) -> *mut *mut c_void;
    safe fn __cudaUnregisterFatBinary(handle: *mut *mut c_void);
    safe fn __cudaRegisterFunction(
        handle: *mut *mut c_void,
        host: *const c_void,
        device: *mut c_char,
        name: *const c_char,
        limit: c_int,
        tid: *mut c_void,
        bid: *mut c_void,
        block: *mut dim3,
        grid: *mut dim3,
        warp: *mut c_int,
    );
    safe fn __cudaRegisterVar(
        handle: *mut *mut c_void,
        host: *const c_void,
        device: *mut c_char,
        name: *const c_char,
        external: c_int,
        size: usize,
        constant: c_int,
        global: c_int,
    );
    safe fn __cudaPushCallConfiguration(
        grid: dim3,
        block: dim3,
        shared: usize,
        stream: cudaStream_t,
    ) -> c_uint;
    safe fn __cudaPopCallConfiguration(
        grid: &mut dim3,
        block: &mut dim3,
        shared: &mut usize,
        stream: &mut cudaStream_t,
    ) -> cudaError_t;
}

const HOST_TO_DEVICE: c_uint = 1;
const ONE: dim3 = dim3 { x: 1, y: 1, z: 1 };

const fn line(x: c_uint) -> dim3 {
    dim3 { x, y: 1, z: 1 }
}

/// The registrations of nvcc's code: an image with one kernel and one variable, at the addresses of `statics`.
struct Program {
    handle: *mut *mut c_void,
    kernel: *const c_void,
    variable: *const c_void,
}

#[repr(C)]
struct Wrapper(u32, u32, usize, usize);

fn register(name: &'static CStr) -> Program {
    let wrapper = Box::leak(Box::new(Wrapper(0x4662_43b1, 1, 0xfa7, 0)));
    let handle = __cudaRegisterFatBinary((&raw const *wrapper).cast());
    let statics: &'static [u8; 2] = Box::leak(Box::new([0; 2]));
    let (kernel, variable) = (
        (&raw const statics[0]).cast(),
        (&raw const statics[1]).cast(),
    );
    __cudaRegisterFunction(
        handle,
        kernel,
        null_mut(),
        name.as_ptr(),
        -1,
        null_mut(),
        null_mut(),
        null_mut(),
        null_mut(),
        null_mut(),
    );
    __cudaRegisterVar(
        handle,
        variable,
        null_mut(),
        c"variable".as_ptr(),
        0,
        16,
        0,
        0,
    );
    Program {
        handle,
        kernel,
        variable,
    }
}

fn launch(function: *const c_void, grid: dim3, block: dim3, shared: usize) -> cudaError_t {
    cudaLaunchKernel(function, grid, block, null_mut(), shared, null_mut())
}

#[test]
fn pitfall_12_managed_memory_that_is_refused_is_null() {
    let mut pointer = without_provenance_mut(1);
    assert_eq!(cudaMallocManaged(&mut pointer, 64, 1), 801);
    assert!(pointer.is_null());
    assert_eq!(cudaGetLastError(), 801);
}

#[test]
fn pitfall_16_unknown_pointers_are_unregistered() {
    let mut attributes = [u64::MAX; 11];
    let unknown = without_provenance::<c_void>(0x1234);
    assert_eq!(cudaPointerGetAttributes(&mut attributes, unknown), 0);
    // Type 0, device -2; no device pointer; the pointer itself; version 13's reserved words.
    assert_eq!(
        attributes,
        [0xffff_fffe_0000_0000, 0, 0x1234, 0, 0, 0, 0, 0, 0, 0, 0]
    );
    assert_eq!(
        cudaPointerGetAttributes(&mut attributes, without_provenance(0x7000)),
        0
    );
    assert_eq!(attributes[..3], [0x1_0000_0002, 0x7000, 0]);
}

#[test]
fn pitfall_21_each_kind_of_default_stream_reaches_the_driver() {
    let program = register(c"kernel");
    let (to, from) = (without_provenance_mut(0x7000), without_provenance(0x8000));
    assert_eq!(launch(program.kernel, ONE, ONE, 0), 0);
    assert_eq!(
        cudaLaunchKernel_ptsz(program.kernel, ONE, ONE, null_mut(), 0, null_mut()),
        0
    );
    assert_eq!(
        cudaLaunchKernel_ptsz(
            program.kernel,
            ONE,
            ONE,
            null_mut(),
            0,
            without_provenance_mut(1)
        ),
        0
    );
    assert_eq!(cudaMemcpy(to, from, 8, HOST_TO_DEVICE), 0);
    assert_eq!(cudaMemcpy_ptds(to, from, 8, HOST_TO_DEVICE), 0);
    assert_eq!(
        cudaMemcpyAsync_ptsz(to, from, 8, HOST_TO_DEVICE, null_mut()),
        0
    );
    assert_eq!(
        asked(),
        [
            "load 0xfa7",
            "launch 0x4e1 1 1 0 0x0",
            "launch 0x4e1 1 1 0 0x2",
            "launch 0x4e1 1 1 0 0x1",
            "HtoD 8",
            "HtoDAsync 8 0x2",
            "synchronize 0x2",
            "HtoDAsync 8 0x2",
        ]
    );
}

#[test]
fn pitfall_28_a_refused_launch_is_reported_once_and_not_sticky() {
    let program = register(c"kernel");
    NEXT.set(CUDA_ERROR_INVALID_VALUE);
    let load_fails = launch(program.kernel, ONE, ONE, 0);
    assert_eq!(load_fails, 1);
    assert_eq!(cudaGetLastError(), 1);
    assert_eq!(
        launch(program.kernel, ONE, ONE, 0),
        0,
        "the image is loaded on the second try"
    );
    for (grid, block) in [(line(0), ONE), (ONE, line(2048)), (line(70_000), ONE)] {
        NEXT.set(CUDA_ERROR_INVALID_VALUE);
        assert_eq!(
            launch(program.kernel, grid, block, 0),
            crate::error::bad_dimensions()
        );
        assert_eq!(cudaGetLastError(), crate::error::bad_dimensions());
        assert_eq!(cudaGetLastError(), 0);
    }
    NEXT.set(CUDA_ERROR_INVALID_VALUE);
    assert_eq!(launch(program.kernel, ONE, ONE, 1 << 20), 1);
    assert_eq!(
        launch(program.kernel, ONE, ONE, 1 << 40),
        1,
        "shared memory does not wrap"
    );
    NEXT.set(CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES);
    assert_eq!(launch(program.kernel, ONE, ONE, 0), 701);
}

#[test]
fn pitfall_30_31_the_last_error_is_the_threads_own() {
    assert_eq!(cudaSetDevice(99), 101);
    let elsewhere =
        std::thread::spawn(|| (cudaPeekAtLastError(), cudaSetDevice(0), cudaGetLastError()));
    assert_eq!(elsewhere.join().ok(), Some((0, 0, 0)));
    assert_eq!(cudaSetDevice(0), 0);
    assert_eq!(
        cudaPeekAtLastError(),
        101,
        "a success leaves the last error as it was"
    );
    assert_eq!(cudaStreamQuery(null_mut()), 600);
    assert_eq!(
        cudaPeekAtLastError(),
        101,
        "not being ready is no error to remember"
    );
    assert_eq!(cudaGetLastError(), 101);
    assert_eq!(cudaGetLastError(), 0);
}

#[test]
fn pitfall_32_arguments_have_the_native_codes() {
    let (device, host) = (without_provenance_mut(0x7000), without_provenance(0x8000));
    assert_eq!(cudaMemcpy(device, host, 4, 7), 21);
    assert_eq!(cudaMemcpy(null_mut(), host, 4, HOST_TO_DEVICE), 1);
    assert_eq!(cudaMemcpy(null_mut(), null(), 0, HOST_TO_DEVICE), 0);
    assert_eq!(cudaMemcpy2D(device, 4, host, 16, 16, 2, HOST_TO_DEVICE), 12);
    assert_eq!(asked(), [""; 0], "nothing of this is the driver's business");
    // SAFETY: static strings of the library's.
    unsafe {
        assert_eq!(
            CStr::from_ptr(cudaGetErrorName(700)),
            c"cudaErrorIllegalAddress"
        );
        assert_eq!(
            CStr::from_ptr(cudaGetErrorName(12345)),
            c"unrecognized error code"
        );
        assert_eq!(CStr::from_ptr(cudaGetErrorString(0)), c"no error");
    }
}

#[test]
fn pitfall_49_the_properties_of_each_version_end_where_they_should() {
    let mut twelve = [0xaa_u8; 1032];
    assert_eq!(cudart12_cudaGetDeviceProperties(twelve.as_mut_ptr(), 0), 0);
    assert_eq!(twelve[..5], *b"fake\0");
    assert_eq!(twelve[288..296], (1_u64 << 34).to_ne_bytes());
    // reservedSharedMemPerBlock is the last field of CUDA 11's structure.
    assert_eq!(twelve[720..728], 111_u64.to_ne_bytes());
    assert!(twelve[728..].iter().all(|&byte| byte == 0xaa));
    let mut thirteen = [0xaa_u8; 1016];
    assert_eq!(
        cudart13_cudaGetDeviceProperties(thirteen.as_mut_ptr(), 1),
        0
    );
    assert_eq!(
        thirteen[384..388],
        CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT.to_ne_bytes()
    );
    assert_eq!(thirteen[696..704], 111_u64.to_ne_bytes());
    assert!(thirteen[784..].iter().all(|&byte| byte == 0xaa), "reserved");
    assert_eq!(
        cudart13_cudaGetDeviceProperties(thirteen.as_mut_ptr(), 2),
        101
    );
}

#[test]
fn pitfall_53_an_image_is_loaded_when_first_used() {
    let program = register(c"kernel");
    let other = register(c"missing");
    assert_eq!(asked(), [""; 0]);
    let mut size = 0;
    assert_eq!(cudaGetSymbolSize(&mut size, program.variable), 0);
    assert_eq!(size, 16);
    assert_eq!(launch(program.kernel, ONE, ONE, 0), 0);
    assert_eq!(asked(), ["load 0xfa7", "launch 0x4e1 1 1 0 0x0"]);
    assert_eq!(launch(other.kernel, ONE, ONE, 0), 98);
    asked();
    __cudaUnregisterFatBinary(program.handle);
    assert_eq!(asked(), ["unload 0x11b"]);
    assert_eq!(cudaGetSymbolSize(&mut size, program.variable), 13);
}

#[test]
fn pitfall_58_after_a_reset_every_thread_gets_the_new_context() {
    let mut pointer = null_mut();
    assert_eq!(cudaSetDevice(1), 0);
    assert_eq!(cudaMalloc(&mut pointer, 8), 0);
    let (go, wait) = std::sync::mpsc::channel::<()>();
    let (ready, bound) = std::sync::mpsc::channel();
    let other = std::thread::spawn(move || {
        let mut pointer = null_mut();
        assert_eq!(cudaSetDevice(1), 0);
        assert_eq!(cudaMalloc(&mut pointer, 8), 0);
        ready.send(()).expect("the test waits");
        wait.recv().expect("the test goes on");
        asked();
        assert_eq!(cudaMalloc(&mut pointer, 8), 0);
        asked()
    });
    bound.recv().expect("the other thread has the old context");
    assert_eq!(cudaDeviceReset(), 0);
    assert_eq!(cudaMalloc(&mut pointer, 8), 0);
    assert_eq!(
        asked(),
        ["alloc 8 in 0x1001", "reset 1", "alloc 8 in 0x2001"]
    );
    go.send(()).expect("the other thread waits");
    assert_eq!(
        other.join().expect("the other thread finished"),
        ["alloc 8 in 0x2001"]
    );
    let mut device = 9;
    assert_eq!(cudaGetDevice(&mut device), 0);
    assert_eq!(device, 1);
}

#[test]
fn pitfall_63_a_function_that_is_no_kernel_never_reaches_the_driver() {
    extern "C" fn host() {}
    assert_eq!(
        launch(host as *const c_void, ONE, ONE, 0),
        crate::error::not_a_kernel()
    );
    assert_eq!(launch(null(), ONE, ONE, 0), 98);
    assert_eq!(asked(), [""; 0]);
    // A kernel handle of the driver is accepted as a kernel.
    assert_eq!(launch(without_provenance(0x10), ONE, ONE, 0), 0);
    assert_eq!(asked(), ["launch 0x10 1 1 0 0x0"]);
}

#[test]
fn a_context_of_the_programs_own_is_used() {
    fake::make_current(0xabc0);
    let mut pointer = null_mut();
    assert_eq!(cudaMalloc(&mut pointer, 8), 0);
    assert_eq!(asked(), ["alloc 8 in 0xabc0"]);
}

#[test]
fn a_function_that_the_driver_lacks_is_not_supported() {
    let mut graph = null_mut();
    assert_eq!(cudaGraphCreate(&mut graph, 0), 801);
    assert_eq!(cudaGetLastError(), 801);
}

#[test]
fn an_allocation_of_no_bytes_makes_no_driver_call() {
    let mut pointer = without_provenance_mut(1);
    assert_eq!(cudaMalloc(&mut pointer, 0), 0);
    assert!(pointer.is_null());
    NEXT.set(CUDA_ERROR_OUT_OF_MEMORY);
    assert_eq!(cudaMalloc(&mut pointer, 8), 2);
    assert_eq!(cudaGetLastError(), 2);
}

#[test]
fn copies_to_a_symbol_stay_inside_it() {
    let program = register(c"kernel");
    let host = without_provenance(0x8000);
    assert_eq!(
        cudaMemcpyToSymbol(program.variable, host, 8, 8, HOST_TO_DEVICE),
        0
    );
    assert_eq!(
        cudaMemcpyToSymbol(program.variable, host, 8, 9, HOST_TO_DEVICE),
        1
    );
    assert_eq!(
        cudaMemcpyToSymbol(program.variable, host, 8, usize::MAX, HOST_TO_DEVICE),
        1
    );
    assert_eq!(cudaMemcpyToSymbol(program.variable, host, 8, 0, 2), 21);
    assert_eq!(cudaMemcpyToSymbol(host, host, 8, 0, HOST_TO_DEVICE), 13);
}

/// An exception while a launch's arguments are computed leaves its configuration behind.
#[test]
fn configurations_that_nobody_takes_stop_no_launch() {
    std::thread::spawn(|| {
        for count in 0..100 {
            let pushed = __cudaPushCallConfiguration(line(count), line(1), 0, null_mut());
            assert_eq!(pushed, 0);
        }
        let (mut grid, mut block, mut shared, mut stream) = (ONE, ONE, 0, null_mut());
        for count in [99, 98] {
            let popped =
                __cudaPopCallConfiguration(&mut grid, &mut block, &mut shared, &mut stream);
            assert_eq!((popped, grid), (0, line(count)));
        }
    })
    .join()
    .unwrap();
}

#[test]
fn launch_configurations_nest() {
    let (mut grid, mut block, mut shared, mut stream) = (ONE, ONE, 0, null_mut());
    assert_eq!(
        __cudaPopCallConfiguration(&mut grid, &mut block, &mut shared, &mut stream),
        52
    );
    assert_eq!(
        __cudaPushCallConfiguration(line(2), line(3), 4, without_provenance_mut(5)),
        0
    );
    assert_eq!(
        __cudaPushCallConfiguration(line(6), line(7), 8, null_mut()),
        0
    );
    assert_eq!(
        __cudaPopCallConfiguration(&mut grid, &mut block, &mut shared, &mut stream),
        0
    );
    assert_eq!(
        (grid, block, shared, stream.addr()),
        (line(6), line(7), 8, 0)
    );
    assert_eq!(
        __cudaPopCallConfiguration(&mut grid, &mut block, &mut shared, &mut stream),
        0
    );
    assert_eq!(
        (grid, block, shared, stream.addr()),
        (line(2), line(3), 4, 5)
    );
}
