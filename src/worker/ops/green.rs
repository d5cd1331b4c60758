// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Green contexts, and their multiprocessors.

use std::sync::atomic::Ordering;

use gpgpu_protocol::{
    api::{Context, Object, Stream, reply, request},
    cuda::*,
};

use super::context::{end, primary};
use crate::cuda::{driver, event_thread::with_slack};
use crate::worker::{
    captures,
    charges::Owner,
    dispatch::Outcome,
    grace,
    objects::Entry,
    session::{Data, Session},
    traces,
};

/// The multiprocessors of a device.
pub fn gpgpuDeviceMultiprocessors(
    session: &Session,
    request: request::gpgpuDeviceMultiprocessors,
    _: Data,
) -> Outcome<reply::gpgpuDeviceMultiprocessors> {
    let device = session.gpu(request.dev)?;
    let all = session.greens.whole(&session.objects, device, 0)?;
    Ok(reply::gpgpuDeviceMultiprocessors {
        all: all.told(),
        ..Default::default()
    })
}

/// The multiprocessors of a context.
pub fn gpgpuContextMultiprocessors(
    session: &Session,
    request: request::gpgpuContextMultiprocessors,
    _: Data,
) -> Outcome<reply::gpgpuContextMultiprocessors> {
    let context = session.objects.entry::<Context>(request.ctx);
    let context = context.ok_or(CUDA_ERROR_INVALID_CONTEXT)?;
    session.enter(request.ctx)?;
    let mut device = 0;
    // SAFETY: the pointer is to a value that lives across the call.
    unsafe { driver::cuCtxGetDevice(&mut device)? };
    // A context that is not a green one is in none.
    let green = if context.context == 0 { 0 } else { request.ctx };
    let all = session.greens.whole(&session.objects, device, green)?;
    Ok(reply::gpgpuContextMultiprocessors {
        all: all.told(),
        ..Default::default()
    })
}

/// The result of a split.
pub fn gpgpuMultiprocessorSplit(
    session: &Session,
    request: request::gpgpuMultiprocessorSplit,
    _: Data,
) -> Outcome<reply::gpgpuMultiprocessorSplit> {
    let device = session.gpu(request.dev)?;
    let split = session
        .greens
        .split(&session.objects, device, &request.split)?;
    let (groups, remaining) = split;
    Ok(reply::gpgpuMultiprocessorSplit {
        groups: groups.iter().map(|group| group.told()).collect(),
        remaining: remaining.told(),
        ..Default::default()
    })
}

/// `cuGreenCtxCreate`.
pub fn gpgpuGreenCtxCreate(
    session: &Session,
    request: request::gpgpuGreenCtxCreate,
    _: Data,
) -> Outcome<reply::gpgpuGreenCtxCreate> {
    let device = session.gpu(request.dev)?;
    let (charge, traced) = {
        // Other processes of the VM may have to return memory first. No object was looked up yet.
        let _paused = grace::pause();
        // The driver's memory for a green context was not measured; it is less than a context's.
        (
            session.device_memory.reserve_context(device)?,
            traces::reserve(session, device)?,
        )
    };
    // The primary context does not end during this.
    let table = primary(session);
    let begun = session.objects.begin::<Context>(request.green)?;
    let home = *table.get(&device).ok_or(CUDA_ERROR_INVALID_CONTEXT)?;
    let (split, groups) = (request.split, request.groups);
    let descriptor = session
        .greens
        .descriptor(&session.objects, device, &split, groups)?;
    let mut green = std::ptr::null_mut();
    let mut context = Context::handle(0);
    // SAFETY: the descriptor is the driver's, which ends none; the pointers are to values that live across the calls.
    unsafe {
        with_slack(|| driver::cuGreenCtxCreate(&mut green, descriptor, device, request.flags))?;
        if let Err(code) = driver::cuCtxFromGreenCtx(&mut context, green) {
            let _ = driver::cuGreenCtxDestroy(green);
            return Err(code.into());
        }
    }
    // The driver promises that it does not change the current context.
    session.forget_current();
    let owner = Owner::Context(request.green);
    session.charges.keep(owner, request.green, charge);
    session.traces.keep(session, request.green, traced);
    session.greens.note(request.green, green, device);
    session.any_green.store(true, Ordering::SeqCst);
    let entry = Entry::new(Context::id(context), home);
    begun.finish(entry);
    Ok(reply::gpgpuGreenCtxCreate::default())
}

/// Ends a hidden green context. The primary contexts are locked, so none ends in the meantime.
fn end_locked(session: &Session, green: u64) -> Result<(), CUresult> {
    end(session, green, |_| {
        let raw = session.greens.ending(green);
        let raw = raw.ok_or(CUDA_ERROR_INVALID_CONTEXT)?;
        // The driver would keep them.
        for stream in session.objects.streams(green) {
            // SAFETY: the stream is the driver's: its entry goes with it, or here. It is no longer in use.
            let _ = unsafe { driver::cuStreamDestroy_v2(stream as CUstream) };
        }
        // SAFETY: the handle is the driver's, and the context is no longer in use.
        captures::outside(|| unsafe { driver::cuGreenCtxDestroy(raw) })
    })
}

/// Ends the green contexts of a primary context that is about to end. The primary contexts are locked.
///
/// # Errors
///
/// The driver's error code; the remaining ones then still exist.
pub(super) fn end_all(session: &Session, home: u64) -> Result<(), CUresult> {
    for green in session.objects.greens(home) {
        end_locked(session, green)?;
    }
    Ok(())
}

/// `cuGreenCtxDestroy`. It first waits for the pending work of its streams: unlike at the end of a context, the memory
/// that the work uses remains, and so does the event at its end.
pub fn gpgpuGreenCtxDestroy(
    session: &Session,
    request: request::gpgpuGreenCtxDestroy,
    _: Data,
) -> Outcome<reply::gpgpuGreenCtxDestroy> {
    let green = request.green;
    session.greens.raw(&session.objects, green)?;
    grace::narrow(&[]);
    {
        let _uses = grace::enter(green, false);
        session
            .enter(green)
            .map_err(|_| CUDA_ERROR_INVALID_CONTEXT)?;
        grace::narrow(&session.used());
        // A failed context has no work any more.
        let _ = captures::synchronize();
        let _ = session.enter(0);
    }
    let _table = primary(session);
    end_locked(session, green)?;
    Ok(reply::gpgpuGreenCtxDestroy::default())
}

/// `cuGreenCtxStreamCreate`.
pub fn gpgpuGreenCtxStreamCreate(
    session: &Session,
    request: request::gpgpuGreenCtxStreamCreate,
    _: Data,
) -> Outcome<reply::gpgpuGreenCtxStreamCreate> {
    let begun = session.objects.begin::<Stream>(request.stream)?;
    let green = session.greens.raw(&session.objects, request.green)?;
    let mut stream = Stream::handle(0);
    // SAFETY: the handle is the driver's and lives; the pointer is to a value that lives across the call.
    unsafe {
        driver::cuGreenCtxStreamCreate(&mut stream, green, request.flags, request.priority)?;
    }
    let entry = Entry::new(Stream::id(stream), request.green);
    begun.finish(entry);
    Ok(reply::gpgpuGreenCtxStreamCreate::default())
}
