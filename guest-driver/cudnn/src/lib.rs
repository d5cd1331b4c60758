// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! `libcudnn.so` for a virtio-gpgpu guest: calls travel to the host, whose own cuDNN carries them out.
//!
//! What the table has ([`gpgpu_protocol::libraries`]) is exported from its row ([`exports`]), and goes by [`calls`], which knows how wide
//! scaling factors are ([`tensors`]). The backend's descriptors have a file of their own ([`backend`]), as have functions with arrays whose length a descriptor says
//! ([`sequences`]). The rest is what this library says by itself, or knows of a handle ([`words`]).

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
mod words;

use gpgpu_library::Status;
use gpgpu_protocol::libraries::{Class, Library};

/// The library's place in the tables.
const LIBRARY: Library = Library::Cudnn;
/// The class of its handles.
const HANDLE: Class = Class::CudnnHandle;

/// Runs the body of an exported function: no panic leaves it, and the thread's last error is kept.
fn enter(name: &'static str, body: impl FnOnce() -> Result<(), Status>) -> Status {
    let status = gpgpu_library::enter(LIBRARY, body);
    words::note(name, status);
    status
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
