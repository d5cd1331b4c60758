// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Contexts. The current context is a property of the guest's threads, so most of this is local.

use std::sync::{
    Arc,
    atomic::{AtomicU32, Ordering},
};

use gpgpu_graphs::capture;
use gpgpu_locks::{Mutex, MutexGuard};
use gpgpu_protocol::{
    api::{Context, Object, request},
    cuda::*,
};

use crate::{
    argument::{HostPtr, OutPtr},
    client::{Client, client},
    coredump, cuda,
    device::{attribute, device},
    ffi::Result,
    graph::{Guest, left},
    green, host_pool, managed, memory,
    stores::{
        answers::{Answers, bit},
        context::{ContextData, answer},
        launches::Limits,
        objects::Known,
    },
    texture_reference, thread,
};

/// The entry of a new context of a device; a green one is a part of the primary context `home`.
pub fn known(of: CUdevice, primary: bool, home: Option<u64>) -> Known {
    let limits = |info| Limits::of(|which| attribute(info, which).ok());
    Known::Context(Arc::new(ContextData {
        device: of,
        primary,
        home,
        attached: AtomicU32::new(0),
        limits: device(of).map(limits).unwrap_or_default(),
        answers: Answers::default(),
    }))
}

/// The primary context of a device: its id from the first time on that it is retained, the number of references,
/// whether it exists, and its flags as the host reported them.
///
/// The context has the same id each time, because programs keep its handle. NVIDIA's driver has one handle, too. A reset
/// keeps the references, and the next reference makes the context again.
#[derive(Debug, Clone, Copy, Default)]
struct Primary {
    id: u64,
    count: u32,
    is_active: bool,
    flags: Option<u32>,
}

static PRIMARY: Mutex<Vec<Primary>> = Mutex::new(Vec::new());

fn primaries(ordinal: CUdevice) -> MutexGuard<'static, Vec<Primary>> {
    let mut table = PRIMARY.lock();
    if table.len() <= ordinal as usize {
        table.resize(ordinal as usize + 1, Primary::default());
    }
    table
}

/// Checks that there is a current context.
fn has_current() -> Result {
    client()?;
    match thread::current_context() {
        0 => Err(CUDA_ERROR_INVALID_CONTEXT),
        _ => Ok(()),
    }
}

/// Forgets the flags of primary contexts, which may have been changed through the context.
pub fn forget_primary_flags() {
    let mut table = PRIMARY.lock();
    table.iter_mut().for_each(|primary| primary.flags = None);
}

/// The devices of primary contexts that have ended, by the contexts' ids.
static ENDED: Mutex<Vec<(u64, CUdevice)>> = Mutex::new(Vec::new());

fn ended(context: u64) -> Option<CUdevice> {
    let table = ENDED.lock();
    table
        .iter()
        .find(|(id, _)| *id == context)
        .map(|(_, device)| *device)
}

/// Handles the end of a context, with everything in it.
pub fn forget(client: &Client, context: u64) {
    if let Some(data) = client.objects.context(context)
        && data.primary
    {
        let mut table = ENDED.lock();
        if !table.contains(&(context, data.device)) {
            table.push((context, data.device));
        }
    }
    client.objects.remove_context(context);
    coredump::forget_context(context);
    client.arrays.remove_context(context);
    client.shareable.forget_context(context);
    texture_reference::forget_modules(client);
    capture::forget_context::<Guest>(context);
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
    client.objects.insert(id, known(dev, false, None));
    managed::note_context(id);
    thread::push_context(id)?;
    pctx.set(Context::handle(id))
}

