// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Filling memory.

use gpgpu_graphs::abi::CUDA_MEMSET_NODE_PARAMS;
use gpgpu_graphs::node::{self as graph_node, Work};
use gpgpu_protocol::cuda::{
    CUDA_ERROR_ILLEGAL_ADDRESS, CUDA_ERROR_INVALID_VALUE, CUdeviceptr, CUstream,
};

use crate::context::{self, Context};
use crate::driver;
use crate::ffi::{Result, export};
use crate::graph;
use crate::memory::Place;
use crate::observe::{self, Seen};
use crate::stream::Null;

/// `height` rows of `width` bytes, a multiple of the pattern's size.
#[derive(Clone, Copy)]
struct Fill {
    dst: u64,
    pitch: usize,
    width: usize,
    height: usize,
}

impl Fill {
    fn extent(&self) -> Result<u64> {
        (self.height - 1)
            .checked_mul(self.pitch)
            .and_then(|rows| rows.checked_add(self.width))
            .map(|bytes| bytes as u64)
            .ok_or(CUDA_ERROR_INVALID_VALUE)
    }

    fn run(&self, pattern: &[u8]) -> Result {
        let start = driver::get()?
            .memory
            .host_pointer(self.dst, self.extent()?, true)
            .ok_or(CUDA_ERROR_ILLEGAL_ADDRESS)?;
        for row in 0..self.height {
            let row = start.wrapping_add(row * self.pitch);
            if let [byte] = pattern {
                // SAFETY: the row is inside the allocation, whose extent was checked above.
                unsafe { row.write_bytes(*byte, self.width) };
                continue;
            }
            for at in (0..self.width).step_by(pattern.len()) {
                // SAFETY: as above; the width is a multiple of the pattern's length.
                unsafe {
                    row.wrapping_add(at)
                        .copy_from_nonoverlapping(pattern.as_ptr(), pattern.len());
                }
            }
        }
        Ok(())
    }
}

