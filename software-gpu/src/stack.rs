// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! A thread's stack of contexts.

use std::mem::ManuallyDrop;

/// A thread's contexts, the current one on top. Few enough to lie inside; the rest, which outlives the thread, is for
/// programs that push without end.
pub struct Stack {
    depth: usize,
    first: [u64; 16],
    rest: ManuallyDrop<Vec<u64>>,
}

impl Stack {
    /// An empty one.
    pub const fn new() -> Self {
        Self {
            depth: 0,
            first: [0; 16],
            rest: ManuallyDrop::new(Vec::new()),
        }
    }

    /// Puts a handle on top.
    pub fn push(&mut self, handle: u64) {
        match self.first.get_mut(self.depth) {
            Some(place) => *place = handle,
            None => self.rest.push(handle),
        }
        self.depth += 1;
    }

    /// Takes the current one away.
    pub fn pop(&mut self) -> Option<u64> {
        self.depth = self.depth.checked_sub(1)?;
        match self.first.get(self.depth) {
            Some(handle) => Some(*handle),
            None => self.rest.pop(),
        }
    }

    /// The current one.
    pub fn top(&self) -> Option<u64> {
        let last = self.depth.checked_sub(1)?;
        self.first.get(last).or(self.rest.last()).copied()
    }
}
