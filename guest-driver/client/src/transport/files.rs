// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The program's mappings, and the in-memory files that it has mapped as shared: POSIX shared memory, memfds, huge
//! pages.

use std::{
    fs::{self, File},
    io::{BufRead, BufReader},
    os::{fd::AsRawFd, unix::fs::MetadataExt},
    path::{Path, PathBuf},
};

/// The part of a file that is mapped at a range of addresses.
#[derive(Debug)]
pub struct Mapped {
    /// The file, open for reading and writing.
    pub file: File,
    /// Its device and inode numbers.
    pub identity: (u64, u64),
    /// The offset of the part in the file, in bytes.
    pub offset: u64,
    /// The page size of the file. Its mappings are multiples of it.
    pub page: u64,
}

/// A line of `/proc/self/maps`.
#[derive(Debug, PartialEq, Eq)]
struct Line {
    start: u64,
    end: u64,
    writable: bool,
    executable: bool,
    shared: bool,
    offset: u64,
    /// Device and inode numbers.
    identity: (u64, u64),
    path: String,
}

impl Line {
    /// Whether it is of a file of a file system on a disk.
    fn is_on_disk(&self) -> bool {
        const IN_MEMORY: [&str; 4] = ["/dev/zero", "/dev/shm/", "/memfd:", "/SYSV"];
        self.identity.1 != 0 && !IN_MEMORY.iter().any(|path| self.path.starts_with(path))
    }

    /// Parses a line (`proc_pid_maps(5)`).
    fn parse(line: &str) -> Option<Self> {
        // Only the path, the last field, may contain spaces.
        let mut fields = line.splitn(6, ' ');
        let mut next = || fields.next();
        let hex = |text: &str| u64::from_str_radix(text, 16).ok();
        let (start, end) = next()?.split_once('-')?;
        let permissions = next()?;
        let offset = hex(next()?)?;
        let (major, minor) = next()?.split_once(':')?;
        let inode = next()?.parse().ok()?;
        let device = libc::makedev(hex(major)? as u32, hex(minor)? as u32);
        Some(Self {
            start: hex(start)?,
            end: hex(end)?,
            writable: permissions.as_bytes().get(1) == Some(&b'w'),
            executable: permissions.as_bytes().get(2) == Some(&b'x'),
            shared: permissions.ends_with('s'),
            offset,
            identity: (device, inode),
            path: next().unwrap_or_default().trim_start().to_owned(),
        })
    }
}

/// The protection of a range of addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Protection {
    /// Whether all of it may be written.
    pub is_writable: bool,
    /// The bits of `mmap(2)` that allow what any page of it allows.
    pub bits: i32,
    /// Whether writes go to a file on a disk.
    pub is_of_file: bool,
}

impl Protection {
    fn of(maps: impl Iterator<Item = Line>, (start, end): (u64, u64)) -> Option<Self> {
        let mut all = Self {
            is_writable: true,
            bits: libc::PROT_READ,
            is_of_file: false,
        };
        let mut at = start;
        for line in maps.skip_while(|line| line.end <= start) {
            if line.start > at {
                return None;
            }
            all.is_writable &= line.writable;
            all.is_of_file |= line.shared && line.writable && line.is_on_disk();
            if line.writable {
                all.bits |= libc::PROT_WRITE;
            }
            if line.executable {
                all.bits |= libc::PROT_EXEC;
            }
            if line.end >= end {
                return Some(all);
            }
            at = line.end;
        }
        None
    }
}

/// The process's mappings, by their addresses; `None` without `/proc`.
fn maps() -> Option<impl Iterator<Item = Line>> {
    let lines = BufReader::new(File::open("/proc/self/maps").ok()?).lines();
    Some(lines.map_while(|line| Line::parse(&line.ok()?)))
}

/// The protection of a range of addresses.
///
/// # Errors
///
/// Not all of it is mapped. Without `/proc` there is no answer, which is `Ok(None)`.
pub fn protection(address: u64, bytes: u64) -> Result<Option<Protection>, ()> {
    let end = address.checked_add(bytes).ok_or(())?;
    match maps() {
        Some(maps) => Protection::of(maps, (address, end)).map(Some).ok_or(()),
        None => Ok(None),
    }
}

/// The first mapping of a range, if the whole range is one part of one file that is mapped as shared, and writable if
/// `write` is set.
fn first_of(
    maps: impl Iterator<Item = Line>,
    (start, end): (u64, u64),
    write: bool,
) -> Option<Line> {
    let mut first: Option<Line> = None;
    let mut at = start;
    for line in maps.skip_while(|line| line.end <= start) {
        let usable = line.shared && (line.writable || !write) && line.identity.1 != 0;
        if !usable || line.start > at {
            return None;
        }
        let next = line.end;
        match &first {
            None => first = Some(line),
            Some(first) => {
                let expected = first.offset + (line.start - first.start);
                if line.identity != first.identity || line.offset != expected {
                    return None;
                }
            }
        }
        if next >= end {
            return first;
        }
        at = next;
    }
    None
}

