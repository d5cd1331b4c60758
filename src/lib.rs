// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! A vhost-user back end that runs CUDA for virtual machines without a GPU.
//!
//! One program has several roles, each a process of its own:
//! - [`supervisor`]: the process that the operator starts; it starts and watches the others.
//! - [`backend`]: the device process, one for each VM: the vhost-user back end.
//! - [`worker`]: one for each CUDA process of a guest; it runs that process's CUDA.
//! - [`mover`]: one for each GPU; it copies between guests' memory and workers' device memory.
//!
//! [`ipc`] has the messages between them, and [`sandbox`] their sandboxes.

pub mod account;
pub mod args;
pub mod backend;
mod cuda;
mod file_pages;
pub mod ipc;
pub mod log;
mod log_limit;
pub mod mover;
mod pace;
pub mod policy;
mod role;
pub mod sandbox;
pub mod supervisor;
pub mod top;
pub mod worker;

use std::{
    error::Error,
    ffi::OsString,
    fmt::Write as _,
    io::{self, Write as _},
    os::fd::AsFd,
    path::PathBuf,
    process::ExitCode,
    sync::Arc,
};

use clap::Parser;
use nix::sys::{
    resource::{Resource, getrlimit, setrlimit},
    signal::{SigSet, Signal},
    signalfd::{SfdFlags, SignalFd},
};

use args::{Args, Config};
use policy::{HostGpu, Policies};
use sandbox::{Role, Sandbox, Seccomp};
use supervisor::{Chosen, Gpu, Program, Reload, Supervisor, cache::Cache, metrics};

