// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Reports of the program's calls to a profiler, if libcuda is this project's own ([`gpgpu_trace`]).

use std::{
    ffi::{CStr, c_void},
    ptr::{NonNull, null_mut},
    sync::atomic::{AtomicPtr, Ordering},
};

pub use gpgpu_trace::end;
use gpgpu_trace::{NAME, Trace};

/// libcuda's switch; NULL until libcuda is open, and with another libcuda.
static SWITCH: AtomicPtr<Trace> = AtomicPtr::new(null_mut());

/// Looks for the switch in a libcuda that was just opened. `find` finds its functions by name.
pub fn look_for_switch(find: &dyn Fn(&CStr) -> *mut c_void) {
    // SAFETY: libcuda's symbol was found by its name, and libcuda is never unloaded.
    let trace = NonNull::new(find(NAME)).and_then(|found| unsafe { Trace::at(found) });
    if let Some(trace) = trace {
        SWITCH.store((&raw const *trace).cast_mut(), Ordering::Release);
    }
}

/// The switch, if calls are traced.
#[inline]
pub fn active() -> Option<&'static Trace> {
    // SAFETY: NULL, or libcuda's static.
    let trace = unsafe { SWITCH.load(Ordering::Acquire).as_ref() }?;
    trace.is_active().then_some(trace)
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
