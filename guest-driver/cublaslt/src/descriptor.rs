// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Descriptors, which exist only in this process.
//!
//! A program provides memory for a descriptor, which it may copy, or makes this library allocate one. So a descriptor's
//! bytes contain all of it: a mark, followed by the values of its attributes, packed in the order of the tables in
//! [`gpgpu_protocol`]. The size of the memory depends on the version of the program's header. An attribute that does
//! not fit does not exist, as in the library of that version.

use std::mem::MaybeUninit;

use gpgpu_library::Status;
use gpgpu_protocol::libraries::cublaslt::{
    attributes::{Class, EMULATION},
    status,
};

/// The words of the largest descriptor.
const MOST: usize = 32;
/// The size in bytes that the oldest header has for any descriptor.
const LEAST: usize = 64;
/// The bytes of the mark.
const MARK: usize = size_of::<Mark>();

/// The first word of a descriptor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
struct Mark {
    /// The class, which also marks it as a descriptor.
    class: u16,
    /// Its size with the mark, in bytes.
    bytes: u16,
    /// For a descriptor that this library allocated, the low half of its address, so that a copy elsewhere is not
    /// freed; otherwise 0.
    own: u32,
}

/// The words of a descriptor in the newest header (cublasLt.h of CUDA 13.1).
const fn words(class: Class) -> usize {
    match class {
        Class::Operation => MOST,
        Class::Layout => 14,
        Class::Preference => 12,
        Class::Transform | Class::Emulation => 8,
    }
}

const _: () = {
    let mut at = 0;
    while at < Class::ALL.len() {
        let class = Class::ALL[at];
        assert!(class.packed() + MARK <= words(class) * 8 && words(class) <= MOST);
        at += 1;
    }
};

const fn class_mark(class: Class) -> u16 {
    0x4c70 | class as u16
}

/// A descriptor in the program's memory or ours.
pub type Raw = *mut u64;

/// A descriptor in the program's or this library's memory, for one call.
#[derive(Debug, Clone, Copy)]
pub struct Descriptor<'a> {
    class: Class,
    own: u32,
    packed: &'a [u8],
}

impl AsRef<[u8]> for Descriptor<'_> {
    fn as_ref(&self) -> &[u8] {
        self.packed
    }
}

impl Descriptor<'_> {
    /// The descriptor at an address.
    ///
    /// # Errors
    ///
    /// `INVALID_VALUE` if there is no descriptor of the class.
    ///
    /// # Safety
    ///
    /// The pointer is NULL or to a descriptor that does not change while this value lives.
    pub unsafe fn read(class: Class, raw: Raw) -> Result<Self, Status> {
        if raw.is_null() {
            return Err(status::INVALID_VALUE);
        }
        // SAFETY: promised by the caller; a mark is numbers.
        let mark = unsafe { raw.cast::<Mark>().read_unaligned() };
        let bytes = usize::from(mark.bytes);
        if mark.class != class_mark(class) || !(LEAST..=words(class) * 8).contains(&bytes) {
            return Err(status::INVALID_VALUE);
        }
        // The rest of the memory belongs to no attribute.
        let bytes = (bytes - MARK).min(class.packed());
        // SAFETY: a descriptor has as many bytes as its mark says, which live and stay as they are by the caller's
        // promise.
        let packed = unsafe { std::slice::from_raw_parts(values(raw), bytes) };
        Ok(Self {
            class,
            own: mark.own,
            packed,
        })
    }

    /// An attribute's value; 0 if the descriptor does not have it.
    #[inline]
    pub fn get(&self, number: u16) -> u64 {
        self.class.read(self.packed, number).unwrap_or(0)
    }

    /// The emulation descriptor to which an operation's descriptor points.
    ///
    /// # Errors
    ///
    /// `INVALID_VALUE` if the pointer is invalid.
    ///
    /// # Safety
    ///
    /// As [`Descriptor::read`], of that descriptor.
    pub unsafe fn emulation(&self) -> Result<Option<Self>, Status> {
        match self.get(EMULATION) as Raw {
            none if none.is_null() => Ok(None),
            // SAFETY: promised by the caller.
            raw => unsafe { Self::read(Class::Emulation, raw) }.map(Some),
        }
    }
}

