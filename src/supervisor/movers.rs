// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The movers: one for each GPU, started when the first client opens, and again on request after it has ended.

use std::{
    collections::HashMap,
    ffi::OsString,
    fs::File,
    io::{self, PipeReader},
    os::fd::{AsFd, OwnedFd},
    process::ExitStatus,
    time::{Duration, Instant},
};

use event_manager::{EventOps, EventSet, Events};

use super::{
    child_output::{ChildOutputs, Limit},
    process::{Process, Program, reason},
};
use crate::{
    account::{GPUS, Shared, monotonic},
    ipc::{
        self,
        mover::{Progress, Tenant},
    },
};

/// The interval between two starts of a mover, at first and at most, so that a mover that cannot work is not started
/// continuously.
const PAUSES: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(64));
/// A mover that ran for this long has worked.
const WORKED: Duration = Duration::from_secs(10);

/// The maximum number of channels of a device process to one mover. It needs one, and another after a failure.
const MAX_CHANNELS: u32 = 4;

struct Mover {
    process: Process,
    link: OwnedFd,
    /// The start times of its moves in flight.
    progress: Shared<Progress>,
    /// The device processes that have channels, by key, and the number of channels of each.
    users: HashMap<u32, u32>,
    /// Whether it was found to be stuck and was killed.
    is_given_up: bool,
}

/// The time of a mover's last start, and the pause before the next start.
struct Start {
    at: Instant,
    pause: Duration,
    /// Whether the mover has ended after it ran for at least [`WORKED`].
    has_worked: bool,
    /// The limit of its log lines, which the next mover inherits.
    said: Limit,
}

/// A mover that has ended.
pub struct Ended {
    /// Its GPU.
    pub gpu: u32,
    /// The device processes that had a channel to it.
    pub users: Vec<u32>,
    /// Its process's number.
    pub process: u32,
}

/// See the module's documentation.
pub struct Movers {
    program: Option<Program>,
    running: HashMap<u32, Mover>,
    starts: HashMap<u32, Start>,
}

impl Movers {
    /// No mover runs yet; without a program there are none.
    pub fn new(program: Option<Program>) -> Self {
        Self {
            program,
            running: HashMap::new(),
            starts: HashMap::new(),
        }
    }

    /// Makes a channel to the mover of a GPU for the device process with this key, which belongs to a VM. If necessary,
    /// starts the mover, lets `watch` watch it, and lets `outputs` read its output. With the channel comes a pipe
    /// that hangs up when the mover has left the channel and moves nothing more for it. Until then the mover has
    /// `connection`, which keeps the VMM's connection open.
    ///
    /// # Errors
    /// There is no mover at present.
    pub fn connect(
        &mut self,
        gpu: u32,
        (key, tenant): (u32, Tenant),
        connection: Option<&File>,
        watch: impl FnOnce(&Process) -> io::Result<()>,
        outputs: &ChildOutputs,
    ) -> io::Result<(OwnedFd, PipeReader)> {
        if !self.running.contains_key(&gpu) {
            let mover = self.start(gpu, watch, outputs)?;
            self.running.insert(gpu, mover);
        }
        let mover = self.running.get_mut(&gpu).ok_or(io::ErrorKind::NotFound)?;
        if mover
            .users
            .get(&key)
            .is_some_and(|channels| *channels >= MAX_CHANNELS)
        {
            return Err(io::Error::other("channel limit reached"));
        }
        let (ours, theirs) = ipc::pair()?;
        let (left, hold) = io::pipe()?;
        let holds = [hold.as_fd()].into_iter();
        let holds: Vec<_> = holds.chain(connection.map(AsFd::as_fd)).collect();
        ipc::mover::pass_channel(mover.link.as_fd(), tenant, theirs.as_fd(), &holds)
            .map_err(io::Error::other)?;
        *mover.users.entry(key).or_default() += 1;
        Ok((ours, left))
    }

