// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! What the profiler asks of libcuda and of the host.

use std::{ffi::c_char, sync::OnceLock};

use gpgpu_client::{ffi::Result, sister::Sister};
use gpgpu_protocol::{
    api::{Request, TracedWork, request},
    cuda::CUDA_ERROR_NOT_SUPPORTED,
};

use crate::{libcuda, observer::OBSERVER, streams::Numbers};

/// Records that the host gives at once.
#[derive(Debug, Clone, Default)]
pub struct Taken {
    /// The records.
    pub works: Vec<TracedWork>,
    /// Names of kernels that no earlier answer had.
    pub names: Vec<String>,
    /// How many records the host has lost so far.
    pub dropped: u64,
    /// Whether there are more records.
    pub more: bool,
}

/// libcuda and the host.
pub trait Host: Sync {
    /// Sets whether calls of the program are observed, and whether their commands carry their numbers
    /// ([`gpgpu_trace::CALLS`]). Returns whether libcuda is this project's.
    fn observe(&self, active: u32) -> bool;

    /// Whether the host serves CUPTI, as far as known.
    fn serves(&self) -> bool;

    /// The current context's handle, or 0.
    fn context(&self) -> u64;

    /// Runs a function while a context is the current one; returns whether it was run.
    fn within(&self, context: u64, body: &mut dyn FnMut()) -> bool;

    /// Makes the host trace these kinds of work in the current context.
    fn trace(&self, kinds: u32) -> Result;

    /// The host's time.
    fn now(&self) -> Result<u64>;

    /// The id of a stream, by its handle, in the current context.
    fn stream(&self, handle: u64) -> Result<u64>;

    /// The numbers of a stream, by its id, in the current context.
    fn numbers(&self, stream: u64) -> Result<Numbers>;

    /// The name of a function or kernel, by its handle, or NULL.
    fn kernel_name(&self, function: u64) -> *const c_char;

    /// Takes records.
    fn take(&self, flush: bool) -> Result<Taken>;
}

/// The host of this process.
#[derive(Debug)]
pub struct Process;

/// libcuda's connection, once the process has loaded libcuda.
fn sister() -> Result<Sister> {
    static FOUND: OnceLock<Sister> = OnceLock::new();
    if let Some(found) = FOUND.get() {
        return Ok(*found);
    }
    let found = Sister::loaded().ok_or(CUDA_ERROR_NOT_SUPPORTED)?;
    Ok(*FOUND.get_or_init(|| found))
}

impl Host for Process {
    fn observe(&self, active: u32) -> bool {
        let Some(trace) = libcuda::trace() else {
            return false;
        };
        // SAFETY: the observer is a static, and this library stays loaded.
        unsafe { (trace.observe)(&OBSERVER, active) };
        true
    }

    fn serves(&self) -> bool {
        // Before the process has initialised CUDA, the host is unknown.
        let has = sister().and_then(|sister| sister.has(request::gpgpuTraceWork::OP));
        has.unwrap_or(true)
    }

    fn context(&self) -> u64 {
        libcuda::current_context()
    }

    fn within(&self, context: u64, body: &mut dyn FnMut()) -> bool {
        libcuda::within(context, body)
    }

    fn trace(&self, kinds: u32) -> Result {
        let version = true;
        sister()?.ask(&request::gpgpuTraceWork { kinds, version })?;
        Ok(())
    }

    fn now(&self) -> Result<u64> {
        Ok(sister()?.ask(&request::gpgpuTraceClock { now: true })?.now)
    }

    fn stream(&self, handle: u64) -> Result<u64> {
        sister()?.stream(handle)
    }

    fn numbers(&self, stream: u64) -> Result<Numbers> {
        let sister = sister()?;
        if !sister.has(request::gpgpuTraceNumbers::OP)? {
            return Err(CUDA_ERROR_NOT_SUPPORTED);
        }
        let reply = sister.ask(&request::gpgpuTraceNumbers {
            hStream: stream,
            context: true,
            stream: true,
        })?;
        Ok(Numbers {
            context: reply.context,
            stream: reply.stream,
        })
    }

    fn kernel_name(&self, function: u64) -> *const c_char {
        libcuda::kernel_name(function)
    }

    fn take(&self, flush: bool) -> Result<Taken> {
        let reply = sister()?.ask(&request::gpgpuTraceTake {
            flush: u32::from(flush),
            works: true,
            names: true,
            dropped: true,
            more: true,
        })?;
        Ok(Taken {
            works: reply.works,
            names: reply.names,
            dropped: reply.dropped,
            more: reply.more != 0,
        })
    }
}
