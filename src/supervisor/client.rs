// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The processes that serve connections and clients.

use std::{
    collections::HashMap,
    fmt,
    fs::File,
    io::PipeReader,
    os::unix::process::ExitStatusExt,
    path::PathBuf,
    process::ExitStatus,
    sync::Arc,
    time::{Duration, Instant},
};

use super::{
    lease::Late,
    metrics::End,
    peers::Peers,
    process::{Process, reason},
};
use crate::{
    ipc::{
        self,
        device::{SupervisorEnd, ToDevice},
    },
    pace::Pace,
    policy::VmPolicy,
};

/// The time for a worker to end by itself after its client was closed. Its device memory must be released within a
/// second.
const GRACE: Duration = Duration::from_millis(500);
/// The time after the kill of a worker until the log reports that it still exists. A driver needs less to release
/// everything that the process had.
const KILLED: Duration = Duration::from_secs(5);

/// A device process.
pub struct Device {
    /// The process.
    pub process: Process,
    /// The link to it.
    pub link: SupervisorEnd,
    /// The link's number in the event loop.
    pub link_token: u32,
    /// Keeps the VMM's connection open; see [`super::hold`].
    pub hold: Arc<File>,
    /// A pipe for each channel to a mover that it has got. The pipe hangs up when the mover has left the channel.
    pub channels: Vec<PipeReader>,
    /// Its VM.
    pub vm: usize,
    /// The keys of its workers, by client.
    pub workers: HashMap<u32, u32>,
    /// The rate limit for its messages. A process that exceeds it is compromised.
    pub messages: Pace,
    /// The rate limit for starts of workers. The process limits itself to a lower rate.
    pub starts: Pace,
    /// Whether it was killed because of its messages.
    pub is_given_up: bool,
}

impl Device {
    /// Sends a message, and kills a device process that does not read its messages.
    pub fn tell(&mut self, message: &ToDevice) {
        match self.link.send(message) {
            // The end of the process is handled elsewhere.
            Ok(()) | Err(ipc::Error::Closed) => {}
            Err(error) => {
                tracing::error!("Device process {}: {error}", self.process.id());
                self.process.kill();
            }
        }
    }
}

/// A worker without a client.
pub struct Warm {
    /// The process.
    pub process: Process,
    /// The device's end of its channel.
    pub channel: ipc::DeviceEnd,
    /// The process's number in the event loop.
    pub token: u32,
}

/// A worker that serves a client.
pub struct Worker {
    /// The process.
    pub process: Process,
    /// The key of its device process.
    pub device: u32,
    /// The client.
    pub client: u32,
    /// Its VM.
    pub vm: usize,
    /// Its channel for connections to other workers of its VM.
    pub peers: Peers,
    /// Its slot in the VM's ledger.
    pub slot: u32,
    /// The GPU that its client sees first, if known.
    pub gpu: Option<u32>,
    /// The guest process, for the log and the metrics.
    pub who: Arc<Who>,
    /// The time at which to kill it, after its client was closed. After the kill, the time at which to log that it has
    /// not ended.
    pub deadline: Option<Instant>,
    /// Keeps the VMM's connection open until the worker is reaped, whether or not the worker itself has a hold.
    #[expect(dead_code, reason = "it is held")]
    pub hold: Arc<File>,
    /// Whether its client was closed.
    pub closed: bool,
    /// Whether it was killed because its client was closed.
    pub killed: bool,
    /// The reason to end it, if it has kept a GPU for too long.
    pub expired: Option<Late>,
}

impl Worker {
    /// Handles the closing of its client: the worker has to end.
    pub fn close(&mut self, kill: bool) {
        // The client had already ended for another reason, which is still to be reported.
        if self.process.ended().is_some() {
            return;
        }
        self.closed = true;
        if kill {
            self.kill();
        } else if !self.killed && self.deadline.is_none() {
            self.deadline = Some(Instant::now() + GRACE);
        }
    }

    /// Kills a worker that does not end by itself, or that must not get the time to.
    pub fn kill(&mut self) {
        if self.killed || self.process.ended().is_some() {
            return;
        }
        self.killed = true;
        self.deadline = Some(Instant::now() + KILLED);
        self.process.kill();
    }

