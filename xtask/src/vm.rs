// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Booting a guest under QEMU and reading what it reports on its serial console.

use std::ffi::OsString;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::initramfs::{self, Job};
use crate::process::{self, Proc, capture, describe, tail};

/// What shares a folder with guests, in a Debian root.
pub const VIRTIOFSD: &str = "usr/libexec/virtiofsd";
/// What a guest mounts to have the folder that its host shares with it.
pub const SHARE_TAG: &str = "host";
/// How long virtiofsd may take to listen.
const SHARE_START: Duration = Duration::from_secs(10);
/// The first release whose generic vhost-user device can be created.
const MINIMUM: (u32, u32) = (10, 2);
/// How long a guest that runs under KVM may take to reach its init in the probe.
const KVM_PROBE: Duration = Duration::from_secs(15);
/// What boot and shutdown may take beside the jobs, with several emulated guests on two cores.
pub const BOOT: Duration = Duration::from_secs(180);

/// A QEMU that can be run.
#[derive(Clone, Debug)]
pub struct Qemu {
    command: Vec<OsString>,
    /// Where its modules are, if not where it was built to look.
    modules: Option<PathBuf>,
    /// What runs virtiofsd.
    virtiofsd: Vec<OsString>,
    /// "QEMU 11.1.3 (Debian …)".
    pub version: String,
}

impl Qemu {
    /// The machine's own QEMU if it is new enough, else the one unpacked in `root`.
    pub fn find(root: &Path) -> Result<Self> {
        let virtiofsd = vec![Path::new("/").join(VIRTIOFSD).into()];
        match Self::check(vec!["qemu-system-x86_64".into()], virtiofsd, None) {
            Ok(qemu) => Ok(qemu),
            Err(_) => Self::in_root(root),
        }
    }

    /// The QEMU of an unpacked Debian root, run by that root's own loader on its own libraries.
    pub fn in_root(root: &Path) -> Result<Self> {
        let lib = root.join("usr/lib/x86_64-linux-gnu");
        let run = |program: &str| -> Vec<OsString> {
            vec![
                root.join("usr/lib64/ld-linux-x86-64.so.2").into(),
                "--library-path".into(),
                lib.clone().into(),
                root.join(program).into(),
            ]
        };
        let mut command = run("usr/bin/qemu-system-x86_64");
        for firmware in ["usr/share/qemu", "usr/share/seabios"] {
            command.extend(["-L".into(), root.join(firmware).into()]);
        }
        Self::check(command, run(VIRTIOFSD), Some(lib.join("qemu")))
    }

    fn check(
        command: Vec<OsString>,
        virtiofsd: Vec<OsString>,
        modules: Option<PathBuf>,
    ) -> Result<Self> {
        let mut qemu = Self {
            command,
            modules,
            virtiofsd,
            version: String::new(),
        };
        let text = capture(qemu.command().arg("--version"))?;
        let version = text
            .lines()
            .next()
            .unwrap_or("")
            .trim_start_matches("QEMU emulator version ")
            .to_owned();
        if parse_version(&version) < MINIMUM {
            bail!("QEMU {version} is older than 10.2");
        }
        let devices = capture(qemu.command().args(["-M", "none", "-device", "help"]))?;
        if !devices.contains("vhost-user-test-device-pci") {
            bail!("QEMU {version} was built without vhost-user-test-device-pci");
        }
        qemu.version = format!("QEMU {version}");
        Ok(qemu)
    }

    fn command(&self) -> Command {
        let mut words = self.command.iter();
        let mut command = Command::new(words.next().map_or_else(OsString::new, OsString::clone));
        command.args(words);
        if let Some(modules) = &self.modules {
            command.env("QEMU_MODULE_DIR", modules);
        }
        command
    }
}

/// A folder of the host that a guest can mount, and only read; shared for as long as this lives.
pub struct SharedFolder {
    _virtiofsd: Proc,
    dir: tempfile::TempDir,
}

