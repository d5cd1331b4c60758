// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Running a suite's program natively, over the socket and in the VM, and reading its output.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde::Deserialize;

use super::programs;
use super::rows::{Source, Suite, Way};
use crate::initramfs::{Archive, Job, SHIMS};
use crate::kit::Kit;
use crate::process::{self, describe, run_lines, tail};
use crate::programs::Run;
use crate::runner::{self, Backend, Gpu, Outcome};
use crate::vm::Machine;

/// RAM of the guest in MiB.
const MEMORY_MIB: u32 = 2048;
/// The longest wait for the back end's work for the previous client. After that the next run starts anyway.
const SETTLE: Duration = Duration::from_secs(5);
/// The seconds with a context after which the worker for the next client has started; it starts a second after a
/// client. Programs that measure a start do not wait for this.
const STARTED: f64 = 2.5;
/// The time that an idle process and its worker may take before they sleep.
const DOZE: f64 = 0.5;
/// The line that `idle` prints when it starts to wait.
const IDLE_BEGIN: &str = "idle-begin";

/// The output of one run of a program.
#[derive(Debug, Default)]
pub struct Said {
    /// Figures by name.
    pub measures: BTreeMap<String, f64>,
    /// Facts by name.
    pub facts: BTreeMap<String, String>,
    /// The checksum of its results, if the program prints one.
    pub checksum: String,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Line {
    Measure { measure: String, value: f64 },
    Fact { fact: String, value: String },
}

impl Said {
    /// Reads a program's output; other lines may stand between ours.
    pub fn read(output: &str) -> Self {
        let mut said = Self::default();
        for line in output.lines() {
            match serde_json::from_str(line.trim()) {
                Ok(Line::Measure { measure, value }) => {
                    said.measures.insert(measure, value);
                }
                Ok(Line::Fact { fact, value }) => {
                    said.facts.insert(fact, value);
                }
                Err(_) => {}
            }
        }
        said
    }
}

/// Everything that runs need.
pub struct Bench<'a> {
    /// Our parts and the programs.
    pub kit: &'a Kit,
    /// The GPU and how it is measured.
    pub gpu: Gpu,
    /// Fewer repetitions inside the programs.
    pub quick: bool,
    /// The back end: a socket for processes of this machine and one for the VM.
    pub backend: Backend,
    machine: Option<Machine>,
    jobs: usize,
}

impl<'a> Bench<'a> {
    /// With a running back end.
    pub fn new(kit: &'a Kit, gpu: Gpu, quick: bool, backend: Backend) -> Self {
        Self {
            kit,
            gpu,
            quick,
            backend,
            machine: None,
            jobs: 0,
        }
    }

    /// Waits until the worker for the next client exists besides those of this number of clients, and the back end's
    /// processes are idle: a worker that starts would disturb the measurement.
    fn settle(&self, clients: usize) -> Result<()> {
        let end = Instant::now() + SETTLE;
        let mut before = ticks(self.backend.id());
        // Twice in a row, because a driver that is initialising also waits from time to time.
        let mut quiet = 0;
        while quiet < 2 && Instant::now() < end {
            process::check_interrupted()?;
            std::thread::sleep(Duration::from_millis(100));
            let after = ticks(self.backend.id());
            let is_quiet = after == before && workers(self.backend.id()) > clients;
            quiet = if is_quiet { quiet + 1 } else { 0 };
            before = after;
        }
        Ok(())
    }

    /// Runs the suite's program once natively.
    pub fn natively(&self, suite: &Suite) -> Result<Said> {
        self.settle(0)?;
        let kind = match &suite.source {
            Source::Bench(_, linkage) => linkage,
            Source::Whole(..) => "static",
            Source::Idle(_) => "driver",
        };
        let command = runner::natively(&self.kit.stage, self.gpu, &self.executable(suite), kind);
        // The software GPU's libcuda replaces NVIDIA's library, however a program is linked.
        self.on_host(suite, &command, "native", false)
    }

    /// Runs the suite's program once through us.
    pub fn ours(&mut self, suite: &Suite) -> Result<Said> {
        self.settle(0)?;
        match suite.way {
            Way::Socket => {
                let socket = &self.backend.sockets[0];
                let command = runner::over_socket(&self.kit.stage, socket, &self.executable(suite));
                self.on_host(suite, &command, "socket", true)
            }
            Way::Vm => self.in_vm(suite),
        }
    }

    /// The driver's name and the device's name, natively.
    pub fn facts(&self) -> Result<BTreeMap<String, String>> {
        let path = programs::dir(&self.kit.stage).join("calls");
        let mut command = runner::limited(
            &runner::natively(&self.kit.stage, self.gpu, &path, "driver"),
            120,
        );
        command.arg("facts");
        let output = finished(&mut command, &self.kit.logs.join("bench-facts.log"), |_| {
            Ok(())
        })?;
        Ok(Said::read(&output).facts)
    }

