// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The functions that describe a plan's transform, and those that execute it. Each has a row in the table.

// cuFFT's functions have this many arguments.
#![allow(clippy::too_many_arguments)]

use std::ffi::c_void;

use gpgpu_library::{Status, forward};
use gpgpu_protocol::libraries::{Function, Library, cufft::status};

use crate::{enter, give, plan, plan::Number};

const GET_SIZE: &Function = Library::Cufft.find("cufftGetSize");
const SET_POLICY: &Function = Library::Cufft.find("cufftXtSetWorkAreaPolicy");

/// Makes a plan's transform, and returns the size of its work area if the program asks for it.
///
/// # Safety
///
/// `size` is NULL or writable; the words are those of the function.
unsafe fn make(
    number: Number,
    function: &'static Function,
    words: impl FnOnce(u64, u64) -> Vec<u64>,
    size: *mut usize,
) -> Result<(), Status> {
    let plan = plan::find(number)?;
    let mut plan = plan.lock();
    if plan.made().is_ok() {
        return Err(status::INVALID_PLAN);
    }
    let id = plan.object()?;
    let mut bytes = 0_u64;
    forward::send(function, &words(id, &raw mut bytes as u64))?;
    plan.make(bytes)?;
    if !size.is_null() {
        // SAFETY: promised by the caller, and not NULL.
        unsafe { give(size, bytes as usize) }?;
    }
    Ok(())
}

/// Queries the size of a work area.
fn ask_size(
    number: Number,
    function: &'static Function,
    words: impl FnOnce(u64) -> Vec<u64>,
) -> Result<(), Status> {
    let plan = plan::find(number)?;
    let id = plan.lock().object()?;
    forward::send(function, &words(id))
}

/// Exports the functions that make a transform, and those that query its memory: the arguments before and after
/// `workSize`.
macro_rules! transforms {
    ($($make:ident $size:ident ($($a:ident: $t:ty),*) ($($b:ident: $u:ty)?);)*) => {$(
        /// cuFFT's function of this name.
        ///
        /// # Safety
        ///
        /// Pointers are NULL or valid for the function's accesses.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $make(plan: Number, $($a: $t,)* workSize: *mut usize $(, $b: $u)?) -> Status {
            const FUNCTION: &Function = Library::Cufft.find(stringify!($make));
            let words = |id, size| vec![id, $($a as u64,)* size $(, $b as u64)?];
            // SAFETY: promised by the caller.
            enter(|| unsafe { make(plan, FUNCTION, words, workSize) })
        }

        /// cuFFT's function of this name.
        ///
        /// # Safety
        ///
        /// Pointers are NULL or valid for the function's accesses.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $size(plan: Number, $($a: $t,)* workSize: *mut usize $(, $b: $u)?) -> Status {
            const FUNCTION: &Function = Library::Cufft.find(stringify!($size));
            let words = |id| vec![id, $($a as u64,)* workSize as u64 $(, $b as u64)?];
            enter(|| ask_size(plan, FUNCTION, words))
        }
    )*};
}

transforms! {
    cufftMakePlan1d cufftGetSize1d (nx: i32, kind: i32, batch: i32) ();
    cufftMakePlan2d cufftGetSize2d (nx: i32, ny: i32, kind: i32) ();
    cufftMakePlan3d cufftGetSize3d (nx: i32, ny: i32, nz: i32, kind: i32) ();
    cufftMakePlanMany cufftGetSizeMany (rank: i32, n: *mut i32, inembed: *mut i32, istride: i32, idist: i32, onembed: *mut i32, ostride: i32, odist: i32, kind: i32, batch: i32) ();
    cufftMakePlanMany64 cufftGetSizeMany64 (rank: i32, n: *mut i64, inembed: *mut i64, istride: i64, idist: i64, onembed: *mut i64, ostride: i64, odist: i64, kind: i32, batch: i64) ();
    cufftXtMakePlanMany cufftXtGetSizeMany (rank: i32, n: *mut i64, inembed: *mut i64, istride: i64, idist: i64, inputtype: i32, onembed: *mut i64, ostride: i64, odist: i64, outputtype: i32, batch: i64) (executiontype: i32);
}

