// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The context of a call. It is the one that the program made current through the driver API, or else the primary
//! context of the thread's device, which is retained when first needed.

use crate::abi::cudaError_t;
use crate::driver::{Driver, driver};
use crate::error::{self, Result};
use gpgpu_locks::Mutex;
use gpgpu_protocol::cuda::*;
use std::cell::Cell;
use std::collections::BTreeSet;
use std::ffi::c_int;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

/// A bound on the number of a machine's devices.
pub const DEVICES: usize = 64;

struct Primary {
    /// The primary context that this library holds, or null.
    retained: AtomicPtr<CUctx_st>,
}

static PRIMARIES: [Primary; DEVICES] = [const {
    Primary {
        retained: AtomicPtr::new(null_mut()),
    }
}; DEVICES];

/// The handles of the primary contexts that resets destroyed and that were not made again: they may still be current in
/// threads. The lock also serialises retaining and resetting; readers of the contexts that are held need none.
static DEAD: Mutex<BTreeSet<Handle>> = Mutex::new(BTreeSet::new());

/// A context's handle, for comparisons.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Handle(usize);

impl Handle {
    fn of(context: CUcontext) -> Self {
        Self(context as usize)
    }
}

/// Whether any device was ever reset. Before that, no context can be stale.
static RESETS: AtomicBool = AtomicBool::new(false);

thread_local! {
    // No destructor, so that it can be used while the thread is being torn down.
    static DEVICE: Cell<c_int> = const { Cell::new(-1) };
}

/// The device that the thread chose, or the first of the valid ones.
fn chosen() -> c_int {
    match DEVICE.get() {
        -1 => crate::device::first_valid(),
        device => device,
    }
}

fn primary(device: c_int) -> Result<&'static Primary> {
    usize::try_from(device)
        .ok()
        .and_then(|index| PRIMARIES.get(index))
        .ok_or(error::INVALID_DEVICE)
}

/// The primary context of `device`, retained if it was not.
pub fn retain(driver: &Driver, device: c_int) -> Result<CUcontext> {
    let primary = primary(device)?;
    let context = primary.retained.load(Ordering::Acquire);
    if !context.is_null() {
        return Ok(context);
    }
    let mut dead = DEAD.lock();
    let mut context = primary.retained.load(Ordering::Acquire);
    if context.is_null() {
        // SAFETY: `context` outlives the call.
        unsafe { driver.cuDevicePrimaryCtxRetain(&mut context, device) }.map_err(unavailable)?;
        dead.remove(&Handle::of(context));
        primary.retained.store(context, Ordering::Release);
    }
    Ok(context)
}

/// Whether `context` was a primary context that a reset destroyed and that was not made again.
fn is_stale(context: CUcontext) -> bool {
    RESETS.load(Ordering::Acquire) && DEAD.lock().contains(&Handle::of(context))
}

/// The thread's current context, if there is one and it is usable.
fn usable(driver: &Driver) -> Result<Option<CUcontext>> {
    let mut context = null_mut();
    // SAFETY: `context` outlives the call.
    unsafe { driver.cuCtxGetCurrent(&mut context) }?;
    Ok((!context.is_null() && !is_stale(context)).then_some(context))
}

/// The driver, with a context current in the calling thread.
pub fn current() -> Result<&'static Driver> {
    let driver = driver()?;
    if usable(driver)?.is_none() {
        bind(driver, chosen())?;
    }
    Ok(driver)
}

/// Like [`current`], and returns the context.
pub fn current_context() -> Result<(&'static Driver, CUcontext)> {
    let driver = driver()?;
    let context = match usable(driver)? {
        Some(context) => context,
        None => bind(driver, chosen())?,
    };
    Ok((driver, context))
}

/// Like [`current`], and returns the context's device.
pub fn current_device() -> Result<(&'static Driver, CUdevice)> {
    let (driver, context) = current_context()?;
    Ok((driver, device_of_current(driver, context)?))
}

