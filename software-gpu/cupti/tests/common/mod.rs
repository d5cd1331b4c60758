// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The common part of the tests: a program that records its activity.
#![allow(missing_docs, dead_code)]

use std::ffi::{CStr, c_void};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard};

use gpgpu_protocol::cupti::{self, kind};
use gpgpu_stand_in::{call, ok, testing::Libraries};

pub static LIBRARIES: Libraries = Libraries::new("libsoftware_cupti.so");

/// The bytes of a buffer that the program gives; with 0 it gives none.
pub static BUFFER: AtomicUsize = AtomicUsize::new(0);
/// The most records of a buffer that the program gives.
pub static MOST: AtomicUsize = AtomicUsize::new(0);
/// The buffers that were delivered.
pub static DELIVERED: AtomicUsize = AtomicUsize::new(0);
/// The buffers that are not with the program.
pub static LENT: AtomicUsize = AtomicUsize::new(0);
/// What the next callback that takes a buffer does.
pub static IN_CALLBACK: Mutex<Option<fn()>> = Mutex::new(None);

static ONE: Mutex<()> = Mutex::new(());
static RECORDS: Mutex<Vec<Record>> = Mutex::new(Vec::new());

pub type Raw = *mut c_void;

#[derive(Debug, Clone, Copy)]
pub enum Record {
    Kernel(cupti::Kernel),
    Copy(cupti::Memcpy),
    Peer(cupti::MemcpyPeer),
    Fill(cupti::Memset),
    Call(cupti::Api),
    External(cupti::ExternalCorrelation),
    Graph(cupti::GraphTrace),
}

// SAFETY: the pointers are names, which are constant.
unsafe impl Send for Record {}

impl Record {
    pub fn name(&self) -> &'static str {
        let Self::Kernel(of) = self else {
            panic!("{self:?} has no name");
        };
        // SAFETY: names are valid as long as the process lives.
        unsafe { CStr::from_ptr(of.name) }.to_str().unwrap()
    }

    pub fn correlation(&self) -> u32 {
        match self {
            Self::Kernel(of) => of.correlation,
            Self::Copy(of) => of.correlation,
            Self::Peer(of) => of.correlation,
            Self::Fill(of) => of.correlation,
            Self::Call(of) => of.correlation,
            Self::External(of) => of.correlation,
            Self::Graph(of) => of.correlation,
        }
    }

    pub fn times(&self) -> Option<(u64, u64)> {
        match self {
            Self::Kernel(of) => Some((of.start, of.end)),
            Self::Copy(of) => Some((of.start, of.end)),
            Self::Peer(of) => Some((of.start, of.end)),
            Self::Fill(of) => Some((of.start, of.end)),
            Self::Call(of) => Some((of.start, of.end)),
            Self::External(_) => None,
            Self::Graph(of) => Some((of.start, of.end)),
        }
    }
}

/// Finds the values of one kind of record.
#[macro_export]
macro_rules! only {
    ($records:expr, $kind:ident) => {
        $records
            .iter()
            .filter_map(|of| match of {
                $crate::common::Record::$kind(of) => Some(*of),
                _ => None,
            })
            .collect::<Vec<_>>()
    };
}

unsafe extern "C" fn requested(buffer: *mut *mut u8, size: *mut usize, most: *mut usize) {
    let bytes = BUFFER.load(Ordering::Relaxed);
    let start = match bytes {
        0 => null_mut(),
        _ => Box::leak(vec![0_u64; bytes / 8].into_boxed_slice()).as_mut_ptr(),
    };
    if bytes > 0 {
        LENT.fetch_add(1, Ordering::Relaxed);
    }
    // SAFETY: CUPTI's pointers.
    unsafe {
        *buffer = start.cast();
        *size = bytes;
        *most = MOST.load(Ordering::Relaxed);
    }
}

unsafe extern "C" fn completed(_: Raw, _: u32, buffer: *mut u8, size: usize, valid: usize) {
    let mut record: Raw = null_mut();
    loop {
        match call!(LIBRARIES, "cuptiActivityGetNextRecord"; buffer, valid, &mut record) {
            0 => RECORDS.lock().unwrap().push(read(record)),
            code => break assert_eq!(code, cupti::MAX_LIMIT_REACHED as i32),
        }
    }
    // SAFETY: `requested` made the buffer out of a box of this size.
    drop(unsafe {
        Box::from_raw(std::ptr::slice_from_raw_parts_mut(
            buffer.cast::<u64>(),
            size / 8,
        ))
    });
    DELIVERED.fetch_add(1, Ordering::Relaxed);
    LENT.fetch_sub(1, Ordering::Relaxed);
    let in_callback = IN_CALLBACK.lock().unwrap().take();
    if let Some(in_callback) = in_callback {
        in_callback();
    }
}

