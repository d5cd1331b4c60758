// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! NVIDIA's numbers for statuses, types and options, which C callers pass as plain integers.

use std::ffi::{CStr, c_int};

use gpgpu_stand_in::memory::Plain;
use half::{bf16, f16};

/// A `cusparseStatus_t` other than success.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(i32)]
pub enum Status {
    /// The handle is invalid.
    NotInitialized = 1,
    /// An argument is outside of the function's range.
    InvalidValue = 3,
    /// The driver refused the work, or it failed.
    ExecutionFailed = 6,
    /// A defect of this library.
    InternalError = 7,
    /// Something that this library does not compute.
    NotSupported = 10,
}

gpgpu_stand_in::status! { Status, of NULL InvalidValue }

/// A status's name in `cusparse.h`; also has one for invalid numbers.
pub fn name(status: c_int) -> &'static CStr {
    match status {
        0 => c"CUSPARSE_STATUS_SUCCESS",
        1 => c"CUSPARSE_STATUS_NOT_INITIALIZED",
        3 => c"CUSPARSE_STATUS_INVALID_VALUE",
        6 => c"CUSPARSE_STATUS_EXECUTION_FAILED",
        7 => c"CUSPARSE_STATUS_INTERNAL_ERROR",
        10 => c"CUSPARSE_STATUS_NOT_SUPPORTED",
        _ => c"unknown error",
    }
}

/// `InvalidValue` unless the arguments are right.
///
/// # Errors
/// They are not.
pub fn require(right: bool) -> Result {
    if right {
        Ok(())
    } else {
        Err(Status::InvalidValue)
    }
}

/// A `cusparseOperation_t`: whether it transposes. There are no complex numbers, so the adjoint is the transpose.
///
/// # Errors
/// There is no operation with that number.
pub fn transposes(operation: c_int) -> Result<bool> {
    match operation {
        0 => Ok(false),
        1 | 2 => Ok(true),
        _ => Err(Status::InvalidValue),
    }
}

/// `cudaDataType_t` of this library's types.
pub mod data {
    use std::ffi::c_int;

    /// `f32`.
    pub const R_32F: c_int = 0;
    /// `half::f16`.
    pub const R_16F: c_int = 2;
    /// `i8`.
    pub const R_8I: c_int = 3;
    /// `i32`.
    pub const R_32I: c_int = 10;
    /// `half::bf16`.
    pub const R_16BF: c_int = 14;
}

/// `CUSPARSE_COMPUTE_32I`.
pub const COMPUTE_32I: c_int = 0;
/// `CUSPARSE_COMPUTE_32F`.
pub const COMPUTE_32F: c_int = 2;

/// The bytes of a `cudaDataType_t`.
///
/// # Errors
/// `NotSupported` for those that matrices do not have here.
pub fn bytes_of(data: c_int) -> Result<usize> {
    by_type!(data, Ok(size_of::<T>()))
}

/// A number of a matrix.
pub trait Element: Plain + Default {
    /// The number.
    fn get(self) -> f64;
    /// The nearest one to a number.
    fn put(number: f64) -> Self;
}

impl Element for f32 {
    fn get(self) -> f64 {
        self.into()
    }
    fn put(number: f64) -> Self {
        number as Self
    }
}

macro_rules! halves {
    ($($t:ty)*) => {$(
        impl Element for $t {
            fn get(self) -> f64 {
                self.to_f64()
            }
            fn put(number: f64) -> Self {
                Self::from_f64(number)
            }
        }
    )*};
}
halves!(f16 bf16);

macro_rules! integers {
    ($($t:ty)*) => {$(
        impl Element for $t {
            fn get(self) -> f64 {
                self.into()
            }
            /// Rounds to nearest, ties to even, and saturates.
            fn put(number: f64) -> Self {
                number.round_ties_even() as Self
            }
        }
    )*};
}
integers!(i8 i32);

/// Runs `$body` with `T` for the type that a `cudaDataType_t` names.
macro_rules! by_type {
    ($data:expr, $body:expr) => {
        match $data {
            $crate::types::data::R_32F => {
                type T = f32;
                $body
            }
            $crate::types::data::R_16F => {
                type T = half::f16;
                $body
            }
            $crate::types::data::R_16BF => {
                type T = half::bf16;
                $body
            }
            $crate::types::data::R_8I => {
                type T = i8;
                $body
            }
            $crate::types::data::R_32I => {
                type T = i32;
                $body
            }
            _ => Err($crate::types::Status::NotSupported),
        }
    };
}
pub(crate) use by_type;
