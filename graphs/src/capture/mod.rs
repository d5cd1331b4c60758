// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Stream capture: the captured streams, the calls that a capture forbids, and the meaning of events.
//!
//! No work of a capture reaches the GPU. A driver calls a function of this module before it submits work to a stream:
//! [`record_work`] and similar functions return whether the work was recorded instead.

mod events;
mod life;
mod unsafe_calls;

use std::{
    cell::Cell,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use gpgpu_protocol::cuda::*;

use self::events::event_of;
pub use self::{
    events::{forget_context, forget_event, forget_stream, record_event, use_event, wait_event},
    life::{Info, begin, end, info, set_dependencies},
    unsafe_calls::{is_legacy, is_unsafe},
};

use crate::{
    Gpu, Result, Stream,
    abi::CUgraphEdgeData,
    node::Work,
    objects::Allocation,
    store::{Edges, Inner, Map},
    updatable,
};

/// A capture.
#[derive(Debug)]
pub(crate) struct Capture {
    pub mode: CUstreamCaptureMode,
    pub origin: u64,
    thread: u64,
    pub graph: u64,
    /// Whether the graph existed before the capture.
    is_given: bool,
    pub is_valid: bool,
    /// The last nodes of streams that were destroyed meanwhile. The origin must still join them.
    left: Vec<u64>,
    /// Dependencies of the origin that the program has dropped. What they join stays joined.
    dropped: Vec<u64>,
}

/// A captured stream.
#[derive(Debug)]
pub(crate) struct Recording {
    pub capture: u64,
    context: u64,
    is_blocking: bool,
    /// Its next node's dependencies.
    pub dependencies: Edges,
    /// The arrays that `cuStreamGetCaptureInfo` last returned.
    pub shown: (Box<[CUgraphNodeShown]>, Box<[CUgraphEdgeData]>),
}

/// A node's handle, as programs read it.
pub(crate) type CUgraphNodeShown = u64;

/// All captures.
#[derive(Debug, Default)]
pub(crate) struct Captures {
    serial: u64,
    pub open: Map<Capture>,
    pub streams: Map<Recording>,
    /// Events that were last recorded in a capture: the capture, and the nodes that they represent.
    events: Map<(u64, Edges)>,
}

impl Captures {
    /// The number of events that were last recorded in a capture.
    pub fn marked(&self) -> usize {
        self.events.len()
    }

    /// The captured streams of a context, with their captures.
    fn of_context(&self, context: u64) -> impl Iterator<Item = (u64, u64)> {
        let streams = self.streams.iter();
        streams
            .filter(move |(_, of)| of.context == context)
            .map(|(key, of)| (*key, of.capture))
    }

    fn invalidate(&mut self, capture: u64) {
        if let Some(capture) = self.open.get_mut(&capture) {
            capture.is_valid = false;
        }
    }
}

thread_local! {
    static MODE: Cell<CUstreamCaptureMode> = const { Cell::new(CU_STREAM_CAPTURE_MODE_GLOBAL) };
    static THREAD: Cell<u64> = const { Cell::new(0) };
}

/// A number that is unique to this thread in the process's lifetime.
fn this_thread() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    THREAD.with(|number| {
        if number.get() == 0 {
            number.set(NEXT.fetch_add(1, Ordering::Relaxed));
        }
        number.get()
    })
}

/// Sets the calling thread's mode, and returns the previous one. An unknown mode counts as thread-local, as in the
/// driver.
pub fn exchange_mode(mode: CUstreamCaptureMode) -> CUstreamCaptureMode {
    MODE.replace(mode)
}

/// Whether any stream is captured.
#[inline]
pub fn any<G: Gpu>() -> bool {
    G::store().captures.load(Ordering::Acquire) != 0
}

/// Whether a stream is captured, or an event represents a part of a capture.
#[inline]
pub fn any_event<G: Gpu>() -> bool {
    any::<G>() || G::store().events.load(Ordering::Acquire) != 0
}

/// Must be called before a call for which [`is_legacy`] is true.
///
/// # Errors
///
/// `CUDA_ERROR_STREAM_CAPTURE_IMPLICIT` if the legacy stream would wait for a captured stream.
#[inline]
pub fn guard_legacy<G: Gpu>() -> Result {
    if any::<G>()
        && let Ok(context) = G::context()
    {
        G::store().with(|inner| inner.legacy(context, true))?;
    }
    Ok(())
}

/// Must be called before a potentially unsafe call.
///
/// # Errors
///
/// `CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED` if the thread may not make the call: the captures that forbid it become
/// invalid.
#[inline]
pub fn guard<G: Gpu>() -> Result {
    if any::<G>() { forbid::<G>() } else { Ok(()) }
}

