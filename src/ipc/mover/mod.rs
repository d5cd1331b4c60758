// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Messages between a device process and a mover, and between the supervisor and a mover.
//!
//! The mover checks every number and range against the files and exports of the channel. The device process never waits
//! for it.

use std::{
    fs::File,
    os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use nix::sys::socket::{MsgFlags, Shutdown, shutdown};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::{
    Error, Result,
    frame::{self, Files, Framed},
    send,
};
use crate::account::Words;

/// The maximum number of runs of one move.
pub const MAX_RUNS: usize = 4096;
/// The maximum number of moves in flight of one channel.
pub const MAX_MOVES: usize = 32;
/// The maximum number of a channel's files at a time: vhost-user has no more memory slots.
pub const MAX_FILES: usize = 512;
/// The maximum number of a channel's exports at a time.
pub const MAX_EXPORTS: usize = 64 << 10;

const MAX_BYTES: usize = size_of::<Head>() + MAX_RUNS * size_of::<Run>();

mod kind {
    pub const FILE: u32 = 1;
    pub const FORGET: u32 = 2;
    pub const EXPORT: u32 = 3;
    pub const UNEXPORT: u32 = 4;
    pub const MOVE: u32 = 5;
    pub const CANCEL: u32 = 6;
    pub const READY: u32 = 65;
    pub const MOVED: u32 = 66;
    pub const LEFT: u32 = 67;
    pub const CHANNEL: u32 = 129;
    pub const WEIGHT: u32 = 130;
    pub const PROGRESS: u32 = 131;
}

/// The time limit for a move that the mover has begun. A working GPU takes far less time.
pub const MOVE_LIMIT: Duration = Duration::from_secs(30);
/// The maximum number of moves of one direction in flight on the GPU: enough that one is being copied while others are
/// set up or answered, and few enough that a VM's turn comes soon.
pub const DEPTH: usize = 4;

/// The direction of data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Direction {
    /// From the guest's memory into device memory.
    ToDevice,
    /// From device memory into the guest's memory.
    ToGuest,
}

/// The memory that a mover shares with the supervisor: the start time of each move in flight.
#[derive(Debug)]
#[repr(C)]
pub struct Progress {
    /// By direction, in nanoseconds of the monotonic clock; 0 for no move.
    pub begun: [[AtomicU64; DEPTH]; 2],
}

// SAFETY: made of atomic integers alone.
unsafe impl Words for Progress {}

impl Progress {
    /// Whether a move has been in flight for longer than [`MOVE_LIMIT`] at the time `now`, in nanoseconds of the
    /// monotonic clock.
    pub fn is_stuck(&self, now: u64) -> bool {
        let begun = self.begun.iter().flatten();
        let mut begun = begun.map(|begun| begun.load(Ordering::Relaxed));
        begun.any(|begun| {
            begun != 0 && u128::from(now.saturating_sub(begun)) > MOVE_LIMIT.as_nanos()
        })
    }
}

/// The header of every message. The meaning of a field depends on the kind.
#[derive(Debug, Default, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Head {
    kind: u32,
    /// The file of `File` and `Forget`; 1 for a move to the guest; 1 for a move that was done.
    value: u32,
    /// Identifies a move.
    seq: u64,
    export: u64,
    /// The offset of a part in its file, or of a move in its export.
    offset: u64,
    /// The size of a part, an export or a move.
    bytes: u64,
    /// The number of runs that follow.
    count: u32,
    reserved: u32,
}

impl frame::Head for Head {
    fn payload_bytes(&self) -> usize {
        (self.count as usize).saturating_mul(size_of::<Run>())
    }
}

/// A run of guest memory: a part of a file of the channel.
#[derive(
    Debug, Default, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct Run {
    /// The file.
    pub file: u32,
    /// Length in bytes, not 0.
    pub bytes: u32,
    /// Offset in the channel's part of the file, in bytes.
    pub offset: u64,
}

