// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The ring, and the copies that use it.

use gpgpu_protocol::{
    api::{Stream, reply, request},
    codec::Blob,
    cuda::*,
};

use super::{copy::known, stream::record};
use crate::cuda::driver;
use crate::worker::{
    counts::{self, Memory},
    dispatch::{Outcome, Until},
    grace,
    ring::Ring,
    session::{Data, Session},
};

/// The client's ring; `CUDA_ERROR_INVALID_VALUE` if it has none.
pub(super) fn ring(session: &Session) -> Result<&Ring, CUresult> {
    session.ring.get().ok_or(CUDA_ERROR_INVALID_VALUE)
}

/// Starts to serve a ring.
pub fn gpgpuRingSetup(
    session: &Session,
    request: request::gpgpuRingSetup,
    _: Data,
) -> Outcome<reply::gpgpuRingSetup> {
    Ring::set_up(session, request.address)?;
    Ok(reply::gpgpuRingSetup::default())
}

/// Wakes the ring's thread.
pub fn gpgpuRingWake(
    session: &Session,
    _: request::gpgpuRingWake,
    _: Data,
) -> Outcome<reply::gpgpuRingWake> {
    ring(session)?.wake(session);
    Ok(reply::gpgpuRingWake {})
}

/// Makes the ring accept all commands without data.
pub fn gpgpuRingWide(
    session: &Session,
    _: request::gpgpuRingWide,
    _: Data,
) -> Outcome<reply::gpgpuRingWide> {
    ring(session)?.widen();
    Ok(reply::gpgpuRingWide {})
}

/// Makes the ring's thread read the tail again after it has announced its sleep.
pub fn gpgpuRingRelaxed(
    session: &Session,
    _: request::gpgpuRingRelaxed,
    _: Data,
) -> Outcome<reply::gpgpuRingRelaxed> {
    ring(session)?.relax(session);
    Ok(reply::gpgpuRingRelaxed {})
}

/// Returns an answer that did not fit into its slot.
pub fn gpgpuRingAnswer(
    session: &Session,
    request: request::gpgpuRingAnswer,
    _: Data,
) -> Outcome<reply::gpgpuRingAnswer> {
    let answer = ring(session)?.take_kept(request.slot, request.sequence)?;
    Ok(reply::gpgpuRingAnswer {
        answer: Blob(answer),
        ..Default::default()
    })
}

/// Waits until the ring's commands up to a position were executed, because the rest of the stream depends on them.
pub fn gpgpuRingAfter(
    session: &Session,
    request: request::gpgpuRingAfter,
    _: Data,
) -> Outcome<reply::gpgpuRingAfter> {
    grace::narrow(&[]);
    ring(session)?.wait(request.position)?;
    Ok(reply::gpgpuRingAfter::default())
}

/// Records an event, and makes the GPU write to a word of the guest when it is complete.
pub fn gpgpuEventMark(
    session: &Session,
    request: request::gpgpuEventMark,
    _: Data,
) -> Outcome<reply::gpgpuEventMark> {
    let stream = session.objects.raw::<Stream>(request.hStream)? as CUstream;
    let word = match ring(session)?.word(session, request.word) {
        Err(code) if code != CUDA_ERROR_NOT_SUPPORTED => return Err(code.into()),
        word => word,
    };
    record(session, request.hEvent, request.hStream)?;
    // SAFETY: the stream is the driver's and lives; the word is in the ring's registered memory.
    let write = |word| unsafe { driver::cuStreamWriteValue32_v2(stream, word, request.value, 0) };
    match word.and_then(write) {
        // Without the word the guest queries the event, like any other.
        Ok(()) | Err(CUDA_ERROR_NOT_SUPPORTED) => {}
        Err(code) => return Err(code.into()),
    }
    Ok(reply::gpgpuEventMark::default())
}

/// Whether the answer to a request can still arrive, or has arrived already.
pub fn gpgpuFenceStatus(
    session: &Session,
    request: request::gpgpuFenceStatus,
    _: Data,
) -> Outcome<reply::gpgpuFenceStatus> {
    let ring = ring(session)?;
    // The caller has waited for long. If the flag of the ring was overwritten, this repairs it.
    ring.wake(session);
    let over = ring.is_over(session, request.slot, request.sequence, request.position)?;
    Ok(reply::gpgpuFenceStatus {
        over: over.into(),
        ..Default::default()
    })
}

/// A copy whose source is in the command itself.
pub fn gpgpuWrite(
    session: &Session,
    request: request::gpgpuWrite,
    _: Data,
) -> Outcome<reply::gpgpuWrite> {
    let stream = session.objects.raw::<Stream>(request.hStream)? as CUstream;
    let bytes = request.bytes.0;
    known(session, request.dst, bytes.len())?;
    // SAFETY: the source is pageable memory of this process, so it has been read when the call returns; the
    // destination is memory that the driver knows; the stream is the driver's and lives.
    unsafe {
        driver::cuMemcpyHtoDAsync_v2(request.dst, bytes.as_ptr().cast(), bytes.len(), stream)?
    };
    counts::copy(Memory::Device, Memory::Host, bytes.len() as u64);
    Ok(reply::gpgpuWrite::default())
}

/// A copy from data blocks.
pub fn gpgpuBlockIn(session: &Session, request: request::gpgpuBlockIn) -> Result<Until, CUresult> {
    let stream = session.objects.raw::<Stream>(request.hStream)? as CUstream;
    known(session, request.dst, request.ByteCount)?;
    let from = ring(session)?.block(session, request.block, request.ByteCount)?;
    // SAFETY: the source is in the ring's registered blocks, the destination memory that the driver knows; the stream
    // is the driver's and lives.
    unsafe { driver::cuMemcpyHtoDAsync_v2(request.dst, from, request.ByteCount, stream)? };
    counts::copy(Memory::Device, Memory::Host, request.ByteCount as u64);
    Ok(Until::Stream(request.hStream))
}

/// A copy to data blocks.
pub fn gpgpuBlockOut(
    session: &Session,
    request: request::gpgpuBlockOut,
) -> Result<Until, CUresult> {
    let stream = session.objects.raw::<Stream>(request.hStream)? as CUstream;
    known(session, request.src, request.ByteCount)?;
    let to = ring(session)?.block(session, request.block, request.ByteCount)?;
    // SAFETY: as above, the other way round.
    unsafe { driver::cuMemcpyDtoHAsync_v2(to, request.src, request.ByteCount, stream)? };
    counts::copy(Memory::Host, Memory::Device, request.ByteCount as u64);
    Ok(Until::Stream(request.hStream))
}

/// `cuStreamSynchronize`.
pub fn cuStreamSynchronize(
    session: &Session,
    request: request::cuStreamSynchronize,
) -> Result<Until, CUresult> {
    session.objects.raw::<Stream>(request.hStream)?;
    Ok(Until::Stream(request.hStream))
}

/// `cuCtxSynchronize`.
pub fn cuCtxSynchronize(_: &Session, _: request::cuCtxSynchronize) -> Result<Until, CUresult> {
    Ok(Until::Context)
}
