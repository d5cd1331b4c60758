//! Messages between a device process and a worker, over a pair of `SOCK_SEQPACKET` sockets.
//!
//! Both ends are on one machine and of one build, so integers are native. A message is a fixed
//! header, a payload (stream or answer bytes) and, where it names memory, file descriptors. Bulk
//! data never travels here: it is in the client's staging area, a sealed memfd that both map.
//!
//! The worker trusts what it receives: the device process has checked it. The device process checks
//! what it receives: a worker runs a guest's code.

pub mod mover;

use std::{
    fs::File,
    io::{self, IoSlice, IoSliceMut},
    os::{
        fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd},
        unix::fs::FileExt,
    },
    sync::{Arc, Mutex},
};

use gpgpu_protocol::layout::{MAX_ANSWER_BYTES, MAX_STREAM_BYTES};
use nix::{
    cmsg_space,
    errno::Errno,
    fcntl::{FcntlArg, SealFlag, fcntl},
    poll::{PollFd, PollFlags, PollTimeout, poll},
    sys::{
        memfd::{MFdFlags, memfd_create},
        socket::{
            AddressFamily, ControlMessage, ControlMessageOwned, MsgFlags, SockFlag, SockType,
            recvmsg, sendmsg, setsockopt, socketpair, sockopt,
        },
    },
};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// The most bytes of one message: a header and the longest stream or answer. Below half of the
/// default `net.core.wmem_max`, so that a socket holds one whatever the host's settings.
pub const MAX_MESSAGE_BYTES: usize = size_of::<Header>()
    + if MAX_STREAM_BYTES > MAX_ANSWER_BYTES {
        MAX_STREAM_BYTES
    } else {
        MAX_ANSWER_BYTES
    };

/// The most files that one [`ToWorker::Map`] refers to; Linux passes 253 in one message, and the
/// list of runs is one.
pub const MAX_MAP_FILES: usize = 250;

/// The most exports that a worker may have passed at a time: the device process holds a file for each.
pub const MAX_WORKER_EXPORTS: usize = 512;

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

mod kind {
    pub const SETUP: u32 = 1;
    pub const COMMAND: u32 = 2;
    pub const MAP: u32 = 3;
    pub const UNMAP: u32 = 4;
    pub const SERVE: u32 = 5;
    pub const READY: u32 = 65;
    pub const ANSWER: u32 = 66;
    pub const DONE: u32 = 67;
    pub const EXPORT: u32 = 68;
    pub const UNEXPORT: u32 = 69;
    pub const MOVE: u32 = 70;
    pub const NOT_MOVABLE: u32 = 71;
}

/// The head of every message, in both directions; what a field means depends on the kind.
#[derive(Debug, Default, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Header {
    kind: u32,
    /// Thread of a command, region of a map or unmap, status of what comes from a worker, GPU of an
    /// export.
    value: u32,
    /// Names a request, and in an export or unexport the export.
    seq: u64,
    /// Address of a map, offset of a command's data in the whole transfer, offset of a move in its
    /// export.
    address: u64,
    /// Size of the staging area, length of a map, valid bytes of out-data of an answer, bytes of an
    /// export, export of a move; 1 for a command whose data is external.
    length: u64,
    input: Span,
    output: Span,
    /// Wanted bytes of answer of a command, runs of a map, how much of a stream was carried out.
    count: u32,
    /// Bytes that follow this header.
    payload: u32,
}

/// A part of the staging area.
#[derive(
    Debug, Default, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct Span {
    /// Bytes from the start of the staging area.
    pub offset: u64,
    /// Bytes; 0 where a command carries no data in this direction.
    pub len: u64,
}

/// One run of a [`ToWorker::Map`] as it lies in the list's memfd.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct RawRun {
    file: u32,
    reserved: u32,
    offset: u64,
    length: u64,
}

/// One run of registered memory: a part of a file to map. Runs follow each other without a gap.
#[derive(Debug, Clone)]
pub struct MapRun {
    /// The guest's memory; shared by the runs of one message that lie in the same file.
    pub file: Arc<OwnedFd>,
    /// Bytes from the start of the file, a multiple of the page size.
    pub offset: u64,
    /// Bytes, a multiple of the page size.
    pub length: u64,
}

