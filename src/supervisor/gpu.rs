// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The choice of the workers' libcuda: NVIDIA's or the software GPU's.
//!
//! The supervisor never calls CUDA. A separate process tests whether a library works, and ends before any VM connects.

use std::{
    ffi::CStr,
    io::Read,
    os::fd::AsFd,
    path::{Path, PathBuf},
    process::Stdio,
    time::{Duration, Instant},
};

use cudarc::driver::{DriverError, result, sys};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::process::Program;
use crate::{
    cuda::driver,
    policy::{HostGpu, values::Memory},
};

/// The time limit for the start of a driver. On hosts with eight GPUs and without the persistence daemon it takes some
/// twenty seconds.
const PROBE_LIMIT: Duration = Duration::from_secs(60);

/// The operator's choice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Gpu {
    /// An NVIDIA GPU if there is one, otherwise the software GPU.
    Auto,
    /// An NVIDIA GPU.
    Cuda,
    /// The software GPU, which runs PTX on the CPU.
    Software,
}

/// The reason why there is no GPU.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// `--gpu cuda` was given, and CUDA does not work.
    #[error(
        "No usable NVIDIA GPU: {0}. Check that nvidia-smi works for this user, that libcuda.so.1 is \
         in the loader's path and that /dev/nvidia* is accessible; or use --gpu software"
    )]
    NoCuda(String),
    /// The software GPU does not work.
    #[error(
        "No software GPU in {0}: {1}. Set the directory of the software GPU's libcuda.so.1 with \
         --software-gpu"
    )]
    NoSoftware(String, String),
    /// Neither works.
    #[error("{0}; no NVIDIA GPU either: {1}")]
    Neither(Box<Error>, String),
}

/// The GPU that runs the guests' kernels.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chosen {
    /// [`Gpu::Cuda`] or [`Gpu::Software`].
    pub gpu: Gpu,
    /// Its GPUs.
    pub gpus: Vec<HostGpu>,
    /// The software GPU's directory, if the software GPU runs the kernels.
    pub directory: Option<PathBuf>,
}

/// Makes `worker` load the right libcuda, as found by `probe`, which is the same program in another role; returns the
/// choice.
///
/// # Errors
/// The requested GPU is missing; see [`Error`].
pub fn choose(
    gpu: Gpu,
    software: Option<&Path>,
    worker: &mut Program,
    probe: &Program,
) -> Result<Chosen, Error> {
    let cuda = match gpu {
        Gpu::Software => None,
        Gpu::Auto | Gpu::Cuda => match run(probe) {
            Ok(gpus) => {
                log(&gpus);
                return Ok(Chosen {
                    gpu: Gpu::Cuda,
                    gpus,
                    directory: None,
                });
            }
            Err(reason) if gpu == Gpu::Cuda => return Err(Error::NoCuda(reason)),
            Err(reason) => Some(reason),
        },
    };
    let directory = software.map_or_else(default_directory, Path::to_owned);
    let gpus = match (use_software(&directory, worker, probe), &cuda) {
        (Ok(gpus), _) => gpus,
        (Err(error), None) => return Err(error),
        (Err(error), Some(reason)) => {
            return Err(Error::Neither(Box::new(error), reason.clone()));
        }
    };
    match cuda {
        None => tracing::info!("Software GPU: {}", directory.display()),
        Some(reason) => tracing::info!(
            "Software GPU: {}, because no NVIDIA GPU is usable: {reason}",
            directory.display()
        ),
    }
    if gpus.len() > 1 {
        log(&gpus);
    }
    Ok(Chosen {
        gpu: Gpu::Software,
        gpus,
        directory: Some(directory),
    })
}

fn log(devices: &[HostGpu]) {
    for (number, gpu) in devices.iter().enumerate() {
        let memory = Memory(Some(gpu.memory));
        tracing::info!("GPU {number}: {}, {memory}", gpu.name);
    }
}

fn use_software(
    directory: &Path,
    worker: &mut Program,
    probe: &Program,
) -> Result<Vec<HostGpu>, Error> {
    let error = |reason: String| Error::NoSoftware(directory.display().to_string(), reason);
    // The loader looks for both names. If one is missing here, it would be found elsewhere.
    for name in ["libcuda.so.1", "libcuda.so"] {
        if !directory.join(name).is_file() {
            return Err(error(format!("{name} is missing")));
        }
    }
    let mut probe = probe.clone();
    probe.prefer_libraries_of(directory.as_os_str());
    let devices = run(&probe).map_err(error)?;
    worker.prefer_libraries_of(directory.as_os_str());
    Ok(devices)
}

/// The directory beside the program's directory, as in the workspace and in packages, or the system's.
fn default_directory() -> PathBuf {
    let beside = std::env::current_exe()
        .ok()
        .and_then(|exe| Some(exe.parent()?.parent()?.join("software-gpu")))
        .filter(|directory| directory.join("libcuda.so.1").is_file());
    beside.unwrap_or_else(|| PathBuf::from("/usr/lib/virtio-gpgpu/software-gpu"))
}

