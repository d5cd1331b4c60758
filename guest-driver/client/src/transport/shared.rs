// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The memory that this process shares with the device process if there is no VM. It replaces a guest's RAM.

use std::{
    collections::BTreeMap,
    ffi::c_void,
    fs::File,
    io,
    os::{
        fd::{AsRawFd, FromRawFd},
        unix::fs::{FileExt, MetadataExt},
    },
    ptr::NonNull,
};

use gpgpu_locks::Mutex;

use super::{Failure, files, window};

/// The number of bytes at the start that are reserved for the virtqueues and their buffers; the rest is for pinned
/// memory.
pub const RESERVED_BYTES: u64 = 80 << 20;
const PAGE: u64 = 4096;
/// The size of a huge page. Parts of at least this size are aligned to it.
const HUGE_PAGE: u64 = 2 << 20;
/// The size of a stack on which a thread exchanges its own one, in bytes.
const OTHER_STACK: usize = 256 << 10;

/// The shared memory.
pub struct Shared {
    file: File,
    base: NonNull<u8>,
    bytes: u64,
    free: Mutex<BTreeMap<u64, u64>>,
}

// SAFETY: the mapping lives as long as this; `free` is locked, and a part of the memory is used only by its holder.
unsafe impl Send for Shared {}
// SAFETY: as above.
unsafe impl Sync for Shared {}

impl Drop for Shared {
    fn drop(&mut self) {
        // SAFETY: the mapping is this one's own, and no longer in use.
        unsafe { libc::munmap(self.base.as_ptr().cast(), RESERVED_BYTES as usize) };
    }
}

/// The size in bytes that this process's files may have.
fn longest_file() -> u64 {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: the pointer is to a value that lives across the call.
    match unsafe { libc::getrlimit(libc::RLIMIT_FSIZE, &mut limit) } {
        0 => limit.rlim_cur,
        _ => u64::MAX,
    }
}

impl Shared {
    /// Shared memory as large as the host's RAM; pages are allocated at their first use.
    pub fn new() -> io::Result<Self> {
        // SAFETY: no arguments that point anywhere.
        let ram =
            unsafe { libc::sysconf(libc::_SC_PHYS_PAGES) * libc::sysconf(libc::_SC_PAGESIZE) };
        let wanted = (ram.max(1 << 30) as u64).next_multiple_of(1 << 30) + RESERVED_BYTES;
        // The kernel ends a process that makes a file larger than its limit allows (SIGXFSZ), also one without a name.
        let bytes = wanted.min(longest_file() & !(PAGE - 1));
        if bytes < RESERVED_BYTES {
            return Err(io::Error::other(format!(
                "the limit of the size of files (ulimit -f) is below {} MiB",
                RESERVED_BYTES >> 20
            )));
        }
        // SAFETY: the name is NUL-terminated; the descriptor is checked before it is owned.
        let file = unsafe {
            let fd = libc::memfd_create(
                c"virtio-gpgpu".as_ptr(),
                libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING,
            );
            if fd < 0 {
                return Err(io::Error::last_os_error());
            }
            File::from_raw_fd(fd)
        };
        file.set_len(bytes)?;
        // The seal ensures that the file cannot shrink under the device process.
        // SAFETY: the descriptor is open.
        if unsafe {
            libc::fcntl(
                file.as_raw_fd(),
                libc::F_ADD_SEALS,
                libc::F_SEAL_SHRINK | libc::F_SEAL_GROW,
            )
        } < 0
        {
            return Err(io::Error::last_os_error());
        }
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice.
        let base = unsafe {
            let flags = libc::MAP_SHARED | libc::MAP_NORESERVE;
            libc::mmap(
                std::ptr::null_mut(),
                RESERVED_BYTES as usize,
                protection,
                flags,
                file.as_raw_fd(),
                0,
            )
        };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: advice about the mapping just made: a forked child must not reach the queues.
        unsafe { libc::madvise(base, RESERVED_BYTES as usize, libc::MADV_DONTFORK) };
        let base =
            NonNull::new(base.cast()).ok_or_else(|| io::Error::from_raw_os_error(libc::ENOMEM))?;
        let free = Mutex::new(BTreeMap::from([(RESERVED_BYTES, bytes - RESERVED_BYTES)]));
        Ok(Self {
            file,
            base,
            bytes,
            free,
        })
    }

    /// The file that the device process maps.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// The file's device and inode numbers.
    pub fn identity(&self) -> Option<(u64, u64)> {
        let data = self.file.metadata().ok()?;
        Some((data.dev(), data.ino()))
    }

    /// The size in bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The address of the byte at `offset`, which must be in the reserved part.
    pub fn at(&self, offset: u64) -> *mut u8 {
        debug_assert!(offset < RESERVED_BYTES);
        self.base.as_ptr().wrapping_add(offset as usize)
    }