/// The device of the current context. For most threads that is the primary context of the device that they chose, so no
/// query of the driver is needed.
fn device_of_current(driver: &Driver, context: CUcontext) -> Result<c_int> {
    let mut device = chosen();
    if primary(device)?.retained.load(Ordering::Acquire) != context {
        // SAFETY: `device` outlives the call.
        unsafe { driver.cuCtxGetDevice(&mut device) }?;
    }
    Ok(device)
}

fn bind(driver: &Driver, device: c_int) -> Result<CUcontext> {
    let context = retain(driver, device)?;
    // SAFETY: a context that this library holds.
    match unsafe { driver.cuCtxSetCurrent(context) } {
        Ok(()) => Ok(context),
        // The program has reset it through the driver API.
        Err(CUDA_ERROR_INVALID_CONTEXT | CUDA_ERROR_CONTEXT_IS_DESTROYED) => {
            let held = &primary(device)?.retained;
            let (from, to) = (context, null_mut());
            let _ = held.compare_exchange(from, to, Ordering::AcqRel, Ordering::Relaxed);
            let context = retain(driver, device)?;
            // SAFETY: as above.
            unsafe { driver.cuCtxSetCurrent(context) }.map_err(unavailable)?;
            Ok(context)
        }
        Err(error) => Err(unavailable(error)),
    }
}

/// If an earlier fault in the process prevents a context, the result is `cudaErrorDevicesUnavailable` instead of that
/// fault. Observed with the runtime 13.0.
fn unavailable(error: cudaError_t) -> cudaError_t {
    match error {
        CUDA_ERROR_ILLEGAL_ADDRESS
        | CUDA_ERROR_ASSERT
        | CUDA_ERROR_HARDWARE_STACK_ERROR..=CUDA_ERROR_LAUNCH_FAILED => error::DEVICES_UNAVAILABLE,
        other => other,
    }
}

/// Makes `device` the thread's device and its primary context current.
pub fn set_device(driver: &Driver, device: c_int) -> Result<()> {
    bind(driver, device)?;
    DEVICE.set(device);
    Ok(())
}

/// Forgets the thread's choice, so that the next call takes the first valid device.
pub fn unchoose(driver: &Driver) -> Result<()> {
    if DEVICE.get() == -1 && usable(driver)?.is_some() {
        // SAFETY: a null context only detaches the one that is current.
        unsafe { driver.cuCtxSetCurrent(null_mut()) }?;
    }
    Ok(())
}

/// The thread's device. This makes no context.
pub fn device(driver: &Driver) -> Result<c_int> {
    match usable(driver)? {
        Some(context) => device_of_current(driver, context),
        None => Ok(chosen()),
    }
}

/// Destroys the primary context of the thread's device with everything in it. The next call that needs a context, in
/// any thread, makes a new one.
pub fn reset(driver: &Driver) -> Result<()> {
    let device = device(driver)?;
    let primary = primary(device)?;
    let mut dead = DEAD.lock();
    let held = primary.retained.swap(null_mut(), Ordering::AcqRel);
    let context = match held.is_null() {
        true => active(driver, device)?,
        false => held,
    };
    if !context.is_null() {
        dead.insert(Handle::of(context));
        RESETS.store(true, Ordering::Release);
    }
    // SAFETY: takes no pointer.
    unsafe { driver.cuDevicePrimaryCtxReset(device) }
}

/// The primary context of a device if another library or the program holds it, or null.
fn active(driver: &Driver, device: c_int) -> Result<CUcontext> {
    let (mut flags, mut is_active, mut context) = (0, 0, null_mut());
    // SAFETY: the pointers are to values that outlive the calls, and the second call's reference is given back.
    unsafe {
        driver.cuDevicePrimaryCtxGetState(device, &mut flags, &mut is_active)?;
        if is_active != 0 {
            driver.cuDevicePrimaryCtxRetain(&mut context, device)?;
            driver.cuDevicePrimaryCtxRelease(device)?;
        }
    }
    Ok(context)
}
