// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Messages between the processes, over pairs of `SOCK_SEQPACKET` sockets: between a device process and a worker here,
//! with the supervisor in [`device`], with a mover in [`mover`], and between workers of one VM in [`peers`].
//!
//! Both ends belong to one build on one machine, so integers have the native byte order. A message has a fixed header,
//! a payload (stream or answer bytes) and, if it names memory, file descriptors; `frame.rs` has the part that all
//! channels share. Bulk data is not part of messages: it is in the client's staging area, a sealed memfd that both
//! processes map.
//!
//! The worker trusts the messages that it receives, because the device process has checked them. The device process
//! checks the messages of workers, which run a guest's code.

pub mod device;
mod ends;
mod frame;
mod messages;
pub mod mover;
pub mod peers;
mod rest;

use std::{
    fs::File,
    io::{self, IoSlice},
    os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd},
};

use nix::{
    errno::Errno,
    fcntl::{FcntlArg, SealFlag, fcntl},
    poll::{PollFd, PollFlags, PollTimeout, poll},
    sys::{
        memfd::{MFdFlags, memfd_create},
        socket::{
            AddressFamily, Backlog, ControlMessage, MsgFlags, SockFlag, SockType, UnixAddr, bind,
            connect, getsockname, listen, sendmsg, setsockopt, socket, socketpair, sockopt,
        },
    },
};

pub use ends::{DeviceEnd, WorkerEnd};
pub use messages::{
    CommandData, FromWorker, Handle, MAX_MAP_FILES, MAX_MESSAGE_BYTES, MAX_WORKER_EXPORTS, MapRun,
    Message, Serving, Span, ToWorker,
};
pub use rest::{REST_BYTES, Rest};

/// The requested size of the socket buffer for each direction of a channel, in bytes.
const SOCKET_BUFFER_BYTES: usize = 1 << 20;

const _: () = assert!(MAX_MESSAGE_BYTES <= 160 << 10);

