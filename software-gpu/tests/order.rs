// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The order between streams, and when calls return.

mod common;

use std::ffi::c_void;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicU32, Ordering};

use common::*;
use gpgpu_protocol::cuda::*;

const NON_BLOCKING: u32 = CU_STREAM_NON_BLOCKING;

#[test]
fn pitfall_01_pageable_device_to_host_is_complete_on_return() {
    context();
    let s = stream(NON_BLOCKING);
    let d = alloc(4);
    ok!(cuMemsetD32_v2(d, 5, 1));
    ok!(cuCtxSynchronize());
    // Pinned: returns while the stream still stands.
    let target = pinned(1);
    let gate = Gate::hold(s);
    ok!(cuMemsetD32Async(d, 9, 1, s));
    ok!(cuMemcpyDtoHAsync_v2(
        target.as_ptr() as *mut c_void,
        d,
        4,
        s
    ));
    assert_eq!(target[0].load(Ordering::Acquire), 0);
    assert_eq!(cu!(cuStreamQuery(s)), CUDA_ERROR_NOT_READY);
    gate.open();
    // Pageable: the value is there when the call returns.
    let mut value = 0u32;
    ok!(cuMemcpyDtoHAsync_v2((&raw mut value).cast(), d, 4, s));
    assert_eq!(value, 9);
    assert_eq!(target[0].load(Ordering::Acquire), 9);
}

#[test]
fn pitfall_02_pageable_source_is_read_at_the_call_pinned_in_order() {
    context();
    let s = stream(NON_BLOCKING);
    let (a, b) = (alloc(4), alloc(4));
    let gate = Gate::hold(s);
    let mut pageable = 1u32;
    let source = pinned(1);
    source[0].store(1, Ordering::Release);
    ok!(cuMemcpyHtoDAsync_v2(a, (&raw const pageable).cast(), 4, s));
    ok!(cuMemcpyHtoDAsync_v2(b, source.as_ptr().cast(), 4, s));
    // SAFETY: the copy has taken its snapshot; a volatile write, so that it is not optimised away.
    unsafe { (&raw mut pageable).write_volatile(2) };
    source[0].store(2, Ordering::Release);
    gate.open();
    ok!(cuStreamSynchronize(s));
    assert_eq!((read(a, 1), read(b, 1)), (vec![1], vec![2]));
}

#[test]
fn pitfall_03_pinned_memory_that_a_stream_writes_is_read_after_it() {
    context();
    let s = stream(NON_BLOCKING);
    let words = 1 << 20;
    let (a, b) = (alloc(words * 4), alloc(words * 4));
    let p = pinned(words);
    let gate = Gate::hold(s);
    ok!(cuMemsetD32Async(a, 7, words, s));
    ok!(cuMemcpyDtoHAsync_v2(
        p.as_ptr() as *mut c_void,
        a,
        words * 4,
        s
    ));
    ok!(cuMemcpyHtoDAsync_v2(b, p.as_ptr().cast(), words * 4, s));
    gate.open();
    ok!(cuStreamSynchronize(s));
    assert!(read(b, words).iter().all(|w| *w == 7));
}

#[test]
fn pitfall_04_copies_keep_to_their_stream() {
    context();
    let s = stream(NON_BLOCKING);
    let d = alloc(4);
    ok!(cuMemsetD32_v2(d, 1, 1));
    ok!(cuCtxSynchronize());
    let gate = Gate::hold(s);
    let two = 2u32;
    ok!(cuMemcpyHtoDAsync_v2(d, (&raw const two).cast(), 4, s));
    // The legacy stream does not wait for it, so it still sees the old value.
    assert_eq!(read(d, 1), [1]);
    gate.open();
    ok!(cuStreamSynchronize(s));
    assert_eq!(read(d, 1), [2]);
}

