// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Signals of external semaphores, and waits for them, in streams.

use crate::abi::*;
use crate::context::current;
use std::ffi::{c_uint, c_void};
use std::mem::offset_of;

/// `cudaExternalSemaphoreSignalParams_v1`, of CUDA 10.
#[repr(C)]
#[derive(Clone, Copy)]
struct OldSignal {
    value: u64,
    fence: u64,
    key: u64,
    flags: c_uint,
}

/// `cudaExternalSemaphoreWaitParams_v1`, of CUDA 10.
#[repr(C)]
#[derive(Clone, Copy)]
struct OldWait {
    value: u64,
    fence: u64,
    key: u64,
    timeout: c_uint,
    padding: c_uint,
    flags: c_uint,
}

/// `CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS`. Parameters of signals are the same without a timeout.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Native {
    value: u64,
    fence: u64,
    key: u64,
    timeout: c_uint,
    reserved0: [c_uint; 11],
    flags: c_uint,
    reserved1: [c_uint; 16],
}

const _: () = {
    assert!(size_of::<OldSignal>() == 32 && size_of::<OldWait>() == 40);
    assert!(size_of::<Native>() == 144 && offset_of!(Native, flags) == 72);
};

impl From<OldSignal> for Native {
    fn from(old: OldSignal) -> Self {
        Self {
            value: old.value,
            fence: old.fence,
            key: old.key,
            flags: old.flags,
            ..Self::default()
        }
    }
}

impl From<OldWait> for Native {
    fn from(old: OldWait) -> Self {
        Self {
            value: old.value,
            fence: old.fence,
            key: old.key,
            timeout: old.timeout,
            flags: old.flags,
            ..Self::default()
        }
    }
}

/// The driver's form of CUDA 10's parameters, one entry for each semaphore. `None` for NULL, which the driver refuses.
///
/// # Safety
/// `parameters` is NULL, or readable for `count` entries.
unsafe fn widen<Old: Copy + Into<Native>>(
    parameters: *const Old,
    count: c_uint,
) -> Option<Vec<Native>> {
    if parameters.is_null() {
        return None;
    }
    // SAFETY: promised by the caller.
    let entry = |index| unsafe { parameters.add(index).read() }.into();
    Some((0..count as usize).map(entry).collect())
}

/// The address of an array, as the driver takes it.
fn array(parameters: &Option<Vec<Native>>) -> *const c_void {
    parameters
        .as_ref()
        .map_or(std::ptr::null(), |all| all.as_ptr().cast())
}

type Semaphores = *const *mut c_void;

export! {
    pass fn(stream) cudart13_cudaSignalExternalSemaphoresAsync, cudart13_cudaSignalExternalSemaphoresAsync_ptsz(semaphores: Semaphores, parameters: *const c_void, count: c_uint, stream: cudaStream_t) => cuSignalExternalSemaphoresAsync;
    pass fn(stream) cudart13_cudaWaitExternalSemaphoresAsync, cudart13_cudaWaitExternalSemaphoresAsync_ptsz(semaphores: Semaphores, parameters: *const c_void, count: c_uint, stream: cudaStream_t) => cuWaitExternalSemaphoresAsync;
    pass fn(stream) cudaSignalExternalSemaphoresAsync_v2, cudaSignalExternalSemaphoresAsync_v2_ptsz(semaphores: Semaphores, parameters: *const c_void, count: c_uint, stream: cudaStream_t) => cuSignalExternalSemaphoresAsync;
    pass fn(stream) cudaWaitExternalSemaphoresAsync_v2, cudaWaitExternalSemaphoresAsync_v2_ptsz(semaphores: Semaphores, parameters: *const c_void, count: c_uint, stream: cudaStream_t) => cuWaitExternalSemaphoresAsync;

    fn(ds) cudart12_cudaSignalExternalSemaphoresAsync, cudart12_cudaSignalExternalSemaphoresAsync_ptsz(semaphores: Semaphores, parameters: *const OldSignal, count: c_uint, stream: cudaStream_t) {
        let parameters = widen(parameters, count);
        current()?.cuSignalExternalSemaphoresAsync(semaphores, array(&parameters), count, ds.of(stream))
    }

    fn(ds) cudart12_cudaWaitExternalSemaphoresAsync, cudart12_cudaWaitExternalSemaphoresAsync_ptsz(semaphores: Semaphores, parameters: *const OldWait, count: c_uint, stream: cudaStream_t) {
        let parameters = widen(parameters, count);
        current()?.cuWaitExternalSemaphoresAsync(semaphores, array(&parameters), count, ds.of(stream))
    }
}
