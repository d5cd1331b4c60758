// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Memory of other processes of the VM that the client has opened.
//!
//! A chunk of another process is mapped once, at addresses of a dedicated window that is never returned, however many
//! of the allocations in it are open. Each open allocation is recorded in [the ranges](super::ranges), so copies, fills
//! and queries of addresses find it there.
//!
//! The physical memory exists until its last holder releases it, so it is charged here as well as in the process that
//! made it: a VM that shares memory is charged for more than it has, but never for less.

use std::{
    collections::{BTreeMap, HashMap},
    os::fd::{AsRawFd, OwnedFd},
    sync::{OnceLock, atomic::Ordering},
};

use gpgpu_locks::{Mutex, MutexGuard};
use gpgpu_protocol::cuda::*;

use super::{
    DeviceMemory,
    addresses::GRANULARITY,
    cuda,
    driver::{location, reserve_for_guest},
    driver_info,
    mempool::Foreign,
    ranges::{Range, Source},
    space::Space,
    wait_for,
};
use crate::{
    account::Charge,
    ipc::peers::Given,
    worker::{
        grace::{self, Ending, Name, Ticket},
        peers,
    },
};

/// The maximum number of imported chunks, and of open allocations: the driver's cost of each is host memory.
const MOST: usize = 64 << 10;

/// The receiver of returned memory.
pub trait Lender: std::fmt::Debug + Send + Sync {
    /// The object with this name was returned, as often as `times` says.
    fn returned(&self, name: &peers::Name, times: u32);
}

/// A chunk, by the number of its worker and its number there.
type Key = (u64, u64);

/// Imported physical memory, which is released when this is dropped.
#[derive(Debug)]
pub(super) struct Imported {
    pub handle: CUmemGenericAllocationHandle,
    /// Dropped after the memory was released.
    pub charge: Option<Charge>,
}

impl Imported {
    /// The handle, which the caller then has to release, and the charge.
    pub(super) fn into_parts(mut self) -> (CUmemGenericAllocationHandle, Option<Charge>) {
        let charge = self.charge.take();
        let handle = self.handle;
        std::mem::forget(self);
        (handle, charge)
    }
}

impl Drop for Imported {
    fn drop(&mut self) {
        // SAFETY: the handle is the driver's and is released once.
        if let Err(code) = unsafe { cuda::cuMemRelease(self.handle) } {
            tracing::debug!("cuMemRelease: {code}");
        }
    }
}

#[derive(Debug)]
struct Chunk {
    memory: Imported,
    start: u64,
    bytes: u64,
    /// The devices with access.
    devices: Vec<CUdevice>,
    /// The number of open allocations in it.
    users: usize,
}

/// An open allocation.
#[derive(Debug)]
struct Open {
    name: peers::Name,
    chunk: Key,
    context: u64,
    /// The number of opens.
    count: u32,
    /// The imported memory pool with which it was opened; 0 for none.
    mempool: u64,
    /// The number of its closing, if it is being closed.
    closing: Option<u64>,
}

#[derive(Debug, Default)]
struct State {
    addresses: Space,
    chunks: HashMap<Key, Chunk>,
    /// By their addresses.
    open: BTreeMap<u64, Open>,
}

/// See the module's documentation.
#[derive(Debug, Default)]
pub struct Imports {
    /// Start and size in bytes.
    window: OnceLock<Option<(u64, u64)>>,
    state: Mutex<State>,
    /// Held while the driver imports or releases memory. The command is narrow.
    turn: Mutex<()>,
}

impl Imports {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    fn turn(&self) -> MutexGuard<'_, ()> {
        self.turn.lock()
    }

    /// Whether memory of a pool is open and not being closed.
    pub fn is_in_use(&self, mempool: u64) -> bool {
        let state = self.state();
        let mut open = state.open.values();
        mempool != 0 && open.any(|open| open.mempool == mempool && open.closing.is_none())
    }

    /// Whether an address lies in the window.
    pub fn owns(&self, address: u64) -> bool {
        let window = self.window.get().copied().flatten();
        window.is_some_and(|(start, bytes)| address.wrapping_sub(start) < bytes)
    }

    /// Addresses for this many bytes, followed by an unmapped granule.
    fn take(&self, bytes: u64) -> Option<u64> {
        self.window.get_or_init(|| {
            let (start, bytes) = reserve_for_guest()?;
            self.state().addresses.give(start, bytes);
            Some((start, bytes))
        });
        let reserved = bytes.checked_add(GRANULARITY)?;
        self.state().addresses.take(reserved)
    }

    fn give(&self, start: u64, bytes: u64) {
        self.state().addresses.give(start, bytes + GRANULARITY);
    }
}

