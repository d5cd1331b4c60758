// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! `cargo xtask demo`: runs the programs with or without a VM, and prints a table of the results.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use comfy_table::{CellAlignment, Table, presets};
use serde::Serialize;

use crate::host_tests;
use crate::kit::Kit;
use crate::monitor;
use crate::pitfalls::{self, Route, Verdict};
use crate::programs::{Programs, Run};
use crate::runner::{self, Backend, Gpu, Outcome};
use crate::ui::{self, Step};

/// The programs and the ways to run them.
#[derive(clap::Args, Clone, Debug)]
pub struct Options {
    /// The GPU of the workers.
    #[arg(long, value_enum, default_value = "auto")]
    pub gpu: Gpu,
    /// The number of VMs that run the programs at once.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=8), conflicts_with_all = ["no_vm", "native"])]
    pub vms: u8,
    /// Run the programs on this machine, over the back end's socket.
    #[arg(long, conflicts_with = "native")]
    pub no_vm: bool,
    /// Run the programs on this machine, directly on the GPU's own library: for comparison.
    #[arg(long)]
    pub native: bool,
    /// The guest's kernel: 6.12 or newest.
    #[arg(long, default_value = "6.12", conflicts_with_all = ["no_vm", "native"])]
    pub kernel: String,
    /// Use the papers' problem sizes instead of small ones.
    #[arg(long)]
    pub paper: bool,
    /// Only programs whose name contains this.
    #[arg(long)]
    pub only: Option<String>,
    /// The directories of NVIDIA's libraries on this machine, for the programs that use them on an NVIDIA GPU.
    #[arg(long, value_name = "DIR", value_delimiter = ':')]
    pub libraries: Vec<PathBuf>,
    /// Also run the tests of tests/pitfalls.
    #[arg(long)]
    pub pitfalls: bool,
    /// Also inflate a balloon, pause and reset a VM by QEMU's monitor, while its programs work.
    #[arg(long, conflicts_with_all = ["no_vm", "native"])]
    pub monitor: bool,
    /// Run the programs of an unpacked bundle in this directory instead of building anything.
    #[arg(long, hide = true)]
    pub prebuilt: Option<PathBuf>,
    /// Write the results as JSON into this directory.
    #[arg(long)]
    pub results: Option<PathBuf>,
}

/// A demo's results as JSON.
#[derive(Serialize)]
struct Results<'a> {
    way: &'a str,
    gpu: &'a str,
    device: Option<String>,
    vmm: Option<String>,
    accel: Option<&'a str>,
    guest_kernel: Option<String>,
    host: String,
    runs: Vec<&'a [Outcome]>,
}

/// Builds or finds everything, runs the programs and prints the table. Returns whether all results were right.
pub fn run(options: &Options) -> Result<bool> {
    let vm = !options.no_vm && !options.native;
    let fallback = tempfile::tempdir()?;
    let (kit, environment) = match &options.prebuilt {
        Some(dir) => {
            let results = options.results.as_deref().unwrap_or(fallback.path());
            (Kit::prebuilt(dir, vm, results)?, None)
        }
        None => {
            let (kit, environment) = Kit::build(vm.then_some(options.kernel.as_str()))?;
            (kit, Some(environment))
        }
    };
    if let Some(environment) = environment.as_ref().filter(|_| options.pitfalls) {
        pitfalls::build(&environment.paths, environment.cuda()?, &kit.stage)?;
    }
    if let Some(environment) = environment.as_ref().filter(|_| options.monitor) {
        host_tests::build_guests(&environment.paths, environment.cuda()?, &kit.stage)?;
    }
    let runs = wanted_runs(options, &kit)?;
    let mut backend = None;
    let (way, tables) = if options.native {
        (
            "native",
            vec![natively(&kit, options.gpu, &options.libraries, &runs)?],
        )
    } else {
        let log = kit.logs.join("back-end.log");
        let started = backend.insert(Backend::start_with_libraries(
            &kit.stage,
            options.gpu,
            usize::from(options.vms),
            &options.libraries,
            &log,
        )?);
        if options.no_vm {
            ("socket", vec![over_socket(&kit, started, &runs)?])
        } else {
            ("vm", in_vms(&kit, started, &runs)?)
        }
    };
    let mut good = finish(options, &kit, way, &tables)?;
    if options.pitfalls {
        let outcome = match &backend {
            Some(backend) if vm => pitfalls::in_vm(&kit, backend)?,
            backend => {
                let by_ring = backend.as_ref().map(|backend| (backend, Route::Ring));
                pitfalls::on_host(&kit, options.gpu, by_ring, None)?
            }
        };
        good &= finish_pitfalls(options, way, &outcome)?;
    }
    if let Some(backend) = backend.as_ref().filter(|_| options.monitor) {
        monitor::run(&kit, backend)?;
    }
    if let Some(backend) = &mut backend
        && !backend.alive()?
    {
        bail!(
            "the back end ended while the programs ran:\n{}",
            backend.last_words()
        );
    }
    Ok(good)
}

