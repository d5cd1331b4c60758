// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Stream capture.

use std::ffi::c_void;

use gpgpu_protocol::cuda::*;

use super::{edges, get, offer, required, set};
use crate::{Gpu, Result, abi::*, capture};

/// `cuStreamBeginCapture_v2`.
pub unsafe fn cuStreamBeginCapture_v2<G: Gpu, const PT: bool>(
    stream: CUstream,
    mode: CUstreamCaptureMode,
) -> Result {
    G::ready()?;
    capture::begin::<G>(&G::stream(stream, PT)?, mode, None)
}

/// `cuStreamBeginCapture`, of CUDA 10.0: global.
pub unsafe fn cuStreamBeginCapture<G: Gpu, const PT: bool>(stream: CUstream) -> Result {
    G::ready()?;
    capture::begin::<G>(&G::stream(stream, PT)?, CU_STREAM_CAPTURE_MODE_GLOBAL, None)
}

/// `cuStreamBeginCaptureToGraph`.
pub unsafe fn cuStreamBeginCaptureToGraph<G: Gpu, const PT: bool>(
    stream: CUstream,
    graph: CUgraph,
    dependencies: *const CUgraphNode,
    data: *const c_void,
    count: usize,
    mode: CUstreamCaptureMode,
) -> Result {
    G::ready()?;
    let stream = G::stream(stream, PT)?;
    // SAFETY: promised by the caller.
    let edges = unsafe { edges::<G>(dependencies, data.cast(), count) }?;
    capture::begin::<G>(&stream, mode, Some((graph as u64, edges)))
}

/// `cuStreamEndCapture`: on an error the graph is NULL. The pointer may be NULL, because a program may already have the
/// graph.
pub unsafe fn cuStreamEndCapture<G: Gpu, const PT: bool>(
    stream: CUstream,
    graph: *mut CUgraph,
) -> Result {
    G::ready()?;
    let tell = |handle| match graph.is_null() {
        true => Ok(()),
        // SAFETY: promised by the caller.
        false => unsafe { set(graph, handle) },
    };
    tell(std::ptr::null_mut())?;
    tell(capture::end::<G>(&G::stream(stream, PT)?)? as CUgraph)
}

/// `cuStreamIsCapturing`.
pub unsafe fn cuStreamIsCapturing<G: Gpu, const PT: bool>(
    stream: CUstream,
    status: *mut CUstreamCaptureStatus,
) -> Result {
    G::ready()?;
    required(status)?;
    let info = capture::info::<G>(&G::stream(stream, PT)?)?;
    // SAFETY: promised by the caller.
    unsafe { set(status, info.status) }
}

/// `cuStreamGetCaptureInfo_v3`.
pub unsafe fn cuStreamGetCaptureInfo_v3<G: Gpu, const PT: bool>(
    stream: CUstream,
    status: *mut CUstreamCaptureStatus,
    id: *mut u64,
    graph: *mut CUgraph,
    dependencies: *mut *const CUgraphNode,
    data: *mut *const c_void,
    count: *mut usize,
) -> Result {
    G::ready()?;
    required(status)?;
    let info = capture::info::<G>(&G::stream(stream, PT)?)?;
    // SAFETY: promised by the caller; the returned arrays live until the next call with the stream.
    unsafe {
        set(status, info.status)?;
        if info.status == CU_STREAM_CAPTURE_STATUS_NONE {
            return Ok(());
        }
        offer(id, info.id);
        if info.status == CU_STREAM_CAPTURE_STATUS_ACTIVE {
            if data.is_null() && !dependencies.is_null() && info.is_partial {
                return Err(CUDA_ERROR_LOSSY_QUERY);
            }
            offer(graph, info.graph as CUgraph);
            offer(dependencies, info.dependencies.0.cast());
            offer(data, info.dependencies.1.cast());
            offer(count, info.count);
        }
    }
    Ok(())
}

/// `cuStreamGetCaptureInfo_v2`.
pub unsafe fn cuStreamGetCaptureInfo_v2<G: Gpu, const PT: bool>(
    stream: CUstream,
    status: *mut CUstreamCaptureStatus,
    id: *mut u64,
    graph: *mut CUgraph,
    dependencies: *mut *const CUgraphNode,
    count: *mut usize,
) -> Result {
    let none = std::ptr::null_mut();
    // SAFETY: promised by the caller.
    unsafe {
        cuStreamGetCaptureInfo_v3::<G, PT>(stream, status, id, graph, dependencies, none, count)
    }
}

/// `cuStreamGetCaptureInfo`, of CUDA 10.1.
pub unsafe fn cuStreamGetCaptureInfo<G: Gpu, const PT: bool>(
    stream: CUstream,
    status: *mut CUstreamCaptureStatus,
    id: *mut u64,
) -> Result {
    let none = std::ptr::null_mut();
    // SAFETY: promised by the caller.
    unsafe {
        cuStreamGetCaptureInfo_v3::<G, PT>(
            stream,
            status,
            id,
            none,
            std::ptr::null_mut(),
            std::ptr::null_mut(),
            std::ptr::null_mut(),
        )
    }
}

/// `cuStreamUpdateCaptureDependencies_v2`.
pub unsafe fn cuStreamUpdateCaptureDependencies_v2<G: Gpu, const PT: bool>(
    stream: CUstream,
    dependencies: *mut CUgraphNode,
    data: *const c_void,
    count: usize,
    flags: u32,
) -> Result {
    G::ready()?;
    if flags > SET_CAPTURE_DEPENDENCIES {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    let stream = G::stream(stream, PT)?;
    // SAFETY: promised by the caller.
    let edges = unsafe { edges::<G>(dependencies, data.cast(), count) }?;
    capture::set_dependencies::<G>(&stream, &edges, flags == ADD_CAPTURE_DEPENDENCIES)
}

/// `cuStreamUpdateCaptureDependencies`.
pub unsafe fn cuStreamUpdateCaptureDependencies<G: Gpu, const PT: bool>(
    stream: CUstream,
    dependencies: *mut CUgraphNode,
    count: usize,
    flags: u32,
) -> Result {
    let none = std::ptr::null();
    // SAFETY: promised by the caller.
    unsafe {
        cuStreamUpdateCaptureDependencies_v2::<G, PT>(stream, dependencies, none, count, flags)
    }
}

/// `cuThreadExchangeStreamCaptureMode`.
pub unsafe fn cuThreadExchangeStreamCaptureMode<G: Gpu, const PT: bool>(
    mode: *mut CUstreamCaptureMode,
) -> Result {
    G::ready()?;
    // SAFETY: promised by the caller.
    unsafe {
        let before = capture::exchange_mode(get(mode)?);
        set(mode, before)
    }
}
