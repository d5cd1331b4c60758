// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! NVIDIA's numbers for statuses, types and options, which C callers pass as plain integers.

use std::ffi::c_int;

use gpgpu_stand_in::memory::Plain;
use nalgebra::{Complex, ComplexField, RealField};

/// A `cusolverStatus_t` other than success.
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
    NotSupported = 9,
}

gpgpu_stand_in::status! { Status, of NULL InvalidValue }

/// A number that matrices consist of.
pub trait Number: Plain + ComplexField<RealField: Plain + RealField> {}

impl Number for f32 {}
impl Number for f64 {}
impl Number for Complex<f32> {}
impl Number for Complex<f64> {}

/// The type in which a number's eigenvalues and norms are.
pub type Real<T> = <T as ComplexField>::RealField;

/// `InvalidValue` unless the arguments are right.
pub fn require(right: bool) -> Result {
    if right {
        Ok(())
    } else {
        Err(Status::InvalidValue)
    }
}

/// An option of two values with the numbers 0 and 1.
///
/// # Errors
/// It has another number.
pub fn flag(number: c_int) -> Result<bool> {
    match number {
        0 => Ok(false),
        1 => Ok(true),
        _ => Err(Status::InvalidValue),
    }
}

/// `cublasOperation_t`: the operation on a matrix before its use.
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
}

/// `cublasFillMode_t`: the triangle that is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fill {
    /// On and below the diagonal.
    Lower,
    /// On and above it.
    Upper,
}

impl Fill {
    /// The triangle with that number.
    ///
    /// # Errors
    /// There is no such number.
    pub fn new(number: c_int) -> Result<Self> {
        Ok(match flag(number)? {
            false => Self::Lower,
            true => Self::Upper,
        })
    }

    /// Whether the triangle holds an element.
    pub fn holds(self, row: usize, column: usize) -> bool {
        match self {
            Self::Lower => row >= column,
            Self::Upper => row <= column,
        }
    }
}
