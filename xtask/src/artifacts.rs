// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Builds our own parts and lays them out in `target/stage` as in an installation.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::cache::{Inputs, is_fresh, mark_fresh};
use crate::cuda::Cuda;
use crate::parallel;
use crate::paths::Paths;
use crate::process::run_logged;
use crate::programs;
use crate::ui::Step;

const PACKAGES: &[&str] = &[
    "vhost-device-gpgpu",
    "gpgpu-libcuda",
    "gpgpu-libcudart",
    "gpgpu-cublas",
    "gpgpu-cublaslt",
    "gpgpu-cusolver",
    "gpgpu-cusparse",
    "gpgpu-cusparselt",
    "gpgpu-cudnn",
    "gpgpu-cufft",
    "gpgpu-cupti",
    "gpgpu-curand",
    "gpgpu-nvjpeg",
    "gpgpu-refusing",
    "gpgpu-nvml",
    "gpgpu-smi",
    "gpgpu-preload",
    "gpgpu-audit",
    "gpgpu-software-gpu",
    "gpgpu-software-cublas",
    "gpgpu-software-cupti",
    "gpgpu-software-cusolver",
    "gpgpu-software-cusparse",
    "gpgpu-software-cusparselt",
    "gpgpu-software-cudnn",
    "gpgpu-software-cufft",
    "gpgpu-software-curand",
    "gpgpu-software-nvjpeg",
    "gpgpu-software-nvml",
];

/// The runtime libraries that we offer, by the major number in their names.
pub const RUNTIMES: [&str; 2] = ["12", "13"];

/// A library of the guest that is linked from a static one, once for each major number in its name.
struct Linked {
    /// The static library.
    archive: &'static str,
    /// The directory with `NAME.map`, the versions of its symbols, and `NAME.ld` where symbols differ between the
    /// majors.
    directory: &'static str,
    /// Its name, without the number.
    name: &'static str,
    /// The numbers.
    majors: &'static [&'static str],
}

const LINKED: &[Linked] = &[
    Linked {
        archive: "libcudart.a",
        directory: "guest-driver/libcudart/link",
        name: "libcudart.so",
        majors: &RUNTIMES,
    },
    Linked {
        archive: "libgpgpu_cublas.a",
        directory: "guest-driver/cublas/link",
        name: "libcublas.so",
        majors: &["12", "13"],
    },
    Linked {
        archive: "libgpgpu_cublaslt.a",
        directory: "guest-driver/cublaslt/link",
        name: "libcublasLt.so",
        majors: &["12", "13"],
    },
    Linked {
        archive: "libgpgpu_cusolver.a",
        directory: "guest-driver/cusolver/link",
        name: "libcusolver.so",
        majors: &["11", "12"],
    },
    Linked {
        archive: "libgpgpu_cusparse.a",
        directory: "guest-driver/cusparse/link",
        name: "libcusparse.so",
        majors: &["12"],
    },
    Linked {
        archive: "libgpgpu_cusparselt.a",
        directory: "guest-driver/cusparselt/link",
        name: "libcusparseLt.so",
        majors: &["0"],
    },
    Linked {
        archive: "libgpgpu_cudnn.a",
        directory: "guest-driver/cudnn/link",
        name: "libcudnn.so",
        majors: &["9"],
    },
    Linked {
        archive: "libgpgpu_cufft.a",
        directory: "guest-driver/cufft/link",
        name: "libcufft.so",
        majors: &["11", "12"],
    },
    Linked {
        archive: "libgpgpu_curand.a",
        directory: "guest-driver/curand/link",
        name: "libcurand.so",
        majors: &["10"],
    },
    Linked {
        archive: "libgpgpu_nvjpeg.a",
        directory: "guest-driver/nvjpeg/link",
        name: "libnvjpeg.so",
        majors: &["12", "13"],
    },
    Linked {
        archive: "libgpgpu_cupti.a",
        directory: "guest-driver/cupti/link",
        name: "libcupti.so",
        majors: &["12", "13"],
    },
    Linked {
        archive: "libgpgpu_refusing.a",
        directory: "guest-driver/refusing/link",
        name: "libcufile.so",
        majors: &["0"],
    },
    Linked {
        archive: "libgpgpu_refusing.a",
        directory: "guest-driver/refusing/link",
        name: "libnvshmem_host.so",
        majors: &["3"],
    },
    Linked {
        archive: "libgpgpu_refusing.a",
        directory: "guest-driver/refusing/link",
        name: "libcusolverMg.so",
        majors: &["11", "12"],
    },
    Linked {
        archive: "libgpgpu_nvml.a",
        directory: "guest-driver/nvml/link",
        name: "libnvidia-ml.so",
        majors: &["1"],
    },
];

