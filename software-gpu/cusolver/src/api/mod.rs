// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The cuSOLVER API, one file per family, every function under NVIDIA's own name. Integers replace C's enumerations.
#![allow(non_snake_case)]
// cuSOLVER's functions have as many arguments as they have.
#![allow(clippy::too_many_arguments)]

pub mod eigen;
pub mod factor;
pub mod generic;
pub mod helper;
pub mod refined;
pub mod singular;

use gpgpu_stand_in::memory::{Matrix, Vector};

use crate::types::{Result, require};

/// Defines a family of exported functions: `[Name T, …] (arguments) |handle| body`. In arguments and body, `T` is the
/// type next to the function's name.
macro_rules! family {
    () => {};
    ($(#[$m:meta])* [$($name:ident $t:ty),* $(,)?] $arguments:tt |$handle:ident| $body:tt $($rest:tt)*) => {
        $(
            const _: () = {
                #[allow(unused)]
                type T = $t;
                $crate::api::family! { @one $name, $arguments, $handle, $body }
            };
        )*
        $crate::api::family! { $($rest)* }
    };
    (@one $name:ident, ($($a:ident : $at:ty),* $(,)?), $handle:ident, $body:tt) => {
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name(handle: $crate::handle::Raw, $($a: $at),*) -> std::ffi::c_int {
            $crate::handle::enter_with(handle, |$handle| $body)
        }
    };
}
pub(crate) use family;

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

/// Values one after the other.
fn vector<T>(address: *const T, count: i64) -> Vector {
    Vector {
        address: address as u64,
        count,
        step: 1,
    }
}

/// Everything of a matrix is written.
fn all(_row: usize, _column: usize) -> bool {
    true
}
