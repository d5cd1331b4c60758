// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Tests of the observation of calls.

use std::{cell::RefCell, ffi::CStr, ptr::null_mut};

use gpgpu_protocol::cupti::{CUSTOM0, INVALID_PARAMETER, QUEUE_EMPTY, SUCCESS};

use super::{external::*, *};
use crate::fake::{Fake, call, read};
use crate::layouts::{Synchronization, UNKNOWN};

const KIND: u32 = 3 + 1;

fn kinds(records: &[(u32, Vec<u64>)]) -> Vec<u32> {
    records.iter().map(|(kind, _)| *kind).collect()
}

#[test]
fn a_call_is_a_record_with_its_number_result_and_times() {
    let (_, profiler) = Fake::start();
    profiler.enable(kind::RUNTIME).unwrap();
    profiler.enable(kind::DRIVER).unwrap();
    let mut result = 0;
    let mut driver = call(DRIVER, "cuMemAlloc_v2");
    driver.result = &raw mut result;
    let before = profiler.clock.now();
    profiler.begin(&mut driver);
    assert_eq!(driver.number, 1);
    // SAFETY: the call's result is the variable above.
    unsafe { driver.result.write(2) };
    profiler.end(&mut driver);
    assert_eq!(profiler.runs("cudaMalloc"), 2);
    let mut library = call(LIBRARY, "cublasSgemm_v2");
    profiler.begin(&mut library);
    profiler.end(&mut library);
    // Calls of functions that CUPTI does not know have a number, and no record.
    assert_eq!(profiler.runs("cudaNoSuchFunction"), 4);
    let records = profiler.records();
    let records: Vec<ApiRecord> = records.iter().map(read).collect();
    let known = |record: &ApiRecord| {
        assert!(before <= record.start && record.start <= record.end);
        assert_eq!(
            (record.process, record.thread),
            (ids::process(), ids::thread())
        );
        (
            record.kind,
            record.callback,
            record.correlation,
            record.result,
        )
    };
    let known: Vec<_> = records.iter().map(known).collect();
    assert_eq!(known, [(4, 243, 1, 2), (5, 20, 2, 0), (5, 211, 3, 0)]);
}

#[test]
fn functions_are_enabled_and_disabled_one_by_one() {
    let (_, profiler) = Fake::start();
    let malloc = || {
        profiler.runs("cudaMalloc");
        profiler.runs("cudaFree");
        profiler.records().len()
    };
    profiler.enable(kind::RUNTIME).unwrap();
    profiler.kinds.set_function(RUNTIME, 20, false);
    assert_eq!(malloc(), 1);
    profiler.enable(kind::RUNTIME).unwrap();
    assert_eq!(malloc(), 2);
    profiler.disable(kind::RUNTIME).unwrap();
    assert_eq!(malloc(), 0);
    profiler.kinds.set_function(RUNTIME, 20, true);
    assert_eq!(malloc(), 1);
    profiler.kinds.set_function(DRIVER, 20, false);
    assert_eq!(malloc(), 1);
}

#[test]
fn external_numbers_precede_the_call_and_are_a_stack_for_each_kind() {
    let (_, profiler) = Fake::start();
    profiler.enable(kind::RUNTIME).unwrap();
    profiler.enable(kind::EXTERNAL_CORRELATION).unwrap();
    for (kind, id) in [(CUSTOM0, 10), (KIND, 20), (CUSTOM0, 11)] {
        assert_eq!(cuptiActivityPushExternalCorrelationId(kind, id), SUCCESS);
    }
    profiler.runs("cudaMalloc");
    let records = profiler.records();
    assert_eq!(
        kinds(&records),
        [
            kind::EXTERNAL_CORRELATION,
            kind::EXTERNAL_CORRELATION,
            kind::RUNTIME
        ]
    );
    let external = |record: &_| {
        let record = read::<ExternalCorrelation>(record);
        (record.external_kind, record.external, record.correlation)
    };
    assert_eq!(external(&records[0]), (CUSTOM0, 11, 1));
    assert_eq!(external(&records[1]), (KIND, 20, 1));
    // Another thread has its own stacks.
    std::thread::scope(|scope| {
        scope.spawn(|| profiler.runs("cudaMalloc"));
    });
    assert_eq!(kinds(&profiler.records()), [kind::RUNTIME]);
    let pop = |kind| {
        let mut last = 0;
        // SAFETY: the pointer is to a value that lives across the call.
        let status = unsafe { cuptiActivityPopExternalCorrelationId(kind, &mut last) };
        (status, last)
    };
    assert_eq!(pop(CUSTOM0), (SUCCESS, 11));
    // SAFETY: NULL is allowed.
    let status = unsafe { cuptiActivityPopExternalCorrelationId(CUSTOM0, null_mut()) };
    assert_eq!((status, pop(CUSTOM0)), (SUCCESS, (QUEUE_EMPTY, 0)));
    assert_eq!((pop(KIND), pop(0)), ((SUCCESS, 20), (INVALID_PARAMETER, 0)));
    assert_eq!(
        cuptiActivityPushExternalCorrelationId(6, 1),
        INVALID_PARAMETER
    );
    profiler.runs("cudaMalloc");
    assert_eq!(kinds(&profiler.records()), [kind::RUNTIME]);
    // Without records of calls, all calls count. With some, the others do not.
    cuptiActivityPushExternalCorrelationId(CUSTOM0, 1);
    profiler.disable(kind::RUNTIME).unwrap();
    profiler.runs("cudaMalloc");
    assert_eq!(kinds(&profiler.records()), [kind::EXTERNAL_CORRELATION]);
    profiler.kinds.set_function(RUNTIME, 1, true);
    profiler.runs("cudaMalloc");
    assert!(profiler.records().is_empty());
    pop(CUSTOM0);
}

