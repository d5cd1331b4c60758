//! The command line.

use std::path::PathBuf;

use clap::{ArgAction, Parser};

use crate::{
    sandbox::{Sandbox, Seccomp, Settings},
    supervisor::Gpu,
};

/// The longest path that a socket can have, in bytes.
const MAX_SOCKET_PATH: usize = 107;
/// More sockets than any host runs VMs.
const MAX_SOCKETS: u32 = 1024;
/// More would be device memory and processes for nothing: each start of a driver slows the others down.
const MAX_WARM_WORKERS: usize = 64;

/// Runs CUDA for virtual machines that have no GPU, as a vhost-user back end.
#[derive(Debug, Parser)]
#[command(
    version,
    after_help = "The log goes to standard error; VIRTIO_GPGPU_LOG or RUST_LOG chooses its level \
                  (error, warn, info, debug)."
)]
pub struct Args {
    /// Where to listen for VMMs; with several sockets, 0, 1, ... is appended
    #[arg(short, long, value_name = "PATH")]
    pub socket_path: PathBuf,

    /// How many sockets to listen at, one for each VM
    #[arg(short = 'c', long, value_name = "N", default_value_t = 1)]
    pub socket_count: u32,

    /// What runs the guests' kernels: an NVIDIA GPU, the software GPU, or the first of them that works
    #[arg(long, value_enum, default_value_t = Gpu::Auto)]
    pub gpu: Gpu,

    /// The directory of the software GPU's libcuda.so.1 [default: ../software-gpu beside this
    /// program's directory, or /usr/lib/virtio-gpgpu/software-gpu]
    #[arg(long, value_name = "DIR")]
    pub software_gpu: Option<PathBuf>,

    /// How many connections to serve at a time on each socket; more have to wait
    #[arg(long, value_name = "N", default_value_t = 64)]
    pub max_connections: usize,

    /// How many workers to keep ready, for all VMs together: a program that opens the GPU gets one at once and need not
    /// wait for the driver to come up
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub warm_workers: usize,

    /// Whether such a worker has a context on the first GPU, which holds device memory: about half a gigabyte on an H100
    #[arg(long, value_name = "BOOL", action = ArgAction::Set, default_value_t = true)]
    pub warm_contexts: bool,

    /// Whether large copies go straight between a guest's memory and the GPU, by a process for each GPU that pins the
    /// memory of the guests that copy
    #[arg(long, value_name = "BOOL", action = ArgAction::Set, default_value_t = true)]
    pub mover: bool,

    /// Serve although the GPU can reach pageable memory (HMM or ATS), where a guest's kernels can read
    /// and rewrite its own worker
    #[arg(long)]
    pub allow_pageable_access: bool,

    /// What else each process is kept from: it sees no files, network or processes but what it needs, as an unprivileged
    /// user (namespace), or all that this program's user sees (none)
    #[arg(long, value_enum, value_name = "HOW", default_value_t = Sandbox::Namespace)]
    pub sandbox: Sandbox,

    /// What a system call leads to that a process has no need for: its end (kill), a line in the kernel's audit log (log), its end and a
    /// line in this program's log (trap), or nothing (none)
    #[arg(long, value_enum, value_name = "HOW", default_value_t = Seccomp::Kill)]
    pub seccomp: Seccomp,
}

/// A command line that has been checked.
#[derive(Debug, PartialEq, Eq)]
pub struct Config {
    /// Where to listen.
    pub sockets: Vec<PathBuf>,
    /// What runs the guests' kernels.
    pub gpu: Gpu,
    /// The directory of the software GPU's libcuda, absolute.
    pub software_gpu: Option<PathBuf>,
    /// How many connections to serve at a time on each socket.
    pub max_connections: usize,
    /// How many workers are kept ready.
    pub warm_workers: usize,
    /// Whether they have a context.
    pub warm_contexts: bool,
    /// Whether there are movers.
    pub mover: bool,
    /// Whether workers serve although the GPU can reach pageable memory.
    pub allow_pageable_access: bool,
    /// What keeps each process to its work.
    pub sandbox: Settings,
}

/// What is wrong with a command line.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// See [`Args::socket_count`].
    #[error("--socket-count must be 1 to {MAX_SOCKETS}")]
    SocketCount,
    /// See [`Args::socket_path`].
    #[error("--socket-path is longer than a socket's path can be: {MAX_SOCKET_PATH} bytes")]
    SocketPathTooLong,
    /// See [`Args::socket_path`].
    #[error("--socket-path is in a directory that does not exist: {}", .0.display())]
    NoSuchDirectory(PathBuf),
    /// See [`Args::max_connections`].
    #[error("--max-connections must be at least 1")]
    MaxConnections,
    /// See [`Args::software_gpu`].
    #[error("--software-gpu is not a directory: {}", .0.display())]
    NotADirectory(PathBuf),
    /// See [`Args::software_gpu`].
    #[error("--software-gpu has no effect with --gpu cuda")]
    SoftwareWithCuda,
    /// See [`Args::warm_workers`].
    #[error("--warm-workers must be 0 to {MAX_WARM_WORKERS}")]
    WarmWorkers,
}

