// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Launches.
//!
//! A launch that the process knows to be valid is posted: its call returns at once, and later calls report errors of
//! the GPU, as natively. Any other launch is sent to the host's driver while the caller waits, so that a rejected
//! launch returns CUDA's own code.

use std::{ffi::c_void, sync::Arc};

use gpgpu_graphs::{
    capture,
    node::{Kernel, Shape as Extents, Work},
    updatable,
};
use gpgpu_protocol::{
    api::{
        EVENT_ATTRIBUTES, Function, LAUNCH_ATTRIBUTES, LaunchAttribute, LaunchConfig, Object,
        Operation, ParamInfo, Request, reply, request,
    },
    codec::{Malformed, Reader, Shape, Wire, Writer},
    cuda::*,
};

use crate::{
    argument::{HostPtr, InPtr, OutPtr},
    client::{Client, client},
    cuda,
    environment::environment,
    event,
    ffi::Result,
    graph::{self, Guest},
    green,
    stores::{function::FunctionData, objects::Known, occupancy::configuration},
    stream, thread,
};

/// The default stream for NULL.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DefaultStream {
    /// The legacy one.
    Legacy,
    /// The calling thread's.
    PerThread,
}

impl DefaultStream {
    /// The id of the stream of a handle.
    pub fn stream(self, client: &Client, stream: CUstream) -> Result<u64> {
        match self {
            Self::Legacy => thread::stream_id(client, stream as u64),
            Self::PerThread => thread::stream_id_per_thread(client, stream as u64),
        }
    }
}

/// The attribute of captured launches that kernels update.
const UPDATABLE: CUlaunchAttributeID = CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE;

/// A launch configuration in the protocol's form, without [`UPDATABLE`].
///
/// # Errors
///
/// `CUDA_ERROR_NOT_SUPPORTED` for an attribute that the protocol does not support.
pub fn lower_config(
    client: &Client,
    config: InPtr<CUlaunchConfig>,
    shape: DefaultStream,
) -> Result<LaunchConfig> {
    let config = config.get()?;
    let attributes: InPtr<CUlaunchAttribute> = InPtr::nested(config.attrs.cast_const().cast());
    let mut lowered = Vec::new();
    for i in 0..config.numAttrs as usize {
        let attribute = attributes.at(i)?;
        if attribute.id > CU_LAUNCH_ATTRIBUTE_MAX {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        if !LAUNCH_ATTRIBUTES.contains(&attribute.id) && attribute.id != UPDATABLE {
            return Err(CUDA_ERROR_NOT_SUPPORTED);
        }
        // SAFETY: every bit pattern of the union's 64 bytes is a value of its byte array, and the
        // caller's structure holds all 64.
        let value = unsafe { attribute.value.pad };
        let attribute = LaunchAttribute {
            id: attribute.id,
            value,
        };
        if EVENT_ATTRIBUTES.contains(&attribute.id) {
            event::forget_word(attribute.event());
            // If the launch is captured, the event stands for a part of it.
            capture::forget_event::<Guest>(attribute.event());
        }
        lowered.push(attribute);
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

/// The parameters of a launch, in the two forms that CUDA accepts.
enum Parameters<'a> {
    Each {
        layout: &'a [ParamInfo],
        from: InPtr<*const c_void>,
    },
    Packed(&'a [u8]),
}

impl<'a> Parameters<'a> {
    fn new(
        function: &'a FunctionData,
        each: InPtr<*const c_void>,
        extra: InPtr<usize>,
    ) -> Result<Self> {
        if extra.is_null() {
            for i in 0..function.params.len() {
                if each.at(i)?.is_null() {
                    return Err(CUDA_ERROR_INVALID_VALUE);
                }
            }
            return Ok(Self::Each {
                layout: &function.params,
                from: each,
            });
        }
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
        let size = match size {
            None if function.params.is_empty() => 0,
            size => size.ok_or(CUDA_ERROR_INVALID_VALUE)?,
        };
        // The driver's code, seen on an H200.
        if size > function.param_bytes.next_multiple_of(4) {
            return Err(CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES);
        }
        // If a buffer is too short, the remaining parameters are not set. The driver does not detect this either.
        let length = size.min(function.param_bytes);
        match (packed, size) {
            // Programs may pass no buffer for kernels without parameters.
            (_, 0) => Ok(Self::Packed(&[])),
            (0, _) => Err(CUDA_ERROR_INVALID_VALUE),
            _ => Ok(Self::Packed(HostPtr::at(packed as u64).bytes(length))),
        }
    }

    fn write(&self, buffer: &mut [u8]) {
        match self {
            Self::Packed(bytes) => buffer[..bytes.len()].copy_from_slice(bytes),
            Self::Each { layout, from } => {
                for (i, param) in layout.iter().enumerate() {
                    let Ok(at) = from.at(i) else { return };
                    let (start, size) = (param.offset as usize, param.size as usize);
                    let to = &mut buffer[start..start + size];
                    let from = HostPtr::at(at as u64);
                    // Most parameters have one of these sizes, for which no function is called.
                    match to.len() {
                        8 => to.copy_from_slice(from.bytes(8)),
                        4 => to.copy_from_slice(from.bytes(4)),
                        size => to.copy_from_slice(from.bytes(size)),
                    }
                }
            }
        }
    }
}

/// `cuLaunchKernelEx` of the API table, encoded from its source without an allocation.
struct Launch<'a> {
    func: u64,
    config: &'a LaunchConfig,
    params: Parameters<'a>,
    param_bytes: usize,
}

impl Wire for Launch<'_> {
    const SHAPE: &'static Shape = request::cuLaunchKernelEx::SHAPE;

    fn put(&self, writer: &mut Writer) {
        writer.put(&self.func);
        writer.put(self.config);
        writer.bytes_with(self.param_bytes, |buffer| self.params.write(buffer));
    }

    /// The worker decodes it as the table's own request.
    fn get(_: &mut Reader<'_>) -> std::result::Result<Self, Malformed> {
        Err(Malformed::Range)
    }
}

impl Request for Launch<'_> {
    type Reply = reply::cuLaunchKernelEx;
    const OPERATION: &'static Operation = request::cuLaunchKernelEx::OPERATION;

    #[inline]
    fn stream(&self) -> Option<u64> {
        Some(self.config.stream)
    }
}

