// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The profiler of a process: its parts, and their use of the host.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use gpgpu_client::log;
use gpgpu_locks::Mutex;
use gpgpu_protocol::{
    cuda::{CUDA_ERROR_NOT_SUPPORTED, CUDA_ERROR_OUT_OF_MEMORY, CUresult},
    cupti::{NOT_SUPPORTED, Status, UNKNOWN, kind},
};
use gpgpu_trace::{CALLS, Copied, WORK};

use crate::{
    Outcome,
    buffers::{Buffers, When},
    callbacks::Callbacks,
    events::Recorded,
    graphs::Graphs,
    host::{Host, Process},
    ids::Contexts,
    kinds::Kinds,
    launches::Launches,
    numbers,
    observer::Calls,
    queue::{Queue, Records},
    streams::Streams,
    times::{self, Calibration, Clock, Timestamp},
    works::Works,
};

/// `CUPTI_ERROR_OUT_OF_MEMORY`.
const OUT_OF_MEMORY: Status = 8;

/// The profiler of a process.
pub struct Profiler {
    /// libcuda and the host.
    pub host: &'static dyn Host,
    /// The clock of the records.
    pub clock: Clock,
    /// Records that wait.
    pub queue: Queue,
    /// The program's buffers.
    pub buffers: Buffers,
    /// The enabled kinds of records.
    pub kinds: Kinds,
    /// The subscriber.
    pub callbacks: Callbacks,
    /// The latest calls.
    pub calls: Calls,
    /// Copies of pageable memory since the last flush.
    pub copied: Mutex<Vec<Copied>>,
    /// The numbers of contexts.
    pub contexts: Contexts,
    /// The calls of libraries.
    pub launches: Launches,
    /// The numbers of graphs.
    pub graphs: Graphs,
    /// The records of events.
    pub recorded: Recorded,
    /// The numbers of streams.
    pub streams: Streams,
    /// The host's records.
    pub works: Mutex<Works>,
    /// The kinds of work that the host traces.
    traced: AtomicU32,
    /// Whether the host has refused to trace.
    is_refused: AtomicBool,
    /// One thread at a time changes what the host traces.
    changing: Mutex<()>,
    /// The bits of libcuda's switch. One thread at a time changes them.
    switch: Mutex<u32>,
}

/// The profiler of this process.
pub fn profiler() -> &'static Profiler {
    static PROFILER: Profiler = Profiler::new(&Process);
    &PROFILER
}

impl Profiler {
    /// A profiler that records nothing.
    pub const fn new(host: &'static dyn Host) -> Self {
        Self {
            host,
            clock: Clock::new(),
            queue: Queue::new(),
            buffers: Buffers::new(),
            kinds: Kinds::new(),
            callbacks: Callbacks::new(),
            calls: Calls::new(),
            copied: Mutex::new(Vec::new()),
            contexts: Contexts::new(),
            launches: Launches::new(),
            graphs: Graphs::new(),
            recorded: Recorded::new(),
            streams: Streams::new(),
            works: Mutex::new(Works::new()),
            traced: AtomicU32::new(0),
            is_refused: AtomicBool::new(false),
            changing: Mutex::new(()),
            switch: Mutex::new(0),
        }
    }

    /// Makes libcuda report calls exactly while something wants them.
    ///
    /// # Errors
    ///
    /// `CUPTI_ERROR_NOT_SUPPORTED` if the process has another libcuda than this project's.
    pub fn switch(&self) -> Outcome {
        let mut switch = self.switch.lock();
        let active = match self.kinds.any() || self.callbacks.any() {
            true if self.is_traced() => CALLS | WORK,
            true => CALLS,
            false => 0,
        };
        // A process that uses nothing of CUPTI need not load libcuda.
        if *switch == active {
            return Ok(());
        }
        if active != 0 {
            // The first call then takes no longer than others.
            self.calls.prepare();
            numbers::prepare();
        }
        if self.host.observe(active) {
            *switch = active;
            return Ok(());
        }
        log::refuse("CUPTI", "needs this project's libcuda");
        Err(NOT_SUPPORTED)
    }

    /// Enables a kind of records.
    ///
    /// # Errors
    ///
    /// `CUPTI_ERROR_NOT_SUPPORTED` if the host cannot trace, and as [`Profiler::switch`].
    pub fn enable(&self, kind: u32) -> Outcome {
        self.kinds.enable(kind);
        let begin = || match self.kinds.is_of_host(kind) {
            true => self.begin_trace(),
            false => Ok(()),
        };
        let enabled = self.switch().and_then(|()| begin());
        if enabled.is_err() {
            self.kinds.withdraw(kind);
            let _ = self.switch();
        }
        enabled
    }

    /// Lets the host trace, if there is a context; otherwise the first call with one does it.
    fn begin_trace(&self) -> Outcome {
        if !self.host.serves() {
            return Err(refuse(CUDA_ERROR_NOT_SUPPORTED));
        }
        self.is_refused.store(false, Ordering::Relaxed);
        self.settle(self.host.context())
    }

