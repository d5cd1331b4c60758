// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Streams and events: destruction and waits.

use gpgpu_protocol::{
    api::{Event, Stream, reply, request},
    cuda::*,
};

use super::callback::place;
use crate::cuda::driver;
use crate::worker::{
    dispatch::{Outcome, Until},
    grace::{self, Name},
    session::{Data, Session},
};

/// `cuStreamDestroy`. Queued work still runs.
pub fn cuStreamDestroy_v2(
    session: &Session,
    request: request::cuStreamDestroy_v2,
    _: Data,
) -> Outcome<reply::cuStreamDestroy_v2> {
    let entry = session.objects.end::<Stream>(request.hStream)?;
    // SAFETY: the stream is the driver's and lives: it was just found, and only this ends it.
    let idle = unsafe { driver::cuStreamQuery(entry.raw as CUstream) };
    if idle.is_err() {
        session.objects.set_unfinished(entry.context);
    }
    session.later.destroy::<Stream>(request.hStream, &entry)?;
    Ok(reply::cuStreamDestroy_v2::default())
}

/// `cuStreamWaitEvent`.
pub fn cuStreamWaitEvent(
    session: &Session,
    request: request::cuStreamWaitEvent,
    _: Data,
) -> Outcome<reply::cuStreamWaitEvent> {
    let stream = session.objects.raw::<Stream>(request.hStream)? as CUstream;
    let event = session.objects.raw::<Event>(request.hEvent)? as CUevent;
    let place = place(session, request.hStream);
    let callbacks = session.callbacks;
    callbacks.wait(&session.gates, request.hEvent, place, || {
        // SAFETY: stream and event are the driver's and live.
        unsafe { driver::cuStreamWaitEvent(stream, event, request.Flags) }
    })?;
    Ok(reply::cuStreamWaitEvent::default())
}

/// Records an event by `record`, which gets the driver's handles.
fn record_by(
    session: &Session,
    event: u64,
    stream: u64,
    record: impl FnOnce(CUevent, CUstream) -> Result<(), CUresult>,
) -> Result<(), CUresult> {
    let raw = session.objects.raw::<Event>(event)? as CUevent;
    let raw_stream = session.objects.raw::<Stream>(stream)? as CUstream;
    let place = place(session, stream);
    session
        .callbacks
        .record(event, place, || record(raw, raw_stream))
}

/// Records an event in a stream, possibly behind callbacks.
///
/// # Errors
///
/// The driver's error code.
pub fn record(session: &Session, event: u64, stream: u64) -> Result<(), CUresult> {
    record_by(session, event, stream, |event, stream| {
        // SAFETY: stream and event are the driver's and live.
        unsafe { driver::cuEventRecord(event, stream) }
    })
}

/// `cuEventRecord`.
pub fn cuEventRecord(
    session: &Session,
    request: request::cuEventRecord,
    _: Data,
) -> Outcome<reply::cuEventRecord> {
    record(session, request.hEvent, request.hStream)?;
    Ok(reply::cuEventRecord::default())
}

/// `cuEventRecordWithFlags`.
pub fn cuEventRecordWithFlags(
    session: &Session,
    request: request::cuEventRecordWithFlags,
    _: Data,
) -> Outcome<reply::cuEventRecordWithFlags> {
    record_by(session, request.hEvent, request.hStream, |event, stream| {
        // SAFETY: as above.
        unsafe { driver::cuEventRecordWithFlags(event, stream, request.flags) }
    })?;
    Ok(reply::cuEventRecordWithFlags::default())
}

/// `cuEventDestroy`.
pub fn cuEventDestroy_v2(
    session: &Session,
    request: request::cuEventDestroy_v2,
    _: Data,
) -> Outcome<reply::cuEventDestroy_v2> {
    let entry = session.objects.end::<Event>(request.hEvent)?;
    session.later.destroy::<Event>(request.hEvent, &entry)?;
    Ok(reply::cuEventDestroy_v2::default())
}

/// `cuStreamSynchronize`, by the driver's own wait.
pub fn gpgpuStreamFinish(
    session: &Session,
    request: request::gpgpuStreamFinish,
    _: Data,
) -> Outcome<reply::gpgpuStreamFinish> {
    Until::Stream(request.hStream).wait(session)?;
    Ok(reply::gpgpuStreamFinish::default())
}

/// `cuEventSynchronize`.
pub fn cuEventSynchronize(
    session: &Session,
    request: request::cuEventSynchronize,
    _: Data,
) -> Outcome<reply::cuEventSynchronize> {
    let event = session.objects.entry::<Event>(request.hEvent);
    let event = event.ok_or(CUDA_ERROR_INVALID_HANDLE)?;
    let of = [request.hEvent, event.context].map(Name::Object);
    grace::narrow(&[of, session.used()].concat());
    // SAFETY: the event is the driver's, and lives until this ends.
    unsafe { driver::cuEventSynchronize(event.raw as CUevent)? };
    Ok(reply::cuEventSynchronize::default())
}
