// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The life cycle of the packages in a clean Debian: installed, used, upgraded under a running service, removed and
//! purged.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::{Context, Result, bail, ensure};

use super::contents::{DKMS, GUEST, HOST, MODULE};
use super::machine::Machine;
use super::root::Debian;
use crate::kit::Kit;
use crate::process::Proc;
use crate::ui::Step;

/// The version from which the test upgrades.
pub const EARLIER: &str = "0.0.1";

const PACKAGES: [&str; 3] = [HOST, DKMS, GUEST];
const SOCKET: &str = "/run/gpgpu/vm.sock";
/// The directory of the programs in the root.
pub const PROGRAMS: &str = "/srv/programs";
/// The directory in the root of the earlier version's packages.
pub const EARLIER_PACKAGES: &str = "/srv/earlier";
/// The directory in the root of the new packages.
pub const NEW_PACKAGES: &str = "/srv/new";
/// The links by which an administrator installs the libraries as the guest's own: for the loader, and for login shells.
pub const LOADER_LINK: &str = "/etc/ld.so.conf.d/000-virtio-gpgpu.conf";
pub const PROFILE_LINK: &str = "/etc/profile.d/virtio-gpgpu.sh";
/// The options of the service.
pub const OPTIONS: &str = "/etc/default/vhost-device-gpgpu";
/// The program that runs.
pub const PROGRAM: &str = "vector-addition";

/// Tests the life cycle of the packages `made`, and before them `earlier`, in the root `clean`.
pub fn run(
    kit: &Kit,
    clean: &Path,
    debian: Debian,
    made: &[PathBuf],
    earlier: &[PathBuf],
) -> Result<()> {
    let step = Step::new(format!("packages on Debian {}", debian.suite()));
    let (new, old) = (parent(made)?, parent(earlier)?);
    let programs = kit.stage.programs();
    let log = kit.logs.join(format!("package-{}.log", debian.suite()));
    let directories: [(&Path, &str); 3] = [
        (&programs, PROGRAMS),
        (old, EARLIER_PACKAGES),
        (new, NEW_PACKAGES),
    ];
    let machine = Machine::start(clean, &directories, &log)?;
    let log = format!("package-{}-service.log", debian.suite());
    let life = Life::new(machine, &step, kit.logs.join(log));
    life.lead(made, earlier)?;
    step.done("installed, used, upgraded, removed and purged");
    Ok(())
}

/// The directory that contains these packages.
pub fn parent(files: &[PathBuf]) -> Result<&Path> {
    let first = files.first().and_then(|file| file.parent());
    first.context("no packages")
}

/// The same files in another directory.
pub fn in_directory(files: &[PathBuf], at: &str) -> Vec<String> {
    let names = files.iter().filter_map(|file| file.file_name()?.to_str());
    names.map(|name| format!("{at}/{name}")).collect()
}

/// A machine, and the state of the packages' life cycle on it.
pub struct Life<'a> {
    /// The machine.
    pub machine: Machine,
    /// Its progress for the user.
    pub step: &'a Step,
    /// The file for the service's log.
    pub log: PathBuf,
}

impl<'a> Life<'a> {
    /// In its initial state.
    pub fn new(machine: Machine, step: &'a Step, log: PathBuf) -> Self {
        Self { machine, step, log }
    }

