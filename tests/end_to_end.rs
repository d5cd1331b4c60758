// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The back end, a worker, the software GPU and the guest's libcuda together, when one of the processes dies.
//!
//! `cargo xtask test` builds the programs of these tests and names their directory in `VIRTIO_GPGPU_STAGE`. Without it
//! the tests are skipped, with a message.

use std::{
    io::{BufRead, BufReader},
    os::unix::process::ExitStatusExt,
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    sync::mpsc::{Receiver, channel},
    time::Instant,
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};

mod common;

use common::LIMIT;

/// Programs that `cargo xtask build` has staged.
struct Stage(PathBuf);

impl Stage {
    fn find() -> Option<Self> {
        common::stage().map(Self)
    }

    fn program(&self, name: &str, socket: &Path, arguments: &[&str]) -> Command {
        let mut command = Command::new(self.0.join("bin/gpgpu-run"));
        command
            .arg(self.0.join("programs/driver").join(name))
            .args(arguments);
        command.env("VIRTIO_GPGPU", format!("unix:{}", socket.display()));
        command
    }
}

/// A running back end, and the lines that it logs.
struct BackEnd {
    process: Child,
    lines: Receiver<String>,
    dir: tempfile::TempDir,
}

impl BackEnd {
    fn start(stage: &Stage) -> Self {
        Self::start_with(stage, |_| {})
    }

    fn start_with(stage: &Stage, change: impl FnOnce(&mut Command)) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_vhost-device-gpgpu"));
        command
            .arg("--socket-path")
            .arg(dir.path().join("vm"))
            .args(["--gpu", "software", "--software-gpu"])
            .arg(stage.0.join("software-gpu"))
            .env("VIRTIO_GPGPU_LOG", "info")
            .stderr(Stdio::piped());
        change(&mut command);
        let mut process = command.spawn().unwrap();
        let (sender, lines) = channel();
        let log = BufReader::new(process.stderr.take().unwrap());
        std::thread::spawn(move || {
            log.lines()
                .map_while(Result::ok)
                .try_for_each(|line| sender.send(line))
        });
        let back_end = Self {
            process,
            lines,
            dir,
        };
        back_end.wait_for("Listening");
        back_end
    }

    fn socket(&self) -> PathBuf {
        self.dir.path().join("vm")
    }

    /// The first line from now on that contains `text`.
    fn wait_for(&self, text: &str) -> String {
        loop {
            let line = self
                .lines
                .recv_timeout(LIMIT)
                .unwrap_or_else(|_| panic!("nothing logged with {text:?}"));
            if line.contains(text) {
                return line;
            }
        }
    }

    /// Waits until lines with all of `texts` were logged, in any order.
    fn wait_for_all(&self, texts: &[&str]) {
        let mut missing = texts.to_vec();
        while !missing.is_empty() {
            let line = self
                .lines
                .recv_timeout(LIMIT)
                .unwrap_or_else(|_| panic!("nothing logged with {missing:?}"));
            missing.retain(|text| !line.contains(text));
        }
    }

    /// Waits until a client is open; returns its worker.
    fn worker(&self) -> Pid {
        let line = self.wait_for(") opened (worker ");
        let (_, rest) = line.rsplit_once("(worker ").unwrap();
        Pid::from_raw(rest.trim_end_matches(')').parse().unwrap())
    }
}

impl Drop for BackEnd {
    fn drop(&mut self) {
        common::stop(&mut self.process);
    }
}

/// Waits until a worker executes a command that may block: it has an additional thread then.
fn wait_until_busy(worker: Pid) {
    let end = Instant::now() + LIMIT;
    let waits = |entry: std::io::Result<std::fs::DirEntry>| {
        let name = std::fs::read_to_string(entry.unwrap().path().join("comm"));
        name.is_ok_and(|name| name.trim_end() == "wait")
    };
    while !std::fs::read_dir(format!("/proc/{worker}/task"))
        .unwrap()
        .any(waits)
    {
        assert!(Instant::now() < end, "the worker is never busy");
        std::thread::yield_now();
    }
}

fn right(output: &Output) -> bool {
    output.status.success() && String::from_utf8_lossy(&output.stdout).contains("status=ok")
}

