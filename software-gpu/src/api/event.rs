// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Events.

use std::ffi::c_uint;
use std::sync::Arc;
use std::time::Instant;

use gpgpu_graphs::capture;
use gpgpu_locks::Mutex;
use gpgpu_protocol::cuda::{
    CU_EVENT_BLOCKING_SYNC, CU_EVENT_DISABLE_TIMING, CU_EVENT_INTERPROCESS,
    CUDA_ERROR_INVALID_HANDLE, CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_NOT_READY,
    CUDA_ERROR_NOT_SUPPORTED, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, CUcontext, CUevent, CUstream,
};

use crate::context::{self, Context};
use crate::ffi::{Pointer, Result, export};
use crate::graph::{self, Soft};
use crate::handle::Table;
use crate::stream::{Null, Ticket};

/// All events.
pub static EVENTS: Table<Event> = Table::new(0xe0);

/// An event.
pub struct Event {
    /// Its context, by id.
    pub context: u64,
    handle: u64,
    flags: u32,
    recorded: Mutex<Option<Arc<Ticket>>>,
}

impl Event {
    /// The event that a handle names.
    pub fn named(handle: CUevent) -> Result<Arc<Self>> {
        EVENTS.get(handle as u64).ok_or(CUDA_ERROR_INVALID_HANDLE)
    }

    /// The latest record, or `None` if it was never recorded.
    pub fn recorded(&self) -> Option<Arc<Ticket>> {
        self.recorded.lock().clone()
    }

    /// Whether a launch may record it: it has no time.
    pub fn is_for_launches(&self) -> bool {
        self.flags & CU_EVENT_DISABLE_TIMING != 0
    }

    /// Records it in a stream.
    pub fn record(&self, cx: &Context, stream: CUstream, null: Null, flags: c_uint) -> Result {
        if flags > 1 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let stream = cx.stream(stream, null)?;
        if stream.context != self.context {
            return Err(CUDA_ERROR_INVALID_HANDLE);
        }
        if graph::record_event(self.handle, &stream, flags)? {
            return Ok(());
        }
        // Held across the queuing: of two threads that record, the later one in the stream wins.
        let mut recorded = self.recorded.lock();
        *recorded = Some(context::queue_always(&stream, |_| ())?);
        Ok(())
    }

    /// Records that a launch of a graph will record the event: the record is complete when the ticket is.
    pub fn record_by(&self, ticket: Arc<Ticket>) {
        *self.recorded.lock() = Some(ticket);
    }

    // The time at which it was reached, for elapsed time.
    fn time(&self) -> Result<Instant> {
        if self.flags & CU_EVENT_DISABLE_TIMING != 0 {
            return Err(CUDA_ERROR_INVALID_HANDLE);
        }
        let ticket = self.recorded().ok_or(CUDA_ERROR_INVALID_HANDLE)?;
        ticket
            .is_done()
            .then(|| ticket.time())
            .flatten()
            .ok_or(CUDA_ERROR_NOT_READY)
    }
}

/// Records an event after all work that a context has so far.
pub(super) fn record_all(context: &Context, event: CUevent) -> Result {
    let event = Event::named(event)?;
    capture::refuse_context::<Soft>(context.handle)?;
    if event.context != context.id {
        return Err(CUDA_ERROR_INVALID_HANDLE);
    }
    event.record_by(context.mark());
    capture::forget_event::<Soft>(event.handle);
    Ok(())
}

/// Makes all later work of a context wait for an event.
pub(super) fn hold_all(context: &Context, event: CUevent) -> Result {
    let handle = event as u64;
    let event = Event::named(event)?;
    capture::refuse_context::<Soft>(context.handle)?;
    capture::use_event::<Soft>(handle).map_err(|_| CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED)?;
    if let Some(ticket) = event.recorded().filter(|ticket| !ticket.is_done()) {
        context.wait_behind(ticket);
    }
    Ok(())
}

fn destroy(event: CUevent) -> Result {
    capture::forget_event::<Soft>(event as u64);
    EVENTS
        .remove(event as u64)
        .map(|_| ())
        .ok_or(CUDA_ERROR_INVALID_HANDLE)
}

