//! Messages for the person who runs the program, on standard error.
//!
//! `VIRTIO_GPGPU_LOG` chooses what is said: `off`, `error` (the default), `info` or `debug`.

use std::sync::OnceLock;

/// How much a message matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Nothing is said.
    Off,
    /// The program cannot use CUDA, and why.
    Error,
    /// What is not supported, once for each function.
    Info,
    /// Every call that fails.
    Debug,
}

fn threshold() -> Level {
    static THRESHOLD: OnceLock<Level> = OnceLock::new();
    *THRESHOLD.get_or_init(|| match std::env::var("VIRTIO_GPGPU_LOG").as_deref() {
        Ok("off") => Level::Off,
        Ok("info") => Level::Info,
        Ok("debug" | "trace") => Level::Debug,
        _ => Level::Error,
    })
}

/// Whether messages of this level are said.
#[inline]
pub fn enabled(level: Level) -> bool {
    level <= threshold()
}

/// Says a message, if its level is asked for.
#[inline]
pub fn say(level: Level, message: impl FnOnce() -> String) {
    if enabled(level) {
        eprintln!("virtio-gpgpu: {}", message());
    }
}