    /// Allocates `bytes` bytes, a multiple of the page size, filled with zeros. Returns their offset.
    pub fn take(&self, bytes: u64) -> Result<u64, Failure> {
        let alignment = if bytes >= HUGE_PAGE { HUGE_PAGE } else { PAGE };
        let mut free = self.free.lock();
        let found = free
            .iter()
            .map(|(start, length)| (*start, *length))
            .find_map(|(start, length)| {
                let aligned = start.next_multiple_of(alignment);
                (aligned + bytes <= start + length).then_some((start, length, aligned))
            });
        let (start, length, aligned) = found.ok_or(Failure::Os(libc::ENOMEM))?;
        free.remove(&start);
        if aligned > start {
            free.insert(start, aligned - start);
        }
        if start + length > aligned + bytes {
            free.insert(aligned + bytes, start + length - aligned - bytes);
        }
        Ok(aligned)
    }

    /// Returns bytes to the host.
    pub fn give_back(&self, offset: u64, bytes: u64) {
        let punch = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
        // SAFETY: the descriptor is open; the range was taken and is not in use now.
        unsafe { libc::fallocate(self.file.as_raw_fd(), punch, offset as i64, bytes as i64) };
        let mut free = self.free.lock();
        let (mut start, mut length) = (offset, bytes);
        if let Some((before, size)) = free.range(..offset).next_back().map(|(a, b)| (*a, *b))
            && before + size == offset
        {
            free.remove(&before);
            (start, length) = (before, size + length);
        }
        if let Some(size) = free.remove(&(offset + bytes)) {
            length += size;
        }
        free.insert(start, length);
    }

    /// Maps a part in the window for pinned memory.
    pub fn map(&self, offset: u64, bytes: usize) -> Result<*mut c_void, Failure> {
        let memory = window::map(bytes, Some((self.file.as_raw_fd(), offset)))?;
        if bytes as u64 >= HUGE_PAGE {
            // This has an effect if the host allows huge pages for shared memory (shmem_enabled). The worker gives the
            // same advice.
            // SAFETY: advice about a range that was just mapped.
            unsafe { libc::madvise(memory, bytes, libc::MADV_HUGEPAGE) };
        }
        Ok(memory)
    }

    /// Replaces the program's own pages by a part of the memory, with their contents.
    ///
    /// Concurrent writes of other threads to these pages can be lost. A program that writes to memory while it
    /// registers the memory can rely on neither content. In a VM the pages are not replaced.
    pub fn replace(
        &self,
        offset: u64,
        address: u64,
        bytes: usize,
        read_only: bool,
    ) -> Result<(), Failure> {
        let known = files::protection(address, bytes as u64);
        let known = known.map_err(|()| Failure::Os(libc::EFAULT))?;
        // Writes to a file on a disk would not reach it any more.
        if known.is_some_and(|of| of.is_of_file || !read_only && !of.is_writable) {
            return Err(Failure::Os(libc::EFAULT));
        }
        let usual = libc::PROT_READ | libc::PROT_WRITE;
        let protection = known.map_or(usual, |of| of.bits);
        if !read_only {
            // SAFETY: faults the program's own pages in; their content stays.
            let writable =
                unsafe { libc::madvise(address as *mut c_void, bytes, libc::MADV_POPULATE_WRITE) };
            if writable != 0 && Failure::last() != Failure::Os(libc::EINVAL) {
                return Err(Failure::Os(libc::EFAULT));
            }
        }
        beside_stack(address, bytes, || {
            self.replace_now(offset, address, bytes, protection)
        })
    }

    fn replace_now(
        &self,
        offset: u64,
        address: u64,
        bytes: usize,
        protection: i32,
    ) -> Result<(), Failure> {
        let mut replaced = forks::replaced();
        self.file.write_all_at(
            // SAFETY: the program vouches that the memory is readable.
            unsafe { std::slice::from_raw_parts(address as *const u8, bytes) },
            offset,
        )?;
        let flags = libc::MAP_SHARED | libc::MAP_FIXED;
        // SAFETY: the range is the program's own memory, which it registers; its content is the same after.
        let mapped = unsafe {
            libc::mmap(
                address as *mut c_void,
                bytes,
                protection,
                flags,
                self.file.as_raw_fd(),
                offset as i64,
            )
        };
        if mapped == libc::MAP_FAILED {
            return Err(Failure::last());
        }
        replaced.insert(address, Replaced { bytes, protection });
        Ok(())
    }

