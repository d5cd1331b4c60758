// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Address space: mappings of the kernel's, and which parts of the device's window are taken.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr;
use std::sync::atomic::{AtomicUsize, Ordering};

use gpgpu_protocol::cuda::CUDA_ERROR_OUT_OF_MEMORY;

use crate::config::ALLOCATION_ALIGNMENT;
use crate::ffi::Result;

const PAGE: usize = 4096;

/// The start of the variables that programs use as well, if the kernel grants it.
const VARIABLES: usize = 0x5000_0000_0000;

/// A mapping that is removed when this is dropped.
#[derive(Debug)]
pub struct Mapping {
    address: usize,
    length: usize,
}

impl Mapping {
    fn map(hint: usize, length: usize, protection: i32, flags: i32) -> io::Result<Self> {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | flags;
        // SAFETY: a new anonymous mapping; without MAP_FIXED it replaces nothing.
        let p = unsafe { libc::mmap(hint as *mut _, length, protection, flags, -1, 0) };
        if ptr::eq(p, libc::MAP_FAILED) {
            return Err(io::Error::last_os_error());
        }
        Ok(Self {
            address: p as usize,
            length,
        })
    }

    /// Addresses that nothing else will get and that fault when touched; at `wish` if that is free.
    pub fn reserve(wish: usize, length: usize) -> io::Result<Self> {
        let none = libc::PROT_NONE;
        Self::map(
            wish,
            length,
            none,
            libc::MAP_NORESERVE | libc::MAP_FIXED_NOREPLACE,
        )
        .or_else(|_| Self::map(0, length, none, libc::MAP_NORESERVE))
    }

    /// As [`Mapping::reserve`], at `start` only.
    ///
    /// # Errors
    /// The addresses are taken, or none.
    pub fn reserve_at(start: u64, length: u64) -> io::Result<Self> {
        let flags = libc::MAP_NORESERVE | libc::MAP_FIXED_NOREPLACE;
        let mapping = Self::map(start as usize, length as usize, libc::PROT_NONE, flags)?;
        // Kernels before 4.17 take the address for a hint.
        if mapping.address() != start {
            return Err(io::ErrorKind::AddrInUse.into());
        }
        Ok(mapping)
    }