fn elapsed(out: Pointer<f32>, start: CUevent, end: CUevent) -> Result {
    for event in [start, end] {
        capture::use_event::<Soft>(event as u64)?;
    }
    let (start, end) = (Event::named(start)?, Event::named(end)?);
    let device = |event: &Event| context::of_id(event.context).map(|context| context.device);
    if device(&start)? != device(&end)? {
        return Err(CUDA_ERROR_INVALID_HANDLE);
    }
    let (start, end) = (start.time(), end.time());
    // A permanent error comes before an unfinished event.
    for time in [&start, &end] {
        if let Err(CUDA_ERROR_INVALID_HANDLE) = time {
            return Err(CUDA_ERROR_INVALID_HANDLE);
        }
    }
    let (start, end) = (start?, end?);
    let seconds = match end.checked_duration_since(start) {
        Some(time) => time.as_secs_f64(),
        None => -start.duration_since(end).as_secs_f64(),
    };
    out.set((seconds * 1e3) as f32)
}

export! {
    /// `cuEventCreate`; interprocess events are not supported.
    context fn cuEventCreate(out: Pointer<CUevent>, flags: c_uint) |cx| {
        out.required()?;
        if flags & !(CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS) != 0 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        if flags & CU_EVENT_INTERPROCESS != 0 {
            let timed = flags & CU_EVENT_DISABLE_TIMING == 0;
            return Err(if timed { CUDA_ERROR_INVALID_VALUE } else { CUDA_ERROR_NOT_SUPPORTED });
        }
        let event = EVENTS.insert_with(|handle| Event {
            context: cx.id,
            handle,
            flags,
            recorded: Mutex::new(None),
        });
        out.set(event.handle as CUevent)
    }

    /// `cuEventRecord`.
    work(stream) fn cuEventRecord, cuEventRecord_ptsz(event: CUevent, stream: CUstream) |cx, null| {
        Event::named(event)?.record(&cx, stream, null, 0)
    }

    /// `cuEventRecordWithFlags`: the one flag makes the record a node in a capture, and is wrong elsewhere.
    work(stream) fn cuEventRecordWithFlags, cuEventRecordWithFlags_ptsz(event: CUevent, stream: CUstream, flags: c_uint) |cx, null| {
        Event::named(event)?.record(&cx, stream, null, flags)
    }

    /// `cuCtxRecordEvent`: after all work that the context has so far.
    healthy fn cuCtxRecordEvent(context: CUcontext, event: CUevent) |_| {
        record_all(&*context::named(context as u64)?, event)
    }

    /// `cuCtxWaitEvent`: all that the context is given from now on waits.
    healthy fn cuCtxWaitEvent(context: CUcontext, event: CUevent) |_| {
        hold_all(&*context::named(context as u64)?, event)
    }

    /// `cuEventQuery`: an event that was never recorded is ready.
    healthy fn cuEventQuery(event: CUevent) |driver| {
        capture::observe_event::<Soft>(event as u64)?;
        if Event::named(event)?.recorded().is_some_and(|t| !t.is_done()) {
            return Err(CUDA_ERROR_NOT_READY);
        }
        driver.fault()
    }

    /// `cuEventSynchronize`.
    healthy fn cuEventSynchronize(event: CUevent) |_| {
        capture::observe_event::<Soft>(event as u64)?;
        let event = Event::named(event)?;
        match event.recorded() {
            Some(ticket) => context::wait_for(event.context, &ticket),
            None => Ok(()),
        }
    }

    /// `cuEventDestroy`: a record that is pending still happens.
    healthy fn cuEventDestroy_v2(event: CUevent) |_| {
        destroy(event)
    }

    /// As [`cuEventDestroy_v2`].
    healthy fn cuEventDestroy(event: CUevent) |_| {
        destroy(event)
    }

    /// `cuEventElapsedTime`, in milliseconds: `CUDA_ERROR_INVALID_HANDLE` for an event without timing or never
    /// recorded, `CUDA_ERROR_NOT_READY` for one not reached yet.
    healthy fn cuEventElapsedTime(out: Pointer<f32>, start: CUevent, end: CUevent) |_| {
        elapsed(out, start, end)
    }

    /// As [`cuEventElapsedTime`].
    healthy fn cuEventElapsedTime_v2(out: Pointer<f32>, start: CUevent, end: CUevent) |_| {
        elapsed(out, start, end)
    }
}
