// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Signals and the library's own threads.

use std::{io, mem::MaybeUninit, thread};

/// The signals of faults. The kernel ends a process at a fault whose signal is blocked, even if the program has a
/// handler that would repair the access, as garbage collectors have. A thread of the library accesses the program's
/// memory.
const FAULTS: [i32; 5] = [
    libc::SIGSEGV,
    libc::SIGBUS,
    libc::SIGFPE,
    libc::SIGILL,
    libc::SIGTRAP,
];

/// Starts a thread with all signals blocked except those of faults: a thread of the library must not run the program's
/// other signal handlers.
///
/// # Errors
///
/// The process cannot start more threads.
pub fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> io::Result<()> {
    with_others_blocked(|| {
        thread::Builder::new()
            .name(name.into())
            .spawn(run)
            .map(drop)
    })
}

/// Runs `body` with all signals but those of faults blocked in this thread. Threads that it starts inherit that.
fn with_others_blocked<T>(body: impl FnOnce() -> T) -> T {
    let mut others = MaybeUninit::uninit();
    let mut before = MaybeUninit::uninit();
    // SAFETY: both sets are written before they are read.
    unsafe {
        libc::sigfillset(others.as_mut_ptr());
        for fault in FAULTS {
            libc::sigdelset(others.as_mut_ptr(), fault);
        }
        libc::pthread_sigmask(libc::SIG_SETMASK, others.as_ptr(), before.as_mut_ptr());
    }
    let result = body();
    // SAFETY: `before` was filled in by the call above.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, before.as_ptr(), std::ptr::null_mut()) };
    result
}
