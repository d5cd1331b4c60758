// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Copies of one range.
//!
//! When a call returns follows CUDA's "API synchronization behavior". A copy that accesses memory unknown to the driver
//! (pageable memory) has read or written it by then; between pinned and device memory only the synchronous forms wait;
//! a copy within host memory is complete, in a stream too; one within device memory never makes the host wait.

use std::ffi::c_void;
use std::sync::Arc;

use gpgpu_graphs::node::{Copy3D, Work};
use gpgpu_protocol::cuda::{
    CU_MEMORYTYPE_DEVICE, CU_MEMORYTYPE_HOST, CUDA_ERROR_ILLEGAL_ADDRESS, CUDA_ERROR_INVALID_VALUE,
    CUcontext, CUdeviceptr, CUstream,
};

use crate::context::{self, Context};
use crate::driver;
use crate::ffi::{Result, export};
use crate::graph;
use crate::memory::Place;
use crate::observe::Seen;
use crate::stream::{Null, Stream};

/// The most pageable bytes that an asynchronous copy takes a snapshot of; a larger one waits for its turn instead, as
/// CUDA may.
const MOST_SNAPSHOT: usize = 64 << 20;

/// The permitted kind of a side of a copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    /// Memory that the device can reach.
    Device,
    /// Any memory.
    Any,
}

/// The time at which the source is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reading {
    /// Pageable memory at the call, other memory in the stream's order.
    Usual,
    /// In the stream's order.
    InOrder,
    /// Before the call returns.
    AtCall,
}

/// `height` rows of `width` bytes. The addresses are those of the first byte of each side.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rows {
    pub dst: u64,
    pub dst_pitch: usize,
    pub src: u64,
    pub src_pitch: usize,
    pub width: usize,
    pub height: usize,
}

impl Rows {
    /// One range.
    pub fn line(dst: u64, src: u64, size: usize) -> Self {
        Self {
            dst,
            dst_pitch: size,
            src,
            src_pitch: size,
            width: size,
            height: 1,
        }
    }

    fn extent(&self, pitch: usize) -> Result<u64> {
        (self.height - 1)
            .checked_mul(pitch)
            .and_then(|rows| rows.checked_add(self.width))
            .map(|bytes| bytes as u64)
            .ok_or(CUDA_ERROR_INVALID_VALUE)
    }
}

enum Source {
    Address(u64, Place),
    Snapshot(Vec<u8>),
}

/// The host's pointer for an address.
pub(super) fn pointer(address: u64, place: &Place, extent: u64, write: bool) -> Result<*mut u8> {
    match place {
        Place::Pageable => Ok(address as *mut u8),
        // Looked up again: it may have been freed since the call.
        Place::Known(_) => driver::get()?
            .memory
            .host_pointer(address, extent, write)
            .ok_or(CUDA_ERROR_ILLEGAL_ADDRESS),
    }
}

fn move_rows(dst: *mut u8, dst_pitch: usize, src: *const u8, src_pitch: usize, rows: &Rows) {
    for row in 0..rows.height {
        // SAFETY: both sides were found to hold `(height - 1) * pitch + width` bytes, or are the caller's pageable
        // memory, valid for the copy by the API's contract. The bytes may change meanwhile (kernels, the program's
        // threads): nothing is concluded from them.
        unsafe {
            std::ptr::copy(
                src.wrapping_add(row * src_pitch),
                dst.wrapping_add(row * dst_pitch),
                rows.width,
            );
        }
    }
}

fn run(rows: &Rows, dst: &Place, source: &Source) -> Result {
    let to = pointer(rows.dst, dst, rows.extent(rows.dst_pitch)?, true)?;
    match source {
        Source::Address(address, place) => {
            let from = pointer(*address, place, rows.extent(rows.src_pitch)?, false)?;
            move_rows(to, rows.dst_pitch, from, rows.src_pitch, rows);
        }
        Source::Snapshot(bytes) => {
            move_rows(to, rows.dst_pitch, bytes.as_ptr(), rows.width, rows);
        }
    }
    Ok(())
}

/// Whether it is the host's memory.
pub(super) fn is_host(place: &Place) -> bool {
    match place {
        Place::Pageable => true,
        Place::Known(allocation) => allocation.is_host(),
    }
}

