//! The state of the one client that a worker serves.

use std::{
    cell::Cell,
    collections::{HashMap, VecDeque},
    ffi::c_void,
    sync::{
        Condvar, Mutex, MutexGuard, OnceLock,
        atomic::{AtomicU32, AtomicU64, Ordering},
    },
};

use gpgpu_protocol::{
    api::{Context, Hello},
    cuda::*,
};
use smallvec::SmallVec;

use super::{
    ahead::Ahead,
    charges::Charges,
    counts,
    device_memory::{DeviceMemory, Source},
    external::Exports,
    grace::{self, Name},
    images::Images,
    later::Later,
    lease::Gates,
    memory::{Regions, Staging},
    objects::{Entry, Objects},
    ring::Ring,
    shares::{Shares, host_gpu},
};
use crate::cuda::driver;

/// The client.
#[derive(Debug, Default)]
pub struct Session {
    /// Its objects.
    pub objects: Objects,
    /// Those of them that end when nobody uses them.
    pub later: Later,
    /// Its registered memory.
    pub regions: Regions,
    /// Its device memory.
    pub device_memory: DeviceMemory,
    /// What of it the device process knows.
    pub exports: Exports,
    /// Its staging area, once the device process has sent it.
    pub staging: OnceLock<Staging>,
    /// Its ring, once it has set one up.
    pub ring: OnceLock<Ring>,
    /// What is shared with the supervisor, from the moment when there is a client.
    pub shares: OnceLock<Shares>,
    /// What holds its work back while other VMs have the GPU.
    pub gates: Gates,
    /// The session itself, for threads of its own.
    pub whole: OnceLock<&'static Session>,
    /// The id of each device's primary context while it is retained, by the driver's numbers.
    pub primary: Mutex<HashMap<CUdevice, u64>>,
    /// The primary context that is made before it is asked for.
    pub ahead: Ahead,
    /// What the host is, once it was asked.
    pub hello: OnceLock<Hello>,
    /// Its host callbacks.
    pub callbacks: Callbacks,
    /// What it is charged for beside its device memory.
    pub charges: Charges,
    /// Its module images.
    pub images: Images,
    deferred: AtomicU32,
    /// How often a context ended.
    changes: AtomicU64,
}

thread_local! {
    /// The thread's current context, and [`Session::changes`] when it was seen to live.
    static CURRENT: Cell<(u64, u64)> = const { Cell::new((0, 0)) };
}

/// A command's data beside the stream.
#[derive(Debug, Clone, Copy)]
pub struct Data {
    /// Where data from the guest is.
    pub input: *const c_void,
    /// How many bytes.
    pub input_bytes: usize,
    /// Where data for the guest goes.
    pub output: *mut c_void,
    /// How many bytes.
    pub output_bytes: usize,
    /// Where in the whole transfer they lie, in bytes.
    pub offset: u64,
    /// Whether the command came by the ring, which carries no data beside the stream.
    pub by_ring: bool,
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
            by_ring: false,
        }
    }

    /// That of a command that came by the ring: none.
    pub const fn of_ring() -> Self {
        Self {
            by_ring: true,
            ..Self::none()
        }
    }

    /// The data from the guest, copied, for the guest's device process may write to the staging area again; with room
    /// for `more` bytes behind it.
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

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex
        .lock()
        .unwrap_or_else(|poisoned| poisoned.into_inner())
}

impl Session {
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

    /// The GPU that the client means by a number, as the driver numbers it.
    ///
    /// # Errors
    ///
    /// `CUDA_ERROR_INVALID_DEVICE` if it may not use it, or there is none.
    pub fn gpu(&self, dev: CUdevice) -> Result<CUdevice, CUresult> {
        host_gpu(self.gpus(), dev)
    }

    /// The GPUs that the client may use, in its order; empty for all in the driver's.
    pub fn gpus(&self) -> &[u32] {
        self.shares.get().map_or(&[], |shares| &shares.gpus)
    }

    /// The driver's own idea of the current context changed behind [`Session::enter`].
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

    /// Notes the error of a command that nobody waits for; the first one is kept.
    pub fn defer(&self, code: CUresult) {
        let _ =
            self.deferred
                .compare_exchange(CUDA_SUCCESS, code, Ordering::AcqRel, Ordering::Relaxed);
    }

    /// Whether an error is noted.
    pub fn has_deferred(&self) -> bool {
        self.deferred.load(Ordering::Acquire) != CUDA_SUCCESS
    }

    /// The noted error, which is then forgotten.
    pub fn take_deferred(&self) -> CUresult {
        self.deferred.swap(CUDA_SUCCESS, Ordering::AcqRel)
    }

