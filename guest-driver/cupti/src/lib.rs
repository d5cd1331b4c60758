// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! `libcupti.so` for a virtio-gpgpu guest: CUPTI's activities and callbacks.
//!
//! The program's calls are observed here ([`observer`]): libcuda and libcudart report them ([`gpgpu_trace`]). Each call
//! has a number. The host traces the work with its own CUPTI, and its records have the numbers of the calls
//! ([`works`]). The records of both wait in a [`queue`], until [`buffers`] writes them to the program's buffers.
//!
//! No callback of the program runs while this library holds a lock: a callback may call any function of CUPTI or CUDA.
//!
//! Other parts of CUPTI, such as counters and sampling, are [`refused`].

#![allow(non_snake_case)]

mod attributes;
mod buffers;
mod callbacks;
mod enabled;
mod events;
#[cfg(test)]
mod fake;
mod graphs;
mod host;
mod ids;
mod kinds;
mod launches;
mod layouts;
mod libcuda;
mod numbers;
mod observer;
mod profiler;
mod queue;
mod refused;
mod results;
mod streams;
mod times;
mod turn;
mod version;
mod works;

use std::{
    cell::Cell,
    panic::{AssertUnwindSafe, catch_unwind},
};

use gpgpu_client::forks;
use gpgpu_protocol::cupti::{NOT_INITIALIZED, SUCCESS, Status, UNKNOWN};

/// The outcome of a function's body: nothing, or the status of its failure.
type Outcome = Result<(), Status>;

thread_local! {
    /// The status of the thread's last failure, for `cuptiGetLastError`.
    static LAST: Cell<Status> = const { Cell::new(SUCCESS) };
}

/// Runs the body of an exported function, and turns a panic into a status.
fn enter(body: impl FnOnce() -> Outcome) -> Status {
    let status = match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(())) => SUCCESS,
        Ok(Err(status)) => status,
        Err(_) => UNKNOWN,
    };
    if status != SUCCESS {
        let _ = LAST.try_with(|last| last.set(status));
    }
    status
}

/// [`enter`] for a function that uses what the process has recorded. In a forked child it fails with
/// `CUPTI_ERROR_NOT_INITIALIZED`: the child traces nothing, and a thread that does not exist may hold a lock there.
fn enter_here(body: impl FnOnce() -> Outcome) -> Status {
    enter(|| {
        forks::watch();
        if forks::is_child() {
            return Err(NOT_INITIALIZED);
        }
        body()
    })
}

/// Writes a value to the program's pointer.
///
/// # Errors
///
/// `CUPTI_ERROR_INVALID_PARAMETER` if the pointer is NULL.
///
/// # Safety
///
/// The pointer is NULL or the caller's to write to.
unsafe fn give<T>(to: *mut T, value: T) -> Outcome {
    if to.is_null() {
        return Err(gpgpu_protocol::cupti::INVALID_PARAMETER);
    }
    // SAFETY: promised by the caller, and not NULL.
    unsafe { to.write(value) };
    Ok(())
}
