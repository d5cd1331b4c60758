// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! `cargo xtask bench --frameworks`: installed PyTorch and CuPy, natively and through us.
//!
//! There are six parts: rows of calls and steps, measured alternately; programs that must give the native numbers; some
//! of them in a VM; two VMs that train at once; vLLM, which serves a model; and PyTorch's own database of operators, in
//! which each combination that passes natively should give the same result.

mod in_vm;
mod operators;
mod results;
mod serving;
mod shares;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde::Deserialize;

use super::Options;
use super::many::Usage;
use super::programs;
use super::report::{Figure, Machine};
use crate::kit::Kit;
use crate::paths::Paths;
use crate::process::{self, Proc, capture};
use crate::runner::{Backend, Gpu, limited, over_socket};
use crate::ui::Step;
pub use results::{PAGE, is_frameworks};
use results::{Program, Results};
use shares::WEIGHTS;

/// The part that boots a VM. It takes minutes, so it runs only if it is named.
pub const VM: &str = "vm";

/// The part with vLLM. It also takes minutes, and vLLM is rarely installed with the rest.
const SERVING: &str = "serving";

/// The goals of rows, as the ratio of ours to native, by the prefixes of their names.
const GOALS: [(&str, f64); 22] = [
    ("cublasGemmEx, 64", 0.05),
    ("cublasLtMatmul, 64", 0.05),
    ("cufftExecC2C", 0.05),
    ("cublasGemmEx, 8192", 1.01),
    ("GPT-2-124M decode", 0.70),
    ("GPT-2-124M training", 1.00),
    ("ResNet-50", 1.00),
    ("torch.mm, 8192", 1.01),
    ("torch.mm, 64", 0.6),
    ("nn.Linear", 0.6),
    ("nn.Conv2d", 0.6),
    ("24 blocks", 0.75),
    ("AdamW over 200 tensors, loop", 0.70),
    ("AdamW over 200 tensors, foreach", 1.00),
    (".item()", 1.00),
    ("torch.tensor", 1.00),
    ("event record", 1.00),
    ("import torch", 0.5),
    ("and the first convolution", 0.5),
    ("torch.fft.fft", 0.6),
    ("vLLM: a token", 1.00),
    ("vLLM: 32 prompts", 1.01),
];

/// The libraries that workers open before a program needs them.
const AHEAD: &str = "cublas,cublaslt,cudnn,cufft,cusolver,cusparse";

/// The time limit of the calls in C++, in seconds.
const CALLS_LIMIT: u64 = 60;

/// The time that is reserved for the operators.
const OPERATORS: Duration = Duration::from_secs(170);

/// The number of times that the rows are measured each way.
const ROUNDS: usize = 3;

/// A program's numbers count as the native ones if their relative difference is smaller than this: libraries may sum in
/// another order.
const TOLERANCE: f64 = 1e-2;

/// A line of `rows.py` or `models.py`.
#[derive(Deserialize)]
struct Line<T> {
    name: String,
    result: Option<T>,
    error: Option<String>,
}

/// A line of a benchmark program.
#[derive(Deserialize)]
struct Measure {
    measure: String,
    value: f64,
}

/// The figures of several rounds, natively and through us.
type Rounds = [Vec<f64>; 2];

/// The names of rows, with their figures.
type Rows = Vec<(String, Rounds)>;

/// How a program reaches the GPU.
#[derive(Clone, Copy)]
enum Way {
    Native,
    Ours,
}

impl Way {
    fn name(self) -> &'static str {
        match self {
            Self::Native => "native",
            Self::Ours => "ours",
        }
    }
}

struct Bench<'a> {
    kit: &'a Kit,
    backend: Backend,
    python: PathBuf,
    scripts: PathBuf,
    directories: Vec<PathBuf>,
    end: Instant,
}

