// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! `cargo xtask package`: makes Debian packages and RPMs for the host and for guests, and tests their whole life cycle.

mod booted;
mod contents;
mod deb;
mod depends;
mod guest;
mod image;
mod image_test;
mod libvirt;
mod licences;
mod lifecycle;
mod machine;
mod oci;
mod release;
mod root;
mod rpm;
mod rpm_life;
mod service;
mod stand_in;
mod tree;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::artifacts::Stage;
use crate::kit::Kit;
use crate::paths::Paths;
use crate::setup::{Environment, Part};
use crate::ui::Step;
use contents::Package;
use release::Release;

/// The compression of packages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compression {
    /// For published packages.
    Small,
    /// For trials.
    None,
}

/// A format of packages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// Debian's.
    Deb,
    /// RPM.
    Rpm,
}

/// The files of the packages, in the same order for each format.
pub struct Made {
    /// For Debian.
    pub debs: Vec<PathBuf>,
    /// For RPM.
    pub rpms: Vec<PathBuf>,
}

/// The formats to make.
#[derive(clap::Args, Clone, Debug)]
pub struct Options {
    /// Install, use, upgrade, remove and purge the packages in clean Debian roots; as root.
    #[arg(long, group = "tried")]
    test: bool,
    /// The Debian releases to test in. [default: bookworm,trixie with --test, trixie with --guest]
    #[arg(long, value_enum, value_delimiter = ',', requires = "tried")]
    on: Vec<root::Debian>,
    /// Only install, use, upgrade, remove and purge the guest's Debian packages in a Debian that QEMU boots from a
    /// disk; as root.
    #[arg(long, group = "tried", conflicts_with_all = ["test", "images"])]
    guest: bool,
    /// With --guest: also run a stock PyTorch. This directory has its Python packages, made by `pip install --target`
    /// for the guest's Python (3.13 in Debian 13).
    #[arg(long, value_name = "DIR", requires = "guest")]
    pytorch: Option<PathBuf>,
    /// Only run a VM with the guest's packages under libvirt, on a Debian 13 with the host's package; as root.
    #[arg(long, conflicts_with_all = ["test", "images"])]
    libvirt: bool,
    /// Only packages of these formats.
    #[arg(long, value_enum, value_delimiter = ',', default_values = ["deb", "rpm"])]
    formats: Vec<Format>,
    /// Do not compress the packages, for a quicker trial.
    #[arg(long)]
    uncompressed: bool,
    /// Also make container images, an OCI archive of the host's service and one of the guest's part; as root.
    #[arg(long)]
    images: bool,
    /// With --images: make and test only the images.
    #[arg(long, requires = "images")]
    images_alone: bool,
    /// Use target/stage as an earlier build left it, and build nothing.
    #[arg(long)]
    staged: bool,
    /// The directory for the packages.
    #[arg(long, default_value = "target/packages")]
    output: PathBuf,
}

impl Options {
    /// The releases to test in; `usual` if none is given.
    fn releases<'a>(&'a self, usual: &'a [root::Debian]) -> &'a [root::Debian] {
        match self.on.is_empty() {
            true => usual,
            false => &self.on,
        }
    }
}

/// Builds everything, makes the packages and, if asked, tests them.
pub fn run(options: &Options) -> Result<()> {
    let (kit, environment) = match options.staged {
        true if options.guest => Kit::staged(&[Part::Guest])?,
        true => Kit::staged(&[])?,
        false => Kit::build(options.guest.then_some("newest"))?,
    };
    let paths = &environment.paths;
    let output = paths.root.join(&options.output);
    let release = Release::find(paths)?;
    if options.guest || options.libvirt {
        return in_guest(options, &kit, &environment, &release);
    }
    if options.images_alone {
        return images(&kit, &environment, &release, &output, options.test);
    }
    let step = Step::new("packages");
    let compression = match options.uncompressed {
        true => Compression::None,
        false => Compression::Small,
    };
    let formats = &options.formats;
    let made = build(paths, &kit.stage, &release, &output, compression, formats)?;
    step.done(format!("version {}", release.version));
    for file in made.debs.iter().chain(&made.rpms) {
        println!("{}", file.display());
    }
    if options.test {
        let work = tempfile::tempdir().context("cannot create a temporary directory")?;
        let make = |release: &Release, name: &str| {
            let output = work.path().join(name);
            build(
                paths,
                &kit.stage,
                release,
                &output,
                Compression::None,
                formats,
            )
        };
        let earlier = make(&release.with_version(lifecycle::EARLIER), "earlier")?;
        let step = Step::new("the packages can be reproduced");
        let (one, other) = (make(&release, "one")?, make(&release, "other")?);
        compare(&one.debs, &other.debs)?;
        compare(&one.rpms, &other.rpms)?;
        step.done("");
        for debian in options.releases(&[root::Debian::Bookworm, root::Debian::Trixie]) {
            let clean = root::CLEAN.ensure(paths, environment.cache(), *debian)?;
            if formats.contains(&Format::Deb) {
                lifecycle::run(&kit, &clean, *debian, &made.debs, &earlier.debs)?;
                service::run(&kit, &clean, *debian, &made.debs, &earlier.debs)?;
            }
            if formats.contains(&Format::Rpm) {
                let stand_in = stand_in::build(&release, work.path())?;
                let (made, earlier) = (&made.rpms, &earlier.rpms);
                rpm_life::run(&kit, &clean, *debian, made, earlier, &stand_in)?;
            }
        }
    }
    match options.images {
        true => images(&kit, &environment, &release, &output, options.test),
        false => Ok(()),
    }
}

