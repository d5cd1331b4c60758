// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The process's state of functions, and of kernels of libraries.

use std::{
    ffi::CString,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering},
    },
};

use gpgpu_client::{Connection, ffi::Result};
use gpgpu_protocol::{
    api::{AttributeValue, FunctionInfo, ParamInfo, request},
    cuda::*,
};

use crate::launch_older::Kept;

use super::{
    answers::{Answers, bit},
    launches::Accepted,
    occupancy::{Occupancy, reconfigure},
};

/// The number of attributes.
pub const ATTRIBUTES: usize = CU_FUNC_ATTRIBUTE_MAX as usize;

/// Each attribute's value, followed by the values that the program set last.
type Attributes = Answers<{ 2 * ATTRIBUTES }>;

/// The process's state of a function, or of a kernel of a library.
#[derive(Debug)]
pub struct FunctionData {
    /// The name that CUDA returns. Its address does not change while the module exists.
    pub name: CString,
    /// The context, or 0 for a kernel, which exists in all.
    pub context: u64,
    /// The module or library from which it comes.
    pub parent: u64,
    /// The place of each parameter.
    pub params: Box<[ParamInfo]>,
    /// The same for graphs: offsets and sizes.
    pub layout: Arc<[(usize, usize)]>,
    /// The total size of the parameters in bytes.
    pub param_bytes: usize,
    /// The kernel of which this is the function in one context, if it is one.
    base: Option<Arc<FunctionData>>,
    /// The number of times that an attribute was set, and the base's number when the attributes were queried.
    sets: AtomicU64,
    base_sets: AtomicU64,
    /// For a kernel, by device; for a function, one entry.
    attributes: Box<[Attributes]>,
    loaded: AtomicBool,
    /// Whether it may print: 0 if that was not queried yet, otherwise [`SILENT`] or [`PRINTS`].
    printing: AtomicU8,
    /// The occupancy of a multiprocessor.
    pub occupancy: Occupancy,
    /// The forms of launches with attributes that the host has accepted.
    pub accepted: Accepted,
    /// The settings of launches of the older kind.
    pub older: Kept,
}

/// It does not print.
const SILENT: u8 = 1;
/// It may print.
const PRINTS: u8 = 2;

/// The number of an attribute in an answer.
fn word(value: i32) -> u64 {
    u64::from(value as u32)
}

impl FunctionData {
    fn make(
        name: CString,
        (context, parent): (u64, u64),
        params: Box<[ParamInfo]>,
        devices: usize,
        base: Option<Arc<FunctionData>>,
    ) -> Self {
        let end = |param: &ParamInfo| param.offset as usize + param.size as usize;
        Self {
            name,
            context,
            parent,
            param_bytes: params.iter().map(end).max().unwrap_or(0),
            layout: params
                .iter()
                .map(|of| (of.offset as usize, of.size as usize))
                .collect(),
            params,
            base_sets: AtomicU64::new(base.as_ref().map_or(0, |base| base.sets())),
            base,
            sets: AtomicU64::new(0),
            attributes: (0..devices).map(|_| Attributes::default()).collect(),
            loaded: AtomicBool::new(false),
            printing: AtomicU8::new(0),
            occupancy: Occupancy::default(),
            accepted: Accepted::default(),
            older: Kept::default(),
        }
    }

    /// A function of a module as the host described it.
    ///
    /// # Errors
    ///
    /// The error of the query for parameters that did not come with the answer.
    pub fn new(
        connection: &Connection,
        id: u64,
        name: &str,
        (context, parent): (u64, u64),
        info: FunctionInfo,
    ) -> Result<Arc<Self>> {
        let attributes = info.attributes.clone().into_vec();
        let name = CString::new(name).unwrap_or_default();
        let params = all_params(connection, id, info)?;
        let function = Self::make(name, (context, parent), params, 1, None);
        function.note(0, &attributes);
        Ok(Arc::new(function))
    }

    /// A kernel of a library as the host described it, for this many devices.
    ///
    /// # Errors
    ///
    /// As for [`FunctionData::new`].
    pub fn kernel(
        connection: &Connection,
        id: u64,
        name: &str,
        library: u64,
        info: FunctionInfo,
        (device, devices): (CUdevice, usize),
    ) -> Result<Arc<Self>> {
        let attributes = info.attributes.clone().into_vec();
        let name = CString::new(name).unwrap_or_default();
        let params = all_params(connection, id, info)?;
        let kernel = Self::make(name, (0, library), params, devices, None);
        kernel.note(device, &attributes);
        Ok(Arc::new(kernel))
    }

    /// A kernel in one context.
    pub fn of_kernel(kernel: &Arc<Self>, context: u64) -> Arc<Self> {
        Arc::new(Self::make(
            kernel.name.clone(),
            (context, kernel.parent),
            kernel.params.clone(),
            1,
            Some(Arc::clone(kernel)),
        ))
    }

    fn note(&self, device: CUdevice, attributes: &[AttributeValue]) {
        if let Some(answers) = self.attributes.get(device as usize) {
            for (which, answer) in attributes.iter().enumerate().take(ATTRIBUTES) {
                if answer.result == CUDA_SUCCESS {
                    answers.note(which, word(answer.value));
                }
            }
        }
    }

