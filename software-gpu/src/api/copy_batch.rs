// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Many copies by one call.

use std::sync::Arc;

use gpgpu_protocol::cuda::{
    CU_MEMCPY_FLAG_PREFER_OVERLAP_WITH_COMPUTE, CU_MEMCPY_SRC_ACCESS_ORDER_ANY,
    CU_MEMCPY_SRC_ACCESS_ORDER_DURING_API_CALL, CU_MEMCPY_SRC_ACCESS_ORDER_STREAM,
    CUDA_ERROR_INVALID_VALUE, CUdeviceptr, CUmemcpyAttributes, CUstream,
};

use super::copy::{Reading, Rows, Side, copy_reading};
use crate::context::Context;
use crate::driver;
use crate::ffi::{Pointer, Result, export};
use crate::stream::{Null, Order, Stream};

/// The caller's arrays.
struct Batch {
    dsts: Pointer<CUdeviceptr>,
    srcs: Pointer<CUdeviceptr>,
    sizes: Pointer<usize>,
    count: usize,
    attributes: Pointer<CUmemcpyAttributes>,
    // The first copy that each of the attributes is for.
    starts: Pointer<usize>,
    attribute_count: usize,
}

fn reading(attributes: &CUmemcpyAttributes) -> Result<Reading> {
    if attributes.flags & !CU_MEMCPY_FLAG_PREFER_OVERLAP_WITH_COMPUTE != 0 {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    match attributes.srcAccessOrder {
        CU_MEMCPY_SRC_ACCESS_ORDER_STREAM => Ok(Reading::InOrder),
        CU_MEMCPY_SRC_ACCESS_ORDER_DURING_API_CALL => Ok(Reading::AtCall),
        CU_MEMCPY_SRC_ACCESS_ORDER_ANY => Ok(Reading::Usual),
        _ => Err(CUDA_ERROR_INVALID_VALUE),
    }
}

impl Batch {
    // Checks that the attributes cover the copies, and returns the reading of each copy.
    fn readings(&self) -> Result<Vec<Reading>> {
        let starts = self.starts.array(self.attribute_count)?;
        let ordered = starts.windows(2).all(|pair| pair[0] < pair[1]);
        if self.count == 0
            || starts.first() != Some(&0)
            || !ordered
            || starts.last().is_none_or(|last| *last >= self.count)
        {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let mut readings = Vec::with_capacity(self.count);
        let attributes = self.attributes.array(self.attribute_count)?;
        for (index, attributes) in attributes.iter().enumerate() {
            let end = starts.get(index + 1).copied().unwrap_or(self.count);
            readings.resize(end, reading(attributes)?);
        }
        Ok(readings)
    }

    // The error includes the failing copy's index, if a single copy caused it.
    fn queue(&self, stream: &Arc<Stream>) -> std::result::Result<(), (u32, usize)> {
        let general = |code| (code, usize::MAX);
        let readings = self.readings().map_err(general)?;
        let dsts = self.dsts.array(self.count).map_err(general)?;
        let srcs = self.srcs.array(self.count).map_err(general)?;
        let sizes = self.sizes.array(self.count).map_err(general)?;
        let copies: Vec<_> = dsts.into_iter().zip(srcs).zip(sizes).collect();
        // All are looked at before the first is made.
        let memory = &driver::get().map_err(general)?.memory;
        for (index, ((dst, src), size)) in copies.iter().enumerate() {
            let refused = |code| (code, index);
            if *dst == 0 || *src == 0 || *size == 0 {
                return Err(refused(CUDA_ERROR_INVALID_VALUE));
            }
            memory.classify(*dst, *size as u64, true).map_err(refused)?;
            memory
                .classify(*src, *size as u64, false)
                .map_err(refused)?;
        }
        for (index, (((dst, src), size), reading)) in copies.into_iter().zip(readings).enumerate() {
            let rows = Rows::line(dst, src, size);
            copy_reading(stream, rows, (Side::Any, Side::Any), false, (reading, None))
                .map_err(|code| (code, index))?;
        }
        Ok(())
    }
}

fn run(cx: &Context, stream: (CUstream, Null), batch: &Batch, failed: Pointer<usize>) -> Result {
    let stream = cx.own_stream(stream.0, stream.1)?;
    if stream.order == Order::Legacy {
        failed.set_if(usize::MAX);
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    let outcome = batch.queue(&stream);
    failed.set_if(outcome.map_or_else(|(_, index)| index, |()| usize::MAX));
    outcome.map_err(|(code, _)| code)
}

export! {
    /// `cuMemcpyBatchAsync`, of CUDA 12.8: with the index of the copy that was refused, or the greatest one if none
    /// was.
    work(stream) fn cuMemcpyBatchAsync, cuMemcpyBatchAsync_ptsz(
        dsts: Pointer<CUdeviceptr>, srcs: Pointer<CUdeviceptr>, sizes: Pointer<usize>, count: usize,
        attributes: Pointer<CUmemcpyAttributes>, starts: Pointer<usize>, attribute_count: usize,
        failed: Pointer<usize>, stream: CUstream,
    ) |cx, null| {
        let batch = Batch { dsts, srcs, sizes, count, attributes, starts, attribute_count };
        run(&cx, (stream, null), &batch, failed)
    }

    /// `cuMemcpyBatchAsync`, of CUDA 13.0. Copies are made one after the other; the stream cannot be the legacy one.
    work(stream) fn cuMemcpyBatchAsync_v2, cuMemcpyBatchAsync_v2_ptsz(
        dsts: Pointer<CUdeviceptr>, srcs: Pointer<CUdeviceptr>, sizes: Pointer<usize>, count: usize,
        attributes: Pointer<CUmemcpyAttributes>, starts: Pointer<usize>, attribute_count: usize, stream: CUstream,
    ) |cx, null| {
        let batch = Batch { dsts, srcs, sizes, count, attributes, starts, attribute_count };
        run(&cx, (stream, null), &batch, Pointer::null())
    }
}
