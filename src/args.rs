// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The command line.

use std::path::PathBuf;

use clap::{ArgAction, Parser};

use crate::{
    cuda::library::Library,
    log::Format,
    policy::{
        self, Libraries, MAX_SOCKET_PATH, Policies, VmPolicy,
        values::{Gpus, LongestKernel, MaxClients, Memory, OverrunLimit, PauseLimit, Weight},
    },
    sandbox::{Sandbox, Seccomp, Settings},
    supervisor::{Gpu, metrics::Address},
};

/// More than the number of VMs on any host.
const MAX_SOCKETS: u32 = 1024;
/// The limit: each start of a driver slows down the others, and warm workers occupy device memory.
const MAX_WARM_WORKERS: usize = 64;

/// Runs CUDA for virtual machines that have no GPU, as a vhost-user back end.
#[derive(Debug, Parser)]
#[command(
    version,
    after_help = "vhost-device-gpgpu top shows the VMs of a running service; see vhost-device-gpgpu top --help.\n\n\
                  The log goes to standard error; VIRTIO_GPGPU_LOG or RUST_LOG sets its level \
                  (error, warn, info, debug)."
)]
pub struct Args {
    /// The socket for the VMM; with several sockets, 0, 1, ... is appended
    #[arg(short, long, value_name = "PATH", required_unless_present = "config")]
    pub socket_path: Option<PathBuf>,

    /// The number of sockets, one for each VM
    #[arg(short = 'c', long, value_name = "N", default_value_t = 1)]
    pub socket_count: u32,

