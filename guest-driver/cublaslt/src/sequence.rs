// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The order in which a thread uses the entries of a table.
//!
//! A program repeats a sequence of products: the layers of a model, again and again. So each entry remembers the entry
//! that was used after it, and the next lookup tries that one first. Comparing one entry takes a third of the
//! instructions of a lookup by hash, which compares an entry as well.

/// The entries of a thread's table; a model has a few hundred products.
pub const PLACES: usize = 512;

/// For each entry of a table the entry that was used after it.
#[derive(Debug)]
pub struct Sequence {
    latest: u16,
    next: [u16; PLACES],
}

impl Sequence {
    /// A sequence without a use.
    pub const fn new() -> Self {
        Self {
            latest: 0,
            next: [0; PLACES],
        }
    }

    /// The entry that was used after the latest one.
    #[inline]
    pub fn expected(&self) -> usize {
        self.next[usize::from(self.latest) % PLACES].into()
    }

    /// Records that an entry is used.
    #[inline]
    pub fn used(&mut self, place: usize) {
        let place = (place % PLACES) as u16;
        self.next[usize::from(self.latest) % PLACES] = place;
        self.latest = place;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_repeated_sequence_is_expected() {
        let mut sequence = Sequence::new();
        let uses = [3, PLACES - 1, 0, 200];
        let again = uses.into_iter().chain([uses[0]]);
        again.for_each(|place| sequence.used(place));
        for place in [1, 2, 3, 0, 1, 2, 3].map(|at| uses[at]) {
            assert_eq!(sequence.expected(), place);
            sequence.used(place);
        }
        // Another order is expected from its second time on.
        sequence.used(3);
        sequence.used(200);
        assert_eq!(sequence.expected(), 3);
    }
}