    fn start(
        &mut self,
        gpu: u32,
        watch: impl FnOnce(&Process) -> io::Result<()>,
        outputs: &ChildOutputs,
    ) -> io::Result<Mover> {
        if gpu as usize >= GPUS {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let said = self.note_start(gpu, Instant::now())?;
        let program = self.program.as_ref().ok_or(io::ErrorKind::Unsupported)?;
        let (ours, theirs) = ipc::pair()?;
        let progress = Shared::<Progress>::new(c"gpgpu-progress")?;
        ipc::mover::pass_progress(ours.as_fd(), progress.file().as_fd())
            .map_err(io::Error::other)?;
        let label = OsString::from(gpu.to_string());
        let process = program.start_heard(theirs, &label, ("Mover", outputs))?;
        outputs.assign(process.id(), &said);
        watch(&process)?;
        tracing::info!("GPU {gpu}: mover started (process {})", process.id());
        Ok(Mover {
            process,
            link: ours,
            progress,
            users: HashMap::new(),
            is_given_up: false,
        })
    }

    /// Records a start of a GPU's mover, unless it is too early, and returns the limit of its log lines.
    fn note_start(&mut self, gpu: u32, now: Instant) -> io::Result<Limit> {
        let last = self.starts.get(&gpu);
        let pause = match last {
            Some(last) if now < last.at + last.pause => {
                return Err(io::ErrorKind::WouldBlock.into());
            }
            Some(last) if !last.has_worked => (last.pause * 2).min(PAUSES.1),
            _ => PAUSES.0,
        };
        let said = last.map(|last| Limit::clone(&last.said));
        let said = said.unwrap_or_default();
        let start = Start {
            at: now,
            pause,
            has_worked: false,
            said: Limit::clone(&said),
        };
        self.starts.insert(gpu, start);
        Ok(said)
    }

    /// Records the end of a GPU's mover: the next pause depends on how long it ran.
    fn note_end(&mut self, gpu: u32, now: Instant) {
        if let Some(last) = self.starts.get_mut(&gpu) {
            last.has_worked = now >= last.at + WORKED;
        }
    }

    /// Passes a VM's weight to the movers.
    pub fn set_weight(&self, tenant: Tenant) {
        for (gpu, mover) in &self.running {
            if let Err(error) = ipc::mover::set_weight(mover.link.as_fd(), tenant) {
                tracing::warn!("GPU {gpu}: cannot send a weight to the mover: {error}");
            }
        }
    }

    /// Kills a mover if it is stuck. A device process reports that a move takes long, which may have other reasons: its
    /// VM has a small weight, or was stopped for a while, or the report is false.
    pub fn check(&mut self, gpu: u32) {
        if let Some(mover) = self.running.get_mut(&gpu)
            && !mover.is_given_up
            && mover.progress.is_stuck(monotonic())
        {
            tracing::error!("GPU {gpu}: the mover is stuck");
            mover.is_given_up = true;
            mover.process.kill();
        }
    }

    /// Removes a device process that has ended.
    pub fn forget_user(&mut self, key: u32) {
        for mover in self.running.values_mut() {
            mover.users.remove(&key);
        }
    }

    /// Handles the end of a mover.
    pub fn ended(&mut self, gpu: u32, token: u32, ops: &mut EventOps<'_>) -> Option<Ended> {
        let status: ExitStatus = self.running.get_mut(&gpu)?.process.ended()?;
        let mover = self.running.remove(&gpu)?;
        self.note_end(gpu, Instant::now());
        let _ = ops.remove(Events::with_data(&mover.process, token, EventSet::IN));
        tracing::error!("GPU {gpu}: the mover died: {}", reason(status));
        Some(Ended {
            gpu,
            process: mover.process.id(),
            users: mover.users.into_keys().collect(),
        })
    }

    /// All processes, so that they can be killed.
    pub fn processes(&mut self) -> impl Iterator<Item = &mut Process> {
        self.running.values_mut().map(|mover| &mut mover.process)
    }

    /// Forgets them all.
    pub fn clear(&mut self) {
        self.running.clear();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    /// A mover's lines do not count against those of VMs or other movers, and a restart does not reset its limit.
    #[test]
    fn a_mover_has_log_lines_of_its_own_however_often_it_starts() {
        let mut movers = Movers::new(None);
        let mut now = Instant::now();
        let first = movers.note_start(0, now).unwrap();
        assert!(movers.note_start(0, now).is_err(), "too early");
        let other = movers.note_start(1, now).unwrap();
        assert!(!Arc::ptr_eq(&first, &other));
        for _ in 0..3 {
            now += PAUSES.1;
            let again = movers.note_start(0, now).unwrap();
            assert!(Arc::ptr_eq(&first, &again));
        }
    }

    #[test]
    fn pauses_grow_until_a_mover_has_worked() {
        let mut movers = Movers::new(None);
        let mut now = Instant::now();
        let second = Duration::from_secs(1);
        let start_after = |movers: &mut Movers, now: &mut Instant, seconds| {
            movers.note_end(0, *now + second);
            *now += seconds * second;
            let early = movers.note_start(0, *now - second / 2);
            assert!(early.is_err(), "earlier than after {seconds} s");
            movers.note_start(0, *now).unwrap();
        };
        movers.note_start(0, now).unwrap();
        for seconds in [1, 2, 4, 8, 16, 32, 64, 64] {
            start_after(&mut movers, &mut now, seconds);
        }
        // A mover that is only started late has not worked.
        now += PAUSES.1 * 2;
        movers.note_start(0, now).unwrap();
        start_after(&mut movers, &mut now, 64);
        now += PAUSES.1;
        movers.note_end(0, now);
        movers.note_start(0, now).unwrap();
        start_after(&mut movers, &mut now, 1);
    }
}
