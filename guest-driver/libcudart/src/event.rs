// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Events.

use crate::abi::*;
use crate::context::current;
use crate::error;
use gpgpu_protocol::cuda::*;
use std::ffi::c_uint;

export! {
    fn cudaEventCreate(event: *mut cudaEvent_t) {
        current()?.cuEventCreate(event, CU_EVENT_DEFAULT)
    }

    fn cudaEventDestroy(event: cudaEvent_t) {
        let driver = current()?;
        if event.is_null() {
            return Err(error::INVALID_RESOURCE_HANDLE);
        }
        driver.cuEventDestroy(event)
    }

    fn cudaEventElapsedTime(milliseconds: *mut f32, start: cudaEvent_t, end: cudaEvent_t) {
        let driver = current()?;
        wanted(milliseconds)?;
        driver.cuEventElapsedTime(milliseconds, start, end)
    }

    fn cudaEventElapsedTime_v2(milliseconds: *mut f32, start: cudaEvent_t, end: cudaEvent_t) {
        let driver = current()?;
        wanted(milliseconds)?;
        driver.cuEventElapsedTime(milliseconds, start, end)
    }

    pass fn cudaEventCreateWithFlags(event: *mut cudaEvent_t, flags: c_uint) => cuEventCreate;
    pass fn cudaEventQuery(event: cudaEvent_t) => cuEventQuery;
    pass fn cudaEventSynchronize(event: cudaEvent_t) => cuEventSynchronize;
    pass fn(stream) cudaEventRecord, cudaEventRecord_ptsz(event: cudaEvent_t, stream: cudaStream_t) => cuEventRecord;
    pass fn(stream) cudaEventRecordWithFlags, cudaEventRecordWithFlags_ptsz(event: cudaEvent_t, stream: cudaStream_t, flags: c_uint) => cuEventRecordWithFlags;
}

/// The runtime checks the pointer for the result before the events; the driver checks it after them.
fn wanted(milliseconds: *mut f32) -> error::Result<()> {
    if milliseconds.is_null() {
        Err(error::INVALID_VALUE)
    } else {
        Ok(())
    }
}