/// A message that a mover receives.
#[derive(Debug)]
pub enum ToMover {
    /// Defines a part of guest memory under this number.
    File {
        /// The number, which is not in use.
        number: u32,
        /// The offset of the part in the file, in bytes: a multiple of the page size.
        offset: u64,
        /// The size of the part in bytes.
        bytes: u64,
        /// The file.
        file: OwnedFd,
    },
    /// Removes a file: no later message names it.
    Forget {
        /// Its number.
        number: u32,
    },
    /// Defines device memory of a worker under this number.
    Export {
        /// The number, which was never used before.
        number: u64,
        /// Its size in bytes.
        bytes: u64,
        /// The shareable handle.
        handle: OwnedFd,
    },
    /// Removes device memory: no later message names it, and the mover must not keep it.
    Unexport {
        /// Its number.
        number: u64,
    },
    /// Bytes to move.
    Move(Move),
    /// Moves of this channel that have not begun must not begin; each is answered as not done. Moves that have begun
    /// complete as usual.
    Cancel,
}

/// A request to move bytes between guest memory and device memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Move {
    /// Identifies the move in its answer.
    pub seq: u64,
    /// The direction.
    pub direction: Direction,
    /// The device memory.
    pub export: u64,
    /// Offset in the export, in bytes.
    pub offset: u64,
    /// The guest's memory, in order.
    pub runs: Vec<Run>,
}

/// A message that a device process receives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FromMover {
    /// The mover accepts moves from now on.
    Ready,
    /// A move has ended, and accesses no memory any more.
    Moved {
        /// The number of the move.
        seq: u64,
        /// Whether all bytes were moved. Otherwise any part of them may have been moved.
        done: bool,
    },
    /// The last message: none of the channel's moves is in flight any more, and none will begin. The end of the channel
    /// alone does not imply this, because the process may have ended while its copies still run.
    Left,
}

/// An encoded message to a mover, to be sent when the channel has room.
#[derive(Debug)]
pub struct Message {
    bytes: Vec<u8>,
    file: Option<Arc<File>>,
}

impl Message {
    fn new(head: Head, file: Option<Arc<File>>) -> Self {
        Self {
            bytes: head.as_bytes().to_vec(),
            file,
        }
    }

    /// [`ToMover::File`].
    pub fn file(number: u32, offset: u64, bytes: u64, file: Arc<File>) -> Self {
        let head = Head {
            kind: kind::FILE,
            value: number,
            offset,
            bytes,
            ..Head::default()
        };
        Self::new(head, Some(file))
    }

    /// [`ToMover::Forget`].
    pub fn forget(number: u32) -> Self {
        let head = Head {
            kind: kind::FORGET,
            value: number,
            ..Head::default()
        };
        Self::new(head, None)
    }

    /// [`ToMover::Export`].
    pub fn export(number: u64, bytes: u64, handle: Arc<File>) -> Self {
        let head = Head {
            kind: kind::EXPORT,
            export: number,
            bytes,
            ..Head::default()
        };
        Self::new(head, Some(handle))
    }

    /// [`ToMover::Unexport`].
    pub fn unexport(number: u64) -> Self {
        let head = Head {
            kind: kind::UNEXPORT,
            export: number,
            ..Head::default()
        };
        Self::new(head, None)
    }

    /// [`ToMover::Cancel`].
    pub fn cancel() -> Self {
        let head = Head {
            kind: kind::CANCEL,
            ..Head::default()
        };
        Self::new(head, None)
    }

    /// [`ToMover::Move`].
    ///
    /// # Panics
    /// If there are more than [`MAX_RUNS`] runs. Callers check this.
    pub fn r#move(what: &Move) -> Self {
        assert!(what.runs.len() <= MAX_RUNS);
        let head = Head {
            kind: kind::MOVE,
            value: u32::from(what.direction == Direction::ToGuest),
            seq: what.seq,
            export: what.export,
            offset: what.offset,
            count: what.runs.len() as u32,
            ..Head::default()
        };
        let mut message = Self::new(head, None);
        message.bytes.extend_from_slice(what.runs.as_bytes());
        message
    }
}

/// The device process's end of a channel. It never blocks.
#[derive(Debug)]
pub struct DeviceEnd {
    socket: OwnedFd,
}

impl DeviceEnd {
    /// Takes one end of a [`super::pair`].
    pub fn new(socket: OwnedFd) -> Self {
        Self { socket }
    }

    /// Sends a message; `false` means that the channel is full.
    ///
    /// # Errors
    /// [`Error::Closed`] if the mover has ended; [`Error::Crowded`].
    pub fn send(&self, message: &Message) -> Result<bool> {
        let fds: Vec<RawFd> = message.file.iter().map(AsRawFd::as_raw_fd).collect();
        let flags = MsgFlags::MSG_DONTWAIT;
        send(self.socket.as_fd(), &[&message.bytes], &fds, flags)
    }