/// Whether the launch respects the function's own limits.
fn fits(
    client: &Client,
    (function, id): (&FunctionData, u64),
    device: CUdevice,
    config: &LaunchConfig,
) -> bool {
    let limit = |attribute| {
        function
            .known(device, attribute)
            .or_else(|| function.attribute(client, id, device, attribute).ok())
    };
    let threads = u64::from(config.block_x) * u64::from(config.block_y) * u64::from(config.block_z);
    let clusters = function.known(device, CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH);
    limit(CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK).is_some_and(|most| threads <= most as u64)
        && limit(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES)
            .is_some_and(|most| i64::from(config.shared_bytes) <= i64::from(most))
        && clusters.unwrap_or(0) == 0
}

/// Whether a launch must wait for its kernel, by `CUDA_LAUNCH_BLOCKING`. It then returns the kernel's error too.
pub fn is_blocking() -> bool {
    environment().waits_for_launches
}

/// Adds a launch as a node, if its stream is captured; returns the name of the node for kernels, or 0 if they do not
/// update it.
fn record(
    client: &Client,
    func: CUfunction,
    function: &FunctionData,
    config: &LaunchConfig,
    launch: &Launch<'_>,
) -> Result<Option<u64>> {
    let attribute = |of: &LaunchAttribute| CUlaunchAttribute {
        id: of.id,
        pad: [0; 4],
        value: CUlaunchAttributeValue { pad: of.value },
    };
    let all: Vec<_> = config.attributes.iter().map(attribute).collect();
    graph::record_launch(client, config.stream, &all, |stream, attributes| {
        let shape = Extents {
            grid: [config.grid_x, config.grid_y, config.grid_z],
            block: [config.block_x, config.block_y, config.block_z],
            shared: config.shared_bytes,
        };
        let kernel = Kernel::with(
            (func as u64, stream.context),
            shape,
            attributes,
            graph::signature(function),
            |buffer| launch.params.write(buffer),
        );
        check(client, &kernel)?;
        Ok(Work::Kernel(Arc::new(kernel)))
    })
}

