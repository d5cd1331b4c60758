// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Creates and overwrites code. No page is writable and executable at once.

use std::ffi::c_int;
use std::io;
use std::os::unix::fs::FileExt as _;

/// Length of [`long_jump`].
pub const LONG_JUMP: usize = 13;
/// Length of [`relative_jump`].
pub const RELATIVE_JUMP: usize = 5;

/// A jump to the address in the variable at `slot`. `r11` holds the slot's address then; a called function may
/// overwrite that register.
pub fn long_jump(slot: u64) -> [u8; LONG_JUMP] {
    // movabs $slot, %r11; jmp *(%r11)
    let mut code = [0x49, 0xbb, 0, 0, 0, 0, 0, 0, 0, 0, 0x41, 0xff, 0x23];
    code[2..10].copy_from_slice(&slot.to_le_bytes());
    code
}

/// A jump from `from` to `target`; `None` if it is 2 GiB away or more.
pub fn relative_jump(from: u64, target: u64) -> Option<[u8; RELATIVE_JUMP]> {
    let distance = target.wrapping_sub(from.wrapping_add(RELATIVE_JUMP as u64)) as i64;
    let distance = i32::try_from(distance).ok()?.to_le_bytes();
    Some([0xe9, distance[0], distance[1], distance[2], distance[3]])
}

fn page_size() -> u64 {
    // SAFETY: sysconf has no preconditions.
    unsafe { libc::sysconf(libc::_SC_PAGESIZE) as u64 }
}

/// Maps `code` for the rest of the process's life, readable and executable. With `near`, within 2 GiB of every
/// address of that range, or an error.
///
/// # Errors
/// The error of `mmap` or `mprotect`; `AddrNotAvailable` if there is no room near enough.
pub fn map_code(code: &[u8], near: Option<(u64, u64)>) -> io::Result<u64> {
    let page = page_size();
    let length = (code.len() as u64).next_multiple_of(page).max(page);
    let address = match near {
        None => map_at(0, length)?,
        Some(range) => gaps_near(range, length, page)
            .into_iter()
            .find_map(|wish| map_at(wish, length).ok())
            .ok_or(io::ErrorKind::AddrNotAvailable)?,
    };
    // SAFETY: the mapping is ours, new, writable and long enough; then it loses the right to be written before
    // anybody learns its address.
    unsafe {
        std::ptr::copy_nonoverlapping(code.as_ptr(), address as *mut u8, code.len());
        protect(address, length, libc::PROT_READ | libc::PROT_EXEC)?;
    }
    Ok(address)
}

/// Maps writable pages at exactly `wish`, or anywhere if it is 0.
fn map_at(wish: u64, length: u64) -> io::Result<u64> {
    let fixed = if wish == 0 {
        0
    } else {
        libc::MAP_FIXED_NOREPLACE
    };
    // SAFETY: an anonymous mapping that replaces no other (MAP_FIXED_NOREPLACE).
    let address = unsafe {
        libc::mmap(
            wish as *mut libc::c_void,
            length as usize,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | fixed,
            -1,
            0,
        )
    };
    if address == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    if wish != 0 && address as u64 != wish {
        // A kernel before 4.17 takes the address for a hint. SAFETY: the mapping was made above, and no other code
        // knows it.
        unsafe { libc::munmap(address, length as usize) };
        return Err(io::ErrorKind::AddrNotAvailable.into());
    }
    Ok(address as u64)
}

/// Free addresses for `length` bytes from which a relative jump reaches every address of the range.
fn gaps_near((start, end): (u64, u64), length: u64, page: u64) -> Vec<u64> {
    const REACH: u64 = (1 << 31) - (1 << 16);
    let lowest = end
        .saturating_sub(REACH)
        .max(1 << 16)
        .next_multiple_of(page);
    let highest = start.saturating_add(REACH);
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
    let mut gaps = Vec::new();
    let mut free_from = lowest;
    for line in maps.lines() {
        let range = line
            .split(' ')
            .next()
            .and_then(|range| range.split_once('-'));
        let Some((Ok(first), Ok(last))) = range.map(|(first, last)| {
            (
                u64::from_str_radix(first, 16),
                u64::from_str_radix(last, 16),
            )
        }) else {
            continue;
        };
        if first.saturating_sub(free_from) >= length && first <= highest {
            // The upper end: below a mapping, and away from a heap that grows upwards after one.
            gaps.push(first - length);
        }
        free_from = free_from.max(last);
    }
    if free_from.saturating_add(length) <= highest {
        gaps.push(free_from);
    }
    gaps
}

