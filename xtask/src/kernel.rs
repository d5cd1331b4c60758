// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The guest kernels, and the module built for each of them with that kernel's own headers and compiler.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::cache::{Inputs, is_fresh, mark_fresh, unmark};
use crate::paths::Paths;
use crate::process::run_logged;
use crate::ui::Step;

/// A kernel whose headers are in one of the roots.
#[derive(Clone, Debug)]
pub struct Kernel {
    /// The full release as `uname -r` gives it.
    pub abi: String,
    /// The root with its headers and compiler.
    pub root: PathBuf,
}

impl Kernel {
    /// Major and minor number.
    pub fn series(&self) -> (u32, u32) {
        series(&self.abi)
    }

    /// The bootable image; it does not exist for kernels for which modules are only built.
    pub fn image(&self) -> PathBuf {
        // Newer packages keep it beside the modules.
        let beside = self
            .root
            .join("usr/lib/modules")
            .join(&self.abi)
            .join("vmlinuz");
        if beside.is_file() {
            beside
        } else {
            self.root.join("boot").join(format!("vmlinuz-{}", self.abi))
        }
    }

    /// The module of one of the kernel's own drivers, such as `block/loop`; `None` if the driver is built in, or does
    /// not exist.
    ///
    /// # Errors
    /// The module cannot be read.
    pub fn driver(&self, name: &str) -> Result<Option<Vec<u8>>> {
        let directory = Path::new("lib/modules")
            .join(&self.abi)
            .join("kernel/drivers");
        for root in [self.root.join("usr"), self.root.clone()] {
            let plain = root.join(&directory).join(format!("{name}.ko"));
            if plain.is_file() {
                return Ok(Some(fs::read(plain)?));
            }
            let packed = plain.with_extension("ko.xz");
            if packed.is_file() {
                let mut bytes = Vec::new();
                liblzma::read::XzDecoder::new(fs::File::open(packed)?).read_to_end(&mut bytes)?;
                return Ok(Some(bytes));
            }
        }
        Ok(None)
    }
}

fn series(abi: &str) -> (u32, u32) {
    let mut numbers = abi
        .split(|c: char| !c.is_ascii_digit())
        .map(|part| part.parse().unwrap_or(0));
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0))
}

/// The kernels whose headers lie in `root`, oldest first.
pub fn in_root(root: &Path) -> Result<Vec<Kernel>> {
    let src = root.join("usr/src");
    let mut kernels = Vec::new();
    for entry in fs::read_dir(&src)
        .with_context(|| format!("{} is missing", src.display()))?
        .flatten()
    {
        let name = entry.file_name().to_string_lossy().into_owned();
        if let Some(abi) = name
            .strip_prefix("linux-headers-")
            .filter(|abi| abi.ends_with("-cloud-amd64"))
        {
            kernels.push(Kernel {
                abi: abi.to_owned(),
                root: root.to_path_buf(),
            });
        }
    }
    kernels.sort_by_key(Kernel::series);
    Ok(kernels)
}

/// Builds the module whose sources are in `source` for `kernel` and returns the `.ko`. A warning is a failure.
pub fn build_module(paths: &Paths, kernel: &Kernel, source: &Path) -> Result<PathBuf> {
    build_module_in(paths, kernel, source, &paths.modules())
}

