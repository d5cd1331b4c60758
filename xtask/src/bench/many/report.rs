// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The results of many VMs: on the terminal, as JSON, and as the tables of `docs/sharing.md`.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use comfy_table::{Table, presets};
use serde::{Deserialize, Serialize};

use super::service::Role;
use super::{Side, Vm};
use crate::bench::page::Page;
use crate::bench::report::{Machine, number};

/// The suffix of these results' file names, next to those of single programs.
pub const SUFFIX: &str = "-many.json";

/// Whether a file of results is one of these.
pub fn is_many(path: &Path) -> bool {
    path.to_string_lossy().ends_with(SUFFIX)
}

/// A row's goal, on the side that a VM gets by default.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Judge {
    /// At least this.
    AtLeast(f64),
    /// At most this.
    AtMost(f64),
}

/// One figure, for each side on which it was measured.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Row {
    /// The name.
    pub name: String,
    /// Its unit; empty for ratios.
    pub unit: String,
    /// The values, by the side's name.
    pub values: BTreeMap<String, f64>,
    /// The goal of the scheduled side.
    pub goal: Option<String>,
    /// Whether the goal is met.
    pub met: Option<bool>,
}

impl Row {
    /// A row of these figures.
    pub fn new(name: &str, unit: &str, values: &[(Side, f64)], goal: Option<Judge>) -> Self {
        let own = values.iter().find(|(side, _)| *side == Side::Scheduled);
        let met = own.zip(goal).map(|((_, value), goal)| match goal {
            Judge::AtLeast(least) => *value >= least,
            Judge::AtMost(most) => *value <= most,
        });
        Self {
            name: name.to_owned(),
            unit: unit.to_owned(),
            values: values
                .iter()
                .map(|(side, value)| (side.name().to_owned(), *value))
                .collect(),
            goal: goal.map(|goal| match goal {
                Judge::AtLeast(least) => format!(">= {least}"),
                Judge::AtMost(most) => format!("<= {most}"),
            }),
            met,
        }
    }

    fn cells(&self) -> Vec<String> {
        let mut cells = vec![self.name.clone(), self.unit.clone()];
        cells.extend(Side::ALL.map(|side| fine(self.values.get(side.name()))));
        cells.push(self.goal.clone().unwrap_or_default());
        cells.push(match self.met {
            Some(true) => "yes".to_owned(),
            Some(false) => "no".to_owned(),
            None => String::new(),
        });
        cells
    }
}

/// One of the VMs with different loads.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct VmRow {
    /// The work.
    pub name: String,
    /// The number of processes that do this work.
    pub processes: usize,
    /// The command line of each of them.
    pub arguments: Vec<String>,
    /// Units of work per second, alone on the machine without us.
    pub alone_native: f64,
    /// Units of work per second, alone through us.
    pub alone_ours: f64,
    /// Its work in parallel with the others, relative to its work alone, by the side's name.
    pub parts: BTreeMap<String, f64>,
    /// The share of the time in which the GPU worked for it, as measured by the service; by the side's name.
    pub accounted: BTreeMap<String, f64>,
}

impl VmRow {
    /// A VM that was not measured yet.
    pub fn new(vm: &Vm) -> Self {
        Self {
            name: vm.name.to_owned(),
            processes: vm.processes,
            arguments: vm.load.arguments.clone(),
            alone_native: 0.0,
            alone_ours: 0.0,
            parts: BTreeMap::new(),
            accounted: BTreeMap::new(),
        }
    }

    fn cells(&self) -> Vec<String> {
        // A run may leave the native side out.
        let alone = |rate| {
            if rate > 0.0 {
                number(rate)
            } else {
                String::new()
            }
        };
        let mut cells = vec![
            self.name.clone(),
            alone(self.alone_native),
            alone(self.alone_ours),
        ];
        cells.extend(Side::ALL.map(|side| fine(self.parts.get(side.name()))));
        cells.push(fine(self.accounted.get(Side::Scheduled.name())));
        cells
    }
}

/// All results of one run.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Results {
    /// The machine.
    pub machine: Machine,
    /// Whether the runs were short.
    pub quick: bool,
    /// The figures.
    pub rows: Vec<Row>,
    /// The VMs with different loads.
    pub vms: Vec<VmRow>,
    /// The use of the service's processes with many VMs, by role.
    pub roles: Vec<Role>,
    /// Failed measurements.
    pub errors: Vec<String>,
    /// The time that all of it took, in seconds.
    pub seconds: f64,
}

