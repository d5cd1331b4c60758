// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Allocation when memory is short: idle memory is returned first, here and in other processes.

use std::time::{Duration, Instant};

use gpgpu_protocol::cuda::*;

use super::{Backend, Patience, Pool};

/// The maximum wait for other processes to drop returned memory, and the interval between two checks.
const PATIENCE: Duration = Duration::from_secs(1);
const PAUSE: Duration = Duration::from_millis(1);

impl<B: Backend> Pool<B> {
    /// Makes `bytes` bytes of the device's memory by `make`, which may be called several times and returns
    /// `CUDA_ERROR_OUT_OF_MEMORY` if there is none.
    ///
    /// # Errors
    ///
    /// The error of the last `make`.
    pub fn insist<T>(
        &self,
        bytes: u64,
        patience: Patience,
        make: impl Fn(Patience) -> Result<T, CUresult>,
    ) -> Result<T, CUresult> {
        let discards = *self.discards();
        let mut made = make(Patience::None);
        if patience == Patience::None {
            return made;
        }
        // Memory that another thread is just returning counts too.
        if matches!(made, Err(CUDA_ERROR_OUT_OF_MEMORY))
            && (self.press() || *self.discards() != discards)
        {
            made = make(Patience::None);
        }
        if matches!(made, Err(CUDA_ERROR_OUT_OF_MEMORY)) {
            made = make(Patience::ForOthers);
        }
        // A process that has imported returned memory drops it a moment later. Memory that was just freed may be in use
        // in another thread for a moment.
        let began = Instant::now();
        let is_kept = || self.state().idle_bytes > 0 && began.elapsed() < PATIENCE;
        while matches!(made, Err(CUDA_ERROR_OUT_OF_MEMORY))
            && !self.backend.is_over_limit(bytes)
            && (self.is_being_dropped() || is_kept())
        {
            std::thread::sleep(PAUSE);
            self.trim(0);
            made = make(Patience::None);
        }
        made
    }

    /// Records that memory was returned that other processes have imported.
    pub fn note_dropped(&self) {
        let mut dropped = self.dropped.lock();
        *dropped = Some(Instant::now());
    }

    /// Whether other processes may still hold returned memory.
    fn is_being_dropped(&self) -> bool {
        let dropped = self.dropped.lock();
        dropped.is_some_and(|at| at.elapsed() < PATIENCE)
    }
}
