// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Streams.

use std::ffi::{c_int, c_uint, c_ulonglong};
use std::sync::Arc;

use gpgpu_protocol::cuda::{
    CU_STREAM_NON_BLOCKING, CU_STREAM_PER_THREAD, CUDA_ERROR_INVALID_HANDLE,
    CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_NOT_READY, CUcontext, CUdevice, CUdeviceptr, CUevent,
    CUgreenCtx, CUstream,
};

use gpgpu_graphs::capture;

use super::event::Event;
use crate::config::GREATEST_PRIORITY;
use crate::context::{self, Context};
use crate::driver;
use crate::ffi::{Pointer, Result, export};
use crate::graph::{self, Soft};
use crate::stream::{Null, Order, STREAMS};

pub(super) fn create(
    cx: &Context,
    out: Pointer<CUstream>,
    flags: c_uint,
    priority: c_int,
) -> Result {
    out.required()?;
    let order = match flags {
        0 => Order::Blocking,
        CU_STREAM_NON_BLOCKING => Order::NonBlocking,
        _ => return Err(CUDA_ERROR_INVALID_VALUE),
    };
    let priority = priority.clamp(GREATEST_PRIORITY, 0);
    out.set(cx.create_stream(order, priority).handle as CUstream)
}

// NULL and the two names of default streams are the only ones without a table entry.
fn destroy(stream: CUstream) -> Result {
    if let Some(stream) = STREAMS.get(stream as u64) {
        context::of(&stream)?;
    }
    let gone = STREAMS
        .remove(stream as u64)
        .ok_or(CUDA_ERROR_INVALID_HANDLE)?;
    capture::forget_stream::<Soft>(gone.id);
    Ok(())
}

/// The context of a stream. A thread's own stream has none to report while a green context is current.
fn contexts_of(cx: &Context, stream: CUstream, null: Null) -> Result<Arc<Context>> {
    let is_own =
        stream as usize == CU_STREAM_PER_THREAD || stream.is_null() && null == Null::PerThread;
    if cx.green.is_some() && is_own {
        return Err(CUDA_ERROR_INVALID_HANDLE);
    }
    context::of(&*cx.stream(stream, null)?)
}

/// The handle of a green context; NULL for another context.
fn green_handle(of: &Context) -> CUgreenCtx {
    of.green
        .as_ref()
        .map_or(std::ptr::null_mut(), |_| of.handle as CUgreenCtx)
}

