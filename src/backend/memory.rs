// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Translates guest-physical runs to parts of the files that back them.

use std::{fs::File, sync::Arc};

use gpgpu_protocol::layout::{MAX_RUNS, PAGE_BYTES, Run, status};
use vm_memory::{Address, GuestAddress, GuestMemoryBackend, GuestMemoryMmap, GuestMemoryRegion};

use crate::ipc::MAX_MAP_FILES;

/// Guest memory in the form in which a worker maps it.
#[derive(Debug, Default)]
pub struct Pieces {
    /// The files that back the memory.
    pub files: Vec<Arc<File>>,
    /// Index of a file, offset and length in bytes. Adjoining pieces are merged.
    pub runs: Vec<(u32, u64, u64)>,
}

/// Translates the runs of a registration.
///
/// # Errors
/// A [`status`]: `MALFORMED` if addresses or lengths are not whole pages, `BAD_ADDRESS` if they lie outside the guest's
/// memory or do not add up to `length`, `LIMIT` if they lie in too many pieces.
pub fn translate(memory: &GuestMemoryMmap, runs: &[Run], length: u64) -> Result<Pieces, u32> {
    let mut pieces = Pieces::default();
    let mut total = 0u64;
    for run in runs {
        let (address, len) = (run.address.get(), run.length.get());
        if len == 0 || address % PAGE_BYTES != 0 || len % PAGE_BYTES != 0 {
            return Err(status::MALFORMED);
        }
        total = total.checked_add(len).ok_or(status::BAD_ADDRESS)?;
        address.checked_add(len).ok_or(status::BAD_ADDRESS)?;
        let (mut at, mut left) = (address, len);
        // A run may cross from one region into the next.
        while left > 0 {
            let region = memory
                .find_region(GuestAddress(at))
                .ok_or(status::BAD_ADDRESS)?;
            let within = at - region.start_addr().raw_value();
            let take = left.min(region.len() - within);
            let backing = region.file_offset().ok_or(status::BAD_ADDRESS)?;
            let offset = backing
                .start()
                .checked_add(within)
                .ok_or(status::BAD_ADDRESS)?;
            if offset % PAGE_BYTES != 0 || take % PAGE_BYTES != 0 {
                return Err(status::BAD_ADDRESS);
            }
            pieces.push(backing.arc(), offset, take)?;
            at += take;
            left -= take;
        }
    }
    if total == length {
        Ok(pieces)
    } else {
        Err(status::BAD_ADDRESS)
    }
}

/// The size of the guest's memory, in bytes.
pub fn ram(memory: &GuestMemoryMmap) -> u64 {
    memory.iter().map(|region| region.len()).sum()
}

impl Pieces {
    fn push(&mut self, file: &Arc<File>, offset: u64, length: u64) -> Result<(), u32> {
        // Most runs lie in one file, so the last file is the likeliest.
        let index = match self
            .files
            .iter()
            .rposition(|known| Arc::ptr_eq(known, file))
        {
            Some(index) => index,
            None if self.files.len() == MAX_MAP_FILES => return Err(status::LIMIT),
            None => {
                self.files.push(Arc::clone(file));
                self.files.len() - 1
            }
        } as u32;
        let full = self.runs.len() == MAX_RUNS;
        match self.runs.last_mut() {
            Some((last, start, len)) if *last == index && *start + *len == offset => *len += length,
            _ if full => return Err(status::LIMIT),
            _ => self.runs.push((index, offset, length)),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vm_memory::{FileOffset, GuestRegionMmap, MmapRegion};

    /// Two adjoining regions in two files, the second not from the start of its file, and a separate region.
    fn memory() -> GuestMemoryMmap {
        let region = |start: u64, offset: u64, len: u64| {
            let file = tempfile::tempfile().unwrap();
            file.set_len(offset + len).unwrap();
            let map = MmapRegion::from_file(FileOffset::new(file, offset), len as usize).unwrap();
            GuestRegionMmap::new(map, GuestAddress(start)).unwrap()
        };
        GuestMemoryMmap::from_regions(vec![
            region(0, 0, 0x4000),
            region(0x4000, 0x8000, 0x4000),
            region(0x10_0000, 0, 0x1000),
        ])
        .unwrap()
    }

    fn run(address: u64, length: u64) -> Run {
        Run {
            address: address.into(),
            length: length.into(),
        }
    }

    #[test]
    fn runs_are_cut_at_regions_and_joined_where_they_adjoin() {
        let runs = [
            run(0x2000, 0x4000),
            run(0x6000, 0x1000),
            run(0x10_0000, 0x1000),
        ];
        let pieces = translate(&memory(), &runs, 0x6000).unwrap();
        assert_eq!(pieces.files.len(), 3);
        assert_eq!(
            pieces.runs,
            [(0, 0x2000, 0x2000), (1, 0x8000, 0x3000), (2, 0, 0x1000)]
        );
    }

    #[test]
    fn addresses_outside_guest_memory_are_refused() {
        let memory = memory();
        let refused = |runs: &[Run], length| translate(&memory, runs, length).unwrap_err();
        assert_eq!(refused(&[run(0x8000, 0x1000)], 0x1000), status::BAD_ADDRESS);
        assert_eq!(refused(&[run(0x7000, 0x2000)], 0x2000), status::BAD_ADDRESS);
        assert_eq!(refused(&[run(0, 0x1000)], 0x2000), status::BAD_ADDRESS);
        assert_eq!(
            refused(&[run(u64::MAX - 0xfff, 0x1000)], 0x1000),
            status::BAD_ADDRESS
        );
        assert_eq!(
            refused(&[run(0x1000, u64::MAX - 0xfff)], 0x1000),
            status::BAD_ADDRESS
        );
        assert_eq!(refused(&[run(0x800, 0x1000)], 0x1000), status::MALFORMED);
        assert_eq!(refused(&[run(0, 0x800)], 0x800), status::MALFORMED);
        assert_eq!(refused(&[run(0, 0)], 0), status::MALFORMED);
    }
}
