// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! nvcc and the CUDA headers, from PyPI, for building the test programs. No distributed file contains any of it.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::cache::Cache;
use crate::paths::Paths;
use crate::process::{capture, run_logged};
use crate::ui::{self, Step};

/// The exact tool-chain for building the programs.
const REQUIREMENT: &str = "cuda-toolkit[nvcc,cudart,crt,nvvm,cccl]==13.0.2";
const RECIPE: &str = "1 cuda-toolkit[nvcc,cudart,crt,nvvm,cccl]==13.0.2";
const ENTRY: &str = "cuda";

/// The tool-chain's place.
#[derive(Clone, Debug)]
pub struct Cuda {
    /// The directory with `bin`, `include` and `lib64`.
    pub home: PathBuf,
}

impl Cuda {
    /// The compiler.
    pub fn nvcc(&self) -> PathBuf {
        self.home.join("bin/nvcc")
    }
}

/// Fetches the tool-chain unless it exists.
pub fn ensure(paths: &Paths, cache: &Cache) -> Result<Cuda> {
    let dir = cache.dir(ENTRY);
    // A directory that the user has put there is accepted if its compiler reports the right release.
    if !cache.is_done(ENTRY, RECIPE) && find(&dir).is_ok_and(|cuda| check(&cuda).is_ok()) {
        cache.adopt(ENTRY, RECIPE)?;
    }
    let dir = cache.entry(ENTRY, RECIPE, |dir| install(paths, dir))?;
    find(&dir)
}

fn install(paths: &Paths, dir: &Path) -> Result<()> {
    ui::download(
        "nvcc 13.0 and the CUDA headers from PyPI",
        "about 120 MB, 271 MB unpacked",
        "NVIDIA CUDA Toolkit EULA",
    );
    let step = Step::new("nvcc and CUDA headers");
    make_venv(paths, dir, &step)?;
    let pip = run_logged(
        Command::new(dir.join("bin/python"))
            .args([
                "-m",
                "pip",
                "install",
                "--disable-pip-version-check",
                "--no-cache-dir",
                "--progress-bar",
                "off",
            ])
            .arg(REQUIREMENT),
        Some(&step),
        &paths.logs().join("cuda-pip.log"),
    );
    pip.context("pip could not install nvcc; the machine's pip must reach PyPI or a mirror of it")?;
    let cuda = find(dir)?;
    // Links that NVIDIA's installers create and the wheels lack.
    link("lib", &cuda.home.join("lib64"))?;
    link("libcudart.so.13", &cuda.home.join("lib/libcudart.so"))?;
    check(&cuda)?;
    step.done("13.0");
    Ok(())
}

/// Makes a virtual environment in `dir`; Debian has the module for that in a separate package.
fn make_venv(paths: &Paths, dir: &Path, step: &Step) -> Result<()> {
    let log = paths.logs().join("cuda-venv.log");
    let venv = || {
        run_logged(
            Command::new("python3")
                .args(["-m", "venv", "--clear"])
                .arg(dir),
            Some(step),
            &log,
        )
    };
    let Err(error) = venv() else { return Ok(()) };
    let text = format!("{error:#}");
    if !text.contains("ensurepip") && !text.contains("No module named venv") {
        return Err(error);
    }
    ui::line("python3's venv module is missing: installing Debian's package python3-venv");
    let install = "apt-get update && apt-get install --yes --no-install-recommends python3-venv";
    let apt_log = paths.logs().join("python3-venv.log");
    run_logged(
        Command::new("sh")
            .args(["-c", install])
            .env("DEBIAN_FRONTEND", "noninteractive"),
        Some(step),
        &apt_log,
    )
    .context("python3's venv module is missing; remedy, as root: apt-get install python3-venv")?;
    venv().map(|_| ())
}

fn link(target: &str, at: &Path) -> Result<()> {
    if fs::symlink_metadata(at).is_err() {
        symlink(target, at).with_context(|| format!("cannot create {}", at.display()))?;
    }
    Ok(())
}

fn find(dir: &Path) -> Result<Cuda> {
    let lib = dir.join("lib");
    for entry in fs::read_dir(&lib)
        .with_context(|| format!("{} is missing", lib.display()))?
        .flatten()
    {
        let home = entry.path().join("site-packages/nvidia/cu13");
        if home.join("bin/nvcc").is_file() {
            return Ok(Cuda { home });
        }
    }
    bail!("no nvcc under {}", dir.display())
}

fn check(cuda: &Cuda) -> Result<()> {
    let version = capture(Command::new(cuda.nvcc()).arg("--version"))?;
    if !version.contains("release 13.0") {
        bail!("nvcc is not release 13.0: {version}");
    }
    if !cuda.home.join("lib64").exists() || !cuda.home.join("lib/libcudart.so").exists() {
        bail!("the CUDA directory lacks its links");
    }
    Ok(())
}
