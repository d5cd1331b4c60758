// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Records of the GPU's work, from the host's records.
//!
//! A copy of pageable memory is one record, as natively. The guest's libcuda reports it ([`Copied`]), and the host has
//! a record of each piece that it copies for it. So the host's copies wait for a flush, at which the reports are there.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    ffi::{CStr, CString},
    ptr::null_mut,
};

use gpgpu_protocol::{
    api::{TracedWork, traced_work},
    cupti::{
        GraphTrace, Kernel, MEMCPY_ASYNC, Memcpy, MemcpyPeer, Memset, copy_kind, kind, memory_kind,
    },
};
use gpgpu_trace::Copied;

use crate::{
    host::Taken,
    kinds::Kinds,
    layouts::UNKNOWN,
    profiler::Profiler,
    queue::Records,
    streams::{DEFAULT_STREAM, Numbers},
    times::Calibration,
};

/// So many calls at most are known for which records of the host may come late, and so many ends of a stream's work.
const MANY: usize = 1 << 16;

/// So many copies wait for a flush at most.
const MANY_COPIES: usize = 1 << 13;

/// A kernel whose name the host does not know.
const NAMELESS: &CStr = c"unknown";

/// What is known of the host's records.
#[derive(Debug)]
pub struct Works {
    /// The host's clock.
    pub calibration: Calibration,
    /// The names of kernels, in the host's order. They live as long as the process.
    names: Vec<&'static CStr>,
    /// The host's copies since the last flush, in the process's time.
    held: Vec<TracedWork>,
    /// The copies of pageable memory whose records are not made yet.
    copied: Vec<Copied>,
    /// The calls with a copy of pageable memory whose record was made. Records of the host may come later.
    done: Option<HashSet<u32>>,
    /// The stream of the latest record.
    stream: u32,
    /// The ends of the work since the last flush, by the number of its stream, if copies are recorded.
    ends: BTreeMap<u32, Vec<u64>>,
    /// How many records the host has lost so far.
    lost: u64,
    kernels: i64,
}

impl Works {
    /// Nothing.
    pub const fn new() -> Self {
        Self {
            calibration: Calibration::new(true),
            names: Vec::new(),
            held: Vec::new(),
            copied: Vec::new(),
            done: None,
            stream: DEFAULT_STREAM,
            ends: BTreeMap::new(),
            lost: 0,
            kernels: 0,
        }
    }

    /// Makes records of what the host has given. Returns how many more the host has lost.
    pub fn absorb(&mut self, taken: Taken, profiler: &Profiler, records: &mut Records) -> u64 {
        self.names.extend(taken.names.into_iter().map(intern));
        for mut work in taken.works {
            // The work of another library, or of this one.
            if work.call == 0 {
                continue;
            }
            work.start = self.calibration.own(work.start);
            work.end = self.calibration.own(work.end);
            if let Some((began, context)) = profiler.calls.of(work.call) {
                // No work begins before its call. The clocks were compared less exactly than that.
                work.start = work.start.max(began);
                profiler.contexts.learn(context, work.context);
            }
            work.end = work.end.max(work.start);
            work.graph = profiler.graphs.of_host(work.graph, work.call);
            if work.kind == traced_work::KERNEL
                && let Some(launch) = profiler.launches.further(work.call)
            {
                work.call = profiler.record_launch(&launch, records);
            }
            self.stream = work.stream;
            if profiler.kinds.counts(kind::MEMCPY) {
                self.note_end(&work);
            }
            if work.kind == traced_work::COPY && !is_peer(&work) {
                self.held.push(work);
            } else {
                self.record(&work, &profiler.kinds, records);
            }
        }
        let lost = taken.dropped.saturating_sub(self.lost);
        self.lost += lost;
        lost
    }

    /// Whether so many copies wait for a flush that their records should be made without one.
    pub fn are_many(&self, profiler: &Profiler) -> bool {
        self.held.len() + self.copied.len() + profiler.copied.lock().len() >= MANY_COPIES
    }

