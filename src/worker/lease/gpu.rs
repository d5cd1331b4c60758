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
    /// The driver's handle of the stream that this thread's command is for.
    static STREAM: Cell<u64> = const { Cell::new(0) };
}

/// Notes the stream that the command in hand is for; 0 is the legacy stream.
pub fn note_stream(raw: u64) {
    STREAM.set(raw);
}

#[derive(Debug)]
struct Context {
    id: u64,
    /// Its events that are behind nothing just now. They end with it.
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

/// One GPU's contexts of this process in which there was work.
#[derive(Debug)]
pub struct Gpu {
    common: &'static Common,
    state: Mutex<State>,
}

impl Gpu {
    /// None yet.
    pub fn new(common: &'static Common) -> Self {
        Self {
            common,
            state: Mutex::default(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// There will be work in a context.
    pub fn join(&self, id: u64) {
        let mut state = self.lock();
        if !state.contexts.iter().any(|context| context.id == id) {
            let events = Vec::new();
            state.contexts.push(Context { id, events });
        }
    }

    /// A context is about to end.
    pub fn leave(&self, id: u64) {
        let mut state = self.lock();
        state.contexts.retain(|context| context.id != id);
    }

    /// Does something in a context that does not end meanwhile, unless it ends already.
    fn inside<T>(&self, id: u64, act: impl FnOnce() -> T) -> Option<T> {
        let _uses = grace::enter(id, false);
        self.common.enter(id).ok().map(|()| act())
    }

    /// Whether streams have nothing to do, but for those that wait for host callbacks. For a time in which the GPU is
    /// given nothing.
    pub fn is_still(&self, blocked: &Blocked) -> bool {
        let objects = &self.common.objects;
        // Only the driver knows the streams of a green context that others wait for. Other threads' streams cannot be
        // asked for.
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
            // In a context that is gone or has failed there is no work any more.
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
        // In a context that is gone or has failed there is no work any more.
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
