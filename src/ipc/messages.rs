// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Messages between a device process and a worker.

use std::{
    fs::File,
    io,
    os::{
        fd::{AsRawFd, OwnedFd},
        unix::fs::FileExt,
    },
    sync::Arc,
};

use gpgpu_protocol::layout::{MAX_ANSWER_BYTES, MAX_STREAM_BYTES};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::{frame, sealed_memfd};

/// The maximum size of one message in bytes: a header and the longest stream or answer. It is below half of the default
/// `net.core.wmem_max`, so that a socket can hold one with any settings of the host.
pub const MAX_MESSAGE_BYTES: usize = size_of::<Header>()
    + if MAX_STREAM_BYTES > MAX_ANSWER_BYTES {
        MAX_STREAM_BYTES
    } else {
        MAX_ANSWER_BYTES
    };

/// The maximum number of files of one [`ToWorker::Map`]. Linux passes 253 files in one message, and the list of runs is
/// one of them.
pub const MAX_MAP_FILES: usize = 250;

/// The maximum number of a worker's exports at a time: the device process holds a file for each.
pub const MAX_WORKER_EXPORTS: usize = 512;

pub(super) mod kind {
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

/// The header of every message, in both directions. The meaning of a field depends on the kind.
#[derive(Debug, Default, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct Header {
    pub(super) kind: u32,
    /// Thread of a command, region of a map or unmap, status of a worker's message, GPU of an export.
    pub(super) value: u32,
    /// Identifies a request, or the export of an export or unexport; for `Serve`, the worker's number.
    pub(super) seq: u64,
    /// Address of a map, offset of a command's data in the whole transfer, offset of a move in its
    /// export.
    pub(super) address: u64,
    /// Size of the staging area, length of a map, valid bytes of out-data of an answer, bytes of an
    /// export, export of a move; 1 for a command whose data is external.
    pub(super) length: u64,
    pub(super) input: Span,
    pub(super) output: Span,
    /// Wanted bytes of answer of a command, runs of a map, executed bytes of a stream, 1 for a worker that gets a hold
    /// on the VMM's connection.
    pub(super) count: u32,
    /// Length of the payload in bytes.
    pub(super) payload: u32,
}

impl frame::Head for Header {
    fn payload_bytes(&self) -> usize {
        self.payload as usize
    }
}

/// A part of the staging area.
#[derive(
    Debug, Default, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct Span {
    /// Offset in the staging area, in bytes.
    pub offset: u64,
    /// Length in bytes; 0 if a command carries no data in this direction.
    pub len: u64,
}

/// One run of a [`ToWorker::Map`] as it is stored in the memfd.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct RawRun {
    pub(super) file: u32,
    pub(super) reserved: u32,
    pub(super) offset: u64,
    pub(super) length: u64,
}

/// One run of registered memory: a part of a file to map. Runs are mapped one behind the other.
#[derive(Debug, Clone)]
pub struct MapRun {
    /// The guest's memory. Runs of one message that lie in the same file share it.
    pub file: Arc<OwnedFd>,
    /// Offset in the file in bytes, a multiple of the page size.
    pub offset: u64,
    /// Length in bytes, a multiple of the page size.
    pub length: u64,
}

/// The client that a worker serves, and the files for it.
#[derive(Debug)]
pub struct Serving<F = OwnedFd> {
    /// The memory of its [`Account`](crate::account::Account).
    pub account: F,
    /// The memory of its VM's [`Ledger`](crate::account::Ledger).
    pub ledger: F,
    /// The memory of its VM's [`Terms`](crate::account::Terms).
    pub terms: F,
    /// An eventfd that makes the supervisor read the account.
    pub doorbell: F,
    /// The worker's [`WorkerEnd`](super::peers::WorkerEnd), for connections to other workers of its VM.
    pub peers: F,
    /// The hold on the VMM's connection, if the worker gets one: see `supervisor/hold.rs`.
    pub hold: Option<F>,
    /// Its number for other workers. No other worker of the service ever has the same.
    pub number: u64,
    /// The VM's directory for code that the driver compiles, if there is a cache.
    pub cache: Option<F>,
    /// The client's slot in the ledger.
    pub slot: u32,
    /// The GPUs that it may use, by the host driver's numbers, in the order in which the guest sees them.
    pub gpus: Vec<u32>,
}