impl<'a> Bench<'a> {
    /// Starts a back end with a VM for each of [`WEIGHTS`]. No measurement begins after `end`.
    fn start(options: &Options, kit: &'a Kit, paths: Option<&Paths>, end: Instant) -> Result<Self> {
        let python = options.python.clone().context("--python names no Python")?;
        let directories = match options.libraries.is_empty() {
            true => libraries_of(&python).context("this Python has no PyTorch")?,
            false => options.libraries.clone(),
        };
        let log = kit.logs.join("back-end-frameworks.log");
        let backend = Backend::start_with(
            &kit.stage,
            options.gpu,
            WEIGHTS.len(),
            &log,
            |command, dir| {
                let policy = dir.join("policy.toml");
                fs::write(&policy, policy_of(dir, &directories)?)?;
                command.arg("--config").arg(policy);
                Ok(())
            },
        )?;
        let scripts = match paths {
            Some(paths) => paths.root.join("benches/frameworks"),
            None => kit.stage.dir.join("frameworks"),
        };
        Ok(Self {
            kit,
            backend,
            python,
            scripts,
            directories,
            end,
        })
    }

    /// A script's output. A script that exceeds its time or dies may have printed lines before.
    fn run(&self, way: Way, script: &str, arguments: &[&str]) -> Result<String> {
        self.run_part(way, "all", script, arguments)
    }

    /// The same for one of several processes that run the script at once.
    fn run_part(&self, way: Way, part: &str, script: &str, arguments: &[&str]) -> Result<String> {
        let log = format!("{script}-{}-{part}.log", way.name());
        self.run_as(&self.python(way, 0), script, arguments, &log)
    }

    /// The same in a VM of its own.
    fn run_in(&self, vm: usize, script: &str, arguments: &[&str]) -> Result<String> {
        let python = self.python(Way::Ours, vm);
        self.run_as(&python, script, arguments, &format!("{script}-vm{vm}.log"))
    }

    /// The command that runs Python natively, or in a VM.
    fn python(&self, way: Way, vm: usize) -> Command {
        match way {
            Way::Native => Command::new(&self.python),
            Way::Ours => over_socket(&self.kit.stage, &self.backend.sockets[vm], &self.python),
        }
    }

    /// The command that runs a script with a time limit, and writes its errors to a file.
    fn command(
        &self,
        python: &Command,
        script: &str,
        arguments: &[&str],
        log: &str,
    ) -> Result<Command> {
        let left = self.end.saturating_duration_since(Instant::now()).as_secs();
        if left == 0 {
            bail!("left out: time limit reached");
        }
        let mut command = limited(python, left);
        command.arg(self.scripts.join(script)).args(arguments);
        command.stderr(fs::File::create(self.kit.logs.join(log))?);
        Ok(command)
    }

    fn run_as(
        &self,
        python: &Command,
        script: &str,
        arguments: &[&str],
        log: &str,
    ) -> Result<String> {
        let mut command = self.command(python, script, arguments, log)?;
        let mut output = tempfile::tempfile()?;
        command.stdout(output.try_clone()?);
        let mut child = Proc::spawn(&mut command, libc::SIGKILL)?;
        let status = child.wait()?;
        process::check_interrupted()?;
        let mut text = String::new();
        output.seek(SeekFrom::Start(0))?;
        output.read_to_string(&mut text)?;
        if text.is_empty() {
            bail!("{script} printed nothing and ended with {status}");
        }
        Ok(text)
    }

    fn lines<T: for<'de> Deserialize<'de>>(
        &self,
        way: Way,
        script: &str,
        arguments: &[&str],
    ) -> Result<Vec<Line<T>>> {
        let said = self.run(way, script, arguments)?;
        let lines = said.lines().filter(|line| line.starts_with('{'));
        lines
            .map(|line| {
                serde_json::from_str(line).with_context(|| format!("{script} printed {line:?}"))
            })
            .collect()
    }

