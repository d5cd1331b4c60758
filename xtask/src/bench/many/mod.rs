// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! `cargo xtask bench --many`: many VMs on one GPU. The same loads run as processes of this machine ("native"), through
//! the service with the driver's own scheduling ("driver"), and through the service with its default scheduling
//! ("scheduled").

mod figures;
mod load;
mod report;
mod scenarios;
mod service;

use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use super::Options;
use super::measure::Bench;
use super::programs;
use super::report::Machine;
use crate::artifacts::Stage;
use crate::kit::Kit;
use crate::paths::Paths;
use crate::process;
use crate::runner::{self, Backend, Gpu};
use crate::ui::{self, Step};
use figures::Series;
pub use figures::median;
use load::Load;
pub use report::{PAGE, is_many};
use report::{Results, VmRow};
use service::{Features, Service};
pub use service::{Role, Usage};

/// The interval of the queries of the service's page.
const SCRAPE: Duration = Duration::from_millis(100);

/// Who schedules: the driver, or the service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Side {
    /// The driver, among processes of this machine without us.
    Native,
    /// The driver, among our workers.
    Driver,
    /// Our scheduler.
    Scheduled,
}

impl Side {
    /// Every side.
    pub const ALL: [Self; 3] = [Self::Native, Self::Driver, Self::Scheduled];

    /// Its name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Native => "native",
            Self::Driver => "driver",
            Self::Scheduled => "scheduled",
        }
    }
}

/// The work of one VM: a number of processes with the same load.
#[derive(Clone, Debug)]
pub struct Vm {
    /// A name for the tables.
    pub name: &'static str,
    /// The work of each process.
    pub load: Load,
    /// The load that measures the GPU time of a unit, if this load leaves gaps even when it runs alone.
    pub reference: Option<Load>,
    /// The number of processes.
    pub processes: usize,
}

/// The result of a run of several VMs.
#[derive(Clone, Debug, Default)]
pub struct Shown {
    /// For each VM the progress of each of its processes, in units by time.
    pub done: Vec<Vec<Series>>,
    /// For each VM the waits of its first process: median, 99th percentile and longest, in microseconds.
    pub waits: Vec<[f64; 3]>,
    /// The measured time span.
    pub span: (f64, f64),
    /// For each VM the GPU time that the service measured, in microseconds; empty if the service does not report it.
    pub accounts: Vec<Series>,
}

impl Shown {
    /// Units per second of one VM, over the whole time.
    pub fn rate(&self, vm: usize) -> f64 {
        let (from, to) = self.span;
        figures::sum_between(&self.done[vm], from, to) / ((to - from) * 1e-6)
    }

    /// Units per second of one VM, over the last seconds.
    pub fn last_rate(&self, vm: usize, seconds: f64) -> f64 {
        let to = self.span.1;
        figures::sum_between(&self.done[vm], to - seconds * 1e6, to) / seconds
    }
}

/// Everything that runs need.
pub struct Stand<'a> {
    stage: &'a Stage,
    logs: &'a Path,
    gpu: Gpu,
    /// Shorter runs, for trials.
    pub quick: bool,
    /// Whether on an NVIDIA GPU.
    pub real: bool,
    /// The service's features.
    pub features: Features,
    /// Whether the loads run as plain processes too.
    native: bool,
    services: Vec<(Side, Service)>,
}