/// The start of a descriptor's values.
#[inline]
fn values(of: Raw) -> *mut u8 {
    of.cast::<u8>().wrapping_add(MARK)
}

/// Makes a descriptor in memory of this size. Returns whether its first values fit; if not, it writes nothing.
///
/// # Safety
///
/// The pointer is to so many bytes, at least [`LEAST`], which are the caller's to write to.
unsafe fn write_new(class: Class, raw: Raw, bytes: usize, own: u32, first: First<'_>) -> bool {
    let room = bytes - MARK;
    let fits = |(number, _): &(u16, u64)| {
        let found = class.find(*number);
        found.is_some_and(|(place, of)| place + usize::from(of.bytes) <= room)
    };
    if !first.iter().all(fits) {
        return false;
    }
    let mark = Mark {
        class: class_mark(class),
        bytes: bytes as u16,
        own,
    };
    // SAFETY: promised by the caller.
    let packed = unsafe {
        raw.cast::<Mark>().write_unaligned(mark);
        values(raw).write_bytes(0, room);
        std::slice::from_raw_parts_mut(values(raw), room)
    };
    let defaults = class.defaults();
    let given = room.min(defaults.len());
    packed[..given].copy_from_slice(&defaults[..given]);
    first
        .iter()
        .all(|(number, value)| class.write(packed, *number, *value))
}

/// Initial values of a new descriptor that are not the defaults.
pub type First<'a> = &'a [(u16, u64)];

/// Allocates a descriptor.
///
/// # Errors
///
/// `INVALID_VALUE` if `to` is NULL.
///
/// # Safety
///
/// `to` is NULL or the caller's to write to.
pub unsafe fn create(class: Class, to: *mut Raw, first: First<'_>) -> Result<(), Status> {
    if to.is_null() {
        return Err(status::INVALID_VALUE);
    }
    // All have the size of the largest one, so that the allocator treats them alike.
    let raw = Box::into_raw(Box::<[u64; MOST]>::new_uninit()).cast::<u64>();
    // SAFETY: the memory is ours and has room for every class; the caller's pointer is not NULL.
    unsafe {
        write_new(class, raw, words(class) * 8, raw as u32, first);
        to.write(raw);
    }
    Ok(())
}

/// Makes a descriptor in the program's memory.
///
/// # Errors
///
/// `ALLOC_FAILED` if the memory is too small for it or for its first values; `INVALID_VALUE` if the pointer is NULL.
///
/// # Safety
///
/// `raw` is NULL or to so many bytes, which are the caller's to write to.
pub unsafe fn init(class: Class, raw: Raw, bytes: usize, first: First<'_>) -> Result<(), Status> {
    if raw.is_null() {
        return Err(status::INVALID_VALUE);
    }
    if bytes < LEAST {
        return Err(status::ALLOC_FAILED);
    }
    // SAFETY: promised by the caller.
    match unsafe { write_new(class, raw, bytes.min(words(class) * 8), 0, first) } {
        true => Ok(()),
        false => Err(status::ALLOC_FAILED),
    }
}

/// Frees a descriptor that this library allocated; ignores NULL.
///
/// # Errors
///
/// `INVALID_VALUE` if this library did not allocate it.
///
/// # Safety
///
/// As [`Descriptor::read`]; the descriptor is no longer in use.
pub unsafe fn destroy(class: Class, raw: Raw) -> Result<(), Status> {
    if raw.is_null() {
        return Ok(());
    }
    // SAFETY: promised by the caller.
    let found = unsafe { Descriptor::read(class, raw) }?;
    if found.own != raw as u32 {
        return Err(status::INVALID_VALUE);
    }
    // SAFETY: the mark says that `create` made it here. A second destruction is noticed by the missing mark, unless the
    // memory has been reused.
    unsafe {
        raw.write(0);
        drop(Box::from_raw(raw.cast::<MaybeUninit<[u64; MOST]>>()));
    }
    Ok(())
}

