// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The cuBLAS API, one file per family, every function under NVIDIA's own name. Integers replace C's enumerations.
#![allow(non_snake_case)]
// cuBLAS's functions have this many arguments.
#![allow(clippy::too_many_arguments)]

pub mod gemm;
pub mod gemm_ex;
pub mod helper;
pub mod level1;
pub mod level1_ex;
pub mod level2;
pub mod level3;

use crate::types::{Result, Status};
use gpgpu_stand_in::memory::{Matrix, Vector};

/// Defines a family of exported functions: `[Name T, …] (arguments) |handle| body`. In arguments and body, `T` is the
/// type next to the function's name, `S` the second one, if any, and `Int` the integer: `c_int`, and `i64` in a second
/// function, whose name ends in `_64`.
macro_rules! family {
    () => {};
    ($(#[$m:meta])* [$($name:ident $t:ty $(: $s:ty)?),* $(,)?] $arguments:tt |$handle:ident| $body:tt $($rest:tt)*) => {
        $(
            $crate::api::family! { @both $name, ($t $(, $s)?), $arguments, $handle, $body }
        )*
        $crate::api::family! { $($rest)* }
    };
    (@both $name:ident, $types:tt, $arguments:tt, $handle:ident, $body:tt) => {
        const _: () = {
            type Int = std::ffi::c_int;
            $crate::api::family! { @types $types }
            $crate::api::family! { @one (stringify!($name)), $name, $arguments, $handle, $body }
        };
        #[allow(clippy::useless_conversion)]
        const _: () = {
            type Int = i64;
            $crate::api::family! { @types $types }
            $crate::api::family! { @one (concat!(stringify!($name), "_64")), $name, $arguments, $handle, $body }
        };
    };
    (@types ($t:ty)) => {
        #[allow(unused)]
        type T = $t;
    };
    (@types ($t:ty, $s:ty)) => {
        type T = $t;
        type S = $s;
    };
    (@one ($symbol:expr), $name:ident, ($($a:ident : $at:ty),* $(,)?), $handle:ident, $body:tt) => {
        #[unsafe(export_name = $symbol)]
        unsafe extern "C" fn $name(handle: $crate::handle::RawHandle, $($a: $at),*) -> std::ffi::c_int {
            $crate::handle::enter_with(handle, |$handle| $body)
        }
    };
}
pub(crate) use family;

/// A vector from a function's arguments.
fn vector<T>(address: *const T, count: i64, step: i64) -> Vector {
    Vector {
        address: address as u64,
        count,
        step,
    }
}

/// A matrix from a function's arguments; `InvalidValue` if columns overlap.
fn matrix<T>(address: *const T, (rows, columns): (i64, i64), leading: i64) -> Result<Matrix> {
    require(rows >= 0 && columns >= 0 && leading >= rows.max(1))?;
    Ok(Matrix {
        address: address as u64,
        rows,
        columns,
        leading,
    })
}

/// `InvalidValue` unless the arguments are right.
fn require(right: bool) -> Result {
    if right {
        Ok(())
    } else {
        Err(Status::InvalidValue)
    }
}
