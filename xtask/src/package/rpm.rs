// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Makes an `.rpm` of a package: RPM's fields. All systems with RPM have systemd with its triggers: files in its
//! directories create groups, reload units and apply rules. So no script does that here.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use ::rpm::{
    BuildConfig, CompressionWithLevel, Dependency, FileOptions, PackageBuilder, Scriptlet,
};
use anyhow::{Context, Result, bail};

use super::Compression;
use super::contents::{Licence, Package};
use super::depends;
use super::release::Release;

/// The release of a version, which is packed only once.
pub const RELEASE: &str = "1";
/// The file with the text of the kernel's licence on the build machine.
const GPL: &str = "/usr/share/common-licenses/GPL-2";
/// The default level of xz.
const LEVEL: u32 = 6;

/// The fields that only an RPM has.
pub struct Parts {
    /// Its requirements besides the libraries of its programs and libraries: `NAME` or `NAME >= VERSION`.
    pub requires: Vec<&'static str>,
    /// Recommended packages.
    pub recommends: Vec<&'static str>,
    /// Suggested packages.
    pub suggests: Vec<&'static str>,
    /// The scripts, by RPM's names. Their first argument is the number of installed versions of the package afterwards.
    pub scripts: Vec<(&'static str, String)>,
}

/// Packs `package` into the directory `output`, and returns the file.
pub fn build(
    package: &Package,
    release: &Release,
    output: &Path,
    compression: Compression,
) -> Result<PathBuf> {
    let architecture = if package.is_portable {
        "noarch"
    } else {
        "x86_64"
    };
    let mut builder = start(
        package.name,
        release,
        licence(&package.licence),
        architecture,
        package.summary,
        compression,
    )?;
    let lines = package.description.trim().lines().map(str::trim);
    builder
        .description(lines.collect::<Vec<_>>().join("\n"))
        .packager(&release.maintainer);
    files(&mut builder, package)?;
    licences(&mut builder, package)?;
    for one in depends::rpm(package.tree.path())? {
        builder.requires(Dependency::any(one));
    }
    let parts = &package.rpm;
    for one in &parts.requires {
        builder.requires(dependency(one));
    }
    for one in &parts.recommends {
        builder.recommends(dependency(one));
    }
    for one in &parts.suggests {
        builder.suggests(dependency(one));
    }
    for (name, script) in &parts.scripts {
        add_script(&mut builder, name, script)?;
    }
    let file = output.join(format!(
        "{}-{}-{RELEASE}.{architecture}.rpm",
        package.name, release.version
    ));
    write(&mut builder, &file)?;
    Ok(file)
}

/// An empty package, reproducible at any time and place.
pub fn start(
    name: &str,
    release: &Release,
    licence: &str,
    architecture: &str,
    summary: &str,
    compression: Compression,
) -> Result<PackageBuilder> {
    let time: u32 = release.epoch.try_into().context("too late for RPM")?;
    let packing = match compression {
        Compression::Small => CompressionWithLevel::Xz(LEVEL),
        Compression::None => CompressionWithLevel::None,
    };
    let mut builder = PackageBuilder::new(name, &release.version, licence, architecture, summary);
    builder
        .using_config(BuildConfig::v4().compression(packing).source_date(time))
        .release(RELEASE)
        .build_host("localhost");
    Ok(builder)
}

/// Writes the built package.
pub fn write(builder: &mut PackageBuilder, file: &Path) -> Result<()> {
    let cannot = || format!("cannot write {}", file.display());
    builder
        .build()
        .and_then(|built| built.write_file(file))
        .with_context(cannot)
}

/// Adds a script by its name in RPM.
pub fn add_script(builder: &mut PackageBuilder, name: &str, script: &str) -> Result<()> {
    let script = Scriptlet::new(script).prog(vec!["/bin/sh"]);
    match name {
        "post" => builder.post_install_script(script),
        "preun" => builder.pre_uninstall_script(script),
        "postun" => builder.post_uninstall_script(script),
        "posttrans" => builder.post_trans_script(script),
        _ => bail!("RPM has no script {name}"),
    };
    Ok(())
}

/// Parses a dependency: `NAME`, or `NAME >= VERSION`.
pub fn dependency(text: &str) -> Dependency {
    match text.split_once(" >= ") {
        Some((name, version)) => Dependency::greater_eq(name, version),
        None => Dependency::any(text),
    }
}

/// Adds the files of the tree. Directories belong to the package if their paths contain a name of ours.
fn files(builder: &mut PackageBuilder, package: &Package) -> Result<()> {
    let tree = package.tree.path();
    for entry in walkdir::WalkDir::new(tree).min_depth(1).sort_by_file_name() {
        let entry = entry?;
        let path = entry.path().strip_prefix(tree)?;
        let at = format!("/{}", path.display());
        let kind = entry.file_type();
        if kind.is_dir() {
            if is_own(path) {
                builder.with_dir_entry(FileOptions::dir(at).permissions(0o755))?;
            }
        } else if kind.is_symlink() {
            let target = fs::read_link(entry.path())?;
            builder.with_symlink(FileOptions::symlink(at, target.to_string_lossy()))?;
        } else {
            let mode = entry.metadata()?.permissions().mode();
            let mut options = FileOptions::new(at).permissions((mode & 0o7777) as u16);
            if path.starts_with("etc") {
                options = options.config().noreplace();
            } else if path.starts_with("usr/share/doc") || path.starts_with("usr/share/man") {
                options = options.doc();
            }
            builder.with_file_contents(fs::read(entry.path())?, options)?;
        }
    }
    Ok(())
}

/// Whether a directory belongs only to us.
fn is_own(path: &Path) -> bool {
    let mut parts = path.components();
    parts.any(|part| part.as_os_str().to_string_lossy().contains("gpgpu"))
}

/// The licence as SPDX writes it.
fn licence(licence: &Licence) -> &'static str {
    match licence {
        Licence::Rust { .. } => "Apache-2.0 OR BSD-3-Clause",
        Licence::Kernel => "GPL-2.0-only AND (GPL-2.0-only WITH Linux-syscall-note)",
    }
}

