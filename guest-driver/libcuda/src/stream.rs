// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Streams: the process's state of them.

use gpgpu_graphs::capture;
use gpgpu_protocol::{
    api::{Context, Event, Object, Request, Stream, request},
    cuda::*,
};

use crate::{
    argument::OutPtr,
    client::{Client, client},
    cuda,
    ffi::Result,
    graph::{self, Guest},
    green, host_pool, ipc_event,
    launch::DefaultStream,
    managed, settings,
    stores::{answers::local, context::answer, objects::Known},
    thread,
};

/// The context of a stream; the default streams belong to the current one.
pub fn context(handle: CUstream) -> Result<u64> {
    let client = client()?;
    let id = Stream::id(handle);
    let known = find_context(client, id);
    if id > CU_STREAM_PER_THREAD as u64 {
        green::check_stream(id)?;
        return known.ok_or(CUDA_ERROR_INVALID_HANDLE);
    }
    known.ok_or(CUDA_ERROR_INVALID_CONTEXT)
}

/// The same by the stream's id; `None` if there is no such stream, or no current context.
#[inline]
pub fn find_context(client: &Client, id: u64) -> Option<u64> {
    if id <= CU_STREAM_PER_THREAD as u64 {
        return Some(thread::current_context()).filter(|context| *context != 0);
    }
    let look = |object: &Known| match object {
        Known::Stream(stream) => Some(stream.context),
        _ => None,
    };
    client.objects.look(id, look).flatten()
}

/// The context of a stream that is no default stream.
pub fn own_context(client: &Client, id: u64) -> Option<u64> {
    if id <= CU_STREAM_PER_THREAD as u64 {
        return None;
    }
    find_context(client, id)
}

/// Calls `body` for work in a stream. Such work needs no current context if the stream is no default stream, as with
/// NVIDIA's driver.
///
/// # Errors
///
/// Those of `body`.
pub fn with_context(client: &Client, id: u64, body: impl FnOnce() -> Result) -> Result {
    if thread::current_context() != 0 {
        return body();
    }
    match own_context(client, id) {
        Some(context) => thread::within(context, body),
        None => body(),
    }
}

/// The host's constant answers about a stream.
#[derive(Clone, Copy)]
enum Fact {
    Flags,
    Priority,
    Id,
}

/// A fact about a stream, from the host unless it is cached.
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
        // The host's driver defines the meaning of NULL, here and below.
        return host(false).map(drop);
    }
    to.set(fact(client, hStream, Fact::Flags, || host(true).map(u64::from))? as u32)
}

/// The priority of a stream.
///
/// # Errors
///
/// Those of `cuStreamGetPriority`.
pub fn priority_of(client: &Client, hStream: u64) -> Result<i32> {
    let host = || {
        let request = request::cuStreamGetPriority {
            hStream,
            priority: true,
        };
        Ok(client.call(&request)?.priority as u64)
    };
    Ok(fact(client, hStream, Fact::Priority, host)? as i32)
}

