// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The byte layout of the virtqueues and of the configuration space (`spec/virtio-gpgpu.md`).
//!
//! Every field is little-endian; no structure has padding.

use zerocopy::{
    FromBytes, Immutable, IntoBytes, KnownLayout,
    little_endian::{U16, U32, U64},
};

/// The number of virtqueues.
pub const NUM_QUEUES: usize = 3;
/// Virtqueue 0: clients and memory.
pub const CONTROL_QUEUE: usize = 0;
/// Virtqueue 1: CUDA command streams.
pub const COMMAND_QUEUE: usize = 1;
/// Virtqueue 2: events from device to driver.
pub const EVENT_QUEUE: usize = 2;
/// The largest queue size that the device accepts, in descriptors.
pub const MAX_QUEUE_SIZE: usize = 1024;

/// [`Config::magic`]: "VGPG" in memory order.
pub const MAGIC: u32 = u32::from_le_bytes(*b"VGPG");
/// [`Config::version`] of this crate: the layouts of this file.
pub const VERSION: u32 = 2;
/// The size of the configuration space, in bytes; it reads as zero past [`Config`].
pub const CONFIG_SPACE_BYTES: usize = 64;

/// The maximum size of the command stream of one chain, in bytes.
pub const MAX_STREAM_BYTES: usize = 64 << 10;
/// The maximum size of the answer of one chain, in bytes.
pub const MAX_ANSWER_BYTES: usize = 64 << 10;
/// The maximum size of the data of one chain in each direction, in bytes.
pub const MAX_DATA_BYTES: usize = 4 << 20;
/// The maximum number of page runs of one registration; below the number of mappings that Linux allows a process.
pub const MAX_RUNS: usize = 32 << 10;
/// The maximum number of clients of a device at a time.
pub const MAX_CLIENTS: usize = 256;
/// The granularity of registered memory, in bytes.
pub const PAGE_BYTES: u64 = 4096;

/// The device configuration layout.
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Config {
    /// [`MAGIC`].
    pub magic: U32,
    /// [`VERSION`].
    pub version: U32,
    /// The family of operation tables that the device supports ([`crate::api::issued::FAMILY`]).
    pub api_family: U64,
    /// See [`MAX_CLIENTS`].
    pub max_clients: U32,
    /// See [`MAX_STREAM_BYTES`].
    pub max_stream_bytes: U32,
    /// See [`MAX_ANSWER_BYTES`].
    pub max_answer_bytes: U32,
    /// See [`MAX_RUNS`].
    pub max_runs: U32,
    /// See [`MAX_DATA_BYTES`].
    pub max_data_bytes: U64,
    /// Distinguishes the device from others that serve the VM at other times; 0 from a device without this field.
    pub instance: U64,
    /// Zero.
    pub reserved: [U64; 2],
}

impl Config {
    /// The configuration of a device whose VM may have this many clients at a time.
    pub fn with_clients(max_clients: u32) -> Self {
        Self {
            max_clients: max_clients.min(MAX_CLIENTS as u32).into(),
            ..Self::current()
        }
    }

    /// The configuration of a device of this crate's version whose VM has no limit of its own.
    pub fn current() -> Self {
        Self {
            magic: MAGIC.into(),
            version: VERSION.into(),
            api_family: crate::api::issued::FAMILY.into(),
            max_clients: (MAX_CLIENTS as u32).into(),
            max_stream_bytes: (MAX_STREAM_BYTES as u32).into(),
            max_answer_bytes: (MAX_ANSWER_BYTES as u32).into(),
            max_runs: (MAX_RUNS as u32).into(),
            max_data_bytes: (MAX_DATA_BYTES as u64).into(),
            instance: 0.into(),
            reserved: [0.into(); 2],
        }
    }

    /// The same, for the device with this instance number.
    pub fn of_instance(self, instance: u64) -> Self {
        Self {
            instance: instance.into(),
            ..self
        }
    }
}

/// The device's answer to a request; 0 is success.
pub mod status {
    /// The request was executed; for a command, the answer has CUDA's own result.
    pub const OK: u32 = 0;
    /// The chain or the stream does not have the specified form.
    pub const MALFORMED: u32 = 1;
    /// No client has this number.
    pub const NO_CLIENT: u32 = 2;
    /// The client's worker has ended; the client can only be closed.
    pub const CLIENT_DEAD: u32 = 3;
    /// More clients, bytes or runs than the configuration space allows.
    pub const LIMIT: u32 = 4;
    /// The host is out of memory, or could not start a worker.
    pub const NO_RESOURCES: u32 = 5;
    /// The driver has another version than the device, or an API table of another family.
    pub const VERSION_MISMATCH: u32 = 6;
    /// An address or a length lies outside the guest's memory or the registration.
    pub const BAD_ADDRESS: u32 = 7;
    /// The request's type is unknown.
    pub const UNKNOWN_REQUEST: u32 = 8;
    /// The host has no usable GPU; the device's log has the reason.
    pub const NO_GPU: u32 = 9;
}

/// Requests on the control queue.
pub mod control {
    /// [`super::Open`] → [`super::OpenAnswer`].
    pub const OPEN: u32 = 1;
    /// [`super::ControlHeader`] alone → [`super::ControlAnswer`].
    pub const CLOSE: u32 = 2;
    /// [`super::Register`] and its runs → [`super::RegisterAnswer`].
    pub const REGISTER: u32 = 3;
    /// [`super::Unregister`] → [`super::ControlAnswer`].
    pub const UNREGISTER: u32 = 4;
}

