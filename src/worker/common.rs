// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The common part of a session's parts: the client's objects, each thread's current context, and the memory shared
//! with the supervisor. A part gets these when the session is made, and does not know the session.

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

/// See the module's page.
#[derive(Debug, Default)]
pub struct Common {
    /// The client's objects.
    pub objects: Objects,
    /// The memory shared with the supervisor, once there is a client.
    pub shares: OnceLock<Shares>,
    /// The GPUs that it has selected of those, if it has.
    selected: OnceLock<Vec<u32>>,
    /// The number of contexts that have ended.
    changes: AtomicU64,
    /// Whether there was ever a green context.
    pub any_green: AtomicBool,
}

thread_local! {
    /// The thread's current context, and [`Common::changes`] when it was seen to live.
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

/// The driver's own current context may be another.
const UNKNOWN: Entered = Entered {
    context: u64::MAX,
    home: 0,
};

impl Common {
    /// Makes the context with this id current in this thread.
    ///
    /// # Errors
    ///
    /// `CUDA_ERROR_CONTEXT_IS_DESTROYED` if it was destroyed: a guest thread can have such a context.
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

    /// The driver's own idea of the current context changed behind [`Self::enter`].
    pub fn forget_current(&self) {
        CURRENT.set((UNKNOWN, 0));
    }

    /// The id of the context that owns the objects that this thread's command makes: its current context, or a green
    /// one's primary context. Memory, modules, functions and events belong to it; streams do not ([`Self::entered`]).
    pub fn current(&self) -> u64 {
        CURRENT.get().0.home
    }

    /// The id of this thread's current context, which may be a green one: streams go with it, and the default stream is
    /// its own.
    pub fn entered(&self) -> u64 {
        match CURRENT.get().0 {
            UNKNOWN => 0,
            entered => entered.context,
        }
    }

    /// The current context, for a command that waits and goes on using it.
    pub fn used(&self) -> [Name; 2] {
        [self.current(), self.entered()].map(Name::Object)
    }

    /// Whether a context is a green one or has green ones.
    pub fn has_greens(&self, context: u64) -> bool {
        self.any_green.load(Ordering::Relaxed) && self.objects.has_greens(context)
    }

    /// The number of contexts that have ended.
    pub fn changes(&self) -> u64 {
        self.changes.load(Ordering::Acquire)
    }

    /// A context is about to end: from now on no thread takes it for its current one without a look, and nothing in it
    /// is found.
    ///
    /// # Errors
    ///
    /// `CUDA_ERROR_INVALID_CONTEXT` if there is none, or it ends already.
    pub(super) fn end_context(&self, context: u64) -> Result<Entry, CUresult> {
        let entry = self.objects.end_context(context)?;
        self.changes.fetch_add(1, Ordering::SeqCst);
        Ok(entry)
    }

    /// It does not end after all.
    pub(super) fn keep_context(&self, context: u64) {
        self.objects.keep_context(context);
        self.changes.fetch_add(1, Ordering::SeqCst);
    }

    /// The GPU that the client means by a number, as the driver numbers it.
    ///
    /// # Errors
    ///
    /// `CUDA_ERROR_INVALID_DEVICE` if it may not use it, or there is none.
    pub fn gpu(&self, dev: CUdevice) -> Result<CUdevice, CUresult> {
        host_gpu(self.gpus(), dev)
    }

    /// The GPUs that the client uses, in its order; empty for all in the driver's.
    pub fn gpus(&self) -> &[u32] {
        match self.selected.get() {
            Some(selected) => selected,
            None => self.shares.get().map_or(&[], |shares| &shares.gpus),
        }
    }

    /// From now on the client uses these of its GPUs alone, in this order.
    ///
    /// # Errors
    ///
    /// `CUDA_ERROR_INVALID_VALUE` for none, for one twice, or if it has selected some before;
    /// `CUDA_ERROR_INVALID_DEVICE` for one that it may not use.
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

/// Fills a secret.
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
