// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! NVIDIA's numbers for statuses and types, which C callers pass as plain integers.

use std::cell::Cell;
use std::ffi::{CStr, c_int};

use gpgpu_stand_in::{call::Null, driver::Code};
use serde::{Deserialize, Serialize};

/// A `cudnnStatus_t` other than success.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(i32)]
pub enum Status {
    /// There is no driver, or it is not the software GPU's.
    NotInitialized = 1001,
    /// An argument is outside of the function's range, or names no object.
    BadParam = 2000,
    /// A pointer is NULL.
    NullPointer = 2002,
    /// A descriptor is not finalised, or already is.
    NotFinalized = 2004,
    /// An attribute is not of this type.
    AttributeType = 2010,
    /// A combination that this library does not have.
    NotSupported = 3000,
    /// A defect of this library.
    InternalError = 4000,
    /// The driver refused the work, or it failed.
    ExecutionFailed = 5000,
}

impl From<Status> for c_int {
    fn from(status: Status) -> Self {
        LAST.set(status as Self);
        status as Self
    }
}

impl From<Null> for Status {
    fn from(_: Null) -> Self {
        Self::NullPointer
    }
}

impl From<Code> for Status {
    fn from(_: Code) -> Self {
        Self::ExecutionFailed
    }
}

/// The result of an API function.
pub type Result<T = ()> = std::result::Result<T, Status>;

thread_local! {
    static LAST: Cell<c_int> = const { Cell::new(0) };
}

/// The last status of this thread that was not success, or 0.
pub fn last() -> c_int {
    LAST.get()
}

/// A status's name; also has one for invalid numbers.
pub fn describe(status: c_int) -> &'static CStr {
    match status {
        0 => c"CUDNN_STATUS_SUCCESS",
        1001 => c"CUDNN_STATUS_NOT_INITIALIZED",
        2000 => c"CUDNN_STATUS_BAD_PARAM",
        2002 => c"CUDNN_STATUS_BAD_PARAM_NULL_POINTER",
        2004 => c"CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED",
        2010 => c"CUDNN_STATUS_BAD_PARAM_ATTRIBUTE_TYPE",
        3000 => c"CUDNN_STATUS_NOT_SUPPORTED",
        4000 => c"CUDNN_STATUS_INTERNAL_ERROR",
        5000 => c"CUDNN_STATUS_EXECUTION_FAILED",
        _ => c"CUDNN_UNKNOWN_STATUS",
    }
}

/// The types of elements that are computed with (`cudnnDataType_t`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum Data {
    /// `CUDNN_DATA_FLOAT`.
    #[default]
    Single,
    /// `CUDNN_DATA_DOUBLE`.
    Double,
}

impl Data {
    /// The type with that number.
    ///
    /// # Errors
    /// `NotSupported` for the other types of cuDNN, `BadParam` for invalid ones.
    pub fn new(number: c_int) -> Result<Self> {
        match number {
            0 => Ok(Self::Single),
            1 => Ok(Self::Double),
            2..=23 => Err(Status::NotSupported),
            _ => Err(Status::BadParam),
        }
    }

    /// Its number.
    pub fn number(self) -> c_int {
        match self {
            Self::Single => 0,
            Self::Double => 1,
        }
    }

    /// Bytes of an element.
    pub fn bytes(self) -> usize {
        match self {
            Self::Single => 4,
            Self::Double => 8,
        }
    }
}

/// `BadParam` unless the arguments are right.
pub fn require(right: bool) -> Result {
    if right { Ok(()) } else { Err(Status::BadParam) }
}
