// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Events in a capture, and the effects of the destruction of events, streams and contexts.

use gpgpu_protocol::cuda::*;

use super::{Recording, any, any_event};
use crate::{
    Gpu, Result, Stream,
    abi::CUgraphEdgeData,
    node::Work,
    store::{Edge, Edges, Inner},
};

/// Must be called before an event is recorded in a stream. Returns `true` if the stream is captured: the event then
/// represents the captured nodes, or a node records it if `is_external`.
///
/// # Errors
///
/// `CUDA_ERROR_ILLEGAL_STATE` for an external record outside a capture; the capture's error.
pub fn record_event<G: Gpu>(event: u64, stream: &Stream, is_external: bool) -> Result<bool> {
    if !any_event::<G>() {
        return if is_external {
            Err(CUDA_ERROR_ILLEGAL_STATE)
        } else {
            Ok(false)
        };
    }
    G::store().with(|inner| {
        let Some(capture) = inner.recording(stream)? else {
            if is_external {
                return Err(CUDA_ERROR_ILLEGAL_STATE);
            }
            inner.captures.events.remove(&event);
            return Ok(false);
        };
        G::check_event(event)?;
        if is_external {
            inner.append(stream, Work::Record(event))?;
        } else {
            let dependencies = inner.captures.streams[&stream.key].dependencies.clone();
            inner.captures.events.insert(event, (capture, dependencies));
        }
        Ok(true)
    })
}

/// The handle of a launch attribute's event, and the edge by which a wait for the event waits for the launch; `None`
/// for an attribute without an event.
pub fn event_of(attribute: &CUlaunchAttribute) -> Option<(u64, CUgraphEdgeData)> {
    // SAFETY: every bit pattern of the union's 64 bytes is one of its words.
    let [event, flags, ..] = unsafe { attribute.value.words };
    // After the event come its flags, and whether the blocks trigger it when they begin.
    let at_start = flags >> 32 != 0;
    match (attribute.id, at_start) {
        (CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT, false) => {
            Some((event, CUgraphEdgeData::PROGRAMMATIC))
        }
        (CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT, true) => {
            Some((event, CUgraphEdgeData::PROGRAMMATIC_FROM_START))
        }
        (CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT, _) => {
            Some((event, CUgraphEdgeData::LAUNCH_ORDER))
        }
        _ => None,
    }
}

/// Records an event of a captured launch. The event represents the part of the launch that the edge describes.
///
/// # Errors
///
/// The capture's error.
pub(super) fn record_part<G: Gpu>(event: u64, stream: &Stream, edge: CUgraphEdgeData) -> Result {
    G::store().with(|inner| {
        let Some(capture) = inner.recording(stream)? else {
            return Ok(());
        };
        G::check_event(event)?;
        let mut dependencies = inner.captures.streams[&stream.key].dependencies.clone();
        dependencies.iter_mut().for_each(|(_, of)| *of = edge);
        inner.captures.events.insert(event, (capture, dependencies));
        Ok(())
    })
}

