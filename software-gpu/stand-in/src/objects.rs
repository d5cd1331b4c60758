// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Objects of a library by the numbers that its callers have for them. They are never addresses, so a stale or invented
//! one is an error.

use std::collections::HashMap;
use std::sync::Arc;

use gpgpu_locks::RwLock;

/// The objects of one kind.
#[derive(Debug)]
pub struct Objects<T> {
    first: usize,
    step: usize,
    all: RwLock<All<T>>,
}

#[derive(Debug)]
struct All<T> {
    // There is no empty `HashMap` in a constant.
    live: Option<HashMap<usize, Arc<T>>>,
    made: usize,
}

impl<T> Objects<T> {
    /// No objects. Their numbers will be `step` apart, starting after `first`.
    pub const fn new(first: usize, step: usize) -> Self {
        let (live, made) = (None, 0);
        Self {
            first,
            step,
            all: RwLock::new(All { live, made }),
        }
    }

    /// Adds an object. Gives its number, which no other had or will have.
    pub fn add(&self, object: T) -> usize {
        let mut all = self.all.write();
        all.made += 1;
        let number = self.first + all.made * self.step;
        let live = all.live.get_or_insert_default();
        live.insert(number, Arc::new(object));
        number
    }

    /// The object with a number.
    pub fn find(&self, number: usize) -> Option<Arc<T>> {
        let all = self.all.read();
        all.live.as_ref()?.get(&number).cloned()
    }

    /// Takes the object with a number out.
    pub fn remove(&self, number: usize) -> Option<Arc<T>> {
        let mut all = self.all.write();
        all.live.as_mut()?.remove(&number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_one_objects_for_ever() {
        let objects = Objects::new(100, 16);
        assert!(objects.find(116).is_none() && objects.remove(116).is_none());
        let (one, other) = (objects.add('a'), objects.add('b'));
        assert_eq!((one, other), (116, 132));
        assert_eq!(objects.find(one).as_deref(), Some(&'a'));
        assert_eq!(objects.remove(one).as_deref(), Some(&'a'));
        assert!(objects.find(one).is_none() && objects.remove(one).is_none());
        assert_eq!(objects.add('c'), 148);
        assert_eq!(objects.find(other).as_deref(), Some(&'b'));
    }
}
