// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! A descriptor chain, taken off its queue and checked for its form.
//!
//! The guest can rewrite descriptors and buffers at any time. The device therefore reads descriptors once, here, and
//! copies the contents of buffers before it checks them.
//!
//! This does not use virtio-queue's `Reader` and `Writer`. They borrow the guest's memory, while a chain stays with its
//! memory until its answer comes. They also hide the addresses of buffers, which a mover needs. So [`Segments`] are
//! buffers as addresses.

use std::sync::Arc;

use gpgpu_protocol::layout::status;
use virtio_queue::DescriptorChain;
use vm_memory::{GuestAddress, GuestMemory, GuestMemoryMmap, Permissions, VolatileSlice};
use zerocopy::FromBytes;

use super::lost_pages;

/// The maximum number of descriptors of one chain: an answer, a stream, and 4 MiB in 4 KiB pages in each direction,
/// with some reserve. It limits the host's cost of a chain in flight.
const MAX_PARTS: usize = 4096;

/// An error of a chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// An offset and a length reach past the end of this part of the chain.
    #[error("Chain too short")]
    Short,
    /// A descriptor names an address outside the guest's memory.
    #[error("Address outside the guest's memory")]
    Address,
    /// The host cannot provide a page of the guest's memory; see [`lost_pages`].
    #[error("Guest page unavailable")]
    Lost,
}

impl Error {
    /// The status with which the device answers such a chain.
    pub fn status(self) -> u32 {
        match self {
            Self::Short => status::MALFORMED,
            Self::Address => status::BAD_ADDRESS,
            Self::Lost => status::NO_RESOURCES,
        }
    }
}

/// One direction of a chain: bytes scattered over the guest's memory.
#[derive(Debug, Default)]
pub struct Segments {
    parts: Vec<(GuestAddress, usize)>,
    len: u64,
}

impl Segments {
    /// Appends a buffer; an empty one is ignored.
    pub fn push(&mut self, address: GuestAddress, len: u32) {
        if len > 0 {
            self.parts.push((address, len as usize));
            self.len += u64::from(len);
        }
    }

    /// The total number of bytes.
    pub fn bytes(&self) -> u64 {
        self.len
    }

    /// Calls `take` with each stretch of guest-physical memory of `len` bytes from `offset` on, in order.
    ///
    /// # Errors
    /// [`Error::Short`], or the error of `take`.
    pub fn stretches<E: From<Error>>(
        &self,
        offset: u64,
        len: u64,
        mut take: impl FnMut(GuestAddress, u64) -> Result<(), E>,
    ) -> Result<(), E> {
        if offset.checked_add(len).is_none_or(|end| end > self.len) {
            return Err(Error::Short.into());
        }
        let (mut skip, mut left) = (offset, len);
        for &(address, part) in &self.parts {
            let part = part as u64;
            if left == 0 {
                break;
            }
            if skip >= part {
                skip -= part;
                continue;
            }
            let start = address.0.checked_add(skip).ok_or(Error::Address)?;
            let bytes = left.min(part - skip);
            take(GuestAddress(start), bytes)?;
            left -= bytes;
            skip = 0;
        }
        Ok(())
    }

