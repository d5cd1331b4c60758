// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The tests of the back end in `tests/`, as programs that need no Rust: they are in a bundle, for machines with a GPU.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clap::builder::PossibleValuesParser;
use comfy_table::{CellAlignment, Table, presets};
use serde::Deserialize;

use crate::artifacts::Stage;
use crate::cuda::Cuda;
use crate::make::MakefileDirectory;
use crate::paths::Paths;
use crate::process::{self, Proc, capture, describe};
use crate::runner::Gpu;
use crate::test;
use crate::ui::Step;

/// The tests that can run on another machine, in the order in which they run.
const NAMES: [&str; 13] = [
    "limits",
    "nvml",
    "images",
    "policy",
    "metrics",
    "mover",
    "quiescence",
    "libraries",
    "hostile",
    "statements",
    "sandbox",
    "isolation",
    "fairness",
];
/// Their directory in a bundle. They expect the back end in `bin` next to it.
pub const PART: &str = "tests";

/// Builds the guest programs of the tests of isolation and limits into the stage, if their sources changed.
pub fn build_guests(paths: &Paths, cuda: &Cuda, stage: &Stage) -> Result<()> {
    let directory = MakefileDirectory {
        source: "tests/isolation/programs",
        part: "isolation",
        label: "isolation programs",
        programs: &["guest", "no-cuda", "limits", "nvml"],
        data: &[],
    };
    directory.build(paths, cuda, stage)
}

/// Cargo's message about each built artifact.
#[derive(Deserialize)]
struct Artifact {
    executable: Option<PathBuf>,
    target: Target,
}

#[derive(Deserialize)]
struct Target {
    name: String,
    kind: Vec<String>,
}

/// Builds the tests and puts them into the directory `to`.
pub fn build(paths: &Paths, to: &Path) -> Result<()> {
    let step = Step::new("tests");
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command
        .args(["test", "--release", "--quiet", "--no-run"])
        .args(["--package", "vhost-device-gpgpu"])
        .args(NAMES.iter().flat_map(|name| ["--test", name]))
        .arg("--message-format=json")
        .current_dir(&paths.root);
    let said = capture(&mut command)?;
    let built: BTreeMap<String, PathBuf> = said
        .lines()
        .filter_map(|line| serde_json::from_str::<Artifact>(line).ok())
        .filter(|artifact| artifact.target.kind == ["test"])
        .filter_map(|artifact| Some((artifact.target.name, artifact.executable?)))
        .collect();
    fs::create_dir_all(to)?;
    for name in NAMES {
        let built = built
            .get(name)
            .with_context(|| format!("cargo does not say where it has put the test {name}"))?;
        capture(
            Command::new("strip")
                .arg("-o")
                .arg(to.join(name))
                .arg(built),
        )?;
    }
    step.done(format!("{} built", NAMES.len()));
    Ok(())
}

/// The tests of a bundle to run, and the ways to run them.
#[derive(clap::Args, Clone, Debug)]
pub struct Options {
    /// The GPU of the back ends; some tests always take the software GPU.
    #[arg(long, value_enum, default_value = "auto")]
    gpu: Gpu,
    /// Only tests whose name contains this.
    #[arg(long)]
    only: Option<String>,
    /// Seconds that each program of tests may take; the longest takes about 300 on an H200.
    #[arg(long, default_value_t = 480)]
    limit: u64,
    /// The directories of NVIDIA's libraries on this machine, for the tests of libraries on an NVIDIA GPU.
    #[arg(long, value_name = "DIR", value_delimiter = ':')]
    libraries: Vec<PathBuf>,
    /// Write each program's output, and the figures of isolation, into this directory.
    #[arg(long, default_value = "logs")]
    logs: PathBuf,
    /// The unpacked bundle.
    #[arg(long, hide = true)]
    prebuilt: PathBuf,
    /// Only these programs of tests.
    #[arg(value_parser = PossibleValuesParser::new(NAMES))]
    names: Vec<String>,
}

/// The results of one program's tests.
#[derive(Debug, Default, PartialEq, Eq)]
struct Counts {
    passed: usize,
    failed: usize,
    ignored: usize,
    /// The number of passed tests that reported that they had nothing to run on.
    skipped: usize,
    /// The failed tests, including those that were running when the program was stopped.
    names: Vec<String>,
}