    /// The cost of this machine's parts without CUDA.
    pub fn floors(&self) -> Result<Vec<(String, f64, String)>> {
        let mut command = runner::limited(
            &Command::new(programs::dir(&self.kit.stage).join("floors")),
            60,
        );
        if self.quick {
            command.arg("--quick");
        }
        let output = finished(
            &mut command,
            &self.kit.logs.join("bench-floors.log"),
            |_| Ok(()),
        )?;
        Ok(output
            .lines()
            .filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok())
            .filter_map(|line| {
                Some((
                    line["measure"].as_str()?.to_owned(),
                    line["value"].as_f64()?,
                    line["unit"].as_str()?.to_owned(),
                ))
            })
            .collect())
    }

    fn executable(&self, suite: &Suite) -> std::path::PathBuf {
        match &suite.source {
            Source::Bench(name, _) => programs::dir(&self.kit.stage).join(name),
            Source::Whole(name, _) => self.kit.stage.programs().join("static").join(name),
            Source::Idle(_) => programs::dir(&self.kit.stage).join("idle"),
        }
    }

    fn arguments(&self, suite: &Suite) -> Vec<String> {
        match &suite.source {
            Source::Whole(_, args) => args.clone(),
            Source::Idle(seconds) => {
                let mut args = vec![(seconds + 2.0 * DOZE + SETTLE.as_secs_f64()).to_string()];
                args.extend(self.settle_argument());
                args
            }
            Source::Bench(name, _) => {
                let mut args: Vec<String> = Vec::new();
                if !matches!(*name, "start" | "runtime") {
                    args.extend(self.settle_argument());
                }
                if self.quick && suite.rows.iter().any(|row| !row.argument.is_empty()) {
                    args.push("--quick".to_owned());
                }
                for row in &suite.rows {
                    if !row.argument.is_empty() && !args.contains(&row.argument) {
                        args.push(row.argument.clone());
                    }
                }
                args
            }
        }
    }

    /// The argument that makes a program wait for the start of the next worker, if that takes long.
    fn settle_argument(&self) -> Option<String> {
        (self.gpu == Gpu::Cuda).then(|| format!("--settle={STARTED}"))
    }

    fn on_host(&self, suite: &Suite, inner: &Command, side: &str, ours: bool) -> Result<Said> {
        let mut command = runner::limited(inner, suite.limit);
        command.args(self.arguments(suite));
        let slug = suite.title.replace([' ', ','], "-");
        let log = self.kit.logs.join(format!("bench-{slug}-{side}.log"));
        let mut host = None;
        let begin = Instant::now();
        let output = finished(&mut command, &log, |line| {
            if let Source::Idle(seconds) = suite.source
                && ours
                && line.contains(IDLE_BEGIN)
            {
                host = Some(self.watch(seconds)?);
            }
            Ok(())
        })?;
        let ms = begin.elapsed().as_secs_f64() * 1e3;
        let mut said = self.understand(suite, &output, ms)?;
        said.measures
            .insert("idle-host-cpu".to_owned(), host.unwrap_or(0.0));
        Ok(said)
    }

    /// Percent of a processor that the back end's processes use while a client idles for `seconds`.
    fn watch(&self, seconds: f64) -> Result<f64> {
        std::thread::sleep(Duration::from_secs_f64(DOZE));
        self.settle(1)?;
        let (before, begin) = (ticks(self.backend.id()), Instant::now());
        std::thread::sleep(Duration::from_secs_f64(seconds));
        let used = ticks(self.backend.id()).saturating_sub(before);
        // A tick is a hundredth of a second on every x86-64 Linux.
        Ok(used as f64 / begin.elapsed().as_secs_f64())
    }

    fn understand(&self, suite: &Suite, output: &str, ms: f64) -> Result<Said> {
        let mut said = Said::read(output);
        if let Source::Whole(program, args) = &suite.source {
            let run = Run {
                program: (*program).to_owned(),
                kind: "static".to_owned(),
                args: args.clone(),
                same_output_as: None,
                newer: false,
            };
            let outcome = Outcome::new(&run, Some(0), ms as u64, output.to_owned());
            if !outcome.ok {
                bail!("{program}: {}\n{}", outcome.problem, tail(output, 5));
            }
            said.measures.insert("whole".to_owned(), ms);
            let cuda = outcome.total_ms.context("no total_ms in its RESULT line")?;
            said.measures.insert("cuda".to_owned(), cuda);
            said.checksum = outcome.checksum;
        }
        Ok(said)
    }

    fn in_vm(&mut self, suite: &Suite) -> Result<Said> {
        let mut machine = match self.machine.take() {
            Some(machine) => machine,
            None => self.boot()?,
        };
        self.jobs += 1;
        let program = match &suite.source {
            Source::Bench(name, _) => format!("/bench/{name}"),
            Source::Whole(name, _) => format!("/programs/static/{name}"),
            Source::Idle(_) => "/bench/idle".to_owned(),
        };
        let job = Job {
            id: format!("bench{}", self.jobs),
            command: format!(
                "gpgpu-run --libdir /{SHIMS} {program} {}",
                self.arguments(suite).join(" ")
            ),
            limit: suite.limit,
        };
        machine.begin(&job)?;
        let mut host = 0.0;
        if let Source::Idle(seconds) = suite.source
            && machine.wait_for_output(&job, IDLE_BEGIN)?
        {
            host = self.watch(seconds)?;
        }
        let report = machine.finish(&job)?;
        self.machine = Some(machine);
        if report.rc != Some(0) {
            bail!(
                "exit status {:?} in the VM\n{}",
                report.rc,
                tail(&report.output, 8)
            );
        }
        let mut said = self.understand(suite, &report.output, report.ms as f64)?;
        said.measures.insert("idle-host-cpu".to_owned(), host);
        Ok(said)
    }

    fn boot(&self) -> Result<Machine> {
        let mut extra = Archive::default();
        for name in ["calls", "copies", "start", "idle", "runtime"] {
            extra.file(
                &format!("bench/{name}"),
                &programs::dir(&self.kit.stage).join(name),
            );
        }
        let socket = self
            .backend
            .sockets
            .get(1)
            .context("no socket for the VM")?;
        let mut spec = self.kit.spec(socket)?;
        spec.memory_mib = MEMORY_MIB;
        Machine::interactive(&spec, extra, &self.kit.logs.join("bench-guest.log"))
    }

    /// Ends the VM, if there is one, and fails if its kernel reported errors.
    pub fn end(mut self) -> Result<()> {
        if let Some(machine) = self.machine.take() {
            let report = machine.power_off()?;
            if let Some(complaint) = report.kernel_complaints.first() {
                bail!("the guest's kernel reports {complaint}");
            }
        }
        if !self.backend.alive()? {
            bail!("the back end ended:\n{}", self.backend.last_words());
        }
        Ok(())
    }
}

