// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Names of libraries, and the names under which packages carry copies of them.
//!
//! Tools that make Python packages self-contained put copies of libraries into them and rename each copy, so that
//! packages do not conflict: `libcudart.so.13` becomes `libcudart-0a1b2c3d.so.13.0.96` (auditwheel) or
//! `libcudart.0a1b2c3d.so.13` (PyTorch's scripts). A program can also open a file by its full version, or by no
//! version.

use std::ffi::c_char;

use crate::{equals, read};

/// The fewest digits of a renamed library's hash; the tools take eight.
const HASH_DIGITS: usize = 6;

/// The parts of `lib*.so*`, as offsets in a file name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Parts {
    /// The end of the name proper, `libcudart`.
    pub stem: usize,
    /// The start of `.so`; after a hash if there is one.
    pub suffix: usize,
    /// The end of the file name.
    pub end: usize,
}

impl Parts {
    /// The parts of a file name; `None` if it is not a library's.
    ///
    /// # Safety
    /// `length` bytes are there.
    pub unsafe fn of(name: *const c_char, length: usize) -> Option<Self> {
        // SAFETY: the caller's promise, and no index reaches `length`.
        unsafe {
            if length < 6 || !equals(name, 3, b"lib") {
                return None;
            }
            let suffix = (3..length - 2).find(|at| {
                equals(name.add(*at), 3, b".so") && (at + 3 == length || read(name, at + 3) == b'.')
            })?;
            Some(Self {
                stem: hash_before(name, suffix).unwrap_or(suffix),
                suffix,
                end: length,
            })
        }
    }

    /// Whether this is a name as libraries are called by others: no hash, and one number of a version.
    ///
    /// # Safety
    /// The name that the parts are of.
    pub unsafe fn is_plain(&self, name: *const c_char) -> bool {
        // SAFETY: the caller's promise.
        let has_one = self.has_version() && unsafe { self.shorter(name) }.is_none();
        self.stem == self.suffix && has_one
    }

    /// Whether there is a version behind `.so`.
    pub fn has_version(&self) -> bool {
        self.end > self.suffix + 3
    }

    /// The same without the last number of its version; the first number stays.
    ///
    /// # Safety
    /// The name that the parts are of.
    pub unsafe fn shorter(&self, name: *const c_char) -> Option<Self> {
        let first = self.suffix + 3;
        // SAFETY: the caller's promise, and no index reaches the end.
        let dot = (first + 1..self.end)
            .rev()
            .find(|at| unsafe { read(name, *at) } == b'.')?;
        Some(Self { end: dot, ..*self })
    }
}

/// The start of `.0a1b2c3d` or `-0a1b2c3d` that ends at `suffix`.
///
/// # Safety
/// `suffix` bytes are there.
unsafe fn hash_before(name: *const c_char, suffix: usize) -> Option<usize> {
    let mut start = suffix;
    // SAFETY: the caller's promise.
    unsafe {
        while start > 4 && matches!(read(name, start - 1), b'0'..=b'9' | b'a'..=b'f') {
            start -= 1;
        }
        let is_marked = start > 4 && matches!(read(name, start - 1), b'.' | b'-');
        (is_marked && suffix - start >= HASH_DIGITS).then(|| start - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The name that remains of a file's name without the last `left_out` numbers of its version.
    fn plain(name: &str, left_out: usize) -> Option<String> {
        let text = name.as_ptr().cast();
        // SAFETY: the string has that many bytes.
        let mut parts = unsafe { Parts::of(text, name.len()) }?;
        for _ in 0..left_out {
            // SAFETY: the same string.
            parts = unsafe { parts.shorter(text) }?;
        }
        Some(format!(
            "{}{}",
            &name[..parts.stem],
            &name[parts.suffix..parts.end]
        ))
    }

    fn is_plain(name: &str) -> bool {
        let text = name.as_ptr().cast();
        // SAFETY: the string has that many bytes.
        unsafe { Parts::of(text, name.len()).unwrap().is_plain(text) }
    }

    #[test]
    fn library_names_are_told_from_others() {
        for name in [
            "",
            "lib.s",
            "cuda.so.1",
            "libx.a",
            "module.so",
            "libx.sophie",
            "lib",
        ] {
            assert_eq!(plain(name, 0), None, "{name}");
        }
        for name in ["libcuda.so.1", "libcublas.so.13", "libx.so"] {
            assert_eq!(plain(name, 0).as_deref(), Some(name));
        }
        assert!(is_plain("libcuda.so.1") && !is_plain("libcuda.so"));
    }

    #[test]
    fn renamed_copies_and_full_versions_have_their_plain_names() {
        for (name, left_out, expected) in [
            ("libcudart.faf08d9a.so.13", 0, "libcudart.so.13"),
            ("libcudart-d0da41ae.so.12.4.127", 2, "libcudart.so.12"),
            ("libcublasLt-0123456789abcdef.so", 0, "libcublasLt.so"),
            ("libnvjpeg.36e11081.so.13", 0, "libnvjpeg.so.13"),
            ("libnvjpeg-0a1b2c3d.so.12.4.0.76", 3, "libnvjpeg.so.12"),
            ("libcudart.so.13.0.96", 1, "libcudart.so.13.0"),
            ("libcudart.so.13.0.96", 2, "libcudart.so.13"),
        ] {
            assert_eq!(plain(name, left_out).as_deref(), Some(expected), "{name}");
            assert!(!is_plain(name), "{name}");
        }
        assert_eq!(plain("libcudart.so.13", 1), None);
        assert_eq!(plain("libcudart.so", 1), None);
    }

    #[test]
    fn words_are_no_hashes() {
        for name in [
            "libtorch-global.so",
            "libfacade.so.1",
            "lib-facade1.so",
            "libx-12.so",
            "libx.ABCDEF12.so",
        ] {
            assert_eq!(plain(name, 0).as_deref(), Some(name));
        }
    }
}