    /// Tells the supervisor how much of the guest's memory is pinned.
    pub fn count_pinned(&self) {
        counts::set(
            self,
            |counters| &counters.pinned,
            self.regions.pinned_bytes(),
        );
    }

    /// The command is about to wait for a stream of this id, and uses nothing else from here on but the current context and memory,
    /// as addresses and bytes, that it has found.
    pub fn wait_in(&self, stream: u64, memory: &[(u64, u64)]) {
        let mut names: SmallVec<[Name; 8]> = SmallVec::new();
        names.push(Name::Object(self.current()));
        names.push(Name::Object(stream));
        names.push(Name::Object(self.objects.context_of(stream)));
        for &(start, bytes) in memory {
            names.push(Name::Memory { start, bytes });
            // With what it goes: a context, a module or library; or the driver alone knows.
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

    /// A context is about to end: from now on no command finds it, or what is in it or goes with it.
    ///
    /// # Errors
    ///
    /// `CUDA_ERROR_INVALID_CONTEXT` if there is none, or it ends already.
    pub fn end_context(&self, context: u64) -> Result<Entry, CUresult> {
        let entry = self.objects.end_context(context)?;
        self.changes.fetch_add(1, Ordering::SeqCst);
        self.hide(context);
        Ok(entry)
    }

    /// Nothing that goes with a context is found any more, beside its objects. Commands that began before it was about to end may
    /// make more of that until they have ended.
    pub fn hide(&self, context: u64) {
        self.gates.leave(context);
        self.regions.end_context(context);
        self.device_memory.end_context(context);
        if let Some(ring) = self.ring.get() {
            ring.end_context(context);
        }
    }

    /// It does not end after all.
    pub fn keep_context(&self, context: u64) {
        self.regions.keep_context(context);
        self.device_memory.keep_context(context);
        if let Some(ring) = self.ring.get() {
            ring.keep_context(context);
        }
        self.objects.keep_context(context);
        self.changes.fetch_add(1, Ordering::SeqCst);
    }

    /// A context has ended: so has everything in it.
    pub fn forget_context(&self, context: u64) {
        self.later.forget_context(context);
        self.regions.forget_context(context);
        self.count_pinned();
        self.device_memory.forget_context(context);
        self.charges.forget_context(context);
        if let Some(ring) = self.ring.get() {
            ring.forget_context(context);
        }
        // From now on its id may be another's.
        self.objects.remove_context(context);
    }
}

/// Host callbacks on their way to the guest and back.
#[derive(Debug, Default)]
pub struct Callbacks {
    state: Mutex<CallbackState>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct CallbackState {
    due: VecDeque<(u64, CUresult)>,
    running: Vec<u64>,
}

impl Callbacks {
    /// The stream has reached a callback: hands it to the guest and waits until it has run.
    pub fn run(&self, callback: u64, status: CUresult) {
        let mut state = locked(&self.state);
        state.due.push_back((callback, status));
        state.running.push(callback);
        self.changed.notify_all();
        while state.running.contains(&callback) {
            state = self
                .changed
                .wait(state)
                .unwrap_or_else(|poisoned| poisoned.into_inner());
        }
    }

    /// Waits for the next callback that is due.
    pub fn next(&self) -> (u64, CUresult) {
        let mut state = locked(&self.state);
        loop {
            if let Some(due) = state.due.pop_front() {
                return due;
            }
            state = self
                .changed
                .wait(state)
                .unwrap_or_else(|poisoned| poisoned.into_inner());
        }
    }

    /// The guest has run a callback.
    pub fn done(&self, callback: u64) {
        locked(&self.state)
            .running
            .retain(|running| *running != callback);
        self.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pitfall_29_the_first_deferred_error_is_reported_once() {
        let session = Session::default();
        session.defer(CUDA_ERROR_INVALID_HANDLE);
        session.defer(CUDA_ERROR_INVALID_VALUE);
        assert_eq!(session.take_deferred(), CUDA_ERROR_INVALID_HANDLE);
        assert_eq!(session.take_deferred(), CUDA_SUCCESS);
    }

    #[test]
    fn pitfall_57_two_callbacks_run_one_after_the_other_and_are_told_apart() {
        let session = std::sync::Arc::new(Session::default());
        let stream = std::thread::spawn({
            let session = std::sync::Arc::clone(&session);
            move || {
                session.callbacks.run(1, CUDA_SUCCESS);
                session.callbacks.run(2, CUDA_ERROR_UNKNOWN);
            }
        });
        assert_eq!(session.callbacks.next(), (1, CUDA_SUCCESS));
        session.callbacks.done(1);
        assert_eq!(session.callbacks.next(), (2, CUDA_ERROR_UNKNOWN));
        session.callbacks.done(2);
        stream.join().unwrap();
    }
}