    /// Receives the next message, if there is one.
    ///
    /// # Errors
    /// [`Error::Closed`] at the end of the channel; [`Error::Malformed`].
    pub fn recv(&self) -> Result<Option<FromMover>> {
        let mut buffer = [0; size_of::<Head>()];
        let received =
            frame::recv_now::<Head>(self.socket.as_fd(), &mut buffer, Files::Checked(0))?;
        let Some(Framed { head, .. }) = received else {
            return Ok(None);
        };
        match head.kind {
            kind::READY => Ok(Some(FromMover::Ready)),
            kind::MOVED => Ok(Some(FromMover::Moved {
                seq: head.seq,
                done: head.value == 1,
            })),
            kind::LEFT => Ok(Some(FromMover::Left)),
            _ => Err(Error::Malformed("unknown kind")),
        }
    }

    /// Ends the requests, so that the mover answers with [`FromMover::Left`].
    pub fn leave(&self) {
        // This fails only if the other end is closed.
        let _ = shutdown(self.socket.as_raw_fd(), Shutdown::Write);
    }
}

impl AsFd for DeviceEnd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// The mover's end of a channel. One thread receives; any thread may send.
#[derive(Debug)]
pub struct MoverEnd {
    socket: OwnedFd,
}

impl MoverEnd {
    /// Takes one end of a [`super::pair`].
    pub fn new(socket: OwnedFd) -> Self {
        Self { socket }
    }

    /// Waits for the next message; `buffer` is scratch space.
    ///
    /// # Errors
    /// [`Error::Closed`] at the end of the channel; [`Error::Malformed`].
    pub fn recv(&self, buffer: &mut Vec<u8>) -> Result<ToMover> {
        buffer.resize(MAX_BYTES, 0);
        let received = frame::recv_next::<Head>(self.socket.as_fd(), buffer, Files::Checked(1))?;
        let (head, rest) = (received.head, received.payload);
        let has_file = matches!(head.kind, kind::FILE | kind::EXPORT);
        let file = received
            .file(has_file)?
            .ok_or(Error::Malformed("no file where there should be one"));
        Ok(match head.kind {
            kind::FILE => ToMover::File {
                number: head.value,
                offset: head.offset,
                bytes: head.bytes,
                file: file?,
            },
            kind::FORGET => ToMover::Forget { number: head.value },
            kind::EXPORT => ToMover::Export {
                number: head.export,
                bytes: head.bytes,
                handle: file?,
            },
            kind::UNEXPORT => ToMover::Unexport {
                number: head.export,
            },
            kind::CANCEL => ToMover::Cancel,
            kind::MOVE => ToMover::Move(Move {
                seq: head.seq,
                direction: match head.value {
                    0 => Direction::ToDevice,
                    _ => Direction::ToGuest,
                },
                export: head.export,
                offset: head.offset,
                runs: <[Run]>::ref_from_bytes(rest)
                    .map_err(|_| Error::Malformed("list of runs"))?
                    .to_vec(),
            }),
            _ => return Err(Error::Malformed("unknown kind")),
        })
    }

    /// Sends a message without waiting. A channel has room for the answers to all moves in flight, so a device process
    /// that leaves no room is no longer served.
    pub fn send(&self, message: FromMover) {
        let flags = MsgFlags::MSG_DONTWAIT;
        if !matches!(self.send_now(message, flags), Ok(true)) {
            self.stop_hearing();
        }
    }

    fn send_now(&self, message: FromMover, flags: MsgFlags) -> Result<bool> {
        let head = match message {
            FromMover::Ready => Head {
                kind: kind::READY,
                ..Head::default()
            },
            FromMover::Moved { seq, done } => Head {
                kind: kind::MOVED,
                value: done.into(),
                seq,
                ..Head::default()
            },
            FromMover::Left => Head {
                kind: kind::LEFT,
                ..Head::default()
            },
        };
        send(self.socket.as_fd(), &[head.as_bytes()], &[], flags)
    }

    /// Stops receiving: [`Self::recv`] ends once it has returned the messages received so far.
    pub fn stop_hearing(&self) {
        // This fails only if the other end is closed.
        let _ = shutdown(self.socket.as_raw_fd(), Shutdown::Read);
    }