export! {
    /// `cuStreamCreate`.
    context fn cuStreamCreate(out: Pointer<CUstream>, flags: c_uint) |cx| {
        create(&cx, out, flags, 0)
    }

    /// `cuStreamCreateWithPriority`: the priority is noted and brought into range; streams run at once anyway.
    context fn cuStreamCreateWithPriority(out: Pointer<CUstream>, flags: c_uint, priority: c_int) |cx| {
        create(&cx, out, flags, priority)
    }

    /// `cuStreamDestroy`: queued work still runs.
    healthy fn cuStreamDestroy_v2(stream: CUstream) |_| {
        destroy(stream)
    }

    /// As [`cuStreamDestroy_v2`].
    healthy fn cuStreamDestroy(stream: CUstream) |_| {
        destroy(stream)
    }

    /// `cuStreamQuery`.
    work(stream) fn cuStreamQuery, cuStreamQuery_ptsz(stream: CUstream) |cx, null| {
        let stream = cx.stream(stream, null)?;
        graph::observe(&stream)?;
        if !context::is_idle(&stream)? {
            return Err(CUDA_ERROR_NOT_READY);
        }
        driver::get()?.fault()
    }

    /// `cuStreamSynchronize`.
    work(stream) fn cuStreamSynchronize, cuStreamSynchronize_ptsz(stream: CUstream) |cx, null| {
        let stream = cx.stream(stream, null)?;
        graph::observe(&stream)?;
        context::wait(&stream)
    }

    /// `cuStreamWaitEvent`: for the latest record at the time of the call; does nothing if there is none.
    work(stream) fn cuStreamWaitEvent, cuStreamWaitEvent_ptsz(stream: CUstream, event: CUevent, flags: c_uint) |cx, null| {
        if flags > 1 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let handle = event as u64;
        let event = Event::named(event)?;
        let stream = cx.stream(stream, null)?;
        if graph::wait_event(&stream, handle, flags)? {
            return Ok(());
        }
        if let Some(ticket) = event.recorded().filter(|t| !t.is_done()) {
            context::queue(&stream, vec![ticket], || Ok(()))?;
        }
        Ok(())
    }

    /// `cuStreamGetFlags`.
    context fn cuStreamGetFlags, cuStreamGetFlags_ptsz(stream: CUstream, flags: Pointer<c_uint>) |cx, null| {
        let stream = cx.stream(stream, null)?;
        flags.set(if stream.order == Order::NonBlocking { CU_STREAM_NON_BLOCKING } else { 0 })
    }

    /// `cuStreamGetPriority`.
    context fn cuStreamGetPriority, cuStreamGetPriority_ptsz(stream: CUstream, priority: Pointer<c_int>) |cx, null| {
        priority.set(cx.stream(stream, null)?.attributes().priority)
    }

    /// `cuStreamGetId`: the id is unique in the process's lifetime.
    context fn cuStreamGetId, cuStreamGetId_ptsz(stream: CUstream, id: Pointer<c_ulonglong>) |cx, null| {
        id.set(cx.stream(stream, null)?.id)
    }

    /// `cuStreamGetDevice`.
    context fn cuStreamGetDevice, cuStreamGetDevice_ptsz(stream: CUstream, device: Pointer<CUdevice>) |cx, null| {
        let stream = cx.stream(stream, null)?;
        device.set(context::of(&stream)?.device)
    }

    /// `cuStreamAttachMemAsync`: the whole of a managed allocation. It changes nothing, as program and kernels may use
    /// all of them at once.
    context fn cuStreamAttachMemAsync, cuStreamAttachMemAsync_ptsz(stream: CUstream, address: CUdeviceptr, length: usize, flags: c_uint) |cx, null| {
        cx.stream(stream, null)?;
        let allocation = driver::get()?.memory.find(address).ok_or(CUDA_ERROR_INVALID_VALUE)?;
        let is_whole = allocation.is_managed()
            && allocation.start == address
            && (length == 0 || length as u64 == allocation.size);
        // Nothing can be attached to a default stream.
        let is_default = stream as usize <= CU_STREAM_PER_THREAD;
        match flags {
            1 | 2 if is_whole => Ok(()),
            4 if is_whole && !is_default => Ok(()),
            _ => Err(CUDA_ERROR_INVALID_VALUE),
        }
    }

    /// `cuStreamGetCtx`.
    context fn cuStreamGetCtx, cuStreamGetCtx_ptsz(stream: CUstream, out: Pointer<CUcontext>) |cx, null| {
        out.set(context::of(&*cx.stream(stream, null)?)?.handle as CUcontext)
    }

    /// `cuStreamGetCtx`, of CUDA 12.5: a green context and its primary one, or a context and NULL.
    context fn cuStreamGetCtx_v2, cuStreamGetCtx_v2_ptsz(stream: CUstream, out: Pointer<CUcontext>, green: Pointer<CUgreenCtx>) |cx, null| {
        let of = contexts_of(&cx, stream, null)?;
        out.set(of.home().handle as CUcontext)?;
        green.set(green_handle(&of))
    }

    /// `cuStreamGetGreenCtx`: NULL for a stream of another context.
    context fn cuStreamGetGreenCtx(stream: CUstream, green: Pointer<CUgreenCtx>) |cx| {
        let of = contexts_of(&cx, stream, Null::Legacy)?;
        green.set(green_handle(&of))
    }
}
