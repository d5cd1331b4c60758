// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Kernels of libraries.

use std::ffi::{c_char, c_int};
use std::sync::Arc;

use gpgpu_protocol::cuda::{
    CUDA_ERROR_INVALID_HANDLE, CUDA_ERROR_INVALID_VALUE, CUdevice, CUfunc_cache, CUfunction,
    CUfunction_attribute, CUkernel, CUlibrary,
};

use super::device::check;
use super::function::{leak, parameter};
use crate::ffi::{Pointer, Result, export};
use crate::module::{KERNELS, Kernel};

fn named(kernel: CUkernel) -> Result<Arc<Kernel>> {
    KERNELS.get(kernel as u64).ok_or(CUDA_ERROR_INVALID_HANDLE)
}

export! {
    /// `cuKernelGetFunction`: the kernel's function in the current context.
    context fn cuKernelGetFunction(out: Pointer<CUfunction>, kernel: CUkernel) |cx| {
        out.required()?;
        out.set(named(kernel)?.function(&cx)?.handle as CUfunction)
    }

    /// `cuKernelGetLibrary`.
    healthy fn cuKernelGetLibrary(out: Pointer<CUlibrary>, kernel: CUkernel) |_| {
        out.set(named(kernel)?.library as CUlibrary)
    }

    /// `cuKernelGetName`: the string lives as long as the process.
    healthy fn cuKernelGetName(out: Pointer<*const c_char>, kernel: CUkernel) |_| {
        out.required()?;
        out.set(leak(&named(kernel)?.name))
    }

    /// `cuKernelGetAttribute`.
    healthy fn cuKernelGetAttribute(value: Pointer<c_int>, attribute: CUfunction_attribute, kernel: CUkernel, device: CUdevice) |_| {
        check(device)?;
        value.required()?;
        value.set(named(kernel)?.attribute(attribute, device)?)
    }

    /// `cuKernelSetAttribute`: for its functions in every context of the device.
    healthy fn cuKernelSetAttribute(attribute: CUfunction_attribute, value: c_int, kernel: CUkernel, device: CUdevice) |_| {
        check(device)?;
        named(kernel)?.set_attribute(attribute, value, device)
    }

    /// `cuKernelSetCacheConfig`: checked; there is no cache to divide.
    healthy fn cuKernelSetCacheConfig(kernel: CUkernel, config: CUfunc_cache, device: CUdevice) |_| {
        check(device)?;
        named(kernel)?;
        if config > 3 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        Ok(())
    }

    /// `cuKernelGetParamInfo`: `CUDA_ERROR_INVALID_VALUE` past the last parameter. `size` may be NULL.
    healthy fn cuKernelGetParamInfo(kernel: CUkernel, index: usize, offset: Pointer<usize>, size: Pointer<usize>) |_| {
        parameter(named(kernel)?.info(), index, offset, size)
    }
}
