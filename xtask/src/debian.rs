// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Debian packages without installing them: apt with a private state chooses and verifies them, and their files are
//! unpacked into a directory below `target/cache`. The machine's own packages and sources are not changed.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::kernel::Kernel;
use crate::paths::Paths;
use crate::process::{capture, run_logged};
use crate::ui::Step;

/// Keyrings that hold Debian's archive keys, under the names that Debian 12 and 13 give them.
const KEYRINGS: [&str; 2] = [
    "/usr/share/keyrings/debian-archive-keyring.pgp",
    "/usr/share/keyrings/debian-archive-keyring.gpg",
];

/// The tools that a shell, make and a kernel's build scripts require.
pub const BUILD_TOOLS: [&str; 12] = [
    "bash",
    "coreutils",
    "dash",
    "diffutils",
    "findutils",
    "gawk",
    "grep",
    "make",
    "perl",
    "sed",
    "tar",
    "xz-utils",
];

/// The address of the Debian mirror in this machine's apt configuration, in either of its formats.
pub fn mirror() -> Result<String> {
    let release = fs::read_to_string("/etc/os-release").unwrap_or_default();
    let codename = release
        .lines()
        .find_map(|line| line.strip_prefix("VERSION_CODENAME="))
        .unwrap_or("")
        .trim_matches('"');
    // apt parses its own configuration, in the one-line and deb822 formats, and prints it in one format.
    let targets = capture(Command::new("apt-get").args([
        "indextargets",
        "--format",
        "$(REPO_URI) $(RELEASE)",
    ]))
    .context("apt's configured sources cannot be read; a Debian 12 or 13 machine is needed")?;
    pick_mirror(&targets, codename).with_context(|| {
        format!(
            "apt has no source for Debian's main archive (suite {codename}); remedy: add one under /etc/apt/sources.list.d"
        )
    })
}

/// The first source of the suite `codename` (or of its alias `stable`/`oldstable`) among lines of "URI suite".
fn pick_mirror(targets: &str, codename: &str) -> Option<String> {
    let suites = ["bookworm", "trixie", "stable", "oldstable"];
    let mut sources = targets.lines().filter_map(|line| line.split_once(' '));
    let own = sources
        .clone()
        .find(|(_, suite)| !codename.is_empty() && suite.trim() == codename);
    own.or_else(|| sources.find(|(_, suite)| suites.contains(&suite.trim())))
        .map(|(uri, _)| uri.trim_end_matches('/').to_owned())
}

/// A private apt: sources, lists, status and archives are in one directory.
pub struct Apt {
    dir: PathBuf,
    logs: PathBuf,
    name: String,
}

impl Apt {
    /// Sets up apt for `suites` of Debian's main component in `dir` and fetches the package lists. Signatures are
    /// checked against the machine's own copy of Debian's keys.
    pub fn new(
        paths: &Paths,
        dir: &Path,
        name: &str,
        suites: &[&str],
        step: &Step,
    ) -> Result<Self> {
        let keyring = KEYRINGS
            .iter()
            .find(|path| Path::new(path).is_file())
            .context(
                "Debian's archive keys are missing; remedy: apt-get install debian-archive-keyring",
            )?;
        let apt = Self {
            dir: dir.to_path_buf(),
            logs: paths.logs(),
            name: name.to_owned(),
        };
        for sub in ["state/lists/partial", "cache/archives/partial"] {
            fs::create_dir_all(dir.join(sub))
                .with_context(|| format!("cannot create {}", dir.display()))?;
        }
        fs::write(dir.join("status"), "")?;
        fs::write(
            dir.join("private.sources"),
            format!(
                "Types: deb\nURIs: {}\nSuites: {}\nComponents: main\nArchitectures: amd64\nSigned-By: {keyring}\n",
                mirror()?,
                suites.join(" ")
            ),
        )?;
        let at = dir.display();
        fs::write(
            dir.join("apt.conf"),
            format!(
                "#clear APT::Update;\n#clear DPkg;\n#clear Acquire::IndexTargets::deb::DEP-11;\n\
                 #clear Acquire::IndexTargets::deb::DEP-11-icons;\n#clear Acquire::IndexTargets::deb::DEP-11-icons-small;\n\
                 #clear Acquire::IndexTargets::deb::DEP-11-icons-large;\n\
                 #clear Acquire::IndexTargets::deb::DEP-11-icons-hidpi;\n\
                 #clear Acquire::IndexTargets::deb::DEP-11-icons-large-hidpi;\n#clear Acquire::IndexTargets::deb::CNF;\n\
                 Dir::Etc::sourcelist \"{at}/private.sources\";\nDir::Etc::sourceparts \"/dev/null\";\n\
                 Dir::Etc::preferences \"/dev/null\";\nDir::Etc::preferencesparts \"/dev/null\";\n\
                 Dir::State \"{at}/state\";\nDir::State::status \"{at}/status\";\nDir::Cache \"{at}/cache\";\n\
                 APT::Sandbox::User \"\";\nAPT::Architecture \"amd64\";\n#clear APT::Architectures;\n\
                 APT::Architectures:: \"amd64\";\nAPT::Install-Recommends \"false\";\nAcquire::Languages \"none\";\n\
                 Acquire::Retries \"3\";\nquiet \"1\";\n"
            ),
        )?;
        let output = run_logged(
            apt.command("apt-get").arg("update"),
            Some(step),
            &apt.log("update"),
        )
        .map_err(|error| keyring_hint(error, suites))?;
        // apt-get update only warns about a suite that it could not verify or fetch.
        if let Some(line) = output
            .lines()
            .find(|line| line.starts_with("W:") && line.contains("NO_PUBKEY"))
        {
            return Err(keyring_hint(anyhow::anyhow!("{line}"), suites));
        }
        Ok(apt)
    }

