// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The cuSPARSELt API, one file per family, every function under NVIDIA's own name. Integers replace C's enumerations.
#![allow(non_snake_case)]
// cuSPARSELt's functions have as many arguments as they have.
#![allow(clippy::too_many_arguments)]

pub mod describe;
pub mod helper;
pub mod plan;
pub mod sparse;

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

use crate::types::{Result, Status};
use gpgpu_stand_in::call::{Answer, Argument};

/// Reads an attribute's value, which has this number of bytes.
fn take(data: Argument<u8>, size: usize, bytes: usize) -> Result<u64> {
    if size != bytes {
        return Err(Status::InvalidValue);
    }
    match bytes {
        4 => data.cast::<u32>().get().map(u64::from),
        _ => data.cast::<u64>().get(),
    }
}

/// Returns an attribute's value, which has this number of bytes.
fn give(data: Answer<u8>, size: usize, bytes: usize, value: u64) -> Result {
    if size != bytes {
        return Err(Status::InvalidValue);
    }
    match bytes {
        4 => data.cast::<u32>().set(value as u32),
        _ => data.cast::<u64>().set(value),
    }
}
