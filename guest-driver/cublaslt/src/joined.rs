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
    // A multiplication by 2^25 + 1, which is odd, so that no bit is lost. It takes a shift and an addition. Compilers
    // use vectors for other multipliers, which takes more instructions.
    let add = |lane: &mut u64, word: &[u8; 8]| {
        let product = lane.wrapping_add(*lane << 25);
        *lane = product.wrapping_add(u64::from_ne_bytes(*word));
    };
    // Lanes do not wait for each other, so a processor computes all of them at once.
    let mut lanes = [1, 2_u64];
    for part in parts {
        // The bytes behind the last whole word are compared, which is enough.
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
    // High bits of words are in high bits of lanes alone.
    lanes.into_iter().fold(0, |sum, lane| {
        let mixed = (sum ^ lane ^ lane >> 32).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        mixed ^ mixed >> 29
    })
}
