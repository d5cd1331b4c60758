// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! `libcurand.so` for a virtio-gpgpu guest: calls travel to the host, whose own cuRAND carries them out.
//!
//! Numbers are made on the GPU ([`numbers`]); those of a generator for the host are copied to the program's memory
//! afterwards. A generator's settings are kept ([`generators`]), and so are the tables for quasirandom sequences
//! ([`tables`]).

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

/// The library's place in the tables.
const LIBRARY: Library = Library::Curand;
/// The class of its generators.
const GENERATOR: Class = Class::CurandGenerator;

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
