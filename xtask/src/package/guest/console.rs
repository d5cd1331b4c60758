// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! An administrator's commands in a guest that takes jobs on its console, and checks of their effects for users.

use anyhow::{Context, Result, bail, ensure};

use super::disk::{MEMBER, OUTSIDER};
use crate::demo;
use crate::initramfs::{Job, complaints};
use crate::kit::Kit;
use crate::process::tail;
use crate::programs::{Programs, Run};
use crate::runner::{self, Gpu, Outcome, PROGRAM_LIMIT};
use crate::vm::{JobReport, Machine};

/// Prints how much of the GPU's memory is in use.
const USED: &str = "gpgpu-smi --query-gpu memory.used --format csv,noheader";

/// The directory of the programs in the guest.
const PROGRAMS: &str = "/srv/programs";

/// The time limit in seconds of a command that takes no time on a machine that is not emulated.
const SHORT: u64 = 120;

/// How a program is started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// By `gpgpu-run`.
    Wrapper,
    /// Directly.
    Plain,
    /// Directly, from a login shell.
    Login,
}

impl Way {
    /// The line of the shell that runs a program with its arguments as a user.
    pub fn command(self, user: &str, program: &str) -> String {
        match self {
            Self::Wrapper => format!("runuser -u {user} -- gpgpu-run {program}"),
            Self::Plain => format!("runuser -u {user} -- {program}"),
            Self::Login => format!("su --login {user} --command '{program}'"),
        }
    }
}

/// The programs, and their checksums.
pub struct Expected {
    /// The runs of all programs.
    pub runs: Vec<Run>,
    right: Vec<Outcome>,
}

impl Expected {
    /// Runs all programs on the software GPU alone.
    pub fn natively(kit: &Kit) -> Result<Self> {
        let runs = Programs::load(&kit.stage.programs())?.runs(false);
        let right = demo::natively(kit, Gpu::Software, &[], &runs)?;
        if let Some(wrong) = right.iter().find(|outcome| !outcome.ok) {
            bail!("{} natively: {}", wrong.program, wrong.problem);
        }
        Ok(Self { runs, right })
    }

    /// The first program with this linkage.
    pub fn one(&self, kind: &str) -> Result<Run> {
        let found = self.runs.iter().find(|run| run.kind == kind);
        found.cloned().with_context(|| format!("no {kind} program"))
    }

    /// The first program of each linkage.
    pub fn of_each_kind(&self) -> Vec<Run> {
        let mut few: Vec<Run> = Vec::new();
        for run in &self.runs {
            if few.iter().all(|one| one.kind != run.kind) {
                few.push(run.clone());
            }
        }
        few
    }
}

/// A guest that takes jobs.
pub struct Guest {
    /// The VM.
    pub machine: Machine,
    jobs: u32,
}

impl Guest {
    /// The guest in `machine`, once its systemd has started everything.
    pub fn of(machine: Machine) -> Result<Self> {
        let mut guest = Self { machine, jobs: 0 };
        guest.is_up()?;
        Ok(guest)
    }

    fn next(&mut self, limit: u64, command: &str) -> Job {
        self.jobs += 1;
        Job {
            id: format!("job-{}", self.jobs),
            command: command.to_owned(),
            limit,
        }
    }

    /// Runs a shell command as root with a time limit in seconds; returns its report.
    fn job(&mut self, limit: u64, command: &str) -> Result<JobReport> {
        let job = self.next(limit, command);
        let done = self.machine.begin(&job);
        done.and_then(|()| self.machine.finish(&job))
            .with_context(|| format!("in the guest: {command}"))
    }

    /// Runs a shell command as root, and returns its output.
    pub fn run_for(&mut self, limit: u64, command: &str) -> Result<String> {
        let report = self.job(limit, command)?;
        match report.rc {
            Some(0) => Ok(report.output.trim_end().to_owned()),
            Some(137) => bail!(
                "in the guest: {command}: killed, or not done after {limit} s:\n{}",
                tail(&report.output, 25)
            ),
            rc => bail!(
                "in the guest: {command}: exit status {}:\n{}",
                rc.unwrap_or_default(),
                tail(&report.output, 25)
            ),
        }
    }