#[test]
fn waits_are_synchronization_records() {
    let (_, profiler) = Fake::start();
    profiler.enable(kind::SYNCHRONIZATION).unwrap();
    profiler.contexts.learn(77, 5);
    let waits = |domain, name, stream: u64| {
        let mut call = call(domain, name);
        call.arguments = (&raw const stream).cast();
        profiler.begin(&mut call);
        profiler.end(&mut call);
        let records = profiler.records();
        let record: Synchronization = read(records.first()?);
        Some((record.of, record.context, record.stream, record.correlation))
    };
    let none = UNKNOWN;
    assert_eq!(waits(DRIVER, "cuCtxSynchronize", 0), Some((4, 5, none, 1)));
    assert_eq!(
        waits(RUNTIME, "cudaStreamSynchronize", 0),
        Some((3, 5, 7, 2))
    );
    assert_eq!(
        waits(RUNTIME, "cudaStreamSynchronize_ptsz", 0),
        Some((3, 5, none, 3))
    );
    assert_eq!(
        waits(DRIVER, "cuStreamWaitEvent", 4096),
        Some((2, 5, none, 4))
    );
    assert_eq!(
        waits(RUNTIME, "cudaEventSynchronize", 4096),
        Some((1, 5, none, 5))
    );
    assert_eq!(waits(RUNTIME, "cudaEventQuery", 4096), None);
}

/// The site, the domain, the number, the name and the word of a callback.
type Called = (u32, u32, u32, String, u64);

thread_local! {
    static CALLED: RefCell<Vec<Called>> = const { RefCell::new(Vec::new()) };
}

/// Keeps what it gets. At the begin it leaves a word, and at the end it changes the result.
unsafe extern "C" fn subscriber(user: *mut c_void, domain: u32, number: u32, data: *const c_void) {
    // SAFETY: the data is of this type, and the user's pointer is the profiler's.
    let (data, profiler) = unsafe { (&*data.cast::<Data>(), &*user.cast::<Profiler>()) };
    // SAFETY: the name is a string, and the word and the result are the call's.
    unsafe {
        let name = CStr::from_ptr(data.name).to_str().unwrap().to_owned();
        let word = data.word.read();
        CALLED.with_borrow_mut(|called| called.push((data.site, domain, number, name, word)));
        assert_eq!((data.context as u64, data.correlation), (77, 1));
        match data.site {
            ENTER => data.word.write(5),
            _ => {
                data.result.cast::<u32>().write(9);
                // A callback may end all.
                profiler.finish();
            }
        }
    }
}

#[test]
fn a_subscriber_is_called_at_both_ends_and_may_end_all() {
    let (host, profiler) = Fake::start();
    let user = (&raw const *profiler) as usize;
    let handle = profiler
        .callbacks
        .subscribe(Some(subscriber), user)
        .unwrap();
    assert_eq!(profiler.callbacks.subscribe(None, 0), Err(39));
    assert!(!profiler.callbacks.any());
    let enable = |handle, domain, number| {
        let enabled = profiler.callbacks.enable(handle, domain, number, true);
        profiler.switch().and(enabled)
    };
    assert_eq!(enable(handle + 1, RUNTIME, 20), Err(INVALID_PARAMETER));
    assert_eq!(enable(handle, 7, 1), Err(INVALID_PARAMETER));
    assert_eq!(enable(handle, RUNTIME, 523), Err(INVALID_PARAMETER));
    // Callbacks of resources are never made, so calls need not be observed for them.
    assert_eq!(enable(handle, 3, 1), Ok(()));
    assert!(!host.active.load(std::sync::atomic::Ordering::Relaxed));
    assert_eq!(enable(handle, RUNTIME, 20), Ok(()));
    assert!(host.active.load(std::sync::atomic::Ordering::Relaxed));
    assert_eq!(profiler.callbacks.state(handle, RUNTIME, 20), Ok(true));
    assert_eq!(profiler.callbacks.state(handle, RUNTIME, 21), Ok(false));
    profiler.enable(kind::RUNTIME).unwrap();
    let mut result = 0;
    let mut malloc = call(RUNTIME, "cudaMalloc");
    malloc.result = &raw mut result;
    profiler.begin(&mut malloc);
    profiler.end(&mut malloc);
    assert_eq!(result, 9);
    let called = |site, word| (site, RUNTIME, 20, "cudaMalloc".to_owned(), word);
    assert_eq!(CALLED.take(), [called(ENTER, 0), called(EXIT, 5)]);
    assert_eq!(malloc.data, 5);
    // It has ended all: nothing is enabled, and there may be another subscriber.
    assert!(!host.active.load(std::sync::atomic::Ordering::Relaxed));
    assert!(!profiler.kinds.any());
    assert_eq!(
        profiler.callbacks.unsubscribe(handle),
        Err(INVALID_PARAMETER)
    );
    let next = profiler.callbacks.subscribe(None, 0).unwrap();
    assert_ne!(next, handle);
    // All functions of a domain are enabled: those without a number are not reported.
    profiler
        .callbacks
        .enable_domain(next, RUNTIME, true)
        .unwrap();
    assert!(profiler.callbacks.wants(RUNTIME, 20));
    assert!(!profiler.callbacks.wants(RUNTIME, crate::numbers::NONE));
    assert_eq!(profiler.callbacks.unsubscribe(next), Ok(()));
}

