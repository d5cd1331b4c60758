// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! A writable clean root. Changes are in memory, in its own mount namespace, and disappear with the last process in it,
//! however that ends.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use crate::process::{Proc, run_logged};

/// Makes a root from a clean one, and enters it. The arguments are the clean root, a working directory, and pairs of
/// directories of this machine and mount points in the root.
pub const PREPARE: &str = r#"
set -e
clean=$1
work=$2
shift 2
mount -t tmpfs -o mode=755 tmpfs "$work"
mkdir "$work/changes" "$work/scratch" "$work/root"
mount -t overlay overlay -o "lowerdir=$clean,upperdir=$work/changes,workdir=$work/scratch" "$work/root"
cd "$work/root"
mkdir -p dev proc sys run tmp mnt/host
mount -t tmpfs -o mode=755 tmpfs run
mount -t tmpfs -o mode=1777 tmpfs tmp
mount -t proc proc proc
mount --rbind /dev dev
mount --rbind /sys sys
while [ $# -gt 0 ]; do
    mkdir -p "./$2"
    mount --bind "$1" "./$2"
    shift 2
done
"#;

/// Runs after [`PREPARE`]: keeps the root until the standard input ends.
const KEEP: &str = r#"
pivot_root . mnt/host
umount -l /mnt/host
echo ready
exec cat
"#;

/// The files that a distribution's packages change on installation or removal, whatever their contents.
const SYSTEM: [&str; 11] = [
    "/etc/.pwd.lock",
    "/etc/group-",
    "/etc/gshadow-",
    "/etc/ld.so.cache",
    "/var/cache/ldconfig",
    "/var/lib/dpkg",
    "/var/lib/rpm",
    // The key that DKMS creates for all modules that it builds.
    "/var/lib/dkms/mok.",
    "/var/log",
    // The directories of deb-systemd-helper's records of all services.
    "/var/lib/systemd/deb-systemd-helper-enabled",
    "/etc/systemd/system/multi-user.target.wants",
];

/// A shell command that prints, in order, the paths of all files and directories of a root, and the lines of its users
/// and groups. It leaves out the system's own, and those that begin with one of `others`.
pub fn state(others: &[&str]) -> String {
    let mut line = "{ find / -xdev; cat /etc/passwd /etc/group /etc/gshadow; } | \
                    grep -v -e '^/usr/lib/modules/.*/modules\\.'"
        .to_owned();
    for start in SYSTEM.iter().chain(others) {
        line += &format!(" -e '^{}'", start.replace('.', "\\."));
    }
    line + " | LC_ALL=C sort"
}

/// The root, and the processes in it.
pub struct Machine {
    keeper: Proc,
    /// A process in it.
    target: u32,
    /// Whether it has its own process namespace.
    has_processes: bool,
    log: PathBuf,
    work: tempfile::TempDir,
}

impl Machine {
    /// Makes a root from `clean`, with directories of this machine mounted in it.
    pub fn start(clean: &Path, directories: &[(&Path, &str)], log: &Path) -> Result<Self> {
        let work = tempfile::tempdir().context("cannot create a temporary directory")?;
        let mut command = Command::new("unshare");
        command.args(["--mount", "sh", "-c", &format!("{PREPARE}{KEEP}"), "sh"]);
        command.arg(clean).arg(work.path());
        for (from, to) in directories {
            command.arg(from).arg(to);
        }
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut keeper = Proc::spawn(&mut command, libc::SIGKILL)?;
        let output = keeper.stdout().context("no pipe")?;
        let mut line = String::new();
        BufReader::new(output).read_line(&mut line)?;
        if line.trim() != "ready" {
            bail!("no root of its own can be made; this needs root");
        }
        let target = keeper.id();
        Ok(Self::of(keeper, target, false, log, work))
    }

    /// The root that `keeper` keeps and that contains the process `target`, with its changes in the directory `work`.
    pub fn of(
        keeper: Proc,
        target: u32,
        has_processes: bool,
        log: &Path,
        work: tempfile::TempDir,
    ) -> Self {
        Self {
            keeper,
            target,
            has_processes,
            log: log.to_path_buf(),
            work,
        }
    }

    /// The directory that holds it.
    pub fn keeper(&mut self) -> &mut Proc {
        &mut self.keeper
    }

    /// The directory that has its changes.
    pub fn work(&self) -> &Path {
        self.work.path()
    }

    /// A command that runs in it.
    pub fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new("nsenter");
        command
            .arg(format!("--target={}", self.target))
            .arg("--mount");
        if self.has_processes {
            command.args(["--pid", "--cgroup", "--ipc", "--uts", "--net"]);
        }
        command
            .args(["--", "/usr/bin/env", "-i"])
            .args(["PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C.UTF-8"])
            .args(["DEBIAN_FRONTEND=noninteractive", "HOME=/root"])
            .args(words);
        command
    }

    /// Runs a command, and returns its output.
    pub fn run(&self, words: &[&str]) -> Result<String> {
        run_logged(&mut self.command(words), None, &self.log)
            .with_context(|| format!("in the root: {}", words.join(" ")))
    }

    /// Runs a line of the shell.
    pub fn shell(&self, script: &str) -> Result<String> {
        self.run(&["sh", "-e", "-c", script])
    }

    /// Whether a path exists.
    pub fn has(&self, path: &str) -> Result<bool> {
        let answer = self.shell(&format!(
            "if [ -e '{path}' ] || [ -L '{path}' ]; then echo yes; else echo no; fi"
        ))?;
        Ok(answer.trim() == "yes")
    }

    /// The paths of all its files and directories, and the lines of its users and groups, without the system's own.
    pub fn state(&self) -> Result<BTreeSet<String>> {
        let lines = self.shell(&state(&[]))?;
        Ok(lines.lines().map(str::to_owned).collect())
    }
}
