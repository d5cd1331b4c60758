// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Faults of one VM while another works: the installed back end, guest programs in two VMs, and processes that die.
//!
//! `cargo xtask test` builds the programs of these tests and names their directory in `VIRTIO_GPGPU_STAGE`. Without it
//! the tests are skipped, with a message. With `VIRTIO_GPGPU_TEST_GPU=cuda` they run on a GPU. Each fault's row of the
//! table goes to standard output (`--nocapture`), and as JSON into the directory that `VIRTIO_GPGPU_TEST_OUT` names.

#[path = "isolation/bystander.rs"]
mod bystander;
mod common;
#[path = "isolation/exhaustion.rs"]
mod exhaustion;
#[path = "isolation/gpu.rs"]
mod gpu;
#[path = "common/guest/mod.rs"]
// Some of it is only for the device's tests.
#[allow(dead_code)]
mod guest;
#[path = "common/hosts/installed.rs"]
// Some of it is only for the tests of memory limits.
#[allow(dead_code)]
mod host;
#[path = "isolation/tenants.rs"]
mod tenants;
#[path = "isolation/vmm.rs"]
mod vmm;

use std::{process::Command, time::Instant};

use nix::sys::signal::{Signal, kill};

use bystander::{Bystander, Fault};
use host::{BackEnd, on_gpu};

/// `CUDA_ERROR_EXTERNAL_DEVICE`: the result of each call of a client whose worker has ended.
const WORKER_GONE: &str = "911";