fn priority(client: &Client, hStream: u64, to: OutPtr<i32>) -> Result {
    if to.is_null() {
        let priority = false;
        let request = request::cuStreamGetPriority { hStream, priority };
        return client.call(&request).map(drop);
    }
    to.set(priority_of(client, hStream)?)
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

/// The non-green context of a stream, and the green one, which is NULL for a stream of another context. In a green
/// context a per-thread default stream has no green one, as CUDA's documentation defines.
fn contexts(shape: DefaultStream, stream: CUstream) -> Result<(CUcontext, CUgreenCtx)> {
    let client = client()?;
    let context = context(stream)?;
    let home = green::home(client, context);
    if home == context {
        return Ok((Context::handle(home), std::ptr::null_mut()));
    }
    let is_own = match Stream::id(stream) {
        0 => shape == DefaultStream::PerThread,
        id => id == CU_STREAM_PER_THREAD as u64,
    };
    if is_own {
        return Err(CUDA_ERROR_INVALID_HANDLE);
    }
    Ok((Context::handle(home), context as CUgreenCtx))
}

/// `cuStreamGetCtx_v2`.
fn contexts_out(
    pCtx: OutPtr<CUcontext>,
    pGreenCtx: OutPtr<CUgreenCtx>,
    shape: DefaultStream,
    stream: CUstream,
) -> Result {
    client()?;
    pCtx.required()?;
    pGreenCtx.required()?;
    let (context, green) = contexts(shape, stream)?;
    pCtx.set(context)?;
    pGreenCtx.set(green)
}

cuda! {
    fn cuStreamDestroy_v2(hStream: CUstream) {
        let client = client()?;
        let id = Stream::id(hStream);
        if id <= CU_STREAM_PER_THREAD as u64 {
            return Err(CUDA_ERROR_INVALID_HANDLE);
        }
        green::check_stream(id)?;
        client.leave_stream(id);
        // Pending work continues, and the call does not wait for it.
        let request = request::cuStreamDestroy_v2 { hStream: id };
        if client.objects.knows_stream(id) && thread::has_context(client) {
            client.post(&request)?;
        } else {
            client.call(&request)?;
        }
        client.objects.remove(id);
        capture::forget_stream::<Guest>(id);
        managed::forget_stream(id);
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

    fn cuStreamGetCtx_v2(hStream: CUstream, pCtx: OutPtr<CUcontext>, pGreenCtx: OutPtr<CUgreenCtx>) {
        contexts_out(pCtx, pGreenCtx, DefaultStream::Legacy, hStream)
    }

    fn cuStreamGetCtx_v2_ptsz(hStream: CUstream, pCtx: OutPtr<CUcontext>, pGreenCtx: OutPtr<CUgreenCtx>) {
        contexts_out(pCtx, pGreenCtx, DefaultStream::PerThread, hStream)
    }

    fn cuStreamGetGreenCtx(hStream: CUstream, phCtx: OutPtr<CUgreenCtx>) {
        client()?;
        phCtx.required()?;
        let (_, green) = contexts(DefaultStream::Legacy, hStream)?;
        phCtx.set(green)
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

    fn cuStreamQuery(hStream: CUstream) {
        query(DefaultStream::Legacy, hStream)
    }

    fn cuStreamQuery_ptsz(hStream: CUstream) {
        query(DefaultStream::PerThread, hStream)
    }

    fn cuStreamSynchronize(hStream: CUstream) {
        synchronise(DefaultStream::Legacy, hStream)
    }

    fn cuStreamSynchronize_ptsz(hStream: CUstream) {
        synchronise(DefaultStream::PerThread, hStream)
    }

    fn cuStreamWaitEvent(hStream: CUstream, hEvent: CUevent, Flags: u32) {
        wait(DefaultStream::Legacy, hStream, hEvent, Flags)
    }

    fn cuStreamWaitEvent_ptsz(hStream: CUstream, hEvent: CUevent, Flags: u32) {
        wait(DefaultStream::PerThread, hStream, hEvent, Flags)
    }
}

fn query(shape: DefaultStream, stream: CUstream) -> Result {
    let hStream = lower(shape, stream)?;
    graph::observe_stream(hStream)?;
    let client = client()?;
    if client.is_stream_idle(hStream) {
        return Ok(());
    }
    let sent = client.sent();
    match client.call(&request::cuStreamQuery { hStream }) {
        Err(CUDA_ERROR_NOT_READY) if client.was_left_settled(hStream) => return Ok(()),
        Err(code) => return Err(code),
        Ok(_) => {}
    }
    client.set_stream_idle(hStream, sent, false);
    Ok(())
}

fn synchronise(shape: DefaultStream, stream: CUstream) -> Result {
    let hStream = lower(shape, stream)?;
    graph::observe_stream(hStream)?;
    let client = client()?;
    // For example after a copy to pageable memory, which has waited for its stream.
    if client.is_stream_idle(hStream) {
        host_pool::waited(client);
        return Ok(());
    }
    let sent = client.sent();
    let finish = request::gpgpuStreamFinish { hStream };
    if client.waits_for_text() && client.has(request::gpgpuStreamFinish::OP) {
        client.call(&finish)?;
    } else {
        client.call(&request::cuStreamSynchronize { hStream })?;
    }
    client.set_stream_idle(hStream, sent, false);
    host_pool::waited(client);
    Ok(())
}

fn wait(shape: DefaultStream, stream: CUstream, event: CUevent, Flags: u32) -> Result {
    let client = client()?;
    let (hStream, hEvent) = (lower(shape, stream)?, Event::id(event));
    if ipc_event::is_one(client, hEvent) {
        return ipc_event::wait(client, hStream, hEvent, Flags);
    }
    if Flags <= 1 && graph::wait_event(hStream, hEvent, Flags)? {
        return Ok(());
    }
    let request = request::cuStreamWaitEvent {
        hStream,
        hEvent,
        Flags,
    };
    let known = client.objects.knows_stream(hStream) && client.objects.contains(hEvent);
    if known && Flags == 0 && thread::has_context(client) {
        client.post(&request)
    } else {
        client.call(&request).map(drop)
    }
}

/// Whether a stream is synchronised with the legacy stream.
pub fn is_blocking(client: &Client, stream: u64) -> Result<bool> {
    let host = || {
        let request = request::cuStreamGetFlags {
            hStream: stream,
            flags: true,
        };
        Ok(client.call(&request)?.flags.into())
    };
    let flags = fact(client, stream, Fact::Flags, host)?;
    Ok(flags as u32 & CU_STREAM_NON_BLOCKING == 0)
}

/// The id of a stream; `shape` determines the stream for NULL.
pub fn lower(shape: DefaultStream, stream: CUstream) -> Result<u64> {
    let client = client()?;
    match shape {
        DefaultStream::Legacy => thread::stream_id(client, Stream::id(stream)),
        DefaultStream::PerThread => thread::stream_id_per_thread(client, Stream::id(stream)),
    }
}
