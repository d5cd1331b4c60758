// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The numbers of streams in the host's records.

use std::collections::BTreeMap;

use gpgpu_locks::Mutex;

use crate::profiler::Profiler;

/// The numbers of streams, as far as they were asked for. A stream's id is never used again, so they stay.
#[derive(Debug)]
pub struct Streams(Mutex<BTreeMap<(u64, u64), Numbers>>);

/// A stream's numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Numbers {
    /// Its context's number.
    pub context: u32,
    /// Its own.
    pub stream: u32,
}

impl Streams {
    /// No stream is known.
    pub const fn new() -> Self {
        Self(Mutex::new(BTreeMap::new()))
    }

    /// The numbers of a stream, by its id, in a context, if they were asked for.
    pub fn known(&self, context: u64, stream: u64) -> Option<Numbers> {
        self.0.lock().get(&(context, stream)).copied()
    }
}

impl Profiler {
    /// The numbers of a stream, by its id, in the thread's current context; `None` if the host does not know them.
    pub fn numbers(&self, context: u64, stream: u64) -> Option<Numbers> {
        if let Some(known) = self.streams.known(context, stream) {
            return Some(known);
        }
        let numbers = self.host.numbers(stream).ok()?;
        self.contexts.learn(context, numbers.context);
        self.streams.0.lock().insert((context, stream), numbers);
        Some(numbers)
    }

    /// The same for a stream's handle. Without the host's answer, the legacy default stream has its native number.
    pub fn numbers_of_handle(&self, context: u64, handle: u64) -> Option<u32> {
        let stream = self.host.stream(handle).ok();
        let numbers = stream.and_then(|stream| self.numbers(context, stream));
        let is_default = matches!(handle, 0 | 1);
        numbers
            .map(|numbers| numbers.stream)
            .or(is_default.then_some(DEFAULT_STREAM))
    }
}

/// The number of the legacy default stream, as CUPTI gives it natively.
pub const DEFAULT_STREAM: u32 = 7;
