// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Questions about algorithms.

use super::{
    super::attributes::Class, Algorithm, Described, Descriptor, Descriptors, MAX_RESULTS, Sink,
    get_algorithm, get_optional, put_descriptor,
};
use crate::codec::{Malformed, Reader};

/// Writes a request for algorithms. `given` are the algorithms to which the program limits the search, if it does.
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

/// A decoded request for algorithms.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Question {
    /// The product.
    pub descriptors: Descriptors,
    /// The bounds on an algorithm.
    pub preference: Option<Descriptor>,
    /// The most results: 1 to [`MAX_RESULTS`].
    pub wanted: usize,
    /// The algorithms to which the program limits the search: at most as many as it asks for.
    pub given: Vec<Algorithm>,
}

impl Question {
    /// Decodes a request for algorithms.
    ///
    /// # Errors
    ///
    /// The bytes are invalid, or ask for too many results.
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

/// Writes a request that checks whether an algorithm can compute a product.
pub fn put_check<T: AsRef<[u8]>>(
    sink: &mut (impl Sink + ?Sized),
    described: &Described<'_, T>,
    algorithm: &Algorithm,
) {
    described.put(sink);
    sink.bytes(algorithm);
}

/// A decoded request that checks whether an algorithm can compute a product.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Check {
    /// The product.
    pub descriptors: Descriptors,
    /// The algorithm.
    pub algorithm: Algorithm,
}

impl Check {
    /// Decodes such a request.
    ///
    /// # Errors
    ///
    /// The bytes are invalid.
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