    fn lead(&self, made: &[PathBuf], earlier: &[PathBuf]) -> Result<()> {
        let machine = &self.machine;
        let before = machine.state()?;

        self.step.message("install");
        self.install(&in_directory(earlier, EARLIER_PACKAGES))?;
        self.installed(EARLIER)?;
        self.checks()?;
        let service = Service::start(machine, &self.log)?;
        self.step.message("use");
        let right = self.uses()?;

        self.step.message("upgrade");
        let changed = format!("echo '# An administrator was here.' >>{OPTIONS}");
        machine.shell(&changed)?;
        machine
            .shell("cp /usr/share/doc/vhost-device-gpgpu/examples/policy.toml /etc/virtio-gpgpu")?;
        self.install(&in_directory(made, NEW_PACKAGES))?;
        let version = version_of(made)?;
        self.installed(&version)?;
        machine.run(&["grep", "--quiet", "An administrator", OPTIONS])?;
        ensure!(
            !machine.has(&format!("/usr/src/{MODULE}-{EARLIER}"))?,
            "the earlier driver's source is still there"
        );
        self.serves_without_its_file(&right)?;
        service.stop()?;

        self.step.message("the new version");
        let service = Service::start(machine, &self.log)?;
        ensure!(
            self.uses()? == right,
            "the new version gives another result"
        );
        self.opted_in(&right)?;
        service.stop()?;
        self.install(&in_directory(made, NEW_PACKAGES))
            .context("once more")?;
        self.installed(&version)?;

        self.step.message("remove");
        self.dpkg("--remove", &PACKAGES)?;
        let modules = machine.shell("find /usr/lib/modules -name 'virtio_gpgpu*'")?;
        ensure!(modules.is_empty(), "{modules} is left after removal");
        for path in [
            "/usr/bin/vhost-device-gpgpu",
            "/usr/lib/virtio-gpgpu",
            LOADER_LINK,
            PROFILE_LINK,
        ] {
            ensure!(!machine.has(path)?, "{path} is left after removal");
        }
        ensure!(machine.has(OPTIONS)?, "removal has removed {OPTIONS}");
        let complaints = machine.run(&["ldconfig"])?;
        ensure!(!complaints.contains("gpgpu"), "ldconfig says {complaints}");

        self.step.message("purge");
        // Files of a service that ran, which systemd and the driver leave behind.
        machine.shell(
            "mkdir -p /var/cache/private/virtio-gpgpu/vm && ln -s private/virtio-gpgpu /var/cache/virtio-gpgpu",
        )?;
        self.dpkg("--purge", &PACKAGES)?;
        let after = machine.state()?;
        let left: Vec<_> = after.difference(&before).collect();
        ensure!(left.is_empty(), "{left:?} is left after the purge");
        let lost: Vec<_> = before.difference(&after).collect();
        ensure!(lost.is_empty(), "the purge has removed {lost:?}");
        let named = machine.shell(
            "find /etc/systemd /var/lib/systemd /var/lib/dpkg/info -name '*gpgpu*'; \
             ldconfig --print-cache | grep gpgpu || true",
        )?;
        ensure!(named.is_empty(), "{named} is left after the purge");
        Ok(())
    }

    fn dpkg(&self, what: &str, names: &[&str]) -> Result<()> {
        let words: Vec<&str> = ["dpkg", what]
            .into_iter()
            .chain(names.iter().copied())
            .collect();
        self.machine.run(&words).map(|_| ())
    }

    fn install(&self, files: &[String]) -> Result<()> {
        let names: Vec<&str> = files.iter().map(String::as_str).collect();
        // An administrator's change of a file that the packages have not changed causes no question.
        self.dpkg("--install", &names)
    }

    /// Checks that the packages are completely installed in this version, and that the driver is built.
    fn installed(&self, version: &str) -> Result<()> {
        let machine = &self.machine;
        for package in PACKAGES {
            let state = machine.run(&[
                "dpkg-query",
                "--show",
                "--showformat=${Status} ${Version}",
                package,
            ])?;
            ensure!(
                state == format!("install ok installed {version}"),
                "{package} is {state}"
            );
            for path in machine.run(&["dpkg", "-L", package])?.lines() {
                ensure!(machine.has(path)?, "{package} has no {path}");
            }
        }
        let changed = machine.shell(&format!(
            "dpkg --verify {} | grep -v '{OPTIONS}' || true",
            PACKAGES.join(" ")
        ))?;
        ensure!(changed.is_empty(), "dpkg --verify says {changed}");
        let built = machine.run(&["dkms", "status", "-m", MODULE])?;
        ensure!(
            built.lines().count() == 1
                && built.contains(&format!("{MODULE}/{version}"))
                && built.contains("installed"),
            "DKMS says {built}"
        );
        machine.shell(
            "test -n \"$(find /usr/lib/modules/*/updates/dkms -name 'virtio_gpgpu.ko*')\"",
        )?;
        Ok(())
    }