/// Checks that a node's launch is valid, by asking the host if the process cannot decide.
pub fn check(client: &Client, kernel: &Kernel) -> Result {
    let config = &graph::launch_config(kernel)?;
    let look = |object: &Known| match object {
        Known::Context(context) => Some((context.device, context.limits.hold(config))),
        _ => None,
    };
    let place = client.objects.look(kernel.context, look).flatten();
    let function = client.objects.function(kernel.function)?;
    if function.context != 0 && function.context != green::home(client, kernel.context) {
        return Err(CUDA_ERROR_INVALID_HANDLE);
    }
    if let Some((device, true)) = place
        && (function.accepted.holds(device, config) && !green::any()
            || config.attributes.is_empty()
                && fits(client, (&function, kernel.function), device, config))
    {
        return Ok(());
    }
    let before = configuration();
    let step = graph::launch_step(kernel)?;
    client.call(&request::gpgpuGraphCheck { step })?;
    if let Some((device, _)) = place {
        function.accepted.note(device, config, before);
    }
    Ok(())
}

/// Launches a function. A program that launches the same kernels repeatedly takes no lock and allocates nothing.
/// Returns the name of the launch for kernels that update it, if it was captured as such; 0 otherwise.
pub fn launch(
    client: &Client,
    func: CUfunction,
    config: &LaunchConfig,
    each: InPtr<*const c_void>,
    extra: InPtr<usize>,
) -> Result<u64> {
    let context = thread::current_context();
    if context == 0 {
        return match stream::own_context(client, config.stream) {
            Some(context) => thread::within(context, || launch(client, func, config, each, extra)),
            None => Err(CUDA_ERROR_INVALID_CONTEXT),
        };
    }
    let look = |object: &Known| match object {
        Known::Context(context) => Some((context.device, context.limits.hold(config))),
        _ => None,
    };
    let place = client.objects.look(context, look).flatten();
    // The driver refuses a stream of another context than the function's.
    let is_here = |of| of == context || green::home(client, of) == green::home(client, context);
    let of_stream = stream::find_context(client, config.stream);
    let streams = of_stream.is_some_and(is_here);
    let id = Function::id(func);
    let mut prints = false;
    let mut name = 0;
    let launched = client.objects.look(id, |object| {
        let (Known::Function(function) | Known::Kernel(function)) = object else {
            return Err(CUDA_ERROR_INVALID_HANDLE);
        };
        prints = function.may_print(client, id)?;
        let request = Launch {
            func: id,
            config,
            params: Parameters::new(function, each, extra)?,
            param_bytes: function.param_bytes,
        };
        if capture::any::<Guest>()
            && let Some(recorded) = record(client, func, function, config, &request)?
        {
            name = recorded;
            return Ok(());
        }
        if config.attributes.iter().any(|of| of.id == UPDATABLE) {
            return Err(CUDA_ERROR_NOT_SUPPORTED);
        }
        let here = function.context == 0 || is_here(function.context);
        let Some((device, true)) = place.filter(|_| streams && here) else {
            let is_apart = |of| green::home(client, of) != green::home(client, function.context);
            if function.context != 0 && of_stream.is_some_and(is_apart) {
                return Err(CUDA_ERROR_INVALID_HANDLE);
            }
            return client.call(&request).map(drop);
        };
        if config.attributes.is_empty() {
            return if fits(client, (function, id), device, config) {
                client.post(&request)
            } else {
                client.call(&request).map(drop)
            };
        }
        // Only the host can check attributes. It accepts a form again that it has accepted once, except that a green
        // context may have too few multiprocessors for it.
        if function.accepted.holds(device, config) && !green::any() {
            return client.post(&request);
        }
        let before = configuration();
        client.call(&request)?;
        function.accepted.note(device, config, before);
        Ok(())
    });
    launched.unwrap_or(Err(CUDA_ERROR_INVALID_HANDLE))?;
    if prints {
        client.launched_printing();
    }
    if is_blocking() {
        let hStream = config.stream;
        client.call(&request::cuStreamSynchronize { hStream })?;
    }
    Ok(name)
}

/// Returns the name of a launch that kernels update to the program.
fn tell(config: InPtr<CUlaunchConfig>, name: u64) -> Result {
    let config = config.get()?;
    let from: InPtr<CUlaunchAttribute> = InPtr::nested(config.attrs.cast_const().cast());
    let to: OutPtr<CUlaunchAttribute> = OutPtr::nested(config.attrs.cast());
    for at in 0..config.numAttrs as usize {
        let attribute = from.at(at)?;
        if attribute.id == UPDATABLE {
            let value = updatable::value(name);
            to.at(at).set(CUlaunchAttribute { value, ..attribute })?;
        }
    }
    Ok(())
}

