// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The arguments of exported functions, and their returns.

use std::ffi::c_int;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::memory::Plain;

/// The caller gave NULL where a function reads or writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Null;

/// Makes a library's enumeration of statuses its functions' error: its numbers are NVIDIA's, and one of it stands for
/// [`Null`]. Defines `Result` for the functions.
#[macro_export]
macro_rules! status {
    ($status:ident, of NULL $null:ident) => {
        impl From<$status> for std::ffi::c_int {
            fn from(status: $status) -> Self {
                status as Self
            }
        }

        impl From<$crate::call::Null> for $status {
            fn from(_: $crate::call::Null) -> Self {
                Self::$null
            }
        }

        /// The result of an API function.
        pub type Result<T = ()> = std::result::Result<T, $status>;
    };
}

/// A caller's pointer to one `T` that the function reads; may be NULL.
///
/// It has the pointer's ABI. Only C callers make one, and by the API's contract a pointer other than NULL is valid for
/// the call, or an address of the device's if scalars are there.
#[repr(transparent)]
pub struct Argument<T>(*const T);

impl<T> Clone for Argument<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Argument<T> {}

impl<T> Argument<T> {
    /// The same address, to something of another type.
    pub fn cast<U>(self) -> Argument<U> {
        Argument(self.0.cast())
    }

    /// Whether it is NULL.
    pub fn is_null(self) -> bool {
        self.0.is_null()
    }

    /// The address as a number; it may be a device address.
    pub fn address(self) -> u64 {
        self.0 as u64
    }
}

impl<T: Plain> Argument<T> {
    /// The value.
    ///
    /// # Errors
    /// The pointer is NULL.
    pub fn get<S: From<Null>>(self) -> Result<T, S> {
        if self.0.is_null() {
            return Err(Null.into());
        }
        // SAFETY: not NULL, so valid for a read by the API's contract.
        Ok(unsafe { self.0.read_unaligned() })
    }

    /// The values of an array of this length.
    ///
    /// # Errors
    /// The pointer is NULL.
    pub fn array<S: From<Null>>(self, count: usize) -> Result<Vec<T>, S> {
        if self.0.is_null() {
            return Err(Null.into());
        }
        // SAFETY: as in `get`, for as many as the API's contract says.
        Ok((0..count)
            .map(|at| unsafe { self.0.add(at).read_unaligned() })
            .collect())
    }
}

/// A pointer of the caller's to one `T` that the function writes. As [`Argument`].
#[repr(transparent)]
pub struct Answer<T>(*mut T);

impl<T> Answer<T> {
    /// Whether it is NULL.
    pub fn is_null(&self) -> bool {
        self.0.is_null()
    }

    /// The address as a number; it may be a device address.
    pub fn address(&self) -> u64 {
        self.0 as u64
    }

    /// The same address, to something of another type.
    pub fn cast<U>(self) -> Answer<U> {
        Answer(self.0.cast())
    }

    /// The same address, for data that is read before it is written.
    pub fn as_argument(&self) -> Argument<T> {
        Argument(self.0)
    }

    /// An element of an array; NULL if that is.
    pub fn at(&self, index: usize) -> Self {
        Self(match self.is_null() {
            true => self.0,
            false => self.0.wrapping_add(index),
        })
    }

    /// Writes a value to the host's memory.
    ///
    /// # Errors
    /// The pointer is NULL.
    pub fn set<S: From<Null>>(self, value: T) -> Result<(), S> {
        if self.0.is_null() {
            return Err(Null.into());
        }
        // SAFETY: not NULL, so valid for a write by the API's contract.
        unsafe { self.0.write_unaligned(value) };
        Ok(())
    }
}

/// Runs a function of an API, without a panic of ours reaching the caller: that is `defect`. Zero is success.
pub fn enter<S: Into<c_int>>(defect: S, f: impl FnOnce() -> Result<(), S>) -> c_int {
    match catch_unwind(AssertUnwindSafe(f)) {
        Ok(Ok(())) => 0,
        Ok(Err(status)) => status.into(),
        Err(_) => defect.into(),
    }
}