/// What a worker receives.
#[derive(Debug)]
pub enum ToWorker {
    /// The first message of a channel, from the supervisor: from here on the worker is one client's. It answers with
    /// [`WorkerEnd::ready`].
    Serve {
        /// The directory for what the driver compiles for the client's VM, if it may keep that.
        cache: Option<OwnedFd>,
    },
    /// The first message of the device process.
    Setup {
        /// The client's staging area, a memfd sealed against resizing.
        staging: OwnedFd,
        /// Its size in bytes.
        size: u64,
    },
    /// A command stream to carry out; answered by [`WorkerEnd::answer`].
    Command {
        /// Names the answer.
        seq: u64,
        /// The guest thread: streams of one thread are carried out in order.
        thread: u32,
        /// The most bytes that the answer may have.
        answer_bytes: u32,
        /// Whether the data is not in the staging area: it is not the worker's to copy. It says with
        /// [`WorkerEnd::r#move`] where the data belongs, or [`WorkerEnd::not_movable`]. The spans have
        /// lengths alone.
        external: bool,
        /// Data from the guest, there until the answer.
        input: Span,
        /// Where data for the guest goes before the answer.
        output: Span,
        /// Where in the whole transfer that data lies, in bytes.
        data_offset: u64,
        /// The commands: 1 to [`MAX_STREAM_BYTES`] bytes.
        stream: Vec<u8>,
    },
    /// Memory of the guest process to map and register; answered by [`WorkerEnd::done`].
    Map {
        /// Names the answer.
        seq: u64,
        /// The registration's number.
        region: u32,
        /// The address in the guest process.
        address: u64,
        /// Bytes: the sum of the runs.
        length: u64,
        /// What to map, in order.
        runs: Vec<MapRun>,
    },
    /// Memory to unregister and unmap; answered by [`WorkerEnd::done`] once nothing can reach it.
    Unmap {
        /// Names the answer.
        seq: u64,
        /// The registration's number.
        region: u32,
    },
}

/// What a device process receives.
#[derive(Debug, PartialEq, Eq)]
pub enum FromWorker<'a> {
    /// The worker serves commands from now on, or says why it will not.
    Ready {
        /// One of [`gpgpu_protocol::layout::status`].
        status: u32,
    },
    /// A command was carried out.
    Answer {
        /// The command's.
        seq: u64,
        /// One of [`gpgpu_protocol::layout::status`].
        status: u32,
        /// How many bytes of the output span were written, from its start.
        out_bytes: u64,
        /// The answer.
        answer: &'a [u8],
    },
    /// A map or unmap was carried out.
    Done {
        /// The request's.
        seq: u64,
        /// One of [`gpgpu_protocol::layout::status`].
        status: u32,
    },
    /// Device memory that moves may name from now on.
    Export {
        /// Its number, which the worker never used before.
        number: u64,
        /// Bytes.
        bytes: u64,
        /// The GPU whose memory it is.
        gpu: u32,
        /// The shareable handle.
        handle: Handle,
    },
    /// Device memory that is given back: nobody may keep it.
    Unexport {
        /// Its number.
        number: u64,
    },
    /// A command with external data was carried out but for the data, and may have it moved now.
    Move {
        /// The command's.
        seq: u64,
        /// Where the data belongs.
        export: u64,
        /// Bytes from the start of the export.
        offset: u64,
        /// How many bytes of the stream come before what the data belongs to.
        carried_out: u32,
        /// The answer, once the data is where it belongs.
        answer: &'a [u8],
    },
    /// A command's external data cannot be moved; the rest of its stream wants the data in the staging
    /// area.
    NotMovable {
        /// The command's.
        seq: u64,
        /// How many bytes of the stream were carried out.
        carried_out: u32,
    },
}

/// A shareable handle, as a descriptor.
#[derive(Debug)]
pub struct Handle(pub File);

impl PartialEq for Handle {
    fn eq(&self, other: &Self) -> bool {
        self.0.as_raw_fd() == other.0.as_raw_fd()
    }
}

impl Eq for Handle {}

/// What of a command's data lies where.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct CommandData {
    /// See [`ToWorker::Command`].
    pub external: bool,
    /// Data from the guest.
    pub input: Span,
    /// Data for the guest.
    pub output: Span,
    /// Where in the whole transfer it lies, in bytes.
    pub offset: u64,
}

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

