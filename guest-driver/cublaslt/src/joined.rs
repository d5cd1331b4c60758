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
    // Products of halves, which a processor computes several of at once.
    let mut key = 1_u32;
    let mut sum = 0_u64;
    for part in parts {
        // The bytes behind the last whole word are compared, which is enough.
        for word in part.as_chunks().0 {
            let word = u64::from_ne_bytes(*word);
            key = key.wrapping_add(0x9e37_79b9);
            let low = (word as u32).wrapping_add(key);
            let high = ((word >> 32) as u32).wrapping_add(!key);
            sum = sum.wrapping_add(u64::from(low).wrapping_mul(u64::from(high)));
        }
    }
    sum ^ sum >> 32
}
