// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The tests of the guest's kernel driver (`tests/kernel`): a VM of each kernel, with a device that the tests control.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::initramfs::{self, Job};
use crate::kernel::{self, Kernel};
use crate::kit::{busybox, probe};
use crate::paths::Paths;
use crate::pitfalls::{Judged, Verdict};
use crate::process::{self, Proc, capture, run_logged, tail};
use crate::setup::{self, Environment, Part};
use crate::ui::Step;
use crate::vm::{self, Qemu, Spec};

const SOURCE: &str = "tests/kernel";
const DEVICE: &str = "gpgpu-misbehaving-device";
/// The time limit in seconds of one test, in an emulated guest.
const LIMIT: u64 = 180;
/// RAM of the guest, in MiB, and its processors: some tests have threads that run at the same time.
const MEMORY_MIB: u32 = 1024;
const CPUS: u32 = 2;
/// The time limit for the device to listen.
const DEVICE_START: Duration = Duration::from_secs(30);
/// Drivers that are modules in some kernels, in the order of their dependencies.
const MODULES: [&str; 6] = [
    "virtio/virtio",
    "virtio/virtio_ring",
    "virtio/virtio_pci_legacy_dev",
    "virtio/virtio_pci_modern_dev",
    "virtio/virtio_pci",
    "block/loop",
];
/// The module that injects failures into functions of the kernel, and counts and times calls.
const PROBES: &str = "gpgpu_probes.ko";
/// The client that is still open when the guest powers off.
const LEFT_OPEN: &str = "left_open";

/// The device and the guest's program.
pub struct Programs {
    device: PathBuf,
    tests: PathBuf,
    names: Vec<String>,
}

/// Builds both programs.
pub fn build(paths: &Paths) -> Result<Programs> {
    let step = Step::new("tests of the kernel driver");
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command
        .args(["build", "--release", "--package", DEVICE])
        .current_dir(&paths.root);
    run_logged(
        &mut command,
        Some(&step),
        &paths.logs().join("driver-device.log"),
    )?;
    fs::create_dir_all(paths.guest())
        .with_context(|| format!("cannot create {}", paths.guest().display()))?;
    let tests = paths.guest().join("driver-tests");
    let source = paths.root.join(SOURCE);
    let mut files = Vec::new();
    for entry in fs::read_dir(&source).context("the tests' sources are missing")? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "c") {
            files.push(path);
        }
    }
    let mut command = Command::new("gcc");
    command
        .args([
            "-O2",
            "-std=gnu11",
            "-D_GNU_SOURCE",
            "-Wall",
            "-Wextra",
            "-Werror",
        ])
        .args(["-static", "-pthread", "-I"])
        .arg(paths.root.join("guest-driver/kernel/uapi"))
        .arg("-o")
        .arg(&tests)
        .args(&files);
    run_logged(
        &mut command,
        Some(&step),
        &paths.logs().join("driver-tests.log"),
    )?;
    let names = capture(&mut Command::new(&tests))?;
    step.done("");
    Ok(Programs {
        device: paths.cargo_target().join("release").join(DEVICE),
        tests,
        names: names.lines().map(str::to_owned).collect(),
    })
}

/// The tests of `cargo xtask driver`.
#[derive(clap::Args, Clone, Debug)]
pub struct Options {
    /// The guests' kernel: oldest, 6.12 or newest. [default: all]
    #[arg(long)]
    pub kernel: Option<String>,
    /// Only the tests of these names.
    #[arg(long, value_delimiter = ',')]
    pub only: Vec<String>,
}

/// Builds the parts, runs the tests and prints failures; returns whether all passed.
pub fn run_alone(options: &Options) -> Result<bool> {
    let environment = setup::run(&[Part::Guest, Part::Oldest])?;
    let mut programs = build(&environment.paths)?;
    if let Some(unknown) = options
        .only
        .iter()
        .find(|name| !programs.names.contains(name))
    {
        bail!("unknown test {unknown}");
    }
    if !options.only.is_empty() {
        programs.names.retain(|name| options.only.contains(name));
    }
    let all = kernels(&environment);
    let kernels = match options.kernel.as_deref() {
        Some("oldest") => all[..1].to_vec(),
        Some(name) => vec![environment.kernel(name)?.clone()],
        None => all,
    };
    let mut good = true;
    for kernel in &kernels {
        for test in run(&environment, kernel, &programs)? {
            if test.verdict == Verdict::Failed {
                println!("FAILED  {}: {}: {}", kernel.abi, test.name, test.reason);
                good = false;
            }
        }
    }
    Ok(good)
}