    /// As [`Mapping::reserve`], anywhere, at a multiple of `alignment`, itself one of the page size.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn reserve_aligned(length: u64, alignment: u64) -> io::Result<Self> {
        let (length, alignment) = (length as usize, alignment as usize);
        let whole = length
            .checked_add(alignment)
            .ok_or(io::ErrorKind::OutOfMemory)?;
        let mut mapping = Self::map(0, whole, libc::PROT_NONE, libc::MAP_NORESERVE)?;
        let start = mapping.address.next_multiple_of(alignment);
        let (head, tail) = (start - mapping.address, mapping.address + alignment - start);
        mapping.address = start;
        mapping.length = length;
        for (at, length) in [(start - head, head), (start + length, tail)] {
            // SAFETY: the ends of the mapping just made, which are not part of it any more.
            unsafe { libc::munmap(at as *mut _, length) };
        }
        Ok(mapping)
    }

    /// Memory whose pages are allocated when they are written. A forked child does not get it.
    pub fn lazy(length: usize) -> io::Result<Self> {
        let rw = libc::PROT_READ | libc::PROT_WRITE;
        let mapping = Self::map(0, length, rw, libc::MAP_NORESERVE)?;
        mapping.keep_from_children(0, length);
        Ok(mapping)
    }

    fn keep_from_children(&self, offset: usize, length: usize) {
        // SAFETY: a part of this mapping.
        unsafe {
            libc::madvise(
                (self.address + offset) as *mut _,
                length,
                libc::MADV_DONTFORK,
            )
        };
    }

    fn replace(
        &self,
        offset: usize,
        length: usize,
        file: Option<BorrowedFd<'_>>,
    ) -> io::Result<()> {
        assert!(offset + length <= self.length);
        let flags = match file {
            Some(_) => libc::MAP_SHARED,
            None => libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
        };
        // SAFETY: replaces a part of this mapping by pages that can be read and written, so pointers into it stay
        // valid.
        let p = unsafe {
            libc::mmap(
                (self.address + offset) as *mut _,
                length,
                libc::PROT_READ | libc::PROT_WRITE,
                flags | libc::MAP_FIXED,
                file.map_or(-1, |f| f.as_raw_fd()),
                0,
            )
        };
        if ptr::eq(p, libc::MAP_FAILED) {
            return Err(io::Error::last_os_error());
        }
        self.keep_from_children(offset, length);
        Ok(())
    }

    /// Shows a file's first bytes in a part of the mapping.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn show(&self, offset: usize, length: usize, file: BorrowedFd<'_>) -> io::Result<()> {
        self.replace(offset, length, Some(file))
    }

    /// Undoes [`Mapping::show`]: the part gets its own zeroed pages, for remaining users.
    pub fn hide(&self, offset: usize, length: usize) {
        // If even that is refused, the file stays mapped, unused by new work, until the whole mapping is removed.
        let _ = self.replace(offset, length, None);
    }

    /// Host memory for a program.
    pub fn host(length: usize) -> io::Result<Self> {
        Self::pages(length, |_| 0)
    }

    /// Host memory for variables, at addresses that another process is unlikely to use, like NVIDIA's, so that a
    /// guest's process can map it at the same ones.
    pub fn variables(length: usize) -> io::Result<Self> {
        static NEXT: AtomicUsize = AtomicUsize::new(VARIABLES);
        Self::pages(length, |length| NEXT.fetch_add(length, Ordering::Relaxed))
    }

    /// Maps whole pages; `wish` returns the address for their number of bytes.
    fn pages(length: usize, wish: impl FnOnce(usize) -> usize) -> io::Result<Self> {
        let length = length
            .checked_next_multiple_of(PAGE)
            .ok_or(io::ErrorKind::OutOfMemory)?;
        Self::map(wish(length), length, libc::PROT_READ | libc::PROT_WRITE, 0)
    }

    /// First address.
    pub fn address(&self) -> u64 {
        self.address as u64
    }

    /// Bytes.
    pub fn length(&self) -> usize {
        self.length
    }

    /// Zeroes a part, giving whole pages back to the kernel.
    pub fn scrub(&self, offset: usize, length: usize) {
        assert!(offset + length <= self.length);
        let (start, end) = (self.address + offset, self.address + offset + length);
        let (first, last) = (start.next_multiple_of(PAGE), end / PAGE * PAGE);
        let zero = |from: usize, to: usize| {
            // SAFETY: inside the mapping, checked above; no allocation holds the part any more.
            unsafe { (from as *mut u8).write_bytes(0, to - from) };
        };
        if first >= last {
            return zero(start, end);
        }
        zero(start, first);
        zero(last, end);
        // SAFETY: whole pages inside the mapping.
        if unsafe { libc::madvise(first as *mut _, last - first, libc::MADV_DONTNEED) } != 0 {
            zero(first, last);
        }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: this mapping's own range; pointers into it are no longer used.
        unsafe { libc::munmap(self.address as *mut _, self.length) };
    }
}

/// Whether all of a range is mapped in this process.
pub fn is_mapped(start: u64, size: u64) -> bool {
    let first = start as usize / PAGE * PAGE;
    let Some(end) = (start as usize).checked_add(size as usize) else {
        return false;
    };
    // `mincore` writes a byte for each page; in pieces, so that a huge range needs no huge vector.
    let mut residence = [0u8; 4096];
    let mut at = first;
    while at < end {
        let length = (end - at).min(residence.len() * PAGE);
        // SAFETY: the vector has a byte for every page asked about.
        if unsafe { libc::mincore(at as *mut _, length, residence.as_mut_ptr()) } != 0 {
            return false;
        }
        at += length;
    }
    true
}

