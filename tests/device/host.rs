// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The supervisor with its device processes in the test's own process, and workers that call no CUDA.

use std::{
    os::{
        fd::{AsFd, OwnedFd},
        unix::net::UnixStream,
    },
    path::{Path, PathBuf},
    thread::JoinHandle,
};

use gpgpu_protocol::layout::status;
use nix::{
    poll::{PollFd, PollFlags, PollTimeout, poll},
    sys::signal::kill,
    unistd::Pid,
};
use vhost_device_gpgpu::{
    policy::VmPolicy,
    supervisor::{self, Program, Supervisor},
};

use super::{
    BINARY,
    guest::{Guest, Vmm},
    worker::{self, ECHO, PID},
};

/// A supervisor in a thread; it stops when this is dropped.
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
        let config = config(
            directory.path(),
            mode,
            max_connections,
            warm_workers,
            policy,
        );
        let supervisor = Supervisor::new(config).unwrap();
        let (ours, theirs) = UnixStream::pair().unwrap();
        let thread = std::thread::spawn(move || {
            supervisor.run(theirs.as_fd()).unwrap();
        });
        Self {
            directory,
            stop: Some(ours.into()),
            thread: Some(thread),
        }
    }

    pub fn socket(&self, number: usize) -> PathBuf {
        socket(self.directory.path(), number)
    }

    pub fn boot(&self, vmm: Vmm) -> Guest {
        Guest::boot(&self.socket(0), vmm)
    }

    /// Stops everything, and waits for the end.
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

/// A supervisor of two VMs with sockets in a directory.
pub fn config(
    directory: &Path,
    mode: &str,
    max_connections: usize,
    warm_workers: usize,
    policy: impl Fn(&mut VmPolicy),
) -> supervisor::Config {
    supervisor::Config {
        vms: [0, 1]
            .map(|number| {
                let mut vm = VmPolicy::new(socket(directory, number));
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
        may_hold: true,
        scheduler: true,
        mover: None,
        context_costs: Vec::new(),
        sensors: None,
    }
}

pub fn socket(directory: &Path, number: usize) -> PathBuf {
    directory.join(format!("vm{number}"))
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

/// The worker of a client that cannot be queried. It is found among the processes of the test's host.
pub fn pid_of_worker(host: &Host, client: u32) -> Pid {
    // Workers are started in the order of their clients.
    pids_of(&host.socket(0), b"fake_worker")[client as usize - 1]
}

/// The processes with this argument of the VM at a socket, oldest first.
pub fn pids_of(socket: &Path, argument: &[u8]) -> Vec<Pid> {
    let mut found: Vec<i32> = std::fs::read_dir("/proc")
        .unwrap()
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter(|pid| {
            let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            let arguments: Vec<&[u8]> = line.split(|&byte| byte == 0).collect();
            arguments.contains(&argument)
                && arguments.contains(&socket.as_os_str().as_encoded_bytes())
        })
        .collect();
    found.sort_unstable();
    found.into_iter().map(Pid::from_raw).collect()
}

/// Waits until a process has ended, whether or not it was reaped.
pub fn wait_for_end(process: &OwnedFd) {
    let mut fds = [PollFd::new(process.as_fd(), PollFlags::POLLIN)];
    let ended = poll(&mut fds, PollTimeout::from(60_000u16)).unwrap();
    assert_eq!(ended, 1, "the process does not end");
}

pub fn pidfd(pid: Pid) -> OwnedFd {
    use std::os::fd::FromRawFd;
    // SAFETY: the call takes two integers and touches no memory.
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid.as_raw(), 0) };
    assert!(fd >= 0);
    // SAFETY: the kernel has just made this descriptor for the call, so nothing else owns it.
    unsafe { OwnedFd::from_raw_fd(fd as i32) }
}
