// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The contents of each package and their paths: one description for all formats.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::release::Release;
use super::tree::Tree;
use super::{deb, licences, rpm};
use crate::artifacts::Stage;
use crate::paths::Paths;

/// The host's package.
pub const HOST: &str = "vhost-device-gpgpu";
/// The guest's kernel driver.
pub const DKMS: &str = "virtio-gpgpu-dkms";
/// The guest's libraries and tools.
pub const GUEST: &str = "virtio-gpgpu-guest";
/// The name of the driver's source for DKMS.
pub const MODULE: &str = "virtio-gpgpu";

/// The source of systemd-sysusers, which creates groups: Debian's packages, and the file that every RPM of it contains.
const DEBIAN_SYSUSERS: &str = "systemd | systemd-standalone-sysusers | systemd-sysusers";
const RPM_SYSUSERS: &str = "/usr/bin/systemd-sysusers";
const COMPLETIONS: &str = "usr/share/bash-completion/completions";

/// A package before it is packed: the fields that all formats share, and those of each format.
pub struct Package {
    /// Its name.
    pub name: &'static str,
    /// Whether its files are the same on all processors.
    pub is_portable: bool,
    /// The summary, in less than a line.
    pub summary: &'static str,
    /// The description, in lines.
    pub description: &'static str,
    /// The licence of its files.
    pub licence: Licence,
    /// The files. Administrators may change those below `etc`.
    pub tree: Tree,
    /// The further fields of a Debian package.
    pub deb: deb::Parts,
    /// The further fields of an RPM.
    pub rpm: rpm::Parts,
}

/// The licence of a package's files, and the texts that go with them.
#[derive(Clone, Debug)]
pub enum Licence {
    /// Apache-2.0 or BSD-3-Clause, whose text this is.
    Rust {
        /// The text of the BSD licence.
        bsd: String,
        /// The text of the Apache licence.
        apache: String,
        /// The crates of others that are linked in, with their licences.
        crates: String,
    },
    /// GPL-2.0, as the kernel.
    Kernel,
}

/// All packages, their trees filled.
pub fn all(paths: &Paths, stage: &Stage, release: &Release) -> Result<Vec<Package>> {
    let from = |name| Source { paths, stage, name };
    Ok(vec![
        host(&from(HOST))?,
        dkms(&from(DKMS), release)?,
        guest(&from(GUEST))?,
    ])
}

/// The source of the files of the package `name`.
struct Source<'a> {
    paths: &'a Paths,
    stage: &'a Stage,
    name: &'static str,
}

impl Source<'_> {
    /// A file of the repository.
    fn read(&self, path: &str) -> Result<Vec<u8>> {
        fs::read(self.paths.root.join(path)).with_context(|| format!("cannot read {path}"))
    }

    /// A file that exists for this package only.
    fn own(&self, name: &str) -> Result<Vec<u8>> {
        self.read(&format!("packaging/{}/{name}", self.name))
    }

    /// Its scripts in one of its own directories.
    fn scripts(
        &self,
        directory: &str,
        names: &[&'static str],
    ) -> Result<Vec<(&'static str, String)>> {
        let script = |name| {
            let text = self.own(&format!("{directory}{name}"))?;
            Ok((name, String::from_utf8(text)?))
        };
        names.iter().copied().map(script).collect()
    }

    /// The licence of our own programs and libraries, which are built from these parts of the workspace.
    fn licence(&self, parts: &[&str]) -> Result<Licence> {
        Ok(Licence::Rust {
            bsd: String::from_utf8(self.read("LICENSE-BSD-3-Clause")?)?,
            apache: String::from_utf8(self.read("LICENSE-APACHE")?)?,
            crates: licences::of(self.paths, parts)?,
        })
    }

    fn page(&self, tree: &Tree, path: &str) -> Result<()> {
        let name = path.rsplit('/').next().unwrap_or(path);
        tree.compressed(&format!("usr/share/man/man1/{name}.gz"), self.read(path)?)
    }

    fn program(&self, tree: &Tree, name: &str) -> Result<()> {
        let path = self.stage.dir.join("bin").join(name);
        let program = fs::read(&path).with_context(|| format!("{} is missing", path.display()))?;
        tree.program(&format!("usr/bin/{name}"), program)
    }

    /// The libraries of a directory of the stage, and the links among them.
    fn libraries(&self, tree: &Tree, directory: &Path, to: &str) -> Result<()> {
        let mut paths: Vec<PathBuf> = fs::read_dir(directory)
            .with_context(|| format!("{} is missing", directory.display()))?
            .filter_map(|entry| Some(entry.ok()?.path()))
            .collect();
        paths.sort();
        for path in paths {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            // The build's own marker files.
            if !name.starts_with("lib") || name.ends_with(".source") {
                continue;
            }
            let at = format!("{to}/{name}");
            match fs::read_link(&path) {
                Ok(target) => tree.link(&target, &at)?,
                Err(_) => tree.write(&at, fs::read(&path)?)?,
            }
        }
        Ok(())
    }
}

