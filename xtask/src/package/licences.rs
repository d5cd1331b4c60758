// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The crates that are linked into a package's programs and libraries, and the licences that must accompany them.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use serde::Deserialize;

use crate::paths::Paths;
use crate::process::capture;

/// Cargo's metadata of all crates that the workspace may use.
#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Crate>,
}

#[derive(Deserialize)]
struct Crate {
    name: String,
    version: String,
    license: Option<String>,
    manifest_path: PathBuf,
    /// Its origin; `None` for crates of the workspace.
    source: Option<String>,
}

/// The list of the crates in `parts` of the workspace, and each of their licences' texts once.
pub fn of(paths: &Paths, parts: &[&str]) -> Result<String> {
    let cargo = || {
        let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        command.current_dir(&paths.root);
        command
    };
    let text = capture(cargo().args(["metadata", "--format-version", "1", "--locked"]))?;
    let all: Metadata = serde_json::from_str(&text).context("cargo's answer cannot be read")?;
    let mut tree = cargo();
    tree.args(["tree", "--locked", "--edges", "normal", "--prefix", "none"])
        .args(["--format", "{p}", "--target", "x86_64-unknown-linux-gnu"]);
    for part in parts {
        tree.args(["--package", part]);
    }
    let tree = capture(&mut tree)?;
    let used: BTreeSet<(&str, &str)> = tree.lines().filter_map(name_and_version).collect();
    let mut list = String::from(
        "Crates of others that are linked into this package, with their licences. The texts follow.\n\n",
    );
    let mut texts: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for one in all.packages.iter().filter(|one| one.source.is_some()) {
        if !used.contains(&(one.name.as_str(), one.version.as_str())) {
            continue;
        }
        let licence = one.license.as_deref().unwrap_or("see its text");
        list += &format!("{} {}: {licence}\n", one.name, one.version);
        for text in licence_texts(
            one.manifest_path
                .parent()
                .context("a crate in no directory")?,
        )? {
            texts.entry(text).or_default().push(one.name.clone());
        }
    }
    for (text, names) in texts {
        list += &format!("\n---- {} ----\n\n{text}\n", names.join(", "));
    }
    Ok(list)
}

/// Name and version in a line such as `libc v0.2.1 (proc-macro)`.
fn name_and_version(line: &str) -> Option<(&str, &str)> {
    let mut words = line.split_whitespace();
    Some((words.next()?, words.next()?.strip_prefix('v')?))
}

/// The files of a crate that are called a licence, a notice or a copyright, in order.
fn licence_texts(directory: &Path) -> Result<Vec<String>> {
    let mut files: Vec<PathBuf> = fs::read_dir(directory)
        .with_context(|| format!("cannot read {}", directory.display()))?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            let name = name.to_ascii_uppercase();
            path.is_file()
                && [
                    "LICENSE",
                    "LICENCE",
                    "COPYING",
                    "NOTICE",
                    "COPYRIGHT",
                    "UNLICENSE",
                ]
                .iter()
                .any(|start| name.starts_with(start))
        })
        .collect();
    files.sort();
    files
        .iter()
        .map(|path| Ok(String::from_utf8_lossy(&fs::read(path)?).trim().to_owned()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crates_are_read_from_the_tree() {
        assert_eq!(
            name_and_version("libc v0.2.177 (*)"),
            Some(("libc", "0.2.177"))
        );
        assert_eq!(name_and_version(""), None);
    }
}
