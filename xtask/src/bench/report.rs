// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The results: as a table on the terminal, as JSON, and as the tables of `docs/performance.md`.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use comfy_table::{CellAlignment, Table, presets};
use serde::{Deserialize, Serialize};

use super::chart;
use super::frameworks::is_frameworks;
use super::many::{is_many, median};
use super::page::Page;
use super::rows::{Goal, Row};
use crate::kit::Kit;
use crate::paths::Paths;
use crate::process::capture;

/// A file in a bundle that contains the version from which its programs were built.
pub const VERSION_FILE: &str = "version";

/// One row of the results.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Figure {
    /// The row's name.
    pub name: String,
    /// The unit of `native` and `ours`.
    pub unit: String,
    /// The median of the native runs.
    pub native: f64,
    /// The median of the runs through us.
    pub ours: f64,
    /// `ours` divided by `native`; `None` if `native` is 0.
    pub ratio: Option<f64>,
    /// The goal.
    pub goal: Option<String>,
    /// Whether the goal is met.
    pub met: Option<bool>,
    /// The native runs' figures.
    pub native_runs: Vec<f64>,
    /// The figures of the runs through us.
    pub our_runs: Vec<f64>,
    /// The suite that the row belongs to.
    pub suite: String,
    /// Seconds that the whole suite took.
    pub suite_seconds: f64,
}

impl Figure {
    /// The row with these figures.
    pub fn new(row: &Row, native_runs: Vec<f64>, our_runs: Vec<f64>) -> Self {
        let (native, ours) = (median(&native_runs), median(&our_runs));
        Self {
            name: row.name.clone(),
            unit: row.unit.to_owned(),
            native,
            ours,
            ratio: (native > 0.0).then(|| ours / native),
            goal: row.goal.map(|goal| match goal {
                Goal::AtMost(_) | Goal::NativeAnd(_) => format!("{goal} {}", row.unit),
                _ => goal.to_string(),
            }),
            met: row.goal.map(|goal| goal.met(native, ours)),
            native_runs,
            our_runs,
            suite: String::new(),
            suite_seconds: 0.0,
        }
    }

    /// The same, measured as a part of the suite `title`.
    pub fn in_suite(mut self, title: &str, seconds: f64) -> Self {
        self.suite = title.to_owned();
        self.suite_seconds = seconds;
        self
    }

    /// The speed as a multiple of the native one: 2 is twice as fast.
    pub fn speed(&self) -> Option<f64> {
        let ratio = self.ratio.filter(|ratio| *ratio > 0.0)?;
        Some(if self.unit == "GB/s" {
            ratio
        } else {
            1.0 / ratio
        })
    }
}

/// The cost of a part of the machine without CUDA.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Floor {
    /// The part.
    pub name: String,
    /// The cost, in `unit`.
    pub value: f64,
    /// The unit.
    pub unit: String,
}

/// The source of the figures.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Machine {
    /// The GPU's name.
    pub gpu: String,
    /// Whether that is NVIDIA's.
    pub real: bool,
    /// The version of its driver.
    pub driver: String,
    /// The version of CUDA that the driver offers.
    pub cuda: String,
    /// The processor.
    pub cpu: String,
    /// The number of its cores.
    pub cores: usize,
    /// The host's kernel.
    pub kernel: String,
    /// The VMM; `None` if no VM was run.
    pub qemu: Option<String>,
    /// The accelerator of the guest: kvm or tcg.
    pub accel: Option<String>,
    /// The guest's kernel.
    pub guest_kernel: Option<String>,
    /// The day, in UTC.
    pub date: String,
    /// The measured version, from `git describe`.
    pub version: String,
}

