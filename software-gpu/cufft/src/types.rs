// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! NVIDIA's numbers for statuses and types, which C callers pass as plain integers.

use std::ffi::c_int;

/// A `cufftResult` other than success.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(i32)]
pub enum Status {
    /// The plan is invalid, or has no transform yet.
    InvalidPlan = 1,
    /// There is no such type.
    InvalidType = 3,
    /// An argument is outside of the function's range.
    InvalidValue = 4,
    /// A defect of this library.
    InternalError = 5,
    /// The driver refused the work, or it failed.
    ExecFailed = 6,
    /// There is no software GPU.
    SetupFailed = 7,
    /// A size of the transform is outside of this library's range.
    InvalidSize = 8,
    /// The plan needs a work area and has none.
    NoWorkspace = 13,
    /// A type that this library does not compute with.
    NotSupported = 16,
}

gpgpu_stand_in::status! { Status, of NULL InvalidValue }

/// The types of input and output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// Complex numbers into complex numbers, either way.
    Complex,
    /// Real numbers into half of their spectrum.
    FromReal,
    /// Half of a spectrum into real numbers.
    ToReal,
}

/// `cufftType`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Type {
    /// The kinds of input and output.
    pub direction: Direction,
    /// In double precision.
    pub is_double: bool,
}

impl Type {
    /// The type with that number in `cufft.h`.
    pub fn new(number: c_int) -> Result<Self> {
        let direction = match number & !0x40 {
            0x29 => Direction::Complex,
            0x2a => Direction::FromReal,
            0x2c => Direction::ToReal,
            _ => return Err(Status::InvalidType),
        };
        Ok(Self {
            direction,
            is_double: number & 0x40 != 0,
        })
    }

    /// The type whose input, output and arithmetic are of these `cudaDataType`s.
    pub fn of_data(input: c_int, output: c_int, arithmetic: c_int) -> Result<Self> {
        let (direction, is_double) = match (input, output, arithmetic) {
            (4, 4, 4) => (Direction::Complex, false),
            (0, 4, 0 | 4) => (Direction::FromReal, false),
            (4, 0, 0 | 4) => (Direction::ToReal, false),
            (5, 5, 5) => (Direction::Complex, true),
            (1, 5, 1 | 5) => (Direction::FromReal, true),
            (5, 1, 1 | 5) => (Direction::ToReal, true),
            // Half precision and similar types.
            (2 | 6 | 14 | 15, ..) => return Err(Status::NotSupported),
            _ => return Err(Status::InvalidType),
        };
        Ok(Self {
            direction,
            is_double,
        })
    }
}
