// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Functions and kernels: their parameters and attributes.

use std::os::raw::c_char;

use gpgpu_protocol::{
    api::{Function, Kernel, Module, Object, object_kind, request},
    cuda::*,
};

use crate::{
    argument::OutPtr,
    client::{Client, client},
    cuda,
    ffi::Result,
    library,
    stores::{answers::local, function::ATTRIBUTES, objects::Known, occupancy::reconfigure},
    thread,
};

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

/// The number of parameters of a function or a kernel.
fn param_count(object: &Known) -> Option<usize> {
    match object {
        Known::Function(function) | Known::Kernel(function) => Some(function.params.len()),
        _ => None,
    }
}

/// Stores the number of parameters of the function or the kernel with this id.
fn count(client: &Client, id: u64, to: OutPtr<usize>) -> Result {
    let found = client.objects.look(id, param_count).flatten();
    to.set(found.ok_or(CUDA_ERROR_INVALID_HANDLE)?)
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
        let client = client()?;
        let place = client.objects.look(Function::id(hfunc), |object| match object {
            Known::Function(function) | Known::Kernel(function) => Some((function.parent, function.context)),
            _ => None,
        });
        let (parent, context) = place.flatten().ok_or(CUDA_ERROR_INVALID_HANDLE)?;
        if object_kind(parent) == Module::KIND {
            return hmod.set(Module::handle(parent));
        }
        // A kernel is in all contexts.
        let context = if context == 0 { library::current_context()? } else { context };
        thread::push_context(context)?;
        let module = library::module(client, parent, context);
        thread::pop_context();
        hmod.set(Module::handle(module?))
    }

    fn cuFuncGetName(name: OutPtr<*const c_char>, hfunc: CUfunction) {
        name.set(name_of(client()?, Function::id(hfunc))?)
    }

    fn cuKernelGetName(name: OutPtr<*const c_char>, hfunc: CUkernel) {
        name.set(name_of(client()?, Kernel::id(hfunc))?)
    }

    fn cuFuncGetParamCount(func: CUfunction, paramCount: OutPtr<usize>) {
        count(client()?, Function::id(func), paramCount)
    }

    fn cuKernelGetParamCount(kernel: CUkernel, paramCount: OutPtr<usize>) {
        count(client()?, Kernel::id(kernel), paramCount)
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
            // The host's driver defines the meaning of NULL and of handles of another kind.
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

    /// `cuFuncIsLoaded`: a loaded function stays loaded.
    fn cuFuncIsLoaded(state: OutPtr<u32>, function: CUfunction) {
        let client = client()?;
        let id = Function::id(function);
        let look = |object: &Known| match object {
            Known::Function(function) => function.is_loaded().then_some(()),
            _ => None,
        };
        if !state.is_null() && local(client, || client.objects.look(id, look).flatten()).is_some() {
            return state.set(CU_FUNCTION_LOADING_STATE_LOADED);
        }
        let reply = client.call(&request::cuFuncIsLoaded { state: !state.is_null(), function: id })?;
        if !state.is_null() && reply.state == CU_FUNCTION_LOADING_STATE_LOADED {
            client.objects.look(id, |object| if let Known::Function(function) = object {
                function.note_loaded();
            });
        }
        state.offer(reply.state);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use gpgpu_protocol::api::{Event, ParamInfo};

    use super::*;
    use crate::stores::function::FunctionData;

    #[test]
    fn the_parameters_of_functions_and_kernels_are_counted() {
        let of = |count| {
            let params = (0..count).map(|index| ParamInfo {
                offset: index * 8,
                size: 8,
            });
            Arc::new(FunctionData::with_params(params.collect()))
        };
        assert_eq!(param_count(&Known::Function(of(3))), Some(3));
        assert_eq!(param_count(&Known::Kernel(of(0))), Some(0));
        assert_eq!(param_count(&Known::made::<Event>(1)), None);
    }
}
