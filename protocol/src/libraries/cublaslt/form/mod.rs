// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The encoding of cuBLASLt's calls: a call carries the whole content of the descriptors that it uses.
//!
//! A descriptor is encoded as the attributes that differ from their defaults, by number. An algorithm is the library's
//! own bytes, which this code does not interpret. The guest encodes a request from the packed values of its
//! descriptors. The number of a request's form leaves addresses out ([`Sink`]): calls that differ in nothing else have
//! the same form. The worker decodes every part into its own values.

mod products;
mod questions;

pub use products::{
    Operands, Plan, Product, Transformation, put_plan, put_product, put_transformation,
};
pub use questions::{Check, Question, put_check, put_question};

use super::attributes::{Class, Holds};
use crate::{
    codec::{Malformed, Reader, Writer},
    libraries::kind::data_bytes,
};

/// The bytes of a `cublasLtMatmulAlgo_t`.
pub const ALGORITHM: usize = 64;
/// The bytes of a `cublasLtMatmulHeuristicResult_t`, which begins with an algorithm.
pub const RESULT: usize = 96;
/// The most results that a program can ask for at once.
pub const MAX_RESULTS: usize = 256;
/// The most bytes of a capability or of a setting of an algorithm.
pub const MAX_SETTING: usize = 1 << 14;
/// The bytes of the widest scalar.
pub const SCALAR: usize = 16;

/// An algorithm's bytes.
pub type Algorithm = [u8; ALGORITHM];

/// Receives the parts of a request, word by word.
pub trait Sink {
    /// A part that influences whether the library accepts the call.
    fn value(&mut self, word: u64);
    /// A device address.
    fn address(&mut self, address: u64);
    /// A part that does not.
    fn rest(&mut self, word: u64);

    /// Bytes that influence it; their number is a multiple of 8.
    fn bytes(&mut self, bytes: &[u8]) {
        for word in bytes.chunks_exact(8) {
            self.value(u64::from_le_bytes(word.try_into().unwrap_or_default()));
        }
    }
}

/// The properties of an address that influence acceptance: its alignment, a power of two up to `most`, and whether it
/// is NULL.
#[inline]
fn alignment(address: u64, most: u32) -> u64 {
    u64::from(address.trailing_zeros().min(most)) << 1 | u64::from(address == 0)
}

/// A request, and a number that all requests of its form share.
#[derive(Debug)]
pub struct Formed<'a> {
    writer: &'a mut Writer,
    form: u64,
}

impl<'a> Formed<'a> {
    /// Writes a request of a function.
    pub fn new(op: u16, writer: &'a mut Writer) -> Self {
        Self::behind(op.into(), writer)
    }

    /// Writes the rest of a request; `form` is the number of the part before it.
    pub fn behind(form: u64, writer: &'a mut Writer) -> Self {
        Self { writer, form }
    }

    /// The number.
    pub fn form(&self) -> u64 {
        self.form
    }

    /// Includes data that is not part of the request in the number.
    #[inline]
    pub fn count_in(&mut self, word: u64) {
        // Each step is a bijection: requests that differ in one word have different numbers.
        let mixed = (self.form ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.form = mixed ^ mixed >> 29;
    }
}

impl Sink for Formed<'_> {
    #[inline]
    fn value(&mut self, word: u64) {
        self.count_in(word);
        self.writer.word(word);
    }

    #[inline]
    fn address(&mut self, address: u64) {
        // Kernels ask for 16 bytes at most.
        self.count_in(alignment(address, 4));
        self.writer.word(address);
    }

    #[inline]
    fn rest(&mut self, word: u64) {
        self.writer.word(word);
    }
}

/// The form alone, in full.
#[derive(Debug, Default)]
pub struct Form(pub Vec<u64>);

impl Sink for Form {
    fn value(&mut self, word: u64) {
        self.0.push(word);
    }

    fn address(&mut self, address: u64) {
        // Heuristics report alignments of up to 256 bytes.
        self.0.push(alignment(address, 8));
    }

    fn rest(&mut self, _: u64) {}
}

/// Calls `found` with the index of each attribute of a set, in ascending order.
#[inline]
fn each(mut set: u64, mut found: impl FnMut(usize)) {
    while set != 0 {
        found(set.trailing_zeros() as usize);
        set &= set - 1;
    }
}

/// The attributes whose packed values differ from their defaults, which a request carries: bit N for the attribute with
/// index N.
#[inline]
fn differing(class: Class, packed: &[u8]) -> u64 {
    let (words, end) = packed.as_chunks();
    let mut candidates = if end.is_empty() {
        0
    } else {
        class.in_word(words.len())
    };
    // Most words have their default values.
    for (at, (word, default)) in words.iter().zip(class.default_words()).enumerate() {
        if u64::from_ne_bytes(*word) != u64::from_ne_bytes(*default) {
            candidates |= class.in_word(at);
        }
    }
    let mut set = 0;
    each(candidates, |index| {
        let of = &class.attributes()[index];
        let value = of.read(packed, class.place(index));
        let travels =
            value.is_some_and(|value| value != of.default) && of.holds != Holds::Emulation;
        set |= u64::from(travels) << index;
    });
    set
}

/// Writes a descriptor from its packed values. Attributes that the packed values lack have their defaults.
fn put_descriptor(sink: &mut (impl Sink + ?Sized), class: Class, packed: &[u8]) {
    let set = differing(class, packed);
    sink.value(set.count_ones().into());
    each(set, |index| {
        let of = &class.attributes()[index];
        let value = of.read(packed, class.place(index)).unwrap_or(of.default);
        sink.value(of.number.into());
        match of.holds {
            Holds::Device => sink.address(value),
            _ => sink.value(value),
        }
    });
}

