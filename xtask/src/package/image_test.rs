// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Tests the images without a container runtime: their layers are unpacked into roots, and their entry points run there
//! with the namespaces and the capabilities that a runtime would give them.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use super::image::{CAPABILITIES, SOCKET, SOCKETS};
use super::lifecycle::{PROGRAM, PROGRAMS};
use super::oci;
use crate::kit::Kit;
use crate::process::{Proc, capture};
use crate::ui::Step;

/// Starts a command in a root, with directories of this machine mounted in it, and with only the capabilities of `$2`.
/// It has its own network and process namespaces, and can write only to the directories.
const RUN: &str = r#"
set -e
root=$1
capabilities=$2
directories=$3
shift 3
mount --make-rprivate /
mount --bind "$root" "$root"
cd "$root"
mount -t proc proc proc
mount -t tmpfs -o mode=755 tmpfs dev
for name in null zero full random urandom tty; do
    : >dev/$name
    mount --bind /dev/$name dev/$name
done
mkdir dev/shm
mount -t tmpfs tmpfs dev/shm
ln -s /proc/self/fd dev/fd
mount -t sysfs -o ro sysfs sys
mount -t tmpfs tmpfs tmp
for pair in $directories; do
    mkdir -p ".${pair#*:}"
    mount --bind "${pair%%:*}" ".${pair#*:}"
done
mount -o remount,bind,ro "$root"
pivot_root . mnt
cd /
umount -l /mnt
exec setpriv --no-new-privs --inh-caps=-all --bounding-set="$capabilities" -- "$@"
"#;

/// A container without a runtime.
struct Container {
    root: tempfile::TempDir,
    config: Value,
    directories: String,
    capabilities: String,
}

impl Container {
    fn new(image: &Path, directories: &[(&Path, &str)], capabilities: &[&str]) -> Result<Self> {
        let root = tempfile::tempdir().context("cannot create a temporary directory")?;
        let config = oci::unpack(image, root.path())?;
        let pairs = directories.iter().map(|(from, to)| {
            // The root is read-only when they are mounted.
            fs::create_dir_all(root.path().join(to.trim_start_matches('/')))?;
            Ok(format!("{}:{to}", from.display()))
        });
        let directories = pairs.collect::<Result<Vec<_>>>()?.join(" ");
        Ok(Self {
            root,
            config: config["config"].clone(),
            directories,
            capabilities: Self::list(capabilities),
        })
    }

    /// Capabilities in the format of `setpriv`.
    fn list(names: &[&str]) -> String {
        let given = names
            .iter()
            .map(|name| format!(",+{}", name.to_ascii_lowercase()));
        format!("-all{}", given.collect::<String>())
    }

    fn words(&self, key: &str) -> Vec<&str> {
        let list = self.config[key].as_array();
        list.into_iter()
            .flatten()
            .filter_map(Value::as_str)
            .collect()
    }

    /// The image's entry point, with `arguments` in place of the image's own if there are any.
    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new("unshare");
        command.args([
            "--mount",
            "--pid",
            "--fork",
            "--kill-child",
            "--net",
            "--ipc",
        ]);
        command.args(["--uts", "sh", "-c", RUN, "sh"]);
        command.arg(self.root.path()).arg(&self.capabilities);
        command.arg(&self.directories);
        command.args(["/usr/bin/env", "-i"]).args(self.words("Env"));
        command.args(self.words("Entrypoint"));
        match arguments {
            [] => command.args(self.words("Cmd")),
            _ => command.args(arguments),
        };
        command.stdin(Stdio::null());
        command
    }
}

/// Runs the service of the first image and a CUDA program in a container of the second.
pub fn run(kit: &Kit, images: &[PathBuf]) -> Result<()> {
    let step = Step::new("images at work");
    let [service, program] = images else {
        bail!("two images are wanted");
    };
    let sockets = tempfile::tempdir().context("cannot create a temporary directory")?;
    let shared = [(sockets.path(), SOCKETS)];
    let service = Container::new(service, &shared, &CAPABILITIES)?;
    let programs = kit.stage.programs();
    let directories = [(sockets.path(), SOCKETS), (programs.as_path(), PROGRAMS)];
    let program = Container::new(program, &directories, &[])?;

    step.message("the service starts");
    let mut command = service.command(&[]);
    command.stdout(Stdio::null()).stderr(Stdio::piped());
    let mut process = Proc::spawn(&mut command, libc::SIGTERM)?;
    let mut lines = BufReader::new(process.stderr().context("no pipe")?).lines();
    let mut said = String::new();
    while !said.contains(&format!("Listening at {SOCKET}")) {
        let Some(line) = lines.next() else {
            bail!("the service ended at once:\n{said}");
        };
        said += &format!("{}\n", line?);
    }
    // Its log is read continuously, so that it never waits for a reader.
    let log = kit.logs.join("image-service.log");
    let reader = std::thread::spawn(move || {
        for line in lines.map_while(std::result::Result::ok) {
            said += &format!("{line}\n");
        }
        let _ = fs::write(log, said);
    });

    step.message("programs run");
    let seen = capture(&mut program.command(&[]))?;
    ensure!(seen.contains("software"), "gpgpu-smi says {seen}");
    for linked in ["shared", "static"] {
        let path = format!("{PROGRAMS}/{linked}/{PROGRAM}");
        let said = capture(&mut program.command(&[&path, "--size", "small"]))?;
        ensure!(said.contains("status=ok"), "{path} says {said}");
    }

    step.message("what it needs");
    let check = [
        "--gpu",
        "software",
        "--check",
        "--socket-path",
        "/tmp/vm.sock",
    ];
    let with = service.command(&check).output()?;
    ensure!(
        with.status.success(),
        "the service cannot confine its processes: {}",
        String::from_utf8_lossy(&with.stderr)
    );
    let without: Vec<&str> = CAPABILITIES
        .into_iter()
        .filter(|name| *name != "SYS_ADMIN")
        .collect();
    let mut less = service;
    less.capabilities = Container::list(&without);
    let refused = less.command(&check).output()?;
    ensure!(
        !refused.status.success() && String::from_utf8_lossy(&refused.stderr).contains("sandbox"),
        "without CAP_SYS_ADMIN the service says {}",
        String::from_utf8_lossy(&refused.stderr)
    );
    process.stop();
    let _ = reader.join();
    step.done("the service and two programs ran in roots of their own");
    Ok(())
}