/// The configuration of a launch without attributes.
pub fn plain(
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
            let stream = DefaultStream::$shape.stream(client, hStream)?;
            let config = plain((gridDimX, gridDimY, gridDimZ), (blockDimX, blockDimY, blockDimZ), sharedMemBytes, stream);
            launch(client, f, &config, kernelParams, extra).map(drop)
        }

        fn $ex(config: InPtr<CUlaunchConfig>, f: CUfunction, kernelParams: InPtr<*const c_void>, extra: InPtr<usize>) {
            let client = client()?;
            let lowered = lower_config(client, config, DefaultStream::$shape)?;
            match launch(client, f, &lowered, kernelParams, extra)? {
                0 => Ok(()),
                name => tell(config, name),
            }
        }

        #[allow(clippy::too_many_arguments)]
        fn $cooperative(f: CUfunction, gridDimX: u32, gridDimY: u32, gridDimZ: u32, blockDimX: u32, blockDimY: u32, blockDimZ: u32, sharedMemBytes: u32, hStream: CUstream, kernelParams: InPtr<*const c_void>) {
            let client = client()?;
            let stream = DefaultStream::$shape.stream(client, hStream)?;
            let config = plain((gridDimX, gridDimY, gridDimZ), (blockDimX, blockDimY, blockDimZ), sharedMemBytes, stream);
            launch(client, f, &cooperative(config), kernelParams, InPtr::nested(std::ptr::null())).map(drop)
        }
    )*}};
}

launches! {
    Legacy: cuLaunchKernel, cuLaunchKernelEx, cuLaunchCooperativeKernel;
    PerThread: cuLaunchKernel_ptsz, cuLaunchKernelEx_ptsz, cuLaunchCooperativeKernel_ptsz;
}

#[cfg(test)]
mod tests {
    use gpgpu_protocol::codec::Blob;

    use super::*;

    fn bytes<R: Request>(request: &R) -> Vec<u8> {
        let mut writer = Writer::new();
        writer.put(request);
        writer.into_bytes()
    }

    fn config() -> LaunchConfig {
        plain((3, 2, 1), (64, 1, 1), 128, 0)
    }

    fn nothing<T: Copy>() -> InPtr<T> {
        InPtr::nested(std::ptr::null())
    }

    #[test]
    fn pitfall_46_parameters_are_written_as_the_table_says_in_either_way() {
        let layout = [(0, 1), (8, 8), (16, 4), (20, 2)];
        let params = layout.map(|(offset, size)| ParamInfo { offset, size });
        let function = FunctionData::with_params(params.to_vec());
        let mut packed = [0_u8; 22];
        packed[0] = 0x11;
        packed[8..16].copy_from_slice(&0x2222_3333_4444_5555_u64.to_ne_bytes());
        packed[16..20].copy_from_slice(&0x6666_7777_u32.to_ne_bytes());
        packed[20..22].copy_from_slice(&0x8888_u16.to_ne_bytes());
        let expected = request::cuLaunchKernelEx {
            func: 7,
            config: config(),
            params: Blob(packed.to_vec()),
        };
        let each = layout.map(|(offset, _)| packed[offset as usize..].as_ptr());
        let size = packed.len();
        let extra = [
            CU_LAUNCH_PARAM_BUFFER_POINTER,
            packed.as_ptr() as usize,
            CU_LAUNCH_PARAM_BUFFER_SIZE,
            &raw const size as usize,
            CU_LAUNCH_PARAM_END,
        ];
        let ways = [
            Parameters::new(&function, InPtr::nested(each.as_ptr().cast()), nothing()),
            Parameters::new(&function, nothing(), InPtr::nested(extra.as_ptr().cast())),
        ];
        for params in ways {
            let launch = Launch {
                func: 7,
                config: &config(),
                params: params.unwrap(),
                param_bytes: function.param_bytes,
            };
            assert_eq!(bytes(&launch), bytes(&expected));
        }
        assert!(Parameters::new(&function, nothing(), nothing()).is_err());
    }
}