/// The kernels on which they run, oldest first.
pub fn kernels(environment: &Environment) -> Vec<Kernel> {
    let oldest = environment.oldest_kernel.iter();
    oldest.chain(&environment.boot_kernels).cloned().collect()
}

/// Runs them in a VM of `kernel`.
pub fn run(environment: &Environment, kernel: &Kernel, programs: &Programs) -> Result<Vec<Judged>> {
    let paths = &environment.paths;
    let module = kernel::build_module(paths, kernel, &paths.root.join("guest-driver/kernel"))?;
    let probes = paths.root.join(SOURCE).join("module");
    let probes = kernel::build_module_in(paths, kernel, &probes, &paths.modules().join("probes"))?;
    let step = Step::new(format!("kernel driver on {}", kernel.abi));
    // The oldest kernel's root has neither tool.
    let tools = environment.boot_kernels.first();
    let tools = tools.context("no guest was set up")?;
    let qemu = Qemu::find(&tools.root)?;
    let busybox = busybox(tools);
    let image = kernel.image();
    let accel = probe(paths, &qemu, &image, &busybox)?;

    let work = tempfile::tempdir().context("cannot create a temporary directory")?;
    let mut archive = initramfs::base(&busybox);
    archive.file("lib/modules/virtio_gpgpu.ko", &module);
    archive.file(&format!("lib/modules/{PROBES}"), &probes);
    archive.file("bin/driver-tests", &programs.tests);
    add_modules(&mut archive, kernel)?;
    let initramfs = work.path().join("initramfs");
    archive.save(&initramfs)?;
    let socket = work.path().join("vm");
    let log = paths
        .logs()
        .join(format!("driver-device-{}.log", kernel.abi));
    let mut device = start_device(&programs.device, &socket, &log)?;

    let mut jobs: Vec<Job> = programs.names.iter().map(|name| job(name, name)).collect();
    // It is still running while the guest powers off.
    jobs.push(job(
        LEFT_OPEN,
        "driver-tests --open-until-killed >/tmp/open & until grep -q open /tmp/open; do usleep 1000; done",
    ));
    let spec = Spec {
        qemu: &qemu,
        accel,
        kernel: &image,
        initramfs: &initramfs,
        socket: Some(&socket),
        memory_mib: MEMORY_MIB,
        cpus: CPUS,
        suspends: true,
        disk: None,
        share: None,
        monitor: None,
    };
    let console = paths.logs().join(format!("driver-{}.log", kernel.abi));
    let report = vm::boot(&spec, &jobs, Some(&console))?;
    if device.try_wait()?.is_some() {
        bail!("the device ended; its log is {}", log.display());
    }
    if let Some(complaint) = report.kernel_complaints.first() {
        bail!(
            "the guest's kernel reports {complaint}; its console is {}",
            console.display()
        );
    }
    let mut judged: Vec<_> = programs
        .names
        .iter()
        .map(|name| judge(name, &report))
        .collect();
    device.stop();
    judged.push(judge_shutdown(&fs::read_to_string(&log)?, &report));
    let passed = judged.iter().filter(|test| test.verdict == Verdict::Passed);
    step.done(format!("{} of {} passed", passed.count(), judged.len()));
    Ok(judged)
}

fn job(id: &str, command: &str) -> Job {
    let command = match id == command {
        true => format!("driver-tests {id}"),
        false => command.to_owned(),
    };
    Job {
        id: id.to_owned(),
        command,
        limit: LIMIT,
    }
}

