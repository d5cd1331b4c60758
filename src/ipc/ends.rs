// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The two ends of a channel between a device process and a worker.

use std::{
    fs::File,
    io,
    os::{
        fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd},
        unix::fs::FileExt,
    },
    sync::Arc,
};

use gpgpu_locks::Mutex;
use gpgpu_protocol::layout::{MAX_ANSWER_BYTES, MAX_RUNS};
use nix::{
    errno::Errno,
    poll::{PollFd, PollFlags, PollTimeout, poll},
    sys::socket::{MsgFlags, Shutdown, shutdown},
};
use zerocopy::{FromBytes, IntoBytes};

use super::{
    Error, FromWorker, Handle, MAX_MAP_FILES, MAX_MESSAGE_BYTES, MapRun, Message, Result, Serving,
    ToWorker,
    frame::{self, Files, Framed},
    messages::{Header, RawRun, kind},
    send,
};

/// The device process's end of a channel. It never blocks.
#[derive(Debug)]
pub struct DeviceEnd {
    socket: OwnedFd,
}

impl DeviceEnd {
    /// Takes one end of a [`pair`](super::pair).
    pub fn new(socket: OwnedFd) -> Self {
        Self { socket }
    }

    /// Sends a message; `false` means that the channel is full.
    ///
    /// # Errors
    /// [`Error::Closed`] if the worker has ended; [`Error::Crowded`].
    pub fn send(&self, message: &Message) -> Result<bool> {
        let fds: Vec<RawFd> = message.files.iter().map(|file| file.as_raw_fd()).collect();
        send(
            self.socket.as_fd(),
            &[&message.bytes],
            &fds,
            MsgFlags::MSG_DONTWAIT,
        )
    }

    /// Receives the next message into `buffer`, if there is one.
    ///
    /// # Errors
    /// [`Error::Closed`] at the end of the channel; [`Error::Malformed`].
    pub fn recv<'a>(&self, buffer: &'a mut Vec<u8>) -> Result<Option<FromWorker<'a>>> {
        buffer.resize(MAX_MESSAGE_BYTES, 0);
        let Some(received) =
            frame::recv_now::<Header>(self.socket.as_fd(), buffer, Files::Checked(1))?
        else {
            return Ok(None);
        };
        let (header, payload) = (received.head, received.payload);
        // An export comes with one file, and other messages with none.
        let handle = received.file(header.kind == kind::EXPORT)?;
        if let Some(handle) = handle {
            return Ok(Some(FromWorker::Export {
                number: header.seq,
                bytes: header.length,
                gpu: header.value,
                handle: Handle(handle.into()),
            }));
        }
        match header.kind {
            kind::READY => Ok(Some(FromWorker::Ready {
                status: header.value,
            })),
            kind::ANSWER => Ok(Some(FromWorker::Answer {
                seq: header.seq,
                status: header.value,
                out_bytes: header.length,
                answer: payload,
            })),
            kind::DONE => Ok(Some(FromWorker::Done {
                seq: header.seq,
                status: header.value,
            })),
            kind::UNEXPORT => Ok(Some(FromWorker::Unexport { number: header.seq })),
            kind::MOVE => Ok(Some(FromWorker::Move {
                seq: header.seq,
                export: header.length,
                offset: header.address,
                carried_out: header.count,
                answer: payload,
            })),
            kind::NOT_MOVABLE => Ok(Some(FromWorker::NotMovable {
                seq: header.seq,
                carried_out: header.count,
            })),
            _ => Err(Error::Malformed("unknown kind")),
        }
    }
}

impl AsFd for WorkerEnd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl AsFd for DeviceEnd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl From<DeviceEnd> for OwnedFd {
    fn from(end: DeviceEnd) -> Self {
        end.socket
    }
}

/// The worker's end of a channel. One thread receives; any thread may send.
#[derive(Debug)]
pub struct WorkerEnd {
    socket: OwnedFd,
    buffer: Mutex<Vec<u8>>,
}

impl WorkerEnd {
    /// Takes one end of a [`pair`](super::pair).
    pub fn new(socket: OwnedFd) -> Self {
        Self {
            socket,
            buffer: Mutex::new(vec![0; MAX_MESSAGE_BYTES]),
        }
    }