/// The file behind a range of addresses, if the whole range is a shared mapping of an in-memory file.
///
/// Devices must not write to files on a disk, because the file system would not notice. A shared mapping without a file
/// can be opened only by a process that may open `/proc/self/map_files`. If a device has to `write`, the program must
/// have mapped the range for writing.
pub fn behind(address: u64, bytes: u64, write: bool) -> Option<Mapped> {
    let end = address.checked_add(bytes)?;
    let line = first_of(maps()?, (address, end), write)?;
    let offset = line.offset + (address - line.start);
    let (file, page) = candidates(&line).find_map(|path| open(&path, line.identity))?;
    // A page past the end of the file does not exist.
    (file.metadata().ok()?.len().next_multiple_of(page) >= offset + bytes).then_some(Mapped {
        file,
        identity: line.identity,
        offset,
        page,
    })
}

/// The paths by which the file of a mapping can be opened: its own, if it still has one, and those of descriptors.
fn candidates(line: &Line) -> impl Iterator<Item = PathBuf> {
    let link = PathBuf::from(format!(
        "/proc/self/map_files/{:x}-{:x}",
        line.start, line.end
    ));
    let descriptors = fs::read_dir("/proc/self/fd").into_iter().flatten();
    let identity = line.identity;
    let same = move |path: &PathBuf| {
        fs::metadata(path).is_ok_and(|data| (data.dev(), data.ino()) == identity)
    };
    [PathBuf::from(&line.path), link]
        .into_iter()
        .chain(descriptors.filter_map(|entry| Some(entry.ok()?.path())))
        .filter(same)
}

/// Opens an in-memory file, which must have this identity; also returns its page size.
fn open(path: &Path, identity: (u64, u64)) -> Option<(File, u64)> {
    let file = File::options().read(true).write(true).open(path).ok()?;
    let data = file.metadata().ok()?;
    if (data.dev(), data.ino()) != identity {
        return None;
    }
    // SAFETY: all bytes zero are a valid `statfs`, and the call fills it in.
    let system = unsafe {
        let mut system: libc::statfs = std::mem::zeroed();
        (libc::fstatfs(file.as_raw_fd(), &raw mut system) == 0).then_some(system)?
    };
    match system.f_type {
        libc::TMPFS_MAGIC => Some((file, 4096)),
        libc::HUGETLBFS_MAGIC => Some((file, u64::try_from(system.f_bsize).ok()?)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::{fd::FromRawFd, unix::fs::FileExt};

    fn memfd(pages: u64) -> File {
        // SAFETY: the name is NUL-terminated; the descriptor is new and this file's alone.
        let file = unsafe {
            File::from_raw_fd(libc::memfd_create(
                c"gpgpu files".as_ptr(),
                libc::MFD_CLOEXEC,
            ))
        };
        file.set_len(pages * 4096).unwrap();
        file
    }

    fn map(file: Option<&File>, flags: i32, pages: usize, offset: i64) -> u64 {
        let fd = file.map_or(-1, AsRawFd::as_raw_fd);
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice.
        let at = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                pages * 4096,
                protection,
                flags,
                fd,
                offset,
            )
        };
        assert_ne!(at, libc::MAP_FAILED);
        at as u64
    }

    #[test]
    fn a_shared_mapping_of_a_memfd_has_its_file() {
        let file = memfd(8);
        let at = map(Some(&file), libc::MAP_SHARED, 4, 2 * 4096);
        let found = behind(at + 4096, 2 * 4096, true).unwrap();
        assert_eq!((found.offset, found.page), (3 * 4096, 4096));
        found.file.write_all_at(&[7], found.offset).unwrap();
        // SAFETY: the test's own mapping.
        assert_eq!(unsafe { *((at + 4096) as *const u8) }, 7);
        // SAFETY: splits the test's own mapping in two by its protection.
        unsafe { libc::mprotect((at + 4096) as *mut _, 4096, libc::PROT_READ) };
        assert_eq!(behind(at, 4 * 4096, false).unwrap().offset, 2 * 4096);
        assert!(behind(at, 4 * 4096, true).is_none());
    }

    #[test]
    fn private_anonymous_and_truncated_memory_has_no_file() {
        let file = memfd(2);
        let private = map(Some(&file), libc::MAP_PRIVATE, 2, 0);
        assert!(behind(private, 4096, true).is_none());
        let anonymous = map(None, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, 2, 0);
        assert!(behind(anonymous, 4096, true).is_none());
        let cut = map(Some(&file), libc::MAP_SHARED, 2, 0);
        file.set_len(4096).unwrap();
        assert!(behind(cut, 4096, true).is_some() && behind(cut, 2 * 4096, true).is_none());
        assert!(behind(u64::MAX - 4095, 4096, true).is_none());
    }

    #[test]
    fn lines_are_read_as_the_kernel_writes_them() {
        let line = Line::parse("7f00-7f10 rw-s 00002000 00:1a 1234    /dev/shm/a b (deleted)");
        let expected = Line {
            start: 0x7f00,
            end: 0x7f10,
            writable: true,
            executable: false,
            shared: true,
            offset: 0x2000,
            identity: (libc::makedev(0, 0x1a), 1234),
            path: "/dev/shm/a b (deleted)".into(),
        };
        assert_eq!(line, Some(expected));
        assert_eq!(Line::parse("1-2 rw-p 0 00:00 0 ").unwrap().identity, (0, 0));
        assert_eq!(Line::parse("nonsense"), None);
    }
}
