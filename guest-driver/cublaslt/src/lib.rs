// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! `libcublasLt.so` for a virtio-gpgpu guest. It sends calls to the host, whose own cuBLASLt executes them.
//!
//! Descriptors are kept here ([`descriptor`], [`descriptors`]). A call carries the whole content of its descriptors
//! ([`product`], [`algorithm`]), unless the host keeps them ([`plans`]). The library's answers about algorithms are
//! cached by query ([`answers`]). Handles are this library's ([`exports`]) or our libcublas's ([`call`]). The other
//! functions need no host ([`words`]).

#![allow(non_snake_case)]

mod algorithm;
mod answers;
mod call;
mod descriptor;
mod descriptors;
mod exports;
mod joined;
#[cfg(test)]
mod page;
mod plans;
mod product;
mod recent;
mod sequence;
mod unsupported;
mod words;

use gpgpu_library::Status;
use gpgpu_protocol::libraries::{Class, Library};

/// The library in the tables.
const LIBRARY: Library = Library::CublasLt;
/// The class of its own handles.
const HANDLE: Class = Class::CublasLtHandle;

/// Runs the body of an exported function, and turns a panic into a status.
fn enter(body: impl FnOnce() -> Result<(), Status>) -> Status {
    gpgpu_library::enter(LIBRARY, body)
}