fn read(record: Raw) -> Record {
    // SAFETY: a record begins with its kind, which says what the rest is.
    unsafe {
        match *record.cast::<u32>() {
            kind::KERNEL | kind::CONCURRENT_KERNEL => Record::Kernel(*record.cast()),
            kind::MEMCPY => Record::Copy(*record.cast()),
            kind::MEMCPY2 => Record::Peer(*record.cast()),
            kind::MEMSET => Record::Fill(*record.cast()),
            kind::DRIVER => Record::Call(*record.cast()),
            kind::EXTERNAL_CORRELATION => Record::External(*record.cast()),
            kind::GRAPH_TRACE => Record::Graph(*record.cast()),
            other => panic!("a record of kind {other}"),
        }
    }
}

/// The kinds that a profiler enables.
pub const ALL: [u32; 6] = [
    kind::CONCURRENT_KERNEL,
    kind::MEMCPY,
    kind::MEMCPY2,
    kind::MEMSET,
    kind::DRIVER,
    kind::EXTERNAL_CORRELATION,
];

/// The time, by CUPTI's clock.
pub fn now() -> u64 {
    let mut time = 0_u64;
    ok!(LIBRARIES, "cuptiGetTimestamp"; &mut time);
    time
}

/// A test's own use of the library: the tests of a program run one after the other.
pub struct Session(#[allow(dead_code)] MutexGuard<'static, ()>);

impl Session {
    /// With the first device's primary context, large buffers, and no kinds enabled.
    pub fn new() -> Self {
        let one = ONE.lock().unwrap_or_else(|failed| failed.into_inner());
        LIBRARIES.enter();
        BUFFER.store(64 << 10, Ordering::Relaxed);
        MOST.store(0, Ordering::Relaxed);
        let functions = (requested as *const (), completed as *const ());
        ok!(LIBRARIES, "cuptiActivityRegisterCallbacks"; functions.0, functions.1);
        Self::disable(&[kind::KERNEL, kind::GRAPH_TRACE, kind::RUNTIME]);
        Self::disable(&ALL);
        let session = Self(one);
        session.records();
        session.dropped();
        session
    }

    pub fn enable(kinds: &[u32]) {
        for kind in kinds {
            ok!(LIBRARIES, "cuptiActivityEnable"; *kind);
        }
    }

    pub fn disable(kinds: &[u32]) {
        for kind in kinds {
            ok!(LIBRARIES, "cuptiActivityDisable"; *kind);
        }
    }

    /// The records of all work that has ended.
    pub fn records(&self) -> Vec<Record> {
        ok!(LIBRARIES, "cuptiActivityFlushAll"; 0_u32);
        std::mem::take(&mut *RECORDS.lock().unwrap())
    }

    pub fn dropped(&self) -> usize {
        let mut dropped = 0_usize;
        ok!(LIBRARIES, "cuptiActivityGetNumDroppedRecords"; null_mut::<c_void>(), 0_u32, &mut dropped);
        dropped
    }
}

/// A kernel that adds one to a word, with 64 bytes of shared memory.
const PTX: &CStr = c"
.version 8.0
.target sm_80
.address_size 64
.visible .entry _Z8plus_onePj(.param .u64 at)
{
    .reg .u64 %a;
    .reg .u32 %x;
    .shared .align 4 .b8 room[64];
    st.shared.u32 [room], 1;
    ld.param.u64 %a, [at];
    ld.global.u32 %x, [%a];
    add.u32 %x, %x, 1;
    st.global.u32 [%a], %x;
    ret;
}
";

pub const NAME: &str = "_Z8plus_onePj";

/// The kernel.
pub fn kernel() -> (Raw, Raw) {
    let (mut module, mut f): (Raw, Raw) = (null_mut(), null_mut());
    ok!(LIBRARIES, "cuModuleLoadData"; &mut module, PTX.as_ptr());
    ok!(LIBRARIES, "cuModuleGetFunction"; &mut f, module, c"_Z8plus_onePj".as_ptr());
    (f, module)
}

pub fn launch(f: Raw, at: u64, stream: Raw) {
    let mut arguments = [&raw const at];
    let (one, none): (u32, Raw) = (1, null_mut());
    ok!(LIBRARIES, "cuLaunchKernel"; f, 2_u32, one, one, 4_u32, one, one, 32_u32, stream, arguments.as_mut_ptr(), none);
}

pub fn stream() -> Raw {
    let mut stream: Raw = null_mut();
    ok!(LIBRARIES, "cuStreamCreate"; &mut stream, 1_u32);
    stream
}

pub fn synchronize() {
    ok!(LIBRARIES, "cuCtxSynchronize";);
}