/// Parses the output of libtest or libtest-mimic, from tests that run one after the other. `ended` says whether the
/// program ended by itself.
fn count(output: &str, ended: bool) -> Counts {
    let mut counts = Counts::default();
    let mut current = None;
    for line in output.lines() {
        if line.starts_with("skipped: ") || line.contains(" ... skipped: ") {
            counts.skipped += 1;
        }
        // A test's own output comes between its name and its result.
        if let Some((name, _)) = line
            .strip_prefix("test ")
            .and_then(|rest| rest.split_once(" ... "))
        {
            current = Some(name.trim_end());
        }
        let word = line.rsplit(" ... ").next().unwrap_or_default();
        let counter = match word {
            "ok" => &mut counts.passed,
            "FAILED" => &mut counts.failed,
            _ if word == "ignored" || word.starts_with("ignored, ") => &mut counts.ignored,
            _ => continue,
        };
        let Some(name) = current.take() else {
            continue;
        };
        *counter += 1;
        if word == "FAILED" {
            counts.names.push(name.to_owned());
        }
    }
    // The closing line is more accurate, if it exists.
    let closing = test::count(output);
    if closing != (0, 0, 0) {
        (counts.passed, counts.failed, counts.ignored) = closing;
    }
    if !ended && let Some(name) = current {
        counts.failed += 1;
        counts.names.push(name.to_owned());
    }
    counts
}

/// A program of tests after its run.
struct Ran {
    name: String,
    counts: Counts,
    took: Duration,
    /// The reason why the run counts as failed.
    complaint: Option<String>,
}

impl Ran {
    fn new(
        name: &str,
        output: &str,
        status: Option<ExitStatus>,
        took: Duration,
        limit: u64,
    ) -> Self {
        let ended = status.is_some_and(|status| status.code().is_some());
        let counts = count(output, ended);
        let complaint = match status {
            None => Some(format!("not done in {limit} s")),
            Some(status) if status.signal().is_some() => Some(describe(status)),
            Some(status) if !status.success() && counts.failed == 0 => Some(describe(status)),
            Some(status) if !status.success() || counts.failed > 0 => Some(String::new()),
            Some(_) => None,
        };
        Self {
            name: name.to_owned(),
            counts,
            took,
            complaint,
        }
    }

    /// The note after its name.
    fn text(&self) -> String {
        let counts = &self.counts;
        let mut text = format!("{} passed, {} failed", counts.passed, counts.failed);
        for (number, word) in [(counts.ignored, "ignored"), (counts.skipped, "skipped")] {
            if number > 0 {
                text += &format!(", {number} {word}");
            }
        }
        if let Some(complaint) = self.complaint.as_ref().filter(|text| !text.is_empty()) {
            text += &format!(", {complaint}");
        }
        if !counts.names.is_empty() {
            text += &format!(" [{}]", counts.names.join(", "));
        }
        text
    }
}

/// Runs the tests that `options` select, and prints a table. Returns whether all passed.
pub fn run(options: &Options) -> Result<bool> {
    let bundle = options.prebuilt.canonicalize();
    let bundle = bundle.context("there is no such bundle")?;
    fs::create_dir_all(&options.logs)
        .with_context(|| format!("cannot create {}", options.logs.display()))?;
    let logs = options.logs.canonicalize()?;
    let chosen =
        |name: &&str| options.names.is_empty() || options.names.iter().any(|of| of == name);
    let mut all = Vec::new();
    for name in NAMES.into_iter().filter(chosen) {
        match run_one(name, options, &bundle, &logs) {
            Ok(ran) => all.push(ran),
            // After Ctrl-C, print the results so far.
            Err(_) if process::interrupted() => break,
            Err(error) => return Err(error),
        }
    }
    println!("{}", table(&all));
    println!("The whole output is in {}.", logs.display());
    process::check_interrupted()?;
    if all.iter().all(|ran| ran.counts.passed == 0) {
        bail!("no test has passed");
    }
    Ok(all.iter().all(|ran| ran.complaint.is_none()))
}

