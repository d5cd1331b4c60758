// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! `cargo xtask fuzz`: runs every target of `fuzz/`, on stable Rust with libFuzzer from a crate.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use anyhow::{Context, Result, bail};
use clap::Args;
use comfy_table::Table;

use crate::{
    paths::Paths,
    process::{describe, run_logged, run_status, tail},
    ui::Step,
};

/// The instrumentation for libFuzzer's counters and comparisons: cargo-fuzz's without a sanitizer.
const FLAGS: &[&str] = &[
    "--cfg",
    "fuzzing",
    "-Cpasses=sancov-module",
    "-Cllvm-args=-sanitizer-coverage-level=4",
    "-Cllvm-args=-sanitizer-coverage-inline-8bit-counters",
    "-Cllvm-args=-sanitizer-coverage-pc-table",
    "-Cllvm-args=-sanitizer-coverage-trace-compares",
    "-Ccodegen-units=1",
];

/// Longer inputs find nothing more, and slow everything down.
const MAX_INPUT_BYTES: u32 = 8192;
/// The limits for one input: seconds, and megabytes of memory.
const INPUT_SECONDS: u32 = 10;
const MEMORY_MB: u32 = 2048;
/// The maximum total size of the committed corpus.
const CORPUS_BYTES: u64 = 200_000;

/// The options of `cargo xtask fuzz`.
#[derive(Args, Default)]
pub struct Options {
    /// Seconds in all, shared by the targets.
    #[arg(long, default_value_t = 60)]
    pub seconds: u64,
    /// Replace the committed corpus by the smallest one with the coverage of this run.
    #[arg(long)]
    pub minimise: bool,
    /// Only these targets.
    pub targets: Vec<String>,
}

/// The result of a target's run.
struct Outcome {
    target: String,
    runs: u64,
    rate: u64,
    coverage: u64,
    find: Option<String>,
}

/// Runs the targets, and prints the results; returns `false` if anything was found.
pub fn run(options: &Options) -> Result<bool> {
    let paths = Paths::find()?;
    let fuzz = Fuzz::new(&paths)?;
    let targets = fuzz.choose(&options.targets)?;
    fuzz.build()?;
    let each = Duration::from_secs((options.seconds / targets.len().max(1) as u64).max(1));
    let mut outcomes = Vec::new();
    for target in &targets {
        outcomes.push(fuzz.fuzz(target, each)?);
    }
    let mut table = Table::new();
    table.load_preset(comfy_table::presets::UTF8_FULL_CONDENSED);
    table.set_header(["target", "runs", "runs/s", "coverage", "found"]);
    for outcome in &outcomes {
        table.add_row([
            outcome.target.clone(),
            outcome.runs.to_string(),
            outcome.rate.to_string(),
            outcome.coverage.to_string(),
            outcome.find.clone().unwrap_or_else(|| "nothing".to_owned()),
        ]);
    }
    println!("{table}");
    if options.minimise {
        for target in &targets {
            fuzz.minimise(target)?;
        }
        fuzz.check_size()?;
    }
    Ok(outcomes.iter().all(|outcome| outcome.find.is_none()))
}

struct Fuzz {
    root: PathBuf,
    build: PathBuf,
    grown: PathBuf,
    logs: PathBuf,
    triple: String,
}

impl Fuzz {
    fn new(paths: &Paths) -> Result<Self> {
        let output = Command::new("rustc")
            .arg("-vV")
            .output()
            .context("cannot run rustc")?;
        let said = String::from_utf8_lossy(&output.stdout);
        let triple = said.lines().find_map(|line| line.strip_prefix("host: "));
        let target = paths.cargo_target();
        Ok(Self {
            root: paths.root.join("fuzz"),
            build: target.join("fuzz"),
            grown: target.join("fuzz-corpus"),
            logs: paths.logs(),
            triple: triple.context("rustc does not report its host")?.to_owned(),
        })
    }

    fn choose(&self, wanted: &[String]) -> Result<Vec<String>> {
        let directory = self.root.join("fuzz_targets");
        let mut all: Vec<String> = fs::read_dir(&directory)
            .with_context(|| format!("cannot read {}", directory.display()))?
            .filter_map(|entry| Some(entry.ok()?.path().file_stem()?.to_str()?.to_owned()))
            .collect();
        all.sort();
        if let Some(unknown) = wanted.iter().find(|name| !all.contains(name)) {
            bail!(
                "unknown target {unknown}; the targets are {}",
                all.join(", ")
            );
        }
        Ok(match wanted {
            [] => all,
            some => some.to_vec(),
        })
    }

    fn build(&self) -> Result<()> {
        let step = Step::new("fuzz targets");
        // With an explicit target the flags do not apply to build scripts, which are not linked to libFuzzer.
        let mut cargo = Command::new("cargo");
        cargo
            .args(["build", "--release", "--bins", "--target", &self.triple])
            .arg("--manifest-path")
            .arg(self.root.join("Cargo.toml"))
            .env("CARGO_TARGET_DIR", &self.build)
            .env("CARGO_ENCODED_RUSTFLAGS", FLAGS.join("\x1f"))
            .env_remove("RUSTFLAGS");
        run_logged(&mut cargo, Some(&step), &self.logs.join("fuzz-build.log"))
            .context("a C++ compiler is needed too: apt-get install g++")?;
        step.done("");
        Ok(())
    }

