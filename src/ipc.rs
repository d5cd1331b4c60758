//! Messages between the processes, over pairs of `SOCK_SEQPACKET` sockets: between a device process and a worker here,
//! with a mover in [`mover`].
//!
//! Both ends are on one machine and of one build, so integers are native. A message is a fixed
//! header, a payload (stream or answer bytes) and, where it names memory, file descriptors. Bulk
//! data never travels here: it is in the client's staging area, a sealed memfd that both map.
//!
//! The worker trusts what it receives: the device process has checked it. The device process checks
//! what it receives: a worker runs a guest's code.

mod ends;
mod messages;
pub mod mover;

use std::{
    fs::File,
    io::{self, IoSlice, IoSliceMut},
    os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd},
};

use nix::{
    cmsg_space,
    errno::Errno,
    fcntl::{FcntlArg, SealFlag, fcntl},
    sys::{
        memfd::{MFdFlags, memfd_create},
        socket::{
            AddressFamily, ControlMessage, ControlMessageOwned, MsgFlags, SockFlag, SockType,
            recvmsg, sendmsg, setsockopt, socketpair, sockopt,
        },
    },
};

pub use ends::{DeviceEnd, WorkerEnd};
pub use messages::{
    CommandData, FromWorker, Handle, MAX_MAP_FILES, MAX_MESSAGE_BYTES, MAX_WORKER_EXPORTS, MapRun,
    Message, Serving, Span, ToWorker,
};

/// Bytes that the kernel may hold for one direction of a channel, where it allows that many.
const SOCKET_BUFFER_BYTES: usize = 1 << 20;

const _: () = assert!(MAX_MESSAGE_BYTES <= 160 << 10);

/// What can go wrong on a channel.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A system call failed.
    #[error("{0}: {1}")]
    Io(&'static str, #[source] io::Error),
    /// The other end sent something that is not a message of this protocol.
    #[error("Malformed message: {0}")]
    Malformed(&'static str),
    /// The other end is gone.
    #[error("The other end closed the channel")]
    Closed,
}

impl Error {
    fn io(what: &'static str) -> impl FnOnce(Errno) -> Self {
        move |errno| match errno {
            Errno::EPIPE | Errno::ECONNRESET => Self::Closed,
            errno => Self::Io(what, errno.into()),
        }
    }
}

/// A result of this module.
pub type Result<T> = std::result::Result<T, Error>;

/// A new channel; both ends are closed on exec.
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

/// A memfd of `size` bytes that can neither shrink nor grow, so that no process that maps it can
/// make another fault.
///
/// # Errors
/// The host is out of memory or file descriptors.
pub fn sealed_memfd(name: &std::ffi::CStr, size: u64) -> io::Result<File> {
    let file = File::from(memfd_create(
        name,
        MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING,
    )?);
    file.set_len(size)?;
    fcntl(
        &file,
        FcntlArg::F_ADD_SEALS(
            SealFlag::F_SEAL_SHRINK | SealFlag::F_SEAL_GROW | SealFlag::F_SEAL_SEAL,
        ),
    )?;
    Ok(file)
}

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
            // ETOOMANYREFS: more files in flight than the process may have open. It passes.
            Err(Errno::EAGAIN | Errno::ENOBUFS | Errno::ETOOMANYREFS) => return Ok(false),
            Err(errno) => return Err(Error::io("Sending")(errno)),
        }
    }
}

/// A message, and the files that came with it: all of them, or none where they cannot be taken.
pub(crate) fn recv(
    socket: BorrowedFd<'_>,
    buffer: &mut [u8],
    flags: MsgFlags,
) -> Result<Option<(usize, Vec<OwnedFd>)>> {
    let mut control = cmsg_space!([RawFd; MAX_MAP_FILES + 1]);
    loop {
        let mut iov = [IoSliceMut::new(buffer)];
        let flags = flags | MsgFlags::MSG_CMSG_CLOEXEC;
        let message = match recvmsg::<()>(socket.as_raw_fd(), &mut iov, Some(&mut control), flags) {
            Ok(message) => message,
            // The other end went without reading all that it was sent. This is said once, before
            // what it has sent itself, which still counts.
            Err(Errno::EINTR | Errno::ECONNRESET) => continue,
            Err(Errno::EAGAIN) => return Ok(None),
            Err(errno) => return Err(Error::io("Receiving")(errno)),
        };
        let mut fds = Vec::new();
        if let Ok(cmsgs) = message.cmsgs() {
            for cmsg in cmsgs {
                if let ControlMessageOwned::ScmRights(raw) = cmsg {
                    fds.extend(raw.into_iter().map(own));
                }
            }
        }
        if message.flags.contains(MsgFlags::MSG_TRUNC) {
            return Err(Error::Malformed("longer than any message"));
        }
        if message.flags.contains(MsgFlags::MSG_CTRUNC) {
            // This process has as many open as it may, or there are more than any message has: a message without files.
            fds.clear();
        }
        // Every message has a header, so nothing is the end of the channel.
        return match message.bytes {
            0 => Err(Error::Closed),
            len => Ok(Some((len, fds))),
        };
    }
}

fn own(fd: RawFd) -> OwnedFd {
    use std::os::fd::FromRawFd;
    // SAFETY: the kernel has just made this descriptor for the message and named it once, so
    // nothing else owns it.
    unsafe { OwnedFd::from_raw_fd(fd) }
}

#[cfg(test)]
mod tests;
