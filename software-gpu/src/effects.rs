// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The effects of a context's kernels beside memory.

use std::sync::Arc;

use crate::exec::Effects;
use crate::heap::Heap;
use crate::printed::Printed;

/// The part of its context that a launch needs, and that it may outlive.
#[derive(Debug, Clone)]
pub struct OfContext {
    /// The destination of the text that they print.
    pub printed: Arc<Printed>,
    /// The heap that they allocate from.
    pub heap: Arc<Heap>,
}

impl Effects for OfContext {
    fn print(&self, text: Vec<u8>) {
        self.printed.print(text);
    }

    fn allocate(&self, bytes: u64) -> u64 {
        self.heap.allocate(bytes)
    }

    fn free(&self, address: u64) -> bool {
        self.heap.free(address)
    }
}