impl TryFrom<Args> for Config {
    type Error = Error;

    fn try_from(args: Args) -> Result<Self, Error> {
        if !(1..=MAX_SOCKETS).contains(&args.socket_count) {
            return Err(Error::SocketCount);
        }
        if args.max_connections == 0 {
            return Err(Error::MaxConnections);
        }
        if args.warm_workers > MAX_WARM_WORKERS {
            return Err(Error::WarmWorkers);
        }
        let sockets: Vec<PathBuf> = match args.socket_count {
            1 => vec![args.socket_path.clone()],
            count => (0..count)
                .map(|number| {
                    let mut path = args.socket_path.clone().into_os_string();
                    path.push(number.to_string());
                    path.into()
                })
                .collect(),
        };
        if sockets
            .iter()
            .any(|path| path.as_os_str().len() > MAX_SOCKET_PATH)
        {
            return Err(Error::SocketPathTooLong);
        }
        let directory = args
            .socket_path
            .parent()
            .filter(|parent| !parent.as_os_str().is_empty());
        if let Some(directory) = directory.filter(|directory| !directory.is_dir()) {
            return Err(Error::NoSuchDirectory(directory.to_owned()));
        }
        let software_gpu = match args.software_gpu {
            Some(_) if args.gpu == Gpu::Cuda => return Err(Error::SoftwareWithCuda),
            Some(directory) => {
                let whole = directory
                    .canonicalize()
                    .ok()
                    .filter(|directory| directory.is_dir());
                Some(whole.ok_or(Error::NotADirectory(directory))?)
            }
            None => None,
        };
        Ok(Self {
            sockets,
            gpu: args.gpu,
            software_gpu,
            max_connections: args.max_connections,
            warm_workers: args.warm_workers,
            warm_contexts: args.warm_contexts,
            mover: args.mover,
            allow_pageable_access: args.allow_pageable_access,
            sandbox: Settings {
                sandbox: args.sandbox,
                seccomp: args.seccomp,
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    fn config(arguments: &[&str]) -> Result<Config, Error> {
        let whole = ["vhost-device-gpgpu"].iter().chain(arguments);
        Args::try_parse_from(whole).unwrap().try_into()
    }

    #[test]
    fn one_socket_keeps_its_name_and_several_are_numbered() {
        let one = config(&["-s", "/tmp/gpgpu.sock"]).unwrap();
        assert_eq!(one.sockets, [PathBuf::from("/tmp/gpgpu.sock")]);
        assert_eq!((one.gpu, one.max_connections), (Gpu::Auto, 64));
        let two = config(&["--socket-path", "vm", "-c", "2", "--gpu", "software"]).unwrap();
        assert_eq!(two.sockets, [PathBuf::from("vm0"), PathBuf::from("vm1")]);
        assert_eq!(two.gpu, Gpu::Software);
        assert_eq!((two.warm_workers, two.warm_contexts), (1, true));
        let cold = ["-s", "vm", "--warm-workers=0", "--warm-contexts=false"];
        let cold = config(&cold).unwrap();
        assert_eq!((cold.warm_workers, cold.warm_contexts), (0, false));
    }

    #[test]
    fn what_cannot_work_is_refused() {
        assert_eq!(config(&["-s", "x", "-c", "0"]), Err(Error::SocketCount));
        assert_eq!(
            config(&["-s", "x", "--max-connections", "0"]),
            Err(Error::MaxConnections)
        );
        assert_eq!(
            config(&["-s", "x", "--warm-workers", "65"]),
            Err(Error::WarmWorkers)
        );
        assert_eq!(
            config(&["-s", &"x".repeat(108)]),
            Err(Error::SocketPathTooLong)
        );
        assert_eq!(
            config(&["-s", &"x".repeat(107), "-c", "2"]),
            Err(Error::SocketPathTooLong)
        );
        assert_eq!(
            config(&["-s", "/nowhere/x"]),
            Err(Error::NoSuchDirectory("/nowhere".into()))
        );
        assert_eq!(
            config(&["-s", "x", "--software-gpu", "/nowhere"]),
            Err(Error::NotADirectory("/nowhere".into()))
        );
        assert_eq!(
            config(&["-s", "x", "--gpu", "cuda", "--software-gpu", "/tmp"]),
            Err(Error::SoftwareWithCuda)
        );
    }

    #[test]
    fn the_manual_page_has_every_flag() {
        let page = include_str!("../docs/vhost-device-gpgpu.1").replace("\\-", "-");
        for argument in Args::command().get_arguments() {
            let flag = format!("--{}", argument.get_long().unwrap());
            assert!(page.contains(&flag), "{flag} is missing");
            let values = argument.get_possible_values();
            for value in values
                .iter()
                .filter(|_| argument.get_action().takes_values())
            {
                assert!(
                    page.contains(value.get_name()),
                    "{} is missing",
                    value.get_name()
                );
            }
        }
    }

    #[test]
    fn the_command_line_is_consistent() {
        Args::command().debug_assert();
    }
}