/// A message to a worker, complete and ready to be sent, now or when the channel has room.
#[derive(Debug)]
pub struct Message {
    bytes: Vec<u8>,
    files: Vec<Arc<File>>,
}

impl Message {
    fn new(header: Header, files: Vec<Arc<File>>) -> Self {
        Self {
            bytes: header.as_bytes().to_vec(),
            files,
        }
    }

    /// [`ToWorker::Serve`].
    pub fn serve(cache: Option<Arc<File>>) -> Self {
        Self::new(
            Header {
                kind: kind::SERVE,
                ..Header::default()
            },
            cache.into_iter().collect(),
        )
    }

    /// [`ToWorker::Setup`].
    pub fn setup(staging: Arc<File>, size: u64) -> Self {
        Self::new(
            Header {
                kind: kind::SETUP,
                length: size,
                ..Header::default()
            },
            vec![staging],
        )
    }

    /// [`ToWorker::Command`] with a stream of `stream_bytes` zeros, to be filled through
    /// [`Self::payload_mut`].
    ///
    /// # Panics
    /// If `stream_bytes` is over [`MAX_STREAM_BYTES`]: the caller has checked it.
    pub fn command(
        seq: u64,
        thread: u32,
        answer_bytes: u32,
        data: CommandData,
        stream_bytes: usize,
    ) -> Self {
        assert!(stream_bytes <= MAX_STREAM_BYTES);
        let header = Header {
            kind: kind::COMMAND,
            value: thread,
            seq,
            address: data.offset,
            length: data.external.into(),
            input: data.input,
            output: data.output,
            count: answer_bytes,
            payload: stream_bytes as u32,
        };
        let mut bytes = Vec::with_capacity(size_of::<Header>() + stream_bytes);
        bytes.extend_from_slice(header.as_bytes());
        bytes.resize(size_of::<Header>() + stream_bytes, 0);
        Self {
            bytes,
            files: Vec::new(),
        }
    }

    /// The bytes that follow the header.
    pub fn payload_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[size_of::<Header>()..]
    }

    /// [`ToWorker::Map`]: each run is an index into `files`, an offset and a length in bytes.
    ///
    /// # Errors
    /// The host is out of memory or file descriptors.
    ///
    /// # Panics
    /// If there are more than [`MAX_MAP_FILES`] files: the caller has checked it.
    pub fn map(
        seq: u64,
        region: u32,
        address: u64,
        length: u64,
        files: Vec<Arc<File>>,
        runs: &[(u32, u64, u64)],
    ) -> io::Result<Self> {
        assert!(files.len() <= MAX_MAP_FILES);
        let raw: Vec<RawRun> = runs
            .iter()
            .map(|&(file, offset, length)| RawRun {
                file,
                reserved: 0,
                offset,
                length,
            })
            .collect();
        let list = sealed_memfd(c"gpgpu-runs", size_of_val(&raw[..]) as u64)?;
        list.write_all_at(raw.as_bytes(), 0)?;
        let header = Header {
            kind: kind::MAP,
            value: region,
            seq,
            address,
            length,
            count: runs.len() as u32,
            ..Header::default()
        };
        let mut all = vec![Arc::new(list)];
        all.extend(files);
        Ok(Self::new(header, all))
    }

    /// [`ToWorker::Unmap`].
    pub fn unmap(seq: u64, region: u32) -> Self {
        Self::new(
            Header {
                kind: kind::UNMAP,
                value: region,
                seq,
                ..Header::default()
            },
            Vec::new(),
        )
    }
}

/// The device process's end of a channel. It never blocks.
#[derive(Debug)]
pub struct DeviceEnd {
    socket: OwnedFd,
}

impl DeviceEnd {
    /// Takes one end of a [`pair`].
    pub fn new(socket: OwnedFd) -> Self {
        Self { socket }
    }

    /// Sends a message; `false` says that the channel is full for now.
    ///
    /// # Errors
    /// [`Error::Closed`] if the worker is gone.
    pub fn send(&self, message: &Message) -> Result<bool> {
        let fds: Vec<RawFd> = message.files.iter().map(|file| file.as_raw_fd()).collect();
        send(
            self.socket.as_fd(),
            &[&message.bytes],
            &fds,
            MsgFlags::MSG_DONTWAIT,
        )
    }

