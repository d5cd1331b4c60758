// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Sequences and distributions. A sequence is one of 32-bit words, and all numbers of a kind take the same number of
//! words, so the number of words taken is the position of a sequence.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use rand_distr::{Distribution, Poisson};

/// The words of a sequence.
pub type Words = ChaCha8Rng;

/// The position of a sequence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// The beginning of the sequence.
    pub seed: u64,
    /// The number of the sequence, among those of a seed.
    pub sequence: u64,
    /// The number of words that were taken.
    pub taken: u64,
}

impl Place {
    /// The words from here on.
    pub fn words(self) -> Words {
        let mut words = Words::seed_from_u64(self.seed);
        words.set_stream(self.sequence);
        words.set_word_pos(self.taken.into());
        words
    }
}

/// More than zero, at most one.
pub fn uniform(words: &mut impl Rng) -> f32 {
    // 24 bits, so that the largest is one and not more.
    ((words.next_u32() >> 8) + 1) as f32 / (1 << 24) as f32
}

/// The same in double precision.
pub fn uniform_double(words: &mut impl Rng) -> f64 {
    ((words.next_u64() >> 11) + 1) as f64 / (1_u64 << 53) as f64
}

/// Two normally distributed numbers with mean zero and deviation one, of two uniform ones.
pub fn normal(one: f64, other: f64) -> [f64; 2] {
    let (radius, angle) = ((-2.0 * one.ln()).sqrt(), std::f64::consts::TAU * other);
    [radius * angle.cos(), radius * angle.sin()]
}

/// A Poisson-distributed number, of two words.
pub fn poisson(words: &mut impl Rng, of: &Poisson<f64>) -> u32 {
    // The number of words that it takes is unknown in advance, so it has its own sequence.
    let mut own = ChaCha8Rng::seed_from_u64(words.next_u64());
    of.sample(&mut own) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_determines_the_next_numbers() {
        let mut place = Place {
            seed: 3,
            sequence: 101,
            taken: 0,
        };
        let mut words = place.words();
        let all: Vec<_> = (0..10).map(|_| words.next_u32()).collect();
        place.taken = 7;
        assert_eq!(place.words().next_u32(), all[7]);
        for other in [
            Place { seed: 4, ..place },
            Place {
                sequence: 161,
                ..place
            },
        ] {
            assert_ne!(other.words().next_u32(), all[7]);
        }
    }

    #[test]
    fn uniform_numbers_are_never_zero() {
        struct Always(u64);
        impl rand_chacha::rand_core::TryRng for Always {
            type Error = std::convert::Infallible;
            fn try_next_u32(&mut self) -> Result<u32, Self::Error> {
                Ok(self.0 as u32)
            }
            fn try_next_u64(&mut self) -> Result<u64, Self::Error> {
                Ok(self.0)
            }
            fn try_fill_bytes(&mut self, to: &mut [u8]) -> Result<(), Self::Error> {
                to.fill(self.0 as u8);
                Ok(())
            }
        }
        assert!(uniform(&mut Always(0)) > 0.0 && uniform_double(&mut Always(0)) > 0.0);
        assert_eq!(uniform(&mut Always(u64::MAX)), 1.0);
        assert_eq!(uniform_double(&mut Always(u64::MAX)), 1.0);
    }
}
