// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Module images as programs pass them: the content of a fatbin, and the device memory of an image.
//!
//! The bytes are untrusted. An image that cannot be parsed is an error, and no function here allocates more memory than
//! its documentation says.

use std::borrow::Cow;

pub mod bounds;
mod calls;
mod cubin;
mod elf;
pub mod fatbin;
pub mod prints;
pub mod ptx;
pub mod size;

/// First word of a cubin.
pub const ELF_MAGIC: u32 = u32::from_le_bytes(*b"\x7fELF");

/// An error in an image.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Broken(pub String);

impl Broken {
    /// An image that is broken for this reason.
    pub fn new(why: impl Into<String>) -> Self {
        Self(why.into())
    }
}

/// Memory from which an image is read. Its end may be unknown until its headers were read.
pub trait Source {
    /// The reason why something cannot be read.
    type Error: From<Broken>;

    /// `length` bytes at `offset`.
    ///
    /// # Errors
    /// They are not there.
    fn bytes(&self, offset: usize, length: usize) -> Result<Cow<'_, [u8]>, Self::Error>;
}

/// A complete image.
#[derive(Debug, Clone, Copy)]
pub struct Contents<'a>(pub &'a [u8]);

impl<'a> Contents<'a> {
    /// `length` bytes at `offset`.
    ///
    /// # Errors
    /// They are not in the image.
    pub fn part(self, offset: usize, length: usize) -> Result<&'a [u8], Broken> {
        let end = offset
            .checked_add(length)
            .ok_or_else(|| Broken::new("a size in the image is too large"))?;
        let bytes = self.0.get(offset..end);
        bytes.ok_or_else(|| Broken::new("the image ends early"))
    }
}

impl Source for Contents<'_> {
    type Error = Broken;

    fn bytes(&self, offset: usize, length: usize) -> Result<Cow<'_, [u8]>, Broken> {
        self.part(offset, length).map(Cow::Borrowed)
    }
}