fn run_one(name: &str, options: &Options, bundle: &Path, logs: &Path) -> Result<Ran> {
    let log = logs.join(format!("{name}.log"));
    let file = File::create(&log).with_context(|| format!("cannot write {}", log.display()))?;
    let mut command = Command::new(bundle.join(PART).join(name));
    // One at a time, because they measure the GPU's memory and time.
    command
        .args(["--test-threads=1", "--nocapture"])
        .args(&options.only)
        .env("VIRTIO_GPGPU_STAGE", bundle)
        .env("VIRTIO_GPGPU_TEST_GPU", options.gpu.resolve().name())
        .env("VIRTIO_GPGPU_TEST_OUT", logs)
        .env(
            "VIRTIO_GPGPU_TEST_LIBRARIES",
            std::env::join_paths(&options.libraries).context("a directory's name has a colon")?,
        )
        // To a file: with a pipe, a back end that is left behind could keep the reader waiting.
        .stdin(Stdio::null())
        .stdout(file.try_clone()?)
        .stderr(file);
    let step = Step::new(name);
    let started = Instant::now();
    let mut child = Proc::spawn(&mut command, libc::SIGKILL)?;
    let status = child.wait_for(Duration::from_secs(options.limit))?;
    // This also ends processes that it has left behind.
    child.stop();
    process::check_interrupted()?;
    let output = fs::read(&log)?;
    let output = String::from_utf8_lossy(&output);
    let ran = Ran::new(name, &output, status, started.elapsed(), options.limit);
    match ran.complaint {
        None => step.done(ran.text()),
        Some(_) => step.failed(ran.text()),
    }
    Ok(ran)
}

fn table(all: &[Ran]) -> Table {
    let mut table = Table::new();
    table.load_preset(presets::UTF8_FULL_CONDENSED);
    table.set_header([
        "tests", "passed", "failed", "ignored", "skipped", "seconds", "",
    ]);
    for ran in all {
        let counts = &ran.counts;
        let verdict = match &ran.complaint {
            None => "ok",
            Some(complaint) if complaint.is_empty() => "FAILED",
            Some(complaint) => complaint,
        };
        let numbers = [counts.passed, counts.failed, counts.ignored, counts.skipped];
        let mut row = vec![ran.name.clone()];
        row.extend(numbers.map(|number| number.to_string()));
        row.push(format!("{:.1}", ran.took.as_secs_f64()));
        row.push(verdict.to_owned());
        table.add_row(row);
    }
    for index in 1..6 {
        if let Some(column) = table.column_mut(index) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    const OUTPUT: &str = "\nrunning 5 tests\n\
        test a::one ... skipped: there is no software GPU\nok\n\
        test two ... ok\n\
        test three ... | a line of the log\nthread 'three' panicked at x:\nFAILED\n\
        test four ... ignored, by hand\n\
        test sandboxed  ... ok\n\
        test five ... | listening\n";

    #[test]
    fn the_test_at_work_when_its_program_was_ended_failed() {
        let mut counts = Counts {
            passed: 3,
            failed: 2,
            ignored: 1,
            skipped: 1,
            names: vec!["three".into(), "five".into()],
        };
        assert_eq!(count(OUTPUT, false), counts);
        counts.failed = 1;
        counts.names.pop();
        assert_eq!(count(OUTPUT, true), counts);
        counts.passed = 7;
        let closing =
            "test result: FAILED. 7 passed; 1 failed; 1 ignored; 0 measured; 0 filtered out\n";
        assert_eq!(count(&format!("{OUTPUT}{closing}"), true), counts);
    }

    #[test]
    fn a_program_out_of_time_or_killed_failed() {
        let ran = |status| Ran::new("x", "test one ... ok\n", status, Duration::ZERO, 3).complaint;
        assert_eq!(ran(None).as_deref(), Some("not done in 3 s"));
        assert!(ran(Some(ExitStatus::from_raw(9))).is_some());
        assert!(ran(Some(ExitStatus::from_raw(1 << 8))).is_some());
        assert_eq!(ran(Some(ExitStatus::from_raw(0))), None);
    }
}
