//! Contexts: which one is current is a matter of the guest's threads, so most of this is local.

use std::sync::{Mutex, MutexGuard};

use gpgpu_protocol::{
    api::{Context, Object, request},
    cuda::*,
};

use crate::{
    argument::{HostPtr, OutPtr},
    border::Result,
    client::{Client, client},
    cuda,
    device::device,
    memory,
    objects::Known,
    thread,
};

/// The primary context of a device: its id while it is retained, and how often it is.
#[derive(Debug, Clone, Copy, Default)]
struct Primary {
    id: u64,
    count: u32,
}

static PRIMARY: Mutex<Vec<Primary>> = Mutex::new(Vec::new());

fn primaries(ordinal: CUdevice) -> MutexGuard<'static, Vec<Primary>> {
    let mut table = PRIMARY
        .lock()
        .unwrap_or_else(|poisoned| poisoned.into_inner());
    if table.len() <= ordinal as usize {
        table.resize(ordinal as usize + 1, Primary::default());
    }
    table
}

/// The devices of primary contexts that ended, by their ids.
static ENDED: Mutex<Vec<(u64, CUdevice)>> = Mutex::new(Vec::new());

fn ended(context: u64) -> Option<CUdevice> {
    let table = ENDED
        .lock()
        .unwrap_or_else(|poisoned| poisoned.into_inner());
    table
        .iter()
        .find(|(id, _)| *id == context)
        .map(|(_, device)| *device)
}

fn forget(client: &Client, context: u64) {
    if let Some(Known::Context {
        device,
        primary: true,
    }) = client.objects.get(context)
    {
        ENDED
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner())
            .push((context, device));
    }
    client.objects.remove_context(context);
    memory::forget_context(client, context);
}

fn live(client: &Client, context: u64) -> Result<CUdevice> {
    client
        .objects
        .context_device(context)
        .ok_or(CUDA_ERROR_INVALID_CONTEXT)
}

fn create(pctx: OutPtr<CUcontext>, flags: u32, dev: CUdevice) -> Result {
    let client = client()?;
    pctx.required()?;
    device(dev)?;
    let id = client.new_id::<Context>();
    client.call(&request::cuCtxCreate_v2 {
        pctx: id,
        flags,
        dev,
    })?;
    client.objects.insert(
        id,
        Known::Context {
            device: dev,
            primary: false,
        },
    );
    thread::push_context(id)?;
    pctx.set(Context::handle(id))
}

