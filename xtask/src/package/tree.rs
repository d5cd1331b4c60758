// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The files of a package, laid out in a directory.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

/// A directory that becomes a package.
pub struct Tree {
    dir: tempfile::TempDir,
}

impl Tree {
    /// An empty tree.
    pub fn new() -> Result<Self> {
        let dir = tempfile::tempdir().context("cannot create a temporary directory")?;
        set_mode(dir.path(), 0o755)?;
        Ok(Self { dir })
    }

    /// The path.
    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    /// A copy of the tree, to which other files can be added. Existing files must not be written to, because both trees
    /// share them.
    pub fn copy(&self) -> Result<Self> {
        let copy = Self::new()?;
        for entry in walkdir::WalkDir::new(self.path())
            .min_depth(1)
            .sort_by_file_name()
        {
            let entry = entry?;
            let path = entry.path().strip_prefix(self.path())?;
            let to = copy.path().join(path);
            match entry.file_type().is_dir() {
                true => copy.directory(&path.to_string_lossy())?,
                // A hard link of a symbolic link points to the same place.
                false => fs::hard_link(entry.path(), &to)
                    .with_context(|| format!("cannot create {}", to.display()))?,
            }
        }
        Ok(copy)
    }

    /// Makes a directory and its parents, whatever the umask is.
    pub fn directory(&self, at: &str) -> Result<()> {
        let mut path = self.path().to_path_buf();
        for part in Path::new(at) {
            path.push(part);
            if !path.is_dir() {
                fs::create_dir(&path)
                    .with_context(|| format!("cannot create {}", path.display()))?;
                set_mode(&path, 0o755)?;
            }
        }
        Ok(())
    }

    /// A path in the tree, whose directory is made.
    fn place(&self, at: &str) -> Result<PathBuf> {
        if let Some((directory, _)) = at.rsplit_once('/') {
            self.directory(directory)?;
        }
        Ok(self.path().join(at))
    }

    fn write_as(&self, at: &str, contents: &[u8], mode: u32) -> Result<()> {
        let place = self.place(at)?;
        fs::write(&place, contents).with_context(|| format!("cannot write {}", place.display()))?;
        set_mode(&place, mode)
    }

    /// Adds a file with read permission.
    pub fn write(&self, at: &str, contents: impl AsRef<[u8]>) -> Result<()> {
        self.write_as(at, contents.as_ref(), 0o644)
    }

    /// Adds an executable file.
    pub fn program(&self, at: &str, contents: impl AsRef<[u8]>) -> Result<()> {
        self.write_as(at, contents.as_ref(), 0o755)
    }

    /// Adds a file with read permission, compressed without name and time.
    pub fn compressed(&self, at: &str, contents: impl AsRef<[u8]>) -> Result<()> {
        let plain = tempfile::NamedTempFile::new().context("cannot create a temporary file")?;
        fs::write(plain.path(), contents)?;
        let output = Command::new("gzip")
            .args(["-9", "--no-name", "--stdout"])
            .stdin(plain.reopen()?)
            .stderr(Stdio::inherit())
            .output()
            .context("cannot start gzip")?;
        ensure!(output.status.success(), "gzip failed");
        self.write(at, output.stdout)
    }

    /// Adds a symbolic link.
    pub fn link(&self, target: &Path, at: &str) -> Result<()> {
        let place = self.place(at)?;
        symlink(target, &place).with_context(|| format!("cannot create {}", place.display()))
    }

    /// All its files and links except the packager's, by their paths in the root, in order.
    pub fn files(&self) -> Result<Vec<PathBuf>> {
        let mut files = Vec::new();
        for entry in walkdir::WalkDir::new(self.path()).sort_by_file_name() {
            let entry = entry?;
            let path = entry.path().strip_prefix(self.path())?;
            if !entry.file_type().is_dir() && !path.starts_with("DEBIAN") {
                files.push(path.to_path_buf());
            }
        }
        Ok(files)
    }
}

fn set_mode(path: &Path, mode: u32) -> Result<()> {
    fs::set_permissions(path, fs::Permissions::from_mode(mode))
        .with_context(|| format!("cannot set the mode of {}", path.display()))
}
