// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Tests of the use of the host.

use super::*;
use crate::fake::Fake;

#[test]
fn the_host_traces_from_the_first_call_with_a_context() {
    let (host, profiler) = Fake::start();
    profiler.enable(kind::RUNTIME).unwrap();
    assert!(host.take_asked().is_empty());
    profiler.enable(kind::KERNEL).unwrap();
    profiler.enable(kind::MEMSET).unwrap();
    assert!(host.take_asked().is_empty());
    let mut early = crate::fake::call(gpgpu_trace::DRIVER, "cuInit");
    early.context = 0;
    profiler.begin(&mut early);
    profiler.end(&mut early);
    assert!(host.take_asked().is_empty());
    // An older host does not know the numbers.
    let numbers = || host.numbers_commands.load(Ordering::Relaxed);
    assert!(host.active.load(Ordering::Relaxed) && !numbers());
    // The first launch is itself traced.
    let mut launch = crate::fake::call(gpgpu_trace::RUNTIME, "cudaLaunchKernel");
    profiler.begin(&mut launch);
    assert_eq!(host.take_asked(), ["trace 5"]);
    assert!(numbers());
    profiler.end(&mut launch);
    profiler.runs("cudaLaunchKernel");
    // There is nothing to fetch for a kind that was not enabled.
    profiler.disable(kind::MEMCPY).unwrap();
    assert!(host.take_asked().is_empty());
    // This thread has no context, so that of the calls is used.
    profiler.disable(kind::KERNEL).unwrap();
    assert_eq!(host.take_asked(), ["take true", "within 77", "trace 4"]);
    host.context.store(78, Ordering::Relaxed);
    profiler.disable(kind::MEMSET).unwrap();
    assert_eq!(host.take_asked(), ["take true", "trace 0"]);
    assert!(host.active.load(Ordering::Relaxed) && !numbers());
    profiler.disable(kind::RUNTIME).unwrap();
    assert!(!host.active.load(Ordering::Relaxed));
    assert!(host.take_asked().is_empty());
}

#[test]
fn a_host_that_refuses_is_asked_once() {
    let (host, profiler) = Fake::start();
    host.refuses.store(true, Ordering::Relaxed);
    profiler.enable(kind::MEMCPY).unwrap();
    profiler.runs("cudaMemcpy");
    profiler.runs("cudaMemcpy");
    assert_eq!(host.take_asked(), ["trace 2"]);
    // Calls are recorded nevertheless.
    profiler.enable(kind::RUNTIME).unwrap();
    assert!(host.take_asked().is_empty());
    host.context.store(77, Ordering::Relaxed);
    assert_eq!(profiler.enable(kind::KERNEL), Err(NOT_SUPPORTED));
    assert!(!profiler.kinds.has(kind::KERNEL));
    assert_eq!(host.take_asked(), ["trace 3"]);
    // There is nothing to fetch from it.
    profiler.flush(When::Flush);
    assert!(host.take_asked().is_empty());
}

#[test]
fn many_calls_fetch_the_hosts_records() {
    let (host, profiler) = Fake::start();
    let take = || host.take_asked().contains(&"take false".to_owned());
    for _ in 0..4096 {
        profiler.runs("cudaFree");
    }
    assert!(!take());
    profiler.enable(kind::KERNEL).unwrap();
    profiler.runs("cudaFree");
    assert!(take());
    for _ in 0..4095 {
        profiler.runs("cudaFree");
    }
    assert!(!take());
    profiler.runs("cudaFree");
    assert!(take());
}

/// The first call of the runtime makes a context.
#[test]
fn the_call_that_makes_the_context_lets_the_host_trace_at_its_end() {
    let (host, profiler) = Fake::start();
    profiler.enable(kind::KERNEL).unwrap();
    let mut free = crate::fake::call(gpgpu_trace::RUNTIME, "cudaFree");
    free.context = 0;
    profiler.begin(&mut free);
    assert!(host.take_asked().is_empty());
    free.context = 77;
    profiler.end(&mut free);
    assert_eq!(host.take_asked(), ["trace 1"]);
}
