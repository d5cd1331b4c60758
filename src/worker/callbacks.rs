// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Host callbacks on their way to the guest and back, and the streams that wait for them.
//!
//! A paused guest runs no callback, so the GPU cannot finish its work. At [`rest`] the worker must nevertheless know
//! that the GPU does nothing else. For that it marks the points at which streams stop: before a callback, and before a
//! wait for an event that was recorded behind one. A stream is blocked if the GPU has passed such a mark and the
//! callback has not run. Other streams must be idle.

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

/// A stream: the id of its context, and its own; 0 is the context's legacy stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// The context.
    pub context: u64,
    /// The stream.
    pub stream: u64,
}

/// A point of a stream that it does not pass before a callback has run.
#[derive(Debug, Clone, Copy)]
struct Block {
    place: Place,
    /// The serial number of the callback.
    serial: u64,
    /// The GPU passes it once the stream has done all that comes before the point.
    mark: Behind,
}

/// A callback that a stream has reached, and that has not run.
#[derive(Debug)]
struct Running {
    /// A number of its own: launches of a graph may reach the same callback in several streams at once.
    own: u64,
    callback: u64,
    /// The serial number of the stream's callback; 0 for a graph's.
    serial: u64,
}

#[derive(Debug, Default)]
struct State {
    due: VecDeque<(u64, CUresult)>,
    /// Those that are due or that the guest runs, oldest first.
    running: Vec<Running>,
    last_own: u64,
    /// By their serial numbers, the streams' callbacks that have not run.
    pending: HashMap<u64, Place>,
    last_serial: u64,
    blocks: Vec<Block>,
    /// Whether a callback that the guest has run is not over yet.
    held: bool,
}

/// The callbacks of a client.
#[derive(Debug, Default)]
pub struct Callbacks {
    state: Mutex<State>,
    changed: Condvar,
    /// By the ids of events that were recorded behind a callback, its serial number. Held while an event is recorded or
    /// waited for.
    events: Mutex<HashMap<u64, u64>>,
    /// Whether events are recorded in ways that are not seen here.
    distrusts_events: AtomicBool,
    /// Whether the client may have callbacks.
    are_used: AtomicBool,
}

impl State {
    /// The stream's last callback.
    fn last_in(&self, place: Place) -> Option<u64> {
        let mut blocks = self.blocks.iter().rev();
        let block = blocks.find(|block| block.place == place)?;
        Some(block.serial)
    }

    /// A stream's callback has run, or will not: returns the marks that are no longer needed.
    fn forget(&mut self, serial: u64) -> Vec<Behind> {
        self.pending.remove(&serial);
        let over = self.blocks.extract_if(.., |block| block.serial == serial);
        over.map(|block| block.mark).collect()
    }

    /// Notes a point of a stream, unless the callback has run meanwhile. Without a mark nothing is known of the stream.
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
    /// Gives a stream a callback by `launch`, which takes its serial number.
    ///
    /// # Errors
    ///
    /// Those of `launch`: the stream then has no callback.
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
        // Looked up first: the present entry is from before the event.
        let serial = place.and_then(|place| self.state.lock().last_in(place));
        match serial {
            Some(serial) => events.insert(event, serial),
            None if events.is_empty() => None,
            None => events.remove(&event),
        };
        // An event that was not recorded is where it was before, and that may be behind nothing.
        let recorded = record();
        if recorded.is_err() {
            events.remove(&event);
        }
        recorded
    }

    /// Has a stream wait for an event by `wait`.
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

    /// The client may have callbacks.
    pub fn set_used(&self) {
        self.are_used.store(true, Ordering::SeqCst);
    }

    /// Whether the client may have callbacks: work in a stream may then have to wait for one.
    pub fn are_used(&self) -> bool {
        self.are_used.load(Ordering::SeqCst)
    }

    /// Events are recorded in ways that are not seen here, such as by graphs: from now on none shows the dependencies
    /// of a stream.
    pub fn distrust_events(&self) {
        self.distrusts_events.store(true, Ordering::SeqCst);
    }

    /// The stream has reached a callback: passes it to the guest and waits until it has run. `serial` is the number
    /// from [`Self::launch`]; 0 for a callback of a graph.
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

    /// The guest has run a callback: the one that it was given first, of several with this number. While they are held,
    /// waits.
    pub fn done(&self, callback: u64) {
        let mut state = self.state.lock();
        while state.held {
            drop(state);
            // Dropped without the lock: they may have to wait.
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

    /// Lets no callback be over until [`Self::let_go`].
    pub fn hold(&self) {
        self.state.lock().held = true;
    }

    /// Callbacks may be over again.
    pub fn let_go(&self) {
        self.state.lock().held = false;
        self.changed.notify_all();
    }

    /// The streams that do nothing before the guest has run a callback that it was given; `None` if it was given none.
    /// They stay as they are while callbacks are held and nothing passes the gates.
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
        // The driver is asked without the lock: it may hold one of its own while it calls here.
        let trusts_events = !self.distrusts_events.load(Ordering::SeqCst);
        let passed = blocks.iter().filter(|block| {
            let is_own = || self.state.lock().pending.get(&block.serial) == Some(&block.place);
            (trusts_events || is_own()) && block.mark.has_passed()
        });
        blocked.passed.extend(passed.map(|block| block.place));
        Some(blocked)
    }

    /// A context has ended, and everything in it.
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
    /// Those that have reached one.
    reached: Vec<Place>,
    /// Those that have done all before one, or before an event behind one.
    passed: Vec<Place>,
}

impl Blocked {
    /// Whether a stream of a context does nothing; `apart` are the streams of the context that its legacy stream does
    /// not wait for.
    ///
    /// A stream that the legacy stream waits for is behind a callback of that one: work that it was given before comes
    /// before the callback, and the rest behind it. The same is true the other way round.
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
