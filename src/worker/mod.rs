// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The worker: one process for one CUDA process of a guest.
//!
//! It receives command streams from its device process, executes them on the host's driver API and answers. Commands
//! run in the order in which they arrive. A command that may block (`wait` in the API table) runs on a separate thread
//! ([`threads`]) while the stream continues: the guest thread that made it waits for it, and commands of other guest
//! threads do not depend on it. Commands of a client with host callbacks also run on such a thread, one after the
//! other, because the driver may block any of them until a callback has run. Once the guest has set up a ring
//! ([`ring`]), most commands come through the ring.
//!
//! The process has no data that its guest process could not access: the stream, the staging area and the memory that
//! the guest process registered.

mod argument;
mod arrays;
mod callbacks;
mod captures;
mod charges;
mod common;
mod counts;
mod crowds;
#[cfg(test)]
mod crowds_tests;
mod deferred;
mod device_memory;
mod dispatch;
mod executables;
mod exports;
mod external;
#[cfg(test)]
mod gates_tests;
mod grace;
mod green_contexts;
#[cfg(test)]
mod green_contexts_tests;
mod images;
mod kernel_output;
mod lease;
mod libraries;
#[cfg(test)]
#[allow(non_snake_case)]
mod lifetimes_tests;
mod mark;
mod memory;
mod objects;
#[allow(non_snake_case)]
mod ops;
mod peers;
mod places;
mod prewarm;
mod printing_kernels;
mod rest;
mod ring;
mod sensors;
mod session;
mod shared_events;
mod shared_memory;
mod start;
mod threads;
mod traces;
mod unpacking;

use gpgpu_locks::Mutex;
use gpgpu_protocol::{
    api::{Completion, Property, Request, is, operation, request},
    codec::{Malformed, Reader},
    cuda::*,
    layout::{StreamCommand, status},
};
use thiserror::Error;
use zerocopy::FromBytes;

use self::{
    dispatch::{Answer, Carried, Until, dispatch},
    lease::Passage,
    memory::Staging,
    session::{Data, Session, Way},
    threads::{Ordered, Pool},
};
use crate::{
    ipc::{self, Span, ToWorker, WorkerEnd},
    log_limit::LogLimit,
    policy::Libraries,
    sandbox,
};

/// The supervisor's settings for a worker.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// Serve even if the GPU can access pageable memory: the operator accepts that a guest's kernels can then read and
    /// rewrite the worker itself.
    pub allow_pageable_access: bool,
    /// Make the primary context of device 0 before there is a client.
    pub warm_contexts: bool,
    /// Submit groups of launches as graphs.
    pub crowds: bool,
    /// NVIDIA's libraries that it can open, and those that it opens before there is a client.
    pub libraries: Libraries,
    /// The sandbox.
    pub sandbox: sandbox::Settings,
}