    /// Checks the packages' files.
    pub fn checks(&self) -> Result<()> {
        let machine = &self.machine;
        machine.run(&["vhost-device-gpgpu", "--version"])?;
        machine.run(&["gpgpu-run", "--version"])?;
        machine.run(&["gpgpu-smi", "--version"])?;
        let linked = machine.shell(
            "for file in /usr/bin/vhost-device-gpgpu /usr/bin/gpgpu-* /usr/lib/virtio-gpgpu/*.so* \
             /usr/lib/virtio-gpgpu/software-gpu/*.so*; do ldd $file; done",
        )?;
        ensure!(!linked.contains("not found"), "ldd says {linked}");
        let unit = "/usr/lib/systemd/system/vhost-device-gpgpu.service";
        let said = machine.run(&["systemd-analyze", "--man=no", "verify", unit])?;
        ensure!(!said.contains("gpgpu"), "systemd-analyze says {said}");
        // Debian 12's udev cannot verify.
        machine.shell(
            "if udevadm verify --help >/dev/null 2>&1; then \
             udevadm verify /usr/lib/udev/rules.d/60-virtio-gpgpu.rules; fi",
        )?;
        machine.run(&["getent", "group", "kvm", "gpgpu"])?;
        ensure!(
            machine
                .has("/etc/systemd/system/multi-user.target.wants/vhost-device-gpgpu.service")?,
            "the service is not enabled"
        );
        let completed = machine.run(&["bash", "-e", "-c", COMPLETIONS])?;
        ensure!(
            completed == "--gpus --gpu\nsoftware\n--check\n--list-gpus\n",
            "bash completes {completed}"
        );
        machine.shell("mkdir -p /run/gpgpu /run/virtio-gpgpu")?;
        machine.shell(
            "vhost-device-gpgpu --gpu software --check \
             --config /usr/share/doc/vhost-device-gpgpu/examples/policy.toml",
        )?;
        Ok(())
    }

    /// Runs programs with the wrapper, which must give the same result; returns the result.
    pub fn uses(&self) -> Result<String> {
        let shared = self.result(&["gpgpu-run"], "shared")?;
        let linked = self.result(&["gpgpu-run"], "static")?;
        ensure!(shared == linked, "{shared} and {linked} differ");
        let connection = format!("VIRTIO_GPGPU=unix:{SOCKET}");
        let seen = self.machine.run(&["env", &connection, "gpgpu-smi", "-L"])?;
        ensure!(seen.starts_with("GPU 0: "), "gpgpu-smi says {seen}");
        Ok(shared)
    }

    /// Runs the program with this linkage, with `words` before its command; returns the checksum of its result.
    fn result(&self, words: &[&str], linked: &str) -> Result<String> {
        let connection = format!("VIRTIO_GPGPU=unix:{SOCKET}");
        let program = format!("{PROGRAMS}/{linked}/{PROGRAM}");
        let all = ["timeout", "120", "env", &connection];
        let end = [program.as_str(), "--size", "small"];
        let words: Vec<&str> = all.iter().chain(words).chain(&end).copied().collect();
        let output = self.machine.run(&words)?;
        let line = output.lines().find(|line| line.contains("RESULT "));
        let mut fields = line.unwrap_or_default().split_whitespace();
        ensure!(output.contains("status=ok"), "{program} says {output}");
        let sum = fields.find(|field| field.starts_with("checksum="));
        Ok(sum.context("no checksum")?.to_owned())
    }

