//! The movers: one for each GPU, started when the first client opens, and again when one is asked for after
//! it died.

use std::{
    collections::HashMap,
    ffi::OsString,
    io,
    os::fd::{AsFd, OwnedFd},
    process::ExitStatus,
    time::{Duration, Instant},
};

use event_manager::{EventOps, EventSet, Events};

use super::process::{Process, Program, reason};
use crate::ipc::{self, mover::Tenant};

/// More GPUs than any host has.
pub const MAX_GPUS: u32 = 64;
/// How long after a start the next one of the same mover may come, at first, and at most: one that
/// cannot work is not started all the time.
const PAUSES: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(64));
/// A mover that lived this long worked.
const WORKED: Duration = Duration::from_secs(10);

struct Mover {
    process: Process,
    link: OwnedFd,
    /// Keys of the device processes that have a channel.
    users: Vec<u32>,
}

/// When a mover was started last, and how long the next start has to wait.
struct Start {
    at: Instant,
    pause: Duration,
}

/// A mover that has ended.
pub struct Ended {
    /// Its GPU.
    pub gpu: u32,
    /// The device processes that had a channel to it.
    pub users: Vec<u32>,
}

/// See the module's page.
pub struct Movers {
    program: Option<Program>,
    running: HashMap<u32, Mover>,
    starts: HashMap<u32, Start>,
}

impl Movers {
    /// None is running yet; `None` says that there are none.
    pub fn new(program: Option<Program>) -> Self {
        Self {
            program,
            running: HashMap::new(),
            starts: HashMap::new(),
        }
    }

    /// A channel to the mover of a GPU for the device process with this key, which is a VM's; the mover is started if need
    /// be, and watched under `token`.
    ///
    /// # Errors
    /// There is no such mover now.
    pub fn connect(
        &mut self,
        gpu: u32,
        (key, tenant): (u32, Tenant),
        token: impl FnOnce() -> u32,
        ops: &mut EventOps<'_>,
    ) -> io::Result<OwnedFd> {
        if !self.running.contains_key(&gpu) {
            let mover = self.start(gpu, token, ops)?;
            self.running.insert(gpu, mover);
        }
        let (ours, theirs) = ipc::pair()?;
        let mover = self.running.get_mut(&gpu).ok_or(io::ErrorKind::NotFound)?;
        ipc::mover::pass_channel(mover.link.as_fd(), tenant, theirs.as_fd())
            .map_err(io::Error::other)?;
        if !mover.users.contains(&key) {
            mover.users.push(key);
        }
        Ok(ours)
    }

    fn start(
        &mut self,
        gpu: u32,
        token: impl FnOnce() -> u32,
        ops: &mut EventOps<'_>,
    ) -> io::Result<Mover> {
        let program = self.program.as_ref().ok_or(io::ErrorKind::Unsupported)?;
        if gpu >= MAX_GPUS {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let now = Instant::now();
        let pause = match self.starts.get(&gpu) {
            Some(last) if now < last.at + last.pause => {
                return Err(io::ErrorKind::WouldBlock.into());
            }
            Some(last) if now < last.at + WORKED => (last.pause * 2).min(PAUSES.1),
            _ => PAUSES.0,
        };
        self.starts.insert(gpu, Start { at: now, pause });
        let (ours, theirs) = ipc::pair()?;
        let process = program.start(theirs, &OsString::from(gpu.to_string()))?;
        ops.add(Events::with_data(&process, token(), EventSet::IN))
            .map_err(io::Error::other)?;
        tracing::info!("GPU {gpu}: mover started (process {})", process.id());
        Ok(Mover {
            process,
            link: ours,
            users: Vec::new(),
        })
    }

    /// A VM's weight may have changed.
    pub fn set_weight(&self, tenant: Tenant) {
        for (gpu, mover) in &self.running {
            if let Err(error) = ipc::mover::set_weight(mover.link.as_fd(), tenant) {
                tracing::warn!("GPU {gpu}: the mover does not learn of a weight: {error}");
            }
        }
    }

    /// Ends a mover that does not do what it is asked for.
    pub fn kill(&mut self, gpu: u32) {
        if let Some(mover) = self.running.get_mut(&gpu) {
            tracing::error!("GPU {gpu}: the mover does not answer");
            mover.process.kill();
        }
    }

    /// A device process is gone.
    pub fn forget_user(&mut self, key: u32) {
        for mover in self.running.values_mut() {
            mover.users.retain(|&user| user != key);
        }
    }

    /// Takes note of a mover that has ended.
    pub fn ended(&mut self, gpu: u32, token: u32, ops: &mut EventOps<'_>) -> Option<Ended> {
        let status: ExitStatus = self.running.get_mut(&gpu)?.process.ended()?;
        let mover = self.running.remove(&gpu)?;
        let _ = ops.remove(Events::with_data(&mover.process, token, EventSet::IN));
        tracing::error!("GPU {gpu}: the mover died: {}", reason(status));
        let users = mover.users;
        Some(Ended { gpu, users })
    }

    /// All processes, to be ended.
    pub fn processes(&mut self) -> impl Iterator<Item = &mut Process> {
        self.running.values_mut().map(|mover| &mut mover.process)
    }

    /// Forgets them all.
    pub fn clear(&mut self) {
        self.running.clear();
    }
}
