// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Passes host callbacks to the guest, and tracks the streams that wait for them.
//!
//! A paused guest runs no callbacks, so the GPU cannot finish its work. At [`rest`] the worker must nevertheless know
//! that the GPU does nothing else. So it records an event at each point at which streams stop: before a callback, and
//! before a wait for an event that was recorded behind one. A stream is blocked if the GPU has passed such an event and
//! the callback has not run. Other streams must be idle.

use std::{
    collections::{HashMap, VecDeque},
    sync::atomic::{AtomicBool, Ordering},
};

use gpgpu_locks::{Condvar, Mutex};
use gpgpu_protocol::cuda::*;

use super::{
    grace,
    lease::{Behind, Gates},
    rest,
};

/// A stream, by the id of its context and its own id; 0 is the context's legacy stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// The context.
    pub context: u64,
    /// The stream.
    pub stream: u64,
}

/// A point of a stream at which it stops until a callback has run.
#[derive(Debug, Clone, Copy)]
struct Block {
    place: Place,
    /// The serial number of the callback.
    serial: u64,
    /// The GPU reaches it once the stream has done all earlier work.
    mark: Behind,
}

/// A callback that a stream has reached and that has not run.
#[derive(Debug)]
struct Running {
    /// A number of this entry: launches of a graph may reach the same callback in several streams at once.
    own: u64,
    callback: u64,
    /// The serial number of the stream's callback; 0 for a graph's.
    serial: u64,
}

#[derive(Debug, Default)]
struct State {
    due: VecDeque<(u64, CUresult)>,
    /// Callbacks that are due or that the guest is running, oldest first.
    running: Vec<Running>,
    last_own: u64,
    /// The streams' callbacks that have not run, by their serial numbers.
    pending: HashMap<u64, Place>,
    last_serial: u64,
    blocks: Vec<Block>,
    /// Whether callbacks that the guest has run must stay pending for now.
    held: bool,
}

/// The callbacks of a client.
#[derive(Debug, Default)]
pub struct Callbacks {
    state: Mutex<State>,
    changed: Condvar,
    /// By the ids of events that were recorded behind a callback, the callback's serial number. Locked while an event
    /// is recorded or waited for.
    events: Mutex<HashMap<u64, u64>>,
    /// Whether events are recorded in ways that this module does not see.
    distrusts_events: AtomicBool,
    /// Whether the client may have callbacks.
    are_used: AtomicBool,
}

impl State {
    /// The last callback of the stream.
    fn last_in(&self, place: Place) -> Option<u64> {
        let mut blocks = self.blocks.iter().rev();
        let block = blocks.find(|block| block.place == place)?;
        Some(block.serial)
    }

    /// Forgets a callback of a stream that has run or will not run; returns the marks that are no longer needed.
    fn forget(&mut self, serial: u64) -> Vec<Behind> {
        self.pending.remove(&serial);
        let over = self.blocks.extract_if(.., |block| block.serial == serial);
        over.map(|block| block.mark).collect()
    }

    /// Records a point at which a stream stops, unless the callback has run in the meantime. Without a mark the
    /// stream's state is unknown.
    fn block(&mut self, place: Place, serial: u64, mark: Option<Behind>) -> Option<Behind> {
        let mark = mark?;
        if !self.pending.contains_key(&serial) {
            return Some(mark);
        }
        self.blocks.push(Block {
            place,
            serial,
            mark,
        });
        None
    }
}

impl Callbacks {
    /// Submits a callback to a stream by `launch`, which gets its serial number.
    ///
    /// # Errors
    ///
    /// Those of `launch`; the stream then gets no callback.
    pub fn launch(
        &self,
        gates: &Gates,
        place: Option<Place>,
        launch: impl FnOnce(u64) -> Result<(), CUresult>,
    ) -> Result<(), CUresult> {
        self.set_used();
        let Some(place) = place else {
            return launch(0);
        };
        let serial = {
            let mut state = self.state.lock();
            state.last_serial += 1;
            let serial = state.last_serial;
            state.pending.insert(serial, place);
            serial
        };
        let (launched, mark) = gates.behind_mark(|| launch(serial));
        let mut state = self.state.lock();
        let mut unneeded: Vec<Behind> = state.block(place, serial, mark).into_iter().collect();
        if launched.is_err() {
            unneeded.extend(state.forget(serial));
        }
        drop(state);
        unneeded.into_iter().for_each(Behind::release);
        launched
    }

    /// Records an event in a stream by `record`.
    ///
    /// # Errors
    ///
    /// Those of `record`.
    pub fn record(
        &self,
        event: u64,
        place: Option<Place>,
        record: impl FnOnce() -> Result<(), CUresult>,
    ) -> Result<(), CUresult> {
        let mut events = self.events.lock();
        // Looked up first: the present entry was made before the event.
        let serial = place.and_then(|place| self.state.lock().last_in(place));
        match serial {
            Some(serial) => events.insert(event, serial),
            None if events.is_empty() => None,
            None => events.remove(&event),
        };
        // If the recording fails, the event stays where it was, possibly behind nothing.
        let recorded = record();
        if recorded.is_err() {
            events.remove(&event);
        }
        recorded
    }

