//! Functions and kernels: their parameters and attributes.

use std::{
    ffi::CString,
    os::raw::c_char,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use gpgpu_protocol::{
    api::{AttributeValue, Function, FunctionInfo, Kernel, Module, Object, ParamInfo, request},
    cuda::*,
};

pub use crate::occupancy::reconfigure;
use crate::{
    answers::{Answers, bit, local},
    argument::OutPtr,
    border::Result,
    client::{Client, client},
    cuda,
    launch::Accepted,
    objects::Known,
    occupancy::Occupancy,
    thread,
};

/// How many attributes there are.
const ATTRIBUTES: usize = CU_FUNC_ATTRIBUTE_MAX as usize;

/// Each attribute's value, and behind these the value that the program set last.
type Attributes = Answers<{ 2 * ATTRIBUTES }>;

/// What the process knows of a function, or of a kernel of a library.
#[derive(Debug)]
pub struct FunctionData {
    /// The name, as CUDA gives it out: it stays where it is for as long as the module lives.
    pub name: CString,
    /// The context, or 0 for a kernel, which is in all.
    pub context: u64,
    /// The module or library that it comes from.
    pub parent: u64,
    /// Where each parameter stands.
    pub params: Box<[ParamInfo]>,
    /// The bytes of all parameters together.
    pub param_bytes: usize,
    /// The kernel that it is in its context, if it is one.
    base: Option<Arc<FunctionData>>,
    /// How often an attribute was set, and how often the base's were when the attributes were asked for.
    sets: AtomicU64,
    base_sets: AtomicU64,
    /// Of a kernel, by device; of a function, one.
    attributes: Box<[Attributes]>,
    loaded: AtomicBool,
    /// What fits on a multiprocessor.
    pub occupancy: Occupancy,
    /// What launches with attributes the host has taken.
    pub accepted: Accepted,
}

/// What an attribute is in an answer.
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
            params,
            base_sets: AtomicU64::new(base.as_ref().map_or(0, |base| base.sets())),
            base,
            sets: AtomicU64::new(0),
            attributes: (0..devices).map(|_| Attributes::default()).collect(),
            loaded: AtomicBool::new(false),
            occupancy: Occupancy::default(),
            accepted: Accepted::default(),
        }
    }

    /// A function of a module as the host described it.
    ///
    /// # Errors
    ///
    /// The code of asking for parameters that did not come along.
    pub fn new(
        client: &Client,
        id: u64,
        name: &str,
        (context, parent): (u64, u64),
        info: FunctionInfo,
    ) -> Result<Arc<Self>> {
        let attributes = info.attributes.clone().into_vec();
        let name = CString::new(name).unwrap_or_default();
        let params = all_params(client, id, info)?;
        let function = Self::make(name, (context, parent), params, 1, None);
        function.note(0, &attributes);
        Ok(Arc::new(function))
    }

    /// A kernel of a library as the host described it, for one of so many devices.
    ///
    /// # Errors
    ///
    /// As for [`FunctionData::new`].
    pub fn kernel(
        client: &Client,
        id: u64,
        name: &str,
        library: u64,
        info: FunctionInfo,
        (device, devices): (CUdevice, usize),
    ) -> Result<Arc<Self>> {
        let attributes = info.attributes.clone().into_vec();
        let name = CString::new(name).unwrap_or_default();
        let params = all_params(client, id, info)?;
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

    fn sets(&self) -> u64 {
        self.sets.load(Ordering::Acquire)
    }

    /// The attributes on a device. What was set of the kernel since holds for its functions too.
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

    /// An attribute on a device, if it is known.
    pub fn known(&self, device: CUdevice, attribute: CUfunction_attribute) -> Option<i32> {
        let value = self.attributes(device)?.get(attribute as usize)?;
        Some(value as u32 as i32)
    }

    /// An attribute on a device, asked of the host unless it is known; `id` is the function's own.
    pub fn attribute(
        &self,
        client: &Client,
        id: u64,
        device: CUdevice,
        attribute: CUfunction_attribute,
    ) -> Result<i32> {
        let host = || ask_attribute(client, id, self.is_kernel().then_some(device), attribute);
        match self.attributes(device) {
            // Behind the attributes are no attributes.
            Some(answers) if !client.is_corrupted() && (attribute as usize) < ATTRIBUTES => answers
                .ask(attribute as usize, || host().map(word))
                .map(|value| value as u32 as i32),
            _ => host(),
        }
    }

    /// Sets an attribute on a device, unless the program set it to this value before.
    fn set_attribute(
        &self,
        client: &Client,
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
        if !client.is_corrupted() && answers.get(set) == Some(word(value)) {
            return Ok(());
        }
        // These two concern nothing but themselves, and are afterwards what they were set to.
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

    /// The attributes may have changed in a way of which the process knows nothing.
    fn forget_attributes(&self) {
        self.attributes.iter().for_each(Answers::forget);
        self.sets.fetch_add(1, Ordering::AcqRel);
    }
}

/// All parameters of a new function: those that came along, or asked for if there are more.
fn all_params(client: &Client, func: u64, info: FunctionInfo) -> Result<Box<[ParamInfo]>> {
    if !info.has_more {
        return Ok(info.params.into_vec().into());
    }
    let request = request::gpgpuFunctionParams { func, params: true };
    Ok(client.call(&request)?.params.into())
}

/// Asks the host for an attribute: of a function, or of a kernel on a device.
fn ask_attribute(
    client: &Client,
    id: u64,
    device: Option<CUdevice>,
    attrib: CUfunction_attribute,
) -> Result<i32> {
    Ok(match device {
        Some(dev) => {
            client
                .call(&request::cuKernelGetAttribute {
                    pi: true,
                    attrib,
                    kernel: id,
                    dev,
                })?
                .pi
        }
        None => {
            client
                .call(&request::cuFuncGetAttribute {
                    pi: true,
                    attrib,
                    hfunc: id,
                })?
                .pi
        }
    })
}

fn param(
    client: &Client,
    id: u64,
    index: usize,
    offset: OutPtr<usize>,
    size: OutPtr<usize>,
) -> Result {
    let look = |object: &Known| match object {
        Known::Function(function) | Known::Kernel(function) => {
            Some(function.params.get(index).copied())
        }
        _ => None,
    };
    let found = client.objects.look(id, look).flatten();
    let param = found
        .ok_or(CUDA_ERROR_INVALID_HANDLE)?
        .ok_or(CUDA_ERROR_INVALID_VALUE)?;
    offset.required()?;
    offset.offer(param.offset as usize);
    size.offer(param.size as usize);
    Ok(())
}

fn name_of(client: &Client, id: u64) -> Result<*const c_char> {
    let look = |object: &Known| match object {
        Known::Function(function) | Known::Kernel(function) => Some(function.name.as_ptr()),
        _ => None,
    };
    let name = client.objects.look(id, look).flatten();
    name.ok_or(CUDA_ERROR_INVALID_HANDLE)
}

cuda! {
    fn cuFuncGetModule(hmod: OutPtr<CUmodule>, hfunc: CUfunction) {
        let parent = client()?.objects.look(Function::id(hfunc), |object| match object {
            Known::Function(function) | Known::Kernel(function) => Some(function.parent),
            _ => None,
        });
        hmod.set(Module::handle(parent.flatten().ok_or(CUDA_ERROR_INVALID_HANDLE)?))
    }

    fn cuFuncGetName(name: OutPtr<*const c_char>, hfunc: CUfunction) {
        name.set(name_of(client()?, Function::id(hfunc))?)
    }

    fn cuKernelGetName(name: OutPtr<*const c_char>, hfunc: CUkernel) {
        name.set(name_of(client()?, Kernel::id(hfunc))?)
    }

    fn cuFuncGetParamInfo(func: CUfunction, paramIndex: usize, paramOffset: OutPtr<usize>, paramSize: OutPtr<usize>) {
        param(client()?, Function::id(func), paramIndex, paramOffset, paramSize)
    }

    fn cuKernelGetParamInfo(kernel: CUkernel, paramIndex: usize, paramOffset: OutPtr<usize>, paramSize: OutPtr<usize>) {
        param(client()?, Kernel::id(kernel), paramIndex, paramOffset, paramSize)
    }

    fn cuFuncGetAttribute(pi: OutPtr<i32>, attrib: CUfunction_attribute, hfunc: CUfunction) {
        let client = client()?;
        let id = Function::id(hfunc);
        let look = |object: &Known| match object {
            Known::Function(function) => function.known(0, attrib),
            _ => None,
        };
        let usual = !pi.is_null() && (attrib as usize) < ATTRIBUTES && thread::has_context(client);
        if usual && let Some(value) = local(client, || client.objects.look(id, look).flatten()) {
            return pi.set(value);
        }
        let value = match client.objects.get(id) {
            Some(Known::Function(function)) if usual => function.attribute(client, id, 0, attrib)?,
            // The host's driver decides what NULL and handles of another kind mean.
            _ => client.call(&request::cuFuncGetAttribute { pi: !pi.is_null(), attrib, hfunc: id })?.pi,
        };
        pi.offer(value);
        Ok(())
    }

    fn cuKernelGetAttribute(pi: OutPtr<i32>, attrib: CUfunction_attribute, kernel: CUkernel, dev: CUdevice) {
        let client = client()?;
        let id = Kernel::id(kernel);
        let look = |object: &Known| match object {
            Known::Kernel(kernel) => kernel.known(dev, attrib),
            _ => None,
        };
        let usual = !pi.is_null() && (attrib as usize) < ATTRIBUTES;
        if usual && let Some(value) = local(client, || client.objects.look(id, look).flatten()) {
            return pi.set(value);
        }
        let value = match client.objects.get(id) {
            Some(Known::Kernel(kernel)) if usual => kernel.attribute(client, id, dev, attrib)?,
            _ => client.call(&request::cuKernelGetAttribute { pi: !pi.is_null(), attrib, kernel: id, dev })?.pi,
        };
        pi.offer(value);
        Ok(())
    }

    fn cuFuncSetAttribute(hfunc: CUfunction, attrib: CUfunction_attribute, value: i32) {
        let client = client()?;
        let id = Function::id(hfunc);
        let host = || client.call(&request::cuFuncSetAttribute { hfunc: id, attrib, value }).map(drop);
        match client.objects.get(id) {
            Some(Known::Function(function)) if thread::has_context(client) => {
                function.set_attribute(client, 0, attrib, value, host)
            }
            Some(Known::Function(function) | Known::Kernel(function)) => {
                let result = reconfigure(host);
                function.forget_attributes();
                result
            }
            _ => host(),
        }
    }

    fn cuKernelSetAttribute(attrib: CUfunction_attribute, val: i32, kernel: CUkernel, dev: CUdevice) {
        let client = client()?;
        let id = Kernel::id(kernel);
        let host = || client.call(&request::cuKernelSetAttribute { attrib, val, kernel: id, dev }).map(drop);
        match client.objects.get(id) {
            Some(Known::Kernel(kernel)) => kernel.set_attribute(client, dev, attrib, val, host),
            _ => host(),
        }
    }

    fn cuFuncSetCacheConfig(hfunc: CUfunction, config: CUfunc_cache) {
        let client = client()?;
        reconfigure(|| client.call(&request::cuFuncSetCacheConfig { hfunc: Function::id(hfunc), config }).map(drop))
    }

    fn cuKernelSetCacheConfig(kernel: CUkernel, config: CUfunc_cache, dev: CUdevice) {
        let client = client()?;
        reconfigure(|| client.call(&request::cuKernelSetCacheConfig { kernel: Kernel::id(kernel), config, dev }).map(drop))
    }

    fn cuFuncSetSharedMemConfig(hfunc: CUfunction, config: CUsharedconfig) {
        let client = client()?;
        reconfigure(|| client.call(&request::cuFuncSetSharedMemConfig { hfunc: Function::id(hfunc), config }).map(drop))
    }

    /// `cuFuncIsLoaded`: what was loaded once stays loaded.
    fn cuFuncIsLoaded(state: OutPtr<u32>, function: CUfunction) {
        let client = client()?;
        let id = Function::id(function);
        let look = |object: &Known| match object {
            Known::Function(function) => function.loaded.load(Ordering::Relaxed).then_some(()),
            _ => None,
        };
        if !state.is_null() && local(client, || client.objects.look(id, look).flatten()).is_some() {
            return state.set(CU_FUNCTION_LOADING_STATE_LOADED);
        }
        let reply = client.call(&request::cuFuncIsLoaded { state: !state.is_null(), function: id })?;
        if !state.is_null() && reply.state == CU_FUNCTION_LOADING_STATE_LOADED {
            client.objects.look(id, |object| if let Known::Function(function) = object {
                function.loaded.store(true, Ordering::Relaxed);
            });
        }
        state.offer(reply.state);
        Ok(())
    }
}

#[cfg(test)]
impl FunctionData {
    /// A function of which only the parameters matter.
    pub fn with_params(params: Vec<ParamInfo>) -> Self {
        Self::make(CString::default(), (1, 0), params.into(), 1, None)
    }
}