/// A table before it is formatted: a caption, column titles, and rows.
type Plain = (&'static str, Vec<&'static str>, Vec<Vec<String>>);

impl Results {
    /// The number of goals that are met, and of all goals.
    pub fn score(&self) -> (usize, usize) {
        let judged = self.rows.iter().filter_map(|row| row.met);
        let met = judged.clone().filter(|met| *met).count();
        (met, judged.count())
    }

    fn plain(&self) -> Vec<Plain> {
        let role = |role: &Role| {
            let each = |sum: f64| number(sum / role.processes.max(1) as f64);
            vec![
                role.role.clone(),
                role.processes.to_string(),
                each(role.rss_mib),
                each(role.pss_mib),
                number(role.pss_mib),
                number(role.cpu_percent),
            ]
        };
        let all: [Plain; 3] = [
            (
                "Measurements",
                vec![
                    "row",
                    "unit",
                    "native",
                    "driver",
                    "scheduled",
                    "goal",
                    "met",
                ],
                self.rows.iter().map(Row::cells).collect(),
            ),
            (
                "The eight VMs: units of work a second alone, then parts of that side by side",
                vec![
                    "VM",
                    "alone, native",
                    "alone, ours",
                    "native",
                    "driver",
                    "scheduled",
                    "GPU time, scheduled",
                ],
                self.vms.iter().map(VmRow::cells).collect(),
            ),
            (
                "The service's processes with 64 VMs connected and 16 active",
                vec![
                    "role",
                    "processes",
                    "RSS each, MiB",
                    "PSS each, MiB",
                    "PSS of all, MiB",
                    "CPU of all, %",
                ],
                self.roles.iter().map(role).collect(),
            ),
        ];
        all.into_iter()
            .filter(|(_, _, rows)| !rows.is_empty())
            .collect()
    }

    /// The tables for a terminal.
    pub fn tables(&self) -> Vec<Table> {
        let draw = |(_, heads, rows): Plain| {
            let mut table = Table::new();
            table.load_preset(presets::UTF8_FULL_CONDENSED);
            table.set_header(heads);
            table.add_rows(rows);
            table
        };
        // The most important part comes last, because a terminal shows the end.
        self.plain().into_iter().map(draw).rev().collect()
    }
}

/// Formats a share, with the digits that matter close to 1.
fn fine(value: Option<&f64>) -> String {
    value.map_or_else(String::new, |value| {
        if (0.01..1.5).contains(value) {
            format!("{value:.3}")
        } else {
            number(*value)
        }
    })
}

/// The page with the results of many VMs.
pub const PAGE: Page = Page {
    file: "docs/sharing.md",
    shows: is_many,
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
        let (met, goals) = results.score();
        let _ = writeln!(
            text,
            "\n### {}\n\n{}.\n{met} of {goals} goals are met. The whole run took {:.0} s.",
            results.machine.gpu,
            results.machine.text(),
            results.seconds
        );
        for (caption, heads, rows) in results.plain() {
            let _ = writeln!(text, "\n{caption}:\n\n| {} |", heads.join(" | "));
            let _ = writeln!(text, "|---|{}", "--:|".repeat(heads.len() - 1));
            for row in rows {
                let _ = writeln!(text, "| {} |", row.join(" | "));
            }
        }
        for error in &results.errors {
            let line = error.lines().next().unwrap_or_default();
            let _ = writeln!(text, "\nNot measured: {line}");
        }
    }
    text.push('\n');
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_is_judged_by_the_scheduled_side() {
        let values = [(Side::Native, 0.4), (Side::Scheduled, 0.995)];
        let row = Row::new("x", "Jain", &values, Some(Judge::AtLeast(0.99)));
        assert_eq!(
            (row.met, row.goal.as_deref()),
            (Some(true), Some(">= 0.99"))
        );
        let row = Row::new("x", "%", &values, Some(Judge::AtMost(0.5)));
        assert_eq!(row.met, Some(false));
        let row = Row::new("x", "Jain", &values[..1], Some(Judge::AtLeast(0.99)));
        assert_eq!(row.met, None);
    }

    #[test]
    fn the_page_shows_what_was_measured() {
        PAGE.assert_current();
    }
}