    /// The policy file, with the limits of each VM, instead of --socket-path and the flags below; SIGHUP rereads it
    #[arg(
        long,
        value_name = "FILE",
        conflicts_with_all = ["socket_path", "socket_count", "gpus", "memory_limit", "weight", "max_clients", "longest_kernel", "overrun_limit", "pause_limit", "sensors", "libraries", "libraries_ahead", "libraries_traces"]
    )]
    pub config: Option<PathBuf>,

    /// Print the policy or its errors, and exit
    #[arg(long)]
    pub check: bool,

    /// The GPUs that each VM may use, such as 0,1
    #[arg(long, value_name = "LIST", default_value_t)]
    pub gpus: Gpus,

    /// Device memory limit for all processes of each VM together, on each GPU, such as 8GiB
    #[arg(long, value_name = "SIZE", default_value_t)]
    pub memory_limit: Memory,

    /// Each VM's share of a contended GPU, relative to the other VMs' weights: 1 to 10000
    #[arg(long, value_name = "N", default_value_t)]
    pub weight: Weight,

    /// The maximum number of processes of each VM that use CUDA at a time
    #[arg(long, value_name = "N", default_value_t)]
    pub max_clients: MaxClients,

    /// The longest run time of one kernel, such as 10s; a process whose kernel runs longer loses the GPU
    #[arg(long, value_name = "TIME", default_value_t)]
    pub longest_kernel: LongestKernel,

    /// The longest time that the work of a process may stay on a GPU after its turn, while other VMs want the GPU and
    /// its own has had more than its share; then the process loses the GPU
    #[arg(long, value_name = "TIME", default_value_t)]
    pub overrun_limit: OverrunLimit,

    /// The longest wait of a VM's pause for the work of a process that can write to the guest's memory; then the
    /// process loses the GPU
    #[arg(long, value_name = "TIME", default_value_t)]
    pub pause_limit: PauseLimit,

    /// Let each VM read temperature, power, energy and clocks of its GPUs, which reveal the load of other VMs too
    #[arg(long)]
    pub sensors: bool,

    /// The directories of the host's copies of NVIDIA's libraries (cuBLAS, cuDNN and others), for workers to load;
    /// separated by colons, or one for each flag [default: none; with the software GPU its own directory]
    #[arg(long, value_name = "DIR", value_delimiter = ':')]
    pub libraries: Vec<PathBuf>,

    /// The libraries that a worker loads while it waits for its client, such as cublas,cudnn
    #[arg(long, value_name = "LIST", value_enum, value_delimiter = ',')]
    pub libraries_ahead: Vec<Library>,

    /// Whether programs of guests may trace their own work on the GPU with the host's CUPTI, for profilers
    #[arg(
        long,
        value_name = "BOOL",
        default_value_t = true,
        default_missing_value = "true",
        num_args = 0..=1,
        require_equals = true,
        action = ArgAction::Set
    )]
    pub libraries_traces: bool,

    /// The GPU that runs the guests' kernels
    #[arg(long, value_enum, default_value_t = Gpu::Auto)]
    pub gpu: Gpu,

    /// The directory of the software GPU's libcuda.so.1 [default: ../software-gpu beside this
    /// program's directory, or /usr/lib/virtio-gpgpu/software-gpu]
    #[arg(long, value_name = "DIR")]
    pub software_gpu: Option<PathBuf>,

    /// The maximum number of connections at a time on each socket; others wait, and a program without a VM fails if it
    /// gets no answer within 20 s
    #[arg(long, value_name = "N", default_value_t = 64)]
    pub max_connections: usize,

    /// The number of warm workers, for all VMs together: a program that opens the GPU gets one at once and need not
    /// wait for the start of the driver
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub warm_workers: usize,

    /// Whether a warm worker has a context on the first GPU, which takes device memory: about half a gigabyte on an
    /// H100
    #[arg(long, value_name = "BOOL", action = ArgAction::Set, default_value_t = true)]
    pub warm_contexts: bool,

    /// Whether launches that recur, and groups of waiting launches, go to the driver as graphs, which takes it less
    /// time
    #[arg(long, value_name = "BOOL", action = ArgAction::Set, default_value_t = true)]
    pub launch_graphs: bool,

    /// Whether large copies go directly between a guest's memory and the GPU, by a process for each GPU that pins the
    /// memory of these guests
    #[arg(long, value_name = "BOOL", action = ArgAction::Set, default_value_t = true)]
    pub mover: bool,

    /// Whether VMs take turns on a contended GPU by their weights; if not, the driver shares the GPU between their
    /// processes, by the length of their kernels
    #[arg(long, value_name = "BOOL", action = ArgAction::Set, default_value_t = true)]
    pub scheduler: bool,

    /// The address of the metrics for Prometheus and top: unix:/PATH, or a loopback address and port, such as
    /// 127.0.0.1:9400
    #[arg(long, value_name = "ADDRESS")]
    pub metrics: Option<Address>,

    /// The format of the log
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub log_format: Format,

    /// Serve even if the GPU can access pageable memory (HMM or ATS): a guest's kernels can then read
    /// and rewrite their own worker
    #[arg(long)]
    pub allow_pageable_access: bool,

    /// The sandbox of each device process, worker and mover
    #[arg(long, value_enum, value_name = "HOW", default_value_t = Sandbox::Namespace)]
    pub sandbox: Sandbox,

    /// The effect of a system call outside the list of the process's role
    #[arg(long, value_enum, value_name = "HOW", default_value_t = Seccomp::Kill)]
    pub seccomp: Seccomp,
}

/// A checked command line.
#[derive(Debug, PartialEq, Eq)]
pub struct Config {
    /// The sockets, and the limits of their VMs.
    pub policies: Policies,
    /// Whether to check the policy and exit.
    pub check: bool,
    /// The GPU that runs the guests' kernels.
    pub gpu: Gpu,
    /// The directory of the software GPU's libcuda, absolute.
    pub software_gpu: Option<PathBuf>,
    /// The maximum number of connections at a time on each socket.
    pub max_connections: usize,
    /// The number of warm workers.
    pub warm_workers: usize,
    /// Whether warm workers have a context.
    pub warm_contexts: bool,
    /// Whether groups of launches go to the driver as graphs.
    pub launch_graphs: bool,
    /// Whether there are movers.
    pub mover: bool,
    /// Whether VMs take turns.
    pub scheduler: bool,
    /// The address of the metrics, if any.
    pub metrics: Option<Address>,
    /// The format of the log.
    pub log_format: Format,
    /// Whether workers serve even if the GPU can access pageable memory.
    pub allow_pageable_access: bool,
    /// The sandbox of each process.
    pub sandbox: Settings,
}

