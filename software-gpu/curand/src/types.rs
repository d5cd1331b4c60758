// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! NVIDIA's numbers for statuses, which C callers pass as plain integers.

/// A `curandStatus_t` other than success.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(i32)]
pub enum Status {
    /// The generator is invalid.
    NotInitialized = 101,
    /// The generator's type is invalid, or does not support this.
    TypeError = 103,
    /// An argument is outside of the function's range.
    OutOfRange = 104,
    /// The length is odd, but numbers are generated in pairs.
    LengthNotMultiple = 105,
    /// The driver refused the work, or it failed.
    LaunchFailure = 201,
    /// There is no software GPU.
    InitializationFailed = 203,
    /// A defect of this library.
    InternalError = 999,
}

gpgpu_stand_in::status! { Status, of NULL OutOfRange }
