// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The host's package where systemd runs: the service starts with its installation, and no upgrade ends it.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::{Context, Result, ensure};

use super::booted::{self, Booted};
use super::contents::{GUEST, HOST};
use super::lifecycle::{EARLIER_PACKAGES, NEW_PACKAGES, PROGRAM, PROGRAMS, in_folder, parent};
use super::machine::Machine;
use super::root::Debian;
use crate::kit::Kit;
use crate::process::Proc;
use crate::ui::{self, Step};

const OPTIONS: &str = "GPGPU_OPTIONS='--config /etc/virtio-gpgpu/policy.toml --metrics unix:/run/virtio-gpgpu/metrics.sock'";

/// Leads the service through installation, upgrade, change of its options and purge in the root `clean`.
pub fn run(
    kit: &Kit,
    clean: &Path,
    debian: Debian,
    made: &[PathBuf],
    earlier: &[PathBuf],
) -> Result<()> {
    let name = format!("service on Debian {}", debian.suite());
    if !booted::is_possible() {
        ui::line(format!("skipped   {name}: no cgroup2 can be mounted here"));
        return Ok(());
    }
    let step = Step::new(name);
    let log = kit.logs.join(format!("service-{}.log", debian.suite()));
    let (new, old) = (parent(made)?, parent(earlier)?);
    let programs = kit.stage.programs();
    let folders: [(&Path, &str); 3] = [
        (&programs, PROGRAMS),
        (old, EARLIER_PACKAGES),
        (new, NEW_PACKAGES),
    ];
    let booted = Booted::start(clean, &folders, &log)?;
    let service = Running {
        machine: &booted.machine,
    };
    let ours = |files: &[PathBuf], at| -> Vec<String> {
        let files = in_folder(files, at).into_iter();
        files.filter(|file| !file.contains("dkms")).collect()
    };

    step.message("install");
    service.install(&ours(earlier, EARLIER_PACKAGES))?;
    service.listens_at("/run/gpgpu/vm.sock")?;
    let process = service.process()?;
    service.computes("/run/gpgpu/vm.sock")?;

    step.message("upgrade");
    let said = service.install(&ours(made, NEW_PACKAGES))?;
    ensure!(said.contains("was not restarted"), "dpkg says {said}");
    ensure!(
        service.process()? == process,
        "the upgrade has restarted the service"
    );
    // More than one, so that one has a worker which was started since.
    for _ in 0..2 {
        service.computes("/run/gpgpu/vm.sock")?;
    }

    step.message("other options");
    let machine = service.machine;
    machine.shell(&format!(
        "cp /usr/share/doc/{HOST}/examples/policy.toml /etc/virtio-gpgpu && echo \"{OPTIONS}\" >>/etc/default/{HOST}"
    ))?;
    machine.run(&["systemctl", "restart", HOST])?;
    service.listens_at("/run/virtio-gpgpu/ci.sock")?;
    service.computes("/run/virtio-gpgpu/ci.sock")?;
    let process = service.process()?;
    machine.run(&["systemctl", "reload", HOST])?;
    ensure!(
        service.process()? == process,
        "a reload has restarted the service"
    );

    step.message("disabled");
    machine.run(&["systemctl", "disable", "--now", HOST])?;
    service.install(&ours(made, NEW_PACKAGES))?;
    for question in ["is-active", "is-enabled"] {
        let answer = service.state(question)?;
        ensure!(
            ["inactive", "disabled"].contains(&answer.as_str()),
            "an upgrade made a disabled service {answer}"
        );
    }
    machine.run(&["systemctl", "enable", "--now", HOST])?;

    step.message("purge");
    machine.run(&["dpkg", "--purge", HOST, GUEST])?;
    let active = service.state("is-active")?;
    ensure!(active == "inactive", "purged, and the service is {active}");
    let left = machine.shell(
        "find / /run -xdev -name '*gpgpu*' -not -path '/srv/*'; \
         systemctl list-units --failed --plain --no-legend",
    )?;
    ensure!(left.is_empty(), "{left} is left after the purge");
    drop(booted);
    step.done("installed, upgraded while it ran, changed, disabled and purged");
    Ok(())
}

/// The service where systemd runs.
pub struct Running<'a> {
    /// The machine that runs it.
    pub machine: &'a Machine,
}

impl Running<'_> {
    fn install(&self, files: &[String]) -> Result<String> {
        let names = files.iter().map(String::as_str);
        let words: Vec<&str> = ["dpkg", "--install"].into_iter().chain(names).collect();
        self.machine.run(&words)
    }

    /// The answer of `systemctl is-active`, or of another query.
    pub fn state(&self, question: &str) -> Result<String> {
        let script = format!("systemctl {question} {HOST} || true");
        Ok(self.machine.shell(&script)?.trim().to_owned())
    }

    /// The number of its first process, which runs.
    pub fn process(&self) -> Result<u32> {
        let number =
            self.machine
                .run(&["systemctl", "show", "--property=MainPID", "--value", HOST])?;
        let number = number.trim().parse()?;
        ensure!(number != 0, "the service does not run");
        Ok(number)
    }

    /// Waits until its log says so.
    pub fn listens_at(&self, socket: &str) -> Result<()> {
        let words = [
            "timeout",
            "60",
            "journalctl",
            "--follow",
            "--lines=all",
            "--unit",
            HOST,
        ];
        let mut command = self.machine.command(&words);
        command.stdin(Stdio::null()).stderr(Stdio::null());
        command.stdout(Stdio::piped());
        let mut journal = Proc::spawn(&mut command, libc::SIGKILL)?;
        let lines = BufReader::new(journal.stdout().context("no pipe")?).lines();
        let wanted = format!("Listening at {socket}");
        let mut said = lines.map_while(Result::ok);
        ensure!(
            said.any(|line| line.contains(&wanted)),
            "the service does not listen at {socket}"
        );
        Ok(())
    }

    pub fn computes(&self, socket: &str) -> Result<()> {
        let connection = format!("VIRTIO_GPGPU=unix:{socket}");
        let program = format!("{PROGRAMS}/shared/{PROGRAM}");
        let words = ["timeout", "120", "env", &connection, "gpgpu-run", &program];
        let all: Vec<&str> = words.into_iter().chain(["--size", "small"]).collect();
        let output = self.machine.run(&all)?;
        ensure!(output.contains("status=ok"), "{program} says {output}");
        Ok(())
    }
}
