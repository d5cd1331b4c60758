// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Launching kernels.

use crate::abi::*;
use crate::context::{current, current_device};
use crate::driver::Driver;
use crate::error::{self, Result};
use crate::properties::write_prefix;
use crate::registration::launchable;
use crate::stream::DefaultStream;
use gpgpu_protocol::cuda::*;
use std::ffi::{c_int, c_uint, c_void};
use std::mem::offset_of;
use std::ptr::null_mut;

/// Whether the dimensions of a launch are impossible on the current device.
fn impossible(driver: &Driver, grid: dim3, block: dim3) -> bool {
    let limit = |attribute| {
        let (mut device, mut value) = (0, 0 as c_int);
        // SAFETY: the locals outlive the calls.
        let asked = unsafe {
            driver
                .cuCtxGetDevice(&mut device)
                .and_then(|()| driver.cuDeviceGetAttribute(&mut value, attribute, device))
        };
        // A limit that cannot be queried does not apply.
        asked.map_or(u64::MAX, |()| u64::from(value.cast_unsigned()))
    };
    let threads = u64::from(block.x)
        .saturating_mul(u64::from(block.y))
        .saturating_mul(u64::from(block.z));
    [grid.x, grid.y, grid.z, block.x, block.y, block.z].contains(&0)
        || threads > limit(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK)
        || [
            (block.x, CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X),
            (block.y, CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y),
            (block.z, CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z),
            (grid.x, CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X),
            (grid.y, CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y),
            (grid.z, CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z),
        ]
        .iter()
        .any(|&(size, attribute)| u64::from(size) > limit(attribute))
}

/// The runtime's code for the driver's answer to a launch. The dimensions are checked only after a refusal, so that
/// valid launches cost nothing.
fn refused(driver: &Driver, grid: dim3, block: dim3, error: cudaError_t) -> cudaError_t {
    if error == error::INVALID_VALUE && impossible(driver, grid, block) {
        error::bad_dimensions()
    } else {
        error
    }
}

/// Launches a kernel.
///
/// # Safety
/// As for `cudaLaunchKernel`.
unsafe fn launch(
    function: *const c_void,
    grid: dim3,
    block: dim3,
    parameters: *mut *mut c_void,
    shared: usize,
    stream: CUstream,
) -> Result<()> {
    let driver = current()?;
    let function = launchable(driver, function)?;
    let shared = c_uint::try_from(shared).map_err(|_| error::INVALID_VALUE)?;
    // SAFETY: promised by the caller.
    unsafe {
        driver.cuLaunchKernel(
            function,
            grid.x,
            grid.y,
            grid.z,
            block.x,
            block.y,
            block.z,
            shared,
            stream,
            parameters,
            null_mut(),
        )
    }
    .map_err(|error| refused(driver, grid, block, error))
}

/// The driver's form of a launch configuration.
///
/// # Safety
/// `config` is readable.
pub unsafe fn driver_config(
    config: *const cudaLaunchConfig_t,
    ds: DefaultStream,
) -> Result<CUlaunchConfig> {
    // SAFETY: promised by the caller, null excepted.
    let config = unsafe { config.as_ref() }.ok_or(error::INVALID_VALUE)?;
    Ok(CUlaunchConfig {
        gridDimX: config.gridDim.x,
        gridDimY: config.gridDim.y,
        gridDimZ: config.gridDim.z,
        blockDimX: config.blockDim.x,
        blockDimY: config.blockDim.y,
        blockDimZ: config.blockDim.z,
        sharedMemBytes: c_uint::try_from(config.dynamicSmemBytes)
            .map_err(|_| error::INVALID_VALUE)?,
        hStream: ds.of(config.stream),
        attrs: config.attrs,
        numAttrs: config.numAttrs,
    })
}

/// The number of a kernel's parameters, for drivers before 13.2: such a driver can only report whether a parameter with
/// a given index exists.
fn count_parameters(driver: &Driver, kernel: CUkernel) -> Result<usize> {
    let mut count = 0;
    loop {
        let (mut offset, mut size) = (0, 0);
        // SAFETY: the locals outlive the call; the kernel is one of the driver's.
        match unsafe { driver.cuKernelGetParamInfo(kernel, count, &mut offset, &mut size) } {
            Ok(()) => count += 1,
            Err(error::INVALID_VALUE) => return Ok(count),
            Err(other) => return Err(other),
        }
    }
}

