// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! No driver, a driver that is removed, a GPU that falls off the bus.

use std::{fs, process::Command, time::Duration};

use super::host::{BackEnd, Options, on_gpu, wait_for};
use crate::common::program;

#[test]
fn pitfall_83_a_missing_driver_is_said_at_the_start() {
    let directory = tempfile::tempdir().unwrap();
    let output = Command::new(program())
        .arg("--socket-path")
        .arg(directory.path().join("vm"))
        .args(["--gpu", "cuda"])
        // If there is a driver, it has no device.
        .env("CUDA_VISIBLE_DEVICES", "")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(
        said.contains("No usable NVIDIA GPU") && said.contains("nvidia-smi"),
        "{said}"
    );
    assert!(!directory.path().join("vm").exists());
}

/// Checks that a new program of a VM gets the error that there is no GPU.
fn has_no_gpu(back_end: &BackEnd) {
    let (status, said) = back_end.run(0, &["once"]);
    assert_eq!(status.code(), Some(2), "{said}");
    assert!(said.contains("100 CUDA_ERROR_NO_DEVICE"), "{said}");
}

/// Checks that an idle back end logs few lines.
fn log_is_quiet(back_end: &BackEnd) {
    let from = back_end.log.count();
    std::thread::sleep(Duration::from_secs(2));
    let lines = back_end.log.since(from);
    assert!(lines.len() < 20, "{lines:?}");
}

#[test]
fn pitfall_83_new_processes_get_an_error_once_the_driver_is_gone() {
    if on_gpu() {
        // NVIDIA's driver cannot be removed here.
        return;
    }
    let Some(mut back_end) = BackEnd::start() else {
        return;
    };
    back_end.works(0);
    let old = back_end.guest(1, &["work"]);
    old.wait_for("step");
    let library = back_end.dir.path().join("software-gpu");
    let away = back_end.dir.path().join("away");
    // A warm worker may have loaded it already.
    back_end.settled();
    fs::rename(&library, &away).unwrap();
    back_end.run(0, &["once"]);
    // If the machine has another libcuda, that has no device either.
    let (status, said) = back_end.run(0, &["once"]);
    assert_eq!(status.code(), Some(2), "{said}");
    assert!(
        said.contains("CUDA_ERROR_NO_DEVICE") || said.contains("100 "),
        "{said}"
    );
    log_is_quiet(&back_end);
    fs::rename(&away, &library).unwrap();
    back_end.works(0);
    // Running programs keep the library.
    let (status, said) = old.end();
    assert!(status.success(), "{status}: {said}");
    assert!(back_end.lives());
}

#[test]
fn pitfall_83_a_lost_gpu_is_an_error_to_all_and_comes_back() {
    if on_gpu() {
        // A real GPU cannot be removed here.
        return;
    }
    for warm in ["1", "0"] {
        // In a sandbox the software GPU would not see that file.
        let arguments = ["--warm-workers", warm, "--sandbox=none"];
        let options = Options {
            arguments: &arguments,
            can_be_lost: true,
            ..Options::default()
        };
        let Some(mut back_end) = BackEnd::start_with(&options) else {
            return;
        };
        back_end.works(0);
        let working = back_end.guest(1, &["work"]);
        working.wait_for("step");
        // One that waits for a kernel, and one that has done nothing yet.
        let waiting = back_end.guest(0, &["endless"]);
        waiting.wait_for("at endless");
        let idle = back_end.guest(0, &["own", "7"]);
        idle.wait_for("own");
        back_end.settled();
        fs::write(back_end.lost(), "").unwrap();
        let line = waiting.wait_for("code ");
        assert!(line.contains("999 CUDA_ERROR_UNKNOWN"), "{line}");
        let (status, said) = working.end();
        assert_eq!(status.code(), Some(2), "{said}");
        assert!(said.contains("999 CUDA_ERROR_UNKNOWN"), "{said}");
        let (status, said) = idle.end();
        assert_eq!(status.code(), Some(2), "{said}");
        assert!(said.contains("999 CUDA_ERROR_UNKNOWN"), "{said}");
        // The worker that was ready has noticed it too.
        for _ in 0..3 {
            has_no_gpu(&back_end);
        }
        log_is_quiet(&back_end);
        fs::remove_file(back_end.lost()).unwrap();
        back_end.works(0);
        back_end.works(1);
        wait_for("the mover of a GPU that is back", || {
            // Large copies need a mover.
            back_end.works(0);
            let movers = back_end.children().remove("mover-process");
            movers.map(drop)
        });
        assert!(back_end.lives());
    }
}