fn fill<const N: usize>(
    cx: &Context,
    stream: (CUstream, Null),
    (dst, pitch): (u64, usize),
    pattern: [u8; N],
    (width, height): (usize, usize),
    wait: bool,
) -> Result {
    if width == 0 || height == 0 {
        return Ok(());
    }
    let width = width.checked_mul(N).ok_or(CUDA_ERROR_INVALID_VALUE)?;
    let pitch = if height == 1 { width } else { pitch };
    if dst % N as u64 != 0 || pitch % N != 0 || pitch < width {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    let fill = Fill {
        dst,
        pitch,
        width,
        height,
    };
    let place = driver::get()?.memory.classify(dst, fill.extent()?, true)?;
    let Place::Known(allocation) = place else {
        return Err(CUDA_ERROR_INVALID_VALUE);
    };
    let stream = cx.own_stream(stream.0, stream.1)?;
    let mut value = [0; 4];
    value[..N].copy_from_slice(&pattern);
    let value = u32::from_le_bytes(value);
    let recorded = graph::record(&stream, || {
        let given = CUDA_MEMSET_NODE_PARAMS {
            dst,
            pitch,
            value,
            elementSize: N as u32,
            width: width / N,
            height,
        };
        Ok(Work::Fill(graph_node::Fill::new(given, cx.handle)?))
    })?;
    if recorded {
        return Ok(());
    }
    let seen = Seen::queued(&stream);
    seen.fill(
        || observe::memory_of(&allocation),
        value,
        width.saturating_mul(height),
    );
    let ticket = context::queue(&stream, Vec::new(), move || {
        seen.time(|| fill.run(&pattern))
    })?;
    // The synchronous forms wait only where the host can see the bytes.
    let syncs = allocation
        .sync_memops
        .load(std::sync::atomic::Ordering::Relaxed);
    let is_visible = allocation.is_host() || allocation.is_managed();
    if (wait && is_visible) || syncs {
        return context::wait_for(cx.id, &ticket);
    }
    Ok(())
}

/// Fills memory now: a node of a graph.
pub(crate) fn fill_now(of: &graph_node::Fill) -> Result {
    let fill = Fill {
        dst: of.given.dst,
        pitch: of.given.pitch,
        width: of.row(),
        height: of.given.height,
    };
    fill.run(&of.given.value.to_le_bytes()[..of.given.elementSize as usize])
}

const NULL: CUstream = std::ptr::null_mut();

export! {
    /// `cuMemsetD8`.
    context fn cuMemsetD8_v2, cuMemsetD8_v2_ptds(dst: CUdeviceptr, value: u8, count: usize) |cx, null| {
        fill(&cx, (NULL, null), (dst, 0), [value], (count, 1), true)
    }

    /// `cuMemsetD16`; the address must be even.
    context fn cuMemsetD16_v2, cuMemsetD16_v2_ptds(dst: CUdeviceptr, value: u16, count: usize) |cx, null| {
        fill(&cx, (NULL, null), (dst, 0), value.to_le_bytes(), (count, 1), true)
    }

    /// `cuMemsetD32`; the address must be a multiple of four.
    context fn cuMemsetD32_v2, cuMemsetD32_v2_ptds(dst: CUdeviceptr, value: u32, count: usize) |cx, null| {
        fill(&cx, (NULL, null), (dst, 0), value.to_le_bytes(), (count, 1), true)
    }

    /// `cuMemsetD2D8`.
    context fn cuMemsetD2D8_v2, cuMemsetD2D8_v2_ptds(dst: CUdeviceptr, pitch: usize, value: u8, width: usize, height: usize) |cx, null| {
        fill(&cx, (NULL, null), (dst, pitch), [value], (width, height), true)
    }

    /// `cuMemsetD2D16`.
    context fn cuMemsetD2D16_v2, cuMemsetD2D16_v2_ptds(dst: CUdeviceptr, pitch: usize, value: u16, width: usize, height: usize) |cx, null| {
        fill(&cx, (NULL, null), (dst, pitch), value.to_le_bytes(), (width, height), true)
    }

    /// `cuMemsetD2D32`.
    context fn cuMemsetD2D32_v2, cuMemsetD2D32_v2_ptds(dst: CUdeviceptr, pitch: usize, value: u32, width: usize, height: usize) |cx, null| {
        fill(&cx, (NULL, null), (dst, pitch), value.to_le_bytes(), (width, height), true)
    }

    /// `cuMemsetD8Async`.
    work(stream) fn cuMemsetD8Async, cuMemsetD8Async_ptsz(dst: CUdeviceptr, value: u8, count: usize, stream: CUstream) |cx, null| {
        fill(&cx, (stream, null), (dst, 0), [value], (count, 1), false)
    }

    /// `cuMemsetD16Async`.
    work(stream) fn cuMemsetD16Async, cuMemsetD16Async_ptsz(dst: CUdeviceptr, value: u16, count: usize, stream: CUstream) |cx, null| {
        fill(&cx, (stream, null), (dst, 0), value.to_le_bytes(), (count, 1), false)
    }

    /// `cuMemsetD32Async`.
    work(stream) fn cuMemsetD32Async, cuMemsetD32Async_ptsz(dst: CUdeviceptr, value: u32, count: usize, stream: CUstream) |cx, null| {
        fill(&cx, (stream, null), (dst, 0), value.to_le_bytes(), (count, 1), false)
    }

    /// `cuMemsetD2D8Async`.
    work(stream) fn cuMemsetD2D8Async, cuMemsetD2D8Async_ptsz(dst: CUdeviceptr, pitch: usize, value: u8, width: usize, height: usize, stream: CUstream) |cx, null| {
        fill(&cx, (stream, null), (dst, pitch), [value], (width, height), false)
    }

    /// `cuMemsetD2D16Async`.
    work(stream) fn cuMemsetD2D16Async, cuMemsetD2D16Async_ptsz(dst: CUdeviceptr, pitch: usize, value: u16, width: usize, height: usize, stream: CUstream) |cx, null| {
        fill(&cx, (stream, null), (dst, pitch), value.to_le_bytes(), (width, height), false)
    }

    /// `cuMemsetD2D32Async`.
    work(stream) fn cuMemsetD2D32Async, cuMemsetD2D32Async_ptsz(dst: CUdeviceptr, pitch: usize, value: u32, width: usize, height: usize, stream: CUstream) |cx, null| {
        fill(&cx, (stream, null), (dst, pitch), value.to_le_bytes(), (width, height), false)
    }
}
