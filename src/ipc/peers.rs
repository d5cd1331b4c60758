// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Messages between workers of one VM, and between them and the supervisor, which connects them.
//!
//! A worker has a channel to the supervisor, its [`WorkerEnd`]. With it, one worker asks to [meet](ToSupervisor::Meet)
//! another, which it names by the number that the supervisor has assigned. If both serve the same VM, each gets an end
//! of a new channel, and the supervisor keeps none. On that channel the worker that has asked, the visitor, requests
//! shared objects of the other one, its host.
//!
//! The supervisor accepts no descriptors from a worker, and keeps none that it has sent: a channel between workers
//! closes when one of the workers ends. Both workers run a guest's code, so each end checks the messages of the other.

use std::{
    os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd},
    time::{Duration, Instant},
};

use nix::{
    errno::Errno,
    poll::{PollFd, PollFlags, PollTimeout, poll},
};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::{
    Error, Result,
    frame::{self, Files, Framed},
};

/// The maximum number of descriptors of channels that were sent to a worker and that it has not confirmed yet.
pub const MAX_UNTAKEN: u32 = 16;

/// The size of the secret that names a shared object, in bytes.
pub const TOKEN_BYTES: usize = 16;

mod kind {
    pub const MET: u32 = 1;
    pub const NOT_MET: u32 = 2;
    pub const VISITOR: u32 = 3;
    pub const BUSY: u32 = 4;
    pub const MEET: u32 = 65;
    pub const TAKEN: u32 = 66;
    pub const LISTEN: u32 = 67;
    pub const SENSE: u32 = 68;
    pub const ASK: u32 = 129;
    pub const GIVE: u32 = 130;
    pub const REFUSE: u32 = 131;
    pub const RETURN: u32 = 132;
}

/// A message between the supervisor and a worker; the meaning of a field depends on the kind.
#[derive(Debug, Default, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Head {
    kind: u32,
    reserved: u32,
    number: u64,
}

impl frame::Head for Head {
    fn payload_bytes(&self) -> usize {
        0
    }
}

/// A message of a worker that the supervisor receives.
#[derive(Debug, PartialEq, Eq)]
pub enum ToSupervisor {
    /// The worker accepts visitors.
    Listen,
    /// A request to meet the worker with this number; answered by [`ToWorker::Met`], [`ToWorker::NotMet`] or
    /// [`ToWorker::Busy`].
    Meet(u64),
    /// The worker has received a descriptor.
    Taken,
    /// A request for a sample of a GPU's sensors, by the host's number, in the VM's [`Terms`](crate::account::Terms).
    /// There is no other answer.
    Sense(u64),
}

/// A message of the supervisor that a worker receives.
#[derive(Debug)]
pub enum ToWorker {
    /// A channel to the worker with this number.
    Met(u64, OwnedFd),
    /// No worker with this number accepts visitors.
    NotMet(u64),
    /// The worker with this number has too many pending visitors. Ask again later.
    Busy(u64),
    /// A channel to the worker with this number, which will send requests.
    Visitor(u64, OwnedFd),
    /// A channel that this process could not receive, because it has no free descriptor. It is never sent.
    Lost(u64),
}

/// The supervisor's end of a worker's channel.
#[derive(Debug)]
pub struct SupervisorEnd(OwnedFd);

impl SupervisorEnd {
    /// Takes one end of a [`pair`](super::pair).
    pub fn new(socket: OwnedFd) -> Self {
        Self(socket)
    }

    /// Receives the next message, if there is one.
    ///
    /// # Errors
    /// [`Error::Closed`], [`Error::Malformed`]. Received descriptors are closed.
    pub fn recv(&self) -> Result<Option<ToSupervisor>> {
        let mut buffer = [0; size_of::<Head>()];
        let received = frame::recv_now::<Head>(self.0.as_fd(), &mut buffer, Files::Checked(0))?;
        let Some(Framed { head, .. }) = received else {
            return Ok(None);
        };
        match head.kind {
            kind::LISTEN => Ok(Some(ToSupervisor::Listen)),
            kind::MEET => Ok(Some(ToSupervisor::Meet(head.number))),
            kind::TAKEN => Ok(Some(ToSupervisor::Taken)),
            kind::SENSE => Ok(Some(ToSupervisor::Sense(head.number))),
            _ => Err(Error::Malformed("unknown kind")),
        }
    }

