// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Recurring launches, each submitted to the driver as an executable graph with one node.
//!
//! NVIDIA's driver takes 1.4 µs to set a node's parameters and to launch such a graph, and 3.4 µs for a launch (H200,
//! driver 580). This holds only while the function, the grid, the block and the shared memory remain the same: changing
//! them takes the driver as long as a launch. Two launches of one executable graph never run at the same time, so each
//! stream has its own graphs.
//!
//! The table in [`super`] lists the launches that are never submitted as graphs. A graph here passes the gate as one
//! launch, and needs no limit of graphs in flight: the driver's queue holds as many of them as launches.

use std::collections::HashMap;

use foldhash::fast::RandomState;
use gpgpu_locks::Mutex;
use gpgpu_protocol::cuda::*;

use super::{Launch, are_off, made::Made, made::Shape};
use crate::worker::{counts, objects::Entry, session::Session};

/// The number of occurrences of a launch after which a graph is made of it. Making it takes as long as 10 to 25
/// launches.
const OFTEN: u32 = 32;
/// The maximum number of a client's graphs. NVIDIA's driver takes 112 KiB of device memory for each.
const MOST_GRAPHS: usize = 64;
/// The maximum number of launches that are counted without a graph.
const MOST_SEEN: usize = 512;
/// The minimum number of launches of graphs before a new graph replaces another one.
const PAYS: u64 = 64;

/// Identifies the launches of one graph.
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
    /// The number of launches of graphs, and its value when one last replaced another.
    launched: u64,
    replaced: u64,
    /// Whether the client has set attributes of a stream or texture references of a module.
    is_off: bool,
}

/// See the module's documentation.
#[derive(Default)]
pub struct Singles(Mutex<State>);

impl std::fmt::Debug for Singles {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Singles")
    }
}

impl State {
    /// Whether to make a graph of a launch, which has occurred once more.
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

    /// Stores a graph. If there are too many, it replaces the one that was unused for longest.
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
            // Its parameters are unknown, or it lacks resources that a launch does not need, such as memory.
            self.made.remove(&key);
            return Err(code);
        }
        counts::launch_graph();
        Ok(true)
    }
}

impl Singles {
    /// Submits a launch as a graph, if it has recurred in this stream, and returns whether it did. If not, nothing was
    /// submitted. `of` is the id of the stream's context, or 0 for a default stream's.
    ///
    /// The caller has looked up the function and the stream in this command, and has charged both.
    pub fn launch(
        &self,
        session: &Session,
        launch: &Launch,
        function: &Entry,
        (stream, of): (CUstream, u64),
    ) -> bool {
        let context = session.entered();
        // A launch in a green context is confined to that context's share of the GPU. CUDA does not promise this for a
        // graph's nodes. In a green context, the current context differs from the entered one.
        let is_plain = context == session.current()
            && (of == 0 || of == context)
            && (function.context == 0 || function.context == context)
            && launch.config.attributes.is_empty();
        if !is_plain || are_off() {
            return false;
        }
        // Another thread's launch may wait for room in the driver's queue while it holds the lock.
        let Some(mut state) = self.0.try_lock() else {
            return false;
        };
        // If the graph cannot be made or launched, the launch itself returns the error.
        !state.is_off
            && state
                .launch(session, launch, function, stream)
                .unwrap_or(false)
    }

    /// Forgets all graphs, because objects that they use have changed.
    pub fn forget(&self) {
        let mut state = self.0.lock();
        state.made.clear();
        state.seen.clear();
    }

    /// Disables graphs of launches for this client.
    pub fn switch_off(&self) {
        self.0.lock().is_off = true;
        self.forget();
    }

    /// Prepares for the end of a context: removes everything that belongs to it.
    pub fn end_context(&self, context: u64) {
        let mut state = self.0.lock();
        state.made.retain(|key, _| key.context != context);
        state.ending.push(context);
    }

    /// The context has ended, or its end was cancelled. Another context may get its id.
    pub fn settle_context(&self, context: u64) {
        self.0.lock().ending.retain(|of| *of != context);
    }
}
