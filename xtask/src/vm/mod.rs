// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Boots a guest under QEMU and reads its reports on the serial console.

mod qemu;
mod report;
mod share;
mod unpacked;

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::initramfs::{self, Job};
use crate::process::{self, Proc, describe, tail};
pub use qemu::{Accel, Qemu};
pub use report::{JobReport, Report};
pub use share::SharedDirectory;

/// The path of virtiofsd in a Debian root.
pub const VIRTIOFSD: &str = "usr/libexec/virtiofsd";
/// The tag with which a guest mounts the directory that its host shares.
pub const SHARE_TAG: &str = "host";
/// The extra time for boot and shutdown, with several emulated guests on two cores.
pub const BOOT: Duration = Duration::from_secs(180);

/// Kernel parameters for a guest whose root is on a disk. More kernel messages are printed on the console, because
/// those of a shutdown appear nowhere else. A panic does not reboot, so that its text comes last.
const DISK_WORDS: &str = " root=/dev/vda rw loglevel=5 panic=0 systemd.show_status=false TERM=dumb";

/// One guest to boot.
pub struct Spec<'a> {
    /// The QEMU to use.
    pub qemu: &'a Qemu,
    /// The accelerator.
    pub accel: Accel,
    /// The kernel's image.
    pub kernel: &'a Path,
    /// Its initramfs, without jobs.
    pub initramfs: &'a Path,
    /// The raw image of a disk with the guest's root; without one, the initramfs is the root. Such a guest takes jobs
    /// on the console, and boots again after a reset.
    pub disk: Option<&'a Path>,
    /// The back end's socket; without one the guest has no GPU.
    pub socket: Option<&'a Path>,
    /// The socket of a [`SharedDirectory`].
    pub share: Option<&'a Path>,
    /// The socket at which its QEMU takes commands (QMP). With it the guest has a balloon, and boots again after a
    /// reset; without it, QEMU ends on a reset.
    pub monitor: Option<&'a Path>,
    /// RAM in MiB.
    pub memory_mib: u32,
    /// Virtual processors.
    pub cpus: u32,
    /// Whether it suspends to memory: a guest that was started at QEMU's PVH entry cannot resume.
    pub suspends: bool,
}

/// Boots the guest, runs `jobs` in it, and returns its report once it has powered off. `log` receives the console.
pub fn boot(spec: &Spec, jobs: &[Job], log: Option<&Path>) -> Result<Report> {
    let mut machine = Machine::start(spec, Some(&initramfs::jobs(jobs)), log)?;
    machine.read_until(limit_of(jobs), |_| false)?;
    machine.end()
}

/// Boots a guest without jobs. Returns whether it reaches its end. `first` is the time limit for its first line, and
/// `rest` for the rest.
///
/// # Errors
/// It has not ended in time.
pub fn boots_soon(spec: &Spec, first: Duration, rest: Duration) -> Result<bool> {
    let mut machine = Machine::start(spec, Some(&initramfs::jobs(&[])), None)?;
    if machine.read_until(first, |report| !report.console.is_empty())? {
        machine.read_until(rest, |_| false)?;
    }
    Ok(machine.end()?.finished)
}

/// Like [`boot`], with `extra`, which contains the jobs and further files.
pub fn boot_with(
    spec: &Spec,
    extra: &initramfs::Archive,
    jobs: &[Job],
    log: Option<&Path>,
) -> Result<Report> {
    let mut machine = Machine::start(spec, Some(extra), log)?;
    machine.read_until(limit_of(jobs), |_| false)?;
    machine.end()
}

fn limit_of(jobs: &[Job]) -> Duration {
    BOOT + Duration::from_secs(jobs.iter().map(|job| job.limit).sum())
}

/// A running guest.
pub struct Machine {
    qemu: Proc,
    lines: mpsc::Receiver<(bool, String)>,
    readers: [std::thread::JoinHandle<()>; 2],
    report: Report,
    complaints: String,
    log: Option<fs::File>,
    /// The console from which the guest reads jobs, if it does.
    console: Option<std::process::ChildStdin>,
    _work: Option<tempfile::TempDir>,
}

impl Machine {
    /// Boots a guest that runs the jobs that `Machine::run` sends, and waits until it accepts jobs.
    pub fn interactive(spec: &Spec, extra: initramfs::Archive, log: &Path) -> Result<Self> {
        let extra = initramfs::with_console(extra);
        let mut machine = Self::start(spec, Some(&extra), Some(log))?;
        machine.boots(1)?;
        if machine.report.module_rc != Some(0) {
            bail!(
                "the guest could not load the module:\n{}",
                tail(&machine.report.console, 20)
            );
        }
        Ok(machine)
    }

