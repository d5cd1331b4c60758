//! Launches.
//!
//! A launch that the process knows to be well formed is posted: its call returns at once, and what
//! goes wrong on the GPU surfaces later, as it does natively. Any other launch is put to the host's
//! driver while the caller waits, so that a rejected launch is rejected with CUDA's own code.

use std::{
    ffi::c_void,
    sync::{Mutex, MutexGuard},
};

use gpgpu_protocol::{
    api::{
        DeviceInfo, Function, LAUNCH_ATTRIBUTES, LaunchAttribute, LaunchConfig, Object, Operation,
        ParamInfo, Request, reply, request,
    },
    codec::{Malformed, Reader, Shape, Wire, Writer},
    cuda::*,
};

use crate::{
    argument::{HostPtr, InPtr},
    border::Result,
    client::{Client, client},
    cuda, device,
    function::FunctionData,
    objects::Known,
    occupancy::configuration,
    thread,
};

/// Which default stream NULL stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DefaultStream {
    /// The legacy one.
    Legacy,
    /// The calling thread's.
    PerThread,
}

impl DefaultStream {
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

/// Where the parameters of a launch are, in either way in which CUDA takes them.
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
        let size = size.ok_or(CUDA_ERROR_INVALID_VALUE)?;
        if packed == 0 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        // A buffer that is too short leaves the rest unset, which the driver does not notice either.
        let length = size.min(function.param_bytes);
        Ok(Self::Packed(HostPtr::at(packed as u64).bytes(length)))
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
                    // Most are of one of these sizes, and then no function is called to copy them.
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

/// `cuLaunchKernelEx` of the API table, written from where things are: nothing is allocated for a launch.
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

    /// The worker reads it as the table's own request.
    fn get(_: &mut Reader<'_>) -> std::result::Result<Self, Malformed> {
        Err(Malformed::Range)
    }
}

impl Request for Launch<'_> {
    type Reply = reply::cuLaunchKernelEx;
    const OPERATION: &'static Operation = request::cuLaunchKernelEx::OPERATION;
}

/// The most that a launch in a context may have.
#[derive(Debug, Clone, Copy, Default)]
pub struct Limits {
    grid: [u32; 3],
    block: [u32; 3],
}

impl Limits {
    /// Those of a device; where the host did not say, 0, which no launch keeps.
    pub fn of(info: &DeviceInfo) -> Self {
        let limits = |attributes: [CUdevice_attribute; 3]| {
            attributes.map(|which| device::attribute(info, which).map_or(0, |limit| limit as u32))
        };
        Self {
            grid: limits([
                CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X,
                CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y,
                CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z,
            ]),
            block: limits([
                CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X,
                CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y,
                CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z,
            ]),
        }
    }

    fn hold(&self, config: &LaunchConfig) -> bool {
        let within = |extents: [u32; 3], limits: [u32; 3]| {
            extents
                .iter()
                .zip(limits)
                .all(|(extent, limit)| *extent != 0 && *extent <= limit)
        };
        within([config.grid_x, config.grid_y, config.grid_z], self.grid)
            && within([config.block_x, config.block_y, config.block_z], self.block)
    }
}

/// Whether the launch keeps the function's own limits.
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

/// Launches a function; the calls of a program that launches the same kernels over and over take no lock and
/// allocate nothing.
fn launch(
    client: &Client,
    func: CUfunction,
    config: &LaunchConfig,
    each: InPtr<*const c_void>,
    extra: InPtr<usize>,
) -> Result {
    let context = thread::current_context();
    if context == 0 {
        return Err(CUDA_ERROR_INVALID_CONTEXT);
    }
    let look = |object: &Known| match object {
        Known::Context(context) => Some((context.device, context.limits.hold(config))),
        _ => None,
    };
    let place = client.objects.look(context, look).flatten();
    let streams = client.objects.knows_stream(config.stream);
    let id = Function::id(func);
    let launched = client.objects.look(id, |object| {
        let (Known::Function(function) | Known::Kernel(function)) = object else {
            return Err(CUDA_ERROR_INVALID_HANDLE);
        };
        let request = Launch {
            func: id,
            config,
            params: Parameters::new(function, each, extra)?,
            param_bytes: function.param_bytes,
        };
        let here = function.context == 0 || function.context == context;
        let Some((device, true)) = place.filter(|_| streams && here) else {
            return client.call(&request).map(drop);
        };
        if config.attributes.is_empty() {
            return if fits(client, (function, id), device, config) {
                client.post(&request)
            } else {
                client.call(&request).map(drop)
            };
        }
        // Whether attributes fit is the host's to say. What it took once, it takes again.
        if function.accepted.holds(device, config) {
            return client.post(&request);
        }
        let before = configuration();
        client.call(&request)?;
        function.accepted.note(device, config, before);
        Ok(())
    });
    launched.unwrap_or(Err(CUDA_ERROR_INVALID_HANDLE))
}

