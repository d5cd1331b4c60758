//! The worker: one process for one CUDA process of a guest.
//!
//! It takes command streams from its device process, carries them out on the host's driver API and
//! answers. Commands run in the order in which they come. One that may block (`wait` in the API table)
//! runs on a thread of its own ([`pool`]) while the stream goes on: the guest thread that made it waits for it, and what other
//! guest threads send does not depend on it.
//!
//! The process holds nothing that its guest process could not see: the stream, the staging area and the memory
//! that the guest process registered.

mod ahead;
mod argument;
mod dispatch;
mod driver;
mod memory;
mod objects;
#[allow(non_snake_case)]
mod ops;
mod pool;
mod session;
mod start;

use std::sync::Mutex;

use gpgpu_protocol::{
    api::{Completion, completion, name},
    cuda::*,
    layout::{StreamCommand, status},
};
use thiserror::Error;
use zerocopy::FromBytes;

use self::{
    dispatch::{Answer, dispatch, observes},
    memory::Staging,
    pool::Pool,
    session::{Data, Session},
};
use crate::{
    ipc::{self, Span, ToWorker, WorkerEnd},
    log_limit::LogLimit,
};

/// What the supervisor decides for a worker.
#[derive(Debug, Clone, Copy, Default)]
pub struct Options {
    /// Serve although the GPU can reach pageable memory: the operator accepts that a guest's kernels can then read and
    /// rewrite the worker itself.
    pub allow_pageable_access: bool,
    /// Make the primary context of device 0 before there is a client.
    pub warm_contexts: bool,
}