/// A decoded descriptor: attributes with their values, by number.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Descriptor(Vec<(u16, u64)>);

impl Descriptor {
    fn get(reader: &mut Reader<'_>, class: Class) -> Result<Self, Malformed> {
        let count = reader.word()?;
        if count > class.attributes().len() as u64 {
            return Err(Malformed::Range);
        }
        let mut set: Vec<(u16, u64)> = Vec::with_capacity(count as usize);
        for _ in 0..count {
            let number: u16 = reader.get()?;
            let value = reader.word()?;
            let (_, attribute) = class.find(number).ok_or(Malformed::Range)?;
            let is_next = set.last().is_none_or(|(last, _)| *last < number);
            let fits = attribute.bytes == 8 || value >> (8 * attribute.bytes) == 0;
            if !is_next || !fits || attribute.holds == Holds::Emulation {
                return Err(Malformed::Range);
            }
            set.push((number, value));
        }
        Ok(Self(set))
    }

    /// The attributes that differ from their defaults.
    pub fn set(&self) -> &[(u16, u64)] {
        &self.0
    }

    /// An attribute's value in a descriptor of a class, or its default; 0 if the class has no such attribute.
    pub fn get_or_default(&self, class: Class, number: u16) -> u64 {
        let set = self.0.iter().find(|(of, _)| *of == number);
        let default = || class.find(number).map_or(0, |(_, of)| of.default);
        set.map_or_else(default, |(_, value)| *value)
    }
}

/// The place of a scalar.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// At a host address: the request carries its value.
    Host,
    /// At a device address.
    Device,
    /// Absent: the scalar is zero.
    Zero,
}

/// The places of alpha and beta by a `cublasLtPointerMode_t`; `None` if there is no such mode.
#[inline]
pub fn places(mode: u64) -> Option<[Place; 2]> {
    Some(match mode {
        0 => [Place::Host; 2],
        1 | 2 => [Place::Device; 2],
        3 => [Place::Device, Place::Zero],
        4 => [Place::Device, Place::Host],
        _ => return None,
    })
}

/// The bytes of a scalar of a scale type; `None` if there is no such type.
#[inline]
pub fn scalar_bytes(scale_type: u64) -> Option<usize> {
    data_bytes(scale_type)
}

/// Alpha or beta.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scalar {
    /// Its bytes, padded with zeros, as little-endian words.
    Here([u64; SCALAR / 8]),
    /// Its device address, or NULL.
    At(u64),
}

impl Scalar {
    fn put(self, sink: &mut (impl Sink + ?Sized)) {
        match self {
            Self::Here(words) => {
                sink.value(1);
                // Beta determines whether the library reads C.
                sink.value((words == [0; _]).into());
                words.into_iter().for_each(|word| sink.rest(word));
            }
            Self::At(address) => {
                sink.value(0);
                sink.address(address);
            }
        }
    }

    fn get(reader: &mut Reader<'_>, place: Place) -> Result<Self, Malformed> {
        if !reader.get::<bool>()? {
            let address = reader.word()?;
            // NULL is no place, and the library decides what to do with it.
            return match place == Place::Device || address == 0 {
                true => Ok(Self::At(address)),
                false => Err(Malformed::Range),
            };
        }
        let is_zero = reader.get::<bool>()?;
        let words = [reader.word()?, reader.word()?];
        if place == Place::Device || is_zero != (words == [0; _]) {
            return Err(Malformed::Range);
        }
        Ok(Self::Here(words))
    }
}

/// A product's descriptors: the operation, its emulation if it has one, and the layouts of A, B, C and D.
#[derive(Debug)]
pub struct Described<'a, T> {
    /// The descriptor of the operation.
    pub operation: &'a T,
    /// The descriptor of the operation's emulation.
    pub emulation: Option<&'a T>,
    /// The layouts of A, B, C and D.
    pub layouts: [&'a T; 4],
}

impl<T: AsRef<[u8]>> Described<'_, T> {
    fn put(&self, sink: &mut (impl Sink + ?Sized)) {
        put_descriptor(sink, Class::Operation, self.operation.as_ref());
        sink.value(self.emulation.is_some().into());
        if let Some(emulation) = self.emulation {
            put_descriptor(sink, Class::Emulation, emulation.as_ref());
        }
        for layout in self.layouts {
            put_descriptor(sink, Class::Layout, layout.as_ref());
        }
    }
}

/// The same as they came.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Descriptors {
    /// The descriptor of the operation.
    pub operation: Descriptor,
    /// The descriptor of the operation's emulation.
    pub emulation: Option<Descriptor>,
    /// The layouts of A, B, C and D.
    pub layouts: [Descriptor; 4],
}

fn get_optional<T>(
    reader: &mut Reader<'_>,
    get: impl FnOnce(&mut Reader<'_>) -> Result<T, Malformed>,
) -> Result<Option<T>, Malformed> {
    reader.get::<bool>()?.then(|| get(reader)).transpose()
}

impl Descriptors {
    fn get(reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        let operation = Descriptor::get(reader, Class::Operation)?;
        let emulation = get_optional(reader, |reader| Descriptor::get(reader, Class::Emulation))?;
        let mut layouts: [Descriptor; 4] = Default::default();
        for layout in &mut layouts {
            *layout = Descriptor::get(reader, Class::Layout)?;
        }
        Ok(Self {
            operation,
            emulation,
            layouts,
        })
    }
}

fn get_algorithm(reader: &mut Reader<'_>) -> Result<Algorithm, Malformed> {
    let mut bytes = [0; ALGORITHM];
    for word in bytes.chunks_exact_mut(8) {
        word.copy_from_slice(&reader.word()?.to_le_bytes());
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests;
