// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The interface through which the guest's libraries report a program's calls to a profiler.
//!
//! libcuda exports [`NAME`], a function that returns a [`Trace`]: the process's one switch, and the functions around a
//! traced call. libcudart reports its calls to it, and the guest's CUPTI receives all calls as an [`Observer`]. The
//! interface is private to this project's libraries, and versioned, because libraries of different versions may be in
//! one process.
//!
//! A call is traced once: neither a runtime function's calls of the driver API nor the libraries' own calls count. The
//! traced call has a number. Commands that the thread sends during the call have that number as well
//! (`gpgpuTraceCall`), so that the host's records of work name it.

use std::{
    ffi::{CStr, c_int, c_void},
    ptr::NonNull,
    sync::atomic::{AtomicU32, Ordering},
};

/// The exported function, of the type [`Get`].
pub const NAME: &CStr = c"virtio_gpgpu_trace";

/// The version of [`Trace`]. Fields are only ever appended.
pub const VERSION: u32 = 1;

/// The symbol that libcuda exports.
pub type Get = extern "C" fn() -> *const Trace;

/// The driver API: `CUPTI_CB_DOMAIN_DRIVER_API`.
pub const DRIVER: u32 = 1;
/// The runtime API: `CUPTI_CB_DOMAIN_RUNTIME_API`.
pub const RUNTIME: u32 = 2;
/// A function of one of NVIDIA's libraries that gives the GPU work. Natively, its launches are calls of the runtime.
pub const LIBRARY: u32 = 100;

/// A bit of [`Trace::active`]: calls are traced.
pub const CALLS: u32 = 1;
/// Another, with [`CALLS`]: the host traces work, so commands carry the numbers of their calls. An older host has no
/// such command.
pub const WORK: u32 = 2;

/// A call of the program.
#[derive(Debug)]
#[repr(C)]
pub struct Call {
    /// The API: [`DRIVER`], [`RUNTIME`] or [`LIBRARY`].
    pub domain: u32,
    /// The call's number, which [`Observer::begin`] chooses; 0 if it is not traced.
    pub number: u32,
    /// The exported function's name, without a NUL at its end. It lives as long as the process.
    pub name: *const u8,
    /// The length of the name.
    pub name_bytes: usize,
    /// The arguments in the order of the declaration, as a C structure; NULL if unknown.
    pub arguments: *const c_void,
    /// The function's result, valid in [`Observer::end`]. The observer may change it.
    pub result: *mut u32,
    /// The current context's handle, or 0.
    pub context: u64,
    /// The observer's own.
    pub began: u64,
    /// The observer's own.
    pub data: u64,
}

/// A copy between pageable memory of the program and the device, as one of the program's calls does it.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct Copied {
    /// The number of the call.
    pub call: u32,
    /// `CUPTI_ACTIVITY_MEMCPY_KIND_HTOD`, `_DTOH`, `_HTOA` or `_ATOH`.
    pub kind: u32,
    /// Its bytes.
    pub bytes: u64,
    /// Its begin, by [`Observer::now`].
    pub start: u64,
    /// Its end.
    pub end: u64,
    /// The stream's id; 0 for the legacy default stream.
    pub stream: u64,
    /// The current context's handle.
    pub context: u64,
    /// The ordinal of the device.
    pub device: u32,
    /// 1 if the program's function is an asynchronous one.
    pub asynchronous: u32,
}

/// The receiver of calls. It lives as long as the process.
#[derive(Debug)]
#[repr(C)]
pub struct Observer {
    /// A call begins.
    pub begin: unsafe extern "C" fn(call: *mut Call),
    /// It ends.
    pub end: unsafe extern "C" fn(call: *mut Call),
    /// The time, in nanoseconds of the observer's clock.
    pub now: unsafe extern "C" fn() -> u64,
    /// A copy was done.
    pub copied: unsafe extern "C" fn(copied: *const Copied),
}

/// The switch, and libcuda's functions.
#[derive(Debug)]
#[repr(C)]
pub struct Trace {
    /// [`VERSION`] of libcuda.
    pub version: u32,
    /// The size of libcuda's own structure, in bytes.
    pub bytes: u32,
    /// Whether calls are traced: bits such as [`CALLS`], or 0.
    pub active: AtomicU32,
    /// Begins a call in this thread. Returns 1 if the call is traced, in which case `leave` must follow.
    pub enter: unsafe extern "C" fn(call: *mut Call) -> c_int,
    /// Ends a call in this thread.
    pub leave: unsafe extern "C" fn(call: *mut Call),
    /// Sets the observer, unless NULL, and `active`.
    pub observe: unsafe extern "C" fn(observer: *const Observer, active: u32),
}

impl Trace {
    /// The switch of a libcuda whose [`NAME`] is at an address; `None` if the libcuda is older than this interface.
    ///
    /// # Safety
    /// The address is that of the symbol [`NAME`] of a library that is never unloaded.
    pub unsafe fn at(address: NonNull<c_void>) -> Option<&'static Self> {
        // SAFETY: only this project's libcuda has a symbol of this name, and it is of this type in every version.
        let get = unsafe { std::mem::transmute::<*mut c_void, Get>(address.as_ptr()) };
        // SAFETY: the switch is a static of the library.
        let trace = unsafe { get().as_ref() }?;
        let fits = trace.version >= VERSION && trace.bytes as usize >= size_of::<Self>();
        fits.then_some(trace)
    }

    /// Whether calls are traced.
    #[inline]
    pub fn is_active(&self) -> bool {
        self.active.load(Ordering::Relaxed) != 0
    }

    /// Whether commands carry the numbers of their calls.
    #[inline]
    pub fn has_work(&self) -> bool {
        self.active.load(Ordering::Relaxed) & WORK != 0
    }
}

/// Any type.
trait Held {}

impl<T> Held for T {}

/// A traced call in progress.
pub struct Traced(Box<InProgress>);

/// Its address is the observer's until the call ends.
struct InProgress {
    trace: &'static Trace,
    call: Call,
    result: u32,
    _arguments: Box<dyn Held>,
}

impl Traced {
    /// Begins a call of an exported function; `None` if it is not traced. `arguments` is a C structure of the
    /// function's arguments.
    #[cold]
    pub fn begin<A: 'static>(
        trace: &'static Trace,
        domain: u32,
        name: &'static str,
        arguments: A,
    ) -> Option<Self> {
        let arguments = Box::new(arguments);
        let address = match size_of::<A>() {
            0 => std::ptr::null(),
            _ => (&raw const *arguments).cast(),
        };
        let mut begun = Box::new(InProgress {
            trace,
            call: Call {
                domain,
                number: 0,
                name: name.as_ptr(),
                name_bytes: name.len(),
                arguments: address,
                result: std::ptr::null_mut(),
                context: 0,
                began: 0,
                data: 0,
            },
            result: 0,
            _arguments: arguments,
        });
        begun.call.result = &raw mut begun.result;
        // SAFETY: the call is in a box, and lives until it is left.
        let is_traced = unsafe { (trace.enter)(&raw mut begun.call) } != 0;
        is_traced.then_some(Self(begun))
    }

    /// Ends the call with the function's result; returns the result for the program.
    #[cold]
    pub fn end(mut self, result: u32) -> u32 {
        self.0.result = result;
        // SAFETY: as above.
        unsafe { (self.0.trace.leave)(&raw mut self.0.call) };
        self.0.result
    }
}

/// Ends a call if it was traced; returns the function's result for the program.
#[inline]
pub fn end(traced: Option<Traced>, result: u32) -> u32 {
    match traced {
        Some(traced) => traced.end(result),
        None => result,
    }
}
