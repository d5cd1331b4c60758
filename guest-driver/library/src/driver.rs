// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Functions of libcuda that a library calls itself.

use std::ffi::c_void;

pub use gpgpu_protocol::driver_api::signature;

/// Declares a structure with functions of libcuda by their symbols, and `find(library)`, which returns it, or the
/// library's status for `not initialised` if libcuda lacks one.
#[macro_export]
macro_rules! driver_functions {
    ($(#[$meta:meta])* struct $functions:ident { $($name:ident = $symbol:ident;)* }) => {
        $(#[$meta])*
        struct $functions {
            $($name: $crate::driver::signature::$symbol,)*
        }

        impl $functions {
            fn find(library: gpgpu_protocol::libraries::Library) -> Result<&'static Self, $crate::Status> {
                static FOUND: std::sync::OnceLock<Option<$functions>> = std::sync::OnceLock::new();
                let found = FOUND.get_or_init(|| {
                    $(let $name = $crate::driver::symbol(concat!(stringify!($symbol), "\0"))?;)*
                    // SAFETY: libcuda's functions of these names are of these types.
                    Some(unsafe {
                        Self {
                            $($name: std::mem::transmute::<
                                *mut std::ffi::c_void,
                                $crate::driver::signature::$symbol,
                            >($name),)*
                        }
                    })
                });
                found.as_ref().ok_or(library.statuses().not_initialized)
            }
        }
    };
}

/// A function of libcuda. The name ends with a zero byte.
pub fn symbol(name: &'static str) -> Option<*mut c_void> {
    assert!(name.ends_with('\0'), "{name} has no end");
    // SAFETY: names are strings; libcuda is loaded, for the process has a client, and is never unloaded.
    let found = unsafe {
        let library = libc::dlopen(c"libcuda.so.1".as_ptr(), libc::RTLD_NOW);
        libc::dlsym(library, name.as_ptr().cast())
    };
    (!found.is_null()).then_some(found)
}
