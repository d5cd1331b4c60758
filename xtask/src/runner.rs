// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The three ways to run the programs: in a VM, over the socket without a VM, and natively on a GPU library.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde::Serialize;

use crate::artifacts::Stage;
use crate::initramfs::{Job, SHIMS};
use crate::process::{self, Proc, describe, run_status, tail};
use crate::programs::Run;
use crate::vm::{self, JobReport, Report, Spec};

/// The time limit in seconds of one program, in an emulated guest and on the software GPU.
pub const PROGRAM_LIMIT: u64 = 300;
/// The variable for the number of the software GPU's devices.
pub const SOFTWARE_DEVICES: &str = "VIRTIO_GPGPU_SOFTWARE_DEVICES";
/// The time limit for the back end to listen.
const BACKEND_START: Duration = Duration::from_secs(30);

/// The GPU of the workers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Gpu {
    /// NVIDIA's GPU if there is one, else the software GPU.
    Auto,
    /// NVIDIA's GPU.
    Cuda,
    /// The software GPU.
    Software,
}

impl Gpu {
    /// The name for the back end's option.
    pub fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Cuda => "cuda",
            Self::Software => "software",
        }
    }

    /// Replaces `auto` by its meaning on this host.
    pub fn resolve(self) -> Self {
        match self {
            Self::Auto => {
                // In a guest of this project it is a link to the virtual GPU.
                let driver = Path::new("/dev/nvidiactl");
                match driver.exists() && !driver.is_symlink() {
                    true => Self::Cuda,
                    false => Self::Software,
                }
            }
            chosen => chosen,
        }
    }
}

/// The result of one program's run.
#[derive(Clone, Debug, Serialize)]
pub struct Outcome {
    /// The program.
    pub program: String,
    /// The linkage.
    pub linkage: String,
    /// Whether it exited successfully and printed a RESULT line that reports success.
    pub ok: bool,
    /// A short description of the error; empty if there was none.
    pub problem: String,
    /// Milliseconds from start to end, in the guest if there is one.
    pub ms: u64,
    /// The time that the program itself measured around its CUDA calls.
    pub total_ms: Option<f64>,
    /// The time of its kernels.
    pub kernel_ms: Option<f64>,
    /// The checksum of its results.
    pub checksum: String,
    /// The GPU's name, if the program prints it.
    pub device: Option<String>,
    /// Its whole output.
    #[serde(skip)]
    pub output: String,
}

impl Outcome {
    /// Judges a run by its exit status (a shell's number) and its output.
    pub fn new(run: &Run, rc: Option<i32>, ms: u64, output: String) -> Self {
        let result = output
            .lines()
            .rev()
            .find_map(|line| line.find("RESULT ").map(|at| line[at..].to_owned()));
        let field = |name: &str| {
            result.as_deref().and_then(|line| {
                line.split_whitespace().find_map(|word| {
                    word.strip_prefix(name)?
                        .strip_prefix('=')
                        .map(str::to_owned)
                })
            })
        };
        let status = field("status");
        let problem = match (rc, status.as_deref()) {
            (Some(0), Some("ok")) => String::new(),
            (None, _) => "the guest ended before it did".to_owned(),
            (Some(137), _) => "killed, or out of time".to_owned(),
            (Some(0), None) => "no RESULT line".to_owned(),
            (Some(rc), _) => format!("exit status {rc}"),
        };
        let device = output
            .lines()
            .find_map(|line| {
                line.trim()
                    .strip_prefix("name:")
                    .or_else(|| line.trim().strip_prefix("Device 0:"))
            })
            .map(|name| name.trim().to_owned());
        Self {
            program: run.program.clone(),
            linkage: run.kind.clone(),
            ok: problem.is_empty(),
            problem,
            ms,
            total_ms: field("total_ms").and_then(|text| text.parse().ok()),
            kernel_ms: field("kernel_ms").and_then(|text| text.parse().ok()),
            checksum: field("checksum").unwrap_or_default(),
            device,
            output,
        }
    }
}

/// Lets a back end listen at `vm` in a directory, or at `vm0`, `vm1` ….
fn listen(command: &mut Command, dir: &Path, count: usize) {
    command.arg("--socket-path").arg(dir.join("vm"));
    if count > 1 {
        command.args(["--socket-count", &count.to_string()]);
    }
}

/// The back end, serving one socket or several until it is dropped.
pub struct Backend {
    process: Proc,
    log: PathBuf,
    /// The sockets, one for each VM.
    pub sockets: Vec<PathBuf>,
    _dir: tempfile::TempDir,
}

impl Backend {
    /// Starts the back end for `count` VMs and waits until it listens.
    pub fn start(stage: &Stage, gpu: Gpu, count: usize, log: &Path) -> Result<Self> {
        Self::start_with(stage, gpu, count, log, |command, dir| {
            listen(command, dir, count);
            Ok(())
        })
    }

