// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The output for the user: a spinner on a terminal, plain lines elsewhere.

use std::io::IsTerminal;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use indicatif::{MultiProgress, ProgressBar, ProgressStyle};

fn bars() -> Option<&'static MultiProgress> {
    static BARS: OnceLock<Option<MultiProgress>> = OnceLock::new();
    BARS.get_or_init(|| std::io::stderr().is_terminal().then(MultiProgress::new))
        .as_ref()
}

/// Prints one line to standard error without corrupting a spinner.
pub fn line(text: impl AsRef<str>) {
    let text = text.as_ref();
    match bars() {
        Some(bars) => bars.suspend(|| eprintln!("{text}")),
        None => eprintln!("{text}"),
    }
}

/// Announces a download: its content, size and licence.
pub fn download(what: &str, size: &str, licence: &str) {
    line(format!("download  {what} ({size}; licence: {licence})"));
}

/// A piece of work in progress. Dropping it without [`Step::done`] marks it as failed.
pub struct Step {
    label: String,
    started: Instant,
    bar: Option<ProgressBar>,
    finished: bool,
}

impl Step {
    /// Announces the work named by `label`.
    pub fn new(label: impl Into<String>) -> Self {
        let label = label.into();
        let bar = bars().map(|bars| {
            let bar = bars.add(ProgressBar::new_spinner());
            if let Ok(style) =
                ProgressStyle::with_template("{spinner} {prefix} {elapsed:>4} {wide_msg:.dim}")
            {
                bar.set_style(style);
            }
            bar.set_prefix(label.clone());
            bar.enable_steady_tick(Duration::from_millis(120));
            bar
        });
        if bar.is_none() {
            line(format!("...       {label}"));
        }
        Self {
            label,
            started: Instant::now(),
            bar,
            finished: false,
        }
    }

    /// Shows the newest line of output beside the spinner; shows nothing without a terminal.
    pub fn message(&self, text: &str) {
        if let Some(bar) = &self.bar {
            bar.set_message(text.trim().to_owned());
        }
    }

    /// Marks the work as done, with a note on the result.
    pub fn done(mut self, result: impl AsRef<str>) {
        self.finish("ok", result.as_ref());
    }

    /// Marks the work as failed, with a note on the failure.
    pub fn failed(mut self, result: impl AsRef<str>) {
        self.finish("FAILED", result.as_ref());
    }

    fn finish(&mut self, word: &str, result: &str) {
        self.finished = true;
        if let Some(bar) = self.bar.take() {
            bar.finish_and_clear();
        }
        let seconds = self.started.elapsed().as_secs_f64();
        let sep = if result.is_empty() { "" } else { ": " };
        line(format!(
            "{word:<9} {}{sep}{result} ({seconds:.1} s)",
            self.label
        ));
    }
}

impl Drop for Step {
    fn drop(&mut self) {
        if !self.finished {
            self.finish("FAILED", "");
        }
    }
}
