// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The cuDNN API, one file per family, every function under NVIDIA's own name. Integers replace C's enumerations.
#![allow(non_snake_case)]
// cuDNN's functions have as many arguments as they have.
#![allow(clippy::too_many_arguments)]

pub mod backend;
pub mod convolution;
pub mod descriptor;
pub mod helper;
pub mod layer;

/// Defines exported functions, each with a body of the type `Result`.
macro_rules! export {
    ($($(#[$m:meta])* fn $name:ident($($a:ident: $t:ty),* $(,)?) $body:block)*) => {$(
        $(#[$m])*
        #[unsafe(no_mangle)]
        pub extern "C" fn $name($($a: $t),*) -> std::ffi::c_int {
            $crate::handle::enter(|| $body)
        }
    )*};
}
pub(crate) use export;
