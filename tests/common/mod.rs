// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The common part of the tests: the back end under test, its GPU, the stage, and functions that wait.

// Each test uses only a part of it.
#![allow(dead_code)]

use std::{
    path::{Path, PathBuf},
    process::{Child, ExitStatus},
    time::{Duration, Instant},
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};

/// A time limit for events that never happen: long enough for the slowest machine.
pub const LIMIT: Duration = Duration::from_secs(60);

/// The back end of the bundle whose `tests` directory contains this program, or the one that cargo built with it.
pub fn program() -> PathBuf {
    let own = std::env::current_exe().unwrap();
    let bundle = own.parent().and_then(Path::parent).unwrap();
    Some(bundle.join("bin/vhost-device-gpgpu"))
        .filter(|program| program.exists())
        .unwrap_or_else(|| env!("CARGO_BIN_EXE_vhost-device-gpgpu").into())
}

/// Whether to run on a GPU instead of the software GPU.
pub fn on_gpu() -> bool {
    std::env::var_os("VIRTIO_GPGPU_TEST_GPU").is_some_and(|gpu| gpu == "cuda")
}

/// The directory with the guest's programs and libraries. Without it, tests are skipped.
pub fn stage() -> Option<PathBuf> {
    let stage = std::env::var_os("VIRTIO_GPGPU_STAGE").map(PathBuf::from);
    if stage.is_none() {
        eprintln!("skipped: VIRTIO_GPGPU_STAGE is not set; run cargo xtask test");
    }
    stage
}

/// Waits until `look` returns a value.
pub fn wait_for<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + LIMIT;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < deadline, "{what} never comes");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Ends a back end in order, with `SIGTERM`, and returns its status. One that does not end is killed, and fails the test.
pub fn stop(process: &mut Child) -> Option<ExitStatus> {
    let _ = kill(Pid::from_raw(process.id() as i32), Signal::SIGTERM);
    let deadline = Instant::now() + LIMIT;
    while Instant::now() < deadline {
        match process.try_wait() {
            Ok(None) => std::thread::sleep(Duration::from_millis(1)),
            ended => return ended.ok().flatten(),
        }
    }
    let _ = process.kill();
    let _ = process.wait();
    // A second panic would end the whole program.
    assert!(std::thread::panicking(), "the back end ignores SIGTERM");
    None
}
