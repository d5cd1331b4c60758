// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! libcuda's functions that the profiler calls itself. Such a call is not traced.

use std::{
    cell::Cell,
    ffi::{CStr, c_char, c_void},
    ptr::NonNull,
    sync::OnceLock,
};

use gpgpu_trace::{NAME, Trace};

thread_local! {
    /// Whether the thread's calls are the profiler's own.
    static OWN: Cell<bool> = const { Cell::new(false) };
}

/// Whether the thread's calls are the profiler's own.
#[inline]
pub fn is_own() -> bool {
    OWN.try_with(Cell::get).unwrap_or(true)
}

/// Runs a function whose calls are the profiler's own.
fn own<T>(body: impl FnOnce() -> T) -> T {
    let before = OWN.replace(true);
    let outcome = body();
    OWN.set(before);
    outcome
}

/// The address of a function of libcuda. `flags` says whether libcuda is loaded if the process has not yet.
fn find(name: &CStr, flags: libc::c_int) -> Option<*mut c_void> {
    // SAFETY: the names are strings, and our libcuda may be loaded at any time.
    let found = unsafe {
        let library = libc::dlopen(c"libcuda.so.1".as_ptr(), libc::RTLD_NOW | flags);
        if library.is_null() {
            return None;
        }
        libc::dlsym(library, name.as_ptr())
    };
    (!found.is_null()).then_some(found)
}

/// The switch of libcuda, which is loaded if the process has not yet; `None` if it is not this project's.
pub fn trace() -> Option<&'static Trace> {
    static FOUND: OnceLock<&Trace> = OnceLock::new();
    if let Some(found) = FOUND.get() {
        return Some(found);
    }
    let found = find(NAME, libc::RTLD_NOLOAD).or_else(|| find(NAME, 0))?;
    // SAFETY: libcuda's symbol was found by its name, and libcuda is never unloaded.
    let trace = unsafe { Trace::at(NonNull::new(found)?) }?;
    Some(FOUND.get_or_init(|| trace))
}

/// libcuda's functions, each with one argument.
#[derive(Debug)]
struct Functions {
    current: unsafe extern "C" fn(*mut u64) -> u32,
    device: unsafe extern "C" fn(*mut i32) -> u32,
    push: unsafe extern "C" fn(u64) -> u32,
    pop: unsafe extern "C" fn(*mut u64) -> u32,
}

/// The functions, if the process has loaded libcuda.
fn functions() -> Option<&'static Functions> {
    static FOUND: OnceLock<Functions> = OnceLock::new();
    if let Some(found) = FOUND.get() {
        return Some(found);
    }
    let named = |name| find(name, libc::RTLD_NOLOAD);
    let current = named(c"cuCtxGetCurrent")?;
    let device = named(c"cuCtxGetDevice")?;
    let push = named(c"cuCtxPushCurrent_v2")?;
    let pop = named(c"cuCtxPopCurrent_v2")?;
    // SAFETY: the driver API declares these functions so; a handle of a context is a pointer.
    let functions = unsafe {
        Functions {
            current: std::mem::transmute::<*mut c_void, unsafe extern "C" fn(*mut u64) -> u32>(
                current,
            ),
            device: std::mem::transmute::<*mut c_void, unsafe extern "C" fn(*mut i32) -> u32>(
                device,
            ),
            push: std::mem::transmute::<*mut c_void, unsafe extern "C" fn(u64) -> u32>(push),
            pop: std::mem::transmute::<*mut c_void, unsafe extern "C" fn(*mut u64) -> u32>(pop),
        }
    };
    Some(FOUND.get_or_init(|| functions))
}

/// The name of a kernel, by the handle of its function or of the kernel itself, as a launch has it; NULL if libcuda
/// does not know it. It lives as long as the kernel's module.
pub fn kernel_name(function: u64) -> *const c_char {
    type Name = unsafe extern "C" fn(*mut *const c_char, u64) -> u32;
    static FOUND: OnceLock<Option<Name>> = OnceLock::new();
    let name = FOUND.get_or_init(|| {
        let found = find(c"cuFuncGetName", libc::RTLD_NOLOAD)?;
        // SAFETY: the function has this type; a pointer and a function's address have one size.
        Some(unsafe { std::mem::transmute::<*mut c_void, Name>(found) })
    });
    let mut text = std::ptr::null();
    if let Some(name) = name {
        // SAFETY: libcuda looks the handle up, and writes a string to the pointer if it knows it.
        own(|| unsafe { name(&mut text, function) });
    }
    text
}

/// The current context's handle; 0 if there is none.
pub fn current_context() -> u64 {
    let mut context = 0;
    let ask = |functions: &Functions| {
        // SAFETY: the function writes a handle to the pointer.
        own(|| unsafe { (functions.current)(&mut context) })
    };
    let code = functions().map(ask);
    if code == Some(0) { context } else { 0 }
}

/// The ordinal of the current context's device.
pub fn current_device() -> Option<u32> {
    let mut device = 0;
    // SAFETY: the function writes an ordinal to the pointer.
    let code = functions().map(|functions| own(|| unsafe { (functions.device)(&mut device) }));
    (code == Some(0)).then_some(device as u32)
}

/// Runs a function while a context is the current one. Returns whether it was run: the context may have ended.
pub fn within(context: u64, body: &mut dyn FnMut()) -> bool {
    let Some(functions) = functions().filter(|_| context != 0) else {
        return false;
    };
    // SAFETY: libcuda looks the handle up, and refuses an unknown one.
    if own(|| unsafe { (functions.push)(context) }) != 0 {
        return false;
    }
    body();
    let mut popped = 0;
    // SAFETY: the function writes a handle to the pointer.
    own(|| unsafe { (functions.pop)(&mut popped) });
    true
}
