// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! A gate's calls of CUDA.

use std::{cell::Cell, sync::atomic::Ordering};

use gpgpu_locks::{Mutex, MutexGuard};
use gpgpu_protocol::cuda::*;

use super::gate::Work;
use crate::cuda::driver;
use crate::worker::{
    callbacks::{Blocked, Place},
    captures,
    common::Common,
    grace::{self, Name},
};

thread_local! {
    /// The driver's handle of the stream of this thread's command.
    static STREAM: Cell<u64> = const { Cell::new(0) };
}

/// Records the stream of the present command; 0 is the legacy stream.
pub fn note_stream(raw: u64) {
    STREAM.set(raw);
}

#[derive(Debug)]
struct Context {
    id: u64,
    /// Its unused events. They end with it.
    events: Vec<u64>,
}

/// An event behind commands of a context.
#[derive(Debug, Clone, Copy)]
pub struct Mark {
    context: u64,
    event: u64,
}

#[derive(Debug, Default)]
struct State {
    contexts: Vec<Context>,
}

/// The contexts of this process on one GPU in which there was work.
#[derive(Debug)]
pub struct Gpu {
    common: &'static Common,
    state: Mutex<State>,
}

impl Gpu {
    /// An empty set.
    pub fn new(common: &'static Common) -> Self {
        Self {
            common,
            state: Mutex::default(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// Adds a context that will have work.
    pub fn join(&self, id: u64) {
        let mut state = self.lock();
        if !state.contexts.iter().any(|context| context.id == id) {
            let events = Vec::new();
            state.contexts.push(Context { id, events });
        }
    }

    /// Prepares for the end of a context.
    pub fn leave(&self, id: u64) {
        let mut state = self.lock();
        state.contexts.retain(|context| context.id != id);
    }

    /// Calls `act` in a context, which does not end during the call, unless it is ending already.
    fn inside<T>(&self, id: u64, act: impl FnOnce() -> T) -> Option<T> {
        let _uses = grace::enter(id, false);
        self.common.enter(id).ok().map(|()| act())
    }

    /// Whether all streams are idle, except those that wait for host callbacks. Nothing may be submitted to the GPU
    /// during this.
    pub fn is_still(&self, blocked: &Blocked) -> bool {
        let objects = &self.common.objects;
        // Only the driver knows for which streams of a green context others wait. Other threads' default streams cannot
        // be queried.
        if self.common.any_green.load(Ordering::SeqCst) || objects.has_threads_streams() {
            return false;
        }
        let contexts: Vec<u64> = self.lock().contexts.iter().map(|of| of.id).collect();
        contexts.into_iter().all(|context| {
            let is_still = self.inside(context, || {
                let Some(apart) = objects.streams_apart(context) else {
                    return false;
                };
                let own = objects.streams_of(context).into_iter();
                [(0, 0)].into_iter().chain(own).all(|(stream, raw)| {
                    let place = Place { context, stream };
                    // SAFETY: the stream is the driver's, and lives until this thread's command ends.
                    let is_busy = || unsafe { driver::cuStreamQuery(raw as CUstream) };
                    blocked.has(place, &apart) || is_busy() != Err(CUDA_ERROR_NOT_READY)
                })
            });
            // A context that has ended or failed has no work any more.
            is_still.unwrap_or(true)
        })
    }

    /// An event of the current context.
    fn event(&self, id: u64) -> Option<u64> {
        let mut state = self.lock();
        let context = state.contexts.iter_mut().find(|context| context.id == id)?;
        if let Some(event) = context.events.pop() {
            return Some(event);
        }
        let mut event = std::ptr::null_mut();
        // SAFETY: the pointer is to a value that lives across the call.
        unsafe { driver::cuEventCreate(&mut event, CU_EVENT_DISABLE_TIMING) }.ok()?;
        Some(event as u64)
    }
}

impl Work for Gpu {
    type Mark = Mark;

    fn drain(&self) {
        let contexts: Vec<u64> = self.lock().contexts.iter().map(|of| of.id).collect();
        for id in contexts {
            self.inside(id, || {
                grace::narrow(&[Name::Watched(id)]);
                // A context that has failed has no work any more.
                captures::synchronize()
            });
        }
    }

    fn mark(&self) -> Option<Mark> {
        let context = self.common.current();
        let mark = Mark {
            context,
            event: self.event(context)?,
        };
        let stream = STREAM.get() as CUstream;
        // SAFETY: the event is this context's and lives as long; the stream is the one that this thread has just used.
        match unsafe { driver::cuEventRecord(mark.event as CUevent, stream) } {
            Ok(()) => Some(mark),
            Err(_) => {
                self.release(mark);
                None
            }
        }
    }

    fn has_passed(&self, mark: &Mark) -> bool {
        let event = mark.event as CUevent;
        // SAFETY: the event lives while its context does, which is looked up after the mark was.
        let asked = self.inside(mark.context, || unsafe { driver::cuEventQuery(event) });
        // A context that has ended or failed has no work any more.
        asked != Some(Err(CUDA_ERROR_NOT_READY))
    }

    fn release(&self, mark: Mark) {
        let mut state = self.lock();
        let mut contexts = state.contexts.iter_mut();
        if let Some(context) = contexts.find(|context| context.id == mark.context) {
            context.events.push(mark.event);
        }
    }
}
