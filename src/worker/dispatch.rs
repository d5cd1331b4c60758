// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Decodes commands and calls the driver, by the API table.

use gpgpu_protocol::{
    api::{Request, request, *},
    codec::{Blob, Malformed, Reader, Wire, Writer},
    cuda::*,
    layout::StreamAnswer,
    with_api,
};

use super::{
    argument::WorkerArg,
    captures,
    lease::{Named, Names, Naming, Passage},
    libraries, ops,
    session::{Data, Session},
};
use crate::cuda::driver;

/// The result of an operation: its reply, or a code and, for a few operations, a reply as well.
pub type Outcome<R> = Result<R, Failed<R>>;

/// A failed operation.
pub struct Failed<R> {
    /// The code.
    pub code: CUresult,
    /// The reply of the failed operation.
    pub reply: Option<R>,
}

impl<R> From<CUresult> for Failed<R> {
    fn from(code: CUresult) -> Self {
        Self { code, reply: None }
    }
}

/// The result of a command, and its encoded reply; an empty reply takes no memory.
#[derive(Debug)]
pub struct Answer {
    /// The code.
    pub result: CUresult,
    reply: Vec<u8>,
}

impl Answer {
    /// An answer without a reply.
    pub const fn code(result: CUresult) -> Self {
        Self {
            result,
            reply: Vec::new(),
        }
    }

    fn of<R: Wire>(outcome: Outcome<R>) -> Self {
        let (result, reply) = match outcome {
            Ok(reply) => (CUDA_SUCCESS, Some(reply)),
            Err(failed) => (failed.code, failed.reply),
        };
        let mut writer = Writer::new();
        if let Some(reply) = reply {
            writer.put(&reply);
        }
        Self {
            result,
            reply: writer.into_bytes(),
        }
    }

    /// An answer with a reply, whatever its code.
    pub const fn with_reply(result: CUresult, reply: Vec<u8>) -> Self {
        Self { result, reply }
    }

    /// The encoded header for the client.
    pub fn head(&self, session: &Session) -> [u8; size_of::<StreamAnswer>()] {
        zerocopy::transmute!(StreamAnswer {
            result: self.result.into(),
            flags: session.printed.flags(self.result).into(),
        })
    }

    /// The bytes behind the header.
    pub fn reply(&self) -> &[u8] {
        &self.reply
    }

    /// The same, consuming the answer.
    pub fn into_reply(self) -> Vec<u8> {
        self.reply
    }

    /// The total size in bytes.
    pub fn len(&self) -> usize {
        size_of::<StreamAnswer>() + self.reply.len()
    }
}

fn read<R: Request>(arguments: &[u8]) -> Result<R, Malformed> {
    let mut reader = Reader::new(arguments);
    let request = reader.get()?;
    reader.end()?;
    Ok(request)
}

/// The work for which the caller of a `fence` operation waits, after the operation was issued.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Until {
    /// All work of the stream with this id.
    Stream(u64),
    /// All work of the current context.
    Context,
}

impl Until {
    /// Waits, as CUDA's own functions do.
    ///
    /// # Errors
    ///
    /// The driver's error code.
    pub fn wait(self, session: &Session) -> Result<(), CUresult> {
        match self {
            Self::Stream(stream) => {
                let raw = session.objects.raw::<Stream>(stream)? as CUstream;
                session.wait_in(stream, &[]);
                // SAFETY: the stream is the driver's, and lives until this ends.
                unsafe { driver::cuStreamSynchronize(raw) }
            }
            Self::Context => {
                session.wait_in(0, &[]);
                let context = session.entered();
                let unfinished = session.objects.unfinished(context);
                captures::synchronize()?;
                session.objects.set_finished(context, unfinished);
                Ok(())
            }
        }
    }
}

/// The progress of a command.
pub enum Carried {
    /// It is done, or failed.
    Done(Answer),
    /// It was issued, and succeeds once this wait is over; its reply is empty. It comes with the passage under which it
    /// was issued.
    Issued(Until, Option<Passage>),
}

/// Enters the context of a command, and passes the gates of its GPUs.
fn enter<R: Request + Naming>(
    session: &Session,
    context: u64,
    request: &R,
) -> Result<Option<Passage>, CUresult> {
    if R::GIVES != Gives::Nothing {
        let mut named = request.named();
        if named.graph != 0 && session.gates.spans() {
            // If the graph does not exist, the operation refuses it.
            let graph = session.executables.graphs.find(named.graph);
            named.gpus = graph.map_or(0, |graph| graph.gpus());
        }
        let passage = session.gates.enter(context, &named, R::GIVES)?;
        return Ok(Some(passage));
    }
    match session.enter(context) {
        Ok(()) => Ok(None),
        Err(code) if R::OPERATION.needs_context() => Err(code),
        // With the context of an earlier command, the call could succeed.
        Err(_) => session.enter(0).map(|()| None),
    }
}