/// The same with a separate build directory, for a module that is not the driver.
pub fn build_module_in(
    paths: &Paths,
    kernel: &Kernel,
    source: &Path,
    directory: &Path,
) -> Result<PathBuf> {
    let work = directory.join(&kernel.abi);
    if !source.join("Kbuild").is_file() {
        bail!("{} has no Kbuild", source.display());
    }
    let digest = Inputs::default()
        .text("1")
        .text(&kernel.abi)
        .tree(source)?
        .digest();
    if is_fresh(&work, &digest) {
        return find_module(&work);
    }
    let step = Step::new(format!("kernel module for {}", kernel.abi));
    unmark(&work);
    if work.exists() {
        fs::remove_dir_all(&work)?;
    }
    copy_tree(source, &work)?;
    // In its own mount namespace: the mounts disappear with its last process, however that ends.
    let script = "mount --rbind /dev \"$1/dev\" && mount -t proc proc \"$1/proc\" && mount --bind \"$2\" \"$1/build\" \
                  && exec chroot \"$1\" /usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C.UTF-8 \
                  make -j2 -C \"/usr/src/linux-headers-$3\" M=/build W=1 modules";
    // SAFETY: geteuid reads one number of this process and cannot fail.
    let root = unsafe { libc::geteuid() } == 0;
    let mut command = Command::new("unshare");
    command.arg("--mount");
    if !root {
        command.arg("--map-root-user");
    }
    command
        .args(["sh", "-c", script, "sh"])
        .arg(&kernel.root)
        .arg(&work)
        .arg(&kernel.abi);
    let output = run_logged(&mut command, Some(&step), &paths.logs().join(format!("module-{}.log", kernel.abi)))
        .map_err(|error| {
            let text = format!("{error:#}");
            if text.contains("unshare failed") || text.contains("Operation not permitted") {
                return error.context("building the module needs mount namespaces; remedy: run as root, in a container with CAP_SYS_ADMIN");
            }
            error
        })?;
    let warnings: Vec<&str> = output.lines().filter(|line| is_warning(line)).collect();
    if !warnings.is_empty() {
        bail!(
            "the module builds for {} with warnings:\n{}",
            kernel.abi,
            warnings.join("\n")
        );
    }
    let module = find_module(&work)?;
    mark_fresh(&work, &digest)?;
    step.done("no warnings");
    Ok(module)
}

/// Whether a line of a build's output is a warning about the code (and not about the missing vmlinux, which only the
/// kernel's own build has).
fn is_warning(line: &str) -> bool {
    let lower = line.to_ascii_lowercase();
    lower.contains("warning:") && !lower.contains("skipping btf generation")
}

fn find_module(dir: &Path) -> Result<PathBuf> {
    fs::read_dir(dir)?
        .flatten()
        .map(|entry| entry.path())
        .find(|path| path.extension().is_some_and(|extension| extension == "ko"))
        .with_context(|| format!("the build left no module in {}", dir.display()))
}

/// Copies the files of `from` into the new directory `to`.
pub fn copy_tree(from: &Path, to: &Path) -> Result<()> {
    for entry in walkdir::WalkDir::new(from) {
        let entry = entry?;
        let target = to.join(entry.path().strip_prefix(from)?);
        if entry.file_type().is_dir() {
            fs::create_dir_all(&target)?;
        } else if entry.file_type().is_symlink() {
            std::os::unix::fs::symlink(fs::read_link(entry.path())?, &target)?;
        } else {
            fs::copy(entry.path(), &target)
                .with_context(|| format!("cannot copy {}", entry.path().display()))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernels_sort_by_number_not_by_letter() {
        assert_eq!(series("6.12.107+deb13-cloud-amd64"), (6, 12));
        assert!(series("6.9.1-cloud-amd64") < series("6.12.1-cloud-amd64"));
        assert!(series("6.1.0-40-cloud-amd64") < series("7.2.12+deb13-cloud-amd64"));
    }

    #[test]
    fn only_the_codes_own_warnings_count() {
        assert!(is_warning(
            "/build/x.c:3:5: warning: unused variable 'a' [-Wunused-variable]"
        ));
        assert!(is_warning(
            "WARNING: modpost: missing MODULE_DESCRIPTION() in hello.o"
        ));
        assert!(!is_warning(
            "Skipping BTF generation for /build/x.ko due to unavailability of vmlinux"
        ));
        assert!(!is_warning("  CC [M]  /build/warnings.o"));
    }
}
