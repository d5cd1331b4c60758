//! Everything that has to be fetched before anything can be built or booted.

use anyhow::{Context, Result};

use crate::cache::Cache;
use crate::cuda::{self, Cuda};
use crate::debian::{self, BOOKWORM, RootSpec, TRIXIE};
use crate::kernel::{self, Kernel};
use crate::paths::Paths;

/// The parts that can be set up one by one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Part {
    /// nvcc and the CUDA headers.
    Cuda,
    /// QEMU, the two guest kernels that are booted, their headers and compiler.
    Guest,
    /// Headers and compiler of the oldest kernel that the module is built for.
    Oldest,
}

/// What was set up, as far as it was asked for.
pub struct Environment {
    /// The repository.
    pub paths: Paths,
    /// nvcc and headers.
    pub cuda: Option<Cuda>,
    /// Kernels that VMs boot, oldest first.
    pub boot_kernels: Vec<Kernel>,
    /// The kernel that modules are only built for.
    pub oldest_kernel: Option<Kernel>,
    /// Held so that no other run changes `target/` underneath.
    _cache: Cache,
}

impl Environment {
    /// nvcc and headers; an error if they were not asked for.
    pub fn cuda(&self) -> Result<&Cuda> {
        self.cuda.as_ref().context("nvcc was not set up")
    }

    /// The boot kernel that `which` names: `newest`, or a series such as `6.12`.
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
                "there is no kernel {which}; there are {} and newest",
                known.join(", ")
            )
        })
    }
}

/// Sets up `parts`; what is there already is left alone.
pub fn run(parts: &[Part]) -> Result<Environment> {
    let paths = Paths::find()?;
    let cache = Cache::open(&paths.cache())?;
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
        _cache: cache,
    })
}
