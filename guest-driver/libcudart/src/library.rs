// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Libraries of kernels that the program itself loads, and the driver's entry points.

use crate::abi::*;
use crate::driver::driver;
use crate::error::{self, Result};
use crate::stream::DefaultStream;
use gpgpu_protocol::cuda::*;
use std::ffi::{c_char, c_int, c_uint, c_void};
use std::ptr::null_mut;

/// `cudaEnableLegacyStream` and `cudaEnablePerThreadDefaultStream` of `cudaGetDriverEntryPoint`;
/// the driver's own flags are the same.
const ENABLE_LEGACY_STREAM: u64 = 1;
const ENABLE_PER_THREAD_DEFAULT_STREAM: u64 = 2;

/// Looks up a function of the driver.
///
/// # Safety
/// As for `cudaGetDriverEntryPointByVersion`.
unsafe fn entry_point(
    symbol: *const c_char,
    function: *mut *mut c_void,
    version: c_int,
    flags: u64,
    status: *mut c_uint,
    ds: DefaultStream,
) -> Result<()> {
    let driver = driver()?;
    if symbol.is_null() || function.is_null() {
        return Err(error::INVALID_VALUE);
    }
    let flags = match (flags, ds) {
        (0, DefaultStream::Legacy) => ENABLE_LEGACY_STREAM,
        (0, DefaultStream::PerThread) => ENABLE_PER_THREAD_DEFAULT_STREAM,
        (ENABLE_LEGACY_STREAM | ENABLE_PER_THREAD_DEFAULT_STREAM, _) => flags,
        _ => return Err(error::INVALID_VALUE),
    };
    let mut found = 0;
    // SAFETY: promised by the caller; `found` outlives the call.
    unsafe {
        let result = driver.cuGetProcAddress(symbol, function, version, flags, &mut found);
        if !status.is_null() {
            status.write(found);
        }
        match result {
            // If the caller passes a pointer for the status, a missing function is no error.
            Err(error::SYMBOL_NOT_FOUND) if !status.is_null() => {
                function.write(null_mut());
                Ok(())
            }
            result => result,
        }
    }
}

export! {
    fn(ds) cudaGetDriverEntryPoint, cudaGetDriverEntryPoint_ptsz(symbol: *const c_char, function: *mut *mut c_void, flags: u64, status: *mut c_uint) {
        entry_point(symbol, function, cudart_abi(), flags, status, ds)
    }

    // CUDA 11's function has no status, and returns the driver's functions of its time.
    fn(ds) cudart11_cudaGetDriverEntryPoint, cudart11_cudaGetDriverEntryPoint_ptsz(symbol: *const c_char, function: *mut *mut c_void, flags: u64) {
        entry_point(symbol, function, VERSION_11, flags, null_mut(), ds)
    }

    fn(ds) cudaGetDriverEntryPointByVersion, cudaGetDriverEntryPointByVersion_ptsz(symbol: *const c_char, function: *mut *mut c_void, version: c_uint, flags: u64, status: *mut c_uint) {
        let version = c_int::try_from(version).map_err(|_| error::INVALID_VALUE)?;
        entry_point(symbol, function, version, flags, status, ds)
    }

    pass fn cudaLibraryLoadData(library: *mut cudaLibrary_t, code: *const c_void, options: *mut c_uint, values: *mut *mut c_void, count: c_uint, library_options: *mut c_uint, library_values: *mut *mut c_void, library_count: c_uint) => cuLibraryLoadData;
    pass fn cudaLibraryLoadFromFile(library: *mut cudaLibrary_t, file: *const c_char, options: *mut c_uint, values: *mut *mut c_void, count: c_uint, library_options: *mut c_uint, library_values: *mut *mut c_void, library_count: c_uint) => cuLibraryLoadFromFile;
    pass fn cudaLibraryUnload(library: cudaLibrary_t) => cuLibraryUnload;
    pass fn cudaLibraryGetKernel(kernel: *mut cudaKernel_t, library: cudaLibrary_t, name: *const c_char) => cuLibraryGetKernel;
    pass fn cudaLibraryGetKernelCount(count: *mut c_uint, library: cudaLibrary_t) => cuLibraryGetKernelCount;
    pass fn cudaLibraryEnumerateKernels(kernels: *mut cudaKernel_t, count: c_uint, library: cudaLibrary_t) => cuLibraryEnumerateKernels;
    pass fn cudaLibraryGetGlobal(pointer: *mut CUdeviceptr, bytes: *mut usize, library: cudaLibrary_t, name: *const c_char) => cuLibraryGetGlobal;
    pass fn cudaLibraryGetManaged(pointer: *mut CUdeviceptr, bytes: *mut usize, library: cudaLibrary_t, name: *const c_char) => cuLibraryGetManaged;
    pass fn cudaLibraryGetUnifiedFunction(function: *mut *mut c_void, library: cudaLibrary_t, name: *const c_char) => cuLibraryGetUnifiedFunction;
    pass fn cudaLogsRegisterCallback(callback: *mut c_void, data: *mut c_void, handle: *mut *mut c_void) => cuLogsRegisterCallback;
    pass fn cudaLogsUnregisterCallback(handle: *mut c_void) => cuLogsUnregisterCallback;
    pass fn cudaLogsCurrent(iterator: *mut c_uint, flags: c_uint) => cuLogsCurrent;
    pass fn cudaLogsDumpToFile(iterator: *mut c_uint, path: *const c_char, flags: c_uint) => cuLogsDumpToFile;
    pass fn cudaLogsDumpToMemory(iterator: *mut c_uint, buffer: *mut c_char, size: *mut usize, flags: c_uint) => cuLogsDumpToMemory;

    // No tables are exported: NVIDIA's tables are private to NVIDIA's own libraries.
    fn cudaGetExportTable(table: *mut *const c_void, _id: *const CUuuid) {
        if !table.is_null() {
            table.write(std::ptr::null());
        }
        Err(error::SYMBOL_NOT_FOUND)
    }
}