/// A message that a worker receives.
#[derive(Debug)]
pub enum ToWorker {
    /// The first message of a channel, from the supervisor: it assigns a client to the worker, which answers with
    /// [`WorkerEnd::ready`](super::WorkerEnd::ready).
    Serve(Serving),
    /// The first message of the device process.
    Setup {
        /// The client's staging area, a memfd sealed against resizing. A page behind it is for [`Rest`](super::Rest).
        staging: OwnedFd,
        /// Its size in bytes, without that page.
        size: u64,
    },
    /// A command stream to execute; answered by [`WorkerEnd::answer`](super::WorkerEnd::answer).
    Command {
        /// Identifies the request in its answer.
        seq: u64,
        /// The guest thread. Streams of one thread are executed in order.
        thread: u32,
        /// The maximum size of the answer in bytes.
        answer_bytes: u32,
        /// Whether the data is outside the staging area, where the worker cannot copy it. The worker then calls
        /// `WorkerEnd::r#move` with the place of the data, or
        /// [`WorkerEnd::not_movable`](super::WorkerEnd::not_movable). The spans have only lengths.
        external: bool,
        /// Data from the guest, unchanged until the answer.
        input: Span,
        /// The place of data for the guest, which is written before the answer.
        output: Span,
        /// The offset of that data in the whole transfer, in bytes.
        data_offset: u64,
        /// The commands: 1 to [`MAX_STREAM_BYTES`] bytes.
        stream: Vec<u8>,
    },
    /// Memory of the guest process to map and register; answered by [`WorkerEnd::done`](super::WorkerEnd::done).
    Map {
        /// Identifies the request in its answer.
        seq: u64,
        /// The registration's number.
        region: u32,
        /// The address in the guest process.
        address: u64,
        /// The sum of the runs in bytes.
        length: u64,
        /// The memory to map, in order.
        runs: Vec<MapRun>,
    },
    /// Memory to unregister and unmap; answered by [`WorkerEnd::done`](super::WorkerEnd::done) once nothing can access
    /// it.
    Unmap {
        /// Identifies the request in its answer.
        seq: u64,
        /// The registration's number.
        region: u32,
    },
}

/// A message that a device process receives.
#[derive(Debug, PartialEq, Eq)]
pub enum FromWorker<'a> {
    /// The worker serves commands from now on, or reports why it does not.
    Ready {
        /// One of [`gpgpu_protocol::layout::status`].
        status: u32,
    },
    /// A command was executed.
    Answer {
        /// The number of the command.
        seq: u64,
        /// One of [`gpgpu_protocol::layout::status`].
        status: u32,
        /// The number of bytes written to the output span, from its start.
        out_bytes: u64,
        /// The answer.
        answer: &'a [u8],
    },
    /// A map or unmap was executed.
    Done {
        /// The number of the request.
        seq: u64,
        /// One of [`gpgpu_protocol::layout::status`].
        status: u32,
    },
    /// Device memory that moves may name from now on.
    Export {
        /// Its number, which the worker never used before.
        number: u64,
        /// Size in bytes.
        bytes: u64,
        /// The GPU of the memory.
        gpu: u32,
        /// The shareable handle.
        handle: Handle,
    },
    /// Device memory that is withdrawn. No process may keep it.
    Unexport {
        /// Its number.
        number: u64,
    },
    /// A command with external data was executed except for the data, which can be moved now.
    Move {
        /// The number of the command.
        seq: u64,
        /// The number of the export that the data belongs to.
        export: u64,
        /// Offset in the export, in bytes.
        offset: u64,
        /// The number of bytes of the stream before the command of the data.
        carried_out: u32,
        /// The answer, to be sent once the data was moved.
        answer: &'a [u8],
    },
    /// A command's external data cannot be moved. The rest of its stream needs the data in the staging area.
    NotMovable {
        /// The number of the command.
        seq: u64,
        /// The number of bytes of the stream that were executed.
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

/// The parts of a command's data.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct CommandData {
    /// See [`ToWorker::Command`].
    pub external: bool,
    /// Data from the guest.
    pub input: Span,
    /// Data for the guest.
    pub output: Span,
    /// The offset of the data in the whole transfer, in bytes.
    pub offset: u64,
}

/// An encoded message to a worker, to be sent when the channel has room.
#[derive(Debug)]
pub struct Message {
    pub(super) bytes: Vec<u8>,
    pub(super) files: Vec<Arc<File>>,
}

impl Message {
    fn new(header: Header, files: Vec<Arc<File>>) -> Self {
        Self {
            bytes: header.as_bytes().to_vec(),
            files,
        }
    }

    /// [`ToWorker::Serve`].
    pub fn serve(serving: Serving<Arc<File>>) -> Self {
        let header = Header {
            kind: kind::SERVE,
            value: serving.slot,
            seq: serving.number,
            count: u32::from(serving.hold.is_some()),
            payload: size_of_val(&serving.gpus[..]) as u32,
            ..Header::default()
        };
        let files = [
            serving.account,
            serving.ledger,
            serving.terms,
            serving.doorbell,
            serving.peers,
        ];
        let files = files.into_iter().chain(serving.hold).chain(serving.cache);
        let mut message = Self::new(header, files.collect());
        message.bytes.extend_from_slice(serving.gpus.as_bytes());
        message
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
    /// If `stream_bytes` is over [`MAX_STREAM_BYTES`]. Callers check this.
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

    /// The payload.
    pub fn payload_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[size_of::<Header>()..]
    }

    /// [`ToWorker::Map`]: each run is an index into `files`, an offset and a length in bytes.
    ///
    /// # Errors
    /// The host is out of memory or file descriptors.
    ///
    /// # Panics
    /// If there are more than [`MAX_MAP_FILES`] files. Callers check this.
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
