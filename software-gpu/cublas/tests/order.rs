// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Handles, the order of their work among other work, and errors.

mod common;

use std::ffi::{CStr, c_char, c_int, c_void};
use std::process::Command;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicU32, Ordering};

use common::*;

const NOT_READY: c_int = 600;
const ILLEGAL_ADDRESS: c_int = 700;
const MISALIGNED_ADDRESS: c_int = 716;

/// A kernel that adds one to a `f32`.
const PTX: &CStr = c"
.version 8.0
.target sm_80
.address_size 64
.visible .entry plus_one(.param .u64 at)
{
    .reg .u64 %a;
    .reg .f32 %x;
    ld.param.u64 %a, [at];
    ld.global.f32 %x, [%a];
    add.f32 %x, %x, 0f3F800000;
    st.global.f32 [%a], %x;
    ret;
}
";

fn stream() -> *mut c_void {
    let mut stream = null_mut::<c_void>();
    ok!("cuStreamCreate"; &mut stream, 1u32);
    stream
}

fn plus_one(stream: *mut c_void, mut at: u64) {
    let (mut module, mut f) = (null_mut::<c_void>(), null_mut::<c_void>());
    ok!("cuModuleLoadData"; &mut module, PTX.as_ptr());
    ok!("cuModuleGetFunction"; &mut f, module, c"plus_one".as_ptr());
    let mut arguments = [&raw mut at];
    let (one, none) = (1u32, null_mut::<c_void>());
    ok!("cuLaunchKernel"; f, one, one, one, one, one, one, 0u32, stream, arguments.as_mut_ptr(), none);
}

/// Pinned memory.
fn pinned() -> &'static AtomicU32 {
    let mut at = null_mut::<AtomicU32>();
    ok!("cuMemHostAlloc"; &mut at, 4usize, 0u32);
    // SAFETY: the allocation has the word, zeroed, and nobody frees it.
    unsafe { &*at }
}

/// Makes a stream stand still until the answer is set to one.
fn hold(stream: *mut c_void) -> &'static AtomicU32 {
    let gate = pinned();
    ok!("cuStreamWaitValue32_v2"; stream, gate.as_ptr(), 1u32, 1u32);
    gate
}

#[test]
fn work_keeps_to_the_order_of_its_stream() {
    let (handle, stream) = (handle(), stream());
    ok!("cublasSetStream_v2"; handle, stream);
    let x = upload(&[1f32]);
    let (out, source) = (pinned(), pinned());
    source.store(5f32.to_bits(), Ordering::Release);
    let gate = hold(stream);
    // (5 + 1) * 3, + 1, * 3: a copy, a kernel, work, a kernel, work, a copy.
    ok!("cuMemcpyHtoDAsync_v2"; x, source.as_ptr(), 4usize, stream);
    plus_one(stream, x);
    let mut three = 3f32;
    ok!("cublasSscal_v2"; handle, 1, &three, x, 1);
    plus_one(stream, x);
    ok!("cublasSscal_v2"; handle, 1, &three, x, 1);
    // The scalar was read at the call.
    // SAFETY: a volatile write, so that it is not optimised away.
    unsafe { (&raw mut three).write_volatile(100.0) };
    ok!("cuMemcpyDtoHAsync_v2"; out.as_ptr(), x, 4usize, stream);
    assert_eq!(call!("cuStreamQuery"; stream), NOT_READY);
    assert_eq!(out.load(Ordering::Acquire), 0);
    gate.store(1, Ordering::Release);
    ok!("cuStreamSynchronize"; stream);
    assert_eq!(f32::from_bits(out.load(Ordering::Acquire)), 57.0);
}