/// Adds the texts of the licences, because RPM has no common ones.
fn licences(builder: &mut PackageBuilder, package: &Package) -> Result<()> {
    let directory = format!("/usr/share/licenses/{}", package.name);
    builder.with_dir_entry(FileOptions::dir(&directory).permissions(0o755))?;
    let texts = match &package.licence {
        Licence::Rust {
            bsd,
            apache,
            crates,
        } => vec![
            ("LICENSE-Apache-2.0", apache.clone()),
            ("LICENSE-BSD-3-Clause", bsd.clone()),
            ("crates", crates.clone()),
        ],
        Licence::Kernel => {
            let text = fs::read_to_string(GPL).with_context(|| format!("cannot read {GPL}"))?;
            vec![("GPL-2.0", text)]
        }
    };
    for (name, text) in texts {
        let options = FileOptions::new(format!("{directory}/{name}"));
        builder.with_file_contents(text, options.permissions(0o644).license())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;
    use crate::paths::Paths;

    #[test]
    fn directories_of_ours_belong_to_the_package() {
        assert!(is_own(Path::new("usr/lib/virtio-gpgpu/software-gpu")));
        assert!(is_own(Path::new("usr/share/doc/vhost-device-gpgpu")));
        assert!(!is_own(Path::new("usr/share/bash-completion/completions")));
    }

    #[test]
    fn a_version_makes_a_dependency_one_of_at_least() {
        assert_eq!(dependency("dkms >= 3.0.10").to_string(), "dkms >= 3.0.10");
        assert_eq!(dependency("systemd").to_string(), "systemd");
    }

    /// The calls of tools in a script, with this number of remaining versions. Each tool succeeds and prints a line.
    fn calls(script: &str, left: u32) -> String {
        let root = Paths::find().unwrap().root;
        let tools = tempfile::tempdir().unwrap();
        let said = tools.path().join("said");
        for tool in ["systemctl", "dkms", "udevadm", "getent", "groupdel", "rm"] {
            let text = format!(
                "#!/bin/sh\necho {tool} \"$@\" | tee -a {}\n",
                said.display()
            );
            let path = tools.path().join(tool);
            fs::write(&path, text).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        }
        let path = format!("{}:/usr/bin:/bin", tools.path().display());
        let status = Command::new("sh")
            .arg(root.join("packaging").join(script))
            .arg(left.to_string())
            .env("PATH", path)
            .status()
            .unwrap();
        assert!(status.success(), "{script} {left} fails");
        fs::read_to_string(said).unwrap_or_default()
    }

    #[test]
    fn a_service_is_set_up_once_and_stopped_by_removal_alone() {
        let first = calls("vhost-device-gpgpu/rpm/post", 1);
        assert!(first.contains("systemctl --no-reload preset"), "{first}");
        let upgrade = calls("vhost-device-gpgpu/rpm/post", 2)
            + &calls("vhost-device-gpgpu/rpm/preun", 1)
            + &calls("vhost-device-gpgpu/rpm/postun", 1);
        for word in ["stop", "restart", "disable", "preset", "--now", "rm"] {
            assert!(!upgrade.contains(word), "an upgrade calls {upgrade}");
        }
        let removal = calls("vhost-device-gpgpu/rpm/preun", 0);
        assert!(removal.contains("disable"), "{removal}");
        let removed = calls("vhost-device-gpgpu/rpm/postun", 0);
        assert!(
            removed.contains("rm -rf /var/cache/virtio-gpgpu"),
            "{removed}"
        );
    }

    #[test]
    fn the_group_is_removed_with_the_last_package() {
        assert_eq!(calls("virtio-gpgpu-guest/rpm/postun", 1), "");
        let removed = calls("virtio-gpgpu-guest/rpm/postun", 0);
        assert!(removed.contains("groupdel gpgpu"), "{removed}");
    }

    #[test]
    fn the_drivers_modules_go_before_others_come() {
        for left in [0, 1] {
            let calls = calls("virtio-gpgpu-dkms/rpm/preun", left);
            assert!(calls.contains("dkms remove"), "{calls}");
        }
    }
}
