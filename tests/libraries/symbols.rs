// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Guest programs that look up cuBLAS's symbols by themselves, like a C program's loader.

use std::{
    ffi::c_void,
    io::{BufRead, stdin},
    ptr::null_mut,
};

use cudarc::driver::sys::{self, CUresult, CUstream};
use libloading::Library;

/// Statuses of cuBLAS.
pub const SUCCESS: u32 = 0;
pub const NOT_INITIALIZED: u32 = 1;
const ALLOC_FAILED: u32 = 3;
pub const INVALID_VALUE: u32 = 7;

/// Rows and columns of matrices.
const N: usize = 64;
const BYTES: usize = N * N * 4;

/// Makes a call of CUDA that must succeed.
macro_rules! cuda {
    ($name:ident($($arg:expr),*)) => {
        // SAFETY: pointers are to values that live across the call, or to as many bytes as it says.
        assert_eq!(unsafe { sys::$name($($arg),*) }, CUresult::CUDA_SUCCESS, stringify!($name))
    };
}
pub(crate) use cuda;

/// The guest's cuBLAS, or another library.
pub struct Blas(Library);

impl Blas {
    pub fn open() -> Self {
        Self::open_file("libcublas.so.13")
    }

    pub fn open_file(file: &str) -> Self {
        // SAFETY: the initialisers of the library are this project's own.
        Self(unsafe { Library::new(file) }.unwrap())
    }

    /// Calls a function whose arguments are integers and pointers. Each takes a register, whose low half is an `int`.
    pub fn call(&self, name: &str, words: &[u64]) -> u32 {
        macro_rules! by_count {
            ($($($word:ident)*;)*) => {
                match *words {
                    $([$($word),*] => {
                        type Function = unsafe extern "C" fn($(by_count!(@ $word)),*) -> u32;
                        // SAFETY: the function takes so many such arguments, which are good or are refused.
                        unsafe { self.0.get::<Function>(name.as_bytes()).unwrap()($($word),*) }
                    })*
                    _ => panic!("{name} of {} arguments", words.len()),
                }
            };
            (@ $word:ident) => { u64 };
        }
        by_count! {
            ;
            a;
            a b;
            a b c;
            a b c d;
            a b c d e;
            a b c d e f;
            a b c d e f g;
            a b c d e f g h;
            a b c d e f g h i;
            a b c d e f g h i j;
            a b c d e f g h i j k;
            a b c d e f g h i j k l m n;
            a b c d e f g h i j k l m n o p;
        }
    }

    pub fn create(&self) -> Result<u64, u32> {
        let mut handle = 0_u64;
        match self.call("cublasCreate_v2", &[(&raw mut handle) as u64]) {
            SUCCESS => Ok(handle),
            status => Err(status),
        }
    }

    /// Reads a setting back.
    fn told(&self, name: &str, handle: u64) -> u64 {
        let mut value = 0_u64;
        let status = self.call(name, &[handle, (&raw mut value) as u64]);
        assert_eq!(status, SUCCESS, "{name}");
        value
    }

    /// C = alpha A B for square matrices, with this leading dimension.
    fn multiply(&self, handle: u64, alpha: Option<&f32>, at: [u64; 3], columns: [usize; 3]) -> u32 {
        let n = N as u64;
        let zero = 0_f32;
        let alpha = alpha.map_or(0, |alpha| std::ptr::from_ref(alpha) as u64);
        let beta = (&raw const zero) as u64;
        let ([a, b, c], [lda, ldb, ldc]) = (at, columns.map(|columns| columns as u64));
        let words = [handle, 0, 0, n, n, n, alpha, a, lda, b, ldb, beta, c, ldc];
        self.call("cublasSgemm_v2", &words)
    }
}

pub fn begin() {
    let mut context = null_mut();
    cuda!(cuInit(0));
    cuda!(cuDevicePrimaryCtxRetain(&mut context, 0));
    cuda!(cuCtxSetCurrent(context));
}

pub fn new_stream() -> CUstream {
    let mut stream = null_mut();
    cuda!(cuStreamCreate(&mut stream, 1));
    stream
}

