// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Making a `.deb` of a folder: what describes the package, and `dpkg-deb`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use super::release::Release;
use super::tree::Tree;
use crate::process::capture;

/// How hard to pack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compression {
    /// As packages are handed out.
    Small,
    /// For those that are only tried.
    None,
}

impl Compression {
    fn option(self) -> &'static str {
        match self {
            Self::Small => "-Zxz",
            Self::None => "-Znone",
        }
    }
}

/// A package before it is packed.
pub struct Package {
    /// Its name.
    pub name: &'static str,
    /// `amd64` or `all`.
    pub architecture: &'static str,
    /// The section of the archive.
    pub section: &'static str,
    /// `Depends`, `Recommends` and so on, in the order in which they are written.
    pub relations: Vec<(&'static str, String)>,
    /// What it is, in less than a line.
    pub summary: &'static str,
    /// What it is, in lines.
    pub description: &'static str,
    /// The maintainer scripts, by name.
    pub scripts: Vec<(&'static str, String)>,
    /// The triggers that it activates.
    pub triggers: &'static str,
    /// The files.
    pub tree: Tree,
}

impl Package {
    /// Packs it into the folder `output`, and returns the file.
    pub fn build(
        &self,
        release: &Release,
        output: &Path,
        compression: Compression,
    ) -> Result<PathBuf> {
        let tree = &self.tree;
        let doc = format!("usr/share/doc/{}", self.name);
        tree.compressed(&format!("{doc}/changelog.gz"), release.changelog(self.name))?;
        let files = tree.files()?;
        tree.write("DEBIAN/md5sums", md5sums(tree, &files)?)?;
        // All that is below /etc is the administrator's to change.
        let conffiles: String = files
            .iter()
            .filter(|path| path.starts_with("etc"))
            .map(|path| format!("/{}\n", path.display()))
            .collect();
        if !conffiles.is_empty() {
            tree.write("DEBIAN/conffiles", conffiles)?;
        }
        if !self.triggers.is_empty() {
            tree.write("DEBIAN/triggers", self.triggers)?;
        }
        for (name, script) in &self.scripts {
            tree.program(&format!("DEBIAN/{name}"), script)?;
        }
        let control = self.control(release, installed_size(tree, &files)?);
        tree.write("DEBIAN/control", control)?;
        let file = output.join(format!(
            "{}_{}_{}.deb",
            self.name, release.version, self.architecture
        ));
        capture(
            Command::new("dpkg-deb")
                // One thread: what several write depends on how many they are.
                .args([
                    "--root-owner-group",
                    compression.option(),
                    "--threads-max=1",
                    "--build",
                ])
                .arg(tree.path())
                .arg(&file)
                .env("SOURCE_DATE_EPOCH", release.epoch.to_string()),
        )
        .with_context(|| format!("cannot pack {}", self.name))?;
        Ok(file)
    }

    fn control(&self, release: &Release, installed_size: u64) -> String {
        let mut text = format!(
            "Package: {}\nVersion: {}\nArchitecture: {}\nMaintainer: {}\nInstalled-Size: {installed_size}\n\
             Section: {}\nPriority: optional\n",
            self.name, release.version, self.architecture, release.maintainer, self.section,
        );
        for (relation, packages) in &self.relations {
            text += &format!("{relation}: {packages}\n");
        }
        text += &format!("Description: {}\n", self.summary);
        for line in self.description.trim().lines() {
            text += &match line.trim() {
                "" => " .\n".to_owned(),
                line => format!(" {line}\n"),
            };
        }
        text
    }
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

/// KiB as Debian counts them: files rounded up, and one for each link.
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
