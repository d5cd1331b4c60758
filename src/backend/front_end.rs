// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The VMM's connection, adapted to a library that takes connections only from a listener.
//!
//! The supervisor accepts connections: a device process has no listener at which another client could connect. The
//! vhost-user library, however, accepts a connection by itself. So the device process makes a listener of its own with
//! one pending connection. Two threads forward messages between the other end of that connection and the VMM, one
//! message at a time, because descriptors belong to their message. A VM sends some tens of messages, most of them when
//! it starts and ends.

use std::{
    io,
    net::Shutdown,
    os::{
        fd::{AsFd, AsRawFd, OwnedFd, RawFd},
        unix::net::{UnixListener, UnixStream},
    },
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
};

use nix::sys::socket::{MsgFlags, setsockopt, sockopt};
use vhost::vhost_user::Listener;

use super::ring::UNALIGNED;
use crate::ipc;

/// The size of a message's header: request, flags, and the number of bytes that follow.
const HEAD_BYTES: usize = 12;
/// The request SET_VRING_NUM: the number of a ring, and its size.
const SET_VRING_NUM: u32 = 8;
/// The request SET_VRING_ADDR.
const SET_VRING_ADDR: u32 = 9;
/// The size of its body: the number of a ring, flags, and four addresses.
const VRING_ADDR_BYTES: usize = 40;
/// The request RESET_DEVICE.
const RESET_DEVICE: u32 = 34;
/// The request SET_MEM_TABLE.
const SET_MEM_TABLE: u32 = 5;
/// The maximum number of descriptors of SET_MEM_TABLE, as in the library. Another message has at most one.
const MAX_FILES: usize = 32;
/// The requested size of the buffer towards the library in bytes; the kernel doubles it. The kernel counts unread
/// descriptors for all VMs together, so a VMM may only have few: a library that waits for a VMM to read its answers
/// reads nothing. Any message of a VMM fits.
const BUFFER_BYTES: usize = 4096;
/// The maximum number of bytes that are forwarded at a time: more than any message of a VMM has.
const PIECE_BYTES: usize = 8192;

/// The library's listener, and the other end of the connection that is pending there.
pub struct FrontEnd {
    /// The listener from which the library accepts the connection.
    pub(super) listener: Listener,
    inside: UnixStream,
}

impl FrontEnd {
    /// Makes the listener and the connection.
    ///
    /// # Errors
    /// The host is out of descriptors, or another process has connected to the listener first.
    pub fn new() -> io::Result<Self> {
        let (listener, inside) = ipc::queued_connection()?;
        let inside = UnixStream::from(inside);
        inside.set_nonblocking(false)?;
        setsockopt(&inside, sockopt::SndBuf, &BUFFER_BYTES)?;
        Ok(Self {
            listener: UnixListener::from(listener).into(),
            inside,
        })
    }

    /// Forwards messages between the library and the VMM until one of them closes its end. `ends` is set when all
    /// clients are about to end, because the VMM resets the device or has disconnected: the library disables the rings
    /// first, one by one.
    ///
    /// Only the library sees the end. The VMM's connection closes when this process ends, because until then the device
    /// may write to the guest's memory.
    ///
    /// # Errors
    /// The host is out of descriptors or threads.
    pub(super) fn forward(
        &self,
        vmm: OwnedFd,
        ends: Arc<AtomicBool>,
    ) -> io::Result<[JoinHandle<()>; 2]> {
        let vmm = UnixStream::from(vmm);
        let (from, to) = (vmm.try_clone()?, self.inside.try_clone()?);
        let from_vmm = start("from-vmm", move || {
            forward_all(&from, &to, |request| {
                if request == RESET_DEVICE {
                    ends.store(true, Ordering::SeqCst);
                }
            });
            ends.store(true, Ordering::SeqCst);
            let _ = to.shutdown(Shutdown::Both);
        })?;
        let from = self.inside.try_clone()?;
        let to_vmm = start("to-vmm", move || {
            forward_all(&from, &vmm, |_| {});
            let _ = from.shutdown(Shutdown::Both);
        })?;
        Ok([from_vmm, to_vmm])
    }
}

