// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Queries about files, as direct system calls: this library cannot use the program's C library.

use std::ffi::{c_int, c_long};

/// The length of the kernel's `struct stat` on x86-64, in 64-bit words. It begins with the device and the inode.
const STAT_WORDS: usize = 18;

/// Whether the kernel finds the file.
///
/// # Safety
/// The path is a terminated string.
pub unsafe fn exists(path: *const u8) -> bool {
    const SYS_ACCESS: c_long = 21;
    const F_OK: c_int = 0;
    // SAFETY: access(2) only reads the path.
    unsafe { call(SYS_ACCESS, path, F_OK as usize) == 0 }
}

/// The device and the inode of a file, which together are unique; `None` if there is no such file.
///
/// # Safety
/// The path is a terminated string.
pub unsafe fn identity(path: *const u8) -> Option<(u64, u64)> {
    const SYS_STAT: c_long = 4;
    let mut stat = [0u64; STAT_WORDS];
    // SAFETY: stat(2) reads the path and writes its structure, for which there is room.
    let result = unsafe { call(SYS_STAT, path, stat.as_mut_ptr() as usize) };
    (result == 0).then_some((stat[0], stat[1]))
}

/// A system call with a path and one more argument.
///
/// # Safety
/// The kernel may do with these what the call does.
unsafe fn call(number: c_long, path: *const u8, argument: usize) -> c_long {
    let result: c_long;
    // SAFETY: the caller's promise; the kernel changes no register but these.
    unsafe {
        std::arch::asm!(
            "syscall",
            inlateout("rax") number => result,
            in("rdi") path,
            in("rsi") argument,
            lateout("rcx") _,
            lateout("r11") _,
            options(nostack),
        );
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_found_and_told_apart() {
        // SAFETY: terminated strings.
        unsafe {
            assert!(exists(c"/proc/self/exe".as_ptr().cast()));
            assert!(!exists(c"/proc/self/no-such-file".as_ptr().cast()));
            let root = identity(c"/".as_ptr().cast());
            assert!(root.is_some());
            assert_eq!(root, identity(c"/.".as_ptr().cast()));
            assert_ne!(root, identity(c"/proc".as_ptr().cast()));
            assert_eq!(identity(c"/proc/self/no-such-file".as_ptr().cast()), None);
        }
    }
}
