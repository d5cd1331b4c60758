// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Contexts.

use std::ffi::{c_int, c_uint, c_ulonglong, c_void};
use std::sync::atomic::Ordering;

use gpgpu_protocol::cuda::{
    CUDA_ERROR_INVALID_CONTEXT, CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_NOT_SUPPORTED,
    CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED, CUDA_ERROR_PEER_ACCESS_NOT_ENABLED,
    CUDA_ERROR_PEER_ACCESS_UNSUPPORTED, CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY, CUcontext, CUdevice,
    CUfunc_cache, CUlimit, CUsharedconfig,
};

use super::device::check;
use super::primary_context::check_flags;
use crate::config::{Config, GREATEST_PRIORITY};
use crate::context::{self, CONTEXTS, Context};
use crate::driver::{self, Driver};
use crate::ffi::{Pointer, Result, export};

/// `CUctxCreateParams`.
#[repr(C)]
#[derive(Clone, Copy)]
struct CUctxCreateParams {
    exec_affinity: *mut c_void,
    exec_affinity_count: c_int,
    cig: *mut c_void,
}

fn create(out: Pointer<CUcontext>, flags: c_uint, device: CUdevice) -> Result {
    check(device)?;
    check_flags(flags)?;
    out.required()?;
    let context = Context::create(device, flags)?;
    context::push(context.handle)?;
    out.set(context.handle as CUcontext)
}

