// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Writes the output of kernels to the program's standard output, and messages of failed assertions to its standard
//! error.
//!
//! The host's driver writes the text when it waits for the work, not when the GPU has done the work. So from a launch
//! of a function that may print until a wait for its context, each wait of this process is a wait of a worker's thread
//! in the driver. An answer reports whether there is text, and the library writes that text before the call returns.

use std::{
    ffi::c_void,
    sync::atomic::{AtomicU64, Ordering},
};

use gpgpu_locks::{Mutex, MutexGuard};

use crate::thread;

/// Stands for more than one context.
const SEVERAL: u64 = u64::MAX;

/// The state of pending output, and the lock for writing it.
#[derive(Debug, Default)]
pub struct Output {
    /// The number of launches of functions that may print.
    launched: AtomicU64,
    /// The number of them for which a wait is over.
    waited: AtomicU64,
    /// Their context, or [`SEVERAL`]; 0 before the first.
    context: AtomicU64,
    /// Held while text is fetched and written, to keep its order.
    taking: Mutex<()>,
}

impl Output {
    /// Records a launch that may print in the current context.
    pub fn launched(&self) {
        let context = thread::current_context();
        let before = self.context.load(Ordering::Relaxed);
        if before != context {
            let now = if before == 0 { context } else { SEVERAL };
            self.context.store(now, Ordering::Relaxed);
        }
        self.launched.fetch_add(1, Ordering::Release);
    }

    /// The number of launches. Pass it to [`Output::waited`] when a wait that begins now is over.
    pub fn mark(&self) -> u64 {
        self.launched.load(Ordering::Acquire)
    }

    /// Records that the current context has done all launches before the mark, and that the host's driver has waited
    /// for it.
    pub fn waited(&self, mark: u64) {
        // With several contexts, the library does not track which has printed.
        if self.context.load(Ordering::Relaxed) == thread::current_context() {
            self.waited.fetch_max(mark, Ordering::Relaxed);
        }
    }

    /// Locks the fetching and writing of text.
    pub fn take(&self) -> MutexGuard<'_, ()> {
        self.taking.lock()
    }

    /// Waits until the text that other threads have fetched is written, because it may belong to the caller's own work.
    #[cold]
    pub fn wait_for_others(&self) {
        drop(self.take());
    }

    /// Whether something may have been printed that the host's driver has not written yet.
    #[inline]
    pub fn is_due(&self) -> bool {
        self.launched.load(Ordering::Relaxed) != self.waited.load(Ordering::Relaxed)
    }
}

unsafe extern "C" {
    static stdout: *mut libc::FILE;
    static stderr: *mut libc::FILE;
}

/// Writes text to the C library's streams, so that it follows the program's own output with any buffering.
pub fn put(output: &[u8], error: &[u8]) {
    // SAFETY: both are the C library's, which any thread may use and change nothing but by its own functions.
    let streams = unsafe { [stdout, stderr] };
    for (stream, text) in streams.into_iter().zip([output, error]) {
        if !text.is_empty() && !stream.is_null() {
            // SAFETY: the stream is the C library's; the text is as long as it is said to be.
            unsafe {
                libc::fwrite(text.as_ptr().cast::<c_void>(), 1, text.len(), stream);
                libc::fflush(stream);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_of_a_launch_is_due_until_its_context_was_waited_for() {
        std::thread::spawn(|| {
            let output = Output::default();
            assert!(!output.is_due());
            thread::set_context(1);
            output.launched();
            let mark = output.mark();
            output.launched();
            output.waited(mark);
            assert!(output.is_due(), "the second came after the wait began");
            thread::set_context(2);
            output.waited(output.mark());
            assert!(output.is_due(), "another context");
            thread::set_context(1);
            output.waited(output.mark());
            assert!(!output.is_due());
            thread::set_context(2);
            output.launched();
            output.waited(output.mark());
            assert!(output.is_due(), "one of several contexts");
        })
        .join()
        .unwrap();
    }
}