    /// The same for a short command.
    pub fn run(&mut self, command: &str) -> Result<String> {
        self.run_for(SHORT, command)
    }

    /// Runs a shell command that must print nothing; `what` is the error if it does.
    pub fn nothing(&mut self, command: &str, what: &str) -> Result<()> {
        let printed = self.run(command)?;
        ensure!(printed.is_empty(), "{what}:\n{printed}");
        Ok(())
    }

    /// Waits until systemd has started everything, and checks that nothing has failed.
    pub fn is_up(&mut self) -> Result<()> {
        let state = self.run("systemctl is-system-running --wait || true")?;
        if state != "running" {
            let failed = self.run("systemctl list-units --failed --plain --no-legend")?;
            bail!("the guest's system is {state}: {failed}");
        }
        Ok(())
    }

    /// Reboots it, as an administrator does.
    pub fn reboot(&mut self) -> Result<()> {
        let boots = self.machine.report().boots;
        self.say_complaints()?;
        // The kernel's warnings during the shutdown appear nowhere else. The job may end before it can report.
        let line = "dmesg --console-level warn; systemctl --no-block reboot";
        let job = self.next(SHORT, line);
        self.machine.begin(&job)?;
        self.machine.boots(boots + 1).context("a reboot")?;
        self.is_up()
    }

    /// Makes the guest report its kernel's errors of this boot.
    fn say_complaints(&mut self) -> Result<()> {
        self.run(". /etc/gpgpu-functions; say_complaints").map(drop)
    }

    /// Powers it off. Fails if its kernel has reported errors, including during the shutdown.
    pub fn power_off(self) -> Result<()> {
        let report = self.machine.power_off()?;
        ensure!(
            report.finished,
            "the guest ended too early:\n{}",
            tail(&report.console, 20)
        );
        let said = report.kernel_complaints.iter().map(String::as_str);
        let shown = report.console.lines().filter(|line| is_complaint(line));
        match said.chain(shown).next() {
            Some(complaint) => bail!("the guest's kernel complained: {complaint}"),
            None => Ok(()),
        }
    }

    /// Checks that the device belongs to the group, that no other user can use it, and that JAX would look for a GPU.
    pub fn is_for_members(&mut self, expected: &Expected) -> Result<()> {
        self.run("udevadm settle")?;
        let owners = self.run("stat --format='%A %U %G' /dev/virtio-gpgpu*")?;
        ensure!(owners == "crw-rw---- root gpgpu", "the device is {owners}");
        let link = self.run("readlink /dev/nvidiactl")?;
        ensure!(link == "virtio-gpgpu", "/dev/nvidiactl leads to {link}");
        let run = expected.one("shared")?;
        let said = self.does_not_run(OUTSIDER, Way::Wrapper, &run)?;
        ensure!(
            said.contains("Permission denied"),
            "a user who may not use the device is told:\n{said}"
        );
        Ok(())
    }

    /// Runs programs as a member of the group. Each must give its native result.
    pub fn computes(&mut self, way: Way, runs: &[Run], expected: &Expected) -> Result<()> {
        let mut outcomes = Vec::new();
        for run in runs {
            let report = self.job(PROGRAM_LIMIT, &command(MEMBER, way, run))?;
            outcomes.push(Outcome::new(run, report.rc, report.ms, report.output));
        }
        runner::compare(&mut outcomes, runs, Some(&expected.right));
        match outcomes.iter().find(|outcome| !outcome.ok) {
            Some(wrong) => bail!(
                "{} ({}, {way:?}) in the guest: {}:\n{}",
                wrong.program,
                wrong.linkage,
                wrong.problem,
                tail(&wrong.output, 12)
            ),
            None => Ok(()),
        }
    }

