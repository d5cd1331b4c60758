// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Chunks from the host's driver: `cuMemCreate` and related functions.

use std::{
    ffi::c_int,
    os::fd::{FromRawFd, OwnedFd},
};

use gpgpu_protocol::cuda::*;

use super::{
    freed::Events,
    pool::{self, Backend, Holders, Patience, Shape},
};
use crate::{
    account::{Charge, Quota},
    cuda::driver,
    worker::grace::{Ending, Ticket},
};

/// A device's window of addresses: room for many times its memory.
const WINDOW_BYTES: u64 = 4 << 40;
/// The first device's window: above the guest's pinned memory, and below the addresses that Linux chooses, so that the
/// guest's own addresses stay free here.
const FIRST_WINDOW: u64 = 0x2000_0000_0000;
/// Sizes of windows to try, in bytes.
const WINDOW_SIZES: [u64; 3] = [WINDOW_BYTES, 1 << 40, 256 << 30];
/// Places for windows.
const WINDOWS: u64 = 12;

/// One device's chunks.
#[derive(Debug)]
pub struct Chunks {
    device: CUdevice,
    gpu_direct: bool,
    /// The quota for their charges.
    quota: Option<Quota>,
    holders: &'static dyn Holders,
}

/// Physical memory.
#[derive(Debug)]
pub struct Memory {
    handle: CUmemGenericAllocationHandle,
    /// Dropped after the memory was released.
    charge: Option<Charge>,
}

impl pool::Memory for Memory {
    fn set_kept(&self, is_kept: bool) {
        if let Some(charge) = &self.charge {
            charge.set_kept(is_kept);
        }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: the handle is the driver's and is released once.
        if let Err(code) = unsafe { driver::cuMemRelease(self.handle) } {
            tracing::debug!("cuMemRelease: {code}");
        }
    }
}

fn attribute(attribute: CUdevice_attribute, device: CUdevice) -> i32 {
    let mut value = 0;
    // SAFETY: the pointer is to a value that lives across the call.
    let asked = unsafe { driver::cuDeviceGetAttribute(&mut value, attribute, device) };
    asked.map_or(0, |()| value)
}

/// Whether all other devices can get access to this one's memory. Copies between devices need that for memory in
/// chunks, but not for `cuMemAlloc`'s.
fn is_reachable(device: CUdevice) -> bool {
    let mut count = 0;
    // SAFETY: the pointers are to values that live across the calls, here and below.
    if unsafe { driver::cuDeviceGetCount(&mut count) }.is_err() {
        return false;
    }
    (0..count).filter(|other| *other != device).all(|other| {
        let mut can = 0;
        // SAFETY: as above.
        let asked = unsafe { driver::cuDeviceCanAccessPeer(&mut can, other, device) };
        asked.is_ok() && can != 0
    })
}