/// An error in a command line.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// See [`Args::socket_count`].
    #[error("--socket-count must be 1 to {MAX_SOCKETS}")]
    SocketCount,
    /// See [`Args::socket_path`].
    #[error("--socket-path exceeds the length of a socket's path: {MAX_SOCKET_PATH} bytes")]
    SocketPathTooLong,
    /// See [`Args::socket_path`].
    #[error("--socket-path: no such directory: {}", .0.display())]
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
    /// See [`Args::config`].
    #[error(transparent)]
    Policy(#[from] policy::Error),
    /// See [`Args::warm_workers`].
    #[error("--warm-workers must be 0 to {MAX_WARM_WORKERS}")]
    WarmWorkers,
}

impl TryFrom<Args> for Config {
    type Error = Error;

    fn try_from(args: Args) -> Result<Self, Error> {
        if args.max_connections == 0 {
            return Err(Error::MaxConnections);
        }
        if args.warm_workers > MAX_WARM_WORKERS {
            return Err(Error::WarmWorkers);
        }
        let policies = match &args.config {
            // SIGHUP rereads the file, and the working directory may have changed by then.
            Some(file) => Policies::read(&std::path::absolute(file).unwrap_or(file.clone()))?,
            None => Policies::of_flags(vms(&args)?, libraries(&args)?),
        };
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
            policies,
            check: args.check,
            gpu: args.gpu,
            software_gpu,
            max_connections: args.max_connections,
            warm_workers: args.warm_workers,
            warm_contexts: args.warm_contexts,
            launch_graphs: args.launch_graphs,
            mover: args.mover,
            scheduler: args.scheduler,
            metrics: args.metrics,
            log_format: args.log_format,
            allow_pageable_access: args.allow_pageable_access,
            sandbox: Settings {
                sandbox: args.sandbox,
                seccomp: args.seccomp,
            },
        })
    }
}

/// The flags for NVIDIA's libraries.
fn libraries(args: &Args) -> Result<Libraries, policy::Error> {
    let mut libraries = Libraries {
        traces: args.libraries_traces,
        ..Libraries::default()
    };
    for directory in &args.libraries {
        let added = libraries.add_directory(directory);
        added.map_err(|message| policy::Error {
            place: "--libraries".to_owned(),
            message,
        })?;
    }
    for library in &args.libraries_ahead {
        libraries.add_ahead(*library);
    }
    Ok(libraries)
}

