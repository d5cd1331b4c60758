// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Words that streams write and wait for.

use std::ffi::{c_uint, c_void};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use gpgpu_graphs::abi::CUstreamBatchMemOpParams;
use gpgpu_graphs::node::{MOST_MEM_OPS, MemOps, Work};
use gpgpu_protocol::cuda::{
    CU_STREAM_MEM_OP_BARRIER, CU_STREAM_MEM_OP_FLUSH_REMOTE_WRITES, CU_STREAM_MEM_OP_WAIT_VALUE_32,
    CU_STREAM_MEM_OP_WAIT_VALUE_64, CU_STREAM_MEM_OP_WRITE_VALUE_32,
    CU_STREAM_MEM_OP_WRITE_VALUE_64, CUDA_ERROR_ILLEGAL_ADDRESS, CUDA_ERROR_INVALID_VALUE,
    CUDA_ERROR_NOT_SUPPORTED, CUdeviceptr, CUstream,
};

use crate::context::{self, Context};
use crate::driver;
use crate::ffi::{Pointer, Result, export};
use crate::graph;
use crate::memory::Place;
use crate::stream::Null;

/// `CU_STREAM_WAIT_VALUE_FLUSH`: there are no remote writes.
const FLUSH: u32 = 1 << 30;
const NO_MEMORY_BARRIER: u32 = 1;

/// A word in memory that the device can reach.
#[derive(Clone, Copy)]
struct Word {
    address: u64,
    bytes: u64,
}