    /// Starts a program that runs `times` times, and returns after its first result.
    pub fn begin(&mut self, run: &Run, times: u32) -> Result<Work> {
        let one = command(MEMBER, Way::Wrapper, run);
        let line = format!("for i in $(seq {times}); do {one} || exit; done");
        let job = self.next(PROGRAM_LIMIT, &line);
        self.machine.begin(&job)?;
        ensure!(
            self.machine.wait_for_output(&job, "RESULT ")?,
            "{} has ended without a result",
            run.program
        );
        Ok(Work { job, times })
    }

    /// Waits until all these runs have given the right result.
    pub fn finish(&mut self, work: &Work) -> Result<()> {
        let report = self.machine.finish(&work.job)?;
        let right = report.output.matches("status=ok").count();
        ensure!(
            report.rc == Some(0) && right == work.times as usize,
            "{right} of {} runs were right:\n{}",
            work.times,
            tail(&report.output, 12)
        );
        Ok(())
    }

    /// The amount of the GPU's memory in use, as text.
    pub fn memory_in_use(&mut self) -> Result<String> {
        self.run(USED)
    }

    /// Starts a program with a problem of the papers' size, and returns once it has memory on the GPU.
    pub fn holds_memory(&mut self, run: &Run) -> Result<()> {
        let idle = self.memory_in_use()?;
        let mut large = run.clone();
        large.args = vec!["--size".to_owned(), "paper".to_owned()];
        let program = command(MEMBER, Way::Wrapper, &large);
        let line = format!(
            "{program} & while [ \"$({USED})\" = '{idle}' ]; do :; done; echo in use: $({USED}); wait"
        );
        let job = self.next(PROGRAM_LIMIT, &line);
        self.machine.begin(&job)?;
        ensure!(
            self.machine.wait_for_output(&job, "in use")?,
            "{} does not use memory of the GPU",
            run.program
        );
        Ok(())
    }

    /// Checks that a program fails when it is started in this way.
    pub fn fails(&mut self, way: Way, run: &Run) -> Result<()> {
        self.does_not_run(MEMBER, way, run).map(drop)
    }

    fn does_not_run(&mut self, user: &str, way: Way, run: &Run) -> Result<String> {
        let report = self.job(PROGRAM_LIMIT, &command(user, way, run))?;
        ensure!(
            report.rc != Some(0) && !report.output.contains("status=ok"),
            "{} runs for {user} ({way:?}):\n{}",
            run.program,
            report.output
        );
        Ok(report.output)
    }
}

/// A program that a guest runs several times.
pub struct Work {
    job: Job,
    times: u32,
}

/// The line of the shell that runs a program as a user.
fn command(user: &str, way: Way, run: &Run) -> String {
    let mut program = format!("{PROGRAMS}/{}", run.executable().display());
    for arg in &run.args {
        program += &format!(" {arg}");
    }
    way.command(user, &program)
}

/// Whether a line of the console is an error of the kernel. The kernel's lines have a time in brackets. A running guest
/// also reports the errors in its kernel's log.
fn is_complaint(line: &str) -> bool {
    let has_time = line.split('[').any(|part| {
        let time = part.split("] ").next().unwrap_or_default().trim();
        part.contains("] ") && time.parse::<f64>().is_ok()
    });
    has_time && complaints().any(|one| line.contains(one))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_complains_with_a_time() {
        assert!(is_complaint("[  325.779724] BUG: soft lockup"));
        assert!(is_complaint(
            "\u{1b}[0m[   14.735174] WARNING: CPU: 0 PID: 1"
        ));
        assert!(is_complaint("[    1.500000] Kernel panic - not syncing"));
        assert!(!is_complaint("[   14.735174] virtio_gpgpu: loading"));
        assert!(!is_complaint(
            "WARNING: apt does not have a stable interface"
        ));
        assert!(!is_complaint("[1/2] WARNING: no such file"));
    }
}
