// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The nvJPEG API, every function under NVIDIA's own name. Integers replace C's enumerations.
#![allow(non_snake_case)]
// They are NVIDIA's, and documented there.
#![allow(missing_docs)]

pub mod decode;
pub mod encode;
pub mod objects;
pub mod streams;

use std::ffi::c_int;

use gpgpu_stand_in::call;

use crate::types::{Result, Status};

/// Runs a function of the API, without a panic of ours reaching the caller.
fn enter(f: impl FnOnce() -> Result) -> c_int {
    call::enter(Status::InternalError, f)
}

/// Defines exported functions.
macro_rules! export {
    ($($(#[$m:meta])* fn $name:ident($($a:ident: $t:ty),* $(,)?) $body:block)*) => {$(
        $(#[$m])*
        #[unsafe(no_mangle)]
        #[allow(clippy::too_many_arguments)]
        pub extern "C" fn $name($($a: $t),*) -> std::ffi::c_int {
            $crate::api::enter(|| $body)
        }
    )*};
}

pub(crate) use export;
