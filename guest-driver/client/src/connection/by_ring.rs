// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Requests in the ring whose callers wait.

use std::sync::atomic::Ordering;

use gpgpu_protocol::{
    api::{Completion, Operation, Request, request},
    cuda::*,
    layout::MAX_ANSWER_BYTES,
    ring::SLOTS,
};

use super::{Connection, say_that_waits};
use crate::{
    before,
    command::{decode, encode, failed, reply},
    ffi::Result,
    log::{self, Level},
    ring::{Ring, Ticket, Waited},
    thread,
    transport::Failure,
};

impl Connection {
    /// Sends a command through the ring and waits; `false` if the command has to use the command queue.
    pub(super) fn exchange_by_ring(
        &self,
        operation: &Operation,
        ring: &Ring,
        stream: &[u8],
        answer: &mut Vec<u8>,
    ) -> Result<bool> {
        let left = match operation.completion {
            Completion::Wait => Some(SLOTS / 2),
            Completion::Fence => Some(SLOTS / 4),
            Completion::Post | Completion::Call => None,
        };
        let ticket = if let Some(left) = left {
            let (wake, ask) = (|| self.wake(), || self.is_served());
            match ring.request_leaving(left, thread::tag(), stream, wake, ask) {
                Some(sent) => sent.map_err(|failure| failed(operation.name, &failure))?,
                None => return Ok(false),
            }
        } else {
            self.request_by_ring(operation, ring, stream)?
        };
        say_that_waits(operation, "ring");
        match self.wait_by_ring(operation, ring, ticket, answer)? {
            Waited::Over => Ok(true),
            Waited::Elsewhere => Ok(false),
            Waited::Kept => {
                let fetched = self.fetch(ticket, answer);
                ring.fetched(ticket);
                fetched.map(|()| true)
            }
        }
    }

    /// Fetches an answer that does not fit into its slot.
    pub(super) fn fetch(&self, ticket: Ticket, answer: &mut Vec<u8>) -> Result {
        let question = request::gpgpuRingAnswer {
            slot: ticket.slot,
            sequence: ticket.sequence,
            answer: true,
        };
        answer.resize(MAX_ANSWER_BYTES, 0);
        let length = self
            .ask(&question, answer)
            .map_err(|failure| failed(request::gpgpuRingAnswer::NAME, &failure))?;
        let decoded = decode::<request::gpgpuRingAnswer>(&answer[..length.min(answer.len())])?;
        *answer = reply(decoded)?.answer.0;
        Ok(())
    }

    pub(super) fn request_by_ring(
        &self,
        operation: &Operation,
        ring: &Ring,
        stream: &[u8],
    ) -> Result<Ticket> {
        ring.request(thread::tag(), stream, || self.wake(), || self.is_served())
            .map_err(|failure| failed(operation.name, &failure))
    }

    pub(super) fn wait_by_ring(
        &self,
        operation: &Operation,
        ring: &Ring,
        ticket: Ticket,
        answer: &mut Vec<u8>,
    ) -> Result<Waited> {
        ring.wait(ticket, answer, || self.is_done(ticket))
            .inspect_err(|code| {
                log::say(Level::Debug, || {
                    format!("{}: {code} while waiting", operation.name)
                });
                self.note(*code);
            })
    }

    /// Wakes the worker's end of the ring.
    pub(super) fn wake(&self) -> std::result::Result<(), Failure> {
        if let Some(ring) = self
            .ring
            .as_ref()
            .filter(|_| self.transport.is_on_this_machine())
        {
            ring.wake();
            return Ok(());
        }
        let mut stream = Vec::new();
        encode(&request::gpgpuRingWake {}, &mut stream);
        self.transport.post(thread::tag(), &stream)
    }

    /// Whether the worker has finished the ticket's request; an error if it has ended, or never will finish it.
    pub(super) fn is_done(&self, ticket: Ticket) -> Result<bool> {
        let Ticket {
            slot,
            sequence,
            position,
        } = ticket;
        let question = request::gpgpuFenceStatus {
            slot,
            sequence,
            position,
            over: true,
        };
        let mut answer = [0; 64];
        let length = self
            .ask(&question, &mut answer)
            .map_err(|failure| failed(request::gpgpuFenceStatus::NAME, &failure))?;
        let decoded = decode::<request::gpgpuFenceStatus>(&answer[..length.min(answer.len())])?;
        reply(decoded).map(|reply| reply.over != 0)
    }

    /// The ring, if there is one, the GPU has not failed, and its words are sufficient, which they are not while
    /// something may have been printed.
    #[inline]
    pub fn ring(&self) -> Option<&Ring> {
        self.ring
            .as_ref()
            .filter(|_| !self.corrupted.load(Ordering::Relaxed) && !self.output.is_due())
    }

    /// Sends a `fence` request through the ring without waiting for its completion.
    pub fn begin<R: Request>(&self, ring: &Ring, request: &R) -> Result<Ticket> {
        self.require(R::OPERATION)?;
        before::sending(request);
        let sent = thread::with_stream_buffer(|stream| {
            encode(request, stream);
            self.request_by_ring(R::OPERATION, ring, stream)
        });
        self.work.count(R::OPERATION);
        sent
    }

    /// Waits for the completion of a request of [`Connection::begin`]; `false` if the worker did not execute it.
    pub fn end<R: Request>(&self, ring: &Ring, ticket: Ticket) -> Result<bool> {
        let mut answer = thread::take_answer_buffer();
        let waited = self.wait_by_ring(R::OPERATION, ring, ticket, &mut answer);
        if waited.is_ok() {
            self.put_output(&answer);
        }
        let decoded = waited.and_then(|waited| Ok((waited, decode::<R>(&answer)?.0)));
        thread::return_answer_buffer(answer);
        match decoded? {
            // The answer of a fence always fits.
            (Waited::Elsewhere | Waited::Kept, _) => Ok(false),
            (Waited::Over, CUDA_SUCCESS) => Ok(true),
            (Waited::Over, code) => {
                self.note(code);
                Err(code)
            }
        }
    }
}