/// An error of a channel.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A system call failed.
    #[error("{0}: {1}")]
    Io(&'static str, #[source] io::Error),
    /// The other end sent an invalid message.
    #[error("Malformed message: {0}")]
    Malformed(&'static str),
    /// The other end was closed.
    #[error("The other end closed the channel")]
    Closed,
    /// More descriptors of this user are in flight than this process may have open, so a message with descriptors
    /// cannot be sent now (`ETOOMANYREFS`). Room in the channel says nothing about it.
    #[error("Too many descriptors are in flight")]
    Crowded,
}

impl Error {
    fn io(what: &'static str) -> impl FnOnce(Errno) -> Self {
        move |errno| match errno {
            Errno::EPIPE | Errno::ECONNRESET => Self::Closed,
            Errno::ETOOMANYREFS => Self::Crowded,
            errno => Self::Io(what, errno.into()),
        }
    }
}

/// A result of this module.
pub type Result<T> = std::result::Result<T, Error>;

/// A new channel. Both ends are closed on exec.
///
/// # Errors
/// The process or the host is out of file descriptors.
pub fn pair() -> io::Result<(OwnedFd, OwnedFd)> {
    let (a, b) = socketpair(
        AddressFamily::Unix,
        SockType::SeqPacket,
        None,
        SockFlag::SOCK_CLOEXEC,
    )?;
    for end in [&a, &b] {
        // The kernel caps this silently at net.core.wmem_max, and any value works.
        setsockopt(end, sockopt::SndBuf, &SOCKET_BUFFER_BYTES)?;
    }
    Ok((a, b))
}

/// A listener with one pending connection, and the other end of that connection.
///
/// # Errors
/// The host is out of descriptors, or another process has connected to the listener first.
pub fn queued_connection() -> io::Result<(OwnedFd, OwnedFd)> {
    let stream = |flags| socket(AddressFamily::Unix, SockType::Stream, flags, None);
    let listener = stream(SockFlag::SOCK_CLOEXEC)?;
    // The kernel chooses an abstract name.
    bind(listener.as_raw_fd(), &UnixAddr::new_unnamed())?;
    let address: UnixAddr = getsockname(listener.as_raw_fd())?;
    // There is room for one pending connection, so a connect that does not block is the first and only one.
    listen(&listener, Backlog::new(0)?)?;
    let inside = stream(SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK)?;
    connect(inside.as_raw_fd(), &address)?;
    Ok((listener, inside))
}

/// Whether the other end of a pipe or socket has closed it, or its process has ended.
pub fn has_hung_up(end: BorrowedFd<'_>) -> bool {
    let mut fds = [PollFd::new(end, PollFlags::empty())];
    poll(&mut fds, PollTimeout::ZERO).is_ok_and(|ready| ready > 0)
}

/// A memfd of `size` bytes that cannot be resized, so that a process cannot make another process that maps it fault.
///
/// # Errors
/// The host is out of memory or file descriptors.
pub fn sealed_memfd(name: &std::ffi::CStr, size: u64) -> io::Result<File> {
    let file = memfd(name, size)?;
    seal(&file, SealFlag::empty())?;
    Ok(file)
}

/// A memfd of `size` bytes without seals.
pub(crate) fn memfd(name: &std::ffi::CStr, size: u64) -> io::Result<File> {
    let flags = MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING;
    let file = File::from(memfd_create(name, flags)?);
    file.set_len(size)?;
    Ok(file)
}

/// Seals a memfd against resizing, against `more`, and against further seals.
pub(crate) fn seal(file: &File, more: SealFlag) -> io::Result<()> {
    let size = SealFlag::F_SEAL_SHRINK | SealFlag::F_SEAL_GROW;
    fcntl(
        file,
        FcntlArg::F_ADD_SEALS(size | SealFlag::F_SEAL_SEAL | more),
    )?;
    Ok(())
}

/// Sends a message; `false` means that the channel is full.
///
/// # Errors
/// [`Error::Closed`], [`Error::Crowded`].
pub(crate) fn send(
    socket: BorrowedFd<'_>,
    parts: &[&[u8]],
    fds: &[RawFd],
    flags: MsgFlags,
) -> Result<bool> {
    let iov: Vec<IoSlice<'_>> = parts.iter().map(|part| IoSlice::new(part)).collect();
    let rights = [ControlMessage::ScmRights(fds)];
    let rights = if fds.is_empty() { &[][..] } else { &rights[..] };
    loop {
        let flags = flags | MsgFlags::MSG_NOSIGNAL;
        match sendmsg::<()>(socket.as_raw_fd(), &iov, rights, flags, None) {
            Ok(_) => return Ok(true),
            Err(Errno::EINTR) => {}
            Err(Errno::EAGAIN | Errno::ENOBUFS) => return Ok(false),
            Err(errno) => return Err(Error::io("Sending")(errno)),
        }
    }
}

/// Sends bytes on a stream, with descriptors; returns the number of bytes sent.
pub(crate) fn send_some(socket: BorrowedFd<'_>, bytes: &[u8], fds: &[RawFd]) -> Result<usize> {
    let rights = [ControlMessage::ScmRights(fds)];
    let rights = if fds.is_empty() { &[][..] } else { &rights[..] };
    let (iov, flags) = ([IoSlice::new(bytes)], MsgFlags::MSG_NOSIGNAL);
    loop {
        match sendmsg::<()>(socket.as_raw_fd(), &iov, rights, flags, None) {
            Err(Errno::EINTR) => {}
            sent => return sent.map_err(Error::io("Sending")),
        }
    }
}

/// The result of one receive call.
#[derive(Debug)]
pub(crate) struct Received {
    /// The number of bytes in the buffer.
    pub len: usize,
    /// The received descriptors, as many as there was room for.
    pub fds: Vec<OwnedFd>,
    /// Whether descriptors were dropped, because the caller accepts fewer or this process has too many open files.
    pub is_cut: bool,
}

impl Received {
    /// The descriptors of a trusted sender: all that it has sent, or none if they could not all be received.
    pub fn all_or_none(mut self) -> Vec<OwnedFd> {
        if self.is_cut {
            self.fds.clear();
        }
        self.fds
    }

    /// The descriptors of a sender that is less trusted than this process.
    ///
    /// # Errors
    /// [`Error::Malformed`] if there are more than the caller accepts. The received ones are closed.
    pub fn checked(self) -> Result<Vec<OwnedFd>> {
        match self.is_cut {
            true => Err(Error::Malformed("too many files")),
            false => Ok(self.fds),
        }
    }
}

/// Receives a message with at most `most` descriptors; `None` if there is no message now.
///
/// # Errors
/// [`Error::Closed`] at the end of the channel; [`Error::Malformed`] for a message that is longer than the buffer. All
/// received descriptors are closed in that case.
pub(crate) fn recv(
    socket: BorrowedFd<'_>,
    buffer: &mut [u8],
    most: usize,
    flags: MsgFlags,
) -> Result<Option<Received>> {
    assert!(most <= MAX_MAP_FILES + 1);
    // An array of words, for the alignment of the headers in it.
    let mut control = [0_u64; CONTROL_WORDS];
    let mut iov = libc::iovec {
        iov_base: buffer.as_mut_ptr().cast(),
        iov_len: buffer.len(),
    };
    // SAFETY: zeros are a value of it.
    let mut head: libc::msghdr = unsafe { std::mem::zeroed() };
    head.msg_iov = &raw mut iov;
    head.msg_iovlen = 1;
    head.msg_control = control.as_mut_ptr().cast();
    let flags = flags | MsgFlags::MSG_CMSG_CLOEXEC;
    let len = loop {
        head.msg_controllen = control_bytes(most);
        // SAFETY: the head names a buffer and control data that live across the call, with their lengths.
        let len = unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut head, flags.bits()) };
        match usize::try_from(len) {
            Ok(len) => break len,
            Err(_) => match Errno::last() {
                // The other end closed without reading all messages. The kernel reports the error once, before the
                // messages that the other end has sent, which are still valid.
                Errno::EINTR | Errno::ECONNRESET => {}
                Errno::EAGAIN => return Ok(None),
                errno => return Err(Error::io("Receiving")(errno)),
            },
        }
    };
    // SAFETY: the call has filled the head, whose control data is still there.
    let fds = unsafe { take_descriptors(&head) };
    let is_cut = head.msg_flags & libc::MSG_CTRUNC != 0 || fds.len() > most;
    if head.msg_flags & libc::MSG_TRUNC != 0 {
        return Err(Error::Malformed("message too long"));
    }
    // Every message has a header, so an empty message is the end of the channel.
    match len {
        0 => Err(Error::Closed),
        len => Ok(Some(Received { len, fds, is_cut })),
    }
}