pub fn alloc(bytes: usize) -> u64 {
    let mut address = 0;
    cuda!(cuMemAlloc_v2(&mut address, bytes));
    address
}

pub fn synchronize() -> CUresult {
    // SAFETY: it takes nothing.
    unsafe { sys::cuCtxSynchronize() }
}

/// Settings, and uses of invalid handles.
pub fn settings() {
    begin();
    let blas = Blas::open();
    let handle = blas.create().unwrap();
    let other = blas.create().unwrap();
    let names = ["MathMode", "PointerMode_v2", "AtomicsMode"];
    for name in names {
        let (set, get) = (format!("cublasSet{name}"), format!("cublasGet{name}"));
        assert_eq!(blas.told(&get, handle), 0, "{name}");
        for value in [1, 0, 1] {
            assert_eq!(blas.call(&set, &[handle, value]), SUCCESS, "{name}");
            assert_eq!(blas.told(&get, handle), value, "{name}");
            assert_eq!(blas.told(&get, other), 0, "{name}");
        }
    }
    assert_eq!(blas.told("cublasGetStream_v2", handle), 0);
    for stream in [new_stream(), new_stream(), null_mut()] {
        let words = [handle, stream as u64];
        assert_eq!(blas.call("cublasSetStream_v2", &words), SUCCESS);
        assert_eq!(blas.told("cublasGetStream_v2", handle), stream as u64);
    }
    let version = blas.told("cublasGetVersion_v2", handle);
    assert!(version > 12_000);
    assert_eq!(blas.told("cublasGetVersion_v2", 0), version);
    assert_eq!(
        blas.call("cublasSetPointerMode_v2", &[handle, 9]),
        INVALID_VALUE
    );

    assert_eq!(blas.call("cublasDestroy_v2", &[handle]), SUCCESS);
    let memory = alloc(BYTES);
    let mut value = 0_u64;
    let to = (&raw mut value) as u64;
    for none in [handle, 0, 1, u64::MAX, other | 0x60, other + 0x100] {
        for name in names {
            let (set, get) = (format!("cublasSet{name}"), format!("cublasGet{name}"));
            assert_eq!(blas.call(&set, &[none, 1]), NOT_INITIALIZED, "{none:#x}");
            assert_eq!(blas.call(&get, &[none, to]), NOT_INITIALIZED, "{none:#x}");
        }
        for (name, words) in [
            ("cublasDestroy_v2", &[none][..]),
            ("cublasSetStream_v2", &[none, 0]),
            // This function also works without a handle.
            ("cublasGetVersion_v2", &[none.max(1), to]),
            ("cublasSasum_v2", &[none, 1, memory, 1, to]),
        ] {
            assert_eq!(blas.call(name, words), NOT_INITIALIZED, "{name} {none:#x}");
        }
        let product = blas.multiply(none, Some(&1.0), [memory; 3], [N; 3]);
        assert_eq!(product, NOT_INITIALIZED, "{none:#x}");
    }
    assert_eq!(value, 0);
    // The other one is not affected.
    let product = blas.multiply(other, Some(&1.0), [memory; 3], [N; 3]);
    assert_eq!(product, SUCCESS);
    assert_eq!(synchronize(), CUresult::CUDA_SUCCESS);
    assert_eq!(blas.call("cublasDestroy_v2", &[other]), SUCCESS);
    assert_eq!(blas.call("cublasDestroy_v2", &[other]), NOT_INITIALIZED);
}

