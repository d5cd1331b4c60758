// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The state of the one client that a worker serves.

use std::{
    collections::HashMap,
    ffi::c_void,
    ops::Deref,
    sync::{
        OnceLock,
        atomic::{AtomicU32, Ordering},
    },
};

use gpgpu_locks::Mutex;
use gpgpu_protocol::{
    api::{Hello, Object, Operation},
    cuda::*,
};
use smallvec::SmallVec;

use super::{
    arrays::{Arrays, Textures},
    callbacks::Callbacks,
    charges::Charges,
    common::Common,
    counts,
    crowds::Singles,
    deferred::Deferred,
    device_memory::{DeviceMemory, Source},
    executables::Executables,
    exports::Exports,
    grace::{self, Name},
    green_contexts::Greens,
    images::Images,
    kernel_output::Printed,
    lease::Gates,
    libraries::{Graphs, Handles, Jpegs},
    memory::{Regions, Staging},
    objects::{Begun, Entry},
    ops::link::Links,
    peers::Peers,
    prewarm::Prewarm,
    printing_kernels::Printing,
    rest::{RingWrites, Writer},
    ring::Ring,
    sensors::Sensors,
    shared_events::SharedEvents,
    traces::Traces,
};
use crate::ipc::WorkerEnd;

/// The client: the common state, to which it dereferences, and the components.
#[derive(Debug)]
pub struct Session {
    common: &'static Common,
    /// Objects that are destroyed when they are no longer in use.
    pub later: &'static Deferred,
    /// Its registered memory.
    pub regions: Regions,
    /// Its device memory.
    pub device_memory: &'static DeviceMemory,
    /// The part of it that the device process knows.
    pub exports: &'static Exports,
    /// The objects that it shares with other processes of its VM.
    pub peers: &'static Peers,
    /// Events that it shares with them.
    pub shared_events: &'static SharedEvents,
    /// Its staging area, once the device process has sent it.
    pub staging: OnceLock<Staging>,
    /// Its ring, once it has set one up.
    pub ring: OnceLock<Ring>,
    /// The state of the ring's thread as a writer.
    pub writer: &'static Writer,
    /// Writes of other threads to the ring.
    pub ring_writes: RingWrites,
    /// The gates that delay its work while other VMs have the GPU.
    pub gates: Gates,
    /// The id of each device's primary context while it is retained, by the driver's numbers.
    pub primary: Mutex<HashMap<CUdevice, u64>>,
    /// Its green contexts.
    pub greens: Greens,
    /// The primary context that is made before it is requested.
    pub prewarm: Prewarm,
    /// Its requests for sensors.
    pub sensors: Sensors,
    /// The description of the host, once it was requested.
    pub hello: OnceLock<Hello>,
    /// Its host callbacks.
    pub callbacks: &'static Callbacks,
    /// Its executable graphs.
    pub executables: Executables,
    /// The graphs of recurring launches.
    pub singles: Singles,
    /// Its handles of libraries.
    pub handles: Handles,
    /// Its descriptors of cuDNN's backend.
    pub graphs: Graphs,
    /// Its objects of nvJPEG.
    pub jpegs: Jpegs,
    /// Its arrays.
    pub arrays: Arrays,
    /// Its texture and surface objects.
    pub textures: Textures,
    /// The charges other than those of its device memory.
    pub charges: &'static Charges,
    /// Its module images.
    pub images: Images,
    /// The kernels that may print.
    pub printing: &'static Printing,
    /// The traces of its work.
    pub traces: Traces,
    /// Its linkers.
    pub links: Links,
    /// The text that its kernels have printed.
    pub printed: &'static Printed,
    deferred: AtomicU32,
}

impl Deref for Session {
    type Target = Common;

    fn deref(&self) -> &Common {
        self.common
    }
}

/// The path of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// The command queue.
    Queue,
    /// The ring, executed by its thread.
    Ring,
    /// A wide ring.
    WideRing,
}