/// The attributes of a function on the current device.
fn attributes_of(function: *const c_void) -> Result<cudaFuncAttributes> {
    let (driver, device) = current_device()?;
    let kernel = crate::registration::kernel(driver, function)?;
    let required = |attribute| {
        let mut value = 0;
        // SAFETY: the value lives across the call, and the kernel is one of the driver's.
        unsafe { driver.cuKernelGetAttribute(&mut value, attribute, kernel, device)? };
        Ok::<_, cudaError_t>(value)
    };
    // Drivers before 11.8 do not know the attributes of clusters.
    let optional = |attribute| required(attribute).unwrap_or(0);
    let size = |attribute| required(attribute).map(|value| value.cast_unsigned() as usize);
    Ok(cudaFuncAttributes {
        sharedSizeBytes: size(CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES)?,
        constSizeBytes: size(CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES)?,
        localSizeBytes: size(CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES)?,
        maxThreadsPerBlock: required(CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK)?,
        numRegs: required(CU_FUNC_ATTRIBUTE_NUM_REGS)?,
        ptxVersion: required(CU_FUNC_ATTRIBUTE_PTX_VERSION)?,
        binaryVersion: required(CU_FUNC_ATTRIBUTE_BINARY_VERSION)?,
        cacheModeCA: required(CU_FUNC_ATTRIBUTE_CACHE_MODE_CA)?,
        maxDynamicSharedSizeBytes: required(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES)?,
        preferredShmemCarveout: required(CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT)?,
        clusterDimMustBeSet: optional(CU_FUNC_ATTRIBUTE_CLUSTER_SIZE_MUST_BE_SET),
        requiredClusterWidth: optional(CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH),
        requiredClusterHeight: optional(CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_HEIGHT),
        requiredClusterDepth: optional(CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH),
        clusterSchedulingPolicyPreference: optional(
            CU_FUNC_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE,
        ),
        nonPortableClusterSizeAllowed: optional(
            CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED,
        ),
        reserved: [0; 16],
    })
}