/// Runs `act` between two checks of a bystander; `act` reports when the faulty process has ended.
fn contained(
    back_end: &BackEnd,
    bystander: &Bystander,
    name: &str,
    act: impl FnOnce(&mut Fault<'_>),
) {
    let mut fault = Fault::begin(name, back_end, bystander);
    act(&mut fault);
    fault.contained();
}

#[test]
fn pitfall_30_a_failed_kernel_costs_its_own_process() {
    let Some(mut back_end) = BackEnd::start() else {
        return;
    };
    back_end.works(0);
    let bystander = Bystander::start(&back_end);
    for (kind, code) in [("illegal", "700"), ("assert", "710"), ("trap", "719")] {
        contained(&back_end, &bystander, kind, |fault| {
            let (status, said) = back_end.run(0, &["fault", kind]);
            fault.ended();
            assert!(status.success(), "{status}: {said}");
            let line = said
                .lines()
                .find(|line| line.starts_with("codes"))
                .expect(&said);
            let codes: Vec<&str> = line.split(' ').skip(1).collect();
            // The error is sticky: every later call returns it.
            assert_eq!(codes, ["0", code, code, code], "{kind}");
        });
    }
    bystander.end();
    assert!(back_end.lives());
}

#[test]
fn pitfall_62_an_endless_kernel_ends_with_its_process() {
    let Some(mut back_end) = BackEnd::start() else {
        return;
    };
    back_end.works(0);
    let bystander = Bystander::start(&back_end);
    contained(
        &back_end,
        &bystander,
        "endless kernel, its process killed",
        |fault| {
            let endless = back_end.guest(0, &["endless"]);
            endless.wait_for("at endless");
            bystander.steps(3);
            endless.kill();
            fault.ended();
        },
    );
    contained(
        &back_end,
        &bystander,
        "endless kernel, its worker killed",
        |fault| {
            let from = back_end.log.count();
            let endless = back_end.guest(0, &["endless"]);
            endless.wait_for("at endless");
            let worker = back_end.worker(0, from);
            kill(worker, Signal::SIGKILL).unwrap();
            fault.ended();
            let line = endless.wait_for("code ");
            assert!(line.contains(WORKER_GONE), "{line}");
        },
    );
    bystander.end();
    assert!(back_end.lives());
}

#[test]
fn pitfall_62_a_worker_killed_under_load_costs_its_own_client() {
    let Some(mut back_end) = BackEnd::start() else {
        return;
    };
    back_end.works(0);
    let bystander = Bystander::start(&back_end);
    for phase in ["copy", "launch"] {
        contained(
            &back_end,
            &bystander,
            &format!("worker killed, {phase}"),
            |fault| {
                let from = back_end.log.count();
                let victim = back_end.guest(0, &["phase", phase]);
                victim.wait_for("at ");
                kill(back_end.worker(0, from), Signal::SIGKILL).unwrap();
                fault.ended();
                let (status, said) = victim.end();
                assert!(
                    said.contains("failed") && said.contains(WORKER_GONE),
                    "{said}"
                );
                assert_eq!(status.code(), Some(2));
            },
        );
    }
    bystander.end();
    assert!(back_end.lives());
}

/// The call of a guest process when it is killed.
const PHASES: [&str; 9] = [
    "before",
    "init",
    "allocate",
    "copy",
    "pinned",
    "launch",
    "module",
    "synchronise",
    "idle",
];

#[test]
fn pitfall_62_a_process_killed_in_any_phase_leaves_nothing() {
    let Some(mut back_end) = BackEnd::start() else {
        return;
    };
    back_end.works(0);
    let bystander = Bystander::start(&back_end);
    let times = if on_gpu() { 5 } else { 2 };
    for phase in PHASES {
        contained(
            &back_end,
            &bystander,
            &format!("process killed: {phase}"),
            |fault| {
                for time in 0..times {
                    let victim = back_end.guest(0, &["phase", phase]);
                    victim.wait_for("at ");
                    // At another moment each time; the other VM's steps serve as a clock.
                    bystander.steps(time);
                    victim.kill();
                    fault.ended();
                }
            },
        );
    }
    bystander.end();
    assert!(back_end.lives());
}

#[test]
fn pitfall_62_a_mover_killed_under_load_costs_no_data() {
    let Some(mut back_end) = BackEnd::start() else {
        return;
    };
    back_end.works(0);
    // Both VMs copy large data, and check it.
    let bystander = Bystander::copying(&back_end);
    contained(&back_end, &bystander, "mover killed", |fault| {
        let other = back_end.guest(0, &["work", "copies"]);
        other.wait_for("step");
        let mut killed = None;
        for _ in 0..3 {
            // The previous one may still be ending.
            let mover = host::wait_for("a mover", || {
                let movers = back_end.children().remove("mover-process")?;
                movers.into_iter().find(|mover| Some(*mover) != killed)
            });
            bystander.steps(2);
            kill(mover, Signal::SIGKILL).unwrap();
            killed = Some(mover);
            bystander.steps(3);
        }
        fault.ended();
        let (status, said) = other.end();
        assert!(
            status.success() && said.contains("done"),
            "{status}: {said}"
        );
    });
    bystander.end();
    let died = back_end.log.since(0);
    let died = died.iter().filter(|line| line.contains("the mover died"));
    assert!(died.count() >= 3);
    assert!(back_end.lives());
}

#[test]
fn pitfall_62_a_device_process_that_dies_costs_its_own_vm() {
    let Some(mut back_end) = BackEnd::start() else {
        return;
    };
    back_end.works(0);
    let bystander = Bystander::start(&back_end);
    contained(&back_end, &bystander, "device process killed", |fault| {
        let from = back_end.log.count();
        let victim = back_end.guest(0, &["phase", "copy"]);
        victim.wait_for("at ");
        kill(back_end.device(0, from), Signal::SIGKILL).unwrap();
        fault.ended();
        let (status, said) = victim.end();
        assert!(
            said.contains("failed") && status.code() == Some(2),
            "{status}: {said}"
        );
    });
    bystander.end();
    assert!(back_end.lives());
}

#[test]
fn pitfall_66_a_program_without_use_for_a_gpu_is_left_alone() {
    let Some(back_end) = BackEnd::start() else {
        return;
    };
    let from = back_end.log.count();
    let run = |command: &mut Command| {
        let started = Instant::now();
        let output = command.output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(
            output.status.success(),
            "{command:?}: {}: {errors}",
            output.status
        );
        assert!(started.elapsed() < host::LIMIT);
        said
    };
    let linked = back_end.staged("isolation/no-cuda");
    assert_eq!(run(&mut back_end.command(0, &linked)), "done");
    // With our library preloaded, and with the whole environment that gpgpu-run sets.
    let shell = "echo $(echo done)";
    let preload = back_end.staged("lib/virtio-gpgpu/libcuda.so.1");
    let mut preloaded = back_end.command(0, "/bin/sh".as_ref());
    preloaded.args(["-c", shell]).env("LD_PRELOAD", &preload);
    assert_eq!(run(&mut preloaded), "done");
    let wrapper = back_end.staged("bin/gpgpu-run");
    if wrapper.exists() {
        let mut wrapped = back_end.command(0, &wrapper);
        assert_eq!(run(wrapped.args(["/bin/sh", "-c", shell])), "done");
        let mut wrapped = back_end.command(0, &wrapper);
        assert_eq!(run(wrapped.arg(&linked)), "done");
    }
    // None of them has opened a connection; a program that uses the GPU does.
    back_end.works(0);
    let connected = |lines: Vec<String>| {
        lines
            .iter()
            .filter(|line| line.contains("VM connected"))
            .count()
    };
    assert_eq!(connected(back_end.log.since(from)), 1);
}
