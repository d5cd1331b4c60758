// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Per-role sandboxing.
//!
//! A role enters its sandbox before anything else, while it has one thread and has read no input ([`enter`]):
//! 1. namespaces of its own, with a root directory that holds only the files of [`view`] ([`namespaces`]);
//! 2. an unprivileged user id, no capabilities, no way to gain any, and no core dumps, which would contain a guest's
//!    data;
//! 3. Landlock rules, if the kernel has Landlock, for files that can be reached past the root directory ([`landlock`]);
//! 4. a list of allowed system calls ([`seccomp`]).
//!
//! A worker and a mover start CUDA's driver, which needs more system calls than serving does. They [`tighten`] the list
//! before they read the first data that a guest can influence. The supervisor starts the other processes and reads
//! little data of guests, so it drops only the calls that no role needs ([`confine_supervisor`]).
//!
//! There is no PID namespace: the supervisor watches and kills a role by the process that it has started, and with such
//! a namespace that process would be an outer parent of the role. Other rules replace it: a role's `/proc` shows only
//! its own process, its system calls cannot name another process, and Landlock blocks its signals to others.

mod landlock;
mod namespaces;
pub mod seccomp;
pub mod view;

use std::{
    fmt, io,
    path::{Path, PathBuf},
};

use caps::{CapSet, Capability};
use nix::sys::{
    prctl,
    resource::{Resource, getrlimit, setrlimit},
    signal::Signal,
};

pub use namespaces::{NOBODY, detach, is_inside};
pub use seccomp::Stage;

/// The namespaces of the roles, as the operator chooses.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Sandbox {
    /// Namespaces with only the required files, no network, an unprivileged user, and Landlock.
    #[default]
    Namespace,
    /// None: a role has the access of the supervisor's user.
    None,
}

/// The effect of a system call outside a role's list, as the operator chooses.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Seccomp {
    /// The process is killed.
    #[default]
    Kill,
    /// The call is executed, and the kernel's audit log records it.
    Log,
    /// The process ends, and the log names the number of the call.
    Trap,
    /// All calls are allowed.
    None,
}

/// A kind of process that has a sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Serves a VM's queues.
    Device,
    /// Runs a guest process's CUDA.
    Worker,
    /// Copies between guests' memory and the GPU.
    Mover,
}

/// The operator's choices, which are passed to each role as arguments.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    /// See [`Sandbox`].
    pub sandbox: Sandbox,
    /// See [`Seccomp`].
    pub seccomp: Seccomp,
}

/// The failed step, and the error of the system.
#[derive(Debug, thiserror::Error)]
#[error("{what}: {reason}")]
pub struct Error {
    what: &'static str,
    reason: String,
}

impl Error {
    fn new(what: &'static str) -> impl Fn(io::Error) -> Self {
        move |reason| Self::because(what, reason)
    }

    fn because(what: &'static str, reason: impl fmt::Display) -> Self {
        Self {
            what,
            reason: reason.to_string(),
        }
    }
}

const SANDBOX: &str = "--sandbox=";
const SECCOMP: &str = "--seccomp=";

impl Settings {
    /// The settings as arguments of a role.
    pub fn to_arguments(self) -> [String; 2] {
        [
            format!("{SANDBOX}{}", name(self.sandbox)),
            format!("{SECCOMP}{}", name(self.seccomp)),
        ]
    }

    /// The settings of a role's arguments; by default, the full sandbox.
    pub fn from_arguments(arguments: impl Iterator<Item = String>) -> Self {
        let mut settings = Self::default();
        for argument in arguments {
            if let Some(value) = argument.strip_prefix(SANDBOX) {
                settings.sandbox = parse(value).unwrap_or_default();
            } else if let Some(value) = argument.strip_prefix(SECCOMP) {
                settings.seccomp = parse(value).unwrap_or_default();
            }
        }
        settings
    }

    /// The settings of this process's own arguments.
    pub fn own() -> Self {
        Self::from_arguments(std::env::args_os().filter_map(|argument| argument.into_string().ok()))
    }
}

fn name(value: impl clap::ValueEnum) -> String {
    let value = value.to_possible_value();
    value.map_or_else(String::new, |value| value.get_name().to_owned())
}

fn parse<V: clap::ValueEnum>(value: &str) -> Option<V> {
    V::from_str(value, false).ok()
}

/// Enters the sandbox of a role. `cache` is the directory of the VMs' compile caches; `libraries` are the directories
/// of NVIDIA's libraries that workers see.
///
/// # Errors
/// The host does not allow it, or is too old. The process must end then.
pub fn enter(
    role: Role,
    settings: Settings,
    cache: Option<&Path>,
    libraries: &[PathBuf],
) -> Result<(), Error> {
    setrlimit(Resource::RLIMIT_CORE, 0, 0)
        .map_err(|error| Error::because("Forbidding core dumps", error))?;
    if settings.sandbox == Sandbox::Namespace {
        // A worker that has executed itself again is already inside.
        if !is_inside() {
            if role == Role::Worker {
                lower_descriptor_limit()?;
            }
            let view = view::of(role, libraries);
            let caches = match (role, cache) {
                (Role::Worker, Some(cache)) => view::directories_in(cache),
                _ => Vec::new(),
            };
            namespaces::enter(&view)?;
            drop_capabilities(&[])?;
            forbid_privileges()?;
            landlock::restrict(&view, &caches)?;
        }
        // No other process of the same user may read the memory of this one.
        prctl::set_dumpable(false)
            .map_err(|error| Error::because("Hiding the process's memory", error))?;
        // The kernel clears this setting when the process changes its user.
        prctl::set_pdeathsig(Signal::SIGKILL)
            .map_err(|error| Error::because("Ending with the supervisor", error))?;
    }
    seccomp::apply(role, Stage::Start, settings.seccomp)
}

