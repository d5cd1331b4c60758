// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! userfaultfd: the kernel reports accesses to absent pages, and this process provides their contents.
//!
//! It also reports accesses by system calls, which a signal handler could not handle: `read(2)` into such memory works.

use std::{
    ffi::{c_ulong, c_void},
    fs::File,
    io,
    os::fd::{AsRawFd, FromRawFd, OwnedFd},
};

/// The device by which it is opened, from Linux 6.1 on. A process that may open it needs no privilege.
const DEVICE: &str = "/dev/userfaultfd";

const NEW: c_ulong = 0xaa00;
const API: c_ulong = 0xc018_aa3f;
const REGISTER: c_ulong = 0xc020_aa00;
const WAKE: c_ulong = 0x8010_aa02;
const COPY: c_ulong = 0xc028_aa03;
const ZEROPAGE: c_ulong = 0xc020_aa04;
const WRITEPROTECT: c_ulong = 0xc018_aa06;

const VERSION: u64 = 0xaa;
const FEATURE_WRITE_PROTECT: u64 = 1 << 0;
const FEATURE_THREAD: u64 = 1 << 8;
const REGISTER_MISSING: u64 = 1 << 0;
const REGISTER_WRITE_PROTECT: u64 = 1 << 1;
const COPY_DONT_WAKE: u64 = 1 << 0;
const COPY_WRITE_PROTECT: u64 = 1 << 1;
const PROTECT: u64 = 1 << 0;
const PROTECT_DONT_WAKE: u64 = 1 << 1;
const EVENT_PAGE_FAULT: u8 = 0x12;
const FAULT_WRITE: u64 = 1 << 0;
const FAULT_WRITE_PROTECT: u64 = 1 << 1;

/// `struct uffdio_api`.
#[repr(C)]
struct ApiArgument {
    api: u64,
    features: u64,
    ioctls: u64,
}

/// `struct uffdio_register`.
#[repr(C)]
struct RegisterArgument {
    start: u64,
    bytes: u64,
    mode: u64,
    ioctls: u64,
}

/// `struct uffdio_range`.
#[repr(C)]
struct RangeArgument {
    start: u64,
    bytes: u64,
}

/// `struct uffdio_copy`.
#[repr(C)]
struct CopyArgument {
    to: u64,
    from: u64,
    bytes: u64,
    mode: u64,
    copied: i64,
}

/// `struct uffdio_zeropage`.
#[repr(C)]
struct ZeroArgument {
    start: u64,
    bytes: u64,
    mode: u64,
    zeroed: i64,
}

/// `struct uffdio_writeprotect`.
#[repr(C)]
struct ProtectArgument {
    start: u64,
    bytes: u64,
    mode: u64,
}

/// `struct uffd_msg`, for a page fault.
#[repr(C)]
#[derive(Clone, Copy)]
struct Message {
    event: u8,
    reserved: [u8; 7],
    flags: u64,
    address: u64,
    thread: u32,
    more: u32,
}

/// A page fault whose thread waits.
#[derive(Debug, Clone, Copy)]
pub struct Fault {
    /// The address.
    pub address: u64,
    /// Whether it writes.
    pub writes: bool,
    /// Whether the page is present, but read-only.
    pub is_protected: bool,
    /// The thread that waits.
    pub thread: u32,
}

/// The source of page faults of registered memory.
#[derive(Debug)]
pub struct Uffd {
    fd: OwnedFd,
    has_protection: bool,
}

fn last() -> i32 {
    io::Error::last_os_error().raw_os_error().unwrap_or(0)
}

impl Uffd {
    /// Opens it, for faults in system calls as well.
    ///
    /// # Errors
    ///
    /// The kernel does not support it, or this process may not use it: it may neither open `/dev/userfaultfd` nor make
    /// a userfaultfd that handles system calls, because it lacks `CAP_SYS_PTRACE` or `vm.unprivileged_userfaultfd` is
    /// not set.
    pub fn open() -> io::Result<Self> {
        let first = Self::new()?;
        let wanted = FEATURE_WRITE_PROTECT | FEATURE_THREAD;
        if first.negotiate(wanted).is_ok() {
            return Ok(Self {
                has_protection: true,
                ..first
            });
        }
        // A descriptor whose API request was refused cannot be used again.
        let second = Self::new()?;
        second.negotiate(FEATURE_THREAD)?;
        Ok(second)
    }

    fn new() -> io::Result<Self> {
        let flags = libc::O_CLOEXEC | libc::O_NONBLOCK;
        let by_device = File::options().read(true).write(true).open(DEVICE);
        let fd = match &by_device {
            // SAFETY: the request makes a descriptor and reads no memory.
            Ok(device) => unsafe { libc::ioctl(device.as_raw_fd(), NEW, flags) },
            Err(_) => -1,
        };
        let fd = if fd >= 0 {
            fd
        } else {
            // SAFETY: the system call makes a descriptor and reads no memory.
            unsafe { libc::syscall(libc::SYS_userfaultfd, flags) as i32 }
        };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(Self {
            // SAFETY: the descriptor was just made, and no other code has it.
            fd: unsafe { OwnedFd::from_raw_fd(fd) },
            has_protection: false,
        })
    }