impl Machine {
    /// This machine, with the driver's names.
    pub fn this(kit: &Kit, facts: &BTreeMap<String, String>, real: bool) -> Self {
        let read = |path: &str| {
            fs::read_to_string(path)
                .unwrap_or_default()
                .trim()
                .to_owned()
        };
        let cpu = read("/proc/cpuinfo")
            .lines()
            .find_map(|line| line.strip_prefix("model name"))
            .unwrap_or("")
            .trim_start_matches(['\t', ':', ' '])
            .to_owned();
        let fact = |name: &str| facts.get(name).cloned().unwrap_or_default();
        let driver = if real {
            read("/sys/module/nvidia/version")
        } else {
            "none".to_owned()
        };
        Self {
            gpu: fact("device"),
            real,
            driver: if driver.is_empty() {
                "unknown".to_owned()
            } else {
                driver
            },
            cuda: fact("cuda"),
            cpu,
            cores: std::thread::available_parallelism().map_or(1, |cores| cores.get()),
            kernel: read("/proc/sys/kernel/osrelease"),
            qemu: kit.vm.as_ref().map(|(qemu, ..)| qemu.version.clone()),
            accel: kit.vm.as_ref().map(|(_, accel, _)| accel.name().to_owned()),
            guest_kernel: kit.vm.as_ref().map(|(.., guest)| guest.release.clone()),
            date: capture(Command::new("date").args(["-u", "+%Y-%m-%d"]))
                .unwrap_or_default()
                .trim()
                .to_owned(),
            version: fs::read_to_string(kit.stage.dir.join(VERSION_FILE))
                .map(|text| text.trim().to_owned())
                .unwrap_or_else(|_| version()),
        }
    }

    /// A name for the machine's files.
    pub fn slug(&self) -> String {
        let words: Vec<String> = self
            .gpu
            .to_lowercase()
            .split(|c: char| !c.is_ascii_alphanumeric())
            .filter(|word| !word.is_empty())
            .map(str::to_owned)
            .collect();
        if words.is_empty() {
            "unknown".to_owned()
        } else {
            words.join("-")
        }
    }

    /// One sentence about the machine.
    pub fn text(&self) -> String {
        let mut text = format!(
            "{} (driver {}, CUDA {}), {} cores of {}, Linux {}",
            self.gpu, self.driver, self.cuda, self.cores, self.cpu, self.kernel
        );
        if let (Some(qemu), Some(accel), Some(guest)) =
            (&self.qemu, &self.accel, &self.guest_kernel)
        {
            let _ = write!(text, "; {qemu} ({accel}), guest kernel {guest}");
        }
        let _ = write!(text, "; {}, {}", self.date, self.version);
        text
    }
}

/// This repository's version, from `git describe`.
pub fn version() -> String {
    let root = Paths::find().map(|paths| paths.root).unwrap_or_default();
    capture(
        Command::new("git")
            .args(["describe", "--always", "--dirty", "--tags"])
            .current_dir(root),
    )
    .map_or_else(|_| "unknown".to_owned(), |text| text.trim().to_owned())
}

/// All results of one run of the benchmarks.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Results {
    /// The machine.
    pub machine: Machine,
    /// Whether there were few repetitions.
    pub quick: bool,
    /// The rows.
    pub rows: Vec<Figure>,
    /// The cost of the machine's parts without CUDA.
    pub floors: Vec<Floor>,
    /// Failed or wrong measurements.
    pub errors: Vec<String>,
    /// The time that all of it took, in seconds.
    pub seconds: f64,
}

impl Results {
    /// The number of goals that are met, and of all goals.
    pub fn score(&self) -> (usize, usize) {
        let judged = self.rows.iter().filter_map(|row| row.met);
        let met = judged.clone().filter(|met| *met).count();
        (met, judged.count())
    }
}