    /// Receives into `buffer` the next message, if there is one.
    ///
    /// # Errors
    /// [`Error::Closed`] at the end of the channel; [`Error::Malformed`].
    pub fn recv<'a>(&self, buffer: &'a mut Vec<u8>) -> Result<Option<FromWorker<'a>>> {
        buffer.resize(MAX_MESSAGE_BYTES, 0);
        let Some((len, fds)) = recv(self.socket.as_fd(), buffer, MsgFlags::MSG_DONTWAIT)? else {
            return Ok(None);
        };
        let (header, payload) = parse(&buffer[..len])?;
        let handle = match (header.kind, fds.len()) {
            (kind::EXPORT, 1) => fds.into_iter().next(),
            (kind::EXPORT, _) => return Err(Error::Malformed("an export is one file")),
            (_, 0) => None,
            _ => return Err(Error::Malformed("a worker sent files")),
        };
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
    /// Takes one end of a [`pair`].
    pub fn new(socket: OwnedFd) -> Self {
        Self {
            socket,
            buffer: Mutex::new(vec![0; MAX_MESSAGE_BYTES]),
        }
    }

    /// Waits for the next message; `None` at the end of the channel: the client was closed, and the
    /// worker is to give up everything and exit.
    ///
    /// # Errors
    /// [`Error::Malformed`] if the device process is not of this build.
    pub fn recv(&self) -> Result<Option<ToWorker>> {
        let mut buffer = self
            .buffer
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner());
        let (len, fds) = match recv(self.socket.as_fd(), &mut buffer, MsgFlags::empty()) {
            Ok(Some(received)) => received,
            Ok(None) => return Err(Error::Malformed("a blocking socket would block")),
            Err(Error::Closed) => return Ok(None),
            Err(error) => return Err(error),
        };
        let (header, payload) = parse(&buffer[..len])?;
        let mut fds = fds.into_iter();
        let message = match header.kind {
            kind::SERVE => ToWorker::Serve { cache: fds.next() },
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

    /// Waits until there is a message, or the end of the channel, and leaves it there.
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

    /// Says that the worker serves commands (status 0), or why it will not.
    ///
    /// # Errors
    /// [`Error::Closed`] if the device process is gone.
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

    /// Answers a command; `out_bytes` bytes from the start of its output span go to the guest.
    ///
    /// # Errors
    /// [`Error::Closed`] if the device process is gone; [`Error::Malformed`] for an answer over
    /// [`MAX_ANSWER_BYTES`].
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
    /// [`Error::Closed`] if the device process is gone.
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

    /// Passes device memory on, so that moves may name it.
    ///
    /// # Errors
    /// [`Error::Closed`] if the device process is gone.
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

    /// Takes an export back.
    ///
    /// # Errors
    /// [`Error::Closed`] if the device process is gone.
    pub fn unexport(&self, number: u64) -> Result<()> {
        let header = Header {
            kind: kind::UNEXPORT,
            seq: number,
            ..Header::default()
        };
        self.send(header, &[])
    }

    /// Says where a command's external data belongs, and what answer it has once it is there; see
    /// [`FromWorker::Move`].
    ///
    /// # Errors
    /// [`Error::Closed`] if the device process is gone; [`Error::Malformed`] for an answer over
    /// [`MAX_ANSWER_BYTES`].
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

    /// Says that a command's external data cannot be moved; see [`FromWorker::NotMovable`].
    ///
    /// # Errors
    /// [`Error::Closed`] if the device process is gone.
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

fn parse(message: &[u8]) -> Result<(Header, &[u8])> {
    let (header, payload) =
        Header::read_from_prefix(message).map_err(|_| Error::Malformed("shorter than a header"))?;
    if payload.len() != header.payload as usize {
        return Err(Error::Malformed("not as long as it says"));
    }
    Ok((header, payload))
}

fn read_runs(list: &File, count: u32, files: &[Arc<OwnedFd>]) -> Result<Vec<MapRun>> {
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
        if message
            .flags
            .intersects(MsgFlags::MSG_TRUNC | MsgFlags::MSG_CTRUNC)
        {
            return Err(Error::Malformed("longer than any message"));
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
