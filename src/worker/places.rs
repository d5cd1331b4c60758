// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The contexts into which libraries are loaded, and the charges for that.
//!
//! A library is at first in no context. The driver loads it into each context at its first use there, and each time
//! allocates memory for its variables and code. Each use that may be the first calls this module before the driver.

use std::sync::atomic::{AtomicU64, Ordering};

use gpgpu_locks::{Mutex, MutexGuard};
use gpgpu_protocol::cuda::*;

use super::{common::Common, device_memory::DeviceMemory, ops::image::Needs};
use crate::account::Charge;
use crate::cuda::driver;

/// Stands for the context that was made in advance, which has no id before the client takes it over.
pub const AHEAD: u64 = u64::MAX;
/// The number of contexts that can be looked up without a lock.
const QUICK: usize = 8;

/// The contexts in which a library is charged.
#[derive(Debug)]
pub struct Places {
    needs: Needs,
    /// Context ids; 0 for none. Written with `charged` locked.
    quick: [AtomicU64; QUICK],
    charged: Mutex<Vec<(u64, Option<Charge>)>>,
}

impl Places {
    /// A library that is in no context.
    pub fn new(needs: Needs) -> Self {
        Self {
            needs,
            quick: Default::default(),
            charged: Mutex::default(),
        }
    }

    fn charged(&self) -> MutexGuard<'_, Vec<(u64, Option<Charge>)>> {
        self.charged.lock()
    }

    /// Charges the library in a context before it is used there, unless it is charged already.
    ///
    /// # Errors
    ///
    /// `CUDA_ERROR_OUT_OF_MEMORY` above the limit, `CUDA_ERROR_INVALID_CONTEXT` without a context.
    pub fn enter(&self, memory: &DeviceMemory, context: u64) -> Result<(), CUresult> {
        let is_quick = |place: &AtomicU64| place.load(Ordering::Acquire) == context;
        if context != 0 && self.quick.iter().any(is_quick) {
            return Ok(());
        }
        self.enter_slowly(memory, context)
    }

    #[cold]
    fn enter_slowly(&self, memory: &DeviceMemory, context: u64) -> Result<(), CUresult> {
        if context == 0 {
            return Err(CUDA_ERROR_INVALID_CONTEXT);
        }
        if self.charged().iter().any(|(of, _)| *of == context) {
            return Ok(());
        }
        let device = device_of(memory.common, context)?;
        self.enter_on(memory, context, device)
    }

    /// The same for a context of this device, which may also be [`AHEAD`].
    ///
    /// # Errors
    ///
    /// As [`Self::enter`].
    pub fn enter_on(
        &self,
        memory: &DeviceMemory,
        context: u64,
        device: CUdevice,
    ) -> Result<(), CUresult> {
        let is_charged = |all: &[(u64, _)]| all.iter().any(|(of, _)| *of == context);
        if is_charged(&self.charged()) {
            return Ok(());
        }
        // Without the lock: it may take long, until other processes have returned kept memory.
        let charge = self.visit(memory, device)?;
        let mut all = self.charged();
        // Another thread may have charged it in the meantime. This thread's reservation is then dropped.
        if !is_charged(&all) {
            all.push((context, charge));
            let is_free = |place: &&AtomicU64| place.load(Ordering::Relaxed) == 0;
            if let Some(place) = self.quick.iter().find(is_free) {
                place.store(context, Ordering::Release);
            }
        }
        Ok(())
    }

    /// Charges the library on a device as long as the charge lives: for a context that ends before it.
    ///
    /// # Errors
    ///
    /// As [`Self::enter`].
    pub fn visit(
        &self,
        memory: &DeviceMemory,
        device: CUdevice,
    ) -> Result<Option<Charge>, CUresult> {
        memory.reserve(device, self.needs.bytes(device)?)
    }

    /// Gives the charge in [`AHEAD`] to the client's context.
    pub fn take_over(&self, context: u64) {
        let mut all = self.charged();
        for (of, _) in all.iter_mut().filter(|(of, _)| *of == AHEAD) {
            *of = context;
        }
    }

    /// Drops the charge in a context that has ended.
    pub fn leave(&self, context: u64) {
        let mut all = self.charged();
        for place in &self.quick {
            if place.load(Ordering::Relaxed) == context {
                place.store(0, Ordering::Release);
            }
        }
        all.retain(|(of, _)| *of != context);
    }
}

/// The device of a context.
///
/// # Errors
///
/// The driver's.
pub fn device_of(common: &Common, context: u64) -> Result<CUdevice, CUresult> {
    let entered = common.entered();
    common.enter(context)?;
    let mut device = 0;
    // SAFETY: the pointer is to a value that lives across the call.
    let asked = unsafe { driver::cuCtxGetDevice(&mut device) };
    common.enter(entered)?;
    asked.map(|()| device)
}
