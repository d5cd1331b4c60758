// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Signals and the library's own threads.

use std::{io, mem::MaybeUninit, thread};

/// Starts a thread with all signals blocked: a thread of the library must not run the program's signal handlers.
///
/// # Errors
///
/// The process cannot start more threads.
pub fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> io::Result<()> {
    with_all_blocked(|| {
        thread::Builder::new()
            .name(name.into())
            .spawn(run)
            .map(drop)
    })
}

/// Runs `body` with all signals blocked in this thread. Threads that it starts inherit that.
fn with_all_blocked<T>(body: impl FnOnce() -> T) -> T {
    let mut all = MaybeUninit::uninit();
    let mut before = MaybeUninit::uninit();
    // SAFETY: both sets are written before they are read.
    unsafe {
        libc::sigfillset(all.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr());
    }
    let result = body();
    // SAFETY: `before` was filled in by the call above.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, before.as_ptr(), std::ptr::null_mut()) };
    result
}
