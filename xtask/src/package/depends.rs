// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The packages that a package's programs and libraries are linked with, as dpkg-shlibdeps finds them: each needed library's package,
//! in the version that has the symbols.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Result, bail};

use crate::process::capture;

/// Debian's packages of the libraries that our parts may need: all that is in the C library's package, and what the compilers bring.
const PACKAGES: &[(&str, &str)] = &[
    ("libc.so.6", "libc6"),
    ("libm.so.6", "libc6"),
    ("libdl.so.2", "libc6"),
    ("libpthread.so.0", "libc6"),
    ("librt.so.1", "libc6"),
    ("ld-linux-x86-64.so.2", "libc6"),
    ("libgcc_s.so.1", "libgcc-s1"),
];

/// What a file of a package needs.
#[derive(Debug, Default, PartialEq, Eq)]
struct Needs {
    libraries: BTreeSet<String>,
    /// The newest version of the C library's symbols.
    glibc: (u32, u32),
}

/// The entries of `Depends` for all files below `root`, which may also need each other.
pub fn of(root: &Path) -> Result<Vec<String>> {
    let mut packages: BTreeMap<&str, (u32, u32)> = BTreeMap::new();
    let mut own = BTreeSet::new();
    let mut needed = BTreeSet::new();
    for entry in walkdir::WalkDir::new(root) {
        let entry = entry?;
        own.insert(entry.file_name().to_string_lossy().into_owned());
        if !entry.file_type().is_file() || !fs::read(entry.path())?.starts_with(b"\x7fELF") {
            continue;
        }
        let text = capture(
            Command::new("readelf")
                .args(["--wide", "--dynamic", "--version-info"])
                .arg(entry.path())
                .env("LC_ALL", "C"),
        )?;
        let needs = read(&text);
        if needs.glibc > (0, 0) {
            let newest = packages.entry("libc6").or_default();
            *newest = needs.glibc.max(*newest);
        }
        needed.extend(needs.libraries);
    }
    for library in needed.difference(&own) {
        let Some((_, package)) = PACKAGES.iter().find(|(name, _)| name == library) else {
            bail!("{library} is needed, and nobody has said which package has it");
        };
        packages.entry(package).or_default();
    }
    Ok(packages.into_iter().map(relation).collect())
}

fn relation((package, version): (&str, (u32, u32))) -> String {
    match version {
        (0, 0) => package.to_owned(),
        (major, minor) => format!("{package} (>= {major}.{minor})"),
    }
}

/// Reads what readelf says of a file.
fn read(text: &str) -> Needs {
    let mut needs = Needs::default();
    for line in text.lines() {
        if line.contains("(NEEDED)") {
            let name = line
                .split_once('[')
                .and_then(|(_, rest)| rest.split_once(']'));
            needs
                .libraries
                .extend(name.map(|(name, _)| name.to_owned()));
        }
        // The loader does without a version that is only used weakly.
        let version = line.split_once("Name: GLIBC_").map(|(_, rest)| rest);
        if let Some(version) = version.filter(|_| !line.contains("WEAK")) {
            let number = version.split_whitespace().next().unwrap_or_default();
            let mut parts = number.split('.').map(|part| part.parse().unwrap_or(0));
            let version = (parts.next().unwrap_or(0), parts.next().unwrap_or(0));
            needs.glibc = needs.glibc.max(version);
        }
    }
    needs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_version_counts_unless_it_is_weak() {
        let text = " 0x0001 (NEEDED)  Shared library: [libc.so.6]\n\
                    \x20 0x0010:   Name: GLIBC_2.4  Flags: none  Version: 5\n\
                    \x20 0x0020:   Name: GLIBC_2.34  Flags: none  Version: 4\n\
                    \x20 0x0030:   Name: GLIBC_2.39  Flags: WEAK  Version: 3\n";
        let needs = read(text);
        assert_eq!(needs.glibc, (2, 34));
        assert!(needs.libraries.contains("libc.so.6"));
        assert_eq!(relation(("libc6", needs.glibc)), "libc6 (>= 2.34)");
    }
}
