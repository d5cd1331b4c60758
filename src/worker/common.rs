// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! What the parts of a session have in common: the client's objects, each thread's current context, and what is shared with
//! the supervisor. A part that needs these is handed them when the session is made, and knows nothing of the session.

use std::{
    cell::Cell,
    sync::{
        OnceLock,
        atomic::{AtomicU64, Ordering},
    },
};

use gpgpu_protocol::{api::Context, cuda::*};

use super::{
    objects::{Entry, Objects},
    shares::{Shares, host_gpu},
};
use crate::cuda::driver;

/// See the module's page.
#[derive(Debug, Default)]
pub struct Common {
    /// The client's objects.
    pub objects: Objects,
    /// What is shared with the supervisor, from the moment when there is a client.
    pub shares: OnceLock<Shares>,
    /// The GPUs that it has selected of those, if it has.
    selected: OnceLock<Vec<u32>>,
    /// How often a context ended.
    changes: AtomicU64,
}

thread_local! {
    /// The thread's current context, and [`Common::changes`] when it was seen to live.
    static CURRENT: Cell<(u64, u64)> = const { Cell::new((0, 0)) };
}

impl Common {
    /// Makes the context with this id current in this thread.
    ///
    /// # Errors
    ///
    /// `CUDA_ERROR_CONTEXT_IS_DESTROYED` if it was destroyed: a guest thread can have such a context.
    pub fn enter(&self, context: u64) -> Result<(), CUresult> {
        let changes = self.changes();
        if CURRENT.get() == (context, changes) {
            return Ok(());
        }
        let raw = self.objects.raw::<Context>(context);
        let raw = raw.map_err(|_| CUDA_ERROR_CONTEXT_IS_DESTROYED)?;
        // SAFETY: the handle is the driver's, or NULL for none.
        unsafe { driver::cuCtxSetCurrent(raw as CUcontext)? };
        CURRENT.set((context, changes));
        Ok(())
    }

    /// The driver's own idea of the current context changed behind [`Self::enter`].
    pub fn forget_current(&self) {
        CURRENT.set((u64::MAX, 0));
    }

    /// The id of this thread's current context.
    pub fn current(&self) -> u64 {
        match CURRENT.get() {
            (u64::MAX, _) => 0,
            (context, _) => context,
        }
    }

    /// How often a context has ended.
    pub fn changes(&self) -> u64 {
        self.changes.load(Ordering::Acquire)
    }

    /// A context is about to end: from now on no thread takes it for its current one without a look, and nothing in it is found.
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
    /// `CUDA_ERROR_INVALID_VALUE` for none, for one twice, or if it has selected some before; `CUDA_ERROR_INVALID_DEVICE` for one
    /// that it may not use.
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
