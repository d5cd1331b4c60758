// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The boundary that every exported function passes, so that the code behind it is ordinary Rust: the driver's
//! initialisation, the current context, an earlier fault that has ended the process's use of the device, no panic for
//! the caller, and the only place that writes through the caller's pointers.

use std::cell::Cell;
use std::ffi::{CStr, c_char, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use gpgpu_protocol::cuda::{
    CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_NOT_PERMITTED, CUDA_ERROR_UNKNOWN, CUDA_SUCCESS, CUresult,
    CUstream,
};
use gpgpu_protocol::driver_api::check::Abi;

use crate::context::{self, Context};
use crate::driver::{self, Driver};

/// The result of an API function: CUDA's code is the error.
pub type Result<T = ()> = std::result::Result<T, CUresult>;

thread_local! {
    static IN_CALLBACK: Cell<bool> = const { Cell::new(false) };
}

/// Runs `f`, a host function of the caller's, as CUDA does: calls into the API from within it are refused.
pub fn as_callback(f: impl FnOnce()) {
    let before = IN_CALLBACK.try_with(|flag| flag.replace(true));
    f();
    let _ = IN_CALLBACK.try_with(|flag| flag.set(before.unwrap_or(false)));
}

/// For functions that need nothing, not even `cuInit`.
pub fn always(f: impl FnOnce(()) -> Result) -> CUresult {
    match catch_unwind(AssertUnwindSafe(|| f(()))) {
        Ok(Ok(())) => CUDA_SUCCESS,
        Ok(Err(code)) => code,
        Err(_) => CUDA_ERROR_UNKNOWN,
    }
}

/// For functions that need `cuInit` and work even after a fault.
pub fn initialised(f: impl FnOnce(&'static Driver) -> Result) -> CUresult {
    always(|()| f(driver::get()?))
}

/// For functions that need `cuInit` and a device that has had no fault.
pub fn healthy(f: impl FnOnce(&'static Driver) -> Result) -> CUresult {
    initialised(|driver| {
        refuse_in_callback()?;
        driver.fault()?;
        f(driver)
    })
}

/// For functions that need a current context and work even after a fault.
pub fn current(f: impl FnOnce(Arc<Context>) -> Result) -> CUresult {
    initialised(|_| f(context::current()?))
}

/// For functions that need a current context that has had no fault.
pub fn context(f: impl FnOnce(Arc<Context>) -> Result) -> CUresult {
    initialised(|driver| {
        refuse_in_callback()?;
        let context = context::current()?;
        driver.fault()?;
        f(context)
    })
}

/// The same for work in a stream: a stream that is in a context needs no current one, as with NVIDIA's driver.
pub fn work(stream: CUstream, f: impl FnOnce(Arc<Context>) -> Result) -> CUresult {
    initialised(|driver| {
        refuse_in_callback()?;
        let context = match context::of_stream(stream) {
            Some(context) => context,
            None => context::current()?,
        };
        driver.fault()?;
        f(context)
    })
}

/// `CUDA_ERROR_NOT_PERMITTED` inside a host function that a stream calls.
pub fn refuse_in_callback() -> Result {
    match IN_CALLBACK.try_with(Cell::get) {
        Ok(true) => Err(CUDA_ERROR_NOT_PERMITTED),
        _ => Ok(()),
    }
}

/// A caller's pointer to one `T` or an array of them, which the function writes or reads; may be NULL.
///
/// It has the pointer's ABI. Only C callers make one, and by the API's contract a pointer other than NULL is valid for
/// the call.
#[repr(transparent)]
pub struct Pointer<T>(*mut T);

impl<T> Clone for Pointer<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Pointer<T> {}

impl<T> Pointer<T> {
    /// Wraps `pointer`.
    ///
    /// # Safety
    /// It is NULL, or stays valid for reads and writes of as many `T` as the function that it is passed to says.
    pub unsafe fn new(pointer: *mut T) -> Self {
        Self(pointer)
    }

    /// NULL.
    pub fn null() -> Self {
        Self(std::ptr::null_mut())
    }

    /// Whether it is NULL.
    pub fn is_null(self) -> bool {
        self.0.is_null()
    }

    /// The address.
    pub fn address(self) -> u64 {
        self.0 as u64
    }

    /// The same address, to something of another type.
    pub fn cast<U>(self) -> Pointer<U> {
        Pointer(self.0.cast())
    }

    /// Itself, or `CUDA_ERROR_INVALID_VALUE` for NULL.
    pub fn required(self) -> Result<Self> {
        if self.0.is_null() {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        Ok(self)
    }

    /// Writes `value`; `CUDA_ERROR_INVALID_VALUE` for NULL.
    pub fn set(self, value: T) -> Result {
        self.required()?.set_if(value);
        Ok(())
    }

    /// Writes `value` unless NULL.
    pub fn set_if(self, value: T) {
        if !self.0.is_null() {
            // SAFETY: not NULL, so valid for a write by the API's contract; unaligned because C callers may be
            // careless.
            unsafe { self.0.write_unaligned(value) }
        }
    }

    /// The `index`-th of an array.
    pub fn at(self, index: usize) -> Self {
        Self(self.0.wrapping_add(index))
    }
}

impl<T: Copy> Pointer<T> {
    /// Reads the value; `CUDA_ERROR_INVALID_VALUE` for NULL.
    pub fn get(self) -> Result<T> {
        let pointer = self.required()?.0;
        // SAFETY: not NULL, so valid for a read by the API's contract.
        Ok(unsafe { pointer.read_unaligned() })
    }

    /// Reads `count` values; `CUDA_ERROR_INVALID_VALUE` for NULL unless `count` is zero.
    pub fn array(self, count: usize) -> Result<Vec<T>> {
        (0..count).map(|i| self.required()?.at(i).get()).collect()
    }
}

/// A caller's string; may be NULL.
#[repr(transparent)]
#[derive(Clone, Copy)]
pub struct Text(*const c_char);

impl Text {
    /// The string; `CUDA_ERROR_INVALID_VALUE` for NULL. It lives as long as the call.
    pub fn get<'a>(self) -> Result<&'a CStr> {
        if self.0.is_null() {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        // SAFETY: not NULL, so a string that ends in NUL by the API's contract.
        Ok(unsafe { CStr::from_ptr(self.0) })
    }

    /// The string as UTF-8; invalid bytes become the replacement character, which no name contains.
    pub fn name(self) -> Result<String> {
        Ok(self.get()?.to_string_lossy().into_owned())
    }
}

// SAFETY: it has the layout of a pointer, and whatever a C caller passes is a value of it.
unsafe impl<T> Abi<*mut T> for Pointer<T> {}
// SAFETY: as above; the function only reads memory that is constant in C.
unsafe impl<T> Abi<*const T> for Pointer<T> {}
// SAFETY: as above; the function knows the memory behind each of the pointers.
unsafe impl<T> Abi<*mut *mut c_void> for Pointer<Pointer<T>> {}
// SAFETY: as above.
unsafe impl Abi<*const c_char> for Text {}

/// Defines exported functions: `need fn name(arguments) |state| { body }`, where `need` is a function of this module.
/// The arguments are the driver API's, or it does not compile. A function with a per-thread-default-stream variant
/// names both: `context fn a, a_ptsz(arguments) |cx, null| { body }`, and `null` is the stream that NULL stands for.
/// With `work(stream)` in place of `context` the stream's own context is `cx`. Functions with both variants include all
/// that give work, which [`crate::observe`] counts.
macro_rules! export {
    () => {};
    ($(#[$m:meta])* $need:ident fn $name:ident ( $($a:ident : $t:ty),* $(,)? ) |$state:pat_param| $body:block $($rest:tt)*) => {
        $(#[$m])*
        ///
        /// # Safety
        /// Pointers are NULL or valid as CUDA's documentation of the function says.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($a: $t),*) -> gpgpu_protocol::cuda::CUresult {
            $crate::ffi::$need(move |$state| {
                $crate::ffi::permit!($name);
                $body
            })
        }
        gpgpu_protocol::check_signature!($name($($t),*));
        $crate::ffi::export! { $($rest)* }
    };
    ($(#[$m:meta])* $need:ident fn $name:ident, $per_thread:ident ( $($a:ident : $t:ty),* $(,)? ) |$state:pat_param, $null:pat_param| $body:block $($rest:tt)*) => {
        $(#[$m])*
        ///
        /// # Safety
        /// Pointers are NULL or valid as CUDA's documentation of the function says.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($a: $t),*) -> gpgpu_protocol::cuda::CUresult {
            let $null = $crate::stream::Null::Legacy;
            $crate::observe::call($crate::observe::name!($name), move || {
                $crate::ffi::$need(move |$state| {
                    $crate::ffi::permit!($name);
                    $body
                })
            })
        }
        gpgpu_protocol::check_signature!($name($($t),*));
        #[doc = concat!("[`", stringify!($name), "`] with the per-thread default stream.")]
        ///
        /// # Safety
        /// As there.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $per_thread($($a: $t),*) -> gpgpu_protocol::cuda::CUresult {
            let $null = $crate::stream::Null::PerThread;
            $crate::observe::call($crate::observe::name!($per_thread), move || {
                $crate::ffi::$need(move |$state| {
                    $crate::ffi::permit!($per_thread);
                    $body
                })
            })
        }
        gpgpu_protocol::check_signature!($per_thread($($t),*));
        $crate::ffi::export! { $($rest)* }
    };
    ($(#[$m:meta])* work($stream:expr) fn $name:ident, $per_thread:ident ( $($a:ident : $t:ty),* $(,)? ) |$state:pat_param, $null:pat_param| $body:block $($rest:tt)*) => {
        $(#[$m])*
        ///
        /// # Safety
        /// Pointers are NULL or valid as CUDA's documentation of the function says.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($a: $t),*) -> gpgpu_protocol::cuda::CUresult {
            let $null = $crate::stream::Null::Legacy;
            $crate::observe::call($crate::observe::name!($name), move || {
                $crate::ffi::work($stream, move |$state| {
                    $crate::ffi::permit!($name);
                    $body
                })
            })
        }
        gpgpu_protocol::check_signature!($name($($t),*));
        #[doc = concat!("[`", stringify!($name), "`] with the per-thread default stream.")]
        ///
        /// # Safety
        /// As there.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $per_thread($($a: $t),*) -> gpgpu_protocol::cuda::CUresult {
            let $null = $crate::stream::Null::PerThread;
            $crate::observe::call($crate::observe::name!($per_thread), move || {
                $crate::ffi::work($stream, move |$state| {
                    $crate::ffi::permit!($per_thread);
                    $body
                })
            })
        }
        gpgpu_protocol::check_signature!($per_thread($($t),*));
        $crate::ffi::export! { $($rest)* }
    };
}
pub(crate) use export;

/// Checks that a function may be called while streams are captured: part of [`export!`].
macro_rules! permit {
    ($name:ident) => {
        if const { gpgpu_graphs::capture::is_unsafe(stringify!($name)) } {
            gpgpu_graphs::capture::guard::<$crate::graph::Soft>()?;
        }
        if const { gpgpu_graphs::capture::is_legacy(stringify!($name)) } {
            gpgpu_graphs::capture::guard_legacy::<$crate::graph::Soft>()?;
        }
    };
}
pub(crate) use permit;