    /// Sends [`FromMover::Left`] and ends the channel. This waits for a device process that does not read, which blocks
    /// only this channel's own thread.
    pub fn leave(&self) {
        // A device process that has ended needs no message.
        let _ = self.send_now(FromMover::Left, MsgFlags::empty());
        self.close();
    }

    /// Ends the channel without a message, like the end of the process.
    pub fn close(&self) {
        // This fails only if the other end is closed.
        let _ = shutdown(self.socket.as_raw_fd(), Shutdown::Both);
    }
}

impl AsFd for MoverEnd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// A VM, as the supervisor describes it to movers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tenant {
    /// The VM's number.
    pub vm: u32,
    /// The VM's weight, more than 0.
    pub weight: u32,
}

/// The maximum number of descriptors that a mover keeps for a channel: a pipe and the VMM's connection.
const MAX_HOLDS: usize = 2;

/// A message from the supervisor to a mover.
#[derive(Debug)]
pub enum Order {
    /// A device process's channel, its VM, and descriptors to keep until the channel was left: the holders of their
    /// other ends then see them closed.
    Serve(MoverEnd, Tenant, Vec<OwnedFd>),
    /// A VM's weight has changed.
    Weigh(Tenant),
    /// The memory of [`Progress`]. This is the first order.
    Report(OwnedFd),
}

/// An order. It has zeros if it concerns no VM.
#[derive(Debug, Default, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct OrderHead {
    kind: u32,
    vm: u32,
    weight: u32,
}

impl frame::Head for OrderHead {
    fn payload_bytes(&self) -> usize {
        0
    }
}

impl OrderHead {
    fn new(kind: u32, Tenant { vm, weight }: Tenant) -> Self {
        Self { kind, vm, weight }
    }
}

/// Sends [`Order::Serve`], with at most [`MAX_HOLDS`] descriptors to keep. They go in one message, so that they cannot
/// be kept for another channel.
///
/// # Errors
/// [`Error::Closed`] if the mover has ended; [`Error::Malformed`] if it does not read its messages;
/// [`Error::Crowded`].
pub fn pass_channel(
    link: BorrowedFd<'_>,
    tenant: Tenant,
    channel: BorrowedFd<'_>,
    holds: &[BorrowedFd<'_>],
) -> Result<()> {
    let files: Vec<BorrowedFd<'_>> = [&[channel], holds].concat();
    frame::send_head_with(link, &OrderHead::new(kind::CHANNEL, tenant), &files)
}

/// Sends [`Order::Weigh`].
///
/// # Errors
/// As [`pass_channel`].
pub fn set_weight(link: BorrowedFd<'_>, tenant: Tenant) -> Result<()> {
    frame::send_head(link, &OrderHead::new(kind::WEIGHT, tenant), None)
}

/// Sends [`Order::Report`].
///
/// # Errors
/// As [`pass_channel`].
pub fn pass_progress(link: BorrowedFd<'_>, progress: BorrowedFd<'_>) -> Result<()> {
    let head = OrderHead {
        kind: kind::PROGRESS,
        ..OrderHead::default()
    };
    frame::send_head(link, &head, Some(progress))
}

/// Waits for the supervisor's next order; `None` if the supervisor has ended.
///
/// # Errors
/// [`Error::Malformed`] if the supervisor belongs to another build.
pub fn take_order(link: BorrowedFd<'_>) -> Result<Option<Order>> {
    let mut buffer = [0; size_of::<OrderHead>()];
    let Framed { head, files, .. } =
        match frame::recv_next::<OrderHead>(link, &mut buffer, Files::AllOrNone(1 + MAX_HOLDS)) {
            Ok(received) => received,
            Err(Error::Closed) => return Ok(None),
            Err(error) => return Err(error),
        };
    let OrderHead { kind, vm, weight } = head;
    let tenant = Tenant { vm, weight };
    let mut files = files.into_iter();
    match (kind, files.next()) {
        (kind::CHANNEL, Some(channel)) => {
            let channel = MoverEnd::new(channel);
            Ok(Some(Order::Serve(channel, tenant, files.collect())))
        }
        (kind::WEIGHT, None) => Ok(Some(Order::Weigh(tenant))),
        (kind::PROGRESS, Some(progress)) => Ok(Some(Order::Report(progress))),
        _ => Err(Error::Malformed("no order")),
    }
}

#[cfg(test)]
mod tests;
