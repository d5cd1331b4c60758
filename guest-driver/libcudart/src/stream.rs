// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Streams, stream capture, and functions that streams call on the host.

use crate::abi::*;
use crate::context::current;
use crate::error;
use gpgpu_protocol::cuda::*;
use std::ffi::{c_int, c_uint, c_void};
use std::ptr::{null_mut, without_provenance_mut};

/// The meaning of NULL as a stream: programs compiled with `--default-stream per-thread` call the functions of the
/// second kind (`_ptsz`, `_ptds`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DefaultStream {
    Legacy,
    PerThread,
}

impl DefaultStream {
    /// The driver's handle for `stream`.
    pub fn of(self, stream: cudaStream_t) -> CUstream {
        match self {
            Self::PerThread if stream.is_null() => without_provenance_mut(CU_STREAM_PER_THREAD),
            _ => stream,
        }
    }
}

/// `cudaHostTaskSpinWait`, the highest mode of a host call; 0 is `cudaHostTaskBlocking`.
const SPIN_WAIT: c_uint = 1;

export! {
    fn cudaStreamCreate(stream: *mut cudaStream_t) {
        current()?.cuStreamCreate(stream, CU_STREAM_DEFAULT)
    }

    pass fn cudaStreamCreateWithFlags(stream: *mut cudaStream_t, flags: c_uint) => cuStreamCreate;
    pass fn cudaStreamCreateWithPriority(stream: *mut cudaStream_t, flags: c_uint, priority: c_int) => cuStreamCreateWithPriority;

    fn cudaStreamDestroy(stream: cudaStream_t) {
        let driver = current()?;
        if stream.addr() <= CU_STREAM_PER_THREAD {
            return Err(error::INVALID_RESOURCE_HANDLE);
        }
        driver.cuStreamDestroy(stream)
    }

    pass fn(stream) cudaStreamQuery, cudaStreamQuery_ptsz(stream: cudaStream_t) => cuStreamQuery;
    pass fn(stream) cudaStreamSynchronize, cudaStreamSynchronize_ptsz(stream: cudaStream_t) => cuStreamSynchronize;
    pass fn(stream) cudaStreamWaitEvent, cudaStreamWaitEvent_ptsz(stream: cudaStream_t, event: cudaEvent_t, flags: c_uint) => cuStreamWaitEvent;
    // A cudaError_t and a CUresult have the same numbers, so the callback needs no wrapper.
    pass fn(stream) cudaStreamAddCallback, cudaStreamAddCallback_ptsz(stream: cudaStream_t, callback: CUstreamCallback, data: *mut c_void, flags: c_uint) => cuStreamAddCallback;
    pass fn(stream) cudaLaunchHostFunc, cudaLaunchHostFunc_ptsz(stream: cudaStream_t, function: CUhostFn, data: *mut c_void) => cuLaunchHostFunc;
    // The mode says how the thread that makes the calls waits for the next one. A driver before 13.2 has only one way
    // to wait; the function's result is the same.
    fn(ds) cudaLaunchHostFunc_v2, cudaLaunchHostFunc_v2_ptsz(stream: cudaStream_t, function: CUhostFn, data: *mut c_void, mode: c_uint) {
        let driver = current()?;
        if mode > SPIN_WAIT {
            return Err(error::INVALID_VALUE);
        }
        let stream = ds.of(stream);
        match driver.cuLaunchHostFuncIn(stream, function, data, mode) {
            Err(error::NOT_SUPPORTED) => driver.cuLaunchHostFunc(stream, function, data),
            result => result,
        }
    }

    pass fn(stream) cudaStreamGetFlags, cudaStreamGetFlags_ptsz(stream: cudaStream_t, flags: *mut c_uint) => cuStreamGetFlags;
    pass fn(stream) cudaStreamGetPriority, cudaStreamGetPriority_ptsz(stream: cudaStream_t, priority: *mut c_int) => cuStreamGetPriority;
    pass fn(stream) cudaStreamGetId, cudaStreamGetId_ptsz(stream: cudaStream_t, id: *mut u64) => cuStreamGetId;
    pass fn(stream) cudaStreamGetAttribute, cudaStreamGetAttribute_ptsz(stream: cudaStream_t, attribute: c_uint, value: *mut c_void) => cuStreamGetAttribute;
    pass fn(stream) cudaStreamSetAttribute, cudaStreamSetAttribute_ptsz(stream: cudaStream_t, attribute: c_uint, value: *const c_void) => cuStreamSetAttribute;

    fn(ds) cudaStreamGetDevice, cudaStreamGetDevice_ptsz(stream: cudaStream_t, device: *mut c_int) {
        let (driver, of_context) = crate::context::current_device()?;
        if device.is_null() {
            return Err(error::INVALID_VALUE);
        }
        match driver.cuStreamGetDevice(ds.of(stream), device) {
            // Drivers before 12.8 have no such query; the default streams are the context's.
            Err(error::NOT_SUPPORTED) if stream.addr() <= CU_STREAM_PER_THREAD => {
                device.write(of_context);
                Ok(())
            }
            result => result,
        }
    }

    fn(ds) cudaStreamCopyAttributes, cudaStreamCopyAttributes_ptsz(to: cudaStream_t, from: cudaStream_t) {
        current()?.cuStreamCopyAttributes(ds.of(to), ds.of(from))
    }

    pass fn(stream) cudaStreamBeginCapture, cudaStreamBeginCapture_ptsz(stream: cudaStream_t, mode: c_uint) => cuStreamBeginCapture;
    pass fn(stream) cudaStreamBeginCaptureToGraph, cudaStreamBeginCaptureToGraph_ptsz(stream: cudaStream_t, graph: cudaGraph_t, dependencies: *const cudaGraphNode_t, data: *const c_void, count: usize, mode: c_uint) => cuStreamBeginCaptureToGraph;
    pass fn(stream) cudaStreamEndCapture, cudaStreamEndCapture_ptsz(stream: cudaStream_t, graph: *mut cudaGraph_t) => cuStreamEndCapture;
    pass fn(stream) cudaStreamIsCapturing, cudaStreamIsCapturing_ptsz(stream: cudaStream_t, status: *mut c_uint) => cuStreamIsCapturing;
    pass fn cudaThreadExchangeStreamCaptureMode(mode: *mut c_uint) => cuThreadExchangeStreamCaptureMode;
    pass fn(stream) cudart13_cudaStreamGetCaptureInfo, cudart13_cudaStreamGetCaptureInfo_ptsz(stream: cudaStream_t, status: *mut c_uint, id: *mut u64, graph: *mut cudaGraph_t, dependencies: *mut *const cudaGraphNode_t, edges: *mut *const c_void, count: *mut usize) => cuStreamGetCaptureInfo3;
    pass fn(stream) cudaStreamGetCaptureInfo_v3, cudaStreamGetCaptureInfo_v3_ptsz(stream: cudaStream_t, status: *mut c_uint, id: *mut u64, graph: *mut cudaGraph_t, dependencies: *mut *const cudaGraphNode_t, edges: *mut *const c_void, count: *mut usize) => cuStreamGetCaptureInfo3;
    pass fn(stream) cudaStreamGetCaptureInfo_v2, cudaStreamGetCaptureInfo_v2_ptsz(stream: cudaStream_t, status: *mut c_uint, id: *mut u64, graph: *mut cudaGraph_t, dependencies: *mut *const cudaGraphNode_t, count: *mut usize) => cuStreamGetCaptureInfo2;

    fn(ds) cudart12_cudaStreamGetCaptureInfo, cudart12_cudaStreamGetCaptureInfo_ptsz(stream: cudaStream_t, status: *mut c_uint, id: *mut u64) {
        current()?.cuStreamGetCaptureInfo2(ds.of(stream), status, id, null_mut(), null_mut(), null_mut())
    }

    pass fn(stream) cudart13_cudaStreamUpdateCaptureDependencies, cudart13_cudaStreamUpdateCaptureDependencies_ptsz(stream: cudaStream_t, dependencies: *mut cudaGraphNode_t, data: *const c_void, count: usize, flags: c_uint) => cuStreamUpdateCaptureDependencies2;
    pass fn(stream) cudaStreamUpdateCaptureDependencies_v2, cudaStreamUpdateCaptureDependencies_v2_ptsz(stream: cudaStream_t, dependencies: *mut cudaGraphNode_t, data: *const c_void, count: usize, flags: c_uint) => cuStreamUpdateCaptureDependencies2;
    pass fn(stream) cudart12_cudaStreamUpdateCaptureDependencies, cudart12_cudaStreamUpdateCaptureDependencies_ptsz(stream: cudaStream_t, dependencies: *mut cudaGraphNode_t, count: usize, flags: c_uint) => cuStreamUpdateCaptureDependencies;
}
