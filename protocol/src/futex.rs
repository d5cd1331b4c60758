// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Sleeping on a word of memory that processes of one machine share (`futex(2)`).

use std::sync::atomic::AtomicU32;

/// Sleeps until [`wake`], if the word is `value`; may return early.
pub fn wait(word: &AtomicU32, value: u32) {
    let no_limit = std::ptr::null::<libc::timespec>();
    // SAFETY: the word lives across the call, which only reads it; without FUTEX_PRIVATE_FLAG other processes are meant
    // too.
    unsafe {
        libc::syscall(
            libc::SYS_futex,
            word.as_ptr(),
            libc::FUTEX_WAIT,
            value,
            no_limit,
        )
    };
}

/// As [`wait`], for a limited time.
pub fn wait_for(word: &AtomicU32, value: u32, limit: std::time::Duration) {
    let limit = libc::timespec {
        tv_sec: limit.as_secs() as libc::time_t,
        tv_nsec: limit.subsec_nanos().into(),
    };
    // SAFETY: as above; the limit lives across the call too.
    unsafe {
        libc::syscall(
            libc::SYS_futex,
            word.as_ptr(),
            libc::FUTEX_WAIT,
            value,
            &raw const limit,
        )
    };
}

/// Wakes all threads that sleep on the word.
pub fn wake(word: &AtomicU32) {
    // SAFETY: as above.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAKE, i32::MAX) };
}
