// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Reports of the program's calls to a profiler, if libcuda is this project's own ([`gpgpu_trace`]).

use std::{
    ffi::{CStr, c_void},
    ptr::{NonNull, null_mut},
    sync::atomic::{AtomicBool, AtomicPtr, Ordering},
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
    let trace = unsafe { SWITCH.load(Ordering::Acquire).as_ref() }.or_else(first)?;
    trace.is_active().then_some(trace)
}

/// Looks for the switch once, before this library opens libcuda: a profiler may have loaded it before the first call.
#[cold]
fn first() -> Option<&'static Trace> {
    static LOOKED: AtomicBool = AtomicBool::new(false);
    if LOOKED.load(Ordering::Relaxed) || LOOKED.swap(true, Ordering::Relaxed) {
        return None;
    }
    // SAFETY: the name is a string. The library is loaded already, so nothing is executed.
    let loaded =
        unsafe { libc::dlopen(c"libcuda.so.1".as_ptr(), libc::RTLD_NOW | libc::RTLD_NOLOAD) };
    if loaded.is_null() {
        return None;
    }
    // SAFETY: the library is loaded, and the name is a string.
    look_for_switch(&|name| unsafe { libc::dlsym(loaded, name.as_ptr()) });
    // SAFETY: as in `active`.
    unsafe { SWITCH.load(Ordering::Acquire).as_ref() }
}

/// A function's name in headers. Those whose arguments differ between CUDA 12 and 13 have a prefix in this library.
pub const fn in_headers(name: &'static str) -> &'static str {
    match name.as_bytes() {
        [b'c', b'u', b'd', b'a', b'r', b't', b'1', _, b'_', ..] => {
            name.split_at("cudart13_".len()).1
        }
        _ => name,
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
                const { $crate::traced::in_headers(stringify!($name)) },
                Arguments { $($arg),* },
            )
        })
    };
}
pub(crate) use traced;

#[cfg(test)]
mod tests {
    use super::in_headers;

    #[test]
    fn functions_of_two_versions_have_their_name_in_headers() {
        assert_eq!(in_headers("cudart13_cudaMemAdvise"), "cudaMemAdvise");
        assert_eq!(in_headers("cudart12_cudaGraphAddNode"), "cudaGraphAddNode");
        for name in ["cudaMalloc", "cudaMemcpyAsync_ptsz", "cudaFree"] {
            assert_eq!(in_headers(name), name);
        }
    }
}
