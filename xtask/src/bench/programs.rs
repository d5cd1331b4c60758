//! Building the programs of `benches/programs`.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result};

use crate::artifacts::Stage;
use crate::cache::{Inputs, is_fresh, mark_fresh, unmark};
use crate::cuda::Cuda;
use crate::paths::Paths;
use crate::process::run_logged;
use crate::programs::install;
use crate::ui::Step;

const NAMES: [&str; 7] = [
    "calls", "copies", "start", "idle", "load", "runtime", "floors",
];

/// Where the programs are in a stage.
pub fn dir(stage: &Stage) -> PathBuf {
    stage.dir.join("bench")
}

/// Builds the programs into the stage, if their sources changed.
pub fn build(paths: &Paths, cuda: &Cuda, stage: &Stage) -> Result<()> {
    let source = paths.root.join("benches/programs");
    let target = dir(stage);
    let digest = Inputs::default()
        .text("1")
        .text(&cuda.home.to_string_lossy())
        .tree(&source)?
        .digest();
    if is_fresh(&target, &digest) {
        return Ok(());
    }
    let step = Step::new("benchmark programs");
    unmark(&target);
    let work = tempfile::tempdir().context("cannot create a scratch folder")?;
    let mut command = Command::new("make");
    command.args(["-j2", "-C"]).arg(&source);
    command
        .arg(format!("CUDA={}", cuda.home.display()))
        .arg(format!("OUT={}", work.path().display()));
    let log = paths.logs().join("bench-build.log");
    run_logged(&mut command, Some(&step), &log)?;
    for name in NAMES {
        install(&work.path().join(name), &target.join(name))?;
    }
    mark_fresh(&target, &digest)?;
    step.done("");
    Ok(())
}
