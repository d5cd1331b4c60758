// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The libraries that a package's programs and libraries are linked with. For Debian, each needed library's package, in
//! the version that has the symbols, as dpkg-shlibdeps finds them; for RPM, the libraries and versions themselves, as
//! its elfdeps finds them.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Result, bail};

use crate::process::capture;

/// Debian's packages of the libraries that our parts may need: those of the C library's package, and the compilers'
/// own.
const PACKAGES: &[(&str, &str)] = &[
    ("libc.so.6", "libc6"),
    ("libm.so.6", "libc6"),
    ("libdl.so.2", "libc6"),
    ("libpthread.so.0", "libc6"),
    ("librt.so.1", "libc6"),
    ("ld-linux-x86-64.so.2", "libc6"),
    ("libgcc_s.so.1", "libgcc-s1"),
];

/// A version of the C library's symbols.
type Version = (u32, u32);

/// The needs of a file of a package.
#[derive(Debug, Default, PartialEq, Eq)]
struct Needs {
    /// Each library, by name.
    libraries: BTreeSet<String>,
    /// The versions of symbols that it must have, as (library, version).
    versions: BTreeSet<(String, String)>,
    /// Whether symbols can only be found in the newer of the loader's two kinds of tables.
    has_new_tables_alone: bool,
}

impl Needs {
    /// The newest version of the C library's symbols.
    fn glibc(&self) -> Version {
        let of = |(_, version): &(String, String)| {
            let mut parts = version.strip_prefix("GLIBC_")?.split('.');
            let mut part = || parts.next().and_then(|part| part.parse().ok());
            Some((part()?, part().unwrap_or(0)))
        };
        self.versions.iter().filter_map(of).max().unwrap_or((0, 0))
    }
}

/// The libraries that programs and libraries below `root` need and that are not among them.
fn all(root: &Path) -> Result<Needs> {
    let mut own = BTreeSet::new();
    let mut all = Needs::default();
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
        all.libraries.extend(needs.libraries);
        all.versions.extend(needs.versions);
        all.has_new_tables_alone |= needs.has_new_tables_alone;
    }
    all.libraries.retain(|library| !own.contains(library));
    all.versions.retain(|(library, _)| !own.contains(library));
    Ok(all)
}

/// Debian's packages for all files below `root`, as entries of `Depends`.
pub fn debian(root: &Path) -> Result<Vec<String>> {
    let needs = all(root)?;
    let mut packages: BTreeMap<&str, Version> = BTreeMap::new();
    for library in &needs.libraries {
        let Some((_, package)) = PACKAGES.iter().find(|(name, _)| name == library) else {
            bail!("no package known for the needed {library}");
        };
        packages.entry(package).or_default();
    }
    if needs.glibc() > (0, 0) {
        packages.insert("libc6", needs.glibc());
    }
    Ok(packages.into_iter().map(relation).collect())
}

/// The same in the format of RPM's own tools, without the names of packages: each library, and each version of its
/// symbols.
pub fn rpm(root: &Path) -> Result<Vec<String>> {
    let needs = all(root)?;
    Ok(automatic(&needs))
}

fn automatic(needs: &Needs) -> Vec<String> {
    let libraries = needs
        .libraries
        .iter()
        .map(|name| format!("{name}()(64bit)"));
    let versions = needs
        .versions
        .iter()
        .map(|(name, version)| format!("{name}({version})(64bit)"));
    let tables = needs
        .has_new_tables_alone
        .then(|| "rtld(GNU_HASH)".to_owned());
    libraries.chain(versions).chain(tables).collect()
}

fn relation((package, version): (&str, Version)) -> String {
    match version {
        (0, 0) => package.to_owned(),
        (major, minor) => format!("{package} (>= {major}.{minor})"),
    }
}

/// Parses readelf's output for a file.
fn read(text: &str) -> Needs {
    let mut needs = Needs::default();
    let (mut has_old, mut has_new) = (false, false);
    // The library of the following versions, and whether the file needs these versions or defines them.
    let (mut library, mut is_needed) = (String::new(), false);
    for line in text.lines() {
        if line.contains("(NEEDED)") {
            let name = line
                .split_once('[')
                .and_then(|(_, rest)| rest.split_once(']'));
            needs
                .libraries
                .extend(name.map(|(name, _)| name.to_owned()));
        }
        has_new |= line.contains("(GNU_HASH)");
        has_old |= line.contains("(HASH)");
        if line.starts_with("Version ") {
            is_needed = line.starts_with("Version needs");
        }
        if !is_needed {
            continue;
        }
        if let Some((_, rest)) = line.split_once("File: ") {
            library = first_word(rest);
        }
        // The loader does not require a version that is only used weakly.
        let version = line.split_once("Name: ").map(|(_, rest)| rest);
        if let Some(version) = version.filter(|_| !line.contains("WEAK")) {
            needs
                .versions
                .insert((library.clone(), first_word(version)));
        }
    }
    needs.has_new_tables_alone = has_new && !has_old;
    needs
}

fn first_word(text: &str) -> String {
    text.split_whitespace()
        .next()
        .unwrap_or_default()
        .to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// readelf's output for a program, abridged.
    const SAID: &str = " 0x0001 (NEEDED)  Shared library: [libc.so.6]
 0x000000006ffffef5 (GNU_HASH)           0x3a8

Version definition section '.gnu.version_d' contains 1 entry:
  000000: Rev: 1  Flags: BASE  Index: 1  Cnt: 1  Name: libown.so.1

Version needs section '.gnu.version_r' contains 1 entry:
  000000: Version: 1  File: libc.so.6  Cnt: 3
  0x0010:   Name: GLIBC_2.4  Flags: none  Version: 5
  0x0020:   Name: GLIBC_2.34  Flags: none  Version: 4
  0x0030:   Name: GLIBC_2.39  Flags: WEAK  Version: 3
";

    #[test]
    fn the_newest_version_counts_unless_it_is_weak() {
        let needs = read(SAID);
        assert_eq!(needs.glibc(), (2, 34));
        assert!(needs.libraries.contains("libc.so.6"));
        assert_eq!(relation(("libc6", needs.glibc())), "libc6 (>= 2.34)");
    }

    #[test]
    fn an_rpm_names_each_library_and_each_version() {
        let right = [
            "libc.so.6()(64bit)",
            "libc.so.6(GLIBC_2.34)(64bit)",
            "libc.so.6(GLIBC_2.4)(64bit)",
            "rtld(GNU_HASH)",
        ];
        assert_eq!(automatic(&read(SAID)), right);
        let both = SAID.replace("(NEEDED)", "(HASH)");
        let without = automatic(&read(&both));
        assert!(!without.contains(&"rtld(GNU_HASH)".to_owned()));
    }
}
