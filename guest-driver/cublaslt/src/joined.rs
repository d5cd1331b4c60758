// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The bytes of several descriptors: kept as one, compared, and a number for them.

/// Copies of so many parts.
#[derive(Debug)]
pub struct Joined<const PARTS: usize> {
    bytes: Box<[u8]>,
    lengths: [usize; PARTS],
}

impl<const PARTS: usize> Joined<PARTS> {
    /// Copies parts.
    pub fn new(parts: [&[u8]; PARTS]) -> Self {
        Self {
            bytes: parts.concat().into(),
            lengths: parts.map(<[u8]>::len),
        }
    }

    /// Whether these are the parts, each for each.
    pub fn is(&self, parts: [&[u8]; PARTS]) -> bool {
        let mut rest = &self.bytes[..];
        let mut is_next = |part: &[u8]| match rest.split_at_checked(part.len()) {
            Some((head, tail)) => {
                rest = tail;
                head == part
            }
            None => false,
        };
        self.lengths == parts.map(<[u8]>::len) && parts.into_iter().all(&mut is_next)
    }
}

/// A number for parts. Their places count: to swap two makes another one.
pub fn hash<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> u64 {
    /// The golden ratio's digits, as for Fibonacci hashing.
    const STEP: u64 = 0x9e37_79b9_7f4a_7c15;
    let mut key = 1_u64;
    let mut sum = 0_u64;
    // No product waits for the one before, so a processor computes several at once.
    let mut add = |one: u64, other: u64| {
        key = key.wrapping_add(STEP);
        let product = u128::from(one ^ key) * u128::from(other ^ !key);
        sum = sum.wrapping_add(product as u64 ^ (product >> 64) as u64);
    };
    for part in parts {
        // The bytes behind the last whole word are compared, which is enough.
        let (pairs, last) = part.as_chunks::<8>().0.as_chunks::<2>();
        for [one, other] in pairs {
            add(u64::from_ne_bytes(*one), u64::from_ne_bytes(*other));
        }
        for word in last {
            add(u64::from_ne_bytes(*word), 0);
        }
    }
    sum ^ sum >> 32
}