#[test]
fn pitfall_05_synchronous_calls_wait_for_blocking_streams_only() {
    context();
    let free = stream(NON_BLOCKING);
    let blocking = stream(0);
    let d = alloc(8);
    let held = Gate::hold(free);
    // An endless non-blocking stream does not matter.
    ok!(cuMemsetD32_v2(d, 3, 2));
    assert_eq!(read(d, 2), [3, 3]);
    ok!(cuStreamSynchronize(NULL_STREAM));
    // A blocking stream is ordered: the NULL stream's work follows it.
    let gate = Gate::hold(blocking);
    ok!(cuMemsetD32Async(d, 4, 1, blocking));
    // Neither of these makes the host wait, although they are "synchronous".
    ok!(cuMemcpyDtoD_v2(d + 4, d, 4));
    ok!(cuMemsetD32_v2(d, 5, 1));
    assert_eq!(cu!(cuStreamQuery(NULL_STREAM)), CUDA_ERROR_NOT_READY);
    gate.open();
    assert_eq!(read(d, 2), [5, 4]);
    held.open();
    ok!(cuCtxSynchronize());
}

#[test]
fn the_legacy_stream_holds_blocking_streams_back() {
    context();
    let (blocking, free) = (stream(0), stream(NON_BLOCKING));
    let d = alloc(8);
    let gate = Gate::hold(NULL_STREAM);
    ok!(cuMemsetD32Async(d, 1, 1, blocking));
    ok!(cuMemsetD32Async(d + 4, 1, 1, free));
    ok!(cuStreamSynchronize(free));
    assert_eq!(cu!(cuStreamQuery(blocking)), CUDA_ERROR_NOT_READY);
    gate.open();
    ok!(cuStreamSynchronize(blocking));
    assert_eq!(read(d, 2), [1, 1]);
}

#[test]
fn pitfall_06_an_event_delivers_what_it_covers() {
    context();
    let (s, t) = (stream(NON_BLOCKING), stream(NON_BLOCKING));
    let d = alloc(4);
    ok!(cuMemsetD32_v2(d, 6, 1));
    ok!(cuCtxSynchronize());
    let (p, q) = (pinned(1), pinned(1));
    let gate = Gate::hold(t);
    let e = event(0);
    ok!(cuMemcpyDtoHAsync_v2(p.as_ptr() as *mut c_void, d, 4, s));
    ok!(cuMemcpyDtoHAsync_v2(q.as_ptr() as *mut c_void, d, 4, t));
    ok!(cuEventRecord(e, s));
    ok!(cuEventSynchronize(e));
    assert_eq!(
        (p[0].load(Ordering::Acquire), q[0].load(Ordering::Acquire)),
        (6, 0)
    );
    gate.open();
    ok!(cuStreamSynchronize(t));
    assert_eq!(q[0].load(Ordering::Acquire), 6);
}

#[test]
fn pitfall_21_each_thread_has_a_default_stream_of_its_own() {
    let cx = context() as usize;
    let gate = Gate::unheld();
    ok!(cuStreamWaitValue32_v2_ptsz(
        NULL_STREAM,
        gate.address(),
        1,
        1
    ));
    assert_eq!(cu!(cuStreamQuery_ptsz(NULL_STREAM)), CUDA_ERROR_NOT_READY);
    std::thread::spawn(move || {
        ok!(cuCtxSetCurrent(cx as CUcontext));
        let d = alloc(4);
        ok!(cuMemsetD32Async_ptsz(d, 1, 1, NULL_STREAM));
        // This does not wait for the other thread's work.
        ok!(cuStreamSynchronize_ptsz(NULL_STREAM));
        // Its name means the same stream in both variants of the call.
        ok!(cuStreamSynchronize(CU_STREAM_PER_THREAD as CUstream));
    })
    .join()
    .unwrap();
    // The legacy stream waits for it: it is a blocking stream.
    assert_eq!(
        cu!(cuStreamQuery(CU_STREAM_PER_THREAD as CUstream)),
        CUDA_ERROR_NOT_READY
    );
    gate.open();
    ok!(cuStreamSynchronize_ptsz(NULL_STREAM));
}

