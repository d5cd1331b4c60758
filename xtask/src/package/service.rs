// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Tests the host's package under systemd: the service starts when it is installed, confines its processes, starts
//! again after a crash, and reloads its policy, and no upgrade stops it.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::{Context, Result, ensure};

use super::booted::{self, Booted};
use super::contents::{GUEST, HOST};
use super::lifecycle::{EARLIER_PACKAGES, NEW_PACKAGES, PROGRAM, PROGRAMS, in_directory, parent};
use super::machine::Machine;
use super::root::Debian;
use crate::kit::Kit;
use crate::process::Proc;
use crate::ui::{self, Step};

const OPTIONS: &str = "GPGPU_OPTIONS='--config /etc/virtio-gpgpu/policy.toml --metrics unix:/run/virtio-gpgpu/metrics.sock'";

/// Succeeds once all processes of the service are confined, which takes a new process a moment. There are at least the
/// supervisor, a spare device process and a warm worker.
const CONFINED: &str = r#"
main=$(systemctl show --property=MainPID --value vhost-device-gpgpu)
group=/sys/fs/cgroup$(systemctl show --property=ControlGroup --value vhost-device-gpgpu)/cgroup.procs
confined() {
    count=0
    for process in $(cat $group); do
        for line in CapPrm:.0000000000000000 CapEff:.0000000000000000 CapBnd:.0000000000000000 NoNewPrivs:.1 Seccomp:.2; do
            grep -q "^$line$" /proc/$process/status || return 1
        done
        for space in mnt ipc; do
            [ $process = $main ] || [ "$(readlink /proc/$process/ns/$space)" != "$(readlink /proc/$main/ns/$space)" ] || return 1
        done
        [ "$(readlink /proc/$process/ns/net)" != "$(readlink /proc/1/ns/net)" ] || return 1
        count=$((count + 1))
    done
    [ $count -ge 3 ]
}
for try in $(seq 300); do
    if confined; then exit 0; fi
    sleep 0.1
done
for process in $(cat $group); do grep -E '^(Name|Cap|NoNew|Seccomp)' /proc/$process/status; done
exit 1
"#;

/// Tests installation, upgrade, change of the options and purge of the service in the root `clean`.
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
    let directories: [(&Path, &str); 3] = [
        (&programs, PROGRAMS),
        (old, EARLIER_PACKAGES),
        (new, NEW_PACKAGES),
    ];
    let booted = Booted::start(clean, &directories, &log)?;
    let service = Running {
        machine: &booted.machine,
    };
    let ours = |files: &[PathBuf], at| -> Vec<String> {
        let files = in_directory(files, at).into_iter();
        files.filter(|file| !file.contains("dkms")).collect()
    };

    step.message("install");
    let process = service.starts_with_its_installation(&ours(earlier, EARLIER_PACKAGES))?;
    service.confines_its_processes()?;
    step.message("upgrade");
    let packages = ours(made, NEW_PACKAGES);
    service.runs_on_through_an_upgrade(process, &packages)?;
    step.message("crash");
    service.starts_again_after_a_crash()?;
    step.message("other options");
    service.takes_other_options()?;
    step.message("reload");
    service.reloads_its_policy()?;
    step.message("disabled");
    service.stays_disabled_in_an_upgrade(&packages)?;
    step.message("purge");
    service.leaves_nothing_after_its_purge()?;
    drop(booted);
    step.done("installed, upgraded while it ran, killed, changed, reloaded, disabled and purged");
    Ok(())
}

/// The service under systemd.
pub struct Running<'a> {
    /// The machine that runs it.
    pub machine: &'a Machine,
}

