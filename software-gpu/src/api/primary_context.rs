// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The device's primary context, which the runtime API uses.

use std::ffi::{c_int, c_uint};

use gpgpu_protocol::cuda::{
    CU_CTX_FLAGS_MASK, CU_CTX_MAP_HOST, CU_CTX_SCHED_MASK, CUDA_ERROR_DEVICE_UNAVAILABLE,
    CUDA_ERROR_INVALID_VALUE, CUcontext, CUdevice,
};

use super::device::check;
use crate::context::{CONTEXTS, Context};
use crate::driver::Driver;
use crate::ffi::{Pointer, Result, export, refuse_in_callback};

/// Checks that `flags` are ones that a context can have.
pub(super) fn check_flags(flags: c_uint) -> Result {
    let schedule = flags & CU_CTX_SCHED_MASK;
    if flags & !CU_CTX_FLAGS_MASK != 0 || !matches!(schedule, 0 | 1 | 2 | 4) {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    Ok(())
}

fn set_flags(driver: &Driver, device: CUdevice, flags: c_uint) -> Result {
    check(device)?;
    check_flags(flags)?;
    let mut primary = driver.primary(device);
    primary.flags = flags;
    if let Some(context) = CONTEXTS.get(primary.handle) {
        context
            .flags
            .store(flags, std::sync::atomic::Ordering::Relaxed);
    }
    Ok(())
}

export! {
    /// `cuDevicePrimaryCtxRetain`. After a fault the present one cannot be used, and no new one can be made:
    /// `CUDA_ERROR_DEVICE_UNAVAILABLE`.
    initialised fn cuDevicePrimaryCtxRetain(context: Pointer<CUcontext>, device: CUdevice) |driver| {
        refuse_in_callback()?;
        check(device)?;
        context.required()?;
        if driver.fault().is_err() {
            let active = driver.primary(device).is_active;
            return if active { driver.fault() } else { Err(CUDA_ERROR_DEVICE_UNAVAILABLE) };
        }
        context.set(Context::retain_primary(driver, device)? as CUcontext)
    }

    /// `cuDevicePrimaryCtxRelease`; `CUDA_ERROR_INVALID_CONTEXT` for one too many.
    initialised fn cuDevicePrimaryCtxRelease_v2(device: CUdevice) |driver| {
        check(device)?;
        Context::release_primary(driver, device)
    }

    /// As [`cuDevicePrimaryCtxRelease_v2`].
    initialised fn cuDevicePrimaryCtxRelease(device: CUdevice) |driver| {
        check(device)?;
        Context::release_primary(driver, device)
    }

    /// `cuDevicePrimaryCtxReset`: destroys the context's objects, even while it is retained.
    initialised fn cuDevicePrimaryCtxReset_v2(device: CUdevice) |driver| {
        check(device)?;
        Context::reset_primary(driver, device);
        Ok(())
    }

    /// As [`cuDevicePrimaryCtxReset_v2`].
    initialised fn cuDevicePrimaryCtxReset(device: CUdevice) |driver| {
        check(device)?;
        Context::reset_primary(driver, device);
        Ok(())
    }

    /// `cuDevicePrimaryCtxSetFlags`.
    initialised fn cuDevicePrimaryCtxSetFlags_v2(device: CUdevice, flags: c_uint) |driver| {
        set_flags(driver, device, flags)
    }

    /// As [`cuDevicePrimaryCtxSetFlags_v2`].
    initialised fn cuDevicePrimaryCtxSetFlags(device: CUdevice, flags: c_uint) |driver| {
        set_flags(driver, device, flags)
    }

    /// `cuDevicePrimaryCtxGetState`.
    initialised fn cuDevicePrimaryCtxGetState(device: CUdevice, flags: Pointer<c_uint>, active: Pointer<c_int>) |driver| {
        check(device)?;
        flags.required()?;
        active.required()?;
        let primary = driver.primary(device);
        flags.set_if(primary.flags & !CU_CTX_MAP_HOST);
        active.set_if(primary.is_active.into());
        Ok(())
    }
}