/// A refused call is refused every time, whatever was accepted or set meanwhile.
pub fn sizes() {
    begin();
    let blas = Blas::open();
    let handle = blas.create().unwrap();
    let [a, b, c] = [(); 3].map(|()| alloc(BYTES));
    let one = 1_f32;
    for round in 0..5 {
        for (mode, said) in [(77, INVALID_VALUE), (round % 2, SUCCESS)] {
            let status = blas.call("cublasSetMathMode", &[handle, mode]);
            assert_eq!(status, said, "mode {mode}, round {round}");
        }
        for columns in [[N - 1, N, N], [N, 0, N], [N, N, N - 1]] {
            let status = blas.multiply(handle, Some(&one), [a, b, c], columns);
            assert_eq!(status, INVALID_VALUE, "{columns:?}, round {round}");
        }
        let status = blas.multiply(handle, None, [a, b, c], [N; 3]);
        assert_eq!(status, INVALID_VALUE, "without alpha, round {round}");
        let words = [handle, N as u64, a, 1, 0];
        assert_eq!(blas.call("cublasSasum_v2", &words), INVALID_VALUE);
        for _ in 0..2 {
            let status = blas.multiply(handle, Some(&one), [a, b, c], [N; 3]);
            assert_eq!(status, SUCCESS, "round {round}");
        }
    }
    // The calls were refused at once, so no error is left.
    assert_eq!(synchronize(), CUresult::CUDA_SUCCESS);
    assert_eq!(blas.call("cublasDestroy_v2", &[handle]), SUCCESS);
}

/// Copies before and after products, in one stream.
pub fn transfers() {
    begin();
    let blas = Blas::open();
    let memory = alloc(4096);
    let pointer = |values: &mut [u32]| values.as_mut_ptr() as u64;
    // Three columns of two rows, from columns of five into columns of four.
    let mut matrix: Vec<u32> = (0..15).collect();
    let stream = new_stream() as u64;
    for (end, stream) in [
        ("", None),
        ("_64", None),
        ("Async", Some(stream)),
        ("Async_64", Some(stream)),
    ] {
        let mut back = [99_u32; 9];
        let call = |name: &str, words: [u64; 7]| {
            let words: Vec<u64> = words.into_iter().chain(stream).collect();
            blas.call(&format!("cublas{name}{end}"), &words)
        };
        let there = [2, 3, 4, pointer(&mut matrix), 5, memory, 4];
        assert_eq!(call("SetMatrix", there), SUCCESS, "{end}");
        let here = [2, 3, 4, memory, 4, pointer(&mut back), 3];
        assert_eq!(call("GetMatrix", here), SUCCESS, "{end}");
        assert_eq!(synchronize(), CUresult::CUDA_SUCCESS);
        assert_eq!(back, [0, 1, 99, 5, 6, 99, 10, 11, 99], "{end}");
        for wrong in [[2, 3, 4, 0, 1, memory, 4], [2, 3, 0, 0, 5, memory, 4]] {
            assert_eq!(call("SetMatrix", wrong), INVALID_VALUE, "{end}");
        }
    }
    // Every third value into every second one; and all of them.
    for (steps, expected) in [([3, 2, 1], [0, 3, 6, 9]), ([1, 1, 1], [0, 1, 2, 3])] {
        let mut back = [99_u32; 4];
        let [from, to, end] = steps;
        let there = [4, 4, pointer(&mut matrix), from, memory, to];
        assert_eq!(blas.call("cublasSetVector", &there), SUCCESS);
        let here = [4, 4, memory, to, pointer(&mut back), end];
        assert_eq!(blas.call("cublasGetVector_64", &here), SUCCESS);
        assert_eq!(back, expected);
    }
    let wrong = [4, 4, memory, 0, pointer(&mut matrix), 1];
    assert_eq!(blas.call("cublasGetVector", &wrong), INVALID_VALUE);
}

