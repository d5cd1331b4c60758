// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Detects pages of guest memory that the host has taken back.
//!
//! A balloon, free page reporting and virtio-mem remove pages from the file of a guest's memory. A page that CUDA has
//! pinned remains allocated, but the guest gets another one in its place, so a copy would access memory that the guest
//! does not use. Linux also removes such a page from the page tables of all processes, and changes the file's times. So
//! a file with an unchanged time has lost no pages; otherwise the page table of this process shows which chunks have.
//!
//! The guest's driver keeps the pages of a copy until the device has returned the copy's chain. So one check before a
//! copy is enough.

use std::{
    fs::File,
    io,
    os::{fd::AsFd, unix::fs::FileExt},
};

use gpgpu_locks::Mutex;
use gpgpu_protocol::layout::PAGE_BYTES;
use nix::{
    sys::stat::fstat,
    time::{ClockId, clock_gettime},
};

/// The bit of a page's word in `/proc/self/pagemap` that marks a present page (Linux, `admin-guide/mm/pagemap`).
const PRESENT: u64 = 1 << 63;
/// The size of a page's word.
const WORD_BYTES: usize = size_of::<u64>();
/// The number of words that are read at a time.
const WORDS: usize = 512;
/// The minimum age of a change time, in nanoseconds, that excludes a later change with the same time. Linux takes the
/// time from a clock that may tick only every 10 ms, and two changes in one tick have the same time.
const SETTLED: i128 = 100_000_000;

/// The page table of this process.
#[derive(Debug)]
pub struct PageTable(File);

impl PageTable {
    /// Opens the page table. A process that hides its memory from others of the same user cannot do so.
    ///
    /// # Errors
    /// The kernel does not have the file, or refuses access to it.
    pub fn open() -> io::Result<Self> {
        File::open("/proc/self/pagemap").map(Self)
    }

    /// Whether all pages of a mapping are present. `step` is the page size of the mapping; `start` and `bytes` are
    /// multiples of it.
    pub fn has_all(&self, start: usize, bytes: usize, step: usize) -> bool {
        let page = PAGE_BYTES as usize;
        if step != page {
            // All words of a huge page are alike.
            let mut firsts = (start..start + bytes).step_by(step);
            return firsts.all(|at| self.has(at / page, 1));
        }
        let (first, end) = (start / page, (start + bytes) / page);
        let mut parts = (first..end).step_by(WORDS);
        parts.all(|at| self.has(at, WORDS.min(end - at)))
    }

    /// Whether `count` pages from this one on are present.
    fn has(&self, page: usize, count: usize) -> bool {
        let mut words = [0; WORDS * WORD_BYTES];
        let words = &mut words[..count * WORD_BYTES];
        let read = self.0.read_exact_at(words, (page * WORD_BYTES) as u64);
        let (words, _) = words.as_chunks::<WORD_BYTES>();
        let is_there = |word: &[u8; WORD_BYTES]| u64::from_ne_bytes(*word) & PRESENT != 0;
        // If the table cannot be read, assume missing pages.
        read.is_ok() && words.iter().all(is_there)
    }
}

/// Seconds and nanoseconds.
type Time = (i64, i64);

#[derive(Debug, Default)]
struct Seen {
    /// The file's change time, if no later change can have the same time.
    time: Option<Time>,
    generation: u64,
}

/// The changes of a file in memory.
#[derive(Debug)]
pub struct Changes {
    /// Whether the removal of a page changes the file's times. This is not so in hugetlbfs.
    has_times: bool,
    seen: Mutex<Seen>,
}

impl Changes {
    /// The state before the first check. `has_times` says whether the removal of a page changes the file's times.
    pub fn new(has_times: bool) -> Self {
        Self {
            has_times,
            seen: Mutex::default(),
        }
    }