impl Chunks {
    /// The device's chunks in a new window.
    ///
    /// # Errors
    ///
    /// The reason why there can be none, as text.
    pub fn new(
        device: CUdevice,
        quota: Option<Quota>,
        holders: &'static dyn Holders,
    ) -> Result<(Self, Shape), &'static str> {
        if attribute(
            CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED,
            device,
        ) == 0
        {
            return Err("it has no virtual memory management");
        }
        if attribute(
            CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED,
            device,
        ) == 0
        {
            return Err("its memory cannot be exported");
        }
        if !is_reachable(device) {
            return Err("not every other device can reach its memory");
        }
        let with_vmm = CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED;
        let chunks = Self {
            device,
            gpu_direct: attribute(with_vmm, device) != 0,
            quota,
            holders,
        };
        let (mut granularity, mut total) = (0, 0);
        let option = CU_MEM_ALLOC_GRANULARITY_RECOMMENDED;
        // SAFETY: the pointers are to values that live across the calls.
        unsafe {
            driver::cuMemGetAllocationGranularity(&mut granularity, &chunks.properties(), option)
                .and_then(|()| driver::cuDeviceTotalMem_v2(&mut total, device))
        }
        .map_err(|_| "it does not report the granularity of its memory")?;
        if granularity == 0 {
            return Err("it does not report the granularity of its memory");
        }
        let (start, bytes) = reserve(device).ok_or("there are no addresses for its memory")?;
        let shape = Shape {
            start,
            bytes,
            granularity: granularity as u64,
            keep: (total as u64 / 16).clamp(64 << 20, 1 << 30),
            device,
        };
        Ok((chunks, shape))
    }

    fn properties(&self) -> CUmemAllocationProp {
        CUmemAllocationProp {
            type_: CU_MEM_ALLOCATION_TYPE_PINNED,
            requestedHandleTypes: CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
            location: location(self.device),
            win32HandleMetaData: std::ptr::null_mut(),
            // The same as for `cuMemAlloc`'s memory, if possible.
            allocFlags: CUmemAllocationFlags {
                gpuDirectRDMACapable: u8::from(self.gpu_direct),
                ..Default::default()
            },
        }
    }

    fn map(
        &self,
        memory: &Memory,
        address: u64,
        bytes: u64,
        devices: &[CUdevice],
    ) -> Result<(), CUresult> {
        // SAFETY: the addresses are of this process's window and free; the handle lives.
        unsafe { driver::cuMemMap(address, bytes as usize, 0, memory.handle, 0)? };
        let granted = devices
            .iter()
            .try_for_each(|device| self.grant(address, bytes, *device));
        if granted.is_err() {
            self.unmap(address, bytes);
        }
        granted
    }
}

/// A device as the place of memory, and as its accessor.
pub fn location(device: CUdevice) -> CUmemLocation {
    CUmemLocation {
        type_: CU_MEM_LOCATION_TYPE_DEVICE,
        id: device,
    }
}

/// Reserves a window: at the device's own place, at another free one, or anywhere.
fn reserve(device: CUdevice) -> Option<(u64, u64)> {
    let own = u64::try_from(device).ok()? % WINDOWS;
    let place = |place| FIRST_WINDOW + (own + place) % WINDOWS * WINDOW_BYTES;
    reserve_in(&(0..WINDOWS).map(place).collect::<Vec<_>>())
}

/// Reserves a window for the guest's own mappings: at a place that few devices leave free, or anywhere.
pub fn reserve_for_guest() -> Option<(u64, u64)> {
    let places = (0..WINDOWS).rev();
    let places = places.map(|place| FIRST_WINDOW + place * WINDOW_BYTES);
    reserve_in(&places.collect::<Vec<_>>())
}

/// Reserves a window at the first free place, or anywhere.
fn reserve_in(places: &[u64]) -> Option<(u64, u64)> {
    for bytes in WINDOW_SIZES {
        for &wish in places {
            match reserve_at(bytes, wish) {
                Some(start) if start == wish => return Some((start, bytes)),
                // The driver treats the address as a wish.
                Some(elsewhere) => free(elsewhere, bytes),
                // This many addresses are not available.
                None => break,
            }
        }
    }
    let [.., least] = WINDOW_SIZES;
    reserve_at(least, 0).map(|start| (start, least))
}

fn reserve_at(bytes: u64, wish: u64) -> Option<u64> {
    let mut start = 0;
    // SAFETY: the pointer is to a value that lives across the call.
    unsafe { driver::cuMemAddressReserve(&mut start, bytes as usize, 0, wish, 0) }.ok()?;
    Some(start)
}

fn free(start: u64, bytes: u64) {
    // SAFETY: nothing was mapped in it.
    if let Err(code) = unsafe { driver::cuMemAddressFree(start, bytes as usize) } {
        tracing::debug!("cuMemAddressFree: {code}");
    }
}