fn destroy(driver: &'static Driver, handle: CUcontext) -> Result {
    if handle.is_null() {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    let context = context::named(handle as u64)?;
    if context.is_primary || context.green.is_some() {
        return Err(CUDA_ERROR_INVALID_CONTEXT);
    }
    CONTEXTS.remove(context.handle);
    context.tear_down(driver);
    if context::current_handle()? == context.handle {
        context::pop()?;
    }
    Ok(())
}

fn push(handle: CUcontext) -> Result {
    if handle.is_null() {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    context::push(context::named(handle as u64)?.handle)
}

fn pop(out: Pointer<CUcontext>) -> Result {
    out.set_if(context::pop()? as CUcontext);
    Ok(())
}

fn synchronize(context: &Context) -> Result {
    context.wait();
    context.printed.put_out();
    driver::get()?.fault()
}

export! {
    /// `cuCtxCreate`, of CUDA 3.2: makes a context and pushes it.
    healthy fn cuCtxCreate_v2(out: Pointer<CUcontext>, flags: c_uint, device: CUdevice) |_| {
        create(out, flags, device)
    }

    /// As [`cuCtxCreate_v2`].
    healthy fn cuCtxCreate(out: Pointer<CUcontext>, flags: c_uint, device: CUdevice) |_| {
        create(out, flags, device)
    }

    /// `cuCtxCreate`, of CUDA 11.4: with execution affinity, which this device does not have.
    healthy fn cuCtxCreate_v3(out: Pointer<CUcontext>, _affinity: Pointer<c_void>, count: c_int, flags: c_uint, device: CUdevice) |_| {
        if count != 0 {
            return Err(CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY);
        }
        create(out, flags, device)
    }

    /// `cuCtxCreate`, of CUDA 12.5: with parameters, none of which this device supports.
    healthy fn cuCtxCreate_v4(out: Pointer<CUcontext>, parameters: Pointer<c_void>, flags: c_uint, device: CUdevice) |_| {
        if !parameters.is_null() {
            let parameters = parameters.cast::<CUctxCreateParams>().get()?;
            if parameters.exec_affinity_count != 0 {
                return Err(CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY);
            }
            if !parameters.cig.is_null() {
                return Err(CUDA_ERROR_NOT_SUPPORTED);
            }
        }
        create(out, flags, device)
    }

    /// `cuCtxDestroy`: waits for the context's work and drops its objects.
    initialised fn cuCtxDestroy_v2(context: CUcontext) |driver| {
        destroy(driver, context)
    }

    /// As [`cuCtxDestroy_v2`].
    initialised fn cuCtxDestroy(context: CUcontext) |driver| {
        destroy(driver, context)
    }

    /// `cuCtxPushCurrent`.
    initialised fn cuCtxPushCurrent_v2(context: CUcontext) |_| {
        push(context)
    }

    /// As [`cuCtxPushCurrent_v2`].
    initialised fn cuCtxPushCurrent(context: CUcontext) |_| {
        push(context)
    }

    /// `cuCtxPopCurrent`.
    initialised fn cuCtxPopCurrent_v2(out: Pointer<CUcontext>) |_| {
        pop(out)
    }

    /// As [`cuCtxPopCurrent_v2`].
    initialised fn cuCtxPopCurrent(out: Pointer<CUcontext>) |_| {
        pop(out)
    }

    /// `cuCtxSetCurrent`: replaces the top of the stack; NULL pops it.
    initialised fn cuCtxSetCurrent(context: CUcontext) |_| {
        if !context.is_null() {
            // The primary context's handle is a name even while it is not retained.
            CONTEXTS.get(context as u64).ok_or(CUDA_ERROR_INVALID_CONTEXT)?;
        }
        context::replace(context as u64)
    }

    /// `cuCtxGetCurrent`: NULL if there is none.
    initialised fn cuCtxGetCurrent(out: Pointer<CUcontext>) |_| {
        out.set(context::current_handle()? as CUcontext)
    }

    /// `cuCtxGetDevice`: of a destroyed context too.
    initialised fn cuCtxGetDevice(device: Pointer<CUdevice>) |_| {
        let handle = context::current_handle()?;
        if handle == 0 {
            return Err(CUDA_ERROR_INVALID_CONTEXT);
        }
        device.set(CONTEXTS.find(handle).map_or(0, |context| context.device))
    }

    /// `cuCtxGetDevice`, of CUDA 13.0: of any context, or the current one for NULL.
    initialised fn cuCtxGetDevice_v2(device: Pointer<CUdevice>, context: CUcontext) |_| {
        device.set(context::named_or_current(context as u64)?.device)
    }

    /// `cuCtxGetFlags`.
    current fn cuCtxGetFlags(flags: Pointer<c_uint>) |cx| {
        flags.set(cx.home().flags.load(Ordering::Relaxed))
    }

    /// `cuCtxSetFlags`.
    current fn cuCtxSetFlags(flags: c_uint) |cx| {
        check_flags(flags)?;
        cx.home().flags.store(flags, Ordering::Relaxed);
        Ok(())
    }

    /// `cuCtxGetId`: a number that no other context of the process ever has.
    initialised fn cuCtxGetId(context: CUcontext, id: Pointer<c_ulonglong>) |_| {
        id.set(context::named_or_current(context as u64)?.own)
    }

    /// `cuCtxSynchronize`.
    context fn cuCtxSynchronize() |cx| {
        gpgpu_graphs::capture::observe_context::<crate::graph::Soft>(cx.handle)?;
        synchronize(&cx)
    }

    /// `cuCtxSynchronize`, of CUDA 13.0: of any context, or the current one for NULL.
    healthy fn cuCtxSynchronize_v2(context: CUcontext) |_| {
        let context = context::named_or_current(context as u64)?;
        gpgpu_graphs::capture::observe_context::<crate::graph::Soft>(context.handle)?;
        synchronize(&context)
    }

    /// `cuCtxSetLimit`.
    context fn cuCtxSetLimit(limit: CUlimit, value: usize) |cx| {
        cx.set_limit(limit, value)
    }

    /// `cuCtxGetLimit`.
    context fn cuCtxGetLimit(value: Pointer<usize>, limit: CUlimit) |cx| {
        value.set(cx.limit(limit)?)
    }

    /// `cuCtxGetCacheConfig`.
    context fn cuCtxGetCacheConfig(config: Pointer<CUfunc_cache>) |cx| {
        config.set(cx.home().cache_config.load(Ordering::Relaxed))
    }

    /// `cuCtxSetCacheConfig`: stored; there is no cache to divide.
    context fn cuCtxSetCacheConfig(config: CUfunc_cache) |cx| {
        if config > 3 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        cx.home().cache_config.store(config, Ordering::Relaxed);
        Ok(())
    }

    /// `cuCtxGetSharedMemConfig`: four-byte banks.
    context fn cuCtxGetSharedMemConfig(config: Pointer<CUsharedconfig>) |cx| {
        config.set(cx.home().shared_config.load(Ordering::Relaxed))
    }

    /// `cuCtxSetSharedMemConfig`: checked and, as on devices since Maxwell, without effect.
    context fn cuCtxSetSharedMemConfig(config: CUsharedconfig) |_| {
        if config > 2 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        Ok(())
    }

    /// `cuCtxGetApiVersion`; NULL is the current context.
    initialised fn cuCtxGetApiVersion(context: CUcontext, version: Pointer<c_uint>) |_| {
        context::named_or_current(context as u64)?;
        version.set(3020)
    }

    /// `cuCtxGetStreamPriorityRange`.
    context fn cuCtxGetStreamPriorityRange(least: Pointer<c_int>, greatest: Pointer<c_int>) |_| {
        least.set_if(0);
        greatest.set_if(GREATEST_PRIORITY);
        Ok(())
    }

    /// `cuCtxResetPersistingL2Cache`: there is none.
    context fn cuCtxResetPersistingL2Cache() |_| {
        Ok(())
    }

    /// `cuCtxEnablePeerAccess`: a device is no peer of itself.
    context fn cuCtxEnablePeerAccess(peer: CUcontext, flags: c_uint) |cx| {
        let peer = context::named(peer as u64)?;
        if flags != 0 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        if peer.device == cx.device || !Config::get().peers {
            return Err(CUDA_ERROR_PEER_ACCESS_UNSUPPORTED);
        }
        if !cx.home().peers.add(peer.id) {
            return Err(CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED);
        }
        driver::get()?.memory.forget_ranges();
        Ok(())
    }

    /// `cuCtxDisablePeerAccess`.
    context fn cuCtxDisablePeerAccess(peer: CUcontext) |cx| {
        let peer = context::named(peer as u64)?;
        if !cx.home().peers.remove(peer.id) {
            return Err(CUDA_ERROR_PEER_ACCESS_NOT_ENABLED);
        }
        driver::get()?.memory.forget_ranges();
        Ok(())
    }
}
