// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Memory operations: words in memory that streams write and wait for.

use gpgpu_graphs::{abi::CUstreamBatchMemOpParams, node::MOST_MEM_OPS};
use gpgpu_protocol::{
    api::{MemOp, request},
    cuda::*,
};

use crate::{
    argument::{HostPtr, InPtr},
    client::{Client, client},
    cuda,
    ffi::Result,
    graph,
    launch::DefaultStream,
    managed, stream,
};

/// The size of an operation's word in bytes, by the operation's number.
fn word_bytes(operation: CUstreamBatchMemOpType) -> Option<usize> {
    match operation {
        CU_STREAM_MEM_OP_WAIT_VALUE_32 | CU_STREAM_MEM_OP_WRITE_VALUE_32 => Some(4),
        CU_STREAM_MEM_OP_WAIT_VALUE_64 | CU_STREAM_MEM_OP_WRITE_VALUE_64 => Some(8),
        _ => None,
    }
}

/// Decodes CUDA's structure.
pub fn read(words: &CUstreamBatchMemOpParams) -> MemOp {
    let [first, address, value, last, ..] = *words;
    let operation = first as u32;
    match word_bytes(operation) {
        Some(_) => MemOp {
            operation,
            flags: last as u32,
            address,
            value,
        },
        // The others have their flags beside the operation.
        None => MemOp {
            operation,
            flags: (first >> 32) as u32,
            address: 0,
            value: 0,
        },
    }
}

/// The operation with the address at which the worker accesses its word. The host refuses an address that this process
/// does not know.
pub fn reach(client: &Client, op: MemOp) -> MemOp {
    let Some(bytes) = word_bytes(op.operation) else {
        return op;
    };
    client.disown(op.address);
    let address = match client.pointers.find_whole(op.address, bytes) {
        Some(range) if op.address.wrapping_sub(range.start) < range.bytes => range.far(op.address),
        _ => op.address,
    };
    MemOp { address, ..op }
}

/// Sends operations for a stream, in order.
fn send(
    shape: DefaultStream,
    stream: CUstream,
    ops: &[CUstreamBatchMemOpParams],
    flags: u32,
) -> Result {
    let client = client()?;
    let hStream = stream::lower(shape, stream)?;
    if graph::mem_ops(client, hStream, ops, flags)? {
        return Ok(());
    }
    let ops: Vec<_> = ops.iter().map(|op| reach(client, read(op))).collect();
    if managed::any() {
        managed::before_work(hStream);
        for op in &ops {
            managed::names(
                client,
                op.address,
                word_bytes(op.operation).unwrap_or(0),
                hStream,
            );
        }
    }
    let request = request::gpgpuMemOps {
        hStream,
        ops,
        flags,
    };
    client.call(&request).map(drop)
}

fn one(
    shape: DefaultStream,
    stream: CUstream,
    operation: CUstreamBatchMemOpType,
    (address, value, flags): (u64, u64, u32),
) -> Result {
    let op = [operation.into(), address, value, flags.into(), 0, 0];
    send(shape, stream, &[op], 0)
}

fn batch(
    shape: DefaultStream,
    stream: CUstream,
    count: u32,
    params: HostPtr,
    flags: u32,
) -> Result {
    if count > MOST_MEM_OPS || (count > 0 && params.is_null()) {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    let params: InPtr<CUstreamBatchMemOpParams> = InPtr::nested(params.address() as *const _);
    let ops: Result<Vec<_>> = (0..count as usize).map(|i| params.at(i)).collect();
    send(shape, stream, &ops?, flags)
}

macro_rules! words {
    ($($name:ident, $per_thread:ident: $ty:ty, $operation:ident;)*) => {cuda! {$(
        fn $name(stream: CUstream, addr: CUdeviceptr, value: $ty, flags: u32) {
            one(DefaultStream::Legacy, stream, $operation, (addr, u64::from(value), flags))
        }

        fn $per_thread(stream: CUstream, addr: CUdeviceptr, value: $ty, flags: u32) {
            one(DefaultStream::PerThread, stream, $operation, (addr, u64::from(value), flags))
        }
    )*}};
}

words! {
    cuStreamWaitValue32, cuStreamWaitValue32_ptsz: u32, CU_STREAM_MEM_OP_WAIT_VALUE_32;
    cuStreamWaitValue32_v2, cuStreamWaitValue32_v2_ptsz: u32, CU_STREAM_MEM_OP_WAIT_VALUE_32;
    cuStreamWaitValue64, cuStreamWaitValue64_ptsz: u64, CU_STREAM_MEM_OP_WAIT_VALUE_64;
    cuStreamWaitValue64_v2, cuStreamWaitValue64_v2_ptsz: u64, CU_STREAM_MEM_OP_WAIT_VALUE_64;
    cuStreamWriteValue32, cuStreamWriteValue32_ptsz: u32, CU_STREAM_MEM_OP_WRITE_VALUE_32;
    cuStreamWriteValue32_v2, cuStreamWriteValue32_v2_ptsz: u32, CU_STREAM_MEM_OP_WRITE_VALUE_32;
    cuStreamWriteValue64, cuStreamWriteValue64_ptsz: u64, CU_STREAM_MEM_OP_WRITE_VALUE_64;
    cuStreamWriteValue64_v2, cuStreamWriteValue64_v2_ptsz: u64, CU_STREAM_MEM_OP_WRITE_VALUE_64;
}

cuda! {
    fn cuStreamBatchMemOp(stream: CUstream, count: u32, paramArray: HostPtr, flags: u32) {
        batch(DefaultStream::Legacy, stream, count, paramArray, flags)
    }

    fn cuStreamBatchMemOp_ptsz(stream: CUstream, count: u32, paramArray: HostPtr, flags: u32) {
        batch(DefaultStream::PerThread, stream, count, paramArray, flags)
    }

    fn cuStreamBatchMemOp_v2(stream: CUstream, count: u32, paramArray: HostPtr, flags: u32) {
        batch(DefaultStream::Legacy, stream, count, paramArray, flags)
    }

    fn cuStreamBatchMemOp_v2_ptsz(stream: CUstream, count: u32, paramArray: HostPtr, flags: u32) {
        batch(DefaultStream::PerThread, stream, count, paramArray, flags)
    }
}
