// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Initialisation and versions.

use std::ffi::{c_int, c_uint, c_void};

use gpgpu_protocol::cuda::{CUDA_ERROR_INVALID_VALUE, CUuuid};

use crate::config::DRIVER_VERSION;
use crate::driver;
use crate::ffi::{Pointer, export};

export! {
    /// `cuInit`: `CUDA_ERROR_INVALID_VALUE` for flags, of which there are none.
    always fn cuInit(flags: c_uint) |()| {
        if flags != 0 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        driver::init()
    }

    /// `cuDriverGetVersion`: 13000, before `cuInit` too.
    always fn cuDriverGetVersion(version: Pointer<c_int>) |()| {
        version.set(DRIVER_VERSION)
    }

    /// `cuGetExportTable`: `CUDA_ERROR_INVALID_VALUE` as for any unknown table, because the private tables are NVIDIA's
    /// own.
    always fn cuGetExportTable(table: Pointer<*const c_void>, _id: Pointer<CUuuid>) |()| {
        table.required()?.set_if(std::ptr::null());
        Err(CUDA_ERROR_INVALID_VALUE)
    }
}
