// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Running many `load` programs at once, and reading their output.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail};
use serde::Deserialize;

use super::figures::Series;
use crate::process::{self, Proc, describe, tail};

/// The time limit for all of them to be ready, because many drivers initialise at once.
const READY: Duration = Duration::from_secs(90);
/// The time from the moment when all are ready to their start.
const LEAD: Duration = Duration::from_millis(100);
/// The additional time in which they may finish their queued work.
const DRAIN: Duration = Duration::from_secs(60);

/// The work of one process of a VM.
#[derive(Clone, Debug)]
pub struct Load {
    /// The arguments for the program `load`, without those for the duration.
    pub arguments: Vec<String>,
}

impl Load {
    /// From the words of a command line.
    pub fn new(words: &str) -> Self {
        Self {
            arguments: words.split_whitespace().map(str::to_owned).collect(),
        }
    }
}

/// The output of one process.
#[derive(Clone, Debug, Default)]
pub struct Said {
    /// The units done, by time.
    pub done: Series,
    /// The microseconds from submitting work to learning that it is complete: the median, the 99th percentile and the
    /// longest.
    pub waits: [f64; 3],
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Line {
    Ready {
        #[allow(dead_code)]
        ready: bool,
    },
    Last {
        #[allow(dead_code)]
        r#final: bool,
        t: f64,
        done: f64,
        wait_p50: f64,
        wait_p99: f64,
        wait_max: f64,
    },
    Sample {
        t: f64,
        done: f64,
    },
}

/// The output of all processes of a run, with the time during which all of them worked.
#[derive(Clone, Debug, Default)]
pub struct Session {
    /// One for each process, in the given order.
    pub said: Vec<Said>,
    /// Start and end, in microseconds of the monotonic clock; without the time for warming up.
    pub span: (f64, f64),
}

enum News {
    Line(usize, String),
    End(usize),
}

/// The processes of a run, in the order of their commands.
struct Processes<'a> {
    /// Their standard inputs, until they get the time of their start.
    inputs: Vec<ChildStdin>,
    all: Vec<Proc>,
    told: Receiver<News>,
    /// The name of the run.
    name: &'a str,
    /// The file of their error output.
    log: PathBuf,
}

/// Runs all commands at once for `seconds`, and calls `meanwhile` half-way.
pub fn run(
    commands: Vec<Command>,
    seconds: f64,
    logs: &Path,
    name: &str,
    meanwhile: impl FnOnce() -> Result<()>,
) -> Result<Session> {
    let mut processes = Processes::spawn(commands, seconds, logs, name)?;
    processes.wait_until_ready()?;
    processes.start()?;
    std::thread::sleep(LEAD + Duration::from_secs_f64(seconds / 2.0));
    meanwhile()?;
    let said = processes.output(seconds)?;
    let begin = |said: &Said| said.done.0.first().map_or(0.0, |(time, _)| *time);
    let begin = said.iter().map(begin).fold(0.0, f64::max);
    let speed_up = (seconds / 4.0).min(0.5) * 1e6;
    Ok(Session {
        said,
        span: (begin + speed_up, begin + seconds * 1e6),
    })
}

impl<'a> Processes<'a> {
    /// Starts the processes. Each one waits for its standard input when it is ready.
    fn spawn(commands: Vec<Command>, seconds: f64, logs: &Path, name: &'a str) -> Result<Self> {
        fs::create_dir_all(logs)?;
        let log = logs.join(format!("many-{name}.log"));
        let errors =
            fs::File::create(&log).with_context(|| format!("cannot write {}", log.display()))?;
        let (tell, told) = channel();
        let mut processes = Self {
            inputs: Vec::new(),
            all: Vec::new(),
            told,
            name,
            log,
        };
        for (index, mut command) in commands.into_iter().enumerate() {
            command.args(["--start-at", "stdin", "--seconds", &seconds.to_string()]);
            command
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .stderr(errors.try_clone()?);
            let mut process = Proc::spawn(&mut command, libc::SIGKILL)?;
            let input = process.stdin().context("no standard input")?;
            processes.inputs.push(input);
            let output = process.stdout().context("no standard output")?;
            let tell: Sender<News> = tell.clone();
            std::thread::spawn(move || {
                for line in BufReader::new(output).lines().map_while(Result::ok) {
                    let _ = tell.send(News::Line(index, line));
                }
                let _ = tell.send(News::End(index));
            });
            processes.all.push(process);
        }
        Ok(processes)
    }

