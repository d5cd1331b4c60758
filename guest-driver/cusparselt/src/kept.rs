// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The content of the program's structures.
//!
//! A structure has 512 bytes, or 11,024 in programs that were compiled before cuSPARSELt 0.8; the first 512 are used.
//! Its first word is a mark of its kind, so that a structure that was never initialised, or was destroyed, is refused.

use std::sync::atomic::{AtomicU64, Ordering};

use gpgpu_library::Status;
use gpgpu_protocol::libraries::cusparselt::{
    form::{Matrix, Product, Selection},
    status,
};

/// The bytes of a program's structure that are used.
#[repr(C)]
pub struct Opaque([u64; 64]);

/// A plan.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Plan {
    /// Its id.
    pub id: u64,
    /// The selection from which it was made.
    pub selection: Selection,
}

/// The kinds of a structure's content.
///
/// # Safety
///
/// Every bit pattern is a valid value.
pub unsafe trait Held: Copy {
    /// The mark in its first word.
    const MARK: u64;
}

macro_rules! held {
    ($($ty:ty = $mark:literal;)*) => {$(
        // SAFETY: integers alone.
        unsafe impl Held for $ty {
            const MARK: u64 = $mark;
        }

        const _: () = assert!(size_of::<Kept<$ty>>() <= size_of::<Opaque>());
    )*};
}

// The id of a handle; the other marks are named by their types.
held! {
    u64 = 0x7d01;
    Matrix = 0x7d02;
    Product = 0x7d03;
    Selection = 0x7d04;
    Plan = 0x7d05;
}

/// The bits of the first word below the mark: a selection's number, or 0.
const SERIAL_BITS: u32 = 48;

#[repr(C)]
struct Kept<T> {
    what: u64,
    value: T,
}

/// A new number for a selection, which the plan that is made from it shares.
pub fn new_serial() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed) & ((1 << SERIAL_BITS) - 1)
}

/// The content of a structure, and its number.
///
/// # Errors
///
/// `INVALID_VALUE` for NULL, and if the structure has another content.
///
/// # Safety
///
/// The pointer is NULL or to a structure that is the caller's to read.
pub unsafe fn read<T: Held>(from: *const Opaque) -> Result<(T, u64), Status> {
    if from.is_null() {
        return Err(status::INVALID_VALUE);
    }
    // SAFETY: promised by the caller; a structure has room for it, and every pattern of bits is a value.
    let kept = unsafe { from.cast::<Kept<T>>().read_unaligned() };
    if kept.what >> SERIAL_BITS != T::MARK {
        return Err(status::INVALID_VALUE);
    }
    Ok((kept.value, kept.what & ((1 << SERIAL_BITS) - 1)))
}

/// The id of a handle.
///
/// # Errors
///
/// `INVALID_VALUE` for NULL, `NOT_INITIALIZED` if it is no handle.
///
/// # Safety
///
/// As [`read`].
pub unsafe fn read_handle(from: *const Opaque) -> Result<u64, Status> {
    if from.is_null() {
        return Err(status::INVALID_VALUE);
    }
    // SAFETY: promised by the caller.
    let (id, _) = unsafe { read::<u64>(from) }.map_err(|_| status::NOT_INITIALIZED)?;
    Ok(id)
}

/// Writes a structure.
///
/// # Errors
///
/// `INVALID_VALUE` for NULL.
///
/// # Safety
///
/// The pointer is NULL or to a structure that is the caller's to write to.
pub unsafe fn write<T: Held>(to: *mut Opaque, value: T, serial: u64) -> Result<(), Status> {
    if to.is_null() {
        return Err(status::INVALID_VALUE);
    }
    let what = T::MARK << SERIAL_BITS | serial;
    // SAFETY: promised by the caller; a structure has room for it.
    unsafe { to.cast::<Kept<T>>().write_unaligned(Kept { what, value }) };
    Ok(())
}

/// Clears a structure: it is empty from then on.
///
/// # Errors
///
/// As [`read`].
///
/// # Safety
///
/// As [`write()`]: the functions take a constant pointer, and clear the content behind it.
pub unsafe fn end<T: Held>(at: *const Opaque) -> Result<T, Status> {
    // SAFETY: promised by the caller.
    unsafe {
        let (value, _) = read::<T>(at)?;
        at.cast_mut().cast::<u64>().write_unaligned(0);
        Ok(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_structure_keeps_its_object_until_it_is_destroyed() {
        let mut room = Opaque([0; 64]);
        let matrix = Matrix {
            rows: 5,
            ..Matrix::default()
        };
        // SAFETY: the room is this test's.
        unsafe {
            assert!(read::<Matrix>(&raw const room).is_err());
            assert!(read::<Matrix>(std::ptr::null()).is_err());
            assert!(write(std::ptr::null_mut(), matrix, 0).is_err());
            write(&raw mut room, matrix, 7).unwrap();
            assert_eq!(read::<Matrix>(&raw const room), Ok((matrix, 7)));
            assert!(read::<Product>(&raw const room).is_err());
            assert_eq!(read_handle(&raw const room), Err(status::NOT_INITIALIZED));
            assert_eq!(end::<Matrix>(&raw const room), Ok(matrix));
            assert!(end::<Matrix>(&raw const room).is_err());
        }
        assert_ne!(new_serial(), new_serial());
    }
}