    /// The installed versions and the GPU.
    fn facts(&self) -> Result<BTreeMap<String, String>> {
        const ASK: &str = "import json, torch, importlib.metadata as m\n\
             def v(n):\n try: return m.version(n)\n except Exception: return ''\n\
             print(json.dumps({'device': torch.cuda.get_device_name(0), 'cuda': torch.version.cuda or '', 'torch': torch.__version__, \
             'triton': v('triton'), 'torchvision': v('torchvision'), 'cupy': v('cupy-cuda13x'), 'vllm': v('vllm')}))";
        let said = capture(Command::new(&self.python).args(["-c", ASK]))?;
        serde_json::from_str(said.trim()).context("PyTorch does not report its version")
    }

    /// The cost of the libraries' small calls for a program in C++.
    fn calls(&self, way: Way, options: &Options) -> Result<Vec<Line<f64>>> {
        let program = programs::dir(&self.kit.stage).join("library-calls");
        let mut command = match way {
            Way::Native => {
                let mut command = Command::new(&program);
                command.env("LD_LIBRARY_PATH", std::env::join_paths(&self.directories)?);
                command
            }
            Way::Ours => over_socket(&self.kit.stage, &self.backend.sockets[0], &program),
        };
        // This waits until the worker for the next client has loaded its libraries.
        command.arg("--settle=5");
        if options.quick {
            command.arg("--quick");
        }
        let text = capture(&mut limited(&command, CALLS_LIMIT))?;
        let measures = text.lines().map(serde_json::from_str::<Measure>);
        let lines = measures.map(|measure| {
            let measure = measure?;
            Ok(Line {
                name: measure.measure,
                result: Some(measure.value),
                error: None,
            })
        });
        lines.collect()
    }

    /// Measures the rows alternately, and repeats that while there is time; some time is reserved for the following
    /// parts.
    fn rows(
        &self,
        options: &Options,
        kept: Duration,
        errors: &mut Vec<String>,
    ) -> Result<Vec<Figure>> {
        let mut arguments: Vec<&str> = options.only.iter().map(String::as_str).collect();
        if options.quick {
            arguments.push("--quick");
        }
        let rounds = if options.quick { 1 } else { ROUNDS };
        let mut figures = Rows::new();
        let began = Instant::now();
        for round in 0..rounds {
            let spent = began.elapsed();
            // Another round must fit into the remaining time.
            let left = self.end.saturating_duration_since(Instant::now());
            if round > 0 && spent / round as u32 + kept > left {
                break;
            }
            for way in [Way::Native, Way::Ours] {
                let mut lines: Vec<Line<f64>> = self.lines(way, "rows.py", &arguments)?;
                if options.only.is_empty() {
                    match self.calls(way, options) {
                        Ok(calls) => lines.extend(calls),
                        Err(error) => lines.push(Line {
                            name: "calls in C++".into(),
                            result: None,
                            error: Some(format!("{error:#}")),
                        }),
                    }
                }
                for line in lines {
                    if let Some(figure) = line.result {
                        let at = figures.iter().position(|(name, _)| *name == line.name);
                        let at = at.unwrap_or_else(|| {
                            figures.push((line.name.clone(), Default::default()));
                            figures.len() - 1
                        });
                        figures[at].1[way as usize].push(figure);
                    }
                    if let Some(error) = line.error {
                        let way = ["natively", "through us"][way as usize];
                        let error = format!("{}, {way}: {error}", line.name);
                        if !errors.contains(&error) {
                            errors.push(error);
                        }
                    }
                }
            }
        }
        Ok(rows_of(figures, began.elapsed()))
    }

    fn programs(&self, options: &Options) -> Result<Vec<Program>> {
        let arguments: Vec<&str> = options.only.iter().map(String::as_str).collect();
        let native: Vec<Line<Vec<f64>>> = self.lines(Way::Native, "models.py", &arguments)?;
        let ours: Vec<Line<Vec<f64>>> = self.lines(Way::Ours, "models.py", &arguments)?;
        Ok(compare(native, &ours))
    }
}

