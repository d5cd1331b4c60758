// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The stream codec: the encoding of arguments and results.
//!
//! A scalar takes eight bytes, little-endian and zero- or sign-extended. A byte string is its length, then its bytes,
//! padded with zeros to a multiple of eight. So everything is aligned, and a reader needs to know only the order of the
//! fields.

use thiserror::Error;

/// The reason why bytes could not be decoded.
#[derive(Debug, Error, Clone, Copy, PartialEq, Eq)]
pub enum Malformed {
    /// The bytes end before the value does.
    #[error("Truncated")]
    Truncated,
    /// A scalar does not fit its type.
    #[error("Value out of range")]
    Range,
    /// A byte string that should be text is not UTF-8.
    #[error("Text is not UTF-8")]
    Text,
    /// There are bytes after the last value.
    #[error("Trailing bytes")]
    Trailing,
}

/// Appends values to a buffer.
#[derive(Debug, Default)]
pub struct Writer {
    bytes: Vec<u8>,
}

impl Writer {
    /// An empty writer.
    pub fn new() -> Self {
        Self::default()
    }

    /// A writer that appends to `bytes`.
    #[inline]
    pub fn on(bytes: Vec<u8>) -> Self {
        Self { bytes }
    }

    /// Appends a scalar.
    #[inline]
    pub fn word(&mut self, value: u64) {
        self.bytes.extend_from_slice(&value.to_le_bytes());
    }

    /// Appends a byte string.
    pub fn bytes(&mut self, value: &[u8]) {
        self.word(value.len() as u64);
        self.bytes.extend_from_slice(value);
        self.bytes.resize(self.bytes.len().next_multiple_of(8), 0);
    }

    /// Appends a byte string of `length` bytes, which are zeros until `fill` has written them.
    #[inline]
    pub fn bytes_with(&mut self, length: usize, fill: impl FnOnce(&mut [u8])) {
        self.word(length as u64);
        let start = self.bytes.len();
        self.bytes.resize(start + length.next_multiple_of(8), 0);
        fill(&mut self.bytes[start..start + length]);
    }

    /// Appends a value.
    #[inline]
    pub fn put<T: Wire>(&mut self, value: &T) {
        value.put(self);
    }

    /// The bytes encoded so far.
    #[inline]
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The encoded bytes.
    #[inline]
    pub fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }
}

/// Reads values from a byte slice, which must be a private copy that cannot change.
#[derive(Debug, Clone)]
pub struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    /// A reader of `bytes`.
    #[inline]
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    #[inline]
    fn take(&mut self, count: usize) -> Result<&'a [u8], Malformed> {
        let (head, rest) = self
            .rest
            .split_at_checked(count)
            .ok_or(Malformed::Truncated)?;
        self.rest = rest;
        Ok(head)
    }

    /// Takes a scalar.
    #[inline]
    pub fn word(&mut self) -> Result<u64, Malformed> {
        let bytes = self.take(8)?;
        Ok(u64::from_le_bytes(
            bytes.try_into().map_err(|_| Malformed::Truncated)?,
        ))
    }

    /// Reads a byte string, which borrows from the slice.
    pub fn bytes(&mut self) -> Result<&'a [u8], Malformed> {
        let length = usize::try_from(self.word()?).map_err(|_| Malformed::Range)?;
        let value = self.take(length)?;
        self.take(length.next_multiple_of(8) - length)?;
        Ok(value)
    }

    /// Takes a value.
    #[inline]
    pub fn get<T: Wire>(&mut self) -> Result<T, Malformed> {
        T::get(self)
    }

    /// Checks that no bytes are left.
    pub fn end(&self) -> Result<(), Malformed> {
        if self.rest.is_empty() {
            Ok(())
        } else {
            Err(Malformed::Trailing)
        }
    }
}