    /// Disables a kind of records. Those of work that has ended are fetched before.
    pub fn disable(&self, kind: u32) -> Outcome {
        if self.kinds.is_of_host(kind) && self.kinds.has(kind) {
            self.collect(true);
        }
        self.kinds.disable(kind);
        if self.is_unsettled() {
            // If it fails, the program gets fewer records later, or none: it has disabled them.
            let settle = |context| {
                let _ = self.settle(context);
            };
            match self.host.context() {
                0 => {
                    let last = self.calls.last_context();
                    self.host.within(last, &mut || settle(last));
                }
                context => settle(context),
            }
        }
        self.switch()
    }

    /// Whether the host traces other kinds than the program wants.
    #[inline]
    pub fn is_unsettled(&self) -> bool {
        self.kinds.host_bits() != self.traced.load(Ordering::Relaxed)
            && !self.is_refused.load(Ordering::Relaxed)
    }

    /// Makes the host trace what the program wants, in the thread's current context, unless that is 0.
    ///
    /// # Errors
    ///
    /// `CUPTI_ERROR_NOT_SUPPORTED` if the host serves no CUPTI, `CUPTI_ERROR_OUT_OF_MEMORY` if there is no memory for
    /// it, `CUPTI_ERROR_UNKNOWN` otherwise. It is not tried again until a kind is enabled.
    pub fn settle(&self, context: u64) -> Outcome {
        if context == 0 {
            return Ok(());
        }
        let wanted = {
            let _one = self.changing.lock();
            let wanted = self.kinds.host_bits();
            if !self.is_unsettled() {
                return Ok(());
            }
            if let Err(code) = self.host.trace(wanted) {
                self.is_refused.store(true, Ordering::Relaxed);
                return Err(refuse(code));
            }
            self.traced.store(wanted, Ordering::Relaxed);
            wanted
        };
        if wanted != 0 {
            self.calibrate();
        }
        // From here on commands carry the numbers of their calls, or no longer do.
        self.switch()
    }

    /// Sets the clock of the records. Samples of another clock do not count.
    pub fn set_clock(&self, function: Option<Timestamp>) {
        if !self.clock.set(function) {
            return;
        }
        self.works.lock().calibration = Calibration::new(function.is_none());
        if self.is_traced() {
            self.calibrate();
        }
    }

    /// Compares the clocks. It may call the program's clock, so it holds no lock meanwhile.
    fn calibrate(&self) {
        if let Some(sample) = times::sample(&self.clock, || self.host.now().ok()) {
            self.works.lock().calibration.add(sample);
        }
    }

    /// Whether the host traces.
    pub fn is_traced(&self) -> bool {
        self.traced.load(Ordering::Relaxed) != 0
    }

    /// Fetches the host's records: with `flush`, those of all work that has ended, and completes the copies of pageable
    /// memory. Without it, another thread that does it suffices.
    pub fn collect(&self, flush: bool) {
        let asks = self.is_traced() || self.kinds.lingers();
        if asks {
            self.calibrate();
        }
        let works = match flush {
            true => Some(self.works.lock()),
            false => self.works.try_lock(),
        };
        let Some(mut works) = works else { return };
        // A program that never flushes gets the records of copies too, and they do not wait without number.
        let finishes = flush || works.are_many(self);
        let mut records = Records::new();
        let mut collects = finishes;
        while asks && let Ok(taken) = self.host.take(collects) {
            let more = taken.more && !(taken.works.is_empty() && taken.names.is_empty());
            let lost = works.absorb(taken, self, &mut records);
            self.queue.drop(lost);
            if !more {
                break;
            }
            collects = false;
        }
        if finishes {
            works.finish(self, &mut records);
        }
        self.queue.append(&records);
    }

    /// Fetches and delivers all records.
    pub fn flush(&self, when: When) {
        self.collect(true);
        self.buffers.deliver(&self.queue, when);
        self.kinds.linger_no_more();
    }

    /// Ends all.
    pub fn finish(&self) {
        let kinds = (kind::MEMCPY..=kind::GRAPH_TRACE).filter(|kind| self.kinds.has(*kind));
        for kind in kinds.chain([kind::DRIVER, kind::RUNTIME]) {
            let _ = self.disable(kind);
        }
        self.callbacks.clear();
        let _ = self.switch();
        self.flush(When::End);
        self.buffers.register(None);
        self.set_clock(None);
    }
}

/// Reports why the host does not trace; returns the status for the program.
fn refuse(code: CUresult) -> Status {
    match code {
        CUDA_ERROR_NOT_SUPPORTED => {
            log::refuse(
                "the GPU's activities",
                "are not recorded: the host serves no CUPTI",
            );
            NOT_SUPPORTED
        }
        code => {
            let why = format!("are not recorded: the host returned {code}");
            log::refuse("the GPU's activities", &why);
            match code {
                CUDA_ERROR_OUT_OF_MEMORY => OUT_OF_MEMORY,
                _ => UNKNOWN,
            }
        }
    }
}

#[cfg(test)]
#[path = "profiler_tests.rs"]
mod tests;