/// Must be called before a stream is queried or waited for.
///
/// # Errors
///
/// As [`refuse`] and [`guard`].
pub fn observe_stream<G: Gpu>(stream: &Stream) -> Result {
    refuse::<G>(stream)?;
    guard::<G>()
}

/// Must be called before an event is queried or waited for.
///
/// # Errors
///
/// As [`use_event`] and [`guard`].
pub fn observe_event<G: Gpu>(event: u64) -> Result {
    use_event::<G>(event)?;
    guard::<G>()
}

/// Must be called before a context is waited for.
///
/// # Errors
///
/// As [`refuse_context`] and [`guard`].
pub fn observe_context<G: Gpu>(context: u64) -> Result {
    refuse_context::<G>(context)?;
    guard::<G>()
}

fn forbid<G: Gpu>() -> Result {
    let (mode, thread) = (MODE.get(), this_thread());
    if mode == CU_STREAM_CAPTURE_MODE_RELAXED {
        return Ok(());
    }
    G::store().with(|inner| {
        let mut is_forbidden = false;
        for capture in inner.captures.open.values_mut() {
            let forbids = if capture.thread == thread {
                capture.mode != CU_STREAM_CAPTURE_MODE_RELAXED
            } else {
                mode == CU_STREAM_CAPTURE_MODE_GLOBAL
                    && capture.mode == CU_STREAM_CAPTURE_MODE_GLOBAL
            };
            if forbids {
                capture.is_valid = false;
                is_forbidden = true;
            }
        }
        if is_forbidden {
            Err(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED)
        } else {
            Ok(())
        }
    })
}

impl<G: Gpu> Inner<G> {
    /// Refuses work in a context's legacy stream, because that stream would wait for a captured stream.
    pub(super) fn legacy(&mut self, context: u64, invalidates: bool) -> Result {
        let streams = self.captures.streams.values();
        let found: Vec<u64> = streams
            .filter(|of| of.is_blocking && of.context == context)
            .map(|of| of.capture)
            .collect();
        if found.is_empty() {
            return Ok(());
        }
        if invalidates {
            for capture in found {
                self.captures.invalidate(capture);
            }
        }
        Err(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT)
    }

    /// The valid capture of a stream; `None` if it is not captured.
    ///
    /// # Errors
    ///
    /// `CUDA_ERROR_STREAM_CAPTURE_INVALIDATED`; `CUDA_ERROR_STREAM_CAPTURE_IMPLICIT` for a legacy stream.
    fn recording(&mut self, stream: &Stream) -> Result<Option<u64>> {
        if stream.is_legacy {
            self.legacy(stream.context, true)?;
            return Ok(None);
        }
        let Some(recording) = self.captures.streams.get(&stream.key) else {
            return Ok(None);
        };
        let id = recording.capture;
        match self.captures.open.get(&id) {
            Some(capture) if capture.is_valid => Ok(Some(id)),
            _ => Err(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED),
        }
    }

    /// Adds a node for a stream.
    fn append(&mut self, stream: &Stream, work: Work) -> Result {
        let dependencies = self.captures.streams[&stream.key].dependencies.clone();
        self.append_behind(stream, work, dependencies)
    }

    /// The same for a launch that may begin before the preceding launches have ended.
    fn append_overlapping(&mut self, stream: &Stream, work: Work) -> Result {
        let mut dependencies = self.captures.streams[&stream.key].dependencies.clone();
        for (of, edge) in &mut dependencies {
            if matches!(self.node(*of)?.work, Work::Kernel(_)) {
                *edge = CUgraphEdgeData::PROGRAMMATIC;
            }
        }
        self.append_behind(stream, work, dependencies)
    }

    fn append_behind(&mut self, stream: &Stream, mut work: Work, dependencies: Edges) -> Result {
        if let Work::Kernel(kernel) = &mut work
            && stream.priority != 0
            && let Some(kernel) = Arc::get_mut(kernel)
        {
            kernel.inherit_priority(stream.priority);
        }
        let capture = self.captures.streams[&stream.key].capture;
        let graph = self.captures.open[&capture].graph;
        let node = self.add_captured(graph, &dependencies, work)?;
        if let Some(of) = self.captures.streams.get_mut(&stream.key) {
            of.dependencies = Edges::from_elem((node, CUgraphEdgeData::default()), 1);
        }
        Ok(())
    }
}

/// Must be called before a stream gets work. Returns `true` if the stream is captured, and has recorded the node that
/// `work` returns.
///
/// # Errors
///
/// The error of the capture, or of `work`, which leaves the capture unchanged.
pub fn record_work<G: Gpu>(stream: &Stream, work: impl FnOnce() -> Result<Work>) -> Result<bool> {
    record(stream, work, Inner::<G>::append)
}