#[test]
fn pitfall_24_waiting_for_an_event_means_its_latest_record_at_the_call() {
    context();
    let (s, t) = (stream(NON_BLOCKING), stream(NON_BLOCKING));
    let e = event(CU_EVENT_DISABLE_TIMING);
    // Never recorded: no wait.
    ok!(cuStreamWaitEvent(t, e, 0));
    ok!(cuStreamSynchronize(t));
    let gate = Gate::hold(s);
    ok!(cuEventRecord(e, s));
    ok!(cuStreamWaitEvent(t, e, 0));
    // Recorded anew in an idle stream: the wait above is for the first record all the same.
    ok!(cuEventRecord(e, stream(NON_BLOCKING)));
    ok!(cuEventSynchronize(e));
    assert_eq!(cu!(cuStreamQuery(t)), CUDA_ERROR_NOT_READY);
    gate.open();
    ok!(cuStreamSynchronize(t));
}

unsafe extern "C" fn count_up(data: *mut c_void) {
    // A call into the API from here is refused, as documented.
    let mut address = 0;
    let refused = cu!(cuMemAlloc_v2(&mut address, 4)) == CUDA_ERROR_NOT_PERMITTED;
    // SAFETY: the tests pass a counter that outlives the stream's work.
    unsafe { &*(data as *const AtomicU32) }
        .fetch_add(if refused { 1 } else { 100 }, Ordering::AcqRel);
}

unsafe extern "C" fn count_status(_: CUstream, status: CUresult, data: *mut c_void) {
    // SAFETY: as above.
    unsafe { &*(data as *const AtomicU32) }.fetch_add(status + 10, Ordering::AcqRel);
}

#[test]
fn pitfall_57_host_functions_run_in_order_and_as_often_as_asked() {
    context();
    let s = stream(0);
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let data = (&raw const COUNT) as *mut c_void;
    let gate = Gate::hold(s);
    ok!(cuLaunchHostFunc(s, Some(count_up), data));
    ok!(cuLaunchHostFunc(s, Some(count_up), data));
    ok!(cuStreamAddCallback(s, Some(count_status), data, 0));
    assert_eq!(COUNT.load(Ordering::Acquire), 0);
    gate.open();
    ok!(cuStreamSynchronize(s));
    assert_eq!(COUNT.load(Ordering::Acquire), 12);
}

#[test]
fn a_destroyed_stream_still_runs_its_queued_work() {
    context();
    let s = stream(0);
    let p = pinned(1);
    let gate = Gate::hold(s);
    ok!(cuStreamWriteValue32_v2(s, p.as_ptr() as u64, 8, 0));
    ok!(cuStreamDestroy_v2(s));
    assert_eq!(cu!(cuStreamQuery(s)), CUDA_ERROR_INVALID_HANDLE);
    gate.open();
    ok!(cuCtxSynchronize());
    assert_eq!(p[0].load(Ordering::Acquire), 8);
}

#[test]
fn freeing_memory_waits_for_its_users_and_async_frees_keep_to_their_stream() {
    // Alone: another test would be given the address that is free again.
    if !in_child("freeing_memory_waits_for_its_users_and_async_frees_keep_to_their_stream") {
        return;
    }
    context();
    let s = stream(NON_BLOCKING);
    let mut d = 0;
    ok!(cuMemAllocAsync(&mut d, 4096, s));
    let gate = Gate::hold(s);
    ok!(cuMemFreeAsync(d, s));
    assert_eq!(cu!(cuMemFreeAsync(d, s)), CUDA_ERROR_INVALID_VALUE);
    let (mut base, mut size) = (0, 0);
    ok!(cuMemGetAddressRange_v2(&mut base, &mut size, d));
    gate.open();
    ok!(cuStreamSynchronize(s));
    assert_eq!(
        cu!(cuMemGetAddressRange_v2(&mut base, &mut size, d)),
        CUDA_ERROR_NOT_FOUND
    );
    // Freeing pinned memory after an asynchronous copy waits for the copy.
    let source = pinned(1 << 20);
    source[(1 << 20) - 1].store(5, Ordering::Release);
    let d = alloc(4 << 20);
    ok!(cuMemcpyHtoDAsync_v2(d, source.as_ptr().cast(), 4 << 20, s));
    ok!(cuMemFreeHost(source.as_ptr() as *mut c_void));
    assert_eq!(read(d + (4 << 20) - 4, 1), [5]);
    let _: *mut c_void = null_mut();
}