/// The paths in a stage, which is in `target/stage` or in an unpacked bundle.
#[derive(Clone, Debug)]
pub struct Stage {
    /// The stage's directory.
    pub dir: PathBuf,
}

impl Stage {
    /// The device back end.
    pub fn backend(&self) -> PathBuf {
        self.dir.join("bin/vhost-device-gpgpu")
    }

    /// The wrapper that runs a CUDA program on our libraries.
    pub fn gpgpu_run(&self) -> PathBuf {
        self.dir.join("bin/gpgpu-run")
    }

    /// The guest's libraries: `libcuda.so.1`, `libcudart.so.*`, the preload and the audit library.
    pub fn shims(&self) -> PathBuf {
        self.dir.join("lib/virtio-gpgpu")
    }

    /// Our runtime libraries and the preload, to run on NVIDIA's libcuda.
    pub fn native_cuda(&self) -> PathBuf {
        self.dir.join("lib/native-cuda")
    }

    /// The same beside the software GPU's libcuda.
    pub fn native_software(&self) -> PathBuf {
        self.dir.join("lib/native-software")
    }

    /// The directory with the software GPU's `libcuda.so.1` and the stand-ins for NVIDIA's libraries.
    pub fn software_gpu(&self) -> PathBuf {
        self.dir.join("software-gpu")
    }

    /// The test programs, in one directory for each way of linking.
    pub fn programs(&self) -> PathBuf {
        self.dir.join("programs")
    }
}

/// Builds all parts and the programs, and returns the stage.
pub fn build(paths: &Paths, cuda: &Cuda) -> Result<Stage> {
    compile(paths)?;
    let stage = lay_out(paths)?;
    programs::build(paths, cuda, &stage.dir)?;
    Ok(stage)
}

/// Lays out the files that [`compile`] has built, and returns the stage.
pub fn lay_out(paths: &Paths) -> Result<Stage> {
    let stage = Stage { dir: paths.stage() };
    let release = paths.cargo_target().join("release");
    install_copies(paths, &release, &stage)?;
    link_to("libcuda.so.1", &stage.software_gpu().join("libcuda.so"))?;
    // One library with both names, so that both accept each other's handles.
    let cublaslt = stage.software_gpu().join("libcublasLt.so.13");
    link_to("libcublas.so.13", &cublaslt)?;
    link_libraries(paths, &release, &stage)?;
    fill_native_directories(&stage)?;
    Ok(stage)
}

/// Copies the files that need no further linking, without debugging information.
fn install_copies(paths: &Paths, release: &Path, stage: &Stage) -> Result<()> {
    let copies = [
        ("vhost-device-gpgpu", stage.backend()),
        ("gpgpu-run", stage.gpgpu_run()),
        ("gpgpu-smi", stage.dir.join("bin/gpgpu-smi")),
        ("libcuda.so", stage.shims().join("libcuda.so.1")),
        (
            "libgpgpu_preload.so",
            stage.shims().join("libgpgpu_preload.so"),
        ),
        (
            "libsoftware_gpu.so",
            stage.software_gpu().join("libcuda.so.1"),
        ),
        (
            "libsoftware_cublas.so",
            stage.software_gpu().join("libcublas.so.13"),
        ),
        (
            "libsoftware_cupti.so",
            stage.software_gpu().join("libcupti.so.13"),
        ),
        (
            "libsoftware_cusolver.so",
            stage.software_gpu().join("libcusolver.so.12"),
        ),
        (
            "libsoftware_cusparse.so",
            stage.software_gpu().join("libcusparse.so.12"),
        ),
        (
            "libsoftware_cusparselt.so",
            stage.software_gpu().join("libcusparseLt.so.0"),
        ),
        (
            "libsoftware_cudnn.so",
            stage.software_gpu().join("libcudnn.so.9"),
        ),
        (
            "libsoftware_cufft.so",
            stage.software_gpu().join("libcufft.so.12"),
        ),
        (
            "libsoftware_curand.so",
            stage.software_gpu().join("libcurand.so.10"),
        ),
        (
            "libsoftware_nvjpeg.so",
            stage.software_gpu().join("libnvjpeg.so.13"),
        ),
        (
            "libsoftware_nvml.so",
            stage.software_gpu().join("libnvidia-ml.so.1"),
        ),
    ];
    parallel::for_each(copies.into(), |(name, target)| {
        install_stripped(paths, &release.join(name), &target)
    })
}

