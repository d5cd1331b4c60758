//! What one client is charged: reserved before it is allocated, and given back once it is freed.
//!
//! All processes of a VM reserve in turn. Between threads of one process a mutex sees to that; between processes a POSIX
//! record lock on the ledger's memory, one byte for each GPU. Such a lock is the process's: the kernel releases it when the
//! process dies, however it dies. (It also releases it when the process closes any descriptor of the same file, so there
//! is only one.) The supervisor never takes it, so no worker can hold the supervisor up.

use std::{
    fs::File,
    os::fd::AsRawFd,
    sync::{Arc, Mutex, MutexGuard, PoisonError, atomic::Ordering},
    time::{Duration, Instant},
};

use gpgpu_protocol::{cuda::*, futex};

use super::{GPUS, Ledger, Shared};

/// What is charged is a multiple of this, in bytes: drivers hand physical memory out in such pieces.
pub const GRANULE: u64 = 2 << 20;
/// How long a process waits for others to give back what they only keep.
const PATIENCE: Duration = Duration::from_secs(2);

/// One lock of this process at a time, whichever GPU it is for: the kernel takes a process that holds one lock and waits
/// for another for a single thread, and may see a deadlock where there is none.
static TURN: Mutex<()> = Mutex::new(());

/// The lock of one GPU's charges among the processes of a VM.
struct Turn<'a> {
    file: &'a File,
    gpu: usize,
    _thread: MutexGuard<'static, ()>,
}

fn set_lock(file: &File, gpu: usize, kind: libc::c_int, command: libc::c_int) -> Result<(), i32> {
    // SAFETY: zeros are a value of it.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    lock.l_type = kind as libc::c_short;
    lock.l_whence = libc::SEEK_SET as libc::c_short;
    lock.l_start = gpu as libc::off_t;
    lock.l_len = 1;
    loop {
        // SAFETY: the descriptor is open, and the structure lives across the call.
        if unsafe { libc::fcntl(file.as_raw_fd(), command, &raw const lock) } == 0 {
            return Ok(());
        }
        let error = nix::errno::Errno::last_raw();
        if error != libc::EINTR {
            return Err(error);
        }
    }
}

impl<'a> Turn<'a> {
    fn take(file: &'a File, gpu: usize) -> Result<Self, CUresult> {
        let thread = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        set_lock(file, gpu, libc::F_WRLCK, libc::F_SETLKW).map_err(|error| {
            tracing::error!("The VM's ledger cannot be locked: error {error}");
            CUDA_ERROR_OUT_OF_MEMORY
        })?;
        Ok(Self {
            file,
            gpu,
            _thread: thread,
        })
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let _ = set_lock(self.file, self.gpu, libc::F_UNLCK, libc::F_SETLK);
    }
}

#[derive(Debug)]
struct Inner {
    ledger: Arc<Shared<Ledger>>,
    slot: usize,
    /// What this client holds on each GPU, in bytes, before it is rounded.
    held: Mutex<[u64; GPUS]>,
}

impl Inner {
    fn held(&self) -> MutexGuard<'_, [u64; GPUS]> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A client's account in its VM's ledger.
#[derive(Debug, Clone)]
pub struct Quota(Arc<Inner>);

/// Device memory that is charged to a client until this is dropped: drop it after the memory was freed.
#[derive(Debug)]
#[must_use]
pub struct Charge {
    quota: Quota,
    gpu: usize,
    bytes: u64,
}

/// A GPU's number in the ledger.
///
/// # Errors
/// `CUDA_ERROR_OUT_OF_MEMORY`: what cannot be counted cannot be had.
fn number(gpu: CUdevice) -> Result<usize, CUresult> {
    let number = usize::try_from(gpu).ok().filter(|gpu| *gpu < GPUS);
    number.ok_or(CUDA_ERROR_OUT_OF_MEMORY)
}

impl Quota {
    /// The account of the client that has this place in the ledger.
    pub fn new(ledger: Arc<Shared<Ledger>>, slot: usize) -> Self {
        Self(Arc::new(Inner {
            ledger,
            slot,
            held: Mutex::new([0; GPUS]),
        }))
    }

    fn ledger(&self) -> &Ledger {
        &self.0.ledger
    }

    /// What the VM may have of a GPU, and what it has: both in bytes; `None` where there is no limit.
    pub fn room(&self, gpu: CUdevice) -> Option<(u64, u64)> {
        let limit = self.ledger().limit()?;
        Some((limit, self.ledger().used(number(gpu).ok()?)))
    }

    /// The limit, in bytes.
    pub fn limit(&self) -> Option<u64> {
        self.ledger().limit()
    }

