// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! A hook that runs before the GPU receives work: it moves memory that both the program and the GPU use to the GPU.
//!
//! A program without such memory pays one load for each submission of work.

use std::{
    cell::Cell,
    sync::{
        OnceLock,
        atomic::{AtomicUsize, Ordering},
    },
};

use gpgpu_protocol::api::{Gives, Request, request};

/// The function to call before a stream receives work, with the stream's id.
pub type Hook = fn(stream: u64);

static HOOK: OnceLock<Hook> = OnceLock::new();
static WANTED: AtomicUsize = AtomicUsize::new(0);

/// Sets the hook, once.
pub fn set(hook: Hook) {
    let _ = HOOK.set(hook);
}

/// Sets the number of pending actions: with 0, the hook is not called.
pub fn want(how_much: usize) {
    WANTED.store(how_much, Ordering::Release);
}

/// Whether there is a pending action. A thread that has added one has stored this before.
#[inline]
pub fn is_wanted() -> bool {
    WANTED.load(Ordering::Relaxed) != 0
}

thread_local! {
    /// Whether this thread's requests are the library's own.
    static OWN: Cell<bool> = const { Cell::new(false) };
}

/// Sets whether this thread's further requests are the library's own, which need no hook; returns the previous value.
pub fn set_own(is_own: bool) -> bool {
    OWN.replace(is_own)
}

/// Whether this thread's requests are the library's own.
#[inline]
pub fn is_own() -> bool {
    OWN.get()
}

/// Calls the hook for a stream that is about to receive work.
#[cold]
pub fn call(stream: u64) {
    if is_own() {
        return;
    }
    if let Some(hook) = HOOK.get() {
        hook(stream);
    }
}

/// Whether a request may make the GPU use memory. A host callback does not.
pub(crate) const fn uses_memory<R: Request>() -> bool {
    matches!(R::GIVES, Gives::Work)
        && R::OP != request::cuLaunchHostFunc::OP
        && R::OP != request::cuStreamAddCallback::OP
}

/// Calls the hook for a request that is about to be sent, if necessary.
#[inline]
pub(crate) fn sending<R: Request>(request: &R) {
    if const { uses_memory::<R>() } && is_wanted() {
        call(request.stream().unwrap_or(0));
    }
}
