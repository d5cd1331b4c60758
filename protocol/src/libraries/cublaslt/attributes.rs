// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The attributes of cuBLASLt's descriptors: their sizes and their default values.
//!
//! Both sides use these tables. The guest stores descriptors by them. The worker passes the library no attribute that
//! the tables lack: the library takes some attributes for host addresses, and a guest could choose such an address.

/// A kind of descriptor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Class {
    /// `cublasLtMatmulDesc_t`: a product.
    Operation,
    /// `cublasLtMatrixLayout_t`: how a matrix lies in memory.
    Layout,
    /// `cublasLtMatmulPreference_t`: the bounds on an algorithm.
    Preference,
    /// `cublasLtMatrixTransformDesc_t`: a transformation.
    Transform,
    /// `cublasLtEmulationDesc_t`: how floating-point arithmetic is emulated.
    Emulation,
}

/// The type of an attribute's value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Holds {
    /// A number.
    Value,
    /// An address in device memory.
    Device,
    /// The address of an emulation descriptor. The request carries the descriptor's content instead.
    Emulation,
}

/// An attribute.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attribute {
    /// Its number in the class's enumeration.
    pub number: u16,
    /// Its size in bytes, at most 8.
    pub bytes: u8,
    /// The type of its value.
    pub holds: Holds,
    /// Its value in a new descriptor.
    pub default: u64,
}

macro_rules! attributes {
    ($($number:literal $kind:ident $(= $default:literal)?;)*) => {
        &[$(attributes!(@ $number $kind 0 $($default)?)),*]
    };
    (@ $number:literal $kind:ident 0 $default:literal) => {
        attributes!(@@ $number $kind $default)
    };
    (@ $number:literal $kind:ident 0) => {
        attributes!(@@ $number $kind 0)
    };
    (@@ $number:literal i8 $default:literal) => {
        attributes!(@@@ $number 1 Value $default)
    };
    (@@ $number:literal i32 $default:literal) => {
        attributes!(@@@ $number 4 Value $default)
    };
    (@@ $number:literal i64 $default:literal) => {
        attributes!(@@@ $number 8 Value $default)
    };
    (@@ $number:literal device $default:literal) => {
        attributes!(@@@ $number 8 Device $default)
    };
    (@@ $number:literal emulation $default:literal) => {
        attributes!(@@@ $number 8 Emulation $default)
    };
    (@@@ $number:literal $bytes:literal $holds:ident $default:literal) => {
        Attribute { number: $number, bytes: $bytes, holds: Holds::$holds, default: $default }
    };
}

/// `CUBLASLT_MATMUL_DESC_COMPUTE_TYPE`.
pub const COMPUTE_TYPE: u16 = 0;
/// `CUBLASLT_MATMUL_DESC_SCALE_TYPE`: the type of alpha and beta.
pub const SCALE_TYPE: u16 = 1;
/// `CUBLASLT_MATMUL_DESC_POINTER_MODE`: where alpha and beta are.
pub const POINTER_MODE: u16 = 2;
/// `CUBLASLT_MATMUL_DESC_EMULATION_DESCRIPTOR`.
pub const EMULATION: u16 = 38;
/// `CUBLASLT_MATRIX_TRANSFORM_DESC_SCALE_TYPE`.
pub const TRANSFORM_SCALE_TYPE: u16 = 0;
/// `CUBLASLT_MATRIX_TRANSFORM_DESC_POINTER_MODE`.
pub const TRANSFORM_POINTER_MODE: u16 = 1;
/// `CUBLASLT_MATRIX_LAYOUT_TYPE`.
pub const LAYOUT_TYPE: u16 = 0;
/// `CUBLASLT_MATRIX_LAYOUT_ROWS`.
pub const ROWS: u16 = 2;
/// `CUBLASLT_MATRIX_LAYOUT_COLS`.
pub const COLUMNS: u16 = 3;
/// `CUBLASLT_MATRIX_LAYOUT_LD`.
pub const LEADING: u16 = 4;
/// `CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT`.
pub const BATCH_COUNT: u16 = 5;
/// `CUBLASLT_MATRIX_LAYOUT_BATCH_MODE`.
pub const BATCH_MODE: u16 = 8;
/// `CUBLASLT_GROUPED_MATRIX_LAYOUT_ROWS_ARRAY`, `…_COLS_ARRAY` and `…_LD_ARRAY`.
pub const GROUPED_ARRAYS: [u16; 3] = [9, 10, 11];
/// `CUBLASLT_MATMUL_PREF_SEARCH_MODE`: whether the algorithms are given.
pub const SEARCH_MODE: u16 = 0;

