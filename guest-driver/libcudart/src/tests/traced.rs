// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Calls that a profiler observes.

use super::*;
use gpgpu_trace::{Call, Observer, RUNTIME, Trace, VERSION};
use std::cell::{Cell, RefCell};
use std::sync::atomic::{AtomicU32, Ordering};

/// libcuda's switch, as far as the runtime uses it.
static TRACE: Trace = Trace {
    version: VERSION,
    bytes: size_of::<Trace>() as u32,
    active: AtomicU32::new(0),
    enter,
    leave,
    observe,
};

thread_local! {
    /// Whether the thread's calls are traced: other tests make calls meanwhile.
    static IS_TRACED: Cell<bool> = const { Cell::new(false) };
    /// The function, its second argument and its result, of each call that has ended.
    static CALLS: RefCell<Vec<(String, usize, u32)>> = const { RefCell::new(Vec::new()) };
}

/// The function that libcuda exports.
pub extern "C" fn switch() -> *const Trace {
    &TRACE
}

unsafe extern "C" fn enter(_: *mut Call) -> c_int {
    IS_TRACED.get().into()
}

unsafe extern "C" fn leave(call: *mut Call) {
    // SAFETY: a call in progress, whose function has two arguments of a word each at least.
    unsafe {
        assert_eq!((*call).domain, RUNTIME);
        let name = std::slice::from_raw_parts((*call).name, (*call).name_bytes);
        let second = (*call).arguments.cast::<usize>().add(1).read();
        let name = String::from_utf8(name.to_vec()).unwrap();
        CALLS.with_borrow_mut(|calls| calls.push((name, second, *(*call).result)));
    }
}

unsafe extern "C" fn observe(_: *const Observer, active: u32) {
    TRACE.active.store(active, Ordering::Relaxed);
}

#[test]
fn calls_are_reported_with_their_names_arguments_and_results() {
    let mut pointer = null_mut();
    assert_eq!(cudaMalloc(&mut pointer, 100), 0);
    IS_TRACED.set(true);
    // SAFETY: the switch is a static.
    unsafe { observe(null(), 1) };
    assert_eq!(cudaMalloc(&mut pointer, 4096), 0);
    let wrong = cudaMemcpy_ptds(null_mut(), without_provenance(8), 8, 77);
    assert_ne!(wrong, 0);
    // SAFETY: as above.
    unsafe { observe(null(), 0) };
    assert_eq!(cudaMalloc(&mut pointer, 100), 0);
    let calls = CALLS.take();
    let named = |name: &str, second, result| (name.to_owned(), second, result);
    assert_eq!(
        calls,
        [
            named("cudaMalloc", 4096, 0),
            named("cudaMemcpy_ptds", 8, wrong)
        ]
    );
}
