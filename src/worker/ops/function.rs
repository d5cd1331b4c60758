// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Properties of functions, and occupancy.

use std::sync::Arc;

use gpgpu_protocol::{
    api::{AttributeValue, Function, FunctionInfo, ParamInfo, reply, request},
    codec::Few,
    cuda::*,
};

use super::launch::Lowered;
use crate::cuda::driver;
use crate::worker::{
    dispatch::Outcome,
    grace::{self, Name},
    objects::Params,
    places::Places,
    session::{Data, Session},
};

/// The maximum number of parameters: CUDA's limit is 32,764 bytes of them.
const MAX_PARAMS: usize = 32_764;

/// Queries parameters one by one until the driver reports that there are no more.
pub fn params(
    mut ask: impl FnMut(usize, &mut usize, &mut usize) -> Result<(), CUresult>,
) -> Result<Vec<ParamInfo>, CUresult> {
    let mut params = Vec::new();
    for index in 0..=MAX_PARAMS {
        let (mut offset, mut size) = (0, 0);
        match ask(index, &mut offset, &mut size) {
            Ok(()) => params.push(ParamInfo {
                offset: offset as u32,
                size: size as u32,
            }),
            Err(CUDA_ERROR_INVALID_VALUE) => return Ok(params),
            Err(CUDA_ERROR_NOT_SUPPORTED) => {
                if crate::worker::may_log() {
                    tracing::error!(
                        "The host's driver does not report a kernel's parameters: CUDA 12.4 or later is required"
                    );
                }
                return Err(CUDA_ERROR_NOT_SUPPORTED);
            }
            Err(code) => return Err(code),
        }
    }
    Ok(params)
}

/// An attribute's value, or the error code of the query.
pub fn attribute(ask: impl FnOnce(&mut i32) -> Result<(), CUresult>) -> AttributeValue {
    let mut value = 0;
    let result = ask(&mut value).err().unwrap_or(CUDA_SUCCESS);
    AttributeValue { result, value }
}

/// A function's parameters and attributes.
pub fn describe(function: CUfunction) -> Result<Described, CUresult> {
    // SAFETY: the function is the driver's and lives; the pointers live across the calls.
    let params = params(|index, offset, size| unsafe {
        driver::cuFuncGetParamInfo(function, index, offset, size)
    })?;
    let attributes = (0..CU_FUNC_ATTRIBUTE_MAX)
        .map(|which| {
            attribute(|value| {
                // SAFETY: as above.
                unsafe { driver::cuFuncGetAttribute(value, which, function) }
            })
        })
        .collect();
    Ok(Described { params, attributes })
}

/// The properties of a function or kernel.
pub struct Described {
    /// The parameters.
    pub params: Vec<ParamInfo>,
    /// The attributes.
    pub attributes: Vec<AttributeValue>,
}

impl Described {
    /// The bytes of local device memory of each of its threads.
    pub fn local(&self) -> u32 {
        let attribute = self
            .attributes
            .get(CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES as usize);
        attribute.map_or(0, |found| u32::try_from(found.value).unwrap_or(0))
    }

    /// The properties that a launch needs.
    pub fn launched(self, places: Option<Arc<Places>>) -> Arc<Params> {
        let list = self.params;
        Arc::new(Params { list, places })
    }

    /// The properties that the guest gets immediately; it queries the others.
    pub fn info(&self) -> FunctionInfo {
        let params = Few::first_of(self.params.iter().copied());
        FunctionInfo {
            has_more: self.params.len() > params.len(),
            params,
            attributes: Few::first_of(self.attributes.iter().copied()),
        }
    }
}

/// All parameters of a function.
pub fn gpgpuFunctionParams(
    session: &Session,
    request: request::gpgpuFunctionParams,
    _: Data,
) -> Outcome<reply::gpgpuFunctionParams> {
    let function = session.objects.function(request.func)?;
    Ok(reply::gpgpuFunctionParams {
        params: function.params().to_vec(),
        ..Default::default()
    })
}

/// `cuFuncLoad`. The driver may wait for the context's work. It accepts no kernel (observed with driver 580).
pub fn cuFuncLoad(
    session: &Session,
    request: request::cuFuncLoad,
    _: Data,
) -> Outcome<reply::cuFuncLoad> {
    let function = session.objects.entry::<Function>(request.function);
    let function = function.ok_or(CUDA_ERROR_INVALID_HANDLE)?;
    let of = [function.parent, function.context].map(Name::Object);
    grace::narrow(&[of, session.used()].concat());
    // SAFETY: the function is the driver's, and lives until this ends: its module or library does.
    unsafe { driver::cuFuncLoad(function.raw as CUfunction)? };
    Ok(reply::cuFuncLoad::default())
}

/// `cuOccupancyMaxActiveClusters`.
pub fn cuOccupancyMaxActiveClusters(
    session: &Session,
    request: request::cuOccupancyMaxActiveClusters,
    _: Data,
) -> Outcome<reply::cuOccupancyMaxActiveClusters> {
    let function = session.function(request.func)?;
    let mut lowered = Lowered::new(session, &request.config)?;
    lowered.place(session, &function)?;
    let function = function.raw as CUfunction;
    let mut clusters = 0;
    // SAFETY: the function is the driver's; the configuration lives across the call.
    unsafe { driver::cuOccupancyMaxActiveClusters(&mut clusters, function, &lowered.config())? };
    Ok(reply::cuOccupancyMaxActiveClusters {
        clusters,
        ..Default::default()
    })
}

/// `cuOccupancyMaxPotentialClusterSize`.
pub fn cuOccupancyMaxPotentialClusterSize(
    session: &Session,
    request: request::cuOccupancyMaxPotentialClusterSize,
    _: Data,
) -> Outcome<reply::cuOccupancyMaxPotentialClusterSize> {
    let function = session.function(request.func)?;
    let mut lowered = Lowered::new(session, &request.config)?;
    lowered.place(session, &function)?;
    let function = function.raw as CUfunction;
    let mut size = 0;
    // SAFETY: as above.
    unsafe { driver::cuOccupancyMaxPotentialClusterSize(&mut size, function, &lowered.config())? };
    Ok(reply::cuOccupancyMaxPotentialClusterSize {
        size,
        ..Default::default()
    })
}
