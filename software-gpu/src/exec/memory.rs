// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The executor's interface to device memory.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering};

use super::texture::{Surface, Texture};

/// A mapped part of the device address space.
#[derive(Debug, Clone, Copy)]
pub struct Range {
    /// First device address.
    pub start: u64,
    /// One past the last device address.
    pub end: u64,
    /// Host memory that backs `start`; `start..end` is contiguous there.
    pub base: *mut u8,
    /// Whether kernels may write.
    pub writable: bool,
}

// SAFETY: the pointer is only an address here; code that dereferences it answers for the access.
unsafe impl Send for Range {}
// SAFETY: as for `Send`.
unsafe impl Sync for Range {}

/// Device memory as kernels see it.
///
/// # Safety
/// `range_of` must return host memory that stays readable (and writable, if it says so) for `end - start` bytes from
/// `base` until `generation` has changed **and** every launch that was running before the change has returned. `base`
/// must be aligned as `start` is, to 16 bytes at least: device addresses and their host pointers are congruent
/// modulo 16. Device addresses must be below `1 << 60`, where the executor's own windows begin.
pub unsafe trait Memory: Sync {
    /// The mapped range around `addr`, or `None` when nothing is mapped there.
    fn range_of(&self, addr: u64) -> Option<Range>;

    /// Changes whenever a mapping is removed or replaced; cached ranges are then forgotten.
    fn generation(&self) -> u64;

    /// The texture that a kernel's handle names.
    fn texture(&self, _handle: u64) -> Option<Arc<Texture>> {
        None
    }

    /// The surface that a kernel's handle names.
    fn surface(&self, _handle: u64) -> Option<Arc<Surface>> {
        None
    }
}

/// An integer that can be read and written while other threads do the same.
pub(super) trait Cell: Copy + Default {
    /// # Safety
    /// `p` is valid for reads and aligned for `Self`.
    unsafe fn load(p: *const u8) -> Self;
    /// # Safety
    /// `p` is valid for writes and aligned for `Self`.
    unsafe fn store(p: *mut u8, v: Self);
}

macro_rules! cell {
    ($($t:ty, $a:ty);*) => {$(
        impl Cell for $t {
            #[inline(always)]
            unsafe fn load(p: *const u8) -> Self {
                // SAFETY: the caller's promise; an atomic has its integer's layout.
                unsafe { (*p.cast::<$a>()).load(Ordering::Relaxed) as $t }
            }
            #[inline(always)]
            unsafe fn store(p: *mut u8, v: Self) {
                // SAFETY: as above.
                unsafe { (*p.cast::<$a>()).store(v as _, Ordering::Relaxed) }
            }
        }
    )*};
}
cell!(u8, AtomicU8; u16, AtomicU16; u32, AtomicU32; u64, AtomicU64;
      i8, AtomicU8; i16, AtomicU16; i32, AtomicU32; i64, AtomicU64);
