// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Names and logging: cuSPARSE's functions that need no GPU.

use std::ffi::{c_char, c_int, c_void};

use gpgpu_library::Status;
use gpgpu_protocol::libraries::SUCCESS;

use crate::LIBRARY;

/// `cusparseGetErrorName`.
#[unsafe(no_mangle)]
pub extern "C" fn cusparseGetErrorName(status: Status) -> *const c_char {
    LIBRARY.statuses().name(status).as_ptr()
}

/// `cusparseGetErrorString`.
#[unsafe(no_mangle)]
pub extern "C" fn cusparseGetErrorString(status: Status) -> *const c_char {
    LIBRARY.statuses().text(status).as_ptr()
}

macro_rules! log {
    ($($name:ident($($argument:ty)?);)*) => {$(
        /// cuSPARSE's function of this name. Nothing is logged, and no callback is called, because cuSPARSE would log
        /// on the host.
        #[unsafe(no_mangle)]
        pub extern "C" fn $name($(_: $argument)?) -> Status {
            SUCCESS
        }
    )*};
}

log! {
    cusparseLoggerSetCallback(*mut c_void);
    cusparseLoggerSetFile(*mut c_void);
    cusparseLoggerOpenFile(*const c_char);
    cusparseLoggerSetLevel(c_int);
    cusparseLoggerSetMask(c_int);
    cusparseLoggerForceDisable();
}