impl Stand<'_> {
    /// The available sides.
    pub fn sides(&self) -> impl Iterator<Item = Side> {
        let scheduler = self.features.scheduler;
        let native = self.native;
        let there = move |side: &Side| match side {
            Side::Native => native,
            Side::Driver => true,
            Side::Scheduled => scheduler,
        };
        Side::ALL.into_iter().filter(there)
    }

    /// The side that a VM gets by default.
    pub fn ours(&self) -> Side {
        if self.features.scheduler {
            Side::Scheduled
        } else {
            Side::Driver
        }
    }

    /// The service of a side.
    pub fn service(&self, side: Side) -> Option<&Service> {
        let found = self.services.iter().find(|(of, _)| *of == side);
        found.map(|(_, service)| service)
    }

    fn command(&self, side: Side, socket: usize, load: &Load) -> Result<Command> {
        let program = programs::dir(self.stage).join("load");
        let mut command = match side {
            Side::Native => runner::natively(self.stage, self.gpu, &program, "driver"),
            _ => {
                let service = self.service(side).context("this side has no service")?;
                let socket = service.backend.sockets.get(socket).context("no such VM")?;
                runner::over_socket(self.stage, socket, &program)
            }
        };
        command.args(&load.arguments);
        Ok(command)
    }

    /// The kernel's iterations in a millisecond on a fully used GPU without other work.
    fn calibrate(&self) -> Result<f64> {
        let load = Load::new("--calibrate --kernel-us 1000");
        let mut command = self.command(Side::Native, 0, &load)?;
        if !self.real {
            command.args(["--blocks", "1"]);
        }
        let text = process::capture(&mut command)?;
        let said: serde_json::Value = serde_json::from_str(text.trim())?;
        said["iterations"].as_f64().context("no iterations")
    }

    /// Runs VMs together on one side, with the first VM at the socket `first`, and calls `meanwhile` half-way.
    pub fn run(
        &self,
        side: Side,
        (vms, first): (&[Vm], usize),
        seconds: f64,
        name: &str,
        meanwhile: impl FnOnce() -> Result<()>,
    ) -> Result<Shown> {
        let mut commands = Vec::new();
        for (number, vm) in vms.iter().enumerate() {
            for _ in 0..vm.processes {
                commands.push(self.command(side, first + number, &vm.load)?);
            }
        }
        let metrics = self
            .service(side)
            .and_then(|service| service.metrics.as_deref());
        let over = AtomicBool::new(false);
        let name = format!("{name}-{}", side.name());
        let (session, accounts) = std::thread::scope(|scope| {
            let watch = metrics.map(|path| {
                let over = &over;
                scope.spawn(move || accounts(path, first, vms.len(), over))
            });
            let session = load::run(commands, seconds, self.logs, &name, meanwhile);
            over.store(true, Ordering::Relaxed);
            let accounts = watch
                .and_then(|thread| thread.join().ok())
                .unwrap_or_default();
            (session, accounts)
        });
        let session = session.with_context(|| side.name())?;
        let mut said = session.said.into_iter();
        let mut shown = Shown {
            span: session.span,
            accounts,
            ..Shown::default()
        };
        for vm in vms {
            let own: Vec<_> = said.by_ref().take(vm.processes).collect();
            shown
                .waits
                .push(own.first().map_or([0.0; 3], |said| said.waits));
            shown
                .done
                .push(own.into_iter().map(|said| said.done).collect());
        }
        Ok(shown)
    }
}

/// The GPU time that the service measures for `count` VMs from `first` on, until `over` is set; empty if the service
/// does not report it.
fn accounts(socket: &Path, first: usize, count: usize, over: &AtomicBool) -> Vec<Series> {
    let mut all = vec![Series::default(); count];
    while !over.load(Ordering::Relaxed) {
        if let Ok(text) = service::scrape(socket) {
            let time = monotonic();
            let seconds = service::gpu_seconds(&text);
            for (number, series) in all.iter_mut().enumerate() {
                let had = seconds.get(&format!("vm{}", first + number));
                series.0.push((time, had.copied().unwrap_or(0.0) * 1e6));
            }
        }
        std::thread::sleep(SCRAPE);
    }
    let nothing = |series: &Series| series.0.last().is_none_or(|(_, had)| *had == 0.0);
    if all.iter().all(nothing) {
        all.clear();
    }
    all
}

/// Microseconds of the monotonic clock, which the loads use.
fn monotonic() -> f64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the call writes one timespec, which exists.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut time) };
    time.tv_sec as f64 * 1e6 + time.tv_nsec as f64 * 1e-3
}

