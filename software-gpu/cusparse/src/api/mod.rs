// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The cuSPARSE API, one file per family, every function under NVIDIA's own name. Integers replace C's enumerations.
#![allow(non_snake_case)]
// cuSPARSE's functions have as many arguments as they have.
#![allow(clippy::too_many_arguments)]

pub mod describe;
pub mod helper;
pub mod legacy;
pub mod multiply;
pub mod product;
pub mod solve;

/// Defines exported functions: `fn name(arguments) body`, and with a handle of that name `|handle| body`.
macro_rules! export {
    ($($(#[$m:meta])* fn $name:ident($($a:ident: $t:ty),* $(,)?) $(|$handle:ident|)? $body:block)*) => {$(
        $(#[$m])*
        #[unsafe(no_mangle)]
        pub extern "C" fn $name($($a: $t),*) -> std::ffi::c_int {
            $crate::api::export!(@call $(($handle))? $body)
        }
    )*};
    (@call ($handle:ident) $body:block) => { $crate::handle::enter_with($handle, |$handle| $body) };
    (@call $body:block) => { $crate::handle::enter(|| $body) };
}
pub(crate) use export;

/// The size of every function's workspace, in bytes. It is not used here, but callers must provide it.
pub(crate) const BUFFER: usize = 128;
