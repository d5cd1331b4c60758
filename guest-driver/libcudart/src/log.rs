// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Messages for the user, on standard error. They are written only if the environment variable `VIRTIO_GPGPU_LOG` is
//! set.

use std::io::Write;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

fn enabled() -> bool {
    static ENABLED: OnceLock<bool> = OnceLock::new();
    *ENABLED.get_or_init(|| std::env::var_os("VIRTIO_GPGPU_LOG").is_some())
}

/// Writes `message` if logging is on. A closed standard error is no error of the program.
pub fn say(message: std::fmt::Arguments<'_>) {
    if enabled() {
        let _ = writeln!(std::io::stderr(), "libcudart: {message}");
    }
}

/// A message that is written at most once.
pub struct Once(AtomicBool);

impl Once {
    /// A message that was not written yet.
    pub const fn new() -> Self {
        Self(AtomicBool::new(false))
    }

    /// Writes that `function` is not supported.
    pub fn unsupported(&self, function: &str) {
        if !self.0.swap(true, Ordering::Relaxed) {
            say(format_args!("{function} is not supported"));
        }
    }
}
