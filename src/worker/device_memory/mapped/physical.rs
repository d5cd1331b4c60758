// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Physical memory: creation, sharing, import and release.

use std::{
    os::fd::OwnedFd,
    sync::{Arc, atomic::AtomicBool},
};

use gpgpu_protocol::{
    api::{Object, Physical as PhysicalObject, object_kind},
    cuda::*,
};

use super::{
    super::{
        DeviceMemory,
        addresses::GRANULARITY,
        cuda,
        driver::location,
        pool::{Patience, next_number},
    },
    Known, MOST, Physical, check_device,
};
use crate::{
    ipc::peers::Given,
    worker::{grace, peers::Object as Shared},
};

impl DeviceMemory {
    /// `cuMemCreate` with the guest's id, on a device by the driver's number and by the guest's.
    ///
    /// # Errors
    ///
    /// `CUDA_ERROR_INVALID_VALUE` for an id that is invalid or in use, and for a size that is not a multiple of the
    /// granularity; `CUDA_ERROR_INVALID_DEVICE`; `CUDA_ERROR_OUT_OF_MEMORY`, also above the VM's limit; the driver's
    /// error code.
    pub fn create_physical(
        &self,
        id: u64,
        bytes: u64,
        (device, guest_device): (CUdevice, CUdevice),
        is_exportable: bool,
    ) -> Result<(), CUresult> {
        if bytes == 0 || !bytes.is_multiple_of(GRANULARITY) {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        check_device(device)?;
        // The driver may take long, and so may other processes that have to return memory.
        grace::narrow(&[]);
        self.check_new_physical(id)?;
        let memory = self.make_physical(bytes, (device, guest_device), is_exportable)?;
        self.insert_physical(id, memory)
    }

    /// Checks that a new physical memory can have this id.
    fn check_new_physical(&self, id: u64) -> Result<(), CUresult> {
        let is_id = object_kind(id) == PhysicalObject::KIND && id >> 56 == 0;
        let state = self.mapped.state();
        if !is_id || state.known.contains_key(&id) {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        match state.known.len() >= MOST {
            true => Err(CUDA_ERROR_OUT_OF_MEMORY),
            false => Ok(()),
        }
    }

    /// Assigns the guest's id to physical memory.
    fn insert_physical(&self, id: u64, memory: Physical) -> Result<(), CUresult> {
        let memory = Arc::new(memory);
        let mut state = self.mapped.state();
        if state.known.contains_key(&id) {
            // Another thread was faster, which the guest's own libraries never cause. The memory is dropped after the
            // lock.
            drop(state);
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let known = Known {
            memory,
            references: 1,
            mappings: 0,
        };
        state.known.insert(id, known);
        Ok(())
    }

    fn make_physical(
        &self,
        bytes: u64,
        (device, guest_device): (CUdevice, CUdevice),
        is_exportable: bool,
    ) -> Result<Physical, CUresult> {
        let chunks = self.device(device);
        let properties = CUmemAllocationProp {
            type_: CU_MEM_ALLOCATION_TYPE_PINNED,
            // For the mover, and for other processes of the guest.
            requestedHandleTypes: match chunks {
                Some(_) => CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                None => CU_MEM_HANDLE_TYPE_NONE,
            },
            location: location(device),
            win32HandleMetaData: std::ptr::null_mut(),
            allocFlags: CUmemAllocationFlags::default(),
        };
        let make = |patience| {
            let charge = self.quota.get().map(|quota| match patience {
                Patience::None => quota.reserve(device, bytes),
                Patience::ForOthers => quota.reserve_patiently(device, bytes),
            });
            let charge = charge.transpose()?;
            let mut handle = 0;
            // SAFETY: the pointers are to values that live across the call.
            unsafe { cuda::cuMemCreate(&mut handle, bytes as usize, &properties, 0)? };
            Ok((handle, charge))
        };
        let (handle, charge) = match &chunks {
            Some(device) => device.pool.insist(bytes, Patience::ForOthers, make)?,
            None => make(Patience::ForOthers)?,
        };
        Ok(Physical {
            handle,
            bytes,
            device,
            guest_device,
            is_exportable,
            number: next_number(),
            is_exported: AtomicBool::new(false),
            holders: self.holders,
            chunks,
            _charge: charge,
        })
    }

    /// `cuMemRelease`. Mappings keep the memory.
    ///
    /// # Errors
    ///
    /// `CUDA_ERROR_INVALID_VALUE` for an id to which the guest has no reference.
    pub fn release_physical(&self, id: u64) -> Result<(), CUresult> {
        grace::narrow(&[]);
        let gone = {
            let mut state = self.mapped.state();
            state.known(id)?.references -= 1;
            state.forget_unused(id)
        };
        drop(gone);
        Ok(())
    }

    /// Physical memory as the object of `cuMemExportToShareableHandle`. As natively, released memory that is still
    /// mapped can be shared too.
    ///
    /// # Errors
    ///
    /// `CUDA_ERROR_INVALID_VALUE` for an invalid id, and for memory that was not made to be exported;
    /// `CUDA_ERROR_NOT_SUPPORTED` if the device's memory has no descriptors.
    pub fn shareable_physical(&self, id: u64) -> Result<Shared, CUresult> {
        let mut state = self.mapped.state();
        let known = state.known.get(&id).ok_or(CUDA_ERROR_INVALID_VALUE)?;
        let memory = &known.memory;
        if !memory.is_exportable {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        if memory.chunks.is_none() {
            return Err(CUDA_ERROR_NOT_SUPPORTED);
        }
        let number = memory.number;
        state.exported.insert(number, id);
        Ok(Shared::Physical(number))
    }

    /// Whether physical memory with this number exists and was shared.
    pub fn is_physical(&self, number: u32) -> bool {
        self.mapped.state().exported.contains_key(&number)
    }

    /// Imports physical memory of another process with the guest's id. Returns the guest's number of its device, and
    /// its size.
    ///
    /// # Errors
    ///
    /// As [`Self::create_physical`].
    pub fn import_physical(
        &self,
        id: u64,
        given: &Given,
        file: &OwnedFd,
    ) -> Result<(CUdevice, u64), CUresult> {
        let guest_device = self.guest_device(given.gpu)?;
        let device = given.gpu as CUdevice;
        check_device(device)?;
        let bytes = given.bytes;
        if bytes == 0 || !bytes.is_multiple_of(GRANULARITY) {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        grace::narrow(&[]);
        self.check_new_physical(id)?;
        let (handle, charge) = self.import(device, bytes, file)?.into_parts();
        let memory = Physical {
            handle,
            bytes,
            device,
            guest_device,
            is_exportable: false,
            number: next_number(),
            is_exported: AtomicBool::new(false),
            holders: self.holders,
            chunks: None,
            _charge: charge,
        };
        self.insert_physical(id, memory)?;
        Ok((guest_device, bytes))
    }

    /// Imports memory that the guest itself has exported, with one more id.
    ///
    /// # Errors
    ///
    /// As [`Self::create_physical`]; `CUDA_ERROR_INVALID_VALUE` if that memory no longer exists.
    pub fn import_own(&self, id: u64, number: u32) -> Result<(CUdevice, u64), CUresult> {
        self.check_new_physical(id)?;
        let mut state = self.mapped.state();
        let from = state.exported.get(&number);
        let from = from.and_then(|from| state.known.get(from));
        let memory = Arc::clone(&from.ok_or(CUDA_ERROR_INVALID_VALUE)?.memory);
        if state.known.contains_key(&id) {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let (device, bytes) = (memory.guest_device, memory.bytes);
        let known = Known {
            memory,
            references: 1,
            mappings: 0,
        };
        state.known.insert(id, known);
        Ok((device, bytes))
    }

    /// The guest's number of the memory's device, and the size of the memory.
    ///
    /// # Errors
    ///
    /// As [`Self::release_physical`].
    pub fn describe_physical(&self, id: u64) -> Result<(CUdevice, u64), CUresult> {
        let mut state = self.mapped.state();
        let memory = &state.known(id)?.memory;
        Ok((memory.guest_device, memory.bytes))
    }
}