impl Word {
    fn check(address: u64, bytes: u64, write: bool) -> Result<Self> {
        if !address.is_multiple_of(bytes) {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        match driver::get()?.memory.classify(address, bytes, write)? {
            Place::Known(_) => Ok(Self { address, bytes }),
            Place::Pageable => Err(CUDA_ERROR_INVALID_VALUE),
        }
    }

    fn pointer(self, write: bool) -> Result<*mut u8> {
        let memory = &driver::get()?.memory;
        memory
            .host_pointer(self.address, self.bytes, write)
            .ok_or(CUDA_ERROR_ILLEGAL_ADDRESS)
    }

    fn load(self) -> Result<u64> {
        let p = self.pointer(false)?;
        // SAFETY: inside a live allocation and aligned; atomics of the same size are all that touches it here.
        Ok(unsafe {
            match self.bytes {
                4 => u64::from((*p.cast::<AtomicU32>()).load(Ordering::Acquire)),
                _ => (*p.cast::<AtomicU64>()).load(Ordering::Acquire),
            }
        })
    }

    fn store(self, value: u64) -> Result {
        let p = self.pointer(true)?;
        // SAFETY: as in `load`.
        unsafe {
            match self.bytes {
                4 => (*p.cast::<AtomicU32>()).store(value as u32, Ordering::Release),
                _ => (*p.cast::<AtomicU64>()).store(value, Ordering::Release),
            }
        }
        Ok(())
    }

    fn satisfied(self, value: u64, condition: u32) -> Result<bool> {
        let now = self.load()?;
        let mask = if self.bytes == 4 {
            u64::from(u32::MAX)
        } else {
            u64::MAX
        };
        Ok(match condition {
            0 if self.bytes == 4 => (now as i32).wrapping_sub(value as i32) >= 0,
            0 => (now as i64).wrapping_sub(value as i64) >= 0,
            1 => now == value,
            2 => now & value != 0,
            _ => !(now | value) & mask != 0,
        })
    }
}

type Queued = Box<dyn FnOnce() -> Result + Send>;

fn writing(word: (u64, u64), value: u64, flags: c_uint) -> Result<Queued> {
    let word = Word::check(word.0, word.1, true)?;
    if flags & !NO_MEMORY_BARRIER != 0 {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    Ok(Box::new(move || word.store(value)))
}

fn waiting(word: (u64, u64), value: u64, flags: c_uint) -> Result<Queued> {
    let word = Word::check(word.0, word.1, false)?;
    let condition = flags & !FLUSH;
    if condition > 3 {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    if flags & FLUSH != 0 {
        return Err(CUDA_ERROR_NOT_SUPPORTED);
    }
    Ok(Box::new(move || {
        // Short waits are common between processes that share the word; long ones must not burn a core.
        let mut turns = 0u32;
        while !word.satisfied(value, condition)? {
            if driver::get().map_or(true, |d| d.cancel.load(Ordering::Relaxed)) {
                break;
            }
            turns = turns.saturating_add(1);
            match turns {
                0..=100 => std::hint::spin_loop(),
                101..=1000 => std::thread::yield_now(),
                _ => std::thread::sleep(Duration::from_micros(50)),
            }
        }
        Ok(())
    }))
}

/// The operations of a batch, in order.
fn work_of(list: &[CUstreamBatchMemOpParams], flags: c_uint) -> Result<Vec<Queued>> {
    if list.len() > MOST_MEM_OPS as usize || flags != 0 {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    let mut work: Vec<Queued> = Vec::new();
    for [first, address, value, last, ..] in list.iter().copied() {
        let flags = last as c_uint;
        match first as u32 {
            CU_STREAM_MEM_OP_WAIT_VALUE_32 => work.push(waiting((address, 4), value, flags)?),
            CU_STREAM_MEM_OP_WAIT_VALUE_64 => work.push(waiting((address, 8), value, flags)?),
            CU_STREAM_MEM_OP_WRITE_VALUE_32 => work.push(writing((address, 4), value, flags)?),
            CU_STREAM_MEM_OP_WRITE_VALUE_64 => work.push(writing((address, 8), value, flags)?),
            // All earlier work of a stream is visible to its later work.
            CU_STREAM_MEM_OP_BARRIER if first >> 32 <= 1 => {}
            CU_STREAM_MEM_OP_FLUSH_REMOTE_WRITES => return Err(CUDA_ERROR_NOT_SUPPORTED),
            _ => return Err(CUDA_ERROR_INVALID_VALUE),
        }
    }
    Ok(work)
}

/// The work of a node.
pub(crate) fn node_work(of: &MemOps) -> Result<Queued> {
    let work = work_of(&of.ops, of.flags)?;
    Ok(Box::new(move || work.into_iter().try_for_each(|one| one())))
}

/// Queues a batch, all of it or nothing.
fn queue(
    cx: &Context,
    stream: (CUstream, Null),
    ops: &[CUstreamBatchMemOpParams],
    flags: c_uint,
) -> Result {
    let work = work_of(ops, flags)?;
    let stream = cx.own_stream(stream.0, stream.1)?;
    let recorded = graph::record(&stream, || {
        Ok(Work::MemOps(Arc::new(MemOps {
            context: cx.handle,
            flags,
            ops: ops.into(),
        })))
    })?;
    if recorded {
        return Ok(());
    }
    for work in work {
        context::queue(&stream, Vec::new(), work)?;
    }
    Ok(())
}

fn one(
    cx: &Context,
    stream: (CUstream, Null),
    operation: u32,
    (address, value, flags): (u64, u64, c_uint),
) -> Result {
    let op = [operation.into(), address, value, flags.into(), 0, 0];
    queue(cx, stream, &[op], 0)
}

fn batch(
    cx: &Context,
    stream: (CUstream, Null),
    count: c_uint,
    list: Pointer<c_void>,
    flags: c_uint,
) -> Result {
    if count > MOST_MEM_OPS {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    let ops = list.cast().array(count as usize)?;
    queue(cx, stream, &ops, flags)
}

export! {
    /// `cuStreamBatchMemOp`.
    context fn cuStreamBatchMemOp_v2, cuStreamBatchMemOp_v2_ptsz(stream: CUstream, count: c_uint, list: Pointer<c_void>, flags: c_uint) |cx, null| {
        batch(&cx, (stream, null), count, list, flags)
    }

    /// As [`cuStreamBatchMemOp_v2`].
    context fn cuStreamBatchMemOp, cuStreamBatchMemOp_ptsz(stream: CUstream, count: c_uint, list: Pointer<c_void>, flags: c_uint) |cx, null| {
        batch(&cx, (stream, null), count, list, flags)
    }

    /// `cuStreamWriteValue32`.
    context fn cuStreamWriteValue32_v2, cuStreamWriteValue32_v2_ptsz(stream: CUstream, address: CUdeviceptr, value: u32, flags: c_uint) |cx, null| {
        one(&cx, (stream, null), CU_STREAM_MEM_OP_WRITE_VALUE_32, (address, value.into(), flags))
    }

    /// As [`cuStreamWriteValue32_v2`].
    context fn cuStreamWriteValue32, cuStreamWriteValue32_ptsz(stream: CUstream, address: CUdeviceptr, value: u32, flags: c_uint) |cx, null| {
        one(&cx, (stream, null), CU_STREAM_MEM_OP_WRITE_VALUE_32, (address, value.into(), flags))
    }

    /// `cuStreamWriteValue64`.
    context fn cuStreamWriteValue64_v2, cuStreamWriteValue64_v2_ptsz(stream: CUstream, address: CUdeviceptr, value: u64, flags: c_uint) |cx, null| {
        one(&cx, (stream, null), CU_STREAM_MEM_OP_WRITE_VALUE_64, (address, value, flags))
    }

    /// As [`cuStreamWriteValue64_v2`].
    context fn cuStreamWriteValue64, cuStreamWriteValue64_ptsz(stream: CUstream, address: CUdeviceptr, value: u64, flags: c_uint) |cx, null| {
        one(&cx, (stream, null), CU_STREAM_MEM_OP_WRITE_VALUE_64, (address, value, flags))
    }

    /// `cuStreamWaitValue32`.
    context fn cuStreamWaitValue32_v2, cuStreamWaitValue32_v2_ptsz(stream: CUstream, address: CUdeviceptr, value: u32, flags: c_uint) |cx, null| {
        one(&cx, (stream, null), CU_STREAM_MEM_OP_WAIT_VALUE_32, (address, value.into(), flags))
    }

    /// As [`cuStreamWaitValue32_v2`].
    context fn cuStreamWaitValue32, cuStreamWaitValue32_ptsz(stream: CUstream, address: CUdeviceptr, value: u32, flags: c_uint) |cx, null| {
        one(&cx, (stream, null), CU_STREAM_MEM_OP_WAIT_VALUE_32, (address, value.into(), flags))
    }

    /// `cuStreamWaitValue64`.
    context fn cuStreamWaitValue64_v2, cuStreamWaitValue64_v2_ptsz(stream: CUstream, address: CUdeviceptr, value: u64, flags: c_uint) |cx, null| {
        one(&cx, (stream, null), CU_STREAM_MEM_OP_WAIT_VALUE_64, (address, value, flags))
    }

    /// As [`cuStreamWaitValue64_v2`].
    context fn cuStreamWaitValue64, cuStreamWaitValue64_ptsz(stream: CUstream, address: CUdeviceptr, value: u64, flags: c_uint) |cx, null| {
        one(&cx, (stream, null), CU_STREAM_MEM_OP_WAIT_VALUE_64, (address, value, flags))
    }
}
