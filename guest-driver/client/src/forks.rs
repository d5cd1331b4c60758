// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Detects forks. A forked child has the parent's connection, but must neither use it nor close it, because that would
//! act for the parent. Natively, CUDA does not work in such a child either.

use std::sync::{
    Once,
    atomic::{AtomicBool, Ordering},
};

static FORKED: AtomicBool = AtomicBool::new(false);

/// Whether this process was forked from one that has called [`watch`].
#[inline]
pub fn is_child() -> bool {
    FORKED.load(Ordering::Relaxed)
}

/// Detects forks from now on.
pub fn watch() {
    extern "C" fn in_child() {
        FORKED.store(true, Ordering::Relaxed);
    }
    static WATCH: Once = Once::new();
    WATCH.call_once(|| {
        // SAFETY: the handler is a function that only stores to an atomic.
        unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
    });
}