cuda! {
    fn cuDevicePrimaryCtxRetain(pctx: OutPtr<CUcontext>, dev: CUdevice) {
        let client = client()?;
        pctx.required()?;
        device(dev)?;
        let mut table = primaries(dev);
        let primary = &mut table[dev as usize];
        if primary.count == 0 {
            let id = client.new_id::<Context>();
            client.call(&request::cuDevicePrimaryCtxRetain { pctx: id, dev })?;
            client.objects.insert(id, Known::Context { device: dev, primary: true });
            primary.id = id;
        }
        primary.count += 1;
        pctx.set(Context::handle(primary.id))
    }

    fn cuDevicePrimaryCtxRelease_v2(dev: CUdevice) {
        let client = client()?;
        device(dev)?;
        let mut table = primaries(dev);
        let primary = &mut table[dev as usize];
        match primary.count {
            0 => return Err(CUDA_ERROR_INVALID_CONTEXT),
            1 => {
                client.call(&request::cuDevicePrimaryCtxRelease_v2 { dev })?;
                forget(client, primary.id);
            }
            _ => {}
        }
        primary.count -= 1;
        Ok(())
    }

    fn cuDevicePrimaryCtxSetFlags_v2(dev: CUdevice, flags: u32) {
        client()?.call(&request::cuDevicePrimaryCtxSetFlags_v2 { dev, flags }).map(drop)
    }

    fn cuDevicePrimaryCtxGetState(dev: CUdevice, flags: OutPtr<u32>, active: OutPtr<i32>) {
        let request = request::cuDevicePrimaryCtxGetState { dev, flags: !flags.is_null(), active: !active.is_null() };
        let reply = client()?.call(&request)?;
        flags.offer(reply.flags);
        active.offer(reply.active);
        Ok(())
    }

    fn cuDevicePrimaryCtxReset_v2(dev: CUdevice) {
        let client = client()?;
        device(dev)?;
        let mut table = primaries(dev);
        client.call(&request::cuDevicePrimaryCtxReset_v2 { dev })?;
        let primary = &mut table[dev as usize];
        forget(client, primary.id);
        *primary = Primary::default();
        Ok(())
    }

    fn cuCtxCreate_v2(pctx: OutPtr<CUcontext>, flags: u32, dev: CUdevice) {
        create(pctx, flags, dev)
    }

    /// `cuCtxCreate_v3`: without execution affinity.
    fn cuCtxCreate_v3(pctx: OutPtr<CUcontext>, paramsArray: HostPtr, numParams: i32, flags: u32, dev: CUdevice) {
        if numParams != 0 || !paramsArray.is_null() {
            return Err(CUDA_ERROR_NOT_SUPPORTED);
        }
        create(pctx, flags, dev)
    }

    /// `cuCtxCreate_v4`: without parameters.
    fn cuCtxCreate_v4(pctx: OutPtr<CUcontext>, ctxCreateParams: HostPtr, flags: u32, dev: CUdevice) {
        if !ctxCreateParams.is_null() && ctxCreateParams.bytes(24).iter().any(|byte| *byte != 0) {
            return Err(CUDA_ERROR_NOT_SUPPORTED);
        }
        create(pctx, flags, dev)
    }

    fn cuCtxDestroy_v2(ctx: CUcontext) {
        let client = client()?;
        if ctx.is_null() {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let id = Context::id(ctx);
        match client.objects.get(id) {
            Some(Known::Context { primary: false, .. }) => {}
            _ => return Err(CUDA_ERROR_INVALID_CONTEXT),
        }
        client.call(&request::cuCtxDestroy_v2 { ctx: id })?;
        forget(client, id);
        if thread::current_context() == id {
            thread::pop_context();
        }
        Ok(())
    }

    fn cuCtxPushCurrent_v2(ctx: CUcontext) {
        let client = client()?;
        if ctx.is_null() {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        live(client, Context::id(ctx))?;
        thread::push_context(Context::id(ctx))
    }

    fn cuCtxPopCurrent_v2(pctx: OutPtr<CUcontext>) {
        client()?;
        let id = thread::pop_context().ok_or(CUDA_ERROR_INVALID_CONTEXT)?;
        pctx.offer(Context::handle(id));
        Ok(())
    }

    fn cuCtxSetCurrent(ctx: CUcontext) {
        let client = client()?;
        if !ctx.is_null() {
            live(client, Context::id(ctx))?;
        }
        thread::set_context(Context::id(ctx));
        Ok(())
    }

    fn cuCtxGetCurrent(pctx: OutPtr<CUcontext>) {
        client()?;
        pctx.set(Context::handle(thread::current_context()))
    }

    fn cuCtxGetDevice(device_out: OutPtr<CUdevice>) {
        let client = client()?;
        device_out.required()?;
        let context = thread::current_context();
        // A thread keeps a primary context that was reset as its current one, and this alone it may still ask of it.
        let device = live(client, context).or_else(|code| ended(context).ok_or(code))?;
        device_out.set(device)
    }

    fn cuCtxGetDevice_v2(device_out: OutPtr<CUdevice>, ctx: CUcontext) {
        let client = client()?;
        device_out.required()?;
        let id = if ctx.is_null() { thread::current_context() } else { Context::id(ctx) };
        device_out.set(live(client, id)?)
    }

    fn cuCtxSynchronize_v2(ctx: CUcontext) {
        let client = client()?;
        let id = if ctx.is_null() { thread::current_context() } else { Context::id(ctx) };
        live(client, id)?;
        thread::push_context(id)?;
        let result = client.call(&request::cuCtxSynchronize {});
        thread::pop_context();
        result.map(drop)
    }

    /// `cuCtxAttach`, long deprecated: like CUDA since 4.0, only for a NULL-flag use of the current context.
    fn cuCtxAttach(pctx: OutPtr<CUcontext>, flags: u32) {
        client()?;
        if flags != 0 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        match thread::current_context() {
            0 => Err(CUDA_ERROR_INVALID_CONTEXT),
            id => pctx.set(Context::handle(id)),
        }
    }

    /// The capture mode of the thread: kept, for a program may set and restore it though nothing is captured yet.
    fn cuThreadExchangeStreamCaptureMode(mode: OutPtr<CUstreamCaptureMode>) {
        client()?;
        let wanted = mode.read().ok_or(CUDA_ERROR_INVALID_VALUE)?;
        if wanted > CU_STREAM_CAPTURE_MODE_RELAXED {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        mode.set(thread::exchange_capture_mode(wanted))
    }
}
