// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Translates a chain's buffers into runs of the files that back the guest's memory, for a mover.

use std::{fs::File, sync::Arc};

use vm_memory::{GuestAddress, GuestMemoryBackend, GuestMemoryMmap, GuestMemoryRegion};

use super::chain::{Error as ChainError, Segments};
use crate::ipc::mover::{MAX_RUNS, Run};

/// A part of a file that backs a region of the guest's memory.
#[derive(Debug, Clone)]
pub struct Part {
    /// The file.
    pub file: Arc<File>,
    /// Offset in the file, in bytes.
    pub offset: u64,
    /// Size in bytes.
    pub bytes: u64,
}

impl Part {
    /// Whether it is the same part of the same file.
    pub fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.file, &other.file) && self.offset == other.offset
    }
}

/// The reason why a mover cannot move the data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The chain is invalid.
    #[error(transparent)]
    Chain(#[from] ChainError),
    /// No file backs the memory.
    #[error("Guest memory without a file")]
    NoFile,
    /// The data has more runs than one move can have, or lies in too many files.
    #[error("Too many runs")]
    TooMany,
}

/// Resolves `len` bytes from `offset` of one direction of a chain; `number` assigns the mover's number to a part.
/// Stretches that adjoin in the guest's memory become one run.
///
/// # Errors
/// See [`Error`]. In each case the mover has no part in the chain.
pub fn resolve(
    memory: &GuestMemoryMmap,
    segments: &Segments,
    offset: u64,
    len: u64,
    mut number: impl FnMut(Part) -> Option<u32>,
) -> Result<Vec<Run>, Error> {
    let mut runs: Vec<Run> = Vec::new();
    // Most stretches lie in the region of the previous one: its start, length and number.
    let mut last: Option<(u64, u64, u32)> = None;
    segments.stretches::<Error>(offset, len, |address, bytes| {
        let (mut at, mut left) = (address.0, bytes);
        while left > 0 {
            let inside = |&(start, length, _): &(u64, u64, u32)| at.wrapping_sub(start) < length;
            let (start, length, file) = match last.filter(inside) {
                Some(known) => known,
                None => {
                    let region = memory
                        .find_region(GuestAddress(at))
                        .ok_or(ChainError::Address)?;
                    let backing = region.file_offset().ok_or(Error::NoFile)?;
                    let part = Part {
                        file: Arc::clone(backing.arc()),
                        offset: backing.start(),
                        bytes: region.len(),
                    };
                    let file = number(part).ok_or(Error::TooMany)?;
                    (region.start_addr().0, region.len(), file)
                }
            };
            last = Some((start, length, file));
            let within = at - start;
            let take = left.min(length - within);
            push(&mut runs, file, within, take)?;
            // The next region may begin where this one ends.
            at = at.checked_add(take).ok_or(ChainError::Address)?;
            left -= take;
        }
        Ok(())
    })?;
    Ok(runs)
}

fn push(runs: &mut Vec<Run>, file: u32, offset: u64, bytes: u64) -> Result<(), Error> {
    let joined = |run: &Run| u32::try_from(u64::from(run.bytes) + bytes).ok();
    let bytes = u32::try_from(bytes).map_err(|_| Error::TooMany)?;
    if let Some(run) = runs.last_mut()
        && run.file == file
        && run.offset + u64::from(run.bytes) == offset
        && let Some(joined) = joined(run)
    {
        run.bytes = joined;
        return Ok(());
    }
    if runs.len() == MAX_RUNS {
        return Err(Error::TooMany);
    }
    runs.push(Run {
        file,
        bytes,
        offset,
    });
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use vm_memory::{FileOffset, GuestRegionMmap, MmapRegion};

    fn region(start: u64, offset: u64, len: u64, in_file: bool) -> GuestRegionMmap {
        let map = if in_file {
            let file = tempfile::tempfile().unwrap();
            file.set_len(offset + len).unwrap();
            MmapRegion::from_file(FileOffset::new(file, offset), len as usize).unwrap()
        } else {
            MmapRegion::new(len as usize).unwrap()
        };
        GuestRegionMmap::new(map, GuestAddress(start)).unwrap()
    }

    fn segments(parts: &[(u64, u32)]) -> Segments {
        let mut segments = Segments::default();
        for &(at, len) in parts {
            segments.push(GuestAddress(at), len);
        }
        segments
    }

    fn of(
        memory: &GuestMemoryMmap,
        parts: &[(u64, u32)],
        offset: u64,
        len: u64,
    ) -> Result<Vec<(u32, u64, u32)>, Error> {
        let mut known: Vec<Part> = Vec::new();
        let number = |part: Part| {
            let at = known.iter().position(|other| other.is(&part));
            Some(at.unwrap_or_else(|| {
                known.push(part);
                known.len() - 1
            }) as u32)
        };
        let runs = resolve(memory, &segments(parts), offset, len, number)?;
        Ok(runs
            .iter()
            .map(|run| (run.file, run.offset, run.bytes))
            .collect())
    }

    #[test]
    fn pages_that_follow_each_other_are_one_run() {
        let memory = GuestMemoryMmap::from_regions(vec![
            region(0, 0, 0x4000, true),
            region(0x4000, 0x8000, 0x4000, true),
        ])
        .unwrap();
        let parts = [(0x10, 0x30), (0x1000, 0x1000), (0x2000, 0x1000), (0x800, 8)];
        assert_eq!(
            of(&memory, &parts, 0x20, 0x2018).unwrap(),
            [(0, 0x30, 0x10), (0, 0x1000, 0x2000), (0, 0x800, 8)]
        );
        // A buffer that crosses from one region into the next lies in two files.
        assert_eq!(
            of(&memory, &[(0x3ff0, 0x20)], 0, 0x20).unwrap(),
            [(0, 0x3ff0, 0x10), (1, 0, 0x10)]
        );
        assert_eq!(of(&memory, &[(0x100, 16)], 4, 0), Ok(vec![]));
    }

    #[test]
    fn pitfall_81_hostile_buffers_name_nothing() {
        let memory = GuestMemoryMmap::from_regions(vec![region(0, 0, 0x4000, true)]).unwrap();
        let address = Err(Error::Chain(ChainError::Address));
        assert_eq!(of(&memory, &[(0x3fff, 2)], 0, 2), address);
        assert_eq!(of(&memory, &[(u64::MAX, 2)], 0, 2), address);
        assert_eq!(of(&memory, &[(u64::MAX - 8, 16)], 12, 4), address);
        let short = Err(Error::Chain(ChainError::Short));
        assert_eq!(of(&memory, &[(0, 16)], 0, 17), short);
        assert_eq!(of(&memory, &[(0, 16)], u64::MAX, 2), short);
        let many: Vec<_> = (0..=MAX_RUNS as u64)
            .map(|at| ((at * 2) % 0x4000, 1))
            .collect();
        assert_eq!(
            of(&memory, &many, 0, many.len() as u64),
            Err(Error::TooMany)
        );
        assert_eq!(
            of(&memory, &many, 0, MAX_RUNS as u64).unwrap().len(),
            MAX_RUNS
        );
    }

    #[test]
    fn memory_that_is_in_no_file_cannot_be_moved() {
        let memory = GuestMemoryMmap::from_regions(vec![region(0, 0, 0x4000, false)]).unwrap();
        assert_eq!(of(&memory, &[(0, 16)], 0, 16), Err(Error::NoFile));
    }
}
