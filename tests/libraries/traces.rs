// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! A guest program that profiles itself with CUPTI's activities.

use std::{
    collections::HashMap,
    ffi::{CStr, c_char, c_void},
    ptr::{null, null_mut},
    sync::{
        Mutex,
        atomic::{AtomicU32, Ordering},
    },
};

use cudarc::driver::sys::{self, CUgraph, CUgraphExec, CUresult, CUstream};
use gpgpu_protocol::cupti::{
    Api, CUSTOM0, ExternalCorrelation, Kernel, Memcpy, Memset, NOT_SUPPORTED, copy_kind, kind,
    memory_kind,
};
use libloading::Library;

use crate::{
    calls::{call, ok, open},
    device::{begin, cuda, download, new_stream, synchronize, upload},
};

/// Each thread adds one to a word of its own.
const PTX: &CStr = c"
.version 7.0
.target sm_50
.address_size 64
.visible .entry add_one(.param .u64 words)
{
    .reg .b32 %r<4>;
    .reg .b64 %d<4>;
    ld.param.u64 %d1, [words];
    mov.u32 %r1, %tid.x;
    mov.u32 %r2, %ctaid.x;
    mad.lo.u32 %r1, %r2, 64, %r1;
    mul.wide.u32 %d2, %r1, 4;
    add.s64 %d3, %d1, %d2;
    ld.global.u32 %r2, [%d3];
    add.u32 %r3, %r2, 1;
    st.global.u32 [%d3], %r3;
    ret;
}";

/// More than the ring's blocks take.
const LARGE: usize = 8 << 20;
/// The size of the program's buffers.
const BUFFER: usize = 64 << 10;

/// A record, as far as the tests look at it.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Record {
    Kernel(u32, String, [i32; 3]),
    Copy(u32, u8, u64, [u8; 2]),
    Fill(u32, u32, u64),
    Call(u32, String),
    Number(u32, u64),
}

/// The records, with the begin and the end of each; numbers have none.
static RECORDS: Mutex<Vec<(Record, u64, u64)>> = Mutex::new(Vec::new());

unsafe extern "C" fn requested(buffer: *mut *mut u8, size: *mut usize, most: *mut usize) {
    let memory = Box::leak(vec![0_u64; BUFFER / 8].into_boxed_slice());
    // SAFETY: CUPTI's values.
    unsafe {
        *buffer = memory.as_mut_ptr().cast();
        *size = BUFFER;
        *most = 0;
    }
}

unsafe extern "C" fn completed(_: *mut c_void, _: u32, buffer: *mut u8, _: usize, bytes: usize) {
    let cupti = open("libcupti.so.13");
    let mut at: *mut c_void = null_mut();
    while call!(cupti, cuptiActivityGetNextRecord(buffer, bytes, &mut at)) == 0 {
        // SAFETY: a record has the layout of its kind.
        let record = unsafe { read(&cupti, at) };
        RECORDS.lock().unwrap().extend(record);
    }
}

/// The name of a call's function.
fn name(cupti: &Library, of: &Api) -> String {
    let domain = if of.kind == kind::DRIVER { 1 } else { 2 };
    let mut name: *const c_char = null();
    ok!(cupti, cuptiGetCallbackName(domain, of.callback, &mut name));
    // SAFETY: the library's names are strings that live as long as it.
    unsafe { CStr::from_ptr(name) }.to_str().unwrap().to_owned()
}

unsafe fn read(cupti: &Library, at: *const c_void) -> Option<(Record, u64, u64)> {
    // SAFETY: promised by the caller.
    unsafe {
        Some(match at.cast::<u32>().read() {
            kind::CONCURRENT_KERNEL => {
                let of = &*at.cast::<Kernel>();
                let name = CStr::from_ptr(of.name).to_str().unwrap().to_owned();
                (
                    Record::Kernel(of.correlation, name, of.grid),
                    of.start,
                    of.end,
                )
            }
            kind::MEMCPY => {
                let of = &*at.cast::<Memcpy>();
                let kinds = [of.from_kind, of.to_kind];
                let copy = Record::Copy(of.correlation, of.copy_kind, of.bytes, kinds);
                (copy, of.start, of.end)
            }
            kind::MEMSET => {
                let of = &*at.cast::<Memset>();
                (
                    Record::Fill(of.correlation, of.value, of.bytes),
                    of.start,
                    of.end,
                )
            }
            kind::DRIVER | kind::RUNTIME => {
                let of = &*at.cast::<Api>();
                let name = name(cupti, of);
                (Record::Call(of.correlation, name), of.start, of.end)
            }
            kind::EXTERNAL_CORRELATION => {
                let of = &*at.cast::<ExternalCorrelation>();
                assert_eq!(of.external_kind, CUSTOM0);
                (Record::Number(of.correlation, of.external), 0, 0)
            }
            _ => return None,
        })
    }
}

