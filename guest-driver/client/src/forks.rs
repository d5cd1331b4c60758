// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Forks: after one the child has the parent's connection but must not use it, nor close it: it would speak for the
//! parent. CUDA does not work in such a child natively either.

use std::sync::{
    Once,
    atomic::{AtomicBool, Ordering},
};

static FORKED: AtomicBool = AtomicBool::new(false);

/// Whether this process was forked off one that watched for that.
#[inline]
pub fn is_child() -> bool {
    FORKED.load(Ordering::Relaxed)
}

/// Watches for forks from now on.
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