/// Whether copies of it are to wait.
pub(super) fn syncs(place: &Place) -> bool {
    match place {
        Place::Pageable => false,
        Place::Known(a) => a.sync_memops.load(std::sync::atomic::Ordering::Relaxed),
    }
}

/// Copies `rows` in `stream`'s order. `wait` is the synchronous form.
pub(super) fn copy(stream: &Arc<Stream>, rows: Rows, sides: (Side, Side), wait: bool) -> Result {
    copy_reading(stream, rows, sides, wait, (Reading::Usual, None))
}

/// Like [`copy`], with the time at which the source is read, and the piece of work that it is a part of, if it is not
/// the whole.
pub(super) fn copy_reading(
    stream: &Arc<Stream>,
    rows: Rows,
    sides: (Side, Side),
    wait: bool,
    (reading, seen): (Reading, Option<&Seen>),
) -> Result {
    if rows.width == 0 || rows.height == 0 {
        return Ok(());
    }
    let memory = &driver::get()?.memory;
    let dst = memory.classify(rows.dst, rows.extent(rows.dst_pitch)?, true)?;
    let src = memory.classify(rows.src, rows.extent(rows.src_pitch)?, false)?;
    for (place, side) in [(&dst, sides.0), (&src, sides.1)] {
        if side == Side::Device && matches!(place, Place::Pageable) {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
    }
    if graph::record(stream, || line_node(stream, &rows, &dst, &src))? {
        return Ok(());
    }
    let seen = seen.map_or_else(|| Seen::queued(stream), Clone::clone);
    let bytes = rows.width.saturating_mul(rows.height);
    seen.copy((&dst, &src), bytes, !wait);
    let mut wait = (wait && (is_host(&dst) || is_host(&src))) || syncs(&dst) || syncs(&src);
    wait |= matches!(dst, Place::Pageable) || is_host(&dst) && is_host(&src);
    wait |= reading == Reading::AtCall && matches!(src, Place::Known(_));
    let mut source = Source::Address(rows.src, src.clone());
    if matches!(src, Place::Pageable) && !wait && reading != Reading::InOrder {
        if bytes <= MOST_SNAPSHOT {
            let mut copied = vec![0; bytes];
            let from = rows.src as *const u8;
            move_rows(copied.as_mut_ptr(), rows.width, from, rows.src_pitch, &rows);
            source = Source::Snapshot(copied);
        } else {
            wait = true;
        }
    }
    let ticket = context::queue(stream, Vec::new(), move || {
        seen.time(|| run(&rows, &dst, &source))
    })?;
    if wait {
        return context::wait_for(stream.context, &ticket);
    }
    Ok(())
}

/// The node that copies rows of two ranges.
fn line_node(stream: &Stream, rows: &Rows, dst: &Place, src: &Place) -> Result<Work> {
    let kind = |place: &Place| match place {
        Place::Known(allocation) if !allocation.is_host() => CU_MEMORYTYPE_DEVICE,
        _ => CU_MEMORYTYPE_HOST,
    };
    let (to, from) = ((kind(dst), rows.dst), (kind(src), rows.src));
    let context = context::of(stream)?.handle;
    let mut copy = Copy3D::line(to, from, rows.width, context)?.given;
    (copy.dstPitch, copy.srcPitch) = (rows.dst_pitch, rows.src_pitch);
    (copy.dstHeight, copy.srcHeight) = (rows.height, rows.height);
    copy.Height = rows.height;
    Ok(Work::Copy(Box::new(Copy3D::new(&copy, context)?)))
}

/// Copies rows now: a node of a graph.
pub(crate) fn copy_now(rows: &Rows) -> Result {
    let memory = &driver::get()?.memory;
    let dst = memory.classify(rows.dst, rows.extent(rows.dst_pitch)?, true)?;
    let src = memory.classify(rows.src, rows.extent(rows.src_pitch)?, false)?;
    run(rows, &dst, &Source::Address(rows.src, src))
}

const DEVICE: Side = Side::Device;
const ANY: Side = Side::Any;

fn line(
    cx: &Context,
    stream: (CUstream, Null),
    (dst, src, size): (u64, u64, usize),
    sides: (Side, Side),
    wait: bool,
) -> Result {
    let stream = cx.own_stream(stream.0, stream.1)?;
    copy(&stream, Rows::line(dst, src, size), sides, wait)
}

/// A synchronous copy from or to another device's memory follows that device's work, too.
fn finish_peers(cx: &Context, addresses: [u64; 2]) -> Result {
    for address in addresses {
        let allocation = driver::get()?.memory.find(address);
        let context = allocation.and_then(|of| context::of_id(of.context).ok());
        if let Some(context) = context.filter(|context| context.device != cx.device) {
            context::finish_legacy(&[context])?;
        }
    }
    Ok(())
}

const NULL: CUstream = std::ptr::null_mut();

export! {
    /// `cuMemcpy`: between any two addresses.
    context fn cuMemcpy, cuMemcpy_ptds(dst: CUdeviceptr, src: CUdeviceptr, size: usize) |cx, null| {
        line(&cx, (NULL, null), (dst, src, size), (ANY, ANY), true)
    }

    /// `cuMemcpyAsync`.
    work(stream) fn cuMemcpyAsync, cuMemcpyAsync_ptsz(dst: CUdeviceptr, src: CUdeviceptr, size: usize, stream: CUstream) |cx, null| {
        line(&cx, (stream, null), (dst, src, size), (ANY, ANY), false)
    }

    /// `cuMemcpyHtoD`.
    context fn cuMemcpyHtoD_v2, cuMemcpyHtoD_v2_ptds(dst: CUdeviceptr, src: *const c_void, size: usize) |cx, null| {
        line(&cx, (NULL, null), (dst, src as u64, size), (DEVICE, ANY), true)
    }

    /// `cuMemcpyHtoDAsync`.
    work(stream) fn cuMemcpyHtoDAsync_v2, cuMemcpyHtoDAsync_v2_ptsz(dst: CUdeviceptr, src: *const c_void, size: usize, stream: CUstream) |cx, null| {
        line(&cx, (stream, null), (dst, src as u64, size), (DEVICE, ANY), false)
    }

    /// `cuMemcpyDtoH`.
    context fn cuMemcpyDtoH_v2, cuMemcpyDtoH_v2_ptds(dst: *mut c_void, src: CUdeviceptr, size: usize) |cx, null| {
        line(&cx, (NULL, null), (dst as u64, src, size), (ANY, DEVICE), true)
    }

    /// `cuMemcpyDtoHAsync`.
    work(stream) fn cuMemcpyDtoHAsync_v2, cuMemcpyDtoHAsync_v2_ptsz(dst: *mut c_void, src: CUdeviceptr, size: usize, stream: CUstream) |cx, null| {
        line(&cx, (stream, null), (dst as u64, src, size), (ANY, DEVICE), false)
    }

    /// `cuMemcpyDtoD`.
    context fn cuMemcpyDtoD_v2, cuMemcpyDtoD_v2_ptds(dst: CUdeviceptr, src: CUdeviceptr, size: usize) |cx, null| {
        finish_peers(&cx, [dst, src])?;
        line(&cx, (NULL, null), (dst, src, size), (DEVICE, DEVICE), true)
    }

    /// `cuMemcpyDtoDAsync`.
    work(stream) fn cuMemcpyDtoDAsync_v2, cuMemcpyDtoDAsync_v2_ptsz(dst: CUdeviceptr, src: CUdeviceptr, size: usize, stream: CUstream) |cx, null| {
        line(&cx, (stream, null), (dst, src, size), (DEVICE, DEVICE), false)
    }

    /// `cuMemcpyPeer`: between contexts of the one device.
    context fn cuMemcpyPeer, cuMemcpyPeer_ptds(dst: CUdeviceptr, dst_context: CUcontext, src: CUdeviceptr, src_context: CUcontext, size: usize) |cx, null| {
        context::finish_legacy(&[context::named(dst_context as u64)?, context::named(src_context as u64)?])?;
        line(&cx, (NULL, null), (dst, src, size), (DEVICE, DEVICE), true)
    }

    /// `cuMemcpyPeerAsync`.
    work(stream) fn cuMemcpyPeerAsync, cuMemcpyPeerAsync_ptsz(dst: CUdeviceptr, dst_context: CUcontext, src: CUdeviceptr, src_context: CUcontext, size: usize, stream: CUstream) |cx, null| {
        context::named(dst_context as u64)?;
        context::named(src_context as u64)?;
        let of = cx.own_stream(stream, null)?;
        graph::refuse(&of)?;
        line(&cx, (stream, null), (dst, src, size), (DEVICE, DEVICE), false)
    }
}
