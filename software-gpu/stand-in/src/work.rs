// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Work in the streams of a context.

use std::sync::mpsc::sync_channel;

use crate::driver::{Code, Driver, INVALID_CONTEXT, Name, UNKNOWN};
use crate::memory::{Memory, Outcome};

/// The context in which an object was made.
#[derive(Clone, Copy)]
pub struct Work {
    driver: &'static Driver,
    context: Name,
    /// The primary context of a green one; otherwise the context itself.
    home: Name,
}

impl Work {
    /// The current context, or the first device's primary one if there is none. `None` without the software GPU's
    /// driver.
    pub fn here() -> Option<Self> {
        let driver = Driver::get()?;
        let context = driver.current_or_primary().ok()?;
        let home = driver.home().unwrap_or(context);
        Some(Self {
            driver,
            context,
            home,
        })
    }

    /// Queues work in a stream (NULL is the legacy one), and waits for its end if `wait` is set.
    ///
    /// # Errors
    /// The current context does not belong to the same primary one, or the driver's errors: the stream does not belong
    /// to the context, an earlier fault, or with `wait` one of this work.
    pub fn queue(
        &self,
        stream: Name,
        wait: bool,
        work: impl FnOnce(Memory) -> Outcome + Clone + Send + 'static,
    ) -> Result<(), Code> {
        let context = self.driver.current().unwrap_or(self.context);
        // An object of a primary context is valid in its green contexts, and the other way round.
        if context != self.context && self.driver.home() != Some(self.home) {
            return Err(INVALID_CONTEXT);
        }
        let memory = Memory::new(self.driver);
        self.driver
            .queue(context, stream, wait, move || work(memory))
    }

    /// Queues work in a stream that needs this number of bytes of memory, which graphs allocate.
    ///
    /// # Errors
    /// As [`Work::queue`].
    pub fn queue_with_memory(
        &self,
        stream: Name,
        bytes: usize,
        work: impl FnOnce(Memory) -> Outcome + Clone + Send + 'static,
    ) -> Result<(), Code> {
        let queue = || self.queue(stream, false, work);
        self.driver.with_memory(stream, bytes, queue)
    }

    /// Queues work in a stream and waits for its result.
    ///
    /// # Errors
    /// As [`Work::queue`].
    pub fn answer<T: Send + 'static>(
        &self,
        stream: Name,
        work: impl FnOnce(Memory) -> Outcome<T> + Clone + Send + 'static,
    ) -> Result<T, Code> {
        let (send, receive) = sync_channel(1);
        self.queue(stream, true, move |memory| {
            // The receiver waits for this work.
            let _ = send.send(work(memory)?);
            Ok(())
        })?;
        receive.try_recv().map_err(|_| UNKNOWN)
    }

    /// Waits for a stream's work. If the context or the stream was destroyed, or the device is faulty, there is nothing
    /// to wait for.
    pub fn wait(&self, stream: Name) {
        let _ = self.driver.queue(self.context, stream, true, || Ok(()));
    }
}
