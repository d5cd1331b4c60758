// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! `libcusolver.so` for a virtio-gpgpu guest. It sends calls to the host, whose own cuSOLVER executes them.
//!
//! The table's functions ([`gpgpu_protocol::libraries`]) are exported from their rows ([`exports`]). A handle's
//! settings are kept here ([`state`]).

#![allow(non_snake_case)]

mod exports;
#[cfg(test)]
mod page;
mod state;
mod unsupported;

use gpgpu_library::Status;
use gpgpu_protocol::libraries::Library;

/// The library in the tables.
const LIBRARY: Library = Library::Cusolver;

/// Runs the body of an exported function, and turns a panic into a status.
fn enter(body: impl FnOnce() -> Result<(), Status>) -> Status {
    gpgpu_library::enter(LIBRARY, body)
}