/// The encoding of a value. Tables of different versions are compared by it, and the specification's annex is generated
/// from it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    /// No bytes.
    Nothing,
    /// A scalar of this type.
    Scalar(&'static str),
    /// A byte string of this length.
    Array(usize),
    /// A byte string.
    Bytes,
    /// A byte string that is UTF-8.
    Text,
    /// A `bool`, then the value if that is true.
    Optional(&'static Shape),
    /// A count, then that many values; at most the second number, if there is one.
    List(&'static Shape, Option<usize>),
    /// A structure: its fields in order.
    Structure(&'static Structure),
}

/// A structure of the protocol.
#[derive(Debug, PartialEq, Eq)]
pub struct Structure {
    /// Its name.
    pub name: &'static str,
    /// The description, line by line.
    pub doc: &'static [&'static str],
    /// Its fields, in encoding order.
    pub fields: &'static [Field],
}

/// A field of a structure of the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Field {
    /// Its name.
    pub name: &'static str,
    /// The description, line by line.
    pub doc: &'static [&'static str],
    /// The encoding.
    pub shape: &'static Shape,
}

/// The initial value of a hash (FNV-1a, 64 bits).
pub const FNV: u64 = 0xcbf2_9ce4_8422_2325;

/// Continues a hash over the bytes, and over a byte that no text contains.
pub const fn fnv(mut hash: u64, bytes: &[u8]) -> u64 {
    let mut at = 0;
    while at < bytes.len() {
        hash = (hash ^ bytes[at] as u64).wrapping_mul(0x0100_0000_01b3);
        at += 1;
    }
    (hash ^ 0xff).wrapping_mul(0x0100_0000_01b3)
}

impl Shape {
    /// Continues a hash over types, and over names and order of fields. A structure's own name is not included, nor is
    /// the documentation of it and its fields.
    pub const fn hash(&self, hash: u64) -> u64 {
        match self {
            Self::Nothing => fnv(hash, b"nothing"),
            Self::Scalar(name) => fnv(hash, name.as_bytes()),
            Self::Array(length) => number(fnv(hash, b"array"), *length),
            Self::Bytes => fnv(hash, b"bytes"),
            Self::Text => fnv(hash, b"text"),
            Self::Optional(shape) => shape.hash(fnv(hash, b"optional")),
            Self::List(shape, None) => shape.hash(fnv(hash, b"list")),
            Self::List(shape, Some(most)) => shape.hash(number(fnv(hash, b"list of"), *most)),
            Self::Structure(Structure { fields, .. }) => {
                let mut hash = number(fnv(hash, b"structure"), fields.len());
                let mut at = 0;
                while at < fields.len() {
                    hash = fnv(hash, fields[at].name.as_bytes());
                    hash = fields[at].shape.hash(hash);
                    at += 1;
                }
                hash
            }
        }
    }
}

const fn number(hash: u64, value: usize) -> u64 {
    fnv(hash, &(value as u64).to_le_bytes())
}

/// A value in a stream or an answer.
pub trait Wire: Sized {
    /// The encoding.
    const SHAPE: &'static Shape;
    /// Whether the type limits the value's size: such answers fit into a reply slot of the ring.
    const BOUNDED: bool = true;

    /// Appends the value.
    fn put(&self, writer: &mut Writer);
    /// Takes a value.
    fn get(reader: &mut Reader<'_>) -> Result<Self, Malformed>;
}

macro_rules! scalars {
    ($($scalar:ty as $wide:ty),*) => {$(
        #[allow(clippy::useless_conversion, clippy::unnecessary_fallible_conversions)]
        impl Wire for $scalar {
            const SHAPE: &'static Shape = &Shape::Scalar(stringify!($scalar));

            #[inline]
            fn put(&self, writer: &mut Writer) {
                writer.word(<$wide>::from(*self) as u64);
            }
            #[inline]
            fn get(reader: &mut Reader<'_>) -> Result<Self, Malformed> {
                <$scalar>::try_from(reader.word()? as $wide).map_err(|_| Malformed::Range)
            }
        }
    )*};
}

scalars!(
    u8 as u64, u16 as u64, u32 as u64, u64 as u64, i32 as i64, i64 as i64
);

impl Wire for usize {
    const SHAPE: &'static Shape = &Shape::Scalar("u64");

    #[inline]
    fn put(&self, writer: &mut Writer) {
        writer.word(*self as u64);
    }
    #[inline]
    fn get(reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        usize::try_from(reader.word()?).map_err(|_| Malformed::Range)
    }
}

impl Wire for f32 {
    const SHAPE: &'static Shape = &Shape::Scalar("f32");