    /// Undoes [`Shared::replace`]: private pages with the contents and the protection of the shared ones.
    pub fn restore(&self, address: u64, bytes: usize) {
        beside_stack(address, bytes, || {
            let mut replaced = forks::replaced();
            // If there is no room for a copy, the pages stay shared, which the program does not notice.
            if let Some(of) = replaced.remove(&address)
                && let Some(copy) = private_copy(address, of)
            {
                put(copy, address, of.bytes);
            }
        });
    }
}

/// Calls `exchange`, which exchanges pages of the program for copies. What a thread writes to its stack between the copy
/// and the exchange is lost. So if the calling thread's stack is in them, it does so on another stack. A second thread
/// would not do: this one would write to its stack while it begins to wait for that.
fn beside_stack<T>(address: u64, bytes: usize, exchange: impl FnOnce() -> T) -> T {
    let here = 0_u8;
    let is_here = (&raw const here as u64).wrapping_sub(address) < bytes as u64;
    match is_here {
        true => stacker::grow(OTHER_STACK, exchange),
        false => exchange(),
    }
}

/// Pages of the program that shared ones have replaced.
#[derive(Debug, Clone, Copy)]
struct Replaced {
    bytes: usize,
    /// The protection of the pages, as bits of `mmap(2)`.
    protection: i32,
}

/// A private copy of such pages at another address.
fn private_copy(address: u64, of: Replaced) -> Option<*mut c_void> {
    let (protection, flags) = (
        libc::PROT_READ | libc::PROT_WRITE,
        libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
    );
    // SAFETY: a new mapping at an address of the kernel's choice, filled from memory that is mapped.
    unsafe {
        let copy = libc::mmap(std::ptr::null_mut(), of.bytes, protection, flags, -1, 0);
        if copy == libc::MAP_FAILED {
            return None;
        }
        std::ptr::copy_nonoverlapping(address as *const u8, copy.cast::<u8>(), of.bytes);
        if of.protection != protection {
            libc::mprotect(copy, of.bytes, of.protection);
        }
        Some(copy)
    }
}

/// Moves a copy to the address of the original.
fn put(copy: *mut c_void, address: u64, bytes: usize) {
    let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
    // SAFETY: the copy has the content of the range that it takes the place of.
    unsafe { libc::mremap(copy, bytes, bytes, flags, address as *mut c_void) };
}

/// Handles forks with replaced pages: the child must get copies of its own, as of any private memory, and later writes
/// of either process must not affect the other.
mod forks {
    use std::{cell::RefCell, collections::BTreeMap, ffi::c_void, sync::Once};

    use gpgpu_locks::{Mutex, MutexGuard};

    use super::Replaced;

    static REPLACED: Mutex<BTreeMap<u64, Replaced>> = Mutex::new(BTreeMap::new());

    type Held = (
        MutexGuard<'static, BTreeMap<u64, Replaced>>,
        Vec<(*mut c_void, u64, usize)>,
    );

    thread_local! {
        static HELD: RefCell<Option<Held>> = const { RefCell::new(None) };
    }

