// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! PyTorch's own database of operators, natively and through us.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;
use std::thread;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};

use super::{Bench, Way};

/// The most processes among which the database's operators are divided, each way.
const MOST_PARTS: usize = 6;

/// The comparison of the database of operators.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Operators {
    #[serde(rename = "passed natively")]
    passed: usize,
    same: usize,
    #[serde(rename = "left out")]
    left: usize,
    others: BTreeMap<String, String>,
}

/// Runs the database both ways, each in several processes at once, until the time has expired.
///
/// # Errors
///
/// There is nothing to compare.
pub fn compare(bench: &Bench<'_>) -> Result<Operators> {
    let left = bench.end.saturating_duration_since(Instant::now());
    // A minute is reserved for the processes' start, and for the comparison.
    let seconds = left.as_secs().saturating_sub(60);
    let processors = thread::available_parallelism().map_or(1, |count| count.get());
    let parts = (processors / 2).clamp(1, MOST_PARTS);
    let directory = tempfile::tempdir()?;
    let [native, ours] = ["native", "ours"].map(|name| directory.path().join(name));
    let outcomes: Vec<Result<()>> = thread::scope(|scope| {
        let each = [(Way::Native, &native), (Way::Ours, &ours)]
            .into_iter()
            .flat_map(|(way, path)| (0..parts).map(move |part| (way, path, part)));
        let threads: Vec<_> = each
            .map(|(way, path, part)| {
                scope.spawn(move || run(bench, way, path, seconds, [part, parts]))
            })
            .collect();
        let joined = threads.into_iter().map(|thread| thread.join());
        joined
            .map(|outcome| outcome.unwrap_or_else(|_| bail!("a thread panicked")))
            .collect()
    });
    outcomes.into_iter().collect::<Result<()>>()?;
    let [native, ours] = [native, ours].map(|path| path.to_string_lossy().into_owned());
    let parts = parts.to_string();
    let said = bench.run(
        Way::Native,
        "operators.py",
        &["compare", &native, &ours, &parts],
    )?;
    let line = said.lines().rev().find(|line| line.starts_with('{'));
    serde_json::from_str(line.unwrap_or_default()).context("operators.py compared nothing")
}

fn run(
    bench: &Bench<'_>,
    way: Way,
    path: &Path,
    seconds: u64,
    [part, parts]: [usize; 2],
) -> Result<()> {
    let path = format!("{}-{part}", path.display());
    let words = [seconds.to_string(), part.to_string(), parts.to_string()];
    let [seconds, part, parts] = words.each_ref().map(String::as_str);
    bench
        .run_part(way, part, "operators.py", &[&path, seconds, part, parts])
        .map(drop)
}

impl Operators {
    /// A text with the number of combinations that give the same result.
    pub fn text(&self) -> String {
        let left = match self.left {
            0 => String::new(),
            left => format!("; {left} left out: time limit reached"),
        };
        format!(
            "{} of {} combinations that pass natively give the same{left}",
            self.same, self.passed
        )
    }

    /// The other combinations, with the reasons.
    pub fn others(&self) -> &BTreeMap<String, String> {
        &self.others
    }

    /// The same as a section of a page.
    pub fn page(&self) -> String {
        let mut text = format!("\nPyTorch's database of operators: {}.\n", self.text());
        if !self.others.is_empty() {
            text.push_str("\n| combination | why not |\n|---|---|\n");
        }
        for (name, why) in &self.others {
            let _ = writeln!(text, "| {name} | {} |", why.replace('|', "\\|"));
        }
        text
    }
}