/// The header of every request on the control queue.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct ControlHeader {
    /// One of [`control`].
    pub kind: U32,
    /// The client; 0 in an [`Open`].
    pub client: U32,
}

/// Opens a client: one CUDA process of the guest.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Open {
    /// `kind` is [`control::OPEN`].
    pub header: ControlHeader,
    /// The [`VERSION`] of the guest's library.
    pub version: U32,
    /// The process's id in the guest, for the host's log and for other clients of the same device.
    pub pid: U32,
    /// The [`Config::api_family`] of the guest's library.
    pub api_family: U64,
    /// The process's name, padded with zeros, only for the host's log.
    pub name: [u8; 16],
}

/// Registers memory of a client that its worker may access until it is unregistered; `runs` [`Run`]s follow.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Register {
    /// `kind` is [`control::REGISTER`].
    pub header: ControlHeader,
    /// The address in the guest process, a multiple of [`PAGE_BYTES`].
    pub address: U64,
    /// Size in bytes, a multiple of [`PAGE_BYTES`]: the sum of the runs.
    pub length: U64,
    /// The number of runs that follow: 1 to [`Config::max_runs`].
    pub runs: U32,
    /// Zero.
    pub reserved: U32,
}

/// A run of guest-physical memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Run {
    /// The guest-physical address, a multiple of [`PAGE_BYTES`].
    pub address: U64,
    /// Size in bytes, a multiple of [`PAGE_BYTES`].
    pub length: U64,
}

/// Removes the registration of a [`Register`].
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Unregister {
    /// `kind` is [`control::UNREGISTER`].
    pub header: ControlHeader,
    /// [`RegisterAnswer::region`].
    pub region: U32,
    /// Zero.
    pub reserved: U32,
}

/// The answer to a control request without a result.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct ControlAnswer {
    /// One of [`status`].
    pub status: U32,
    /// Zero.
    pub reserved: U32,
}

/// The answer to an [`Open`].
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct OpenAnswer {
    /// One of [`status`].
    pub status: U32,
    /// The client's number, not 0.
    pub client: U32,
}

/// The answer to a [`Register`].
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct RegisterAnswer {
    /// One of [`status`].
    pub status: U32,
    /// The registration's number, not 0.
    pub region: U32,
}

/// The header of a chain on the command queue.
///
/// The readable part is this header, `stream_bytes` of stream and `in_bytes` of data; the writable part a
/// [`CommandAnswer`], `answer_bytes` of answer and `out_bytes` of data. The division of the bytes into descriptors has
/// no meaning.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct CommandHeader {
    /// The client.
    pub client: U32,
    /// The guest thread: any number that distinguishes the client's threads.
    pub thread: U32,
    /// The size of the stream: 1 to [`Config::max_stream_bytes`].
    pub stream_bytes: U32,
    /// The size of the answer: at most [`Config::max_answer_bytes`].
    pub answer_bytes: U32,
    /// The size of the data from the guest: at most [`Config::max_data_bytes`].
    pub in_bytes: U64,
    /// The size of the data for the guest: at most [`Config::max_data_bytes`].
    pub out_bytes: U64,
    /// The offset of the chain's data in the whole transfer, which the operation adds to its address. A transfer that
    /// is longer than one chain's data is sent as several chains of one stream that differ in this and in the length of
    /// the data.
    pub data_offset: U64,
}

/// The header of a chain's writable part.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct CommandAnswer {
    /// One of [`status`].
    pub status: U32,
    /// The number of bytes of the answer that were written.
    pub answer_bytes: U32,
}

/// The header of every command of a stream; its arguments follow.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct StreamCommand {
    /// The size of this command with its header: a multiple of 8.
    pub bytes: U32,
    /// The operation's number in the API table.
    pub op: U16,
    /// Zero.
    pub reserved: U16,
    /// The id of the context that is current in the calling thread, or 0.
    pub context: U64,
}

/// The header of a command's answer; its results follow.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct StreamAnswer {
    /// The `CUresult`.
    pub result: U32,
    /// [`answer`]'s bits; a client that does not know one ignores it.
    pub flags: U32,
}

/// Bits of [`StreamAnswer::flags`].
pub mod answer {
    /// The device has text that kernels or the driver have printed: `gpgpuOutput` returns it.
    pub const OUTPUT: u32 = 1;
}

/// [`Event::kind`]s.
pub mod event {
    /// A client's worker has ended.
    pub const CLIENT_DIED: u32 = 1;
}

/// The content of a used buffer of the event queue.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Event {
    /// One of [`event`].
    pub kind: U32,
    /// The client.
    pub client: U32,
    /// For [`event::CLIENT_DIED`]: the signal that ended the worker, or 0.
    pub detail: U32,
    /// Zero.
    pub reserved: U32,
}

const _: () = {
    assert!(size_of::<Config>() == CONFIG_SPACE_BYTES);
    assert!(size_of::<Open>() == 40);
    assert!(size_of::<Register>() == 32);
    assert!(size_of::<CommandHeader>() == 40);
    assert!(size_of::<StreamCommand>() == 16);
};
