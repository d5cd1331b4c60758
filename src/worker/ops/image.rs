// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Loading images: the options and logs of the just-in-time linker.

use std::{ffi::c_void, sync::Arc};

use gpgpu_protocol::{
    api::{JitLog, JitOption},
    codec::Blob,
    cuda::*,
};

use super::library::device;
use crate::{
    account::Charge,
    cuda::driver,
    worker::{images::Image, session::Session, unpacking},
};

/// The maximum size of each log for a guest, in bytes.
const LOG_BYTES: usize = 16 << 10;

/// Options whose values are numbers. All others have pointers, or concern features that the protocol does not support.
const PLAIN: &[CUjit_option] = &[
    CU_JIT_MAX_REGISTERS,
    CU_JIT_THREADS_PER_BLOCK,
    CU_JIT_OPTIMIZATION_LEVEL,
    CU_JIT_TARGET_FROM_CUCONTEXT,
    CU_JIT_TARGET,
    CU_JIT_FALLBACK_STRATEGY,
    CU_JIT_GENERATE_DEBUG_INFO,
    CU_JIT_LOG_VERBOSE,
    CU_JIT_GENERATE_LINE_INFO,
    CU_JIT_CACHE_MODE,
    CU_JIT_POSITION_INDEPENDENT_CODE,
    CU_JIT_MIN_CTA_PER_SM,
    CU_JIT_MAX_THREADS_PER_BLOCK,
    CU_JIT_OVERRIDE_DIRECTIVE_VALUES,
    CU_JIT_WALL_TIME,
];

/// The options of one load, with buffers for the linker's logs.
pub struct Jit {
    options: Vec<CUjit_option>,
    values: Vec<*mut c_void>,
    info: Vec<u8>,
    error: Vec<u8>,
}

// SAFETY: the values that are addresses lead into its own buffers.
unsafe impl Send for Jit {}

impl Jit {
    /// The guest's options, with buffers of this process for its logs.
    ///
    /// # Errors
    ///
    /// `CUDA_ERROR_NOT_SUPPORTED` for an option that the protocol does not support.
    pub fn new(wanted: &[JitOption]) -> Result<Self, CUresult> {
        let mut jit = Self {
            options: Vec::new(),
            values: Vec::new(),
            info: Vec::new(),
            error: Vec::new(),
        };
        for JitOption { option, value } in wanted {
            match *option {
                CU_JIT_INFO_LOG_BUFFER => {
                    jit.info.resize(LOG_BYTES, 0);
                    let buffer = jit.info.as_mut_ptr().cast();
                    jit.push(CU_JIT_INFO_LOG_BUFFER, buffer);
                    jit.push(CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES, LOG_BYTES as *mut c_void);
                }
                CU_JIT_ERROR_LOG_BUFFER => {
                    jit.error.resize(LOG_BYTES, 0);
                    let buffer = jit.error.as_mut_ptr().cast();
                    jit.push(CU_JIT_ERROR_LOG_BUFFER, buffer);
                    jit.push(CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES, LOG_BYTES as *mut c_void);
                }
                CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES | CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES => {}
                plain if PLAIN.contains(&plain) => jit.push(plain, *value as *mut c_void),
                _ => return Err(CUDA_ERROR_NOT_SUPPORTED),
            }
        }
        Ok(jit)
    }

    fn push(&mut self, option: CUjit_option, value: *mut c_void) {
        self.options.push(option);
        self.values.push(value);
    }

    /// The number of options, and the two arrays for the driver, which are valid as long as `self`.
    pub fn arrays(&mut self) -> (u32, *mut CUjit_option, *mut *mut c_void) {
        (
            self.options.len() as u32,
            self.options.as_mut_ptr(),
            self.values.as_mut_ptr(),
        )
    }

    fn value(&self, wanted: CUjit_option) -> usize {
        self.options
            .iter()
            .position(|option| *option == wanted)
            .map_or(0, |i| self.values[i] as usize)
    }

    /// The linker's logs.
    pub fn log(&self) -> JitLog {
        let text = |buffer: &[u8]| {
            Blob(
                buffer
                    .iter()
                    .copied()
                    .take_while(|byte| *byte != 0)
                    .collect(),
            )
        };
        JitLog {
            info: text(&self.info),
            error: text(&self.error),
            wall_time: f32::from_bits(self.value(CU_JIT_WALL_TIME) as u32),
            threads_per_block: self.value(CU_JIT_THREADS_PER_BLOCK) as u32,
        }
    }
}