    /// Waits until all have reported that they are ready.
    fn wait_until_ready(&self) -> Result<()> {
        let mut waiting = self.all.len();
        let end = Instant::now() + READY;
        while waiting > 0 {
            process::check_interrupted()?;
            match self.told.recv_timeout(Duration::from_millis(200)) {
                Ok(News::Line(_, line))
                    if matches!(serde_json::from_str(&line), Ok(Line::Ready { .. })) =>
                {
                    waiting -= 1;
                }
                Ok(News::Line(..)) => {}
                Ok(News::End(index)) => {
                    return Err(self.failed(index, "ended before it was ready"));
                }
                Err(RecvTimeoutError::Timeout) if Instant::now() < end => {}
                Err(_) => bail!("{waiting} processes of {} are not ready in time", self.name),
            }
        }
        Ok(())
    }

    /// Sends all the time at which they start: [`LEAD`] from now.
    fn start(&mut self) -> Result<()> {
        let start = SystemTime::now() + LEAD;
        let start = start.duration_since(UNIX_EPOCH)?.as_millis();
        for mut input in self.inputs.drain(..) {
            writeln!(input, "{start}")?;
        }
        Ok(())
    }

    /// The output of each after its start. All must end by themselves, and successfully.
    fn output(&mut self, seconds: f64) -> Result<Vec<Said>> {
        let mut said = vec![Said::default(); self.all.len()];
        let mut running = self.all.len();
        let end = Instant::now() + Duration::from_secs_f64(seconds) + DRAIN;
        while running > 0 {
            process::check_interrupted()?;
            match self.told.recv_timeout(Duration::from_millis(200)) {
                Ok(News::Line(index, line)) => said[index].take(&line),
                Ok(News::End(index)) => {
                    running -= 1;
                    let status = self.all[index].wait()?;
                    if !status.success() {
                        return Err(self.failed(index, &describe(status)));
                    }
                }
                Err(RecvTimeoutError::Timeout) if Instant::now() < end => {}
                Err(_) => bail!("{running} processes of {} do not end in time", self.name),
            }
        }
        Ok(said)
    }

    /// The error for a process that failed, with the end of the log.
    fn failed(&self, index: usize, what: &str) -> anyhow::Error {
        let text = fs::read_to_string(&self.log).unwrap_or_default();
        anyhow::anyhow!(
            "process {index} of {} {what}\n{}",
            self.name,
            tail(&text, 8)
        )
    }
}

impl Said {
    fn take(&mut self, line: &str) {
        match serde_json::from_str(line) {
            Ok(Line::Sample { t, done }) => self.done.0.push((t, done)),
            Ok(Line::Last {
                t,
                done,
                wait_p50,
                wait_p99,
                wait_max,
                ..
            }) => {
                self.done.0.push((t, done));
                self.waits = [wait_p50, wait_p99, wait_max];
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loads_output_is_parsed() {
        let mut said = Said::default();
        for line in [
            "noise",
            r#"{"ready":true,"iterations":50,"blocks":1}"#,
            r#"{"t":100,"done":0}"#,
            r#"{"t":200,"done":7}"#,
            r#"{"final":true,"t":300,"done":9,"seconds":0.2,"wait_p50":1.5,"wait_p99":2,"wait_max":3}"#,
        ] {
            said.take(line);
        }
        assert_eq!(said.done.0, [(100.0, 0.0), (200.0, 7.0), (300.0, 9.0)]);
        assert_eq!(said.waits, [1.5, 2.0, 3.0]);
    }

    #[test]
    fn processes_start_together_and_a_failure_is_seen() {
        let script = |exit: &str| {
            let mut command = Command::new("sh");
            command.arg("-c").arg(format!(
                r#"echo '{{"ready":true}}'; read start; echo '{{"t":5,"done":0}}'; exit {exit}"#
            ));
            command
        };
        let logs = tempfile::tempdir().unwrap();
        let session = run(
            vec![script("0"), script("0")],
            0.01,
            logs.path(),
            "two",
            || Ok(()),
        )
        .unwrap();
        assert_eq!(session.said.len(), 2);
        assert_eq!(session.span.0.floor(), 5.0 + 2500.0);
        let error = run(
            vec![script("0"), script("3")],
            0.01,
            logs.path(),
            "bad",
            || Ok(()),
        );
        assert!(error.unwrap_err().to_string().contains("exit status 3"));
    }
}
