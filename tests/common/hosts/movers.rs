// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! A host with the software GPU. The supervisor, device processes and movers are the real ones; the caller chooses the
//! workers.

use std::{
    fs,
    os::{
        fd::AsFd,
        unix::{fs::symlink, io::OwnedFd, net::UnixStream},
    },
    path::{Path, PathBuf},
    thread::JoinHandle,
};

use nix::unistd::Pid;
use vhost_device_gpgpu::{
    policy::VmPolicy,
    supervisor::{self, Program, Supervisor},
};

use crate::common::program;
pub use crate::common::{on_gpu, wait_for};

/// The software GPU's library, if there is one.
fn software_gpu() -> Option<PathBuf> {
    let staged = std::env::var_os("VIRTIO_GPGPU_STAGE")
        .map(|stage| Path::new(&stage).join("software-gpu/libcuda.so.1"));
    let built = || {
        let own = std::env::current_exe().ok()?;
        Some(own.parent()?.parent()?.join("libsoftware_gpu.so"))
    };
    let found = staged.or_else(built).filter(|library| library.exists());
    if found.is_none() {
        eprintln!("skipped: there is no software GPU; run cargo xtask test");
    }
    found
}

/// A supervisor in a thread, with movers and two VMs; it stops when this is dropped.
pub struct Host {
    directory: tempfile::TempDir,
    stop: Option<OwnedFd>,
    thread: Option<JoinHandle<()>>,
    children: PathBuf,
}

impl Host {
    /// A host whose workers are this program with these arguments and variables. They take turns on the GPU if
    /// `scheduler` is set. `None` if there is no GPU to run on.
    pub fn new(
        worker: &Path,
        arguments: &[&str],
        variables: &[(&str, &str)],
        scheduler: bool,
    ) -> Option<Self> {
        Self::with_policy(worker, arguments, variables, scheduler, |_| {})
    }

    /// The same, with a `change` to each VM's policy.
    pub fn with_policy(
        worker: &Path,
        arguments: &[&str],
        variables: &[(&str, &str)],
        scheduler: bool,
        change: impl Fn(&mut VmPolicy),
    ) -> Option<Self> {
        let directory = tempfile::tempdir().unwrap();
        if !on_gpu() {
            let library = software_gpu()?;
            for name in ["libcuda.so.1", "libcuda.so"] {
                symlink(&library, directory.path().join(name)).unwrap();
            }
        }
        let role = |program: &Path, arguments: &[&str], variables: &[(&str, &str)]| {
            let mut path = directory.path().to_str().unwrap().to_owned();
            if let Ok(others) = std::env::var("LD_LIBRARY_PATH") {
                path = format!("{path}:{others}");
            }
            Program {
                program: program.into(),
                arguments: arguments.iter().map(Into::into).collect(),
                environment: variables
                    .iter()
                    .chain(&[("LD_LIBRARY_PATH", &path[..])])
                    .map(|(name, value)| (name.into(), value.into()))
                    .collect(),
            }
        };
        let config = supervisor::Config {
            vms: ["vm0", "vm1"]
                .map(|name| {
                    let mut policy = VmPolicy::new(directory.path().join(name));
                    change(&mut policy);
                    policy
                })
                .to_vec(),
            gpus: 0,
            max_connections: 8,
            device: role(&program(), &["device-process"], &[]),
            worker: role(worker, arguments, variables),
            mover: Some(role(&program(), &["mover-process"], &[])),
            warm_workers: 0,
            cache: None,
            may_hold: true,
            scheduler,
            context_costs: Vec::new(),
            sensors: None,
        };
        let supervisor = Supervisor::new(config).unwrap();
        let (ours, theirs) = UnixStream::pair().unwrap();
        let (tell, told) = std::sync::mpsc::channel();
        let thread = std::thread::spawn(move || {
            tell.send(nix::unistd::gettid()).unwrap();
            supervisor.run(theirs.as_fd()).unwrap();
        });
        let id = told.recv().unwrap();
        Some(Self {
            directory,
            stop: Some(ours.into()),
            thread: Some(thread),
            children: format!("/proc/self/task/{id}/children").into(),
        })
    }

    /// The path of a VM's socket.
    pub fn socket(&self, number: usize) -> PathBuf {
        self.directory.path().join(format!("vm{number}"))
    }

    /// The processes of a role whose end the supervisor has not noticed.
    pub fn processes(&self, role: &str) -> Vec<Pid> {
        let children = fs::read_to_string(&self.children).unwrap();
        let is_it = |pid: &&str| {
            let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            String::from_utf8_lossy(&line).contains(role)
        };
        let children = children.split_whitespace().filter(is_it);
        children
            .map(|pid| Pid::from_raw(pid.parse().unwrap()))
            .collect()
    }

    /// The mover; waits until there is one.
    pub fn mover(&self) -> Pid {
        wait_for("a mover", || self.processes("mover-process").pop())
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            let ended = thread.join();
            assert!(ended.is_ok() || std::thread::panicking());
        }
    }
}
