// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Handles: numbers that name an object, with the object's type and a generation in them. They are never addresses, so
//! a stale, foreign or invented one is an error and not a crash.

use std::collections::VecDeque;
use std::sync::Arc;

use gpgpu_locks::RwLock;

use crate::config::Config;

const INDEX_BITS: u32 = 24;
const GENERATION_BITS: u32 = 24;
const TAG_SHIFT: u32 = INDEX_BITS + GENERATION_BITS;

struct Slot<T> {
    generation: u64,
    object: Option<Arc<T>>,
}

struct Slots<T> {
    slots: Vec<Slot<T>>,
    // First in, first out, so that a number is reused as late as possible.
    free: VecDeque<usize>,
}

/// Ends the process if a handle belongs to a destroyed object, and the configuration requests that.
fn check_stale(handle: u64, is_stale: bool) {
    if is_stale && Config::get().aborts_on_stale {
        eprintln!("software GPU: the object of handle {handle:#x} is destroyed");
        std::process::abort();
    }
}

/// All objects of one type.
pub struct Table<T> {
    tag: u64,
    slots: RwLock<Slots<T>>,
}

impl<T> Table<T> {
    /// A table whose handles carry `tag`, which no other table may use. Must not be zero.
    pub const fn new(tag: u8) -> Self {
        Self {
            tag: tag as u64,
            slots: RwLock::new(Slots {
                slots: Vec::new(),
                free: VecDeque::new(),
            }),
        }
    }

    fn split(&self, handle: u64) -> Option<(usize, u64)> {
        let index = handle & ((1 << INDEX_BITS) - 1);
        let generation = (handle >> INDEX_BITS) & ((1 << GENERATION_BITS) - 1);
        (handle >> TAG_SHIFT == self.tag).then_some((index as usize, generation))
    }

    /// Adds the object that `make` builds from its own handle, and returns both.
    pub fn insert_with(&self, make: impl FnOnce(u64) -> T) -> Arc<T> {
        let mut table = self.slots.write();
        let index = match table.free.pop_front() {
            Some(index) => index,
            None => {
                table.slots.push(Slot {
                    generation: 1,
                    object: None,
                });
                table.slots.len() - 1
            }
        };
        let slot = &mut table.slots[index];
        let handle = (self.tag << TAG_SHIFT) | (slot.generation << INDEX_BITS) | index as u64;
        let object = Arc::new(make(handle));
        slot.object = Some(object.clone());
        object
    }

    /// The object that `handle` names, if it is alive.
    pub fn get(&self, handle: u64) -> Option<Arc<T>> {
        let (index, generation) = self.split(handle)?;
        let table = self.slots.read();
        let slot = table.slots.get(index)?;
        if slot.generation != generation {
            check_stale(handle, generation < slot.generation);
            return None;
        }
        slot.object.clone()
    }

    /// Like [`Self::get`], for functions for which CUDA permits the handle of a destroyed object.
    pub fn find(&self, handle: u64) -> Option<Arc<T>> {
        let (index, generation) = self.split(handle)?;
        let table = self.slots.read();
        let slot = table.slots.get(index)?;
        (slot.generation == generation)
            .then(|| slot.object.clone())
            .flatten()
    }

    /// Removes and returns the object that `handle` names.
    pub fn remove(&self, handle: u64) -> Option<Arc<T>> {
        let (index, generation) = self.split(handle)?;
        let mut table = self.slots.write();
        let slot = table.slots.get_mut(index)?;
        if slot.generation != generation {
            check_stale(handle, generation < slot.generation);
            return None;
        }
        let object = slot.object.take()?;
        slot.generation = (slot.generation + 1) & ((1 << GENERATION_BITS) - 1);
        table.free.push_back(index);
        Some(object)
    }

    /// Every live object.
    pub fn all(&self) -> Vec<Arc<T>> {
        let table = self.slots.read();
        table
            .slots
            .iter()
            .filter_map(|s| s.object.clone())
            .collect()
    }

    /// Puts `object` in the place of the one that `handle` names.
    pub fn replace(&self, handle: u64, object: Arc<T>) {
        let Some((index, generation)) = self.split(handle) else {
            return;
        };
        let mut table = self.slots.write();
        if let Some(slot) = table.slots.get_mut(index)
            && slot.generation == generation
        {
            slot.object = Some(object);
        }
    }

    /// Removes every object for which `gone` is true.
    pub fn remove_where(&self, gone: impl Fn(&T) -> bool) -> Vec<Arc<T>> {
        let mut table = self.slots.write();
        let mut removed = Vec::new();
        for index in 0..table.slots.len() {
            let slot = &mut table.slots[index];
            if slot.object.as_ref().is_some_and(|o| gone(o)) {
                removed.extend(slot.object.take());
                slot.generation = (slot.generation + 1) & ((1 << GENERATION_BITS) - 1);
                table.free.push_back(index);
            }
        }
        removed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stale_and_foreign_handles_name_nothing() {
        let (a, b) = (Table::<u64>::new(3), Table::<u64>::new(4));
        let first = *a.insert_with(|h| h);
        assert!(a.get(first).is_some());
        assert!(b.get(first).is_none());
        assert!(a.remove(first).is_some());
        assert!(a.remove(first).is_none());
        let second = *a.insert_with(|h| h);
        assert_ne!(first, second, "the slot's generation must differ");
        assert!(a.get(first).is_none());
        for garbage in [0, 1, 2, u64::MAX, 0xdead_beef, first ^ 1] {
            assert!(a.get(garbage).is_none(), "{garbage:#x}");
        }
    }
}