/// All records until now.
fn take(cupti: &Library) -> Vec<(Record, u64, u64)> {
    synchronize();
    ok!(cupti, cuptiActivityFlushAll(0_u32));
    std::mem::take(&mut *RECORDS.lock().unwrap())
}

struct Program {
    function: sys::CUfunction,
    words: u64,
}

impl Program {
    fn new() -> Self {
        let (mut module, mut function, mut words) = (null_mut(), null_mut(), 0);
        cuda!(cuModuleLoadData(&mut module, PTX.as_ptr().cast()));
        cuda!(cuModuleGetFunction(
            &mut function,
            module,
            c"add_one".as_ptr()
        ));
        cuda!(cuMemAlloc_v2(&mut words, LARGE));
        Self { function, words }
    }

    fn launch(&self, stream: CUstream, blocks: u32) {
        let mut words = self.words;
        let mut arguments = [(&raw mut words).cast::<c_void>()];
        let (function, arguments) = (self.function, arguments.as_mut_ptr());
        cuda!(cuLaunchKernel(
            function,
            blocks,
            1,
            1,
            64,
            1,
            1,
            0,
            stream,
            arguments,
            null_mut()
        ));
    }
}

fn name_of(records: &[(Record, u64, u64)], correlation: u32) -> Vec<String> {
    let calls = records.iter().filter_map(|(record, ..)| match record {
        Record::Call(of, name) if *of == correlation => Some(name.clone()),
        _ => None,
    });
    calls.collect()
}

const KINDS: [u32; 5] = [
    kind::DRIVER,
    kind::CONCURRENT_KERNEL,
    kind::MEMCPY,
    kind::MEMSET,
    kind::EXTERNAL_CORRELATION,
];

fn enable(cupti: &Library) {
    let (requested, completed) = (requested as *const c_void, completed as *const c_void);
    ok!(cupti, cuptiActivityRegisterCallbacks(requested, completed));
    for kind in KINDS {
        ok!(cupti, cuptiActivityEnable(kind));
    }
}

