// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Messages between the supervisor and a device process.
//!
//! Neither end waits for the other. Messages are few and small, and a socket holds more of them than one VM can have in
//! flight.

use std::{
    os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd},
    time::Duration,
};

use gpgpu_protocol::layout::status;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::{
    Error, Result,
    frame::{self, Files, Framed},
};

mod kind {
    pub const SERVE: u32 = 1;
    pub const WORKER_STARTED: u32 = 2;
    pub const WORKER_FAILED: u32 = 3;
    pub const WORKER_EXITED: u32 = 4;
    pub const MOVER_STARTED: u32 = 5;
    pub const MOVER_FAILED: u32 = 6;
    pub const MOVER_EXITED: u32 = 7;
    pub const START_WORKER: u32 = 66;
    pub const CLOSE_WORKER: u32 = 67;
    pub const START_MOVER: u32 = 68;
    pub const MOVER_LATE: u32 = 69;
}

/// A message; the meaning of a field depends on the kind.
#[derive(Debug, Default, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Head {
    kind: u32,
    client: u32,
    first: u32,
    second: u32,
    name: [u8; 16],
}

impl frame::Head for Head {
    fn payload_bytes(&self) -> usize {
        0
    }
}

/// The files that a device process accepts. It trusts the supervisor.
const TAKEN: Files = Files::AllOrNone(1);

/// A message that a device process receives.
#[derive(Debug)]
pub enum ToDevice {
    /// The first message: the VM to serve.
    Serve {
        /// The VMM's connection.
        connection: OwnedFd,
        /// The maximum number of clients of its VM at a time.
        max_clients: u32,
        /// The maximum time for which a rest waits for a worker; `None` for no limit.
        pause_limit: Option<Duration>,
    },
    /// A client's worker was started.
    WorkerStarted {
        /// The client.
        client: u32,
        /// The device's end of the channel.
        channel: OwnedFd,
    },
    /// A client's worker could not be started.
    WorkerFailed {
        /// The client.
        client: u32,
        /// One of [`gpgpu_protocol::layout::status`].
        status: u32,
    },
    /// A client's worker has ended: its process was reaped.
    WorkerExited {
        /// The client.
        client: u32,
        /// The exit status, if no signal ended it.
        code: u32,
        /// The signal that ended it, or 0.
        signal: u32,
    },
    /// A channel to a GPU's mover.
    MoverStarted {
        /// Its GPU.
        gpu: u32,
        /// The device's end of the channel.
        channel: OwnedFd,
    },
    /// There is no mover at present.
    MoverFailed {
        /// The GPU.
        gpu: u32,
    },
    /// A mover to which there was a channel has ended: its process was reaped.
    MoverExited {
        /// Its GPU.
        gpu: u32,
    },
}

/// A message that the supervisor receives.
#[derive(Debug, PartialEq, Eq)]
pub enum ToSupervisor {
    /// A request for a client's worker.
    StartWorker {
        /// The client.
        client: u32,
        /// The process's id in the guest, for the log.
        pid: u32,
        /// The process's name, padded with zeros, for the log.
        name: [u8; 16],
    },
    /// A client's channel is closed, so its worker has to end.
    CloseWorker {
        /// The client.
        client: u32,
        /// Whether to kill it at once, without time to end by itself.
        kill: bool,
    },
    /// A request for a channel to a GPU's mover.
    StartMover {
        /// The GPU.
        gpu: u32,
    },
    /// A move takes too long. The supervisor checks whether the mover is stuck.
    MoverLate {
        /// Its GPU.
        gpu: u32,
    },
}

/// The supervisor's end.
#[derive(Debug)]
pub struct SupervisorEnd(OwnedFd);

/// The device process's end.
#[derive(Debug)]
pub struct DeviceEnd(OwnedFd);

impl SupervisorEnd {
    /// Takes one end of a [`pair`](super::pair).
    pub fn new(socket: OwnedFd) -> Self {
        Self(socket)
    }

    /// Sends a message.
    ///
    /// # Errors
    /// [`Error::Closed`]; [`Error::Malformed`] if the device process does not read its messages.
    pub fn send(&self, message: &ToDevice) -> Result<()> {
        let head = |kind, client, first, second| Head {
            kind,
            client,
            first,
            second,
            ..Head::default()
        };
        let (head, file) = match message {
            ToDevice::Serve {
                connection,
                max_clients,
                pause_limit,
            } => {
                let limit = pause_limit.map_or(0, |limit| limit.as_millis().max(1));
                let limit = u32::try_from(limit).unwrap_or(0);
                (head(kind::SERVE, 0, *max_clients, limit), Some(connection))
            }
            ToDevice::WorkerStarted { client, channel } => {
                (head(kind::WORKER_STARTED, *client, 0, 0), Some(channel))
            }
            ToDevice::WorkerFailed { client, status } => {
                (head(kind::WORKER_FAILED, *client, *status, 0), None)
            }
            ToDevice::WorkerExited {
                client,
                code,
                signal,
            } => (head(kind::WORKER_EXITED, *client, *code, *signal), None),
            ToDevice::MoverStarted { gpu, channel } => {
                (head(kind::MOVER_STARTED, 0, *gpu, 0), Some(channel))
            }
            ToDevice::MoverFailed { gpu } => (head(kind::MOVER_FAILED, 0, *gpu, 0), None),
            ToDevice::MoverExited { gpu } => (head(kind::MOVER_EXITED, 0, *gpu, 0), None),
        };
        frame::send_head_at_least(self.0.as_fd(), &head, file.map(AsFd::as_fd))
    }

