// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Downloads that are needed before anything can be built or booted.

use std::process::Command;

use anyhow::{Context, Result};

use crate::cache::Cache;
use crate::cuda::{self, Cuda};
use crate::debian::{self, BOOKWORM, RootSpec, TRIXIE};
use crate::kernel::{self, Kernel};
use crate::paths::Paths;
use crate::process::run_logged;
use crate::ui::{self, Step};

/// The parts that can be set up one by one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Part {
    /// nvcc and the CUDA headers.
    Cuda,
    /// QEMU, the two guest kernels that are booted, their headers and compiler.
    Guest,
    /// The oldest kernel that the module is built for, its headers and compiler.
    Oldest,
}

/// The requested downloads.
pub struct Environment {
    /// The repository.
    pub paths: Paths,
    /// nvcc and headers.
    pub cuda: Option<Cuda>,
    /// Kernels that VMs boot, oldest first.
    pub boot_kernels: Vec<Kernel>,
    /// The oldest kernel, which only the driver's own tests boot.
    pub oldest_kernel: Option<Kernel>,
    /// Held so that no other run changes `target/` at the same time.
    cache: Cache,
}

impl Environment {
    /// The cache, for downloads of single commands.
    pub fn cache(&self) -> &Cache {
        &self.cache
    }

    /// nvcc and headers; an error if they were not requested.
    pub fn cuda(&self) -> Result<&Cuda> {
        self.cuda.as_ref().context("nvcc was not set up")
    }

    /// The kernel to boot with the name `which`: `newest`, or a series such as `6.12`.
    pub fn kernel(&self, which: &str) -> Result<&Kernel> {
        let found = match which {
            "newest" => self.boot_kernels.last(),
            series => self.boot_kernels.iter().find(|kernel| {
                let (major, minor) = kernel.series();
                format!("{major}.{minor}") == series
            }),
        };
        found.with_context(|| {
            let known: Vec<String> = self
                .boot_kernels
                .iter()
                .map(|k| format!("{}.{}", k.series().0, k.series().1))
                .collect();
            format!(
                "unknown kernel {which}; the kernels are {} and newest",
                known.join(", ")
            )
        })
    }
}

/// Programs of the host that builds need, each with its Debian package.
const HOST_TOOLS: [(&str, &str); 6] = [
    ("g++", "g++"),
    ("gcc", "gcc"),
    ("make", "make"),
    ("strip", "binutils"),
    ("python3", "python3"),
    ("unshare", "util-linux"),
];

/// Installs missing host tools, as root; otherwise prints the commands.
pub fn host_tools(paths: &Paths) -> Result<()> {
    let search = std::env::var_os("PATH").unwrap_or_default();
    let missing: Vec<&str> = HOST_TOOLS
        .iter()
        .filter(|(program, _)| {
            !std::env::split_paths(&search).any(|dir| dir.join(program).is_file())
        })
        .map(|(_, package)| *package)
        .collect();
    if missing.is_empty() {
        return Ok(());
    }
    let list = missing.join(" ");
    ui::download(
        &format!("Debian packages {list}, installed on this machine"),
        "up to 60 MB",
        "GPL and others, see each package",
    );
    let step = Step::new(format!("apt-get install {list}"));
    run_logged(
        Command::new("sh")
            .arg("-c")
            .arg(format!(
                "apt-get update && apt-get install --yes --no-install-recommends {list}"
            ))
            .env("DEBIAN_FRONTEND", "noninteractive"),
        Some(&step),
        &paths.logs().join("host-tools.log"),
    )
    .with_context(|| {
        format!("tools are missing on this machine; remedy, as root: apt-get install {list}")
    })?;
    step.done("");
    Ok(())
}

/// The repository and its cache, before anything is fetched.
pub struct Opened {
    /// The repository.
    pub paths: Paths,
    cache: Cache,
}

/// Finds or installs the host's tools, and waits until no other run uses the cache.
pub fn open() -> Result<Opened> {
    let paths = Paths::find()?;
    host_tools(&paths)?;
    let cache = Cache::open(&paths.cache())?;
    Ok(Opened { paths, cache })
}

/// Sets up `parts`; existing ones are kept.
pub fn run(parts: &[Part]) -> Result<Environment> {
    open()?.fetch(parts)
}

impl Opened {
    /// Sets up `parts`, as [`run`].
    pub fn fetch(self, parts: &[Part]) -> Result<Environment> {
        let Self { paths, cache } = self;
        let cuda = parts
            .contains(&Part::Cuda)
            .then(|| cuda::ensure(&paths, &cache))
            .transpose()?;
        let root = |spec: &RootSpec| -> Result<Vec<Kernel>> {
            kernel::in_root(&cache.entry(spec.name, &spec.recipe(), |dir| {
                debian::make_root(&paths, spec, dir)
            })?)
        };
        let boot_kernels = if parts.contains(&Part::Guest) {
            root(&TRIXIE)?
        } else {
            Vec::new()
        };
        let oldest_kernel = if parts.contains(&Part::Oldest) {
            root(&BOOKWORM)?.into_iter().next()
        } else {
            None
        };
        Ok(Environment {
            paths,
            cuda,
            boot_kernels,
            oldest_kernel,
            cache,
        })
    }
}
