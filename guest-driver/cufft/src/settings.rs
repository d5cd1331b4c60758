// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Creation and destruction of plans, and the settings of their streams and work areas.

use std::ffi::c_void;

use gpgpu_library::{Status, forward};
use gpgpu_protocol::{
    cuda::CUstream,
    libraries::{Function, Library, cufft::status},
};

use crate::{enter, give, plan, plan::Number};

const VERSION: &Function = Library::Cufft.find("cufftGetVersion");
const PROPERTY: &Function = Library::Cufft.find("cufftGetProperty");

/// `cufftCreate`.
///
/// # Safety
///
/// `handle` is NULL or the caller's to write to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cufftCreate(handle: *mut Number) -> Status {
    enter(|| {
        if handle.is_null() {
            return Err(status::INVALID_VALUE);
        }
        // SAFETY: promised by the caller.
        unsafe { give(handle, plan::add()?) }
    })
}

/// `cufftDestroy`.
#[unsafe(no_mangle)]
pub extern "C" fn cufftDestroy(plan: Number) -> Status {
    enter(|| plan::end(plan))
}

/// `cufftSetStream`.
#[unsafe(no_mangle)]
pub extern "C" fn cufftSetStream(plan: Number, stream: CUstream) -> Status {
    enter(|| {
        let plan = plan::find(plan)?;
        plan.lock().set_stream(stream as u64)
    })
}

/// `cufftSetAutoAllocation`.
#[unsafe(no_mangle)]
pub extern "C" fn cufftSetAutoAllocation(plan: Number, autoAllocate: i32) -> Status {
    enter(|| {
        let plan = plan::find(plan)?;
        plan.lock().set_allocates(autoAllocate != 0)
    })
}

/// `cufftSetWorkArea`.
#[unsafe(no_mangle)]
pub extern "C" fn cufftSetWorkArea(plan: Number, workArea: *mut c_void) -> Status {
    enter(|| {
        let plan = plan::find(plan)?;
        plan.lock().set_area(workArea as u64)
    })
}

/// `cufftXtSetWorkArea`: the work areas of the plan's GPUs. There is only one GPU.
///
/// # Safety
///
/// `workArea` is NULL or points to one address.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cufftXtSetWorkArea(plan: Number, workArea: *mut *mut c_void) -> Status {
    enter(|| {
        let plan = plan::find(plan)?;
        if workArea.is_null() {
            return Err(status::INVALID_VALUE);
        }
        // SAFETY: promised by the caller, and not NULL.
        let area = unsafe { workArea.read() };
        plan.lock().set_area(area as u64)
    })
}

/// `cufftXtSetGPUs`: the current GPU is the plan's in any case.
///
/// # Safety
///
/// `whichGPUs` is NULL or points to as many numbers as `nGPUs` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cufftXtSetGPUs(plan: Number, nGPUs: i32, whichGPUs: *mut i32) -> Status {
    enter(|| {
        plan::find(plan)?;
        match nGPUs {
            _ if whichGPUs.is_null() => Err(status::INVALID_VALUE),
            ..=0 => Err(status::INVALID_VALUE),
            1 => Ok(()),
            _ => {
                let why = "is not supported for more than one GPU";
                gpgpu_client::log::refuse("cufftXtSetGPUs", why);
                Err(status::NOT_SUPPORTED)
            }
        }
    })
}

/// `cufftGetVersion`.
///
/// # Safety
///
/// `version` is NULL or the caller's to write to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cufftGetVersion(version: *mut i32) -> Status {
    enter(|| {
        if version.is_null() {
            return Err(status::INVALID_VALUE);
        }
        forward::send(VERSION, &[version as u64])
    })
}

/// `cufftGetProperty`.
///
/// # Safety
///
/// `value` is NULL or the caller's to write to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cufftGetProperty(property: i32, value: *mut i32) -> Status {
    enter(|| {
        if value.is_null() {
            return Err(status::INVALID_VALUE);
        }
        forward::send(PROPERTY, &[property as u64, value as u64])
    })
}
