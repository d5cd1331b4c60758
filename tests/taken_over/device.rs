// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! A compromised device process.

use std::{
    fs::File,
    io::Write,
    os::{
        fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
        unix::net::{UnixListener, UnixStream},
    },
};

use nix::{
    cmsg_space,
    fcntl::{FcntlArg, OFlag, fcntl},
    sys::socket::{
        ControlMessage, ControlMessageOwned, MsgFlags, recvmsg, sendmsg, setsockopt, sockopt,
    },
};

use crate::host::say_done;

/// Kinds of messages, as in `src/supervisor/link.rs`.
const WORKER_STARTED: u32 = 2;
const MOVER_STARTED: u32 = 5;
const START_WORKER: u32 = 66;
const CLOSE_WORKER: u32 = 67;
const START_MOVER: u32 = 68;
const KILL_MOVER: u32 = 69;

/// The most descriptors that Linux passes in one message.
const MOST_FILES: usize = 253;

fn send(link: BorrowedFd<'_>, kind: u32, words: [u32; 2], files: &[i32]) -> nix::Result<()> {
    let mut bytes = [0; 32];
    for (at, word) in [kind, words[0], words[1]].into_iter().enumerate() {
        bytes[at * 4..at * 4 + 4].copy_from_slice(&word.to_ne_bytes());
    }
    let rights = [ControlMessage::ScmRights(files)];
    let rights = if files.is_empty() { &[][..] } else { &rights };
    let iov = [std::io::IoSlice::new(&bytes)];
    sendmsg::<()>(link.as_raw_fd(), &iov, rights, MsgFlags::MSG_NOSIGNAL, None).map(drop)
}

/// The next message's kind, and a descriptor that came with it.
fn receive(link: BorrowedFd<'_>) -> nix::Result<(u32, Option<OwnedFd>)> {
    use std::os::fd::FromRawFd;
    let mut bytes = [0; 32];
    let mut control = cmsg_space!([i32; 1]);
    let mut iov = [std::io::IoSliceMut::new(&mut bytes)];
    let flags = MsgFlags::empty();
    let message = recvmsg::<()>(link.as_raw_fd(), &mut iov, Some(&mut control), flags)?;
    let mut file = None;
    for cmsg in message.cmsgs()? {
        if let ControlMessageOwned::ScmRights(fds) = cmsg {
            // SAFETY: the kernel has just made it, and nothing else owns it.
            file = fds.first().map(|fd| unsafe { OwnedFd::from_raw_fd(*fd) });
        }
    }
    if message.bytes == 0 {
        return Err(nix::errno::Errno::EPIPE);
    }
    Ok((u32::from_ne_bytes(bytes[..4].try_into().unwrap()), file))
}

/// Makes an attack; then waits until it is killed.
pub fn run(attack: &str, link: OwnedFd) {
    let (_, served) = receive(link.as_fd()).unwrap();
    let served = served.expect("nothing to serve");
    // The end of this process closes its descriptors.
    let link = link.as_fd();
    let made = match attack {
        "descriptors" => send_descriptors(link),
        "flood" => loop {
            if send(link, CLOSE_WORKER, [99, 0], &[]).is_err() {
                break None;
            }
        },
        "log" => fill_log(),
        "greedy" => accept(served.try_clone().unwrap()),
        "kill-mover" => kill_mover(link),
        "channels" => open_channels(link),
        "workers" => start_workers(link),
        other => panic!("no attack: {other}"),
    };
    say_done(made.unwrap_or_default());
    loop {
        std::thread::park();
    }
}

fn send_descriptors(link: BorrowedFd<'_>) -> Option<usize> {
    let file = File::open("/dev/null").unwrap();
    for count in [MOST_FILES, 1, MOST_FILES, 2, MOST_FILES] {
        let files = vec![file.as_raw_fd(); count];
        send(link, CLOSE_WORKER, [99, 0], &files).ok()?;
    }
    Some(0)
}

/// Fills the standard error, which is non-blocking from now on.
fn fill_log() -> Option<usize> {
    let mut log = std::io::stderr();
    fcntl(&log, FcntlArg::F_SETFL(OFlag::O_NONBLOCK)).unwrap();
    let mut refused = 0;
    while refused < 100 {
        let written = log.write_all(b"nonsense of a device process\n");
        refused += usize::from(written.is_err());
    }
    Some(refused)
}

/// Accepts every connection that it can, and identifies itself on each.
fn accept(served: OwnedFd) -> Option<usize> {
    let own = std::process::id().to_ne_bytes();
    let connection = UnixStream::from(served.try_clone().unwrap());
    let _ = (&connection).write_all(&own);
    let listener = UnixListener::from(served);
    let mut kept = Vec::new();
    while let Ok((mut other, _)) = listener.accept() {
        let _ = other.write_all(&own);
        kept.push(other);
    }
    // This one is not reported: each connection's process identifies itself.
    loop {
        std::thread::park();
    }
}

fn kill_mover(link: BorrowedFd<'_>) -> Option<usize> {
    send(link, START_MOVER, [0, 0], &[]).ok()?;
    while receive(link).ok()?.0 != MOVER_STARTED {}
    for _ in 0..100 {
        send(link, KILL_MOVER, [0, 0], &[]).ok()?;
    }
    // Once this is answered, everything before it has been handled.
    send(link, START_WORKER, [1, 0], &[]).ok()?;
    receive(link).ok()?;
    Some(0)
}

fn open_channels(link: BorrowedFd<'_>) -> Option<usize> {
    let mut kept = Vec::new();
    for _ in 0..300 {
        send(link, START_MOVER, [0, 0], &[]).ok()?;
        kept.extend(receive(link).ok()?.1);
    }
    Some(std::hint::black_box(kept).len())
}

fn start_workers(link: BorrowedFd<'_>) -> Option<usize> {
    // Make room for the answers.
    let _ = setsockopt(&link, sockopt::RcvBuf, &(1 << 20));
    let mut started = 0;
    for client in 0..400 {
        send(link, START_WORKER, [client, 0], &[]).ok()?;
        send(link, CLOSE_WORKER, [client, 1], &[]).ok()?;
        let mut answered = false;
        while !answered {
            let (kind, _) = receive(link).ok()?;
            answered = matches!(kind, WORKER_STARTED | 3);
            started += usize::from(kind == WORKER_STARTED);
        }
    }
    Some(started)
}
