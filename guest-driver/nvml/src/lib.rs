// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! NVML in a virtio-gpgpu guest: the GPUs, and only this VM's limits and use of them.
//!
//! Queries use libcuda's connection if the process has one. Otherwise they use a connection of this library ([`host`]),
//! which needs no context, works in a forked child, and exists only while it is needed. Properties of the host's GPUs
//! that a VM cannot know or change, mostly settings, are `NVML_ERROR_NOT_SUPPORTED`; so are [`sensors`], unless the
//! host's operator lets the VM read them.

#![allow(non_snake_case)]

pub mod device;
pub mod host;
mod links;
pub mod sensors;
pub mod status;
pub mod system;
#[cfg(test)]
mod tests;
pub mod types;
pub mod unsupported;
pub mod usage;

use std::ffi::c_char;

pub use status::Status;

/// The result of the body of an exported function.
pub type Result<T = ()> = std::result::Result<T, Status>;

/// Runs the body of an exported function, and turns a panic into a status.
pub(crate) fn enter(body: impl FnOnce() -> Result) -> Status {
    match std::panic::catch_unwind(std::panic::AssertUnwindSafe(body)) {
        Ok(Ok(())) => status::SUCCESS,
        Ok(Err(status)) => status,
        Err(_) => status::UNKNOWN,
    }
}

/// A pointer of an exported function's caller, for a value. Only callers of exported functions make it. They promise
/// that it is NULL or writable as long as the function runs.
#[derive(Debug)]
#[repr(transparent)]
pub struct Out<T>(pub(crate) *mut T);

impl<T> Clone for Out<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Out<T> {}

impl<T> Out<T> {
    /// Checks that the pointer is not NULL.
    pub(crate) fn required(self) -> Result {
        if self.0.is_null() {
            return Err(status::INVALID_ARGUMENT);
        }
        Ok(())
    }

    /// Writes the value.
    pub(crate) fn set(self, value: T) -> Result {
        self.required()?;
        // SAFETY: promised by its maker.
        unsafe { self.0.write(value) };
        Ok(())
    }

    /// Reads the caller's value.
    pub(crate) fn get(self) -> Result<T>
    where
        T: Copy,
    {
        self.required()?;
        // SAFETY: promised by its maker; the caller has stored a value there, as NVML requires.
        Ok(unsafe { self.0.read() })
    }

    /// The pointer to the element with this index of an array.
    pub(crate) fn nth(self, number: usize) -> Self {
        Self(self.0.wrapping_add(number))
    }
}

impl Out<c_char> {
    /// Writes a text into a buffer of `length` bytes.
    pub(crate) fn set_text(self, length: u32, text: &str) -> Result {
        self.required()?;
        if text.len() >= length as usize {
            return Err(status::INSUFFICIENT_SIZE);
        }
        for (number, byte) in text.bytes().chain([0]).enumerate() {
            self.nth(number).set(byte as c_char)?;
        }
        Ok(())
    }

    /// Writes as much of a text as there is room for.
    pub(crate) fn set_start_of_text(self, length: u32, text: &str) -> Result {
        let room = (length as usize).checked_sub(1);
        let mut end = room.ok_or(status::INVALID_ARGUMENT)?.min(text.len());
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        self.set_text(length, &text[..end])
    }
}

/// Exports functions of NVML.
macro_rules! nvml {
    ($($(#[doc = $doc:literal])* fn $name:ident($($arg:ident: $ty:ty),* $(,)?) $body:block)*) => {$(
        $(#[doc = $doc])*
        ///
        /// # Safety
        ///
        /// Pointers are NULL, or valid for the accesses of NVML's function of this name.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($arg: $ty),*) -> $crate::Status {
            $crate::enter(|| $body)
        }
    )*};
}
pub(crate) use nvml;
