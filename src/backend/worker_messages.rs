// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Messages of a client's worker.
//!
//! A worker runs a guest's code, so each message is checked against the requests of its client.

use gpgpu_protocol::layout::status;

use super::{
    client::{Phase, RequestKind},
    queue::{Answer, Out},
    vm::{Speaker, Vm},
};
use crate::ipc::{self, FromWorker};

/// The number of messages of one worker that are handled in a row.
const MESSAGE_BATCH: usize = 64;

/// The result of handling a worker's message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Heard {
    /// There may be another message.
    More,
    /// There is no further message at present, or the worker was ended.
    Last,
}

/// A worker's message is invalid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ProtocolViolation;

impl Vm {
    /// Handles an event of the channel in a slot.
    pub fn worker_speaks(&mut self, slot: usize) {
        let id = match self.slots.get(slot).copied().flatten() {
            Some(Speaker::Client(id)) => id,
            Some(Speaker::Mover(gpu)) => return self.mover_speaks(gpu),
            None => return,
        };
        // If there is more, the event loop raises the event again.
        self.receive(id);
        self.pump(id);
    }

    /// Handles messages of a worker, up to the batch limit.
    pub(super) fn receive(&mut self, id: u32) -> Heard {
        let mut buffer = std::mem::take(&mut self.buffer);
        let mut heard = Heard::More;
        for _ in 0..MESSAGE_BATCH {
            let Some(client) = self.clients.get(&id) else {
                heard = Heard::Last;
                break;
            };
            heard = match client.recv(&mut buffer) {
                Ok(None) => Heard::Last,
                Ok(Some(message)) => self.message(id, message),
                Err(ipc::Error::Closed) => {
                    self.end(id, false);
                    Heard::Last
                }
                Err(error) => {
                    if self.log.allow() {
                        tracing::error!("Client {id}: {error}");
                    }
                    self.end(id, true);
                    Heard::Last
                }
            };
            if heard == Heard::Last {
                break;
            }
        }
        self.buffer = buffer;
        heard
    }

    /// Handles a message of a worker. An invalid message ends the worker.
    fn message(&mut self, id: u32, message: FromWorker<'_>) -> Heard {
        let heard = match message {
            FromWorker::Ready { status } => self.ready(id, status),
            FromWorker::Answer {
                seq,
                status,
                out_bytes,
                answer,
            } => self.answered(id, seq, status, out_bytes, answer),
            FromWorker::Done { seq, status } => self.done(id, seq, status),
            FromWorker::Export {
                number,
                bytes,
                gpu,
                handle,
            } => self.exported(id, number, bytes, gpu, handle.0),
            FromWorker::Unexport { number } => self.unexported(id, number),
            FromWorker::Move {
                seq,
                export,
                offset,
                carried_out,
                answer,
            } => self.move_asked(id, seq, (export, offset), carried_out, answer),
            FromWorker::NotMovable { seq, carried_out } => self.not_movable(id, seq, carried_out),
        };
        heard.unwrap_or_else(|ProtocolViolation| {
            if self.log.allow() {
                tracing::error!("Client {id}: protocol violation by its worker");
            }
            self.end(id, true);
            Heard::Last
        })
    }

    fn ready(&mut self, id: u32, status: u32) -> Result<Heard, ProtocolViolation> {
        let client = self.clients.get_mut(&id).ok_or(ProtocolViolation)?;
        if !matches!(client.phase, Phase::Starting { .. }) {
            return Err(ProtocolViolation);
        }
        if status != status::OK {
            self.fail_open(id, status);
            return Ok(Heard::Last);
        }
        if let Phase::Starting { chain, .. } = std::mem::replace(&mut client.phase, Phase::Live) {
            self.complete(chain, Answer::control(status::OK, id));
        }
        Ok(Heard::More)
    }

    fn answered(
        &mut self,
        id: u32,
        seq: u64,
        status: u32,
        out_bytes: u64,
        answer: &[u8],
    ) -> Result<Heard, ProtocolViolation> {
        let client = self.clients.get_mut(&id).ok_or(ProtocolViolation)?;
        let command = client.in_flight.get(&seq).ok_or(ProtocolViolation)?;
        let room = command.out.as_ref().map_or(0, |block| block.span().len);
        let wanted = command.header.answer_bytes.get();
        if answer.len() > wanted as usize || out_bytes > room {
            return Err(ProtocolViolation);
        }
        let command = client.in_flight.remove(&seq).ok_or(ProtocolViolation)?;
        client.external -= usize::from(command.external);
        let answer = match status {
            status::OK => Answer::Command {
                status,
                answer: answer.to_vec(),
                wanted,
                out: command.out.map(|block| Out::Staged(block, out_bytes)),
            },
            _ => Answer::refusal(status),
        };
        self.complete(command.chain, answer);
        Ok(Heard::More)
    }

    fn done(&mut self, id: u32, seq: u64, status: u32) -> Result<Heard, ProtocolViolation> {
        let client = self.clients.get_mut(&id).ok_or(ProtocolViolation)?;
        let request = client.requests.remove(&seq).ok_or(ProtocolViolation)?;
        let value = match request.kind {
            RequestKind::Map(region) if status == status::OK => region,
            RequestKind::Map(region) => {
                client.regions.remove(region);
                0
            }
            RequestKind::Unmap(region) => {
                if status == status::OK {
                    client.regions.remove(region);
                }
                0
            }
        };
        self.complete(request.chain, Answer::control(status, value));
        Ok(Heard::More)
    }
}
