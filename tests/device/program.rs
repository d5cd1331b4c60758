// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The program itself: its options, its errors and its end.

use std::{
    path::Path,
    process::{Command, Stdio},
};

use super::{
    BINARY,
    guest::Vmm,
    host::{Host, exists, pid_of},
};

/// When the supervisor ends, all processes end.
#[test]
fn stopping_ends_all_processes_and_removes_the_sockets() {
    let mut host = Host::new("stubborn");
    let mut guest = host.boot(Vmm::qemu());
    let client = guest.open();
    let pid = pid_of(&mut guest, client);
    host.stop();
    assert!(!exists(pid));
    assert!(!host.socket(0).exists() && !host.socket(1).exists());
}

fn program(arguments: &[&str]) -> Command {
    let mut command = Command::new(BINARY);
    command
        .args(arguments)
        .env_remove("VIRTIO_GPGPU_LOG")
        .env_remove("RUST_LOG");
    command
}

/// The output of a program that ends with an error.
fn error_of(command: &mut Command) -> String {
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    String::from_utf8(output.stderr).unwrap()
}

#[test]
fn help_names_every_option() {
    let output = program(&["--help"]).output().unwrap();
    assert!(output.status.success());
    let text = String::from_utf8(output.stdout).unwrap();
    for flag in [
        "--socket-path",
        "--socket-count",
        "--gpu",
        "--software-gpu",
        "--max-connections",
        "--warm-workers",
        "--warm-contexts",
    ] {
        assert!(text.contains(flag), "{flag}");
    }
    assert!(!text.contains("device-process"));
}

/// On a host without a GPU the program fails at once, with a remedy.
#[test]
fn pitfall_83_no_gpu_and_no_software_gpu_is_an_error() {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("vm");
    let empty = directory.path().join("empty");
    std::fs::create_dir(&empty).unwrap();
    let empty = empty.to_str().unwrap();
    let arguments = ["--gpu", "software", "--software-gpu", empty, "-s"];
    let log = error_of(program(&arguments).arg(&socket));
    assert!(
        log.contains("--software-gpu") && log.contains("libcuda.so.1 is missing"),
        "{log}"
    );
    assert!(!socket.exists());

    if !Path::new("/dev/nvidiactl").exists() {
        let log = error_of(program(&["--gpu", "cuda", "-s"]).arg(&socket));
        assert!(
            log.contains("No usable NVIDIA GPU") && log.contains("--gpu software"),
            "{log}"
        );
        assert_eq!(log.lines().count(), 1, "{log}");
    }
}

#[test]
fn roles_are_not_for_hands() {
    for role in ["device-process", "worker-process"] {
        let log = error_of(program(&[role]).stdin(Stdio::null()));
        assert!(log.contains("supervisor"), "{log}");
    }
}