/// Must be called before a stream waits for an event. Returns `true` if the wait is part of a capture: the stream's, or
/// the event's, which the stream joins.
///
/// # Errors
///
/// `CUDA_ERROR_STREAM_CAPTURE_ISOLATION` if a captured stream would wait for work outside its capture;
/// `CUDA_ERROR_STREAM_CAPTURE_MERGE` if it would wait for another capture; `CUDA_ERROR_INVALID_VALUE` for an event of a
/// capture that has ended, and `CUDA_ERROR_ILLEGAL_STATE` for an external wait outside a capture, both as observed on
/// an H200 (driver 580.159.04).
pub fn wait_event<G: Gpu>(stream: &Stream, event: u64, is_external: bool) -> Result<bool> {
    if !any_event::<G>() {
        return if is_external {
            Err(CUDA_ERROR_ILLEGAL_STATE)
        } else {
            Ok(false)
        };
    }
    G::store().with(|inner| {
        let recording = inner.recording(stream)?;
        if recording.is_none() && is_external {
            return Err(CUDA_ERROR_ILLEGAL_STATE);
        }
        if let (Some(_), true) = (recording, is_external) {
            G::check_event(event)?;
            inner.append(stream, Work::Wait(event))?;
            return Ok(true);
        }
        let Some((of, dependencies)) = inner.captures.events.get(&event).cloned() else {
            let Some(capture) = recording else {
                return Ok(false);
            };
            G::check_event(event)?;
            // There is nothing to wait for.
            if !G::is_recorded(event) {
                return Ok(true);
            }
            inner.captures.invalidate(capture);
            return Err(CUDA_ERROR_STREAM_CAPTURE_ISOLATION);
        };
        let Some(capture) = inner.captures.open.get(&of) else {
            if let Some(capture) = recording {
                inner.captures.invalidate(capture);
                return Err(CUDA_ERROR_STREAM_CAPTURE_ISOLATION);
            }
            return Err(CUDA_ERROR_INVALID_VALUE);
        };
        if !capture.is_valid {
            return Err(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
        }
        match recording {
            Some(own) if own != of => {
                inner.captures.invalidate(own);
                inner.captures.invalidate(of);
                Err(CUDA_ERROR_STREAM_CAPTURE_MERGE)
            }
            Some(_) => {
                inner.join(stream.key, &dependencies);
                Ok(true)
            }
            // The legacy stream is never captured.
            None if stream.is_legacy => {
                inner.captures.invalidate(of);
                Err(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT)
            }
            None => {
                inner.begin_stream(stream, of, dependencies);
                Ok(true)
            }
        }
    })
}

impl<G: Gpu> Inner<G> {
    pub(super) fn begin_stream(&mut self, stream: &Stream, capture: u64, dependencies: Edges) {
        self.captures.streams.insert(
            stream.key,
            Recording {
                capture,
                context: stream.context,
                is_blocking: stream.is_blocking,
                dependencies,
                shown: Default::default(),
            },
        );
    }

    /// Adds dependencies of a stream's next node, except those that others imply.
    pub(super) fn join(&mut self, stream: u64, more: &[Edge]) {
        let mut all = self.captures.streams[&stream].dependencies.clone();
        for edge in more {
            if !all.iter().any(|(of, _)| *of == edge.0) {
                all.push(*edge);
            }
        }
        let kept = all.iter().filter(|(node, _)| {
            let others: Vec<u64> = all
                .iter()
                .map(|(of, _)| *of)
                .filter(|of| of != node)
                .collect();
            !self.ended_with(&others).contains(node)
        });
        let kept = kept.copied().collect();
        if let Some(of) = self.captures.streams.get_mut(&stream) {
            of.dependencies = kept;
        }
    }
}

/// Must be called before an event is queried, waited for or compared.
///
/// # Errors
///
/// `CUDA_ERROR_CAPTURED_EVENT` if it was last recorded in a capture. The capture becomes invalid. If it has ended,
/// `CUDA_ERROR_INVALID_VALUE`, as from NVIDIA's driver (seen on an H200).
pub fn use_event<G: Gpu>(event: u64) -> Result {
    if !any_event::<G>() {
        return Ok(());
    }
    G::store().with(|inner| match inner.captures.events.get(&event) {
        Some(&(capture, _)) if inner.captures.open.contains_key(&capture) => {
            inner.captures.invalidate(capture);
            Err(CUDA_ERROR_CAPTURED_EVENT)
        }
        Some(_) => Err(CUDA_ERROR_INVALID_VALUE),
        None => Ok(()),
    })
}

/// Removes a destroyed event.
pub fn forget_event<G: Gpu>(event: u64) {
    if any_event::<G>() {
        G::store().with(|inner| inner.captures.events.remove(&event));
    }
}

/// Removes a destroyed stream. If a capture began in it, the capture can no longer be ended. Otherwise the capture
/// continues, and its end checks whether the stream's work was joined, as NVIDIA's driver does.
pub fn forget_stream<G: Gpu>(key: u64) {
    if !any::<G>() {
        return;
    }
    G::store().with(|inner| {
        let Some(recording) = inner.captures.streams.remove(&key) else {
            return;
        };
        let id = recording.capture;
        match inner.captures.open.get_mut(&id) {
            Some(capture) if capture.origin != key => {
                let nodes = recording.dependencies.iter().map(|(node, _)| *node);
                capture.left.extend(nodes);
            }
            _ => {
                inner.captures.invalidate(id);
                inner.close(id);
            }
        }
    });
}

/// Removes a destroyed context with its streams. Their captures are discarded.
pub fn forget_context<G: Gpu>(context: u64) {
    if !any::<G>() {
        return;
    }
    let keys: Vec<u64> = G::store().with(|inner| {
        let of: Vec<_> = inner.captures.of_context(context).collect();
        for (_, capture) in &of {
            inner.captures.invalidate(*capture);
        }
        of.into_iter().map(|(key, _)| key).collect()
    });
    keys.into_iter().for_each(forget_stream::<G>);
}
