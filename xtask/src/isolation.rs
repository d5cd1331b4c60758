//! The isolation tests of `tests/isolation.rs`: building their guest programs, and for a bundle the tests themselves.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use serde::Deserialize;

use crate::artifacts::Stage;
use crate::cache::{Inputs, is_fresh, mark_fresh, unmark};
use crate::cuda::Cuda;
use crate::paths::Paths;
use crate::process::{capture, run_logged};
use crate::programs::install;
use crate::ui::Step;

const NAMES: [&str; 3] = ["guest", "no-cuda", "limits"];

/// Builds the guest programs into the stage, if their sources changed.
pub fn build(paths: &Paths, cuda: &Cuda, stage: &Stage) -> Result<()> {
    let source = paths.root.join("tests/isolation/programs");
    let target = stage.dir.join("isolation");
    let digest = Inputs::default()
        .text("1")
        .text(&cuda.home.to_string_lossy())
        .tree(&source)?
        .digest();
    if is_fresh(&target, &digest) {
        return Ok(());
    }
    let step = Step::new("isolation programs");
    unmark(&target);
    let work = tempfile::tempdir().context("cannot create a scratch folder")?;
    let mut command = Command::new("make");
    command.args(["-j2", "-C"]).arg(&source);
    command
        .arg(format!("CUDA={}", cuda.home.display()))
        .arg(format!("OUT={}", work.path().display()));
    let log = paths.logs().join("isolation-build.log");
    run_logged(&mut command, Some(&step), &log)?;
    for name in NAMES {
        install(&work.path().join(name), &target.join(name))?;
    }
    mark_fresh(&target, &digest)?;
    step.done("");
    Ok(())
}

#[derive(Deserialize)]
struct Artifact {
    #[serde(default)]
    executable: Option<PathBuf>,
    #[serde(default)]
    target: Target,
}

#[derive(Default, Deserialize)]
struct Target {
    #[serde(default)]
    name: String,
}

/// Builds the tests as a program that needs no Rust where it runs, at `to`.
pub fn build_tests(paths: &Paths, to: &Path) -> Result<()> {
    let step = Step::new("isolation tests");
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command
        .args(["test", "--release", "--quiet", "--no-run"])
        .args(["--package", "vhost-device-gpgpu", "--test", "isolation"])
        .arg("--message-format=json")
        .current_dir(&paths.root);
    let said = capture(&mut command)?;
    let built = said
        .lines()
        .filter_map(|line| serde_json::from_str::<Artifact>(line).ok())
        .filter(|artifact| artifact.target.name == "isolation")
        .find_map(|artifact| artifact.executable);
    let Some(built) = built else {
        bail!("cargo does not say where it has put the tests");
    };
    capture(Command::new("strip").arg("-o").arg(to).arg(built))?;
    step.done("");
    Ok(())
}
