// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Device memory for a guest's library itself, and work that the program does not see. The memory is allocated by
//! libcuda, so it counts like the program's own.

use std::ffi::c_void;

use gpgpu_protocol::{cuda::*, libraries::Library};

use crate::{Status, forward::context};

crate::driver_functions! {
    /// The functions of libcuda that this module uses.
    struct Driver {
        allocate = cuMemAlloc_v2;
        free = cuMemFree_v2;
        allocate_in_order = cuMemAllocAsync;
        free_in_order = cuMemFreeAsync;
        copy_out = cuMemcpyDtoHAsync_v2;
        current = cuCtxGetCurrent;
        push = cuCtxPushCurrent_v2;
        pop = cuCtxPopCurrent_v2;
        exchange_mode = cuThreadExchangeStreamCaptureMode;
        new_stream = cuStreamCreate;
        end_stream = cuStreamDestroy_v2;
        wait = cuStreamSynchronize;
    }
}

fn check(library: Library, code: CUresult) -> Result<(), Status> {
    match code {
        CUDA_SUCCESS => Ok(()),
        code => Err(library.statuses().of_code(code)),
    }
}

/// A context and a stream for work that the program does not see: the thread's current context does not matter, no
/// other stream's work is waited for, and no capture forbids it.
#[derive(Debug, Clone, Copy)]
pub struct Aside {
    library: Library,
    context: usize,
    stream: usize,
}

impl Aside {
    /// Makes a stream in the current context; makes a context if there is none.
    ///
    /// # Errors
    ///
    /// The status for libcuda's code.
    pub fn new(library: Library) -> Result<Self, Status> {
        context(library)?;
        let driver = Driver::find(library)?;
        let mut current: CUcontext = std::ptr::null_mut();
        // SAFETY: the pointer is to a value that lives across the call.
        check(library, unsafe { (driver.current)(&mut current) })?;
        let mut new = Self {
            library,
            context: current as usize,
            stream: 0,
        };
        let mut stream: CUstream = std::ptr::null_mut();
        new.within(|driver| {
            // SAFETY: as above.
            check(library, unsafe {
                (driver.new_stream)(&mut stream, CU_STREAM_NON_BLOCKING)
            })
        })?;
        new.stream = stream as usize;
        Ok(new)
    }

    /// The stream.
    pub fn stream(&self) -> CUstream {
        self.stream as CUstream
    }

    /// Runs `body` in the context, with a thread that captures no work.
    fn within<T>(&self, body: impl FnOnce(&Driver) -> Result<T, Status>) -> Result<T, Status> {
        let driver = Driver::find(self.library)?;
        // SAFETY: libcuda looks the handle up; a context that has ended is an error.
        check(self.library, unsafe {
            (driver.push)(self.context as CUcontext)
        })?;
        let mut mode = CU_STREAM_CAPTURE_MODE_RELAXED;
        // SAFETY: the pointer is to a value that lives across the call. It has the thread's mode then.
        let exchanged = check(self.library, unsafe { (driver.exchange_mode)(&mut mode) });
        let done = exchanged.and_then(|()| {
            let done = body(driver);
            // SAFETY: as above.
            let _ = unsafe { (driver.exchange_mode)(&mut mode) };
            done
        });
        let mut popped: CUcontext = std::ptr::null_mut();
        // SAFETY: as above.
        let _ = unsafe { (driver.pop)(&mut popped) };
        done
    }

    /// Has `give` write so many bytes to the device address that it gets, by work in the stream, and copies them to the
    /// program's memory.
    ///
    /// # Errors
    ///
    /// The errors of `give`; the status for libcuda's code.
    ///
    /// # Safety
    ///
    /// There is room for this number of bytes.
    pub unsafe fn fetch(
        &self,
        to: *mut c_void,
        bytes: u64,
        give: impl FnOnce(u64) -> Result<(), Status>,
    ) -> Result<(), Status> {
        let (library, stream) = (self.library, self.stream());
        self.within(|driver| {
            let mut memory = 0;
            // SAFETY: the pointer is to a value that lives across the call.
            check(library, unsafe {
                (driver.allocate_in_order)(&mut memory, bytes as usize, stream)
            })?;
            let done = give(memory).and_then(|()| {
                // SAFETY: promised by the caller. The stream's work is over before the room ends.
                let (copied, waited) = unsafe {
                    let copied = (driver.copy_out)(to, memory, bytes as usize, stream);
                    (copied, (driver.wait)(stream))
                };
                check(library, copied).and(check(library, waited))
            });
            // SAFETY: the memory is this one's, and it is freed once.
            let _ = unsafe { (driver.free_in_order)(memory, stream) };
            done
        })
    }

    /// Destroys the stream.
    pub fn end(self) {
        let _ = self.within(|driver| {
            // SAFETY: the stream is this one's, and it is destroyed once.
            check(self.library, unsafe { (driver.end_stream)(self.stream()) })
        });
    }
}

/// Memory in the context that was current. It is freed explicitly, not when it is dropped: the memory is lost with its
/// context, and its address may be reused.
#[derive(Debug)]
pub struct DeviceMemory {
    library: Library,
    address: u64,
}

impl DeviceMemory {
    /// Allocates this number of bytes, or one byte for 0.
    ///
    /// # Errors
    ///
    /// The status for libcuda's code.
    pub fn allocate(library: Library, bytes: u64) -> Result<Self, Status> {
        context(library)?;
        let mut address = 0;
        // SAFETY: the pointer is to a value that lives across the call.
        check(library, unsafe {
            (Driver::find(library)?.allocate)(&mut address, bytes as usize)
        })?;
        Ok(Self { library, address })
    }

    /// The address.
    pub fn address(&self) -> u64 {
        self.address
    }

    /// Frees the memory.
    pub fn free(self) {
        if let Ok(driver) = Driver::find(self.library) {
            // The code is ignored: a later call of the program reports the same error. SAFETY: the memory is this
            // one's, and it is freed once.
            let _ = unsafe { (driver.free)(self.address) };
        }
    }
}
