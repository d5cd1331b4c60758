// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! `libcusparseLt.so` for a virtio-gpgpu guest. It sends calls to the host, whose own cuSPARSELt executes them.
//!
//! The library's objects are structures of the program. The whole content of descriptors and selections is stored there
//! ([`kept`]), because programs copy them and may never destroy them; a handle and a plan are an id. All functions are
//! written by hand: those for handles ([`handle`]), those that describe a matrix or a product ([`describe`]), those
//! that select an algorithm ([`selection`]), plans and products ([`plan`], [`alive`]), and pruning and compression
//! ([`sparse`]).

#![allow(non_snake_case)]

mod alive;
mod describe;
mod handle;
mod kept;
#[cfg(test)]
mod page;
mod plan;
mod selection;
mod sparse;

use gpgpu_library::{Object, Status, forward::Request, handle::Handle};
use gpgpu_protocol::libraries::{Class, Function, Library};

use kept::{Opaque, read_handle};

/// The library in the tables.
const LIBRARY: Library = Library::CusparseLt;
/// The class of its handles.
const HANDLE: Class = Class::CusparseLtHandle;
/// The class of its plans.
const PLAN: Class = Class::CusparseLtPlan;

/// Runs the body of an exported function, and turns a panic into a status.
fn enter(body: impl FnOnce() -> Result<(), Status>) -> Status {
    gpgpu_library::enter(LIBRARY, body)
}

/// An existing handle, for one call.
struct On<'a> {
    known: &'a Handle,
    id: u64,
}

impl On<'_> {
    /// Sends a call, which waits if necessary. Its first word is the handle.
    fn send<const N: usize>(
        &self,
        function: &'static Function,
        blob: &[u8],
        rest: [u64; N],
    ) -> Result<(), Status> {
        let words = self.words(rest);
        Request {
            blob,
            ..Request::new(function, &words)
        }
        .send(self.known)
    }

    /// Sends a call that waits, and returns its reply.
    fn ask_for<const N: usize>(
        &self,
        function: &'static Function,
        blob: &[u8],
        rest: [u64; N],
    ) -> Result<Vec<u8>, Status> {
        let words = self.words(rest);
        Request {
            blob,
            ..Request::new(function, &words)
        }
        .ask_for()
    }

    fn words<const N: usize>(&self, rest: [u64; N]) -> Vec<u64> {
        std::iter::once(self.id).chain(rest).collect()
    }
}

/// Runs the body of an exported function with the handle in a program's structure.
///
/// # Safety
///
/// The structure is NULL or the caller's to read.
unsafe fn enter_on(
    handle: *const Opaque,
    body: impl FnOnce(On<'_>) -> Result<(), Status>,
) -> Status {
    enter(|| {
        // SAFETY: promised by the caller.
        let id = unsafe { read_handle(handle) }?;
        gpgpu_library::handle::with(HANDLE, id as Object, |known| body(On { known, id }))
    })
}