fn host(from: &Source) -> Result<Package> {
    let tree = Tree::new()?;
    from.program(&tree, "vhost-device-gpgpu")?;
    from.libraries(
        &tree,
        &from.stage.software_gpu(),
        "usr/lib/virtio-gpgpu/software-gpu",
    )?;
    from.page(&tree, "docs/vhost-device-gpgpu.1")?;
    tree.write(
        "usr/lib/systemd/system/vhost-device-gpgpu.service",
        from.read("qemu-config/vhost-device-gpgpu.service")?,
    )?;
    tree.write(
        "usr/lib/sysusers.d/vhost-device-gpgpu.conf",
        from.own("sysusers.conf")?,
    )?;
    tree.write(
        &format!("{COMPLETIONS}/vhost-device-gpgpu"),
        from.own("completion.bash")?,
    )?;
    tree.write("etc/default/vhost-device-gpgpu", from.own("default")?)?;
    tree.directory("etc/virtio-gpgpu")?;
    let examples = format!("usr/share/doc/{HOST}/examples");
    for path in [
        "docs/examples/policy.toml",
        "docs/examples/prometheus.yml",
        "qemu-config/qemu.sh",
        "qemu-config/cloud-hypervisor.sh",
        "qemu-config/libvirt-domain.xml",
    ] {
        let name = path.rsplit('/').next().unwrap_or(path);
        let at = format!("{examples}/{name}");
        match name.ends_with(".sh") {
            true => tree.program(&at, from.read(path)?)?,
            false => tree.write(&at, from.read(path)?)?,
        }
    }
    let crates = [
        "vhost-device-gpgpu",
        "gpgpu-software-gpu",
        "gpgpu-software-cublas",
        "gpgpu-software-cupti",
        "gpgpu-software-cusolver",
        "gpgpu-software-cusparse",
        "gpgpu-software-cusparselt",
        "gpgpu-software-cudnn",
        "gpgpu-software-cufft",
        "gpgpu-software-curand",
        "gpgpu-software-nvjpeg",
        "gpgpu-software-nvml",
    ];
    Ok(Package {
        name: from.name,
        is_portable: false,
        summary: "run CUDA for virtual machines that have no GPU",
        description: "
            A vhost-user back end for the virtio-gpgpu device. CUDA programs of virtual
            machines under QEMU or Cloud Hypervisor run on this host's NVIDIA GPU, for
            many machines at once.

            The host needs NVIDIA's driver, of CUDA 12.4 or later. Without a GPU a
            software GPU, which is in this package, runs kernels on the processor.

            An upgrade does not restart the service, because that ends the virtual
            machines that QEMU runs on it.",
        licence: from.licence(&crates)?,
        tree,
        deb: deb::Parts {
            section: "admin",
            // The unit uses kill, which is in procps.
            depends: vec!["procps", DEBIAN_SYSUSERS],
            relations: vec![("Suggests", "libcuda1, qemu-system-x86 (>= 1:10.2)")],
            scripts: from.scripts("", &["postinst", "prerm", "postrm"])?,
            // needrestart exists only in Debian.
            files: vec![(
                "etc/needrestart/conf.d/vhost-device-gpgpu.conf",
                from.own("needrestart.conf")?,
            )],
            triggers: "",
        },
        rpm: rpm::Parts {
            requires: vec!["systemd", "/usr/bin/kill", RPM_SYSUSERS],
            recommends: vec![],
            suggests: vec!["libcuda.so.1()(64bit)", "qemu-kvm"],
            scripts: from.scripts("rpm/", &["post", "preun", "postun"])?,
        },
    })
}

fn dkms(from: &Source, release: &Release) -> Result<Package> {
    let tree = Tree::new()?;
    let directory = from.paths.root.join("guest-driver/kernel");
    let at = format!("usr/src/{MODULE}-{}", release.version);
    for entry in walkdir::WalkDir::new(&directory).sort_by_file_name() {
        let entry = entry?;
        let path = entry.path().strip_prefix(&directory)?.to_string_lossy();
        let is_source = ["Kbuild", "Makefile"].contains(&path.as_ref())
            || path.ends_with(".c") && !path.ends_with(".mod.c")
            || path.ends_with(".h");
        if entry.file_type().is_file() && is_source {
            tree.write(&format!("{at}/{path}"), fs::read(entry.path())?)?;
        }
    }
    let conf = String::from_utf8(from.read("guest-driver/kernel/dkms.conf")?)?;
    tree.write(
        &format!("{at}/dkms.conf"),
        with_version(&conf, &release.version)?,
    )?;
    tree.write(
        "usr/lib/modules-load.d/virtio-gpgpu.conf",
        from.own("modules-load.conf")?,
    )?;
    tree.compressed(
        &format!("usr/share/doc/{DKMS}/README.md.gz"),
        from.read("guest-driver/kernel/README.md")?,
    )?;
    let scripts = |directory, names| -> Result<Vec<_>> {
        let mut scripts = from.scripts(directory, names)?;
        for (_, script) in &mut scripts {
            *script = script.replace("@VERSION@", &release.version);
        }
        Ok(scripts)
    };
    Ok(Package {
        name: from.name,
        is_portable: true,
        summary: "virtual GPU for CUDA: the guest's kernel driver, as DKMS source",
        description: "
            The kernel driver of the virtio-gpgpu device, through which CUDA programs of
            this virtual machine run on its host's GPU. It carries bytes and pins memory;
            it knows nothing of CUDA.

            DKMS builds it for each kernel from 6.1 on whose headers are installed.",
        licence: Licence::Kernel,
        tree,
        deb: deb::Parts {
            section: "kernel",
            depends: vec!["dkms (>= 3.0.10)"],
            relations: vec![("Recommends", GUEST)],
            scripts: scripts("", &["postinst", "prerm"])?,
            files: vec![],
            triggers: "",
        },
        rpm: rpm::Parts {
            requires: vec!["dkms >= 3.0.10"],
            recommends: vec![GUEST],
            suggests: vec![],
            scripts: scripts("rpm/", &["preun", "posttrans"])?,
        },
    })
}

