// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! A thread's recent answers about algorithms, by all bytes of the descriptors.
//!
//! A framework queries the heuristic before each product. [`crate::answers`] recognises queries as equal if their
//! descriptors differ only in an address. But encoding a query for it takes longer than NVIDIA's library takes to
//! answer. Most queries have exactly the bytes of an earlier one.

use std::cell::RefCell;

use crate::{
    answers::Answer,
    call::Parts,
    descriptor::Descriptor,
    joined::{Joined, hash},
    sequence::{PLACES, Sequence},
};

/// A query: the parts in order, with the operation first and the preference last, and the function, the handle, the
/// stream and the number of results.
#[derive(Debug, Clone, Copy)]
pub struct Question<'a> {
    parts: [&'a [u8]; 6],
    words: [u64; 4],
}

impl<'a> Question<'a> {
    /// A query; `None` if it has other descriptors.
    pub fn new(
        parts: &'a Parts<'_>,
        preference: Option<&'a Descriptor<'_>>,
        words: [u64; 4],
    ) -> Option<Self> {
        let [operation, a, b, c, d] = parts.bytes()?;
        let preference = preference.map_or(&[][..], AsRef::as_ref);
        let parts = [operation, a, b, c, d, preference];
        Some(Self { parts, words })
    }

    /// The entry for it in a table.
    fn place(&self) -> usize {
        let sum = self.words.iter().fold(0_u64, |sum, word| {
            sum.rotate_left(8) ^ word.wrapping_mul(0x9e37_79b9_7f4a_7c15)
        });
        (hash(self.parts) ^ sum) as usize % PLACES
    }
}

/// An answer and its query.
struct Kept {
    described: Joined<6>,
    words: [u64; 4],
    answer: Answer,
}

impl Kept {
    fn is_for(&self, question: &Question<'_>) -> bool {
        self.words == question.words && self.described.is(question.parts)
    }
}

/// A thread's table.
struct Table {
    places: Vec<Option<Kept>>,
    sequence: Sequence,
}

impl Table {
    /// The answer of a place, if it is the query's.
    #[inline]
    fn answer_at(&mut self, at: usize, question: &Question<'_>) -> Option<Answer> {
        let kept = self.places.get(at)?.as_ref()?;
        let answer = kept.is_for(question).then(|| kept.answer.clone())?;
        self.sequence.used(at);
        Some(answer)
    }
}

thread_local! {
    static TABLE: RefCell<Table> = const {
        RefCell::new(Table { places: Vec::new(), sequence: Sequence::new() })
    };
}

/// The recent answer to a query.
pub fn find(question: &Question<'_>) -> Option<Answer> {
    let find = |table: &RefCell<Table>| {
        let mut table = table.try_borrow_mut().ok()?;
        let expected = table.sequence.expected();
        let answer = table.answer_at(expected, question);
        answer.or_else(|| table.answer_at(question.place(), question))
    };
    TABLE.try_with(find).ok().flatten()
}

/// Stores an answer, replacing another one.
pub fn keep(question: &Question<'_>, answer: &Answer) {
    let keep = |table: &RefCell<Table>| {
        let Ok(mut table) = table.try_borrow_mut() else {
            return;
        };
        if table.places.is_empty() {
            table.places.resize_with(PLACES, || None);
        }
        table.places[question.place()] = Some(Kept {
            described: Joined::new(question.parts),
            words: question.words,
            answer: answer.clone(),
        });
    };
    let _ = TABLE.try_with(keep);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_that_of_every_byte_of_its_question() {
        let bytes: Vec<u8> = (0..=255).collect();
        fn parts(of: &[u8]) -> [&[u8]; 6] {
            std::array::from_fn(|at| &of[at * 40..at * 40 + 40])
        }
        fn question(parts: [&[u8]; 6], words: [u64; 4]) -> Question<'_> {
            Question { parts, words }
        }
        let right = question(parts(&bytes), [1, 2, 3, 4]);
        assert!(find(&right).is_none());
        keep(&right, &Answer::from([7, 8]));
        assert_eq!(find(&right).as_deref(), Some(&[7, 8][..]));
        for word in 0..4 {
            let mut words = right.words;
            words[word] += 1;
            assert!(find(&question(parts(&bytes), words)).is_none(), "{word}");
        }
        for part in 0..6 {
            let mut changed = parts(&bytes)[part].to_vec();
            let mut other = parts(&bytes);
            changed[39] ^= 1;
            other[part] = &changed;
            assert!(find(&question(other, right.words)).is_none(), "{part}");
            other[part] = &changed[..39];
            assert!(find(&question(other, right.words)).is_none(), "{part}");
        }
        // The same bytes, divided differently.
        let mut divided = parts(&bytes);
        divided[1] = &bytes[40..81];
        divided[2] = &bytes[81..120];
        assert!(find(&question(divided, right.words)).is_none());
        let mut words = (5..).map(|word| question(parts(&bytes), [1, 2, 3, word]));
        let other = words.find(|other| other.place() == right.place()).unwrap();
        assert!(find(&other).is_none());
        keep(&other, &Answer::from([9]));
        assert!(find(&right).is_none(), "its place is taken");
        assert_eq!(find(&other).as_deref(), Some(&[9][..]));
    }
}
