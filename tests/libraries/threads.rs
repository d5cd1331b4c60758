// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Guest programs about the thread and the context in which a library's call is made.

use std::{
    ffi::c_void,
    ptr::null_mut,
    sync::atomic::{AtomicBool, Ordering},
    thread,
};

use cudarc::driver::sys::{self, CUresult, CUstream};

use crate::{
    calls::open,
    device::{begin, call, cuda, download, new_stream, ok, synchronize, upload},
};

type Object = *mut u8;

/// `CU_STREAM_PER_THREAD`.
const PER_THREAD: usize = 2;

/// Holds a stream up until it may go on.
fn hold_up(stream: CUstream, go_on: &'static AtomicBool) {
    extern "C" fn wait(go_on: *mut c_void) {
        // SAFETY: `hold_up` gives a static of this type.
        let go_on = unsafe { &*go_on.cast::<AtomicBool>() };
        while !go_on.load(Ordering::Acquire) {
            thread::yield_now();
        }
    }
    let go_on = std::ptr::from_ref(go_on).cast_mut().cast();
    cuda!(cuLaunchHostFunc(stream, Some(wait), go_on));
}

/// A handle with the per-thread default stream runs each call in the stream of the thread that makes it.
pub fn own_streams() {
    begin();
    let blas = open("libcublas.so.13");
    let mut context = null_mut();
    cuda!(cuCtxGetCurrent(&mut context));
    let context = context as usize;
    let mut handle: Object = null_mut();
    ok!(blas, "cublasCreate_v2"; &mut handle);
    let (x, y) = (upload(&[1_f32]), upload(&[0_f32]));
    let shared = handle as usize;
    let add = move |blas: &libloading::Library| {
        let one = 1_f32;
        ok!(blas, "cublasSaxpy_v2"; shared as Object, 1_i32, &one, x, 1_i32, y, 1_i32);
    };
    // A thread sets the stream, computes and ends. Its stream ends with it.
    thread::scope(|scope| {
        scope.spawn(|| {
            cuda!(cuCtxSetCurrent(context as _));
            ok!(blas, "cublasSetStream_v2"; shared as Object, PER_THREAD);
            add(&blas);
            cuda!(cuStreamSynchronize(PER_THREAD as CUstream));
        });
    });
    add(&blas);
    cuda!(cuStreamSynchronize(PER_THREAD as CUstream));
    assert_eq!(download::<f32>(y, 1), [2.0]);

    // Another thread's stream is held up meanwhile, so that a call in it would not be complete.
    static GO_ON: AtomicBool = AtomicBool::new(false);
    thread::scope(|scope| {
        let (held, is_held) = std::sync::mpsc::channel();
        let blas = &blas;
        scope.spawn(move || {
            cuda!(cuCtxSetCurrent(context as _));
            add(blas);
            hold_up(PER_THREAD as CUstream, &GO_ON);
            held.send(()).unwrap();
        });
        is_held.recv().unwrap();
        add(blas);
        cuda!(cuStreamSynchronize(PER_THREAD as CUstream));
        GO_ON.store(true, Ordering::Release);
    });
    assert_eq!(download::<f32>(y, 1), [4.0]);

    // A stream of the program's is used by all threads again.
    let stream = new_stream();
    ok!(blas, "cublasSetStream_v2"; handle, stream);
    add(&blas);
    cuda!(cuStreamSynchronize(stream));
    assert_eq!(download::<f32>(y, 1), [5.0]);
    let mut set = null_mut::<u8>();
    ok!(blas, "cublasSetStream_v2"; handle, PER_THREAD);
    ok!(blas, "cublasGetStream_v2"; handle, &mut set);
    assert_eq!(set as usize, PER_THREAD);
    ok!(blas, "cublasDestroy_v2"; handle);
}

/// Whether the first device's primary context exists; an error before `cuInit`.
fn has_context() -> Result<bool, CUresult> {
    let (mut flags, mut is_active) = (0, 0);
    // SAFETY: the pointers are to values that live across the call.
    match unsafe { sys::cuDevicePrimaryCtxGetState(0, &mut flags, &mut is_active) } {
        CUresult::CUDA_SUCCESS => Ok(is_active != 0),
        code => Err(code),
    }
}

