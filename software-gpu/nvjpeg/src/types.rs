// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! NVIDIA's numbers for statuses and formats, which C callers pass as plain integers, and its structures.

use std::ffi::{c_int, c_void};

use gpgpu_stand_in::memory::Plain;

/// An `nvjpegStatus_t` other than success.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(i32)]
pub enum Status {
    /// There is no software GPU.
    NotInitialized = 1,
    /// An argument is wrong.
    InvalidParameter = 2,
    /// The JPEG cannot be parsed.
    BadJpeg = 3,
    /// A JPEG of this kind is not decoded here.
    JpegNotSupported = 4,
    /// An allocator failed, or the image is too large for this library.
    AllocatorFailure = 5,
    /// The driver refused the work, or it failed.
    ExecutionFailed = 6,
    /// The device has no such engine.
    ArchMismatch = 7,
    /// A defect of this library.
    InternalError = 8,
    /// This library does not do that.
    NotSupported = 9,
}

gpgpu_stand_in::status! { Status, of NULL InvalidParameter }

/// The most components of an image.
pub const COMPONENTS: usize = 4;

/// An `nvjpegImage_t`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct Image {
    /// The device address of each channel.
    pub channel: [u64; COMPONENTS],
    /// The bytes from row to row.
    pub pitch: [u64; COMPONENTS],
}

// SAFETY: numbers of the same width, so there is no padding.
unsafe impl Plain for Image {}

/// An allocator of the program's: `nvjpegDevAllocatorV2_t` and `nvjpegPinnedAllocatorV2_t`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct Allocator {
    /// Allocates.
    pub malloc: unsafe extern "C" fn(*mut c_void, *mut *mut c_void, usize, *mut c_void) -> c_int,
    /// Frees.
    pub free: unsafe extern "C" fn(*mut c_void, *mut c_void, usize, *mut c_void) -> c_int,
    /// The first argument of both.
    pub context: *mut c_void,
}

// SAFETY: it is the program's to say which threads may call its functions: all that call this library.
unsafe impl Send for Allocator {}
// SAFETY: as above.
unsafe impl Sync for Allocator {}

/// How many pixels share a sample of chroma: `nvjpegChromaSubsampling_t`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Subsampling {
    /// Luma, and chroma that is subsampled by these numbers of columns and rows.
    Chroma(u8, u8),
    /// Only luma.
    Gray,
}

/// The numbers of those with chroma.
const SUBSAMPLINGS: [(c_int, (u8, u8)); 7] = [
    (0, (1, 1)),
    (1, (2, 1)),
    (2, (2, 2)),
    (3, (1, 2)),
    (4, (4, 1)),
    (5, (4, 2)),
    (7, (2, 4)),
];
const GRAY: c_int = 6;

impl Subsampling {
    /// The one with a number.
    pub fn from_number(number: c_int) -> Option<Self> {
        if number == GRAY {
            return Some(Self::Gray);
        }
        let mut all = SUBSAMPLINGS.iter();
        let found = all.find(|(of, _)| *of == number);
        found.map(|(_, (columns, rows))| Self::Chroma(*columns, *rows))
    }

    /// Its number.
    pub fn number(self) -> c_int {
        match self {
            Self::Gray => GRAY,
            Self::Chroma(columns, rows) => {
                let mut all = SUBSAMPLINGS.iter();
                all.find(|(_, of)| *of == (columns, rows))
                    .map_or(-1, |(number, _)| *number)
            }
        }
    }
}
