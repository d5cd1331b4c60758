// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Pages of `docs/` that contain results of `benches/results`.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::paths::Paths;

const BEGIN: &str = "<!-- results: written by `cargo xtask bench --render` -->";
const END: &str = "<!-- end of results -->";

/// A page whose results are between two markers.
pub struct Page {
    /// Its file, in the repository.
    pub file: &'static str,
    /// Whether a file of results belongs to the page.
    pub shows: fn(&Path) -> bool,
    /// The page's text for these files of results, which are in a fixed order.
    pub text: fn(&[PathBuf]) -> Result<String>,
}

impl Page {
    /// Writes the page if its results have changed, and prints its path.
    pub fn render(&self, paths: &Paths) -> Result<()> {
        let (old, new) = self.old_and_new(paths)?;
        let path = paths.root.join(self.file);
        if new != old {
            fs::write(&path, new).with_context(|| format!("cannot write {}", path.display()))?;
        }
        println!("{}", path.display());
        Ok(())
    }

    /// The files of results that the page shows, in order.
    pub fn results(&self, paths: &Paths) -> Vec<PathBuf> {
        let mut results: Vec<_> = fs::read_dir(paths.root.join("benches/results"))
            .into_iter()
            .flatten()
            .flatten()
            .map(|entry| entry.path())
            .filter(|path| (self.shows)(path))
            .collect();
        results.sort();
        results
    }

    /// The present page, and the page with the current results.
    fn old_and_new(&self, paths: &Paths) -> Result<(String, String)> {
        let path = paths.root.join(self.file);
        let old =
            fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        let text = (self.text)(&self.results(paths))?;
        let at = |mark| {
            old.find(mark)
                .with_context(|| format!("{} lacks {mark}", self.file))
        };
        let (begin, end) = (at(BEGIN)? + BEGIN.len(), at(END)?);
        let new = format!("{}\n{text}{}", &old[..begin], &old[end..]);
        Ok((old, new))
    }

    /// Fails a test if the page does not contain the results.
    #[cfg(test)]
    pub fn assert_current(&self) {
        let (old, new) = self.old_and_new(&Paths::find().unwrap()).unwrap();
        let file = self.file;
        assert!(
            old == new,
            "{file} is out of date: cargo xtask bench --render"
        );
    }
}
