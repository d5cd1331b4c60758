// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The range of addresses for pinned memory. It is the same in every process with this library and in its worker, so
//! that a pointer has the same meaning on both sides.

use std::{
    ffi::c_void,
    sync::atomic::{AtomicU64, Ordering},
};

use super::Failure;

/// The start of the window: below the addresses that Linux assigns, and above those that programs choose themselves.
const START: u64 = 0x1000_0000_0000;
/// The size, in bytes.
const BYTES: u64 = 16 << 40;
/// The alignment of allocations: a huge page.
const ALIGNMENT: u64 = 2 << 20;

static NEXT: AtomicU64 = AtomicU64::new(START);

/// Maps `bytes` bytes in the window: of a file from an offset on, or anonymous memory.
pub fn map(bytes: usize, file: Option<(i32, u64)>) -> Result<*mut c_void, Failure> {
    let step = (bytes as u64).next_multiple_of(ALIGNMENT);
    let (flags, fd, offset) = match file {
        Some((fd, offset)) => (libc::MAP_SHARED, fd, offset),
        None => (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1, 0),
    };
    // Addresses are assigned in a cycle, skipping those in use, so they are reused only after a whole cycle.
    for _ in 0..1 << 16 {
        let mut address = NEXT.fetch_add(step, Ordering::Relaxed);
        if address + step > START + BYTES {
            NEXT.store(START + step, Ordering::Relaxed);
            address = START;
        }
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: MAP_FIXED_NOREPLACE replaces no mapping.
        let mapped = unsafe {
            libc::mmap(
                address as *mut c_void,
                bytes,
                protection,
                flags | libc::MAP_FIXED_NOREPLACE,
                fd,
                offset as i64,
            )
        };
        if mapped == libc::MAP_FAILED {
            match Failure::last() {
                Failure::Os(libc::EEXIST) => continue,
                failure => return Err(failure),
            }
        }
        if mapped as u64 == address {
            return Ok(mapped);
        }
        // A kernel without MAP_FIXED_NOREPLACE may have mapped another address.
        unmap(mapped, bytes);
    }
    Err(Failure::Os(libc::ENOMEM))
}

/// Unmaps memory that [`map`] made.
pub fn unmap(address: *mut c_void, bytes: usize) {
    // SAFETY: the range is one that `map` made, and its owner gives it up.
    unsafe { libc::munmap(address, bytes) };
}