/// The main function: executes the command line, and logs the reason if that fails.
pub fn main() -> ExitCode {
    let role = std::env::args_os().nth(1);
    // The supervisor's own arguments are options, and its log is started after they are parsed.
    let role = role.filter(|role| !role.as_encoded_bytes().starts_with(b"-"));
    if role.as_ref().is_some_and(|role| role == top::COMMAND) {
        return show_top();
    }
    if let Some(role) = role.as_ref().and_then(|role| role.to_str()) {
        log::start(log::Format::inherited(), role);
    }
    match run(role) {
        Ok(code) => code,
        Err(error) => {
            tracing::error!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn show_top() -> ExitCode {
    match top::run(&top::Args::parse_from(std::env::args_os().skip(1))) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn run(role: Option<OsString>) -> Result<ExitCode, Box<dyn Error>> {
    match role.as_ref().and_then(|role| role.to_str()) {
        Some(role::DEVICE) => {
            role::settle()?;
            let link = role::take_channel()?;
            let front_end = backend::FrontEnd::new()?;
            role::confine(Role::Device)?;
            backend::run(link, front_end)?;
        }
        Some(role::WORKER) => {
            // SAFETY: the process has one thread yet.
            unsafe { cuda::environment::make_room() };
            role::settle()?;
            let has = |option: &str| std::env::args_os().any(|argument| argument == option);
            let channel = role::take_channel()?;
            let sandbox = role::confine(Role::Worker)?;
            worker::run(
                ipc::WorkerEnd::new(channel),
                worker::Options {
                    allow_pageable_access: has(role::ALLOW_PAGEABLE_ACCESS),
                    warm_contexts: has(role::WARM_CONTEXTS),
                    crowds: !has(role::NO_LAUNCH_GRAPHS),
                    libraries: role::libraries(),
                    sandbox,
                },
            )?;
        }
        Some(role::MOVER) => {
            role::settle()?;
            let gpu = std::env::args()
                .next_back()
                .and_then(|gpu| gpu.parse().ok())
                .ok_or("A mover needs the number of its GPU")?;
            let link = role::take_channel()?;
            // In its sandbox, the process hides its memory and could not open the page table.
            let table = mover::PageTable::open().map_err(mover::Error::PageTable)?;
            let sandbox = role::confine(Role::Mover)?;
            mover::run(link, gpu, sandbox, table)?;
        }
        Some(role::PROBE) => {
            role::settle()?;
            role::confine(Role::Worker)?;
            return Ok(supervisor::probe());
        }
        Some(role::CONTEXTS) => {
            role::settle()?;
            role::confine(Role::Worker)?;
            return Ok(supervisor::measure::hold());
        }
        Some(role::SENSORS) => {
            role::settle()?;
            role::confine(Role::Worker)?;
            return Ok(supervisor::sensors::nvml::serve(&role::addresses()));
        }
        Some(role::CHECK) => {
            role::settle()?;
            return Ok(role::check_sandbox());
        }
        Some(role::DETACH) => {
            role::settle()?;
            supervisor::cache::detach(&role::take_channel()?)?;
        }
        _ => {
            let args = Args::parse();
            log::start(args.log_format, log::SUPERVISOR);
            return supervise(args.try_into()?);
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// The program of a role, with the arguments of all roles.
fn own(config: &Config, role: &str) -> Result<Program, Box<dyn Error>> {
    let mut program = Program::own(role)?;
    let settings = config.sandbox.to_arguments();
    program.arguments.extend(settings.map(OsString::from));
    program.environment.push(config.log_format.variable());
    Ok(program)
}

/// The program of workers, as the command line determines it.
fn worker_program(config: &Config) -> Result<Program, Box<dyn Error>> {
    let mut worker = own(config, role::WORKER)?;
    let options = [
        (config.allow_pageable_access, role::ALLOW_PAGEABLE_ACCESS),
        (config.warm_contexts, role::WARM_CONTEXTS),
        (!config.launch_graphs, role::NO_LAUNCH_GRAPHS),
    ];
    let set = options.into_iter().filter(|(is_set, _)| *is_set);
    worker
        .arguments
        .extend(set.map(|(_, option)| option.into()));
    Ok(worker)
}

/// The program of another role that loads the same driver libraries as workers.
fn beside(worker: &Program, role: &str) -> Program {
    let mut program = worker.clone();
    for argument in &mut program.arguments {
        if argument == role::WORKER {
            *argument = role.into();
        }
    }
    program
}

/// The driver's compile cache, if there is one.
fn compile_cache(config: &Config, gpu: Gpu) -> Result<Option<Cache>, Box<dyn Error>> {
    // The software GPU compiles nothing, but the stand-ins of libraries do.
    let is_wanted = gpu == Gpu::Cuda || std::env::var_os("CUDA_CACHE_PATH").is_some();
    let directory = supervisor::cache::directory().filter(|_| is_wanted);
    let cache = match (directory, config.sandbox.sandbox) {
        (None, _) => None,
        (Some(directory), Sandbox::None) => Some(Cache::open_to_roles(directory)),
        (Some(directory), Sandbox::Namespace) => {
            Some(Cache::detached(&directory, own(config, role::DETACH)?))
        }
    };
    if gpu == Gpu::Cuda && cache.is_none() {
        tracing::info!("Driver compile cache disabled: no cache directory configured");
    }
    Ok(cache)
}

/// Blocks SIGINT and SIGTERM, and returns a descriptor that reads them: from here on they mean an orderly end.
fn stop_signals() -> Result<SignalFd, Box<dyn Error>> {
    let mut signals = SigSet::empty();
    signals.add(Signal::SIGINT);
    signals.add(Signal::SIGTERM);
    signals.thread_block()?;
    Ok(SignalFd::with_flags(&signals, SfdFlags::SFD_CLOEXEC)?)
}

/// The program that reads the sensors of these GPUs.
fn sensors_program(worker: &Program, gpus: &[HostGpu]) -> Program {
    let mut sensors = beside(worker, role::SENSORS);
    let addresses: Vec<&str> = gpus.iter().map(|gpu| &*gpu.address).collect();
    sensors.arguments.push(role::ADDRESSES.into());
    sensors.arguments.push(addresses.join(",").into());
    sensors
}

/// Tests the sandbox, and the libraries inside it, in a process of its own.
fn try_sandbox(config: &Config) -> Result<(), Box<dyn Error>> {
    let mut check = own(config, role::CHECK)?;
    // Checks that workers repeat need not delay the start.
    let tried = config.policies.libraries.to_be_tried(config.check);
    check.arguments.extend(tried.to_arguments());
    role::check(&check)?;
    Ok(())
}

/// Sets the path of the driver's compile cache for workers, and has the driver load parts of libraries at their first
/// use.
fn set_up_driver(worker: &mut Program, cache: Option<&Cache>) {
    if let Some(cache) = cache {
        worker.arguments.push(role::CACHE.into());
        worker.arguments.push(cache.directory().into());
    }
    for (name, value) in worker::cache_variables(cache.is_some()) {
        worker.environment.push((name.into(), value.into()));
    }
    // Otherwise the driver loads libraries into all contexts, without a request and thus without a charge.
    let lazy = ("CUDA_MODULE_LOADING".into(), "LAZY".into());
    worker.environment.push(lazy);
}

/// Raises the limit of open descriptors to the maximum that the system allows.
fn raise_descriptor_limit() -> nix::Result<()> {
    // Each client costs each process a few descriptors, and the default is 1024.
    let (_, most) = getrlimit(Resource::RLIMIT_NOFILE)?;
    if most < LEAST_DESCRIPTORS {
        tracing::warn!(
            "The limit of open files is {most}, so some programs of guests will fail: raise it to at least \
             {LEAST_DESCRIPTORS} (LimitNOFILE= of the unit, ulimit -n)"
        );
    }
    setrlimit(Resource::RLIMIT_NOFILE, most, most)
}

/// The fewest open files with which a process of the service works: workers have a descriptor with the number 100.
const LEAST_DESCRIPTORS: u64 = 256;

/// Gives child processes the kernel's older layout of addresses, in which mappings are far from those of a process with
/// the usual layout. A worker maps a guest's registered memory at the guest's own addresses, and can do so only where it
/// has nothing itself.
fn keep_addresses_apart() {
    // SAFETY: the call takes and returns a number. It affects only programs that are executed later.
    unsafe {
        let now = libc::personality(0xffff_ffff);
        if now >= 0 {
            libc::personality((now | libc::ADDR_COMPAT_LAYOUT) as libc::c_ulong);
        }
    }
}

fn supervise(config: Config) -> Result<ExitCode, Box<dyn Error>> {
    if !config.check {
        // A SIGHUP that comes while the service starts waits until it can be handled.
        hang_up().thread_block()?;
    }
    let libraries = config.policies.libraries.clone();
    keep_addresses_apart();
    try_sandbox(&config)?;
    sandbox::confine_supervisor(config.sandbox)?;
    let mut worker = worker_program(&config)?;
    let probe = own(&config, role::PROBE)?;
    let Chosen {
        gpu,
        gpus,
        directory,
    } = supervisor::choose(
        config.gpu,
        config.software_gpu.as_deref(),
        &mut worker,
        &probe,
    )?;
    config.policies.check_gpus(gpus.len())?;
    let doubts = config.policies.doubts(&gpus, config.scheduler).into_iter();
    for doubt in doubts.chain(libraries.doubts(directory.as_deref())) {
        tracing::warn!("{doubt}");
    }
    if config.check {
        let mut text = describe(&config.policies, &gpus);
        for library in libraries.or(directory.as_deref()).found() {
            let _ = writeln!(text, "Library {library}");
        }
        io::stdout().lock().write_all(text.as_bytes())?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut mover = beside(&worker, role::MOVER);
    let contexts = beside(&worker, role::CONTEXTS);
    let sensors = sensors_program(&worker, &gpus);
    let context_costs = supervisor::measure::context_costs(&contexts).unwrap_or_else(|reason| {
        tracing::warn!(
            "Cannot measure the size of contexts, so no VM is charged for them: {reason}"
        );
        Vec::new()
    });
    // Its only code to compile is one small kernel.
    for (name, value) in worker::cache_variables(false) {
        mover.environment.push((name.into(), value.into()));
    }
    let cache = compile_cache(&config, gpu)?;
    set_up_driver(&mut worker, cache.as_ref());

    let stop = stop_signals()?;
    let reload = reload(config.policies.file.clone(), gpus.clone(), config.scheduler)?;

    raise_descriptor_limit()?;

    let device = own(&config, role::DEVICE)?;
    let mut supervisor = Supervisor::new(supervisor::Config {
        vms: config.policies.vms,
        gpus: gpus.len() as u32,
        max_connections: config.max_connections,
        device,
        worker,
        warm_workers: config.warm_workers,
        cache,
        may_hold: matches!(config.sandbox.seccomp, Seccomp::Kill | Seccomp::Trap),
        scheduler: config.scheduler,
        mover: config.mover.then_some(mover),
        context_costs,
        sensors: Some(sensors),
    })?;
    supervisor.reload_by(reload);
    supervisor.offer_libraries(libraries, directory);
    let metrics = config.metrics.as_ref().map(|address| {
        let server = metrics::Server::start(address, Arc::clone(supervisor.board()));
        server.map_err(|error| format!("Cannot serve metrics at {address}: {error}"))
    });
    let _metrics = metrics.transpose()?;
    supervisor.run(stop.as_fd())?;
    Ok(ExitCode::SUCCESS)
}

/// Makes SIGHUP, which is blocked, read the policy file again.
fn reload(
    file: Option<PathBuf>,
    gpus: Vec<HostGpu>,
    is_scheduled: bool,
) -> Result<Reload, Box<dyn Error>> {
    let flags = SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK;
    let signals = SignalFd::with_flags(&hang_up(), flags)?;
    Ok(Reload::new(signals, file, gpus, is_scheduled))
}

/// The signal that requests a new policy.
fn hang_up() -> SigSet {
    let mut signals = SigSet::empty();
    signals.add(Signal::SIGHUP);
    signals
}

/// The effective configuration, in lines.
fn describe(policies: &Policies, gpus: &[HostGpu]) -> String {
    let mut text = String::new();
    for (number, gpu) in gpus.iter().enumerate() {
        let memory = policy::values::Memory(Some(gpu.memory));
        let _ = writeln!(text, "GPU {number}: {}, {memory}", gpu.name);
    }
    for vm in &policies.vms {
        let _ = writeln!(text, "VM {vm}");
    }
    text
}