impl Way {
    /// Whether the guest's own libraries send an operation on this path.
    pub fn takes(self, operation: &Operation) -> bool {
        match self {
            Self::Queue => true,
            Self::Ring => operation.rings,
            Self::WideRing => operation.rings_wide,
        }
    }
}

/// A command's data beside the stream.
#[derive(Debug, Clone, Copy)]
pub struct Data {
    /// The address of data from the guest.
    pub input: *const c_void,
    /// Its number of bytes.
    pub input_bytes: usize,
    /// The address for data for the guest.
    pub output: *mut c_void,
    /// Its number of bytes.
    pub output_bytes: usize,
    /// The offset of the data in the whole transfer, in bytes.
    pub offset: u64,
    /// The path of the command.
    pub way: Way,
}

// SAFETY: the spans lie in the staging area and belong to the command until it is answered.
unsafe impl Send for Data {}

impl Data {
    /// The address of this part of a transfer that begins at `start`.
    ///
    /// # Errors
    ///
    /// `CUDA_ERROR_INVALID_VALUE` if there is no such address.
    pub fn at(&self, start: CUdeviceptr) -> Result<CUdeviceptr, CUresult> {
        start
            .checked_add(self.offset)
            .ok_or(CUDA_ERROR_INVALID_VALUE)
    }

    /// No data.
    pub const fn none() -> Self {
        Self {
            input: std::ptr::null(),
            input_bytes: 0,
            output: std::ptr::null_mut(),
            output_bytes: 0,
            offset: 0,
            way: Way::Queue,
        }
    }

    /// No data, for a command on this path.
    pub const fn of(way: Way) -> Self {
        Self {
            way,
            ..Self::none()
        }
    }

    /// A copy of the data from the guest, because the guest's device process may write to the staging area again; with
    /// room for `more` bytes behind it.
    pub fn copied(&self, more: usize) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.input_bytes + more);
        if self.input_bytes > 0 {
            // SAFETY: the span lies in the staging area and belongs to this command; the bytes are copied at once.
            bytes.extend_from_slice(unsafe {
                std::slice::from_raw_parts(self.input.cast::<u8>(), self.input_bytes)
            });
        }
        bytes
    }

    /// Returns data to the guest, followed by zeros: the staging area may contain data of another command there.
    ///
    /// # Errors
    ///
    /// `CUDA_ERROR_OUT_OF_MEMORY` if the guest wants fewer bytes.
    pub fn give(&self, bytes: &[u8]) -> Result<(), CUresult> {
        let rest = self.output_bytes.checked_sub(bytes.len());
        let rest = rest.ok_or(CUDA_ERROR_OUT_OF_MEMORY)?;
        if self.output_bytes > 0 {
            let to = self.output.cast::<u8>();
            // SAFETY: the span lies in the staging area and belongs to this command; both parts together are as long.
            unsafe {
                std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len());
                std::ptr::write_bytes(to.add(bytes.len()), 0, rest);
            }
        }
        Ok(())
    }

    /// Copies the data from the guest.
    ///
    /// # Panics
    ///
    /// If `to` is not as long as the data.
    pub fn copy_to(&self, to: &mut [u8]) {
        assert_eq!(to.len(), self.input_bytes);
        if self.input_bytes > 0 {
            // SAFETY: the span lies in the staging area and belongs to this command; `to` is as long.
            unsafe {
                std::ptr::copy_nonoverlapping(self.input.cast(), to.as_mut_ptr(), to.len());
            }
        }
    }
}

