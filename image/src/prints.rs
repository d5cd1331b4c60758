// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The kernels of an image that may print.

use std::collections::BTreeSet;

use memchr::memmem;

use super::{
    Contents, ELF_MAGIC, calls,
    fatbin::{self, Entry, Kind},
    ptx,
};

/// The compiled form of `printf`: text calls it as a function, and machine code has it as a symbol.
const PRINTF: &[u8] = b"vprintf";
/// The driver's own functions that start no kernel, and print only if they fail. Others, such as those that launch
/// kernels, may print.
const SILENT: [&[u8]; 3] = [b"malloc", b"free", b"__assertfail"];
/// The most bytes of names that are kept.
const MOST_BYTES: usize = 64 << 10;

/// The kernels of an image that may print.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Prints {
    /// Only these may print; if there are none, the image prints nothing.
    Kernels(BTreeSet<Box<[u8]>>),
    /// Unknown, or the names are too many to keep.
    Any,
}

impl Prints {
    /// The kernels of an image that may print, on devices of these compute capabilities (times ten). A kernel is left
    /// out only if it prints on none of them. If an image cannot be parsed, each of its kernels may print.
    pub fn of(image: &[u8], capabilities: &[u32]) -> Self {
        let magic = image.first_chunk().map(|magic| u32::from_le_bytes(*magic));
        if magic != Some(fatbin::CONTAINER_MAGIC) {
            return Self::of_contents(image);
        }
        let source = Contents(image);
        let Ok(entries) = fatbin::entries(&source) else {
            return Self::Any;
        };
        let has_code = |capability: u32| entries.iter().any(|entry| entry.is_code_for(capability));
        let is_used = |entry: &&Entry| {
            capabilities.iter().any(|&capability| match entry.kind {
                Kind::Cubin => entry.is_code_for(capability),
                // The driver compiles text if there is no machine code.
                _ => entry.arch <= capability && !has_code(capability),
            })
        };
        let mut all = Self::default();
        for entry in entries.iter().filter(is_used) {
            all.add(match entry.unpack(&source) {
                Ok(bytes) => Self::of_contents(&bytes),
                Err(_) => Self::Any,
            });
        }
        all
    }

    /// The kernels of a cubin or a text that may print.
    fn of_contents(bytes: &[u8]) -> Self {
        if memmem::find(bytes, PRINTF).is_none() {
            return Self::default();
        }
        let counts = |name: &[u8]| !SILENT.contains(&name);
        let kernels = if bytes.starts_with(&ELF_MAGIC.to_le_bytes()) {
            calls::reaching(bytes, counts)
        } else {
            let text = bytes.split(|byte| *byte == 0).next().unwrap_or_default();
            ptx::calls::reaching(text, counts)
        };
        let Ok(kernels) = kernels else {
            return Self::Any;
        };
        let mut all = Self::default();
        all.add(Self::Kernels(kernels.into_iter().map(Into::into).collect()));
        all
    }

    fn add(&mut self, others: Self) {
        let all = std::mem::take(self);
        *self = match (all, others) {
            (Self::Kernels(all), Self::Kernels(others)) => {
                let all: BTreeSet<_> = all.into_iter().chain(others).collect();
                match all.iter().map(|name| name.len()).sum::<usize>() {
                    0..=MOST_BYTES => Self::Kernels(all),
                    _ => Self::Any,
                }
            }
            _ => Self::Any,
        };
    }

    /// Whether any kernel may print.
    pub fn any(&self) -> bool {
        !matches!(self, Self::Kernels(kernels) if kernels.is_empty())
    }

    /// Whether a kernel of this name may print.
    pub fn kernel(&self, name: &[u8]) -> bool {
        match self {
            Self::Kernels(kernels) => kernels.contains(name),
            Self::Any => true,
        }
    }
}

impl Default for Prints {
    /// Nothing prints.
    fn default() -> Self {
        Self::Kernels(BTreeSet::new())
    }
}

#[cfg(test)]
#[path = "prints_tests.rs"]
mod tests;
