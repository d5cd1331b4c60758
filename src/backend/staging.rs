// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! A client's staging area, through which the data of commands passes between guest pages and the worker.
//!
//! The area is a memfd that the worker maps too. It cannot be resized, so neither process can make the other fault. Its
//! pages are allocated at first use. A page behind it has the words that tell the worker to [`Rest`].

use std::{
    fs::File,
    io,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
};

use gpgpu_protocol::layout::MAX_DATA_BYTES;
use vm_memory::{FileOffset, MmapRegion, VolatileMemory, VolatileSlice};

use crate::ipc::{REST_BYTES, Rest, Span, sealed_memfd};

/// The maximum number of a client's commands with data in flight; half of it if each has data in both directions.
pub const BLOCKS: usize = 16;

/// The size of the area in bytes.
pub const STAGING_BYTES: u64 = (BLOCKS * MAX_DATA_BYTES) as u64;

/// See the module's documentation.
#[derive(Debug)]
pub struct Staging {
    file: Arc<File>,
    map: MmapRegion,
    /// A bit for each free block.
    free: AtomicU32,
}

impl Staging {
    /// A new area.
    ///
    /// # Errors
    /// The host is out of memory or file descriptors.
    pub fn new() -> io::Result<Self> {
        let bytes = STAGING_BYTES as usize + REST_BYTES;
        let file = Arc::new(sealed_memfd(c"gpgpu-staging", bytes as u64)?);
        let whole = FileOffset::from_arc(Arc::clone(&file), 0);
        let map = MmapRegion::from_file(whole, bytes).map_err(io::Error::other)?;
        Ok(Self {
            file,
            map,
            free: AtomicU32::new((1 << BLOCKS) - 1),
        })
    }

    /// The memfd, to be passed to the worker.
    pub fn file(&self) -> Arc<File> {
        Arc::clone(&self.file)
    }

    /// The shared words that tell the worker to rest.
    pub fn rest(&self) -> &Rest {
        // SAFETY: the page lies behind the area, which is whole pages, and is mapped for as long as this lives.
        unsafe { Rest::at(self.map.as_ptr().add(STAGING_BYTES as usize)) }
    }

    /// Takes blocks for a command's data, both or none; `None` for a block means that it needs none.
    ///
    /// The lowest free blocks are taken first, so that a client that does little uses little memory.
    pub fn blocks(
        self: &Arc<Self>,
        in_bytes: u64,
        out_bytes: u64,
    ) -> Option<(Option<Block>, Option<Block>)> {
        let wanted = usize::from(in_bytes > 0) + usize::from(out_bytes > 0);
        if (self.free.load(Ordering::Relaxed).count_ones() as usize) < wanted {
            return None;
        }
        let block = |len: u64| (len > 0).then(|| self.block(len));
        Some((block(in_bytes), block(out_bytes)))
    }

    /// Takes a block of `len` bytes. The caller has checked that one is free, and no other thread takes blocks.
    fn block(self: &Arc<Self>, len: u64) -> Block {
        let index = self.free.load(Ordering::Relaxed).trailing_zeros();
        self.free.fetch_and(!(1 << index), Ordering::Relaxed);
        Block {
            staging: Arc::clone(self),
            index,
            len,
        }
    }
}

/// A block of a staging area. Dropping it frees it.
#[derive(Debug)]
pub struct Block {
    staging: Arc<Staging>,
    index: u32,
    len: u64,
}

impl Block {
    /// The place of the data in the area.
    pub fn span(&self) -> Span {
        Span {
            offset: u64::from(self.index) * MAX_DATA_BYTES as u64,
            len: self.len,
        }
    }

    /// The first `len` bytes, or as many as the block was taken for.
    pub fn slice(&self, len: u64) -> Option<VolatileSlice<'_>> {
        let len = len.min(self.len) as usize;
        self.staging
            .map
            .get_slice(self.span().offset as usize, len)
            .ok()
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        self.staging
            .free
            .fetch_or(1 << self.index, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_come_back_when_dropped() {
        let staging = Arc::new(Staging::new().unwrap());
        let mut held = Vec::new();
        for _ in 0..BLOCKS / 2 {
            held.push(staging.blocks(1, MAX_DATA_BYTES as u64).unwrap());
        }
        assert!(staging.blocks(1, 0).is_none());
        assert!(
            staging.blocks(0, 0).is_some(),
            "a command without data needs no block"
        );
        held.truncate(BLOCKS / 2 - 1);
        assert!(staging.blocks(1, 1).is_some());
        drop(held);
        let (first, none) = staging.blocks(10, 0).unwrap();
        assert_eq!(first.unwrap().span(), Span { offset: 0, len: 10 });
        assert!(none.is_none());
    }

    #[test]
    fn a_worker_cannot_resize_it() {
        let staging = Staging::new().unwrap();
        assert!(staging.file().set_len(0).is_err());
        assert!(staging.file().set_len(STAGING_BYTES * 2).is_err());
    }
}
