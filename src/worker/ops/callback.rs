// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Host callbacks: the driver calls this module, and the guest runs the program's function.

use std::ffi::c_void;

use gpgpu_protocol::{
    api::{Stream, reply, request},
    cuda::*,
};

use crate::cuda::driver;
use crate::worker::{
    callbacks::{Callbacks, Place},
    dispatch::Outcome,
    grace,
    session::{Data, Session},
};

const LEGACY: u64 = CU_STREAM_LEGACY as u64;
const PER_THREAD: u64 = CU_STREAM_PER_THREAD as u64;

struct Due {
    callbacks: &'static Callbacks,
    callback: u64,
    serial: u64,
}

/// The place of a stream of the client; `None` for the default streams of this process's threads.
pub fn place(session: &Session, stream: u64) -> Option<Place> {
    let (context, stream) = match stream {
        0 | LEGACY => (session.entered(), 0),
        PER_THREAD => return None,
        _ => (session.objects.context_of(stream), stream),
    };
    Some(Place { context, stream })
}

fn launch(
    session: &Session,
    stream: u64,
    callback: u64,
    launch: impl FnOnce(CUstream, *mut c_void) -> Result<(), CUresult>,
) -> Result<(), CUresult> {
    let raw = session.objects.raw::<Stream>(stream)? as CUstream;
    let place = place(session, stream);
    session.callbacks.launch(&session.gates, place, |serial| {
        let due = Box::into_raw(Box::new(Due {
            callbacks: session.callbacks,
            callback,
            serial,
        }));
        // SAFETY: the driver refused the callback, so the box was not taken.
        launch(raw, due.cast()).inspect_err(|_| drop(unsafe { Box::from_raw(due) }))
    })
}

fn run(data: *mut c_void, status: CUresult) {
    // SAFETY: the pointer is the box that `launch` made, given to the driver for this one call.
    let due = unsafe { Box::from_raw(data.cast::<Due>()) };
    due.callbacks.run(due.callback, due.serial, status);
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

/// Handles a callback that the guest has run.
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
    launch(
        session,
        request.hStream,
        request.callback,
        |stream, data| {
            // SAFETY: the stream is the driver's; the driver calls the function at most once, with its box.
            unsafe { driver::cuLaunchHostFunc(stream, Some(on_host), data) }
        },
    )?;
    Ok(reply::cuLaunchHostFunc::default())
}

/// `cuStreamAddCallback`.
pub fn cuStreamAddCallback(
    session: &Session,
    request: request::cuStreamAddCallback,
    _: Data,
) -> Outcome<reply::cuStreamAddCallback> {
    launch(
        session,
        request.hStream,
        request.callback,
        |stream, data| {
            // SAFETY: as above.
            unsafe { driver::cuStreamAddCallback(stream, Some(on_stream), data, 0) }
        },
    )?;
    Ok(reply::cuStreamAddCallback::default())
}
