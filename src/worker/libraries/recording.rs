// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Calls that are recorded as parts of graphs.
//!
//! The library submits its work to a captured stream that exists only for this call: the call's stream argument, or the
//! handle's stream during the call. A cuBLAS handle loses its workspace when its stream is set, so the workspace is set
//! again too: without one cuBLAS may allocate memory, which a part of a graph cannot do. A client whose handle has no
//! workspace learns how much cuBLAS allocated, and may repeat the call with a workspace.

use gpgpu_protocol::{
    api::Gives,
    cuda::*,
    libraries::{Class, Kind, Library, SUCCESS, call, function},
};

use super::{Call, Outcome, handles::State};
use crate::worker::{
    dispatch::Answer,
    executables::{Recorder, Refused},
    objects::Entry,
    session::Session,
};

/// The result of a recorded call.
pub struct Recorded {
    /// The answer to the call.
    pub answer: Answer,
    /// The number of launches, copies and fills of its part; 0 if there is none. The error is the reason why there is
    /// none.
    pub commands: Result<u64, Refused>,
}

impl Recorded {
    /// The code for the client: the reason why there is no part.
    pub fn ended(&self) -> CUresult {
        self.commands.map_or_else(|of| of.code, |_| CUDA_SUCCESS)
    }

    /// The number of the part's launches, copies and fills, for the reply.
    pub fn count(&self) -> u32 {
        self.commands.unwrap_or(0).min(u64::from(u32::MAX)) as u32
    }

    /// The bytes that the library allocated.
    pub fn memory(&self) -> u64 {
        self.commands.map_or_else(|of| of.memory, |_| 0)
    }
}

/// The part to make from a call.
#[derive(Debug, Clone, Copy)]
pub struct Wanted {
    /// Its id.
    pub part: u64,
    /// The handle's workspace during the call: address and size. `None` for its own.
    pub workspace: Option<(u64, u64)>,
}

/// Executes a command of a library, and records its GPU work as a part of graphs.
///
/// # Errors
///
/// `CUDA_ERROR_NOT_SUPPORTED` for a command that submits no GPU work or has no stream; `CUDA_ERROR_INVALID_VALUE` for
/// an invalid command; or as [`Executables::record`](crate::worker::executables::Executables::record).
pub fn record(
    session: &Session,
    wanted: Wanted,
    op: u16,
    arguments: &[u8],
) -> Result<Recorded, CUresult> {
    let (library, function) = function(op).ok_or(CUDA_ERROR_INVALID_VALUE)?;
    // nvJPEG frees memory during its calls, for which its work must be over.
    let is_good = library != Library::Nvjpeg
        && function.operation.gives() == Gives::Work
        && function.handle().is_some()
        && function.makes().is_none()
        && function.ends().is_none();
    if !is_good {
        return Err(CUDA_ERROR_NOT_SUPPORTED);
    }
    let values = call::get(function, arguments).map_err(|_| CUDA_ERROR_INVALID_VALUE)?;
    let mut call = Call {
        session,
        library,
        function,
        values,
        part: Some(wanted),
        commands: Ok(0),
    };
    let outcome = call.carry_out(0);
    let commands = call.commands;
    Ok(Recorded {
        answer: call.into_answer(outcome),
        commands,
    })
}

/// The cuBLAS function that sets a handle's workspace.
pub(super) const SETS_WORKSPACE: &str = "cublasSetWorkspace_v2";

impl Call<'_> {
    /// Records the call.
    pub(super) fn record(
        &mut self,
        Wanted { part, workspace }: Wanted,
        class: Class,
        entry: &Entry,
        state: &mut State,
        mut words: Vec<u64>,
    ) -> Outcome {
        let session = self.session;
        let mut kinds = self.function.kinds.iter();
        let argument = kinds.position(|kind| *kind == Kind::Stream);
        let sets_stream = class.sets_stream();
        if argument.is_none() && sets_stream.is_none() {
            return Err(CUDA_ERROR_NOT_SUPPORTED);
        }
        if workspace.is_some() && (argument.is_some() || class.library() != Library::Cublas) {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        // The handle's earlier stream must still exist.
        let (own, _) = match argument {
            Some(_) => (0, 0),
            None => state.stream_in(&session.objects)?,
        };
        let (status, commands) = session.executables.record(session, part, |recorder| {
            if let Some(at) = argument {
                words[at] = recorder.raw();
                return self.call_recorded(recorder, &words);
            }
            let meanwhile = workspace.or(state.workspace);
            let told = self.tell_stream(class, entry, recorder.raw(), meanwhile);
            let outcome = told.and_then(|()| self.call_recorded(recorder, &words));
            // Also after a workspace that the library has refused, because the recorder's stream ends.
            self.tell_stream(class, entry, own, state.workspace)?;
            outcome
        })?;
        self.commands = commands;
        Ok(status)
    }

    fn call_recorded(&mut self, recorder: &Recorder, words: &[u64]) -> Outcome {
        recorder.begin()?;
        let outcome = self.call(words);
        recorder.stop();
        outcome
    }

    /// Sets a handle's stream, and then its workspace.
    fn tell_stream(
        &self,
        class: Class,
        entry: &Entry,
        stream: u64,
        workspace: Option<(u64, u64)>,
    ) -> Result<(), CUresult> {
        let tell = |name, kinds: &[Kind], words: &[u64]| match self.call_library(name, kinds, words)
        {
            SUCCESS => Ok(()),
            status => Err(self.statuses().as_code(status)),
        };
        if let Some(name) = class.sets_stream() {
            tell(
                name,
                &[Kind::Handle(class), Kind::Stream],
                &[entry.raw, stream],
            )?;
        }
        match workspace {
            Some((address, bytes)) if class.library() == Library::Cublas => tell(
                SETS_WORKSPACE,
                &[Kind::Handle(class), Kind::Device, Kind::I64],
                &[entry.raw, address, bytes],
            ),
            _ => Ok(()),
        }
    }

    /// Records the setting of a handle's workspace.
    pub(super) fn note_workspace(&self, status: u32, state: &mut State) {
        if self.function.operation.name == SETS_WORKSPACE && status == SUCCESS {
            state.workspace = Some((self.word(1), self.word(2)));
        }
    }
}