/// Sets an attribute.
///
/// # Errors
///
/// `INVALID_VALUE` if there is no such descriptor or attribute, or the size is wrong.
///
/// # Safety
///
/// As [`Descriptor::read`]; `from` is NULL or to so many bytes.
pub unsafe fn set(
    class: Class,
    raw: Raw,
    number: u32,
    from: *const u8,
    bytes: usize,
) -> Result<(), Status> {
    // SAFETY: promised by the caller.
    let found = unsafe { Descriptor::read(class, raw) }?;
    let (place, width) = attribute(&found, number)?;
    if from.is_null() || bytes != width {
        return Err(status::INVALID_VALUE);
    }
    // SAFETY: promised by the caller; the attribute is in the descriptor, which is not read any more.
    unsafe { std::ptr::copy(from, values(raw).add(place), width) };
    Ok(())
}

/// The offset of an attribute in a descriptor's values, and its size.
fn attribute(of: &Descriptor<'_>, number: u32) -> Result<(usize, usize), Status> {
    let number = u16::try_from(number).map_err(|_| status::INVALID_VALUE)?;
    let found = of.class.find(number);
    let (place, attribute) = found.ok_or(status::INVALID_VALUE)?;
    let width = usize::from(attribute.bytes);
    match place + width <= of.as_ref().len() {
        true => Ok((place, width)),
        false => Err(status::INVALID_VALUE),
    }
}

/// Reads an attribute, or its size if the given size is 0.
///
/// # Errors
///
/// `INVALID_VALUE` if there is no such descriptor or attribute, the size is wrong, or both pointers are NULL.
///
/// # Safety
///
/// As [`Descriptor::read`]; `to` and `written` are NULL or the caller's to write to, `to` for so many bytes.
pub unsafe fn get(
    class: Class,
    raw: Raw,
    number: u32,
    to: *mut u8,
    bytes: usize,
    written: *mut usize,
) -> Result<(), Status> {
    // SAFETY: promised by the caller.
    let found = unsafe { Descriptor::read(class, raw) }?;
    let (place, width) = attribute(&found, number)?;
    let value = &found.as_ref()[place..place + width];
    // SAFETY: promised by the caller.
    unsafe { give(value, to, bytes, written, |room| room == width) }
}

