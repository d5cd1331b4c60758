// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Green contexts: parts of a GPU's multiprocessors.
//!
//! The driver's resource of multiprocessors is a structure that contains addresses. So no resource leaves the worker or
//! comes from the guest: the guest names a split by its numbers, and the worker repeats it in its own driver. The
//! driver returns the same groups for the same split, on which programs rely that combine groups of one split.
//!
//! A green context is a context of the client's table whose entry is in the primary context. Its streams belong to it;
//! everything else that is made while it is current belongs to the primary context
//! ([`Common::current`](super::common::Common::current)), as with the driver.

use std::collections::HashMap;

use gpgpu_locks::{Mutex, MutexGuard};
use gpgpu_protocol::{
    api::{Context, MultiprocessorSplit, Multiprocessors, REMAINING},
    cuda::*,
};

use super::objects::Objects;
use crate::cuda::driver;

/// The maximum number of a client's descriptors. The driver has no function that destroys one.
const MOST_DESCRIPTORS: usize = 4096;

/// A resource of the driver; its addresses are aligned to 8 bytes.
#[repr(C, align(8))]
#[derive(Debug, Clone, Copy, Default)]
pub struct Resource(CUdevResource);

const _: () = assert!(size_of::<Resource>() == size_of::<CUdevResource>());

impl Resource {
    /// The counts for the guest.
    pub fn told(&self) -> Multiprocessors {
        let is_one = self.0.type_ == CU_DEV_RESOURCE_TYPE_SM;
        let of = if is_one {
            self.0.sm
        } else {
            CUdevSmResource::default()
        };
        Multiprocessors {
            count: of.smCount,
            minimum: of.minSmPartitionSize,
            alignment: of.smCoscheduledAlignment,
        }
    }
}

/// A green context.
#[derive(Debug, Clone, Copy)]
struct Green {
    /// The driver's handle.
    raw: u64,
    /// The GPU, by the driver's number.
    device: CUdevice,
}

/// The multiprocessors of a descriptor.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Wanted {
    device: CUdevice,
    split: MultiprocessorSplit,
    /// Sorted, without duplicates.
    groups: Vec<u32>,
}

#[derive(Debug, Default)]
struct Table {
    greens: HashMap<u64, Green>,
    descriptors: HashMap<Wanted, u64>,
    /// The number of descriptors that were made.
    made: usize,
}

/// The client's green contexts.
#[derive(Debug, Default)]
pub struct Greens(Mutex<Table>);

