// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The pitfall programs of `tests/pitfalls`: building them, running them in each way and reading their verdicts.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};

use crate::artifacts::Stage;
use crate::cuda::Cuda;
use crate::initramfs::{Archive, Job, SHIMS};
use crate::kit::Kit;
use crate::make::MakefileDirectory;
use crate::paths::Paths;
use crate::process::run_status;
use crate::runner::{self, Backend, Gpu, SOFTWARE_DEVICES};
use crate::ui::Step;
use crate::vm;

const SOURCE: &str = "tests/pitfalls";
/// Their directory in a stage.
const PART: &str = "pitfalls";
const LIST: &str = "pitfalls.toml";
/// Seconds that all tests of one program may take together, emulated.
const LIMIT: u64 = 1200;
/// RAM of the guest that runs them, in MiB.
const MEMORY_MIB: u32 = 2048;

#[derive(Debug, Deserialize)]
struct List {
    program: Vec<Program>,
}

#[derive(Debug, Deserialize)]
struct Program {
    name: String,
    libs: Vec<String>,
    #[serde(default)]
    args: Vec<String>,
    kind: String,
    #[serde(rename = "where")]
    ways: Vec<String>,
    /// The numbers of the software GPU's devices with which its tests run, once each.
    #[serde(default = "one")]
    devices: Vec<usize>,
    #[serde(default)]
    tests: Vec<String>,
}

fn one() -> Vec<usize> {
    vec![1]
}

/// One test's verdict.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// The result was right.
    Passed,
    /// The result was wrong, or there was no verdict.
    Failed,
    /// The test cannot run on this hardware or set-up.
    Skipped,
}

/// One test and its verdict.
#[derive(Clone, Debug, Serialize)]
pub struct Judged {
    /// The test's name; for a table, the program's.
    pub name: String,
    /// The verdict.
    pub verdict: Verdict,
    /// The test's message.
    pub reason: String,
}

/// All verdicts of one way to run the programs, and the output of tables and observations.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Outcome {
    /// The tests.
    pub tests: Vec<Judged>,
    /// The output of each program that prints a table, with its name.
    pub tables: Vec<(String, String)>,
    /// The tests' observations of behaviour that CUDA leaves open.
    pub observed: Vec<String>,
}

impl Outcome {
    /// The number of tests with this verdict.
    pub fn count(&self, verdict: Verdict) -> usize {
        self.tests
            .iter()
            .filter(|test| test.verdict == verdict)
            .count()
    }

    fn take(&mut self, program: &Program, rc: Option<i32>, output: &str) {
        if program.kind == "table" {
            let verdict = if rc == Some(0) {
                Verdict::Passed
            } else {
                Verdict::Failed
            };
            let reason = if rc == Some(0) {
                String::new()
            } else {
                format!("ended with {rc:?}")
            };
            self.tests.push(Judged {
                name: program.name.clone(),
                verdict,
                reason,
            });
            self.tables
                .push((program.name.clone(), output.trim().to_owned()));
            return;
        }
        let lines: Vec<&str> = output.lines().map(str::trim).collect();
        self.observed.extend(
            lines
                .iter()
                .filter(|line| line.starts_with("OBSERVED "))
                .map(|line| (*line).to_owned()),
        );
        for name in &program.tests {
            let said = lines.iter().find_map(|line| {
                let (word, rest) = line.split_once(' ')?;
                let verdict = match word {
                    "PASS" => Verdict::Passed,
                    "FAIL" => Verdict::Failed,
                    "SKIP" => Verdict::Skipped,
                    _ => return None,
                };
                let reason = rest.strip_prefix(name.as_str())?;
                if !reason.is_empty() && !reason.starts_with([':', ' ']) {
                    return None;
                }
                Some((verdict, reason.trim_start_matches([':', ' ']).to_owned()))
            });
            let (verdict, reason) = said.unwrap_or((
                Verdict::Failed,
                format!("no verdict; its program ended with {rc:?}"),
            ));
            self.tests.push(Judged {
                name: name.clone(),
                verdict,
                reason,
            });
        }
    }
}

/// The programs that `pitfalls.toml` in `dir` lists.
fn load(dir: &Path) -> Result<Vec<Program>> {
    let path = dir.join(LIST);
    let text =
        fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    let list: List =
        toml::from_str(&text).with_context(|| format!("{} is malformed", path.display()))?;
    Ok(list.program)
}

fn dir(stage: &Stage) -> PathBuf {
    stage.dir.join(PART)
}

/// Builds the programs into the stage, if their sources changed.
pub fn build(paths: &Paths, cuda: &Cuda, stage: &Stage) -> Result<()> {
    let programs = load(&paths.root.join(SOURCE))?;
    let names: Vec<&str> = programs.iter().map(|program| &program.name[..]).collect();
    let directory = MakefileDirectory {
        source: SOURCE,
        part: PART,
        label: "pitfall programs",
        programs: &names,
        data: &[LIST],
    };
    directory.build(paths, cuda, stage)
}

/// How commands are sent over a socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Route {
    /// By the ring if possible, which is the default.
    Ring,
    /// By the command queue alone.
    Queue,
}

