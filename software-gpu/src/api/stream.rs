//! Streams.

use std::cell::Cell;
use std::ffi::{c_int, c_uint, c_ulonglong, c_void};

use gpgpu_protocol::cuda::{
    CU_STREAM_CAPTURE_MODE_GLOBAL, CU_STREAM_CAPTURE_STATUS_NONE, CU_STREAM_NON_BLOCKING,
    CUDA_ERROR_DEINITIALIZED, CUDA_ERROR_INVALID_HANDLE, CUDA_ERROR_INVALID_VALUE,
    CUDA_ERROR_NOT_READY, CUDA_ERROR_NOT_SUPPORTED, CUcontext, CUdevice, CUdeviceptr, CUevent,
    CUgraph, CUgraphNode, CUstream, CUstreamCaptureMode, CUstreamCaptureStatus,
};

use super::event::Event;
use crate::border::{Pointer, Result, export};
use crate::config::GREATEST_PRIORITY;
use crate::context::{self, Context};
use crate::driver;
use crate::stream::{Order, STREAMS};

thread_local! {
    static CAPTURE_MODE: Cell<CUstreamCaptureMode> = const { Cell::new(CU_STREAM_CAPTURE_MODE_GLOBAL) };
}

fn create(cx: &Context, out: Pointer<CUstream>, flags: c_uint, priority: c_int) -> Result {
    out.required()?;
    let order = match flags {
        0 => Order::Blocking,
        CU_STREAM_NON_BLOCKING => Order::NonBlocking,
        _ => return Err(CUDA_ERROR_INVALID_VALUE),
    };
    let priority = priority.clamp(GREATEST_PRIORITY, 0);
    out.set(cx.create_stream(order, priority).handle as CUstream)
}

// Only NULL and the two names of default streams have no table entry.
fn destroy(stream: CUstream) -> Result {
    STREAMS
        .remove(stream as u64)
        .map(|_| ())
        .ok_or(CUDA_ERROR_INVALID_HANDLE)
}

