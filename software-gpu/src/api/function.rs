// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Functions: kernels in a context.

use std::collections::HashSet;
use std::ffi::{CStr, CString, c_char, c_int};

use gpgpu_locks::Mutex;
use gpgpu_protocol::cuda::{
    CU_FUNCTION_LOADING_STATE_LOADED, CUDA_ERROR_INVALID_HANDLE, CUDA_ERROR_INVALID_VALUE,
    CUfunc_cache, CUfunction, CUfunction_attribute, CUfunctionLoadingState, CUmodule,
    CUsharedconfig,
};

use crate::ffi::{Pointer, Result, export};
use crate::module::{Function, KERNELS};
use crate::ptx;

/// A string that callers may keep: one copy of each name, for ever.
pub(super) fn leak(name: &CStr) -> *const c_char {
    static NAMES: Mutex<Option<HashSet<&'static CStr>>> = Mutex::new(None);
    let mut names = NAMES.lock();
    let names = names.get_or_insert_default();
    if let Some(known) = names.get(name) {
        return known.as_ptr();
    }
    let kept: &'static CStr = Box::leak(CString::from(name).into_boxed_c_str());
    names.insert(kept);
    kept.as_ptr()
}

/// Gives the offset and the size of a kernel's parameter.
pub(super) fn parameter(
    info: &ptx::Kernel,
    index: usize,
    offset: Pointer<usize>,
    size: Pointer<usize>,
) -> Result {
    offset.required()?;
    let parameter = info.params.get(index).ok_or(CUDA_ERROR_INVALID_VALUE)?;
    offset.set_if(parameter.offset);
    size.set_if(parameter.size);
    Ok(())
}

export! {
    /// `cuFuncGetAttribute`. NVIDIA's driver takes no kernel's handle here (seen with 580).
    context fn cuFuncGetAttribute(value: Pointer<c_int>, attribute: CUfunction_attribute, function: CUfunction) |cx| {
        value.required()?;
        if KERNELS.get(function as u64).is_some() {
            return Err(CUDA_ERROR_INVALID_HANDLE);
        }
        value.set(Function::named(function as u64, &cx)?.attribute(attribute)?)
    }

    /// `cuFuncSetAttribute`.
    context fn cuFuncSetAttribute(function: CUfunction, attribute: CUfunction_attribute, value: c_int) |cx| {
        Function::named(function as u64, &cx)?.set_attribute(attribute, value)
    }

    /// `cuFuncSetCacheConfig`: checked; there is no cache to divide.
    context fn cuFuncSetCacheConfig(function: CUfunction, config: CUfunc_cache) |cx| {
        Function::named(function as u64, &cx)?;
        if config > 3 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        Ok(())
    }

    /// `cuFuncSetSharedMemConfig`: checked; banks have one width.
    context fn cuFuncSetSharedMemConfig(function: CUfunction, config: CUsharedconfig) |cx| {
        Function::named(function as u64, &cx)?;
        if config > 2 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        Ok(())
    }

    /// `cuFuncGetModule`.
    context fn cuFuncGetModule(out: Pointer<CUmodule>, function: CUfunction) |cx| {
        out.required()?;
        out.set(Function::named(function as u64, &cx)?.module as CUmodule)
    }

    /// `cuFuncGetName`: the string lives as long as the process.
    context fn cuFuncGetName(out: Pointer<*const c_char>, function: CUfunction) |cx| {
        out.required()?;
        out.set(leak(&Function::named(function as u64, &cx)?.name))
    }

    /// `cuFuncGetParamInfo`: `CUDA_ERROR_INVALID_VALUE` past the last parameter. `size` may be NULL.
    context fn cuFuncGetParamInfo(function: CUfunction, index: usize, offset: Pointer<usize>, size: Pointer<usize>) |cx| {
        parameter(Function::named(function as u64, &cx)?.info(), index, offset, size)
    }

    /// `cuFuncIsLoaded`: always.
    context fn cuFuncIsLoaded(state: Pointer<CUfunctionLoadingState>, function: CUfunction) |cx| {
        state.required()?;
        Function::named(function as u64, &cx)?;
        state.set(CU_FUNCTION_LOADING_STATE_LOADED)
    }

    /// `cuFuncLoad`: it is. A kernel's handle will not do (seen with driver 580).
    context fn cuFuncLoad(function: CUfunction) |cx| {
        match KERNELS.get(function as u64) {
            Some(_) => Err(CUDA_ERROR_INVALID_HANDLE),
            None => Function::named(function as u64, &cx).map(|_| ()),
        }
    }
}
