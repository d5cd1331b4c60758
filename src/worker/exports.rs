// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The part of the client's device memory that the device process knows, so that a mover can access it.

use std::{collections::HashMap, os::fd::AsFd};

use gpgpu_locks::{Mutex, MutexGuard};

use super::device_memory::{DeviceMemory, Holders, Place};
use crate::ipc::{self, MAX_WORKER_EXPORTS, WorkerEnd};

/// The exports that the device process knows.
#[derive(Debug)]
pub struct Exports {
    /// The channel to the device process; `None` in unit tests.
    end: Option<&'static WorkerEnd>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    clock: u64,
    /// The time of the last use of each export, by number.
    told: HashMap<u32, u64>,
}

/// A command's answer, once its data is moved.
pub struct Moved<'a> {
    /// The number of the command.
    pub seq: u64,
    /// The number of bytes of its stream before the command of the data.
    pub carried_out: u32,
    /// The answer.
    pub answer: &'a [u8],
}

impl Exports {
    /// An empty set.
    pub fn new(end: Option<&'static WorkerEnd>) -> Self {
        Self {
            end,
            state: Mutex::default(),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// Reports the place of a command's data, and its export if the device process does not know it yet; `None` if the
    /// place no longer exists.
    ///
    /// # Errors
    /// The channel's.
    pub fn r#move(
        &self,
        memory: &DeviceMemory,
        place: Place,
        moved: &Moved<'_>,
    ) -> ipc::Result<Option<()>> {
        let Some(end) = self.end else {
            return Ok(None);
        };
        // No message about a number may follow its withdrawal.
        let mut state = self.state();
        state.clock += 1;
        let now = state.clock;
        if !state.told.contains_key(&place.export) {
            let Ok((handle, bytes, device)) = memory.export(place.export) else {
                return Ok(None);
            };
            if state.told.len() >= MAX_WORKER_EXPORTS
                && let Some((&oldest, _)) = state.told.iter().min_by_key(|(_, used)| **used)
            {
                state.told.remove(&oldest);
                end.unexport(oldest.into())?;
            }
            let number = place.export.into();
            end.export(number, bytes, device as u32, handle.as_fd())?;
        }
        state.told.insert(place.export, now);
        let place = (place.export.into(), place.offset);
        end.r#move(moved.seq, place, moved.carried_out, moved.answer)?;
        Ok(Some(()))
    }
}

impl Holders for Exports {
    fn drop_exports(&self, numbers: &[u32]) {
        let Some(end) = self.end else { return };
        let mut state = self.state();
        for number in numbers {
            if state.told.remove(number).is_some() && end.unexport((*number).into()).is_err() {
                // A failed channel also ends the receiving thread.
                return;
            }
        }
    }
}
