// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Container images: the host's service, and the guest's part for containers that use the service through its socket.
//! Each is a minimal Debian with our package installed, and contains nothing from NVIDIA: the driver comes from the
//! host when a container starts.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::contents::{GUEST, HOST};
use super::lifecycle::parent;
use super::machine::Machine;
use super::oci::Image;
use super::release::Release;
use crate::process::capture;
use crate::ui::Step;

/// The directory of the service's sockets, which other containers share.
pub const SOCKETS: &str = "/run/gpgpu";
/// The socket that the image's own command serves.
pub const SOCKET: &str = "/run/gpgpu/vm.sock";
/// The directory of the packages while they are installed.
const PACKAGES: &str = "/srv/packages";

/// The capabilities of a container of the service, as root in it: its processes make namespaces and mounts, and become
/// an unprivileged user.
pub const CAPABILITIES: [&str; 7] = [
    "CHOWN",
    "DAC_OVERRIDE",
    "KILL",
    "SETGID",
    "SETPCAP",
    "SETUID",
    "SYS_ADMIN",
];

/// Removes the package manager's files that a container does not need: those written during the build, and
/// documentation.
const PRUNE: &str = r"
rm -f /usr/sbin/policy-rc.d /etc/.pwd.lock /etc/*- /etc/machine-id /var/lib/dpkg/*-old /var/lib/dpkg/lock*
rm -rf /usr/share/man/* /usr/share/info/* /usr/share/locale/*
find /var/cache /var/log -mindepth 1 -delete
";

/// Writes the files of a machine to standard output, reproducibly.
const PACK: [&str; 9] = [
    "tar",
    "--create",
    "--one-file-system",
    "--sort=name",
    "--numeric-owner",
    "--directory=/",
    "--exclude=./srv/packages",
    "--exclude=./mnt/host",
    ".",
];

/// Makes the images of the packages `debs`, on the root `clean`, in the directory `output`.
pub fn build(
    clean: &Path,
    debs: &[PathBuf],
    release: &Release,
    output: &Path,
    log: &Path,
) -> Result<Vec<PathBuf>> {
    let step = Step::new("images");
    fs::create_dir_all(output)?;
    let of = |name: &'static str, config: Value| -> Result<PathBuf> {
        step.message(name);
        let layer = layer(clean, debs, name, release, log)?;
        // A tag has no tilde.
        let version = release.version.replace('~', "-");
        let image = Image {
            name: format!("localhost/{name}:{version}"),
            epoch: release.epoch,
            created: created(release)?,
            config,
            layer: layer.path(),
        };
        let file = output.join(format!("{name}.oci.tar"));
        image.write(&file)?;
        Ok(file)
    };
    let made = vec![of(HOST, service())?, of(GUEST, program())?];
    step.done(format!("version {}", release.version));
    Ok(made)
}

/// The configuration of the service's image.
fn service() -> Value {
    json!({
        "Entrypoint": ["/usr/bin/vhost-device-gpgpu"],
        "Cmd": ["--gpu", "auto", "--socket-path", SOCKET],
        // The parts of the driver that the container toolkit adds if these variables, and not CDI, select them.
        "Env": ["PATH=/usr/bin:/bin", "NVIDIA_DRIVER_CAPABILITIES=compute,utility"],
        "Volumes": {SOCKETS: {}},
        "StopSignal": "SIGTERM",
        "WorkingDir": "/",
        "Labels": labels("CUDA for virtual machines and containers that have no GPU"),
    })
}

/// The configuration of an image for a program that uses it.
fn program() -> Value {
    let connection = format!("VIRTIO_GPGPU=unix:{SOCKET}");
    json!({
        "Entrypoint": ["/usr/bin/gpgpu-run"],
        "Cmd": ["/usr/bin/gpgpu-smi"],
        "Env": ["PATH=/usr/sbin:/usr/bin:/sbin:/bin", connection],
        "WorkingDir": "/",
        "Labels": labels("virtual GPU for CUDA: the guest's libraries and gpgpu-run"),
    })
}

fn labels(title: &str) -> Value {
    json!({
        "org.opencontainers.image.title": title,
        "org.opencontainers.image.licenses": "Apache-2.0 OR BSD-3-Clause",
    })
}

/// The time of the release in RFC 3339's format.
fn created(release: &Release) -> Result<String> {
    let date = format!("--date=@{}", release.epoch);
    let said = capture(Command::new("date").args(["--utc", &date, "+%Y-%m-%dT%H:%M:%SZ"]))?;
    Ok(said.trim().to_owned())
}

/// The files of a machine on which the package `name` is installed.
fn layer(
    clean: &Path,
    debs: &[PathBuf],
    name: &str,
    release: &Release,
    log: &Path,
) -> Result<tempfile::NamedTempFile> {
    let machine = Machine::start(clean, &[(parent(debs)?, PACKAGES)], log)?;
    machine.shell(&format!(
        "dpkg --install {PACKAGES}/{name}_*.deb && test -z \"$(dpkg --audit)\""
    ))?;
    machine.shell(PRUNE)?;
    // The directory of the sockets, for containers without a volume there.
    machine.run(&["mkdir", "-p", SOCKETS])?;
    let file = tempfile::NamedTempFile::new().context("cannot create a temporary file")?;
    let time = format!("--mtime=@{}", release.epoch);
    let words: Vec<&str> = PACK[..8]
        .iter()
        .copied()
        .chain([time.as_str(), PACK[8]])
        .collect();
    let status = machine
        .command(&words)
        .stdin(Stdio::null())
        .stdout(file.reopen()?)
        .stderr(Stdio::inherit())
        .status()
        .context("cannot start tar")?;
    ensure!(status.success(), "tar failed");
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::paths::Paths;

    #[test]
    fn the_compose_file_meets_the_requirements_of_the_image() {
        let root = Paths::find().unwrap().root;
        let text = fs::read_to_string(root.join("packaging/compose.yaml")).unwrap();
        let given = format!("cap_add: [{}]", CAPABILITIES.join(", "));
        assert!(text.contains(&given), "it does not say {given}");
        assert!(text.contains(&format!("VIRTIO_GPGPU: unix:{SOCKET}")));
        assert_eq!(text.matches("cap_drop: [ALL]").count(), 2);
        for image in [HOST, GUEST] {
            assert!(text.contains(&format!("image: localhost/{image}:")));
        }
    }
}
