// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! NVIDIA's numbers for statuses, types and options, which C callers pass as plain integers.

use std::ffi::{CStr, c_int};
use std::ops::{Add, AddAssign, Div, Mul, Sub};

use gpgpu_stand_in::memory::Plain;
use num_complex::Complex;

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

/// A number that vectors and matrices consist of.
pub trait Number:
    Plain
    + Default
    + PartialEq
    + Add<Output = Self>
    + Sub<Output = Self>
    + Mul<Output = Self>
    + Div<Output = Self>
    + AddAssign
{
    /// The complex conjugate; itself if real.
    fn conjugate(self) -> Self;
}

macro_rules! numbers {
    ($($t:ty)*) => {$(
        impl Number for $t {
            fn conjugate(self) -> Self {
                self
            }
        }

        impl Number for Complex<$t> {
            fn conjugate(self) -> Self {
                self.conj()
            }
        }
    )*};
}
numbers!(f32 f64);

/// Runs `$body` with `T` for the type that a `cudaDataType` names.
macro_rules! by_type {
    ($data:expr, $body:expr) => {
        match $data {
            0 => {
                type T = f32;
                $body
            }
            1 => {
                type T = f64;
                $body
            }
            4 => {
                type T = num_complex::Complex<f32>;
                $body
            }
            5 => {
                type T = num_complex::Complex<f64>;
                $body
            }
            _ => Err($crate::types::Status::NotSupported),
        }
    };
}
pub(crate) use by_type;

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

/// `cusparseOperation_t`: the operation on a matrix before its use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    /// Nothing.
    None,
    /// Transposed.
    Transpose,
    /// Transposed, and conjugated if complex.
    Adjoint,
}

impl Operation {
    /// The operation with that number.
    ///
    /// # Errors
    /// There is no such number.
    pub fn new(number: c_int) -> Result<Self> {
        Ok(match number {
            0 => Self::None,
            1 => Self::Transpose,
            2 => Self::Adjoint,
            _ => return Err(Status::InvalidValue),
        })
    }

    /// The shape that a matrix has afterwards.
    pub fn shape(self, (rows, columns): (i64, i64)) -> (i64, i64) {
        match self {
            Self::None => (rows, columns),
            _ => (columns, rows),
        }
    }

    /// An element afterwards: its row, its column, and its value.
    pub fn apply<T: Number>(self, (row, column, value): (usize, usize, T)) -> (usize, usize, T) {
        match self {
            Self::None => (row, column, value),
            Self::Transpose => (column, row, value),
            Self::Adjoint => (column, row, value.conjugate()),
        }
    }
}

/// `cusparseIndexType_t`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Index {
    /// 32 bits.
    Narrow,
    /// 64 bits.
    Wide,
}

impl Index {
    /// The type with that number.
    ///
    /// # Errors
    /// The number is not supported here.
    pub fn new(number: c_int) -> Result<Self> {
        match number {
            1 => Err(Status::NotSupported),
            2 => Ok(Self::Narrow),
            3 => Ok(Self::Wide),
            _ => Err(Status::InvalidValue),
        }
    }

    /// Its number.
    pub fn number(self) -> c_int {
        match self {
            Self::Narrow => 2,
            Self::Wide => 3,
        }
    }
}

/// Whether a `cudaDataType` is one that values may have here.
pub fn is_data(data: c_int) -> bool {
    matches!(data, 0 | 1 | 4 | 5)
}