    /// Boots a guest from its disk, and waits until it accepts jobs.
    pub fn of_disk(spec: &Spec, log: &Path) -> Result<Self> {
        let mut machine = Self::start(spec, None, Some(log))?;
        machine.boots(1)?;
        Ok(machine)
    }

    /// Waits until an interactive guest has booted `times` times and accepts jobs.
    pub fn boots(&mut self, times: u32) -> Result<()> {
        let is_up = |report: &Report| report.boots == times && report.takes_jobs;
        if !self.read_until(BOOT, is_up)? {
            process::check_interrupted()?;
            bail!(
                "the guest ended before it took a job:\n{}\n{}",
                tail(&self.report.console, 20),
                tail(&self.complaints, 10)
            );
        }
        Ok(())
    }

    /// The guest's output so far.
    pub fn report(&self) -> &Report {
        &self.report
    }

    fn start(spec: &Spec, last: Option<&initramfs::Archive>, log: Option<&Path>) -> Result<Self> {
        let work = tempfile::tempdir().context("cannot create a temporary directory")?;
        let mut initrd = spec.initramfs.to_path_buf();
        if let Some(last) = last {
            initrd = work.path().join("initrd");
            initramfs::concatenate(spec.initramfs, last, &initrd)?;
        }
        let unpacked = work.path().join("vmlinux");
        // A guest with a disk boots in the same way as users' guests.
        let may_unpack = spec.accel == Accel::Tcg && spec.disk.is_none() && !spec.suspends;
        let kernel = match may_unpack && unpacked::unpack(spec.kernel, &unpacked)? {
            true => &unpacked,
            false => spec.kernel,
        };
        Self::of(command_of(spec, kernel, &initrd), log, Some(work))
    }

    /// A guest whose console is `command`: its output is the guest's, and its input goes to the guest. Another program
    /// has started the guest, and ends it.
    pub fn on_console(command: Command, log: &Path) -> Result<Self> {
        Self::of(command, Some(log), None)
    }

    fn of(
        mut command: Command,
        log: Option<&Path>,
        work: Option<tempfile::TempDir>,
    ) -> Result<Self> {
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());

        let mut qemu = Proc::spawn(&mut command, libc::SIGKILL)?;
        let (sender, lines) = mpsc::channel::<(bool, String)>();
        let out = qemu.stdout().context("QEMU has no output")?;
        let err = qemu.stderr().context("QEMU has no error output")?;
        let readers = [
            forward(out, true, sender.clone()),
            forward(err, false, sender),
        ];
        let console = qemu.stdin();
        Ok(Self {
            qemu,
            lines,
            readers,
            report: Report::default(),
            complaints: String::new(),
            log: log
                .map(fs::File::create)
                .transpose()
                .context("cannot write the guest's log")?,
            console,
            _work: work,
        })
    }

    /// The process id of QEMU.
    pub fn id(&self) -> u32 {
        self.qemu.id()
    }

    /// Reads the guest's output until `until` is true, and then returns true; returns false once the guest has ended.
    pub fn read_until(&mut self, limit: Duration, until: impl Fn(&Report) -> bool) -> Result<bool> {
        let end = Instant::now() + limit;
        loop {
            match self
                .lines
                .recv_timeout(end.saturating_duration_since(Instant::now()))
            {
                Ok((console, line)) => {
                    if let Some(file) = &mut self.log {
                        writeln!(file, "{line}")?;
                    }
                    if console {
                        self.report.line(&line);
                    } else {
                        self.complaints.push_str(&line);
                        self.complaints.push('\n');
                    }
                    if until(&self.report) {
                        return Ok(true);
                    }
                }
                Err(mpsc::RecvTimeoutError::Disconnected) => return Ok(false),
                Err(mpsc::RecvTimeoutError::Timeout) => {
                    self.qemu.stop();
                    process::check_interrupted()?;
                    bail!(
                        "the guest was not done after {} s; its last lines:\n{}",
                        limit.as_secs(),
                        tail(&self.report.console, 15)
                    );
                }
            }
        }
    }

    /// Sends a job to an interactive guest, and does not wait.
    pub fn begin(&mut self, job: &Job) -> Result<()> {
        let console = self.console.as_mut().context("QEMU has no input")?;
        writeln!(console, "{}\t{}\t{}", job.id, job.limit, job.command)
            .and_then(|()| console.flush())
            .context("the guest takes no more jobs")
    }

    /// Waits for an interactive guest's report on the last job.
    pub fn finish(&mut self, job: &Job) -> Result<JobReport> {
        let done = |report: &Report| {
            report
                .jobs
                .last()
                .is_some_and(|last| last.id == job.id && last.rc.is_some())
        };
        // The guest stops a job at its limit; the additional time is for an emulated guest's report.
        self.read_until(Duration::from_secs(job.limit + 30), done)?;
        process::check_interrupted()?;
        match self.report.jobs.last() {
            Some(last) if last.id == job.id => Ok(last.clone()),
            _ => bail!(
                "the guest ended during {}:\n{}",
                job.id,
                tail(&self.report.console, 15)
            ),
        }
    }

    /// Waits until the last job has printed a line with `text`. Returns false if it ended without one.
    pub fn wait_for_output(&mut self, job: &Job, text: &str) -> Result<bool> {
        let printed = |report: &Report| {
            report
                .jobs
                .last()
                .is_some_and(|last| last.id == job.id && last.output.contains(text))
        };
        let ended = |report: &Report| report.jobs.last().is_some_and(|last| last.rc.is_some());
        self.read_until(Duration::from_secs(job.limit), |report| {
            printed(report) || ended(report)
        })?;
        Ok(printed(&self.report))
    }

    /// Tells an interactive guest to power off and waits until it has.
    pub fn power_off(mut self) -> Result<Report> {
        if let Some(mut console) = self.console.take() {
            // If the guest has already ended, its status shows it.
            let _ = writeln!(console, "end");
            self.console = Some(console);
        }
        self.read_until(BOOT, |_| false)?;
        self.end()
    }

    fn end(mut self) -> Result<Report> {
        let status = self.qemu.wait()?;
        for reader in self.readers {
            let _ = reader.join();
        }
        process::check_interrupted()?;
        if !status.success() {
            bail!("QEMU: {}: {}", describe(status), tail(&self.complaints, 10));
        }
        Ok(self.report)
    }
}

