// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Descriptors: numbers that name values of attributes.

use std::ffi::c_int;
use std::sync::Arc;

use gpgpu_locks::Mutex;
use gpgpu_stand_in::call::{Answer, Argument};
use gpgpu_stand_in::objects::Objects;

use crate::handle::enter;
use crate::types::{Result, Status};

use super::give;

/// A kind of descriptor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Class {
    /// `cublasLtMatmulDesc_t`.
    Operation,
    /// `cublasLtMatrixLayout_t`.
    Layout,
    /// `cublasLtMatmulPreference_t`.
    Preference,
    /// `cublasLtMatrixTransformDesc_t`.
    Transform,
}

/// More than the number of any attribute.
const NUMBERS: usize = 42;

impl Class {
    // An attribute's size in bytes, and its value at first.
    fn attribute(self, number: usize) -> Option<(usize, u64)> {
        Some(match (self, number) {
            (Self::Operation, 6) => (4, 2),
            (Self::Operation, 7) => (4, 1),
            (Self::Operation, 22 | 26) => (4, u32::MAX.into()),
            (Self::Operation, 25) => (1, 0),
            (Self::Operation, 41) => (4, 0x8000),
            (Self::Operation, 8 | 10..=14 | 17..=21 | 23 | 24 | 36 | 38..=40) => (8, 0),
            (Self::Operation, 0..=5 | 15 | 31..=35 | 37) => (4, 0),
            (Self::Layout, 5) => (4, 1),
            (Self::Layout, 2..=4 | 6 | 7 | 9..=11) => (8, 0),
            (Self::Layout, 0 | 1 | 8 | 12 | 13) => (4, 0),
            (Self::Preference, 3) => (4, 7),
            (Self::Preference, 5..=8) => (4, 256),
            (Self::Preference, 12) => (8, u64::MAX),
            (Self::Preference, 1 | 13..=15) => (8, 0),
            (Self::Preference, 0 | 9) => (4, 0),
            (Self::Transform, 0..=3) => (4, 0),
            _ => return None,
        })
    }
}

/// A descriptor's values.
#[derive(Debug, Clone, Copy)]
pub struct Descriptor {
    class: Class,
    values: [u64; NUMBERS],
}

impl Descriptor {
    fn new(class: Class) -> Self {
        let values =
            std::array::from_fn(|number| class.attribute(number).map_or(0, |(_, value)| value));
        Self { class, values }
    }

    /// An attribute's value.
    pub fn get(&self, number: usize) -> u64 {
        self.values[number]
    }

    /// The same as a signed integer of the attribute's width.
    pub fn int(&self, number: usize) -> i64 {
        match self.class.attribute(number) {
            Some((4, _)) => (self.values[number] as i32).into(),
            _ => self.values[number] as i64,
        }
    }

    /// Whether all other attributes than these have the values that they have at first.
    pub fn has_no_other(&self, but: &[usize]) -> bool {
        let new = Self::new(self.class);
        let mut others = (0..NUMBERS).filter(|number| !but.contains(number));
        others.all(|number| self.values[number] == new.values[number])
    }
}

static DESCRIPTORS: Objects<Mutex<Descriptor>> = Objects::new(0xCB17_0000_0000_0000, 16);

/// The number of a descriptor, which a C program sees as a pointer.
pub type Raw = usize;

fn find(raw: Raw) -> Result<Arc<Mutex<Descriptor>>> {
    DESCRIPTORS.find(raw).ok_or(Status::InvalidValue)
}

fn with<T>(class: Class, raw: Raw, f: impl FnOnce(&mut Descriptor) -> Result<T>) -> Result<T> {
    let found = find(raw)?;
    let mut found = found.lock();
    match found.class == class {
        true => f(&mut found),
        false => Err(Status::InvalidValue),
    }
}

/// The values of a descriptor.
pub fn read(class: Class, raw: Raw) -> Result<Descriptor> {
    with(class, raw, |found| Ok(*found))
}

fn make(class: Class, out: Answer<Raw>, values: &[(usize, u64)]) -> Result {
    if out.is_null() {
        return Err(Status::InvalidValue);
    }
    let mut new = Descriptor::new(class);
    for (number, value) in values {
        new.values[*number] = *value;
    }
    out.set(DESCRIPTORS.add(Mutex::new(new)))
}

fn end(class: Class, raw: Raw) -> Result {
    if raw != 0 {
        with(class, raw, |_| Ok(()))?;
        DESCRIPTORS.remove(raw);
    }
    Ok(())
}

fn set(class: Class, raw: Raw, number: usize, from: Argument<u8>, bytes: usize) -> Result {
    let attribute = class.attribute(number).ok_or(Status::InvalidValue)?;
    if attribute.0 != bytes {
        return Err(Status::InvalidValue);
    }
    let mut value = [0; 8];
    value[..bytes].copy_from_slice(&from.array::<Status>(bytes)?);
    with(class, raw, |found| {
        found.values[number] = u64::from_le_bytes(value);
        Ok(())
    })
}

fn get(
    class: Class,
    raw: Raw,
    number: usize,
    to: *mut u8,
    room: usize,
    written: Answer<usize>,
) -> Result {
    let (bytes, _) = class.attribute(number).ok_or(Status::InvalidValue)?;
    let value = with(class, raw, |found| Ok(found.values[number]))?;
    let value = &value.to_le_bytes()[..bytes];
    give(value, to, room, written, room == bytes)
}

macro_rules! export {
    ($($class:ident: $create:ident ($($arg:ident: $ty:ty),*) [$($first:expr),*] $destroy:ident $set:ident $get:ident;)*) => {$(
        #[unsafe(no_mangle)]
        extern "C" fn $create(out: Answer<Raw> $(, $arg: $ty)*) -> c_int {
            enter(|| make(Class::$class, out, &[$($first),*]))
        }

        #[unsafe(no_mangle)]
        extern "C" fn $destroy(raw: Raw) -> c_int {
            enter(|| end(Class::$class, raw))
        }

        #[unsafe(no_mangle)]
        extern "C" fn $set(raw: Raw, number: u32, from: Argument<u8>, bytes: usize) -> c_int {
            enter(|| set(Class::$class, raw, number as usize, from, bytes))
        }

        #[unsafe(no_mangle)]
        extern "C" fn $get(
            raw: Raw,
            number: u32,
            to: *mut u8,
            room: usize,
            written: Answer<usize>,
        ) -> c_int {
            enter(|| get(Class::$class, raw, number as usize, to, room, written))
        }
    )*};
}

export! {
    Operation: cublasLtMatmulDescCreate (compute: u32, scale: u32) [(0, compute.into()), (1, scale.into())]
        cublasLtMatmulDescDestroy cublasLtMatmulDescSetAttribute cublasLtMatmulDescGetAttribute;
    Layout: cublasLtMatrixLayoutCreate (data: u32, rows: u64, columns: u64, leading: u64)
        [(0, data.into()), (2, rows), (3, columns), (4, leading)]
        cublasLtMatrixLayoutDestroy cublasLtMatrixLayoutSetAttribute cublasLtMatrixLayoutGetAttribute;
    Preference: cublasLtMatmulPreferenceCreate () []
        cublasLtMatmulPreferenceDestroy cublasLtMatmulPreferenceSetAttribute cublasLtMatmulPreferenceGetAttribute;
    Transform: cublasLtMatrixTransformDescCreate (scale: u32) [(0, scale.into())]
        cublasLtMatrixTransformDescDestroy cublasLtMatrixTransformDescSetAttribute cublasLtMatrixTransformDescGetAttribute;
}