    fn locked() -> MutexGuard<'static, BTreeMap<u64, Replaced>> {
        REPLACED.lock()
    }

    /// The replaced pages, by their addresses.
    pub fn replaced() -> MutexGuard<'static, BTreeMap<u64, Replaced>> {
        static WATCH: Once = Once::new();
        // SAFETY: the handlers are functions without arguments.
        WATCH.call_once(|| unsafe {
            libc::pthread_atfork(Some(prepare), Some(in_parent), Some(in_child));
        });
        locked()
    }

    extern "C" fn prepare() {
        let replaced = locked();
        let copies = replaced
            .iter()
            .filter_map(|(address, of)| {
                Some((super::private_copy(*address, *of)?, *address, of.bytes))
            })
            .collect();
        let _ = HELD.try_with(|held| held.replace(Some((replaced, copies))));
    }

    extern "C" fn in_parent() {
        if let Ok(Some((_, copies))) = HELD.try_with(RefCell::take) {
            for (copy, _, bytes) in copies {
                // SAFETY: a mapping that `prepare` made and no other code knows.
                unsafe { libc::munmap(copy, bytes) };
            }
        }
    }

    extern "C" fn in_child() {
        if let Ok(Some((_, copies))) = HELD.try_with(RefCell::take) {
            for (copy, address, bytes) in copies {
                super::put(copy, address, bytes);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_do_not_overlap_and_come_back() {
        let shared = Shared::new().unwrap();
        let (a, b) = (shared.take(PAGE).unwrap(), shared.take(HUGE_PAGE).unwrap());
        assert!(a >= RESERVED_BYTES && b.is_multiple_of(HUGE_PAGE) && b >= a + PAGE);
        let c = shared.take(PAGE).unwrap();
        assert!(c != a && !(b..b + HUGE_PAGE).contains(&c));
        for (offset, bytes) in [(a, PAGE), (b, HUGE_PAGE), (c, PAGE)] {
            shared.give_back(offset, bytes);
        }
        let free = shared.free.lock().clone();
        assert_eq!(
            free,
            BTreeMap::from([(RESERVED_BYTES, shared.bytes - RESERVED_BYTES)])
        );
        assert_eq!(shared_take_all(&shared), RESERVED_BYTES);
    }

    fn shared_take_all(shared: &Shared) -> u64 {
        shared.take(shared.bytes - RESERVED_BYTES).unwrap()
    }

    #[test]
    fn pitfall_15_pages_that_change_places_keep_their_content_and_their_neighbours() {
        let shared = Shared::new().unwrap();
        // SAFETY: a new private mapping of three pages.
        let memory = unsafe {
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
            libc::mmap(
                std::ptr::null_mut(),
                3 * 4096,
                libc::PROT_READ | libc::PROT_WRITE,
                flags,
                -1,
                0,
            )
            .cast::<u8>()
        };
        // SAFETY: the mapping is this test's alone.
        let bytes = unsafe { std::slice::from_raw_parts_mut(memory, 3 * 4096) };
        bytes.fill(7);
        let offset = shared.take(PAGE).unwrap();
        shared
            .replace(offset, memory as u64 + 4096, 4096, false)
            .unwrap();
        assert!(bytes.iter().all(|byte| *byte == 7));
        shared.file.write_all_at(&[9], offset + 5).unwrap();
        assert_eq!(bytes[4096 + 5], 9);
        shared.restore(memory as u64 + 4096, 4096);
        assert_eq!((bytes[4096 + 5], bytes[4095], bytes[8192]), (9, 7, 7));
        shared.file.write_all_at(&[1], offset + 5).unwrap();
        assert_eq!(bytes[4096 + 5], 9);
    }

    #[test]
    fn pitfall_15_pages_keep_their_protection_and_what_a_device_may_not_write_is_refused() {
        let shared = Shared::new().unwrap();
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        let usual = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: new mappings at addresses of the kernel's choice, and the protection of the test's own page.
        let memory = unsafe {
            let memory = libc::mmap(std::ptr::null_mut(), 2 * 4096, usual, flags, -1, 0);
            libc::mprotect(memory.wrapping_byte_add(4096), 4096, libc::PROT_READ);
            memory as u64
        };
        let offset = shared.take(2 * PAGE).unwrap();
        let refused = Err(Failure::Os(libc::EFAULT));
        assert_eq!(shared.replace(offset, memory, 8192, false), refused);
        assert_eq!(shared.replace(offset, memory + 4096, 4096, false), refused);
        let is_writable = |at| files::protection(at, 4096).unwrap().unwrap().is_writable;
        shared.replace(offset, memory + 4096, 4096, true).unwrap();
        assert!(!is_writable(memory + 4096));
        shared.restore(memory + 4096, 4096);
        assert!(!is_writable(memory + 4096) && is_writable(memory));
        // A device's reads of memory that the program writes do not stop the program.
        shared.replace(offset, memory, 4096, true).unwrap();
        assert!(is_writable(memory));
        shared.restore(memory, 4096);

        let file = tempfile();
        // SAFETY: a new mapping at an address of the kernel's choice.
        let mapped = unsafe {
            let fd = file.as_raw_fd();
            libc::mmap(std::ptr::null_mut(), 4096, usual, libc::MAP_SHARED, fd, 0)
        } as u64;
        assert_eq!(shared.replace(offset, mapped, 4096, false), refused);
        assert_eq!(shared.replace(offset, mapped, 4096, true), refused);
        assert!(is_writable(mapped));
        // Parts that are not mapped at all.
        // SAFETY: the test's own mapping.
        unsafe { libc::munmap(mapped as *mut c_void, 4096) };
        assert_eq!(shared.replace(offset, mapped, 4096, true), refused);
    }

    /// A file of one page, whose name is gone.
    fn tempfile() -> File {
        let path = std::env::temp_dir().join(format!("gpgpu-shared-{}", std::process::id()));
        let mut options = File::options();
        let file = options.read(true).write(true).create_new(true).open(&path);
        std::fs::remove_file(&path).unwrap();
        let file = file.unwrap();
        file.set_len(4096).unwrap();
        file
    }

    #[test]
    fn pitfall_15_a_threads_own_stack_is_exchanged() {
        let shared = Shared::new().unwrap();
        let offset = shared.take(16 * PAGE).unwrap();
        let words = [7_u64; 4096];
        let start = (&raw const words as u64 & !4095) - 4 * PAGE;
        let bytes = 8 * 4096;
        for _ in 0..50 {
            shared.replace(offset, start, bytes, false).unwrap();
            shared.restore(start, bytes);
        }
        assert!(words.iter().all(|word| *word == 7));
    }
}