/// The reason why a worker ends before its client.
#[derive(Debug, Error)]
pub enum Error {
    /// The device process sent an invalid message, or the channel failed.
    #[error("Channel to the device process: {0}")]
    Channel(#[from] ipc::Error),
    /// The staging area cannot be mapped.
    #[error("Cannot map the staging area: {0}")]
    Staging(#[source] std::io::Error),
    /// The driver does not work, and there is no client to which this could be reported.
    #[error("{0}")]
    Refused(Refusal),
    /// The VMM's connection cannot be kept open.
    #[error("Cannot hold the VMM's connection: {0}")]
    Hold(#[source] std::io::Error),
    /// The descriptor of the driver's cache cannot be set up.
    #[error("Cannot set up the driver's cache: {0}")]
    Cache(#[source] std::io::Error),
    /// The output of kernels cannot be redirected.
    #[error("Cannot redirect the output of kernels: {0}")]
    Printed(#[source] std::io::Error),
    /// The memory shared with the supervisor cannot be mapped.
    #[error("Cannot map the memory shared with the supervisor: {0}")]
    Shares(#[source] std::io::Error),
    /// The ring's thread cannot be started.
    #[error("Cannot start the ring's thread: {0}")]
    Ring(#[source] std::io::Error),
    /// The thread for rests cannot be started.
    #[error("Cannot start the thread for pauses: {0}")]
    Rest(#[source] std::io::Error),
    /// A worker that has to execute itself again cannot.
    #[error("Cannot restart the worker: {0}")]
    Again(#[source] std::io::Error),
    /// The sandbox cannot be tightened.
    #[error(transparent)]
    Sandbox(#[from] sandbox::Error),
}

pub use start::{Refusal, cache_variables};

/// Whether a line that the guest has caused may be logged now.
fn may_log() -> bool {
    static LIMIT: Mutex<Option<LogLimit>> = Mutex::new(None);
    let mut limit = LIMIT.lock();
    limit.get_or_insert_default().allow()
}

/// Serves a client until it is closed.
///
/// # Errors
///
/// The channel to the device process fails.
pub fn run(end: WorkerEnd, options: Options) -> Result<(), Error> {
    match serve(end, options) {
        // The device process has closed the client, perhaps before it got an answer.
        Err(Error::Channel(ipc::Error::Closed)) => Ok(()),
        ended => ended,
    }
}

fn serve(end: WorkerEnd, options: Options) -> Result<(), Error> {
    // Threads that wait in the driver may outlive this function, until the process ends. So nothing here is freed.
    let end: &'static WorkerEnd = Box::leak(Box::new(end));
    let session: &'static Session = Box::leak(Box::new(Session::new(Some(end))));
    if !start::start(end, &options, session)? {
        return Ok(());
    }
    let pool = Pool::default();
    let ordered = Ordered::new(pool.clone());
    ring::serve(session, pool.clone()).map_err(Error::Ring)?;
    while let Some(message) = end.recv()? {
        match message {
            ToWorker::Serve(_) => return Err(ipc::Error::Malformed("a second Serve").into()),
            ToWorker::Setup { staging, size } => {
                let staging = Staging::map(&staging, size).map_err(Error::Staging)?;
                if session.staging.get().is_none() {
                    rest::serve(session, staging.rest()).map_err(Error::Rest)?;
                }
                let _ = session.staging.set(staging);
            }
            ToWorker::Command {
                seq,
                thread: _,
                answer_bytes,
                external,
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
                    external,
                    input,
                    output,
                    data_offset,
                    stream,
                };
                job.carry_out(&pool, &ordered)?;
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
                pool.run(move |_| {
                    let status = session.regions.unmap(session, region);
                    session.count_pinned();
                    let _ = end.done(seq, status);
                });
            }
        }
    }
    Ok(())
}

/// A command stream to execute.
struct Job {
    session: &'static Session,
    end: &'static WorkerEnd,
    seq: u64,
    answer_bytes: u32,
    /// Whether the spans have only lengths: see [`external`].
    external: bool,
    input: Span,
    output: Span,
    data_offset: u64,
    stream: Vec<u8>,
}

impl Job {
    /// Executes the stream, here or, if a command of it may block, on a thread of the pool.
    ///
    /// The driver also blocks if a stream's queue is full, possibly until a host callback has run, and a client reports
    /// that a callback has run through this channel. So the commands of a client with callbacks go through `ordered`,
    /// and only commands that concern the client itself are executed here.
    fn carry_out(self, pool: &Pool, ordered: &Ordered) -> Result<(), ipc::Error> {
        if Commands::check(&self.stream).is_err() {
            return self.end.answer(self.seq, status::MALFORMED, &[], 0);
        }
        let may_block = self.external || self.commands().any(|command| self.may_block(&command));
        let has_order = !self.commands().all(|of| is(of.op, Property::Client));
        let is_behind = || ordered.is_busy() || !may_block && self.session.callbacks.are_used();
        if has_order && is_behind() {
            let pool = pool.clone();
            ordered.run(move |is_aside| {
                if may_block {
                    pool.run(move |is_aside| self.carry_out_aside(is_aside));
                } else {
                    self.carry_out_aside(is_aside);
                }
            });
        } else if may_block {
            pool.run(move |is_aside| self.carry_out_aside(is_aside));
        } else {
            let done = self.execute();
            counts::flush(self.session);
            return done;
        }
        Ok(())
    }

    /// Executes a stream that may block, if this thread may.
    fn carry_out_aside(self, is_aside: bool) {
        // A failed channel also ends the receiving thread.
        let _ = if !is_aside {
            self.end.answer(self.seq, status::NO_RESOURCES, &[], 0)
        } else if self.external {
            self.execute_external()
        } else {
            self.execute()
        };
        counts::flush(self.session);
    }

    fn commands(&self) -> Commands<'_> {
        Commands(&self.stream)
    }

    fn may_block(&self, command: &Command<'_>) -> bool {
        if command.op == request::gpgpuRingAfter::OP {
            // It does not block if its condition already holds, which is the usual case.
            let mut arguments = Reader::new(command.arguments);
            return match (arguments.word(), self.session.ring.get()) {
                (Ok(position), Some(ring)) => !ring.has_reached(position),
                _ => false,
            };
        }
        operation(command.op).is_some_and(|operation| {
            matches!(operation.completion, Completion::Wait | Completion::Fence)
        })
    }

    fn execute(&self) -> Result<(), ipc::Error> {
        let malformed = || self.end.answer(self.seq, status::MALFORMED, &[], 0);
        let Some(data) = self.data() else {
            return malformed();
        };
        let wait = |_, until: &Until, passage| wait(self.session, until, passage);
        let Ok((answer, _)) = execute(self.session, &self.stream, data, wait) else {
            return malformed();
        };
        // After any other operation, the bytes are those of an earlier command of the client.
        let writes = self.commands().last();
        let writes = writes.is_some_and(|command| is(command.op, Property::Output));
        let written = match answer.result {
            CUDA_SUCCESS if writes => self.output.len,
            _ => 0,
        };
        self.answer(&answer, written)
    }

    /// Answers the command, if an answer is wanted. An error without an answer is stored; data is written whether or
    /// not an answer is wanted.
    fn answer(&self, answer: &Answer, written: u64) -> Result<(), ipc::Error> {
        if self.answer_bytes == 0 {
            if answer.result != CUDA_SUCCESS {
                self.session.defer(answer.result);
            }
            return self.end.answer(self.seq, status::OK, &[], written);
        }
        if answer.len() > self.answer_bytes as usize {
            return self.end.answer(self.seq, status::LIMIT, &[], 0);
        }
        let bytes = [&answer.head(self.session), answer.reply()].concat();
        self.end.answer(self.seq, status::OK, &bytes, written)
    }

    fn data(&self) -> Option<Data> {
        if self.input.len == 0 && self.output.len == 0 {
            return Some(Data {
                offset: self.data_offset,
                ..Data::none()
            });
        }
        let staging = self.session.staging.get()?;
        Some(Data {
            input: staging.address(self.input)?,
            input_bytes: self.input.len as usize,
            output: staging.address(self.output)?,
            output_bytes: self.output.len as usize,
            offset: self.data_offset,
            way: Way::Queue,
        })
    }
}

/// A command of a stream.
#[derive(Debug)]
struct Command<'a> {
    op: u16,
    context: u64,
    arguments: &'a [u8],
}

/// The commands of a stream that was checked.
#[derive(Debug)]
struct Commands<'a>(&'a [u8]);

impl<'a> Commands<'a> {
    /// Checks that a stream consists of whole commands, at least one.
    fn check(stream: &'a [u8]) -> Result<(), Malformed> {
        let mut commands = Self(stream);
        let mut count = 0;
        while commands.next().is_some() {
            count += 1;
        }
        if commands.0.is_empty() && count > 0 {
            Ok(())
        } else {
            Err(Malformed::Truncated)
        }
    }
}

impl<'a> Iterator for Commands<'a> {
    type Item = Command<'a>;

    fn next(&mut self) -> Option<Command<'a>> {
        let (head, _) = StreamCommand::read_from_prefix(self.0).ok()?;
        let bytes = head.bytes.get() as usize;
        if bytes < size_of::<StreamCommand>() || !bytes.is_multiple_of(8) {
            return None;
        }
        let (command, rest) = self.0.split_at_checked(bytes)?;
        self.0 = rest;
        Some(Command {
            op: head.op.get(),
            context: head.context.get(),
            arguments: &command[size_of::<StreamCommand>()..],
        })
    }
}

/// Waits for the streams of a `fence` operation, if a later answer is impossible. Others may get the GPU afterwards.
fn wait(session: &Session, until: &Until, passage: Option<Passage>) -> Result<u32, CUresult> {
    drop(passage);
    until.wait(session).map(|()| 0)
}

/// Executes the commands of a stream; only the last is answered. The streams of a `fence` operation are passed to
/// `fence` with the passage of the operation, if it has one; the answer contains the number of fences.
///
/// # Errors
///
/// The stream does not consist of commands of the table.
fn execute(
    session: &Session,
    stream: &[u8],
    data: Data,
    mut fence: impl FnMut(u16, &Until, Option<Passage>) -> Result<u32, CUresult>,
) -> Result<(Answer, u32), Malformed> {
    Commands::check(stream)?;
    let _call = traces::Stream::begin();
    let mut last: Option<(Answer, u32)> = None;
    for command in Commands(stream) {
        counts::command();
        if let Some((Answer { result, .. }, _)) = last.take()
            && result != CUDA_SUCCESS
        {
            session.defer(result);
        }
        let Command {
            op,
            context,
            arguments,
        } = command;
        let (mut answer, fences) = loop {
            if crowds::changes(op) || crowds::sets_launches_apart(op) {
                session.forget_crowds(crowds::sets_launches_apart(op));
            }
            // Objects that the command looks up exist until it ends.
            let uses = (
                session.objects.uses(),
                grace::enter(context, is(op, Property::Memory)),
            );
            let traced = traces::Command::begin();
            let carried = match dispatch(session, op, context, arguments, data)? {
                Carried::Done(answer) => (answer, 0),
                Carried::Issued(until, passage) => match fence(op, &until, passage) {
                    Ok(fences) => (Answer::code(CUDA_SUCCESS), fences),
                    Err(code) => (Answer::code(code), 0),
                },
            };
            drop(traced);
            drop(uses);
            if !grace::again() {
                break carried;
            }
        };
        if crowds::changes(op) {
            // An earlier command may have made a callback in the meantime.
            session.forget_crowds(false);
        }
        // The incomplete ones are checked again later.
        if fences == 0 && is(op, Property::Observes) && answer.result == CUDA_SUCCESS {
            let deferred = session.take_deferred();
            if deferred != CUDA_SUCCESS {
                answer = Answer::code(deferred);
            }
        }
        if answer.result != CUDA_SUCCESS {
            let name = operation(op).map_or("?", |operation| operation.name);
            tracing::debug!("{name} → {}", answer.result);
        }
        last = Some((answer, fences));
    }
    last.ok_or(Malformed::Truncated)
}

/// Decodes every command of a stream as for execution, and encodes it again: for fuzzing, which has no driver. With
/// `are_replies`, it decodes a stream of answers as the guest's library does.
///
/// # Errors
///
/// The stream does not consist of commands of the table.
#[cfg(any(test, fuzzing))]
pub fn read_again(stream: &[u8], are_replies: bool) -> Result<Vec<Vec<u8>>, Malformed> {
    Commands::check(stream)?;
    Commands(stream)
        .map(|command| dispatch::read_again(command.op, are_replies, command.arguments))
        .collect()
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
        Commands::check(&stream).unwrap();
        assert_eq!(
            Commands(&stream)
                .map(|c| (c.op, c.context, c.arguments.len()))
                .collect::<Vec<_>>(),
            [(0x0203, 5, 8), (0x0204, 5, 0)]
        );
        for wrong in [0, 8, 15, 17, 32, u32::MAX] {
            assert!(Commands::check(&command(wrong, 1)).is_err(), "{wrong}");
        }
        assert!(Commands::check(&stream[..stream.len() - 1]).is_err());
        assert!(Commands::check(&[]).is_err());
    }
}