/// Whether the program may write to all of a mapped range. If the kernel cannot tell, the answer is yes.
pub fn is_writable(start: u64, size: u64) -> bool {
    let Ok(maps) = std::fs::read_to_string("/proc/self/maps") else {
        return true;
    };
    let end = start.saturating_add(size);
    maps.lines().all(|line| {
        let (range, rest) = line.split_once(' ').unwrap_or((line, ""));
        let bounds = range.split_once('-').unwrap_or_default();
        let number = |text| u64::from_str_radix(text, 16).unwrap_or(0);
        let overlaps = number(bounds.0) < end && number(bounds.1) > start;
        !overlaps || rest.as_bytes().get(1) == Some(&b'w')
    })
}

/// Makes all pages of a range be there, for writes or for reads only.
///
/// # Errors
/// `CUDA_ERROR_OUT_OF_MEMORY` if one is unavailable: memory is short, or a file system that backs the range is full.
pub fn populate(start: u64, size: u64, write: bool) -> Result {
    let first = start as usize / PAGE * PAGE;
    let end = (start + size).next_multiple_of(PAGE as u64) as usize;
    let advice = if write {
        libc::MADV_POPULATE_WRITE
    } else {
        libc::MADV_POPULATE_READ
    };
    loop {
        // SAFETY: makes pages present that the program may touch anyway; their content stays.
        if unsafe { libc::madvise(first as *mut _, end - first, advice) } == 0 {
            return Ok(());
        }
        match std::io::Error::last_os_error().raw_os_error() {
            Some(libc::EINTR | libc::EAGAIN) => {}
            // A kernel before 5.14, or memory of a device, which exists.
            Some(libc::EINVAL) => return Ok(()),
            _ => return Err(CUDA_ERROR_OUT_OF_MEMORY),
        }
    }
}

/// The free parts of the window, and the used part of the device's memory.
#[derive(Debug)]
pub struct Space {
    free: BTreeMap<u64, u64>,
    used: u64,
    total: u64,
}

impl Space {
    /// A space in which all of `0..length` is free; `total` bytes may be used at once.
    pub fn new(length: u64, total: u64) -> Self {
        Self {
            free: BTreeMap::from([(0, length)]),
            used: 0,
            total,
        }
    }

    /// Bytes that may still be used.
    pub fn free_bytes(&self) -> u64 {
        self.total - self.used
    }

    /// Counts bytes as used that have no address in the window; returns false if there is not enough memory.
    pub fn charge(&mut self, bytes: u64) -> bool {
        let fits = bytes <= self.free_bytes();
        if fits {
            self.used += bytes;
        }
        fits
    }

    /// Counts them as free again.
    pub fn discharge(&mut self, bytes: u64) {
        self.used -= bytes;
    }

    /// The offset of `size` bytes, now taken, or `None`.
    pub fn take(&mut self, size: u64) -> Option<u64> {
        let size = size.checked_next_multiple_of(ALLOCATION_ALIGNMENT)?;
        if size > self.free_bytes() {
            return None;
        }
        let (offset, length) = self
            .free
            .iter()
            .find(|(_, length)| **length >= size)
            .map(|(offset, length)| (*offset, *length))?;
        self.free.remove(&offset);
        if length > size {
            self.free.insert(offset + size, length - size);
        }
        self.used += size;
        Some(offset)
    }

    /// Undoes `take`.
    pub fn give(&mut self, offset: u64, size: u64) {
        self.used -= size;
        let (mut start, mut length) = (offset, size);
        if let Some((&before, &l)) = self.free.range(..offset).next_back()
            && before + l == offset
        {
            self.free.remove(&before);
            (start, length) = (before, l + length);
        }
        if let Some(l) = self.free.remove(&(offset + size)) {
            length += l;
        }
        self.free.insert(start, length);
    }
}
