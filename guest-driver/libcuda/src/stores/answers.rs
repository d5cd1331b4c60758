// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Cached answers of the host that hold until they are changed, stored with their object.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use gpgpu_client::{Connection, ffi::Result};
use gpgpu_locks::{Mutex, MutexGuard};

/// Up to 32 cached answers about one object. Reading one takes no lock.
#[derive(Debug)]
pub struct Answers<const N: usize> {
    /// A bit for each cached answer.
    known: AtomicU32,
    values: [AtomicU64; N],
    /// The number of changes. An answer that was requested before a change is not cached after it.
    changes: Mutex<u64>,
}

impl<const N: usize> Default for Answers<N> {
    fn default() -> Self {
        const { assert!(N <= 32) };
        Self {
            known: AtomicU32::new(0),
            values: [const { AtomicU64::new(0) }; N],
            changes: Mutex::default(),
        }
    }
}

impl<const N: usize> Answers<N> {
    fn changes(&self) -> MutexGuard<'_, u64> {
        self.changes.lock()
    }

    /// The answer, if it is cached.
    #[inline]
    pub fn get(&self, which: usize) -> Option<u64> {
        let known = self.known.load(Ordering::Acquire) & bit(which) != 0;
        known.then(|| {
            self.values
                .get(which)
                .map_or(0, |value| value.load(Ordering::Acquire))
        })
    }

    /// The answer, from the host unless it is cached. Errors are not cached.
    pub fn ask(&self, which: usize, host: impl FnOnce() -> Result<u64>) -> Result<u64> {
        if let Some(value) = self.get(which) {
            return Ok(value);
        }
        let before = *self.changes();
        let value = host()?;
        let now = self.changes();
        if *now == before {
            self.store(which, value);
        }
        Ok(value)
    }

    /// Caches an answer that came with the object.
    pub fn note(&self, which: usize, value: u64) {
        let _now = self.changes();
        self.store(which, value);
    }

    /// Calls `host` to make a change: the outdated answers (a bit for each) are dropped, whatever the result, and
    /// queries made in the meantime are not cached.
    pub fn change<T>(&self, untrue: u32, host: impl FnOnce() -> T) -> T {
        let mut now = self.changes();
        *now += 1;
        self.known.fetch_and(!untrue, Ordering::AcqRel);
        host()
    }

    /// As [`Answers::change`], for a change of answer `which` to `value`, which is cached if the change succeeds.
    pub fn set(
        &self,
        which: usize,
        value: u64,
        untrue: u32,
        host: impl FnOnce() -> Result,
    ) -> Result {
        let mut now = self.changes();
        *now += 1;
        self.known
            .fetch_and(!(untrue | bit(which)), Ordering::AcqRel);
        host()?;
        self.store(which, value);
        Ok(())
    }

    /// Makes answer `to` equal to answer `from`.
    pub fn copy(&self, from: usize, to: usize) {
        let _now = self.changes();
        if let Some(value) = self.get(from) {
            self.store(to, value);
        }
    }

    /// Drops all answers.
    pub fn forget(&self) {
        self.change(u32::MAX, || ());
    }

    /// Stores an answer. The lock must be held.
    fn store(&self, which: usize, value: u64) {
        if let Some(to) = self.values.get(which) {
            to.store(value, Ordering::Release);
            self.known.fetch_or(bit(which), Ordering::AcqRel);
        }
    }
}

/// The bit of an answer.
#[inline]
pub const fn bit(which: usize) -> u32 {
    if which < 32 { 1 << which } else { 0 }
}

/// The cached answer, if it may be returned without the host: once the GPU's state is corrupted, only the host may
/// answer.
#[inline]
pub fn local<T>(connection: &Connection, known: impl FnOnce() -> Option<T>) -> Option<T> {
    if connection.is_corrupted() {
        None
    } else {
        known()
    }
}

#[cfg(test)]
mod tests {
    use gpgpu_protocol::cuda::*;

    use super::*;

    #[test]
    fn an_answer_is_asked_for_once_until_something_changes_it() {
        let answers = Answers::<4>::default();
        assert_eq!(answers.ask(2, || Ok(7)), Ok(7));
        assert_eq!(answers.ask(2, || Ok(8)), Ok(7));
        answers.change(bit(1), || ());
        assert_eq!(answers.get(2), Some(7));
        answers.change(bit(2), || ());
        assert_eq!(answers.get(2), None);
        assert_eq!(answers.ask(2, || Ok(8)), Ok(8));
        assert_eq!(
            answers.set(2, 9, 0, || Err(CUDA_ERROR_INVALID_VALUE)),
            Err(CUDA_ERROR_INVALID_VALUE)
        );
        assert_eq!(answers.get(2), None);
        assert_eq!(answers.set(2, 9, 0, || Ok(())), Ok(()));
        assert_eq!(answers.get(2), Some(9));
    }

    #[test]
    fn errors_and_answers_from_before_a_change_are_not_kept() {
        let answers = Answers::<1>::default();
        assert_eq!(
            answers.ask(0, || Err(CUDA_ERROR_UNKNOWN)),
            Err(CUDA_ERROR_UNKNOWN)
        );
        let raced = answers.ask(0, || {
            answers.forget();
            Ok(1)
        });
        assert_eq!(raced, Ok(1));
        assert_eq!(answers.get(0), None);
    }

    #[test]
    fn an_answer_that_has_no_place_is_asked_for_every_time() {
        let answers = Answers::<1>::default();
        assert_eq!(answers.ask(5, || Ok(1)), Ok(1));
        assert_eq!(answers.ask(99, || Ok(2)), Ok(2));
        assert_eq!((answers.get(5), answers.get(99)), (None, None));
    }
}