pub fn order() {
    begin();
    let blas = Blas::open();
    let handle = blas.create().unwrap();
    let stream = new_stream();
    let words = [handle, stream as u64];
    assert_eq!(blas.call("cublasSetStream_v2", &words), SUCCESS);
    let [a, b, c, kept] = [(); 4].map(|()| alloc(BYTES));
    let identity: Vec<f32> = (0..N * N)
        .map(|at| f32::from(u8::from(at % (N + 1) == 0)))
        .collect();
    let from = |values: &[f32]| values.as_ptr().cast::<c_void>();
    cuda!(cuMemcpyHtoD_v2(b, from(&identity), BYTES));
    // The stream is non-blocking, and the copy may have returned before its bytes are there.
    assert_eq!(synchronize(), CUresult::CUDA_SUCCESS);
    let mut got = vec![0_f32; N * N];
    for round in 0..20 {
        let values: Vec<f32> = (0..N * N).map(|at| (at % 100 + round) as f32).collect();
        let wrong = vec![-1_f32; N * N];
        cuda!(cuMemcpyHtoDAsync_v2(a, from(&values), BYTES, stream));
        let mut alpha = 2_f32;
        let status = blas.multiply(handle, Some(&alpha), [a, b, c], [N; 3]);
        assert_eq!(status, SUCCESS);
        // The scalar in host memory was already read.
        alpha += 100.0;
        std::hint::black_box(&alpha);
        cuda!(cuMemcpyHtoDAsync_v2(a, from(&wrong), BYTES, stream));
        cuda!(cuMemcpyDtoDAsync_v2(kept, c, BYTES, stream));
        cuda!(cuMemcpyHtoDAsync_v2(c, from(&wrong), BYTES, stream));
        let to = got.as_mut_ptr().cast::<c_void>();
        cuda!(cuMemcpyDtoHAsync_v2(to, kept, BYTES, stream));
        cuda!(cuStreamSynchronize(stream));
        let right: Vec<f32> = values.iter().map(|value| 2.0 * value).collect();
        assert!(got == right, "round {round}");
    }
}

/// A device's green context, and one of its streams.
fn green_context(driver: &Blas) -> (u64, CUstream) {
    // Room for a `CUdevResource`, twice.
    let (mut whole, mut group) = ([0_u64; 32], [0_u64; 32]);
    let (whole, group) = (whole.as_mut_ptr() as u64, group.as_mut_ptr() as u64);
    let (mut count, mut descriptor, mut green, mut stream) = (1_u32, 0_u64, 0_u64, null_mut());
    let call = |name, words: &[u64]| assert_eq!(driver.call(name, words), SUCCESS, "{name}");
    // Multiprocessors; the context has a default stream, for which the other stream does not wait.
    call("cuDeviceGetDevResource", &[0, whole, 1]);
    let words = [group, (&raw mut count) as u64, whole, 0, 0, 8];
    call("cuDevSmResourceSplitByCount", &words);
    let words = [(&raw mut descriptor) as u64, group, 1];
    call("cuDevResourceGenerateDesc", &words);
    let words = [(&raw mut green) as u64, descriptor, 0, 1];
    call("cuGreenCtxCreate", &words);
    let words = [(&raw mut stream) as u64, green, 1, 0];
    call("cuGreenCtxStreamCreate", &words);
    (green, stream)
}

/// Handles and streams of a primary context and of one of its green contexts, mixed as in frameworks.
pub fn green() {
    begin();
    let (blas, driver) = (Blas::open(), Blas::open_file("libcuda.so.1"));
    let first = blas.create().unwrap();
    let [ones, to] = [(); 2].map(|()| alloc(BYTES));
    cuda!(cuMemsetD32_v2(ones, 1_f32.to_bits(), N * N));
    let multiply = |handle, stream: CUstream| {
        cuda!(cuMemsetD32_v2(to, 0, N * N));
        // The streams are non-blocking.
        assert_eq!(synchronize(), CUresult::CUDA_SUCCESS);
        let words = [handle, stream as u64];
        assert_eq!(blas.call("cublasSetStream_v2", &words), SUCCESS);
        let status = blas.multiply(handle, Some(&1.0), [ones, ones, to], [N; 3]);
        assert_eq!(status, SUCCESS);
        cuda!(cuStreamSynchronize(stream));
        let mut got = [0_f32; 2];
        cuda!(cuMemcpyDtoH_v2(got.as_mut_ptr().cast(), to, 8));
        assert_eq!(got, [N as f32; 2]);
    };
    // Later calls of this form do not wait.
    let plain = new_stream();
    multiply(first, plain);

    let mut primary = null_mut();
    cuda!(cuCtxGetCurrent(&mut primary));
    let (green, own) = green_context(&driver);
    let mut context = null_mut();
    let words = [(&raw mut context) as u64, green];
    assert_eq!(driver.call("cuCtxFromGreenCtx", &words), SUCCESS);
    cuda!(cuCtxSetCurrent(context));
    let second = blas.create().unwrap();
    for current in [primary, context] {
        cuda!(cuCtxSetCurrent(current));
        for handle in [first, second] {
            for stream in [own, plain, null_mut()] {
                multiply(handle, stream);
            }
        }
    }
    cuda!(cuCtxSetCurrent(primary));
    for handle in [first, second] {
        assert_eq!(blas.call("cublasDestroy_v2", &[handle]), SUCCESS);
    }
    cuda!(cuStreamDestroy_v2(own));
    assert_eq!(driver.call("cuGreenCtxDestroy", &[green]), SUCCESS);
}