    /// Handles the deadline: kills the process or, if it was killed before, logs that it does not end. Everything that
    /// waits for its end continues to wait, because it may still write to its guest's memory.
    pub fn deadline_passed(&mut self) {
        self.deadline = None;
        if !self.killed {
            return self.kill();
        }
        if self.process.ended().is_some() {
            return;
        }
        let worker = self.process.id();
        let held = self.process.held_by();
        tracing::error!(
            vm = self.who.vm,
            client = self.who.client,
            worker,
            reason = held,
            "{}: worker {worker} was killed but has not exited: {held}. It may still write to its VM's memory, so a reset of the VM's \
             device, and the end of this client, wait for it",
            self.who
        );
    }

    /// Ends a worker that keeps a GPU for longer than its VM's policy allows, or that cannot be scheduled.
    pub fn expire(&mut self, late: Late) {
        self.expired = Some(late);
        self.kill();
    }

    /// Logs this reason.
    pub fn log_expired(&self, late: Late, policy: &VmPolicy) {
        let (vm, client, worker) = (&self.who.vm, self.who.client, self.process.id());
        let who = &self.who;
        match late {
            Late::Kernel => tracing::warn!(
                vm,
                client,
                worker,
                "{who}: a kernel exceeded longest-kernel ({:?})",
                policy.longest_kernel.unwrap_or_default()
            ),
            Late::Overrun => tracing::warn!(
                vm,
                client,
                worker,
                "{who}: its work exceeded overrun-limit ({:?}) after its turn",
                policy.overrun_limit.unwrap_or_default()
            ),
            Late::Unwatched => {
                tracing::warn!(vm, client, worker, "{who}: its work cannot be scheduled")
            }
        }
    }

    /// The reason for its end; `oom` as for [`End::of`].
    pub fn end(&self, ended: ExitStatus, oom: impl FnOnce() -> bool) -> End {
        // A process that dies closes its channel first, so its client may be closed before the process has ended. Such
        // a death is not an orderly end.
        let in_order = self.closed && (self.killed || ended.signal().is_none());
        match self.expired {
            Some(Late::Kernel) => End::LongestKernel,
            Some(Late::Overrun) => End::Overrun,
            Some(Late::Unwatched) => End::Refused,
            None if in_order => End::Closed,
            None => End::of(ended, oom),
        }
    }

    /// Logs its end.
    pub fn log_end(&self, ended: ExitStatus, end: End) {
        let Who {
            vm,
            client,
            name,
            guest_process,
            ..
        } = &*self.who;
        let worker = self.process.id();
        let label = end.label();
        if end == End::Closed {
            tracing::info!(
                vm,
                client,
                name,
                guest_process,
                worker,
                reason = label,
                "{} closed",
                self.who
            );
        } else {
            tracing::warn!(
                vm,
                client,
                name,
                guest_process,
                worker,
                reason = label,
                status = reason(ended),
                "{}: its worker died: {}",
                self.who,
                reason(ended)
            );
        }
    }
}

/// A guest process that has opened the GPU.
#[derive(Debug, Clone)]
pub struct Who {
    /// Its VM's name.
    pub vm: String,
    /// The path of that VM's socket.
    pub path: PathBuf,
    /// The client's number in its connection.
    pub client: u32,
    /// The name, with unprintable characters escaped.
    pub name: String,
    /// Its id in the guest.
    pub guest_process: u32,
}

impl fmt::Display for Who {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}: client {} ({}, guest process {})",
            self.path.display(),
            self.client,
            self.name,
            self.guest_process
        )
    }
}

/// A guest process's name; unprintable characters are escaped.
pub struct Name<'a>(pub &'a [u8; 16]);

impl std::fmt::Display for Name<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let len = self
            .0
            .iter()
            .position(|&byte| byte == 0)
            .unwrap_or(self.0.len());
        write!(f, "{}", self.0[..len].escape_ascii())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_from_guests_cannot_forge_log_lines() {
        assert_eq!(Name(b"python3\0\0\0\0\0\0\0\0\0").to_string(), "python3");
        assert_eq!(
            Name(b"a\nERROR b\x1b[2J\xff\0\0").to_string(),
            "a\\nERROR b\\x1b[2J\\xff"
        );
    }
}