/// The command line of a guest's QEMU, with the console as standard input and output.
fn command_of(spec: &Spec, kernel: &Path, initrd: &Path) -> Command {
    let size = spec.memory_mib;
    let mut command = spec.qemu.command();
    command.args([
        "-nodefaults",
        "-no-user-config",
        "-M",
        "q35",
        "-display",
        "none",
        "-serial",
        "stdio",
    ]);
    if let Some(monitor) = spec.monitor {
        let listen = format!("unix:{},server=on,wait=off", monitor.display());
        command.args(["-qmp", &listen]);
        command.args(["-device", "virtio-balloon-pci,free-page-reporting=on"]);
    } else if spec.disk.is_none() {
        command.arg("-no-reboot");
    }
    match spec.accel {
        Accel::Kvm => command.args(["-accel", "kvm", "-cpu", "host"]),
        Accel::Tcg => command.args(["-accel", "tcg,thread=multi", "-cpu", "max"]),
    };
    command.args(["-smp", &spec.cpus.to_string(), "-m", &format!("{size}M")]);
    command.args([
        "-object",
        &format!("memory-backend-memfd,id=mem,size={size}M,share=on"),
        "-numa",
        "node,memdev=mem",
    ]);
    if let Some(socket) = spec.socket {
        command
            .arg("-chardev")
            .arg(format!("socket,id=gp,path={}", socket.display()));
        command.args([
            "-device",
            "vhost-user-test-device-pci,chardev=gp,virtio-id=6,num_vqs=3,vq_size=1024,config_size=64",
        ]);
    }
    if let Some(share) = spec.share {
        command
            .arg("-chardev")
            .arg(format!("socket,id=fs,path={}", share.display()));
        command.arg("-device");
        command.arg(format!("vhost-user-fs-pci,chardev=fs,tag={SHARE_TAG}"));
    }
    command
        .arg("-kernel")
        .arg(kernel)
        .arg("-initrd")
        .arg(initrd);
    let mut words = "console=ttyS0 quiet panic=-1".to_owned();
    if let Some(disk) = spec.disk {
        command.arg("-drive").arg(format!(
            "file={},format=raw,if=virtio,cache=unsafe",
            disk.display()
        ));
        words += DISK_WORDS;
    }
    command.args(["-append", &words]);
    command
}

fn forward(
    from: impl std::io::Read + Send + 'static,
    console: bool,
    to: mpsc::Sender<(bool, String)>,
) -> std::thread::JoinHandle<()> {
    std::thread::spawn(move || {
        let mut reader = BufReader::new(from);
        let mut bytes = Vec::new();
        while reader
            .read_until(b'\n', &mut bytes)
            .is_ok_and(|length| length > 0)
        {
            let line = String::from_utf8_lossy(&bytes)
                .trim_end_matches(['\r', '\n'])
                .to_owned();
            if to.send((console, line)).is_err() {
                return;
            }
            bytes.clear();
        }
    })
}