    /// Sends a message.
    ///
    /// # Errors
    /// [`Error::Closed`]; [`Error::Malformed`] if the worker does not read its messages.
    pub fn send(&self, message: &ToWorker) -> Result<()> {
        let (kind, number, file) = match message {
            ToWorker::Met(number, file) => (kind::MET, *number, Some(file)),
            ToWorker::NotMet(number) | ToWorker::Lost(number) => (kind::NOT_MET, *number, None),
            ToWorker::Busy(number) => (kind::BUSY, *number, None),
            ToWorker::Visitor(number, file) => (kind::VISITOR, *number, Some(file)),
        };
        let head = Head {
            kind,
            number,
            ..Head::default()
        };
        frame::send_head_at_least(self.0.as_fd(), &head, file.map(AsFd::as_fd))
    }
}

impl AsRawFd for SupervisorEnd {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

/// A worker's end of its channel to the supervisor.
#[derive(Debug)]
pub struct WorkerEnd(OwnedFd);

impl WorkerEnd {
    /// Takes one end of a [`pair`](super::pair).
    pub fn new(socket: OwnedFd) -> Self {
        Self(socket)
    }

    /// Sends a message.
    ///
    /// # Errors
    /// [`Error::Closed`]; [`Error::Malformed`] if the supervisor does not read its messages.
    pub fn send(&self, message: &ToSupervisor) -> Result<()> {
        let (kind, number) = match *message {
            ToSupervisor::Listen => (kind::LISTEN, 0),
            ToSupervisor::Meet(number) => (kind::MEET, number),
            ToSupervisor::Taken => (kind::TAKEN, 0),
            ToSupervisor::Sense(gpu) => (kind::SENSE, gpu),
        };
        let head = Head {
            kind,
            number,
            ..Head::default()
        };
        frame::send_head(self.0.as_fd(), &head, None)
    }

    /// Receives the next message, if there is one.
    ///
    /// # Errors
    /// [`Error::Closed`], [`Error::Malformed`].
    pub fn recv(&self) -> Result<Option<ToWorker>> {
        let mut buffer = [0; size_of::<Head>()];
        let received = frame::recv_now::<Head>(self.0.as_fd(), &mut buffer, Files::AllOrNone(1))?;
        let Some(Framed { head, files, .. }) = received else {
            return Ok(None);
        };
        let number = head.number;
        match (head.kind, files.into_iter().next()) {
            (kind::MET, Some(file)) => Ok(Some(ToWorker::Met(number, file))),
            (kind::NOT_MET, None) => Ok(Some(ToWorker::NotMet(number))),
            (kind::VISITOR, Some(file)) => Ok(Some(ToWorker::Visitor(number, file))),
            (kind::BUSY, None) => Ok(Some(ToWorker::Busy(number))),
            (kind::MET | kind::VISITOR, None) => Ok(Some(ToWorker::Lost(number))),
            _ => Err(Error::Malformed("unknown kind")),
        }
    }
}

impl AsFd for WorkerEnd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// The object that a visitor gets, as its host describes it.
#[derive(
    Debug, Default, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct Given {
    /// The number of the object whose descriptor is passed: for device memory, the number of the physical memory. It is
    /// unique in its host.
    pub number: u64,
    /// The size of the object, in bytes.
    pub bytes: u64,
    /// The offset of the shared part in the object, in bytes.
    pub offset: u64,
    /// The size of the shared part in bytes.
    pub length: u64,
    /// The GPU of the memory, by the host's number.
    pub gpu: u32,
    /// Further values, by kind of object.
    pub detail: u32,
}

/// A message between a visitor and its host.
#[derive(Debug, Default, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct PeerHead {
    kind: u32,
    /// The kind of the requested object.
    what: u32,
    seq: u64,
    token: [u8; TOKEN_BYTES],
    given: Given,
}

impl frame::Head for PeerHead {
    fn payload_bytes(&self) -> usize {
        0
    }
}

/// A visitor's request for an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Question {
    /// Identifies the request in its answer.
    pub seq: u64,
    /// The kind of the requested object.
    pub what: u32,
    /// The object's secret.
    pub token: [u8; TOKEN_BYTES],
}

/// A message that a host receives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ToHost {
    /// A request, to be answered.
    Ask(Question),
    /// Returns an object, with the number of times that its secret was used.
    Return([u8; TOKEN_BYTES], u32),
}

/// A visitor's end of a channel to its host.
#[derive(Debug)]
pub struct VisitorEnd(OwnedFd);

impl VisitorEnd {
    /// Takes an end that the supervisor has sent.
    pub fn new(socket: OwnedFd) -> Self {
        Self(socket)
    }

