// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The paths in the repository and under `target/`.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// The repository's root and the directories derived from it.
#[derive(Clone, Debug)]
pub struct Paths {
    /// The repository's root.
    pub root: PathBuf,
}

impl Paths {
    /// Finds the repository from the place where this program was compiled, or from the current directory upwards.
    pub fn find() -> Result<Self> {
        let compiled = Path::new(env!("CARGO_MANIFEST_DIR")).parent();
        let from_cwd = std::env::current_dir().context("no current directory")?;
        let candidates = compiled
            .into_iter()
            .map(Path::to_path_buf)
            .chain(from_cwd.ancestors().map(Path::to_path_buf));
        for candidate in candidates {
            if candidate.join("xtask/Cargo.toml").is_file() && candidate.join("protocol").is_dir() {
                return Ok(Self { root: candidate });
            }
        }
        anyhow::bail!("the virtio-gpgpu repository was not found: run this from inside it")
    }

    /// The downloads and files made from them; only `rm -rf target` removes them.
    pub fn cache(&self) -> PathBuf {
        self.root.join("target/cache")
    }

    /// The build, in the layout of an installation.
    pub fn stage(&self) -> PathBuf {
        self.root.join("target/stage")
    }

    /// The full output of every command that was run for the user.
    pub fn logs(&self) -> PathBuf {
        self.root.join("target/logs")
    }

    /// Kernel modules, one directory for each kernel.
    pub fn modules(&self) -> PathBuf {
        self.root.join("target/modules")
    }

    /// Initramfs images.
    pub fn guest(&self) -> PathBuf {
        self.root.join("target/guest")
    }

    /// Cargo's own target directory, which a developer may have moved.
    pub fn cargo_target(&self) -> PathBuf {
        match std::env::var_os("CARGO_TARGET_DIR") {
            Some(dir) => self.root.join(dir),
            None => self.root.join("target"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file may be copied elsewhere without the repository's licences, so each one has its own notice.
    #[test]
    fn every_source_file_names_its_licence() {
        const SOURCES: [&str; 16] = [
            "rs", "c", "h", "cu", "cpp", "S", "sh", "py", "map", "ld", "ptx", "toml", "yml", "1",
            "service", "xml",
        ];
        let is_own = |entry: &walkdir::DirEntry| {
            let name = entry.file_name().to_string_lossy();
            entry.depth() == 0 || !(name.starts_with('.') || name == "target")
        };
        // A package's manifest has a field for it.
        let has_field = |entry: &walkdir::DirEntry| entry.file_name() == "Cargo.toml";
        let root = Paths::find().unwrap().root;
        let files = walkdir::WalkDir::new(&root).into_iter();
        let mut without = Vec::new();
        for entry in files.filter_entry(is_own).map(Result::unwrap) {
            let extension = entry.path().extension().unwrap_or_default();
            let is_source = SOURCES.iter().any(|known| extension == *known);
            if !entry.file_type().is_file() || !is_source || has_field(&entry) {
                continue;
            }
            let text = std::fs::read_to_string(entry.path()).unwrap();
            let mut head = text.lines().take(3);
            if !head.any(|line| line.contains("SPDX-License-Identifier: ")) {
                without.push(entry.into_path());
            }
        }
        assert!(without.is_empty(), "{without:?}");
    }
}