impl SharedFolder {
    /// Shares a folder with the next guest that connects. `log` receives virtiofsd's messages.
    pub fn start(qemu: &Qemu, folder: &Path, log: &Path) -> Result<Self> {
        let dir = tempfile::tempdir().context("cannot create a temporary folder")?;
        let mut words = qemu.virtiofsd.iter();
        let mut command = Command::new(words.next().map_or_else(OsString::new, OsString::clone));
        let log = fs::File::create(log).context("cannot write virtiofsd's log")?;
        let shared = Self {
            _virtiofsd: Proc::spawn(
                command
                    .args(words)
                    .arg("--socket-path")
                    .arg(dir.path().join("share"))
                    .arg("--shared-dir")
                    .arg(folder)
                    // The host's root is mounted as it is, and nothing is written.
                    .args(["--readonly", "--sandbox", "none", "--cache", "always"])
                    .stdout(log.try_clone()?)
                    .stderr(log),
                libc::SIGKILL,
            )
            .context("cannot start virtiofsd")?,
            dir,
        };
        let began = Instant::now();
        while !shared.socket().exists() {
            if began.elapsed() > SHARE_START {
                bail!("virtiofsd does not listen; its log says why");
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(shared)
    }

    /// Where it listens.
    pub fn socket(&self) -> PathBuf {
        self.dir.path().join("share")
    }
}

fn parse_version(text: &str) -> (u32, u32) {
    let mut numbers = text.split('.').map(|part| part.parse().unwrap_or(0));
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0))
}

/// What executes the guest's instructions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Accel {
    /// The processor.
    Kvm,
    /// QEMU's translator: right, and 5 to 20 times slower.
    Tcg,
}

impl Accel {
    /// The name that QEMU and our output use.
    pub fn name(self) -> &'static str {
        match self {
            Self::Kvm => "kvm",
            Self::Tcg => "tcg",
        }
    }

    /// Finds out which works, by booting `kernel`: a `/dev/kvm` that opens proves nothing. The answer is kept in `memory`
    /// for as long as the host runs.
    pub fn probe(qemu: &Qemu, kernel: &Path, busybox: &Path, memory: &Path) -> Result<Self> {
        if fs::OpenOptions::new()
            .read(true)
            .write(true)
            .open("/dev/kvm")
            .is_err()
        {
            return Ok(Self::Tcg);
        }
        let boot_id = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        let known = format!("{} {} ", boot_id.trim(), qemu.version);
        if let Some(answer) = fs::read_to_string(memory)
            .ok()
            .as_deref()
            .and_then(|text| text.strip_prefix(&known))
        {
            return Ok(if answer.trim() == "kvm" {
                Self::Kvm
            } else {
                Self::Tcg
            });
        }
        let step = crate::ui::Step::new("does a guest boot under KVM here?");
        let work = tempfile::tempdir()?;
        let initramfs = work.path().join("initramfs");
        initramfs::base(busybox).save(&initramfs)?;
        let spec = Spec {
            qemu,
            accel: Self::Kvm,
            kernel,
            initramfs: &initramfs,
            socket: None,
            share: None,
            monitor: None,
            memory_mib: 512,
            cpus: 1,
        };
        let outcome = boot(&spec, &[], Some(KVM_PROBE), None);
        process::check_interrupted()?;
        let accel = if outcome.is_ok_and(|report| report.finished) {
            Self::Kvm
        } else {
            Self::Tcg
        };
        fs::write(memory, format!("{known}{}", accel.name()))?;
        step.done(if accel == Self::Kvm {
            "yes"
        } else {
            "no, guests are emulated (tcg)"
        });
        Ok(accel)
    }
}

/// One guest to boot.
pub struct Spec<'a> {
    /// The QEMU to use.
    pub qemu: &'a Qemu,
    /// What executes it.
    pub accel: Accel,
    /// The kernel's image.
    pub kernel: &'a Path,
    /// Its initramfs, without jobs.
    pub initramfs: &'a Path,
    /// The back end's socket; without one the guest has no GPU.
    pub socket: Option<&'a Path>,
    /// The socket of a [`SharedFolder`].
    pub share: Option<&'a Path>,
    /// Where its QEMU takes commands (QMP). Such a guest boots again after a reset; without it, QEMU ends then.
    pub monitor: Option<&'a Path>,
    /// RAM in MiB.
    pub memory_mib: u32,
    /// Virtual processors.
    pub cpus: u32,
}