    /// Calls `copy` with each stretch of memory of `len` bytes from `offset` on, in order, and with the number of bytes
    /// before it.
    fn for_each(
        &self,
        memory: &GuestMemoryMmap,
        offset: u64,
        len: usize,
        access: Permissions,
        mut copy: impl FnMut(VolatileSlice<'_>, usize),
    ) -> Result<(), Error> {
        if offset
            .checked_add(len as u64)
            .is_none_or(|end| end > self.len)
        {
            return Err(Error::Short);
        }
        if lost_pages::are_left() {
            // Those of the rings, for example.
            lost_pages::restore();
        }
        let restored = lost_pages::restored();
        let (mut skip, mut done) = (offset, 0);
        for &(address, part) in &self.parts {
            if done == len {
                break;
            }
            if skip >= part as u64 {
                skip -= part as u64;
                continue;
            }
            let take = (part - skip as usize).min(len - done);
            let start = address.0.checked_add(skip).ok_or(Error::Address)?;
            let slices = memory
                .get_slices(GuestAddress(start), take, access)
                .map_err(|_| Error::Address)?;
            for slice in slices {
                let slice = slice.map_err(|_| Error::Address)?;
                let slice_len = slice.len();
                copy(slice, done);
                done += slice_len;
                if lost_pages::count() != restored {
                    lost_pages::restore();
                    return Err(Error::Lost);
                }
            }
            skip = 0;
        }
        if done == len {
            Ok(())
        } else {
            Err(Error::Address)
        }
    }
}

/// A chain: its readable part, its writable part, and the memory map with which it was taken.
#[derive(Debug)]
pub struct Chain {
    pub(super) head: u16,
    pub(super) queue: usize,
    pub(super) generation: u64,
    /// The memory map at the time when the chain was taken. If the VMM changes the map, the chain's bytes stay where
    /// they were.
    pub(super) memory: Arc<GuestMemoryMmap>,
    /// The part that the device reads.
    pub readable: Segments,
    /// The part that the device writes.
    pub writable: Segments,
    /// Whether the chain has too many descriptors, or a readable one after a writable one.
    pub misshapen: bool,
}

impl Chain {
    /// Reads the descriptors of a chain.
    pub fn new(
        chain: DescriptorChain<Arc<GuestMemoryMmap>>,
        memory: Arc<GuestMemoryMmap>,
        queue: usize,
        generation: u64,
    ) -> Self {
        let mut this = Self {
            head: chain.head_index(),
            queue,
            generation,
            memory,
            readable: Segments::default(),
            writable: Segments::default(),
            misshapen: false,
        };
        for (count, descriptor) in chain.enumerate() {
            if count == MAX_PARTS {
                this.misshapen = true;
                break;
            }
            if descriptor.is_write_only() {
                this.writable.push(descriptor.addr(), descriptor.len());
            } else {
                this.misshapen |= this.writable.len > 0;
                this.readable.push(descriptor.addr(), descriptor.len());
            }
        }
        this
    }

    /// A copy of the structure at `offset` of the readable part.
    pub fn read_object<T: FromBytes>(&self, offset: u64) -> Result<T, Error> {
        let mut bytes = vec![0; size_of::<T>()];
        self.read(offset, &mut bytes)?;
        T::read_from_bytes(&bytes).map_err(|_| Error::Short)
    }

    /// Copies bytes from `offset` of the readable part.
    pub fn read(&self, offset: u64, into: &mut [u8]) -> Result<(), Error> {
        let access = Permissions::Read;
        self.readable
            .for_each(&self.memory, offset, into.len(), access, |slice, at| {
                slice.copy_to(&mut into[at..]);
            })
    }

    /// Copies `into.len()` bytes from `offset` of the readable part.
    pub fn read_volatile(&self, offset: u64, into: VolatileSlice<'_>) -> Result<(), Error> {
        let access = Permissions::Read;
        self.readable
            .for_each(&self.memory, offset, into.len(), access, |slice, at| {
                if let Ok(into) = into.offset(at) {
                    slice.copy_to_volatile_slice(into);
                }
            })
    }

    /// Copies bytes to `offset` of the writable part.
    pub fn write(&self, offset: u64, from: &[u8]) -> Result<(), Error> {
        let access = Permissions::Write;
        self.writable
            .for_each(&self.memory, offset, from.len(), access, |slice, at| {
                slice.copy_from(&from[at..]);
            })
    }

    /// Copies `from` to `offset` of the writable part.
    pub fn write_volatile(&self, offset: u64, from: VolatileSlice<'_>) -> Result<(), Error> {
        let access = Permissions::Write;
        self.writable
            .for_each(&self.memory, offset, from.len(), access, |slice, at| {
                if let Ok(from) = from.offset(at) {
                    from.copy_to_volatile_slice(slice);
                }
            })
    }
}