    /// Receives the next message, if there is one.
    ///
    /// # Errors
    /// [`Error::Closed`], [`Error::Malformed`].
    pub fn recv(&self) -> Result<Option<ToSupervisor>> {
        let mut buffer = [0; size_of::<Head>()];
        let received = frame::recv_now::<Head>(self.0.as_fd(), &mut buffer, Files::Checked(0))?;
        let Some(Framed { head, .. }) = received else {
            return Ok(None);
        };
        let client = head.client;
        match head.kind {
            kind::START_WORKER => Ok(Some(ToSupervisor::StartWorker {
                client,
                pid: head.first,
                name: head.name,
            })),
            kind::CLOSE_WORKER => Ok(Some(ToSupervisor::CloseWorker {
                client,
                kill: head.first != 0,
            })),
            kind::START_MOVER => Ok(Some(ToSupervisor::StartMover { gpu: head.first })),
            kind::MOVER_LATE => Ok(Some(ToSupervisor::MoverLate { gpu: head.first })),
            _ => Err(Error::Malformed("unknown kind")),
        }
    }
}

impl AsRawFd for SupervisorEnd {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

impl DeviceEnd {
    /// Takes one end of a [`pair`](super::pair).
    pub fn new(socket: OwnedFd) -> Self {
        Self(socket)
    }

    /// Sends a message.
    ///
    /// # Errors
    /// [`Error::Closed`]; [`Error::Malformed`] if the supervisor does not read its messages.
    pub fn send(&self, message: &ToSupervisor) -> Result<()> {
        let head = match *message {
            ToSupervisor::StartWorker { client, pid, name } => Head {
                kind: kind::START_WORKER,
                client,
                first: pid,
                second: 0,
                name,
            },
            ToSupervisor::CloseWorker { client, kill } => Head {
                kind: kind::CLOSE_WORKER,
                client,
                first: kill.into(),
                ..Head::default()
            },
            ToSupervisor::StartMover { gpu } => Head {
                kind: kind::START_MOVER,
                first: gpu,
                ..Head::default()
            },
            ToSupervisor::MoverLate { gpu } => Head {
                kind: kind::MOVER_LATE,
                first: gpu,
                ..Head::default()
            },
        };
        frame::send_head(self.0.as_fd(), &head, None)
    }

    /// Waits for the next message.
    ///
    /// # Errors
    /// [`Error::Closed`], [`Error::Malformed`].
    pub fn wait(&self) -> Result<ToDevice> {
        let mut buffer = [0; size_of::<Head>()];
        frame::recv_next(self.0.as_fd(), &mut buffer, TAKEN).and_then(Self::parse)
    }

    /// Receives the next message, if there is one.
    ///
    /// # Errors
    /// [`Error::Closed`], [`Error::Malformed`].
    pub fn recv(&self) -> Result<Option<ToDevice>> {
        let mut buffer = [0; size_of::<Head>()];
        let received = frame::recv_now(self.0.as_fd(), &mut buffer, TAKEN)?;
        received.map(Self::parse).transpose()
    }

    fn parse(Framed { head, files, .. }: Framed<'_, Head>) -> Result<ToDevice> {
        let client = head.client;
        match (head.kind, files.into_iter().next()) {
            (kind::SERVE, Some(connection)) => Ok(ToDevice::Serve {
                connection,
                max_clients: head.first,
                pause_limit: (head.second > 0).then(|| Duration::from_millis(head.second.into())),
            }),
            (kind::WORKER_STARTED, Some(channel)) => {
                Ok(ToDevice::WorkerStarted { client, channel })
            }
            // This process has no free descriptor, so it cannot receive the channel.
            (kind::WORKER_STARTED, None) => Ok(ToDevice::WorkerFailed {
                client,
                status: status::NO_RESOURCES,
            }),
            (kind::MOVER_STARTED, None) => Ok(ToDevice::MoverFailed { gpu: head.first }),
            (kind::WORKER_FAILED, None) => Ok(ToDevice::WorkerFailed {
                client,
                status: head.first,
            }),
            (kind::WORKER_EXITED, None) => Ok(ToDevice::WorkerExited {
                client,
                code: head.first,
                signal: head.second,
            }),
            (kind::MOVER_STARTED, Some(channel)) => Ok(ToDevice::MoverStarted {
                gpu: head.first,
                channel,
            }),
            (kind::MOVER_FAILED, None) => Ok(ToDevice::MoverFailed { gpu: head.first }),
            (kind::MOVER_EXITED, None) => Ok(ToDevice::MoverExited { gpu: head.first }),
            _ => Err(Error::Malformed("unknown kind")),
        }
    }
}

impl AsFd for DeviceEnd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