macro_rules! carry_out {
    (way $name:ident, $data:ident) => {
        if !$data.way.takes(<request::$name as Request>::OPERATION) {
            return Err(Malformed::Range);
        }
    };
    ($completion:ident, $style:ident, $name:ident, $session:ident, $context:ident, $arguments:ident, $data:ident, $($arg:ident : $ty:ty),*) => {{
        let request = read::<request::$name>($arguments)?;
        match enter($session, $context, &request) {
            Ok(passage) => carry_out!(@ $completion $style $name, $session, request, passage, $data, $($arg : $ty),*),
            Err(code) => Carried::Done(Answer::code(code)),
        }
    }};
    (@ fence $style:ident $name:ident, $session:ident, $request:ident, $passage:ident, $data:ident, $($arg:ident : $ty:ty),*) => {
        match ops::$name($session, $request) {
            Ok(until) => Carried::Issued(until, $passage),
            Err(code) => Carried::Done(Answer::code(code)),
        }
    };
    (@ $completion:ident $style:ident $name:ident, $session:ident, $request:ident, $passage:ident, $data:ident, $($arg:ident : $ty:ty),*) => {{
        let _passage = $passage;
        Carried::Done(call!($style, $name, $session, $request, $data, $($arg : $ty),*))
    }};
}

macro_rules! call {
    (custom, $name:ident, $session:ident, $request:ident, $data:ident, $($arg:ident : $ty:ty),*) => {
        Answer::of(ops::$name($session, $request, $data))
    };
    (worker, $($rest:tt)*) => {
        call!(custom, $($rest)*)
    };
    ($made:ident, $name:ident, $session:ident, $request:ident, $data:ident, $($arg:ident : $ty:ty),*) => {{
        fn call(_session: &Session, _request: request::$name) -> Outcome<reply::$name> {
            $(let mut $arg = <$ty as WorkerArg>::hold(_session, _request.$arg)?;)*
            // SAFETY: handles come from the client's table; pointers are to values that live across the call, or NULL.
            unsafe { driver::$name($(<$ty as WorkerArg>::pass(&mut $arg)),*)? };
            Ok(reply::$name { $($arg: <$ty as WorkerArg>::settle(_session, $arg)),* })
        }
        Answer::of(call($session, $request))
    }};
}

macro_rules! table {
    ($($(#[doc = $doc:literal])* $op:literal $completion:ident $style:ident $name:ident $($per_thread:ident)? ($($arg:ident : $ty:ty),*) $($is:ident)*;)*) => {
        $(impl Naming for request::$name {
            #[inline]
            fn named(&self) -> Named {
                #[allow(unused_mut)]
                let mut named = Named::default();
                $(<$ty as Names>::name(&self.$arg, stringify!($arg), &mut named);)*
                named
            }
        })*

        /// Executes one command, whose header names a context.
        ///
        /// # Errors
        ///
        /// The operation is unknown, came by the ring although it must not, or has invalid arguments.
        #[allow(non_snake_case)]
        pub fn dispatch(session: &Session, op: u16, context: u64, arguments: &[u8], data: Data) -> Result<Carried, Malformed> {
            let _ = data;
            Ok(match op {
                $($op => {
                    carry_out!(way $name, data);
                    carry_out!($completion, $style, $name, session, context, arguments, data, $($arg : $ty),*)
                })*
                _ => return libraries::carry_out(session, op, context, arguments, data.way),
            })
        }

        /// Decodes a command's arguments or, if `is_reply`, its answer, and encodes them again.
        ///
        /// # Errors
        ///
        /// As [`dispatch`].
        ///
        /// # Panics
        ///
        /// If the re-encoded request runs in another place than the original.
        #[cfg(any(test, fuzzing))]
        pub fn read_again(op: u16, is_reply: bool, bytes: &[u8]) -> Result<Vec<u8>, Malformed> {
            fn again<T: Wire>(bytes: &[u8]) -> Result<Vec<u8>, Malformed> {
                let mut reader = Reader::new(bytes);
                let value: T = reader.get()?;
                reader.end()?;
                let mut writer = Writer::new();
                writer.put(&value);
                Ok(writer.into_bytes())
            }
            fn request_again<R: Request + Naming>(bytes: &[u8]) -> Result<Vec<u8>, Malformed> {
                let named = read::<R>(bytes)?.named();
                let written = again::<R>(bytes)?;
                assert_eq!(read::<R>(&written)?.named(), named);
                Ok(written)
            }
            match op {
                $($op if is_reply => again::<reply::$name>(bytes),)*
                $($op => request_again::<request::$name>(bytes),)*
                _ => libraries::read_again(op, is_reply, bytes),
            }
        }
    };
}

with_api!(table);