    fn log(&self, what: &str) -> PathBuf {
        self.logs.join(format!("apt-{}-{what}.log", self.name))
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command
            .arg("-c")
            .arg(self.dir.join("apt.conf"))
            .env("LC_ALL", "C.UTF-8")
            .env("DEBIAN_FRONTEND", "noninteractive");
        command
    }

    /// The versions of `package`, each with its suite, newest first.
    pub fn versions(&self, package: &str) -> Result<Vec<(String, String)>> {
        let text = capture(self.command("apt-cache").args(["madison", package]))?;
        Ok(text.lines().filter_map(parse_madison).collect())
    }

    /// The names that `package` in this `version` depends on.
    pub fn depends(&self, package: &str, version: Option<&str>) -> Result<Vec<String>> {
        let wanted = version.map_or_else(
            || package.to_owned(),
            |version| format!("{package}={version}"),
        );
        let text = capture(self.command("apt-cache").args(["show", &wanted]))?;
        let line = text
            .lines()
            .find_map(|line| line.strip_prefix("Depends: "))
            .unwrap_or("");
        Ok(line
            .split([',', '|'])
            .filter_map(|part| part.split_whitespace().next())
            .map(str::to_owned)
            .collect())
    }

    /// Downloads `packages` with all their dependencies, preferring `release`, and returns the amount of data.
    pub fn fetch(&self, packages: &[String], release: &str, step: &Step) -> Result<String> {
        let output = run_logged(
            self.command("apt-get")
                .args([
                    "install",
                    "--yes",
                    "--download-only",
                    "--target-release",
                    release,
                ])
                .args(packages),
            Some(step),
            &self.log("fetch"),
        )?;
        Ok(fetched(&output))
    }

    /// Downloads `packages` alone, without their dependencies.
    pub fn fetch_alone(&self, packages: &[String], step: &Step) -> Result<String> {
        let output = run_logged(
            self.command("apt-get")
                .arg("download")
                .args(packages)
                .current_dir(self.dir.join("cache/archives")),
            Some(step),
            &self.log("download"),
        )?;
        Ok(fetched(&output))
    }

    /// The archives that were downloaded, in order.
    pub fn archives(&self) -> Result<Vec<PathBuf>> {
        let mut archives: Vec<_> = fs::read_dir(self.dir.join("cache/archives"))?
            .filter_map(|entry| entry.ok().map(|entry| entry.path()))
            .filter(|path| path.extension().is_some_and(|extension| extension == "deb"))
            .collect();
        archives.sort();
        Ok(archives)
    }

