// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! `cargo xtask bench`: each row natively and through us, alternately in one run, with its goal.

mod chart;
mod frameworks;
mod many;
mod measure;
mod page;
pub mod programs;
mod report;
mod rows;

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::kit::Kit;
use crate::paths::Paths;
use crate::process;
use crate::runner::{Backend, Gpu};
use crate::ui::{self, Step};
use crate::vm::Accel;
use measure::{Bench, Said};
use report::{Figure, Floor, Machine, Results};
pub use report::{VERSION_FILE, version};
use rows::{Scope, Suite};

/// The kernel that the guest boots.
const KERNEL: &str = "6.12";

/// The rows and the ways to measure.
#[derive(clap::Args, Clone, Debug)]
pub struct Options {
    /// The GPU to measure on; on the software GPU, its own libcuda counts as native.
    #[arg(long, value_enum, default_value = "auto")]
    pub gpu: Gpu,
    /// Only rows whose name contains one of these; with --many, only such scenarios: alone, unlike, weights, wait,
    /// overrun, overhead, crowd.
    #[arg(long, value_delimiter = ',')]
    pub only: Vec<String>,
    /// Fewer repetitions and alternations, for a trial.
    #[arg(long)]
    pub quick: bool,
    /// Instead of the rows: many VMs on one GPU, their shares, and the cost of sharing.
    #[arg(long)]
    pub many: bool,
    /// Instead of the rows: the PyTorch, CuPy and cuda-core that a Python has.
    #[arg(long, requires = "python", conflicts_with = "many")]
    pub frameworks: bool,
    /// With --frameworks: that Python.
    #[arg(long, requires = "frameworks", value_name = "FILE")]
    pub python: Option<PathBuf>,
    /// With --frameworks: directories of NVIDIA's libraries, separated by `:`; without it, those beside that Python's
    /// PyTorch.
    #[arg(
        long,
        requires = "frameworks",
        value_name = "DIR",
        value_delimiter = ':'
    )]
    pub libraries: Vec<PathBuf>,
    /// With --frameworks: only these parts: programs, shares, rows, operators; vm (two of the programs in a VM),
    /// serving (vLLM with a model). The last two run only if they are named.
    #[arg(
        long,
        requires = "frameworks",
        value_delimiter = ',',
        value_name = "PART"
    )]
    pub parts: Vec<String>,
    /// With --many: leave out the native runs.
    #[arg(long, requires = "many")]
    pub no_native: bool,
    /// Also rows that take minutes: 100 GB of copies.
    #[arg(long)]
    pub long: bool,
    /// Leave out the rows that need a VM.
    #[arg(long)]
    pub no_vm: bool,
    /// Begin no row after this number of seconds; the output names the rows that are left out.
    #[arg(long, default_value_t = 540, value_name = "SECONDS")]
    pub limit: u64,
    /// Write the results and the chart into this directory. [default: benches/results, for whole runs]
    #[arg(long)]
    pub results: Option<PathBuf>,
    /// Measure nothing: draw the charts of benches/results, and write the results into docs/performance.md,
    /// docs/sharing.md and docs/frameworks.md.
    #[arg(long, conflicts_with_all = ["only", "quick", "many", "long", "no_vm", "results"])]
    pub render: bool,
    /// Run the programs of an unpacked bundle in this directory instead of building anything.
    #[arg(long, hide = true)]
    pub prebuilt: Option<PathBuf>,
}

impl Options {
    /// Whether to measure the row or suite of this name.
    fn wants(&self, name: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|only| name.contains(only.as_str()))
    }
}

/// Measures everything that `options` select, prints the results and writes them. Returns whether every row was
/// measured.
pub fn run(options: &Options) -> Result<bool> {
    if options.render {
        render(&Paths::find()?)?;
        return Ok(true);
    }
    let fallback = tempfile::tempdir()?;
    let vm = match options.frameworks {
        true => options.parts.iter().any(|part| part == frameworks::VM),
        false => !options.no_vm && !options.many,
    };
    let (kit, environment) = match &options.prebuilt {
        Some(dir) => {
            let results = options.results.as_deref().unwrap_or(fallback.path());
            (Kit::prebuilt(dir, vm, results)?, None)
        }
        None => {
            let (kit, environment) = Kit::build(vm.then_some(KERNEL))?;
            programs::build(&environment.paths, environment.cuda()?, &kit.stage)?;
            (kit, Some(environment))
        }
    };
    let paths = environment.as_ref().map(|environment| &environment.paths);
    if options.many {
        return many::run(options, &kit, paths);
    }
    if options.frameworks {
        return frameworks::run(options, &kit, paths);
    }
    let results = measure_rows(options, &kit)?;
    finish(options, &results, paths)
}

/// Draws the charts of `benches/results`, and writes the pages that contain those results.
fn render(paths: &Paths) -> Result<()> {
    report::draw_charts(paths)?;
    report::PAGE.render(paths)?;
    many::PAGE.render(paths)?;
    frameworks::PAGE.render(paths)
}

