// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Environment variables for NVIDIA's libraries, set in a process whose other threads may read the environment.
//!
//! `setenv(3)` may move the array of variables and free the old one, which another thread of the driver may be reading.
//! So the process moves the array once, while it has one thread, and leaves room behind it. A new variable then replaces
//! the first null pointer, and a reader sees the array with it or without it.

use std::{
    ffi::{CStr, CString, c_char},
    ptr,
    sync::atomic::{AtomicPtr, Ordering},
};

use gpgpu_locks::Mutex;

/// The number of variables for which there is room.
const ROOM: usize = 16;

unsafe extern "C" {
    static mut environ: *mut *mut c_char;
}

/// A variable was not set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refused {
    /// The process has it already.
    Exists,
    /// There is no room, or a library has moved the array.
    Full,
}

/// The array with room, and the place of its next variable.
static NEXT: Mutex<Option<Place>> = Mutex::new(None);

struct Place {
    array: *mut *mut c_char,
    next: *mut *mut c_char,
    left: usize,
}

// SAFETY: the array is never freed, and written under the mutex alone.
unsafe impl Send for Place {}

/// Makes room for variables. The old array stays as it is for threads that are reading it.
///
/// # Safety
///
/// No other thread changes the environment meanwhile.
pub unsafe fn make_room() {
    let mut next = NEXT.lock();
    let old = current().load(Ordering::Acquire);
    let mut count = 0;
    // SAFETY: the array ends with a null pointer, and by the caller's promise nothing changes it.
    while !old.is_null() && !unsafe { *old.add(count) }.is_null() {
        count += 1;
    }
    let mut array = Vec::with_capacity(count + ROOM + 1);
    // SAFETY: the array has `count` pointers.
    array.extend((0..count).map(|at| unsafe { *old.add(at) }));
    array.resize(count + ROOM + 1, ptr::null_mut());
    let array = array.leak();
    *next = Some(Place {
        array: array.as_mut_ptr(),
        next: array[count..].as_mut_ptr(),
        left: ROOM,
    });
    current().store(array.as_mut_ptr(), Ordering::Release);
}

/// The C library's pointer to the array.
fn current() -> &'static AtomicPtr<*mut c_char> {
    // SAFETY: a pointer that lives as long as the process. The C library reads it whole; only this module and
    // `setenv(3)` write it.
    unsafe { AtomicPtr::from_ptr(&raw mut environ) }
}

/// Sets a variable that the process does not have.
///
/// # Errors
///
/// The process has the variable already, or there is no [room](make_room).
///
/// # Panics
///
/// If the name or the value has a zero byte.
pub fn set(name: &str, value: &str) -> Result<(), Refused> {
    let mut next = NEXT.lock();
    // A library that calls `setenv(3)` may have moved the array.
    let array = current().load(Ordering::Acquire);
    let place = next.as_mut().filter(|place| place.array == array);
    let place = place.filter(|place| place.left > 0).ok_or(Refused::Full)?;
    let mut at = place.array;
    // SAFETY: the array ends with a null pointer, and its variables are strings that are never freed.
    while let Some(variable) = unsafe { (*at).as_ref().map(|text| CStr::from_ptr(text)) } {
        let rest = variable.to_bytes().strip_prefix(name.as_bytes());
        if rest.is_some_and(|rest| rest.starts_with(b"=")) {
            return Err(Refused::Exists);
        }
        // SAFETY: this pointer is not the null pointer at the end.
        at = unsafe { at.add(1) };
    }
    let variable = CString::new(format!("{name}={value}")).expect("no zero byte");
    // SAFETY: the place is in the array, aligned, and not its last.
    let slot = unsafe { AtomicPtr::from_ptr(place.next) };
    slot.store(variable.into_raw(), Ordering::Release);
    // SAFETY: the null pointer at the end lies behind it.
    place.next = unsafe { place.next.add(1) };
    place.left -= 1;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_variable_is_set_once_and_found_by_other_threads() {
        let get = |name: &'static str| {
            let found = std::thread::spawn(move || std::env::var(name).ok());
            found.join().unwrap()
        };
        let path = get("PATH");
        assert_eq!(set("GPGPU_A", "1"), Err(Refused::Full));
        // SAFETY: no test changes the environment.
        unsafe { make_room() };
        assert_eq!(set("GPGPU_A", "1"), Ok(()));
        assert_eq!(set("GPGPU_A", "2"), Err(Refused::Exists));
        assert_eq!(set("PATH", "/"), Err(Refused::Exists));
        // A longer name is another variable.
        assert_eq!(set("GPGPU_AB", ":4096:8"), Ok(()));
        assert_eq!(get("GPGPU_A").as_deref(), Some("1"));
        assert_eq!(get("GPGPU_AB").as_deref(), Some(":4096:8"));
        assert_eq!(get("PATH"), path);
        let more = (0..).take_while(|n| set(&format!("GPGPU_B{n}"), "").is_ok());
        assert_eq!(more.count(), ROOM - 2);
        assert_eq!(get("GPGPU_B0").as_deref(), Some(""));
    }
}
