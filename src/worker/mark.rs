// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Events that the worker itself records behind graphs.

use gpgpu_protocol::cuda::*;

use crate::cuda::driver;

/// An event of the driver, behind a graph in a stream. Its owner drops it before its context ends: the driver ends it
/// with the context.
pub struct Mark {
    /// The id of its context.
    pub context: u64,
    /// The driver's event.
    pub event: CUevent,
}

// SAFETY: an event is the driver's, which any thread may use.
unsafe impl Send for Mark {}

impl Drop for Mark {
    fn drop(&mut self) {
        // SAFETY: the event is the driver's, and this alone ends it. Waits for it that were submitted remain.
        let _ = unsafe { driver::cuEventDestroy_v2(self.event) };
    }
}

impl Mark {
    /// Makes an event in the current context, which has this id.
    ///
    /// # Errors
    ///
    /// The driver's error code.
    pub fn new(context: u64) -> Result<Self, CUresult> {
        let mut event = std::ptr::null_mut();
        // SAFETY: the pointer is to a value that lives across the call.
        unsafe { driver::cuEventCreate(&mut event, CU_EVENT_DISABLE_TIMING) }?;
        Ok(Self { context, event })
    }
}