fn start(name: &str, run: impl FnOnce() + Send + 'static) -> io::Result<JoinHandle<()>> {
    thread::Builder::new().name(name.into()).spawn(run)
}

/// Forwards messages until the end of the connection or an error.
fn forward_all(from: &UnixStream, to: &UnixStream, note: impl Fn(u32)) {
    if let Err(error) = forward(from, to, note) {
        tracing::debug!("The VMM's connection: {error}");
    }
}

/// Forwards messages until the end of the connection. `note` is called with the request of each message before it is
/// forwarded.
fn forward(from: &UnixStream, to: &UnixStream, note: impl Fn(u32)) -> ipc::Result<()> {
    let mut piece = [0; PIECE_BYTES];
    let mut files = Vec::new();
    while fill(from, &mut piece[..HEAD_BYTES], &mut files)? {
        let request = word_of(&piece, 0);
        note(request);
        let mut left = word_of(&piece, 8) as usize;
        let most = match request {
            SET_MEM_TABLE => MAX_FILES,
            _ => 1,
        };
        // Most messages are forwarded by one write, so that the receiver wakes up once.
        let mut begin = HEAD_BYTES;
        loop {
            let end = PIECE_BYTES.min(begin + left);
            if !fill(from, &mut piece[begin..end], &mut files)? {
                return Ok(());
            }
            if files.len() > most {
                return Err(ipc::Error::Malformed("too many descriptors"));
            }
            let mut sent = end;
            if (request, begin, end) == (SET_VRING_ADDR, HEAD_BYTES, HEAD_BYTES + VRING_ADDR_BYTES)
                && !is_aligned(&piece)
            {
                sent = refuse_addresses(&mut piece);
            }
            pass(to, &piece[..sent], &mut files)?;
            left -= end - begin;
            if left == 0 {
                break;
            }
            begin = 0;
        }
    }
    Ok(())
}

/// A number in a message.
fn word_of(message: &[u8], at: usize) -> u32 {
    u32::from_ne_bytes([0, 1, 2, 3].map(|byte| message[at + byte]))
}

/// Whether the addresses of a `SET_VRING_ADDR` message are aligned as those of a ring: the descriptor table, the used
/// and the available ring.
fn is_aligned(message: &[u8]) -> bool {
    // Behind the ring's number and the flags. The page offset decides, so the low half suffices.
    let [table, used, available] = [8, 16, 24].map(|at| word_of(message, HEAD_BYTES + at));
    table % 16 == 0 && used % 4 == 0 && available % 2 == 0
}

/// Makes a `SET_VRING_ADDR` message one that sets a size which no ring has; returns its length. The guest's driver chooses
/// the addresses. The library would end the connection for those that are not aligned, and the ring is only not served.
fn refuse_addresses(message: &mut [u8]) -> usize {
    let mut set = |at: usize, value: u32| message[at..at + 4].copy_from_slice(&value.to_ne_bytes());
    set(0, SET_VRING_NUM);
    set(8, 8);
    set(HEAD_BYTES + 4, u32::from(UNALIGNED));
    HEAD_BYTES + 8
}

/// Receives until the buffer is full; `false` at the end of the connection.
fn fill(from: &UnixStream, buffer: &mut [u8], files: &mut Vec<OwnedFd>) -> ipc::Result<bool> {
    let mut have = 0;
    while have < buffer.len() {
        let rest = &mut buffer[have..];
        let received = match ipc::recv(from.as_fd(), rest, MAX_FILES, MsgFlags::empty()) {
            Ok(Some(received)) => received,
            Ok(None) | Err(ipc::Error::Closed) => return Ok(false),
            Err(error) => return Err(error),
        };
        have += received.len;
        files.extend(received.checked()?);
    }
    Ok(true)
}