    /// Makes a stream wait for an event by `wait`.
    ///
    /// # Errors
    ///
    /// Those of `wait`.
    pub fn wait(
        &self,
        gates: &Gates,
        event: u64,
        place: Option<Place>,
        wait: impl FnOnce() -> Result<(), CUresult>,
    ) -> Result<(), CUresult> {
        let mut events = self.events.lock();
        let serial = events.get(&event).copied();
        let Some((serial, place)) = serial.zip(place) else {
            return wait();
        };
        if !self.state.lock().pending.contains_key(&serial) {
            events.remove(&event);
            return wait();
        }
        let (waited, mark) = gates.behind_mark(wait);
        let unneeded = match waited {
            Ok(()) => self.state.lock().block(place, serial, mark),
            Err(_) => mark,
        };
        drop(events);
        unneeded.into_iter().for_each(Behind::release);
        waited
    }

    /// Records that the client may have callbacks.
    pub fn set_used(&self) {
        self.are_used.store(true, Ordering::SeqCst);
    }

    /// Whether the client may have callbacks, in which case work in a stream may have to wait for one.
    pub fn are_used(&self) -> bool {
        self.are_used.load(Ordering::SeqCst)
    }

    /// Records that events are recorded in ways that this module does not see, such as by graphs. From now on events do
    /// not show the dependencies of streams.
    pub fn distrust_events(&self) {
        self.distrusts_events.store(true, Ordering::SeqCst);
    }

    /// Handles a callback that a stream has reached: passes it to the guest and waits until it has run. `serial` is the
    /// number from [`Self::launch`]; 0 for a callback of a graph.
    pub fn run(&self, callback: u64, serial: u64, status: CUresult) {
        let mut state = self.state.lock();
        state.last_own += 1;
        let own = state.last_own;
        state.due.push_back((callback, status));
        state.running.push(Running {
            own,
            callback,
            serial,
        });
        self.changed.notify_all();
        let runs = |state: &mut State| state.running.iter().any(|of| of.own == own);
        drop(self.changed.wait_while(state, runs));
    }

    /// Waits for the next callback that is due.
    pub fn next(&self) -> (u64, CUresult) {
        self.set_used();
        let mut state = self.state.lock();
        loop {
            if let Some(due) = state.due.pop_front() {
                return due;
            }
            state = self.changed.wait(state);
        }
    }

    /// Handles a callback that the guest has run: the oldest one with this number. Waits while callbacks are held.
    pub fn done(&self, callback: u64) {
        let mut state = self.state.lock();
        while state.held {
            drop(state);
            // Dropped without the lock, because the drop may have to wait.
            let _outside = grace::pause();
            let _resting = rest::pause();
            let held = |state: &mut State| state.held;
            drop(self.changed.wait_while(self.state.lock(), held));
            state = self.state.lock();
        }
        let first = state.running.iter().position(|of| of.callback == callback);
        let over = match first.map(|at| state.running.remove(at).serial) {
            Some(serial) if serial != 0 => state.forget(serial),
            _ => Vec::new(),
        };
        self.changed.notify_all();
        drop(state);
        over.into_iter().for_each(Behind::release);
    }

    /// Keeps all callbacks pending until [`Self::let_go`].
    pub fn hold(&self) {
        self.state.lock().held = true;
    }

    /// Lets callbacks complete again.
    pub fn let_go(&self) {
        self.state.lock().held = false;
        self.changed.notify_all();
    }

    /// The streams that do nothing until the guest has run a callback that it got; `None` if it got none. They do not
    /// change while callbacks are held and nothing passes the gates.
    pub fn blocked(&self) -> Option<Blocked> {
        let (blocks, mut blocked) = {
            let state = self.state.lock();
            if state.running.is_empty() {
                return None;
            }
            let running = state.running.iter().map(|of| state.pending.get(&of.serial));
            let blocked = Blocked {
                reached: running.flatten().copied().collect(),
                passed: Vec::new(),
            };
            (state.blocks.clone(), blocked)
        };
        // The driver is called without the lock: it may hold one of its own while it calls this module.
        let trusts_events = !self.distrusts_events.load(Ordering::SeqCst);
        let passed = blocks.iter().filter(|block| {
            let is_own = || self.state.lock().pending.get(&block.serial) == Some(&block.place);
            (trusts_events || is_own()) && block.mark.has_passed()
        });
        blocked.passed.extend(passed.map(|block| block.place));
        Some(blocked)
    }

    /// Forgets a context that has ended, with everything in it.
    pub fn forget_context(&self, context: u64) {
        let mut state = self.state.lock();
        state.pending.retain(|_, place| place.context != context);
        let State {
            blocks, pending, ..
        } = &mut *state;
        // Marks end with their contexts.
        blocks
            .retain(|block| block.place.context != context && pending.contains_key(&block.serial));
    }
}

/// The streams that wait for callbacks.
#[derive(Debug, Default)]
pub struct Blocked {
    /// Streams that have reached a callback.
    reached: Vec<Place>,
    /// Streams that have done all work before a callback, or before an event behind one.
    passed: Vec<Place>,
}

impl Blocked {
    /// Whether a stream of a context is blocked; `apart` are the streams of the context for which its legacy stream
    /// does not wait.
    ///
    /// A stream for which the legacy stream waits is blocked by a callback of the legacy stream: its earlier work comes
    /// before the callback, and its later work behind it. The reverse is also true.
    pub fn has(&self, place: Place, apart: &[u64]) -> bool {
        let is_joined = |stream| stream != 0 && !apart.contains(&stream);
        let here = |of: &&Place| of.context == place.context;
        self.passed.contains(&place)
            || self.reached.contains(&place)
            || self
                .reached
                .iter()
                .filter(here)
                .any(|of| match place.stream {
                    0 => is_joined(of.stream),
                    stream => of.stream == 0 && is_joined(stream),
                })
    }
}

#[cfg(test)]
#[path = "callbacks_tests.rs"]
mod tests;