/// Adds the kernel's own modules that the tests need and that are not built in, with a list of them for init.
fn add_modules(archive: &mut initramfs::Archive, kernel: &Kernel) -> Result<()> {
    let mut list = initramfs::add_drivers(archive, kernel, &MODULES)?;
    list.push_str(&format!("{PROBES}\n"));
    archive.bytes(initramfs::FIRST, 0o644, list);
    Ok(())
}

fn start_device(program: &Path, socket: &Path, log: &Path) -> Result<Proc> {
    let output =
        fs::File::create(log).with_context(|| format!("cannot write {}", log.display()))?;
    let mut command = Command::new(program);
    command
        .arg(socket)
        .stdin(Stdio::null())
        .stdout(output.try_clone()?)
        .stderr(output);
    let mut device = Proc::spawn(&mut command, libc::SIGKILL)?;
    let end = Instant::now() + DEVICE_START;
    while !socket.exists() {
        process::check_interrupted()?;
        if device.try_wait()?.is_some() || Instant::now() > end {
            bail!("the device does not listen; its log is {}", log.display());
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(device)
}

fn judge(name: &str, report: &vm::Report) -> Judged {
    let job = report.jobs.iter().find(|job| job.id == name);
    let (rc, output) = job.map_or((None, ""), |job| (job.rc, job.output.as_str()));
    let says = |word: &str| rc == Some(0) && output.lines().any(|line| line.starts_with(word));
    let (verdict, reason) = match (says("PASS"), says("SKIP")) {
        (true, _) => (Verdict::Passed, String::new()),
        (false, true) => (Verdict::Skipped, tail(output, 1)),
        (false, false) => (
            Verdict::Failed,
            format!("ended with {rc:?}\n{}", tail(output, 8)),
        ),
    };
    Judged {
        name: name.to_owned(),
        verdict,
        reason,
    }
}

/// Checks that the guest's last client was open when the guest powered off, and was closed before the device was
/// stopped.
fn judge_shutdown(log: &str, report: &vm::Report) -> Judged {
    let opened = report
        .jobs
        .iter()
        .any(|job| job.id == LEFT_OPEN && job.rc == Some(0));
    let last = log.lines().rfind(|line| line.starts_with("stopped, "));
    let passed = opened && last == Some("stopped, 0 clients open");
    Judged {
        name: "closed_at_shutdown".to_owned(),
        verdict: match passed {
            true => Verdict::Passed,
            false => Verdict::Failed,
        },
        reason: format!(
            "opened: {opened}; the device: {}",
            last.unwrap_or("nothing")
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vm::{JobReport, Report};

    fn report(id: &str, rc: i32, output: &str) -> Report {
        Report {
            jobs: vec![JobReport {
                id: id.to_owned(),
                rc: Some(rc),
                output: output.to_owned(),
                ..JobReport::default()
            }],
            ..Report::default()
        }
    }

    #[test]
    fn a_test_passes_that_says_so_and_ends_well() {
        let verdict = |rc, output| judge("a", &report("a", rc, output)).verdict;
        assert_eq!(verdict(0, "2 calls\nPASS\n"), Verdict::Passed);
        assert_eq!(verdict(0, ""), Verdict::Failed);
        assert_eq!(verdict(1, "PASS\n"), Verdict::Failed);
        assert_eq!(verdict(0, "SKIP no disk\n"), Verdict::Skipped);
        assert_eq!(judge("b", &report("a", 0, "PASS")).verdict, Verdict::Failed);
    }

    #[test]
    fn a_client_that_is_open_at_the_end_was_not_closed() {
        let verdict = |rc, log| judge_shutdown(log, &report(LEFT_OPEN, rc, "")).verdict;
        assert_eq!(
            verdict(0, "stopped, 2 clients open\nstopped, 0 clients open\n"),
            Verdict::Passed
        );
        assert_eq!(
            verdict(0, "stopped, 0 clients open\nstopped, 1 clients open\n"),
            Verdict::Failed
        );
        assert_eq!(verdict(1, "stopped, 0 clients open\n"), Verdict::Failed);
        assert_eq!(verdict(0, ""), Verdict::Failed);
    }
}
