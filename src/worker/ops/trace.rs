// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Traces of the client's work.

use gpgpu_protocol::{
    api::{Context, Object, reply, request},
    cuda::*,
};

use crate::cuda::cupti::Cupti;
use crate::worker::{
    dispatch::Outcome,
    grace,
    session::{Data, Session},
    traces,
};

/// Sets the call to which the later commands of the stream belong.
pub fn gpgpuTraceCall(
    _: &Session,
    request: request::gpgpuTraceCall,
    _: Data,
) -> Outcome<reply::gpgpuTraceCall> {
    traces::set_call(request.call);
    Ok(reply::gpgpuTraceCall::default())
}

/// Sets the kinds of work that are traced.
pub fn gpgpuTraceWork(
    session: &Session,
    request: request::gpgpuTraceWork,
    _: Data,
) -> Outcome<reply::gpgpuTraceWork> {
    // Other processes of the VM may have to return memory first.
    grace::narrow(&[]);
    Ok(reply::gpgpuTraceWork {
        version: session.traces.trace(session, request.kinds)?,
        ..Default::default()
    })
}

/// The time of CUPTI's clock.
pub fn gpgpuTraceClock(
    _: &Session,
    _: request::gpgpuTraceClock,
    _: Data,
) -> Outcome<reply::gpgpuTraceClock> {
    let cupti = Cupti::open().map_err(|_| CUDA_ERROR_NOT_SUPPORTED)?;
    Ok(reply::gpgpuTraceClock {
        now: cupti.timestamp().map_err(|_| CUDA_ERROR_NOT_SUPPORTED)?,
    })
}

/// The numbers of the current context and of a stream.
pub fn gpgpuTraceNumbers(
    session: &Session,
    request: request::gpgpuTraceNumbers,
    _: Data,
) -> Outcome<reply::gpgpuTraceNumbers> {
    let cupti = Cupti::open().map_err(|_| CUDA_ERROR_NOT_SUPPORTED)?;
    let (raw, of) = session.objects.stream(request.hStream)?;
    // A special handle is a stream of the current context.
    let context = if of == 0 { session.current() } else { of };
    let context = Context::handle(session.objects.raw::<Context>(context)?);
    // 1 is the legacy default stream as well.
    let stream = if raw == 1 { 0 } else { raw } as CUstream;
    let (context, stream) = cupti
        .numbers(context, stream)
        .map_err(|_| CUDA_ERROR_NOT_SUPPORTED)?;
    Ok(reply::gpgpuTraceNumbers {
        context,
        stream,
        ..Default::default()
    })
}

/// Takes records of work.
pub fn gpgpuTraceTake(
    session: &Session,
    request: request::gpgpuTraceTake,
    _: Data,
) -> Outcome<reply::gpgpuTraceTake> {
    // It may wait for CUPTI's own thread.
    grace::narrow(&[]);
    let taken = session.traces.take(session, request.flush != 0);
    Ok(reply::gpgpuTraceTake {
        works: taken.works,
        names: taken.names,
        dropped: taken.dropped,
        more: taken.has_more.into(),
        ..Default::default()
    })
}
