//! vhost-user back end that runs CUDA for virtual machines without a GPU.
//!
//! One program in several roles, each a process of its own:
//! - [`supervisor`]: the one that the operator starts; it starts and watches the others.
//! - [`device`]: one for each VM; the vhost-user back end.
//! - [`worker`]: one for each CUDA process of a guest; it runs that process's CUDA.
//! - [`mover`]: one for each GPU; it copies between guests' memory and workers' device memory.
//!
//! [`ipc`] is what they say to each other.

pub mod account;
pub mod args;
pub mod device;
pub mod ipc;
mod log_limit;
pub mod mover;
pub mod policy;
mod role;
pub mod sandbox;
pub mod supervisor;
pub mod worker;

use std::{error::Error, ffi::OsString, io::IsTerminal, os::fd::AsFd, process::ExitCode};

use clap::Parser;
use nix::sys::{
    resource::{Resource, getrlimit, setrlimit},
    signal::{SigSet, Signal},
    signalfd::{SfdFlags, SignalFd},
};

use args::{Args, Config};
use policy::VmPolicy;
use supervisor::{Gpu, Program, Supervisor};

/// The program: does what its command line says, and logs why it cannot.
pub fn main() -> ExitCode {
    start_log();
    let role = std::env::args_os().nth(1);
    match run(role) {
        Ok(code) => code,
        Err(error) => {
            tracing::error!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn run(role: Option<OsString>) -> Result<ExitCode, Box<dyn Error>> {
    match role.as_ref().and_then(|role| role.to_str()) {
        Some(role::DEVICE) => {
            role::settle()?;
            device::run(role::take_channel()?)?;
        }
        Some(role::WORKER) => {
            role::settle()?;
            let has = |option: &str| std::env::args_os().any(|argument| argument == option);
            worker::run(
                ipc::WorkerEnd::new(role::take_channel()?),
                worker::Options {
                    allow_pageable_access: has(role::ALLOW_PAGEABLE_ACCESS),
                    warm_contexts: has(role::WARM_CONTEXTS),
                },
            )?;
        }
        Some(role::MOVER) => {
            role::settle()?;
            let gpu = std::env::args()
                .nth(2)
                .and_then(|gpu| gpu.parse().ok())
                .ok_or("A mover is told the number of its GPU")?;
            mover::run(role::take_channel()?, gpu)?;
        }
        Some(role::PROBE) => {
            role::settle()?;
            return Ok(supervisor::probe());
        }
        _ => supervise(Args::parse().try_into()?)?,
    }
    Ok(ExitCode::SUCCESS)
}

fn supervise(config: Config) -> Result<(), Box<dyn Error>> {
    let mut worker = Program::own(role::WORKER)?;
    if config.allow_pageable_access {
        worker.arguments.push(role::ALLOW_PAGEABLE_ACCESS.into());
    }
    if config.warm_contexts {
        worker.arguments.push(role::WARM_CONTEXTS.into());
    }
    let probe = Program::own(role::PROBE)?;
    let gpu = supervisor::choose(
        config.gpu,
        config.software_gpu.as_deref(),
        &mut worker,
        &probe,
    )?;
    // A mover loads the libcuda that workers load.
    let mut mover = worker.clone();
    let role = mover.arguments.iter().position(|role| role == role::WORKER);
    mover.arguments.truncate(role.unwrap_or(0));
    mover.arguments.push(role::MOVER.into());
    let cache = supervisor::cache::directory().filter(|_| gpu == Gpu::Cuda);
    if gpu == Gpu::Cuda && cache.is_none() {
        tracing::info!("What the driver compiles is not kept: the environment names no directory");
    }
    for (name, value) in worker::cache_variables(cache.is_some()) {
        worker.environment.push((name.into(), value.into()));
    }

    // From here on a signal is an orderly end.
    let mut signals = SigSet::empty();
    signals.add(Signal::SIGINT);
    signals.add(Signal::SIGTERM);
    signals.thread_block()?;
    let stop = SignalFd::with_flags(&signals, SfdFlags::SFD_CLOEXEC)?;

    // Each client costs each process a few descriptors, and the default is 1024.
    let (_, most) = getrlimit(Resource::RLIMIT_NOFILE)?;
    setrlimit(Resource::RLIMIT_NOFILE, most, most)?;

    let supervisor = Supervisor::new(supervisor::Config {
        vms: config.sockets.into_iter().map(VmPolicy::new).collect(),
        max_connections: config.max_connections,
        device: Program::own(role::DEVICE)?,
        worker,
        warm_workers: config.warm_workers,
        cache,
        mover: config.mover.then_some(mover),
    })?;
    supervisor.run(stop.as_fd())?;
    Ok(())
}

fn start_log() {
    let filter = ["VIRTIO_GPGPU_LOG", "RUST_LOG"]
        .iter()
        .find_map(|name| std::env::var(name).ok())
        .unwrap_or_else(|| "info".to_owned());
    // The library logs an error for each kick of a guest whose ring makes no sense.
    let filter = tracing_subscriber::EnvFilter::new(format!("{filter},virtio_queue=off"));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        .init();
}
