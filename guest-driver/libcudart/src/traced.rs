// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Reports of the program's calls to a profiler, if libcuda is this project's own ([`gpgpu_trace`]).

use std::{
    ffi::{CStr, c_void},
    ptr::null_mut,
    sync::atomic::{AtomicPtr, Ordering},
};

use gpgpu_trace::{Get, NAME, Trace, Traced, VERSION};

use crate::abi::cudaError_t;

/// libcuda's switch; NULL until libcuda is open, and with another libcuda.
static SWITCH: AtomicPtr<Trace> = AtomicPtr::new(null_mut());

/// Looks for the switch in a libcuda that was just opened. `find` finds its functions by name.
pub fn look_for_switch(find: &dyn Fn(&CStr) -> *mut c_void) {
    let found = find(NAME);
    if found.is_null() {
        return;
    }
    // SAFETY: only this project's libcuda has a function of this name, and it is of this type in every version.
    let get = unsafe { std::mem::transmute::<*mut c_void, Get>(found) };
    let trace = get();
    // SAFETY: it is a static of a library that is never unloaded.
    let is_known = unsafe { trace.as_ref() }
        .is_some_and(|of| of.version >= VERSION && of.bytes as usize >= size_of::<Trace>());
    if is_known {
        SWITCH.store(trace.cast_mut(), Ordering::Release);
    }
}

/// The switch, if calls are traced.
#[inline]
pub fn active() -> Option<&'static Trace> {
    // SAFETY: NULL, or libcuda's static.
    let trace = unsafe { SWITCH.load(Ordering::Acquire).as_ref() }?;
    trace.is_active().then_some(trace)
}

/// Ends a call that [`traced!`] has begun; returns the program's result.
#[inline]
pub fn end(traced: Option<Traced>, code: cudaError_t) -> cudaError_t {
    match traced {
        Some(traced) => traced.end(code),
        None => code,
    }
}

/// Begins the call of an exported function, if calls are traced.
macro_rules! traced {
    ($name:ident ($($arg:ident: $ty:ty),*)) => {
        $crate::traced::active().and_then(|trace| {
            #[allow(non_snake_case, dead_code)]
            #[repr(C)]
            struct Arguments {
                $($arg: $ty,)*
            }
            gpgpu_trace::Traced::begin(
                trace,
                gpgpu_trace::RUNTIME,
                stringify!($name),
                Arguments { $($arg),* },
            )
        })
    };
}
pub(crate) use traced;
