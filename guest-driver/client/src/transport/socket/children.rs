// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Descriptors that a forked child must not keep.

use std::{
    os::fd::RawFd,
    sync::{
        Once,
        atomic::{AtomicI32, Ordering},
    },
};

/// The descriptors that a forked child closes; -1 for a free entry. A process has few connections at a time.
static CLOSED_IN_CHILDREN: [AtomicI32; 16] = [const { AtomicI32::new(-1) }; 16];

/// Makes forked children close their copies of a descriptor. Otherwise a child would keep the connection open, and with
/// it the worker, after the parent's end.
pub fn close_in_children(fd: RawFd) {
    static WATCHING: Once = Once::new();
    extern "C" fn in_child() {
        for fd in &CLOSED_IN_CHILDREN {
            let fd = fd.load(Ordering::Relaxed);
            if fd >= 0 {
                // SAFETY: closes the child's own copy of the descriptor, which nothing in the child uses.
                unsafe { libc::close(fd) };
            }
        }
    }
    // SAFETY: the handler only closes descriptors, which a forked child may do.
    WATCHING.call_once(|| unsafe {
        libc::pthread_atfork(None, None, Some(in_child));
    });
    replace_descriptor(-1, fd);
}

/// Removes a descriptor that is about to be closed, because its number may be reused.
pub fn keep_in_children(fd: RawFd) {
    replace_descriptor(fd, -1);
}

fn replace_descriptor(from: RawFd, to: RawFd) {
    CLOSED_IN_CHILDREN.iter().any(|place| {
        let (set, failed) = (Ordering::Relaxed, Ordering::Relaxed);
        place.compare_exchange(from, to, set, failed).is_ok()
    });
}