#[test]
fn a_batch_reads_its_sources_when_it_says() {
    context();
    let s = stream(NON_BLOCKING);
    let d = alloc(16);
    let pageable: [AtomicU32; 3] = [1, 1, 1].map(AtomicU32::new);
    let at = |word: &AtomicU32| word.as_ptr() as u64;
    let mut dsts = [d, d + 4, d + 8];
    let mut srcs = [at(&pageable[0]), at(&pageable[1]), at(&pageable[2])];
    let (mut sizes, mut starts) = ([4; 3], [0, 1]);
    let mut attributes = [
        CU_MEMCPY_SRC_ACCESS_ORDER_STREAM,
        CU_MEMCPY_SRC_ACCESS_ORDER_DURING_API_CALL,
    ]
    .map(|order| CUmemcpyAttributes {
        srcAccessOrder: order,
        ..CUmemcpyAttributes::default()
    });
    let gate = Gate::hold(s);
    let mut batch = |dsts: &mut [u64; 3], starts: &mut [usize; 2], stream| {
        cu!(cuMemcpyBatchAsync_v2(
            dsts.as_mut_ptr(),
            srcs.as_mut_ptr(),
            sizes.as_mut_ptr(),
            3,
            attributes.as_mut_ptr(),
            starts.as_mut_ptr(),
            2,
            stream
        ))
    };
    assert_eq!(batch(&mut dsts, &mut starts, s), CUDA_SUCCESS);
    pageable
        .iter()
        .for_each(|word| word.store(2, Ordering::Release));
    gate.open();
    ok!(cuStreamSynchronize(s));
    assert_eq!(read(d, 3), [2, 1, 1]);
    assert_eq!(
        batch(&mut dsts, &mut starts, NULL_STREAM),
        CUDA_ERROR_INVALID_VALUE
    );
    for mut starts in [[1, 2], [0, 0], [0, 3]] {
        assert_eq!(batch(&mut dsts, &mut starts, s), CUDA_ERROR_INVALID_VALUE);
    }
    // One copy that cannot be made, and none is.
    let (mut failed, mut bad) = (0, [d, d + (5 << 30), d + 8]);
    ok!(cuMemsetD32Async(d, 0, 3, s));
    assert_eq!(
        cu!(cuMemcpyBatchAsync(
            bad.as_mut_ptr(),
            srcs.as_mut_ptr(),
            sizes.as_mut_ptr(),
            3,
            attributes.as_mut_ptr(),
            starts.as_mut_ptr(),
            2,
            &mut failed,
            s
        )),
        CUDA_ERROR_INVALID_VALUE
    );
    assert_eq!(failed, 1);
    ok!(cuStreamSynchronize(s));
    assert_eq!(read(d, 3), [0, 0, 0]);
}

#[test]
fn work_in_a_stream_needs_no_current_context() {
    context();
    let s = stream(NON_BLOCKING);
    let (a, b) = (alloc(4), alloc(4));
    let source = pinned(1);
    source[0].store(5, Ordering::Release);
    let mut own = null_mut();
    ok!(cuCtxGetCurrent(&mut own));
    ok!(cuCtxSetCurrent(null_mut()));
    ok!(cuMemsetD32Async(a, 7, 1, s));
    ok!(cuMemcpyHtoDAsync_v2(b, source.as_ptr().cast(), 4, s));
    // A default stream is the current context's.
    let by_default = cu!(cuMemsetD32Async(a, 7, 1, null_mut()));
    assert_eq!(by_default, CUDA_ERROR_INVALID_CONTEXT);
    ok!(cuCtxSetCurrent(own));
    ok!(cuStreamSynchronize(s));
    assert_eq!((read(a, 1), read(b, 1)), (vec![7], vec![5]));
}
