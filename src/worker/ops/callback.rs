// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Host callbacks: the driver calls here, the guest runs the program's function.

use std::ffi::c_void;

use gpgpu_protocol::{
    api::{Stream, reply, request},
    cuda::*,
};

use crate::cuda::driver;
use crate::worker::{
    dispatch::Outcome,
    grace,
    session::{Callbacks, Data, Session},
};

struct Due {
    callbacks: &'static Callbacks,
    callback: u64,
}

fn due(session: &Session, callback: u64) -> *mut c_void {
    let callbacks = session.callbacks;
    Box::into_raw(Box::new(Due {
        callbacks,
        callback,
    }))
    .cast()
}

fn run(data: *mut c_void, status: CUresult) {
    // SAFETY: the pointer is the box that `due` made, given to the driver for this one call.
    let due = unsafe { Box::from_raw(data.cast::<Due>()) };
    due.callbacks.run(due.callback, status);
}

unsafe extern "C" fn on_host(data: *mut c_void) {
    run(data, CUDA_SUCCESS);
}

unsafe extern "C" fn on_stream(_: CUstream, status: CUresult, data: *mut c_void) {
    run(data, status);
}

/// Waits for the next callback that is due.
pub fn gpgpuNextCallback(
    session: &Session,
    _: request::gpgpuNextCallback,
    _: Data,
) -> Outcome<reply::gpgpuNextCallback> {
    grace::narrow(&[]);
    let (callback, status) = session.callbacks.next();
    Ok(reply::gpgpuNextCallback { callback, status })
}

/// The guest has run a callback.
pub fn gpgpuCallbackDone(
    session: &Session,
    request: request::gpgpuCallbackDone,
    _: Data,
) -> Outcome<reply::gpgpuCallbackDone> {
    session.callbacks.done(request.callback);
    Ok(reply::gpgpuCallbackDone::default())
}

/// `cuLaunchHostFunc`.
pub fn cuLaunchHostFunc(
    session: &Session,
    request: request::cuLaunchHostFunc,
    _: Data,
) -> Outcome<reply::cuLaunchHostFunc> {
    let stream = session.objects.raw::<Stream>(request.hStream)? as CUstream;
    let data = due(session, request.callback);
    // SAFETY: the stream is the driver's; the driver calls the function at most once, with its box.
    unsafe { driver::cuLaunchHostFunc(stream, Some(on_host), data) }
        .inspect_err(|_| drop_due(data))?;
    Ok(reply::cuLaunchHostFunc::default())
}

/// `cuStreamAddCallback`.
pub fn cuStreamAddCallback(
    session: &Session,
    request: request::cuStreamAddCallback,
    _: Data,
) -> Outcome<reply::cuStreamAddCallback> {
    let stream = session.objects.raw::<Stream>(request.hStream)? as CUstream;
    let data = due(session, request.callback);
    // SAFETY: as above.
    unsafe { driver::cuStreamAddCallback(stream, Some(on_stream), data, 0) }
        .inspect_err(|_| drop_due(data))?;
    Ok(reply::cuStreamAddCallback::default())
}

fn drop_due(data: *mut c_void) {
    // SAFETY: the driver refused the callback, so the box was not taken.
    drop(unsafe { Box::from_raw(data.cast::<Due>()) });
}
