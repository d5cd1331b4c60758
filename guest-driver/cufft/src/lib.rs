// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! `libcufft.so` for a virtio-gpgpu guest. It sends calls to the host, whose own cuFFT executes them.
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

/// The library in the tables.
const LIBRARY: Library = Library::Cufft;
/// The class of its plans.
const PLAN: Class = Class::CufftPlan;

/// Runs the body of an exported function, and turns a panic into a status.
fn enter(body: impl FnOnce() -> Result<(), Status>) -> Status {
    gpgpu_library::enter(LIBRARY, body)
}

/// Writes a value to the program's pointer.
///
/// # Safety
///
/// The pointer is NULL or the caller's to write to.
unsafe fn give<T>(to: *mut T, value: T) -> Result<(), Status> {
    // SAFETY: promised by the caller.
    unsafe { gpgpu_library::give(LIBRARY, to, value) }
}