/// Measures the rows that `options` select, also in a VM if `kit` has one.
fn measure_rows(options: &Options, kit: &Kit) -> Result<Results> {
    // The limit and the time of the run start here, so that building is not counted.
    let started = Instant::now();
    let gpu = options.gpu.resolve();
    let scope = Scope {
        gpu: gpu == Gpu::Cuda,
        quick: options.quick,
        long: options.long,
        vm: kit.vm.is_some(),
        kvm: kit
            .vm
            .as_ref()
            .is_some_and(|(_, accel, _)| *accel == Accel::Kvm),
    };
    let suites = wanted_suites(scope, options)?;
    let log = kit.logs.join("back-end-bench.log");
    let backend = Backend::start(&kit.stage, options.gpu, 2, &log)?;
    let mut bench = Bench::new(kit, gpu, options.quick, backend);
    let facts = bench
        .facts()
        .context("the native library does not work here")?;

    let mut results = Results {
        machine: Machine::this(kit, &facts, scope.gpu),
        quick: options.quick,
        rows: Vec::new(),
        floors: Vec::new(),
        errors: Vec::new(),
        seconds: 0.0,
    };
    let end = started + Duration::from_secs(options.limit);
    measure_suites(&mut bench, &suites, end, &mut results)?;
    if options.only.is_empty() {
        let floors = bench.floors()?;
        results
            .floors
            .extend(
                floors
                    .into_iter()
                    .map(|(name, value, unit)| Floor { name, value, unit }),
            );
    }
    if let Err(error) = bench.end() {
        process::check_interrupted()?;
        results.errors.push(format!("{error:#}"));
    }
    results.seconds = started.elapsed().as_secs_f64();
    Ok(results)
}

/// The suites of a scope with the rows that `options` select; an error if no row is left.
fn wanted_suites(scope: Scope, options: &Options) -> Result<Vec<Suite>> {
    let mut suites = scope.suites();
    for suite in &mut suites {
        suite.rows.retain(|row| options.wants(&row.name));
    }
    suites.retain(|suite| !suite.rows.is_empty());
    if suites.is_empty() {
        bail!("no row's name contains {}", options.only.join(" or "));
    }
    Ok(suites)
}

/// Measures the suites one after the other until `end`, and adds their figures and errors to `results`.
fn measure_suites(
    bench: &mut Bench,
    suites: &[Suite],
    end: Instant,
    results: &mut Results,
) -> Result<()> {
    for suite in suites {
        if Instant::now() >= end {
            results
                .errors
                .push(format!("{}: left out: time limit reached", suite.title));
            continue;
        }
        let step = Step::new(suite.title.clone());
        match measure_suite(bench, suite, end, &step) {
            Ok(figures) => {
                step.done(format!("{} rows", figures.len()));
                results.rows.extend(figures);
            }
            Err(error) => {
                process::check_interrupted()?;
                drop(step);
                results.errors.push(format!("{}: {error:#}", suite.title));
            }
        }
    }
    Ok(())
}

/// Runs the suite's program on both sides in turn, and makes its rows from the medians.
fn measure_suite(
    bench: &mut Bench,
    suite: &Suite,
    end: Instant,
    step: &Step,
) -> Result<Vec<Figure>> {
    let begin = Instant::now();
    let mut sides: [BTreeMap<String, Vec<f64>>; 2] = Default::default();
    let mut checksum: Option<String> = None;
    for round in 0..suite.rounds {
        // One round is enough for figures; more rounds improve them, if there is time.
        if round > 0 && Instant::now() >= end {
            break;
        }
        for (index, side) in sides.iter_mut().enumerate() {
            let way = if index == 0 { "natively" } else { "through us" };
            step.message(&format!("{way}, {} of {}", round + 1, suite.rounds));
            let said: Said = if index == 0 {
                bench.natively(suite).context("natively")?
            } else {
                bench.ours(suite).context("through us")?
            };
            let expected = checksum.get_or_insert_with(|| said.checksum.clone());
            if *expected != said.checksum {
                bail!(
                    "{way}: the checksum is {} in place of {expected}",
                    said.checksum
                );
            }
            for (measure, value) in said.measures {
                side.entry(measure).or_default().push(value);
            }
        }
    }
    let seconds = begin.elapsed().as_secs_f64();
    let [native, ours] = sides;
    suite
        .rows
        .iter()
        .map(|row| {
            let of = |side: &BTreeMap<String, Vec<f64>>, way| {
                side.get(&row.measure)
                    .cloned()
                    .with_context(|| format!("{way}, its program did not report {}", row.measure))
            };
            let figure = Figure::new(row, of(&native, "natively")?, of(&ours, "through us")?);
            Ok(figure.in_suite(&suite.title, seconds))
        })
        .collect()
}

fn finish(options: &Options, results: &Results, paths: Option<&Paths>) -> Result<bool> {
    println!("{}", report::table(&results.rows));
    for floor in &results.floors {
        println!("{:<32} {:>10.4} {}", floor.name, floor.value, floor.unit);
    }
    println!("{}", results.machine.text());
    let (met, goals) = results.score();
    println!(
        "result  {met} of {goals} goals met, {} rows in {:.0} s",
        results.rows.len(),
        results.seconds
    );
    for error in &results.errors {
        ui::line(format!("error: {error}"));
    }
    let whole =
        options.only.is_empty() && !options.quick && !options.no_vm && results.errors.is_empty();
    let dir = match (&options.results, paths) {
        (Some(dir), _) => Some(dir.clone()),
        (None, Some(paths)) if whole => Some(paths.root.join("benches/results")),
        (None, _) => None,
    };
    if let Some(dir) = dir {
        fs::create_dir_all(&dir).with_context(|| format!("cannot create {}", dir.display()))?;
        let base = dir.join(results.machine.slug());
        let write = |extension: &str, text: String| {
            let path = base.with_extension(extension);
            fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
            println!("{:<7} {}", extension.to_uppercase(), path.display());
            anyhow::Ok(())
        };
        write(
            "json",
            format!("{}\n", serde_json::to_string_pretty(results)?),
        )?;
        write("svg", chart::draw(results))?;
        if options.results.is_none()
            && let Some(paths) = paths
        {
            report::PAGE.render(paths)?;
        }
    }
    Ok(results.errors.is_empty())
}