    fn negotiate(&self, features: u64) -> io::Result<()> {
        let mut api = ApiArgument {
            api: VERSION,
            features,
            ioctls: 0,
        };
        self.ioctl(API, &mut api)
    }

    fn ioctl<T>(&self, request: c_ulong, argument: &mut T) -> io::Result<()> {
        // SAFETY: each request of this file comes with its own structure, which lives across the call.
        let done = unsafe { libc::ioctl(self.fd.as_raw_fd(), request, &raw mut *argument) };
        if done < 0 {
            Err(io::Error::last_os_error())
        } else {
            Ok(())
        }
    }

    /// The descriptor, for polling.
    pub fn fd(&self) -> i32 {
        self.fd.as_raw_fd()
    }

    /// Whether writes to present pages can be reported too.
    pub fn has_protection(&self) -> bool {
        self.has_protection
    }

    /// Registers a range of private anonymous memory: accesses to absent pages then wait.
    pub fn register(&self, start: u64, bytes: u64) -> io::Result<()> {
        let protection = if self.has_protection {
            REGISTER_WRITE_PROTECT
        } else {
            0
        };
        self.ioctl(
            REGISTER,
            &mut RegisterArgument {
                start,
                bytes,
                mode: REGISTER_MISSING | protection,
                ioctls: 0,
            },
        )
    }

    /// Reads the next fault; `None` if there is none now.
    pub fn next(&self) -> Option<Fault> {
        loop {
            let mut message = Message {
                event: 0,
                reserved: [0; 7],
                flags: 0,
                address: 0,
                thread: 0,
                more: 0,
            };
            let to = (&raw mut message).cast::<c_void>();
            // SAFETY: the structure is as long as the kernel's message, and every bit pattern is one of its values.
            let read = unsafe { libc::read(self.fd(), to, size_of::<Message>()) };
            if read < 0 && last() == libc::EINTR {
                continue;
            }
            if read != size_of::<Message>() as isize {
                return None;
            }
            if message.event == EVENT_PAGE_FAULT {
                return Some(Fault {
                    address: message.address,
                    writes: message.flags & FAULT_WRITE != 0,
                    is_protected: message.flags & FAULT_WRITE_PROTECT != 0,
                    thread: message.thread,
                });
            }
        }
    }

    /// Maps pages in an absent range, without waking threads that wait for them; write-protected, if requested. An
    /// existing page is not changed.
    pub fn fill(&self, start: u64, from: &[u8], protect: bool) {
        let protect = if protect && self.has_protection {
            COPY_WRITE_PROTECT
        } else {
            0
        };
        let mut done = 0;
        while done < from.len() {
            let mut copy = CopyArgument {
                to: start + done as u64,
                from: from[done..].as_ptr() as u64,
                bytes: (from.len() - done) as u64,
                mode: COPY_DONT_WAKE | protect,
                copied: 0,
            };
            let failed = self.ioctl(COPY, &mut copy).err();
            if copy.copied > 0 {
                done += copy.copied as usize;
                continue;
            }
            match failed.and_then(|error| error.raw_os_error()) {
                // Another call is changing the program's mappings.
                Some(libc::EAGAIN) => std::thread::yield_now(),
                Some(libc::EEXIST) => done += 4096,
                // The memory was unmapped, or the program has mapped something else there.
                _ => return,
            }
        }
    }

    /// Maps a page of zeros if the page is absent, and returns whether it was. Wakes no threads.
    pub fn zero(&self, page: u64) -> bool {
        let mut argument = ZeroArgument {
            start: page,
            bytes: 4096,
            mode: COPY_DONT_WAKE,
            zeroed: 0,
        };
        loop {
            match self.ioctl(ZEROPAGE, &mut argument) {
                Ok(()) => return true,
                Err(error) if error.raw_os_error() == Some(libc::EAGAIN) => {
                    std::thread::yield_now();
                }
                Err(_) => return false,
            }
        }
    }

    /// Enables or disables the write protection of a range of pages. Wakes no threads.
    pub fn protect(&self, start: u64, bytes: u64, protect: bool) {
        if !self.has_protection {
            return;
        }
        let mode = if protect { PROTECT } else { PROTECT_DONT_WAKE };
        let mut argument = ProtectArgument { start, bytes, mode };
        while let Err(error) = self.ioctl(WRITEPROTECT, &mut argument) {
            if error.raw_os_error() != Some(libc::EAGAIN) {
                return;
            }
            std::thread::yield_now();
        }
    }

    /// Wakes all threads that wait for a range, which then retry their accesses.
    pub fn wake(&self, start: u64, bytes: u64) {
        let _ = self.ioctl(WAKE, &mut RangeArgument { start, bytes });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn structures_are_as_long_as_the_kernels() {
        assert_eq!(size_of::<ApiArgument>(), 24);
        assert_eq!(size_of::<RegisterArgument>(), 32);
        assert_eq!(size_of::<CopyArgument>(), 40);
        assert_eq!(size_of::<ZeroArgument>(), 32);
        assert_eq!(size_of::<ProtectArgument>(), 24);
        assert_eq!(size_of::<Message>(), 32);
    }
}