/// Lowers a worker's limit of descriptors. The kernel counts the descriptors in flight of all processes of a user, and
/// compares the number with the sender's limit: those of a worker that was taken over must not reach the limit of other
/// processes.
fn lower_descriptor_limit() -> Result<(), Error> {
    let because = |error| Error::because("Limiting descriptors", error);
    let (_, most) = getrlimit(Resource::RLIMIT_NOFILE).map_err(because)?;
    let own = (most / 4).max(most.min(4096));
    setrlimit(Resource::RLIMIT_NOFILE, own, own).map_err(because)
}

/// Drops the permissions that a worker or a mover needed only to start its driver, in all threads. Afterwards it may
/// receive data of a guest.
///
/// # Errors
/// The kernel refuses. The process must end then.
pub fn tighten(role: Role, settings: Settings) -> Result<(), Error> {
    seccomp::apply(role, Stage::Serve, settings.seccomp)
}

/// Drops the system calls that no role needs, for the supervisor and all processes that it starts. The supervisor does
/// not use Landlock: the kernel refuses mounts to a process with Landlock rules, and the roles have to mount.
///
/// # Errors
/// The kernel refuses.
pub fn confine_supervisor(settings: Settings) -> Result<(), Error> {
    setrlimit(Resource::RLIMIT_CORE, 0, 0)
        .map_err(|error| Error::because("Forbidding core dumps", error))?;
    if settings.sandbox == Sandbox::Namespace {
        drop_capabilities(&SUPERVISOR)?;
        forbid_privileges()?;
    }
    seccomp::refuse_in_all(settings.seccomp)
}

/// The capabilities that a supervisor started by root keeps, with reasons.
const SUPERVISOR: [Capability; 8] = [
    // Namespaces and mounts of the roles.
    Capability::CAP_SYS_ADMIN,
    // Changes of the roles' user, groups and capabilities.
    Capability::CAP_SETUID,
    Capability::CAP_SETGID,
    Capability::CAP_SETPCAP,
    // Killing processes of that user.
    Capability::CAP_KILL,
    // Giving the drivers' cache to that user.
    Capability::CAP_CHOWN,
    // Binding sockets in directories of other users, such as a VMM's.
    Capability::CAP_DAC_OVERRIDE,
    // A limit of open files above the default.
    Capability::CAP_SYS_RESOURCE,
];

/// Drops all capabilities except these.
fn drop_capabilities(kept: &[Capability]) -> Result<(), Error> {
    let error = |error| Error::because("Dropping capabilities", error);
    let had = caps::read(None, CapSet::Permitted).map_err(error)?;
    let kept: caps::CapsHashSet = kept
        .iter()
        .copied()
        .filter(|cap| had.contains(cap))
        .collect();
    drop_bounding(&kept)?;
    caps::clear(None, CapSet::Ambient).map_err(error)?;
    caps::clear(None, CapSet::Inheritable).map_err(error)?;
    caps::set(None, CapSet::Effective, &kept).map_err(error)?;
    caps::set(None, CapSet::Permitted, &kept).map_err(error)
}

/// Limits the capabilities that an exec could restore. A process that may not change the bounding set restores none,
/// because of no_new_privs.
fn drop_bounding(kept: &caps::CapsHashSet) -> Result<(), Error> {
    let error = |error| Error::because("Limiting capabilities", error);
    if caps::has_cap(None, CapSet::Effective, Capability::CAP_SETPCAP).map_err(error)? {
        let bounding = caps::read(None, CapSet::Bounding).map_err(error)?;
        for capability in bounding.difference(kept) {
            caps::drop(None, CapSet::Bounding, *capability).map_err(error)?;
        }
    }
    Ok(())
}

fn forbid_privileges() -> Result<(), Error> {
    prctl::set_no_new_privs().map_err(|error| Error::because("Forbidding new privileges", error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_survive_the_way_to_a_role_and_are_all_on_by_default() {
        let none = Settings::from_arguments(["worker-process", "x"].map(String::from).into_iter());
        assert_eq!(none, Settings::default());
        assert_eq!(
            none,
            Settings {
                sandbox: Sandbox::Namespace,
                seccomp: Seccomp::Kill
            }
        );
        for seccomp in [Seccomp::Kill, Seccomp::Log, Seccomp::Trap, Seccomp::None] {
            for sandbox in [Sandbox::Namespace, Sandbox::None] {
                let settings = Settings { sandbox, seccomp };
                let arguments = settings.to_arguments().into_iter();
                assert_eq!(Settings::from_arguments(arguments), settings);
            }
        }
    }
}
