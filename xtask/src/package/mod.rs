// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! `cargo xtask package`: Debian packages for the host and for guests, and a test of their whole life.

mod booted;
mod contents;
mod deb;
mod depends;
mod licences;
mod lifecycle;
mod machine;
mod release;
mod root;
mod service;
mod tree;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::artifacts::Stage;
use crate::kit::Kit;
use crate::paths::Paths;
use crate::ui::Step;
use deb::Compression;
use release::Release;

/// What to make.
#[derive(clap::Args, Clone, Debug)]
pub struct Options {
    /// Install, upgrade, remove and purge them in clean Debian roots, and run a CUDA program in between; as root.
    #[arg(long)]
    test: bool,
    /// The Debian releases to test in.
    #[arg(long, value_enum, value_delimiter = ',', requires = "test", default_values = ["bookworm", "trixie"])]
    on: Vec<root::Debian>,
    /// Where the packages go.
    #[arg(long, default_value = "target/packages")]
    output: PathBuf,
}

/// Builds everything, makes the packages and, if asked, tests them.
pub fn run(options: &Options) -> Result<()> {
    let (kit, environment) = Kit::build(None)?;
    let paths = &environment.paths;
    let output = paths.root.join(&options.output);
    let step = Step::new("packages");
    let release = Release::find(paths)?;
    let made = build(paths, &kit.stage, &release, &output, Compression::Small)?;
    step.done(format!("version {}", release.version));
    for file in &made {
        println!("{}", file.display());
    }
    if options.test {
        let work = tempfile::tempdir().context("cannot create a temporary folder")?;
        let make = |release: &Release, name: &str| {
            let output = work.path().join(name);
            build(paths, &kit.stage, release, &output, Compression::None)
        };
        let earlier = make(&release.with_version(lifecycle::EARLIER), "earlier")?;
        let step = Step::new("the packages can be reproduced");
        compare(&make(&release, "one")?, &make(&release, "other")?)?;
        step.done("");
        for debian in &options.on {
            let clean = root::ensure(paths, environment.cache(), *debian)?;
            lifecycle::run(&kit, &clean, *debian, &made, &earlier)?;
            service::run(&kit, &clean, *debian, &made, &earlier)?;
        }
    }
    Ok(())
}

/// Makes all packages in the folder `output`, which has nothing else of ours afterwards.
fn build(
    paths: &Paths,
    stage: &Stage,
    release: &Release,
    output: &Path,
    compression: Compression,
) -> Result<Vec<PathBuf>> {
    fs::create_dir_all(output).with_context(|| format!("cannot create {}", output.display()))?;
    for entry in fs::read_dir(output)?.flatten() {
        if entry.path().extension().is_some_and(|kind| kind == "deb") {
            fs::remove_file(entry.path())?;
        }
    }
    contents::all(paths, stage, release)?
        .into_iter()
        .map(|package| package.build(release, output, compression))
        .collect()
}

/// Fails unless the files are byte by byte the same.
fn compare(made: &[PathBuf], again: &[PathBuf]) -> Result<()> {
    for (one, other) in made.iter().zip(again) {
        anyhow::ensure!(
            fs::read(one)? == fs::read(other)?,
            "{} and {} differ",
            one.display(),
            other.display()
        );
    }
    Ok(())
}