    /// Waits for the next message; `None` at the end of the channel: the client was closed, and the worker must release
    /// everything and exit.
    ///
    /// # Errors
    /// [`Error::Malformed`] if the device process belongs to another build.
    pub fn recv(&self) -> Result<Option<ToWorker>> {
        let mut buffer = self.buffer.lock();
        let taken = Files::AllOrNone(MAX_MAP_FILES + 1);
        let received = match frame::recv_next(self.socket.as_fd(), &mut buffer, taken) {
            Ok(received) => received,
            Err(Error::Closed) => return Ok(None),
            Err(error) => return Err(error),
        };
        let Framed::<Header> {
            head: header,
            payload,
            files,
        } = received;
        let mut fds = files.into_iter();
        let message = match header.kind {
            kind::SERVE => {
                let mut next = || fds.next().ok_or(Error::Malformed("too few files"));
                ToWorker::Serve(Serving {
                    account: next()?,
                    ledger: next()?,
                    terms: next()?,
                    doorbell: next()?,
                    peers: next()?,
                    hold: (header.count == 1).then(next).transpose()?,
                    number: header.seq,
                    cache: fds.next(),
                    slot: header.value,
                    gpus: read_gpus(payload)?,
                })
            }
            kind::SETUP => ToWorker::Setup {
                staging: fds.next().ok_or(Error::Malformed("no staging area"))?,
                size: header.length,
            },
            kind::COMMAND => ToWorker::Command {
                seq: header.seq,
                thread: header.value,
                answer_bytes: header.count,
                external: header.length == 1,
                input: header.input,
                output: header.output,
                data_offset: header.address,
                stream: payload.to_vec(),
            },
            kind::MAP => {
                let list = fds.next().ok_or(Error::Malformed("no list of runs"))?;
                let files: Vec<Arc<OwnedFd>> = fds.map(Arc::new).collect();
                ToWorker::Map {
                    seq: header.seq,
                    region: header.value,
                    address: header.address,
                    length: header.length,
                    runs: read_runs(&File::from(list), header.count, &files)?,
                }
            }
            kind::UNMAP => ToWorker::Unmap {
                seq: header.seq,
                region: header.value,
            },
            _ => return Err(Error::Malformed("unknown kind")),
        };
        Ok(Some(message))
    }

    /// Waits until there is a message or the end of the channel, and does not receive it; `false` if the time is up.
    ///
    /// # Errors
    /// The kernel refuses to wait.
    pub fn wait(&self, limit: PollTimeout) -> Result<bool> {
        loop {
            let mut fds = [PollFd::new(self.socket.as_fd(), PollFlags::POLLIN)];
            match poll(&mut fds, limit) {
                Ok(ready) => return Ok(ready > 0),
                Err(Errno::EINTR) => {}
                Err(errno) => return Err(Error::io("Waiting")(errno)),
            }
        }
    }