/// `mprotect` on the pages that hold the range.
///
/// # Safety
/// Nothing may rely on a right that the pages lose.
unsafe fn protect(address: u64, length: u64, protection: c_int) -> io::Result<()> {
    let page = page_size();
    let first = address / page * page;
    let length = (address + length).next_multiple_of(page) - first;
    // SAFETY: the caller's promise.
    match unsafe { libc::mprotect(first as *mut libc::c_void, length as usize, protection) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Overwrites code at `address` with `code`: as a debugger would if the kernel allows it, so that no page's
/// protection changes, by making the pages writable and not executable for that moment otherwise.
///
/// # Errors
/// The kernel's error; nothing was written then.
///
/// # Panics
/// If the pages cannot be made executable again: the program could not go on.
///
/// # Safety
/// The range must be code of this process with the given protection, which no thread runs, nor code on the same pages,
/// and whose new contents are sound to run.
pub unsafe fn overwrite(address: u64, code: &[u8], protection: c_int) -> io::Result<()> {
    let memory = std::fs::OpenOptions::new()
        .write(true)
        .open("/proc/self/mem");
    if memory
        .and_then(|memory| memory.write_all_at(code, address))
        .is_ok()
    {
        return Ok(());
    }
    // SAFETY: the caller's promise is the one asked for.
    unsafe { overwrite_by_mprotect(address, code, protection) }
}

/// The second method of [`overwrite`].
///
/// # Safety
/// As for [`overwrite`].
unsafe fn overwrite_by_mprotect(address: u64, code: &[u8], protection: c_int) -> io::Result<()> {
    // SAFETY: the caller promises that nothing runs there meanwhile and that the range is code of ours.
    unsafe {
        protect(
            address,
            code.len() as u64,
            libc::PROT_READ | libc::PROT_WRITE,
        )?;
        std::ptr::copy_nonoverlapping(code.as_ptr(), address as *mut u8, code.len());
        protect(address, code.len() as u64, protection).expect("code to become executable again");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn relative_jumps_reach_two_gibibytes_and_no_further() {
        assert_eq!(relative_jump(0x1000, 0x1005), Some([0xe9, 0, 0, 0, 0]));
        assert_eq!(
            relative_jump(0x1005, 0x1000),
            Some([0xe9, 0xf6, 0xff, 0xff, 0xff])
        );
        assert!(relative_jump(0x1000, 0x1005 + 0x7fff_ffff).is_some());
        assert!(relative_jump(0x1000, 0x1005 + 0x8000_0000).is_none());
    }

    #[test]
    fn mapped_code_runs_can_be_overwritten_and_is_never_writable() {
        let anchor = relative_jump_anchor as fn() as usize as u64;
        // mov $7, %eax; ret
        let address = map_code(&[0xb8, 7, 0, 0, 0, 0xc3], Some((anchor, anchor + 16))).unwrap();
        assert!(relative_jump(anchor, address).is_some());
        // SAFETY: the bytes are a function without arguments that returns an int.
        let function: extern "C" fn() -> i32 = unsafe { std::mem::transmute(address as usize) };
        assert_eq!(function(), 7);
        // SAFETY: no other code knows the page, and the new code is the same function with another number.
        unsafe {
            overwrite(
                address,
                &[0xb8, 9, 0, 0, 0],
                libc::PROT_READ | libc::PROT_EXEC,
            )
            .unwrap()
        };
        assert_eq!(function(), 9);
        // SAFETY: as above; no kernel refuses this way.
        unsafe {
            overwrite_by_mprotect(
                address,
                &[0xb8, 11, 0, 0, 0],
                libc::PROT_READ | libc::PROT_EXEC,
            )
            .unwrap();
        }
        assert_eq!(function(), 11);
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        assert!(!maps.lines().any(|line| line.contains("wx")), "{maps}");
    }

    fn relative_jump_anchor() {}
}