// Ordered by age, and so by number: a program compiled with an old header has room only for the first ones. The missing
// numbers are unused or belong to CUDA 11.
const OPERATION: &[Attribute] = attributes! {
    // The compute type, the scale type, and where scalars are.
    0 i32; 1 i32; 2 i32;
    // The operations on A, B and C; the triangle: all of it; the epilogue: none.
    3 i32; 4 i32; 5 i32; 6 i32 = 2; 7 i32 = 1;
    // The bias, and the epilogue's second matrix.
    8 device; 10 i64; 11 device; 12 i64; 13 i64;
    // Alpha's stride, and multiprocessors.
    14 i64; 15 i32;
    // Factors of A, B, C and D; where the greatest value goes.
    17 device; 18 device; 19 device; 20 device; 21 device;
    // The second matrix's type, factor and greatest value; whether sums may be rough; the bias's type.
    22 i32 = 0xffff_ffff; 23 device; 24 device; 25 i8; 26 i32 = 0xffff_ffff;
    // Counters of chunks, in CUDA 12 alone.
    27 i32; 28 i32; 29 device; 30 device;
    // Modes of the scaling factors of inputs and outputs.
    31 i32; 32 i32; 33 i32; 34 i32; 35 i32; 36 device; 37 i32;
    38 emulation;
    // Strides of alpha and beta; whether a batch's size may change results: not set.
    39 i64; 40 i64; 41 i32 = 0x8000;
};

const LAYOUT: &[Attribute] = attributes! {
    // Type, order, rows, columns, leading dimension.
    0 i32; 1 i32; 2 i64; 3 i64; 4 i64;
    // Matrices of a batch, and where the next one is; where the imaginary parts are; how a batch lies.
    5 i32 = 1; 6 i64; 7 i64; 8 i32;
    // Arrays of rows, columns and leading dimensions, and how wide these are.
    9 device; 10 device; 11 device; 12 i32; 13 i32;
};

const PREFERENCE: &[Attribute] = attributes! {
    // How to search; bytes of the workspace; schemes of reduction: all.
    0 i32; 1 i64; 3 i32 = 7;
    // Alignments of A, B, C and D; waves (an `f32`); implementations: all.
    5 i32 = 256; 6 i32 = 256; 7 i32 = 256; 8 i32 = 256; 9 i32; 12 i64 = 0xffff_ffff_ffff_ffff;
    // Means of groups. The header says 4 bytes; the library takes 8 and no other size.
    13 i64; 14 i64; 15 i64;
};

const TRANSFORM: &[Attribute] = attributes! {
    // The scale type, the place of scalars, the operations on A and B.
    0 i32; 1 i32; 2 i32; 3 i32;
};

const EMULATED: &[Attribute] = attributes! {
    // When; special values: all; mantissas, and where their bits are counted.
    0 i32; 1 i32 = 0xffff; 2 i32; 3 i32; 4 i32; 5 device;
};

impl Attribute {
    /// The attribute's value at an offset of packed values; `None` if they end before it.
    #[inline]
    pub fn read(&self, packed: &[u8], place: usize) -> Option<u64> {
        // The loads have a fixed width: a copy of variable length calls `memcpy`.
        let from = packed.get(place..)?;
        match self.bytes {
            1 => from.first().copied().map(u64::from),
            4 => Some(u32::from_le_bytes(*from.first_chunk()?).into()),
            _ => Some(u64::from_le_bytes(*from.first_chunk()?)),
        }
    }
}

/// A bound above every attribute's number and index.
const NUMBERS: usize = 42;
/// A bound above the size of any class's packed values.
const BYTES: usize = 256;

/// The words of 8 bytes in them.
const WORDS: usize = BYTES / 8;

/// A class's attributes by number and by offset, and the default values. Every call reads a whole descriptor, so
/// lookups must be fast.
struct Tables {
    /// Indices; [`Tables::NO_INDEX`] marks a number without an attribute.
    by_number: [u8; NUMBERS],
    /// A bit mask for each word of the packed values: bit N is set if attribute N has a byte in the word.
    by_word: [u64; WORDS],
    places: [u8; NUMBERS],
    defaults: [u8; BYTES],
}

impl Tables {
    const NO_INDEX: u8 = u8::MAX;
    const NONE: Self = Self {
        by_number: [Self::NO_INDEX; NUMBERS],
        by_word: [0; WORDS],
        places: [0; NUMBERS],
        defaults: [0; BYTES],
    };

    const fn of(attributes: &[Attribute]) -> Self {
        let mut tables = Self::NONE;
        let (mut index, mut place) = (0, 0);
        while index < attributes.len() {
            let of = attributes[index];
            tables.by_number[of.number as usize] = index as u8;
            tables.places[index] = place as u8;
            let (bytes, mut at) = (of.default.to_le_bytes(), 0);
            while at < of.bytes as usize {
                tables.by_word[place / 8] |= 1 << index;
                tables.defaults[place] = bytes[at];
                at += 1;
                place += 1;
            }
            index += 1;
        }
        tables
    }
}

impl Class {
    /// All classes.
    pub const ALL: [Self; 5] = [
        Self::Operation,
        Self::Layout,
        Self::Preference,
        Self::Transform,
        Self::Emulation,
    ];