/// What a guest said of one job.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JobReport {
    /// The job's name.
    pub id: String,
    /// Its exit status as a shell gives it; `None` if the guest ended before the job did.
    pub rc: Option<i32>,
    /// Milliseconds that it took in the guest.
    pub ms: u64,
    /// All that it printed.
    pub output: String,
}

/// What a guest said.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// The kernel that it runs.
    pub kernel: String,
    /// How often its init began.
    pub boots: u32,
    /// The status of loading the module; `None` if there was none.
    pub module_rc: Option<i32>,
    /// Its jobs, in order.
    pub jobs: Vec<JobReport>,
    /// Complaints from the guest's kernel log.
    pub kernel_complaints: Vec<String>,
    /// Whether it waits for jobs on its console.
    pub takes_jobs: bool,
    /// Whether it ran all jobs and powered off.
    pub finished: bool,
    /// Everything on its console.
    pub console: String,
}

impl Report {
    /// Takes in one line of the console.
    fn line(&mut self, line: &str) {
        self.console.push_str(line);
        self.console.push('\n');
        let marker = line.find("==> ").map(|at| line.split_at(at));
        let Some((before, marker)) = marker else {
            self.output(line, true);
            return;
        };
        if !before.is_empty() {
            self.output(before, true);
        }
        let mut words = marker["==> ".len()..].split_whitespace();
        let field = |name: &str| {
            marker.split_whitespace().find_map(|word| {
                word.strip_prefix(name)
                    .and_then(|rest| rest.strip_prefix('='))
            })
        };
        match words.next() {
            Some("guest") => {
                self.kernel = field("kernel").unwrap_or("").to_owned();
                self.boots += 1;
                self.takes_jobs = false;
            }
            Some("module") => self.module_rc = field("rc").and_then(|rc| rc.parse().ok()),
            Some("begin") => self.jobs.push(JobReport {
                id: words.next().unwrap_or("").to_owned(),
                ..JobReport::default()
            }),
            Some("end") => {
                let id = words.next().unwrap_or("");
                if let Some(job) = self.jobs.iter_mut().rev().find(|job| job.id == id) {
                    job.rc = field("rc").and_then(|rc| rc.parse().ok());
                    job.ms = field("ms").and_then(|ms| ms.parse().ok()).unwrap_or(0);
                }
            }
            Some("kernel") => self
                .kernel_complaints
                .push(marker["==> kernel ".len()..].to_owned()),
            Some("console") => self.takes_jobs = true,
            Some("finished") => self.finished = true,
            _ => self.output(marker, true),
        }
    }

    fn output(&mut self, text: &str, newline: bool) {
        if let Some(job) = self.jobs.last_mut().filter(|job| job.rc.is_none()) {
            job.output.push_str(text);
            if newline {
                job.output.push('\n');
            }
        }
    }
}

/// Boots the guest, has it run `jobs` and returns its report once it has powered off. `limit` replaces the limit that
/// follows from the jobs' own; `log` receives the console.
pub fn boot(
    spec: &Spec,
    jobs: &[Job],
    limit: Option<Duration>,
    log: Option<&Path>,
) -> Result<Report> {
    let limit = limit.unwrap_or_else(|| limit_of(jobs));
    let mut machine = Machine::start(spec, &initramfs::jobs(jobs), log)?;
    machine.read_until(limit, |_| false)?;
    machine.end()
}

/// The same with `extra`, which has the jobs and further files.
pub fn boot_with(
    spec: &Spec,
    extra: &initramfs::Archive,
    jobs: &[Job],
    log: Option<&Path>,
) -> Result<Report> {
    let mut machine = Machine::start(spec, extra, log)?;
    machine.read_until(limit_of(jobs), |_| false)?;
    machine.end()
}

fn limit_of(jobs: &[Job]) -> Duration {
    BOOT + Duration::from_secs(jobs.iter().map(|job| job.limit).sum())
}

/// A guest that runs.
pub struct Machine {
    qemu: Proc,
    lines: mpsc::Receiver<(bool, String)>,
    readers: [std::thread::JoinHandle<()>; 2],
    report: Report,
    complaints: String,
    log: Option<fs::File>,
    /// Where the guest reads jobs from, if it takes any.
    console: Option<std::process::ChildStdin>,
    _work: tempfile::TempDir,
}