/// Runs them natively (on NVIDIA's libcuda or the software GPU's), or over the back end's socket: all of them, or those
/// for this number of devices, which the back end then has.
pub fn on_host(
    kit: &Kit,
    gpu: Gpu,
    backend: Option<(&Backend, Route)>,
    devices: Option<usize>,
) -> Result<Outcome> {
    let way = match (backend, gpu.resolve()) {
        (Some(_), _) => "socket",
        (None, Gpu::Cuda) => "native",
        (None, _) => "software",
    };
    let queue = matches!(backend, Some((_, Route::Queue)));
    let mut label = if queue {
        format!("{way} without the ring")
    } else {
        way.to_owned()
    };
    let several = devices.filter(|devices| *devices > 1);
    if let Some(devices) = several {
        label = format!("{label}, {devices} devices");
    }
    let backend = backend.map(|(backend, _)| backend);
    let step = Step::new(format!("pitfalls: {label}"));
    let mut outcome = Outcome::default();
    for program in load(&dir(&kit.stage))?
        .iter()
        .filter(|program| program.ways.iter().any(|of| of == way))
        .filter(|program| devices.is_none_or(|devices| program.devices.contains(&devices)))
    {
        step.message(&program.name);
        let path = dir(&kit.stage).join(&program.name);
        let inner = match backend {
            Some(backend) => {
                let socket = backend
                    .sockets
                    .first()
                    .context("the back end has no socket")?;
                runner::over_socket(&kit.stage, socket, &path)
            }
            None => {
                let kind = if program.libs.iter().any(|lib| lib == "cudart") {
                    "shared"
                } else {
                    "driver"
                };
                runner::natively(&kit.stage, gpu, &path, kind)
            }
        };
        let mut command = runner::limited(&inner, LIMIT);
        command
            .args(&program.args)
            .env("PITFALL_BACKEND", way)
            .current_dir(dir(&kit.stage));
        if queue {
            command.env("VIRTIO_GPGPU_RING", "0");
        }
        if let Some(devices) = several {
            command.env(SOFTWARE_DEVICES, devices.to_string());
        }
        let label = label.replace(", ", "-").replace(' ', "-");
        let file = format!("pitfalls-{label}-{}.log", program.name);
        let log = kit.logs.join(file);
        let (status, output) = run_status(&mut command, None, &log)?;
        outcome.take(program, status.code(), &output);
    }
    step.done(format!(
        "{} of {} passed",
        outcome.count(Verdict::Passed),
        outcome.tests.len()
    ));
    Ok(outcome)
}

/// Runs them in one VM, connected to the back end's first socket.
pub fn in_vm(kit: &Kit, backend: &Backend) -> Result<Outcome> {
    let step = Step::new("pitfalls: vm");
    let programs: Vec<Program> = load(&dir(&kit.stage))?
        .into_iter()
        .filter(|program| program.ways.iter().any(|of| of == "vm"))
        .collect();
    let (_, _, guest) = kit.vm.as_ref().context("no VM was prepared")?;
    let work = tempfile::tempdir().context("cannot create a temporary directory")?;
    let mut extra = Archive::default();
    let mut jobs = Vec::new();
    let mut paths = Vec::new();
    for program in &programs {
        let from = dir(&kit.stage).join(&program.name);
        extra.file(&format!("pitfalls/{}", program.name), &from);
        paths.push(from);
        jobs.push(Job {
            id: program.name.clone(),
            command: format!(
                "cd /pitfalls; PITFALL_TIMEOUT=4 PITFALL_BACKEND=vm gpgpu-run --libdir /{SHIMS} ./{} {}",
                program.name,
                program.args.join(" ")
            ),
            limit: LIMIT,
        });
    }
    extra.libraries_of(&paths)?;
    let initramfs = work.path().join("initramfs");
    crate::initramfs::concatenate(&guest.initramfs, &extra, &initramfs)?;
    let socket = backend
        .sockets
        .first()
        .context("the back end has no socket")?;
    let mut spec = kit.spec(socket)?;
    spec.initramfs = &initramfs;
    spec.memory_mib = MEMORY_MIB;
    let report = vm::boot(&spec, &jobs, Some(&kit.logs.join("pitfalls-vm.log")))?;
    if let Some(complaint) = report.kernel_complaints.first() {
        bail!(
            "the guest's kernel reports {complaint}; its console is in {}",
            kit.logs.display()
        );
    }
    let mut outcome = Outcome::default();
    for program in &programs {
        let job = report.jobs.iter().find(|job| job.id == program.name);
        outcome.take(
            program,
            job.and_then(|job| job.rc),
            job.map_or("", |job| job.output.as_str()),
        );
    }
    step.done(format!(
        "{} of {} passed",
        outcome.count(Verdict::Passed),
        outcome.tests.len()
    ));
    Ok(outcome)
}

/// Writes the results as JSON, for comparing runs on different systems.
pub fn save(outcome: &Outcome, path: &Path) -> Result<()> {
    fs::write(path, serde_json::to_string_pretty(outcome)?)
        .with_context(|| format!("cannot write {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_test_without_a_verdict_failed() {
        let program = Program {
            name: "p".into(),
            libs: vec![],
            args: vec![],
            kind: "tests".into(),
            ways: vec![],
            devices: one(),
            tests: [
                "pitfall_01_a",
                "pitfall_01_a_b",
                "pitfall_02_c",
                "pitfall_03_d",
            ]
            .map(String::from)
            .to_vec(),
        };
        let mut outcome = Outcome::default();
        let output = "PASS pitfall_01_a_b\nFAIL pitfall_01_a: x is 3\nSKIP pitfall_02_c: no hugetlb\nOBSERVED pitfall_02_c k=1\n";
        outcome.take(&program, Some(1), output);
        let verdicts: Vec<_> = outcome.tests.iter().map(|test| test.verdict).collect();
        assert_eq!(
            verdicts,
            [
                Verdict::Failed,
                Verdict::Passed,
                Verdict::Skipped,
                Verdict::Failed
            ]
        );
        assert_eq!(outcome.tests[0].reason, "x is 3");
        assert_eq!(outcome.observed.len(), 1);
    }
}
