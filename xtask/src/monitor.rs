// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Commands of QEMU's monitor for a VM whose programs use the GPU: a balloon, a pause, a migration, which QEMU must
//! refuse, and a reset from outside.

use std::fs::{self, File};
use std::hash::{DefaultHasher, Hasher};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};

use crate::initramfs::{Archive, Job, SHIMS};
use crate::kit::Kit;
use crate::process;
use crate::runner::Backend;
use crate::ui::Step;
use crate::vm::Machine;

/// The time limit for QEMU to execute a command: a pause waits for the GPU.
const COMMAND: Duration = Duration::from_secs(60);
/// The interval of the queries of a balloon.
const POLL: Duration = Duration::from_millis(20);
/// The working client, which belongs to the isolation tests.
const GUEST: &str = "usr/bin/gpgpu-guest";
/// Seconds that programs work, and that a job may take, emulated.
const WORK: u64 = 10;
const LIMIT: u64 = 120;
/// How often the balloon grows and shrinks.
const BALLOONS: u32 = 2;
/// The size of the pieces in which the guest's memory is compared.
const PIECE: usize = 1 << 20;

/// Boots a VM and executes the commands.
///
/// # Errors
/// The first thing that is not as it should be.
pub fn run(kit: &Kit, backend: &Backend) -> Result<()> {
    let step = Step::new("a VM under QEMU's monitor");
    let dir = tempfile::tempdir().context("cannot create a temporary directory")?;
    let monitor = dir.path().join("monitor");
    let socket = backend.sockets.first().context("no socket for the VM")?;
    let mut spec = kit.spec(socket)?;
    spec.monitor = Some(&monitor);
    let mut files = Archive::default();
    files.file(GUEST, &kit.stage.dir.join("isolation/guest"));
    let log = kit.logs.join("monitor-guest.log");
    let mut machine = Machine::interactive(&spec, files, &log)?;
    let mut monitor = Monitor::connect(&monitor)?;

    let balloon = has_balloon(&mut machine)?;
    if balloon {
        ballooned(&mut machine, &mut monitor, spec.memory_mib).context("a balloon")?;
    }
    paused(&mut machine, &mut monitor).context("a pause")?;
    reset(&mut machine, &mut monitor).context("a reset")?;
    let report = machine.power_off()?;
    if let Some(complaint) = report.kernel_complaints.first() {
        bail!("the guest's kernel complained: {complaint}");
    }
    step.done(match balloon {
        true => "ballooned, paused, not migrated, and reset",
        false => "paused, not migrated, and reset; its kernel has no driver for a balloon",
    });
    Ok(())
}

/// Whether the guest's kernel supports a balloon: some distributions have its driver in a separate package.
fn has_balloon(machine: &mut Machine) -> Result<bool> {
    let job = Job {
        id: "has-balloon".to_owned(),
        command: "[ -e /sys/bus/virtio/drivers/virtio_balloon ]".to_owned(),
        limit: LIMIT,
    };
    machine.begin(&job)?;
    Ok(machine.finish(&job)?.rc == Some(0))
}

/// The host takes half of the guest's memory and returns it, [`BALLOONS`] times, and takes the pages that the guest
/// frees. A program that copies meanwhile must read its own data.
fn ballooned(machine: &mut Machine, monitor: &mut Monitor, memory_mib: u32) -> Result<()> {
    let job = Job {
        id: "balloon".to_owned(),
        command: format!("sleep {WORK} | {}", client("work copies")),
        limit: LIMIT,
    };
    machine.begin(&job)?;
    let whole = u64::from(memory_mib) << 20;
    for _ in 0..BALLOONS {
        for bytes in [whole / 2, whole] {
            monitor.execute("balloon", json!({ "value": bytes }))?;
            monitor.wait_for_balloon(bytes)?;
        }
    }
    let report = machine.finish(&job)?;
    ensure!(
        report.rc == Some(0) && report.output.contains("done"),
        "the program ended with {:?}:\n{}",
        report.rc,
        process::tail(&report.output, 8)
    );
    Ok(())
}

/// A VM is paused while its programs work: nothing may write to the guest's memory then, and afterwards the programs
/// continue.
fn paused(machine: &mut Machine, monitor: &mut Monitor) -> Result<()> {
    let job = working("paused");
    begin(machine, &job)?;
    monitor.execute("stop", json!({}))?;
    let memory = Memory::of(machine.id())?;
    let before = memory.digest()?;
    let Err(refused) = monitor.execute("migrate", json!({ "uri": "exec:cat >/dev/null" })) else {
        bail!("QEMU takes the device for one that migrates");
    };
    ensure!(
        refused.to_string().contains("migrat"),
        "to migrate: {refused}"
    );
    let after = memory.digest()?;
    let mut pieces = before.iter().zip(&after);
    if let Some(at) = pieces.position(|(before, after)| before != after) {
        bail!("byte {:#x} or one after it changed meanwhile", at * PIECE);
    }
    monitor.execute("cont", json!({}))?;
    let report = machine.finish(&job)?;
    ensure!(
        report.rc == Some(0) && report.output.matches("done").count() == 3,
        "the programs ended with {:?}:\n{}",
        report.rc,
        process::tail(&report.output, 8)
    );
    Ok(())
}

