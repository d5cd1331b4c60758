// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! [`std::sync`]'s locks without poison.
//!
//! A thread that panics while it holds a lock ends its own call, or itself, alone: the entries of this project's
//! libraries catch the panic and return an error, and the next holder of the lock is not told. So a thread must leave
//! the state behind a lock whole wherever it can panic.
//!
//! The types have the interface of `std::sync::nonpoison`, which is unstable yet. They are std's own locks, and not
//! those of another crate: a process of a guest may fork, and a lock that keeps its waiters in a table of the process
//! would keep waiters in the child that do not exist there. [`Brief`] is this project's own, and keeps no waiters.

use std::{
    sync::{self, LockResult, PoisonError, TryLockError, WaitTimeoutResult},
    time::Duration,
};

mod brief;
mod pauses;

pub use std::sync::{MutexGuard, RwLockReadGuard, RwLockWriteGuard};

pub use brief::{Brief, Guard};
pub use pauses::Pauses;

fn ignore<T>(result: LockResult<T>) -> T {
    result.unwrap_or_else(PoisonError::into_inner)
}

/// [`sync::Mutex`] without poison.
#[derive(Debug, Default)]
pub struct Mutex<T: ?Sized>(sync::Mutex<T>);

impl<T> Mutex<T> {
    /// An unlocked mutex around a value.
    pub const fn new(value: T) -> Self {
        Self(sync::Mutex::new(value))
    }

    /// Returns the value.
    pub fn into_inner(self) -> T {
        ignore(self.0.into_inner())
    }
}

impl<T: ?Sized> Mutex<T> {
    /// Waits until no thread holds the lock, and takes it.
    pub fn lock(&self) -> MutexGuard<'_, T> {
        ignore(self.0.lock())
    }

    /// Takes the lock unless a thread holds it.
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        match self.0.try_lock() {
            Ok(guard) => Some(guard),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// The value, which no other thread can reach.
    pub fn get_mut(&mut self) -> &mut T {
        ignore(self.0.get_mut())
    }
}

/// [`sync::RwLock`] without poison.
#[derive(Debug, Default)]
pub struct RwLock<T: ?Sized>(sync::RwLock<T>);

impl<T> RwLock<T> {
    /// An unlocked lock around a value.
    pub const fn new(value: T) -> Self {
        Self(sync::RwLock::new(value))
    }
}

impl<T: ?Sized> RwLock<T> {
    /// Waits until no thread holds the lock for writing, and takes it for reading.
    pub fn read(&self) -> RwLockReadGuard<'_, T> {
        ignore(self.0.read())
    }

    /// Waits until no thread holds the lock, and takes it for writing.
    pub fn write(&self) -> RwLockWriteGuard<'_, T> {
        ignore(self.0.write())
    }
}

/// [`sync::Condvar`] for a [`Mutex`].
#[derive(Debug, Default)]
pub struct Condvar(sync::Condvar);

impl Condvar {
    /// A condition that no thread waits for.
    pub const fn new() -> Self {
        Self(sync::Condvar::new())
    }

    /// Releases the lock, waits for a notification, and takes the lock again. May return without one.
    pub fn wait<'a, T>(&self, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
        ignore(self.0.wait(guard))
    }

    /// [`Self::wait`] while a condition of the value holds.
    pub fn wait_while<'a, T>(
        &self,
        guard: MutexGuard<'a, T>,
        condition: impl FnMut(&mut T) -> bool,
    ) -> MutexGuard<'a, T> {
        ignore(self.0.wait_while(guard, condition))
    }

    /// [`Self::wait`] with a limit of time.
    pub fn wait_timeout<'a, T>(
        &self,
        guard: MutexGuard<'a, T>,
        limit: Duration,
    ) -> (MutexGuard<'a, T>, WaitTimeoutResult) {
        ignore(self.0.wait_timeout(guard, limit))
    }

    /// [`Self::wait_while`] with a limit of time.
    pub fn wait_timeout_while<'a, T>(
        &self,
        guard: MutexGuard<'a, T>,
        limit: Duration,
        condition: impl FnMut(&mut T) -> bool,
    ) -> (MutexGuard<'a, T>, WaitTimeoutResult) {
        ignore(self.0.wait_timeout_while(guard, limit, condition))
    }

    /// Wakes one of the waiting threads.
    pub fn notify_one(&self) {
        self.0.notify_one();
    }

    /// Wakes all waiting threads.
    pub fn notify_all(&self) {
        self.0.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::{panic::catch_unwind, sync::Arc};

    use super::*;

    #[test]
    fn a_panic_under_a_lock_leaves_the_lock_usable() {
        let (mutex, lock) = (Arc::new(Mutex::new(1)), Arc::new(RwLock::new(1)));
        let (inner, also) = (mutex.clone(), lock.clone());
        let outcome = catch_unwind(move || {
            let (mut value, mut other) = (inner.lock(), also.write());
            (*value, *other) = (2, 2);
            panic!("with both locks");
        });
        assert!(outcome.is_err());
        assert_eq!((*mutex.lock(), *lock.read()), (2, 2));
        assert_eq!(mutex.try_lock().as_deref(), Some(&2));
        let held = mutex.lock();
        assert!(mutex.try_lock().is_none());
        let (held, timed) = Condvar::new().wait_timeout(held, Duration::ZERO);
        assert_eq!(*Condvar::new().wait_while(held, |_| false), 2);
        assert!(timed.timed_out());
        assert_eq!(Arc::into_inner(mutex).map(Mutex::into_inner), Some(2));
    }
}