    /// Its attributes, by number.
    pub const fn attributes(self) -> &'static [Attribute] {
        match self {
            Self::Operation => OPERATION,
            Self::Layout => LAYOUT,
            Self::Preference => PREFERENCE,
            Self::Transform => TRANSFORM,
            Self::Emulation => EMULATED,
        }
    }

    /// The attribute with this number and the offset of its value in the packed values; `None` if there is none.
    #[inline]
    pub fn find(self, number: u16) -> Option<(usize, &'static Attribute)> {
        let index = *self.tables().by_number.get(usize::from(number))?;
        let of = self.attributes().get(usize::from(index))?;
        Some((self.place(index.into()), of))
    }

    /// The offset of the value of the attribute with this index in [`Class::attributes`].
    #[inline]
    pub fn place(self, index: usize) -> usize {
        self.tables().places[index].into()
    }

    /// The attributes that have a byte in this word of the packed values: bit N for the attribute with index N.
    #[inline]
    pub fn in_word(self, word: usize) -> u64 {
        self.tables().by_word.get(word).copied().unwrap_or(0)
    }

    /// The packed values of a new descriptor.
    pub fn defaults(self) -> &'static [u8] {
        &self.tables().defaults[..self.packed()]
    }

    /// The same as words, padded with zeros.
    pub fn default_words(self) -> &'static [[u8; 8]] {
        self.tables().defaults.as_chunks().0
    }

    #[inline]
    fn tables(self) -> &'static Tables {
        static ALL: [Tables; Class::ALL.len()] = {
            let mut all = [Tables::NONE; Class::ALL.len()];
            let mut at = 0;
            while at < all.len() {
                all[Class::ALL[at] as usize] = Tables::of(Class::ALL[at].attributes());
                at += 1;
            }
            all
        };
        &ALL[self as usize]
    }

    /// Writes an attribute's value to packed values. Returns whether the attribute exists and the packed values have
    /// room for it.
    pub fn write(self, packed: &mut [u8], number: u16, value: u64) -> bool {
        let found = self.find(number).and_then(|(place, of)| {
            // The stores have a fixed width: a copy of variable length calls `memcpy`.
            let to = packed.get_mut(place..)?;
            match of.bytes {
                1 => *to.first_mut()? = value as u8,
                4 => *to.first_chunk_mut()? = (value as u32).to_le_bytes(),
                _ => *to.first_chunk_mut()? = value.to_le_bytes(),
            }
            Some(())
        });
        found.is_some()
    }

    /// Reads an attribute's value from packed values; `None` if there is none.
    #[inline]
    pub fn read(self, packed: &[u8], number: u16) -> Option<u64> {
        let (place, of) = self.find(number)?;
        of.read(packed, place)
    }

    /// The bytes of all values.
    pub const fn packed(self) -> usize {
        let (mut at, mut bytes) = (0, 0);
        while at < self.attributes().len() {
            bytes += self.attributes()[at].bytes as usize;
            at += 1;
        }
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_are_in_order_and_their_defaults_fit() {
        for class in Class::ALL {
            let all = class.attributes();
            assert!(all.is_sorted_by(|one, next| one.number < next.number));
            let mut place = 0;
            for (index, of) in all.iter().enumerate() {
                assert_eq!(class.find(of.number), Some((place, of)));
                assert_eq!(class.place(index), place);
                for word in 0..=WORDS {
                    let mut bytes = place..place + usize::from(of.bytes);
                    let is_in = class.in_word(word) >> index & 1 == 1;
                    assert_eq!(is_in, bytes.any(|byte| byte / 8 == word));
                }
                assert!([1, 4, 8].contains(&of.bytes));
                assert!(of.bytes == 8 || of.default >> (8 * of.bytes) == 0);
                let is_address = of.holds != Holds::Value;
                assert!(!is_address || (of.bytes, of.default) == (8, 0));
                place += usize::from(of.bytes);
            }
            assert_eq!(class.packed(), place);
            assert_eq!(class.defaults().len(), place);
            assert_eq!(class.find(0x7fff), None);
        }
        // CUDA 11's.
        assert_eq!(Class::Operation.find(9), None);
    }

    #[test]
    fn values_are_packed_and_those_without_room_are_not_there() {
        for class in Class::ALL {
            let mut packed = class.defaults().to_vec();
            for of in class.attributes() {
                assert_eq!(class.read(&packed, of.number), Some(of.default));
                let all_ones = u64::MAX >> (64 - 8 * of.bytes);
                assert!(class.write(&mut packed, of.number, all_ones));
                assert_eq!(class.read(&packed, of.number), Some(all_ones));
                assert!(class.write(&mut packed, of.number, of.default));
            }
            let last = class.attributes().last().unwrap();
            let short = packed.len() - 1;
            assert_eq!(class.read(&packed[..short], last.number), None);
            assert!(!class.write(&mut packed[..short], last.number, 1));
            assert_eq!(class.read(&packed, last.number), Some(last.default));
        }
    }
}