impl Session {
    /// A new client; `end` is the channel to its device process, if there is one.
    pub fn new(end: Option<&'static WorkerEnd>) -> Self {
        // State that threads of the components and of the driver use must exist as long as the process: they may still
        // wait at the end.
        let common: &'static Common = Box::leak(Box::default());
        let exports: &'static Exports = Box::leak(Box::new(Exports::new(end)));
        let device_memory: &'static DeviceMemory =
            Box::leak(Box::new(DeviceMemory::new(common, exports)));
        let shared_events: &'static SharedEvents = Box::leak(Box::new(SharedEvents::new(common)));
        let peers: &'static Peers =
            Box::leak(Box::new(Peers::new(common, device_memory, shared_events)));
        device_memory.give_back_to(peers);
        Self {
            common,
            later: Box::leak(Box::new(Deferred::new(common))),
            regions: Regions::default(),
            device_memory,
            exports,
            peers,
            shared_events,
            staging: OnceLock::new(),
            ring: OnceLock::new(),
            writer: Box::leak(Box::default()),
            ring_writes: RingWrites::default(),
            gates: Gates::new(common, device_memory),
            primary: Mutex::default(),
            greens: Greens::default(),
            prewarm: Prewarm::default(),
            sensors: Sensors::default(),
            hello: OnceLock::new(),
            callbacks: Box::leak(Box::default()),
            executables: Executables::default(),
            singles: Singles::default(),
            traces: Traces::default(),
            handles: Handles::default(),
            graphs: Graphs::default(),
            jpegs: Jpegs::default(),
            arrays: Arrays::default(),
            textures: Textures::default(),
            charges: Box::leak(Box::default()),
            images: Images::default(),
            links: Links::default(),
            printing: Box::leak(Box::default()),
            printed: Box::leak(Box::default()),
            deferred: AtomicU32::default(),
        }
    }

    /// Stores the error of a command without an answer; the first one is kept.
    pub fn defer(&self, code: CUresult) {
        let _ =
            self.deferred
                .compare_exchange(CUDA_SUCCESS, code, Ordering::AcqRel, Ordering::Relaxed);
    }

    /// Whether an error is stored.
    pub fn has_deferred(&self) -> bool {
        self.deferred.load(Ordering::Acquire) != CUDA_SUCCESS
    }

    /// Takes the stored error.
    pub fn take_deferred(&self) -> CUresult {
        self.deferred.swap(CUDA_SUCCESS, Ordering::AcqRel)
    }

    /// Reports to the supervisor how much of the guest's memory is pinned.
    pub fn count_pinned(&self) {
        counts::set(
            self,
            |counters| &counters.pinned,
            self.regions.pinned_bytes(),
        );
    }

    /// Declares that the command is about to wait for the stream with this id. From here on it uses only the current
    /// context, and memory that it has looked up, given as addresses and sizes.
    pub fn wait_in(&self, stream: u64, memory: &[(u64, u64)]) {
        self.wait_with(stream, memory, &[]);
    }

    /// As [`Self::wait_in`], but the command also continues to use these objects; 0 is none.
    pub fn wait_with(&self, stream: u64, memory: &[(u64, u64)], objects: &[u64]) {
        let mut names: SmallVec<[Name; 8]> = SmallVec::new();
        names.extend(objects.iter().copied().map(Name::Object));
        names.extend(self.used());
        names.push(Name::Object(stream));
        names.push(Name::Object(self.objects.context_of(stream)));
        for &(start, bytes) in memory {
            names.push(Name::Memory { start, bytes });
            // Its owner is a context, a module or library, or known only to the driver.
            match self.device_memory.find(start) {
                Some(range) => {
                    names.push(Name::Object(range.context));
                    if let Source::Global(owner) = range.source {
                        names.push(Name::Object(owner));
                    }
                }
                None => match self.regions.context_of(start) {
                    Some(context) => names.push(Name::Object(context)),
                    None => names.push(Name::Globals),
                },
            }
        }
        grace::narrow(&names);
    }

    /// Charges a library's memory in a context, before the library is used there; `context` is 0 for none.
    ///
    /// # Errors
    ///
    /// As [`Places::enter`](super::places::Places::enter).
    pub fn enter_library(&self, library: u64, context: u64) -> Result<(), CUresult> {
        match self.charges.library(library) {
            Some(places) => places.enter(self.device_memory, context),
            None => Ok(()),
        }
    }