/// Links the guest's libraries of [`LINKED`] and the audit library, and creates the names without a number.
fn link_libraries(paths: &Paths, release: &Path, stage: &Stage) -> Result<()> {
    let all = LINKED
        .iter()
        .flat_map(|library| library.majors.iter().map(move |major| (library, *major)));
    parallel::for_each(all.collect(), |(library, major)| {
        link(paths, release, library, major, stage)
    })?;
    // NVIDIA's driver and toolkit have these names too. Some programs open only this name, or this one first.
    let newest = |of: &Linked| (of.name, of.majors.last().copied().unwrap_or_default());
    for (name, major) in [("libcuda.so", "1")]
        .into_iter()
        .chain(LINKED.iter().map(newest))
    {
        link_to(&format!("{name}.{major}"), &stage.shims().join(name))?;
    }
    link_audit(paths, release, &stage.shims().join("libgpgpu_audit.so"))
}

/// Fills the directories of the libraries that programs without a back end use. They contain links to other files of
/// the stage.
fn fill_native_directories(stage: &Stage) -> Result<()> {
    let common = [
        "libcudart.so.12",
        "libcudart.so.13",
        "libgpgpu_preload.so",
        "libgpgpu_audit.so",
    ];
    for dir in [stage.native_cuda(), stage.native_software()] {
        for name in common {
            link_to(&format!("../virtio-gpgpu/{name}"), &dir.join(name))?;
        }
    }
    for name in [
        "libcuda.so",
        "libcuda.so.1",
        "libcublas.so.13",
        "libcublasLt.so.13",
        "libcudnn.so.9",
        "libcufft.so.12",
        "libcurand.so.10",
        "libcusolver.so.12",
        "libcusparse.so.12",
        "libcusparseLt.so.0",
        "libnvjpeg.so.13",
    ] {
        link_to(
            &format!("../../software-gpu/{name}"),
            &stage.native_software().join(name),
        )?;
    }
    Ok(())
}

/// Compiles our parts.
pub fn compile(paths: &Paths) -> Result<()> {
    let step = Step::new("cargo build --release");
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command
        .args(["build", "--release"])
        .current_dir(&paths.root);
    for package in PACKAGES {
        command.args(["--package", package]);
    }
    run_logged(
        &mut command,
        Some(&step),
        &paths.logs().join("cargo-build.log"),
    )?;
    step.done("");
    Ok(())
}

