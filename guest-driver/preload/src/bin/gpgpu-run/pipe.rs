// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The program's handling of SIGPIPE.
//!
//! Rust's start ignores the signal, and `Command` resets it to its default. The program has to get the disposition with
//! which gpgpu-run was started: a service may ignore the signal, and expects that of the programs that it starts.

use std::os::unix::process::CommandExt as _;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

static IGNORED: AtomicBool = AtomicBool::new(false);

/// Runs before Rust's start.
#[used]
#[unsafe(link_section = ".init_array")]
static LOOK: extern "C" fn() = look;

extern "C" fn look() {
    // SAFETY: all zeros is a valid value, and the call only writes the present disposition to it.
    let ignored = unsafe {
        let mut present: libc::sigaction = std::mem::zeroed();
        libc::sigaction(libc::SIGPIPE, std::ptr::null(), &mut present) == 0
            && present.sa_sigaction == libc::SIG_IGN
    };
    IGNORED.store(ignored, Ordering::Relaxed);
}

/// Gives the command the disposition of the start.
pub fn keep(command: &mut Command) {
    if IGNORED.load(Ordering::Relaxed) {
        let ignore = || {
            // SAFETY: the call takes numbers.
            unsafe { libc::signal(libc::SIGPIPE, libc::SIG_IGN) };
            Ok(())
        };
        // SAFETY: the closure makes one system call.
        unsafe { command.pre_exec(ignore) };
    }
}
