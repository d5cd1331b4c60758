// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Messages for the user who runs the program, on standard error.
//!
//! `VIRTIO_GPGPU_LOG` sets the level: `off`, `error` (the default), `info`, `debug` or `trace`.

use std::{
    collections::HashSet,
    io::{self, Write as _},
    sync::OnceLock,
};

use gpgpu_locks::Mutex;

/// The severity of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// No messages.
    Off,
    /// The reason why the program cannot use CUDA, or a function of it.
    Error,
    /// Missing features without which the library works.
    Info,
    /// Every call that fails.
    Debug,
    /// Also every call that waits for the host.
    Trace,
}

fn threshold() -> Level {
    static THRESHOLD: OnceLock<Level> = OnceLock::new();
    *THRESHOLD.get_or_init(|| match std::env::var("VIRTIO_GPGPU_LOG").as_deref() {
        Ok("off") => Level::Off,
        Ok("info") => Level::Info,
        Ok("debug") => Level::Debug,
        Ok("trace") => Level::Trace,
        _ => Level::Error,
    })
}

/// Whether messages of this level are logged.
#[inline]
pub fn enabled(level: Level) -> bool {
    level <= threshold()
}

/// Logs a message, if its level is enabled.
#[inline]
pub fn say(level: Level, message: impl FnOnce() -> String) {
    if enabled(level) {
        write(&format!("virtio-gpgpu: {}", message()));
    }
}

/// Logs a message, unless it is the same as the last message that was logged by this function: a monitor that finds no
/// device asks again and again.
pub fn say_once(level: Level, message: String) {
    static LAST: Mutex<Option<String>> = Mutex::new(None);
    // Another thread may have held the lock when this process was forked.
    let Some(mut last) = LAST.try_lock() else {
        return say(level, || message);
    };
    if last.as_ref() != Some(&message) {
        say(level, || message.clone());
        *last = Some(message);
    }
}

/// Writes a line to the standard error, if it can be written. A closed pipe or a full disk is no matter of the program
/// whose call is logged, so it must not panic as `eprintln!` does.
pub fn write(line: &str) {
    let _ = writeln!(io::stderr(), "{line}");
}

/// Logs why a function is not supported, the first time that it is called.
pub fn refuse(function: &'static str, why: &str) {
    static NAMED: Mutex<Option<HashSet<&'static str>>> = Mutex::new(None);
    let mut named = NAMED.lock();
    if named.get_or_insert_default().insert(function) {
        say(Level::Error, || format!("{function} {why}"));
    }
}

/// Exports unsupported functions: `unsupported! { STATUS; name name … }`. Each returns the status, and logs its name
/// the first time that it is called.
#[macro_export]
macro_rules! unsupported {
    ($status:expr; $($name:ident)*) => {$(
        /// Not supported yet.
        #[unsafe(no_mangle)]
        pub extern "C" fn $name() -> u32 {
            $crate::log::refuse(stringify!($name), "is not supported yet");
            $status
        }
    )*};
}
