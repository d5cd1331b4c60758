// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Devices: choosing, attributes, limits, peers.

use crate::abi::*;
use crate::context;
use crate::driver::{Driver, driver};
use crate::error::{self, Result};
use gpgpu_protocol::cuda::*;
use std::ffi::{c_char, c_int, c_uint, c_void};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicI32, Ordering};

/// The default device of threads; `cudaSetValidDevices` can change it.
static FIRST_VALID: AtomicI32 = AtomicI32::new(0);

pub fn first_valid() -> c_int {
    FIRST_VALID.load(Ordering::Relaxed)
}

/// The number of devices; the driver's answer does not change while a process runs.
pub fn count(driver: &Driver) -> Result<c_int> {
    static COUNT: OnceLock<Result<c_int>> = OnceLock::new();
    *COUNT.get_or_init(|| {
        let mut count = 0;
        // SAFETY: `count` outlives the call.
        unsafe { driver.cuDeviceGetCount(&mut count) }?;
        Ok(count)
    })
}

/// `cudaErrorInvalidDevice` for an ordinal without a device.
pub fn check_ordinal(driver: &Driver, device: c_int) -> Result<()> {
    if (0..count(driver)?).contains(&device) {
        Ok(())
    } else {
        Err(error::INVALID_DEVICE)
    }
}

/// The driver, after a check that `device` exists.
fn with_device(device: c_int) -> Result<&'static Driver> {
    let driver = driver()?;
    check_ordinal(driver, device)?;
    Ok(driver)
}

fn check_flags(flags: c_uint) -> Result<()> {
    if flags & !CU_CTX_FLAGS_MASK != 0 || (flags & CU_CTX_SCHED_MASK).count_ones() > 1 {
        return Err(error::INVALID_VALUE);
    }
    Ok(())
}

fn set_flags(driver: &Driver, device: c_int, flags: c_uint) -> Result<()> {
    check_flags(flags)?;
    // Every context maps host memory, and the driver has no such flag.
    // SAFETY: takes no pointer.
    unsafe { driver.cuDevicePrimaryCtxSetFlags(device, flags & !CU_CTX_MAP_HOST) }
}

