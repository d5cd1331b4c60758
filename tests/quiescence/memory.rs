// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Fills a guest's memory with a pattern.

use std::{fs, ops::Range, os::unix::fs::MetadataExt};

use nix::unistd::Pid;
use vm_memory::{Bytes, GuestAddress, GuestMemoryBackend, GuestMemoryMmap, GuestMemoryRegion};

/// The size of the pieces in which memory is filled, checked and left out.
pub const CHUNK: u64 = 64 << 10;

/// Bytes that depend on the seed and the place.
pub fn bytes(seed: u64, place: u64, count: usize) -> Vec<u8> {
    const ODD: u64 = 0x9e37_79b9_7f4a_7c15;
    let mut word = (seed ^ place.rotate_left(32)).wrapping_mul(ODD);
    word ^= word >> 29;
    let mut bytes = vec![0; count];
    for to in bytes.chunks_exact_mut(8) {
        to.copy_from_slice(&word.to_ne_bytes());
        word = word.wrapping_add(ODD);
    }
    bytes
}

/// See the module's documentation.
pub struct Whole {
    memory: GuestMemoryMmap,
    chunks: Vec<u64>,
    /// The memory that the device may read meanwhile: it is not filled, but must not change.
    read: Vec<Range<u64>>,
    saved: Vec<u8>,
}

fn is_in(ranges: &[Range<u64>], at: u64) -> bool {
    ranges.iter().any(|one| one.contains(&at))
}

impl Whole {
    /// All memory. Ranges in `first`, which the device writes to most, are filled first, in order.
    pub fn new(memory: &GuestMemoryMmap, first: &[Range<u64>]) -> Self {
        let regions = memory.iter().flat_map(|region| {
            let start = region.start_addr().0;
            (start..start + region.len()).step_by(CHUNK as usize)
        });
        let mut chunks: Vec<u64> = regions.collect();
        let rank = |at: u64| first.iter().position(|one| one.contains(&at));
        chunks.sort_by_key(|&at| rank(at).unwrap_or(first.len()));
        Self {
            memory: memory.clone(),
            chunks,
            read: Vec::new(),
            saved: Vec::new(),
        }
    }

    /// The same, but these ranges are not filled.
    pub fn reading(self, read: Vec<Range<u64>>) -> Self {
        Self { read, ..self }
    }

    fn read_chunk(&self, at: u64, into: &mut [u8]) {
        self.memory.read_slice(into, GuestAddress(at)).unwrap();
    }

    fn fill_chunk(&self, at: u64, seed: u64) {
        let pattern = bytes(seed, at, CHUNK as usize);
        self.memory.write_slice(&pattern, GuestAddress(at)).unwrap();
    }

    /// Fills the memory in order.
    pub fn fill(&self, seed: u64) {
        for &at in &self.chunks {
            self.fill_chunk(at, seed);
        }
    }

    /// Saves the content, and fills the memory.
    pub fn take(&mut self, seed: u64) {
        let mut saved = std::mem::take(&mut self.saved);
        saved.resize(self.chunks.len() * CHUNK as usize, 0);
        for (&at, saved) in self.chunks.iter().zip(saved.chunks_mut(CHUNK as usize)) {
            self.read_chunk(at, saved);
            if !is_in(&self.read, at) {
                self.fill_chunk(at, seed);
            }
        }
        self.saved = saved;
    }

    /// Restores the saved content into memory of the same shape.
    pub fn put_back(&self, memory: &GuestMemoryMmap) {
        for (&at, saved) in self.chunks.iter().zip(self.saved.chunks(CHUNK as usize)) {
            memory.write_slice(saved, GuestAddress(at)).unwrap();
        }
    }

    /// Returns the first place that differs from the pattern, or from the saved content.
    pub fn changed(&self, seed: u64) -> Vec<Range<u64>> {
        let mut found = vec![0; CHUNK as usize];
        let mut changed = Vec::new();
        for (index, &at) in self.chunks.iter().enumerate() {
            self.read_chunk(at, &mut found);
            let expected = match is_in(&self.read, at) {
                true => self.saved[index * CHUNK as usize..][..CHUNK as usize].to_vec(),
                false => bytes(seed, at, CHUNK as usize),
            };
            let differs = |index: &usize| found[*index] != expected[*index];
            if found != expected {
                let mut places = 0..CHUNK as usize;
                let first = places.find(differs).unwrap_or(0) as u64;
                let last = places.rfind(differs).map_or(first, |last| last as u64);
                changed.push(at + first..at + last + 1);
            }
        }
        changed
    }
}

/// Whether a process has this memory's files mapped.
pub fn maps(process: Pid, memory: &GuestMemoryMmap) -> bool {
    let maps = fs::read_to_string(format!("/proc/{process}/maps")).unwrap_or_default();
    let files = memory.iter().map(|region| {
        let file = region.file_offset().unwrap().file();
        file.metadata().unwrap().ino().to_string()
    });
    let files: Vec<String> = files.collect();
    maps.lines()
        .filter(|line| line.contains("memfd:guest"))
        .filter_map(|line| line.split_whitespace().nth(4))
        .any(|inode| files.iter().any(|file| file == inode))
}