/// Why a worker ends before its client does.
#[derive(Debug, Error)]
pub enum Error {
    /// The device process sent what is no message, or the channel failed.
    #[error("Channel to the device process: {0}")]
    Channel(#[from] ipc::Error),
    /// The staging area cannot be mapped.
    #[error("Cannot map the staging area: {0}")]
    Staging(#[source] std::io::Error),
    /// The driver does not serve, and no client is there to be told.
    #[error("{0}")]
    Refused(Refusal),
    /// The descriptor of the driver's cache cannot be set up.
    #[error("Cannot set the driver's cache up: {0}")]
    Cache(#[source] std::io::Error),
    /// A worker that has to start anew cannot.
    #[error("Cannot start anew: {0}")]
    Again(#[source] std::io::Error),
}

pub use start::{Refusal, cache_variables};

/// Whether a line that the guest has caused may be logged now.
fn may_log() -> bool {
    static LIMIT: Mutex<Option<LogLimit>> = Mutex::new(None);
    let mut limit = LIMIT
        .lock()
        .unwrap_or_else(|poisoned| poisoned.into_inner());
    limit.get_or_insert_default().allow()
}

/// Serves a client until it is closed.
///
/// # Errors
///
/// The channel to the device process fails.
pub fn run(end: WorkerEnd, options: Options) -> Result<(), Error> {
    // Threads that wait in the driver may outlive this function; the process ends them. So nothing here is freed.
    let session: &'static Session = Box::leak(Box::default());
    let end: &'static WorkerEnd = Box::leak(Box::new(end));
    if !start::start(end, options, session)? {
        return Ok(());
    }
    let pool = Pool::default();
    while let Some(message) = end.recv()? {
        match message {
            ToWorker::Serve { .. } => return Err(ipc::Error::Malformed("served twice").into()),
            ToWorker::Setup { staging, size } => {
                let staging = Staging::map(&staging, size).map_err(Error::Staging)?;
                let _ = session.staging.set(staging);
            }
            ToWorker::Command {
                seq,
                thread: _,
                answer_bytes,
                input,
                output,
                data_offset,
                stream,
            } => {
                let job = Job {
                    session,
                    end,
                    seq,
                    answer_bytes,
                    input,
                    output,
                    data_offset,
                    stream,
                };
                job.carry_out(&pool)?;
            }
            ToWorker::Map {
                seq,
                region,
                address,
                length,
                runs,
            } => {
                end.done(seq, session.regions.map(region, address, length, &runs))?;
            }
            ToWorker::Unmap { seq, region } => {
                pool.run(move || {
                    let _ = end.done(seq, session.regions.unmap(region));
                });
            }
        }
    }
    Ok(())
}

/// One command stream to carry out.
struct Job {
    session: &'static Session,
    end: &'static WorkerEnd,
    seq: u64,
    answer_bytes: u32,
    input: Span,
    output: Span,
    data_offset: u64,
    stream: Vec<u8>,
}

impl Job {
    /// Carries the stream out, here or, if a command of it may block, on a thread of the pool.
    fn carry_out(self, pool: &Pool) -> Result<(), ipc::Error> {
        let Some(commands) = split(&self.stream) else {
            return self.end.answer(self.seq, status::MALFORMED, &[], 0);
        };
        if commands
            .iter()
            .any(|command| completion(command.op) == Some(Completion::Wait))
        {
            pool.run(move || {
                // A channel that fails has ended the receiving thread too.
                let _ = self.execute();
            });
            return Ok(());
        }
        self.execute()
    }

    fn execute(&self) -> Result<(), ipc::Error> {
        let malformed = || self.end.answer(self.seq, status::MALFORMED, &[], 0);
        let (Some(commands), Some(data)) = (split(&self.stream), self.data()) else {
            return malformed();
        };
        let mut last = None;
        for command in &commands {
            if let Some(Answer { result, .. }) = last.take()
                && result != CUDA_SUCCESS
            {
                // Only a stream's last command is answered.
                self.session.defer(result);
            }
            let answer = match self.session.enter(command.context) {
                Err(code) if needs_context(command.op) => Ok(Answer::code(code)),
                _ => dispatch(self.session, command.op, command.arguments, data),
            };
            let Ok(mut answer) = answer else {
                return malformed();
            };
            if observes(command.op) && answer.result == CUDA_SUCCESS {
                let deferred = self.session.take_deferred();
                if deferred != CUDA_SUCCESS {
                    answer = Answer::code(deferred);
                }
            }
            if answer.result != CUDA_SUCCESS {
                tracing::debug!("{} → {}", name(command.op).unwrap_or("?"), answer.result);
            }
            last = Some(answer);
        }
        let Some(answer) = last else {
            return malformed();
        };
        if self.answer_bytes == 0 {
            if answer.result != CUDA_SUCCESS {
                self.session.defer(answer.result);
            }
            return self.end.answer(self.seq, status::OK, &[], 0);
        }
        if answer.bytes.len() > self.answer_bytes as usize {
            return self.end.answer(self.seq, status::LIMIT, &[], 0);
        }
        let written = if answer.result == CUDA_SUCCESS {
            self.output.len
        } else {
            0
        };
        self.end
            .answer(self.seq, status::OK, &answer.bytes, written)
    }

    fn data(&self) -> Option<Data> {
        let none = Data {
            input: std::ptr::null(),
            input_bytes: 0,
            output: std::ptr::null_mut(),
            output_bytes: 0,
            offset: self.data_offset,
        };
        if self.input.len == 0 && self.output.len == 0 {
            return Some(none);
        }
        let staging = self.session.staging.get()?;
        Some(Data {
            input: staging.address(self.input)?,
            input_bytes: self.input.len as usize,
            output: staging.address(self.output)?,
            output_bytes: self.output.len as usize,
            offset: self.data_offset,
        })
    }
}

/// Whether an operation is about the current context, or in it: all but those on clients and devices.
fn needs_context(op: u16) -> bool {
    op >> 8 > 0x01
}

/// A command of a stream.
#[derive(Debug)]
struct Command<'a> {
    op: u16,
    context: u64,
    arguments: &'a [u8],
}

/// Cuts a stream into its commands; `None` if it is not made of whole ones.
fn split(mut stream: &[u8]) -> Option<Vec<Command<'_>>> {
    let mut commands = Vec::new();
    while !stream.is_empty() {
        let (head, _) = StreamCommand::read_from_prefix(stream).ok()?;
        let bytes = head.bytes.get() as usize;
        if bytes < size_of::<StreamCommand>() || !bytes.is_multiple_of(8) {
            return None;
        }
        let (command, rest) = stream.split_at_checked(bytes)?;
        let arguments = &command[size_of::<StreamCommand>()..];
        commands.push(Command {
            op: head.op.get(),
            context: head.context.get(),
            arguments,
        });
        stream = rest;
    }
    Some(commands)
}

#[cfg(test)]
mod tests {
    use zerocopy::IntoBytes;

    use super::*;

    fn command(bytes: u32, op: u16) -> Vec<u8> {
        StreamCommand {
            bytes: bytes.into(),
            op: op.into(),
            reserved: 0.into(),
            context: 5.into(),
        }
        .as_bytes()
        .to_vec()
    }

    #[test]
    fn a_stream_is_whole_commands_or_nothing() {
        let mut stream = command(24, 0x0203);
        stream.extend([0; 8]);
        stream.extend(command(16, 0x0204));
        let commands = split(&stream).unwrap();
        assert_eq!(
            commands
                .iter()
                .map(|c| (c.op, c.context, c.arguments.len()))
                .collect::<Vec<_>>(),
            [(0x0203, 5, 8), (0x0204, 5, 0)]
        );
        for wrong in [0, 8, 15, 17, 32, u32::MAX] {
            assert!(split(&command(wrong, 1)).is_none(), "{wrong}");
        }
        assert!(split(&stream[..stream.len() - 1]).is_none());
    }
}
