// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Clean Debian roots. Unlike in the roots with kernels' headers, packages are installed there by their own dpkg and
//! with their maintainer scripts, as on a machine.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::cache::Cache;
use crate::debian::{Apt, unpack_archive};
use crate::paths::Paths;
use crate::process::run_logged;
use crate::ui::{self, Step};

/// A release of Debian.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Debian {
    /// Debian 12.
    Bookworm,
    /// Debian 13.
    Trixie,
}

impl Debian {
    /// The suite's name.
    pub fn suite(self) -> &'static str {
        match self {
            Self::Bookworm => "bookworm",
            Self::Trixie => "trixie",
        }
    }
}

/// The packages of a machine on which ours are installed, besides Debian's essential ones: our dependencies, the
/// headers of a kernel to build the driver for, the libraries of the test programs, and RPM.
const PACKAGES: [&str; 9] = [
    "?essential",
    "systemd",
    "udev",
    "passwd",
    "procps",
    "dkms",
    "linux-headers-cloud-amd64",
    "libstdc++6",
    "rpm",
];

/// The packages of a container image, besides Debian's essential ones: our dependencies, no systemd, and those that are
/// needed to run commands in the root.
const IN_IMAGE: [&str; 4] = [
    "?essential",
    "procps",
    "systemd-standalone-sysusers",
    "mount",
];

/// The packages on the disk of a guest, besides Debian's essential ones: those that boot and administer it, our
/// dependencies, the libraries of the test programs, and Python.
const IN_GUEST: [&str; 18] = [
    "?essential",
    "apt",
    "e2fsprogs",
    "adduser",
    "login",
    "passwd",
    "systemd-sysv",
    "dbus",
    "udev",
    "procps",
    "openssl",
    "linux-image-cloud-amd64",
    "initramfs-tools",
    "zstd",
    "dkms",
    "linux-headers-cloud-amd64",
    "libstdc++6",
    "python3",
];

/// The packages of a host whose VMs libvirt manages, besides Debian's essential ones: libvirt, a QEMU that is new
/// enough, and our dependencies.
const WITH_LIBVIRT: [&str; 12] = [
    "?essential",
    "systemd-sysv",
    "dbus",
    "passwd",
    "procps",
    "libvirt-daemon-system",
    "libvirt-clients",
    "qemu-system-x86/trixie-backports",
    "qemu-system-common/trixie-backports",
    "qemu-system-data/trixie-backports",
    "seabios/trixie-backports",
    "qemu-utils/trixie-backports",
];

/// The packages that other maintainer scripts require, in the order in which they are installed.
const FIRST: [&str; 2] = ["base-passwd", "base-files"];

/// Incremented when something else is made of the same packages.
const RECIPE: u32 = 1;

/// Installs the archives of `/archives` in this root, those of the first argument before all others.
const INSTALL: &str = r#"
set -e
export DEBIAN_FRONTEND=noninteractive LC_ALL=C.UTF-8
# No service starts here.
printf '#!/bin/sh\nexit 101\n' >/usr/sbin/policy-rc.d
chmod 755 /usr/sbin/policy-rc.d
for first in $1; do
    dpkg --force-depends --install /archives/${first}_*.deb
done
dpkg --force-depends --unpack /archives/*.deb
dpkg --configure --pending
test -z "$(dpkg --audit)"
"#;

/// A machine on which packages are installed.
pub const CLEAN: Of = Of {
    name: "clean",
    packages: &PACKAGES,
    what: "its essential packages, systemd, DKMS, a compiler and a kernel's headers",
    size: "about 100 MB",
};

/// The base of container images.
pub const IMAGE: Of = Of {
    name: "image",
    packages: &IN_IMAGE,
    what: "its essential packages",
    size: "about 30 MB",
};

/// The root of a guest's disk.
pub const GUEST: Of = Of {
    name: "guest",
    packages: &IN_GUEST,
    what: "its essential packages, a kernel with headers, systemd, DKMS, a compiler and Python",
    size: "about 170 MB",
};

/// A host with libvirt, for Debian 13, with the QEMU of its backports.
pub const LIBVIRT: Of = Of {
    name: "libvirt",
    packages: &WITH_LIBVIRT,
    what: "its essential packages, systemd, libvirt and QEMU",
    size: "about 120 MB",
};

/// The recipe of a root.
pub struct Of {
    name: &'static str,
    packages: &'static [&'static str],
    /// A description with the download size.
    what: &'static str,
    size: &'static str,
}

impl Of {
    /// The root of a release, which is made if it does not exist.
    pub fn ensure(&self, paths: &Paths, cache: &Cache, debian: Debian) -> Result<PathBuf> {
        let suite = debian.suite();
        let recipe = format!("{RECIPE} {:?} {FIRST:?} {INSTALL}", self.packages);
        cache.entry(&format!("{}-{suite}", self.name), &recipe, |root| {
            make(paths, suite, root, self)
        })
    }
}

fn make(paths: &Paths, suite: &str, root: &Path, of: &Of) -> Result<()> {
    let step = Step::new(format!("{} Debian {suite} root", of.name));
    let private = tempfile::Builder::new()
        .prefix("apt-")
        .tempdir_in(root.parent().unwrap_or(root))?;
    ui::download(
        &format!("Debian {suite}: {}", of.what),
        of.size,
        "each package's own, mostly GPL and LGPL; texts in usr/share/doc",
    );
    let name = format!("{}-{suite}", of.name);
    let backports = format!("{suite}-backports");
    let mut suites = vec![suite];
    // This must be requested: by default packages come from the release.
    if of.packages.iter().any(|one| one.ends_with(&backports)) {
        suites.push(&backports);
    }
    let apt = Apt::new(paths, private.path(), &name, &suites, &step)?;
    let packages: Vec<String> = of.packages.iter().map(|&one| one.to_owned()).collect();
    let size = apt.fetch(&packages, suite, &step)?;
    // All files must exist before dpkg can run there, because dpkg and the scripts need each other.
    for dir in ["bin", "sbin", "lib", "lib64"] {
        fs::create_dir_all(root.join("usr").join(dir))?;
        std::os::unix::fs::symlink(format!("usr/{dir}"), root.join(dir))?;
    }
    let log = paths.logs().join(format!("{name}.log"));
    for archive in apt.archives()? {
        unpack_archive(&archive, root, &log)
            .with_context(|| format!("cannot unpack {}", archive.display()))?;
    }
    for dir in ["archives", "proc", "dev", "var/lib/dpkg"] {
        fs::create_dir_all(root.join(dir))?;
    }
    for file in ["status", "available"] {
        fs::write(root.join("var/lib/dpkg").join(file), "")?;
    }
    let script = "mount -t proc proc \"$1/proc\" && mount --rbind /dev \"$1/dev\" && mount --bind \"$2\" \"$1/archives\" \
                  && exec chroot \"$1\" /usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin sh -c \"$3\" sh \"$4\"";
    run_logged(
        Command::new("unshare")
            .args(["--mount", "sh", "-c", script, "sh"])
            .arg(root)
            .arg(private.path().join("cache/archives"))
            .arg(INSTALL)
            .arg(FIRST.join(" ")),
        Some(&step),
        &log,
    )
    .context("the packages cannot be installed in a root of their own; root is needed")?;
    fs::remove_dir(root.join("archives"))?;
    step.done(format!("fetched {size}"));
    Ok(())
}
