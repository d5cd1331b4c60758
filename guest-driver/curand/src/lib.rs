// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! `libcurand.so` for a virtio-gpgpu guest. It sends calls to the host, whose own cuRAND executes them.
//!
//! Numbers are generated on the GPU ([`numbers`]); those of a host generator are then copied to the program's memory. A
//! generator's settings are kept here ([`generators`]), as are the tables for quasirandom sequences ([`tables`]).

#![allow(non_snake_case)]

mod exports;
mod generators;
mod numbers;
#[cfg(test)]
mod page;
mod tables;
mod unsupported;

use gpgpu_library::Status;
use gpgpu_protocol::libraries::{Class, Library};

/// The library in the tables.
const LIBRARY: Library = Library::Curand;
/// The class of its generators.
const GENERATOR: Class = Class::CurandGenerator;

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
