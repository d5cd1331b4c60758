// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Sets of numbers that all threads read without a lock.

use std::sync::atomic::{AtomicU64, Ordering};

/// A set of numbers below [`Numbers::END`].
#[derive(Debug)]
pub struct Numbers([AtomicU64; 16]);

impl Numbers {
    /// One more than the largest number that a set may have.
    pub const END: u32 = 1024;

    /// The empty set.
    pub const fn new() -> Self {
        Self([const { AtomicU64::new(0) }; 16])
    }

    fn place(&self, number: u32) -> Option<(&AtomicU64, u64)> {
        let word = self.0.get(number as usize / 64)?;
        Some((word, 1 << (number % 64)))
    }

    /// Whether it has a number.
    #[inline]
    pub fn has(&self, number: u32) -> bool {
        self.place(number)
            .is_some_and(|(word, bit)| word.load(Ordering::Relaxed) & bit != 0)
    }

    /// Adds or removes a number.
    pub fn set(&self, number: u32, is_in: bool) {
        if let Some((word, bit)) = self.place(number) {
            match is_in {
                true => word.fetch_or(bit, Ordering::Relaxed),
                false => word.fetch_and(!bit, Ordering::Relaxed),
            };
        }
    }

    /// Adds or removes all numbers.
    pub fn set_all(&self, are_in: bool) {
        let bits = if are_in { u64::MAX } else { 0 };
        for word in &self.0 {
            word.store(bits, Ordering::Relaxed);
        }
    }

    /// Whether it has any number.
    pub fn any(&self) -> bool {
        self.0.iter().any(|word| word.load(Ordering::Relaxed) != 0)
    }
}