    /// A number that differs from the previous result if the file may have lost pages in between.
    pub fn generation(&self, file: impl AsFd) -> u64 {
        let time = self.has_times.then(|| settled_time(file)).flatten();
        let mut seen = self.seen.lock();
        if time.is_none() || time != seen.time {
            *seen = Seen {
                time,
                generation: seen.generation + 1,
            };
        }
        seen.generation
    }
}

/// The time of a file's last change, if the next change will have another time.
fn settled_time(file: impl AsFd) -> Option<Time> {
    let stat = fstat(file).ok()?;
    let now = clock_gettime(ClockId::CLOCK_REALTIME_COARSE).ok()?;
    let time = (stat.st_ctime, stat.st_ctime_nsec);
    let age = nanoseconds((now.tv_sec(), now.tv_nsec())) - nanoseconds(time);
    (age >= SETTLED).then_some(time)
}

fn nanoseconds((seconds, nanoseconds): Time) -> i128 {
    i128::from(seconds) * 1_000_000_000 + i128::from(nanoseconds)
}

#[cfg(test)]
mod tests {
    use std::{num::NonZeroUsize, ptr::NonNull};

    use nix::{
        fcntl::{FallocateFlags, fallocate},
        sys::mman::{MapFlags, ProtFlags, mmap},
    };

    use super::*;
    use crate::ipc::sealed_memfd;

    const PAGE: usize = PAGE_BYTES as usize;

    fn punch(file: &File, at: usize, bytes: usize) {
        let how = FallocateFlags::FALLOC_FL_PUNCH_HOLE | FallocateFlags::FALLOC_FL_KEEP_SIZE;
        fallocate(file, how, at as i64, bytes as i64).unwrap();
    }

    /// Maps a file with all pages present.
    fn map(file: &File, bytes: usize) -> NonNull<u8> {
        let protection = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
        let length = NonZeroUsize::new(bytes).unwrap();
        // SAFETY: a new mapping, which nothing unmaps.
        let start = unsafe { mmap(None, length, protection, MapFlags::MAP_SHARED, file, 0) };
        let start = start.unwrap().cast::<u8>();
        for at in (0..bytes).step_by(PAGE) {
            // SAFETY: mapped, and no other thread has the mapping.
            unsafe { start.add(at).write_volatile(1) };
        }
        start
    }

    /// A removed page is missing wherever it is in a range, even if another process has given the file a new page
    /// there.
    #[test]
    fn pitfall_90_a_page_that_was_taken_is_missing() {
        let table = PageTable::open().unwrap();
        let pages = 3 * WORDS + 5;
        for taken in [0, 1, WORDS - 1, WORDS, 2 * WORDS + 7, pages - 1] {
            let file = sealed_memfd(c"test", (pages * PAGE) as u64).unwrap();
            let start = map(&file, pages * PAGE).as_ptr() as usize;
            assert!(table.has_all(start, pages * PAGE, PAGE));
            punch(&file, taken * PAGE, PAGE);
            file.write_all_at(&[7; PAGE], (taken * PAGE) as u64)
                .unwrap();
            assert!(!table.has_all(start, pages * PAGE, PAGE), "{taken}");
            assert!(!table.has_all(start + taken * PAGE, PAGE, PAGE));
            assert!(table.has_all(start, taken * PAGE, PAGE));
        }
    }

    #[test]
    fn pitfall_90_a_file_that_loses_a_page_has_another_generation() {
        let file = sealed_memfd(c"test", 64 * PAGE_BYTES).unwrap();
        map(&file, 64 * PAGE);
        let changes = Changes::new(true);
        for at in 0..4 {
            // A recent change may have been followed by another one immediately.
            while changes.generation(&file) != changes.generation(&file) {}
            let before = changes.generation(&file);
            assert_eq!(changes.generation(&file), before);
            punch(&file, at * PAGE, PAGE);
            assert_ne!(changes.generation(&file), before);
            punch(&file, (at + 8) * PAGE, PAGE);
            assert_ne!(changes.generation(&file), before);
        }
        let untold = Changes::new(false);
        assert_ne!(untold.generation(&file), untold.generation(&file));
    }
}