/// Each piece of work has a record, which leads to the call and to the program's own number.
pub fn work() {
    let cupti = open("libcupti.so.13");
    begin();
    let program = Program::new();
    let stream = new_stream();
    program.launch(stream, 1);
    synchronize();
    enable(&cupti);
    let (mut began, mut ended) = (0_u64, 0_u64);
    ok!(cupti, cuptiGetTimestamp(&mut began));
    let small = [5_u32; 64];
    let mut large = vec![0_u32; LARGE / 4];
    ok!(
        cupti,
        cuptiActivityPushExternalCorrelationId(CUSTOM0, 42_u64)
    );
    cuda!(cuMemcpyHtoD_v2(program.words, small.as_ptr().cast(), 256));
    program.launch(stream, 2);
    let mut number = 0_u64;
    ok!(
        cupti,
        cuptiActivityPopExternalCorrelationId(CUSTOM0, &mut number)
    );
    assert_eq!(number, 42);
    cuda!(cuMemsetD32Async(program.words + 4096, 9, 1024, stream));
    synchronize();
    cuda!(cuMemcpyDtoH_v2(
        large.as_mut_ptr().cast(),
        program.words,
        LARGE
    ));
    assert_eq!((large[0], large[1024]), (6, 9));
    // Pinned memory, which the GPU reads by itself.
    let mut pinned: *mut c_void = null_mut();
    cuda!(cuMemAllocHost_v2(&mut pinned, 4096));
    cuda!(cuMemcpyHtoDAsync_v2(program.words, pinned, 4096, stream));
    let records = take(&cupti);
    ok!(cupti, cuptiGetTimestamp(&mut ended));

    // No work is missing, and nothing is there that the program did not do.
    let work: Vec<_> = records
        .iter()
        .filter(|(record, ..)| !matches!(record, Record::Call(..) | Record::Number(..)))
        .collect();
    let calls: Vec<_> = work
        .iter()
        .map(|(record, start, end)| {
            assert!(
                *start >= began && start <= end && *end <= ended,
                "{record:?} {start} {end}"
            );
            let (Record::Kernel(call, ..) | Record::Copy(call, ..) | Record::Fill(call, ..)) =
                record
            else {
                unreachable!()
            };
            let names = name_of(&records, *call);
            assert_eq!(names.len(), 1, "{record:?}");
            (names[0].clone(), record)
        })
        .collect();
    let find = |name: &str| {
        let of: Vec<_> = calls
            .iter()
            .filter(|(of, _)| of.starts_with(name))
            .collect();
        assert_eq!(of.len(), 1, "{name}: {calls:?}");
        of[0].1.clone()
    };
    let Record::Kernel(launch, name, grid) = find("cuLaunchKernel") else {
        panic!("{calls:?}")
    };
    assert_eq!((name.as_str(), grid), ("add_one", [2, 1, 1]));
    let (pageable, on_device) = (memory_kind::PAGEABLE, memory_kind::DEVICE);
    let Record::Copy(copy, kind, bytes, kinds) = find("cuMemcpyHtoD_v2") else {
        panic!("{calls:?}")
    };
    assert_eq!(
        (kind, bytes, kinds),
        (copy_kind::HTOD, 256, [pageable, on_device])
    );
    let Record::Copy(_, kind, bytes, kinds) = find("cuMemcpyDtoH_v2") else {
        panic!("{calls:?}")
    };
    assert_eq!(
        (kind, bytes, kinds),
        (copy_kind::DTOH, LARGE as u64, [on_device, pageable])
    );
    let Record::Copy(_, kind, bytes, kinds) = find("cuMemcpyHtoDAsync_v2") else {
        panic!("{calls:?}")
    };
    let from_pinned = [memory_kind::PINNED, on_device];
    assert_eq!((kind, bytes, kinds), (copy_kind::HTOD, 4096, from_pinned));
    assert!(matches!(find("cuMemsetD32Async"), Record::Fill(_, 9, 4096)));
    assert_eq!(calls.len(), 5, "{calls:?}");
    let numbers: HashMap<u32, u64> = records
        .iter()
        .filter_map(|(record, ..)| match record {
            Record::Number(call, number) => Some((*call, *number)),
            _ => None,
        })
        .collect();
    assert_eq!(numbers, HashMap::from([(launch, 42), (copy, 42)]));

    // Without kinds nothing is recorded.
    for kind in KINDS {
        ok!(cupti, cuptiActivityDisable(kind));
    }
    program.launch(stream, 1);
    assert_eq!(take(&cupti), []);
}

/// The kernels of a graph have records of their own, which lead to the graph's launch.
pub fn graphs() {
    let cupti = open("libcupti.so.13");
    begin();
    let program = Program::new();
    let stream = new_stream();
    enable(&cupti);
    let (mut graph, mut executable): (CUgraph, CUgraphExec) = (null_mut(), null_mut());
    let mode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_GLOBAL;
    cuda!(cuStreamBeginCapture_v2(stream, mode));
    program.launch(stream, 1);
    program.launch(stream, 3);
    cuda!(cuStreamEndCapture(stream, &mut graph));
    cuda!(cuGraphInstantiateWithFlags(&mut executable, graph, 0));
    for _ in 0..2 {
        cuda!(cuGraphLaunch(executable, stream));
    }
    let records = take(&cupti);
    let kernels: Vec<_> = records
        .iter()
        .filter_map(|(record, ..)| match record {
            Record::Kernel(call, _, grid) => Some((name_of(&records, *call), *call, grid[0])),
            _ => None,
        })
        .collect();
    let sizes: Vec<_> = kernels.iter().map(|(.., blocks)| *blocks).collect();
    assert_eq!(sizes, [1, 3, 1, 3]);
    assert!(
        kernels.iter().all(|(name, ..)| name == &["cuGraphLaunch"]),
        "{kernels:?}"
    );
    assert!(kernels[0].1 == kernels[1].1 && kernels[1].1 != kernels[2].1);
}

