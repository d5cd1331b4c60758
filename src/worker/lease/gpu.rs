// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! A gate's calls of CUDA.

use std::{cell::Cell, sync::atomic::Ordering};

use gpgpu_locks::{Condvar, Mutex, MutexGuard};
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
    /// It tells contexts apart that had the same id one after another.
    number: u64,
    /// Its unused events. They end with it.
    events: Vec<u64>,
}

/// An event behind commands of a context.
#[derive(Debug, Clone, Copy)]
pub struct Mark {
    context: u64,
    /// [`Context::number`].
    number: u64,
    event: u64,
}

#[derive(Debug, Default)]
struct State {
    contexts: Vec<Context>,
    last_number: u64,
}

/// The contexts of this process on one GPU in which there was work.
///
/// Work in a context counts until the driver's function that destroys it has returned. Once the destruction may have
/// begun, no thread of a gate may call the driver in the context. It then waits until the end is reported.
#[derive(Debug)]
pub struct Gpu {
    common: &'static Common,
    state: Mutex<State>,
    /// A context has ended, or its end was cancelled.
    settled: Condvar,
}

impl Gpu {
    /// An empty set.
    pub fn new(common: &'static Common) -> Self {
        Self {
            common,
            state: Mutex::default(),
            settled: Condvar::new(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// Adds a context that will have work.
    pub fn join(&self, id: u64) {
        let mut state = self.lock();
        if !state.contexts.iter().any(|context| context.id == id) {
            state.last_number += 1;
            let (number, events) = (state.last_number, Vec::new());
            state.contexts.push(Context { id, number, events });
        }
    }

    /// Removes a context that the driver has destroyed. Its id still belongs to it.
    pub fn leave(&self, id: u64) {
        let mut state = self.lock();
        state.contexts.retain(|context| context.id != id);
    }

    /// Wakes threads that wait for the end of a context, after the table of objects has changed.
    pub fn settle(&self) {
        let _state = self.lock();
        self.settled.notify_all();
    }

    /// Waits while a context is ending. Returns whether it was.
    fn wait_ending(&self, id: u64) -> bool {
        let mut was_ending = false;
        let is_ending = |_: &mut State| {
            let is_ending = self.common.objects.is_ending(id);
            was_ending |= is_ending;
            is_ending
        };
        drop(self.settled.wait_while(self.lock(), is_ending));
        was_ending
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

    /// An unused event of the current context.
    fn event(&self, id: u64) -> Option<Mark> {
        let mut state = self.lock();
        let context = state.contexts.iter_mut().find(|context| context.id == id)?;
        let number = context.number;
        let mark = |event| Mark {
            context: id,
            number,
            event,
        };
        if let Some(event) = context.events.pop() {
            return Some(mark(event));
        }
        let mut event = std::ptr::null_mut();
        // SAFETY: the pointer is to a value that lives across the call.
        unsafe { driver::cuEventCreate(&mut event, CU_EVENT_DISABLE_TIMING) }.ok()?;
        Some(mark(event as u64))
    }
}

impl Work for Gpu {
    type Mark = Mark;

    fn drain(&self) {
        let contexts: Vec<u64> = self.lock().contexts.iter().map(|of| of.id).collect();
        for id in contexts {
            loop {
                let waited = self.inside(id, || {
                    grace::narrow(&[Name::Watched(id)]);
                    // A context that has failed has no work any more.
                    captures::synchronize()
                });
                // The work of an ending context may run until the driver has destroyed it. If that failed, the context
                // still exists.
                if waited.is_some() || !self.wait_ending(id) {
                    break;
                }
            }
        }
    }

    fn mark(&self) -> Option<Mark> {
        let mark = self.event(self.common.current())?;
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
        let Mark {
            context: id,
            number,
            event,
        } = *mark;
        let asked = self.inside(id, || {
            let is_of = |context: &Context| (context.id, context.number) == (id, number);
            if !self.lock().contexts.iter().any(is_of) {
                // Its context has ended, and another one has the id.
                return Ok(());
            }
            // SAFETY: the event lives while its context does, which does not end during this call.
            unsafe { driver::cuEventQuery(event as CUevent) }
        });
        match asked {
            Some(state) => state != Err(CUDA_ERROR_NOT_READY),
            // The work of an ending context may still run. One that has ended or failed has no work any more.
            None => !self.common.objects.is_ending(id),
        }
    }

    fn release(&self, mark: Mark) {
        let mut state = self.lock();
        let mut contexts = state.contexts.iter_mut();
        // The events of a context that has ended went with it.
        let of = (mark.context, mark.number);
        if let Some(context) = contexts.find(|context| (context.id, context.number) == of) {
            context.events.push(mark.event);
        }
    }
}

#[cfg(test)]
#[path = "gpu_tests.rs"]
mod tests;
