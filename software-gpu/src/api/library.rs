// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Libraries: modules that belong to no context.

use std::ffi::{c_uint, c_void};
use std::sync::Arc;

use gpgpu_protocol::cuda::{
    CUDA_ERROR_INVALID_HANDLE, CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_NOT_FOUND, CUdeviceptr,
    CUjit_option, CUkernel, CUlibrary, CUlibraryOption, CUmodule,
};

use super::module::{Options, parse, parse_file};
use crate::ffi::{Pointer, Result, Text, export};
use crate::module::{LIBRARIES, Library};

fn named(library: CUlibrary) -> Result<Arc<Library>> {
    LIBRARIES
        .get(library as u64)
        .ok_or(CUDA_ERROR_INVALID_HANDLE)
}

fn check_options(count: c_uint, options: Pointer<CUlibraryOption>) -> Result {
    // Both options concern how the caller keeps its image, but the text is copied in any case.
    let valid = options.array(count as usize)?.iter().all(|o| *o <= 1);
    valid.then_some(()).ok_or(CUDA_ERROR_INVALID_VALUE)
}

export! {
    /// `cuLibraryLoadData`: parsed now, placed in a context when first used there.
    healthy fn cuLibraryLoadData(
        out: Pointer<CUlibrary>, code: Pointer<c_void>, jit_options: Pointer<CUjit_option>, jit_values: Pointer<*mut c_void>, jit_count: c_uint,
        options: Pointer<CUlibraryOption>, _values: Pointer<*mut c_void>, count: c_uint,
    ) |_| {
        out.required()?;
        code.required()?;
        check_options(count, options)?;
        let jit = Options::read(jit_count, jit_options, jit_values)?;
        let image = jit.report(|| parse(code.cast()))?;
        out.set(Library::load(image).handle as CUlibrary)
    }

    /// `cuLibraryLoadFromFile`.
    healthy fn cuLibraryLoadFromFile(
        out: Pointer<CUlibrary>, path: Text, jit_options: Pointer<CUjit_option>, jit_values: Pointer<*mut c_void>, jit_count: c_uint,
        options: Pointer<CUlibraryOption>, _values: Pointer<*mut c_void>, count: c_uint,
    ) |_| {
        out.required()?;
        let path = path.get()?;
        check_options(count, options)?;
        let jit = Options::read(jit_count, jit_options, jit_values)?;
        let image = jit.report(|| parse_file(path))?;
        out.set(Library::load(image).handle as CUlibrary)
    }

    /// `cuLibraryUnload`: waits for the library's users.
    healthy fn cuLibraryUnload(library: CUlibrary) |_| {
        named(library)?.unload();
        Ok(())
    }

    /// `cuLibraryGetKernel`.
    healthy fn cuLibraryGetKernel(out: Pointer<CUkernel>, library: CUlibrary, name: Text) |_| {
        out.required()?;
        out.set(named(library)?.kernel(&name.name()?)? as CUkernel)
    }

    /// `cuLibraryGetKernelCount`.
    healthy fn cuLibraryGetKernelCount(count: Pointer<c_uint>, library: CUlibrary) |_| {
        count.set(named(library)?.kernels.len() as c_uint)
    }

    /// `cuLibraryEnumerateKernels`: as many as there are and the caller has room for.
    healthy fn cuLibraryEnumerateKernels(out: Pointer<CUkernel>, room: c_uint, library: CUlibrary) |_| {
        let library = named(library)?;
        for (index, kernel) in library.kernels.iter().take(room as usize).enumerate() {
            out.required()?.at(index).set(*kernel as CUkernel)?;
        }
        Ok(())
    }

    /// `cuLibraryGetModule`: the library's module in the current context.
    context fn cuLibraryGetModule(out: Pointer<CUmodule>, library: CUlibrary) |cx| {
        out.required()?;
        out.set(named(library)?.module(&cx)?.handle as CUmodule)
    }

    /// `cuLibraryGetGlobal`: in the current context; either out pointer may be NULL.
    context fn cuLibraryGetGlobal(address: Pointer<CUdeviceptr>, size: Pointer<usize>, library: CUlibrary, name: Text) |cx| {
        let (start, bytes) = named(library)?.module(&cx)?.global(&name.name()?)?;
        address.set_if(start);
        size.set_if(bytes);
        Ok(())
    }

    /// `cuLibraryGetManaged`: in the current context, as each has its own; either out pointer may be NULL.
    context fn cuLibraryGetManaged(address: Pointer<CUdeviceptr>, size: Pointer<usize>, library: CUlibrary, name: Text) |cx| {
        if address.is_null() && size.is_null() {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let (start, bytes) = named(library)?.module(&cx)?.managed(&name.name()?)?;
        address.set_if(start);
        size.set_if(bytes);
        Ok(())
    }

    /// `cuLibraryGetUnifiedFunction`: there are none.
    healthy fn cuLibraryGetUnifiedFunction(_out: Pointer<*mut c_void>, library: CUlibrary, name: Text) |_| {
        named(library)?;
        name.get()?;
        Err(CUDA_ERROR_NOT_FOUND)
    }
}
