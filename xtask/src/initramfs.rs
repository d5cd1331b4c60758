// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The guest's whole system: an initramfs with busybox, the module, our libraries and the programs. Its init runs a
//! list of jobs, reports each on the serial console and powers the machine off.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{BufWriter, Cursor, Write};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use cpio::newc::{Builder, ModeFileType};

use crate::artifacts::Stage;
use crate::cache::Inputs;
use crate::kernel::Kernel;
use crate::process::capture;

/// The guest's directory of our libraries.
pub const SHIMS: &str = "usr/lib/virtio-gpgpu";

const INIT: &str = include_str!("init.sh");
/// The functions of the shell that run jobs in a guest and report them.
pub const FUNCTIONS: &str = include_str!("jobs.sh");

/// The kernel's error messages, which [`FUNCTIONS`] lists.
pub fn complaints() -> impl Iterator<Item = &'static str> {
    let list = |line: &'static str| line.strip_prefix("complaints='")?.strip_suffix('\'');
    FUNCTIONS
        .lines()
        .find_map(list)
        .unwrap_or_default()
        .split('|')
}

enum Content {
    Directory,
    Bytes(Vec<u8>),
    File(PathBuf),
    Link(String),
}

/// A cpio archive that is being built; paths are relative to the guest's root.
#[derive(Default)]
pub struct Archive {
    entries: BTreeMap<String, (u32, Content)>,
}

impl Archive {
    fn put(&mut self, path: &str, mode: u32, content: Content) {
        let path = path.trim_start_matches('/');
        let mut parent = Path::new(path).parent();
        while let Some(dir) = parent.filter(|dir| !dir.as_os_str().is_empty()) {
            self.entries
                .entry(dir.to_string_lossy().into_owned())
                .or_insert((0o755, Content::Directory));
            parent = dir.parent();
        }
        self.entries.insert(path.to_owned(), (mode, content));
    }

    /// Adds an empty directory.
    pub fn directory(&mut self, path: &str) {
        self.put(path, 0o755, Content::Directory);
    }

    /// Adds a file with these bytes.
    pub fn bytes(&mut self, path: &str, mode: u32, bytes: impl Into<Vec<u8>>) {
        self.put(path, mode, Content::Bytes(bytes.into()));
    }

    /// Adds a copy of the host's file `from`, executable.
    pub fn file(&mut self, path: &str, from: &Path) {
        self.put(path, 0o755, Content::File(from.to_path_buf()));
    }

    /// Adds a symbolic link.
    pub fn link(&mut self, path: &str, target: &str) {
        self.put(path, 0o777, Content::Link(target.to_owned()));
    }

    /// Writes the archive. It is uncompressed, because decompressing costs an emulated guest more than reading does.
    pub fn write(&self, output: &mut impl Write) -> Result<()> {
        for (inode, (path, (mode, content))) in self.entries.iter().enumerate() {
            let entry = Builder::new(path)
                .ino(inode as u32 + 1)
                .nlink(1)
                .mode(*mode);
            let (entry, bytes) = match content {
                Content::Directory => (
                    entry.set_mode_file_type(ModeFileType::Directory).nlink(2),
                    Vec::new(),
                ),
                Content::Bytes(bytes) => (
                    entry.set_mode_file_type(ModeFileType::Regular),
                    bytes.clone(),
                ),
                Content::File(from) => {
                    let bytes = fs::read(from)
                        .with_context(|| format!("cannot read {}", from.display()))?;
                    (entry.set_mode_file_type(ModeFileType::Regular), bytes)
                }
                Content::Link(to) => (
                    entry.set_mode_file_type(ModeFileType::Symlink),
                    to.clone().into_bytes(),
                ),
            };
            let size = u32::try_from(bytes.len())
                .with_context(|| format!("{path} is too large for an initramfs"))?;
            let mut writer = entry.write(&mut *output, size);
            std::io::copy(&mut Cursor::new(bytes), &mut writer)?;
            writer.finish()?;
        }
        cpio::newc::trailer(output)?;
        Ok(())
    }

