// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The layout of the queues in the memory, and of requests and answers.

use gpgpu_protocol::{
    cuda::CUDA_SUCCESS,
    layout::{
        CommandAnswer, ControlHeader, MAX_ANSWER_BYTES, MAX_STREAM_BYTES, StreamAnswer, status,
    },
};
use zerocopy::{FromBytes, IntoBytes};

use super::{Claimed, Failure, Geometry, PAGE};

/// The control queue.
pub const CONTROL: Geometry = Geometry {
    start: 0,
    slots: 8,
    buffers: 64 << 10,
    buffer_bytes: PAGE,
};

/// The command queue.
pub const COMMAND: Geometry = Geometry {
    start: 256 << 10,
    slots: 256,
    buffers: 1 << 20,
    buffer_bytes: (if MAX_STREAM_BYTES > MAX_ANSWER_BYTES {
        MAX_STREAM_BYTES
    } else {
        MAX_ANSWER_BYTES
    }) as u64
        + PAGE,
};

/// The event queue.
pub const EVENT: Geometry = Geometry {
    start: 192 << 10,
    slots: 4,
    buffers: 224 << 10,
    buffer_bytes: PAGE,
};

/// Copies a command's answer, if the device has executed the command, and returns its length.
pub fn command_answer(slot: &Claimed<'_>, to: &mut [u8]) -> Result<usize, Failure> {
    let head: CommandAnswer = answer(slot);
    check(head.status.get())?;
    let length = (head.answer_bytes.get() as usize).min(to.len());
    slot.read(size_of::<CommandAnswer>(), &mut to[..length]);
    Ok(length)
}

/// Whether an answer says that the command failed.
pub fn is_failure(answer: &[u8]) -> bool {
    StreamAnswer::read_from_prefix(answer).is_ok_and(|(head, _)| head.result.get() != CUDA_SUCCESS)
}

/// The header of a request on the control queue.
pub fn header(kind: u32, client: u32) -> ControlHeader {
    ControlHeader {
        kind: kind.into(),
        client: client.into(),
    }
}

/// The header of an answer.
pub fn answer<A: FromBytes + IntoBytes>(slot: &Claimed<'_>) -> A {
    let mut answer = A::new_zeroed();
    slot.read(0, answer.as_mut_bytes());
    answer
}

/// Fails unless the device has executed the request.
pub fn check(answered: u32) -> Result<(), Failure> {
    if answered == status::OK {
        Ok(())
    } else {
        Err(Failure::Status(answered))
    }
}