    /// Makes the records of copies whose calls have ended.
    pub fn finish(&mut self, profiler: &Profiler, records: &mut Records) {
        let has_ended = |call| profiler.calls.has_ended(call);
        // The host's copies first: a copy is reported before its call ends, so the reports of these are there.
        let (held, rest) = self
            .held
            .drain(..)
            .partition::<Vec<_>, _>(|work| has_ended(work.call));
        self.held = rest;
        self.copied.append(&mut profiler.copied.lock());
        let (ended, rest) = self
            .copied
            .drain(..)
            .partition::<Vec<_>, _>(|copied| has_ended(copied.call));
        self.copied = rest;
        let mut calls = HashMap::new();
        let mut copies = Vec::<(Copied, Option<TracedWork>)>::new();
        for copied in ended {
            let place = *calls.entry(copied.call).or_insert(copies.len());
            match copies.get_mut(place) {
                Some((whole, _)) => {
                    whole.bytes += copied.bytes;
                    whole.start = whole.start.min(copied.start);
                    whole.end = whole.end.max(copied.end);
                }
                None => copies.push((copied, None)),
            }
        }
        let mut done = self.done.take().unwrap_or_default();
        if done.len() > MANY {
            done.clear();
        }
        for work in held {
            match calls
                .get(&work.call)
                .and_then(|place| copies.get_mut(*place))
            {
                Some((_, whole)) => merge(whole, work),
                // The record was made without this one.
                None if done.contains(&work.call) => {}
                None => self.record(&work, &profiler.kinds, records),
            }
        }
        for ends in self.ends.values_mut() {
            ends.sort_unstable();
        }
        for (copied, work) in copies {
            done.insert(copied.call);
            let whole = self.whole(&copied, work, profiler);
            self.record(&whole, &profiler.kinds, records);
        }
        self.done = Some(done);
        self.ends.clear();
    }

    /// Notes the end of a work, for copies behind it. A program that never flushes has many; the latest ones count.
    fn note_end(&mut self, work: &TracedWork) {
        let ends = self.ends.entry(work.stream).or_default();
        if ends.len() >= MANY {
            ends.drain(..MANY / 2);
        }
        ends.push(work.end);
    }

    /// The end of a stream's last known work that had ended at a time.
    fn last_end(&self, stream: u32, time: u64) -> Option<u64> {
        let ends = self.ends.get(&stream)?;
        let ended = ends.partition_point(|end| *end <= time);
        ended.checked_sub(1).map(|last| ends[last])
    }

    /// A copy of pageable memory, with the times of the host's records of it.
    fn whole(&self, copied: &Copied, work: Option<TracedWork>, profiler: &Profiler) -> TracedWork {
        let is = |kinds: [u8; 2]| kinds.iter().any(|kind| u32::from(*kind) == copied.kind);
        let is_up = is([copy_kind::HTOD, copy_kind::HTOA]);
        let pageable = memory_kind::PAGEABLE;
        let device = match is([copy_kind::HTOA, copy_kind::ATOH]) {
            true => memory_kind::ARRAY,
            false => memory_kind::DEVICE,
        };
        let (from, to) = if is_up {
            (pageable, device)
        } else {
            (device, pageable)
        };
        let known = profiler.streams.known(copied.context, copied.stream);
        let numbers = known.unwrap_or(Numbers {
            context: profiler.contexts.number(copied.context),
            stream: match copied.stream {
                0 => DEFAULT_STREAM,
                _ => self.stream,
            },
        });
        // The copy waited for the stream's earlier work.
        let end = copied.end.max(copied.start);
        let ready = self.last_end(numbers.stream, end).unwrap_or_default();
        let work = work.unwrap_or(TracedWork {
            start: copied.start.max(ready),
            end,
            device: copied.device,
            context: numbers.context,
            stream: numbers.stream,
            ..TracedWork::default()
        });
        TracedWork {
            kind: traced_work::COPY,
            call: copied.call,
            bytes: copied.bytes,
            copy: copied.kind,
            from: u32::from(from),
            to: u32::from(to),
            flags: copied.asynchronous,
            ..work
        }
    }

    /// Makes a record, if its kind is enabled. The times are the process's.
    fn record(&mut self, work: &TracedWork, kinds: &Kinds, records: &mut Records) {
        let possible: &[u32] = match work.kind {
            traced_work::KERNEL => &[kind::CONCURRENT_KERNEL, kind::KERNEL],
            traced_work::COPY if is_peer(work) => &[kind::MEMCPY2],
            traced_work::COPY => &[kind::MEMCPY],
            traced_work::FILL => &[kind::MEMSET],
            traced_work::GRAPH => &[kind::GRAPH_TRACE],
            _ => &[],
        };
        match possible.iter().copied().find(|kind| kinds.counts(*kind)) {
            Some(kind::MEMCPY2) => records.push(&peer(work)),
            Some(kind::MEMCPY) => records.push(&memcpy(work)),
            Some(kind::MEMSET) => records.push(&memset(work)),
            Some(kind::GRAPH_TRACE) => records.push(&graph(work)),
            Some(kernel) => records.push(&self.kernel(kernel, work)),
            None => {}
        }
    }

