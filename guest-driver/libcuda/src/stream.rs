//! Streams: what the process knows of them.

use std::ffi::c_void;

use gpgpu_protocol::{
    api::{Context, Object, Stream, request},
    cuda::*,
};

use crate::{
    argument::OutPtr, border::Result, client::client, cuda, launch::Shape, objects::Known, thread,
};

/// The context of a stream; the default streams belong to the current one.
fn context(handle: CUstream) -> Result<u64> {
    let client = client()?;
    let id = Stream::id(handle);
    if id <= CU_STREAM_PER_THREAD as u64 {
        return match thread::current_context() {
            0 => Err(CUDA_ERROR_INVALID_CONTEXT),
            context => Ok(context),
        };
    }
    match client.objects.get(id) {
        Some(Known::Plain { context }) => Ok(context),
        _ => Err(CUDA_ERROR_INVALID_HANDLE),
    }
}

fn context_out(pctx: OutPtr<CUcontext>, stream: CUstream) -> Result {
    client()?;
    pctx.required()?;
    pctx.set(Context::handle(context(stream)?))
}

/// Nothing is ever captured here, and beginning says so.
fn not_capturing(stream: CUstream, status: OutPtr<CUstreamCaptureStatus>) -> Result {
    context(stream)?;
    status.set(CU_STREAM_CAPTURE_STATUS_NONE)
}

cuda! {
    fn cuStreamDestroy_v2(hStream: CUstream) {
        let client = client()?;
        let id = Stream::id(hStream);
        if id <= CU_STREAM_PER_THREAD as u64 {
            return Err(CUDA_ERROR_INVALID_HANDLE);
        }
        client.call(&request::cuStreamDestroy_v2 { hStream: id })?;
        client.objects.remove(id);
        Ok(())
    }

    fn cuStreamGetCtx(hStream: CUstream, pctx: OutPtr<CUcontext>) {
        context_out(pctx, hStream)
    }

    fn cuStreamGetCtx_ptsz(hStream: CUstream, pctx: OutPtr<CUcontext>) {
        context_out(pctx, hStream)
    }

    fn cuStreamGetDevice(hStream: CUstream, device: OutPtr<CUdevice>) {
        let client = client()?;
        device.required()?;
        device.set(client.objects.context_device(context(hStream)?).ok_or(CUDA_ERROR_INVALID_CONTEXT)?)
    }

    fn cuStreamGetDevice_ptsz(hStream: CUstream, device: OutPtr<CUdevice>) {
        let client = client()?;
        device.required()?;
        device.set(client.objects.context_device(context(hStream)?).ok_or(CUDA_ERROR_INVALID_CONTEXT)?)
    }

    fn cuStreamIsCapturing(hStream: CUstream, captureStatus: OutPtr<CUstreamCaptureStatus>) {
        not_capturing(hStream, captureStatus)
    }

    fn cuStreamIsCapturing_ptsz(hStream: CUstream, captureStatus: OutPtr<CUstreamCaptureStatus>) {
        not_capturing(hStream, captureStatus)
    }

    fn cuStreamGetCaptureInfo_v2(hStream: CUstream, captureStatus: OutPtr<CUstreamCaptureStatus>, _id: *mut u64, _graph: *mut CUgraph, _dependencies: *mut c_void, _numDependencies: *mut usize) {
        not_capturing(hStream, captureStatus)
    }

    fn cuStreamGetCaptureInfo_v2_ptsz(hStream: CUstream, captureStatus: OutPtr<CUstreamCaptureStatus>, _id: *mut u64, _graph: *mut CUgraph, _dependencies: *mut c_void, _numDependencies: *mut usize) {
        not_capturing(hStream, captureStatus)
    }

    fn cuStreamGetCaptureInfo_v3(hStream: CUstream, captureStatus: OutPtr<CUstreamCaptureStatus>, _id: *mut u64, _graph: *mut CUgraph, _dependencies: *mut c_void, _edges: *mut c_void, _numDependencies: *mut usize) {
        not_capturing(hStream, captureStatus)
    }

    fn cuStreamGetCaptureInfo_v3_ptsz(hStream: CUstream, captureStatus: OutPtr<CUstreamCaptureStatus>, _id: *mut u64, _graph: *mut CUgraph, _dependencies: *mut c_void, _edges: *mut c_void, _numDependencies: *mut usize) {
        not_capturing(hStream, captureStatus)
    }
}

/// The id of a stream, by the default stream that NULL stands for.
pub fn lower(shape: Shape, stream: CUstream) -> Result<u64> {
    let client = client()?;
    match shape {
        Shape::Legacy => thread::stream_id(client, Stream::id(stream)),
        Shape::PerThread => thread::stream_id_per_thread(client, Stream::id(stream)),
    }
}