    fn command(&self, target: &str) -> Command {
        let program = self.build.join(&self.triple).join("release").join(target);
        let mut command = Command::new(program);
        command
            .arg(format!("-max_len={MAX_INPUT_BYTES}"))
            .arg(format!("-timeout={INPUT_SECONDS}"))
            .arg(format!("-rss_limit_mb={MEMORY_MB}"));
        command
    }

    fn corpus(&self, target: &str) -> PathBuf {
        self.root.join("corpus").join(target)
    }

    fn fuzz(&self, target: &str, time: Duration) -> Result<Outcome> {
        let step = Step::new(format!("fuzz {target}"));
        let grown = self.grown.join(target);
        let finds = self.grown.join("finds");
        for directory in [&grown, &finds] {
            fs::create_dir_all(directory)
                .with_context(|| format!("cannot make {}", directory.display()))?;
        }
        let mut command = self.command(target);
        command
            .arg(format!("-max_total_time={}", time.as_secs()))
            .arg(format!("-artifact_prefix={}/{target}-", finds.display()))
            .arg("-print_final_stats=1")
            .arg(&grown);
        let committed = self.corpus(target);
        if committed.is_dir() {
            command.arg(committed);
        }
        let log = self.logs.join(format!("fuzz-{target}.log"));
        let (status, said) = run_status(&mut command, Some(&step), &log)?;
        let find = (!status.success()).then(|| {
            let written = said
                .lines()
                .find_map(|line| line.split_once("Test unit written to "));
            match written {
                Some((_, file)) => file.to_owned(),
                None => format!("{}\n{}", describe(status), tail(&said, 5)),
            }
        });
        let number = |name: &str| {
            let value = said.lines().find_map(|line| line.strip_prefix(name));
            value
                .and_then(|value| value.trim().parse().ok())
                .unwrap_or(0)
        };
        let outcome = Outcome {
            target: target.to_owned(),
            runs: number("stat::number_of_executed_units:"),
            rate: number("stat::average_exec_per_sec:"),
            coverage: coverage(&said),
            find,
        };
        step.done(format!("{} runs", outcome.runs));
        Ok(outcome)
    }

    /// Replaces the committed corpus by the smallest one with the combined coverage of it and of the grown corpus.
    fn minimise(&self, target: &str) -> Result<()> {
        let step = Step::new(format!("minimise {target}"));
        let (committed, before) = (
            self.corpus(target),
            self.grown.join(format!("{target}-before")),
        );
        let _ = fs::remove_dir_all(&before);
        fs::create_dir_all(&committed)?;
        fs::rename(&committed, &before).or_else(|_| copy(&committed, &before))?;
        let _ = fs::remove_dir_all(&committed);
        fs::create_dir_all(&committed)?;
        let mut command = self.command(target);
        command
            .arg("-merge=1")
            // Only coverage counts, not its frequency, which would keep ten times as much.
            .arg("-use_counters=0")
            .arg(&committed)
            .arg(&before)
            .arg(self.grown.join(target));
        run_logged(
            &mut command,
            Some(&step),
            &self.logs.join(format!("fuzz-merge-{target}.log")),
        )?;
        let files = files(&committed)?;
        step.done(format!("{} inputs", files.len()));
        Ok(())
    }

    fn check_size(&self) -> Result<()> {
        let mut bytes = 0;
        for target in self.choose(&[])? {
            let directory = self.corpus(&target);
            if directory.is_dir() {
                bytes += files(&directory)?
                    .iter()
                    .map(|(_, bytes)| bytes)
                    .sum::<u64>();
            }
        }
        if bytes > CORPUS_BYTES {
            println!(
                "The corpus has {bytes} bytes; commit no more than {CORPUS_BYTES} of it, the shortest first"
            );
        }
        Ok(())
    }
}

/// The coverage in the last line of progress.
fn coverage(said: &str) -> u64 {
    let words = |line: &str| {
        let (_, rest) = line.split_once(" cov: ")?;
        rest.split_whitespace().next()?.parse().ok()
    };
    said.lines().rev().find_map(words).unwrap_or(0)
}

fn files(directory: &Path) -> Result<Vec<(PathBuf, u64)>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        files.push((entry.path(), entry.metadata()?.len()));
    }
    Ok(files)
}

fn copy(from: &Path, to: &Path) -> std::io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        fs::copy(entry.path(), to.join(entry.file_name()))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_coverage_counts() {
        let said =
            "#2\tINITED cov: 7 ft: 8 corp: 1/1b\n#9\tNEW    cov: 11 ft: 12 corp: 2/2b\nDone 9 runs";
        assert_eq!(coverage(said), 11);
        assert_eq!(coverage("nothing"), 0);
    }
}
