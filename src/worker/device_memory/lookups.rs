// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Queries of commands about the addresses that they are about to use.

use std::sync::atomic::Ordering;

use gpgpu_protocol::cuda::*;

use super::{
    DeviceMemory, cuda,
    ranges::{Range, Source},
};

impl DeviceMemory {
    /// The range that contains an address.
    pub fn find(&self, address: CUdeviceptr) -> Option<Range> {
        self.ranges.find(address)
    }

    /// Checks that `bytes` bytes at an address are memory of the guest that the thread's current context can use;
    /// `None` if only the driver can decide.
    ///
    /// # Errors
    ///
    /// `CUDA_ERROR_INVALID_VALUE` if they are not; the driver's error code if it refuses the context's device the
    /// access.
    pub fn check(
        &self,
        context: u64,
        address: CUdeviceptr,
        bytes: u64,
    ) -> Option<Result<(), CUresult>> {
        match self.ranges.find(address) {
            Some(range) if range.ending.is_some() => Some(Err(CUDA_ERROR_INVALID_VALUE)),
            Some(range) if matches!(range.source, Source::Mapped { .. }) => {
                Some(self.check_mapped(context, range, address, bytes))
            }
            Some(range) if range.holds(address, bytes) => Some(self.reach(context, &range)),
            Some(_) => Some(Err(CUDA_ERROR_INVALID_VALUE)),
            None if self.is_ours(address) => Some(Err(CUDA_ERROR_INVALID_VALUE)),
            None => None,
        }
    }

    /// Gives a context access to another device's memory: copies natively have it without a request.
    fn reach(&self, context: u64, range: &Range) -> Result<(), CUresult> {
        if range.context == context
            || !matches!(range.source, Source::Pool { .. } | Source::Imported)
        {
            return Ok(());
        }
        // Without a current context the copy itself returns the error.
        let Ok(device) = self.device_of(context) else {
            return Ok(());
        };
        if device == range.device {
            return Ok(());
        }
        if range.source == Source::Imported {
            return self.share_imported(range.start, device);
        }
        match self.known_device(range.device) {
            Some(owner) => owner.pool.share(device),
            None => Ok(()),
        }
    }

    /// Gives a device access to the client's own memory on another device; returns whether that is possible.
    ///
    /// # Errors
    ///
    /// `CUDA_ERROR_INVALID_VALUE` if there is no memory; the driver's error code.
    pub fn let_reach(&self, address: CUdeviceptr, device: CUdevice) -> Result<bool, CUresult> {
        let range = self.ranges.find(address);
        let range = range.filter(|range| range.ending.is_none());
        let range = range.ok_or(CUDA_ERROR_INVALID_VALUE)?;
        if range.device == device {
            return Ok(true);
        }
        let Source::Pool { .. } = range.source else {
            return Ok(false);
        };
        let mut can = 0;
        // SAFETY: the pointer is to a value that lives across the call.
        unsafe { cuda::cuDeviceCanAccessPeer(&mut can, device, range.device)? };
        let owner = self.known_device(range.device);
        let Some(owner) = owner.filter(|_| can != 0) else {
            return Ok(false);
        };
        owner.pool.share(device)?;
        Ok(true)
    }

    /// Gives the thread's current context access to the memory of another context's device, as `cuCtxEnablePeerAccess`
    /// does.
    ///
    /// # Errors
    ///
    /// The driver's error code.
    pub fn enable_peer(&self, peer: u64) -> Result<(), CUresult> {
        let common = self.common;
        let entered = common.entered();
        let device = self.device_of(common.current())?;
        common.enter(peer)?;
        let owner = self.device_of(common.current());
        common.enter(entered)?;
        let owner = owner?;
        match self.device(owner) {
            Some(peer) if owner != device => peer.pool.share(device),
            _ => Ok(()),
        }
    }

    /// `cuMemGetAddressRange`: start and size; `None` if only the driver can decide.
    ///
    /// # Errors
    ///
    /// `CUDA_ERROR_NOT_FOUND` if there is no memory.
    pub fn address_range(&self, address: CUdeviceptr) -> Option<Result<(u64, u64), CUresult>> {
        match self.ranges.find(address) {
            Some(range) if range.ending.is_some() => Some(Err(CUDA_ERROR_NOT_FOUND)),
            Some(range) => Some(Ok((range.start, range.bytes))),
            None if self.is_ours(address) => Some(Err(CUDA_ERROR_NOT_FOUND)),
            None => None,
        }
    }

    /// Sets `CU_POINTER_ATTRIBUTE_SYNC_MEMOPS`; `None` if the driver has to do it.
    ///
    /// # Errors
    ///
    /// `CUDA_ERROR_INVALID_VALUE` if there is no memory.
    pub fn set_sync_memops(
        &self,
        address: CUdeviceptr,
        value: bool,
    ) -> Option<Result<(), CUresult>> {
        if !self.is_ours(address) || self.mapped.owns(address) {
            return None;
        }
        let set = self
            .ranges
            .change(address, |range| range.sync_memops = value);
        self.any_synchronous.store(true, Ordering::Relaxed);
        Some(if set {
            Ok(())
        } else {
            Err(CUDA_ERROR_INVALID_VALUE)
        })
    }

    /// Waits for a synchronous copy or fill that was just made, if the memory at one of these addresses has
    /// `CU_POINTER_ATTRIBUTE_SYNC_MEMOPS`: CUDA's own calls return earlier.
    ///
    /// # Errors
    ///
    /// The driver's error code.
    pub fn settle(&self, addresses: &[CUdeviceptr]) -> Result<(), CUresult> {
        if !self.any_synchronous.load(Ordering::Relaxed) {
            return Ok(());
        }
        let is_synchronous = |address: &u64| {
            let range = self.ranges.find(*address);
            range.is_some_and(|range| range.sync_memops)
        };
        if !addresses.iter().any(is_synchronous) {
            return Ok(());
        }
        // SAFETY: the legacy stream, in which these copies and fills are, always is.
        unsafe { cuda::cuStreamSynchronize(std::ptr::null_mut()) }
    }
}
