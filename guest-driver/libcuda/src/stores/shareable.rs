// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The program's shared objects: its shareable physical memory, and the objects of other processes that it has opened.

use std::{
    collections::{HashMap, HashSet},
    sync::atomic::{AtomicBool, Ordering},
};

use gpgpu_locks::{Mutex, MutexGuard, RwLock};
use gpgpu_protocol::cuda::*;

/// See the module's documentation.
#[derive(Debug, Default)]
pub struct Shareable {
    /// The ids of physical memory. Ids are never reused, so an outdated one does no harm.
    physical: RwLock<HashSet<u64>>,
    /// The number of times that memory of other processes is open, by its address.
    open: Mutex<HashMap<u64, u32>>,
    /// Shared events: whether this process has made them, and the contexts that they end with.
    events: RwLock<HashMap<u64, (bool, u64)>>,
    /// Whether there ever was a shared event.
    any_event: AtomicBool,
}

impl Shareable {
    /// Records an id.
    pub fn insert(&self, id: u64) {
        let mut ids = self.physical.write();
        ids.insert(id);
    }

    /// The number of times that memory of other processes is open, by its address. [Its range](super::pointers) changes
    /// under this lock.
    pub fn open(&self) -> MutexGuard<'_, HashMap<u64, u32>> {
        self.open.lock()
    }

    fn event(&self, id: u64) -> Option<bool> {
        if !self.any_event.load(Ordering::Relaxed) {
            return None;
        }
        let events = self.events.read();
        events.get(&id).map(|(is_own, _)| *is_own)
    }

    /// Whether an event is a shared one.
    #[inline]
    pub fn is_event(&self, id: u64) -> bool {
        self.event(id).is_some()
    }

    /// Whether it is a shared event that this process has made.
    pub fn is_own_event(&self, id: u64) -> bool {
        self.event(id) == Some(true)
    }

    /// Adds a shared event of a context.
    pub fn insert_event(&self, id: u64, is_own: bool, context: u64) {
        let mut events = self.events.write();
        events.insert(id, (is_own, context));
        self.any_event.store(true, Ordering::Relaxed);
    }

    /// Removes a shared event.
    pub fn remove_event(&self, id: u64) {
        let mut events = self.events.write();
        events.remove(&id);
    }

    /// Removes the shared events of a context that has ended.
    pub fn forget_context(&self, context: u64) {
        if self.any_event.load(Ordering::Relaxed) {
            let mut events = self.events.write();
            events.retain(|_, (_, of)| *of != context);
        }
    }

    /// The types of handles by which memory can be exported.
    pub fn types(&self, id: u64) -> CUmemAllocationHandleType {
        let ids = self.physical.read();
        match ids.contains(&id) {
            true => CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
            false => CU_MEM_HANDLE_TYPE_NONE,
        }
    }
}
