// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The charges of one client: made before an allocation, and dropped after the free.
//!
//! The processes of a VM reserve memory one at a time. A mutex orders the threads of one process; a POSIX record lock
//! on the ledger's file, one byte for each GPU, orders processes. The lock belongs to the process: the kernel releases
//! it whenever the process dies. (The kernel also releases it when the process closes any descriptor of the same file,
//! so the process has only one.) The supervisor never takes the lock, so no worker can delay the supervisor.

use std::{
    fs::File,
    os::fd::AsRawFd,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use gpgpu_locks::{Mutex, MutexGuard};
use gpgpu_protocol::{cuda::*, futex};

use super::{GPUS, Holding, Ledger, Shared, TermsView};

/// The maximum time for which a process waits for others to return kept memory. They return it at once unless their
/// driver is busy.
const PATIENCE: Duration = Duration::from_secs(10);

/// Allows this process one lock at a time, whichever GPU it is for. The kernel treats a process that holds one lock and
/// waits for another as a single thread, and may report a deadlock where there is none.
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
        let thread = TURN.lock();
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
    terms: TermsView,
    slot: usize,
    /// The memory that this client holds on each GPU.
    held: Mutex<[Held; GPUS]>,
}

/// The memory of a GPU that a client holds, in bytes, not rounded.
#[derive(Debug, Default, Clone, Copy)]
struct Held {
    all: u64,
    kept: u64,
}

impl Held {
    fn rounded(self) -> Holding {
        Holding::of(self.all, self.kept)
    }
}

impl Inner {
    fn held(&self) -> MutexGuard<'_, [Held; GPUS]> {
        self.held.lock()
    }

    /// Changes the held memory of a GPU, and wakes the VM's other processes.
    fn change(&self, gpu: usize, change: impl FnOnce(&mut Held)) {
        let mut held = self.held();
        let was = held[gpu].rounded();
        change(&mut held[gpu]);
        let now = held[gpu].rounded();
        if was == now {
            return;
        }
        self.ledger.held[gpu][self.slot].store(now.word(), Ordering::Release);
        drop(held);
        if now.charged < was.charged {
            let given = &self.ledger.given[gpu];
            given.fetch_add(1, Ordering::Release);
            futex::wake(given);
        }
    }
}

/// A VM's limit and use of a GPU's memory, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Room {
    /// The limit.
    pub limit: u64,
    /// The charges of all its processes.
    pub used: u64,
    /// The part of it that other processes only keep for later allocations.
    pub kept_by_others: u64,
}

/// A client's account in its VM's ledger.
#[derive(Debug, Clone)]
pub struct Quota(Arc<Inner>);

/// Device memory that is charged to a client until this is dropped. Free the memory before you drop the charge.
#[derive(Debug)]
#[must_use]
pub struct Charge {
    quota: Quota,
    gpu: usize,
    bytes: u64,
    /// Whether the charge counts as kept; changed under the lock of the held memory.
    is_kept: AtomicBool,
}

/// A GPU's number in the ledger.
///
/// # Errors
/// `CUDA_ERROR_OUT_OF_MEMORY`: memory that cannot be counted is refused.
fn number(gpu: CUdevice) -> Result<usize, CUresult> {
    let number = usize::try_from(gpu).ok().filter(|gpu| *gpu < GPUS);
    number.ok_or(CUDA_ERROR_OUT_OF_MEMORY)
}

impl Quota {
    /// The account of the client with this slot of the ledger.
    pub fn new(ledger: Arc<Shared<Ledger>>, terms: TermsView, slot: usize) -> Self {
        Self(Arc::new(Inner {
            ledger,
            terms,
            slot,
            held: Mutex::new([Held::default(); GPUS]),
        }))
    }

    fn ledger(&self) -> &Ledger {
        &self.0.ledger
    }

    /// The VM's limit and use of a GPU; `None` without a limit.
    pub fn room(&self, gpu: CUdevice) -> Option<Room> {
        let (ledger, gpu) = (self.ledger(), number(gpu).ok()?);
        let limit = self.limit()?;
        let own = ledger.held[gpu].get(self.0.slot).map(Holding::read);
        let others = ledger.others(gpu, self.0.slot);
        Some(Room {
            limit,
            used: others.charged + own.unwrap_or_default().charged,
            kept_by_others: others.kept,
        })
    }

    /// Each client of the VM that holds memory of a GPU, with its process's id in the guest.
    pub fn holders(&self, gpu: CUdevice) -> impl Iterator<Item = (u32, Holding)> {
        let gpu = number(gpu).ok();
        gpu.into_iter().flat_map(|gpu| self.ledger().holders(gpu))
    }

    /// The time for which a GPU had work of the VM, in nanoseconds; `None` for a GPU whose number is too large to be
    /// counted.
    pub fn busy_ns(&self, gpu: usize) -> Option<&AtomicU64> {
        self.ledger().busy_ns.get(gpu)
    }

