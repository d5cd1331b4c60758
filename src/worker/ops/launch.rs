// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Launches.

use std::ffi::c_void;

use gpgpu_protocol::{
    api::{
        EVENT_ATTRIBUTES, Event, LAUNCH_ATTRIBUTES, LaunchConfig, Object, Stream, reply, request,
    },
    cuda::*,
};

use smallvec::SmallVec;

use super::context::{self, DEFAULT_STACK};
use crate::cuda::driver;
use crate::worker::{
    counts,
    dispatch::Outcome,
    objects::Entry,
    session::{Data, Session},
    traces,
};

/// A launch configuration in the driver's form.
pub struct Lowered {
    attributes: Vec<CUlaunchAttribute>,
    config: CUlaunchConfig,
    /// The id of the stream's context, or 0 for the current one.
    context: u64,
}

impl Lowered {
    /// Looks up the stream and checks the attributes.
    ///
    /// # Errors
    ///
    /// `CUDA_ERROR_INVALID_HANDLE` for the stream, `CUDA_ERROR_NOT_SUPPORTED` for an attribute.
    pub fn new(session: &Session, config: &LaunchConfig) -> Result<Self, CUresult> {
        let mut attributes = Vec::with_capacity(config.attributes.len());
        for attribute in &config.attributes {
            if !LAUNCH_ATTRIBUTES.contains(&attribute.id) {
                return Err(CUDA_ERROR_NOT_SUPPORTED);
            }
            let mut value = CUlaunchAttributeValue {
                pad: attribute.value,
            };
            if EVENT_ATTRIBUTES.contains(&attribute.id) {
                // SAFETY: any bytes are words.
                let words = unsafe { &mut value.words };
                words[0] = session.objects.raw::<Event>(words[0])?;
                if words[0] == 0 {
                    return Err(CUDA_ERROR_INVALID_HANDLE);
                }
            }
            attributes.push(CUlaunchAttribute {
                id: attribute.id,
                pad: [0; 4],
                value,
            });
        }
        let (stream, context) = session.objects.stream(config.stream)?;
        let config = CUlaunchConfig {
            gridDimX: config.grid_x,
            gridDimY: config.grid_y,
            gridDimZ: config.grid_z,
            blockDimX: config.block_x,
            blockDimY: config.block_y,
            blockDimZ: config.block_z,
            sharedMemBytes: config.shared_bytes,
            hStream: stream as CUstream,
            attrs: std::ptr::null_mut(),
            numAttrs: attributes.len() as u32,
        };
        Ok(Self {
            attributes,
            config,
            context,
        })
    }

    /// Charges the library of a kernel in the context of its launch, which is that of the stream.
    ///
    /// # Errors
    ///
    /// As [`Places::enter`](crate::worker::places::Places::enter).
    pub fn place(&self, session: &Session, function: &Entry) -> Result<(), CUresult> {
        match function.places() {
            Some(places) if self.context == 0 => {
                places.enter(session.device_memory, session.current())
            }
            Some(places) => places.enter(session.device_memory, session.objects.home(self.context)),
            None => Ok(()),
        }
    }

    /// The configuration; it points into `self`.
    pub fn config(&mut self) -> CUlaunchConfig {
        CUlaunchConfig {
            attrs: self.attributes.as_mut_ptr(),
            ..self.config
        }
    }
}

/// Every launch. Without attributes it uses `cuLaunchKernel`.
pub fn cuLaunchKernelEx(
    session: &Session,
    request: request::cuLaunchKernelEx,
    _: Data,
) -> Outcome<reply::cuLaunchKernelEx> {
    let function = session.objects.function(request.func)?;
    // The gate was passed for the current context. A default stream has no context of its own, and another function may
    // have got the id since.
    let is_elsewhere = function.context != 0 && function.context != session.current();
    if is_elsewhere && Stream::SPECIAL.contains(&request.config.stream) {
        return Err(CUDA_ERROR_INVALID_HANDLE.into());
    }
    if function.local > DEFAULT_STACK {
        context::reserve_stack(session, function.local.into())?;
    }
    if request.params.0.len() != function.param_bytes() {
        return Err(CUDA_ERROR_INVALID_VALUE.into());
    }
    let mut lowered = Lowered::new(session, &request.config)?;
    lowered.place(session, &function)?;
    let stream = (lowered.config.hStream, lowered.context);
    if !traces::is_traced() && session.singles.launch(session, &request, &function, stream) {
        counts::launch();
        return Ok(reply::cuLaunchKernelEx::default());
    }
    let mut buffer = request.params.0;
    let base = buffer.as_mut_ptr();
    let mut params: SmallVec<[*mut c_void; 16]> = function
        .params()
        .iter()
        .map(|param| base.wrapping_add(param.offset as usize).cast())
        .collect();
    let raw = function.raw as CUfunction;
    let config = lowered.config();
    let none = std::ptr::null_mut();
    // SAFETY: the function and the stream are the driver's and live; each parameter's pointer leads to
    // as many bytes of the buffer as the driver itself said that it has.
    unsafe {
        if config.numAttrs == 0 {
            let (grid, block) = (
                (config.gridDimX, config.gridDimY, config.gridDimZ),
                (config.blockDimX, config.blockDimY, config.blockDimZ),
            );
            let shared = config.sharedMemBytes;
            driver::cuLaunchKernel(
                raw,
                grid.0,
                grid.1,
                grid.2,
                block.0,
                block.1,
                block.2,
                shared,
                config.hStream,
                params.as_mut_ptr(),
                none,
            )?;
        } else {
            driver::cuLaunchKernelEx(&config, raw, params.as_mut_ptr(), none)?;
        }
    }
    counts::launch();
    Ok(reply::cuLaunchKernelEx::default())
}