    /// What a context on a GPU costs, in bytes.
    pub fn context_cost(&self, gpu: CUdevice) -> u64 {
        number(gpu).map_or(0, |gpu| self.ledger().context_cost(gpu))
    }

    /// Charges `bytes` bytes on a GPU. Allocate only then, and drop the charge if that fails.
    ///
    /// # Errors
    /// `CUDA_ERROR_OUT_OF_MEMORY` if the VM would have more than its limit.
    pub fn reserve(&self, gpu: CUdevice, bytes: u64) -> Result<Charge, CUresult> {
        let gpu = number(gpu)?;
        let ledger = self.ledger();
        let slot = ledger.charged[gpu]
            .get(self.0.slot)
            .ok_or(CUDA_ERROR_OUT_OF_MEMORY)?;
        let turn = match ledger.limit() {
            Some(_) => Some(Turn::take(self.0.ledger.file(), gpu)?),
            None => None,
        };
        let mut held = self.0.held();
        let holds = held[gpu]
            .checked_add(bytes)
            .ok_or(CUDA_ERROR_OUT_OF_MEMORY)?;
        let charged = holds
            .checked_next_multiple_of(GRANULE)
            .ok_or(CUDA_ERROR_OUT_OF_MEMORY)?;
        let was = held[gpu].next_multiple_of(GRANULE);
        if turn.is_some()
            && let Some(limit) = ledger.limit()
        {
            let others = ledger.used_by_others(gpu, self.0.slot);
            if charged > was && others.saturating_add(charged) > limit {
                return Err(CUDA_ERROR_OUT_OF_MEMORY);
            }
        }
        held[gpu] = holds;
        slot.store(charged, Ordering::Relaxed);
        drop(turn);
        Ok(Charge {
            quota: self.clone(),
            gpu,
            bytes,
        })
    }

    /// As [`Quota::reserve`], and waits for other processes of the VM to give back what they only keep, if that would
    /// help.
    ///
    /// # Errors
    /// As [`Quota::reserve`].
    pub fn reserve_patiently(&self, gpu: CUdevice, bytes: u64) -> Result<Charge, CUresult> {
        let number = number(gpu)?;
        let deadline = Instant::now() + PATIENCE;
        let ledger = self.ledger();
        loop {
            let given = ledger.given[number].load(Ordering::Acquire);
            let kept = ledger.kept_by_others(number, self.0.slot);
            let result = self.reserve(gpu, bytes);
            let (Err(_), Some((limit, used))) = (&result, self.room(gpu)) else {
                return result;
            };
            let missing = used.saturating_add(bytes).saturating_sub(limit);
            let left = deadline.saturating_duration_since(Instant::now());
            // What others kept a moment ago they may have given by now, and then it is worth another look.
            let moved = ledger.given[number].load(Ordering::Acquire) != given;
            if left.is_zero() || (kept < missing && !moved) {
                return result;
            }
            if !moved {
                ledger.asked[number].fetch_add(1, Ordering::Release);
                futex::wake(&ledger.asked[number]);
                futex::wait_for(&ledger.given[number], given, left);
            }
        }
    }

    /// Says how many of the charged bytes are only kept.
    pub fn set_kept(&self, gpu: CUdevice, bytes: u64) {
        if let Ok(gpu) = number(gpu)
            && let Some(slot) = self.ledger().kept[gpu].get(self.0.slot)
        {
            slot.store(bytes, Ordering::Release);
        }
    }

    /// What other processes of the VM only keep of a GPU's memory, in bytes.
    pub fn kept_by_others(&self, gpu: CUdevice) -> u64 {
        number(gpu).map_or(0, |gpu| self.ledger().kept_by_others(gpu, self.0.slot))
    }

    /// How often processes of the VM were asked for what they only keep.
    pub fn asked(&self, gpu: CUdevice) -> u32 {
        number(gpu).map_or(0, |gpu| self.ledger().asked[gpu].load(Ordering::Acquire))
    }

    /// Waits until they are asked again; `seen` is what [`Quota::asked`] said last.
    pub fn wait_asked(&self, gpu: CUdevice, seen: u32) {
        if let Ok(gpu) = number(gpu) {
            futex::wait(&self.ledger().asked[gpu], seen);
        }
    }
}

impl Charge {
    /// Bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        let inner = &self.quota.0;
        let mut held = inner.held();
        held[self.gpu] = held[self.gpu].saturating_sub(self.bytes);
        let charged = held[self.gpu].next_multiple_of(GRANULE);
        let slot = &inner.ledger.charged[self.gpu][inner.slot];
        if slot.swap(charged, Ordering::Release) != charged {
            let given = &inner.ledger.given[self.gpu];
            given.fetch_add(1, Ordering::Release);
            futex::wake(given);
        }
    }
}

#[cfg(test)]
#[path = "quota_tests.rs"]
mod tests;
