// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Makes a `.deb` of a package: Debian's fields, and `dpkg-deb`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use super::Compression;
use super::contents::{Licence, Package};
use super::depends;
use super::release::Release;
use super::tree::Tree;
use crate::process::capture;

/// The fields that only a Debian package has.
pub struct Parts {
    /// The section of the archive.
    pub section: &'static str,
    /// Its dependencies besides the libraries that its programs and libraries are linked with.
    pub depends: Vec<&'static str>,
    /// `Recommends`, `Suggests` and so on, in the order in which they are written.
    pub relations: Vec<(&'static str, &'static str)>,
    /// The maintainer scripts, by name.
    pub scripts: Vec<(&'static str, String)>,
    /// Files that exist only in Debian packages.
    pub files: Vec<(&'static str, Vec<u8>)>,
    /// The triggers that it activates.
    pub triggers: &'static str,
}

/// Packs `package` into the directory `output`, and returns the file.
pub fn build(
    package: &Package,
    release: &Release,
    output: &Path,
    compression: Compression,
) -> Result<PathBuf> {
    let (name, parts) = (package.name, &package.deb);
    let tree = &package.tree.copy()?;
    for (at, contents) in &parts.files {
        tree.write(at, contents)?;
    }
    let doc = format!("usr/share/doc/{name}");
    tree.compressed(&format!("{doc}/changelog.gz"), release.changelog(name))?;
    if let Licence::Rust { crates, .. } = &package.licence {
        tree.compressed(&format!("{doc}/crates.gz"), crates)?;
    }
    tree.write(
        &format!("{doc}/copyright"),
        copyright(&package.licence, &doc),
    )?;
    let files = tree.files()?;
    tree.write("DEBIAN/md5sums", md5sums(tree, &files)?)?;
    // Administrators may change everything below /etc.
    let conffiles: String = files
        .iter()
        .filter(|path| path.starts_with("etc"))
        .map(|path| format!("/{}\n", path.display()))
        .collect();
    if !conffiles.is_empty() {
        tree.write("DEBIAN/conffiles", conffiles)?;
    }
    if !parts.triggers.is_empty() {
        tree.write("DEBIAN/triggers", parts.triggers)?;
    }
    for (name, script) in &parts.scripts {
        tree.program(&format!("DEBIAN/{name}"), script)?;
    }
    let mut needed = depends::debian(tree.path())?;
    needed.extend(parts.depends.iter().map(|&one| one.to_owned()));
    let size = installed_size(tree, &files)?;
    let architecture = if package.is_portable { "all" } else { "amd64" };
    let control = control(package, architecture, release, &needed.join(", "), size);
    tree.write("DEBIAN/control", control)?;
    let file = output.join(format!("{name}_{}_{architecture}.deb", release.version));
    let packing = match compression {
        Compression::Small => "-Zxz",
        Compression::None => "-Znone",
    };
    capture(
        Command::new("dpkg-deb")
            // One thread, because the output of several depends on their number.
            .args(["--root-owner-group", packing, "--threads-max=1", "--build"])
            .arg(tree.path())
            .arg(&file)
            .env("SOURCE_DATE_EPOCH", release.epoch.to_string()),
    )
    .with_context(|| format!("cannot pack {name}"))?;
    Ok(file)
}

fn control(
    package: &Package,
    architecture: &str,
    release: &Release,
    needed: &str,
    installed_size: u64,
) -> String {
    let mut text = format!(
        "Package: {}\nVersion: {}\nArchitecture: {architecture}\nMaintainer: {}\nInstalled-Size: {installed_size}\n\
         Section: {}\nPriority: optional\nDepends: {needed}\n",
        package.name, release.version, release.maintainer, package.deb.section,
    );
    for (relation, packages) in &package.deb.relations {
        text += &format!("{relation}: {packages}\n");
    }
    text += &format!("Description: {}\n", package.summary);
    for line in package.description.trim().lines() {
        text += &match line.trim() {
            "" => " .\n".to_owned(),
            line => format!(" {line}\n"),
        };
    }
    text
}

/// The licence of all files, in Debian's machine-readable format.
fn copyright(licence: &Licence, doc: &str) -> String {
    let short = match licence {
        Licence::Rust { .. } => "Apache-2.0 or BSD-3-clause",
        Licence::Kernel => "GPL-2.0",
    };
    let mut text = format!(
        "Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/\n\
         Upstream-Name: virtio-gpgpu\n\n\
         Files: *\nCopyright: The virtio-gpgpu authors\nLicense: {short}\n"
    );
    match licence {
        Licence::Rust { bsd, .. } => {
            text += &format!(
                "Comment:\n Programs and libraries contain crates of others. /{doc}/crates.gz has\n their names and licences.\n"
            );
            text += "\nLicense: Apache-2.0\n /usr/share/common-licenses/Apache-2.0 has its text.\n\nLicense: BSD-3-clause\n";
            for line in bsd.trim().lines() {
                let line = if line.is_empty() { "." } else { line };
                text += &format!(" {line}\n");
            }
        }
        Licence::Kernel => {
            text += "\nFiles: uapi/linux/virtio_gpgpu.h\nCopyright: The virtio-gpgpu authors\n\
                     License: GPL-2.0 with Linux-syscall-note\n";
            text += "\nLicense: GPL-2.0\n /usr/share/common-licenses/GPL-2 has its text.\n";
            text += "\nLicense: GPL-2.0 with Linux-syscall-note\n The same. User programs that use the kernel by system calls are not derived\n \
                     works of it.\n";
        }
    }
    text
}

/// The sums of all files but those that the administrator may change.
fn md5sums(tree: &Tree, files: &[PathBuf]) -> Result<String> {
    let plain = files
        .iter()
        .filter(|path| !path.starts_with("etc") && !tree.path().join(path).is_symlink());
    capture(
        Command::new("md5sum")
            .arg("--")
            .args(plain)
            .current_dir(tree.path()),
    )
}

/// The size in KiB as Debian counts it: files are rounded up, and each link counts as one.
fn installed_size(tree: &Tree, files: &[PathBuf]) -> Result<u64> {
    let mut size = 0;
    for path in files {
        let metadata = fs::symlink_metadata(tree.path().join(path))?;
        size += match metadata.is_file() {
            true => metadata.len().div_ceil(1024),
            false => 1,
        };
    }
    Ok(size)
}
