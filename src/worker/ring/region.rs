// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The ring's memory for the GPU: registered with CUDA when the GPU first writes to it.

use std::ffi::c_void;

use gpgpu_protocol::{
    cuda::*,
    ring::{BLOCK_BYTES, BLOCK_OFFSET, BLOCKS, RING_BYTES, WORD_OFFSET, WORDS},
};

use super::Ring;
use crate::{cuda::driver, worker::session::Session};

/// The region's registration with CUDA.
#[derive(Debug, Clone, Copy)]
pub struct Registered {
    context: u64,
    device: u64,
    /// Whether the context is about to end, and with it the registration.
    is_ending: bool,
}

impl Ring {
    /// The device address of the region, registered with CUDA in an existing context.
    ///
    /// # Errors
    ///
    /// `CUDA_ERROR_NOT_SUPPORTED` while that context is ending; the driver's error code.
    pub(super) fn register(&self, context: u64) -> Result<u64, CUresult> {
        let mut registered = self.registered.lock();
        if let Some(registered) = *registered {
            return match registered.is_ending {
                true => Err(CUDA_ERROR_NOT_SUPPORTED),
                false => Ok(registered.device),
            };
        }
        let pointer = self.base as *mut c_void;
        let flags = CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP;
        // SAFETY: the range is mapped and stays so.
        let device = match unsafe { driver::register_host(pointer, RING_BYTES, flags) } {
            Err(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED) => {
                let mut device = 0;
                // SAFETY: the pointer is to a value that lives across the call.
                unsafe { driver::cuMemHostGetDevicePointer_v2(&mut device, pointer, 0)? };
                device
            }
            registered => registered?,
        };
        *registered = Some(Registered {
            context,
            device,
            is_ending: false,
        });
        Ok(device)
    }

    fn set_ending(&self, context: u64, is_ending: bool) {
        if let Some(registered) = &mut *self.registered.lock()
            && registered.context == context
        {
            registered.is_ending = is_ending;
        }
    }

    /// Prepares for the end of a context: memory that is registered in it is no longer used.
    pub fn end_context(&self, context: u64) {
        self.crowds().end_context(context);
        self.set_ending(context, true);
    }

    /// Cancels the end of a context.
    pub fn keep_context(&self, context: u64) {
        self.crowds().settle_context(context);
        self.set_ending(context, false);
    }

    /// Forgets the memory that was registered in a context that has ended.
    pub fn forget_context(&self, context: u64) {
        self.crowds().settle_context(context);
        let mut registered = self.registered.lock();
        if registered.is_some_and(|registered| registered.context == context) {
            *registered = None;
        }
    }

    /// The device address of an event's word.
    ///
    /// # Errors
    ///
    /// `CUDA_ERROR_INVALID_VALUE` if there is no such word, `CUDA_ERROR_NOT_SUPPORTED` while the GPU cannot write to
    /// it; the driver's error code if the region cannot be registered.
    pub fn word(&self, session: &Session, word: u32) -> Result<CUdeviceptr, CUresult> {
        if word as usize >= WORDS {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let base = self.register(session.current())?;
        Ok(base + (WORD_OFFSET + word as usize * 4) as u64)
    }

    /// The address of `bytes` bytes from a data block on, possibly in several blocks.
    ///
    /// # Errors
    ///
    /// `CUDA_ERROR_INVALID_VALUE` if they exceed the last block; the driver's error code if the region cannot be
    /// registered.
    pub fn block(
        &self,
        session: &Session,
        block: u32,
        bytes: usize,
    ) -> Result<*mut c_void, CUresult> {
        let blocks = bytes.div_ceil(BLOCK_BYTES);
        if (block as usize).saturating_add(blocks) > BLOCKS {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        match self.register(session.current()) {
            // A copy from or to memory that is not registered is slower.
            Ok(_) | Err(CUDA_ERROR_NOT_SUPPORTED) => {}
            Err(code) => return Err(code),
        }
        Ok(self
            .area
            .at(BLOCK_OFFSET + block as usize * BLOCK_BYTES)
            .cast())
    }
}