/// Whether a range is an open allocation.
fn is_open(range: &Range) -> bool {
    range.source == Source::Imported
}

impl DeviceMemory {
    /// Imports physical memory of another process, and charges it.
    ///
    /// # Errors
    ///
    /// `CUDA_ERROR_OUT_OF_MEMORY` above the VM's limit; the driver's error code.
    pub(super) fn import(
        &self,
        device: CUdevice,
        bytes: u64,
        file: &OwnedFd,
    ) -> Result<Imported, CUresult> {
        let reserve = || {
            let quota = self.quota.get();
            let charge = quota.map(|quota| quota.reserve_patiently(device, bytes));
            charge.transpose()
        };
        let charge = match reserve() {
            Err(CUDA_ERROR_OUT_OF_MEMORY) => {
                self.give_kept(device);
                reserve()?
            }
            other => other?,
        };
        if self.known_device(device).is_none() {
            // It may belong to a GPU that the client does not use otherwise.
            self.spans_devices.store(true, Ordering::Relaxed);
        }
        let mut handle = 0;
        let shareable = file.as_raw_fd() as usize as *mut std::ffi::c_void;
        let kind = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
        // SAFETY: the pointer is to a value that lives across the call; for this kind the handle is a descriptor and no
        // address.
        unsafe { cuda::cuMemImportFromShareableHandle(&mut handle, shareable, kind)? };
        Ok(Imported { handle, charge })
    }

    /// The guest's number of a device, if the guest may use it.
    ///
    /// # Errors
    ///
    /// `CUDA_ERROR_INVALID_DEVICE` if it has no such device.
    pub(super) fn guest_device(&self, gpu: u32) -> Result<CUdevice, CUresult> {
        let device = CUdevice::try_from(gpu).map_err(|_| CUDA_ERROR_INVALID_DEVICE)?;
        let gpus = self.common.gpus();
        if gpus.is_empty() {
            let mut found = 0;
            // SAFETY: the pointer is to a value that lives across the call.
            unsafe { cuda::cuDeviceGet(&mut found, device)? };
            return Ok(device);
        }
        let at = gpus.iter().position(|other| *other == gpu);
        at.map(|at| at as CUdevice).ok_or(CUDA_ERROR_INVALID_DEVICE)
    }

    /// `cuIpcOpenMemHandle` in a context: opens an allocation that another worker has given. Returns its address and
    /// the guest's number of its device. If the allocation is already open in the context, counts one more opening.
    ///
    /// # Errors
    ///
    /// `CUDA_ERROR_INVALID_VALUE` for an invalid object; `CUDA_ERROR_INVALID_HANDLE` if it is open in another context;
    /// `CUDA_ERROR_INVALID_DEVICE` for a device that the guest does not have; `CUDA_ERROR_OUT_OF_MEMORY`, also above
    /// the VM's limit; the driver's error code.
    pub fn open(
        &self,
        context: u64,
        name: &peers::Name,
        given: &Given,
        file: &OwnedFd,
    ) -> Result<(CUdeviceptr, u64, CUdevice), CUresult> {
        self.open_for(&[], (context, 0), name, (given, file))
    }

