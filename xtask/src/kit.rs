// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Everything that a demo needs, whether built here or unpacked from a bundle.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::artifacts::{self, Stage};
use crate::cache::{Inputs, is_fresh, mark_fresh, unmark};
use crate::initramfs;
use crate::kernel::{self, Kernel};
use crate::paths::Paths;
use crate::process;
use crate::programs;
use crate::setup::{self, Environment, Part};
use crate::ui::Step;
use crate::vm::{Accel, Qemu, Spec};

/// RAM of a demo's guest in MiB.
const MEMORY_MIB: u32 = 1024;
/// The driver of a balloon, which some VMs have.
const BALLOON: &str = "virtio/virtio_balloon";
/// Virtual processors of a demo's guest.
const CPUS: u32 = 2;

/// A guest that can be booted.
#[derive(Clone, Debug)]
pub struct Guest {
    /// The kernel's image.
    pub kernel: PathBuf,
    /// The kernel's release.
    pub release: String,
    /// The initramfs, without jobs.
    pub initramfs: PathBuf,
}

/// The programs with everything that they need to run.
pub struct Kit {
    /// Our parts and the programs.
    pub stage: Stage,
    /// QEMU and its guest; absent if no VM is wanted.
    pub vm: Option<(Qemu, Accel, Guest)>,
    /// The directory for logs.
    pub logs: PathBuf,
}

impl Kit {
    /// The VM's specification, with the back end at `socket`.
    pub fn spec<'a>(&'a self, socket: &'a Path) -> Result<Spec<'a>> {
        let (qemu, accel, guest) = self.vm.as_ref().context("no VM was prepared")?;
        Ok(Spec {
            qemu,
            accel: *accel,
            kernel: &guest.kernel,
            initramfs: &guest.initramfs,
            socket: Some(socket),
            disk: None,
            share: None,
            monitor: None,
            memory_mib: MEMORY_MIB,
            cpus: CPUS,
            suspends: false,
        })
    }

    /// Sets up and builds everything, with a VM of the kernel `kernel`, if given.
    pub fn build(kernel: Option<&str>) -> Result<(Self, Environment)> {
        let mut parts = vec![Part::Cuda];
        if kernel.is_some() {
            parts.push(Part::Guest);
        }
        let environment = fetch_and_compile(&parts, kernel)?;
        let stage = artifacts::lay_out(&environment.paths)?;
        let logs = environment.paths.logs();
        let mut kit = Self {
            stage,
            vm: None,
            logs,
        };
        if let Some(kernel) = kernel {
            kit.add_vm(&environment, environment.kernel(kernel)?)?;
        }
        Ok((kit, environment))
    }

    /// The stage of an earlier build, without a VM, and these `parts` of the downloads.
    pub fn staged(parts: &[Part]) -> Result<(Self, Environment)> {
        let environment = setup::run(parts)?;
        let kit = Self {
            stage: Stage {
                dir: environment.paths.stage(),
            },
            vm: None,
            logs: environment.paths.logs(),
        };
        anyhow::ensure!(
            kit.stage.backend().is_file(),
            "nothing was built yet; remedy: cargo xtask build"
        );
        Ok((kit, environment))
    }

    /// Makes this kit's VM boot `kernel`.
    pub fn add_vm(&mut self, environment: &Environment, kernel: &Kernel) -> Result<()> {
        let paths = &environment.paths;
        let qemu = Qemu::find(&kernel.root)?;
        let guest = build_guest(paths, kernel, &self.stage)?;
        let accel = match self.vm.take() {
            Some((_, accel, _)) => accel,
            None => probe(paths, &qemu, &guest.kernel, &busybox(kernel))?,
        };
        self.vm = Some((qemu, accel, guest));
        Ok(())
    }

