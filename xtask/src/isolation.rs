//! The isolation tests of `tests/isolation.rs`: building their guest programs, and for a bundle the tests themselves.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Result, bail};
use serde::Deserialize;

use crate::artifacts::Stage;
use crate::cuda::Cuda;
use crate::make::MakeFolder;
use crate::paths::Paths;
use crate::process::capture;
use crate::ui::Step;

/// Builds the guest programs into the stage, if their sources changed.
pub fn build(paths: &Paths, cuda: &Cuda, stage: &Stage) -> Result<()> {
    let folder = MakeFolder {
        source: "tests/isolation/programs",
        part: "isolation",
        label: "isolation programs",
        programs: &["guest", "no-cuda", "limits"],
        data: &[],
    };
    folder.build(paths, cuda, stage)
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
