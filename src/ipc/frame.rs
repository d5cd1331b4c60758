// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The common part of the messages of all channels: a header of fixed length, a payload whose length is in the header,
//! and files. Every end sends and receives through these functions, so each check exists once.

use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};

use nix::sys::socket::MsgFlags;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::{Error, Result, recv, send};

/// The header of a channel's messages.
pub(super) trait Head: FromBytes + IntoBytes + Immutable + KnownLayout {
    /// The length of the payload in bytes.
    fn payload_bytes(&self) -> usize;
}

/// The files that an end accepts with a message.
#[derive(Debug, Clone, Copy)]
pub(super) enum Files {
    /// At most this many, from a trusted sender: all files that it has sent, or none if this process cannot receive all
    /// of them.
    AllOrNone(usize),
    /// At most this many, from a sender that is less trusted than this process: more are an error.
    Checked(usize),
}

/// A received message.
#[derive(Debug)]
pub(super) struct Framed<'a, H> {
    pub head: H,
    /// The payload, of the length in the header.
    pub payload: &'a [u8],
    pub files: Vec<OwnedFd>,
}

impl<H> Framed<'_, H> {
    /// The file of a message that has one (`wanted`), or none.
    ///
    /// # Errors
    /// [`Error::Malformed`] for another number of files.
    pub fn file(self, wanted: bool) -> Result<Option<OwnedFd>> {
        match self.files.len() == usize::from(wanted) {
            true => Ok(self.files.into_iter().next()),
            false => Err(Error::Malformed("wrong number of files")),
        }
    }
}

/// Receives the next message, if there is one. A `buffer` of the size of a header accepts only messages without a
/// payload.
///
/// # Errors
/// [`Error::Closed`] at the end of the channel; [`Error::Malformed`] for an invalid message, whose files are closed.
pub(super) fn recv_now<'a, H: Head>(
    socket: BorrowedFd<'_>,
    buffer: &'a mut [u8],
    files: Files,
) -> Result<Option<Framed<'a, H>>> {
    receive(socket, buffer, files, MsgFlags::MSG_DONTWAIT)
}

/// Waits for the next message.
///
/// # Errors
/// As [`recv_now`].
pub(super) fn recv_next<'a, H: Head>(
    socket: BorrowedFd<'_>,
    buffer: &'a mut [u8],
    files: Files,
) -> Result<Framed<'a, H>> {
    receive(socket, buffer, files, MsgFlags::empty())?
        .ok_or(Error::Malformed("a blocking socket would block"))
}

fn receive<'a, H: Head>(
    socket: BorrowedFd<'_>,
    buffer: &'a mut [u8],
    files: Files,
    flags: MsgFlags,
) -> Result<Option<Framed<'a, H>>> {
    let (Files::AllOrNone(most) | Files::Checked(most)) = files;
    let Some(received) = recv(socket, buffer, most, flags)? else {
        return Ok(None);
    };
    let len = received.len;
    let files = match files {
        Files::AllOrNone(_) => received.all_or_none(),
        Files::Checked(_) => received.checked()?,
    };
    let (head, payload) = H::read_from_prefix(&buffer[..len])
        .map_err(|_| Error::Malformed("shorter than a header"))?;
    if payload.len() != head.payload_bytes() {
        return Err(Error::Malformed("wrong length"));
    }
    Ok(Some(Framed {
        head,
        payload,
        files,
    }))
}

/// Sends a message without a payload and with at most one file, to an end that never leaves its channel full.
///
/// # Errors
/// [`Error::Closed`] if the other end has ended; [`Error::Malformed`] if it does not read its messages;
/// [`Error::Crowded`].
pub(super) fn send_head(
    socket: BorrowedFd<'_>,
    head: &impl Head,
    file: Option<BorrowedFd<'_>>,
) -> Result<()> {
    send_head_with(socket, head, file.as_slice())
}

/// As [`send_head`], with several files.
pub(super) fn send_head_with(
    socket: BorrowedFd<'_>,
    head: &impl Head,
    files: &[BorrowedFd<'_>],
) -> Result<()> {
    let fds: Vec<RawFd> = files.iter().map(AsRawFd::as_raw_fd).collect();
    match send(socket, &[head.as_bytes()], &fds, MsgFlags::MSG_DONTWAIT)? {
        true => Ok(()),
        false => Err(Error::Malformed("the other end does not read")),
    }
}

/// As [`send_head`]. If too many descriptors are in flight, the message goes without its file, as if the receiver had
/// no free descriptor: the receiver handles both in the same way.
pub(super) fn send_head_at_least(
    socket: BorrowedFd<'_>,
    head: &impl Head,
    file: Option<BorrowedFd<'_>>,
) -> Result<()> {
    match send_head(socket, head, file) {
        Err(Error::Crowded) => send_head(socket, head, None),
        sent => sent,
    }
}
