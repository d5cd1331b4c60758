// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Launches that recur, each given to the driver as an executable graph with one node.
//!
//! NVIDIA's driver takes 1.4 µs to set a node's parameters and to launch such a graph, and 3.4 µs for a launch (H200,
//! driver 580). That holds as long as the function, the grid, the block and the shared memory remain the same: to set
//! others takes the driver as long as a launch. Two launches of one executable graph never run at once. So each stream
//! has graphs of its own.
//!
//! The table in [`super`] says which launches stay launches. A graph here passes the gate as one launch, and no limit
//! of graphs in flight is needed: the driver's queue holds as many of them as launches.

use std::collections::HashMap;

use foldhash::fast::RandomState;
use gpgpu_locks::Mutex;
use gpgpu_protocol::cuda::*;

use super::{Launch, are_off, made::Made, made::Shape};
use crate::worker::{counts, objects::Entry, session::Session};

/// The number of times that a launch has come when a graph is made of it. That takes as long as 10 to 25 launches.
const OFTEN: u32 = 32;
/// Graphs of a client. NVIDIA's driver takes 112 KiB of device memory for each.
const MOST_GRAPHS: usize = 64;
/// Launches that are counted without a graph.
const MOST_SEEN: usize = 512;
/// The number of launches of graphs that pay for a graph that takes the place of another.
const PAYS: u64 = 64;

/// The launches of a graph.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Key {
    context: u64,
    stream: u64,
    shape: Shape,
}

#[derive(Default)]
struct State {
    made: HashMap<Key, Made, RandomState>,
    /// Launches without a graph, and the number of times that each has come.
    seen: HashMap<Key, u32, RandomState>,
    /// Contexts that are about to end.
    ending: Vec<u64>,
    /// Launches of graphs, and their number when one last took another's place.
    launched: u64,
    replaced: u64,
    /// The client has given a stream attributes, or a module references.
    is_off: bool,
}

/// See the module's page.
#[derive(Default)]
pub struct Singles(Mutex<State>);

impl std::fmt::Debug for Singles {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Singles")
    }
}

impl State {
    /// Whether a graph is to be made of a launch, which has come once more.
    fn is_worth_it(&mut self, key: &Key) -> bool {
        if let Some(count) = self.seen.get_mut(key) {
            *count = count.saturating_add(1);
            let has_place = self.made.len() < MOST_GRAPHS || self.launched - self.replaced >= PAYS;
            if *count < OFTEN || !has_place {
                return false;
            }
            self.seen.remove(key);
            return true;
        }
        if self.seen.len() == MOST_SEEN {
            self.seen.clear();
        }
        self.seen.insert(key.clone(), 1);
        false
    }

    /// Keeps a graph, in the place of the one that was not used for the longest time if there are too many.
    fn keep(&mut self, key: Key, made: Made) {
        if self.made.len() == MOST_GRAPHS {
            let oldest = self.made.iter().min_by_key(|(_, made)| made.used);
            if let Some(oldest) = oldest.map(|(key, _)| key.clone()) {
                self.made.remove(&oldest);
            }
            self.replaced = self.launched;
        }
        self.made.insert(key, made);
    }

    fn launch(
        &mut self,
        session: &Session,
        launch: &Launch,
        function: &Entry,
        stream: CUstream,
    ) -> Result<bool, CUresult> {
        let key = Key {
            context: session.entered(),
            stream: launch.config.stream,
            shape: Shape::of(launch),
        };
        let next = self.launched + 1;
        let Some(made) = self.made.get_mut(&key) else {
            if self.ending.contains(&key.context) || !self.is_worth_it(&key) {
                return Ok(false);
            }
            let mut made = Made::new(session, [(launch, function)])?;
            made.used = next;
            made.launch([launch], stream)?;
            self.keep(key, made);
            self.launched = next;
            counts::launch_graph();
            return Ok(true);
        };
        (made.used, self.launched) = (next, next);
        if let Err(code) = made.launch([launch], stream) {
            // Its parameters are unknown, or it lacks resources that its launch does not need, such as memory.
            self.made.remove(&key);
            return Err(code);
        }
        counts::launch_graph();
        Ok(true)
    }
}

impl Singles {
    /// Gives the driver a launch as a graph, if it has recurred in this stream, and returns whether it did. If not,
    /// nothing was given. `of` is the id of the stream's context, or 0 for a default stream's.
    ///
    /// The caller has found the function and the stream in this command, and has charged both.
    pub fn launch(
        &self,
        session: &Session,
        launch: &Launch,
        function: &Entry,
        (stream, of): (CUstream, u64),
    ) -> bool {
        let context = session.entered();
        // A launch in a green context keeps to that one's share of the GPU. CUDA does not say so of a graph's nodes.
        // The current context is not the entered one then.
        let is_plain = context == session.current()
            && (of == 0 || of == context)
            && (function.context == 0 || function.context == context)
            && launch.config.attributes.is_empty();
        if !is_plain || are_off() {
            return false;
        }
        // Another thread's launch may be waiting for room in the driver's queue.
        let Some(mut state) = self.0.try_lock() else {
            return false;
        };
        // The launch itself returns the error of a graph that cannot be made or launched.
        !state.is_off
            && state
                .launch(session, launch, function, stream)
                .unwrap_or(false)
    }

    /// The objects of graphs have changed.
    pub fn forget(&self) {
        let mut state = self.0.lock();
        state.made.clear();
        state.seen.clear();
    }

    /// From now on launches are only launches.
    pub fn switch_off(&self) {
        self.0.lock().is_off = true;
        self.forget();
    }

    /// A context is about to end: nothing here is of it any more.
    pub fn end_context(&self, context: u64) {
        let mut state = self.0.lock();
        state.made.retain(|key, _| key.context != context);
        state.ending.push(context);
    }

    /// It does not end after all, or has ended: its id may be another's.
    pub fn settle_context(&self, context: u64) {
        self.0.lock().ending.retain(|of| *of != context);
    }
}
