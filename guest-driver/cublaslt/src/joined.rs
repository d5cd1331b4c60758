// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The concatenated bytes of several descriptors: they are stored together, compared and hashed.

/// Copies of several parts.
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

    /// Whether the stored parts equal these.
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

/// A hash of parts. It depends on their order.
pub fn hash<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> u64 {
    // A multiplication by 2^25 + 1, which is odd, so that no bit is lost. It takes a shift and an addition. For other
    // multipliers, compilers use vector instructions, which are more.
    let add = |lane: &mut u64, word: &[u8; 8]| {
        let product = lane.wrapping_add(*lane << 25);
        *lane = product.wrapping_add(u64::from_ne_bytes(*word));
    };
    // The lanes are independent, so a processor computes them in parallel.
    let mut lanes = [1, 2_u64];
    for part in parts {
        // The bytes after the last whole word are not hashed; the comparison covers them.
        let (blocks, last) = part.as_chunks::<8>().0.as_chunks::<2>();
        for block in blocks {
            lanes
                .iter_mut()
                .zip(block)
                .for_each(|(lane, word)| add(lane, word));
        }
        for word in last {
            add(&mut lanes[0], word);
        }
    }
    // High bits of words affect only high bits of lanes.
    lanes.into_iter().fold(0, |sum, lane| {
        let mixed = (sum ^ lane ^ lane >> 32).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        mixed ^ mixed >> 29
    })
}
