// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Fences: writes of the GPU to the slot of a request, by which the guest detects that the request is complete.

use gpgpu_protocol::{
    api::{Object, Property, Request, Stream, is, request},
    cuda::*,
    ring::{
        ELSEWHERE, NO_SLOT, Record, SLOT_BYTES, SLOT_FENCE_OFFSET, SLOT_FENCES, SLOT_OFFSET, SLOTS,
    },
};

use super::{Pending, Ring};
use crate::{
    cuda::driver,
    worker::{dispatch::Until, lease::Passage, session::Session, wait},
};

/// The streams of a context that have work, apart from the legacy stream.
#[derive(Debug, Default)]
struct Busy {
    /// Those for which the legacy stream does not wait.
    apart: Vec<u64>,
    /// The others.
    joined: Vec<u64>,
}

/// The streams of a context with work: a program may have more streams than a slot has fences, of which few are in use.
/// `None` if destroyed streams may have work.
fn busy(session: &Session, context: u64) -> Result<Option<Busy>, CUresult> {
    let Some(used) = session.objects.take_used(context) else {
        return Ok(None);
    };
    let mut busy = Busy::default();
    for stream in &used {
        match is_idle(stream.raw) {
            Ok(true) => {}
            Ok(false) => {
                session.objects.set_used(stream.id);
                match stream.is_apart {
                    true => busy.apart.push(stream.id),
                    false => busy.joined.push(stream.id),
                }
            }
            Err(code) => {
                used.iter()
                    .for_each(|stream| session.objects.set_used(stream.id));
                return Err(code);
            }
        }
    }
    Ok(Some(busy))
}

/// Whether a stream, which lives until this command ends, has done all its work.
fn is_idle(raw: u64) -> Result<bool, CUresult> {
    // SAFETY: the stream is the driver's and lives.
    match unsafe { driver::cuStreamQuery(raw as CUstream) } {
        Ok(()) => Ok(true),
        Err(CUDA_ERROR_NOT_READY) => Ok(false),
        Err(code) => Err(code),
    }
}

/// The streams in which the GPU writes a fence when a context has done its work; `None` if only the driver can wait for
/// it.
fn streams_of_context(session: &Session) -> Result<Option<Vec<u64>>, CUresult> {
    let context = session.entered();
    // Only the driver knows for which streams of a green context others wait.
    if session.has_greens(context) {
        return Ok(None);
    }
    let Some(Busy { apart, joined }) = busy(session, context)? else {
        return Ok(None);
    };
    if joined.is_empty() {
        // The legacy stream waits for all others.
        return Ok(Some([0].into_iter().chain(apart).collect()));
    }
    // A fence in the legacy stream would wait for these streams, and their later work would wait for the fence. But a
    // program may wait for a context in one thread, while another gives it work that ends the earlier work.
    if session.objects.has_threads_streams() || !is_idle(0)? {
        return Ok(None);
    }
    Ok(Some(joined.into_iter().chain(apart).collect()))
}

/// The streams in which the GPU writes a fence when a stream has done its work, for a wait: none if it is idle. `None`
/// if only the driver can wait for it.
///
/// A fence in a blocking stream, or in the legacy stream, orders these streams like other work. A wait must not, so
/// such a stream gets none if it has no work of its own.
fn streams_of_wait(session: &Session, stream: u64) -> Result<Option<Vec<u64>>, CUresult> {
    if ![0, CU_STREAM_LEGACY as u64].contains(&stream) {
        let is_over =
            session.objects.is_joined(stream) && is_idle(session.objects.raw::<Stream>(stream)?)?;
        return Ok(Some(if is_over { Vec::new() } else { vec![stream] }));
    }
    let context = session.entered();
    let has_others = !session.has_greens(context)
        && busy(session, context)?.is_some_and(|busy| !busy.joined.is_empty());
    if !has_others {
        return Ok(Some(vec![stream]));
    }
    Ok(is_idle(stream)?.then(Vec::new))
}

