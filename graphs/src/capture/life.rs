// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Begin, queries and end of captures.

use gpgpu_protocol::cuda::*;

use super::{Capture, any, this_thread};
use crate::{
    Gpu, Result, Stream,
    abi::CUgraphEdgeData,
    store::{Edge, Inner},
};

/// Begins a capture in a stream, into a graph if one is given.
///
/// # Errors
///
/// `CUDA_ERROR_NOT_SUPPORTED` if graphs are not supported, `CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED` for the legacy
/// stream, `CUDA_ERROR_ILLEGAL_STATE` if the stream is already captured.
pub fn begin<G: Gpu>(
    stream: &Stream,
    mode: CUstreamCaptureMode,
    into: Option<(u64, Vec<Edge>)>,
) -> Result {
    G::has_graphs()?;
    if mode > CU_STREAM_CAPTURE_MODE_RELAXED {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    if stream.is_legacy {
        return Err(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    }
    G::store().with(|inner| {
        if inner.captures.streams.contains_key(&stream.key) {
            return Err(CUDA_ERROR_ILLEGAL_STATE);
        }
        let is_given = into.is_some();
        let (graph, dependencies) = match into {
            Some((graph, dependencies)) => {
                if inner.graph(graph)?.captures {
                    return Err(CUDA_ERROR_ILLEGAL_STATE);
                }
                for (node, _) in &dependencies {
                    if inner.node(*node)?.graph != graph {
                        return Err(CUDA_ERROR_INVALID_VALUE);
                    }
                }
                (graph, dependencies)
            }
            None => (inner.create(), Vec::new()),
        };
        inner.graph(graph)?.captures = true;
        inner.captures.serial += 1;
        let id = inner.captures.serial;
        inner.captures.open.insert(
            id,
            Capture {
                mode,
                origin: stream.key,
                thread: this_thread(),
                graph,
                is_given,
                is_valid: true,
                left: Vec::new(),
                dropped: Vec::new(),
            },
        );
        inner.begin_stream(stream, id, dependencies.into());
        Ok(())
    })
}

impl<G: Gpu> Inner<G> {
    /// Ends a capture, and returns its graph if the capture is valid.
    pub(super) fn close(&mut self, id: u64) -> Option<u64> {
        let capture = self.captures.open.remove(&id)?;
        self.captures.streams.retain(|_, of| of.capture != id);
        if let Some(graph) = self.graphs.get_mut(&capture.graph) {
            graph.captures = false;
        }
        if capture.is_valid {
            return Some(capture.graph);
        }
        if !capture.is_given {
            self.forget_graph(capture.graph);
        }
        None
    }
}

/// Ends the capture that began in a stream, and returns the graph.
///
/// # Errors
///
/// `CUDA_ERROR_ILLEGAL_STATE` if the stream is not captured. `CUDA_ERROR_STREAM_CAPTURE_UNMATCHED` if its capture began
/// in another stream: the capture becomes invalid, but must still be ended. `CUDA_ERROR_STREAM_CAPTURE_INVALIDATED`,
/// `CUDA_ERROR_STREAM_CAPTURE_UNJOINED` and, in a thread that may not end it, `CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD`
/// end it without a graph.
pub fn end<G: Gpu>(stream: &Stream) -> Result<u64> {
    G::store().with(|inner| {
        if stream.is_legacy {
            inner.legacy(stream.context, false)?;
        }
        let recording = inner.captures.streams.get(&stream.key);
        let id = recording.ok_or(CUDA_ERROR_ILLEGAL_STATE)?.capture;
        let capture = &inner.captures.open[&id];
        if capture.origin != stream.key {
            inner.captures.invalidate(id);
            return Err(CUDA_ERROR_STREAM_CAPTURE_UNMATCHED);
        }
        let is_elsewhere =
            capture.mode != CU_STREAM_CAPTURE_MODE_RELAXED && capture.thread != this_thread();
        let mut outcome = Ok(());
        if !capture.is_valid {
            outcome = Err(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
        } else {
            let own = &inner.captures.streams[&stream.key].dependencies;
            let dropped = inner.captures.open[&id].dropped.iter().copied();
            let ends: Vec<u64> = own.iter().map(|(node, _)| *node).chain(dropped).collect();
            let joined = inner.ancestors(&ends);
            let others = inner.captures.streams.values();
            let of_others = others
                .filter(|of| of.capture == id)
                .flat_map(|of| of.dependencies.iter().map(|(node, _)| node));
            let mut all = of_others.chain(&inner.captures.open[&id].left);
            if !all.all(|node| joined.contains(node)) {
                inner.captures.invalidate(id);
                outcome = Err(CUDA_ERROR_STREAM_CAPTURE_UNJOINED);
            } else if is_elsewhere {
                inner.captures.invalidate(id);
                outcome = Err(CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD);
            }
        }
        let graph = inner.close(id);
        outcome?;
        graph.ok_or(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED)
    })
}

/// A stream's capture, as the API reports it.
#[derive(Debug, Clone, Copy)]
pub struct Info {
    /// `CUstreamCaptureStatus`.
    pub status: CUstreamCaptureStatus,
    /// The capture's number.
    pub id: u64,
    /// The graph.
    pub graph: u64,
    /// The handles of the next node's dependencies, and the edges. They are valid until the next call with the stream.
    pub dependencies: (*const u64, *const CUgraphEdgeData),
    /// The number of dependencies.
    pub count: usize,
    /// Whether one of the edges waits for a part of its node.
    pub is_partial: bool,
}

/// Returns whether a stream is captured, and the capture.
///
/// # Errors
///
/// `CUDA_ERROR_STREAM_CAPTURE_IMPLICIT` for a legacy stream that would wait for a captured stream.
pub fn info<G: Gpu>(stream: &Stream) -> Result<Info> {
    let nothing = Info {
        status: CU_STREAM_CAPTURE_STATUS_NONE,
        id: 0,
        graph: 0,
        dependencies: (std::ptr::null(), std::ptr::null()),
        count: 0,
        is_partial: false,
    };
    if !any::<G>() {
        return Ok(nothing);
    }
    G::store().with(|inner| {
        if stream.is_legacy {
            inner.legacy(stream.context, false)?;
            return Ok(nothing);
        }
        let Some(recording) = inner.captures.streams.get_mut(&stream.key) else {
            return Ok(nothing);
        };
        let id = recording.capture;
        let capture = &inner.captures.open[&id];
        if !capture.is_valid {
            return Ok(Info {
                status: CU_STREAM_CAPTURE_STATUS_INVALIDATED,
                id,
                ..nothing
            });
        }
        recording.shown = recording.dependencies.iter().copied().unzip_boxed();
        Ok(Info {
            status: CU_STREAM_CAPTURE_STATUS_ACTIVE,
            id,
            graph: capture.graph,
            dependencies: (recording.shown.0.as_ptr(), recording.shown.1.as_ptr()),
            count: recording.dependencies.len(),
            is_partial: recording.shown.1.iter().any(|edge| !edge.is_whole()),
        })
    })
}

/// Splits pairs into two boxed slices.
trait Unzip {
    fn unzip_boxed(self) -> (Box<[u64]>, Box<[CUgraphEdgeData]>);
}

impl<I: Iterator<Item = Edge>> Unzip for I {
    fn unzip_boxed(self) -> (Box<[u64]>, Box<[CUgraphEdgeData]>) {
        let (nodes, edges): (Vec<_>, Vec<_>) = self.unzip();
        (nodes.into_boxed_slice(), edges.into_boxed_slice())
    }
}

/// Sets the dependencies of a stream's next node, or adds to them.
///
/// # Errors
///
/// `CUDA_ERROR_ILLEGAL_STATE` if the stream is not captured; `CUDA_ERROR_INVALID_VALUE` for a node of another graph.
pub fn set_dependencies<G: Gpu>(stream: &Stream, edges: &[Edge], adds: bool) -> Result {
    G::store().with(|inner| {
        let capture = inner.recording(stream)?.ok_or(CUDA_ERROR_ILLEGAL_STATE)?;
        let graph = inner.captures.open[&capture].graph;
        for (node, _) in edges {
            if inner.node(*node)?.graph != graph {
                return Err(CUDA_ERROR_INVALID_VALUE);
            }
        }
        if adds {
            inner.join(stream.key, edges);
        } else if let Some(of) = inner.captures.streams.get_mut(&stream.key) {
            let before = std::mem::replace(&mut of.dependencies, edges.into());
            if let Some(capture) = inner.captures.open.get_mut(&capture)
                && capture.origin == stream.key
            {
                capture.dropped.extend(before.iter().map(|(node, _)| *node));
            }
        }
        Ok(())
    })
}