/// The output of a command that must succeed.
fn finished(
    command: &mut Command,
    log: &Path,
    on_line: impl FnMut(&str) -> Result<()>,
) -> Result<String> {
    let (status, output) = run_lines(command, log, on_line)?;
    if !status.success() {
        bail!(
            "{}; the whole output is in {}\n{}",
            describe(status),
            log.display(),
            tail(&output, 8)
        );
    }
    Ok(output)
}

/// Clock ticks that the process `root` and its descendants have used, in user and in kernel mode.
fn ticks(root: u32) -> u64 {
    descendants(root).into_iter().map(|(_, used)| used).sum()
}

/// The workers among the descendants of the process `root`.
fn workers(root: u32) -> usize {
    let is_worker = |id: u32| {
        let command = fs::read(format!("/proc/{id}/cmdline"));
        command.is_ok_and(|command| role(&command) == "worker")
    };
    let all = descendants(root).into_iter();
    all.filter(|(id, _)| is_worker(*id)).count()
}

/// The role of a process, by its command line.
pub fn role(command: &[u8]) -> String {
    let mut words = command.split(|byte| *byte == 0);
    let named = words.nth(1).and_then(|word| word.strip_suffix(b"-process"));
    named.map_or_else(
        || "supervisor".to_owned(),
        |name| String::from_utf8_lossy(name).into_owned(),
    )
}

/// The process `root` and its descendants, each with the clock ticks that it has used.
pub fn descendants(root: u32) -> Vec<(u32, u64)> {
    let mut parents = BTreeMap::new();
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    for entry in entries {
        let Some(id) = entry
            .file_name()
            .to_str()
            .and_then(|name| name.parse::<u32>().ok())
        else {
            continue;
        };
        let text = fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
        if let Some((parent, used)) = parse_stat(&text) {
            parents.insert(id, (parent, used));
        }
    }
    let is_ours = |mut id: u32| {
        // No chain of parents is longer than the number of processes.
        for _ in 0..parents.len() {
            if id == root {
                return true;
            }
            match parents.get(&id) {
                Some((parent, _)) => id = *parent,
                None => return false,
            }
        }
        false
    };
    parents
        .iter()
        .filter(|(id, _)| is_ours(**id))
        .map(|(id, (_, used))| (*id, *used))
        .collect()
}

/// The parent and the used clock ticks in a line of `/proc/PID/stat`.
fn parse_stat(text: &str) -> Option<(u32, u64)> {
    // The name, in parentheses, may contain spaces and parentheses.
    let rest = &text[text.rfind(')')? + 1..];
    let fields: Vec<&str> = rest.split_whitespace().collect();
    let number = |index: usize| fields.get(index)?.parse::<u64>().ok();
    Some((number(1)? as u32, number(11)? + number(12)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_lines_of_ours_count() {
        let output = "noise\n{\"measure\":\"a\",\"value\":1.5,\"unit\":\"us\"}\r\n{\"fact\":\"device\",\"value\":\"X\"}\n{}\n";
        let said = Said::read(output);
        assert_eq!(said.measures["a"], 1.5);
        assert_eq!(said.facts["device"], "X");
        assert_eq!(said.measures.len(), 1);
    }

    #[test]
    fn names_with_parentheses_do_not_confuse() {
        let line = "77 (a) b (c) S 5 77 77 0 -1 4194304 1 2 3 4 30 12 0 0 20 0 1 0 1 1 1";
        assert_eq!(parse_stat(line), Some((5, 42)));
    }
}