    fn put(&self, writer: &mut Writer) {
        writer.word(u64::from(self.to_bits()));
    }
    fn get(reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        Ok(f32::from_bits(reader.get::<u32>()?))
    }
}

impl Wire for bool {
    const SHAPE: &'static Shape = &Shape::Scalar("bool");

    #[inline]
    fn put(&self, writer: &mut Writer) {
        writer.word(u64::from(*self));
    }
    #[inline]
    fn get(reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        match reader.word()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(Malformed::Range),
        }
    }
}

impl Wire for () {
    const SHAPE: &'static Shape = &Shape::Nothing;

    fn put(&self, _: &mut Writer) {}
    fn get(_: &mut Reader<'_>) -> Result<Self, Malformed> {
        Ok(())
    }
}

impl<const N: usize> Wire for [u8; N] {
    const SHAPE: &'static Shape = &Shape::Array(N);

    fn put(&self, writer: &mut Writer) {
        writer.bytes(self);
    }
    fn get(reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        reader.bytes()?.try_into().map_err(|_| Malformed::Range)
    }
}

impl Wire for String {
    const SHAPE: &'static Shape = &Shape::Text;
    const BOUNDED: bool = false;

    fn put(&self, writer: &mut Writer) {
        writer.bytes(self.as_bytes());
    }
    fn get(reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        String::from_utf8(reader.bytes()?.to_vec()).map_err(|_| Malformed::Text)
    }
}

impl<T: Wire> Wire for Option<T> {
    const SHAPE: &'static Shape = &Shape::Optional(T::SHAPE);
    const BOUNDED: bool = T::BOUNDED;

    fn put(&self, writer: &mut Writer) {
        writer.put(&self.is_some());
        if let Some(value) = self {
            writer.put(value);
        }
    }
    fn get(reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        Ok(if reader.get::<bool>()? {
            Some(reader.get()?)
        } else {
            None
        })
    }
}

/// A byte string.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Blob(pub Vec<u8>);

impl Wire for Blob {
    const SHAPE: &'static Shape = &Shape::Bytes;
    const BOUNDED: bool = false;

    fn put(&self, writer: &mut Writer) {
        writer.bytes(&self.0);
    }
    fn get(reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        Ok(Self(reader.bytes()?.to_vec()))
    }
}

impl<T: Wire> Wire for Vec<T> {
    const SHAPE: &'static Shape = &Shape::List(T::SHAPE, None);
    const BOUNDED: bool = false;

    fn put(&self, writer: &mut Writer) {
        writer.put(&self.len());
        for value in self {
            writer.put(value);
        }
    }
    fn get(reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        let count: usize = reader.get()?;
        // Reserving the claimed length would let a peer determine the size of an allocation.
        let mut values = Vec::with_capacity(count.min(reader.rest.len() / 8));
        for _ in 0..count {
            // With a type of no bytes, a short message could cause a long loop.
            if reader.rest.is_empty() {
                return Err(Malformed::Truncated);
            }
            values.push(reader.get()?);
        }
        Ok(values)
    }
}

/// At most `N` values, so that their size is limited.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Few<T, const N: usize>(Vec<T>);

impl<T, const N: usize> Few<T, N> {
    /// The first `N` of `values`; the rest is dropped.
    pub fn first_of(values: impl IntoIterator<Item = T>) -> Self {
        Self(values.into_iter().take(N).collect())
    }

    /// Their number.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are no values.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The values.
    pub fn into_vec(self) -> Vec<T> {
        self.0
    }
}

impl<T, const N: usize> Default for Few<T, N> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T: Wire, const N: usize> Wire for Few<T, N> {
    const SHAPE: &'static Shape = &Shape::List(T::SHAPE, Some(N));
    const BOUNDED: bool = T::BOUNDED;

    fn put(&self, writer: &mut Writer) {
        self.0.put(writer);
    }
    fn get(reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        let values: Vec<T> = reader.get()?;
        if values.len() > N {
            return Err(Malformed::Range);
        }
        Ok(Self(values))
    }
}

