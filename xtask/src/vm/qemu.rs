// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The QEMU for guests, and its accelerator.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Result, bail};

use super::{Spec, VIRTIOFSD};
use crate::initramfs;
use crate::process::{self, capture};

/// The first release whose generic vhost-user device can be created.
const MINIMUM: (u32, u32) = (10, 2);
/// The time limit for the first line of a guest under KVM in the probe. A guest that cannot run prints none.
const KVM_QUIET: Duration = Duration::from_secs(5);
/// The time limit for it to reach its init after that.
const KVM_PROBE: Duration = Duration::from_secs(15);

/// A QEMU that can be run.
#[derive(Clone, Debug)]
pub struct Qemu {
    command: Vec<OsString>,
    /// The directory of its modules, if it is not the built-in one.
    modules: Option<PathBuf>,
    /// The command that runs virtiofsd.
    pub(super) virtiofsd: Vec<OsString>,
    /// "QEMU 11.1.3 (Debian …)".
    pub version: String,
}

impl Qemu {
    /// The machine's own QEMU if it is new enough, otherwise the one unpacked in `root`.
    pub fn find(root: &Path) -> Result<Self> {
        let virtiofsd = vec![Path::new("/").join(VIRTIOFSD).into()];
        match Self::check(vec!["qemu-system-x86_64".into()], virtiofsd, None) {
            Ok(qemu) => Ok(qemu),
            Err(_) => Self::in_root(root),
        }
    }

    /// The QEMU of an unpacked Debian root, which runs with that root's own loader and libraries.
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

    /// A command line with only QEMU itself.
    pub(super) fn command(&self) -> Command {
        let mut words = self.command.iter();
        let mut command = Command::new(words.next().map_or_else(OsString::new, OsString::clone));
        command.args(words);
        if let Some(modules) = &self.modules {
            command.env("QEMU_MODULE_DIR", modules);
        }
        command
    }
}

fn parse_version(text: &str) -> (u32, u32) {
    let mut numbers = text.split('.').map(|part| part.parse().unwrap_or(0));
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0))
}

/// The accelerator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Accel {
    /// KVM, on the host's processor.
    Kvm,
    /// QEMU's translator, which is correct, and 5 to 20 times slower.
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

    /// Finds out which accelerator works, by booting `kernel`: that `/dev/kvm` can be opened proves nothing. The answer
    /// is kept in `memory` while the host is running.
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
            disk: None,
            share: None,
            monitor: None,
            memory_mib: 512,
            cpus: 1,
            suspends: false,
        };
        let boots = super::boots_soon(&spec, KVM_QUIET, KVM_PROBE);
        process::check_interrupted()?;
        let accel = if boots.unwrap_or(false) {
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
}
