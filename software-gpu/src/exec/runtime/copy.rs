// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Copies and fills that kernels queue. They reach exactly the memory that kernels reach.

use std::sync::atomic::{AtomicBool, Ordering};

use super::super::FaultKind;
use super::super::memory::Memory;

/// Rows of bytes: the address of the first one, and the distance between two.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rows {
    pub(super) start: u64,
    pub(super) pitch: u64,
}

impl Rows {
    /// The address of a row. A row beyond the last address wraps to unused addresses.
    fn row(self, number: u64) -> u64 {
        self.start.saturating_add(self.pitch.saturating_mul(number))
    }
}

/// The host's pointer for an address, and the number of contiguous bytes there, at most `left`.
fn place(
    memory: &dyn Memory,
    address: u64,
    left: u64,
    write: bool,
) -> Result<(*mut u8, u64), FaultKind> {
    let range = memory.range_of(address).filter(|range| {
        let inside = range.start <= address && address < range.end;
        inside && !range.base.is_null() && (range.writable || !write)
    });
    let Some(range) = range else {
        return Err(FaultKind::IllegalAddress {
            address,
            len: usize::try_from(left).unwrap_or(usize::MAX),
            write,
        });
    };
    // SAFETY: the address is inside the range.
    let pointer = unsafe { range.base.add((address - range.start) as usize) };
    Ok((pointer, left.min(range.end - address)))
}

/// Calls `part` for each row until one fails, or `cancel` is set.
fn each_row(
    rows: u64,
    cancel: &AtomicBool,
    mut part: impl FnMut(u64) -> Result<(), FaultKind>,
) -> Result<(), FaultKind> {
    for row in 0..rows {
        if cancel.load(Ordering::Relaxed) {
            return Err(FaultKind::Cancelled);
        }
        part(row)?;
    }
    Ok(())
}

/// Copies `height` rows of `width` bytes.
pub(super) fn copy(
    (memory, cancel): (&dyn Memory, &AtomicBool),
    (to, from): (Rows, Rows),
    (width, height): (u64, u64),
) -> Result<(), FaultKind> {
    each_row(if width == 0 { 0 } else { height }, cancel, |row| {
        let (mut to, mut from, mut left) = (to.row(row), from.row(row), width);
        while left > 0 {
            let (source, length) = place(memory, from, left, false)?;
            let (target, length) = place(memory, to, length, true)?;
            // SAFETY: both ranges have so many bytes, and stay for the time of the launch.
            unsafe { std::ptr::copy(source, target, length as usize) };
            (to, from, left) = (to + length, from + length, left - length);
        }
        Ok(())
    })
}

/// Fills `height` rows of `width` bytes.
pub(super) fn fill(
    (memory, cancel): (&dyn Memory, &AtomicBool),
    (to, value): (Rows, u8),
    (width, height): (u64, u64),
) -> Result<(), FaultKind> {
    each_row(if width == 0 { 0 } else { height }, cancel, |row| {
        let (mut to, mut left) = (to.row(row), width);
        while left > 0 {
            let (target, length) = place(memory, to, left, true)?;
            // SAFETY: the range has so many bytes, and stays for the time of the launch.
            unsafe { target.write_bytes(value, length as usize) };
            (to, left) = (to + length, left - length);
        }
        Ok(())
    })
}