/// The rows that were measured both ways, with their goals. `took` is the time of all of them.
fn rows_of(figures: Rows, took: Duration) -> Vec<Figure> {
    let both = figures
        .into_iter()
        .filter(|(_, [native, ours])| !native.is_empty() && !ours.is_empty());
    both.map(|(name, [native_runs, our_runs])| {
        let (native, ours) = (least(&native_runs), least(&our_runs));
        let goal = GOALS.iter().find(|(start, _)| name.starts_with(start));
        let goal = goal.map(|(_, goal)| *goal);
        Figure {
            unit: "us".into(),
            native,
            ours,
            ratio: Some(ours / native),
            goal: goal.map(|goal| format!("<= {goal:.2}")),
            met: goal.map(|goal| ours / native <= goal),
            native_runs,
            our_runs,
            suite: "frameworks".into(),
            suite_seconds: took.as_secs_f64(),
            name,
        }
    })
    .collect()
}

/// The figure of the least disturbed round: other VMs' load on the machine's processors only adds time, for seconds at
/// a time.
fn least(runs: &[f64]) -> f64 {
    runs.iter().copied().fold(f64::INFINITY, f64::min)
}

/// Compares each program's numbers with the native ones.
fn compare(native: Vec<Line<Vec<f64>>>, ours: &[Line<Vec<f64>>]) -> Vec<Program> {
    let compare = |native: Line<Vec<f64>>| {
        let ours = ours.iter().find(|line| line.name == native.name);
        let found = ours.map(|line| (&line.result, &line.error));
        let verdict = match (&native.result, found) {
            (Some(one), Some((Some(other), _))) => verdict(one, other).to_owned(),
            (None, _) => format!("natively: {}", native.error.unwrap_or_default()),
            (_, Some((_, Some(error)))) => error.clone(),
            _ => "did not run".into(),
        };
        Program {
            name: native.name,
            verdict,
            native: native.result.unwrap_or_default(),
            ours: ours
                .and_then(|line| line.result.clone())
                .unwrap_or_default(),
        }
    };
    native.into_iter().map(compare).collect()
}

fn verdict(native: &[f64], ours: &[f64]) -> &'static str {
    let is_close = |(one, other): (&f64, &f64)| (one - other).abs() <= TOLERANCE * one.abs();
    if native == ours {
        "same"
    } else if native.len() == ours.len() && native.iter().zip(ours).all(is_close) {
        "close"
    } else {
        "differs"
    }
}

/// The directories of NVIDIA's libraries that belong to a Python's PyTorch.
fn libraries_of(python: &Path) -> Result<Vec<PathBuf>> {
    const ASK: &str = "import glob, os, torch\n\
         print('\\n'.join(sorted(glob.glob(os.path.join(os.path.dirname(torch.__file__), '..', 'nvidia', '*', 'lib')) + \
         glob.glob(os.path.join(os.path.dirname(torch.__file__), '..', 'cusparselt', 'lib')))))";
    let said = capture(Command::new(python).args(["-c", ASK]))?;
    let directories = said.lines().filter_map(|line| fs::canonicalize(line).ok());
    Ok(directories.collect())
}

/// A policy with a VM for each of [`WEIGHTS`]; all VMs have the libraries in these directories.
fn policy_of(dir: &Path, directories: &[PathBuf]) -> Result<String> {
    let ahead: Vec<&str> = AHEAD.split(',').collect();
    let mut text = format!(
        "[libraries]\nfolders = {}\nahead = {}\n",
        serde_json::to_string(directories)?,
        serde_json::to_string(&ahead)?
    );
    for (vm, weight) in WEIGHTS.into_iter().enumerate() {
        let socket = serde_json::to_string(&dir.join(format!("vm{vm}")))?;
        let _ = write!(
            text,
            "[[vm]]\nsocket = {socket}\nweight = {}\n",
            100 * weight
        );
    }
    Ok(text)
}