#[test]
fn a_number_is_never_0() {
    let calls = Calls::new();
    let mut one = call(RUNTIME, "cudaMalloc");
    calls.last_is(u32::MAX - 1);
    let mut begin = || {
        calls.begin(&mut one, 3);
        one.number
    };
    assert_eq!([begin(), begin(), begin()], [u32::MAX, 1, 2]);
    assert_eq!((calls.of(2), calls.of(3)), (Some((3, 77)), None));
    assert!(!calls.has_ended(2));
    calls.end(&one);
    assert!(calls.has_ended(2) && calls.has_ended(3));
    assert!(calls.has_ended(0));
    // Much later another call takes the place.
    let later = 2 + (1 << 16);
    calls.last_is(later - 1);
    calls.begin(&mut one, 4);
    assert_eq!(calls.of(later), Some((4, 77)));
    assert!(!calls.has_ended(later) && calls.has_ended(2));
}

/// A profiler that counts kernels by callbacks would miss those of libraries otherwise.
#[test]
fn a_librarys_call_has_the_callbacks_of_a_launch() {
    let (_, profiler) = Fake::start();
    let user = (&raw const *profiler) as usize;
    let handle = profiler
        .callbacks
        .subscribe(Some(subscriber), user)
        .unwrap();
    for domain in [DRIVER, RUNTIME] {
        profiler
            .callbacks
            .enable_domain(handle, domain, true)
            .unwrap();
    }
    let mut status = 4;
    let mut library = call(LIBRARY, "cudnnConvolutionForward");
    library.result = &raw mut status;
    profiler.begin(&mut library);
    profiler.end(&mut library);
    let called = |site, word| (site, RUNTIME, 211, "cudaLaunchKernel".to_owned(), word);
    assert_eq!(CALLED.take(), [called(ENTER, 0), called(EXIT, 5)]);
    // The library's own status is not the callback's to change.
    assert_eq!(status, 4);
}

#[test]
fn a_forked_child_records_nothing() {
    // The profiler of the process is in use, so forks are watched.
    assert_ne!(crate::buffers::cuptiActivityFlushAll(0), SUCCESS);
    let mut malloc = call(RUNTIME, "cudaMalloc");
    // SAFETY: the child only compares numbers, and ends without the parent's handlers.
    let child = unsafe { libc::fork() };
    if child == 0 {
        malloc.number = 1;
        // SAFETY: the call lives across the function.
        unsafe { (OBSERVER.begin)(&mut malloc) };
        let flushed = crate::buffers::cuptiActivityFlushAll(0);
        let is_off = malloc.number == 0 && flushed == gpgpu_protocol::cupti::NOT_INITIALIZED;
        // SAFETY: ends the child.
        unsafe { libc::_exit(i32::from(!is_off)) };
    }
    let mut status = -1;
    // SAFETY: the child is this test's, and the pointer is to a value that lives across the call.
    unsafe { libc::waitpid(child, &mut status, 0) };
    assert_eq!(status, 0);
    // SAFETY: the call lives across the functions.
    unsafe {
        (OBSERVER.begin)(&mut malloc);
        (OBSERVER.end)(&mut malloc);
    }
    assert_ne!(malloc.number, 0);
}

#[test]
fn a_launch_names_its_function() {
    let launches = |name, arguments: [u64; 2]| {
        let mut call = call(DRIVER, name);
        call.arguments = (&raw const arguments).cast();
        launched(&call)
    };
    assert_eq!(launches("cuLaunchKernel", [7, 1]), Some(7));
    assert_eq!(launches("cuLaunchCooperativeKernel_ptsz", [7, 1]), Some(7));
    assert_eq!(launches("cuLaunchKernelEx_ptsz", [7, 1]), Some(1));
    assert_eq!(launches("cuLaunchHostFunc", [7, 1]), None);
    assert_eq!(launched(&call(DRIVER, "cuLaunchKernel")), None);
}