    /// Unpacks every archive that was downloaded into `root`. No maintainer script runs.
    pub fn unpack(&self, root: &Path, step: &Step) -> Result<()> {
        // Debian has a merged /usr, but packages of Debian 12 still use both paths.
        for dir in ["bin", "sbin", "lib", "lib64"] {
            fs::create_dir_all(root.join("usr").join(dir))?;
            let link = root.join(dir);
            if fs::symlink_metadata(&link).is_err() {
                std::os::unix::fs::symlink(format!("usr/{dir}"), link)?;
            }
        }
        let archives = self.archives()?;
        for archive in archives {
            let name = archive
                .file_name()
                .unwrap_or_default()
                .to_string_lossy()
                .into_owned();
            step.message(&name);
            unpack_archive(&archive, root, &self.log("unpack"))
                .with_context(|| format!("cannot unpack {name}"))?;
        }
        // The set-up that maintainer scripts would have done.
        for (link, target) in [("usr/bin/sh", "dash"), ("usr/bin/awk", "gawk")] {
            let link = root.join(link);
            if fs::symlink_metadata(&link).is_err() {
                std::os::unix::fs::symlink(target, link)?;
            }
        }
        for dir in ["dev", "proc", "tmp", "build"] {
            fs::create_dir_all(root.join(dir))?;
        }
        Ok(())
    }
}

/// Unpacks one `.deb` into `root`, and follows existing links.
pub fn unpack_archive(archive: &Path, root: &Path, log: &Path) -> Result<()> {
    let script = "set -o pipefail; dpkg-deb --fsys-tarfile \"$1\" | \
                  tar --extract --directory \"$2\" --keep-directory-symlink --no-same-owner";
    run_logged(
        Command::new("bash")
            .args(["-c", script, "bash"])
            .arg(archive)
            .arg(root),
        None,
        log,
    )?;
    Ok(())
}

fn parse_madison(line: &str) -> Option<(String, String)> {
    let mut parts = line.split('|').map(str::trim);
    let version = parts.nth(1)?;
    let suite = parts.next()?.split_whitespace().nth(1)?.split('/').next()?;
    Some((version.to_owned(), suite.to_owned()))
}

fn fetched(output: &str) -> String {
    output
        .lines()
        .find_map(|line| {
            line.strip_prefix("Fetched ")
                .and_then(|rest| rest.split(" in ").next())
        })
        .unwrap_or("nothing new")
        .to_owned()
}

fn keyring_hint(error: anyhow::Error, suites: &[&str]) -> anyhow::Error {
    let text = format!("{error:#}");
    if text.contains("NO_PUBKEY") || text.contains("is not signed") {
        return error.context(format!(
            "this machine's Debian keys are too old for {}; remedy: apt-get update && apt-get install debian-archive-keyring",
            suites.join(", ")
        ));
    }
    error.context(format!(
        "the package lists of {} cannot be fetched",
        suites.join(", ")
    ))
}

/// A root with kernels' headers, their compiler and other packages of that Debian release.
pub struct RootSpec {
    /// The name of the cache entry and of the Debian release: `trixie` or `bookworm`.
    pub name: &'static str,
    /// The suites of the packages; the preferred one is last.
    pub suites: &'static [&'static str],
    /// Packages besides the build tools and the kernel headers.
    pub extra: &'static [&'static str],
    /// Whether the kernels themselves are needed in order to boot them.
    pub bootable: bool,
}

/// QEMU, virtiofsd, both guest kernels that VMs boot, and the packages that build modules for them.
pub const TRIXIE: RootSpec = RootSpec {
    name: "trixie",
    suites: &["trixie", "trixie-backports"],
    // libelf1t64 and libdw1t64: the newer kernel's build tools need those of the same suite.
    extra: &[
        "qemu-system-x86",
        "virtiofsd",
        "busybox-static",
        "libelf1t64",
        "libdw1t64",
    ],
    bootable: true,
};

/// The oldest kernel that the module is built for, and its headers.
pub const BOOKWORM: RootSpec = RootSpec {
    name: "bookworm",
    suites: &["bookworm"],
    extra: &[],
    bootable: true,
};

/// Incremented when [`make_root`] makes something else of the same packages.
const RECIPE: u32 = 1;

impl RootSpec {
    /// The recipe in the cache entry's stamp.
    pub fn recipe(&self) -> String {
        format!(
            "{RECIPE} {:?} {:?} {:?} {}",
            self.suites, self.extra, BUILD_TOOLS, self.bootable
        )
    }
}