impl Greens {
    fn lock(&self) -> MutexGuard<'_, Table> {
        self.0.lock()
    }

    /// Records a green context of a GPU.
    pub fn note(&self, id: u64, raw: CUgreenCtx, device: CUdevice) {
        let raw = raw as u64;
        self.lock().greens.insert(id, Green { raw, device });
    }

    /// The driver's handle of a green context, which does not end before this command.
    ///
    /// # Errors
    ///
    /// `CUDA_ERROR_INVALID_CONTEXT` if there is none.
    pub fn raw(&self, objects: &Objects, id: u64) -> Result<CUgreenCtx, CUresult> {
        self.find(objects, id).map(|green| green.raw as CUgreenCtx)
    }

    fn find(&self, objects: &Objects, id: u64) -> Result<Green, CUresult> {
        objects
            .entry::<Context>(id)
            .ok_or(CUDA_ERROR_INVALID_CONTEXT)?;
        let found = self.lock().greens.get(&id).copied();
        found.ok_or(CUDA_ERROR_INVALID_CONTEXT)
    }

    /// The driver's handle of a green context that is ending and is no longer in use; `None` if there is none.
    pub fn ending(&self, id: u64) -> Option<CUgreenCtx> {
        let found = self.lock().greens.get(&id).copied();
        found.map(|green| green.raw as CUgreenCtx)
    }

    /// Forgets the splits of a context that has ended.
    pub fn forget(&self, id: u64) {
        let mut table = self.lock();
        table.greens.remove(&id);
        table.descriptors.retain(|of, _| of.split.green != id);
    }

    /// The multiprocessors of a GPU, or of a green context on it that does not end before this command.
    ///
    /// # Errors
    ///
    /// `CUDA_ERROR_INVALID_CONTEXT` if there is no such context, `CUDA_ERROR_INVALID_VALUE` if it is on another GPU;
    /// the driver's error code.
    pub fn whole(
        &self,
        objects: &Objects,
        device: CUdevice,
        green: u64,
    ) -> Result<Resource, CUresult> {
        let mut all = Resource::default();
        let kind = CU_DEV_RESOURCE_TYPE_SM;
        if green == 0 {
            // SAFETY: the pointer is to a value that lives across the call.
            unsafe { driver::cuDeviceGetDevResource(device, &mut all.0, kind)? };
            return Ok(all);
        }
        let green = self.find(objects, green)?;
        if green.device != device {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let raw = green.raw as CUgreenCtx;
        // SAFETY: the handle is the driver's and lives; the pointer is to a value that lives across the call.
        unsafe { driver::cuGreenCtxGetDevResource(raw, &mut all.0, kind)? };
        Ok(all)
    }

    /// Splits multiprocessors: the groups, and the remainder.
    ///
    /// # Errors
    ///
    /// `CUDA_ERROR_INVALID_VALUE` for no groups; as [`Self::whole`]; the driver's error code.
    pub fn split(
        &self,
        objects: &Objects,
        device: CUdevice,
        split: &MultiprocessorSplit,
    ) -> Result<(Vec<Resource>, Resource), CUresult> {
        let all = self.whole(objects, device, split.green)?;
        // Every group has a multiprocessor, so a larger request gets the same result.
        let mut count = split.groups.min(all.0.sm.smCount);
        if count == 0 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let mut groups = vec![Resource::default(); count as usize];
        let mut remaining = Resource::default();
        let first = groups.as_mut_ptr().cast::<CUdevResource>();
        // SAFETY: there is room for as many groups as `count` says; the other pointers are to values that live across
        // the call. The input is the driver's own, as it gave it.
        unsafe {
            driver::cuDevSmResourceSplitByCount(
                first,
                &mut count,
                &all.0,
                &mut remaining.0,
                split.flags,
                split.minimum,
            )?;
        }
        groups.truncate(count as usize);
        Ok((groups, remaining))
    }

    /// The driver's descriptor of groups of a split, or of the whole resource of the split.
    ///
    /// # Errors
    ///
    /// `CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION` for a group that does not exist; `CUDA_ERROR_OUT_OF_MEMORY` above
    /// the limit; as [`Self::split`].
    pub fn descriptor(
        &self,
        objects: &Objects,
        device: CUdevice,
        split: &MultiprocessorSplit,
        mut groups: Vec<u32>,
    ) -> Result<CUdevResourceDesc, CUresult> {
        groups.sort_unstable();
        groups.dedup();
        let wanted = Wanted {
            device,
            split: *split,
            groups,
        };
        if split.green != 0 {
            self.raw(objects, split.green)?;
        }
        {
            let table = self.lock();
            if let Some(known) = table.descriptors.get(&wanted) {
                return Ok(*known as CUdevResourceDesc);
            }
            if table.made >= MOST_DESCRIPTORS {
                return Err(CUDA_ERROR_OUT_OF_MEMORY);
            }
        }
        let mut resources = self.chosen(objects, &wanted)?;
        let mut descriptor = std::ptr::null_mut();
        let first = resources.as_mut_ptr().cast::<CUdevResource>();
        // SAFETY: the list is the driver's own resources and as long as is said; the other pointer is to a value that
        // lives across the call.
        unsafe {
            driver::cuDevResourceGenerateDesc(&mut descriptor, first, resources.len() as u32)?;
        }
        let mut table = self.lock();
        table.made += 1;
        table.descriptors.insert(wanted, descriptor as u64);
        Ok(descriptor)
    }

    /// The resources of a descriptor.
    fn chosen(&self, objects: &Objects, wanted: &Wanted) -> Result<Vec<Resource>, CUresult> {
        let bad = CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;
        if wanted.split.groups == 0 {
            if !wanted.groups.is_empty() {
                return Err(bad);
            }
            return Ok(vec![self.whole(
                objects,
                wanted.device,
                wanted.split.green,
            )?]);
        }
        let (groups, remaining) = self.split(objects, wanted.device, &wanted.split)?;
        let is_left = remaining.0.type_ == CU_DEV_RESOURCE_TYPE_SM;
        let one = |number: &u32| match *number {
            REMAINING => is_left.then_some(remaining).ok_or(bad),
            number => groups.get(number as usize).copied().ok_or(bad),
        };
        let chosen: Vec<_> = wanted.groups.iter().map(one).collect::<Result<_, _>>()?;
        match chosen.is_empty() {
            true => Err(bad),
            false => Ok(chosen),
        }
    }
}
