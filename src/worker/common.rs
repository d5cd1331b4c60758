// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The common state of the components of a session: the client's objects, each thread's current context, and the memory
//! shared with the supervisor. Components get it when the session is made, and do not know the session.

use std::{
    cell::Cell,
    sync::{
        OnceLock,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use gpgpu_protocol::{api::Context, cuda::*};

use super::{
    grace::Name,
    objects::{Entry, Objects, home},
    shared_memory::{Shares, host_gpu},
};
use crate::cuda::driver;

/// See the module's documentation.
#[derive(Debug, Default)]
pub struct Common {
    /// The client's objects.
    pub objects: Objects,
    /// The memory shared with the supervisor, once there is a client.
    pub shares: OnceLock<Shares>,
    /// The GPUs of those that it has selected, if it has.
    selected: OnceLock<Vec<u32>>,
    /// See [`Self::changes()`].
    changes: AtomicU64,
    /// Whether a green context was ever made.
    pub any_green: AtomicBool,
}

thread_local! {
    /// The thread's current context, and the value of [`Common::changes`] when it was last known to exist.
    static CURRENT: Cell<(Entered, u64)> = const { Cell::new((Entered { context: 0, home: 0 }, 0)) };
}

/// A current context.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Entered {
    /// Its id.
    context: u64,
    /// The id of the context that owns new objects: the current one, or a green context's primary context.
    home: u64,
}

/// The current context is unknown; the driver's may be any.
const UNKNOWN: Entered = Entered {
    context: u64::MAX,
    home: 0,
};

impl Common {
    /// Makes the context with this id current in this thread.
    ///
    /// # Errors
    ///
    /// `CUDA_ERROR_CONTEXT_IS_DESTROYED` if it was destroyed: a guest's thread can have such a current context.
    pub fn enter(&self, context: u64) -> Result<(), CUresult> {
        let changes = self.changes();
        let (entered, when) = CURRENT.get();
        if (entered.context, when) == (context, changes) {
            return Ok(());
        }
        let (raw, home) = match context {
            0 => (0, 0),
            _ => {
                let entry = self.objects.entry::<Context>(context);
                let entry = entry.ok_or(CUDA_ERROR_CONTEXT_IS_DESTROYED)?;
                (entry.raw, home(context, entry.context))
            }
        };
        // SAFETY: the handle is the driver's, or NULL for none.
        unsafe { driver::cuCtxSetCurrent(raw as CUcontext)? };
        CURRENT.set((Entered { context, home }, changes));
        Ok(())
    }

    /// Records that the driver's current context was changed without [`Self::enter`].
    pub fn forget_current(&self) {
        CURRENT.set((UNKNOWN, 0));
    }

    /// The id of the context that owns the objects that this thread's command makes: its current context, or a green
    /// context's primary context. Memory, modules, functions and events belong to it; streams do not
    /// ([`Self::entered`]).
    pub fn current(&self) -> u64 {
        CURRENT.get().0.home
    }

    /// The id of this thread's current context, which may be a green one: streams belong to it, and it has its own
    /// default stream.
    pub fn entered(&self) -> u64 {
        match CURRENT.get().0 {
            UNKNOWN => 0,
            entered => entered.context,
        }
    }

    /// The names of the current context, for a command that waits and uses it afterwards.
    pub fn used(&self) -> [Name; 2] {
        [self.current(), self.entered()].map(Name::Object)
    }

    /// Whether a context is a green one or has green ones.
    pub fn has_greens(&self, context: u64) -> bool {
        self.any_green.load(Ordering::Relaxed) && self.objects.has_greens(context)
    }

    /// A number that changes with each begin of the end of a context, and with the end or its cancellation.
    pub fn changes(&self) -> u64 {
        self.changes.load(Ordering::Acquire)
    }

    /// Begins the end of a context: from now on each thread checks that its current context exists, and nothing in the
    /// context is found.
    ///
    /// # Errors
    ///
    /// `CUDA_ERROR_INVALID_CONTEXT` if there is none, or if it is already ending.
    pub(super) fn end_context(&self, context: u64) -> Result<Entry, CUresult> {
        let entry = self.objects.end_context(context)?;
        self.changes.fetch_add(1, Ordering::SeqCst);
        Ok(entry)
    }

    /// Invalidates what threads have remembered about a context since its end began. Its id may be assigned again
    /// afterwards.
    pub(super) fn forget_context(&self) {
        self.changes.fetch_add(1, Ordering::SeqCst);
    }

    /// Cancels the end of a context.
    pub(super) fn keep_context(&self, context: u64) {
        self.objects.keep_context(context);
        self.changes.fetch_add(1, Ordering::SeqCst);
    }

    /// The driver's number of the client's GPU with this number.
    ///
    /// # Errors
    ///
    /// `CUDA_ERROR_INVALID_DEVICE` if there is none, or the client may not use it.
    pub fn gpu(&self, dev: CUdevice) -> Result<CUdevice, CUresult> {
        host_gpu(self.gpus(), dev)
    }

    /// The GPUs that the client uses, in its order; empty for all GPUs in the driver's order.
    pub fn gpus(&self) -> &[u32] {
        match self.selected.get() {
            Some(selected) => selected,
            None => self.shares.get().map_or(&[], |shares| &shares.gpus),
        }
    }

    /// Restricts the client to these of its GPUs, in this order.
    ///
    /// # Errors
    ///
    /// `CUDA_ERROR_INVALID_VALUE` for an empty list or a repeated GPU, or if the client has already selected;
    /// `CUDA_ERROR_INVALID_DEVICE` for a GPU that it may not use.
    pub fn select(&self, devices: &[u32]) -> Result<(), CUresult> {
        let mut selected = Vec::new();
        for &device in devices {
            let device = CUdevice::try_from(device).map_err(|_| CUDA_ERROR_INVALID_DEVICE)?;
            let gpu = self.gpu(device)? as u32;
            if selected.contains(&gpu) {
                return Err(CUDA_ERROR_INVALID_VALUE);
            }
            selected.push(gpu);
        }
        if selected.is_empty() {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        self.selected
            .set(selected)
            .map_err(|_| CUDA_ERROR_INVALID_VALUE)
    }
}

/// Fills a secret with random bytes.
///
/// # Errors
///
/// `CUDA_ERROR_OPERATING_SYSTEM` if the kernel has no random bytes.
pub fn random(bytes: &mut [u8]) -> Result<(), CUresult> {
    // SAFETY: the buffer is as long as is said. So few bytes come whole or not at all.
    let got = unsafe { libc::getrandom(bytes.as_mut_ptr().cast(), bytes.len(), 0) };
    match usize::try_from(got) == Ok(bytes.len()) {
        true => Ok(()),
        false => Err(CUDA_ERROR_OPERATING_SYSTEM),
    }
}
