// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! A value of atomic words in a sealed memfd.

use std::{
    ffi::CStr, fs::File, io, num::NonZeroUsize, ops::Deref, os::fd::AsFd, ptr::NonNull, sync::Arc,
};

use nix::{
    fcntl::{FcntlArg, SealFlag, fcntl},
    sys::mman::{MapFlags, ProtFlags, mmap, munmap},
};

use crate::ipc;

/// A type that consists of atomic integers only.
///
/// # Safety
/// Every bit pattern is a value of it, and all of it can be changed through a shared reference.
pub unsafe trait Words: Sized + Sync {}

/// Such a value in memory that several processes map.
#[derive(Debug)]
pub struct Shared<T: Words> {
    words: NonNull<T>,
    file: Arc<File>,
}

// SAFETY: the mapping is the process's, whichever thread has it, and the words are for all threads.
unsafe impl<T: Words> Send for Shared<T> {}
// SAFETY: as above.
unsafe impl<T: Words> Sync for Shared<T> {}

const BOTH: ProtFlags = ProtFlags::PROT_READ.union(ProtFlags::PROT_WRITE);

/// Checks that a file cannot become shorter: an access to a page that is gone would end this process.
fn check_seal(file: &File) -> io::Result<()> {
    let seals = SealFlag::from_bits_retain(fcntl(file, FcntlArg::F_GET_SEALS)?);
    match seals.contains(SealFlag::F_SEAL_SHRINK) {
        true => Ok(()),
        false => Err(io::ErrorKind::PermissionDenied.into()),
    }
}

impl<T: Words> Shared<T> {
    /// New memory, filled with zeros.
    ///
    /// # Errors
    /// The host is out of memory or file descriptors.
    pub fn new(name: &CStr) -> io::Result<Self> {
        let file = ipc::sealed_memfd(name, size_of::<T>() as u64)?;
        Self::map_as(Arc::new(file), BOTH)
    }

    /// The same, but every other process can map it only for reading.
    ///
    /// # Errors
    /// As [`Self::new`]; also on a kernel older than Linux 5.1.
    pub fn new_for_readers(name: &CStr) -> io::Result<Self> {
        let file = ipc::memfd(name, size_of::<T>() as u64)?;
        let shared = Self::map_as(Arc::new(file), BOTH)?;
        // The seal does not affect this mapping, which already exists.
        let readers = SealFlag::from_bits_retain(libc::F_SEAL_FUTURE_WRITE);
        ipc::seal(&shared.file, readers)?;
        Ok(shared)
    }

    /// Maps memory that another process has made.
    ///
    /// # Errors
    /// The memory is too short, is not sealed against shrinking, or cannot be mapped.
    pub fn map(file: Arc<File>) -> io::Result<Self> {
        check_seal(&file)?;
        Self::map_as(file, BOTH)
    }

    /// Maps memory that another process has made, for reading only.
    ///
    /// # Errors
    /// As [`Self::map`].
    pub(super) fn map_to_read(file: Arc<File>) -> io::Result<Self> {
        check_seal(&file)?;
        Self::map_as(file, ProtFlags::PROT_READ)
    }

    /// Maps memory that is sealed against shrinking, or will be before any other process has it.
    fn map_as(file: Arc<File>, protection: ProtFlags) -> io::Result<Self> {
        let length = const { NonZeroUsize::new(size_of::<T>()).expect("not empty") };
        if file.metadata()?.len() < length.get() as u64 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        // SAFETY: a new mapping, at an address of the kernel's choice.
        let words = unsafe {
            mmap(
                None,
                length,
                protection,
                MapFlags::MAP_SHARED,
                file.as_fd(),
                0,
            )?
        };
        Ok(Self {
            words: words.cast(),
            file,
        })
    }

    /// The memfd, to be passed to other processes.
    pub fn file(&self) -> &Arc<File> {
        &self.file
    }
}

impl<T: Words> Deref for Shared<T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: mapped while `self` lives, at a page's start and so aligned, as long as the type, and sealed, so
        // that it stays as long; other processes change it as atomic words alone.
        unsafe { self.words.as_ref() }
    }
}

impl<T: Words> Drop for Shared<T> {
    fn drop(&mut self) {
        // SAFETY: the mapping is this value's own, and nothing borrows from it any more.
        let _ = unsafe { munmap(self.words.cast(), size_of::<T>()) };
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU64;

    use super::*;

    struct Word {
        _word: AtomicU64,
    }

    // SAFETY: an atomic word.
    unsafe impl Words for Word {}

    #[test]
    fn memory_that_could_shrink_is_refused() {
        let file = ipc::memfd(c"test", 4096).unwrap();
        let file = Arc::new(file);
        assert!(Shared::<Word>::map(Arc::clone(&file)).is_err());
        assert!(Shared::<Word>::map_to_read(Arc::clone(&file)).is_err());
        ipc::seal(&file, SealFlag::empty()).unwrap();
        assert!(Shared::<Word>::map(file).is_ok());
        let other = Arc::new(tempfile::tempfile().unwrap());
        other.set_len(4096).unwrap();
        assert!(Shared::<Word>::map(other).is_err(), "it has no seals");
    }
}