impl Machine {
    /// Boots a guest that runs jobs as `Machine::run` gives them to it, and waits until it takes them.
    pub fn interactive(spec: &Spec, extra: initramfs::Archive, log: &Path) -> Result<Self> {
        let mut machine = Self::start(spec, &initramfs::with_console(extra), Some(log))?;
        if !machine.read_until(BOOT, |report| report.takes_jobs)? {
            bail!(
                "the guest ended before it took a job:\n{}",
                tail(&machine.report.console, 20)
            );
        }
        if machine.report.module_rc != Some(0) {
            bail!(
                "the guest could not load the module:\n{}",
                tail(&machine.report.console, 20)
            );
        }
        Ok(machine)
    }

    fn start(spec: &Spec, last: &initramfs::Archive, log: Option<&Path>) -> Result<Self> {
        let work = tempfile::tempdir().context("cannot create a temporary folder")?;
        let initrd = work.path().join("initrd");
        initramfs::concatenate(spec.initramfs, last, &initrd)?;
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
        match spec.monitor {
            Some(monitor) => {
                let listen = format!("unix:{},server=on,wait=off", monitor.display());
                command.args(["-qmp", &listen])
            }
            None => command.arg("-no-reboot"),
        };
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
            .arg(spec.kernel)
            .arg("-initrd")
            .arg(&initrd);
        command.args(["-append", "console=ttyS0 quiet panic=-1"]);
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

    /// The number of QEMU's process.
    pub fn id(&self) -> u32 {
        self.qemu.id()
    }

    /// Reads what the guest says until `until` holds, and returns true then; false once the guest has ended.
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

    /// Gives an interactive guest a job, without waiting for anything.
    pub fn begin(&mut self, job: &Job) -> Result<()> {
        let console = self.console.as_mut().context("QEMU has no input")?;
        writeln!(console, "{}\t{}\t{}", job.id, job.limit, job.command)
            .and_then(|()| console.flush())
            .context("the guest takes no more jobs")
    }

    /// Waits for what an interactive guest says of the job that was begun last.
    pub fn finish(&mut self, job: &Job) -> Result<JobReport> {
        let done = |report: &Report| {
            report
                .jobs
                .last()
                .is_some_and(|last| last.id == job.id && last.rc.is_some())
        };
        // The guest ends what takes longer than it may; the rest is for an emulated guest to say so.
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

    /// Waits until the job that was begun last has printed a line with `text`; false if it ended without.
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
            // A guest that is gone already says so through its status.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_of_distributions_are_understood() {
        assert_eq!(
            parse_version("11.1.3 (Debian 1:11.1.3+ds-1~bpo13+1)"),
            (11, 1)
        );
        assert!(parse_version("7.2.22 (Debian 1:7.2+dfsg-7)") < MINIMUM);
        assert!(parse_version("10.2.0") >= MINIMUM);
    }

    #[test]
    fn a_console_becomes_a_report() {
        let mut report = Report::default();
        for line in [
            "[    1.0] noise",
            "==> guest kernel=6.12.1 boot_ms=2500",
            "==> module rc=0",
            "==> begin a/shared",
            "RESULT name=a checksum=1",
            "no newline==> end a/shared rc=0 ms=120",
            "==> begin b/static",
            "wrong",
            "==> end b/static rc=1 ms=7",
            "==> kernel WARNING: at x",
            "==> begin c/static",
        ] {
            report.line(line);
        }
        assert_eq!(report.kernel, "6.12.1");
        assert_eq!(report.module_rc, Some(0));
        assert_eq!(report.jobs.len(), 3);
        assert_eq!(
            report.jobs[0].output,
            "RESULT name=a checksum=1\nno newline\n"
        );
        assert_eq!((report.jobs[0].rc, report.jobs[0].ms), (Some(0), 120));
        assert_eq!(report.jobs[1].rc, Some(1));
        assert_eq!(report.jobs[2].rc, None);
        assert_eq!(report.kernel_complaints, ["WARNING: at x"]);
        assert!(!report.finished);
    }
}
