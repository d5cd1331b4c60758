// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The unsupported functions. They are exported, so that programs can be loaded; a call returns an error and logs the
//! reason once. A function that NVIDIA's driver refuses as well logs nothing.

use gpgpu_protocol::{cuda::*, driver_api::reasons, with_driver_api};

/// Logs once why a function is not supported.
fn refuse(name: &'static str) -> CUresult {
    let why = reasons::reason(name.trim_end_matches("_ptsz").trim_end_matches("_ptds"));
    gpgpu_client::log::refuse(
        name,
        &format!("is not supported: {}", why.unwrap_or("not yet")),
    );
    CUDA_ERROR_NOT_SUPPORTED
}

macro_rules! function {
    (unsupported $($name:ident)*) => {$(
        #[doc = "Not supported, for the reason that the list of the driver API has."]
        #[unsafe(no_mangle)]
        pub extern "C" fn $name() -> CUresult {
            refuse(stringify!($name))
        }
    )*};
    (refused $($name:ident)*) => {$(
        #[doc = "Refused, as by NVIDIA's driver."]
        #[unsafe(no_mangle)]
        pub extern "C" fn $name() -> CUresult {
            CUDA_ERROR_NOT_SUPPORTED
        }
    )*};
    ($made:ident $($name:ident)*) => {};
}

macro_rules! functions {
    ($($name:ident $since:literal $guest:ident $symbol:ident $($per_thread:ident)? ($($arg:ident : $ty:ty),*);)*) => {
        $(function!($guest $symbol $($per_thread)?);)*
    };
}

with_driver_api!(functions);

#[cfg(test)]
mod tests {
    use std::{collections::HashSet, ffi::c_void};

    use gpgpu_protocol::driver_api::ENTRY_POINTS;

    use super::*;

    macro_rules! all {
        ($($name:ident $since:literal $guest:ident $symbol:ident $($per_thread:ident)? ($($arg:ident : $ty:ty),*);)*) => {
            mod exported {
                unsafe extern "C" {
                    $(pub fn $symbol(); $(pub fn $per_thread();)?)*
                }
            }

            /// The library's functions as the linker sees them: it refuses a program that needs an undefined one.
            const ALL: &[unsafe extern "C" fn()] = &[$(exported::$symbol, $(exported::$per_thread,)?)*];
        };
    }

    with_driver_api!(all);

    #[test]
    fn every_entry_point_is_defined_once() {
        let addresses: HashSet<_> = ALL
            .iter()
            .map(|&function| function as *const c_void)
            .collect();
        assert!(!addresses.contains(&std::ptr::null()));
        assert_eq!(ALL.len(), ENTRY_POINTS.len());
    }
}