/// Encodes a structure as its fields in order.
#[macro_export]
macro_rules! wire_struct {
    ($(
        $(#[doc = $doc:literal])*
        $(#[derive($($derive:ident),*)])?
        pub struct $name:ident { $($(#[doc = $field_doc:literal])* pub $field:ident : $ty:ty,)* }
    )*) => {$(
        $(#[doc = $doc])*
        $(#[derive($($derive),*)])?
        pub struct $name { $($(#[doc = $field_doc])* pub $field: $ty,)* }

        impl $crate::codec::Wire for $name {
            const SHAPE: &'static $crate::codec::Shape = &$crate::codec::Shape::Structure(&$crate::codec::Structure {
                name: stringify!($name),
                doc: &[$($doc),*],
                fields: &[$($crate::codec::Field {
                    name: stringify!($field),
                    doc: &[$($field_doc),*],
                    shape: <$ty as $crate::codec::Wire>::SHAPE,
                }),*],
            });
            const BOUNDED: bool = true $(&& <$ty as $crate::codec::Wire>::BOUNDED)*;

            fn put(&self, _writer: &mut $crate::codec::Writer) {
                $(_writer.put(&self.$field);)*
            }
            fn get(_reader: &mut $crate::codec::Reader<'_>) -> Result<Self, $crate::codec::Malformed> {
                Ok(Self { $($field: _reader.get()?,)* })
            }
        }
    )*};
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round_trip<T: Wire + PartialEq + std::fmt::Debug>(value: T) {
        let mut writer = Writer::new();
        writer.put(&value);
        let bytes = writer.into_bytes();
        assert_eq!(bytes.len() % 8, 0);
        let mut reader = Reader::new(&bytes);
        assert_eq!(reader.get::<T>(), Ok(value));
        assert_eq!(reader.end(), Ok(()));
        for cut in 0..bytes.len() {
            assert!(Reader::new(&bytes[..cut]).get::<T>().is_err());
        }
    }

    #[test]
    fn values_survive_and_every_truncation_is_noticed() {
        round_trip(0xdead_beef_u32);
        round_trip(-7_i32);
        round_trip(u64::MAX);
        round_trip(1.5_f32);
        round_trip(true);
        round_trip(String::from("seven b"));
        round_trip(Blob(vec![1; 9]));
        round_trip(vec![Some(3_u64), None]);
        round_trip([7_u8; 16]);
    }

    #[test]
    fn a_byte_string_written_in_place_is_one_like_any_other() {
        let mut writer = Writer::new();
        writer.bytes_with(9, |bytes| bytes[2..].fill(7));
        let mut expected = Writer::new();
        expected.bytes(&[0, 0, 7, 7, 7, 7, 7, 7, 7]);
        assert_eq!(writer.into_bytes(), expected.into_bytes());
    }

    #[test]
    fn a_scalar_that_does_not_fit_is_refused() {
        let mut writer = Writer::new();
        writer.word(1 << 32);
        let bytes = writer.into_bytes();
        assert_eq!(Reader::new(&bytes).get::<u32>(), Err(Malformed::Range));
        assert_eq!(Reader::new(&bytes).get::<i32>(), Err(Malformed::Range));
        assert_eq!(Reader::new(&bytes).get::<bool>(), Err(Malformed::Range));
    }

    #[test]
    fn few_values_are_no_more_than_the_type_says() {
        round_trip(Few::<u64, 3>::first_of([1, 2, 3, 4]));
        let mut writer = Writer::new();
        writer.put(&vec![1_u64, 2, 3, 4]);
        let bytes = writer.into_bytes();
        assert_eq!(
            Reader::new(&bytes).get::<Few<u64, 3>>(),
            Err(Malformed::Range)
        );
        const { assert!(Few::<u64, 3>::BOUNDED && !Few::<String, 3>::BOUNDED) };
    }

    #[test]
    fn a_claimed_count_does_not_choose_an_allocation() {
        let mut writer = Writer::new();
        writer.word(u64::MAX >> 1);
        writer.word(0);
        let bytes = writer.into_bytes();
        assert_eq!(
            Reader::new(&bytes).get::<Vec<u64>>(),
            Err(Malformed::Truncated)
        );
        assert_eq!(Reader::new(&bytes).get::<Blob>(), Err(Malformed::Truncated));
    }
}
