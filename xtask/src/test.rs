// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! `cargo xtask test`: runs all tests.

use std::process::{Command, ExitCode};
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::demo;
use crate::driver;
use crate::earlier;
use crate::fuzz;
use crate::host_tests;
use crate::kernel;
use crate::kit::Kit;
use crate::monitor;
use crate::paths::Paths;
use crate::pitfalls::{self, Route, Verdict};
use crate::process::{self, run_logged, run_watched, tail};
use crate::programs::{Programs, Run};
use crate::runner::{self, Backend, Gpu, Outcome};
use crate::setup::{self, Environment, Part};
use crate::ui::{self, Step};
use crate::{artifacts, setup::host_tools};

/// The longest time without a line from `cargo test`. The slowest test program takes a few minutes on two cores.
const SILENCE: Duration = Duration::from_secs(20 * 60);

/// Counts passed and failed tests, and records the failed ones.
#[derive(Default)]
struct Tally {
    passed: usize,
    failed: usize,
    skipped: usize,
    failures: Vec<String>,
}

impl Tally {
    fn add(&mut self, name: &str, verdict: Verdict, reason: &str) {
        match verdict {
            Verdict::Passed => self.passed += 1,
            Verdict::Skipped => {
                self.skipped += 1;
                ui::line(format!("skipped   {name}: {reason}"));
            }
            Verdict::Failed => {
                self.failed += 1;
                ui::line(format!("FAILED    {name}: {reason}"));
                self.failures.push(name.to_owned());
            }
        }
    }

    /// Counts one step, and returns its result if it passed. Ctrl-C ends the run.
    fn step<T>(&mut self, name: &str, result: Result<T>) -> Result<Option<T>> {
        process::check_interrupted()?;
        match result {
            Ok(value) => {
                self.add(name, Verdict::Passed, "");
                Ok(Some(value))
            }
            Err(error) => {
                self.add(name, Verdict::Failed, &format!("{error:#}"));
                Ok(None)
            }
        }
    }

    fn programs(&mut self, way: &str, outcomes: &[Outcome]) {
        for outcome in outcomes {
            let verdict = if outcome.ok {
                Verdict::Passed
            } else {
                Verdict::Failed
            };
            let reason = format!("{}\n{}", outcome.problem, tail(&outcome.output, 8));
            self.add(
                &format!("{way}: {} ({})", outcome.program, outcome.linkage),
                verdict,
                &reason,
            );
        }
    }

    fn pitfalls(&mut self, way: &str, outcome: &pitfalls::Outcome) {
        for test in &outcome.tests {
            self.add(&format!("{way}: {}", test.name), test.verdict, &test.reason);
        }
    }
}

fn cargo(paths: &Paths, args: &[&str]) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command
        .args(args)
        .current_dir(&paths.root)
        .env("VIRTIO_GPGPU_STAGE", paths.stage());
    command
}

/// One of the source checks that consist of a single cargo command.
fn check(paths: &Paths, name: &str, args: &[&str]) -> Result<()> {
    let step = Step::new(name);
    let mut command = cargo(paths, args);
    if name == "documentation" {
        command.env("RUSTDOCFLAGS", "-D warnings");
    }
    run_logged(
        &mut command,
        Some(&step),
        &paths.logs().join(format!("{name}.log")),
    )?;
    step.done("");
    Ok(())
}

/// Runs the workspace's own tests, each of which counts.
fn cargo_test(paths: &Paths, tally: &mut Tally) -> Result<()> {
    let step = Step::new("cargo test");
    let mut command = cargo(
        paths,
        &["test", "--workspace", "--release", "--no-fail-fast"],
    );
    let log = paths.logs().join("cargo-test.log");
    let (status, output) = run_watched(&mut command, &log, SILENCE, |line| {
        step.message(line);
        Ok(())
    })?;
    let (passed, failed, ignored) = count(&output);
    tally.passed += passed;
    tally.failed += failed;
    tally.skipped += ignored;
    for line in output
        .lines()
        .filter(|line| line.starts_with("test ") && line.ends_with("... FAILED"))
    {
        tally.failures.push(
            line.trim_start_matches("test ")
                .trim_end_matches(" ... FAILED")
                .to_owned(),
        );
    }
    if failed > 0 || !status.success() {
        ui::line(tail(&output, 60));
    }
    if failed == 0 && !status.success() {
        bail!("cargo test: {}", process::describe(status));
    }
    step.done(format!(
        "{passed} passed, {failed} failed, {ignored} ignored"
    ));
    Ok(())
}

