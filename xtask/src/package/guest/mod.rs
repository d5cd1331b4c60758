// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The guest's packages in a Debian guest under QEMU, whose device is served by the staged back end on the software
//! GPU. The test executes the steps of an administrator and of users, from the first installation to the purge.

pub mod console;
pub mod disk;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

use super::contents::{DKMS, GUEST, MODULE};
use super::lifecycle::{EARLIER, LOADER_LINK, PROFILE_LINK, in_directory, parent, version_of};
use super::{machine, root};
use crate::kit::{self, Kit};
use crate::runner::{Backend, Gpu};
use crate::setup::Environment;
use crate::ui::Step;
use crate::vm::{Accel, Machine, Qemu, SHARE_TAG, SharedDirectory, Spec};
use console::{Expected, Guest, Way};
use disk::{Disk, MEMBER};

/// RAM in MiB, and virtual processors.
const MEMORY_MIB: u32 = 2048;
const CPUS: u32 = 2;

/// The time limit in seconds to install or remove packages: an emulated compiler builds the driver.
const INSTALL: u64 = 900;

/// The time limit in seconds for PyTorch to be imported, by two processes one after the other, and to compute.
const PYTORCH: u64 = 900;

/// The guest's mount point of the shared directory of Python packages.
const SHARED: &str = "/mnt";

/// DKMS's log of the compiler's output.
const MAKE_LOG: &str = "/var/lib/dkms/virtio-gpgpu/*/build/make.log";

/// The list of the guest's files from before the packages.
const BEFORE: &str = "/root/before";

/// Files that a running system changes, besides the packages' own.
const SYSTEM: [&str; 14] = [
    "/etc/passwd-",
    "/etc/subgid-",
    "/etc/subuid-",
    "/home/",
    "/root/",
    "/srv/",
    "/tmp/systemd-private",
    "/var/cache/apt",
    "/var/cache/debconf/",
    "/var/cache/man",
    "/var/lib/apt",
    "/var/lib/systemd/",
    "/var/tmp/systemd-private",
    "/var/spool/",
];

/// Tests the life cycle of the packages `made`, and before them `earlier`, in a guest of this Debian. `pytorch`, if
/// given, is a directory of Python packages with PyTorch, which a user runs there.
pub fn run(
    kit: &Kit,
    environment: &Environment,
    debian: root::Debian,
    made: &[PathBuf],
    earlier: &[PathBuf],
    pytorch: Option<&Path>,
) -> Result<()> {
    let paths = &environment.paths;
    if let Some(directory) = pytorch {
        ensure!(
            directory.join("torch").is_dir(),
            "{} has no PyTorch; `pip install --target` makes such a directory",
            directory.display()
        );
    }
    let clean = root::GUEST.ensure(paths, environment.cache(), debian)?;
    let expected = Expected::natively(kit)?;
    let suite = debian.suite();
    let step = Step::new(format!("the disk of a Debian guest ({suite})"));
    let (programs, python) = (kit.stage.programs(), paths.root.join("tests/python"));
    let files: [(&Path, &str); 4] = [
        (&programs, "programs"),
        (&python, "python"),
        (parent(earlier)?, "earlier"),
        (parent(made)?, "new"),
    ];
    let log = kit.logs.join("guest-disk.log");
    let disk = Disk::make(&clean, &files, &paths.guest(), &log, |_| Ok(()))?;
    step.done("");

    let step = Step::new(format!("packages in a Debian guest ({suite})"));
    let log = kit.logs.join("guest-back-end.log");
    let mut backend = Backend::start(&kit.stage, Gpu::Software, 1, &log)?;
    let newest = environment.kernel("newest")?;
    let qemu = Qemu::find(&newest.root)?;
    let accel = kit::probe(paths, &qemu, &newest.image(), &kit::busybox(newest))?;
    let socket = backend.sockets.first().context("no socket for the VM")?;
    let console = kit.logs.join("guest-console.log");
    let share = pytorch
        .map(|directory| {
            SharedDirectory::start(&qemu, directory, &kit.logs.join("guest-virtiofsd.log"))
        })
        .transpose()?;
    let led = boot(&qemu, accel, &disk, socket, share.as_ref(), &console).and_then(|guest| {
        let mut life = Life {
            guest,
            step: &step,
            expected,
        };
        life.lead(made, earlier, share.is_some())?;
        life.guest.power_off()
    });
    led.with_context(|| {
        let (console, log) = (console.display(), log.display());
        format!("the guest's console is in {console}, and the back end's log in {log}")
    })?;
    ensure!(
        backend.alive()?,
        "the back end has ended:\n{}",
        backend.last_words()
    );
    step.done("installed, used, upgraded, booted again, removed and purged");
    Ok(())
}