/// Writes a value to the program's pointer, or the value's size if the given size is 0.
///
/// # Errors
///
/// `INVALID_VALUE` if both pointers are NULL, or the size is wrong.
///
/// # Safety
///
/// `to` and `written` are NULL or the caller's to write to, `to` for so many bytes.
pub unsafe fn give(
    value: &[u8],
    to: *mut u8,
    bytes: usize,
    written: *mut usize,
    is_right: impl FnOnce(usize) -> bool,
) -> Result<(), Status> {
    let is_good = match bytes {
        0 => !written.is_null(),
        _ => !to.is_null() && is_right(bytes) && value.len() <= bytes,
    };
    if !is_good {
        return Err(status::INVALID_VALUE);
    }
    // SAFETY: promised by the caller.
    unsafe {
        if bytes != 0 {
            std::ptr::copy_nonoverlapping(value.as_ptr(), to, value.len());
        }
        if !written.is_null() {
            written.write(value.len());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::ptr::{null, null_mut};

    use gpgpu_protocol::libraries::cublaslt::attributes::{BATCH_COUNT, COLUMNS, LEADING, ROWS};

    use super::*;

    fn new(class: Class) -> Raw {
        let mut raw = null_mut();
        // SAFETY: a pointer to write to.
        unsafe { create(class, &mut raw, &[]) }.unwrap();
        raw
    }

    /// An attribute of 4 bytes.
    fn get_word(class: Class, raw: Raw, number: u32) -> Result<u32, Status> {
        let (mut value, mut written) = (0_u32, 0);
        let to = (&raw mut value).cast();
        // SAFETY: the descriptor is one of the tests', and there is room for 4 bytes.
        unsafe { get(class, raw, number, to, 4, &mut written) }?;
        assert_eq!(written, 4);
        Ok(value)
    }

    fn set_word(class: Class, raw: Raw, number: u32, value: u32) -> Result<(), Status> {
        // SAFETY: the descriptor is one of the tests', and the value has 4 bytes.
        unsafe { set(class, raw, number, (&raw const value).cast(), 4) }
    }

    fn end(class: Class, raw: Raw) -> Result<(), Status> {
        // SAFETY: a descriptor of the tests', or NULL.
        unsafe { destroy(class, raw) }
    }

    #[test]
    fn attributes_have_their_set_values_or_their_defaults() {
        let class = Class::Operation;
        let raw = new(class);
        for (number, default) in [(3, 0), (6, 2), (7, 1), (22, u32::MAX), (41, 0x8000)] {
            assert_eq!(get_word(class, raw, number), Ok(default), "{number}");
            set_word(class, raw, number, 5).unwrap();
            assert_eq!(get_word(class, raw, number), Ok(5), "{number}");
        }
        // Of other sizes, and unknown ones.
        for number in [8, 25, 9, 42, 0x1_0003, u32::MAX] {
            let refused = Err(status::INVALID_VALUE);
            assert_eq!(get_word(class, raw, number), refused, "{number}");
            assert_eq!(set_word(class, raw, number, 1), Err(status::INVALID_VALUE));
        }
        end(class, raw).unwrap();
        assert_eq!(end(class, null_mut()), Ok(()));
    }

    #[test]
    fn sizes_are_asked_for_with_a_size_of_nothing() {
        let (class, raw) = (Class::Operation, new(Class::Operation));
        let mut value = [0xee_u8; 16];
        let to = value.as_mut_ptr();
        let mut written = 99;
        // SAFETY: the descriptor is ours; pointers are NULL or valid.
        unsafe {
            for (number, bytes) in [(0, 4), (8, 8), (25, 1)] {
                get(class, raw, number, null_mut(), 0, &mut written).unwrap();
                assert_eq!(written, bytes);
                for wrong in [bytes - 1, bytes + 1].into_iter().filter(|n| *n != 0) {
                    let refused = get(class, raw, number, to, wrong, &mut written);
                    assert_eq!(refused, Err(status::INVALID_VALUE), "{number} {wrong}");
                    assert!(set(class, raw, number, to, wrong).is_err());
                }
                get(class, raw, number, to, bytes, null_mut()).unwrap();
                assert!(get(class, raw, number, null_mut(), bytes, &mut written).is_err());
                assert!(get(class, raw, number, to, 0, null_mut()).is_err());
                assert!(set(class, raw, number, null(), bytes).is_err());
            }
        }
        assert_eq!(value[8..], [0xee; 8]);
        end(class, raw).unwrap();
    }

    #[test]
    fn a_descriptor_is_in_its_bytes_and_moves_with_them() {
        let class = Class::Layout;
        let first = [(ROWS, 7), (COLUMNS, 5), (LEADING, 9)];
        // The sizes in CUDA 12's header, and in 13.1's.
        for (words, has_groups) in [(8, false), (14, true)] {
            let mut room = [0xeeee_u64; 16];
            // SAFETY: there is as much room.
            unsafe { init(class, room.as_mut_ptr(), words * 8, &first) }.unwrap();
            assert!(room[words..].iter().all(|word| *word == 0xeeee));
            set_word(class, room.as_mut_ptr(), BATCH_COUNT.into(), 3).unwrap();
            let mut copy = room;
            set_word(class, copy.as_mut_ptr(), BATCH_COUNT.into(), 4).unwrap();
            assert_eq!(get_word(class, room.as_mut_ptr(), 5), Ok(3));
            assert_eq!(get_word(class, copy.as_mut_ptr(), 5), Ok(4));
            assert_eq!(get_word(class, copy.as_mut_ptr(), 12).is_ok(), has_groups);
            assert_eq!(
                set_word(class, copy.as_mut_ptr(), 12, 1).is_ok(),
                has_groups
            );
            assert!(copy[words..].iter().all(|word| *word == 0xeeee));
            // SAFETY: a descriptor.
            let read = unsafe { Descriptor::read(class, copy.as_mut_ptr()) }.unwrap();
            assert_eq!([ROWS, COLUMNS, LEADING].map(|of| read.get(of)), [7, 5, 9]);
            // This library did not allocate it.
            assert_eq!(end(class, room.as_mut_ptr()), Err(status::INVALID_VALUE));
        }
        let mut room = [0xeeee_u64; 16];
        for bytes in [0, 56, 63] {
            // SAFETY: there is as much room.
            let small = unsafe { init(class, room.as_mut_ptr(), bytes, &first) };
            assert_eq!(small, Err(status::ALLOC_FAILED));
        }
        let groups = [(9, 0x1000)];
        // SAFETY: as above.
        let without_room = unsafe { init(class, room.as_mut_ptr(), 64, &groups) };
        assert_eq!(without_room, Err(status::ALLOC_FAILED));
        assert_eq!(room, [0xeeee; 16]);
    }

    #[test]
    fn a_descriptor_of_another_class_is_refused() {
        let raw = new(Class::Layout);
        let mut copy = [0_u64; MOST];
        // SAFETY: one of ours has so many words.
        unsafe { std::ptr::copy_nonoverlapping(raw, copy.as_mut_ptr(), MOST) };
        let copied = copy.as_mut_ptr();
        assert_eq!(get_word(Class::Layout, copied, 5), Ok(1));
        assert_eq!(end(Class::Layout, copied), Err(status::INVALID_VALUE));
        let refused = Err(status::INVALID_VALUE);
        assert_eq!(get_word(Class::Operation, raw, 0), refused);
        assert_eq!(end(Class::Operation, raw), Err(status::INVALID_VALUE));
        assert_eq!(get_word(Class::Layout, null_mut(), 0), refused);
        for word in [0, u64::MAX, copy[0] | 0xffff_0000, copy[0] & !0xffff_0000] {
            copy[0] = word;
            assert_eq!(get_word(Class::Layout, copy.as_mut_ptr(), 0), refused);
        }
        end(Class::Layout, raw).unwrap();
    }

    #[test]
    fn an_operation_leads_to_its_emulation() {
        let (operation, emulation) = (new(Class::Operation), new(Class::Emulation));
        // SAFETY: the descriptors are ours.
        unsafe {
            let none = Descriptor::read(Class::Operation, operation).unwrap();
            assert!(none.emulation().unwrap().is_none());
            let mut address = emulation as u64;
            let from = (&raw const address).cast();
            set(Class::Operation, operation, EMULATION.into(), from, 8).unwrap();
            set_word(Class::Emulation, emulation, 0, 2).unwrap();
            let with = Descriptor::read(Class::Operation, operation).unwrap();
            assert_eq!(with.emulation().unwrap().unwrap().get(0), 2);
            address = operation as u64;
            let from = (&raw const address).cast();
            set(Class::Operation, operation, EMULATION.into(), from, 8).unwrap();
            let wrong = Descriptor::read(Class::Operation, operation).unwrap();
            assert!(wrong.emulation().is_err());
        }
        end(Class::Operation, operation).unwrap();
        end(Class::Emulation, emulation).unwrap();
    }
}