impl Ring {
    /// Makes the GPU write to the request's slot once it has done the work; returns the number of fences.
    pub(super) fn fence(
        &self,
        session: &Session,
        record: &Record,
        op: u16,
        until: &Until,
        passage: Option<Passage>,
    ) -> Result<u32, CUresult> {
        if record.slot == NO_SLOT {
            return Ok(0);
        }
        let streams = match until {
            Until::Stream(stream) => {
                // A thread can wait for a stream of a context that is not its current one.
                if let Some(entry) = session.objects.entry::<Stream>(*stream) {
                    session.enter(entry.context)?;
                }
                match op {
                    request::cuStreamSynchronize::OP => streams_of_wait(session, *stream)?,
                    _ => Some(vec![*stream]),
                }
            }
            Until::Context => streams_of_context(session)?,
        };
        let Some(streams) = streams else {
            return Ok(ELSEWHERE);
        };
        // Deferred errors are reported at completion, and this thread must not wait for it.
        let owes = session.has_deferred() && !is(op, Property::Block);
        if streams.len() > SLOT_FENCES || owes {
            return Ok(ELSEWHERE);
        }
        if streams.is_empty() {
            return Ok(0);
        }
        let passage = match passage {
            None => session.gates.pass_by()?,
            passed => passed,
        };
        let Some(passage) = passage else {
            // Another VM may have the GPU, although all work that this client has submitted is in flight or complete.
            // For a default stream, which waits for others, and for a context, a query is not sufficient.
            let can_ask = !streams.iter().any(|id| Stream::SPECIAL.contains(id));
            let is_over = can_ask && self.are_idle(session, &streams)?;
            return Ok(if is_over { 0 } else { ELSEWHERE });
        };
        let slot = record.slot as usize % SLOTS;
        let device = match self.register(session.current()) {
            Ok(base) => base + (SLOT_OFFSET + slot * SLOT_BYTES + SLOT_FENCE_OFFSET) as u64,
            Err(CUDA_ERROR_NOT_SUPPORTED) => return wait(session, until, Some(passage)),
            Err(code) => return Err(code),
        };
        for (index, stream) in streams.iter().enumerate() {
            let raw = session.objects.raw::<Stream>(*stream)? as CUstream;
            let word = device + index as u64 * 4;
            // SAFETY: the stream is the driver's and lives; the word is in the registered region.
            match unsafe { driver::cuStreamWriteValue32_v2(raw, word, record.sequence, 0) } {
                Ok(()) => {}
                // With such an old driver the ring's other commands have to wait.
                Err(CUDA_ERROR_NOT_SUPPORTED) => return wait(session, until, Some(passage)),
                Err(code) => return Err(code),
            }
        }
        let count = streams.len() as u32;
        self.with_pending(record, |pending| {
            *pending = Pending {
                sequence: record.sequence,
                is_running: false,
                context: session.entered(),
                streams,
            };
        });
        Ok(count)
    }

    /// Whether the request of a slot, whose record ends at `position`, is complete, so that no further write to the
    /// slot follows. If the slot contradicts this, the process has overwritten it or the record.
    ///
    /// # Errors
    ///
    /// The error of the context or its streams that prevents the fences.
    pub fn is_over(
        &self,
        session: &Session,
        slot: u32,
        sequence: u32,
        position: u64,
    ) -> Result<bool, CUresult> {
        // Read before the pending requests: they are recorded before the command counts as done.
        let is_answered = self.has_reached(position);
        let Some(pending) = self.pending.lock().get(slot as usize).cloned() else {
            return Err(CUDA_ERROR_INVALID_VALUE);
        };
        if pending.sequence != sequence {
            // Not executed yet, or without a fence.
            return Ok(is_answered);
        }
        if pending.is_running {
            return Ok(false);
        }
        session.enter(pending.context)?;
        Ok(self.are_idle(session, &pending.streams)? && is_answered)
    }

    /// Whether streams have done all their work.
    fn are_idle(&self, session: &Session, streams: &[u64]) -> Result<bool, CUresult> {
        let mut are_idle = true;
        for stream in streams {
            // A destroyed stream still does its work, but the end of that work is unknown.
            let Ok(raw) = session.objects.raw::<Stream>(*stream) else {
                are_idle = false;
                continue;
            };
            are_idle &= is_idle(raw)?;
        }
        Ok(are_idle)
    }
}
