//! Launches.
//!
//! A launch that the process knows to be well formed is posted: its call returns at once, and what
//! goes wrong on the GPU surfaces later, as it does natively. Any other launch is put to the host's
//! driver while the caller waits, so that a rejected launch is rejected with CUDA's own code.

use std::ffi::c_void;

use gpgpu_protocol::{
    api::{Function, LAUNCH_ATTRIBUTES, LaunchAttribute, LaunchConfig, Object, request},
    codec::Blob,
    cuda::*,
};

use crate::{
    argument::{HostPtr, InPtr},
    border::Result,
    client::{Client, client},
    cuda, device,
    function::FunctionData,
    thread,
};

/// Which default stream NULL stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    /// The legacy one.
    Legacy,
    /// The calling thread's.
    PerThread,
}

impl Shape {
    fn stream(self, client: &Client, stream: CUstream) -> Result<u64> {
        match self {
            Self::Legacy => thread::stream_id(client, stream as u64),
            Self::PerThread => thread::stream_id_per_thread(client, stream as u64),
        }
    }
}

/// A launch configuration as it travels.
///
/// # Errors
///
/// `CUDA_ERROR_NOT_SUPPORTED` for an attribute that cannot travel.
pub fn lower_config(
    client: &Client,
    config: InPtr<CUlaunchConfig>,
    shape: Shape,
) -> Result<LaunchConfig> {
    let config = config.get()?;
    let attributes: InPtr<CUlaunchAttribute> = InPtr::nested(config.attrs.cast_const().cast());
    let mut lowered = Vec::new();
    for i in 0..config.numAttrs as usize {
        let attribute = attributes.at(i)?;
        if attribute.id > CU_LAUNCH_ATTRIBUTE_MAX {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        if !LAUNCH_ATTRIBUTES.contains(&attribute.id) {
            return Err(CUDA_ERROR_NOT_SUPPORTED);
        }
        // SAFETY: every bit pattern of the union's 64 bytes is a value of its byte array, and the
        // caller's structure holds all 64.
        let value = unsafe { attribute.value.pad };
        lowered.push(LaunchAttribute {
            id: attribute.id,
            value,
        });
    }
    Ok(LaunchConfig {
        grid_x: config.gridDimX,
        grid_y: config.gridDimY,
        grid_z: config.gridDimZ,
        block_x: config.blockDimX,
        block_y: config.blockDimY,
        block_z: config.blockDimZ,
        shared_bytes: config.sharedMemBytes,
        stream: shape.stream(client, config.hStream)?,
        attributes: lowered,
    })
}

/// The parameter buffer of a launch, from either way in which CUDA takes it.
fn parameters(
    function: &FunctionData,
    each: InPtr<*const c_void>,
    extra: InPtr<usize>,
) -> Result<Blob> {
    let mut buffer = vec![0; function.param_bytes()];
    if !extra.is_null() {
        if !each.is_null() {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let (mut packed, mut size) = (0, None);
        let mut i = 0;
        loop {
            match extra.at(i)? {
                CU_LAUNCH_PARAM_END => break,
                CU_LAUNCH_PARAM_BUFFER_POINTER => packed = extra.at(i + 1)?,
                CU_LAUNCH_PARAM_BUFFER_SIZE => {
                    let at: InPtr<usize> = InPtr::nested(extra.at(i + 1)? as *const c_void);
                    size = Some(at.get()?);
                }
                _ => return Err(CUDA_ERROR_INVALID_VALUE),
            }
            i += 2;
        }
        let size = size.ok_or(CUDA_ERROR_INVALID_VALUE)?;
        if packed == 0 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        // A buffer that is too short leaves the rest unset, which the driver does not notice either.
        let length = size.min(buffer.len());
        buffer[..length].copy_from_slice(HostPtr::at(packed as u64).bytes(length));
        return Ok(Blob(buffer));
    }
    for (i, param) in function.params.iter().enumerate() {
        let from = HostPtr::at(each.at(i)? as u64);
        if from.is_null() {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let (offset, size) = (param.offset as usize, param.size as usize);
        buffer[offset..offset + size].copy_from_slice(from.bytes(size));
    }
    Ok(Blob(buffer))
}

/// Whether the launch keeps every limit that the process knows.
fn is_well_formed(client: &Client, function: &FunctionData, config: &LaunchConfig) -> bool {
    let within = || -> Option<bool> {
        let info =
            device::device(client.objects.context_device(thread::current_context())?).ok()?;
        let limit = |attribute| device::attribute(info, attribute).ok();
        let axes = [
            (config.grid_x, CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X),
            (config.grid_y, CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y),
            (config.grid_z, CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z),
            (config.block_x, CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X),
            (config.block_y, CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y),
            (config.block_z, CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z),
        ];
        for (extent, attribute) in axes {
            if extent == 0 || u64::from(extent) > limit(attribute)? as u64 {
                return Some(false);
            }
        }
        let threads =
            u64::from(config.block_x) * u64::from(config.block_y) * u64::from(config.block_z);
        let most_threads = function.attribute(CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK)?;
        let most_shared = function.attribute(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES)?;
        Some(
            threads <= most_threads as u64
                && i64::from(config.shared_bytes) <= i64::from(most_shared),
        )
    };
    config.attributes.is_empty()
        && client.objects.knows_stream(config.stream)
        && (function.context == 0 || function.context == thread::current_context())
        && within().unwrap_or(false)
}

fn launch(
    client: &Client,
    func: CUfunction,
    config: LaunchConfig,
    each: InPtr<*const c_void>,
    extra: InPtr<usize>,
) -> Result {
    if thread::current_context() == 0 {
        return Err(CUDA_ERROR_INVALID_CONTEXT);
    }
    let id = Function::id(func);
    let function = client.objects.function(id)?;
    let params = parameters(&function, each, extra)?;
    let posted = is_well_formed(client, &function, &config);
    let request = request::cuLaunchKernelEx {
        func: id,
        config,
        params,
    };
    if posted {
        client.post(&request)
    } else {
        client.call(&request).map(drop)
    }
}

fn plain(
    (grid_x, grid_y, grid_z): (u32, u32, u32),
    (block_x, block_y, block_z): (u32, u32, u32),
    shared_bytes: u32,
    stream: u64,
) -> LaunchConfig {
    LaunchConfig {
        grid_x,
        grid_y,
        grid_z,
        block_x,
        block_y,
        block_z,
        shared_bytes,
        stream,
        attributes: Vec::new(),
    }
}

fn cooperative(mut config: LaunchConfig) -> LaunchConfig {
    let mut value = [0; 64];
    value[0] = 1;
    config.attributes.push(LaunchAttribute {
        id: CU_LAUNCH_ATTRIBUTE_COOPERATIVE,
        value,
    });
    config
}

macro_rules! launches {
    ($($shape:ident: $kernel:ident, $ex:ident, $cooperative:ident;)*) => {cuda! {$(
        #[allow(clippy::too_many_arguments)]
        fn $kernel(f: CUfunction, gridDimX: u32, gridDimY: u32, gridDimZ: u32, blockDimX: u32, blockDimY: u32, blockDimZ: u32, sharedMemBytes: u32, hStream: CUstream, kernelParams: InPtr<*const c_void>, extra: InPtr<usize>) {
            let client = client()?;
            let stream = Shape::$shape.stream(client, hStream)?;
            let config = plain((gridDimX, gridDimY, gridDimZ), (blockDimX, blockDimY, blockDimZ), sharedMemBytes, stream);
            launch(client, f, config, kernelParams, extra)
        }

        fn $ex(config: InPtr<CUlaunchConfig>, f: CUfunction, kernelParams: InPtr<*const c_void>, extra: InPtr<usize>) {
            let client = client()?;
            let config = lower_config(client, config, Shape::$shape)?;
            launch(client, f, config, kernelParams, extra)
        }

        #[allow(clippy::too_many_arguments)]
        fn $cooperative(f: CUfunction, gridDimX: u32, gridDimY: u32, gridDimZ: u32, blockDimX: u32, blockDimY: u32, blockDimZ: u32, sharedMemBytes: u32, hStream: CUstream, kernelParams: InPtr<*const c_void>) {
            let client = client()?;
            let stream = Shape::$shape.stream(client, hStream)?;
            let config = plain((gridDimX, gridDimY, gridDimZ), (blockDimX, blockDimY, blockDimZ), sharedMemBytes, stream);
            launch(client, f, cooperative(config), kernelParams, InPtr::nested(std::ptr::null()))
        }
    )*}};
}

launches! {
    Legacy: cuLaunchKernel, cuLaunchKernelEx, cuLaunchCooperativeKernel;
    PerThread: cuLaunchKernel_ptsz, cuLaunchKernelEx_ptsz, cuLaunchCooperativeKernel_ptsz;
}
