// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! `libcufft.so` for a virtio-gpgpu guest: calls travel to the host, whose own cuFFT carries them out.
//!
//! A plan is an `int` in the program. Its settings, and the id of the host's object, are kept here ([`plan`]). The
//! functions that describe a plan's transform, or execute it, are rows of the table ([`calls`]); those that set
//! something are written by hand ([`settings`]).

#![allow(non_snake_case)]

mod calls;
#[cfg(test)]
mod page;
mod plan;
mod settings;
mod unsupported;

use gpgpu_library::Status;
use gpgpu_protocol::libraries::{Class, Library};

/// The library's place in the tables.
const LIBRARY: Library = Library::Cufft;
/// The class of its plans.
const PLAN: Class = Class::CufftPlan;

/// Runs the body of an exported function: no panic leaves it.
fn enter(body: impl FnOnce() -> Result<(), Status>) -> Status {
    gpgpu_library::enter(LIBRARY, body)
}

/// Writes a value to where the program wants it.
///
/// # Safety
///
/// The pointer is NULL or the caller's to write to.
unsafe fn give<T>(to: *mut T, value: T) -> Result<(), Status> {
    // SAFETY: promised by the caller.
    unsafe { gpgpu_library::give(LIBRARY, to, value) }
}
