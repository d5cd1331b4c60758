// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! `libcublas.so` for a virtio-gpgpu guest: calls travel to the host, whose own cuBLAS carries them out.
//!
//! What the table has ([`gpgpu_protocol::libraries`]) is exported from its row ([`exports`]). What a handle was told is kept here ([`state`]). The rest is
//! made of libcuda's functions ([`transfer`]), or says what cuBLAS says on a CPU ([`words`]).

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

/// The library's place in the tables.
const LIBRARY: Library = Library::Cublas;
/// The class of its handles.
const HANDLE: Class = Class::CublasHandle;

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