/// Allocates the memory of an allocation that a stream is about to record.
///
/// # Errors
///
/// The capture's error, or those of `cuMemAlloc`.
pub fn allocate<G: Gpu>(stream: &Stream, bytes: usize) -> Result<Arc<Allocation>> {
    let (graph, dependencies) = G::store().with(|inner| -> Result<_> {
        let capture = inner.recording(stream)?;
        let capture = capture.ok_or(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED)?;
        let graph = inner.captures.open[&capture].graph;
        Ok((
            graph,
            inner.captures.streams[&stream.key].dependencies.clone(),
        ))
    })?;
    G::store().allocate(graph, &dependencies, stream.context, bytes)
}

/// Like [`record_work`], for a launch with attributes. `work` gets the attributes that the node keeps. The others say
/// how the launch waits for preceding launches, which events represent a part of it, and whether kernels update the
/// node. Returns the node's name for kernels, 0 if kernels do not update it; `None` if the stream is not captured.
///
/// # Errors
///
/// As [`record_work`].
pub fn record_launch<G: Gpu>(
    stream: &Stream,
    attributes: &[CUlaunchAttribute],
    work: impl FnOnce(Vec<CUlaunchAttribute>) -> Result<Work>,
) -> Result<Option<u64>> {
    if !any::<G>() {
        return Ok(None);
    }
    let is_updatable =
        |of: &CUlaunchAttribute| of.id == CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE;
    let is_not_of_node = |of: &&CUlaunchAttribute| {
        of.id == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
            || of.id == CU_LAUNCH_ATTRIBUTE_IGNORE
            || event_of(of).is_some()
            || is_updatable(of)
    };
    let overlaps = attributes.iter().any(|of| {
        // SAFETY: every bit pattern of the union's 64 bytes is one of its words.
        let [value, ..] = unsafe { of.value.words };
        of.id == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION && value as u32 != 0
    });
    let kept = || {
        attributes
            .iter()
            .filter(|of| !is_not_of_node(of))
            .copied()
            .collect()
    };
    if overlaps || attributes.iter().any(|of| event_of(of).is_some()) {
        // Query it now, because the answer must be known when the graph is flattened.
        G::has_partial_edges();
    }
    let append = match overlaps {
        true => Inner::<G>::append_overlapping,
        false => Inner::<G>::append,
    };
    let mut marks = false;
    for of in attributes.iter().filter(|of| is_updatable(of)) {
        marks |= updatable::asks(&of.value)?;
    }
    if !record(stream, || work(kept()), append)? {
        return Ok(None);
    }
    for (event, edge) in attributes.iter().filter_map(event_of) {
        events::record_part::<G>(event, stream, edge)?;
    }
    if !marks {
        return Ok(Some(0));
    }
    let last = G::store().with(|inner| {
        let stream = inner.captures.streams.get(&stream.key)?;
        stream.dependencies.first().map(|(node, _)| *node)
    });
    updatable::mark::<G>(last.ok_or(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED)?).map(Some)
}

fn record<G: Gpu>(
    stream: &Stream,
    work: impl FnOnce() -> Result<Work>,
    append: impl FnOnce(&mut Inner<G>, &Stream, Work) -> Result,
) -> Result<bool> {
    if !any::<G>() {
        return Ok(false);
    }
    if G::store().with(|inner| inner.recording(stream))?.is_none() {
        return Ok(false);
    }
    let work = work()?;
    G::store().with(|inner| {
        // Another thread may have ended the capture.
        inner
            .recording(stream)?
            .ok_or(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED)?;
        append(inner, stream, work)
    })?;
    Ok(true)
}

/// Whether a stream is captured.
///
/// # Errors
///
/// The capture's error.
pub fn records<G: Gpu>(stream: &Stream) -> Result<bool> {
    Ok(any::<G>() && G::store().with(|inner| inner.recording(stream))?.is_some())
}

/// Must be called before a stream is waited for, queried or given work that no graph can contain.
///
/// # Errors
///
/// `CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED` if the stream is captured: its capture becomes invalid. Or the capture's
/// error.
pub fn refuse<G: Gpu>(stream: &Stream) -> Result {
    if !any::<G>() {
        return Ok(());
    }
    G::store().with(|inner| match inner.recording(stream)? {
        Some(capture) => {
            inner.captures.invalidate(capture);
            Err(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED)
        }
        None => Ok(()),
    })
}

/// Must be called before the whole context is waited for.
///
/// # Errors
///
/// `CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED` if one of its streams is captured.
pub fn refuse_context<G: Gpu>(context: u64) -> Result {
    if !any::<G>() {
        return Ok(());
    }
    G::store().with(|inner| {
        let found: Vec<u64> = inner
            .captures
            .of_context(context)
            .map(|(_, capture)| capture)
            .collect();
        for capture in &found {
            inner.captures.invalidate(*capture);
        }
        if found.is_empty() {
            Ok(())
        } else {
            Err(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED)
        }
    })
}