/// Sends all bytes with the descriptors, and closes the descriptors.
fn pass(to: &UnixStream, bytes: &[u8], files: &mut Vec<OwnedFd>) -> ipc::Result<()> {
    let mut fds: Vec<RawFd> = files.iter().map(AsRawFd::as_raw_fd).collect();
    let mut sent = 0;
    while sent < bytes.len() {
        sent += ipc::send_some(to.as_fd(), &bytes[sent..], &fds)?;
        // The descriptors were sent with the first byte.
        fds.clear();
    }
    files.clear();
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::{
        io::{Read, Write},
        os::fd::BorrowedFd,
    };

    use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

    use super::*;

    fn message(body: &[u8]) -> Vec<u8> {
        let mut bytes = vec![7; HEAD_BYTES];
        bytes[8..].copy_from_slice(&(body.len() as u32).to_ne_bytes());
        bytes.extend_from_slice(body);
        bytes
    }

    fn receive(from: &UnixStream, bytes: usize) -> (Vec<u8>, usize) {
        let mut buffer = vec![0; bytes];
        let flags = MsgFlags::MSG_WAITALL;
        let received = ipc::recv(from.as_fd(), &mut buffer, MAX_FILES, flags).unwrap();
        let received = received.unwrap();
        assert_eq!(received.len, bytes);
        (buffer, received.checked().unwrap().len())
    }

    #[test]
    fn messages_arrive_whole_with_their_own_descriptors() {
        let front_end = FrontEnd::new().unwrap();
        let (vmm, theirs) = UnixStream::pair().unwrap();
        let [_, to_vmm] = front_end.forward(theirs.into(), Arc::default()).unwrap();
        let library = front_end.listener.accept().unwrap().unwrap();
        let long = vec![3; 3 * PIECE_BYTES + 5];
        let fd = |file: BorrowedFd<'_>| file.as_raw_fd();
        let files = [fd(vmm.as_fd()), fd(library.as_fd())];
        let mut table = message(&[]);
        table[..4].copy_from_slice(&SET_MEM_TABLE.to_ne_bytes());
        // Both in one write: the bytes of the second message must not be forwarded with the first.
        (&vmm).write_all(&message(b"one")).unwrap();
        ipc::send_some(vmm.as_fd(), &table, &files).unwrap();
        (&vmm).write_all(&message(&long)).unwrap();
        assert_eq!(receive(&library, HEAD_BYTES + 3).1, 0);
        assert_eq!(receive(&library, HEAD_BYTES).1, 2);
        let mut rest = vec![0; HEAD_BYTES + long.len()];
        (&library).read_exact(&mut rest).unwrap();
        assert!(rest == message(&long));
        (&library).write_all(&message(b"an answer")).unwrap();
        assert_eq!(receive(&vmm, HEAD_BYTES + 9).0, message(b"an answer"));
        drop(library);
        to_vmm.join().unwrap();
        let mut polled = [PollFd::new(vmm.as_fd(), PollFlags::POLLIN)];
        let seen = poll(&mut polled, PollTimeout::ZERO).unwrap();
        assert_eq!(seen, 0, "the VMM sees the end before that of the process");
    }

    /// A VMM that reads no answers keeps the library from reading. It must not have many descriptors in flight, because
    /// the kernel counts those of all VMs together.
    #[test]
    fn few_descriptors_are_in_flight_to_the_library() {
        let front_end = FrontEnd::new().unwrap();
        let inside = &front_end.inside;
        inside.set_nonblocking(true).unwrap();
        let mut sent = 0;
        while pass(
            inside,
            &message(&[]),
            &mut vec![inside.try_clone().unwrap().into()],
        )
        .is_ok()
        {
            sent += 1;
            assert!(sent < 32, "{sent} descriptors are in flight");
        }
        assert!(sent > 0);
    }

    /// The guest's driver chooses a ring's addresses, and the library ends the connection for these.
    #[test]
    fn addresses_that_are_not_aligned_become_a_size_that_no_ring_has() {
        let front_end = FrontEnd::new().unwrap();
        let (vmm, theirs) = UnixStream::pair().unwrap();
        front_end.forward(theirs.into(), Arc::default()).unwrap();
        let library = front_end.listener.accept().unwrap().unwrap();
        let addresses = |table: u64, used: u64, available: u64| {
            let mut body = [2_u32.to_ne_bytes(), [0; 4]].concat();
            for address in [table, used, available, 0] {
                body.extend_from_slice(&address.to_ne_bytes());
            }
            let mut bytes = message(&body);
            bytes[..4].copy_from_slice(&SET_VRING_ADDR.to_ne_bytes());
            bytes
        };
        let aligned = addresses(0x7f00_0000_1010, 0x2004, 0x3002);
        (&vmm).write_all(&aligned).unwrap();
        assert_eq!(receive(&library, aligned.len()).0, aligned);
        for [table, used, available] in [[8, 4, 2], [16, 2, 2], [16, 4, 1]] {
            (&vmm)
                .write_all(&addresses(table, used, available))
                .unwrap();
            let (bytes, _) = receive(&library, HEAD_BYTES + 8);
            let words = [0, 8, HEAD_BYTES, HEAD_BYTES + 4].map(|at| word_of(&bytes, at));
            assert_eq!(words, [SET_VRING_NUM, 8, 2, u32::from(UNALIGNED)]);
        }
    }

    #[test]
    fn only_a_memory_table_has_several_descriptors() {
        let table = |request: u32| {
            let mut table = message(b"table");
            table[..4].copy_from_slice(&request.to_ne_bytes());
            table
        };
        for (request, arrives) in [(SET_MEM_TABLE, true), (SET_MEM_TABLE + 1, false)] {
            let front_end = FrontEnd::new().unwrap();
            let (vmm, theirs) = UnixStream::pair().unwrap();
            front_end.forward(theirs.into(), Arc::default()).unwrap();
            let library = front_end.listener.accept().unwrap().unwrap();
            let files = [vmm.as_raw_fd(); 2];
            ipc::send_some(vmm.as_fd(), &table(request), &files).unwrap();
            let mut buffer = [0; HEAD_BYTES + 5];
            let received = ipc::recv(library.as_fd(), &mut buffer, 2, MsgFlags::empty());
            match arrives {
                true => assert_eq!(received.unwrap().unwrap().checked().unwrap().len(), 2),
                false => assert!(matches!(received, Err(ipc::Error::Closed))),
            }
        }
    }

    #[test]
    fn the_end_of_a_vmm_is_seen_by_the_library() {
        let front_end = FrontEnd::new().unwrap();
        let (vmm, theirs) = UnixStream::pair().unwrap();
        let ends = Arc::new(AtomicBool::new(false));
        front_end.forward(theirs.into(), Arc::clone(&ends)).unwrap();
        let library = front_end.listener.accept().unwrap().unwrap();
        drop(vmm);
        assert_eq!((&library).read(&mut [0]).unwrap(), 0);
        // The thread sets it right after.
        while !ends.load(Ordering::SeqCst) {
            thread::yield_now();
        }
    }

    #[test]
    fn a_reset_is_known_before_the_library_disables_a_ring_for_it() {
        let front_end = FrontEnd::new().unwrap();
        let (vmm, theirs) = UnixStream::pair().unwrap();
        let ends = Arc::new(AtomicBool::new(false));
        front_end.forward(theirs.into(), Arc::clone(&ends)).unwrap();
        let library = front_end.listener.accept().unwrap().unwrap();
        (&vmm).write_all(&message(b"another")).unwrap();
        receive(&library, HEAD_BYTES + 7);
        assert!(!ends.load(Ordering::SeqCst));
        let mut reset = message(&[]);
        reset[..4].copy_from_slice(&RESET_DEVICE.to_ne_bytes());
        (&vmm).write_all(&reset).unwrap();
        receive(&library, HEAD_BYTES);
        assert!(ends.load(Ordering::SeqCst));
    }
}