#[test]
fn pitfall_33_a_worker_killed_in_mid_work_costs_its_own_client_and_no_other() {
    let Some(stage) = Stage::find() else { return };
    let back_end = BackEnd::start(&stage);
    // Some seconds of kernels: the worker dies while they run.
    let victim = stage
        .program(
            "matrix-multiplication-driver",
            &back_end.socket(),
            &["--size", "1024"],
        )
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let worker = back_end.worker();
    wait_until_busy(worker);
    kill(worker, Signal::SIGKILL).unwrap();
    let output = victim.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("CUDA_ERROR_EXTERNAL_DEVICE"), "{said}");
    assert!(
        !output.status.success() && output.status.signal().is_none(),
        "{:?}",
        output.status
    );

    // The same VM's next process has its own worker.
    let next = stage
        .program("vector-addition-driver", &back_end.socket(), &[])
        .output()
        .unwrap();
    assert!(right(&next), "{next:?}");
}

#[test]
fn pitfall_62_a_program_killed_in_mid_copy_leaves_nothing_behind() {
    let Some(stage) = Stage::find() else { return };
    let back_end = BackEnd::start(&stage);
    let mut victim = stage
        .program(
            "vector-addition-driver",
            &back_end.socket(),
            &["--size", "33554432"],
        )
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let worker = back_end.worker();
    wait_until_busy(worker);
    victim.kill().unwrap();
    victim.wait().unwrap();
    back_end.wait_for_all(&[") closed", "VM disconnected"]);
    // The worker was reaped before the client was reported closed.
    assert_eq!(kill(worker, None), Err(nix::errno::Errno::ESRCH));

    let next = stage
        .program("vector-addition-driver", &back_end.socket(), &[])
        .output()
        .unwrap();
    assert!(right(&next), "{next:?}");
}

#[test]
fn pitfall_83_a_program_without_a_back_end_gets_an_error() {
    let Some(stage) = Stage::find() else { return };
    let dir = tempfile::tempdir().unwrap();
    let output = stage
        .program("vector-addition-driver", &dir.path().join("nobody"), &[])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        said.contains("Cannot reach the device at") && said.contains("CUDA_ERROR_NO_DEVICE"),
        "{said}"
    );
    assert_eq!(output.status.code(), Some(3));
}

#[test]
fn pitfall_83_a_peer_that_never_answers_does_not_hang_the_program() {
    let Some(stage) = Stage::find() else { return };
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("mute");
    // It accepts connections into its backlog and sends nothing.
    let _listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
    let output = stage
        .program("vector-addition-driver", &path, &[])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        said.contains("Cannot reach the device at") && said.contains("--max-connections"),
        "{said}"
    );
    assert_eq!(output.status.code(), Some(3));
}

#[test]
fn a_call_that_may_block_uses_the_ring_if_there_is_one() {
    let Some(stage) = Stage::find() else { return };
    let back_end = BackEnd::start(&stage);
    for (ring, way) in [("1", "ring"), ("0", "command queue")] {
        let output = stage
            .program("vector-addition-driver", &back_end.socket(), &[])
            .env("VIRTIO_GPGPU_RING", ring)
            .env("VIRTIO_GPGPU_LOG", "trace")
            .output()
            .unwrap();
        assert!(right(&output), "{output:?}");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(
            said.contains(&format!("cuModuleUnload waits: {way}")),
            "{way}: {said}"
        );
    }
}

/// The software GPU claims that its kernels can access pageable memory, as with HMM or ATS.
#[test]
fn a_host_whose_gpu_reaches_pageable_memory_serves_only_with_the_option() {
    let Some(stage) = Stage::find() else { return };
    let pageable = |command: &mut Command| {
        command.env("VIRTIO_GPGPU_SOFTWARE_PAGEABLE", "1");
    };
    let back_end = BackEnd::start_with(&stage, pageable);
    let run = |back_end: &BackEnd| {
        stage
            .program("vector-addition-driver", &back_end.socket(), &[])
            .output()
            .unwrap()
    };
    let refused = run(&back_end);
    let said = String::from_utf8_lossy(&refused.stderr);
    assert_eq!(refused.status.code(), Some(3), "{said}");
    assert!(said.contains("CUDA_ERROR_NO_DEVICE"), "{said}");
    let reason = back_end.wait_for("can reach pageable memory");
    assert!(reason.contains("uvm_disable_hmm=1") && reason.contains("--allow-pageable-access"));
    drop(back_end);

    let accepted = BackEnd::start_with(&stage, |command| {
        pageable(command);
        command.arg("--allow-pageable-access");
    });
    let served = run(&accepted);
    assert!(right(&served), "{served:?}");
}