/// The policy of each VM from the flags.
fn vms(args: &Args) -> Result<Vec<VmPolicy>, Error> {
    if !(1..=MAX_SOCKETS).contains(&args.socket_count) {
        return Err(Error::SocketCount);
    }
    let path = args.socket_path.clone().unwrap_or_default();
    let sockets: Vec<PathBuf> = match args.socket_count {
        1 => vec![path.clone()],
        count => (0..count)
            .map(|number| {
                let mut path = path.clone().into_os_string();
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
    let directory = path
        .parent()
        .filter(|parent| !parent.as_os_str().is_empty());
    if let Some(directory) = directory.filter(|directory| !directory.is_dir()) {
        return Err(Error::NoSuchDirectory(directory.to_owned()));
    }
    let vm = |socket| VmPolicy {
        gpus: args.gpus.0.clone(),
        memory: args.memory_limit.0,
        weight: args.weight.0,
        max_clients: args.max_clients.0,
        longest_kernel: args.longest_kernel.0,
        overrun_limit: args.overrun_limit.0,
        pause_limit: args.pause_limit.0,
        sensors: args.sensors,
        ..VmPolicy::new(socket)
    };
    Ok(sockets.into_iter().map(vm).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    fn sockets(config: &Config) -> Vec<PathBuf> {
        let vms = config.policies.vms.iter();
        vms.map(|vm| vm.socket.clone()).collect()
    }

    fn config(arguments: &[&str]) -> Result<Config, Error> {
        let whole = ["vhost-device-gpgpu"].iter().chain(arguments);
        Args::try_parse_from(whole).unwrap().try_into()
    }

    #[test]
    fn one_socket_keeps_its_name_and_several_are_numbered() {
        let one = config(&["-s", "/tmp/gpgpu.sock"]).unwrap();
        assert_eq!(sockets(&one), [PathBuf::from("/tmp/gpgpu.sock")]);
        assert_eq!((one.gpu, one.max_connections), (Gpu::Auto, 64));
        let two = config(&["--socket-path", "vm", "-c", "2", "--gpu", "software"]).unwrap();
        assert_eq!(sockets(&two), [PathBuf::from("vm0"), PathBuf::from("vm1")]);
        assert_eq!(two.gpu, Gpu::Software);
        assert_eq!((two.warm_workers, two.warm_contexts), (1, true));
        let cold = ["-s", "vm", "--warm-workers=0", "--warm-contexts=false"];
        let cold = config(&cold).unwrap();
        assert_eq!((cold.warm_workers, cold.warm_contexts), (0, false));
        let plain = config(&["-s", "vm", "--launch-graphs=false"]).unwrap();
        assert_eq!((two.launch_graphs, plain.launch_graphs), (true, false));
    }

    #[test]
    fn invalid_options_are_refused() {
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
    fn flags_limit_all_vms_alike_and_a_file_limits_each() {
        let flags = "-s vm -c 2 --gpus 1,0 --memory-limit 8GiB --weight 7 --max-clients 3 --longest-kernel 10s --overrun-limit 2s --pause-limit 1s --sensors";
        let flags: Vec<&str> = flags.split(' ').collect();
        let flags = config(&flags).unwrap();
        for vm in &flags.policies.vms {
            let expected = VmPolicy {
                gpus: Some(vec![1, 0]),
                memory: Some(8 << 30),
                weight: 7,
                max_clients: 3,
                longest_kernel: Some(std::time::Duration::from_secs(10)),
                overrun_limit: Some(std::time::Duration::from_secs(2)),
                pause_limit: Some(std::time::Duration::from_secs(1)),
                sensors: true,
                ..VmPolicy::new(vm.socket.clone())
            };
            assert_eq!(*vm, expected);
        }
        let none = config(&["-s", "vm"]).unwrap();
        assert_eq!(none.policies.vms, [VmPolicy::new("vm".into())]);

        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("policy.toml");
        let path = path.to_str().unwrap();
        std::fs::write(path, "[[vm]]\nsocket = \"/tmp/a\"\nweight = 5\n").unwrap();
        let file = config(&["--config", path, "--check"]).unwrap();
        assert!(file.check);
        assert_eq!(file.policies.vms[0].weight, 5);
        std::fs::write(path, "[[vm]]\nsocket = \"/tmp/a\"\nweight = 0\n").unwrap();
        let error = config(&["--config", path]).unwrap_err().to_string();
        assert!(error.starts_with(&format!("{path}:3: ")), "{error}");
    }

    #[test]
    fn libraries_are_for_all_vms_and_their_directories_exist() {
        let whole = tempfile::tempdir().unwrap();
        let whole = whole.path().canonicalize().unwrap();
        let [a, b, c] = ["a", "b", "c"].map(|name| whole.join(name));
        for directory in [&a, &b, &c] {
            std::fs::create_dir(directory).unwrap();
        }
        let two = format!("{}:{}", a.display(), b.display());
        let one = c.display().to_string();
        let flags = ["-s", "vm", "--libraries", &two, "--libraries", &one];
        let flags: Vec<&str> = flags
            .into_iter()
            .chain([
                "--libraries-ahead=cublas,cudnn",
                "--libraries-ahead=cublaslt",
                "--libraries-traces=false",
            ])
            .collect();
        let by_flags = config(&flags).unwrap().policies.libraries;
        let expected = Libraries {
            directories: vec![a.clone(), b, c],
            ahead: vec![Library::Cublas, Library::Cudnn, Library::CublasLt],
            traces: false,
        };
        assert_eq!(by_flags, expected);
        let wrong = config(&["-s", "vm", "--libraries=/nowhere"]).unwrap_err();
        let wrong = wrong.to_string();
        assert!(
            wrong.starts_with("--libraries: directory /nowhere: "),
            "{wrong}"
        );

        let path = whole.join("policy.toml");
        let path = path.to_str().unwrap();
        let vm = "[[vm]]\nsocket = \"/tmp/a\"\n";
        let file = |libraries: &str| {
            std::fs::write(path, format!("{vm}[libraries]\n{libraries}")).unwrap();
            config(&["--config", path]).map(|config| config.policies.libraries)
        };
        let right = format!("folders = [{a:?}]\nahead = [\"cufft\", \"cufft\"]\ntraces = false\n");
        let expected = Libraries {
            directories: vec![a],
            ahead: vec![Library::Cufft],
            traces: false,
        };
        assert_eq!(file(&right), Ok(expected));
        for traced in [
            file(""),
            file("traces = true"),
            config(&["-s", "vm"]).map(|config| config.policies.libraries),
            config(&["-s", "vm", "--libraries-traces"]).map(|config| config.policies.libraries),
        ] {
            assert_eq!(traced, Ok(Libraries::default()));
        }
        assert!(Libraries::default().traces);
        for (wrong, line, says) in [
            ("folders = [\n\"lib\"]", 5, "not an absolute path"),
            ("ahead = [\"cuda\"]", 4, "is not a library"),
            ("traces = 1", 4, ""),
            ("folder = []", 4, "unknown field"),
            ("folders = \"/lib\"", 4, ""),
        ] {
            let error = file(wrong).unwrap_err().to_string();
            assert!(error.starts_with(&format!("{path}:{line}: ")), "{error}");
            assert!(error.contains(says), "{error}");
        }
    }

    #[test]
    fn a_file_excludes_the_flags_that_it_stands_for() {
        let parse = |arguments: &[&str]| {
            let whole = ["vhost-device-gpgpu"].iter().chain(arguments);
            Args::try_parse_from(whole)
                .map(|_| ())
                .map_err(|error| error.kind())
        };
        use clap::error::ErrorKind::{
            ArgumentConflict, InvalidValue, MissingRequiredArgument, ValueValidation,
        };
        assert_eq!(parse(&[]), Err(MissingRequiredArgument));
        assert_eq!(parse(&["--config", "x"]), Ok(()));
        for flag in [
            "-s=x",
            "-c=2",
            "--gpus=0",
            "--memory-limit=1GiB",
            "--weight=5",
            "--max-clients=5",
            "--longest-kernel=5s",
            "--overrun-limit=5s",
            "--pause-limit=5s",
            "--sensors",
            "--libraries=/lib",
            "--libraries-ahead=cublas",
            "--libraries-traces",
        ] {
            assert_eq!(
                parse(&["--config", "x", flag]),
                Err(ArgumentConflict),
                "{flag}"
            );
        }
        for flag in [
            "--gpus=x",
            "--memory-limit=x",
            "--weight=0",
            "--max-clients=0",
            "--longest-kernel=0s",
            "--overrun-limit=99ms",
            "--pause-limit=99ms",
        ] {
            assert_eq!(parse(&["-s", "x", flag]), Err(ValueValidation), "{flag}");
        }
        let unknown = parse(&["-s", "x", "--libraries-ahead=cublas,cuda"]);
        assert_eq!(unknown, Err(InvalidValue));
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
    fn metrics_are_for_this_machine_alone() {
        let some = |address| ["-s", "x", "--metrics", address, "--log-format", "json"];
        let right = config(&some("127.0.0.1:9400")).unwrap();
        assert_eq!(right.metrics, "127.0.0.1:9400".parse().ok());
        assert_eq!(right.log_format, Format::Json);
        let wrong = ["x"].into_iter().chain(some("0.0.0.0:9400"));
        let error = Args::try_parse_from(wrong).unwrap_err();
        assert!(
            error.to_string().contains("not a loopback address"),
            "{error}"
        );
    }

    #[test]
    fn the_command_line_is_consistent() {
        Args::command().debug_assert();
    }
}
