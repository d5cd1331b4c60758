// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Tests guests and hosts of different versions: an earlier commit's libraries with today's back end, and the reverse.
//!
//! The earlier commit is checked out of the repository's own history, and is built once.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::artifacts::Stage;
use crate::cache::{Inputs, is_fresh, mark_fresh};
use crate::paths::Paths;
use crate::process::run_logged;
use crate::programs::install;
use crate::ui::Step;

/// A commit with the first table of operations, which compared tables by a single digest.
const COMMIT: &str = "63db9e8";

/// The built packages.
const PACKAGES: [&str; 2] = ["vhost-device-gpgpu", "gpgpu-libcuda"];

/// Two stages that each differ from today's in one part.
pub struct Mixed {
    /// An earlier guest's libcuda, with today's back end.
    pub old_guest: Stage,
    /// An earlier back end, with today's libcuda.
    pub old_host: Stage,
}

/// Builds the earlier commit's parts unless they exist; `None` if the repository lacks that part of the history.
pub fn build(paths: &Paths, stage: &Stage) -> Result<Option<Mixed>> {
    let git = |arguments: &[&str]| {
        let mut command = Command::new("git");
        command.arg("-C").arg(&paths.root).args(arguments);
        command
    };
    let tree = format!("{COMMIT}^{{tree}}");
    let found = git(&["cat-file", "-e", &tree]).output();
    if !found
        .context("cannot run git: install it")?
        .status
        .success()
    {
        return Ok(None);
    }
    let directory = paths.cargo_target().join("earlier");
    let source = directory.join("source");
    let built = directory.join("build");
    let digest = Inputs::default().text("1").text(COMMIT).digest();
    if !is_fresh(&built, &digest) {
        let step = Step::new(format!("the back end and libcuda of {COMMIT}"));
        let _ = fs::remove_dir_all(&source);
        fs::create_dir_all(&source)?;
        let archive = directory.join("source.tar");
        let mut command = git(&["archive", "-o"]);
        command.arg(&archive).arg(COMMIT);
        let log = paths.logs().join("earlier.log");
        run_logged(&mut command, Some(&step), &log)?;
        let mut command = Command::new("tar");
        command.arg("-xf").arg(&archive).arg("-C").arg(&source);
        run_logged(&mut command, Some(&step), &log)?;
        cargo(&source, &built, &step, &log)?;
        mark_fresh(&built, &digest)?;
        step.done("");
    }
    let made = built.join("release");
    Ok(Some(Mixed {
        old_guest: mix(stage, &directory.join("old-guest"), |mixed| {
            (made.join("libcuda.so"), mixed.shims().join("libcuda.so.1"))
        })?,
        old_host: mix(stage, &directory.join("old-host"), |mixed| {
            (made.join("vhost-device-gpgpu"), mixed.backend())
        })?,
    }))
}

fn cargo(source: &Path, target: &Path, step: &Step, log: &Path) -> Result<()> {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command
        .args(["build", "--release", "--locked", "--target-dir"])
        .arg(target)
        .current_dir(source)
        // Without optimisation, because its speed is not measured and compiling takes most of the time.
        .env("CARGO_PROFILE_RELEASE_OPT_LEVEL", "0")
        .env("CARGO_PROFILE_RELEASE_DEBUG", "0");
    for package in PACKAGES {
        command.args(["--package", package]);
    }
    run_logged(&mut command, Some(step), log).map(drop)
}

/// A stage that differs from today's in one file.
fn mix(
    stage: &Stage,
    directory: &Path,
    other: impl FnOnce(&Stage) -> (PathBuf, PathBuf),
) -> Result<Stage> {
    let _ = fs::remove_dir_all(directory);
    let mixed = Stage {
        dir: directory.to_owned(),
    };
    for part in [mixed.shims(), directory.join("bin")] {
        fs::create_dir_all(&part)?;
        let there = stage.dir.join(part.strip_prefix(directory)?);
        for entry in fs::read_dir(there)? {
            let entry = entry?;
            fs::hard_link(entry.path(), part.join(entry.file_name()))?;
        }
    }
    for shared in ["programs", "software-gpu"] {
        std::os::unix::fs::symlink(stage.dir.join(shared), directory.join(shared))?;
    }
    let (from, to) = other(&mixed);
    fs::remove_file(&to)?;
    install(&from, &to)?;
    Ok(mixed)
}
