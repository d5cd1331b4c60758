// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! vLLM, which serves a language model natively and through us in turn.

use std::io::{BufRead as _, BufReader, Lines, Write as _};
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, ChildStdout, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde::Deserialize;

use super::results::Program;
use super::{Bench, Line, Rounds, Rows, Way, compare};
use crate::process::{self, Proc};

/// The script, which needs vLLM.
const SCRIPT: &str = "serving.py";

/// The number of times that each way is measured.
const ROUNDS: usize = 6;

/// The time for a server to end by itself.
const END: Duration = Duration::from_secs(20);

/// The result of a round.
#[derive(Deserialize)]
struct Round {
    figures: Vec<(String, f64)>,
    tokens: Vec<f64>,
}

/// A process with a model, which works on request.
struct Server {
    way: Way,
    log: PathBuf,
    process: Proc,
    asks: Option<ChildStdin>,
    answers: Lines<BufReader<ChildStdout>>,
}

impl Server {
    fn start(bench: &Bench<'_>, way: Way, directory: &Path) -> Result<Self> {
        let directory = directory.join(way.name());
        std::fs::create_dir(&directory)?;
        let python = bench.python(way, 0);
        let log = format!("{SCRIPT}-{}.log", way.name());
        let mut command = bench.command(&python, SCRIPT, &[&directory.to_string_lossy()], &log)?;
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = Proc::spawn(&mut command, libc::SIGKILL)?;
        let asks = process.stdin();
        let answers = process.stdout().context("its output is not piped")?;
        Ok(Self {
            way,
            log: bench.kit.logs.join(log),
            process,
            asks,
            answers: BufReader::new(answers).lines(),
        })
    }

    /// The next answer; the libraries print other lines in between.
    fn answer(&mut self) -> Result<Round> {
        for line in self.answers.by_ref() {
            if let Ok(round) = serde_json::from_str(&line?) {
                return Ok(round);
            }
        }
        process::check_interrupted()?;
        let status = self.process.wait()?;
        bail!(
            "{SCRIPT}, {}, ended with {status}; its errors are in {}",
            self.way.name(),
            self.log.display()
        )
    }

    fn ask(&mut self) -> Result<Round> {
        let asks = self.asks.as_mut().context("its input is closed")?;
        writeln!(asks)?;
        self.answer()
    }

    fn end(mut self) -> Result<()> {
        self.asks = None;
        self.process.wait_for(END)?;
        Ok(())
    }
}

/// Starts a server each way, and queries them in turn. Returns the figures of all rounds, natively and through us for
/// each row, and the tokens.
///
/// # Errors
///
/// A server does not start, for example because vLLM is not installed, or ends early.
pub fn measure(bench: &Bench<'_>) -> Result<(Rows, Vec<Program>)> {
    let directory = tempfile::tempdir()?;
    let mut servers: Vec<Server> = [Way::Native, Way::Ours]
        .into_iter()
        .map(|way| Server::start(bench, way, directory.path()))
        .collect::<Result<_>>()?;
    for server in &mut servers {
        server.answer()?;
    }
    let mut rows = Rows::new();
    let mut tokens = Rounds::default();
    for round in 0..ROUNDS {
        if round > 0 && Instant::now() >= bench.end {
            break;
        }
        for server in &mut servers {
            let answer = server.ask()?;
            for (at, (name, figure)) in answer.figures.into_iter().enumerate() {
                if rows.len() <= at {
                    rows.push((name, Default::default()));
                }
                rows[at].1[server.way as usize].push(figure);
            }
            tokens[server.way as usize] = answer.tokens;
        }
    }
    servers.into_iter().try_for_each(Server::end)?;
    let line = |tokens| Line {
        name: "tokens of vLLM".into(),
        result: Some(tokens),
        error: None,
    };
    let [native, ours] = tokens.map(line);
    Ok((rows, compare(vec![native], &[ours])))
}
