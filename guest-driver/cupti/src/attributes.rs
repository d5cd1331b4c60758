// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The attributes of activities. They are kept, and have no effect: CUPTI's own buffers are on the host.

use std::{
    ffi::c_void,
    sync::atomic::{AtomicU64, Ordering},
};

use gpgpu_protocol::cupti::{INVALID_PARAMETER, Status};

use crate::enter_here;

/// `CUPTI_ERROR_PARAMETER_SIZE_NOT_SUFFICIENT`.
const TOO_SHORT: Status = 10;

/// The sizes of the attributes and their values, first the defaults, by their numbers.
static ATTRIBUTES: [(usize, AtomicU64); 11] = [
    (8, AtomicU64::new(3_200_000)),
    (8, AtomicU64::new(8 << 20)),
    (8, AtomicU64::new(250)),
    (8, AtomicU64::new(25_000)),
    (8, AtomicU64::new(250)),
    (1, AtomicU64::new(0)),
    (8, AtomicU64::new(3)),
    (8, AtomicU64::new(3)),
    (1, AtomicU64::new(0)),
    (1, AtomicU64::new(1)),
    (8, AtomicU64::new(16 << 20)),
];

/// An attribute, and its size if the program has so many bytes.
///
/// # Safety
///
/// `size` is NULL or the caller's to read.
unsafe fn attribute(
    number: u32,
    size: *const usize,
    value: *const c_void,
) -> Result<(usize, &'static AtomicU64), Status> {
    let known = ATTRIBUTES.get(number as usize).ok_or(INVALID_PARAMETER)?;
    if size.is_null() || value.is_null() {
        return Err(INVALID_PARAMETER);
    }
    // SAFETY: promised by the caller, and not NULL.
    if unsafe { size.read() } < known.0 {
        return Err(TOO_SHORT);
    }
    Ok((known.0, &known.1))
}

/// `cuptiActivitySetAttribute`: sets an attribute.
///
/// Fails with `CUPTI_ERROR_INVALID_PARAMETER` for an unknown one and if a pointer is NULL, and with
/// `CUPTI_ERROR_PARAMETER_SIZE_NOT_SUFFICIENT` if the value is too short.
///
/// # Safety
///
/// The pointers are NULL or valid, and there are `*valueSize` bytes at `value`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuptiActivitySetAttribute(
    attr: u32,
    valueSize: *mut usize,
    value: *mut c_void,
) -> Status {
    enter_here(|| {
        // SAFETY: promised by the caller.
        let (size, known) = unsafe { attribute(attr, valueSize, value) }?;
        let mut bytes = [0; 8];
        // SAFETY: promised by the caller. An attribute has at most 8 bytes.
        unsafe { value.cast::<u8>().copy_to(bytes.as_mut_ptr(), size) };
        known.store(u64::from_le_bytes(bytes), Ordering::Relaxed);
        Ok(())
    })
}

/// `cuptiActivityGetAttribute`: returns an attribute, and its size.
///
/// Fails as [`cuptiActivitySetAttribute`].
///
/// # Safety
///
/// The pointers are NULL or the caller's to write to, and there are `*valueSize` bytes at `value`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuptiActivityGetAttribute(
    attr: u32,
    valueSize: *mut usize,
    value: *mut c_void,
) -> Status {
    enter_here(|| {
        // SAFETY: promised by the caller.
        let (size, known) = unsafe { attribute(attr, valueSize, value) }?;
        let bytes = known.load(Ordering::Relaxed).to_le_bytes();
        // SAFETY: as above.
        unsafe {
            value.cast::<u8>().copy_from(bytes.as_ptr(), size);
            valueSize.write(size);
        }
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_attribute_keeps_its_value() {
        let get = |attribute, mut size: usize| {
            let mut value = 0_u64;
            let to = (&raw mut value).cast();
            // SAFETY: the value has 8 bytes.
            let status = unsafe { cuptiActivityGetAttribute(attribute, &mut size, to) };
            (status, size, value)
        };
        assert_eq!(get(2, 8), (0, 8, 250));
        assert_eq!(get(9, 8), (0, 1, 1));
        assert_eq!(get(2, 4).0, TOO_SHORT);
        assert_eq!(get(11, 8).0, INVALID_PARAMETER);
        let (mut size, mut value) = (8, 70_u64);
        let from = (&raw mut value).cast();
        // SAFETY: the value has 8 bytes; NULL is refused.
        unsafe {
            assert_eq!(cuptiActivitySetAttribute(2, &mut size, from), 0);
            let null = std::ptr::null_mut();
            assert_eq!(cuptiActivitySetAttribute(2, null, from), INVALID_PARAMETER);
        }
        assert_eq!(get(2, 8), (0, 8, 70));
    }
}
