// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Memory that ends with a module, a library or a context.

use gpgpu_protocol::cuda::*;

use super::{
    DeviceMemory, MAX_ALLOCATIONS,
    ranges::{EndsWith, Range, Source},
};

impl DeviceMemory {
    /// Records a global of a module or library, in the thread's current context.
    pub fn note_global(&self, owner: u64, context: u64, start: CUdeviceptr, bytes: u64) {
        if self.ranges.find(start).is_some() || self.ranges.len() >= MAX_ALLOCATIONS {
            return;
        }
        if let Ok(device) = self.device_of(context)
            && bytes > 0
        {
            self.note(start, bytes, context, device, Source::Global(owner));
        }
    }

    /// Begins the end of the globals of a module or library that is about to be unloaded.
    pub fn end_globals(&self, owner: u64) {
        let which = |range: &Range| range.source == Source::Global(owner);
        self.ranges.set_ending(which, None, Some(EndsWith::Owner));
    }

    /// Cancels it.
    pub fn keep_globals(&self, owner: u64) {
        let which = |range: &Range| range.source == Source::Global(owner);
        self.ranges.set_ending(which, Some(EndsWith::Owner), None);
    }

    /// Forgets the globals of a module or library that was unloaded.
    pub fn forget_globals(&self, owner: u64) {
        self.ranges
            .extract(|range| range.source == Source::Global(owner));
    }

    /// Begins the end of a context: the worker itself no longer uses it, and no command begins to use memory that the
    /// driver frees with it.
    pub fn end_context(&self, context: u64) {
        self.leave(context);
        let which = |range: &Range| goes_with(range, context);
        self.ranges.set_ending(which, None, Some(EndsWith::Context));
    }

    /// Cancels it.
    pub fn keep_context(&self, context: u64) {
        let which = |range: &Range| goes_with(range, context);
        self.ranges.set_ending(which, Some(EndsWith::Context), None);
    }

    /// Handles the allocations of a context that has ended.
    pub fn forget_context(&self, context: u64) {
        self.forget_freed(context);
        let Some(device) = self.contexts.write().remove(&context) else {
            return;
        };
        let gone = self.ranges.extract(|range| range.context == context);
        for range in gone {
            match range.source {
                // It counts as freed.
                Source::Driver if range.ending == Some(EndsWith::Free) => {}
                // The memory of a pool may be on another device.
                Source::Pool { taken } => drop(self.give_to_pool(&range, taken)),
                // The driver freed its own memory with the context.
                Source::Driver => {
                    self.charges().remove(&range.start);
                    self.mempools.give_back(range.mempool, range.taken(), None);
                }
                Source::Imported => self.let_go(range.start),
                Source::Global(_) | Source::Mapped { .. } => {}
            }
        }
        let device = self.known_device(device);
        let Some(device) = device else {
            return;
        };
        let is_last = !self
            .contexts
            .read()
            .values()
            .any(|other| *other == device.pool.device());
        if is_last {
            device.pool.press();
        } else {
            device.pool.trim(device.pool.keep());
        }
    }
}

/// Whether the driver frees the memory with a context.
fn goes_with(range: &Range, context: u64) -> bool {
    range.context == context && !matches!(range.source, Source::Pool { .. })
}