/// Natively a library launches its kernels by the runtime.
pub fn libraries() {
    let (cupti, blas) = (open("libcupti.so.13"), open("libcublas.so.13"));
    begin();
    let mut handle: *mut c_void = null_mut();
    ok!(blas, cublasCreate_v2(&mut handle));
    let (one, x) = (2_f32, upload(&[3_f32; 256]));
    ok!(blas, cublasSscal_v2(handle, 256, &one, x, 1));
    synchronize();
    enable(&cupti);
    ok!(cupti, cuptiActivityEnable(kind::RUNTIME));
    for _ in 0..2 {
        ok!(blas, cublasSscal_v2(handle, 256, &one, x, 1));
    }
    let records = take(&cupti);
    let mut calls: Vec<_> = records
        .iter()
        .filter_map(|(record, ..)| match record {
            Record::Kernel(call, ..) => Some((*call, name_of(&records, *call))),
            _ => None,
        })
        .collect();
    calls.dedup();
    assert_eq!(calls.len(), 2, "{records:?}");
    for (_, names) in calls {
        assert!(
            names.len() == 1 && names[0].starts_with("cudaLaunchKernel"),
            "{names:?}"
        );
    }
    assert_eq!(download::<f32>(x, 256), [24.0; 256]);
}

/// Launches that the worker would otherwise submit as graphs of its own, by two threads.
pub fn crowds() {
    const LAUNCHES: usize = 3000;
    let cupti = open("libcupti.so.13");
    begin();
    let program = Program::new();
    let mut context = null_mut();
    cuda!(cuCtxGetCurrent(&mut context));
    let (context, function, words) = (context as usize, program.function as usize, program.words);
    for _ in 0..500 {
        program.launch(null_mut(), 1);
    }
    enable(&cupti);
    static READY: AtomicU32 = AtomicU32::new(0);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(move || {
                cuda!(cuCtxSetCurrent(context as _));
                let program = Program {
                    function: function as _,
                    words,
                };
                let stream = new_stream();
                READY.fetch_add(1, Ordering::SeqCst);
                for _ in 0..LAUNCHES {
                    program.launch(stream, 1);
                }
            });
        }
    });
    let records = take(&cupti);
    let mut calls: Vec<_> = records
        .iter()
        .filter_map(|(record, ..)| match record {
            Record::Kernel(call, ..) => Some(*call),
            _ => None,
        })
        .collect();
    assert_eq!(calls.len(), 2 * LAUNCHES);
    calls.sort_unstable();
    calls.dedup();
    assert_eq!(
        calls.len(),
        2 * LAUNCHES,
        "each launch has a number of its own"
    );
    let mut dropped = 0_usize;
    ok!(
        cupti,
        cuptiActivityGetNumDroppedRecords(null_mut::<c_void>(), 0_u32, &mut dropped)
    );
    assert_eq!(dropped, 0);
}

/// Without the operator's CUPTI, calls are recorded and work is not.
pub fn without() {
    let cupti = open("libcupti.so.13");
    begin();
    let program = Program::new();
    let (requested, completed) = (requested as *const c_void, completed as *const c_void);
    ok!(cupti, cuptiActivityRegisterCallbacks(requested, completed));
    ok!(cupti, cuptiActivityEnable(kind::DRIVER));
    assert_eq!(
        call!(cupti, cuptiActivityEnable(kind::CONCURRENT_KERNEL)),
        NOT_SUPPORTED
    );
    program.launch(null_mut(), 1);
    let records = take(&cupti);
    assert!(
        records.iter().any(
            |(record, ..)| matches!(record, Record::Call(_, name) if name == "cuLaunchKernel")
        ),
        "{records:?}"
    );
}

/// In a VM without room for them, the traces are refused, and the program goes on.
pub fn limit() {
    let cupti = open("libcupti.so.13");
    begin();
    let program = Program::new();
    ok!(cupti, cuptiActivityEnable(kind::DRIVER));
    assert_ne!(
        call!(cupti, cuptiActivityEnable(kind::CONCURRENT_KERNEL)),
        0
    );
    program.launch(null_mut(), 1);
    synchronize();
}
