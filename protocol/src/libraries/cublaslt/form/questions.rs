// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Questions about algorithms.

use super::{
    super::attributes::Class, Algorithm, Described, Descriptor, Descriptors, MAX_RESULTS, Sink,
    get_algorithm, get_optional, put_descriptor,
};
use crate::codec::{Malformed, Reader};

/// Writes a question for algorithms. `given` are those that the program has an opinion on, if it limits the search to them.
pub fn put_question<T: AsRef<[u8]>>(
    sink: &mut (impl Sink + ?Sized),
    described: &Described<'_, T>,
    preference: Option<&T>,
    wanted: u64,
    given: &[Algorithm],
) {
    described.put(sink);
    sink.value(preference.is_some().into());
    if let Some(preference) = preference {
        put_descriptor(sink, Class::Preference, preference.as_ref());
    }
    sink.value(wanted);
    sink.value(given.len() as u64);
    for algorithm in given {
        sink.bytes(algorithm);
    }
}

/// A question for algorithms as it came.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Question {
    /// The product.
    pub descriptors: Descriptors,
    /// The bounds on an algorithm.
    pub preference: Option<Descriptor>,
    /// The most results: 1 to [`MAX_RESULTS`].
    pub wanted: usize,
    /// The head of the results, at most as many as requested.
    pub given: Vec<Algorithm>,
}

impl Question {
    /// Reads one.
    ///
    /// # Errors
    ///
    /// The bytes are none, or want too much.
    pub fn get(bytes: &[u8]) -> Result<Self, Malformed> {
        let reader = &mut Reader::new(bytes);
        let descriptors = Descriptors::get(reader)?;
        let preference = get_optional(reader, |reader| Descriptor::get(reader, Class::Preference))?;
        let (wanted, given): (usize, usize) = (reader.get()?, reader.get()?);
        if !(1..=MAX_RESULTS).contains(&wanted) || given > wanted {
            return Err(Malformed::Range);
        }
        let given = (0..given).map(|_| get_algorithm(reader));
        let question = Self {
            descriptors,
            preference,
            wanted,
            given: given.collect::<Result<_, _>>()?,
        };
        reader.end()?;
        Ok(question)
    }
}

/// Writes a question whether an algorithm can compute a product.
pub fn put_check<T: AsRef<[u8]>>(
    sink: &mut (impl Sink + ?Sized),
    described: &Described<'_, T>,
    algorithm: &Algorithm,
) {
    described.put(sink);
    sink.bytes(algorithm);
}

/// A question whether an algorithm can compute a product, as it came.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Check {
    /// The product.
    pub descriptors: Descriptors,
    /// The algorithm.
    pub algorithm: Algorithm,
}

impl Check {
    /// Reads one.
    ///
    /// # Errors
    ///
    /// The bytes are none.
    pub fn get(bytes: &[u8]) -> Result<Self, Malformed> {
        let reader = &mut Reader::new(bytes);
        let check = Self {
            descriptors: Descriptors::get(reader)?,
            algorithm: get_algorithm(reader)?,
        };
        reader.end()?;
        Ok(check)
    }
}