    /// The service that was started before the upgrade continues without the file that has replaced its own.
    pub fn serves_without_its_file(&self, right: &str) -> Result<()> {
        let machine = &self.machine;
        machine.shell(
            "mv /usr/bin/vhost-device-gpgpu /tmp/new && ln -s false /usr/bin/vhost-device-gpgpu",
        )?;
        // The first one gets the worker that was ready before; the others get workers that were started since.
        for _ in 0..3 {
            ensure!(
                self.result(&["gpgpu-run"], "shared")? == right,
                "the service computes otherwise after the upgrade"
            );
        }
        machine
            .shell("rm /usr/bin/vhost-device-gpgpu && mv /tmp/new /usr/bin/vhost-device-gpgpu")?;
        Ok(())
    }

    /// Programs need no wrapper if the administrator chooses so.
    pub fn opted_in(&self, right: &str) -> Result<()> {
        let machine = &self.machine;
        ensure!(
            self.result(&[], "shared").is_err(),
            "the program runs without the wrapper before anybody has said so"
        );
        machine.shell(&format!(
            "ln -s /usr/share/virtio-gpgpu/ld.so.conf {LOADER_LINK} && ldconfig"
        ))?;
        let sum = self.result(&[], "shared").context("without the wrapper")?;
        ensure!(
            sum == right,
            "the program gives another result without the wrapper"
        );
        machine.shell(&format!(
            "ln -s /usr/share/virtio-gpgpu/profile.sh {PROFILE_LINK}"
        ))?;
        let login = ["bash", "--login", "-c", "exec \"$@\"", "bash"];
        let sum = self
            .result(&login, "static")
            .context("from a login shell")?;
        ensure!(
            sum == right,
            "the program gives another result in a login shell"
        );
        Ok(())
    }
}

/// Prints bash's completions of some words.
const COMPLETIONS: &str = r#"
try() {
    local file=$1
    shift
    . /usr/share/bash-completion/completions/$file
    COMP_WORDS=("$@")
    COMP_CWORD=$(($# - 1))
    "_${file//-/_}" "$1" "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD - 1]}"
    echo "${COMPREPLY[@]}"
}
try vhost-device-gpgpu vhost-device-gpgpu --gpu
try vhost-device-gpgpu vhost-device-gpgpu --gpu s
try gpgpu-run gpgpu-run --c
try gpgpu-smi gpgpu-smi --li
"#;

/// The version in the name of the host's package.
pub fn version_of(files: &[PathBuf]) -> Result<String> {
    let name = files.first().and_then(|file| file.file_name()?.to_str());
    let version = name.and_then(|name| name.split('_').nth(1));
    version
        .map(str::to_owned)
        .context("a package without a version")
}

/// The installed back end, with the installed software GPU.
pub struct Service {
    process: Proc,
    reader: std::thread::JoinHandle<()>,
}

impl Service {
    /// Starts it as the unit does, and waits until it reports its sockets.
    pub fn start(machine: &Machine, log: &Path) -> Result<Self> {
        let mut command = machine.command(&[
            "vhost-device-gpgpu",
            "--gpu",
            "software",
            "--socket-path",
            SOCKET,
        ]);
        command.stdin(Stdio::null()).stdout(Stdio::null());
        command.stderr(Stdio::piped());
        let mut process = Proc::spawn(&mut command, libc::SIGTERM)?;
        let mut lines = BufReader::new(process.stderr().context("no pipe")?).lines();
        let mut said = String::new();
        loop {
            let Some(line) = lines.next() else {
                bail!("the service ended at once:\n{said}");
            };
            said += &format!("{}\n", line?);
            if said.contains(SOCKET) {
                break;
            }
        }
        // Its log is read continuously, so that it never waits for a reader.
        let log = log.to_path_buf();
        let reader = std::thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                said += &format!("{line}\n");
            }
            let _ = fs::write(log, said);
        });
        Ok(Self { process, reader })
    }

    /// Stops it, and checks that it ends successfully.
    pub fn stop(mut self) -> Result<()> {
        ensure!(
            self.process.try_wait()?.is_none(),
            "the service ended unexpectedly"
        );
        let status = self.process.stop();
        ensure!(
            status.is_some_and(|status| status.success()),
            "the service ended with an error"
        );
        let _ = self.reader.join();
        Ok(())
    }
}