    /// Returns an object, with the number of times that its secret was used.
    ///
    /// # Errors
    /// [`Error::Closed`]; [`Error::Malformed`] if the host does not read its messages.
    pub fn give_back(&self, token: [u8; TOKEN_BYTES], times: u32) -> Result<()> {
        let head = PeerHead {
            kind: kind::RETURN,
            seq: times.into(),
            token,
            ..PeerHead::default()
        };
        frame::send_head(self.0.as_fd(), &head, None)
    }

    /// Requests an object, and waits for the answer until `deadline`; `None` means that the host does not have it.
    ///
    /// # Errors
    /// [`Error::Closed`] if the host has ended, [`Error::Malformed`] if it does not answer in time, or sends another
    /// message.
    pub fn ask(&self, question: Question, deadline: Instant) -> Result<Option<(Given, OwnedFd)>> {
        let head = PeerHead {
            kind: kind::ASK,
            what: question.what,
            seq: question.seq,
            token: question.token,
            given: Given::default(),
        };
        frame::send_head(self.0.as_fd(), &head, None)?;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            if !wait(self.0.as_fd(), left)? {
                return Err(Error::Malformed("no answer"));
            }
            let mut buffer = [0; size_of::<PeerHead>()];
            let received =
                frame::recv_now::<PeerHead>(self.0.as_fd(), &mut buffer, Files::Checked(1))?;
            let Some(Framed { head, files, .. }) = received else {
                continue;
            };
            if head.seq != question.seq {
                // The answer to a request that was given up. Its descriptor is closed.
                continue;
            }
            return match (head.kind, files.into_iter().next()) {
                (kind::GIVE, Some(file)) => Ok(Some((head.given, file))),
                // This process has no free descriptor.
                (kind::GIVE, None) => Err(Error::Malformed("wrong number of files")),
                (kind::REFUSE, None) => Ok(None),
                _ => Err(Error::Malformed("unknown kind")),
            };
        }
    }
}

impl AsFd for VisitorEnd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// A host's end of a channel to a visitor.
#[derive(Debug)]
pub struct HostEnd(OwnedFd);

impl HostEnd {
    /// Takes an end that the supervisor has sent.
    pub fn new(socket: OwnedFd) -> Self {
        Self(socket)
    }

    /// Receives the next message, if there is one.
    ///
    /// # Errors
    /// [`Error::Closed`] if the visitor has ended; [`Error::Malformed`]. Received descriptors are closed.
    pub fn recv(&self) -> Result<Option<ToHost>> {
        let mut buffer = [0; size_of::<PeerHead>()];
        let received = frame::recv_now::<PeerHead>(self.0.as_fd(), &mut buffer, Files::Checked(0))?;
        let Some(Framed { head, .. }) = received else {
            return Ok(None);
        };
        match head.kind {
            kind::ASK => Ok(Some(ToHost::Ask(Question {
                seq: head.seq,
                what: head.what,
                token: head.token,
            }))),
            kind::RETURN => Ok(Some(ToHost::Return(head.token, head.seq as u32))),
            _ => Err(Error::Malformed("unknown kind")),
        }
    }

    /// Answers a request.
    ///
    /// # Errors
    /// [`Error::Closed`]; [`Error::Malformed`] if the visitor does not read its messages.
    pub fn answer(&self, seq: u64, given: Option<(Given, BorrowedFd<'_>)>) -> Result<()> {
        let (kind, given, file) = match given {
            Some((given, file)) => (kind::GIVE, given, Some(file)),
            None => (kind::REFUSE, Given::default(), None),
        };
        let head = PeerHead {
            kind,
            seq,
            given,
            ..PeerHead::default()
        };
        frame::send_head_at_least(self.0.as_fd(), &head, file)
    }
}

impl AsFd for HostEnd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Waits until there is a message or the end of the channel; `false` if the time is up.
fn wait(socket: BorrowedFd<'_>, limit: Duration) -> Result<bool> {
    // Rounded up, so that the wait does not become a busy loop at its end.
    let limit = u16::try_from(limit.as_millis() + 1).unwrap_or(u16::MAX);
    loop {
        let mut fds = [PollFd::new(socket, PollFlags::POLLIN)];
        match poll(&mut fds, PollTimeout::from(limit)) {
            Ok(ready) => return Ok(ready > 0),
            Err(Errno::EINTR) => {}
            Err(errno) => return Err(Error::io("Waiting")(errno)),
        }
    }
}
