// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Descriptors that a forked child must not keep.

use std::{
    mem::MaybeUninit,
    os::fd::RawFd,
    sync::{
        Once,
        atomic::{AtomicI32, AtomicU64, Ordering},
    },
};

/// The device and inode of an open file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Identity {
    device: u64,
    inode: u64,
}

impl Identity {
    /// That of a descriptor's file; `None` if it is closed.
    pub fn of(fd: RawFd) -> Option<Self> {
        let mut status = MaybeUninit::uninit();
        // SAFETY: the pointer is to room for the status, which is read only if the call has filled it in.
        let status = unsafe {
            match libc::fstat(fd, status.as_mut_ptr()) {
                0 => status.assume_init(),
                _ => return None,
            }
        };
        Some(Self {
            device: status.st_dev,
            inode: status.st_ino,
        })
    }
}

/// A descriptor, or -1, and its file when it was noted. A program may close it behind the library's back, as daemons
/// close all, and the number may then be another file's.
struct Noted {
    fd: AtomicI32,
    device: AtomicU64,
    inode: AtomicU64,
}

/// The descriptors that a forked child closes. A process has few connections at a time.
static CLOSED_IN_CHILDREN: [Noted; 64] = [const {
    Noted {
        fd: AtomicI32::new(-1),
        device: AtomicU64::new(0),
        inode: AtomicU64::new(0),
    }
}; 64];

/// In the list while its entry is written.
const WRITTEN: i32 = -2;

/// Makes forked children close their copies of a descriptor. Otherwise a child would keep the connection open, and with
/// it the worker, after the parent's end.
pub fn close_in_children(fd: RawFd) {
    static WATCHING: Once = Once::new();
    extern "C" fn in_child() {
        for noted in &CLOSED_IN_CHILDREN {
            // The child's own children must keep the file that gets the number next.
            let fd = noted.fd.swap(-1, Ordering::Acquire);
            let was = Identity {
                device: noted.device.load(Ordering::Relaxed),
                inode: noted.inode.load(Ordering::Relaxed),
            };
            if fd >= 0 && Identity::of(fd) == Some(was) {
                // SAFETY: closes the child's own copy of the descriptor, which nothing in the child uses.
                unsafe { libc::close(fd) };
            }
        }
    }
    // SAFETY: the handler only looks at descriptors and closes them, which a forked child may do.
    WATCHING.call_once(|| unsafe {
        libc::pthread_atfork(None, None, Some(in_child));
    });
    let Some(identity) = Identity::of(fd) else {
        return;
    };
    let (set, failed) = (Ordering::Relaxed, Ordering::Relaxed);
    let free = CLOSED_IN_CHILDREN.iter().find(|noted| {
        let claimed = noted.fd.compare_exchange(-1, WRITTEN, set, failed);
        claimed.is_ok()
    });
    if let Some(noted) = free {
        noted.device.store(identity.device, Ordering::Relaxed);
        noted.inode.store(identity.inode, Ordering::Relaxed);
        noted.fd.store(fd, Ordering::Release);
    }
}

/// Removes a descriptor that is about to be closed, because its number may be reused.
pub fn keep_in_children(fd: RawFd) {
    CLOSED_IN_CHILDREN.iter().any(|noted| {
        let (set, failed) = (Ordering::Relaxed, Ordering::Relaxed);
        noted.fd.compare_exchange(fd, -1, set, failed).is_ok()
    });
}
