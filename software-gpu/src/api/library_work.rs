//! What libraries for this device use beside the driver API, such as the stand-in for cuBLAS (`software-gpu/cublas`): they
//! compute on the CPU, in the order of a stream, on the bytes behind device addresses. Programs have no use for it.

use std::ffi::{c_int, c_void};

use gpgpu_protocol::cuda::{
    CUDA_ERROR_ILLEGAL_ADDRESS, CUDA_ERROR_INVALID_VALUE, CUDA_SUCCESS, CUcontext, CUdeviceptr,
    CUresult, CUstream,
};

use crate::border::{self, Pointer, as_callback};
use crate::context;
use crate::driver;
use crate::stream::Null;

/// Work of a library's. It is called once, with its data and `CUDA_SUCCESS` or the fault after which it is only to drop its data.
/// An error that it answers is a fault.
pub type LibraryWork = unsafe extern "C" fn(data: *mut c_void, fault: CUresult) -> CUresult;

struct Call(LibraryWork, *mut c_void);

// SAFETY: the library hands its data over with the call; the driver only passes it on.
unsafe impl Send for Call {}

impl Call {
    fn run(self, fault: CUresult) {
        let mut code = CUDA_SUCCESS;
        // SAFETY: the library's function with the library's data, once, as it asked.
        as_callback(|| code = unsafe { (self.0)(self.1, fault) });
        if code != CUDA_SUCCESS
            && let Ok(driver) = driver::get()
        {
            driver.fail(code);
        }
    }
}

/// Queues work in a stream of the context, NULL being its legacy stream. With `wait` it returns when the work has ended,
/// with the fault if there was one. The data is the work's if the answer is success or a fault of work that was queued.
///
/// # Safety
///
/// Pointers are NULL or valid for what the function reads or writes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn softwareGpuQueue(
    context: CUcontext,
    stream: CUstream,
    work: Option<LibraryWork>,
    data: *mut c_void,
    queued: Pointer<c_int>,
    wait: c_int,
) -> CUresult {
    border::healthy(|_| {
        let work = work.ok_or(CUDA_ERROR_INVALID_VALUE)?;
        let cx = context::named(context as u64)?;
        let stream = cx.own_stream(stream, Null::Legacy)?;
        let call = Call(work, data);
        let ticket = context::queue_always(&stream, move |fault| call.run(fault))?;
        queued.set_if(1);
        if wait != 0 {
            context::wait_for(&ticket)?;
        }
        Ok(())
    })
}

/// Where the CPU finds `size` bytes at a device address, to be read or written. It is for work that runs in a stream, and
/// the pointer is good until that work ends. `CUDA_ERROR_ILLEGAL_ADDRESS` if the device may not reach all of them.
///
/// # Safety
///
/// Pointers are NULL or valid for what the function reads or writes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn softwareGpuBytes(
    out: Pointer<*mut c_void>,
    address: CUdeviceptr,
    size: usize,
    write: c_int,
) -> CUresult {
    border::initialised(|driver| {
        let bytes = driver.memory.host_pointer(address, size as u64, write != 0);
        out.set(bytes.ok_or(CUDA_ERROR_ILLEGAL_ADDRESS)?.cast())
    })
}