    /// The same with an imported memory pool or 0, and with access for these other devices.
    fn open_for(
        &self,
        others: &[CUdevice],
        (context, mempool): (u64, u64),
        name: &peers::Name,
        (given, file): (&Given, &OwnedFd),
    ) -> Result<(CUdeviceptr, u64, CUdevice), CUresult> {
        // Importing would succeed even after a failure of the context.
        driver_info()?;
        let guest_device = self.guest_device(given.gpu)?;
        let device = given.gpu as CUdevice;
        let end = given.offset.checked_add(given.length);
        let is_within = end.is_some_and(|end| given.length > 0 && end <= given.bytes);
        if !is_within || !given.bytes.is_multiple_of(GRANULARITY) {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let user = self.device_of(context)?;
        let key = (name.owner(), given.number);
        grace::narrow(&[Name::Object(context)]);
        let _turn = self.imports.turn();
        let start = self.reach_chunk(key, device, given.bytes, file)?;
        let at = start + given.offset;
        let mut users = std::iter::once(user).chain(others.iter().copied());
        let shared = users.try_for_each(|user| self.share_chunk(key, user));
        let result = shared.and_then(|()| {
            let memory = (at, given.length);
            self.open_in((name, key), (context, mempool), memory, device)
        });
        if let Err(code) = result {
            self.leave_chunk(key);
            return Err(code);
        }
        Ok((at, given.length, guest_device))
    }

    /// `cuMemPoolImportFromShareableHandle`: imports the pool with this name. Returns the guest's number of its device.
    ///
    /// # Errors
    ///
    /// `CUDA_ERROR_INVALID_DEVICE` for a device that the guest does not have; as [`super::mempool::MemPools::create`].
    pub fn import_pool(&self, mempool: u64, name: &peers::Name) -> Result<CUdevice, CUresult> {
        let gpu = u32::try_from(name.gpu()).map_err(|_| CUDA_ERROR_INVALID_DEVICE)?;
        let guest_device = self.guest_device(gpu)?;
        let foreign = Foreign {
            owner: name.owner(),
            id: name.pool(),
            devices: Vec::new(),
        };
        self.mempools.import(mempool, gpu as CUdevice, foreign)?;
        Ok(guest_device)
    }

    /// Checks that an allocation with this name belongs to the imported pool.
    ///
    /// # Errors
    ///
    /// `CUDA_ERROR_INVALID_VALUE` if it does not.
    pub fn check_pool(&self, mempool: u64, name: &peers::Name) -> Result<(), CUresult> {
        let (foreign, _) = self.mempools.foreign(mempool)?;
        match (foreign.owner, foreign.id) == (name.owner(), name.pool()) {
            true => Ok(()),
            false => Err(CUDA_ERROR_INVALID_VALUE),
        }
    }

    /// `cuMemPoolImportPointer`: opens an allocation of an imported pool that another worker has given, as
    /// [`Self::open`]. Returns its address.
    ///
    /// # Errors
    ///
    /// As [`Self::open`]; `CUDA_ERROR_INVALID_VALUE` also for an allocation on another device than the pool's.
    pub fn open_pooled(
        &self,
        home: (u64, u64),
        name: &peers::Name,
        given: &Given,
        file: &OwnedFd,
    ) -> Result<(CUdeviceptr, u64), CUresult> {
        let (_, mempool) = home;
        let (foreign, device) = self.mempools.foreign(mempool)?;
        if given.gpu as CUdevice != device {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let opened = self.open_for(&foreign.devices, home, name, (given, file));
        opened.map(|(address, bytes, _)| (address, bytes))
    }

    /// Gives another device access to the open memory of an imported pool.
    pub(super) fn share_opened(&self, mempool: u64, device: CUdevice) -> Result<(), CUresult> {
        let keys: Vec<Key> = {
            let state = self.imports.state();
            let open = state.open.values().filter(|open| open.mempool == mempool);
            open.map(|open| open.chunk).collect()
        };
        keys.into_iter()
            .try_for_each(|key| self.share_chunk(key, device))
    }

    /// Maps another process's chunk, unless it is mapped already.
    fn reach_chunk(
        &self,
        key: Key,
        device: CUdevice,
        bytes: u64,
        file: &OwnedFd,
    ) -> Result<u64, CUresult> {
        {
            let state = self.imports.state();
            if let Some(chunk) = state.chunks.get(&key) {
                let is_same = chunk.bytes == bytes && chunk.devices.first() == Some(&device);
                return is_same
                    .then_some(chunk.start)
                    .ok_or(CUDA_ERROR_INVALID_VALUE);
            }
            if state.chunks.len() >= MOST {
                return Err(CUDA_ERROR_OUT_OF_MEMORY);
            }
        }
        let memory = self.import(device, bytes, file)?;
        let start = self.imports.take(bytes).ok_or(CUDA_ERROR_OUT_OF_MEMORY)?;
        // SAFETY: the addresses are of this window, and nothing is mapped there; the handle lives.
        let mapped = unsafe { cuda::cuMemMap(start, bytes as usize, 0, memory.handle, 0) };
        if let Err(code) = mapped {
            self.imports.give(start, bytes);
            return Err(code);
        }
        if let Err(code) = grant(start, bytes, device) {
            self.unmap_chunk(start, bytes, memory);
            return Err(code);
        }
        let chunk = Chunk {
            memory,
            start,
            bytes,
            devices: vec![device],
            users: 0,
        };
        self.imports.state().chunks.insert(key, chunk);
        Ok(start)
    }

    /// Records an allocation in a chunk as open.
    fn open_in(
        &self,
        (name, chunk): (&peers::Name, Key),
        (context, mempool): (u64, u64),
        (at, bytes): (u64, u64),
        device: CUdevice,
    ) -> Result<(), CUresult> {
        let mut state = self.imports.state();
        if let Some(open) = state.open.get_mut(&at) {
            // Memory of a pool belongs to the device, not to a context.
            if open.mempool == 0 && open.context != context {
                return Err(CUDA_ERROR_INVALID_HANDLE);
            }
            if open.mempool != mempool {
                return Err(CUDA_ERROR_INVALID_VALUE);
            }
            if open.closing.take().is_some() || mempool != 0 {
                // The new opening replaces one that is being closed. Memory of a pool is closed once, however often it
                // was opened.
                self.ranges.change(at, |range| range.ending = None);
                let name = open.name;
                drop(state);
                self.return_to(&name, 1);
                return Ok(());
            }
            open.count = open.count.checked_add(1).ok_or(CUDA_ERROR_OUT_OF_MEMORY)?;
            return Ok(());
        }
        if state.open.len() >= MOST || self.has_many() {
            return Err(CUDA_ERROR_OUT_OF_MEMORY);
        }
        let open = Open {
            name: *name,
            chunk,
            context,
            count: 1,
            mempool,
            closing: None,
        };
        state.open.insert(at, open);
        if let Some(chunk) = state.chunks.get_mut(&chunk) {
            chunk.users += 1;
        }
        self.note_in(at, bytes, (context, device), Source::Imported, mempool);
        Ok(())
    }

    /// Gives another device access to the chunk of an open allocation.
    ///
    /// # Errors
    ///
    /// The driver's error code.
    pub(super) fn share_imported(&self, address: u64, device: CUdevice) -> Result<(), CUresult> {
        let key = self
            .imports
            .state()
            .open
            .get(&address)
            .map(|open| open.chunk);
        key.map_or(Ok(()), |key| self.share_chunk(key, device))
    }

    fn share_chunk(&self, key: Key, device: CUdevice) -> Result<(), CUresult> {
        let mut state = self.imports.state();
        let Some(chunk) = state.chunks.get_mut(&key) else {
            return Ok(());
        };
        if chunk.devices.contains(&device) {
            return Ok(());
        }
        // The lock is held during the call, so that no thread releases the chunk.
        grant(chunk.start, chunk.bytes, device)?;
        chunk.devices.push(device);
        Ok(())
    }

    /// `cuIpcCloseMemHandle`, and `cuMemFree` of memory of an imported pool: waits for the work of the context in which
    /// it was opened, and for commands that use the memory.
    ///
    /// # Errors
    ///
    /// `CUDA_ERROR_INVALID_VALUE` if no open allocation starts there; the driver's error code.
    pub fn close(&self, address: CUdeviceptr) -> Result<(), CUresult> {
        {
            let mut state = self.imports.state();
            if let Some(open) = state.open.get_mut(&address)
                && open.closing.is_none()
                && open.count > 1
            {
                open.count -= 1;
                let name = open.name;
                drop(state);
                self.return_to(&name, 1);
                return Ok(());
            }
        }
        let (range, number) = self.begin_close(address)?;
        let ticket = Ticket::now();
        let waited = wait_for(self.common, range.context);
        let (start, bytes) = (range.start, range.bytes);
        ticket.wait(Ending::Memory { start, bytes });
        self.finish_close(address, number);
        waited
    }

    /// Whether memory of an imported pool starts at an address.
    pub(super) fn is_pooled_import(&self, address: CUdeviceptr) -> bool {
        let range = self.ranges.find(address);
        range.is_some_and(|range| is_open(&range) && range.mempool != 0)
    }

    /// Begins to close an open allocation: no further command uses it. Returns the number of the closing.
    ///
    /// # Errors
    ///
    /// `CUDA_ERROR_INVALID_VALUE` if no open allocation starts there.
    pub(super) fn begin_close(&self, address: CUdeviceptr) -> Result<(Range, u64), CUresult> {
        let mut state = self.imports.state();
        let open = state.open.get_mut(&address);
        let open = open.filter(|open| open.closing.is_none());
        let open = open.ok_or(CUDA_ERROR_INVALID_VALUE)?;
        let range = self.ranges.end(address, is_open);
        let range = range.ok_or(CUDA_ERROR_INVALID_VALUE)?;
        let number = self.next_id();
        open.closing = Some(number);
        Ok((range, number))
    }

    /// Cancels the closing.
    pub(super) fn stay_open(&self, address: CUdeviceptr, number: u64) {
        let mut state = self.imports.state();
        if let Some(open) = state.open.get_mut(&address)
            && open.closing == Some(number)
        {
            open.closing = None;
            self.ranges.change(address, |range| range.ending = None);
        }
    }

    /// Ends the closing with this number, unless the allocation was reopened or has ended with its context. No command
    /// uses it any more. If it was closed in stream order, the stream has reached the close.
    pub(super) fn finish_close(&self, address: CUdeviceptr, number: u64) {
        let _turn = self.imports.turn();
        let is_closing = {
            let state = self.imports.state();
            let open = state.open.get(&address);
            open.is_some_and(|open| open.closing == Some(number))
        };
        if is_closing {
            self.ranges.remove_freed(address);
            self.forget_open(address);
        }
    }

    /// Handles an open allocation that has ended with its context.
    pub(super) fn let_go(&self, address: u64) {
        let _turn = self.imports.turn();
        self.forget_open(address);
    }

    /// Forgets an open allocation that nothing uses any more. The caller holds `turn`.
    fn forget_open(&self, address: u64) {
        let (key, name, times) = {
            let mut state = self.imports.state();
            let Some(open) = state.open.remove(&address) else {
                return;
            };
            if let Some(chunk) = state.chunks.get_mut(&open.chunk) {
                chunk.users -= 1;
            }
            (open.chunk, open.name, open.count)
        };
        self.leave_chunk(key);
        self.return_to(&name, times);
    }

    fn return_to(&self, name: &peers::Name, times: u32) {
        if let Some(lender) = self.lender.get() {
            lender.returned(name, times);
        }
    }

    /// Unmaps a chunk without open allocations.
    fn leave_chunk(&self, key: Key) {
        let gone = {
            let mut state = self.imports.state();
            match state.chunks.get(&key) {
                Some(chunk) if chunk.users == 0 => state.chunks.remove(&key),
                _ => None,
            }
        };
        if let Some(chunk) = gone {
            self.unmap_chunk(chunk.start, chunk.bytes, chunk.memory);
        }
    }

    fn unmap_chunk(&self, start: u64, bytes: u64, memory: Imported) {
        // SAFETY: this was mapped as one piece, and nothing uses it any more.
        match unsafe { cuda::cuMemUnmap(start, bytes as usize) } {
            Ok(()) => {
                drop(memory);
                self.imports.give(start, bytes);
            }
            Err(code) => {
                tracing::debug!("cuMemUnmap: {code}");
                // The memory still exists and so stays charged. Its addresses are not used again.
                std::mem::forget(memory);
            }
        }
    }
}

/// Gives a device access to the mapping.
fn grant(start: u64, bytes: u64, device: CUdevice) -> Result<(), CUresult> {
    let access = CUmemAccessDesc {
        location: location(device),
        flags: CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
    };
    // SAFETY: the range is mapped; the pointer is to a value that lives across the call.
    unsafe { cuda::cuMemSetAccess(start, bytes as usize, &access, 1) }
}