/// A library's version needs neither CUDA nor a context. A child that is forked afterwards can use CUDA.
pub fn questions() {
    // They stay loaded, as in a program.
    let load = |name| &*Box::leak(Box::new(open(name)));
    for (library, property) in [
        ("libcusolver.so.12", "cusolverGetProperty"),
        ("libcusparse.so.12", "cusparseGetProperty"),
        ("libcublas.so.13", "cublasGetProperty"),
        ("libcufft.so.12", "cufftGetProperty"),
        ("libcurand.so.10", "curandGetProperty"),
        ("libcudnn.so.9", "cudnnGetProperty"),
    ] {
        let mut part = 0_i32;
        ok!(load(library), property; 0_i32, &mut part);
        assert!(part > 0, "{property}");
    }
    let lt = load("libcublasLt.so.13");
    // SAFETY: the function takes nothing.
    let version = unsafe { lt.get::<unsafe extern "C" fn() -> usize>(b"cublasLtGetVersion") };
    // SAFETY: as above.
    assert!(unsafe { version.unwrap()() } > 0);
    assert_eq!(has_context(), Err(CUresult::CUDA_ERROR_NOT_INITIALIZED));

    // SAFETY: the child only calls CUDA and ends.
    let child = unsafe { nix::libc::fork() };
    if child == 0 {
        // SAFETY: no pointers; the process has to end without its parent's handlers.
        unsafe {
            let code = sys::cuInit(0);
            nix::libc::_exit(i32::from(code != CUresult::CUDA_SUCCESS));
        }
    }
    let mut status = 0;
    // SAFETY: the pointer is to a value that lives across the call.
    assert_eq!(unsafe { nix::libc::waitpid(child, &mut status, 0) }, child);
    assert_eq!(status, 0, "cuInit in a forked child");

    // A descriptor belongs to no context.
    cuda!(cuInit(0));
    let mut made: Object = null_mut();
    ok!(load("libcusparse.so.12"), "cusparseCreateMatDescr"; &mut made);
    ok!(load("libcudnn.so.9"), "cudnnCreateTensorDescriptor"; &mut made);
    assert_eq!(has_context(), Ok(false));
    let mut handle: Object = null_mut();
    ok!(load("libcublas.so.13"), "cublasCreate_v2"; &mut handle);
    assert_eq!(has_context(), Ok(true));
}

/// Numbers for the host concern no context and no capture of the program's.
pub fn host_numbers() {
    const COUNT: usize = 64;
    begin();
    let curand = open("libcurand.so.10");
    let generator = || {
        let mut made: Object = null_mut();
        ok!(curand, "curandCreateGeneratorHost"; &mut made, 100_i32);
        ok!(curand, "curandSetPseudoRandomGeneratorSeed"; made, 3_u64);
        made
    };
    let generate = |generator: Object| {
        let mut numbers = vec![-1_f32; COUNT];
        ok!(curand, "curandGenerateUniform"; generator, numbers.as_mut_ptr(), COUNT);
        numbers
    };
    let [first, other] = [generator(), generator()];
    let expected = generate(first);
    assert!(expected.iter().all(|number| (0.0..=1.0).contains(number)));

    // The generator's context is not current, and a host function holds its legacy stream up.
    static GO_ON: AtomicBool = AtomicBool::new(false);
    hold_up(null_mut(), &GO_ON);
    let mut beside = null_mut();
    cuda!(cuCtxCreate_v2(&mut beside, 0, 0));
    assert_eq!(generate(other), expected);
    GO_ON.store(true, Ordering::Release);
    cuda!(cuCtxDestroy_v2(beside));
    synchronize();

    let stream = new_stream();
    let mut graph = null_mut();
    let mode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_GLOBAL;
    cuda!(cuStreamBeginCapture_v2(stream, mode));
    generate(first);
    cuda!(cuStreamEndCapture(stream, &mut graph));
    for made in [first, other] {
        ok!(curand, "curandDestroyGenerator"; made);
    }
}