/// Measures everything that `options` select, prints the results and writes them. Returns whether everything was
/// measured and gives the native results.
pub fn run(options: &Options, kit: &Kit, paths: Option<&Paths>) -> Result<bool> {
    let started = Instant::now();
    let end = started + Duration::from_secs(options.limit);
    let bench = Bench::start(options, kit, paths, end)?;
    let before = Usage::now(bench.backend.id());
    let mut versions = bench.facts()?;
    let real = options.gpu.resolve() == Gpu::Cuda;
    let machine = Machine::this(kit, &versions, real);
    versions.remove("device");
    let mut results = Results {
        machine,
        versions,
        rows: Vec::new(),
        programs: Vec::new(),
        in_vm: Vec::new(),
        shares: Vec::new(),
        operators: None,
        roles: Vec::new(),
        errors: Vec::new(),
        seconds: 0.0,
    };
    measure_parts(&bench, options, &mut results)?;
    results.roles = Usage::now(bench.backend.id()).since(&before);
    results.seconds = started.elapsed().as_secs_f64();
    println!("{}", results.table());
    println!("{}", results.machine.text());
    for error in &results.errors {
        println!("error   {error}");
    }
    results.write(options, paths)?;
    let right = |program: &Program| matches!(program.verdict.as_str(), "same" | "close");
    let programs = results.programs.iter().chain(&results.in_vm);
    Ok(results.errors.is_empty() && programs.clone().all(right))
}

/// Measures the parts that `options` select, one after the other. A failing part becomes an error of the results.
fn measure_parts(bench: &Bench, options: &Options, results: &mut Results) -> Result<()> {
    let wants = |part| options.parts.is_empty() || options.parts.iter().any(|of| of == part);
    let mut note = |step: Step, part: &str, outcome: Result<String>| -> Result<()> {
        match outcome {
            Ok(text) => step.done(text),
            Err(error) => {
                process::check_interrupted()?;
                step.failed(format!("{error:#}"));
                results.errors.push(format!("{part}: {error:#}"));
            }
        }
        Ok(())
    };
    // The errors of single rows follow those of parts.
    let mut errors = Vec::new();
    if wants("programs") {
        let step = Step::new("programs");
        let outcome = bench.programs(options).map(|programs| {
            let text = format!("{} programs", programs.len());
            results.programs = programs;
            text
        });
        note(step, "programs", outcome)?;
    }
    if options.parts.iter().any(|part| part == VM) {
        let step = Step::new("programs in a VM");
        let outcome = in_vm::measure(bench).map(|programs| {
            let text = format!("{} programs", programs.len());
            results.in_vm = programs;
            text
        });
        note(step, "vm", outcome)?;
    }
    if options.parts.iter().any(|part| part == SERVING) {
        let step = Step::new("vLLM");
        let began = Instant::now();
        let outcome = serving::measure(bench).map(|(rows, programs)| {
            results.rows.extend(rows_of(rows, began.elapsed()));
            results.programs.extend(programs);
            String::new()
        });
        note(step, SERVING, outcome)?;
    }
    if wants("shares") {
        let step = Step::new("two VMs that train");
        let outcome = shares::measure(bench).map(|shares| {
            results.shares = shares;
            String::new()
        });
        note(step, "shares", outcome)?;
    }
    if wants("rows") {
        let step = Step::new("rows");
        let kept = match wants("operators") {
            true => OPERATORS,
            false => Duration::ZERO,
        };
        let outcome = bench.rows(options, kept, &mut errors).map(|rows| {
            let text = format!("{} rows", rows.len());
            results.rows.extend(rows);
            text
        });
        note(step, "rows", outcome)?;
    }
    if wants("operators") {
        let step = Step::new("operators");
        let outcome = operators::compare(bench).map(|operators| {
            let text = operators.text();
            results.operators = Some(operators);
            text
        });
        note(step, "operators", outcome)?;
    }
    results.errors.extend(errors);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_the_native_ones_or_close_to_them_or_not() {
        assert_eq!(verdict(&[1.0, 2.0], &[1.0, 2.0]), "same");
        assert_eq!(verdict(&[1.0, 2.0], &[1.0, 2.01]), "close");
        assert_eq!(verdict(&[1.0, 2.0], &[1.0, 2.1]), "differs");
        assert_eq!(verdict(&[1.0, 2.0], &[1.0]), "differs");
    }
}