fn no_capture(status: Pointer<CUstreamCaptureStatus>, id: Pointer<c_ulonglong>) -> Result {
    status.set(CU_STREAM_CAPTURE_STATUS_NONE)?;
    id.set_if(0);
    Ok(())
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

    /// `cuStreamDestroy`: what was queued still runs.
    healthy fn cuStreamDestroy_v2(stream: CUstream) |_| {
        destroy(stream)
    }

    /// As [`cuStreamDestroy_v2`].
    healthy fn cuStreamDestroy(stream: CUstream) |_| {
        destroy(stream)
    }

    /// `cuStreamQuery`.
    context fn cuStreamQuery, cuStreamQuery_ptsz(stream: CUstream) |cx, null| {
        if !context::is_idle(&cx.stream(stream, null)?)? {
            return Err(CUDA_ERROR_NOT_READY);
        }
        driver::get()?.fault()
    }

    /// `cuStreamSynchronize`.
    context fn cuStreamSynchronize, cuStreamSynchronize_ptsz(stream: CUstream) |cx, null| {
        context::wait(&cx.stream(stream, null)?)
    }

    /// `cuStreamWaitEvent`: for the latest record at the time of the call; nothing if there is none.
    context fn cuStreamWaitEvent, cuStreamWaitEvent_ptsz(stream: CUstream, event: CUevent, flags: c_uint) |cx, null| {
        if flags > 1 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let event = Event::named(event)?;
        let stream = cx.stream(stream, null)?;
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
        priority.set(cx.stream(stream, null)?.priority)
    }

    /// `cuStreamGetId`: no other stream of the process ever has it.
    context fn cuStreamGetId, cuStreamGetId_ptsz(stream: CUstream, id: Pointer<c_ulonglong>) |cx, null| {
        id.set(cx.stream(stream, null)?.id)
    }

    /// `cuStreamGetDevice`.
    context fn cuStreamGetDevice, cuStreamGetDevice_ptsz(stream: CUstream, device: Pointer<CUdevice>) |cx, null| {
        let stream = cx.stream(stream, null)?;
        device.set(context::of(&stream)?.device)
    }

    /// `cuStreamCopyAttributes`: both have the same, those of every stream here.
    context fn cuStreamCopyAttributes, cuStreamCopyAttributes_ptsz(to: CUstream, from: CUstream) |cx, null| {
        cx.stream(to, null)?;
        cx.stream(from, null)?;
        Ok(())
    }

    /// `cuStreamAttachMemAsync`: `CUDA_ERROR_INVALID_VALUE`, for there is no managed memory that could be attached.
    context fn cuStreamAttachMemAsync, cuStreamAttachMemAsync_ptsz(stream: CUstream, _address: CUdeviceptr, _length: usize, _flags: c_uint) |cx, null| {
        cx.stream(stream, null)?;
        Err(CUDA_ERROR_INVALID_VALUE)
    }

    /// `cuStreamGetCtx`.
    context fn cuStreamGetCtx, cuStreamGetCtx_ptsz(stream: CUstream, out: Pointer<CUcontext>) |cx, null| {
        out.set(context::of(&*cx.stream(stream, null)?)?.handle as CUcontext)
    }

    /// `cuStreamGetCtx`, of CUDA 12.5: there are no green contexts, so the second answer is NULL.
    context fn cuStreamGetCtx_v2, cuStreamGetCtx_v2_ptsz(stream: CUstream, out: Pointer<CUcontext>, green: Pointer<*mut c_void>) |cx, null| {
        green.set_if(std::ptr::null_mut());
        out.set(context::of(&*cx.stream(stream, null)?)?.handle as CUcontext)
    }

    /// `cuStreamIsCapturing`: never.
    context fn cuStreamIsCapturing, cuStreamIsCapturing_ptsz(stream: CUstream, status: Pointer<CUstreamCaptureStatus>) |cx, null| {
        cx.stream(stream, null)?;
        no_capture(status, Pointer::null())
    }

    /// `cuStreamGetCaptureInfo`, of CUDA 10.1: never.
    context fn cuStreamGetCaptureInfo, cuStreamGetCaptureInfo_ptsz(stream: CUstream, status: Pointer<CUstreamCaptureStatus>, id: Pointer<c_ulonglong>) |cx, null| {
        cx.stream(stream, null)?;
        no_capture(status, id)
    }

    /// `cuStreamGetCaptureInfo`, of CUDA 11.3: never.
    context fn cuStreamGetCaptureInfo_v2, cuStreamGetCaptureInfo_v2_ptsz(
        stream: CUstream, status: Pointer<CUstreamCaptureStatus>, id: Pointer<c_ulonglong>,
        graph: Pointer<CUgraph>, dependencies: Pointer<*const CUgraphNode>, count: Pointer<usize>,
    ) |cx, null| {
        cx.stream(stream, null)?;
        graph.set_if(std::ptr::null_mut());
        dependencies.set_if(std::ptr::null());
        count.set_if(0);
        no_capture(status, id)
    }

    /// `cuStreamGetCaptureInfo`, of CUDA 12.3: never.
    context fn cuStreamGetCaptureInfo_v3, cuStreamGetCaptureInfo_v3_ptsz(
        stream: CUstream, status: Pointer<CUstreamCaptureStatus>, id: Pointer<c_ulonglong>,
        graph: Pointer<CUgraph>, dependencies: Pointer<*const CUgraphNode>, edges: Pointer<*const c_void>, count: Pointer<usize>,
    ) |cx, null| {
        cx.stream(stream, null)?;
        graph.set_if(std::ptr::null_mut());
        dependencies.set_if(std::ptr::null());
        edges.set_if(std::ptr::null());
        count.set_if(0);
        no_capture(status, id)
    }

    /// `cuStreamBeginCapture`: not supported.
    context fn cuStreamBeginCapture_v2, cuStreamBeginCapture_v2_ptsz(stream: CUstream, _mode: CUstreamCaptureMode) |cx, null| {
        cx.stream(stream, null)?;
        Err(CUDA_ERROR_NOT_SUPPORTED)
    }

    /// `cuStreamEndCapture`: not supported.
    context fn cuStreamEndCapture, cuStreamEndCapture_ptsz(stream: CUstream, graph: Pointer<CUgraph>) |cx, null| {
        cx.stream(stream, null)?;
        graph.set_if(std::ptr::null_mut());
        Err(CUDA_ERROR_NOT_SUPPORTED)
    }

    /// `cuThreadExchangeStreamCaptureMode`: the calling thread's.
    initialised fn cuThreadExchangeStreamCaptureMode(mode: Pointer<CUstreamCaptureMode>) |_| {
        let new = mode.get()?;
        if new > 2 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let old = CAPTURE_MODE.try_with(|m| m.replace(new)).map_err(|_| CUDA_ERROR_DEINITIALIZED)?;
        mode.set(old)
    }
}
