// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! A lock that is held for less time than a thread takes to sleep and wake.

use std::{
    cell::UnsafeCell,
    marker::PhantomData,
    ops::{Deref, DerefMut},
    sync::atomic::{AtomicBool, Ordering},
};

use crate::Pauses;

/// A value that one thread uses at a time.
///
/// A mutex of the standard library is released by an exchange, which waits until all stores of its thread are visible.
/// This one is released by a store and wakes no thread: a thread that waits looks again and again. So it is for values
/// that threads seldom want at the same time.
#[derive(Debug, Default)]
pub struct Brief<T> {
    is_taken: AtomicBool,
    value: UnsafeCell<T>,
}

// SAFETY: the thread with the guard alone uses the value, so it travels between threads and they do not share it.
unsafe impl<T: Send> Sync for Brief<T> {}

/// The use of a [`Brief`]'s value, until it is dropped.
pub struct Guard<'a, T>(&'a Brief<T>, PhantomData<&'a mut T>);

impl<T> Brief<T> {
    /// A lock that is free.
    pub fn new(value: T) -> Self {
        Self {
            is_taken: AtomicBool::new(false),
            value: UnsafeCell::new(value),
        }
    }

    /// Waits until the value is free.
    #[inline]
    pub fn lock(&self) -> Guard<'_, T> {
        if !self.take() {
            self.wait();
        }
        Guard(self, PhantomData)
    }

    #[inline]
    fn take(&self) -> bool {
        let taken = &self.is_taken;
        let took = taken.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed);
        took.is_ok()
    }

    #[cold]
    fn wait(&self) {
        let mut pauses = Pauses::new();
        while self.is_taken.load(Ordering::Relaxed) || !self.take() {
            pauses.pause();
        }
    }
}

impl<T> Deref for Guard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: there is one guard at a time, and this is it.
        unsafe { &*self.0.value.get() }
    }
}

impl<T> DerefMut for Guard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as above.
        unsafe { &mut *self.0.value.get() }
    }
}

impl<T> Drop for Guard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.0.is_taken.store(false, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn one_thread_at_a_time_has_the_value() {
        const THREADS: u64 = 8;
        const TIMES: u64 = 2000;
        let brief = Brief::new(0_u64);
        thread::scope(|scope| {
            for _ in 0..THREADS {
                scope.spawn(|| {
                    for _ in 0..TIMES {
                        let mut value = brief.lock();
                        let before = *value;
                        // Another thread runs meanwhile, and has to wait.
                        thread::yield_now();
                        *value = before + 1;
                    }
                });
            }
        });
        assert_eq!(*brief.lock(), THREADS * TIMES);
    }

    #[test]
    fn a_thread_that_panics_leaves_it_free() {
        let brief = Brief::new(1);
        thread::scope(|scope| {
            let panics = scope.spawn(|| {
                let _value = brief.lock();
                panic!("on purpose");
            });
            assert!(panics.join().is_err());
        });
        assert_eq!(*brief.lock(), 1);
    }
}
