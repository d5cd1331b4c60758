// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Execution contexts and resources of CUDA 13.1: devices' primary contexts, and green contexts.
//!
//! An execution context is a context of the driver. For a green context, the driver makes it from the green context's
//! handle. Resources have the driver's layout.

use crate::abi::*;
use crate::context::{current, retain};
use crate::driver::{Driver, driver};
use crate::error::{self, Result};
use gpgpu_locks::{Mutex, MutexGuard};
use gpgpu_protocol::cuda::*;
use std::ffi::{c_int, c_uint};
use std::ptr::{null_mut, with_exposed_provenance_mut};

/// The green contexts that the program has made here: each one's execution context and its driver handle.
static GREENS: Mutex<Vec<(usize, usize)>> = Mutex::new(Vec::new());

fn greens() -> MutexGuard<'static, Vec<(usize, usize)>> {
    GREENS.lock()
}

/// The context; NULL is an error.
fn required(context: cudaExecutionContext_t) -> Result<CUcontext> {
    if context.is_null() {
        return Err(error::INVALID_VALUE);
    }
    Ok(context)
}

/// Makes a green context and its execution context.
///
/// # Safety
///
/// The driver made the descriptor.
unsafe fn create(
    driver: &Driver,
    descriptor: CUdevResourceDesc,
    device: c_int,
) -> Result<CUcontext> {
    let (mut green, mut context) = (null_mut(), null_mut());
    // SAFETY: `green` outlives the call; the descriptor is promised by the caller.
    unsafe {
        driver.cuGreenCtxCreate(&mut green, descriptor, device, CU_GREEN_CTX_DEFAULT_STREAM)
    }?;
    // SAFETY: the driver has just made it; `context` outlives the call.
    let of = unsafe { driver.cuCtxFromGreenCtx(&mut context, green) };
    if let Err(code) = of {
        // SAFETY: as above; no other code has it.
        unsafe { driver.cuGreenCtxDestroy(green) }?;
        return Err(code);
    }
    greens().push((context.expose_provenance(), green.expose_provenance()));
    Ok(context)
}

export! {
    fn cudaDeviceGetDevResource(device: c_int, resource: *mut CUdevResource, kind: c_uint) {
        driver()?.cuDeviceGetDevResource(device, resource, kind)
    }

    fn cudaDevSmResourceSplitByCount(result: *mut CUdevResource, groups: *mut c_uint, input: *const CUdevResource, remaining: *mut CUdevResource, flags: c_uint, minimum: c_uint) {
        driver()?.cuDevSmResourceSplitByCount(result, groups, input, remaining, flags, minimum)
    }

    fn cudaDevResourceGenerateDesc(descriptor: *mut CUdevResourceDesc, resources: *mut CUdevResource, count: c_uint) {
        driver()?.cuDevResourceGenerateDesc(descriptor, resources, count)
    }

    fn cudaGreenCtxCreate(context: *mut cudaExecutionContext_t, descriptor: CUdevResourceDesc, device: c_int, flags: c_uint) {
        // No flags are defined yet.
        if context.is_null() || descriptor.is_null() || flags != 0 {
            return Err(error::INVALID_VALUE);
        }
        context.write(create(driver()?, descriptor, device)?);
        Ok(())
    }

    fn cudaExecutionCtxDestroy(context: cudaExecutionContext_t) {
        let driver = driver()?;
        let address = required(context)?.addr();
        let found = {
            let mut greens = greens();
            let at = greens.iter().position(|(of, _)| *of == address);
            at.map(|at| greens.swap_remove(at))
        };
        let (of, green) = found.ok_or(error::INVALID_VALUE)?;
        let destroyed = driver.cuGreenCtxDestroy(with_exposed_provenance_mut(green));
        if destroyed.is_err() {
            greens().push((of, green));
        }
        destroyed
    }

    // The device's primary context; this makes one if there is none.
    fn cudaDeviceGetExecutionCtx(context: *mut cudaExecutionContext_t, device: c_int) {
        if context.is_null() {
            return Err(error::INVALID_VALUE);
        }
        context.write(retain(driver()?, device)?);
        Ok(())
    }

    fn cudaExecutionCtxGetDevResource(context: cudaExecutionContext_t, resource: *mut CUdevResource, kind: c_uint) {
        driver()?.cuCtxGetDevResource(required(context)?, resource, kind)
    }

    fn cudaExecutionCtxGetDevice(device: *mut c_int, context: cudaExecutionContext_t) {
        driver()?.cuCtxGetDeviceOf(device, required(context)?)
    }

    fn cudaExecutionCtxGetId(context: cudaExecutionContext_t, id: *mut u64) {
        driver()?.cuCtxGetId(required(context)?, id)
    }

    // The green context is made current, and the stream is made with the given flags: the driver's own function for
    // green contexts takes only non-blocking streams.
    fn cudaExecutionCtxStreamCreate(stream: *mut cudaStream_t, context: cudaExecutionContext_t, flags: c_uint, priority: c_int) {
        let driver = driver()?;
        driver.cuCtxPushCurrent(required(context)?)?;
        let created = driver.cuStreamCreateWithPriority(stream, flags, priority);
        let mut popped = null_mut();
        driver.cuCtxPopCurrent(&mut popped)?;
        created
    }

    fn cudaExecutionCtxSynchronize(context: cudaExecutionContext_t) {
        driver()?.cuCtxSynchronizeOf(required(context)?)
    }

    fn cudaExecutionCtxRecordEvent(context: cudaExecutionContext_t, event: cudaEvent_t) {
        driver()?.cuCtxRecordEvent(required(context)?, event)
    }

    fn cudaExecutionCtxWaitEvent(context: cudaExecutionContext_t, event: cudaEvent_t) {
        driver()?.cuCtxWaitEvent(required(context)?, event)
    }

    fn(ds) cudaStreamGetDevResource, cudaStreamGetDevResource_ptsz(stream: cudaStream_t, resource: *mut CUdevResource, kind: c_uint) {
        let driver = current()?;
        let mut context = null_mut();
        driver.cuStreamGetCtx(ds.of(stream), &mut context)?;
        driver.cuCtxGetDevResource(context, resource, kind)
    }
}