/// Runs a probe; returns the devices, or the reason why there are none.
fn run(probe: &Program) -> Result<Vec<HostGpu>, String> {
    let mut child = probe
        .command()
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .map_err(|error| format!("{}: {error}", probe.program.display()))?;
    let mut said = Vec::new();
    let deadline = Instant::now() + PROBE_LIMIT;
    if let Some(mut output) = child.stdout.take() {
        let mut buffer = [0; 512];
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let timeout = PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX);
            let mut fds = [PollFd::new(output.as_fd(), PollFlags::POLLIN)];
            match poll(&mut fds, timeout) {
                Ok(0) => {
                    let _ = child.kill();
                    return Err("the driver does not answer".to_owned());
                }
                Ok(_) => match output.read(&mut buffer) {
                    Ok(0) | Err(_) => break,
                    Ok(len) => said.extend_from_slice(&buffer[..len]),
                },
                Err(nix::errno::Errno::EINTR) => {}
                Err(error) => return Err(error.to_string()),
            }
        }
    }
    let ended = child.wait().map_err(|error| error.to_string())?;
    let said = String::from_utf8_lossy(&said).trim().to_owned();
    match ended.success() {
        true => parse(&said).ok_or_else(|| format!("malformed answer of the probe: {said}")),
        false if said.is_empty() => Err(format!("its driver failed ({})", super::reason(ended))),
        false => Err(said),
    }
}

/// Parses a probe's output: a line for each device, with the bytes of its memory, its address on the PCI bus and its
/// name.
fn parse(said: &str) -> Option<Vec<HostGpu>> {
    let gpu = |line: &str| {
        let (memory, rest) = line.split_once(' ')?;
        let (address, name) = rest.split_once(' ')?;
        Some(HostGpu {
            name: name.to_owned(),
            memory: memory.parse().ok()?,
            address: address.to_owned(),
        })
    };
    let gpus: Option<Vec<_>> = said.lines().map(gpu).collect();
    gpus.filter(|gpus| !gpus.is_empty())
}

/// The probe itself: prints the devices and succeeds, or prints why there are none.
pub fn probe() -> std::process::ExitCode {
    match devices() {
        Ok(devices) => {
            for gpu in devices {
                println!("{} {} {}", gpu.memory, gpu.address, gpu.name);
            }
            std::process::ExitCode::SUCCESS
        }
        Err(reason) => {
            println!("{reason}");
            std::process::ExitCode::FAILURE
        }
    }
}

fn devices() -> Result<Vec<HostGpu>, String> {
    // SAFETY: libcuda is loaded, which runs its initialisers, as it is meant to.
    if !unsafe { sys::is_culib_present() } {
        return Err("libcuda.so.1 cannot be loaded".to_owned());
    }
    let name = |error: DriverError| match error.error_name() {
        Ok(name) => name.to_string_lossy().into_owned(),
        Err(_) => format!("CUDA error {}", error.0 as u32),
    };
    result::init().map_err(name)?;
    let count = result::device::get_count().map_err(name)?;
    let mut devices = Vec::new();
    for ordinal in 0..count {
        let device = result::device::get(ordinal).map_err(name)?;
        let called = result::device::get_name(device).map_err(name)?;
        // SAFETY: the device is one that the driver has given out.
        let memory = unsafe { result::device::total_mem(device) }.map_err(name)?;
        devices.push(HostGpu {
            name: called.replace('\n', " "),
            memory: memory as u64,
            address: address(device),
        });
    }
    if devices.is_empty() {
        return Err("no devices".to_owned());
    }
    Ok(devices)
}

/// A device's address on the PCI bus; empty if the driver does not report it.
fn address(device: sys::CUdevice) -> String {
    let mut text = [0u8; 32];
    // SAFETY: the buffer lives across the call, and its length leaves the last byte a NUL.
    let told = unsafe {
        driver::cuDeviceGetPCIBusId(text.as_mut_ptr().cast(), text.len() as i32 - 1, device)
    };
    let text = CStr::from_bytes_until_nul(&text).unwrap_or_default();
    match told {
        Ok(()) => text.to_string_lossy().replace([' ', '\n', ','], ""),
        Err(_) => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_probe_reports_memory_address_and_name() {
        let gpus = parse("7 0000:3B:00.0 NVIDIA H100\n8  GPU").unwrap();
        let expected = HostGpu {
            name: "NVIDIA H100".to_owned(),
            memory: 7,
            address: "0000:3B:00.0".to_owned(),
        };
        assert_eq!(gpus[0], expected);
        assert_eq!((&*gpus[1].address, &*gpus[1].name), ("", "GPU"));
        assert_eq!(parse("7 GPU"), None);
        assert_eq!(parse(""), None);
    }
}