#[test]
fn results_on_the_device_are_not_waited_for() {
    let (handle, stream) = (handle(), stream());
    ok!("cublasSetStream_v2"; handle, stream);
    on_device(handle, true);
    let (x, result, alpha) = (upload(&[3f32, 4.0]), upload(&[0f32]), upload(&[0f32]));
    let gate = hold(stream);
    ok!("cublasSnrm2_v2"; handle, 2, x, 1, result);
    // The result of one call is a scalar of the next.
    ok!("cublasSscal_v2"; handle, 2, result, x, 1);
    ok!("cublasScopy_v2"; handle, 1, result, 1, alpha, 1);
    assert_eq!(call!("cuStreamQuery"; stream), NOT_READY);
    gate.store(1, Ordering::Release);
    ok!("cuStreamSynchronize"; stream);
    assert_eq!(download::<f32>(x, 2), [15.0, 20.0]);
    assert_eq!(download::<f32>(alpha, 1), [5.0]);
}

#[test]
fn results_on_the_host_come_after_the_queued_work() {
    let (handle, stream) = (handle(), stream());
    ok!("cublasSetStream_v2"; handle, stream);
    let x = upload(&[1f32]);
    let gate = hold(stream);
    plus_one(stream, x);
    let opener = std::thread::spawn(move || {
        std::thread::sleep(std::time::Duration::from_millis(50));
        gate.store(1, Ordering::Release);
    });
    let mut sum = 0f32;
    ok!("cublasSasum_v2"; handle, 1, x, 1, &mut sum);
    assert_eq!(sum, 2.0);
    opener.join().unwrap();
}

#[test]
fn the_default_stream_orders_work_with_blocking_streams() {
    let handle = handle();
    let mut stream = null_mut::<c_void>();
    ok!("cuStreamCreate"; &mut stream, 0u32);
    let x = upload(&[1f32]);
    let gate = hold(stream);
    plus_one(stream, x);
    let two = 2f32;
    ok!("cublasSscal_v2"; handle, 1, &two, x, 1);
    gate.store(1, Ordering::Release);
    assert_eq!(download::<f32>(x, 1), [4.0]);
}

#[test]
fn a_destroyed_handle_has_done_its_work() {
    let (handle, stream) = (handle(), stream());
    ok!("cublasSetStream_v2"; handle, stream);
    let (x, two) = (upload(&[1f32]), 2f32);
    ok!("cublasSscal_v2"; handle, 1, &two, x, 1);
    ok!("cublasDestroy_v2"; handle);
    ok!("cuStreamQuery"; stream);
    assert_eq!(call!("cublasDestroy_v2"; handle), 1);
    assert_eq!(call!("cublasSscal_v2"; handle, 1, &two, x, 1), 1);
}

#[test]
fn an_invalid_handle_is_refused() {
    handle();
    let (mut value, one) = (0, 1f32);
    for none in [0u64, 16, 0xCB1A_0000_FFFF_0000, u64::MAX] {
        assert_eq!(call!("cublasSscal_v2"; none, 1, &one, 0u64, 1), 1);
        assert_eq!(call!("cublasGetPointerMode_v2"; none, &mut value), 1);
        assert_eq!(call!("cublasSetStream_v2"; none, 0u64), 1);
    }
    assert_eq!(call!("cublasCreate_v2"; 0u64), 7);
}

#[test]
fn settings_are_read_back() {
    let handle = handle();
    let mut value = 9;
    for (set, get, good, bad) in [
        ("cublasSetPointerMode_v2", "cublasGetPointerMode_v2", 1, 2),
        ("cublasSetMathMode", "cublasGetMathMode", 3 | 16, 32),
        ("cublasSetAtomicsMode", "cublasGetAtomicsMode", 1, 2),
        ("cublasSetSmCountTarget", "cublasGetSmCountTarget", 8, -1),
    ] {
        ok!(get; handle, &mut value);
        assert_eq!(value, 0, "{get}");
        ok!(set; handle, good);
        assert_eq!(call!(set; handle, bad), 7, "{set}");
        ok!(get; handle, &mut value);
        assert_eq!(value, good, "{get}");
        assert_eq!(call!(get; handle, 0u64), 7);
    }
    let (s, mut got) = (stream(), null_mut::<c_void>());
    ok!("cublasSetStream_v2"; handle, s);
    ok!("cublasGetStream_v2"; handle, &mut got);
    assert_eq!(s, got);
    let memory = alloc(4096);
    ok!("cublasSetWorkspace_v2"; handle, memory, 4096usize);
    assert_eq!(
        call!("cublasSetWorkspace_v2"; handle, memory + 4, 4000usize),
        7
    );
}

