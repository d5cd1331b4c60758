//! Streams: what the process knows of them.

use std::ffi::c_void;

use gpgpu_protocol::{
    api::{Context, Object, Stream, request},
    cuda::*,
};

use crate::{
    argument::OutPtr,
    border::Result,
    client::{Client, client},
    cuda,
    launch::DefaultStream,
    settings,
    stores::{answers::local, context::answer, objects::Known},
    thread,
};

/// The context of a stream; the default streams belong to the current one.
pub fn context(handle: CUstream) -> Result<u64> {
    let client = client()?;
    let id = Stream::id(handle);
    if id <= CU_STREAM_PER_THREAD as u64 {
        return match thread::current_context() {
            0 => Err(CUDA_ERROR_INVALID_CONTEXT),
            context => Ok(context),
        };
    }
    let look = |object: &Known| match object {
        Known::Stream(stream) => Some(stream.context),
        _ => None,
    };
    let known = client.objects.look(id, look).flatten();
    known.ok_or(CUDA_ERROR_INVALID_HANDLE)
}

/// What the host says of a stream once and for all.
#[derive(Clone, Copy)]
enum Fact {
    Flags,
    Priority,
    Id,
}

/// A fact about a stream, asked of the host unless it is known.
fn fact(
    client: &Client,
    stream: u64,
    fact: Fact,
    host: impl FnOnce() -> Result<u64>,
) -> Result<u64> {
    let which = fact as usize;
    if !thread::has_context(client) {
        return host();
    }
    if Stream::SPECIAL.contains(&stream) {
        let which = answer::LEGACY_STREAM + which;
        return settings::ask(client, thread::current_context(), which, host);
    }
    let look = |object: &Known| match object {
        Known::Stream(stream) => stream.answers.get(which),
        _ => None,
    };
    if let Some(value) = local(client, || client.objects.look(stream, look).flatten()) {
        return Ok(value);
    }
    match client.objects.get(stream) {
        Some(Known::Stream(stream)) if !client.is_corrupted() => stream.answers.ask(which, host),
        _ => host(),
    }
}

fn flags(client: &Client, hStream: u64, to: OutPtr<u32>) -> Result {
    let host = |flags| {
        Ok(client
            .call(&request::cuStreamGetFlags { hStream, flags })?
            .flags)
    };
    if to.is_null() {
        // The host's driver decides what NULL means, here and below.
        return host(false).map(drop);
    }
    to.set(fact(client, hStream, Fact::Flags, || host(true).map(u64::from))? as u32)
}

fn priority(client: &Client, hStream: u64, to: OutPtr<i32>) -> Result {
    let host = |priority| {
        Ok(client
            .call(&request::cuStreamGetPriority { hStream, priority })?
            .priority)
    };
    if to.is_null() {
        return host(false).map(drop);
    }
    to.set(fact(client, hStream, Fact::Priority, || {
        host(true).map(|value| value as u64)
    })? as i32)
}

fn id(client: &Client, hStream: u64, to: OutPtr<u64>) -> Result {
    let host = |streamId| {
        Ok(client
            .call(&request::cuStreamGetId { hStream, streamId })?
            .streamId)
    };
    if to.is_null() {
        return host(false).map(drop);
    }
    to.set(fact(client, hStream, Fact::Id, || host(true))?)
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
        // Work goes on until it is done, and the call does not wait for it.
        let request = request::cuStreamDestroy_v2 { hStream: id };
        if client.objects.knows_stream(id) && thread::has_context(client) {
            client.post(&request)?;
        } else {
            client.call(&request)?;
        }
        client.objects.remove(id);
        Ok(())
    }

    fn cuStreamGetFlags(hStream: CUstream, flags_out: OutPtr<u32>) {
        let client = client()?;
        flags(client, thread::stream_id(client, Stream::id(hStream))?, flags_out)
    }

    fn cuStreamGetFlags_ptsz(hStream: CUstream, flags_out: OutPtr<u32>) {
        let client = client()?;
        flags(client, thread::stream_id_per_thread(client, Stream::id(hStream))?, flags_out)
    }

    fn cuStreamGetPriority(hStream: CUstream, priority_out: OutPtr<i32>) {
        let client = client()?;
        priority(client, thread::stream_id(client, Stream::id(hStream))?, priority_out)
    }

    fn cuStreamGetPriority_ptsz(hStream: CUstream, priority_out: OutPtr<i32>) {
        let client = client()?;
        priority(client, thread::stream_id_per_thread(client, Stream::id(hStream))?, priority_out)
    }

    fn cuStreamGetId(hStream: CUstream, streamId: OutPtr<u64>) {
        let client = client()?;
        id(client, thread::stream_id(client, Stream::id(hStream))?, streamId)
    }

    fn cuStreamGetId_ptsz(hStream: CUstream, streamId: OutPtr<u64>) {
        let client = client()?;
        id(client, thread::stream_id_per_thread(client, Stream::id(hStream))?, streamId)
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

    fn cuStreamGetCaptureInfo_v2(hStream: CUstream, captureStatus: OutPtr<CUstreamCaptureStatus>, _id: *mut u64, _graph: *mut CUgraph, _dependencies: *mut *const CUgraphNode, _numDependencies: *mut usize) {
        not_capturing(hStream, captureStatus)
    }

    fn cuStreamGetCaptureInfo_v2_ptsz(hStream: CUstream, captureStatus: OutPtr<CUstreamCaptureStatus>, _id: *mut u64, _graph: *mut CUgraph, _dependencies: *mut *const CUgraphNode, _numDependencies: *mut usize) {
        not_capturing(hStream, captureStatus)
    }

    fn cuStreamGetCaptureInfo_v3(hStream: CUstream, captureStatus: OutPtr<CUstreamCaptureStatus>, _id: *mut u64, _graph: *mut CUgraph, _dependencies: *mut *const CUgraphNode, _edges: *mut *const c_void, _numDependencies: *mut usize) {
        not_capturing(hStream, captureStatus)
    }

    fn cuStreamGetCaptureInfo_v3_ptsz(hStream: CUstream, captureStatus: OutPtr<CUstreamCaptureStatus>, _id: *mut u64, _graph: *mut CUgraph, _dependencies: *mut *const CUgraphNode, _edges: *mut *const c_void, _numDependencies: *mut usize) {
        not_capturing(hStream, captureStatus)
    }
}

/// The id of a stream, by the default stream that NULL stands for.
pub fn lower(shape: DefaultStream, stream: CUstream) -> Result<u64> {
    let client = client()?;
    match shape {
        DefaultStream::Legacy => thread::stream_id(client, Stream::id(stream)),
        DefaultStream::PerThread => thread::stream_id_per_thread(client, Stream::id(stream)),
    }
}