    /// Writes the archive atomically to the file `path`.
    pub fn save(&self, path: &Path) -> Result<()> {
        let parent = path.parent().context("no directory for the initramfs")?;
        fs::create_dir_all(parent)?;
        let mut file = tempfile::NamedTempFile::new_in(parent)?;
        let mut buffered = BufWriter::new(file.as_file_mut());
        self.write(&mut buffered)?;
        buffered.flush()?;
        drop(buffered);
        file.persist(path)
            .with_context(|| format!("cannot write {}", path.display()))?;
        Ok(())
    }

    /// Adds the archive's content to `inputs`.
    pub fn inputs(&self, mut inputs: Inputs) -> Result<Inputs> {
        for (path, (mode, content)) in &self.entries {
            inputs = inputs.text(&format!("{path} {mode}"));
            inputs = match content {
                Content::Directory => inputs,
                Content::Bytes(bytes) => inputs.text(&String::from_utf8_lossy(bytes)),
                Content::File(from) => inputs.file(from)?,
                Content::Link(to) => inputs.text(to),
            };
        }
        Ok(inputs)
    }

    /// Adds the libraries that `binaries` load on this host, at the paths where the guest's loader looks for them. Ours
    /// and CUDA's come from elsewhere.
    pub fn libraries_of(&mut self, binaries: &[PathBuf]) -> Result<()> {
        let mut found = BTreeSet::new();
        for binary in binaries {
            found.extend(libraries(binary)?);
        }
        for path in found {
            let name = path
                .file_name()
                .unwrap_or_default()
                .to_string_lossy()
                .into_owned();
            let at = if name.starts_with("ld-linux") {
                format!("lib64/{name}")
            } else {
                format!("lib/x86_64-linux-gnu/{name}")
            };
            self.file(&at, &path);
        }
        Ok(())
    }
}

/// The host's files that `ldd` names for `binary`.
pub fn libraries(binary: &Path) -> Result<Vec<PathBuf>> {
    let text = match capture(
        Command::new("ldd")
            .arg(binary)
            .env_remove("LD_LIBRARY_PATH")
            .env_remove("LD_PRELOAD"),
    ) {
        Ok(text) => text,
        // ldd's output, with a failing status, for a program that needs no libraries.
        Err(error) if format!("{error:#}").contains("not a dynamic executable") => String::new(),
        Err(error) => return Err(error),
    };
    Ok(text.lines().filter_map(library_of_line).collect())
}

fn library_of_line(line: &str) -> Option<PathBuf> {
    let line = line.trim();
    if line.starts_with("libcuda") {
        return None;
    }
    let path = line.split("=>").last()?.split(" (").next()?.trim();
    path.starts_with('/').then(|| PathBuf::from(path))
}

/// The base of every guest: busybox and init. `busybox` is a static one.
pub fn base(busybox: &Path) -> Archive {
    let mut archive = Archive::default();
    for dir in ["dev", "proc", "sys", "tmp", "run", "etc", "root"] {
        archive.directory(dir);
    }
    archive.file("bin/busybox", busybox);
    archive.link("bin/sh", "busybox");
    archive.bytes("init", 0o755, INIT);
    archive.bytes("etc/gpgpu-functions", 0o644, FUNCTIONS);
    archive.link("usr/lib/x86_64-linux-gnu", "../../lib/x86_64-linux-gnu");
    archive
}

/// The list of modules that init loads before ours, one per line.
pub const FIRST: &str = "lib/modules/first";

/// Adds the modules of these kernel drivers, such as `block/loop`, unless they are built in. Returns their lines in
/// [`FIRST`].
///
/// # Errors
/// A module cannot be read.
pub fn add_drivers(archive: &mut Archive, kernel: &Kernel, drivers: &[&str]) -> Result<String> {
    let mut list = String::new();
    for driver in drivers {
        if let Some(bytes) = kernel.driver(driver)? {
            let name = driver.rsplit('/').next().unwrap_or(driver);
            archive.bytes(&format!("lib/modules/{name}.ko"), 0o644, bytes);
            list.push_str(&format!("{name}.ko\n"));
        }
    }
    Ok(list)
}