    /// The kit of an unpacked bundle in `dir`; `results` takes the logs.
    pub fn prebuilt(dir: &Path, with_vm: bool, results: &Path) -> Result<Self> {
        let dir = dir
            .canonicalize()
            .with_context(|| format!("{} is missing", dir.display()))?;
        let stage = Stage { dir: dir.clone() };
        let logs = results.join("logs");
        fs::create_dir_all(&logs).with_context(|| format!("cannot create {}", logs.display()))?;
        let mut vm = None;
        if with_vm {
            let guest_dir = dir.join("guest");
            let release =
                fs::read_to_string(guest_dir.join("release")).context("the bundle has no guest")?;
            let guest = Guest {
                kernel: guest_dir.join("vmlinuz"),
                release: release.trim().to_owned(),
                initramfs: guest_dir.join("initramfs"),
            };
            let qemu = Qemu::in_root(&dir.join("qemu"))?;
            let accel = Accel::probe(
                &qemu,
                &guest.kernel,
                &guest_dir.join("busybox"),
                &logs.join("kvm-probe"),
            )?;
            vm = Some((qemu, accel, guest));
        }
        Ok(Self { stage, vm, logs })
    }
}

/// Fetches `parts` while cargo compiles: fetching waits for the network, and cargo for the processor. While cargo runs,
/// also finds out whether a VM of the kernel `kernel` runs under KVM, and builds the test programs.
fn fetch_and_compile(parts: &[Part], kernel: Option<&str>) -> Result<Environment> {
    let opened = setup::open()?;
    let paths = opened.paths.clone();
    std::thread::scope(|scope| {
        let compiling = scope.spawn(|| artifacts::compile(&paths));
        let beside = || -> Result<Environment> {
            let environment = opened.fetch(parts)?;
            if let Some(kernel) = kernel {
                let kernel = environment.kernel(kernel)?;
                let qemu = Qemu::find(&kernel.root)?;
                probe(&paths, &qemu, &kernel.image(), &busybox(kernel))?;
            }
            programs::build(&paths, environment.cuda()?, &paths.stage())?;
            Ok(environment)
        };
        // Show the error at once, instead of when cargo is done.
        let environment = beside().inspect_err(|_| process::end_all());
        let compiled = compiling
            .join()
            .unwrap_or_else(|_| bail!("the thread that compiles panicked"));
        let environment = environment?;
        compiled.map(|()| environment)
    })
}

/// Finds out whether VMs run under KVM here, by booting the image `kernel`. The cache keeps the answer.
pub fn probe(paths: &Paths, qemu: &Qemu, kernel: &Path, busybox: &Path) -> Result<Accel> {
    Accel::probe(qemu, kernel, busybox, &paths.cache().join("kvm-probe"))
}

/// The static busybox in the kernel's root.
pub fn busybox(kernel: &Kernel) -> PathBuf {
    kernel.root.join("usr/bin/busybox")
}

/// Builds the module and the initramfs for `kernel` if their inputs changed.
pub fn build_guest(paths: &Paths, kernel: &Kernel, stage: &Stage) -> Result<Guest> {
    let module = kernel::build_module(paths, kernel, &paths.root.join("guest-driver/kernel"))?;
    let image = paths.guest().join(&kernel.abi).join("initramfs");
    let busybox = busybox(kernel);
    let mut archive = initramfs::full(&busybox, &module, stage)?;
    let list = initramfs::add_drivers(&mut archive, kernel, &[BALLOON])?;
    archive.bytes(initramfs::FIRST, 0o644, list);
    let digest = archive.inputs(Inputs::default().text("1"))?.digest();
    if !is_fresh(&image, &digest) {
        let step = Step::new(format!("initramfs for {}", kernel.abi));
        unmark(&image);
        archive.save(&image)?;
        mark_fresh(&image, &digest)?;
        step.done(format!("{} MB", fs::metadata(&image)?.len() / 1_000_000));
    }
    Ok(Guest {
        kernel: kernel.image(),
        release: kernel.abi.clone(),
        initramfs: image,
    })
}
