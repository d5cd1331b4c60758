// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Detects forks. A forked child has the parent's connection, but must neither use it nor close it, because that would
//! act for the parent. Natively, CUDA does not work in such a child either.

use std::sync::{
    Once,
    atomic::{AtomicBool, Ordering},
};

/// Declares a function that, once called, makes forks wait for a lock, which is free in the child. Otherwise the child
/// could get it locked by a thread that it does not have. `fn NAME() for LOCK: TYPE`, where LOCK is a static
/// `gpgpu_locks::Mutex<TYPE>`.
#[macro_export]
macro_rules! held_over_forks {
    ($(#[$meta:meta])* fn $name:ident() for $lock:ident: $type:ty) => {
        $(#[$meta])*
        fn $name() {
            /// The lock's guard while this process forks.
            struct Forking(std::cell::UnsafeCell<Option<gpgpu_locks::MutexGuard<'static, $type>>>);

            // SAFETY: only a thread that forks accesses it, between its handlers. It has the lock then, so there is one
            // such thread.
            unsafe impl Sync for Forking {}

            static FORKING: Forking = Forking(std::cell::UnsafeCell::new(None));

            extern "C" fn before() {
                let guard = $lock.lock();
                // SAFETY: see `Forking`.
                unsafe { *FORKING.0.get() = Some(guard) };
            }
            extern "C" fn after() {
                // SAFETY: see `Forking`. This is the thread that has locked it, in the child too.
                drop(unsafe { (*FORKING.0.get()).take() });
            }
            static WATCH: std::sync::Once = std::sync::Once::new();
            WATCH.call_once(|| {
                // SAFETY: the handlers only lock and unlock.
                unsafe { libc::pthread_atfork(Some(before), Some(after), Some(after)) };
            });
        }
    };
}

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
