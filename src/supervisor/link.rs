//! Messages between the supervisor and a device process, over a pair of `SOCK_SEQPACKET` sockets.
//!
//! Neither end ever waits for the other: messages are few and small, and a socket holds more of
//! them than one VM can have under way.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};

use gpgpu_protocol::layout::status;
use nix::sys::socket::MsgFlags;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::ipc::{self, Error, Result};

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

#[derive(Debug, Default, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Raw {
    kind: u32,
    client: u32,
    first: u32,
    second: u32,
    name: [u8; 16],
}

/// What a device process receives.
#[derive(Debug)]
pub enum ToDevice {
    /// The first message: what to serve.
    Serve {
        /// The VMM's connection.
        connection: OwnedFd,
        /// How many clients its VM may have at a time.
        max_clients: u32,
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
    /// A client's worker is gone: its process has been reaped.
    WorkerExited {
        /// The client.
        client: u32,
        /// The exit status, if it was not a signal.
        code: u32,
        /// The signal that ended it, or 0.
        signal: u32,
    },
    /// There is a mover, and this is a channel to it.
    MoverStarted {
        /// Its GPU.
        gpu: u32,
        /// The device's end of the channel.
        channel: OwnedFd,
    },
    /// There is no mover for now.
    MoverFailed {
        /// The GPU.
        gpu: u32,
    },
    /// A mover to which there was a channel is gone: its process has been reaped.
    MoverExited {
        /// Its GPU.
        gpu: u32,
    },
}

/// What the supervisor receives.
#[derive(Debug, PartialEq, Eq)]
pub enum ToSupervisor {
    /// A client wants a worker.
    StartWorker {
        /// The client.
        client: u32,
        /// The process's id in the guest, for the log.
        pid: u32,
        /// The process's name, padded with zeros, for the log.
        name: [u8; 16],
    },
    /// A client's channel is closed; its worker has to go.
    CloseWorker {
        /// The client.
        client: u32,
        /// Whether at once, without a chance to end by itself.
        kill: bool,
    },
    /// A channel to a GPU's mover is wanted.
    StartMover {
        /// The GPU.
        gpu: u32,
    },
    /// A mover takes too long for a move. The supervisor looks whether that is so.
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
    /// Takes one end of an [`ipc::pair`].
    pub fn new(socket: OwnedFd) -> Self {
        Self(socket)
    }

    /// Sends a message.
    ///
    /// # Errors
    /// [`Error::Closed`]; [`Error::Malformed`] if the device process does not read what it is sent.
    pub fn send(&self, message: &ToDevice) -> Result<()> {
        let raw = |kind, client, first, second| Raw {
            kind,
            client,
            first,
            second,
            ..Raw::default()
        };
        let (raw, fd) = match message {
            ToDevice::Serve {
                connection,
                max_clients,
            } => (raw(kind::SERVE, 0, *max_clients, 0), Some(connection)),
            ToDevice::WorkerStarted { client, channel } => {
                (raw(kind::WORKER_STARTED, *client, 0, 0), Some(channel))
            }
            ToDevice::WorkerFailed { client, status } => {
                (raw(kind::WORKER_FAILED, *client, *status, 0), None)
            }
            ToDevice::WorkerExited {
                client,
                code,
                signal,
            } => (raw(kind::WORKER_EXITED, *client, *code, *signal), None),
            ToDevice::MoverStarted { gpu, channel } => {
                (raw(kind::MOVER_STARTED, 0, *gpu, 0), Some(channel))
            }
            ToDevice::MoverFailed { gpu } => (raw(kind::MOVER_FAILED, 0, *gpu, 0), None),
            ToDevice::MoverExited { gpu } => (raw(kind::MOVER_EXITED, 0, *gpu, 0), None),
        };
        send(self.0.as_fd(), &raw, fd.map(AsFd::as_fd))
    }