/// Destroys a context that the program has made, and removes it from the thread.
fn destroy(ctx: CUcontext) -> Result {
    let client = client()?;
    if ctx.is_null() {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    let id = Context::id(ctx);
    if client
        .objects
        .context(id)
        .is_none_or(|context| context.primary || context.home.is_some())
    {
        return Err(CUDA_ERROR_INVALID_CONTEXT);
    }
    client.call(&request::cuCtxDestroy_v2 { ctx: id })?;
    forget(client, id);
    if thread::current_context() == id {
        thread::pop_context();
    }
    Ok(())
}

fn push(ctx: CUcontext) -> Result {
    let client = client()?;
    if ctx.is_null() {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    live(client, Context::id(ctx))?;
    thread::push_context(Context::id(ctx))
}

/// Adds a reference to a device's primary context, and returns its id.
pub fn retain_primary(dev: CUdevice) -> Result<u64> {
    let client = client()?;
    device(dev)?;
    let mut table = primaries(dev);
    let primary = &mut table[dev as usize];
    if !primary.is_active {
        let id = match primary.id {
            0 => client.new_id::<Context>(),
            id => id,
        };
        client.call(&request::cuDevicePrimaryCtxRetain { pctx: id, dev })?;
        client.objects.insert(id, known(dev, true, None));
        managed::note_context(id);
        *primary = Primary {
            id,
            count: primary.count,
            is_active: true,
            flags: None,
        };
    }
    primary.count += 1;
    Ok(primary.id)
}

/// Releases a device's primary context, which ends with the last release.
pub fn release_primary(dev: CUdevice) -> Result {
    let client = client()?;
    device(dev)?;
    let mut table = primaries(dev);
    let primary = &mut table[dev as usize];
    match primary.count {
        0 => return Err(CUDA_ERROR_INVALID_CONTEXT),
        1 if primary.is_active => {
            client.call(&request::cuDevicePrimaryCtxRelease_v2 { dev })?;
            green::forget_all(client, primary.id);
            forget(client, primary.id);
            (primary.is_active, primary.flags) = (false, None);
        }
        _ => {}
    }
    primary.count -= 1;
    Ok(())
}

cuda! {
    /// `cuProfilerStart`: there is no profiler to start, as natively without one.
    fn cuProfilerStart() {
        has_current()
    }

    /// `cuProfilerStop`: there is no profiler to stop.
    fn cuProfilerStop() {
        has_current()
    }

    fn cuDevicePrimaryCtxRetain(pctx: OutPtr<CUcontext>, dev: CUdevice) {
        client()?;
        pctx.required()?;
        pctx.set(Context::handle(retain_primary(dev)?))
    }

    fn cuDevicePrimaryCtxRelease_v2(dev: CUdevice) {
        release_primary(dev)
    }

    fn cuDevicePrimaryCtxReset_v2(dev: CUdevice) {
        let client = client()?;
        device(dev)?;
        let mut table = primaries(dev);
        client.call(&request::cuDevicePrimaryCtxReset_v2 { dev })?;
        let primary = &mut table[dev as usize];
        if primary.is_active {
            green::forget_all(client, primary.id);
            forget(client, primary.id);
        }
        (primary.is_active, primary.flags) = (false, None);
        Ok(())
    }

    fn cuDevicePrimaryCtxSetFlags_v2(dev: CUdevice, flags: u32) {
        let client = client()?;
        let ask_host = || client.call(&request::cuDevicePrimaryCtxSetFlags_v2 { dev, flags }).map(drop);
        if device(dev).is_err() {
            return ask_host();
        }
        let mut table = primaries(dev);
        let primary = &mut table[dev as usize];
        primary.flags = None;
        match client.objects.context(primary.id) {
            Some(context) => context.answers.change(bit(answer::FLAGS), ask_host),
            None => ask_host(),
        }
    }

    /// `cuDevicePrimaryCtxGetState`: the context counts as active only by this process's own references.
    fn cuDevicePrimaryCtxGetState(dev: CUdevice, flags: OutPtr<u32>, active: OutPtr<i32>) {
        let client = client()?;
        let ask_host = || {
            let (flags, active) = (!flags.is_null(), !active.is_null());
            client.call(&request::cuDevicePrimaryCtxGetState { dev, flags, active })
        };
        if device(dev).is_err() || flags.is_null() || active.is_null() || client.is_corrupted() {
            let reply = ask_host()?;
            flags.offer(reply.flags);
            active.offer(reply.active);
            return Ok(());
        }
        let mut table = primaries(dev);
        let primary = &mut table[dev as usize];
        let value = match primary.flags {
            Some(value) => value,
            None => ask_host()?.flags,
        };
        primary.flags = Some(value);
        flags.offer(value);
        active.offer(i32::from(primary.is_active));
        Ok(())
    }

    fn cuCtxCreate_v2(pctx: OutPtr<CUcontext>, flags: u32, dev: CUdevice) {
        create(pctx, flags, dev)
    }

    /// `cuCtxCreate_v3`, without execution affinity.
    fn cuCtxCreate_v3(pctx: OutPtr<CUcontext>, paramsArray: HostPtr, numParams: i32, flags: u32, dev: CUdevice) {
        if numParams != 0 || !paramsArray.is_null() {
            return Err(CUDA_ERROR_NOT_SUPPORTED);
        }
        create(pctx, flags, dev)
    }

    /// `cuCtxCreate_v4`, without parameters.
    fn cuCtxCreate_v4(pctx: OutPtr<CUcontext>, ctxCreateParams: HostPtr, flags: u32, dev: CUdevice) {
        if !ctxCreateParams.is_null() && ctxCreateParams.bytes(24).iter().any(|byte| *byte != 0) {
            return Err(CUDA_ERROR_NOT_SUPPORTED);
        }
        create(pctx, flags, dev)
    }

    fn cuCtxDestroy_v2(ctx: CUcontext) {
        destroy(ctx)
    }

    fn cuCtxPushCurrent_v2(ctx: CUcontext) {
        push(ctx)
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
        // A primary context that was reset remains the current one of a thread, which may still query only its device.
        let device = live(client, context).or_else(|code| ended(context).ok_or(code))?;
        device_out.set(device)
    }

    fn cuCtxGetDevice_v2(device_out: OutPtr<CUdevice>, ctx: CUcontext) {
        let client = client()?;
        device_out.required()?;
        let id = if ctx.is_null() { thread::current_context() } else { Context::id(ctx) };
        device_out.set(live(client, id)?)
    }

    fn cuCtxSynchronize() {
        let client = client()?;
        capture::observe_context::<Guest>(thread::current_context())?;
        if !client.is_synchronised() {
            client.call(&request::cuCtxSynchronize {})?;
        }
        left::free_idle(client);
        host_pool::waited(client);
        Ok(())
    }

    /// As CUDA's documentation describes it, for any context.
    fn cuCtxSynchronize_v2(ctx: CUcontext) {
        let client = client()?;
        let id = if ctx.is_null() { thread::current_context() } else { Context::id(ctx) };
        live(client, id)?;
        capture::observe_context::<Guest>(id)?;
        thread::within(id, || {
            if client.is_synchronised() {
                return Ok(());
            }
            client.call(&request::cuCtxSynchronize {})?;
            left::free_idle(client);
            Ok(())
        })
    }

    /// `cuCtxAttach`, long deprecated: adds a reference to the current context.
    fn cuCtxAttach(pctx: OutPtr<CUcontext>, flags: u32) {
        let client = client()?;
        if flags != 0 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        match thread::current_context() {
            0 => Err(CUDA_ERROR_INVALID_CONTEXT),
            id => {
                if let Some(context) = client.objects.context(id) {
                    context.attached.fetch_add(1, Ordering::Relaxed);
                }
                pctx.set(Context::handle(id))
            }
        }
    }

    /// `cuCtxDetach`, long deprecated: drops a reference to the current context, which ends with the last one. A
    /// primary context has other references.
    fn cuCtxDetach(ctx: CUcontext) {
        let client = client()?;
        let id = Context::id(ctx);
        let context = client.objects.context(id).filter(|_| thread::current_context() == id);
        let context = context.ok_or(CUDA_ERROR_INVALID_CONTEXT)?;
        let fewer = |count: u32| count.checked_sub(1);
        let is_attached = context.attached.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fewer).is_ok();
        if is_attached || context.primary || context.home.is_some() {
            return Ok(());
        }
        drop(context);
        destroy(ctx)
    }

    /// `cuCtxPushCurrent` as before CUDA 4.0: the thread must not have the context already.
    fn cuCtxPushCurrent(ctx: CUcontext) {
        if thread::has(Context::id(ctx)) && !ctx.is_null() {
            client()?;
            return Err(CUDA_ERROR_INVALID_CONTEXT);
        }
        push(ctx)
    }
}