export! {
    fn cudaGetDeviceCount(count_out: *mut c_int) {
        // A forked child cannot use the driver, but this answer is already known.
        let counted = match driver() {
            Err(error::INITIALIZATION_ERROR) if crate::driver::forked() => {
                crate::driver::library().ok_or(error::INSUFFICIENT_DRIVER).and_then(count)
            }
            driver => driver.and_then(count),
        };
        if count_out.is_null() {
            return Err(error::INVALID_VALUE);
        }
        count_out.write(counted.unwrap_or(0));
        counted.map(|_| ())
    }

    fn cudaSetDevice(device: c_int) {
        context::set_device(with_device(device)?, device)
    }

    // Since CUDA 5.0, OpenGL needs no binding to a device, so this only sets the thread's device.
    fn cudaGLSetGLDevice(device: c_int) {
        context::set_device(with_device(device)?, device)
    }

    fn cudaInitDevice(device: c_int, device_flags: c_uint, flags: c_uint) {
        let driver = with_device(device)?;
        if flags & !INIT_DEVICE_FLAGS_ARE_VALID != 0 {
            return Err(error::INVALID_VALUE);
        }
        if flags & INIT_DEVICE_FLAGS_ARE_VALID != 0 {
            set_flags(driver, device, device_flags)?;
        }
        context::retain(driver, device)?;
        Ok(())
    }

    fn cudaGetDevice(device: *mut c_int) {
        let driver = driver()?;
        if device.is_null() {
            return Err(error::INVALID_VALUE);
        }
        device.write(context::device(driver)?);
        Ok(())
    }

    fn cudaSetValidDevices(devices: *mut c_int, length: c_int) {
        let driver = driver()?;
        let length = usize::try_from(length).map_err(|_| error::INVALID_VALUE)?;
        let first = if length == 0 {
            0
        } else {
            if devices.is_null() {
                return Err(error::INVALID_VALUE);
            }
            let devices = std::slice::from_raw_parts(devices, length);
            for &device in devices {
                check_ordinal(driver, device)?;
            }
            devices[0]
        };
        FIRST_VALID.store(first, Ordering::Relaxed);
        context::unchoose(driver)
    }

    fn cudaSetDeviceFlags(flags: c_uint) {
        let driver = driver()?;
        set_flags(driver, context::device(driver)?, flags)
    }

    fn cudaGetDeviceFlags(flags: *mut c_uint) {
        let driver = driver()?;
        if flags.is_null() {
            return Err(error::INVALID_VALUE);
        }
        let (mut value, mut active) = (0, 0);
        driver.cuDevicePrimaryCtxGetState(context::device(driver)?, &mut value, &mut active)?;
        flags.write(value | CU_CTX_MAP_HOST);
        Ok(())
    }

    fn cudaDeviceReset() {
        context::reset(driver()?)
    }

    fn cudaDeviceGetAttribute(value: *mut c_int, attribute: c_uint, device: c_int) {
        with_device(device)?.cuDeviceGetAttribute(value, attribute, device)
    }

    fn cudaDeviceGetByPCIBusId(device: *mut c_int, id: *const c_char) {
        let driver = driver()?;
        if device.is_null() || id.is_null() {
            return Err(error::INVALID_VALUE);
        }
        driver.cuDeviceGetByPCIBusId(device, id)
    }

    fn cudaDeviceGetPCIBusId(id: *mut c_char, length: c_int, device: c_int) {
        let driver = with_device(device)?;
        if id.is_null() || length <= 0 {
            return Err(error::INVALID_VALUE);
        }
        driver.cuDeviceGetPCIBusId(id, length, device)
    }

    fn cudaDeviceCanAccessPeer(can: *mut c_int, device: c_int, peer: c_int) {
        let driver = with_device(device)?;
        check_ordinal(driver, peer)?;
        driver.cuDeviceCanAccessPeer(can, device, peer)
    }

    fn cudaDeviceEnablePeerAccess(peer: c_int, flags: c_uint) {
        let (driver, device) = context::current_device()?;
        check_ordinal(driver, peer)?;
        if peer == device {
            return Err(CUDA_ERROR_PEER_ACCESS_UNSUPPORTED);
        }
        driver.cuCtxEnablePeerAccess(context::retain(driver, peer)?, flags)
    }

    fn cudaDeviceDisablePeerAccess(peer: c_int) {
        let (driver, device) = context::current_device()?;
        check_ordinal(driver, peer)?;
        if peer == device {
            return Err(CUDA_ERROR_PEER_ACCESS_NOT_ENABLED);
        }
        driver.cuCtxDisablePeerAccess(context::retain(driver, peer)?)
    }

    fn cudaDeviceGetP2PAttribute(value: *mut c_int, attribute: c_uint, source: c_int, destination: c_int) {
        let driver = with_device(source)?;
        check_ordinal(driver, destination)?;
        driver.cuDeviceGetP2PAttribute(value, attribute, source, destination)
    }

    fn cudaDeviceGetP2PAtomicCapabilities(capabilities: *mut c_uint, operations: *const c_uint, count: c_uint, source: c_int, destination: c_int) {
        driver()?.cuDeviceGetP2PAtomicCapabilities(capabilities, operations, count, source, destination)
    }

    fn cudaDeviceGetHostAtomicCapabilities(capabilities: *mut c_uint, operations: *const c_uint, count: c_uint, device: c_int) {
        driver()?.cuDeviceGetHostAtomicCapabilities(capabilities, operations, count, device)
    }

    fn cudaDeviceGetTexture1DLinearMaxWidth(width: *mut usize, format: *const cudaChannelFormatDesc, device: c_int) {
        let driver = with_device(device)?;
        if format.is_null() {
            return Err(error::INVALID_VALUE);
        }
        let (format, channels) = crate::array::format_of(&*format)?;
        driver.cuDeviceGetTexture1DLinearMaxWidth(width, format, channels, device)
    }

    fn cudaDriverGetVersion(version: *mut c_int) {
        if version.is_null() {
            return Err(error::INVALID_VALUE);
        }
        // Without a driver the answer is 0 without an error. This query initialises nothing.
        match crate::driver::library() {
            Some(driver) => driver.cuDriverGetVersion(version),
            None => {
                version.write(0);
                Ok(())
            }
        }
    }

    fn cudaRuntimeGetVersion(version: *mut c_int) {
        if version.is_null() {
            return Err(error::INVALID_VALUE);
        }
        version.write(cudart_abi());
        Ok(())
    }

    fn cudaDeviceGetDefaultMemPool(pool: *mut cudaMemPool_t, device: c_int) {
        with_device(device)?.cuDeviceGetDefaultMemPool(pool, device)
    }

    fn cudaDeviceGetMemPool(pool: *mut cudaMemPool_t, device: c_int) {
        with_device(device)?.cuDeviceGetMemPool(pool, device)
    }

    fn cudaDeviceSetMemPool(device: c_int, pool: cudaMemPool_t) {
        with_device(device)?.cuDeviceSetMemPool(device, pool)
    }

    fn cudaDeviceGraphMemTrim(device: c_int) {
        with_device(device)?.cuDeviceGraphMemTrim(device)
    }

    fn cudaDeviceGetGraphMemAttribute(device: c_int, attribute: c_uint, value: *mut c_void) {
        with_device(device)?.cuDeviceGetGraphMemAttribute(device, attribute, value)
    }

    fn cudaDeviceSetGraphMemAttribute(device: c_int, attribute: c_uint, value: *mut c_void) {
        with_device(device)?.cuDeviceSetGraphMemAttribute(device, attribute, value)
    }

    fn cudaDeviceRegisterAsyncNotification(device: c_int, callback: *mut c_void, data: *mut c_void, handle: *mut *mut c_void) {
        with_device(device)?.cuDeviceRegisterAsyncNotification(device, callback, data, handle)
    }

    fn cudaDeviceUnregisterAsyncNotification(device: c_int, handle: *mut c_void) {
        with_device(device)?.cuDeviceUnregisterAsyncNotification(device, handle)
    }

    fn cudaDeviceGetNvSciSyncAttributes(list: *mut c_void, device: c_int, flags: c_int) {
        with_device(device)?.cuDeviceGetNvSciSyncAttributes(list, device, flags)
    }

    pass fn cudaDeviceSynchronize() => cuCtxSynchronize;
    pass fn cudaDeviceGetLimit(value: *mut usize, limit: c_uint) => cuCtxGetLimit;
    pass fn cudaDeviceSetLimit(limit: c_uint, value: usize) => cuCtxSetLimit;
    pass fn cudaDeviceGetCacheConfig(config: *mut c_uint) => cuCtxGetCacheConfig;
    pass fn cudaDeviceSetCacheConfig(config: c_uint) => cuCtxSetCacheConfig;
    pass fn cudaDeviceGetSharedMemConfig(config: *mut c_uint) => cuCtxGetSharedMemConfig;
    pass fn cudaDeviceSetSharedMemConfig(config: c_uint) => cuCtxSetSharedMemConfig;
    pass fn cudaDeviceGetStreamPriorityRange(least: *mut c_int, greatest: *mut c_int) => cuCtxGetStreamPriorityRange;
    pass fn cudaCtxResetPersistingL2Cache() => cuCtxResetPersistingL2Cache;
    pass fn cudaDeviceFlushGPUDirectRDMAWrites(target: c_uint, scope: c_uint) => cuFlushGPUDirectRDMAWrites;

    // The names of CUDA 3, which version 12 still exports.
    pass fn cudaThreadSynchronize() => cuCtxSynchronize;
    pass fn cudaThreadGetLimit(value: *mut usize, limit: c_uint) => cuCtxGetLimit;
    pass fn cudaThreadSetLimit(limit: c_uint, value: usize) => cuCtxSetLimit;
    pass fn cudaThreadGetCacheConfig(config: *mut c_uint) => cuCtxGetCacheConfig;
    pass fn cudaThreadSetCacheConfig(config: c_uint) => cuCtxSetCacheConfig;

    fn cudaThreadExit() {
        context::reset(driver()?)
    }

    // Devices since compute capability 1.3 need no conversion of doubles.
    fn cudaSetDoubleForDevice(_value: *mut f64) {
        Ok(())
    }

    fn cudaSetDoubleForHost(_value: *mut f64) {
        Ok(())
    }

    pass fn cudaProfilerStart() => cuProfilerStart;
    pass fn cudaProfilerStop() => cuProfilerStop;
}

/// `cudaInitDeviceFlagsAreValid`.
const INIT_DEVICE_FLAGS_ARE_VALID: c_uint = 1;