/// The most launch configurations with attributes that a function remembers.
const MOST_ACCEPTED: usize = 16;

/// Launch configurations with attributes that the host has taken for a function. The stream makes no difference.
#[derive(Debug, Default)]
pub struct Accepted {
    known: Mutex<(u64, Vec<(CUdevice, LaunchConfig)>)>,
}

impl Accepted {
    fn known(&self) -> MutexGuard<'_, (u64, Vec<(CUdevice, LaunchConfig)>)> {
        self.known
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    fn holds(&self, device: CUdevice, config: &LaunchConfig) -> bool {
        let known = self.known();
        known.0 == configuration()
            && known
                .1
                .iter()
                .any(|(of, taken)| *of == device && same_shape(taken, config))
    }

    /// Notes one that the host took when things were as `before` says.
    fn note(&self, device: CUdevice, config: &LaunchConfig, before: u64) {
        let mut known = self.known();
        if before != configuration() {
            return;
        }
        if known.0 != before || known.1.len() >= MOST_ACCEPTED {
            known.1.clear();
            known.0 = before;
        }
        known.1.push((device, config.clone()));
    }
}

fn same_shape(one: &LaunchConfig, other: &LaunchConfig) -> bool {
    let shape = |config: &LaunchConfig| {
        (
            [config.grid_x, config.grid_y, config.grid_z],
            [config.block_x, config.block_y, config.block_z],
            config.shared_bytes,
        )
    };
    shape(one) == shape(other) && one.attributes == other.attributes
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
            let stream = DefaultStream::$shape.stream(client, hStream)?;
            let config = plain((gridDimX, gridDimY, gridDimZ), (blockDimX, blockDimY, blockDimZ), sharedMemBytes, stream);
            launch(client, f, &config, kernelParams, extra)
        }

        fn $ex(config: InPtr<CUlaunchConfig>, f: CUfunction, kernelParams: InPtr<*const c_void>, extra: InPtr<usize>) {
            let client = client()?;
            let config = lower_config(client, config, DefaultStream::$shape)?;
            launch(client, f, &config, kernelParams, extra)
        }

        #[allow(clippy::too_many_arguments)]
        fn $cooperative(f: CUfunction, gridDimX: u32, gridDimY: u32, gridDimZ: u32, blockDimX: u32, blockDimY: u32, blockDimZ: u32, sharedMemBytes: u32, hStream: CUstream, kernelParams: InPtr<*const c_void>) {
            let client = client()?;
            let stream = DefaultStream::$shape.stream(client, hStream)?;
            let config = plain((gridDimX, gridDimY, gridDimZ), (blockDimX, blockDimY, blockDimZ), sharedMemBytes, stream);
            launch(client, f, &cooperative(config), kernelParams, InPtr::nested(std::ptr::null()))
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

    #[test]
    fn pitfall_47_only_the_shape_that_the_host_took_is_taken_again() {
        let accepted = Accepted::default();
        let taken = cooperative(config());
        // Other tests may set something meanwhile, and what is accepted is forgotten.
        let before = loop {
            let before = configuration();
            accepted.note(0, &taken, before);
            if accepted.holds(0, &taken) {
                break before;
            }
        };
        let other_stream = LaunchConfig {
            stream: 0x160,
            ..taken.clone()
        };
        let larger = LaunchConfig {
            grid_x: 4,
            ..taken.clone()
        };
        assert!(before != configuration() || accepted.holds(0, &other_stream));
        assert!(!accepted.holds(0, &larger));
        assert!(!accepted.holds(0, &config()));
        assert!(!accepted.holds(1, &taken));
        crate::occupancy::reconfigure(|| ());
        assert!(!accepted.holds(0, &taken));
    }

    #[test]
    fn pitfall_28_a_launch_past_a_limit_is_for_the_host_to_judge() {
        let limits = Limits {
            grid: [65535, 65535, 65535],
            block: [1024, 1024, 64],
        };
        assert!(limits.hold(&config()));
        for wrong in [
            plain((0, 1, 1), (1, 1, 1), 0, 0),
            plain((65536, 1, 1), (1, 1, 1), 0, 0),
            plain((1, 1, 1), (1, 1, 65), 0, 0),
            plain((1, 1, 1), (1, 0, 1), 0, 0),
        ] {
            assert!(!limits.hold(&wrong), "{wrong:?}");
        }
        assert!(!Limits::default().hold(&config()));
    }
}
