// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The results of one run, as a file and as tables.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use comfy_table::{Table, presets};
use serde::{Deserialize, Serialize};

use super::AHEAD;
use super::operators::Operators;
use super::shares::{self, Share};
use crate::bench::Options;
use crate::bench::many::Role;
use crate::bench::page::Page;
use crate::bench::report::{Figure, Machine};
use crate::paths::Paths;

/// The suffix of the results' file name.
const SUFFIX: &str = "-frameworks.json";

/// Whether a file of results is one of frameworks.
pub fn is_frameworks(path: &Path) -> bool {
    path.to_string_lossy().ends_with(SUFFIX)
}

/// A program, and whether it gives the native numbers.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Program {
    pub(super) name: String,
    /// `same`, `close` (within 1 %), or the difference.
    pub(super) verdict: String,
    pub(super) native: Vec<f64>,
    pub(super) ours: Vec<f64>,
}

/// All results of one run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Results {
    pub(super) machine: Machine,
    /// Versions of the frameworks.
    pub(super) versions: BTreeMap<String, String>,
    pub(super) rows: Vec<Figure>,
    pub(super) programs: Vec<Program>,
    /// The programs in a VM.
    #[serde(default)]
    pub(super) in_vm: Vec<Program>,
    #[serde(default)]
    pub(super) shares: Vec<Share>,
    pub(super) operators: Option<Operators>,
    /// The service's processes at the end, while a worker with opened libraries is waiting.
    pub(super) roles: Vec<Role>,
    pub(super) errors: Vec<String>,
    pub(super) seconds: f64,
}

impl Results {
    /// The tables for a terminal.
    pub fn table(&self) -> String {
        let mut rows = Table::new();
        rows.load_preset(presets::UTF8_FULL_CONDENSED);
        rows.set_header(["row", "native", "ours", "ours / native", "goal", "met"]);
        for row in &self.rows {
            rows.add_row(cells(row));
        }
        let mut programs = Table::new();
        programs.load_preset(presets::UTF8_FULL_CONDENSED);
        programs.set_header(["program", "numbers"]);
        for program in &self.programs {
            programs.add_row([&program.name, &program.verdict]);
        }
        for program in &self.in_vm {
            programs.add_row([&format!("{}, in a VM", program.name), &program.verdict]);
        }
        let mut text = format!("{rows}\n{programs}");
        if !self.shares.is_empty() {
            let _ = write!(text, "\n{}", shares::table(&self.shares).trim_end());
        }
        if let Some(operators) = &self.operators {
            let _ = write!(text, "\noperators: {}", operators.text());
            for (name, why) in operators.others() {
                let _ = write!(text, "\n  {name}: {why}");
            }
        }
        text
    }

    /// Writes the file, if one is requested, and the page.
    pub fn write(&self, options: &Options, paths: Option<&Paths>) -> Result<()> {
        let whole = options.only.is_empty() && options.parts.is_empty() && !options.quick;
        let directory = match (&options.results, paths) {
            (Some(directory), _) => directory.clone(),
            (None, Some(paths)) if whole => paths.root.join("benches/results"),
            (None, _) => return Ok(()),
        };
        fs::create_dir_all(&directory)?;
        let path = directory.join(format!("{}{SUFFIX}", self.machine.slug()));
        fs::write(&path, format!("{}\n", serde_json::to_string_pretty(self)?))
            .with_context(|| format!("cannot write {}", path.display()))?;
        println!("JSON    {}", path.display());
        if options.results.is_none()
            && let Some(paths) = paths
        {
            PAGE.render(paths)?;
        }
        Ok(())
    }
}

fn time(us: f64) -> String {
    match us {
        us if us >= 1e6 => format!("{:.2} s", us / 1e6),
        us if us >= 1e4 => format!("{:.2} ms", us / 1e3),
        us => format!("{us:.2} us"),
    }
}

fn cells(row: &Figure) -> [String; 6] {
    [
        row.name.clone(),
        time(row.native),
        time(row.ours),
        format!("{:.3}", row.ours / row.native),
        row.goal.clone().unwrap_or_default(),
        match row.met {
            Some(true) => "yes".into(),
            Some(false) => "no".into(),
            None => String::new(),
        },
    ]
}

/// The page with the results of frameworks.
pub const PAGE: Page = Page {
    file: "docs/frameworks.md",
    shows: is_frameworks,
    text: tables,
};

fn tables(files: &[PathBuf]) -> Result<String> {
    let mut text = String::new();
    if files.is_empty() {
        text.push_str("\nThere are no results of an NVIDIA GPU yet.\n");
    }
    for path in files {
        let results: Results = serde_json::from_str(&fs::read_to_string(path)?)
            .with_context(|| format!("{} is malformed", path.display()))?;
        let versions: Vec<String> = results
            .versions
            .iter()
            .filter(|(_, version)| !version.is_empty())
            .map(|(name, version)| format!("{name} {version}"))
            .collect();
        let _ = writeln!(
            text,
            "\n### {}\n\n{}; {}. The whole run took {:.0} s.",
            results.machine.gpu,
            results.machine.text(),
            versions.join(", "),
            results.seconds
        );
        if !results.rows.is_empty() {
            text.push_str(
                "\n| row | native | ours | ours ÷ native | goal | met |\n|---|--:|--:|--:|---|---|\n",
            );
        }
        for row in &results.rows {
            let _ = writeln!(text, "| {} |", cells(row).join(" | "));
        }
        for (place, programs) in [("", &results.programs), (", in a VM", &results.in_vm)] {
            if !programs.is_empty() {
                let _ = write!(text, "\n| program{place} | numbers |\n|---|---|\n");
            }
            for program in programs {
                let verdict = program.verdict.replace('|', "\\|");
                let _ = writeln!(text, "| {} | {verdict} |", program.name);
            }
        }
        let workers = results.roles.iter().find(|role| role.role == "worker");
        if let Some(role) = workers.filter(|role| role.processes > 0) {
            let _ = writeln!(
                text,
                "\nA worker that waits with {AHEAD} open has {:.0} MiB of the host's memory.",
                role.pss_mib / role.processes as f64
            );
        }
        if !results.shares.is_empty() {
            let _ = write!(
                text,
                "\nTwo VMs train at once:\n\n{}",
                shares::table(&results.shares)
            );
        }
        if let Some(operators) = &results.operators {
            text.push_str(&operators.page());
        }
        for error in &results.errors {
            let line = error.lines().next().unwrap_or_default();
            let _ = writeln!(text, "\nNot measured: {line}");
        }
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_shows_the_results() {
        PAGE.assert_current();
    }
}