export! {
    fn(ds) cudaLaunchKernel, cudaLaunchKernel_ptsz(function: *const c_void, grid: dim3, block: dim3, parameters: *mut *mut c_void, shared: usize, stream: cudaStream_t) {
        launch(function, grid, block, parameters, shared, ds.of(stream))
    }

    fn(ds) __cudaLaunchKernel, __cudaLaunchKernel_ptsz(kernel: cudaKernel_t, grid: dim3, block: dim3, parameters: *mut *mut c_void, shared: usize, stream: cudaStream_t) {
        launch(kernel.cast(), grid, block, parameters, shared, ds.of(stream))
    }

    fn(ds) cudaLaunchCooperativeKernel, cudaLaunchCooperativeKernel_ptsz(function: *const c_void, grid: dim3, block: dim3, parameters: *mut *mut c_void, shared: usize, stream: cudaStream_t) {
        let driver = current()?;
        let function = launchable(driver, function)?;
        let shared = c_uint::try_from(shared).map_err(|_| error::INVALID_VALUE)?;
        driver
            .cuLaunchCooperativeKernel(function, grid.x, grid.y, grid.z, block.x, block.y, block.z, shared, ds.of(stream), parameters)
            .map_err(|error| refused(driver, grid, block, error))
    }

    fn(ds) cudaLaunchKernelExC, cudaLaunchKernelExC_ptsz(config: *const cudaLaunchConfig_t, function: *const c_void, parameters: *mut *mut c_void) {
        let driver = current()?;
        let function = launchable(driver, function)?;
        let native = driver_config(config, ds)?;
        driver
            .cuLaunchKernelEx(&native, function, parameters, null_mut())
            .map_err(|error| refused(driver, (*config).gridDim, (*config).blockDim, error))
    }

    fn cudaOccupancyMaxActiveBlocksPerMultiprocessor(blocks: *mut c_int, function: *const c_void, block: c_int, shared: usize) {
        let driver = current()?;
        driver.cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(blocks, launchable(driver, function)?, block, shared, CU_OCCUPANCY_DEFAULT)
    }

    fn cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(blocks: *mut c_int, function: *const c_void, block: c_int, shared: usize, flags: c_uint) {
        let driver = current()?;
        driver.cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(blocks, launchable(driver, function)?, block, shared, flags)
    }

    fn cudaOccupancyAvailableDynamicSMemPerBlock(shared: *mut usize, function: *const c_void, blocks: c_int, block: c_int) {
        let driver = current()?;
        driver.cuOccupancyAvailableDynamicSMemPerBlock(shared, launchable(driver, function)?, blocks, block)
    }

    fn cudaOccupancyMaxPotentialClusterSize(size: *mut c_int, function: *const c_void, config: *const cudaLaunchConfig_t) {
        let driver = current()?;
        let function = launchable(driver, function)?;
        driver.cuOccupancyMaxPotentialClusterSize(size, function, &driver_config(config, DefaultStream::Legacy)?)
    }

    fn cudaOccupancyMaxActiveClusters(count: *mut c_int, function: *const c_void, config: *const cudaLaunchConfig_t) {
        let driver = current()?;
        let function = launchable(driver, function)?;
        driver.cuOccupancyMaxActiveClusters(count, function, &driver_config(config, DefaultStream::Legacy)?)
    }

    fn cudaFuncGetAttributes(attributes: *mut cudaFuncAttributes, function: *const c_void) {
        if attributes.is_null() {
            return Err(error::INVALID_VALUE);
        }
        attributes.write(attributes_of(function)?);
        Ok(())
    }

    // CUDA 11's structure has no fields for clusters.
    fn cudart11_cudaFuncGetAttributes(attributes: *mut u8, function: *const c_void) {
        if attributes.is_null() {
            return Err(error::INVALID_VALUE);
        }
        let full = attributes_of(function)?;
        write_prefix(&full, attributes, offset_of!(cudaFuncAttributes, clusterDimMustBeSet));
        Ok(())
    }

    fn cudaFuncSetAttribute(function: *const c_void, attribute: c_uint, value: c_int) {
        let (driver, device) = current_device()?;
        let kernel = crate::registration::kernel(driver, function)?;
        // Only these attributes can be set; the others are constant.
        if !(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES..CU_FUNC_ATTRIBUTE_MAX).contains(&attribute) {
            return Err(error::INVALID_VALUE);
        }
        driver.cuKernelSetAttribute(attribute, value, kernel, device)
    }

    fn cudaKernelSetAttributeForDevice(kernel: cudaKernel_t, attribute: c_uint, value: c_int, device: c_int) {
        let driver = current()?;
        crate::device::check_ordinal(driver, device)?;
        let kernel = crate::registration::kernel(driver, kernel.cast())?;
        driver.cuKernelSetAttribute(attribute, value, kernel, device)
    }

    fn cudaFuncSetCacheConfig(function: *const c_void, config: c_uint) {
        let (driver, device) = current_device()?;
        driver.cuKernelSetCacheConfig(crate::registration::kernel(driver, function)?, config, device)
    }

    // Since compute capability 5.0, banks have one size, so there is nothing to set.
    fn cudaFuncSetSharedMemConfig(function: *const c_void, _config: c_uint) {
        let driver = current()?;
        crate::registration::kernel(driver, function)?;
        Ok(())
    }

    fn cudaFuncGetName(name: *mut *const std::ffi::c_char, function: *const c_void) {
        let driver = current()?;
        if name.is_null() {
            return Err(error::INVALID_VALUE);
        }
        driver.cuKernelGetName(name, crate::registration::kernel(driver, function)?)
    }

    fn cudaFuncGetParamCount(function: *const c_void, count: *mut usize) {
        let driver = current()?;
        if count.is_null() {
            return Err(error::INVALID_VALUE);
        }
        let kernel = crate::registration::kernel(driver, function)?;
        match driver.cuKernelGetParamCount(kernel, count) {
            Err(error::NOT_SUPPORTED) => {
                count.write(count_parameters(driver, kernel)?);
                Ok(())
            }
            result => result,
        }
    }

    fn cudaFuncGetParamInfo(function: *const c_void, index: usize, offset: *mut usize, size: *mut usize) {
        let driver = current()?;
        driver.cuKernelGetParamInfo(crate::registration::kernel(driver, function)?, index, offset, size)
    }
}