/// Links a library from the static one, as described in `guest-driver/libcudart/README.md`.
fn link(paths: &Paths, release: &Path, library: &Linked, major: &str, stage: &Stage) -> Result<()> {
    let name = format!("{}.{major}", library.name);
    let target = stage.shims().join(&name);
    let archive = release.join(library.archive);
    let directory = paths.root.join(library.directory);
    let map = directory.join(format!("{name}.map"));
    let script = directory.join(format!("{name}.ld"));
    let script = script.exists().then_some(script);
    let mut inputs = Inputs::default().text("4").stamp(&archive)?.file(&map)?;
    if let Some(script) = &script {
        inputs = inputs.file(script)?;
    }
    let digest = inputs.digest();
    if is_fresh(&target, &digest) {
        return Ok(());
    }
    let step = Step::new(&name);
    let made = tempfile::tempdir().context("cannot create a scratch directory")?;
    let output = made.path().join(library.name);
    let mut command = Command::new("gcc");
    command
        .args(["-shared", "-o"])
        .arg(&output)
        .arg(format!("-Wl,-soname,{name}"))
        // libcuda calls CUPTI's functions, and threads those of thread-local storage, after a program closes a library.
        .arg("-Wl,-z,nodelete");
    command
        .arg(format!("-Wl,--version-script={}", map.display()))
        .args(script);
    command
        .args(["-Wl,--whole-archive"])
        .arg(&archive)
        .arg("-Wl,--no-whole-archive");
    command.args(["-Wl,--gc-sections", "-lgcc_s", "-lpthread", "-ldl", "-lm"]);
    run_logged(
        &mut command,
        Some(&step),
        &paths.logs().join(format!("{name}.log")),
    )?;
    install_stripped(paths, &output, &target)?;
    mark_fresh(&target, &digest)?;
    step.done("");
    Ok(())
}

/// Links `libgpgpu_audit.so` from the static library alone.
fn link_audit(paths: &Paths, release: &Path, target: &Path) -> Result<()> {
    let archive = release.join("libgpgpu_audit.a");
    let map = paths
        .root
        .join("guest-driver/preload/audit/libgpgpu_audit.map");
    let digest = Inputs::default()
        .text("1")
        .stamp(&archive)?
        .file(&map)?
        .digest();
    if is_fresh(target, &digest) {
        return Ok(());
    }
    let step = Step::new("libgpgpu_audit.so");
    let made = tempfile::tempdir().context("cannot create a scratch directory")?;
    let output = made.path().join("libgpgpu_audit.so");
    let mut command = Command::new("gcc");
    command
        .args(["-shared", "-nostdlib", "-Wl,--gc-sections", "-Wl,-z,now"])
        .arg(format!("-Wl,--version-script={}", map.display()));
    for name in ["version", "objopen", "objclose", "objsearch", "symbind64"] {
        command.arg(format!("-Wl,-u,la_{name}"));
    }
    command.arg("-o").arg(&output).arg(&archive);
    run_logged(
        &mut command,
        Some(&step),
        &paths.logs().join("libgpgpu_audit.log"),
    )?;
    install_stripped(paths, &output, target)?;
    mark_fresh(target, &digest)?;
    step.done("");
    Ok(())
}

/// Installs a copy without debugging information, unless the existing copy is of this very file.
fn install_stripped(paths: &Paths, from: &Path, to: &Path) -> Result<()> {
    let digest = Inputs::default().text("strip 1").stamp(from)?.digest();
    let name = to.file_name().unwrap_or_default().to_string_lossy();
    let directory = to.parent().and_then(Path::file_name).unwrap_or_default();
    let mark = to.with_file_name(format!("{name}.source"));
    if to.exists() && is_fresh(&mark, &digest) {
        return Ok(());
    }
    let work = tempfile::tempdir().context("cannot create a scratch directory")?;
    let stripped = work.path().join("stripped");
    // Symbols are kept: the preload finds functions by them, and backtraces need them.
    run_logged(
        Command::new("strip")
            .arg("--strip-debug")
            .arg("-o")
            .arg(&stripped)
            .arg(from),
        None,
        // Several commands run at a time, and two directories share a name.
        &paths
            .logs()
            .join(format!("strip-{}-{name}.log", directory.to_string_lossy())),
    )?;
    programs::install(&stripped, to)?;
    fs::write(&mark, "")?;
    mark_fresh(&mark, &digest)
}

fn link_to(target: &str, at: &Path) -> Result<()> {
    if fs::read_link(at).is_ok_and(|there| there == Path::new(target)) {
        return Ok(());
    }
    if let Some(parent) = at.parent() {
        fs::create_dir_all(parent)?;
    }
    let _ = fs::remove_file(at);
    symlink(target, at).with_context(|| format!("cannot create {}", at.display()))
}
