// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Programs that a Makefile of the repository builds for the stage.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

use crate::artifacts::Stage;
use crate::cache::{Inputs, is_fresh, mark_fresh, unmark};
use crate::cuda::Cuda;
use crate::paths::Paths;
use crate::process::run_logged;
use crate::programs::install;
use crate::ui::Step;

/// A directory of sources whose Makefile takes `CUDA` and `OUT`, and its place in the stage.
pub struct MakefileDirectory<'a> {
    /// The sources' directory, in the repository.
    pub source: &'a str,
    /// The programs' directory, in the stage.
    pub part: &'a str,
    /// The name for the user.
    pub label: &'a str,
    /// The programs that it makes.
    pub programs: &'a [&'a str],
    /// Source files that the programs' users need too.
    pub data: &'a [&'a str],
}

impl MakefileDirectory<'_> {
    /// Builds the programs into the stage, if their sources or the compiler changed.
    pub fn build(&self, paths: &Paths, cuda: &Cuda, stage: &Stage) -> Result<()> {
        let source = paths.root.join(self.source);
        let target = stage.dir.join(self.part);
        let digest = Inputs::default()
            .text("1")
            .text(&cuda.home.to_string_lossy())
            .tree(&source)?
            .digest();
        if is_fresh(&target, &digest) {
            return Ok(());
        }
        let step = Step::new(self.label);
        unmark(&target);
        let work = tempfile::tempdir().context("cannot create a scratch directory")?;
        let mut command = Command::new("make");
        command.args(["-j2", "-C"]).arg(&source);
        command
            .arg(format!("CUDA={}", cuda.home.display()))
            .arg(format!("OUT={}", work.path().display()));
        let log = paths.logs().join(format!("{}-build.log", self.part));
        run_logged(&mut command, Some(&step), &log)?;
        let install_all = |from: &Path, names: &[&str]| {
            let mut names = names.iter();
            names.try_for_each(|name| install(&from.join(name), &target.join(name)))
        };
        install_all(&source, self.data)?;
        install_all(work.path(), self.programs)?;
        mark_fresh(&target, &digest)?;
        step.done("");
        Ok(())
    }
}