/// The configuration of DKMS for this version of the package.
fn with_version(conf: &str, version: &str) -> Result<String> {
    let start = "PACKAGE_VERSION=";
    let line = conf.lines().find(|line| line.starts_with(start));
    let line = line.context("dkms.conf has no version")?;
    Ok(conf.replace(line, &format!("{start}\"{version}\"")))
}

fn guest(from: &Source) -> Result<Package> {
    let tree = Tree::new()?;
    for name in ["gpgpu-run", "gpgpu-smi"] {
        from.program(&tree, name)?;
    }
    from.libraries(&tree, &from.stage.shims(), "usr/lib/virtio-gpgpu")?;
    from.page(&tree, "guest-driver/preload/gpgpu-run.1")?;
    from.page(&tree, "guest-driver/smi/gpgpu-smi.1")?;
    for (name, at) in [
        ("udev.rules", "usr/lib/udev/rules.d/60-virtio-gpgpu.rules"),
        ("sysusers.conf", "usr/lib/sysusers.d/virtio-gpgpu.conf"),
        ("ld.so.conf", "usr/share/virtio-gpgpu/ld.so.conf"),
        ("profile.sh", "usr/share/virtio-gpgpu/profile.sh"),
    ] {
        tree.write(at, from.own(name)?)?;
    }
    for (name, program) in [
        ("completion-run.bash", "gpgpu-run"),
        ("completion-smi.bash", "gpgpu-smi"),
    ] {
        tree.write(&format!("{COMPLETIONS}/{program}"), from.own(name)?)?;
    }
    let crates = [
        "gpgpu-preload",
        "gpgpu-audit",
        "gpgpu-smi",
        "gpgpu-libcuda",
        "gpgpu-libcudart",
        "gpgpu-cublas",
        "gpgpu-cublaslt",
        "gpgpu-cusolver",
        "gpgpu-cusparse",
        "gpgpu-cusparselt",
        "gpgpu-cudnn",
        "gpgpu-cufft",
        "gpgpu-cupti",
        "gpgpu-curand",
        "gpgpu-nvjpeg",
        "gpgpu-refusing",
        "gpgpu-nvml",
    ];
    Ok(Package {
        name: from.name,
        is_portable: false,
        summary: "virtual GPU for CUDA: the guest's libraries and gpgpu-run",
        description: "
            libcuda, the CUDA runtime and what takes the place of NVIDIA's libraries in a
            virtual machine with the virtio-gpgpu device. gpgpu-run starts a program with
            them: its CUDA calls are carried out on the host's GPU. gpgpu-smi shows the
            virtual GPUs.

            No NVIDIA driver is needed here. The members of the group gpgpu may use the
            device.",
        licence: from.licence(&crates)?,
        tree,
        deb: deb::Parts {
            section: "utils",
            depends: vec![DEBIAN_SYSUSERS],
            // Without a virtual machine, a container's programs connect to the host's socket.
            relations: vec![("Recommends", DKMS)],
            scripts: from.scripts("", &["postinst", "postrm"])?,
            files: vec![],
            // The administrator may have added the libraries to the loader's path.
            triggers: "activate-noawait ldconfig\n",
        },
        rpm: rpm::Parts {
            requires: vec![RPM_SYSUSERS],
            recommends: vec![DKMS],
            suggests: vec![],
            scripts: from.scripts("rpm/", &["postun", "posttrans"])?,
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dkms_gets_the_packages_version() {
        let conf = "PACKAGE_NAME=\"x\"\nPACKAGE_VERSION=\"0.1.0\"\n";
        let changed = with_version(conf, "0.2.0~rc.1").unwrap();
        assert_eq!(
            changed,
            "PACKAGE_NAME=\"x\"\nPACKAGE_VERSION=\"0.2.0~rc.1\"\n"
        );
        assert!(with_version("", "1").is_err());
    }
}