/// A device's attribute; 0 if the driver does not know it.
pub fn device_attribute(device: CUdevice, attribute: CUdevice_attribute) -> u64 {
    let mut value = 0;
    // SAFETY: the pointer is to a value that lives across the call.
    let asked = unsafe { driver::cuDeviceGetAttribute(&mut value, attribute, device) };
    asked.map_or(0, |()| u64::try_from(value).unwrap_or(0))
}

/// A device's compute capability, times ten.
fn capability(device: CUdevice) -> u32 {
    let major = device_attribute(device, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
    let minor = device_attribute(device, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
    (major * 10 + minor) as u32
}

/// An image's memory on a device in each context into which it is loaded, by the devices' compute capability.
#[derive(Debug)]
pub struct Needs(Vec<(u32, Result<u64, CUresult>)>);

impl Needs {
    /// An image's memory on each of the client's devices; `None` without a limit, because the analysis takes long.
    ///
    /// # Errors
    ///
    /// `CUDA_ERROR_INVALID_IMAGE` if the memory on the current context's device is unknown.
    pub fn of(session: &Session, image: &Image) -> Result<Option<Self>, CUresult> {
        if !is_limited(session) {
            return Ok(None);
        }
        let current = device(session);
        let mut needs = Self(Vec::new());
        for device in devices(session).into_iter().chain([current]) {
            let capability = capability(device);
            if needs.find(capability).is_none() {
                needs.0.push((capability, device_bytes(image, capability)));
            }
        }
        needs.bytes(current)?;
        Ok(Some(needs))
    }

    fn find(&self, capability: u32) -> Option<Result<u64, CUresult>> {
        let found = self.0.iter().find(|(of, _)| *of == capability);
        found.map(|(_, bytes)| *bytes)
    }

    /// The bytes on a device.
    ///
    /// # Errors
    ///
    /// `CUDA_ERROR_INVALID_IMAGE` if the memory is unknown.
    pub fn bytes(&self, device: CUdevice) -> Result<u64, CUresult> {
        let found = self.find(capability(device));
        found.unwrap_or(Err(CUDA_ERROR_INVALID_IMAGE))
    }
}

fn is_limited(session: &Session) -> bool {
    let shares = session.shares.get();
    shares.is_some_and(|shares| shares.quota.limit().is_some())
}

/// The devices that the client may use, by the driver's numbers.
fn devices(session: &Session) -> Vec<CUdevice> {
    if let gpus @ [_, ..] = session.gpus() {
        return gpus.iter().map(|gpu| *gpu as CUdevice).collect();
    }
    let mut count = 0;
    // SAFETY: the pointer is to a value that lives across the call.
    let asked = unsafe { driver::cuDeviceGetCount(&mut count) };
    asked.map_or(Vec::new(), |()| (0..count).collect())
}

fn device_bytes(image: &Image, capability: u32) -> Result<u64, CUresult> {
    let (_, bytes) = image
        .with_nul()
        .split_last()
        .ok_or(CUDA_ERROR_INVALID_IMAGE)?;
    let _room = unpacking::room(bytes);
    gpgpu_image::size::device_bytes(bytes, capability).map_err(|broken| {
        if crate::worker::may_log() {
            tracing::info!(
                "Image refused: the VM has a memory limit, and the memory of the image is unknown: {broken}"
            );
        }
        CUDA_ERROR_INVALID_IMAGE
    })
}

/// Searches the image of a module or library for kernels that print.
pub fn note_printing(session: &Session, object: u64, image: &Arc<Image>) {
    let mut capabilities: Vec<_> = devices(session).into_iter().map(capability).collect();
    capabilities.dedup();
    session.printing.note(object, image, capabilities);
}

/// Charges an image's memory on a device, if there is a limit: the analysis takes long.
///
/// # Errors
///
/// `CUDA_ERROR_OUT_OF_MEMORY` above the limit, `CUDA_ERROR_INVALID_IMAGE` if the memory is unknown.
pub fn reserve(
    session: &Session,
    device: CUdevice,
    image: &Image,
) -> Result<Option<Charge>, CUresult> {
    if !is_limited(session) {
        return Ok(None);
    }
    session
        .device_memory
        .reserve(device, device_bytes(image, capability(device))?)
}
