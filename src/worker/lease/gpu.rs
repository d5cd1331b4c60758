//! What a gate asks of CUDA.

use std::{
    cell::Cell,
    sync::{Mutex, MutexGuard, PoisonError},
};

use gpgpu_protocol::cuda::*;

use super::gate::Work;
use crate::worker::{
    driver,
    grace::{self, Name},
    session::Session,
};

thread_local! {
    /// The driver's handle of the stream that this thread's command is for.
    static STREAM: Cell<u64> = const { Cell::new(0) };
}

/// Notes the stream that the command in hand is for; 0 is the legacy stream.
pub fn note_stream(raw: u64) {
    STREAM.set(raw);
}

#[derive(Debug, Clone, Copy)]
struct Context {
    id: u64,
    /// Its event for marks, once it has one.
    event: Option<u64>,
}

#[derive(Debug, Default)]
struct State {
    contexts: Vec<Context>,
    /// The context and event of the last mark.
    mark: Option<(u64, u64)>,
}

/// One GPU's contexts of this process in which there was work.
#[derive(Debug)]
pub struct Gpu {
    session: &'static Session,
    state: Mutex<State>,
}

impl Gpu {
    /// None yet.
    pub fn new(session: &'static Session) -> Self {
        Self {
            session,
            state: Mutex::default(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// There will be work in a context.
    pub fn join(&self, id: u64) {
        let mut state = self.lock();
        if !state.contexts.iter().any(|context| context.id == id) {
            state.contexts.push(Context { id, event: None });
        }
    }

    /// A context is about to end.
    pub fn leave(&self, id: u64) {
        let mut state = self.lock();
        state.contexts.retain(|context| context.id != id);
        state.mark = state.mark.filter(|(of, _)| *of != id);
    }

    /// Does something in a context that does not end meanwhile, unless it ends already.
    fn inside<T>(&self, id: u64, act: impl FnOnce() -> T) -> Option<T> {
        let _uses = grace::enter(id, false);
        self.session.enter(id).ok().map(|()| act())
    }

    /// The event for marks of the current context.
    fn event(&self, id: u64) -> Option<u64> {
        let mut state = self.lock();
        let context = state.contexts.iter_mut().find(|context| context.id == id)?;
        if context.event.is_none() {
            let mut event = std::ptr::null_mut();
            // SAFETY: the pointer is to a value that lives across the call.
            unsafe { driver::cuEventCreate(&mut event, CU_EVENT_DISABLE_TIMING) }.ok()?;
            context.event = Some(event as u64);
        }
        context.event
    }
}

impl Work for Gpu {
    fn drain(&self) {
        let contexts: Vec<u64> = self.lock().contexts.iter().map(|of| of.id).collect();
        for id in contexts {
            self.inside(id, || {
                grace::narrow(&[Name::Watched(id)]);
                // A context that has failed has no work any more.
                // SAFETY: no arguments.
                unsafe { driver::cuCtxSynchronize() }
            });
        }
    }

    fn mark(&self) {
        let id = self.session.current();
        let Some(event) = self.event(id) else {
            return;
        };
        let stream = STREAM.get() as CUstream;
        // SAFETY: the event is this context's and lives as long; the stream is the one that this thread has just used.
        if unsafe { driver::cuEventRecord(event as CUevent, stream) }.is_ok() {
            self.lock().mark = Some((id, event));
        }
    }

    fn has_passed(&self) -> bool {
        let Some((id, event)) = self.lock().mark else {
            return true;
        };
        // SAFETY: the event lives while its context does, which is looked up after the mark was.
        let asked = self.inside(id, || unsafe { driver::cuEventQuery(event as CUevent) });
        asked != Some(Err(CUDA_ERROR_NOT_READY))
    }
}