/// Exports the functions that make a plan with its transform, and those that query the memory of a transform that is
/// not made: they use a temporary plan.
macro_rules! plans {
    ($($plan:ident $estimate:ident $make:ident $size:ident ($($a:ident: $t:ty),*);)*) => {$(
        /// cuFFT's function of this name.
        ///
        /// # Safety
        ///
        /// Pointers are NULL or valid for the function's accesses.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $plan(plan: *mut Number, $($a: $t),*) -> Status {
            enter(|| {
                if plan.is_null() {
                    return Err(status::INVALID_VALUE);
                }
                let number = plan::add()?;
                // SAFETY: promised by the caller; the size is not wanted.
                let made = unsafe { $make(number, $($a,)* std::ptr::null_mut()) };
                if made != status::SUCCESS {
                    let _ = plan::end(number);
                    return Err(made);
                }
                // SAFETY: promised by the caller.
                unsafe { give(plan, number) }
            })
        }

        /// cuFFT's function of this name.
        ///
        /// # Safety
        ///
        /// Pointers are NULL or valid for the function's accesses.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $estimate($($a: $t,)* workSize: *mut usize) -> Status {
            enter(|| {
                let number = plan::add()?;
                // SAFETY: promised by the caller.
                let asked = unsafe { $size(number, $($a,)* workSize) };
                let _ = plan::end(number);
                match asked {
                    status::SUCCESS => Ok(()),
                    refused => Err(refused),
                }
            })
        }
    )*};
}

plans! {
    cufftPlan1d cufftEstimate1d cufftMakePlan1d cufftGetSize1d (nx: i32, kind: i32, batch: i32);
    cufftPlan2d cufftEstimate2d cufftMakePlan2d cufftGetSize2d (nx: i32, ny: i32, kind: i32);
    cufftPlan3d cufftEstimate3d cufftMakePlan3d cufftGetSize3d (nx: i32, ny: i32, nz: i32, kind: i32);
    cufftPlanMany cufftEstimateMany cufftMakePlanMany cufftGetSizeMany (rank: i32, n: *mut i32, inembed: *mut i32, istride: i32, idist: i32, onembed: *mut i32, ostride: i32, odist: i32, kind: i32, batch: i32);
}

/// Exports the functions that compute.
macro_rules! executions {
    ($($name:ident($($a:ident: $t:ty),*);)*) => {$(
        /// cuFFT's function of this name.
        #[unsafe(no_mangle)]
        pub extern "C" fn $name(plan: Number, $($a: $t),*) -> Status {
            const FUNCTION: &Function = Library::Cufft.find(stringify!($name));
            enter(|| {
                let plan = plan::find(plan)?;
                // Under the lock, no other thread can destroy the plan or replace its work area before this is sent.
                let plan = plan.lock();
                forward::send(FUNCTION, &[plan.made()?, $($a as u64),*])
            })
        }
    )*};
}

executions! {
    cufftExecC2C(idata: *mut c_void, odata: *mut c_void, direction: i32);
    cufftExecR2C(idata: *mut c_void, odata: *mut c_void);
    cufftExecC2R(idata: *mut c_void, odata: *mut c_void);
    cufftExecZ2Z(idata: *mut c_void, odata: *mut c_void, direction: i32);
    cufftExecD2Z(idata: *mut c_void, odata: *mut c_void);
    cufftExecZ2D(idata: *mut c_void, odata: *mut c_void);
    cufftXtExec(input: *mut c_void, output: *mut c_void, direction: i32);
}

/// Exports functions for plans that need no transform.
macro_rules! properties {
    ($($name:ident($($a:ident: $t:ty),*);)*) => {$(
        /// cuFFT's function of this name.
        ///
        /// # Safety
        ///
        /// Pointers are NULL or valid for the function's accesses.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(plan: Number, $($a: $t),*) -> Status {
            const FUNCTION: &Function = Library::Cufft.find(stringify!($name));
            enter(|| ask_size(plan, FUNCTION, |id| vec![id, $($a as u64),*]))
        }
    )*};
}

properties! {
    cufftSetPlanPropertyInt64(property: i32, inputValueInt: i64);
    cufftGetPlanPropertyInt64(property: i32, returnPtrValue: *mut i64);
    cufftResetPlanProperty(property: i32);
}

/// `cufftGetSize`.
///
/// # Safety
///
/// `workSize` is NULL or the caller's to write to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cufftGetSize(plan: Number, workSize: *mut usize) -> Status {
    enter(|| {
        let plan = plan::find(plan)?;
        let id = plan.lock().made()?;
        forward::send(GET_SIZE, &[id, workSize as u64])
    })
}

/// `cufftXtSetWorkAreaPolicy`.
///
/// # Safety
///
/// `workSize` is NULL or the caller's to read and to write to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cufftXtSetWorkAreaPolicy(
    plan: Number,
    policy: i32,
    workSize: *mut usize,
) -> Status {
    enter(|| {
        let plan = plan::find(plan)?;
        let mut plan = plan.lock();
        let id = plan.object()?;
        forward::send(SET_POLICY, &[id, policy as u64, workSize as u64])?;
        if plan.made().is_ok() {
            let mut bytes = 0_u64;
            forward::send(GET_SIZE, &[id, &raw mut bytes as u64])?;
            plan.make(bytes)?;
        }
        Ok(())
    })
}