    fn kernel(&mut self, kind: u32, work: &TracedWork) -> Kernel {
        self.kernels += 1;
        let name = (work.name as usize).checked_sub(1);
        let name = name.and_then(|place| self.names.get(place));
        Kernel {
            kind,
            cache_config: 0,
            shared_memory_config: 0,
            registers_per_thread: work.registers as u16,
            partitioned_requested: 0,
            partitioned_executed: 0,
            start: work.start,
            end: work.end,
            completed: work.end,
            device: work.device,
            context: work.context,
            stream: work.stream,
            grid: [work.grid_x, work.grid_y, work.grid_z].map(|size| size as i32),
            block: [work.block_x, work.block_y, work.block_z].map(|size| size as i32),
            static_shared: work.static_shared as i32,
            dynamic_shared: work.dynamic_shared as i32,
            local_per_thread: work.local,
            local_total: 0,
            correlation: work.call,
            grid_id: self.kernels,
            name: name.copied().unwrap_or(NAMELESS).as_ptr(),
            reserved0: null_mut(),
            queued: 0,
            submitted: 0,
            launch_type: 0,
            is_carveout_requested: 0,
            carveout_requested: 0,
            padding: 0,
            shared_executed: work.static_shared.saturating_add(work.dynamic_shared),
            graph_node: work.node,
            shared_limit_config: 0,
            graph: work.graph,
            access_policy: null_mut(),
            channel: UNKNOWN,
            channel_type: 0,
            cluster: [work.cluster_x, work.cluster_y, work.cluster_z],
            cluster_policy: 0,
            local_total_v2: 0,
            max_potential_cluster: 0,
            max_active_clusters: 0,
            is_device_launched: 0,
            padding3: [0; 7],
        }
    }
}

/// Text as a string that lives as long as the process.
fn intern(name: String) -> &'static CStr {
    let mut bytes = name.into_bytes();
    bytes.retain(|byte| *byte != 0);
    Box::leak(CString::new(bytes).unwrap_or_default().into_boxed_c_str())
}

/// Adds a piece to the host's records of a copy.
fn merge(whole: &mut Option<TracedWork>, piece: TracedWork) {
    match whole {
        Some(whole) => {
            whole.start = whole.start.min(piece.start);
            whole.end = whole.end.max(piece.end);
        }
        None => *whole = Some(piece),
    }
}

/// Whether a copy is one between devices.
fn is_peer(work: &TracedWork) -> bool {
    work.copy == u32::from(copy_kind::PTOP)
}

fn memcpy(work: &TracedWork) -> Memcpy {
    Memcpy {
        kind: kind::MEMCPY,
        copy_kind: work.copy as u8,
        from_kind: work.from as u8,
        to_kind: work.to as u8,
        flags: work.flags as u8 & MEMCPY_ASYNC,
        bytes: work.bytes,
        start: work.start,
        end: work.end,
        device: work.device,
        context: work.context,
        stream: work.stream,
        correlation: work.call,
        runtime_correlation: 0,
        pad: 0,
        reserved0: null_mut(),
        graph_node: work.node,
        graph: work.graph,
        channel: UNKNOWN,
        channel_type: 0,
        is_device_launched: 0,
        pad2: [0; 3],
        count: 1,
    }
}

fn peer(work: &TracedWork) -> MemcpyPeer {
    MemcpyPeer {
        kind: kind::MEMCPY2,
        copy_kind: work.copy as u8,
        from_kind: work.from as u8,
        to_kind: work.to as u8,
        flags: work.flags as u8 & MEMCPY_ASYNC,
        bytes: work.bytes,
        start: work.start,
        end: work.end,
        device: work.device,
        context: work.context,
        stream: work.stream,
        from_device: work.from_device,
        from_context: work.context,
        to_device: work.to_device,
        to_context: work.context,
        correlation: work.call,
        reserved0: null_mut(),
        graph_node: work.node,
        graph: work.graph,
        channel: UNKNOWN,
        channel_type: 0,
        pad: 0,
    }
}

fn memset(work: &TracedWork) -> Memset {
    Memset {
        kind: kind::MEMSET,
        value: work.value,
        bytes: work.bytes,
        start: work.start,
        end: work.end,
        device: work.device,
        context: work.context,
        stream: work.stream,
        correlation: work.call,
        flags: work.flags as u16 & 1,
        memory_kind: work.to as u16,
        pad: 0,
        reserved0: null_mut(),
        graph_node: work.node,
        graph: work.graph,
        channel: UNKNOWN,
        channel_type: 0,
        is_device_launched: 0,
        pad2: [0; 3],
    }
}

fn graph(work: &TracedWork) -> GraphTrace {
    GraphTrace {
        kind: kind::GRAPH_TRACE,
        correlation: work.call,
        start: work.start,
        end: work.end,
        device: work.device,
        graph: work.graph,
        context: work.context,
        stream: work.stream,
        reserved: null_mut(),
        end_device: work.device,
        end_context: work.context,
    }
}

#[cfg(test)]
#[path = "works_tests.rs"]
mod tests;