/// A descriptor by which other processes import physical memory.
///
/// # Errors
///
/// The driver's error code.
pub fn export(handle: CUmemGenericAllocationHandle) -> Result<OwnedFd, CUresult> {
    let mut fd: c_int = -1;
    let kind = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    // SAFETY: for this kind the driver writes an `int`, which lives across the call.
    unsafe { driver::cuMemExportToShareableHandle((&raw mut fd).cast(), handle, kind, 0)? };
    if fd < 0 {
        return Err(CUDA_ERROR_UNKNOWN);
    }
    // SAFETY: the driver has just made the descriptor, for the caller to close.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Events of the host's driver.
#[derive(Debug, Default)]
pub struct DriverEvents;

impl Events for DriverEvents {
    fn make(&self) -> Result<u64, CUresult> {
        let mut event = std::ptr::null_mut();
        // SAFETY: the pointer is to a value that lives across the call.
        unsafe { driver::cuEventCreate(&mut event, CU_EVENT_DISABLE_TIMING)? };
        Ok(event as u64)
    }

    fn record(&self, event: u64, stream: u64) -> Result<(), CUresult> {
        // SAFETY: the event is the driver's and lives: its context is not about to end. The stream is the client's.
        unsafe { driver::cuEventRecord(event as CUevent, stream as CUstream) }
    }

    fn is_over(&self, event: u64) -> Result<bool, CUresult> {
        // SAFETY: as above.
        match unsafe { driver::cuEventQuery(event as CUevent) } {
            Ok(()) => Ok(true),
            Err(CUDA_ERROR_NOT_READY) => Ok(false),
            Err(code) => Err(code),
        }
    }

    fn end(&self, event: u64) {
        // SAFETY: as above, and it is no longer in use.
        if let Err(code) = unsafe { driver::cuEventDestroy_v2(event as CUevent) } {
            tracing::debug!("cuEventDestroy: {code}");
        }
    }
}

impl Backend for Chunks {
    type Memory = Memory;

    fn create(
        &self,
        address: u64,
        bytes: u64,
        devices: &[CUdevice],
        patience: Patience,
    ) -> Result<Memory, CUresult> {
        let charge = self.quota.as_ref().map(|quota| match patience {
            Patience::None => quota.reserve(self.device, bytes),
            Patience::ForOthers => quota.reserve_patiently(self.device, bytes),
        });
        let charge = charge.transpose()?;
        let mut handle = 0;
        // SAFETY: the pointers are to values that live across the call.
        unsafe { driver::cuMemCreate(&mut handle, bytes as usize, &self.properties(), 0)? };
        let memory = Memory { handle, charge };
        self.map(&memory, address, bytes, devices)?;
        Ok(memory)
    }

    fn unmap(&self, address: u64, bytes: u64) -> bool {
        // SAFETY: this was mapped as one piece, and nothing uses it any more.
        let unmapped = unsafe { driver::cuMemUnmap(address, bytes as usize) };
        unmapped
            .inspect_err(|code| tracing::debug!("cuMemUnmap: {code}"))
            .is_ok()
    }

    fn grant(&self, address: u64, bytes: u64, device: CUdevice) -> Result<(), CUresult> {
        let access = CUmemAccessDesc {
            location: location(device),
            flags: CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
        };
        // SAFETY: the range is mapped; the pointer is to a value that lives across the call.
        unsafe { driver::cuMemSetAccess(address, bytes as usize, &access, 1) }
    }

    fn export(&self, memory: &Memory) -> Result<OwnedFd, CUresult> {
        export(memory.handle)
    }

    fn released(&self, numbers: &[u32]) {
        self.holders.drop_exports(numbers);
    }

    fn now(&self) -> Option<Ticket> {
        Some(Ticket::now())
    }

    fn is_unused(&self, since: Option<Ticket>, start: u64, bytes: u64) -> bool {
        since.is_none_or(|since| since.has_passed(Ending::Memory { start, bytes }))
    }

    fn is_over_limit(&self, bytes: u64) -> bool {
        let room = self
            .quota
            .as_ref()
            .and_then(|quota| quota.room(self.device));
        room.is_some_and(|room| room.used.saturating_add(bytes) > room.limit)
    }
}