/// A figure with a sensible number of digits.
pub fn number(value: f64) -> String {
    match value.abs() {
        size if size >= 1000.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        size if size >= 0.1 || size == 0.0 => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}

fn cells(row: &Figure) -> [String; 7] {
    [
        row.name.clone(),
        row.unit.clone(),
        number(row.native),
        number(row.ours),
        row.ratio.map_or_else(String::new, number),
        row.goal.clone().unwrap_or_default(),
        match row.met {
            Some(true) => "yes".to_owned(),
            Some(false) => "no".to_owned(),
            None => String::new(),
        },
    ]
}

const HEADS: [&str; 7] = [
    "row",
    "unit",
    "native",
    "ours",
    "ours / native",
    "goal",
    "met",
];

/// The table for a terminal.
pub fn table(rows: &[Figure]) -> Table {
    let mut table = Table::new();
    table.load_preset(presets::UTF8_FULL_CONDENSED);
    table.set_header(HEADS);
    for row in rows {
        table.add_row(cells(row));
    }
    for index in 2..5 {
        if let Some(column) = table.column_mut(index) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table
}

/// The page with all results except those of many VMs.
pub const PAGE: Page = Page {
    file: "docs/performance.md",
    shows: |path| {
        path.extension()
            .is_some_and(|extension| extension == "json")
            && !is_many(path)
            && !is_frameworks(path)
    },
    text: tables,
};

fn read(path: &Path) -> Result<Results> {
    serde_json::from_str(&fs::read_to_string(path)?)
        .with_context(|| format!("{} is malformed", path.display()))
}

/// Draws the charts that the page shows, from its results.
pub fn draw_charts(paths: &Paths) -> Result<()> {
    for path in PAGE.results(paths) {
        let chart = path.with_extension("svg");
        fs::write(&chart, chart::draw(&read(&path)?))
            .with_context(|| format!("cannot write {}", chart.display()))?;
        println!("{}", chart.display());
    }
    Ok(())
}

fn tables(files: &[PathBuf]) -> Result<String> {
    let mut all = Vec::new();
    for path in files {
        all.push((path, read(path)?));
    }
    // Results of GPUs come first.
    all.sort_by_key(|(_, results)| !results.machine.real);
    let mut text = String::new();
    if !all.iter().any(|(_, results)| results.machine.real) {
        text.push_str("\nThere are no results of an NVIDIA GPU yet.\n");
    }
    for (path, results) in all {
        let svg = path.with_extension("svg");
        let name = svg.file_name().unwrap_or_default().to_string_lossy();
        let _ = writeln!(
            text,
            "\n### {}\n\n{}.",
            results.machine.gpu,
            results.machine.text()
        );
        let (met, goals) = results.score();
        let _ = writeln!(
            text,
            "{met} of {goals} goals are met. The whole run took {:.0} s.",
            results.seconds
        );
        let _ = writeln!(
            text,
            "\n![Speed against native](../benches/results/{name})\n"
        );
        let _ = writeln!(
            text,
            "| {} |\n|---|---|--:|--:|--:|---|---|",
            HEADS.join(" | ")
        );
        for row in &results.rows {
            let _ = writeln!(text, "| {} |", cells(row).join(" | "));
        }
        if !results.floors.is_empty() {
            text.push_str("\nThe machine's own floors, without CUDA:\n\n| part | figure | unit |\n|---|--:|---|\n");
            for floor in &results.floors {
                let name = floor.name.trim_start_matches("floor-").replace('-', " ");
                let _ = writeln!(
                    text,
                    "| {name} | {} | {} |",
                    number(floor.value),
                    floor.unit
                );
            }
        }
        for error in &results.errors {
            let _ = writeln!(
                text,
                "\nNot measured: {}",
                error.lines().next().unwrap_or_default()
            );
        }
    }
    text.push('\n');
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_is_judged_by_its_medians() {
        let row = Row {
            name: "launch".into(),
            measure: "launch".into(),
            argument: String::new(),
            unit: "us",
            goal: Some(Goal::RatioAtMost(0.1)),
        };
        let figure = Figure::new(&row, vec![4.0, 4.0, 9.0], vec![0.1, 0.3, 8.0]);
        assert_eq!(
            (figure.native, figure.ours, figure.met),
            (4.0, 0.3, Some(true))
        );
        assert!(figure.speed().unwrap() > 13.0);
    }

    #[test]
    fn the_page_and_its_charts_show_what_was_measured() {
        PAGE.assert_current();
        for path in PAGE.results(&Paths::find().unwrap()) {
            let chart = fs::read_to_string(path.with_extension("svg")).unwrap_or_default();
            let is_current = chart == chart::draw(&read(&path).unwrap());
            assert!(is_current, "{}: cargo xtask bench --render", path.display());
        }
    }
}
