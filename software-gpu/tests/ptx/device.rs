// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! A device for the executor's tests: one heap, kernels by name.

use std::convert::Infallible;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};

use software_gpu::exec::{Effects, Fault, Launch, LoadedModule, Memory, Range, launch};
use software_gpu::ptx;

/// The start of the heap in the device's address space.
const BASE: u64 = 0x7_0000_0000;

pub struct Device {
    heap: Box<[u128]>,
    used: usize,
    pub module: LoadedModule,
    pub printed: Printed,
    /// Ends launches, once true.
    pub cancel: Arc<AtomicBool>,
}

/// The printed text, call by call.
#[derive(Default)]
pub struct Printed(pub Mutex<Vec<String>>);

impl Effects for Printed {
    fn print(&self, text: Vec<u8>) {
        let text = String::from_utf8(text).unwrap();
        self.0.lock().unwrap().push(text);
    }
}

struct Heap {
    base: *mut u8,
    bytes: usize,
}

// SAFETY: the heap outlives every launch and is only used by it meanwhile.
unsafe impl Sync for Heap {}

// SAFETY: the heap is one allocation that stays until the device goes; its base is aligned to 16, as `BASE` is.
unsafe impl Memory for Heap {
    fn range_of(&self, addr: u64) -> Option<Range> {
        let end = BASE + self.bytes as u64;
        (BASE..end).contains(&addr).then_some(Range {
            start: BASE,
            end,
            base: self.base,
            writable: true,
        })
    }

    fn generation(&self) -> u64 {
        0
    }
}

impl Device {
    pub fn new(text: &str, heap_bytes: usize) -> Self {
        let module = Arc::new(ptx::parse(text).unwrap());
        let mut used = 0;
        let module = LoadedModule::new(module, |g| {
            let at = used;
            used += g.size.next_multiple_of(256);
            Ok::<_, Infallible>(BASE + at as u64)
        })
        .unwrap_or_else(|e| panic!("{e}"));
        let mut d = Self {
            heap: vec![0; heap_bytes / 16].into(),
            used,
            module,
            printed: Printed::default(),
            cancel: Arc::default(),
        };
        let all: Vec<_> = d.module.initialisers().to_vec();
        for (at, bytes) in all {
            d.bytes(at, bytes.len()).copy_from_slice(&bytes);
        }
        d
    }

    fn bytes(&mut self, at: u64, len: usize) -> &mut [u8] {
        let from = (at - BASE) as usize;
        // SAFETY: plain bytes of the heap, checked against its length by the slicing.
        let all = unsafe {
            std::slice::from_raw_parts_mut(
                self.heap.as_mut_ptr().cast::<u8>(),
                self.heap.len() * 16,
            )
        };
        &mut all[from..from + len]
    }

    /// Copies `data` to new device memory; its address.
    pub fn put<T: Copy>(&mut self, data: &[T]) -> u64 {
        let at = BASE + self.used as u64;
        let len = size_of_val(data);
        self.used += len.next_multiple_of(256);
        // SAFETY: the source has `len` bytes; the tests use types without padding.
        let src = unsafe { std::slice::from_raw_parts(data.as_ptr().cast::<u8>(), len) };
        self.bytes(at, len).copy_from_slice(src);
        at
    }

    /// Reads `n` values back.
    pub fn get<T: Copy + Default>(&mut self, at: u64, n: usize) -> Vec<T> {
        let mut v = vec![T::default(); n];
        let src = self.bytes(at, n * size_of::<T>());
        // SAFETY: both sides have the bytes; the tests use types of which every pattern is a value.
        unsafe { std::ptr::copy_nonoverlapping(src.as_ptr(), v.as_mut_ptr().cast(), src.len()) };
        v
    }

    pub fn launch(&mut self, kernel: &str, shape: &Launch, params: &Params) -> Result<(), Fault> {
        let heap = Heap {
            base: self.heap.as_mut_ptr().cast(),
            bytes: self.heap.len() * 16,
        };
        launch(
            &self.module,
            kernel,
            shape,
            &params.0,
            &heap,
            &self.cancel,
            &self.printed,
        )
    }
}

/// A parameter buffer.
#[derive(Default)]
pub struct Params(pub Vec<u8>);

impl Params {
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a value at its natural alignment.
    pub fn add<T: Copy>(mut self, v: T) -> Self {
        let at = self.0.len().next_multiple_of(align_of::<T>());
        self.0.resize(at + size_of::<T>(), 0);
        // SAFETY: the buffer was just made large enough.
        unsafe { self.0.as_mut_ptr().add(at).cast::<T>().write_unaligned(v) };
        self
    }
}

/// Blocks and threads in x.
pub fn shape(blocks: u32, threads: u32) -> Launch {
    Launch {
        grid: [blocks, 1, 1],
        block: [threads, 1, 1],
        ..Launch::default()
    }
}