    /// The limits of the VM's processes, and the values that they may read.
    pub fn terms(&self) -> &TermsView {
        &self.0.terms
    }

    /// The limit, in bytes.
    pub fn limit(&self) -> Option<u64> {
        self.0.terms.limit()
    }

    /// The size of a context on a GPU, in bytes.
    pub fn context_cost(&self, gpu: CUdevice) -> u64 {
        number(gpu).map_or(0, |gpu| self.0.terms.context_cost(gpu))
    }

    /// Charges `bytes` bytes on a GPU. Allocate the memory afterwards, and drop the charge if the allocation fails.
    ///
    /// # Errors
    /// `CUDA_ERROR_OUT_OF_MEMORY` if the VM would exceed its limit.
    pub fn reserve(&self, gpu: CUdevice, bytes: u64) -> Result<Charge, CUresult> {
        let gpu = number(gpu)?;
        let ledger = self.ledger();
        let slot = ledger.held[gpu]
            .get(self.0.slot)
            .ok_or(CUDA_ERROR_OUT_OF_MEMORY)?;
        let turn = match self.limit() {
            Some(_) => Some(Turn::take(self.0.ledger.file(), gpu)?),
            None => None,
        };
        let mut held = self.0.held();
        let was = held[gpu].rounded();
        let all = held[gpu]
            .all
            .checked_add(bytes)
            .ok_or(CUDA_ERROR_OUT_OF_MEMORY)?;
        let holds = Held { all, ..held[gpu] };
        let now = holds.rounded();
        if now.charged < all {
            // A slot cannot represent this much.
            return Err(CUDA_ERROR_OUT_OF_MEMORY);
        }
        if turn.is_some()
            && let Some(limit) = self.limit()
            && now.charged > was.charged
            && ledger.others(gpu, self.0.slot).charged + now.charged > limit
        {
            return Err(CUDA_ERROR_OUT_OF_MEMORY);
        }
        held[gpu] = holds;
        slot.store(now.word(), Ordering::Release);
        drop(turn);
        Ok(Charge {
            quota: self.clone(),
            gpu,
            bytes,
            is_kept: AtomicBool::new(false),
        })
    }

    /// As [`Quota::reserve`], but waits for other processes of the VM to return kept memory if that would help.
    ///
    /// # Errors
    /// As [`Quota::reserve`].
    pub fn reserve_patiently(&self, gpu: CUdevice, bytes: u64) -> Result<Charge, CUresult> {
        let number = number(gpu)?;
        let deadline = Instant::now() + PATIENCE;
        let ledger = self.ledger();
        loop {
            let given = ledger.given[number].load(Ordering::Acquire);
            let result = self.reserve(gpu, bytes);
            let (Err(_), Some(room)) = (&result, self.room(gpu)) else {
                return result;
            };
            let missing = room.used.saturating_add(bytes).saturating_sub(room.limit);
            let left = deadline.saturating_duration_since(Instant::now());
            // Try again if memory was returned in the meantime.
            let moved = ledger.given[number].load(Ordering::Acquire) != given;
            if left.is_zero() || (room.kept_by_others < missing && !moved) {
                return result;
            }
            if !moved {
                ledger.asked[number].fetch_add(1, Ordering::Release);
                futex::wake(&ledger.asked[number]);
                futex::wait_for(&ledger.given[number], given, left);
            }
        }
    }

    /// The number of requests so far to the VM's processes to return kept memory.
    pub fn asked(&self, gpu: CUdevice) -> u32 {
        number(gpu).map_or(0, |gpu| self.ledger().asked[gpu].load(Ordering::Acquire))
    }

    /// Waits for the next request; `seen` is the last result of [`Quota::asked`].
    pub fn wait_asked(&self, gpu: CUdevice, seen: u32) {
        if let Ok(gpu) = number(gpu) {
            futex::wait(&self.ledger().asked[gpu], seen);
        }
    }
}

impl Charge {
    /// The charged bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Sets whether the memory is only kept for the next allocation. Its holder returns kept memory when
    /// [`Quota::asked`] changes. This applies until the charge is dropped or set again.
    pub fn set_kept(&self, is_kept: bool) {
        self.quota.0.change(self.gpu, |held| {
            if self.is_kept.swap(is_kept, Ordering::Relaxed) != is_kept {
                held.kept = match is_kept {
                    true => held.kept + self.bytes,
                    false => held.kept - self.bytes,
                };
            }
        });
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        let kept = if *self.is_kept.get_mut() {
            self.bytes
        } else {
            0
        };
        self.quota.0.change(self.gpu, |held| {
            held.all -= self.bytes;
            held.kept -= kept;
        });
    }
}

#[cfg(test)]
#[path = "quota_tests.rs"]
mod tests;