    /// A function, or a kernel whose library is charged in the current context.
    ///
    /// # Errors
    ///
    /// `CUDA_ERROR_INVALID_HANDLE` if it is neither, or as [`Places::enter`](super::places::Places::enter).
    pub fn function(&self, id: u64) -> Result<Entry, CUresult> {
        let entry = self.objects.function(id)?;
        if let Some(places) = entry.places() {
            places.enter(self.device_memory, self.current())?;
        }
        Ok(entry)
    }

    /// Begins to make an object; see [`Objects::begin`](super::objects::Objects::begin).
    pub fn begin<K: Object>(&self, id: u64) -> Result<Begun<'static>, CUresult> {
        self.common.objects.begin::<K>(id)
    }

    /// Begins the end of a context: from now on no command finds it, or the objects that it contains or owns.
    ///
    /// # Errors
    ///
    /// `CUDA_ERROR_INVALID_CONTEXT` if there is none, or it is already ending.
    pub fn end_context(&self, context: u64) -> Result<Entry, CUresult> {
        let entry = self.common.end_context(context)?;
        self.hide(context);
        Ok(entry)
    }

    /// Hides everything else that belongs to an ending context. Commands that began before may still make more of it
    /// until they end.
    pub fn hide(&self, context: u64) {
        self.executables.end_context(context);
        self.singles.end_context(context);
        self.regions.end_context(context);
        self.device_memory.end_context(context);
        self.shared_events.set_ending(context, true);
        if let Some(ring) = self.ring.get() {
            ring.end_context(context);
        }
    }

    /// Forgets the graphs of launches, because their objects have changed; with `over`, disables them.
    #[cold]
    pub fn forget_crowds(&self, over: bool) {
        if over {
            self.singles.switch_off();
        } else {
            self.singles.forget();
        }
        if let Some(ring) = self.ring.get() {
            let mut crowds = ring.crowds();
            if over {
                crowds.switch_off();
            } else {
                crowds.forget();
            }
        }
    }

    /// Cancels the end of a context.
    pub fn keep_context(&self, context: u64) {
        self.regions.keep_context(context);
        self.device_memory.keep_context(context);
        self.shared_events.set_ending(context, false);
        self.singles.settle_context(context);
        if let Some(ring) = self.ring.get() {
            ring.keep_context(context);
        }
        self.common.keep_context(context);
        self.gates.settle();
    }

    /// Handles the end of a context, with everything in it.
    pub fn forget_context(&self, context: u64) {
        self.later.forget_context(context);
        self.regions.forget_context(context);
        self.count_pinned();
        self.device_memory.forget_context(context);
        self.shared_events.forget_context(context);
        self.charges.forget_context(context);
        self.links.forget_context(context);
        self.callbacks.forget_context(context);
        self.singles.settle_context(context);
        if let Some(ring) = self.ring.get() {
            ring.forget_context(context);
        }
        self.greens.forget(context);
        self.gates.leave(context);
        // A thread that was at a gate when the end began believes that the context is known there.
        self.common.forget_context();
        // From now on its id may be assigned to another context.
        self.objects.remove_context(context);
        self.gates.settle();
        self.handles.forget_ended(self);
        self.jpegs.forget_context(context);
        self.arrays.forget_ended(self);
        self.textures.forget_context(context);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pitfall_29_the_first_deferred_error_is_reported_once() {
        let session = Session::new(None);
        session.defer(CUDA_ERROR_INVALID_HANDLE);
        session.defer(CUDA_ERROR_INVALID_VALUE);
        assert_eq!(session.take_deferred(), CUDA_ERROR_INVALID_HANDLE);
        assert_eq!(session.take_deferred(), CUDA_SUCCESS);
    }
}
