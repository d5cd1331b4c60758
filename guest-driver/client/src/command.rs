// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Encodes a request as a command, decodes its answer, and maps failures of the device to codes.

use gpgpu_protocol::{
    api::{Operation, Property, Request, request},
    codec::{Reader, Writer},
    cuda::*,
    layout::{StreamAnswer, StreamCommand, answer, status},
};
use zerocopy::{FromBytes, IntoBytes};

use crate::{
    ffi::Result,
    log::{self, Level},
    thread, trace,
    transport::Failure,
};

/// Encodes a request as a command into `stream`, replacing its content.
#[inline]
pub fn encode<R: Request>(request: &R, stream: &mut Vec<u8>) {
    let mut bytes = std::mem::take(stream);
    bytes.clear();
    let begin = put_call(R::OPERATION, &mut bytes);
    bytes.extend_from_slice(&[0; size_of::<StreamCommand>()]);
    let mut writer = Writer::on(bytes);
    request.put(&mut writer);
    *stream = writer.into_bytes();
    put_header(R::OP, &mut stream[begin..]);
}

/// Makes a command from encoded arguments in `stream`, replacing its content.
pub fn encode_written(operation: &Operation, arguments: &[u8], stream: &mut Vec<u8>) {
    stream.clear();
    let begin = put_call(operation, stream);
    stream.extend_from_slice(&[0; size_of::<StreamCommand>()]);
    stream.extend_from_slice(arguments);
    put_header(operation.op, &mut stream[begin..]);
}

/// Appends the number of the thread's traced call, if it has one, as a command of its own; returns the stream's length.
/// Operations about the client itself give no work, and some of them must be a stream's first command.
#[inline]
fn put_call(operation: &Operation, stream: &mut Vec<u8>) -> usize {
    match trace::number() {
        0 => 0,
        _ if operation.is(Property::Client) => 0,
        call => put_number(stream, call),
    }
}

#[cold]
fn put_number(stream: &mut Vec<u8>, call: u32) -> usize {
    stream.extend_from_slice(&[0; size_of::<StreamCommand>()]);
    let mut writer = Writer::on(std::mem::take(stream));
    writer.put(&request::gpgpuTraceCall { call });
    *stream = writer.into_bytes();
    put_header(request::gpgpuTraceCall::OP, stream);
    stream.len()
}

#[inline]
fn put_header(op: u16, command: &mut [u8]) {
    let header = StreamCommand {
        bytes: (command.len() as u32).into(),
        op: op.into(),
        reserved: 0.into(),
        context: thread::current_context().into(),
    };
    command[..size_of::<StreamCommand>()].copy_from_slice(header.as_bytes());
}

/// Whether an answer reports that there is printed text to fetch.
#[inline]
pub fn has_output(answer: &[u8]) -> bool {
    let head = StreamAnswer::read_from_prefix(answer);
    head.is_ok_and(|(head, _)| head.flags.get() & answer::OUTPUT != 0)
}

/// An answer's code, and the bytes of its reply.
#[inline]
pub fn split(answer: &[u8]) -> Result<(CUresult, &[u8])> {
    let (head, rest) = StreamAnswer::read_from_prefix(answer).map_err(|_| CUDA_ERROR_UNKNOWN)?;
    Ok((head.result.get(), rest))
}

/// The content of an answer: a code, and the reply if there is one.
#[inline]
pub fn decode<R: Request>(answer: &[u8]) -> Result<(CUresult, Option<R::Reply>)> {
    let (code, rest) = split(answer)?;
    let reply = if rest.is_empty() && code != CUDA_SUCCESS {
        None
    } else {
        Some(
            Reader::new(rest)
                .get::<R::Reply>()
                .map_err(|_| CUDA_ERROR_UNKNOWN)?,
        )
    };
    Ok((code, reply))
}

/// The reply of a successful call, or the code of a failed one.
#[inline]
pub fn reply<T>((result, reply): (CUresult, Option<T>)) -> Result<T> {
    match (result, reply) {
        (CUDA_SUCCESS, Some(reply)) => Ok(reply),
        (CUDA_SUCCESS, None) => Err(CUDA_ERROR_UNKNOWN),
        (code, _) => Err(code),
    }
}

/// The code for a program when the device, not CUDA, failed. A client whose worker has ended gets one code for every
/// later call, which CUDA itself uses for failures outside of CUDA.
#[cold]
pub fn failed(name: &str, failure: &Failure) -> CUresult {
    let code = match failure {
        Failure::Status(status::NO_GPU) => CUDA_ERROR_NO_DEVICE,
        Failure::Status(status::NO_RESOURCES | status::LIMIT) => CUDA_ERROR_OUT_OF_MEMORY,
        Failure::Status(status::BAD_ADDRESS) => CUDA_ERROR_INVALID_VALUE,
        Failure::Status(status::VERSION_MISMATCH) => CUDA_ERROR_SYSTEM_DRIVER_MISMATCH,
        Failure::Os(libc::EFAULT) => CUDA_ERROR_INVALID_VALUE,
        Failure::Os(libc::ENOMEM) => CUDA_ERROR_OUT_OF_MEMORY,
        Failure::Status(_) | Failure::Os(_) => CUDA_ERROR_EXTERNAL_DEVICE,
    };
    log::say(Level::Debug, || format!("{name}: {failure}"));
    code
}
