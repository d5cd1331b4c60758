// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The disk of a guest: a clean Debian root with systemd and a kernel, in which a service runs the jobs from the serial
//! console.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::initramfs::FUNCTIONS;
use crate::package::machine::Machine;

/// The size of the file system; the file is sparse.
const SIZE: &str = "4G";

/// The prefix of the names of disks' directories.
const PREFIX: &str = "disk-";

/// The mount point of this machine's directories while the disk is made.
pub const FILES: &str = "/run/files";

/// A user of the guest who may use the device, and one who may not.
pub const MEMBER: &str = "alice";
pub const OUTSIDER: &str = "bob";

/// The service on the serial console in place of a login. It runs jobs as root, after the boot has ended. A shutdown
/// need not wait for it.
const UNIT: &str = "\
[Unit]
Description=Jobs from the serial console
After=multi-user.target

[Service]
ExecStart=/bin/sh /etc/gpgpu-jobs.sh
Environment=DEBIAN_FRONTEND=noninteractive LC_ALL=C.UTF-8 HOME=/root TERM=dumb
StandardInput=tty-force
StandardOutput=tty
TTYPath=/dev/ttyS0
TTYReset=yes
SendSIGHUP=yes
TimeoutStopSec=5

[Install]
WantedBy=default.target
";

/// The script of the service.
const SCRIPT: &str = "\
. /etc/gpgpu-functions
stty -echo
# Nothing less than a fault of the kernel's comes between the lines of a job.
dmesg --console-level alert
say_kernel
echo '==> console'
run_jobs
say_complaints
echo '==> finished'
dmesg --console-level warn
systemctl --no-block poweroff
";

/// Turns the root into that of a machine, and writes it to a disk of a given size. Files for this step only are below
/// `/run`, which is not part of the root.
const MAKE: &str = r#"
cd /
rm -f usr/sbin/policy-rc.d
: >etc/machine-id
echo guest >etc/hostname
echo '127.0.0.1 localhost guest' >etc/hosts
echo '/dev/vda / ext4 defaults 0 1' >etc/fstab
ln -s /dev/null etc/systemd/system/serial-getty@ttyS0.service
systemctl --root=/ enable gpgpu-jobs.service
cp -r run/files/. srv
rmdir mnt/host
cp boot/vmlinuz-* run/made/vmlinuz
cp boot/initrd.img-* run/made/initrd
truncate --size "$1" run/made/disk
mkdir run/whole
mount --bind / run/whole
mkfs.ext4 -q -d run/whole run/made/disk
"#;

/// A writable disk, and the kernel that boots it. It is removed when this is dropped.
pub struct Disk {
    dir: tempfile::TempDir,
}

impl Disk {
    /// Makes a disk from the root `clean`, in a temporary directory below `parent`, with directories of this machine
    /// under other names in `/srv`. `adapt` changes the root first; it finds the directories in `/run/files`.
    pub fn make(
        clean: &Path,
        files: &[(&Path, &str)],
        parent: &Path,
        log: &Path,
        adapt: impl FnOnce(&Machine) -> Result<()>,
    ) -> Result<Self> {
        fs::create_dir_all(parent)
            .with_context(|| format!("cannot create {}", parent.display()))?;
        // Remove the disks of a killed run: only one of the present runs has the cache.
        for entry in fs::read_dir(parent)?.flatten() {
            if entry.file_name().to_string_lossy().starts_with(PREFIX) {
                fs::remove_dir_all(entry.path())?;
            }
        }
        let dir = tempfile::Builder::new()
            .prefix(PREFIX)
            .tempdir_in(parent)
            .context("cannot create a directory for the disk")?;
        let places: Vec<(&Path, String)> = files
            .iter()
            .map(|(from, name)| (*from, format!("{FILES}/{name}")))
            .collect();
        let mut directories = vec![(dir.path(), "/run/made")];
        directories.extend(places.iter().map(|(from, to)| (*from, to.as_str())));
        // Another user needs access to the disk: QEMU's under libvirt.
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755))?;
        let machine = Machine::start(clean, &directories, log)?;
        for user in [MEMBER, OUTSIDER] {
            machine.run(&["useradd", "--create-home", "--shell", "/bin/bash", user])?;
        }
        adapt(&machine)?;
        for (at, text) in [
            ("/etc/systemd/system/gpgpu-jobs.service", UNIT),
            ("/etc/gpgpu-jobs.sh", SCRIPT),
            ("/etc/gpgpu-functions", FUNCTIONS),
        ] {
            machine.run(&["sh", "-c", "printf %s \"$2\" >\"$1\"", "sh", at, text])?;
        }
        machine
            .run(&["sh", "-e", "-c", MAKE, "sh", SIZE])
            .context("the disk of a guest cannot be made")?;
        Ok(Self { dir })
    }

    /// The directory of all three.
    pub fn directory(&self) -> &Path {
        self.dir.path()
    }

    /// The raw image.
    pub fn image(&self) -> PathBuf {
        self.dir.path().join("disk")
    }

    /// The kernel on the disk.
    pub fn kernel(&self) -> PathBuf {
        self.dir.path().join("vmlinuz")
    }

    /// The initramfs on the disk.
    pub fn initramfs(&self) -> PathBuf {
        self.dir.path().join("initrd")
    }
}