fn boot(
    qemu: &Qemu,
    accel: Accel,
    disk: &Disk,
    socket: &Path,
    share: Option<&SharedDirectory>,
    console: &Path,
) -> Result<Guest> {
    let (kernel, initramfs, image) = (disk.kernel(), disk.initramfs(), disk.image());
    let share = share.map(SharedDirectory::socket);
    let spec = Spec {
        qemu,
        accel,
        kernel: &kernel,
        initramfs: &initramfs,
        disk: Some(&image),
        socket: Some(socket),
        share: share.as_deref(),
        monitor: None,
        memory_mib: MEMORY_MIB,
        cpus: CPUS,
        suspends: false,
    };
    Guest::of(Machine::of_disk(&spec, console)?)
}

/// A guest, and the state of the packages' life cycle in it.
struct Life<'a> {
    guest: Guest,
    step: &'a Step,
    expected: Expected,
}

impl Life<'_> {
    fn lead(&mut self, made: &[PathBuf], earlier: &[PathBuf], has_pytorch: bool) -> Result<()> {
        let state = machine::state(&SYSTEM);
        self.guest.run(&format!("{state} >{BEFORE}"))?;

        self.step.message("install");
        self.install(earlier, "/srv/earlier")?;
        self.installed(EARLIER)?;
        self.guest.run("modprobe virtio_gpgpu")?;
        self.guest.run(&format!("adduser {MEMBER} gpgpu"))?;
        self.step.message("use");
        self.guest.is_for_members(&self.expected)?;
        let all = &self.expected.runs;
        self.guest.computes(Way::Wrapper, all, &self.expected)?;
        self.opts_in()?;

        self.step.message("upgrade");
        let built = self.built()?;
        self.install(made, "/srv/new")?;
        self.installed(&version_of(made)?)?;
        ensure!(self.built()? != built, "the upgrade has built no driver");
        self.guest.nothing(
            &format!("find /usr/src -name '{MODULE}-{EARLIER}'"),
            "upgraded, and the earlier driver's source is still there",
        )?;
        self.uses().context("with the earlier driver")?;

        self.step.message("boot again");
        self.guest.reboot()?;
        self.guest
            .run("test -d /sys/module/virtio_gpgpu")
            .context("the driver is not loaded by the boot")?;
        self.guest.is_for_members(&self.expected)?;
        self.uses().context("after a reboot")?;
        if has_pytorch {
            self.step.message("PyTorch");
            self.runs_pytorch()?;
        }

        self.step.message("remove");
        self.removes(&state)
    }

    /// The files of the guest's packages.
    fn packages(files: &[PathBuf], at: &str) -> Vec<String> {
        let mut names = in_directory(files, at);
        names.retain(|name| name.contains(DKMS) || name.contains(GUEST));
        names
    }

    fn install(&mut self, files: &[PathBuf], at: &str) -> Result<()> {
        let names = Self::packages(files, at).join(" ");
        // The compiler's errors appear nowhere else.
        let line = format!("apt-get -qq install {names} || {{ tail -n 15 {MAKE_LOG}; exit 1; }}");
        self.guest.run_for(INSTALL, &line).map(drop)
    }

    /// Checks that the packages are completely installed in this version, and that the driver is built for the running
    /// kernel.
    fn installed(&mut self, version: &str) -> Result<()> {
        let guest = &mut self.guest;
        let state = guest.run(&format!(
            "dpkg-query --show --showformat='${{Status}} ${{Version}}\\n' {DKMS} {GUEST}"
        ))?;
        let right = format!("install ok installed {version}");
        ensure!(
            state.lines().all(|line| line == right),
            "the packages are {state}"
        );
        guest.nothing(
            &format!("dpkg --verify {DKMS} {GUEST}"),
            "dpkg finds changed files",
        )?;
        // Debian 12's script reports a broken pipe.
        let built = guest.run(&format!("dkms status -m {MODULE} 2>/dev/null"))?;
        let kernel = guest.run("uname -r")?;
        ensure!(
            built.lines().count() == 1
                && built.contains(&format!("{MODULE}/{version}"))
                && built.contains(&kernel)
                && built.contains("installed"),
            "DKMS says {built}"
        );
        let signer = guest.run("modinfo --field=signer virtio_gpgpu")?;
        ensure!(!signer.is_empty(), "DKMS has not signed the driver");
        Ok(())
    }

    /// The file of the module that DKMS has built.
    fn built(&mut self) -> Result<String> {
        self.guest
            .run("stat --format='%i %y' $(modinfo --filename virtio_gpgpu)")
    }

    /// Programs need no wrapper after the administrator has linked two files.
    fn opts_in(&mut self) -> Result<()> {
        let (shared, linked) = (self.expected.one("shared")?, self.expected.one("static")?);
        self.guest.fails(Way::Plain, &shared)?;
        self.guest.run(&format!(
            "ln -s /usr/share/virtio-gpgpu/ld.so.conf {LOADER_LINK} && ldconfig"
        ))?;
        self.guest.computes(Way::Plain, &[shared], &self.expected)?;
        self.guest.fails(Way::Login, &linked)?;
        self.guest.run(&format!(
            "ln -s /usr/share/virtio-gpgpu/profile.sh {PROFILE_LINK}"
        ))?;
        self.guest.computes(Way::Login, &[linked], &self.expected)
    }

    /// Programs of each kind run with the wrapper, and some without.
    fn uses(&mut self) -> Result<()> {
        let (shared, linked) = (self.expected.one("shared")?, self.expected.one("static")?);
        let few = self.expected.of_each_kind();
        self.guest.computes(Way::Wrapper, &few, &self.expected)?;
        self.guest.computes(Way::Plain, &[shared], &self.expected)?;
        self.guest.computes(Way::Login, &[linked], &self.expected)
    }

    /// A stock PyTorch computes for a member of the group, with and without the wrapper.
    fn runs_pytorch(&mut self) -> Result<()> {
        let guest = &mut self.guest;
        guest.run(&format!("mount -t virtiofs -o ro {SHARE_TAG} {SHARED}"))?;
        let line =
            format!("env PYTHONPATH={SHARED} python3 -W ignore /srv/python/stock_pytorch.py");
        for way in [Way::Wrapper, Way::Login] {
            let said = guest.run_for(PYTORCH, &way.command(MEMBER, &line))?;
            ensure!(said.ends_with(": right"), "PyTorch ({way:?}) says:\n{said}");
        }
        guest.run(&format!("umount {SHARED}")).map(drop)
    }

    /// The purge leaves nothing.
    fn removes(&mut self, state: &str) -> Result<()> {
        let guest = &mut self.guest;
        guest.run_for(INSTALL, &format!("apt-get -qq remove {DKMS} {GUEST}"))?;
        guest.nothing(
            "find /usr/lib/modules -name 'virtio_gpgpu*'",
            "removed, and the driver is still there",
        )?;
        guest.nothing(
            &format!("ls -d {LOADER_LINK} {PROFILE_LINK} 2>/dev/null || true"),
            "removed, and the administrator's links are still there",
        )?;
        guest.run("rmmod virtio_gpgpu")?;
        guest.run_for(INSTALL, &format!("apt-get -qq purge {DKMS} {GUEST}"))?;
        guest.nothing(
            &format!("{state} | diff {BEFORE} - || true"),
            "purged, and this differs from before",
        )?;
        guest.nothing(
            "ldconfig --print-cache | grep gpgpu || true",
            "purged, and the loader still knows",
        )
    }
}
