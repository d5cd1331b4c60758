// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Commands with data outside the staging area, which a mover moves.
//!
//! This module executes the stream's commands before the copy, and everything of the copy except the transfer: it
//! checks the range, and waits for the earlier work of the copy's stream. Then it reports the export and the offset of
//! the bytes to the device process. The worker never names guest memory here.

use gpgpu_protocol::{
    api::{Gives, Property, Request, Stream, is, request},
    codec::{Malformed, Reader},
    cuda::*,
    layout::status,
};

use super::{
    Command, Commands, Job,
    counts::{self, Memory},
    device_memory::Place,
    dispatch::{Answer, Until},
    execute,
    exports::Moved,
    grace,
    lease::Named,
    session::{Data, Session},
    wait,
};
use crate::cuda::driver;
use crate::ipc;

/// The copy at the end of a stream.
struct Copy {
    context: u64,
    address: CUdeviceptr,
    bytes: u64,
    stream: u64,
    op: u16,
}

/// The next step for a copy.
enum Fate {
    /// Its bytes can be moved.
    At(Place),
    /// They have to be staged.
    Staged,
    /// The copy failed.
    Failed(CUresult),
}

impl Job {
    /// Executes the stream, except for the transfer of its data.
    pub(super) fn execute_external(&self) -> Result<(), ipc::Error> {
        let malformed = || self.end.answer(self.seq, status::MALFORMED, &[], 0);
        let copy = match last_copy(self) {
            Ok(Some(copy)) => copy,
            Ok(None) => return self.end.not_movable(self.seq, 0),
            Err(_) => return malformed(),
        };
        let (copy, before) = copy;
        if before > 0 {
            let wait = |_, until: &Until, passage| wait(self.session, until, passage);
            let stream = &self.stream[..before];
            match execute(self.session, stream, Data::none(), wait) {
                Ok((answer, _)) if answer.result != CUDA_SUCCESS => {
                    self.session.defer(answer.result);
                }
                Ok(_) => {}
                Err(_) => return malformed(),
            }
        }
        let fate = match copy.prepare(self.session) {
            Ok(fate) => fate,
            Err(code) => Fate::Failed(code),
        };
        let place = match fate {
            Fate::At(place) => place,
            Fate::Staged => return self.end.not_movable(self.seq, before as u32),
            Fate::Failed(code) => return self.answer(&Answer::code(code), 0),
        };
        let head = match self.answer_bytes as usize {
            0 => None,
            room if room < Answer::code(CUDA_SUCCESS).len() => {
                return self.end.answer(self.seq, status::LIMIT, &[], 0);
            }
            // A command without an answer leaves an earlier error for the next one with an answer.
            _ if is(copy.op, Property::Observes) => {
                Some(Answer::code(self.session.take_deferred()).head(self.session))
            }
            _ => Some(Answer::code(CUDA_SUCCESS).head(self.session)),
        };
        let answer = head.as_ref().map_or(&[][..], |head| head);
        let Session {
            exports,
            device_memory,
            ..
        } = self.session;
        let moved = Moved {
            seq: self.seq,
            carried_out: before as u32,
            answer,
        };
        match exports.r#move(device_memory, place, &moved)? {
            Some(()) => {
                copy.count(self.data_offset);
                Ok(())
            }
            // It was freed in the meantime.
            None => self.end.not_movable(self.seq, before as u32),
        }
    }
}

/// The copy at the end of the stream, and the number of bytes before it; `None` if the last command is not a copy.
fn last_copy(job: &Job) -> Result<Option<(Copy, usize)>, Malformed> {
    let mut commands = Commands(&job.stream);
    let mut last = None;
    let mut before = 0;
    loop {
        let at = job.stream.len() - commands.0.len();
        match commands.next() {
            Some(command) => (last, before) = (Some(command), at),
            None => break,
        }
    }
    let Some(Command {
        op,
        context,
        arguments,
    }) = last
    else {
        return Err(Malformed::Truncated);
    };
    let (address, stream, bytes) = match op {
        request::gpgpuCopyIn::OP => {
            let copy: request::gpgpuCopyIn = read(arguments)?;
            (copy.dst, copy.hStream, job.input.len)
        }
        request::gpgpuCopyOut::OP => {
            let copy: request::gpgpuCopyOut = read(arguments)?;
            (copy.src, copy.hStream, job.output.len)
        }
        _ => return Ok(None),
    };
    let copy = Copy {
        context,
        // An address that wraps around is invalid.
        address: address.checked_add(job.data_offset).unwrap_or(0),
        bytes,
        stream,
        op,
    };
    Ok(Some((copy, before)))
}

fn read<R: Request>(arguments: &[u8]) -> Result<R, Malformed> {
    let mut reader = Reader::new(arguments);
    let request = reader.get()?;
    reader.end()?;
    Ok(request)
}

impl Copy {
    /// Counts the copy, whose bytes a mover moves from here on.
    fn count(&self, offset: u64) {
        let (to, from) = match self.op {
            request::gpgpuCopyIn::OP => (Memory::Device, Memory::Host),
            _ => (Memory::Host, Memory::Device),
        };
        counts::command();
        counts::copy_part(to, from, self.bytes, offset);
    }

    /// Executes everything except the transfer.
    fn prepare(&self, session: &Session) -> Result<Fate, CUresult> {
        let _streams = session.objects.uses();
        let _uses = grace::enter(self.context, true);
        let named = Named {
            stream: Some(self.stream),
            ..Named::default()
        };
        let passage = session.gates.enter(self.context, &named, Gives::Order)?;
        let id = self.stream;
        let stream = session.objects.raw::<Stream>(self.stream)? as CUstream;
        let memory = &session.device_memory;
        match memory.check(session.current(), self.address, self.bytes) {
            Some(held) => held?,
            // Registered memory, or memory that only the driver knows.
            None => return Ok(Fate::Staged),
        }
        let Some(place) = memory.place(self.address, self.bytes) else {
            return Ok(Fate::Staged);
        };
        wait_for(stream, || {
            // Other VMs may have the GPU in the meantime.
            drop(passage);
            session.wait_in(id, &[(self.address, self.bytes)]);
        })?;
        Ok(Fate::At(place))
    }
}

/// Waits until a copy that is now issued to the stream would begin; calls `begin` before it waits.
fn wait_for(stream: CUstream, begin: impl FnOnce()) -> Result<(), CUresult> {
    let mut event = std::ptr::null_mut();
    // Synchronizing the stream is not enough: a stream without later work still comes after the legacy stream's work,
    // and that comes after the work of all others.
    // SAFETY: the stream is the driver's and lives; the event is made and ended here.
    unsafe {
        driver::cuEventCreate(&mut event, CU_EVENT_DISABLE_TIMING)?;
        let recorded = driver::cuEventRecord(event, stream);
        begin();
        let waited = recorded.and_then(|()| driver::cuEventSynchronize(event));
        let ended = driver::cuEventDestroy_v2(event);
        waited.and(ended)
    }
}
