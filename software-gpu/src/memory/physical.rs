// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Physical memory without an address: `cuMemCreate` makes it, the program maps it, and another process imports it by a
//! file descriptor.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::sync::{Arc, LazyLock, Weak};

use gpgpu_locks::Mutex;
use gpgpu_protocol::cuda::{
    CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_OUT_OF_MEMORY,
    CUdevice, CUmemAllocationHandleType,
};

use super::space::Space;
use crate::config::GRANULARITY;
use crate::ffi::Result;
use crate::handle::Table;

/// Every handle of `cuMemCreate` and `cuMemImportFromShareableHandle`.
static HANDLES: Table<Handle> = Table::new(0x9e);

// By device and inode, so that a process that imports its own memory does not count it twice.
static KNOWN: LazyLock<Mutex<HashMap<Key, Weak<Physical>>>> = LazyLock::new(Mutex::default);

type Key = (u64, u64);

/// No process may change the size: an importer's access past the end would kill it.
const SEALS: i32 = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;

/// Bytes of the device's memory that are given back with it.
#[derive(Debug)]
pub struct Charge {
    space: Arc<Mutex<Space>>,
    bytes: u64,
}

impl Charge {
    /// Counts `bytes` as used, or returns `None` if there is not enough memory.
    pub fn new(space: &Arc<Mutex<Space>>, bytes: u64) -> Option<Self> {
        let taken = space.lock().charge(bytes);
        taken.then(|| Self {
            space: space.clone(),
            bytes,
        })
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.space.lock().discharge(self.bytes);
    }
}

/// Physical memory. It lives as long as a handle, a mapping or another process's import.
#[derive(Debug)]
pub struct Physical {
    file: OwnedFd,
    size: u64,
    device: CUdevice,
    handle_types: CUmemAllocationHandleType,
    // None for memory of another process, which counts it.
    _charge: Option<Charge>,
}

fn key(file: &File) -> io::Result<Key> {
    let metadata = file.metadata()?;
    Ok((metadata.dev(), metadata.ino()))
}

fn fcntl(file: BorrowedFd<'_>, command: i32, argument: i32) -> io::Result<i32> {
    // SAFETY: the commands used here take an integer or nothing, and the descriptor is open.
    match unsafe { libc::fcntl(file.as_raw_fd(), command, argument) } {
        -1 => Err(io::Error::last_os_error()),
        answer => Ok(answer),
    }
}

impl Physical {
    fn make_file(size: u64) -> io::Result<File> {
        // SAFETY: a constant string that ends in NUL.
        let fd = unsafe {
            libc::memfd_create(
                c"gpgpu-device-memory".as_ptr(),
                libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING,
            )
        };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the descriptor is new, and no other code has it.
        let file = unsafe { File::from_raw_fd(fd) };
        file.set_len(size)?;
        fcntl(file.as_fd(), libc::F_ADD_SEALS, SEALS)?;
        Ok(file)
    }

    /// Makes memory of `size` bytes, zeroed; pages are allocated when they are written.
    ///
    /// # Errors
    /// `CUDA_ERROR_OUT_OF_MEMORY`.
    pub fn create(
        size: u64,
        device: CUdevice,
        handle_types: CUmemAllocationHandleType,
        charge: Charge,
    ) -> Result<Arc<Self>> {
        let file = Self::make_file(size).map_err(|_| CUDA_ERROR_OUT_OF_MEMORY)?;
        let key = key(&file).map_err(|_| CUDA_ERROR_OUT_OF_MEMORY)?;
        let physical = Arc::new(Self {
            file: file.into(),
            size,
            device,
            handle_types,
            _charge: Some(charge),
        });
        Self::know(key, || Ok(physical))
    }