/// Fetches and unpacks the root that `spec` describes into the empty directory `root`.
pub fn make_root(paths: &Paths, spec: &RootSpec, root: &Path) -> Result<()> {
    let what = match (spec.bootable, spec.extra.is_empty()) {
        (true, false) => "QEMU, guest kernels, headers and compiler",
        (true, true) => "kernel, headers and compiler",
        (false, _) => "kernel headers and compiler",
    };
    let step = Step::new(format!("Debian {} root: {what}", spec.name));
    let private = tempfile::Builder::new()
        .prefix("apt-")
        .tempdir_in(root.parent().unwrap_or(root))?;
    let apt = Apt::new(paths, private.path(), spec.name, spec.suites, &step)?;

    let meta = "linux-headers-cloud-amd64";
    let mut headers = Vec::new();
    for suite in spec.suites {
        let versions = apt.versions(meta)?;
        if let Some((version, _)) = versions.iter().find(|(_, of)| of == suite) {
            let names = apt.depends(meta, Some(version))?;
            headers.extend(
                names
                    .into_iter()
                    .filter(|name| name.starts_with("linux-headers-")),
            );
        }
    }
    headers.dedup();
    if headers.is_empty() {
        bail!("{meta} is in none of {}", spec.suites.join(", "));
    }
    let mut packages: Vec<String> = BUILD_TOOLS
        .iter()
        .chain(spec.extra)
        .map(|name| (*name).to_owned())
        .collect();
    packages.extend(headers.iter().cloned());
    crate::ui::download(
        &format!("Debian {} packages for {what}", spec.name),
        if spec.bootable {
            "90 to 200 MB"
        } else {
            "about 90 MB"
        },
        "each package's own, mostly GPL and LGPL; texts in usr/share/doc",
    );
    let mut size = apt.fetch(&packages, spec.suites.last().unwrap_or(&spec.name), &step)?;
    apt.unpack(root, &step)?;
    if spec.bootable {
        let missing = missing_kernels(&apt, root, &headers)?;
        if !missing.is_empty() {
            for entry in fs::read_dir(private.path().join("cache/archives"))?.flatten() {
                if entry
                    .path()
                    .extension()
                    .is_some_and(|extension| extension == "deb")
                {
                    fs::remove_file(entry.path())?;
                }
            }
            size = format!("{size} and {}", apt.fetch_alone(&missing, &step)?);
            apt.unpack(root, &step)?;
            if let Some(still) = missing_kernels(&apt, root, &headers)?.first() {
                bail!("the package {still} holds no kernel where this program looks for it");
            }
        }
    }
    step.done(format!("fetched {size}"));
    Ok(())
}

/// The kernel packages whose headers are available, but which are not available themselves.
fn missing_kernels(apt: &Apt, root: &Path, headers: &[String]) -> Result<Vec<String>> {
    let mut missing = Vec::new();
    for abi in headers
        .iter()
        .filter_map(|name| name.strip_prefix("linux-headers-"))
    {
        if (Kernel {
            abi: abi.to_owned(),
            root: root.to_path_buf(),
        })
        .image()
        .is_file()
        {
            continue;
        }
        // Newer packaging has the kernel in a separate package, on which the image package depends.
        let image = format!("linux-image-{abi}");
        let binary = format!("linux-binary-{abi}");
        let depends = apt.depends(&image, None)?;
        missing.push(if depends.contains(&binary) {
            binary
        } else {
            image
        });
    }
    Ok(missing)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mirror_is_the_source_of_this_release() {
        let targets = "http://a.example/debian-security/ bookworm-security\n\
                       http://b.example/other/ nodistro\n\
                       http://c.example/debian/ bookworm\n\
                       http://c.example/debian/ bookworm-updates\n";
        assert_eq!(
            pick_mirror(targets, "bookworm").as_deref(),
            Some("http://c.example/debian")
        );
        // Sources that refer to the release by its alias.
        let alias = "http://d.example/debian stable\n";
        assert_eq!(
            pick_mirror(alias, "trixie").as_deref(),
            Some("http://d.example/debian")
        );
        assert_eq!(
            pick_mirror("http://e.example/ubuntu noble\n", "noble2"),
            None
        );
    }

    #[test]
    fn versions_come_with_their_suite() {
        let line = " linux-headers-cloud-amd64 | 6.12.1-1 | http://a.example/debian trixie/main amd64 Packages";
        assert_eq!(
            parse_madison(line),
            Some(("6.12.1-1".to_owned(), "trixie".to_owned()))
        );
        assert_eq!(parse_madison("N: Unable to locate package x"), None);
    }
}