/// The runs of the programs that `options` select, except those for which NVIDIA's libraries are missing.
fn wanted_runs(options: &Options, kit: &Kit) -> Result<Vec<Run>> {
    let mut runs = Programs::load(&kit.stage.programs())?.runs(options.paper);
    if let Some(only) = &options.only {
        runs.retain(|run| run.program.contains(only.as_str()));
        if runs.is_empty() {
            bail!("no program's name contains {only}");
        }
    }
    if options.gpu.resolve() == Gpu::Cuda && options.libraries.is_empty() {
        let before = runs.len();
        runs.retain(|run| run.kind != "library");
        if runs.len() < before {
            let count = before - runs.len();
            ui::line(format!(
                "skipped   {count} programs: NVIDIA's libraries are needed, --libraries names their directories"
            ));
        }
    }
    Ok(runs)
}

fn finish_pitfalls(options: &Options, way: &str, outcome: &pitfalls::Outcome) -> Result<bool> {
    for test in outcome
        .tests
        .iter()
        .filter(|test| test.verdict != Verdict::Passed)
    {
        println!(
            "{}  {}: {}",
            if test.verdict == Verdict::Failed {
                "FAIL"
            } else {
                "skip"
            },
            test.name,
            test.reason
        );
    }
    println!(
        "pitfalls  {} passed, {} failed, {} skipped",
        outcome.count(Verdict::Passed),
        outcome.count(Verdict::Failed),
        outcome.count(Verdict::Skipped)
    );
    if let Some(dir) = &options.results {
        let path = dir.join(format!(
            "pitfalls-{way}-{}.json",
            options.gpu.resolve().name()
        ));
        pitfalls::save(outcome, &path)?;
        println!("JSON    {}", path.display());
    }
    Ok(outcome.count(Verdict::Failed) == 0)
}

/// Runs the programs on the GPU's own library.
pub fn natively(kit: &Kit, gpu: Gpu, libraries: &[PathBuf], runs: &[Run]) -> Result<Vec<Outcome>> {
    let path = std::env::join_paths(libraries).context("a directory's name has a colon")?;
    on_host(kit, "natively", runs, |program, run| {
        let mut command = runner::natively(&kit.stage, gpu, program, &run.kind);
        if !path.is_empty() {
            command.env("LD_LIBRARY_PATH", &path);
        }
        command
    })
}

/// Runs the programs over the back end's first socket.
pub fn over_socket(kit: &Kit, backend: &Backend, runs: &[Run]) -> Result<Vec<Outcome>> {
    let socket = backend
        .sockets
        .first()
        .context("the back end has no socket")?;
    on_host(kit, "over the socket", runs, |path, _| {
        runner::over_socket(&kit.stage, socket, path)
    })
}

fn on_host(
    kit: &Kit,
    way: &str,
    runs: &[Run],
    make: impl Fn(&Path, &Run) -> Command,
) -> Result<Vec<Outcome>> {
    let step = Step::new(format!("programs {way}"));
    let logs = kit.logs.join(way.replace(' ', "-"));
    let mut outcomes = Vec::new();
    for run in runs {
        step.message(&format!("{} ({})", run.program, run.kind));
        outcomes.push(runner::on_host(&kit.stage, run, &logs, |path| {
            make(path, run)
        })?);
    }
    runner::compare(&mut outcomes, runs, None);
    step.done(format!(
        "{} of {} right",
        outcomes.iter().filter(|o| o.ok).count(),
        outcomes.len()
    ));
    Ok(outcomes)
}