/// Adds up the closing lines of all test programs: the numbers of passed, failed and ignored tests.
pub fn count(output: &str) -> (usize, usize, usize) {
    let mut sums = (0, 0, 0);
    for line in output
        .lines()
        .filter(|line| line.starts_with("test result: "))
    {
        let number = |what: &str| {
            line.split([';', '.'])
                .find_map(|part| part.trim().strip_suffix(what)?.trim().parse().ok())
                .unwrap_or(0)
        };
        sums = (
            sums.0 + number("passed"),
            sums.1 + number("failed"),
            sums.2 + number("ignored"),
        );
    }
    sums
}

/// Runs everything, and prints the number of passed tests in the last line.
pub fn run() -> Result<ExitCode> {
    let mut tally = Tally::default();
    everything(&mut tally)?;
    if !tally.failures.is_empty() {
        println!("failed:");
        for name in &tally.failures {
            println!("    {name}");
        }
    }
    let skipped = if tally.skipped > 0 {
        format!(", {} skipped", tally.skipped)
    } else {
        String::new()
    };
    println!("{} passed, {} failed{skipped}", tally.passed, tally.failed);
    Ok(if tally.failed == 0 && tally.passed > 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

fn everything(tally: &mut Tally) -> Result<()> {
    let paths = Paths::find()?;
    host_tools(&paths)?;
    let result = check(&paths, "format", &["fmt", "--all", "--check"]);
    tally.step("cargo fmt --check", result)?;
    let setup = setup::run(&[Part::Cuda, Part::Guest, Part::Oldest]);
    let Some(environment) = tally.step("setup", setup)? else {
        return Ok(());
    };
    let result = check(
        &paths,
        "clippy",
        &[
            "clippy",
            "--workspace",
            "--all-targets",
            "--release",
            "--",
            "-D",
            "warnings",
        ],
    );
    tally.step("cargo clippy", result)?;

    let built = artifacts::build(&paths, environment.cuda()?);
    let stage = tally.step("build", built)?;
    if let Some(stage) = &stage {
        let result = host_tests::build_guests(&paths, environment.cuda()?, stage);
        tally.step("isolation programs", result)?;
    }
    let result = cargo_test(&paths, tally);
    if let Err(error) = result {
        tally.step::<()>("cargo test", Err(error))?;
    }
    // The committed inputs, and some more: enough to check that the targets work and that no old failure has come back.
    let fuzzed = fuzz::run(&fuzz::Options {
        seconds: 35,
        ..fuzz::Options::default()
    });
    let fuzzed = fuzzed.and_then(|clean| match clean {
        true => Ok(()),
        false => bail!("the inputs are in target/fuzz-corpus/finds"),
    });
    tally.step("fuzz", fuzzed)?;
    let result = check(
        &paths,
        "documentation",
        &[
            "doc",
            "--workspace",
            "--no-deps",
            "--release",
            "--document-private-items",
        ],
    );
    tally.step("cargo doc", result)?;

    let source = paths.root.join("guest-driver/kernel");
    for kernel in environment
        .boot_kernels
        .iter()
        .chain(&environment.oldest_kernel)
    {
        let result = kernel::build_module(&paths, kernel, &source);
        tally.step(&format!("module for {}", kernel.abi), result)?;
    }
    kernel_driver(&environment, tally)?;
    let Some(stage) = stage else { return Ok(()) };
    let mut kit = Kit {
        stage,
        vm: None,
        logs: paths.logs(),
    };
    programs(&environment, &mut kit, tally)?;
    let result = pitfalls::build(&paths, environment.cuda()?, &kit.stage);
    if tally.step("pitfall programs", result)?.is_some() {
        all_pitfalls(&environment, &mut kit, tally)?;
    }
    Ok(())
}

/// Tests the guest's kernel driver with a misbehaving device.
fn kernel_driver(environment: &Environment, tally: &mut Tally) -> Result<()> {
    let built = driver::build(&environment.paths);
    let Some(programs) = tally.step("tests of the kernel driver", built)? else {
        return Ok(());
    };
    for kernel in &driver::kernels(environment) {
        let way = format!("driver on {}", kernel.abi);
        let result = driver::run(environment, kernel, &programs);
        for test in tally.step(&way, result)?.unwrap_or_default() {
            tally.add(&format!("{way}: {}", test.name), test.verdict, &test.reason);
        }
    }
    Ok(())
}

/// Runs the programs natively, over the socket and in VMs: all must give the same bytes.
fn programs(environment: &Environment, kit: &mut Kit, tally: &mut Tally) -> Result<()> {
    let runs = Programs::load(&kit.stage.programs())?.runs(false);
    let result = demo::natively(kit, Gpu::Software, &[], &runs);
    let reference = tally.step("programs natively", result)?.unwrap_or_default();
    tally.programs("native", &reference);

    let log = kit.logs.join("back-end-socket.log");
    let result = Backend::start(&kit.stage, Gpu::Software, 1, &log)
        .and_then(|mut backend| survived(demo::over_socket(kit, &backend, &runs), &mut backend));
    if let Some(mut outcomes) = tally.step("programs over the socket", result)? {
        runner::compare(&mut outcomes, &runs, Some(&reference));
        tally.programs("socket", &outcomes);
    }
    across_ages(kit, &runs, &reference, tally)?;
    // The oldest and the newest guest; the first kernel also with two VMs at once.
    for (index, kernel) in environment.boot_kernels.iter().enumerate() {
        let name = format!("VM on {}", kernel.abi);
        let result = kit.add_vm(environment, kernel);
        if tally.step(&format!("{name}: guest"), result)?.is_none() {
            continue;
        }
        let count = if index == 0 { 2 } else { 1 };
        let log = kit.logs.join(format!("back-end-{}.log", kernel.abi));
        let result = Backend::start(&kit.stage, Gpu::Software, count, &log)
            .and_then(|mut backend| survived(demo::in_vms(kit, &backend, &runs), &mut backend));
        for (number, mut outcomes) in tally
            .step(&name, result)?
            .unwrap_or_default()
            .into_iter()
            .enumerate()
        {
            runner::compare(&mut outcomes, &runs, Some(&reference));
            tally.programs(&format!("{name}, VM {}", number + 1), &outcomes);
        }
        if index == 0 {
            under_a_monitor(kit, tally)?;
        }
    }
    Ok(())
}

/// Runs the programs on an earlier guest library with today's back end, and the reverse.
fn across_ages(kit: &Kit, runs: &[Run], reference: &[Outcome], tally: &mut Tally) -> Result<()> {
    let paths = Paths::find()?;
    let Some(mixed) = tally.step("earlier parts", earlier::build(&paths, &kit.stage))? else {
        return Ok(());
    };
    // The earlier parts support no libraries and no graphs.
    let runs: Vec<_> = runs
        .iter()
        .filter(|run| run.kind != "library" && !run.newer)
        .cloned()
        .collect();
    let runs = &runs[..];
    let Some(mixed) = mixed else {
        tally.add(
            "programs across ages",
            Verdict::Skipped,
            "the repository has no history",
        );
        return Ok(());
    };
    for (way, stage) in [
        ("earlier guest", mixed.old_guest),
        ("earlier host", mixed.old_host),
    ] {
        let kit = Kit {
            stage,
            vm: None,
            logs: kit.logs.clone(),
        };
        let log = kit.logs.join("back-end-earlier.log");
        let result = Backend::start(&kit.stage, Gpu::Software, 1, &log).and_then(|mut backend| {
            survived(demo::over_socket(&kit, &backend, runs), &mut backend)
        });
        if let Some(mut outcomes) = tally.step(&format!("programs on an {way}"), result)? {
            runner::compare(&mut outcomes, runs, Some(reference));
            tally.programs(way, &outcomes);
        }
    }
    Ok(())
}

/// Tests the effect of QEMU's own commands on a VM whose programs work.
fn under_a_monitor(kit: &Kit, tally: &mut Tally) -> Result<()> {
    let log = kit.logs.join("back-end-monitor.log");
    let result = Backend::start(&kit.stage, Gpu::Software, 1, &log)
        .and_then(|mut backend| survived(monitor::run(kit, &backend), &mut backend));
    tally.step("a VM under QEMU's monitor", result).map(drop)
}

/// The result, unless the back end has ended: no client may end it.
fn survived<T>(result: Result<T>, backend: &mut Backend) -> Result<T> {
    let value = result?;
    if !backend.alive()? {
        bail!("the back end ended:\n{}", backend.last_words());
    }
    Ok(value)
}

fn all_pitfalls(environment: &Environment, kit: &mut Kit, tally: &mut Tally) -> Result<()> {
    for devices in [1, 2] {
        let named = |way: &str| match devices {
            1 => way.to_owned(),
            _ => format!("{way}, {devices} devices"),
        };
        let result = pitfalls::on_host(kit, Gpu::Software, None, Some(devices));
        let native = tally
            .step("pitfalls on the software GPU", result)?
            .unwrap_or_default();
        tally.pitfalls(&named("software GPU"), &native);
        same_tables(environment, kit, "software", &native, tally)?;

        for (route, label) in [(Route::Ring, "socket"), (Route::Queue, "socket, no ring")] {
            let log = kit.logs.join("back-end-pitfalls.log");
            let result =
                Backend::start_software(&kit.stage, devices, &log).and_then(|mut backend| {
                    let over = Some((&backend, route));
                    let outcome = pitfalls::on_host(kit, Gpu::Software, over, Some(devices));
                    survived(outcome, &mut backend)
                });
            if let Some(outcome) = tally.step(&format!("pitfalls over the {label}"), result)? {
                tally.pitfalls(&named(label), &outcome);
                same_tables(environment, kit, "socket", &outcome, tally)?;
            }
        }
    }
    let Some(kernel) = environment.boot_kernels.first() else {
        return Ok(());
    };
    if tally
        .step("pitfalls: guest", kit.add_vm(environment, kernel))?
        .is_none()
    {
        return Ok(());
    }
    let log = kit.logs.join("back-end-pitfalls-vm.log");
    let result = Backend::start_software(&kit.stage, 1, &log)
        .and_then(|mut backend| survived(pitfalls::in_vm(kit, &backend), &mut backend));
    if let Some(outcome) = tally.step("pitfalls in a VM", result)? {
        tally.pitfalls("vm", &outcome);
        same_tables(environment, kit, "vm", &outcome, tally)?;
    }
    Ok(())
}

/// The tables of error codes must equal those of NVIDIA's driver, except for the known differences with a reason.
fn same_tables(
    environment: &Environment,
    kit: &Kit,
    way: &str,
    outcome: &pitfalls::Outcome,
    tally: &mut Tally,
) -> Result<()> {
    let directory = kit.logs.join("tables");
    std::fs::create_dir_all(&directory)?;
    for (name, table) in &outcome.tables {
        let file = directory.join(format!("{way}-{name}.txt"));
        std::fs::write(&file, table)?;
        let output = Command::new("python3")
            .arg(environment.paths.root.join("tests/pitfalls/compare.py"))
            .args(["--backend", way])
            .arg(&file)
            .output()
            .context("cannot run python3: install it")?;
        let said = String::from_utf8_lossy(&output.stdout);
        let result = match output.status.success() {
            true => Ok(()),
            false => Err(anyhow::anyhow!("{}", said.trim_end())),
        };
        tally.step(&format!("{way}: {name} as NVIDIA's driver"), result)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn closing_lines_add_up() {
        let output = "test result: ok. 12 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.01s\n\
                      test result: FAILED. 3 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.1s\n";
        assert_eq!(count(output), (15, 2, 1));
    }
}