/// A guest with everything that an installation contains: module, libraries, wrapper and programs.
pub fn full(busybox: &Path, module: &Path, stage: &Stage) -> Result<Archive> {
    let mut archive = base(busybox);
    archive.file("lib/modules/virtio_gpgpu.ko", module);
    let mut binaries = Vec::new();
    for entry in fs::read_dir(stage.shims())
        .context("the guest libraries are not built")?
        .flatten()
    {
        let name = entry.file_name().to_string_lossy().into_owned();
        if !name.contains(".so") || name.starts_with('.') || name.ends_with(".source") {
            continue;
        }
        let at = format!("{SHIMS}/{name}");
        if let Ok(target) = fs::read_link(entry.path()) {
            archive.link(&at, &target.to_string_lossy());
        } else {
            archive.file(&at, &entry.path());
            binaries.push(entry.path());
        }
    }
    archive.file("usr/bin/gpgpu-run", &stage.gpgpu_run());
    binaries.push(stage.gpgpu_run());
    for run in crate::programs::Programs::load(&stage.programs())?.runs(false) {
        let executable = run.executable();
        let from = stage.programs().join(&executable);
        archive.file(&format!("programs/{}", executable.display()), &from);
        binaries.push(from);
    }
    archive.libraries_of(&binaries)?;
    Ok(archive)
}

/// One command for the guest to run.
#[derive(Clone, Debug)]
pub struct Job {
    /// The name in the guest's report, without spaces.
    pub id: String,
    /// The command line, for a shell.
    pub command: String,
    /// The time limit in seconds, after which it is killed.
    pub limit: u64,
}

/// The archive that is appended to a guest's to give it `jobs`.
pub fn jobs(jobs: &[Job]) -> Archive {
    let mut archive = Archive::default();
    let list: String = jobs
        .iter()
        .map(|job| format!("{}\t{}\t{}\n", job.id, job.limit, job.command))
        .collect();
    archive.bytes("etc/gpgpu-jobs", 0o644, list);
    archive
}

/// The archive that is appended to a guest's: the guest then reads jobs from its console, and has the files of `extra`.
pub fn with_console(mut extra: Archive) -> Archive {
    extra.bytes("etc/gpgpu-jobs", 0o644, "");
    extra.bytes("etc/gpgpu-console", 0o644, "");
    extra
}

/// Writes `first` and `second`, one after the other, to a new file: the kernel unpacks both.
pub fn concatenate(first: &Path, second: &Archive, output: &Path) -> Result<()> {
    let mut file =
        File::create(output).with_context(|| format!("cannot write {}", output.display()))?;
    let mut base = File::open(first).with_context(|| format!("cannot read {}", first.display()))?;
    let length = std::io::copy(&mut base, &mut file)?;
    // Each archive starts at a multiple of four bytes.
    file.write_all(&vec![0; (length.next_multiple_of(512) - length) as usize])?;
    let mut buffered = BufWriter::new(file);
    second.write(&mut buffered)?;
    buffered.flush()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ldd_lines_give_the_files_but_not_cudas() {
        let lines = "\tlinux-vdso.so.1 (0x00007ffc)\n\tlibcudart.so.13 => /opt/cuda/libcudart.so.13 (0x0)\n\
                     \tlibm.so.6 => /lib/x86_64-linux-gnu/libm.so.6 (0x0)\n\tlibx.so => not found\n\
                     \t/lib64/ld-linux-x86-64.so.2 (0x0)\n";
        let found: Vec<_> = lines.lines().filter_map(library_of_line).collect();
        assert_eq!(
            found,
            [
                Path::new("/lib/x86_64-linux-gnu/libm.so.6"),
                Path::new("/lib64/ld-linux-x86-64.so.2")
            ]
        );
    }

    #[test]
    fn directories_come_before_their_contents() {
        let mut archive = Archive::default();
        archive.bytes("a/b/c", 0o644, "x");
        let names: Vec<_> = archive.entries.keys().cloned().collect();
        assert_eq!(names, ["a", "a/b", "a/b/c"]);
        let mut bytes = Vec::new();
        archive.write(&mut bytes).unwrap();
        let mut reader = cpio::NewcReader::new(Cursor::new(bytes)).unwrap();
        assert_eq!(reader.entry().name(), "a");
        assert_eq!(reader.entry().mode(), 0o40755);
        reader = cpio::NewcReader::new(reader.finish().unwrap()).unwrap();
        reader = cpio::NewcReader::new(reader.finish().unwrap()).unwrap();
        assert_eq!(reader.entry().name(), "a/b/c");
        assert_eq!(reader.entry().file_size(), 1);
    }
}
