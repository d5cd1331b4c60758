// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! `target/cache`: each entry is a directory that is created atomically, with a stamp that contains its recipe. A
//! changed recipe rebuilds it; an interrupted build leaves nothing that could be mistaken for an entry.

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use sha2::{Digest, Sha256};

use crate::ui;

const UNFINISHED: &str = ".unfinished-";

/// The cache, locked against other runs for as long as this lives.
pub struct Cache {
    root: PathBuf,
    _lock: File,
}

impl Cache {
    /// Opens the cache at `root`, waits for other runs that use it, and removes leftovers of interrupted ones.
    pub fn open(root: &Path) -> Result<Self> {
        fs::create_dir_all(root).with_context(|| format!("cannot create {}", root.display()))?;
        let lock = File::create(root.join(".lock")).context("cannot create the cache's lock")?;
        if lock.try_lock().is_err() {
            ui::line("waiting for another `cargo xtask` that is using target/cache");
            lock.lock().context("cannot lock the cache")?;
        }
        for entry in fs::read_dir(root)? {
            let entry = entry?;
            if entry.file_name().to_string_lossy().starts_with(UNFINISHED) {
                fs::remove_dir_all(entry.path())
                    .with_context(|| format!("cannot remove {}", entry.path().display()))?;
            }
        }
        Ok(Self {
            root: root.to_path_buf(),
            _lock: lock,
        })
    }

    fn stamp(&self, name: &str) -> PathBuf {
        self.root.join(format!("{name}.done"))
    }

    /// The directory of the entry `name`, whether or not it exists.
    pub fn dir(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    /// Whether the entry exists and was made by `recipe`.
    pub fn is_done(&self, name: &str, recipe: &str) -> bool {
        self.dir(name).is_dir()
            && fs::read_to_string(self.stamp(name)).is_ok_and(|stamp| stamp == recipe)
    }

    /// Marks an existing entry as made by `recipe`.
    pub fn adopt(&self, name: &str, recipe: &str) -> Result<()> {
        fs::write(self.stamp(name), recipe)
            .with_context(|| format!("cannot stamp the cache entry {name}"))
    }

    /// Returns the entry `name`. If it does not exist with this `recipe`, `make` makes it in an empty directory.
    pub fn entry(
        &self,
        name: &str,
        recipe: &str,
        make: impl FnOnce(&Path) -> Result<()>,
    ) -> Result<PathBuf> {
        let dir = self.dir(name);
        if self.is_done(name, recipe) {
            return Ok(dir);
        }
        let work = tempfile::Builder::new()
            .prefix(&format!("{UNFINISHED}{name}-"))
            .tempdir_in(&self.root)
            .context("cannot create a directory in target/cache")?;
        make(work.path())?;
        // Without its stamp a partly replaced entry counts as absent.
        let _ = fs::remove_file(self.stamp(name));
        if dir.exists() {
            fs::remove_dir_all(&dir).with_context(|| format!("cannot remove {}", dir.display()))?;
        }
        let made = work.keep();
        fs::rename(&made, &dir)
            .with_context(|| format!("cannot move {} into place", made.display()))?;
        fs::set_permissions(&dir, std::os::unix::fs::PermissionsExt::from_mode(0o755))?;
        self.adopt(name, recipe)?;
        Ok(dir)
    }
}

/// A digest of strings and files, which shows whether inputs changed since something was built from them.
#[derive(Default)]
pub struct Inputs(Sha256);

impl Inputs {
    /// Adds a string.
    pub fn text(mut self, text: &str) -> Self {
        self.0.update((text.len() as u64).to_le_bytes());
        self.0.update(text);
        self
    }

    /// Adds a file's name and contents.
    pub fn file(mut self, path: &Path) -> Result<Self> {
        let bytes = fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
        self = self.text(&path.to_string_lossy());
        self.0.update((bytes.len() as u64).to_le_bytes());
        self.0.update(bytes);
        Ok(self)
    }

    /// Adds a file's name, size, inode and modification time instead of its contents: for large files that are replaced
    /// when they change, as cargo does.
    pub fn stamp(self, path: &Path) -> Result<Self> {
        let of = fs::metadata(path).with_context(|| format!("cannot read {}", path.display()))?;
        let (size, inode) = (of.size(), of.ino());
        let (seconds, rest) = (of.mtime(), of.mtime_nsec());
        Ok(self
            .text(&path.to_string_lossy())
            .text(&format!("{size} {inode} {seconds} {rest}")))
    }

    /// Adds all files under `dir`, in a fixed order.
    pub fn tree(mut self, dir: &Path) -> Result<Self> {
        for entry in walkdir::WalkDir::new(dir).sort_by_file_name() {
            let entry = entry?;
            if entry.file_type().is_file() {
                self = self.file(entry.path())?;
            }
        }
        Ok(self)
    }

    /// The digest in hexadecimal.
    pub fn digest(self) -> String {
        self.0
            .finalize()
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect()
    }
}

/// Whether `output` exists and its stamp holds `digest`.
pub fn is_fresh(output: &Path, digest: &str) -> bool {
    output.exists() && fs::read_to_string(stamp_of(output)).is_ok_and(|stamp| stamp == digest)
}

/// Marks `output` as built from inputs with this `digest`.
pub fn mark_fresh(output: &Path, digest: &str) -> Result<()> {
    fs::write(stamp_of(output), digest)
        .with_context(|| format!("cannot stamp {}", output.display()))
}

/// Removes the mark, before `output` is written anew.
pub fn unmark(output: &Path) {
    let _ = fs::remove_file(stamp_of(output));
}

fn stamp_of(output: &Path) -> PathBuf {
    let mut name = std::ffi::OsString::from(".");
    name.push(output.file_name().unwrap_or_default());
    name.push(".inputs");
    output.with_file_name(name)
}
