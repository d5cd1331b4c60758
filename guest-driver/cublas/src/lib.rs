// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! `libcublas.so` for a virtio-gpgpu guest. It sends calls to the host, whose own cuBLAS executes them.
//!
//! The table's functions ([`gpgpu_protocol::libraries`]) are exported from their rows ([`exports`]). A handle's
//! settings are kept here ([`state`]). The other functions use libcuda ([`transfer`]), or need no GPU ([`words`]).

#![allow(non_snake_case)]

mod exports;
#[cfg(test)]
mod page;
mod state;
mod transfer;
mod unsupported;
mod words;

use gpgpu_library::Status;
use gpgpu_protocol::libraries::{Class, Library};

/// The library in the tables.
const LIBRARY: Library = Library::Cublas;
/// The class of its handles.
const HANDLE: Class = Class::CublasHandle;

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
