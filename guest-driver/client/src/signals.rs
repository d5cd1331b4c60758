// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Signals, cancellation, and the library's own threads.

use std::{ffi::c_int, io, mem::MaybeUninit, thread};

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

unsafe extern "C" {
    /// POSIX.
    fn pthread_setcancelstate(state: c_int, before: *mut c_int) -> c_int;
}

/// `PTHREAD_CANCEL_DISABLE`.
const DISABLE: c_int = 1;

/// While this exists, the thread cannot be cancelled (`pthread_cancel`): the cancellation of a thread unwinds its stack,
/// which the library's frames do not permit. It is for calls with system calls that are points of cancellation.
pub struct Whole {
    before: c_int,
}

impl Whole {
    /// Disables cancellation.
    pub fn begin() -> Self {
        let mut before = 0;
        // SAFETY: the pointer is to a value that lives across the call.
        unsafe { pthread_setcancelstate(DISABLE, &mut before) };
        Self { before }
    }
}

impl Drop for Whole {
    fn drop(&mut self) {
        // SAFETY: the state is the one that `begin` was given; the other pointer may be NULL.
        unsafe { pthread_setcancelstate(self.before, std::ptr::null_mut()) };
    }
}

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