impl Running<'_> {
    /// The installation starts it, and it works; returns its process id.
    fn starts_with_its_installation(&self, packages: &[String]) -> Result<u32> {
        self.install(packages)?;
        self.listens_at("/run/gpgpu/vm.sock")?;
        let process = self.process()?;
        self.computes("/run/gpgpu/vm.sock")?;
        Ok(process)
    }

    /// An upgrade leaves this process running, and it works with the new files.
    fn runs_on_through_an_upgrade(&self, process: u32, packages: &[String]) -> Result<()> {
        let said = self.install(packages)?;
        ensure!(said.contains("was not restarted"), "dpkg says {said}");
        ensure!(
            self.process()? == process,
            "the upgrade has restarted the service"
        );
        // Several, so that one of them gets a worker that was started since.
        for _ in 0..2 {
            self.computes("/run/gpgpu/vm.sock")?;
        }
        Ok(())
    }

    /// Each process of the unit has a system call filter and no capabilities, and none has access to the machine's
    /// network. Each except the supervisor has its own namespaces.
    fn confines_its_processes(&self) -> Result<()> {
        self.machine.shell(CONFINED).map(drop)
    }

    /// systemd starts it again after its first process was killed.
    fn starts_again_after_a_crash(&self) -> Result<()> {
        let before = self.process()?;
        self.machine.shell(&format!(
            "kill -KILL {before}
             for try in $(seq 600); do
                 now=$(systemctl show --property=MainPID --value {HOST})
                 [ $now = 0 ] || [ $now = {before} ] || exit 0
                 sleep 0.1
             done
             exit 1"
        ))?;
        self.listens_at("/run/gpgpu/vm.sock")?;
        self.computes("/run/gpgpu/vm.sock")
    }

    /// A restart applies the policy and the options in its files.
    fn takes_other_options(&self) -> Result<()> {
        self.machine.shell(&format!(
            "cp /usr/share/doc/{HOST}/examples/policy.toml /etc/virtio-gpgpu && echo \"{OPTIONS}\" >>/etc/default/{HOST}"
        ))?;
        self.machine.run(&["systemctl", "restart", HOST])?;
        self.listens_at("/run/virtio-gpgpu/ci.sock")?;
        self.computes("/run/virtio-gpgpu/ci.sock")
    }

    /// A reload changes the limits of a VM. If the file has an error, it reports the line and changes nothing. It never
    /// restarts the service.
    fn reloads_its_policy(&self) -> Result<()> {
        let process = self.process()?;
        for (from, to, answer) in [
            ("50", "75", "weight 50 → 75"),
            ("75", "none", "The policy is unchanged"),
        ] {
            let edit = format!("s/^weight = {from}$/weight = {to}/");
            self.machine
                .run(&["sed", "-i", &edit, "/etc/virtio-gpgpu/policy.toml"])?;
            self.machine.run(&["systemctl", "reload", HOST])?;
            self.logs(answer)?;
        }
        ensure!(
            self.process()? == process,
            "a reload has restarted the service"
        );
        let edit = "s/^weight = none$/weight = 50/";
        self.machine
            .run(&["sed", "-i", edit, "/etc/virtio-gpgpu/policy.toml"])?;
        Ok(())
    }

    /// An upgrade neither starts nor enables a disabled service. It is enabled again at the end.
    fn stays_disabled_in_an_upgrade(&self, packages: &[String]) -> Result<()> {
        self.machine.run(&["systemctl", "disable", "--now", HOST])?;
        self.install(packages)?;
        for question in ["is-active", "is-enabled"] {
            let answer = self.state(question)?;
            ensure!(
                ["inactive", "disabled"].contains(&answer.as_str()),
                "an upgrade made a disabled service {answer}"
            );
        }
        self.machine.run(&["systemctl", "enable", "--now", HOST])?;
        Ok(())
    }

    /// A purge stops it, and removes all of the packages' files.
    fn leaves_nothing_after_its_purge(&self) -> Result<()> {
        self.machine.run(&["dpkg", "--purge", HOST, GUEST])?;
        let active = self.state("is-active")?;
        ensure!(active == "inactive", "purged, and the service is {active}");
        let left = self.machine.shell(
            "find / /run -xdev -name '*gpgpu*' -not -path '/srv/*'; \
             systemctl list-units --failed --plain --no-legend",
        )?;
        ensure!(left.is_empty(), "{left} is left after the purge");
        Ok(())
    }

    fn install(&self, files: &[String]) -> Result<String> {
        let names = files.iter().map(String::as_str);
        let words: Vec<&str> = ["dpkg", "--install"].into_iter().chain(names).collect();
        self.machine.run(&words)
    }

    /// The output of `systemctl is-active`, or of another query.
    pub fn state(&self, question: &str) -> Result<String> {
        let script = format!("systemctl {question} {HOST} || true");
        Ok(self.machine.shell(&script)?.trim().to_owned())
    }

    /// The id of its first process, which must be running.
    pub fn process(&self) -> Result<u32> {
        let number =
            self.machine
                .run(&["systemctl", "show", "--property=MainPID", "--value", HOST])?;
        let number = number.trim().parse()?;
        ensure!(number != 0, "the service does not run");
        Ok(number)
    }

    /// Waits until its log reports that it listens at `socket`.
    pub fn listens_at(&self, socket: &str) -> Result<()> {
        self.logs(&format!("Listening at {socket}"))
    }

    /// Waits for a line of its present first process in the journal.
    fn logs(&self, text: &str) -> Result<()> {
        let process = format!("_PID={}", self.process()?);
        let words = [
            "timeout",
            "60",
            "journalctl",
            "--follow",
            "--lines=all",
            &process,
        ];
        let mut command = self.machine.command(&words);
        command.stdin(Stdio::null()).stderr(Stdio::null());
        command.stdout(Stdio::piped());
        let mut journal = Proc::spawn(&mut command, libc::SIGKILL)?;
        let lines = BufReader::new(journal.stdout().context("no pipe")?).lines();
        let mut said = lines.map_while(Result::ok);
        ensure!(
            said.any(|line| line.contains(text)),
            "the service does not log {text:?}"
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