/// Room for the maximum number of descriptors of a message.
const CONTROL_WORDS: usize = control_bytes(MAX_MAP_FILES + 1).div_ceil(size_of::<u64>());

/// The size of the control data for this number of descriptors. Without descriptors it is 0, so that the kernel
/// installs none.
const fn control_bytes(descriptors: usize) -> usize {
    let bytes = (descriptors * size_of::<RawFd>()) as u32;
    match descriptors {
        0 => 0,
        // SAFETY: computes with its argument alone.
        _ => unsafe { libc::CMSG_LEN(bytes) as usize },
    }
}

/// Takes every descriptor that came with a message, also if other control data came or if some descriptors did not fit.
///
/// # Safety
/// The kernel has filled the head and its control data, and this is called once for it.
unsafe fn take_descriptors(head: &libc::msghdr) -> Vec<OwnedFd> {
    let mut fds = Vec::new();
    // SAFETY: the control data is as the kernel has left it, as long as the head says.
    let mut next = unsafe { libc::CMSG_FIRSTHDR(head) };
    while !next.is_null() {
        // SAFETY: it points at a head that lies in the control data as a whole.
        let cmsg = unsafe { next.read_unaligned() };
        if (cmsg.cmsg_level, cmsg.cmsg_type) == (libc::SOL_SOCKET, libc::SCM_RIGHTS) {
            // SAFETY: computes with its argument alone.
            let before = unsafe { libc::CMSG_LEN(0) } as usize;
            let count = cmsg.cmsg_len.saturating_sub(before) / size_of::<RawFd>();
            // SAFETY: behind the head lie as many bytes as it says, which the kernel has cut to the control data's
            // length.
            fds.extend((0..count).map(|at| unsafe {
                let fd = libc::CMSG_DATA(next).cast::<RawFd>().add(at);
                own(fd.read_unaligned())
            }));
        }
        // SAFETY: as above.
        next = unsafe { libc::CMSG_NXTHDR(head, next) };
    }
    fds
}

fn own(fd: RawFd) -> OwnedFd {
    use std::os::fd::FromRawFd;
    // SAFETY: the kernel has just made this descriptor for the message and named it once, so
    // nothing else owns it.
    unsafe { OwnedFd::from_raw_fd(fd) }
}

#[cfg(test)]
mod tests;
