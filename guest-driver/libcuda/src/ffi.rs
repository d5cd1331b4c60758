// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The entry of calls from C: the exported functions. No panic leaves them.

use gpgpu_client::forks;
use gpgpu_protocol::cuda::{
    CUDA_ERROR_NOT_INITIALIZED, CUDA_ERROR_NOT_READY, CUDA_SUCCESS, CUresult,
};

pub use gpgpu_client::ffi::Result;
pub use gpgpu_trace::end;

use crate::logs;

/// The functions that work in a forked child: they use no device, and take no lock.
const IN_CHILDREN: [&str; 6] = [
    "cuDriverGetVersion",
    "cuGetErrorName",
    "cuGetErrorString",
    "cuGetExportTable",
    "cuGetProcAddress",
    "cuGetProcAddress_v2",
];

/// Runs the body of the exported function `name`. A failure is logged for the program.
///
/// In a forked child, the function fails first of all, because a thread that the child does not have may have held any
/// of the library's locks.
#[inline]
pub fn enter(name: &str, body: impl FnOnce() -> Result) -> CUresult {
    if forks::is_child() {
        return match IN_CHILDREN.contains(&name) {
            true => gpgpu_client::ffi::enter(name, body),
            false => CUDA_ERROR_NOT_INITIALIZED,
        };
    }
    let code = gpgpu_client::ffi::enter(name, body);
    if code != CUDA_SUCCESS && code != CUDA_ERROR_NOT_READY {
        logs::failed(name, code);
    }
    code
}

/// Checks that a function is allowed while streams are captured.
#[macro_export]
macro_rules! permit {
    ($name:ident) => {
        if const { gpgpu_graphs::capture::is_unsafe(stringify!($name)) } {
            gpgpu_graphs::capture::guard::<$crate::graph::Guest>()?;
        }
        if const { gpgpu_graphs::capture::is_legacy(stringify!($name)) } {
            gpgpu_graphs::capture::guard_legacy::<$crate::graph::Guest>()?;
        }
    };
}
pub use permit;

/// Begins the call of an exported function, if calls are traced. The arguments are those of the C function.
#[macro_export]
macro_rules! traced {
    ($name:ident ($($arg:ident : $ty:ty),*)) => {
        if gpgpu_client::trace::TRACE.is_active() {
            #[allow(non_snake_case, dead_code)]
            #[repr(C)]
            struct Arguments {
                $($arg: $ty,)*
            }
            gpgpu_trace::Traced::begin(
                &gpgpu_client::trace::TRACE,
                gpgpu_trace::DRIVER,
                stringify!($name),
                Arguments { $($arg),* },
            )
        } else {
            None
        }
    };
}
pub use traced;

/// Declares exported CUDA functions. Arguments are C-compatible types ([`crate::argument`]), so the body is safe code,
/// and a function whose arguments are not the driver API's does not compile.
#[macro_export]
macro_rules! cuda {
    ($($(#[$meta:meta])* fn $name:ident($($arg:ident : $ty:ty),* $(,)?) $body:block)*) => {$(
        $(#[$meta])*
        ///
        /// # Safety
        ///
        /// The arguments are as CUDA's documentation requires: pointers are NULL or valid for the function's accesses.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($arg: $ty),*) -> gpgpu_protocol::cuda::CUresult {
            let traced = $crate::ffi::traced!($name ($($arg: $ty),*));
            let code = $crate::ffi::enter(stringify!($name), || {
                $crate::ffi::permit!($name);
                $body
            });
            $crate::ffi::end(traced, code)
        }
        gpgpu_protocol::check_signature!($name($($ty),*));
    )*};
}