    fn is_kernel(&self) -> bool {
        self.context == 0
    }

    #[inline]
    fn sets(&self) -> u64 {
        self.sets.load(Ordering::Acquire)
    }

    /// The attributes on a device. Later settings of the kernel apply to its functions too.
    #[inline]
    fn attributes(&self, device: CUdevice) -> Option<&Attributes> {
        if let Some(base) = &self.base {
            let sets = base.sets();
            if self.base_sets.swap(sets, Ordering::AcqRel) != sets {
                self.attributes.iter().for_each(Answers::forget);
            }
        }
        let place = if self.is_kernel() { device as usize } else { 0 };
        self.attributes.get(place)
    }

    /// An attribute on a device, if it is cached.
    #[inline]
    pub fn known(&self, device: CUdevice, attribute: CUfunction_attribute) -> Option<i32> {
        let value = self.attributes(device)?.get(attribute as usize)?;
        Some(value as u32 as i32)
    }

    /// An attribute on a device, from the host unless it is cached; `id` is the function's own.
    pub fn attribute(
        &self,
        connection: &Connection,
        id: u64,
        device: CUdevice,
        attribute: CUfunction_attribute,
    ) -> Result<i32> {
        let host = || {
            ask_attribute(
                connection,
                id,
                self.is_kernel().then_some(device),
                attribute,
            )
        };
        match self.attributes(device) {
            // The values after the attributes are not attributes.
            Some(answers) if !connection.is_corrupted() && (attribute as usize) < ATTRIBUTES => {
                answers
                    .ask(attribute as usize, || host().map(word))
                    .map(|value| value as u32 as i32)
            }
            _ => host(),
        }
    }

    /// Sets an attribute on a device, unless the program has set it to this value before.
    pub fn set_attribute(
        &self,
        connection: &Connection,
        device: CUdevice,
        attribute: CUfunction_attribute,
        value: i32,
        host: impl FnOnce() -> Result,
    ) -> Result {
        let which = attribute as usize;
        let Some(answers) = self.attributes(device).filter(|_| which < ATTRIBUTES) else {
            return reconfigure(host);
        };
        let set = ATTRIBUTES + which;
        if !connection.is_corrupted() && answers.get(set) == Some(word(value)) {
            return Ok(());
        }
        // These two affect no others, and then have the value that was set.
        let plain = [
            CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
            CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT,
        ]
        .contains(&attribute);
        let untrue = if plain { bit(which) } else { u32::MAX };
        let result = reconfigure(|| answers.set(set, word(value), untrue, host));
        if result.is_ok() && plain {
            answers.copy(set, which);
        }
        self.sets.fetch_add(1, Ordering::AcqRel);
        result
    }

    /// Drops the cached attributes, which may have changed without this process's knowledge.
    pub fn forget_attributes(&self) {
        self.attributes.iter().for_each(Answers::forget);
        self.sets.fetch_add(1, Ordering::AcqRel);
    }

    /// Whether the function with this id may print, according to the host, which is asked at its first launch.
    #[inline]
    pub fn may_print(&self, connection: &Connection, id: u64) -> Result<bool> {
        match self.printing.load(Ordering::Relaxed) {
            0 => {
                let prints = connection.may_print(id, self.parent)?;
                let known = if prints { PRINTS } else { SILENT };
                self.printing.store(known, Ordering::Relaxed);
                Ok(prints)
            }
            known => Ok(known == PRINTS),
        }
    }

    /// Whether the host has reported that it is loaded. A loaded function stays loaded.
    pub fn is_loaded(&self) -> bool {
        self.loaded.load(Ordering::Relaxed)
    }

    /// Records that the host has reported so.
    pub fn note_loaded(&self) {
        self.loaded.store(true, Ordering::Relaxed);
    }
}

/// All parameters of a new function: those in the answer, or queried if there are more.
fn all_params(connection: &Connection, func: u64, info: FunctionInfo) -> Result<Box<[ParamInfo]>> {
    if !info.has_more {
        return Ok(info.params.into_vec().into());
    }
    let request = request::gpgpuFunctionParams { func, params: true };
    Ok(connection.call(&request)?.params.into())
}

/// Queries an attribute from the host: of a function, or of a kernel on a device.
fn ask_attribute(
    connection: &Connection,
    id: u64,
    device: Option<CUdevice>,
    attrib: CUfunction_attribute,
) -> Result<i32> {
    Ok(match device {
        Some(dev) => {
            connection
                .call(&request::cuKernelGetAttribute {
                    pi: true,
                    attrib,
                    kernel: id,
                    dev,
                })?
                .pi
        }
        None => {
            connection
                .call(&request::cuFuncGetAttribute {
                    pi: true,
                    attrib,
                    hfunc: id,
                })?
                .pi
        }
    })
}

#[cfg(test)]
impl FunctionData {
    /// A function for tests, with only parameters.
    pub fn with_params(params: Vec<ParamInfo>) -> Self {
        Self::make(CString::default(), (1, 0), params.into(), 1, None)
    }
}