/// A product of unallocated memory, in a posted call.
pub fn fault() {
    begin();
    let blas = Blas::open();
    let handle = blas.create().unwrap();
    let [a, b, c] = [(); 3].map(|()| alloc(BYTES));
    let one = 1_f32;
    let good = blas.multiply(handle, Some(&one), [a, b, c], [N; 3]);
    assert_eq!(good, SUCCESS);
    assert_eq!(synchronize(), CUresult::CUDA_SUCCESS);
    let nobodys = 1 << 46;
    let posted = blas.multiply(handle, Some(&one), [a, b, nobodys], [N; 3]);
    assert_eq!(posted, SUCCESS, "the same was accepted before");
    assert_eq!(synchronize(), CUresult::CUDA_ERROR_ILLEGAL_ADDRESS);
    // As after a kernel's fault, nothing in this process works any more.
    let mut address = 0;
    // SAFETY: the pointer is to a value that lives across the call.
    let code = unsafe { sys::cuMemAlloc_v2(&mut address, BYTES) };
    assert_eq!(code, CUresult::CUDA_ERROR_ILLEGAL_ADDRESS);
    let mut sum = 0_f32;
    let words = [handle, N as u64, a, 1, (&raw mut sum) as u64];
    assert_ne!(blas.call("cublasSasum_v2", &words), SUCCESS);
}

/// The host has no cuBLAS.
pub fn without() {
    begin();
    let blas = Blas::open();
    for _ in 0..2 {
        assert_eq!(blas.create(), Err(NOT_INITIALIZED));
    }
    let address = alloc(BYTES);
    let (values, mut got) = (vec![7_u8; BYTES], vec![0_u8; BYTES]);
    cuda!(cuMemcpyHtoD_v2(address, values.as_ptr().cast(), BYTES));
    cuda!(cuMemcpyDtoH_v2(got.as_mut_ptr().cast(), address, BYTES));
    assert!(values == got);
    assert_eq!(synchronize(), CUresult::CUDA_SUCCESS);
}

/// Handles within a limit: one without room, and then one with room.
pub fn limit() {
    begin();
    let blas = Blas::open();
    // Leaves half of a handle's memory free, whatever the context takes.
    let (mut free, mut total) = (0, 0);
    cuda!(cuMemGetInfo_v2(&mut free, &mut total));
    let left = (crate::HANDLE / 2) as usize;
    assert!(free > left, "{free} bytes of {total} are free");
    let all = alloc((free - left) & !((2 << 20) - 1));
    for _ in 0..2 {
        assert_eq!(blas.create(), Err(ALLOC_FAILED));
    }
    cuda!(cuMemFree_v2(all));
    let handle = blas.create().expect("there is room again");
    assert_eq!(blas.call("cublasDestroy_v2", &[handle]), SUCCESS);
    println!("freed");
    let mut handles = Vec::new();
    for line in stdin().lock().lines() {
        match line.unwrap().as_str() {
            "make" => {
                handles.push(blas.create().unwrap());
                println!("made");
            }
            "destroy" => {
                let handle = handles.pop().unwrap();
                assert_eq!(blas.call("cublasDestroy_v2", &[handle]), SUCCESS);
                println!("destroyed");
            }
            other => panic!("{other}"),
        }
    }
}
