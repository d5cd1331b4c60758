// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The supervisor with its device processes in the tests' own process, and workers that call no CUDA.

use std::{
    os::{fd::OwnedFd, unix::net::UnixStream},
    path::PathBuf,
    thread::JoinHandle,
};

use gpgpu_protocol::layout::status;
use nix::{sys::signal::kill, unistd::Pid};
use vhost_device_gpgpu::{
    policy::VmPolicy,
    supervisor::{self, Program, Supervisor},
};

use super::{
    BINARY,
    guest::{Guest, Vmm},
    worker::{self, ECHO, PID},
};

/// A supervisor in a thread; it ends when this is dropped.
pub struct Host {
    directory: tempfile::TempDir,
    stop: Option<OwnedFd>,
    thread: Option<JoinHandle<()>>,
}

impl Host {
    pub fn new(mode: &str) -> Self {
        Self::with_connections(mode, 8)
    }

    pub fn with_connections(mode: &str, max_connections: usize) -> Self {
        Self::start(mode, max_connections, 0)
    }

    pub fn start(mode: &str, max_connections: usize, warm_workers: usize) -> Self {
        Self::with_policy(mode, max_connections, warm_workers, |_| {})
    }

    pub fn with_policy(
        mode: &str,
        max_connections: usize,
        warm_workers: usize,
        policy: impl Fn(&mut VmPolicy),
    ) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let config = supervisor::Config {
            vms: ["vm0", "vm1"]
                .map(|name| {
                    let mut vm = VmPolicy::new(directory.path().join(name));
                    policy(&mut vm);
                    vm
                })
                .to_vec(),
            gpus: 0,
            max_connections,
            device: Program {
                program: BINARY.into(),
                arguments: vec!["device-process".into()],
                ..Program::default()
            },
            worker: Program {
                program: std::env::current_exe().unwrap(),
                arguments: ["--exact", "fake_worker", "--nocapture", "--quiet"]
                    .map(Into::into)
                    .to_vec(),
                environment: vec![(worker::MODE.into(), mode.into())],
            },
            warm_workers,
            cache: None,
            scheduler: true,
            mover: None,
            context_costs: Vec::new(),
        };
        let supervisor = Supervisor::new(config).unwrap();
        let (ours, theirs) = UnixStream::pair().unwrap();
        let thread = std::thread::spawn(move || {
            use std::os::fd::AsFd;
            supervisor.run(theirs.as_fd()).unwrap();
        });
        Self {
            directory,
            stop: Some(ours.into()),
            thread: Some(thread),
        }
    }

    pub fn socket(&self, number: usize) -> PathBuf {
        self.directory.path().join(format!("vm{number}"))
    }

    pub fn boot(&self, vmm: Vmm) -> Guest {
        Guest::boot(&self.socket(0), vmm)
    }

    /// Ends all, and waits for it.
    pub fn stop(&mut self) {
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        self.stop();
    }
}

pub fn pid_of(guest: &mut Guest, client: u32) -> Pid {
    let (status, answer, _) = guest.command(client, &[PID], 4, &[], 0);
    assert_eq!(status, status::OK);
    Pid::from_raw(i32::from_ne_bytes(answer.try_into().unwrap()))
}

pub fn exists(pid: Pid) -> bool {
    kill(pid, None).is_ok()
}

pub fn echoes(guest: &mut Guest, client: u32) {
    let (status, answer, data) = guest.command(client, &[ECHO, 2, 3], 16, b"in-data", 7);
    assert_eq!(
        (status, &answer[..], &data[..]),
        (status::OK, &[ECHO, 2, 3][..], &b"in-data"[..])
    );
}

pub fn dies(guest: &mut Guest, client: u32, how: u8) -> u32 {
    guest.command(client, &[how], 16, &[], 0).0
}

/// The worker of a client that cannot be asked, found by what the test's host has started.
pub fn pid_of_worker(host: &Host, client: u32) -> Pid {
    // Workers are started in the order of their clients.
    pids_of(host, b"fake_worker")[client as usize - 1]
}

/// The processes of the first VM with this argument, oldest first.
pub fn pids_of(host: &Host, argument: &[u8]) -> Vec<Pid> {
    let mut found: Vec<i32> = std::fs::read_dir("/proc")
        .unwrap()
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter(|pid| {
            let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            let arguments: Vec<&[u8]> = line.split(|&byte| byte == 0).collect();
            let socket = host.socket(0);
            arguments.contains(&argument)
                && arguments.contains(&socket.as_os_str().as_encoded_bytes())
        })
        .collect();
    found.sort_unstable();
    found.into_iter().map(Pid::from_raw).collect()
}

pub fn pidfd(pid: Pid) -> OwnedFd {
    use std::os::fd::FromRawFd;
    // SAFETY: the call takes two integers and touches no memory.
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid.as_raw(), 0) };
    assert!(fd >= 0);
    // SAFETY: the kernel has just made this descriptor for the call, so nothing else owns it.
    unsafe { OwnedFd::from_raw_fd(fd as i32) }
}