/// Runs the programs in one VM for each of the back end's sockets, and reports the errors of the guests' kernels.
pub fn in_vms(kit: &Kit, backend: &Backend, runs: &[Run]) -> Result<Vec<Vec<Outcome>>> {
    let specs = backend
        .sockets
        .iter()
        .map(|socket| kit.spec(socket))
        .collect::<Result<Vec<_>>>()?;
    let count = specs.len();
    let what = if count == 1 {
        "a VM boots and runs the programs".to_owned()
    } else {
        format!("{count} VMs boot and run the programs")
    };
    let step = Step::new(what);
    let mut tables = Vec::new();
    for (report, mut outcomes) in runner::in_vms(&specs, runs, &kit.logs)? {
        if report.module_rc != Some(0) {
            bail!(
                "the guest could not load the module:\n{}",
                crate::process::tail(&report.console, 20)
            );
        }
        if let Some(complaint) = report.kernel_complaints.first() {
            bail!(
                "the guest's kernel reports {complaint}; its console is in {}",
                kit.logs.display()
            );
        }
        if !report.finished {
            bail!(
                "the guest ended too early:\n{}",
                crate::process::tail(&report.console, 20)
            );
        }
        runner::compare(&mut outcomes, runs, None);
        tables.push(outcomes);
    }
    step.done("");
    Ok(tables)
}

fn finish(options: &Options, kit: &Kit, way: &str, tables: &[Vec<Outcome>]) -> Result<bool> {
    let device = tables
        .iter()
        .flatten()
        .find_map(|outcome| outcome.device.clone());
    let gpu = options.gpu.resolve();
    for (index, outcomes) in tables.iter().enumerate() {
        if tables.len() > 1 {
            println!("VM {}", index + 1);
        }
        println!("{}", table(outcomes));
    }
    match (way, &kit.vm) {
        ("vm", Some((qemu, accel, guest))) => {
            println!("VMM     {}, unpatched", qemu.version);
            println!("accel   {}", accel.name());
            println!("kernel  {} (guest)", guest.release);
        }
        ("native", _) => println!("way     natively, on the GPU's own libcuda: no VM, no back end"),
        _ => println!("way     over the back end's socket, without a VM"),
    }
    match &device {
        Some(device) => println!("GPU     {device} ({})", gpu.name()),
        None => println!("GPU     {}", gpu.name()),
    }
    for outcome in tables.iter().flatten().filter(|outcome| !outcome.ok) {
        ui::line(format!(
            "\n{} ({}): {}",
            outcome.program, outcome.linkage, outcome.problem
        ));
        ui::line(crate::process::tail(&outcome.output, 12));
    }
    let all = tables.iter().map(Vec::len).sum::<usize>();
    let right = tables.iter().flatten().filter(|outcome| outcome.ok).count();
    println!("result  {right} of {all} right");
    if let Some(dir) = &options.results {
        let results = Results {
            way,
            gpu: gpu.name(),
            device,
            vmm: kit.vm.as_ref().map(|(qemu, ..)| qemu.version.clone()),
            accel: kit.vm.as_ref().map(|(_, accel, _)| accel.name()),
            guest_kernel: kit.vm.as_ref().map(|(.., guest)| guest.release.clone()),
            host: host(),
            runs: tables.iter().map(Vec::as_slice).collect(),
        };
        let path = dir.join(format!("demo-{way}-{}-{}.json", gpu.name(), tables.len()));
        fs::create_dir_all(dir).with_context(|| format!("cannot create {}", dir.display()))?;
        fs::write(&path, serde_json::to_string_pretty(&results)?)
            .with_context(|| format!("cannot write {}", path.display()))?;
        println!("JSON    {}", path.display());
    }
    Ok(right == all)
}

fn host() -> String {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let cpu = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpu
        .lines()
        .find_map(|line| line.strip_prefix("model name"))
        .unwrap_or("")
        .trim_start_matches(['\t', ':', ' ']);
    format!("{model}, Linux {}", release.trim())
}

/// The table of one machine's runs.
fn table(outcomes: &[Outcome]) -> Table {
    let mut table = Table::new();
    table.load_preset(presets::UTF8_FULL_CONDENSED);
    table.set_header([
        "program",
        "linkage",
        "result",
        "seconds",
        "CUDA ms",
        "kernels ms",
        "checksum",
    ]);
    let number = |value: Option<f64>| value.map_or_else(String::new, |value| format!("{value:.1}"));
    for outcome in outcomes {
        table.add_row([
            outcome.program.clone(),
            outcome.linkage.clone(),
            if outcome.ok {
                "right".to_owned()
            } else {
                format!("WRONG: {}", outcome.problem)
            },
            format!("{:.2}", outcome.ms as f64 / 1000.0),
            number(outcome.total_ms),
            number(outcome.kernel_ms),
            outcome.checksum.clone(),
        ]);
    }
    for index in 3..6 {
        if let Some(column) = table.column_mut(index) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table
}