#[test]
fn the_library_reports_its_version_and_names() {
    let (mut version, mut part) = (0, 0);
    ok!("cublasGetVersion_v2"; 0u64, &mut version);
    let mut parts = Vec::new();
    for i in 0..3 {
        ok!("cublasGetProperty"; i, &mut part);
        parts.push(part);
    }
    assert_eq!((version, parts), (130100, vec![13, 1, 0]));
    assert_eq!(call!("cublasGetProperty"; 3, &mut part), 7);
    let runtime: unsafe extern "C" fn() -> usize = function("cublasGetCudartVersion");
    // SAFETY: it takes nothing.
    assert_eq!(unsafe { runtime() }, 13000);
    let name: unsafe extern "C" fn(c_int) -> *const c_char = function("cublasGetStatusName");
    // SAFETY: the answer is a string that stays.
    let name = |status| unsafe { CStr::from_ptr(name(status)) };
    assert_eq!(name(13), c"CUBLAS_STATUS_EXECUTION_FAILED");
    assert_eq!(name(2), c"unknown status");
    // The library does not export missing functions.
    assert!(is_exported("cublasSgemm_v2_64") && !is_exported("cublasSgetrfBatched"));
}

#[test]
fn a_handle_belongs_to_its_context() {
    let handle = handle();
    let (x, two) = (upload(&[1f32]), 2f32);
    let scale = || call!("cublasSscal_v2"; handle, 1, &two, x, 1);
    let mut other = null_mut::<c_void>();
    ok!("cuCtxCreate_v2"; &mut other, 0u32, 0);
    assert_eq!(scale(), 13);
    let foreign = stream();
    ok!("cuCtxPopCurrent_v2"; &mut other);
    assert_eq!(scale(), 0);
    ok!("cublasSetStream_v2"; handle, foreign);
    assert_eq!(scale(), 13);
    ok!("cublasSetStream_v2"; handle, 0u64);
    ok!("cuCtxDestroy_v2"; other);
    assert_eq!(download::<f32>(x, 1), [2.0]);
}

/// Runs the rest of a test in a separate process. Returns true in that process.
fn in_child(name: &str) -> bool {
    const MARK: &str = "SOFTWARE_CUBLAS_TEST_CHILD";
    if std::env::var_os(MARK).is_some() {
        return true;
    }
    let exe = std::env::current_exe().unwrap();
    let output = Command::new(exe)
        .args([name, "--exact", "--nocapture"])
        .env(MARK, "1")
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let passed = output.status.success() && text.contains("1 passed");
    assert!(
        passed,
        "{text}\n{}",
        String::from_utf8_lossy(&output.stderr)
    );
    false
}

/// Work that faults: its code is the driver's from then on.
fn assert_fault(handle: Handle, code: c_int) {
    assert_eq!(call!("cuCtxSynchronize";), code);
    let mut result = 7f32;
    assert_eq!(call!("cublasSasum_v2"; handle, 1, 0u64, 1, &mut result), 13);
    assert_eq!(result, 7.0);
    ok!("cublasDestroy_v2"; handle);
}

#[test]
fn a_wrong_address_is_a_fault_that_stays() {
    if in_child("a_wrong_address_is_a_fault_that_stays") {
        let (handle, one) = (handle(), 1f32);
        ok!("cublasSscal_v2"; handle, 4, &one, 0xDEAD_0000_0000u64, 1);
        assert_fault(handle, ILLEGAL_ADDRESS);
    }
}

