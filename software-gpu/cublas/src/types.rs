// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! NVIDIA's numbers for statuses, types and options, which C callers pass as plain integers.

use std::ffi::{CStr, c_int};
use std::sync::LazyLock;

/// A `cublasStatus_t` other than success.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(i32)]
pub enum Status {
    /// The handle is invalid.
    NotInitialized = 1,
    /// An argument is outside of the function's range.
    InvalidValue = 7,
    /// The driver refused the work, or it failed.
    ExecutionFailed = 13,
    /// A defect of this library.
    InternalError = 14,
    /// A combination of types that the function does not have.
    NotSupported = 15,
}

gpgpu_stand_in::status! { Status, of NULL InvalidValue }

const STATUSES: [(c_int, &CStr, &CStr); 10] = [
    (0, c"CUBLAS_STATUS_SUCCESS", c"success"),
    (
        1,
        c"CUBLAS_STATUS_NOT_INITIALIZED",
        c"the library was not initialized",
    ),
    (
        3,
        c"CUBLAS_STATUS_ALLOC_FAILED",
        c"the resource allocation failed",
    ),
    (
        7,
        c"CUBLAS_STATUS_INVALID_VALUE",
        c"an invalid value was used as an argument",
    ),
    (
        8,
        c"CUBLAS_STATUS_ARCH_MISMATCH",
        c"the device has not the required architecture",
    ),
    (
        11,
        c"CUBLAS_STATUS_MAPPING_ERROR",
        c"an access to the GPU memory space failed",
    ),
    (
        13,
        c"CUBLAS_STATUS_EXECUTION_FAILED",
        c"the function failed to launch on the GPU",
    ),
    (
        14,
        c"CUBLAS_STATUS_INTERNAL_ERROR",
        c"an internal operation failed",
    ),
    (
        15,
        c"CUBLAS_STATUS_NOT_SUPPORTED",
        c"the functionality is not supported",
    ),
    (
        16,
        c"CUBLAS_STATUS_LICENSE_ERROR",
        c"the required license was not found",
    ),
];

/// A status's name and its text; also for numbers that are no status.
pub fn describe(status: c_int) -> (&'static CStr, &'static CStr) {
    let found = STATUSES.iter().find(|s| s.0 == status);
    found.map_or((c"unknown status", c"unknown status"), |s| (s.1, s.2))
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
    /// Conjugated if complex.
    Conjugate,
}

impl Operation {
    /// The operation with that number.
    pub fn new(number: c_int) -> Result<Self> {
        Ok(match number {
            0 => Self::None,
            1 => Self::Transpose,
            2 => Self::Adjoint,
            3 => Self::Conjugate,
            _ => return Err(Status::InvalidValue),
        })
    }

    /// Whether rows become columns.
    pub fn transposes(self) -> bool {
        matches!(self, Self::Transpose | Self::Adjoint)
    }

    /// Whether complex numbers are conjugated.
    pub fn conjugates(self) -> bool {
        matches!(self, Self::Adjoint | Self::Conjugate)
    }

    /// The shape that a matrix must have in memory so that the operation makes it `rows` by `columns`.
    pub fn stored(self, rows: i64, columns: i64) -> (i64, i64) {
        if self.transposes() {
            (columns, rows)
        } else {
            (rows, columns)
        }
    }
}

/// `cublasFillMode_t`: the triangle that is used. No function here supports `CUBLAS_FILL_MODE_FULL`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fill {
    /// On and below the diagonal.
    Lower,
    /// On and above it.
    Upper,
}

impl Fill {
    /// The triangle with that number.
    pub fn new(number: c_int) -> Result<Self> {
        match number {
            0 => Ok(Self::Lower),
            1 => Ok(Self::Upper),
            _ => Err(Status::InvalidValue),
        }
    }

    /// Whether the triangle holds an element.
    pub fn holds(self, row: usize, column: usize) -> bool {
        match self {
            Self::Lower => row >= column,
            Self::Upper => row <= column,
        }
    }

    /// The triangle that this one is once an operation is done.
    pub fn after(self, operation: Operation) -> Self {
        match (self, operation.transposes()) {
            (Self::Lower, true) => Self::Upper,
            (Self::Upper, true) => Self::Lower,
            (same, false) => same,
        }
    }
}

/// An option of two values with the numbers 0 and 1.
fn flag(number: c_int) -> Result<bool> {
    match number {
        0 => Ok(false),
        1 => Ok(true),
        _ => Err(Status::InvalidValue),
    }
}

/// `cublasSideMode_t`: whether the matrix or diagonal is on the right.
pub fn is_right(side: c_int) -> Result<bool> {
    flag(side)
}

/// `cublasDiagType_t`: whether the diagonal is taken for ones.
pub fn is_unit(diagonal: c_int) -> Result<bool> {
    flag(diagonal)
}

/// `cublasPointerMode_t`: whether scalars are in device memory.
pub fn is_device_mode(mode: c_int) -> Result<bool> {
    flag(mode)
}

/// `cudaDataType_t` of this library's types.
pub mod data {
    use std::ffi::c_int;

    /// `f32`.
    pub const R_32F: c_int = 0;
    /// `f64`.
    pub const R_64F: c_int = 1;
    /// `half::f16`.
    pub const R_16F: c_int = 2;
    /// `i8`.
    pub const R_8I: c_int = 3;
    /// Two `f32`.
    pub const C_32F: c_int = 4;
    /// Two `f64`.
    pub const C_64F: c_int = 5;
    /// Two `i8`.
    pub const C_8I: c_int = 7;
    /// `i32`.
    pub const R_32I: c_int = 10;
    /// `half::bf16`.
    pub const R_16BF: c_int = 14;
}

/// `cublasComputeType_t` by its effect here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Compute {
    /// Scalars in half precision. Sums are in single precision.
    Half,
    /// Single precision.
    Single,
    /// Single precision for types that are only stored in single precision: the `FAST` and emulated types.
    SingleOnly,
    /// The same, of real inputs in TF32.
    Tf32,
    /// Double precision.
    Double,
    /// 32-bit integers.
    Integer,
}

impl Compute {
    /// The type with that number.
    pub fn new(number: c_int) -> Result<Self> {
        Ok(match number {
            64 | 65 => Self::Half,
            68 | 69 => Self::Single,
            77 if allows_tf32() => Self::Tf32,
            74 | 75 | 77 | 78 => Self::SingleOnly,
            70 | 71 | 79 => Self::Double,
            72 | 73 => Self::Integer,
            _ => return Err(Status::InvalidValue),
        })
    }
}

/// Whether functions may round to TF32: `NVIDIA_TF32_OVERRIDE=0` forbids it.
fn allows_tf32() -> bool {
    static ALLOWS: LazyLock<bool> =
        LazyLock::new(|| std::env::var_os("NVIDIA_TF32_OVERRIDE").is_none_or(|value| value != "0"));
    *ALLOWS
}
