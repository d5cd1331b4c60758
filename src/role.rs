// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The role of this process: the supervisor, or one of the processes that it starts.

use std::{
    ffi::CStr,
    fs::File,
    io,
    os::fd::OwnedFd,
    path::PathBuf,
    process::{ExitCode, Stdio},
};

use nix::sys::{
    prctl,
    signal::{SigSet, Signal},
};

use crate::{
    policy::Libraries,
    sandbox::{self, Role, Settings},
    supervisor::{Program, reason},
};

/// The first argument of a device process.
pub const DEVICE: &str = "device-process";
/// The first argument of a worker.
pub const WORKER: &str = "worker-process";
/// The first argument of a mover; its GPU's number follows.
pub const MOVER: &str = "mover-process";
/// The first argument of a process that checks whether there is a GPU.
pub const PROBE: &str = "gpu-probe";
/// The first argument of a process that holds contexts, so that their size can be measured.
pub const CONTEXTS: &str = "context-probe";
/// The first argument of a process that reads the GPUs' sensors.
pub const SENSORS: &str = "sensor-probe";

/// The first argument of a process that checks whether roles can enter their sandboxes.
pub const CHECK: &str = "sandbox-check";
/// The first argument of a process that makes a directory a separate mount. The path is the last argument.
pub const DETACH: &str = "detach-directory";

/// A worker's argument, followed by the directory of the drivers' caches.
pub const CACHE: &str = "--driver-cache";

/// An argument of a process that reads sensors, followed by the GPUs' addresses on the PCI bus, separated by commas.
pub const ADDRESSES: &str = "--gpu-addresses";

/// A worker's argument, and the supervisor's option.
pub const ALLOW_PAGEABLE_ACCESS: &str = "--allow-pageable-access";

/// A worker's argument: make a context before there is a client.
pub const WARM_CONTEXTS: &str = "--warm-contexts";

/// A worker's argument: submit launches only as launches, never as graphs.
pub const NO_LAUNCH_GRAPHS: &str = "--no-launch-graphs";

/// The program's name in the kernel, which stores 15 bytes.
const NAME: &CStr = c"vhost-device-gp";

/// Makes this process end with the supervisor, and undoes inherited settings.
///
/// # Errors
/// The kernel refuses, which does not happen.
pub fn settle() -> io::Result<()> {
    prctl::set_pdeathsig(Signal::SIGKILL)?;
    // The file may have another name: see `Program::own`.
    prctl::set_name(NAME)?;
    // The supervisor blocks the signals that it reads from a descriptor.
    SigSet::empty().thread_set_mask()?;
    Ok(())
}

/// Takes the socket that the supervisor has passed as standard input.
///
/// # Errors
/// The process was not started by a supervisor.
pub fn take_channel() -> io::Result<OwnedFd> {
    let channel = io::stdin();
    nix::sys::socket::getsockopt(&channel, nix::sys::socket::sockopt::SockType)
        .map_err(|_| io::Error::other("This role is started by the supervisor, not by hand"))?;
    let channel = std::os::fd::AsFd::as_fd(&channel).try_clone_to_owned()?;
    nix::unistd::dup2_stdin(File::open("/dev/null")?)?;
    Ok(channel)
}

/// Enters the sandbox of a role with the settings of this process's arguments, and returns the settings.
///
/// # Errors
/// See [`sandbox::enter`].
pub fn confine(role: Role) -> Result<Settings, sandbox::Error> {
    let settings = Settings::own();
    let mut arguments = std::env::args_os();
    let cache = arguments
        .find(|argument| argument == CACHE)
        .and_then(|_| arguments.next())
        .map(PathBuf::from);
    sandbox::enter(role, settings, cache.as_deref(), &libraries().directories)?;
    Ok(settings)
}

/// The GPUs' addresses on the PCI bus, by the driver's numbers, from this process's arguments.
pub fn addresses() -> Vec<String> {
    let mut arguments = std::env::args();
    let list = arguments
        .find(|argument| argument == ADDRESSES)
        .and_then(|_| arguments.next());
    let list = list.unwrap_or_default();
    list.split(',').map(str::to_owned).collect()
}

/// NVIDIA's libraries, from this process's arguments.
pub fn libraries() -> Libraries {
    Libraries::from_arguments(std::env::args_os())
}

/// The reason why no role could start.
#[derive(Debug, thiserror::Error)]
#[error(
    "The sandbox cannot be set up on this host: {0}. docs/troubleshooting.md lists its requirements; to start \
     without it, use --sandbox=none (namespaces) or --seccomp=none (lists of system calls)"
)]
pub struct NoSandbox(String);

/// Checks whether roles can enter their sandboxes, by a process that tries it: `program` in the role [`CHECK`]. Logs
/// the files in the directories of libraries that a worker cannot read, and the libraries that it cannot open ahead.
///
/// # Errors
/// A role cannot enter its sandbox.
pub fn check(program: &Program) -> Result<(), NoSandbox> {
    let output = program
        .command()
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .output()
        .map_err(|error| NoSandbox(format!("{}: {error}", program.program.display())))?;
    let said = String::from_utf8_lossy(&output.stdout);
    match (output.status.success(), said.trim()) {
        (true, said) => {
            for doubt in said.lines() {
                tracing::warn!("{doubt}");
            }
            Ok(())
        }
        (false, "") => Err(NoSandbox(reason(output.status))),
        (false, said) => Err(NoSandbox(said.to_owned())),
    }
}

/// The main function of that process. It enters the sandbox with the most requirements, and prints the reason if it
/// cannot. Otherwise it prints a line for each file that it cannot read or open there.
pub fn check_sandbox() -> ExitCode {
    let entered = confine(Role::Worker).and_then(|how| sandbox::tighten(Role::Worker, how));
    match entered {
        Ok(()) => {
            let libraries = libraries();
            for hidden in libraries.unreadable() {
                println!(
                    "Workers cannot read {hidden}. Their user needs the right to read it, and a link has to lead to a file of a directory \
                     of --libraries, or straight to a file elsewhere"
                );
            }
            for broken in libraries.broken() {
                println!("{broken}");
            }
            ExitCode::SUCCESS
        }
        Err(error) => {
            println!("{error}");
            ExitCode::FAILURE
        }
    }
}