    /// Closes the channel for senders: a later send fails. `true` means that a message had arrived before.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn turn_away(&self) -> Result<bool> {
        let fd = self.socket.as_raw_fd();
        shutdown(fd, Shutdown::Read).map_err(Error::io("Turning senders away"))?;
        // Peeks at one byte: the end of the channel has none.
        let peeked =
            nix::sys::socket::recv(fd, &mut [0], MsgFlags::MSG_PEEK | MsgFlags::MSG_DONTWAIT);
        Ok(peeked.is_ok_and(|bytes| bytes > 0))
    }

    /// Reports that the worker serves commands (status 0), or why it does not.
    ///
    /// # Errors
    /// [`Error::Closed`] if the device process has ended.
    pub fn ready(&self, status: u32) -> Result<()> {
        self.send(
            Header {
                kind: kind::READY,
                value: status,
                ..Header::default()
            },
            &[],
        )
    }

    /// Answers a command. `out_bytes` bytes from the start of its output span go to the guest.
    ///
    /// # Errors
    /// [`Error::Closed`] if the device process has ended; [`Error::Malformed`] for an answer over [`MAX_ANSWER_BYTES`].
    pub fn answer(&self, seq: u64, status: u32, answer: &[u8], out_bytes: u64) -> Result<()> {
        if answer.len() > MAX_ANSWER_BYTES {
            return Err(Error::Malformed("answer too long"));
        }
        let header = Header {
            kind: kind::ANSWER,
            value: status,
            seq,
            length: out_bytes,
            payload: answer.len() as u32,
            ..Header::default()
        };
        self.send(header, answer)
    }

    /// Answers a map or an unmap.
    ///
    /// # Errors
    /// [`Error::Closed`] if the device process has ended.
    pub fn done(&self, seq: u64, status: u32) -> Result<()> {
        self.send(
            Header {
                kind: kind::DONE,
                value: status,
                seq,
                ..Header::default()
            },
            &[],
        )
    }

    /// Exports device memory, so that moves can name it.
    ///
    /// # Errors
    /// [`Error::Closed`] if the device process has ended.
    pub fn export(&self, number: u64, bytes: u64, gpu: u32, handle: BorrowedFd<'_>) -> Result<()> {
        let header = Header {
            kind: kind::EXPORT,
            value: gpu,
            seq: number,
            length: bytes,
            ..Header::default()
        };
        self.send_with(header, &[], &[handle.as_raw_fd()])
    }

    /// Withdraws an export.
    ///
    /// # Errors
    /// [`Error::Closed`] if the device process has ended.
    pub fn unexport(&self, number: u64) -> Result<()> {
        let header = Header {
            kind: kind::UNEXPORT,
            seq: number,
            ..Header::default()
        };
        self.send(header, &[])
    }

    /// Reports where a command's external data belongs, and the command's answer for the time when the data is there;
    /// see [`FromWorker::Move`].
    ///
    /// # Errors
    /// [`Error::Closed`] if the device process has ended; [`Error::Malformed`] for an answer over [`MAX_ANSWER_BYTES`].
    pub fn r#move(
        &self,
        seq: u64,
        (export, offset): (u64, u64),
        carried_out: u32,
        answer: &[u8],
    ) -> Result<()> {
        if answer.len() > MAX_ANSWER_BYTES {
            return Err(Error::Malformed("answer too long"));
        }
        let header = Header {
            kind: kind::MOVE,
            seq,
            address: offset,
            length: export,
            count: carried_out,
            payload: answer.len() as u32,
            ..Header::default()
        };
        self.send(header, answer)
    }

    /// Reports that a command's external data cannot be moved; see [`FromWorker::NotMovable`].
    ///
    /// # Errors
    /// [`Error::Closed`] if the device process has ended.
    pub fn not_movable(&self, seq: u64, carried_out: u32) -> Result<()> {
        let header = Header {
            kind: kind::NOT_MOVABLE,
            seq,
            count: carried_out,
            ..Header::default()
        };
        self.send(header, &[])
    }

    fn send(&self, header: Header, payload: &[u8]) -> Result<()> {
        self.send_with(header, payload, &[])
    }

    fn send_with(&self, header: Header, payload: &[u8], fds: &[RawFd]) -> Result<()> {
        if send(
            self.socket.as_fd(),
            &[header.as_bytes(), payload],
            fds,
            MsgFlags::empty(),
        )? {
            Ok(())
        } else {
            Err(Error::Io("Sending", io::ErrorKind::OutOfMemory.into()))
        }
    }
}

fn read_gpus(payload: &[u8]) -> Result<Vec<u32>> {
    let (gpus, rest) = payload.as_chunks();
    if !rest.is_empty() {
        return Err(Error::Malformed("list of GPUs"));
    }
    Ok(gpus.iter().map(|gpu| u32::from_ne_bytes(*gpu)).collect())
}

fn read_runs(list: &File, count: u32, files: &[Arc<OwnedFd>]) -> Result<Vec<MapRun>> {
    if count as usize > MAX_RUNS {
        return Err(Error::Malformed("too many runs"));
    }
    let mut bytes = vec![0; count as usize * size_of::<RawRun>()];
    list.read_exact_at(&mut bytes, 0)
        .map_err(|error| Error::Io("Reading the runs", error))?;
    let raw = <[RawRun]>::ref_from_bytes(&bytes).map_err(|_| Error::Malformed("list of runs"))?;
    raw.iter()
        .map(|run| {
            let file = files
                .get(run.file as usize)
                .ok_or(Error::Malformed("run without a file"))?;
            Ok(MapRun {
                file: Arc::clone(file),
                offset: run.offset,
                length: run.length,
            })
        })
        .collect()
}
