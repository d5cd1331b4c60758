// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! `libcudnn.so` for a virtio-gpgpu guest. It sends calls to the host, whose own cuDNN executes them.
//!
//! The table's functions ([`gpgpu_protocol::libraries`]) are exported from their rows ([`exports`]). They use
//! [`calls`], which determines the width of scaling factors ([`tensors`]). The backend's descriptors are in
//! [`backend`], and functions with arrays whose length is in a descriptor are in [`sequences`]. This library answers
//! the others itself, from a handle's state ([`words`]).

#![allow(non_snake_case)]

mod backend;
mod calls;
mod exports;
mod pack;
#[cfg(test)]
mod page;
mod sequences;
mod tensors;
mod unsupported;
mod weights;
mod words;

use gpgpu_library::Status;
use gpgpu_protocol::libraries::{Class, Library};

/// The library in the tables.
const LIBRARY: Library = Library::Cudnn;
/// The class of its handles.
const HANDLE: Class = Class::CudnnHandle;

/// Runs the body of an exported function, turns a panic into a status, and records the thread's last error.
fn enter(name: &'static str, body: impl FnOnce() -> Result<(), Status>) -> Status {
    let status = gpgpu_library::enter(LIBRARY, body);
    words::note(name, status);
    status
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
