// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Names of objects that other processes of the VM may open.

use gpgpu_protocol::cuda::*;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::{ipc::peers::TOKEN_BYTES, worker::device_memory::Lent};

/// The kinds of shared objects.
pub mod what {
    /// An allocation of `cuMemAlloc`.
    pub const MEMORY: u32 = 1;
    /// Physical memory of `cuMemCreate`.
    pub const PHYSICAL: u32 = 2;
    /// An event.
    pub const EVENT: u32 = 3;
    /// A memory pool.
    pub const POOL: u32 = 4;
    /// An allocation of a memory pool.
    pub const POOLED: u32 = 5;
}

/// The first word of every name.
pub const MAGIC: u32 = 0x5049_6767;

/// The name of a shared object, which the guest's programs pass to each other. A program may pass any bytes to its
/// worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Name {
    pub(super) magic: u32,
    pub(super) what: u32,
    pub(super) owner: u64,
    pub(super) token: [u8; TOKEN_BYTES],
    /// For a memory pool, and for an allocation of one: the pool's id in its worker.
    pub(super) pool: u64,
    /// For a memory pool: its GPU, by the host's number.
    pub(super) gpu: u64,
    pub(super) zeros: [u64; 2],
}

const _: () = assert!(size_of::<Name>() == 64);

impl Name {
    /// The number of the object's worker.
    pub fn owner(&self) -> u64 {
        self.owner
    }

    /// The id of the memory pool in its worker.
    pub fn pool(&self) -> u64 {
        self.pool
    }

    /// The GPU of the memory pool, by the host's number.
    pub fn gpu(&self) -> u64 {
        self.gpu
    }

    /// Decodes the name of an object of this kind.
    ///
    /// # Errors
    ///
    /// `CUDA_ERROR_INVALID_VALUE` if it is not such a name.
    pub fn read(bytes: &[u8], what: u32) -> Result<Self, CUresult> {
        let name = Self::read_from_bytes(bytes).map_err(|_| CUDA_ERROR_INVALID_VALUE)?;
        let is_used = match what {
            what::POOL => name.token == [0; TOKEN_BYTES],
            what::POOLED => name.gpu == 0,
            _ => (name.pool, name.gpu) == (0, 0),
        };
        let is_one = name.magic == MAGIC && name.what == what && is_used && name.zeros == [0; 2];
        is_one.then_some(name).ok_or(CUDA_ERROR_INVALID_VALUE)
    }
}

/// An object of the client that can be shared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Object {
    /// An allocation.
    Memory(Lent),
    /// An allocation of a memory pool, by the pool's id.
    Pooled(Lent, u64),
    /// Physical memory, by its number as an export.
    Physical(u32),
    /// A shared event, by its id.
    Event(u64),
}

impl Object {
    /// Its kind, a value of [`what`].
    pub fn what(self) -> u32 {
        match self {
            Self::Memory(_) => what::MEMORY,
            Self::Pooled(..) => what::POOLED,
            Self::Physical(_) => what::PHYSICAL,
            Self::Event(_) => what::EVENT,
        }
    }

    /// Its memory pool; 0 for none.
    pub fn pool(self) -> u64 {
        match self {
            Self::Pooled(_, pool) => pool,
            _ => 0,
        }
    }
}