/// A VM is reset while its programs work. After the next boot the programs must have a working device.
fn reset(machine: &mut Machine, monitor: &mut Monitor) -> Result<()> {
    begin(machine, &working("reset"))?;
    monitor.execute("system_reset", json!({}))?;
    machine.boots(2)?;
    let job = Job {
        id: "after".to_owned(),
        command: client("once"),
        limit: LIMIT,
    };
    machine.begin(&job)?;
    let report = machine.finish(&job)?;
    ensure!(
        report.rc == Some(0),
        "the next boot's program ended with {:?}:\n{}",
        report.rc,
        process::tail(&report.output, 8)
    );
    Ok(())
}

fn client(what: &str) -> String {
    format!("gpgpu-run --libdir /{SHIMS} /{GUEST} {what}")
}

/// Three programs that run at the same time: one with kernels, one with long copies, and one with a backlog of kernels
/// that write to pinned memory. Each checks its results.
fn working(id: &str) -> Job {
    let work = |kind: &str| client(&format!("work {kind}"));
    let (kernels, copies, backlog) = (work(""), work("copies"), work("backlog"));
    Job {
        id: id.to_owned(),
        command: format!(
            "sleep {WORK} | {kernels} >/tmp/a & a=$!; sleep {WORK} | {copies} >/tmp/b & b=$!; \
             sleep {WORK} | {backlog}; rc=$?; wait $a || rc=1; wait $b || rc=1; grep -h done /tmp/a /tmp/b; exit $rc"
        ),
        limit: LIMIT,
    }
}

/// Starts the job, and returns once the GPU has a backlog.
fn begin(machine: &mut Machine, job: &Job) -> Result<()> {
    machine.begin(job)?;
    let works = machine.wait_for_output(job, "given")?;
    ensure!(works, "the programs did not begin");
    Ok(())
}

/// A connection to the monitor of a QEMU (QMP).
struct Monitor {
    lines: BufReader<UnixStream>,
}

impl Monitor {
    fn connect(path: &Path) -> Result<Self> {
        let stream = UnixStream::connect(path).context("QEMU's monitor does not listen")?;
        stream.set_read_timeout(Some(COMMAND))?;
        let mut monitor = Self {
            lines: BufReader::new(stream),
        };
        monitor.line().context("the monitor's greeting")?;
        monitor.execute("qmp_capabilities", json!({}))?;
        Ok(monitor)
    }

    fn line(&mut self) -> Result<Value> {
        let mut line = String::new();
        self.lines.read_line(&mut line)?;
        Ok(serde_json::from_str(&line)?)
    }

    /// Waits until the guest has this many bytes of memory.
    fn wait_for_balloon(&mut self, bytes: u64) -> Result<()> {
        let end = Instant::now() + COMMAND;
        loop {
            let actual = self.execute("query-balloon", json!({}))?["actual"].as_u64();
            if actual == Some(bytes) {
                return Ok(());
            }
            process::check_interrupted()?;
            ensure!(
                Instant::now() < end,
                "the guest has {actual:?} bytes in place of {bytes}"
            );
            std::thread::sleep(POLL);
        }
    }

    /// Executes a command and waits for its result. If QEMU refuses, the error contains its message.
    fn execute(&mut self, command: &str, arguments: Value) -> Result<Value> {
        let message = json!({ "execute": command, "arguments": arguments });
        writeln!(self.lines.get_mut(), "{message}")?;
        loop {
            let said = self.line().with_context(|| command.to_owned())?;
            if let Some(error) = said.get("error") {
                bail!("{}", error["desc"].as_str().unwrap_or("an error"));
            }
            // Everything else is an event.
            if let Some(result) = said.get("return") {
                return Ok(result.clone());
            }
        }
    }
}

/// The memory of a guest, as its QEMU process has it open.
struct Memory(File);

impl Memory {
    fn of(qemu: u32) -> Result<Self> {
        for entry in fs::read_dir(format!("/proc/{qemu}/fd"))?.flatten() {
            let name = fs::read_link(entry.path()).unwrap_or_default();
            if name.to_string_lossy().starts_with("/memfd:memory-backend") {
                return Ok(Self(File::open(entry.path())?));
            }
        }
        bail!("QEMU has no memory file")
    }

    /// A digest of each piece.
    fn digest(&self) -> Result<Vec<u64>> {
        let mut piece = vec![0; PIECE];
        let mut digests = Vec::new();
        loop {
            let read = self.0.read_at(&mut piece, (digests.len() * PIECE) as u64)?;
            if read == 0 {
                return Ok(digests);
            }
            let mut digest = DefaultHasher::new();
            digest.write(&piece[..read]);
            digests.push(digest.finish());
        }
    }
}