    /// The next message, if there is one.
    ///
    /// # Errors
    /// [`Error::Closed`], [`Error::Malformed`].
    pub fn recv(&self) -> Result<Option<ToSupervisor>> {
        let Some((raw, _)) = recv(self.0.as_fd(), 0, MsgFlags::MSG_DONTWAIT)? else {
            return Ok(None);
        };
        let client = raw.client;
        match raw.kind {
            kind::START_WORKER => Ok(Some(ToSupervisor::StartWorker {
                client,
                pid: raw.first,
                name: raw.name,
            })),
            kind::CLOSE_WORKER => Ok(Some(ToSupervisor::CloseWorker {
                client,
                kill: raw.first != 0,
            })),
            kind::START_MOVER => Ok(Some(ToSupervisor::StartMover { gpu: raw.first })),
            kind::MOVER_LATE => Ok(Some(ToSupervisor::MoverLate { gpu: raw.first })),
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
    /// Takes one end of an [`ipc::pair`].
    pub fn new(socket: OwnedFd) -> Self {
        Self(socket)
    }

    /// Sends a message.
    ///
    /// # Errors
    /// [`Error::Closed`]; [`Error::Malformed`] if the supervisor does not read what it is sent.
    pub fn send(&self, message: &ToSupervisor) -> Result<()> {
        let raw = match *message {
            ToSupervisor::StartWorker { client, pid, name } => Raw {
                kind: kind::START_WORKER,
                client,
                first: pid,
                second: 0,
                name,
            },
            ToSupervisor::CloseWorker { client, kill } => Raw {
                kind: kind::CLOSE_WORKER,
                client,
                first: kill.into(),
                ..Raw::default()
            },
            ToSupervisor::StartMover { gpu } => Raw {
                kind: kind::START_MOVER,
                first: gpu,
                ..Raw::default()
            },
            ToSupervisor::MoverLate { gpu } => Raw {
                kind: kind::MOVER_LATE,
                first: gpu,
                ..Raw::default()
            },
        };
        send(self.0.as_fd(), &raw, None)
    }

    /// Waits for the next message.
    ///
    /// # Errors
    /// [`Error::Closed`], [`Error::Malformed`].
    pub fn wait(&self) -> Result<ToDevice> {
        match recv(self.0.as_fd(), 1, MsgFlags::empty())? {
            Some((raw, fd)) => Self::parse(raw, fd),
            None => Err(Error::Malformed("a blocking socket would block")),
        }
    }

    /// The next message, if there is one.
    ///
    /// # Errors
    /// [`Error::Closed`], [`Error::Malformed`].
    pub fn recv(&self) -> Result<Option<ToDevice>> {
        match recv(self.0.as_fd(), 1, MsgFlags::MSG_DONTWAIT)? {
            Some((raw, fd)) => Self::parse(raw, fd).map(Some),
            None => Ok(None),
        }
    }

    fn parse(raw: Raw, fd: Option<OwnedFd>) -> Result<ToDevice> {
        let client = raw.client;
        match (raw.kind, fd) {
            (kind::SERVE, Some(connection)) => Ok(ToDevice::Serve {
                connection,
                max_clients: raw.first,
            }),
            (kind::WORKER_STARTED, Some(channel)) => {
                Ok(ToDevice::WorkerStarted { client, channel })
            }
            // This process can open no more files: it cannot have the channel.
            (kind::WORKER_STARTED, None) => Ok(ToDevice::WorkerFailed {
                client,
                status: status::NO_RESOURCES,
            }),
            (kind::MOVER_STARTED, None) => Ok(ToDevice::MoverFailed { gpu: raw.first }),
            (kind::WORKER_FAILED, None) => Ok(ToDevice::WorkerFailed {
                client,
                status: raw.first,
            }),
            (kind::WORKER_EXITED, None) => Ok(ToDevice::WorkerExited {
                client,
                code: raw.first,
                signal: raw.second,
            }),
            (kind::MOVER_STARTED, Some(channel)) => Ok(ToDevice::MoverStarted {
                gpu: raw.first,
                channel,
            }),
            (kind::MOVER_FAILED, None) => Ok(ToDevice::MoverFailed { gpu: raw.first }),
            (kind::MOVER_EXITED, None) => Ok(ToDevice::MoverExited { gpu: raw.first }),
            _ => Err(Error::Malformed("unknown kind")),
        }
    }
}

impl AsFd for DeviceEnd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

fn send(socket: BorrowedFd<'_>, raw: &Raw, fd: Option<BorrowedFd<'_>>) -> Result<()> {
    let fds: Vec<_> = fd.iter().map(|fd| fd.as_raw_fd()).collect();
    if ipc::send(socket, &[raw.as_bytes()], &fds, MsgFlags::MSG_DONTWAIT)? {
        Ok(())
    } else {
        Err(Error::Malformed("the other end does not read"))
    }
}

/// A message with one descriptor at most; the supervisor takes none (`most` is 0).
fn recv(
    socket: BorrowedFd<'_>,
    most: usize,
    flags: MsgFlags,
) -> Result<Option<(Raw, Option<OwnedFd>)>> {
    let mut bytes = [0; size_of::<Raw>()];
    let Some(received) = ipc::recv(socket, &mut bytes, most, flags)? else {
        return Ok(None);
    };
    if received.len != bytes.len() {
        return Err(Error::Malformed("not as long as a message"));
    }
    let raw = Raw::read_from_bytes(&bytes).map_err(|_| Error::Malformed("not a message"))?;
    let fds = match most {
        0 => received.checked()?,
        _ => received.all_or_none(),
    };
    Ok(Some((raw, fds.into_iter().next())))
}
