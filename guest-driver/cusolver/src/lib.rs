// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! `libcusolver.so` for a virtio-gpgpu guest: calls travel to the host, whose own cuSOLVER carries them out.
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

/// The library's place in the tables.
const LIBRARY: Library = Library::Cusolver;

/// Runs the body of an exported function: no panic leaves it.
fn enter(body: impl FnOnce() -> Result<(), Status>) -> Status {
    gpgpu_library::enter(LIBRARY, body)
}