    /// The memory behind a descriptor that [`Physical::export`] made, here or in another process. The caller keeps the
    /// descriptor.
    ///
    /// # Errors
    /// `CUDA_ERROR_INVALID_VALUE` for any other file.
    pub fn import(fd: BorrowedFd<'_>) -> Result<Arc<Self>> {
        let invalid = |_| CUDA_ERROR_INVALID_VALUE;
        let seals = fcntl(fd, libc::F_GET_SEALS, 0).map_err(invalid)?;
        let mode = fcntl(fd, libc::F_GETFL, 0).map_err(invalid)?;
        if seals & SEALS != SEALS
            || seals & libc::F_SEAL_WRITE != 0
            || mode & libc::O_ACCMODE != libc::O_RDWR
        {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let file = File::from(
            fd.try_clone_to_owned()
                .map_err(|_| CUDA_ERROR_OUT_OF_MEMORY)?,
        );
        let size = file.metadata().map_err(invalid)?.len();
        if size == 0 || !size.is_multiple_of(GRANULARITY) {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let key = key(&file).map_err(invalid)?;
        Self::know(key, || {
            Ok(Arc::new(Self {
                file: file.into(),
                size,
                // The file does not contain it.
                device: 0,
                handle_types: CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                _charge: None,
            }))
        })
    }

    // The memory of `key`, or else the result of `make`.
    fn know(key: Key, make: impl FnOnce() -> Result<Arc<Self>>) -> Result<Arc<Self>> {
        let mut known = KNOWN.lock();
        if let Some(physical) = known.get(&key).and_then(Weak::upgrade) {
            return Ok(physical);
        }
        known.retain(|_, p| p.strong_count() > 0);
        let physical = make()?;
        known.insert(key, Arc::downgrade(&physical));
        Ok(physical)
    }

    /// Bytes.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// The device whose memory it is; of an import, the first.
    pub fn device(&self) -> CUdevice {
        self.device
    }

    /// The handle types for export.
    pub fn handle_types(&self) -> CUmemAllocationHandleType {
        self.handle_types
    }

    /// The file whose pages it is.
    pub fn file(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// A descriptor for another process; the caller closes it.
    ///
    /// # Errors
    /// `CUDA_ERROR_OUT_OF_MEMORY` if the process can have no more.
    pub fn export(&self) -> Result<OwnedFd> {
        self.file.try_clone().map_err(|_| CUDA_ERROR_OUT_OF_MEMORY)
    }
}

/// A handle of physical memory, with the program's references and the mappings made with it. The number stays in use
/// while there is a mapping, because `cuMemRetainAllocationHandle` may return it to the program.
#[derive(Debug)]
pub struct Handle {
    number: u64,
    physical: Arc<Physical>,
    uses: Mutex<Uses>,
}

#[derive(Debug)]
struct Uses {
    references: u32,
    mappings: u32,
}

impl Handle {
    /// A new handle, with one reference.
    pub fn announce(physical: Arc<Physical>) -> u64 {
        let handle = HANDLES.insert_with(|number| Self {
            number,
            physical,
            uses: Mutex::new(Uses {
                references: 1,
                mappings: 0,
            }),
        });
        handle.number
    }

    /// The handle that the program names, while it holds a reference.
    ///
    /// # Errors
    /// `CUDA_ERROR_INVALID_VALUE`.
    pub fn named(number: u64) -> Result<Arc<Self>> {
        HANDLES
            .get(number)
            .filter(|h| h.uses().references > 0)
            .ok_or(CUDA_ERROR_INVALID_VALUE)
    }

    fn uses(&self) -> gpgpu_locks::MutexGuard<'_, Uses> {
        self.uses.lock()
    }

    // Changes the counts unless `change` refuses, and lets the number go with the last use.
    fn count(&self, change: impl FnOnce(&mut Uses) -> Result) -> Result {
        let unused = {
            let mut uses = self.uses();
            change(&mut uses)?;
            uses.references == 0 && uses.mappings == 0
        };
        if unused {
            HANDLES.remove(self.number);
        }
        Ok(())
    }

    /// The memory.
    pub fn physical(&self) -> &Arc<Physical> {
        &self.physical
    }

    /// Adds a reference and returns the number.
    ///
    /// # Errors
    /// `CUDA_ERROR_INVALID_VALUE` if the last use has ended meanwhile.
    pub fn retain(&self) -> Result<u64> {
        let mut uses = self.uses();
        if uses.references == 0 && uses.mappings == 0 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        uses.references += 1;
        Ok(self.number)
    }

    /// `cuMemRelease`.
    ///
    /// # Errors
    /// `CUDA_ERROR_INVALID_VALUE` if there was no reference left.
    pub fn release(&self) -> Result {
        self.count(|uses| {
            let left = uses.references.checked_sub(1);
            uses.references = left.ok_or(CUDA_ERROR_INVALID_VALUE)?;
            Ok(())
        })
    }

    /// Counts a mapping.
    ///
    /// # Errors
    /// `CUDA_ERROR_INVALID_VALUE` if the program has released the handle meanwhile.
    pub(super) fn mapped(&self) -> Result {
        let mut uses = self.uses();
        if uses.references == 0 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        uses.mappings += 1;
        Ok(())
    }

    /// Counts the end of a mapping.
    pub(super) fn unmapped(&self) {
        let _ = self.count(|uses| {
            uses.mappings -= 1;
            Ok(())
        });
    }
}
