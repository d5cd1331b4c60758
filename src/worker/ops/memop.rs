// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Memory operations of streams (words that they write and wait for), and attributes of streams.

use gpgpu_protocol::{
    api::{LaunchAttribute, MemOp, Stream, reply, request},
    cuda::*,
};

use super::copy::known;
use crate::cuda::driver;
use crate::worker::{
    dispatch::Outcome,
    session::{Data, Session},
};

/// The maximum number of operations of a batch, as documented by CUDA.
pub const MOST: usize = 256;

/// `CUstreamBatchMemOpParams` in the driver's form.
pub type Params = [u64; 6];

/// The size of an operation's word in bytes.
pub fn word_bytes(operation: CUstreamBatchMemOpType) -> Option<usize> {
    match operation {
        CU_STREAM_MEM_OP_WAIT_VALUE_32 | CU_STREAM_MEM_OP_WRITE_VALUE_32 => Some(4),
        CU_STREAM_MEM_OP_WAIT_VALUE_64 | CU_STREAM_MEM_OP_WRITE_VALUE_64 => Some(8),
        _ => None,
    }
}

/// An operation in the driver's form. Its word must be in device memory or in memory that the guest process registered.
pub fn lower(session: &Session, op: &MemOp) -> Result<Params, CUresult> {
    let MemOp {
        operation,
        flags,
        address,
        value,
    } = *op;
    let Some(bytes) = word_bytes(operation) else {
        // These name no memory, and have their flags beside the operation.
        return match operation {
            CU_STREAM_MEM_OP_BARRIER | CU_STREAM_MEM_OP_FLUSH_REMOTE_WRITES => {
                let first = u64::from(operation) | u64::from(flags) << 32;
                Ok([first, 0, 0, 0, 0, 0])
            }
            _ => Err(CUDA_ERROR_NOT_SUPPORTED),
        };
    };
    if !address.is_multiple_of(bytes as u64) {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    known(session, address, bytes)?;
    let value = if bytes == 4 {
        u64::from(value as u32)
    } else {
        value
    };
    Ok([operation.into(), address, value, flags.into(), 0, 0])
}

/// Makes a stream write words, and wait for them.
pub fn gpgpuMemOps(
    session: &Session,
    request: request::gpgpuMemOps,
    _: Data,
) -> Outcome<reply::gpgpuMemOps> {
    if request.ops.len() > MOST {
        return Err(CUDA_ERROR_INVALID_VALUE.into());
    }
    let stream = session.objects.raw::<Stream>(request.hStream)? as CUstream;
    let lowered = request.ops.iter().map(|op| lower(session, op));
    let mut params = lowered.collect::<Result<Vec<Params>, _>>()?;
    let (count, list) = (params.len() as u32, params.as_mut_ptr().cast());
    // SAFETY: the stream is the driver's and lives; the list has as many entries, whose words are memory that the
    // driver knows.
    unsafe { driver::cuStreamBatchMemOp_v2(stream, count, list, request.flags)? };
    Ok(reply::gpgpuMemOps::default())
}

/// Checks that this is an attribute of streams whose value contains neither a handle nor a host pointer.
fn check(attribute: CUlaunchAttributeID) -> Result<(), CUresult> {
    match attribute {
        CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW
        | CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY
        | CU_LAUNCH_ATTRIBUTE_PRIORITY
        | CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP
        | CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN => Ok(()),
        _ => Err(CUDA_ERROR_INVALID_VALUE),
    }
}

/// `cuStreamSetAttribute`.
pub fn cuStreamSetAttribute(
    session: &Session,
    request: request::cuStreamSetAttribute,
    _: Data,
) -> Outcome<reply::cuStreamSetAttribute> {
    let LaunchAttribute { id, value } = request.value;
    check(id)?;
    let stream = session.objects.raw::<Stream>(request.hStream)? as CUstream;
    // In the form that the driver reads, aligned for each of its members.
    let value = CUlaunchAttributeValue { pad: value };
    let value = (&raw const value).cast();
    // SAFETY: the stream is the driver's and lives, the value lives across the call, and an address in it is only a
    // range of the cache's.
    unsafe { driver::cuStreamSetAttribute(stream, id, value)? };
    Ok(reply::cuStreamSetAttribute::default())
}

/// `cuStreamGetAttribute`.
pub fn cuStreamGetAttribute(
    session: &Session,
    request: request::cuStreamGetAttribute,
    _: Data,
) -> Outcome<reply::cuStreamGetAttribute> {
    check(request.attr)?;
    let stream = session.objects.raw::<Stream>(request.hStream)? as CUstream;
    let mut value = CUlaunchAttributeValue { pad: [0; 64] };
    let to = (&raw mut value).cast();
    // SAFETY: the stream is the driver's and lives; the value lives across the call.
    unsafe { driver::cuStreamGetAttribute(stream, request.attr, to)? };
    Ok(reply::cuStreamGetAttribute {
        value_out: LaunchAttribute {
            id: request.attr,
            // SAFETY: all bytes were set above, or by the driver.
            value: unsafe { value.pad },
        },
        ..Default::default()
    })
}

/// `cuStreamCopyAttributes`.
pub fn cuStreamCopyAttributes(
    session: &Session,
    request: request::cuStreamCopyAttributes,
    _: Data,
) -> Outcome<reply::cuStreamCopyAttributes> {
    let to = session.objects.raw::<Stream>(request.dst)? as CUstream;
    let from = session.objects.raw::<Stream>(request.src)? as CUstream;
    // SAFETY: both streams are the driver's and live.
    unsafe { driver::cuStreamCopyAttributes(to, from)? };
    Ok(reply::cuStreamCopyAttributes::default())
}
