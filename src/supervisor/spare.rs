// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! A device process that is started before its connection arrives.
//!
//! When a program connects without a VM, the start of its device process takes most of the time. A spare device process
//! knows only its link to the supervisor.

use std::{
    ffi::OsStr,
    io,
    time::{Duration, Instant},
};

use super::{
    child_output::ChildOutputs,
    process::{Process, Program},
};
use crate::ipc::{self, device::SupervisorEnd};

/// The time from a connection to the start of the next spare process, so that it does not compete with the program's
/// own start.
const PAUSE: Duration = Duration::from_millis(100);
/// The time to the next attempt after a failed start.
const BACK_OFF: Duration = Duration::from_secs(10);

/// A device process that waits for its first message.
#[derive(Debug)]
pub struct Spare {
    /// The process.
    pub process: Process,
    /// The link to it.
    pub link: SupervisorEnd,
}

impl Spare {
    /// Starts one.
    ///
    /// # Errors
    /// The program cannot be run, or the host is out of processes or file descriptors.
    pub fn start(program: &Program, label: &OsStr, outputs: &ChildOutputs) -> io::Result<Self> {
        let (ours, theirs) = ipc::pair()?;
        Ok(Self {
            process: program.start_heard(theirs, label, ("Device process", outputs))?,
            link: SupervisorEnd::new(ours),
        })
    }
}

/// The spare process, if there is one, or the time at which to start it.
#[derive(Debug)]
pub struct Spares {
    spare: Option<Spare>,
    due: Option<Instant>,
    wanted: bool,
}

impl Spares {
    /// The first spare process is started at `now`; none if not `wanted`.
    pub fn new(wanted: bool, now: Instant) -> Self {
        Self {
            spare: None,
            due: wanted.then_some(now),
            wanted,
        }
    }

    /// Takes the spare process, unless it has died.
    pub fn take(&mut self, now: Instant) -> Option<Spare> {
        let mut spare = self.spare.take();
        if self.wanted {
            self.due.get_or_insert(now + PAUSE);
        }
        if let Some(ended) = spare.as_mut().and_then(|spare| spare.process.ended()) {
            tracing::warn!("A spare device process died before a connection: {ended}");
            return None;
        }
        spare
    }

    /// Starts a spare process if it is time.
    pub fn fill(&mut self, program: &Program, label: &OsStr, outputs: &ChildOutputs, now: Instant) {
        if self.due.is_none_or(|due| due > now) {
            return;
        }
        self.due = None;
        match Spare::start(program, label, outputs) {
            Ok(spare) => self.spare = Some(spare),
            Err(error) => {
                tracing::warn!("Cannot start a spare device process: {error}");
                self.due = Some(now + BACK_OFF);
            }
        }
    }

    /// The time at which to start the next one.
    pub fn due(&self) -> Option<Instant> {
        self.due
    }

    /// The process that waits.
    pub fn process(&mut self) -> Option<&mut Process> {
        self.spare.as_mut().map(|spare| &mut spare.process)
    }

    /// Kills it, and starts no other.
    pub fn clear(&mut self) {
        *self = Self {
            spare: None,
            due: None,
            wanted: false,
        };
    }
}
