// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Functions besides the driver API for this device's libraries, such as the stand-in for cuBLAS
//! (`software-gpu/cublas`). They compute on the CPU, in a stream's order, on the bytes behind device addresses.
//! Programs do not use them.

use std::ffi::{c_int, c_void};
use std::sync::Arc;

use gpgpu_graphs::node::Work;
use gpgpu_protocol::cuda::{
    CUDA_ERROR_ILLEGAL_ADDRESS, CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_UNKNOWN, CUDA_SUCCESS,
    CUcontext, CUdeviceptr, CUresult, CUstream,
};

use crate::context;
use crate::driver;
use crate::ffi::{self, Pointer, Result, as_callback};
use crate::graph;
use crate::observe::{self, Seen};
use crate::stream::Null;

/// Work of a library, with a copy of its data. It is called with its data and `CUDA_SUCCESS`, or with the fault that
/// prevents it, each time it is executed: once, or by each launch of the graph that contains it. After the last call,
/// which may follow a fault, the library owns the data again. An error that it returns is a fault.
pub type LibraryWork =
    unsafe extern "C" fn(data: *mut c_void, fault: CUresult, is_last: c_int) -> CUresult;

struct Call(LibraryWork, *mut c_void);

// SAFETY: the library hands its data over with the call; the driver only passes it on.
unsafe impl Send for Call {}
// SAFETY: the library's function may be called with one data by several threads at once.
unsafe impl Sync for Call {}

impl Call {
    fn call(&self, fault: CUresult, is_last: bool) -> Result {
        let mut code = CUDA_SUCCESS;
        // SAFETY: the library's function with the library's data, as it asked.
        as_callback(|| code = unsafe { (self.0)(self.1, fault, is_last.into()) });
        match code {
            CUDA_SUCCESS => Ok(()),
            code => Err(code),
        }
    }

    fn run(self, fault: CUresult) {
        let done = self.call(fault, true);
        if let Err(code) = done
            && let Ok(driver) = driver::get()
        {
            driver.fail(code);
        }
    }
}

/// Work that graphs have.
struct Recorded(Call);

impl Drop for Recorded {
    fn drop(&mut self) {
        let _ = self.0.call(CUDA_ERROR_UNKNOWN, true);
    }
}

/// Queues work in a stream of the context (NULL is its legacy stream), or records it if the stream is captured. With
/// `wait` it returns when the work has ended, with the fault if there was one; that is not permitted for a captured
/// stream. An observer takes the call for a launch of a kernel. The driver owns the data if `queued` is set.
///
/// # Safety
///
/// Pointers are NULL or valid for the function's accesses.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn softwareGpuQueue(
    context: CUcontext,
    stream: CUstream,
    work: Option<LibraryWork>,
    data: *mut c_void,
    queued: Pointer<c_int>,
    wait: c_int,
) -> CUresult {
    observe::call(observe::name!(cuLaunchKernel), || {
        ffi::healthy(|_| {
            let work = work.ok_or(CUDA_ERROR_INVALID_VALUE)?;
            let cx = context::named(context as u64)?;
            let stream = cx.own_stream(stream, Null::Legacy)?;
            let call = Call(work, data);
            if wait != 0 {
                graph::refuse(&stream)?;
            } else if graph::records(&stream)? {
                queued.set_if(1);
                let recorded = Recorded(call);
                let own = graph::Own(Arc::new(move || recorded.0.call(CUDA_SUCCESS, false)));
                graph::record(&stream, || Ok(Work::Own(Arc::new(own))))?;
                return Ok(());
            }
            let seen = Seen::queued(&stream);
            let ticket =
                context::queue_always(&stream, move |fault| seen.library(|| call.run(fault)))?;
            queued.set_if(1);
            if wait != 0 {
                context::wait_for(cx.id, &ticket)?;
            }
            Ok(())
        })
    })
}

/// Returns the CPU's address of `size` bytes at a device address, to be read or written. Work that runs in a stream
/// calls this, and the pointer is valid until the work ends. `CUDA_ERROR_ILLEGAL_ADDRESS` if the device cannot access
/// all of the bytes.
///
/// # Safety
///
/// Pointers are NULL or valid for the function's accesses.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn softwareGpuBytes(
    out: Pointer<*mut c_void>,
    address: CUdeviceptr,
    size: usize,
    write: c_int,
) -> CUresult {
    ffi::initialised(|driver| {
        let bytes = driver.memory.host_pointer(address, size as u64, write != 0);
        out.set(bytes.ok_or(CUDA_ERROR_ILLEGAL_ADDRESS)?.cast())
    })
}