    /// The same, with directories of NVIDIA's libraries. Without any, the software GPU uses its own stand-ins.
    pub fn start_with_libraries(
        stage: &Stage,
        gpu: Gpu,
        count: usize,
        libraries: &[PathBuf],
        log: &Path,
    ) -> Result<Self> {
        Self::start_with(stage, gpu, count, log, |command, dir| {
            listen(command, dir, count);
            for directory in libraries {
                command.arg("--libraries").arg(directory);
            }
            Ok(())
        })
    }

    /// With one socket, on a software GPU with this number of devices.
    pub fn start_software(stage: &Stage, devices: usize, log: &Path) -> Result<Self> {
        Self::start_with(stage, Gpu::Software, 1, log, |command, dir| {
            listen(command, dir, 1);
            command.env(SOFTWARE_DEVICES, devices.to_string());
            Ok(())
        })
    }

    /// Like [`Self::start`], with a command line that `adapt` completes. The back end must listen in the directory that
    /// `adapt` gets, at `vm` or at `vm0`, `vm1` …
    pub fn start_with(
        stage: &Stage,
        gpu: Gpu,
        count: usize,
        log: &Path,
        adapt: impl FnOnce(&mut Command, &Path) -> Result<()>,
    ) -> Result<Self> {
        let dir = tempfile::Builder::new()
            .prefix("gpgpu-")
            .tempdir()
            .context("cannot create a temporary directory")?;
        let base = dir.path().join("vm");
        if let Some(parent) = log.parent() {
            fs::create_dir_all(parent)?;
        }
        let output =
            fs::File::create(log).with_context(|| format!("cannot write {}", log.display()))?;
        let mut command = Command::new(stage.backend());
        command.args(["--gpu", gpu.name()]);
        // With `cuda` the software GPU is not used, and the back end reports a missing GPU.
        if !matches!(gpu, Gpu::Cuda) {
            command.arg("--software-gpu").arg(stage.software_gpu());
        }
        adapt(&mut command, dir.path())?;
        command
            .stdin(Stdio::null())
            .stdout(output.try_clone()?)
            .stderr(output);
        let sockets = match count {
            1 => vec![base],
            _ => (0..count)
                .map(|index| dir.path().join(format!("vm{index}")))
                .collect(),
        };
        let process = Proc::spawn(&mut command, libc::SIGTERM)?;
        let mut backend = Self {
            process,
            log: log.to_path_buf(),
            sockets,
            _dir: dir,
        };
        let end = Instant::now() + BACKEND_START;
        while !backend.sockets.iter().all(|socket| socket.exists()) {
            process::check_interrupted()?;
            if !backend.alive()? {
                bail!("the back end ended at once:\n{}", backend.last_words());
            }
            if Instant::now() > end {
                bail!(
                    "the back end does not listen after {} s:\n{}",
                    BACKEND_START.as_secs(),
                    backend.last_words()
                );
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(backend)
    }

    /// The process id of its first process, of which all others are descendants.
    pub fn id(&self) -> u32 {
        self.process.id()
    }

    /// Whether it is still running.
    pub fn alive(&mut self) -> Result<bool> {
        Ok(self.process.try_wait()?.is_none())
    }

    /// The end of its log.
    pub fn last_words(&self) -> String {
        tail(&fs::read_to_string(&self.log).unwrap_or_default(), 15)
    }
}

/// The command line that runs `run` in the guest.
pub fn guest_job(run: &Run) -> Job {
    let executable = run.executable();
    let mut command = format!(
        "gpgpu-run --libdir /{SHIMS} /programs/{}",
        executable.display()
    );
    for arg in &run.args {
        command.push(' ');
        command.push_str(arg);
    }
    Job {
        id: executable.display().to_string(),
        command,
        limit: PROGRAM_LIMIT,
    }
}

/// Boots one VM for each spec, all at once, and runs all `runs` in each.
pub fn in_vms(specs: &[Spec], runs: &[Run], logs: &Path) -> Result<Vec<(Report, Vec<Outcome>)>> {
    fs::create_dir_all(logs)?;
    let jobs: Vec<Job> = runs.iter().map(guest_job).collect();
    let reports: Vec<Result<Report>> = std::thread::scope(|scope| {
        let threads: Vec<_> = specs
            .iter()
            .enumerate()
            .map(|(index, spec)| {
                let log = logs.join(format!("guest{index}.log"));
                let jobs = &jobs;
                scope.spawn(move || vm::boot(spec, jobs, Some(&log)))
            })
            .collect();
        threads
            .into_iter()
            .map(|t| t.join().unwrap_or_else(|_| bail!("a thread panicked")))
            .collect()
    });
    let mut all = Vec::new();
    for report in reports {
        let report = report?;
        let outcomes = runs
            .iter()
            .zip(&jobs)
            .map(|(run, job)| {
                let missing = JobReport {
                    id: job.id.clone(),
                    ..JobReport::default()
                };
                let done = report
                    .jobs
                    .iter()
                    .find(|done| done.id == job.id)
                    .unwrap_or(&missing);
                Outcome::new(run, done.rc, done.ms, done.output.clone())
            })
            .collect();
        all.push((report, outcomes));
    }
    Ok(all)
}

/// The command that runs `program` over the back end's `socket`, without a VM.
pub fn over_socket(stage: &Stage, socket: &Path, program: &Path) -> Command {
    let mut command = Command::new(stage.gpgpu_run());
    command.arg("--libdir").arg(stage.shims()).arg(program);
    command.env("VIRTIO_GPGPU", format!("unix:{}", socket.display()));
    command
}

/// The command that runs `program`, with the linkage `kind`, directly on NVIDIA's libcuda or on the software GPU's.
pub fn natively(stage: &Stage, gpu: Gpu, program: &Path, kind: &str) -> Command {
    let cuda = gpu.resolve() == Gpu::Cuda;
    // On NVIDIA's driver, a program with the static runtime is its own best reference.
    if cuda && !matches!(kind, "shared" | "library") {
        return Command::new(program);
    }
    let mut command = Command::new(stage.gpgpu_run());
    let libdir = if cuda {
        stage.native_cuda()
    } else {
        stage.native_software()
    };
    command
        .arg("--no-device-check")
        .arg("--libdir")
        .arg(libdir)
        .arg(program);
    command
}

/// `inner` under coreutils' `timeout`, which enforces a limit and has a number for every way to end.
pub fn limited(inner: &Command, seconds: u64) -> Command {
    let mut command = Command::new("timeout");
    command.args(["--signal=KILL", &seconds.to_string()]);
    command.arg(inner.get_program()).args(inner.get_args());
    for (key, value) in inner.get_envs() {
        match value {
            Some(value) => command.env(key, value),
            None => command.env_remove(key),
        };
    }
    command
}

/// Runs one program on this host with the command that `make` returns for its executable.
pub fn on_host(
    stage: &Stage,
    run: &Run,
    logs: &Path,
    make: impl Fn(&Path) -> Command,
) -> Result<Outcome> {
    let executable = stage.programs().join(run.executable());
    let mut command = limited(&make(&executable), PROGRAM_LIMIT);
    command.args(&run.args);
    let started = Instant::now();
    let log = logs.join(format!("{}-{}.log", run.program, run.kind));
    let (status, output) = run_status(&mut command, None, &log)?;
    let ms = started.elapsed().as_millis() as u64;
    let rc = status.code().unwrap_or(137);
    let mut outcome = Outcome::new(run, Some(rc), ms, output);
    if status.code().is_none() {
        outcome.problem = describe(status);
    }
    Ok(outcome)
}

/// Marks every run as wrong whose checksum differs from that of the same program with another linkage, of the program
/// with which it must agree, or of `reference`.
pub fn compare(outcomes: &mut [Outcome], runs: &[Run], reference: Option<&[Outcome]>) {
    let first: Vec<(String, String)> = reference
        .unwrap_or(outcomes)
        .iter()
        .filter(|o| o.ok)
        .map(|o| (o.program.clone(), o.checksum.clone()))
        .collect();
    for (outcome, run) in outcomes.iter_mut().zip(runs) {
        let whose = run.same_output_as.as_ref().unwrap_or(&run.program);
        let Some((_, expected)) = first.iter().find(|(program, _)| program == whose) else {
            continue;
        };
        if outcome.ok && outcome.checksum != *expected {
            outcome.ok = false;
            outcome.problem = format!("checksum differs: {expected} expected");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(program: &str, same: Option<&str>) -> Run {
        Run {
            program: program.into(),
            kind: "shared".into(),
            args: vec![],
            same_output_as: same.map(str::to_owned),
            newer: false,
        }
    }

    fn outcome(run: &Run, checksum: &str) -> Outcome {
        let line = format!(
            "RESULT name=x size=1 status=ok checksum={checksum} kernel_ms=0.5 total_ms=1.5\n"
        );
        Outcome::new(run, Some(0), 5, line)
    }

    #[test]
    fn a_run_is_right_only_with_status_zero_and_a_result() {
        let run = run("a", None);
        let good = outcome(&run, "12");
        assert!(good.ok);
        assert_eq!((good.checksum.as_str(), good.total_ms), ("12", Some(1.5)));
        assert!(!Outcome::new(&run, Some(0), 1, "nothing".into()).ok);
        assert!(!Outcome::new(&run, Some(1), 1, "RESULT status=ok checksum=1".into()).ok);
        assert!(!Outcome::new(&run, None, 1, String::new()).ok);
    }

    #[test]
    fn other_linkage_and_other_apis_must_agree() {
        let runs = [run("a", None), run("a", None), run("a-driver", Some("a"))];
        let mut all = [
            outcome(&runs[0], "1"),
            outcome(&runs[1], "2"),
            outcome(&runs[2], "1"),
        ];
        compare(&mut all, &runs, None);
        assert_eq!(
            all.iter().map(|o| o.ok).collect::<Vec<_>>(),
            [true, false, true]
        );
        let reference = [outcome(&runs[0], "9")];
        let mut all = [
            outcome(&runs[0], "1"),
            outcome(&runs[1], "9"),
            outcome(&runs[2], "1"),
        ];
        compare(&mut all, &runs, Some(&reference));
        assert_eq!(
            all.iter().map(|o| o.ok).collect::<Vec<_>>(),
            [false, true, false]
        );
    }
}