/// Tests the packages in guests.
fn in_guest(
    options: &Options,
    kit: &Kit,
    environment: &Environment,
    release: &Release,
) -> Result<()> {
    let paths = &environment.paths;
    let work = tempfile::tempdir().context("cannot create a temporary directory")?;
    let make = |release: &Release, name: &str| {
        let (directory, compression) = (work.path().join(name), Compression::None);
        build(
            paths,
            &kit.stage,
            release,
            &directory,
            compression,
            &[Format::Deb],
        )
    };
    let made = make(release, "made")?;
    if options.guest {
        let earlier = make(&release.with_version(lifecycle::EARLIER), "earlier")?;
        let pytorch = options.pytorch.as_deref();
        for debian in options.releases(&[root::Debian::Trixie]) {
            guest::run(
                kit,
                environment,
                *debian,
                &made.debs,
                &earlier.debs,
                pytorch,
            )?;
        }
    }
    match options.libvirt {
        true => libvirt::run(kit, environment, &made.debs),
        false => Ok(()),
    }
}

/// Makes the images and, if asked, tests them.
fn images(
    kit: &Kit,
    environment: &Environment,
    release: &Release,
    output: &Path,
    test: bool,
) -> Result<()> {
    let paths = &environment.paths;
    let work = tempfile::tempdir().context("cannot create a temporary directory")?;
    let (directory, formats) = (work.path(), [Format::Deb]);
    let packages = build(
        paths,
        &kit.stage,
        release,
        directory,
        Compression::None,
        &formats,
    )?;
    let root = root::IMAGE.ensure(paths, environment.cache(), root::Debian::Trixie)?;
    let log = kit.logs.join("images.log");
    let made = image::build(&root, &packages.debs, release, output, &log)?;
    for file in &made {
        println!("{}", file.display());
    }
    if test {
        let step = Step::new("the images can be reproduced");
        let again = work.path().join("again");
        compare(
            &made,
            &image::build(&root, &packages.debs, release, &again, &log)?,
        )?;
        step.done("");
        image_test::run(kit, &made)?;
    }
    Ok(())
}

/// Makes all packages in the directory `output`, and removes all other packages of ours from it.
fn build(
    paths: &Paths,
    stage: &Stage,
    release: &Release,
    output: &Path,
    compression: Compression,
    formats: &[Format],
) -> Result<Made> {
    fs::create_dir_all(output).with_context(|| format!("cannot create {}", output.display()))?;
    for entry in fs::read_dir(output)?.flatten() {
        if entry
            .path()
            .extension()
            .is_some_and(|kind| kind == "deb" || kind == "rpm")
        {
            fs::remove_file(entry.path())?;
        }
    }
    let packages = contents::all(paths, stage, release)?;
    let all = |format, build: fn(&Package, &_, &_, _) -> _| -> Result<Vec<PathBuf>> {
        let wanted = packages.iter().filter(|_| formats.contains(&format));
        wanted
            .map(|package| build(package, release, output, compression))
            .collect()
    };
    Ok(Made {
        debs: all(Format::Deb, deb::build)?,
        rpms: all(Format::Rpm, rpm::build)?,
    })
}

/// Fails unless the files are identical.
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