/// Measures, prints and writes the results. Returns whether everything was measured.
pub fn run(options: &Options, kit: &Kit, paths: Option<&Paths>) -> Result<bool> {
    let started = Instant::now();
    let end = started + Duration::from_secs(options.limit);
    let gpu = options.gpu.resolve();
    let real = gpu == Gpu::Cuda;
    let features = Features::of(&kit.stage)?;
    let facts = {
        let log = kit.logs.join("back-end-many-facts.log");
        let backend = Backend::start(&kit.stage, options.gpu, 1, &log)?;
        let bench = Bench::new(kit, gpu, options.quick, backend);
        bench
            .facts()
            .context("the native library does not work here")?
    };
    let mut stand = Stand {
        stage: &kit.stage,
        logs: &kit.logs,
        gpu: options.gpu,
        quick: options.quick,
        real,
        features,
        native: !options.no_native,
        services: Vec::new(),
    };
    for side in [Side::Driver, Side::Scheduled] {
        if stand.sides().any(|there| there == side) {
            let log = kit.logs.join(format!("back-end-many-{}.log", side.name()));
            let vms = scenarios::terms(real);
            let scheduled = side == Side::Scheduled;
            let service = Service::start(&kit.stage, options.gpu, features, &vms, scheduled, &log)?;
            stand.services.push((side, service));
        }
    }
    let mut results = Results {
        machine: Machine::this(kit, &facts, real),
        quick: options.quick,
        ..Results::default()
    };
    if !features.scheduler {
        results
            .errors
            .push("this service has no scheduler".to_owned());
    }
    let iterations = stand.calibrate().context("calibrating the kernel")?;
    let mut measured = scenarios::Measured::new(&stand, iterations);
    for scenario in scenarios::ALL {
        if !options.wants(scenario.name) {
            continue;
        }
        if Instant::now() >= end {
            let note = format!("{}: left out: time limit reached", scenario.name);
            results.errors.push(note);
            continue;
        }
        let step = Step::new(scenario.title);
        match (scenario.run)(&mut measured) {
            Ok(()) => step.done(""),
            Err(error) => {
                process::check_interrupted()?;
                drop(step);
                results.errors.push(format!("{}: {error:#}", scenario.name));
            }
        }
    }
    results.rows = measured.rows;
    results.vms = measured.vms;
    results.roles = measured.roles;
    for (side, mut service) in stand.services {
        if !service.backend.alive()? {
            let words = service.backend.last_words();
            results
                .errors
                .push(format!("the back end ({}) ended:\n{words}", side.name()));
        }
    }
    results.seconds = started.elapsed().as_secs_f64();
    finish(options, &results, paths)
}

fn finish(options: &Options, results: &Results, paths: Option<&Paths>) -> Result<bool> {
    for table in results.tables() {
        println!("{table}");
    }
    println!("{}", results.machine.text());
    let (met, goals) = results.score();
    println!(
        "result  {met} of {goals} goals met in {:.0} s",
        results.seconds
    );
    for error in &results.errors {
        ui::line(format!("error: {error}"));
    }
    let whole = options.only.is_empty()
        && !options.quick
        && !options.no_native
        && results.errors.is_empty();
    let dir = match (&options.results, paths) {
        (Some(dir), _) => Some(dir.clone()),
        (None, Some(paths)) if whole => Some(paths.root.join("benches/results")),
        (None, _) => None,
    };
    if let Some(dir) = dir {
        fs::create_dir_all(&dir).with_context(|| format!("cannot create {}", dir.display()))?;
        let path = dir.join(format!("{}{}", results.machine.slug(), report::SUFFIX));
        let text = format!("{}\n", serde_json::to_string_pretty(results)?);
        fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
        println!("JSON    {}", path.display());
        if options.results.is_none()
            && let Some(paths) = paths
        {
            PAGE.render(paths)?;
        }
    }
    Ok(results.errors.is_empty())
}
