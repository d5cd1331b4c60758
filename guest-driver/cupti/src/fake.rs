// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! A host for tests, and calls of a program.

use std::ffi::c_char;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};

use gpgpu_client::ffi::Result;
use gpgpu_locks::Mutex;
use gpgpu_protocol::cuda::CUDA_ERROR_NOT_SUPPORTED;
use gpgpu_trace::{Call, RUNTIME, WORK};

use crate::{
    host::{Host, Taken},
    layouts::{Record, size_of_kind},
    profiler::Profiler,
    streams::Numbers,
};

/// A host that gives what the test puts into it.
#[derive(Debug, Default)]
pub struct Fake {
    /// What it gives, one answer after the other.
    pub answers: Mutex<Vec<Taken>>,
    /// The current context.
    pub context: AtomicU64,
    /// Whether it refuses to trace.
    pub refuses: AtomicBool,
    /// Whether the observer is active.
    pub active: AtomicBool,
    /// Whether commands carry the numbers of their calls.
    pub numbers_commands: AtomicBool,
    /// The kinds of work that it traces.
    pub traced: AtomicU32,
    /// Its time.
    pub time: AtomicU64,
    /// The numbers of every stream, if it knows them.
    pub numbers: Mutex<Option<Numbers>>,
    /// What it was asked.
    pub asked: Mutex<Vec<String>>,
}

impl Host for Fake {
    fn observe(&self, active: u32) -> bool {
        self.active.store(active != 0, Relaxed);
        self.numbers_commands.store(active & WORK != 0, Relaxed);
        true
    }

    fn serves(&self) -> bool {
        true
    }

    fn context(&self) -> u64 {
        self.context.load(Relaxed)
    }

    fn within(&self, context: u64, body: &mut dyn FnMut()) -> bool {
        if context == 0 {
            return false;
        }
        self.asked.lock().push(format!("within {context}"));
        body();
        true
    }

    fn trace(&self, kinds: u32) -> Result {
        self.asked.lock().push(format!("trace {kinds}"));
        if self.refuses.load(Relaxed) {
            return Err(CUDA_ERROR_NOT_SUPPORTED);
        }
        self.traced.store(kinds, Relaxed);
        Ok(())
    }

    fn now(&self) -> Result<u64> {
        Ok(self.time.load(Relaxed))
    }

    fn stream(&self, handle: u64) -> Result<u64> {
        Ok(handle)
    }

    fn numbers(&self, stream: u64) -> Result<Numbers> {
        self.asked.lock().push(format!("numbers {stream}"));
        self.numbers.lock().ok_or(CUDA_ERROR_NOT_SUPPORTED)
    }

    fn kernel_name(&self, function: u64) -> *const c_char {
        match function {
            0x700 => c"kernel".as_ptr(),
            _ => std::ptr::null(),
        }
    }

    fn take(&self, flush: bool) -> Result<Taken> {
        self.asked.lock().push(format!("take {flush}"));
        let mut answers = self.answers.lock();
        if answers.is_empty() {
            return Ok(Taken::default());
        }
        Ok(answers.remove(0))
    }
}

impl Fake {
    /// A host, and a profiler that uses it.
    pub fn start() -> (&'static Self, &'static Profiler) {
        let host = Box::leak(Box::<Self>::default());
        (host, Box::leak(Box::new(Profiler::new(host))))
    }

    /// What it was asked since the last call.
    pub fn take_asked(&self) -> Vec<String> {
        std::mem::take(&mut self.asked.lock())
    }
}

/// A call of a function.
pub fn call(domain: u32, name: &'static str) -> Call {
    Call {
        domain,
        number: 0,
        name: name.as_ptr(),
        name_bytes: name.len(),
        arguments: std::ptr::null(),
        result: std::ptr::null_mut(),
        context: 77,
        began: 0,
        data: 0,
    }
}

impl Profiler {
    /// A whole call of a runtime function. Returns its number.
    pub fn runs(&self, name: &'static str) -> u32 {
        let mut call = call(RUNTIME, name);
        self.begin(&mut call);
        self.end(&mut call);
        call.number
    }

    /// The waiting records: their kinds, and their words.
    pub fn records(&self) -> Vec<(u32, Vec<u64>)> {
        let records = self.queue.take();
        let records = records
            .iter()
            .map(|words| (words[0] as u32, words.to_vec()));
        records.collect()
    }
}

/// A record of a type.
pub fn read<R: Record>((kind, words): &(u32, Vec<u64>)) -> R {
    assert_eq!(size_of_kind(*kind), Some(size_of::<R>()));
    // SAFETY: the words are those of a record of this type.
    unsafe { words.as_ptr().cast::<R>().read_unaligned() }
}