#[test]
fn one_past_the_end_is_a_fault() {
    if in_child("one_past_the_end_is_a_fault") {
        let (handle, one, x) = (handle(), 1f32, alloc(16));
        ok!("cublasSscal_v2"; handle, 4, &one, x, 1);
        ok!("cuCtxSynchronize";);
        ok!("cublasSscal_v2"; handle, 5, &one, x, 1);
        assert_fault(handle, ILLEGAL_ADDRESS);
    }
}

#[test]
fn a_step_that_leaves_all_memory_is_a_fault() {
    if in_child("a_step_that_leaves_all_memory_is_a_fault") {
        let (handle, one, x) = (handle(), 1f32, alloc(16));
        ok!("cublasSscal_v2_64"; handle, i64::MAX / 2, &one, x, i64::MAX / 2);
        assert_fault(handle, ILLEGAL_ADDRESS);
    }
}

#[test]
fn an_address_between_two_numbers_is_a_fault() {
    if in_child("an_address_between_two_numbers_is_a_fault") {
        let (handle, one, x) = (handle(), 1f32, alloc(16));
        ok!("cublasSscal_v2"; handle, 2, &one, x + 2, 1);
        assert_fault(handle, MISALIGNED_ADDRESS);
    }
}

#[test]
fn a_wrong_address_in_an_array_is_a_fault() {
    if in_child("a_wrong_address_in_an_array_is_a_fault") {
        let (handle, one, x) = (handle(), 1f32, alloc(64));
        let (good, bad) = (upload(&[x, x]), upload(&[x, 0x40]));
        ok!("cublasSgemmBatched"; handle, 0, 0, 2, 2, 2, &one, good, 2, bad, 2, &one, good, 2, 2);
        assert_fault(handle, ILLEGAL_ADDRESS);
    }
}

#[test]
fn a_wrong_address_fails_a_call_that_waits() {
    if in_child("a_wrong_address_fails_a_call_that_waits") {
        let (handle, mut result) = (handle(), 7f32);
        assert_eq!(
            call!("cublasSasum_v2"; handle, 1, 0x40u64, 1, &mut result),
            13
        );
        assert_fault(handle, ILLEGAL_ADDRESS);
    }
}

#[test]
fn a_wrong_size_costs_no_memory() {
    if in_child("a_wrong_size_costs_no_memory") {
        let (handle, zero, one, n) = (handle(), 0f32, 1f32, 1 << 20);
        let long = alloc(n as usize * 4);
        ok!("cublasSgemm_v2"; handle, 0, 0, n, n, 1, &one, long, n, long, 1, &zero, long, n);
        assert_fault(handle, ILLEGAL_ADDRESS);
    }
}

#[test]
fn an_element_that_is_repeated_too_often_costs_no_memory() {
    if in_child("an_element_that_is_repeated_too_often_costs_no_memory") {
        let (handle, one, x) = (handle(), 1f32, alloc(4));
        ok!("cublasSaxpy_v2_64"; handle, 1i64 << 40, &one, x, 0i64, x, 0i64);
        assert_fault(handle, 2);
    }
}

#[test]
fn a_handle_without_a_context_makes_the_primary_one_current() {
    if in_child("a_handle_without_a_context_makes_the_primary_one_current") {
        // Loaded, but nothing called yet.
        let _: unsafe extern "C" fn() = function("cuInit");
        let (mut handle, mut context) = (null_mut::<c_void>(), null_mut::<c_void>());
        ok!("cublasCreate_v2"; &mut handle);
        ok!("cuCtxGetCurrent"; &mut context);
        assert!(!context.is_null());
        let (x, mut sum) = (upload(&[1f32, -2.0]), 0f32);
        ok!("cublasSasum_v2"; handle, 2, x, 1, &mut sum);
        assert_eq!(sum, 3.0);
    }
}
