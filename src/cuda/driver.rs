// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The host's driver API: NVIDIA's libcuda or the software GPU's, loaded through cudarc.
//!
//! Functions are called by symbol, with integers where CUDA has enumerations, because a guest chooses the values: a
//! value that a Rust enumeration does not have would be undefined behaviour.

use std::{
    ffi::{c_char, c_void},
    sync::{
        OnceLock,
        atomic::{AtomicBool, Ordering},
    },
};

use cudarc::driver::sys;
use gpgpu_protocol::{cuda::*, driver_api::signature, with_driver_api};

/// The address of a symbol, or `None` if the library does not have it.
///
/// Requires a libcuda ([`is_present`]).
#[cfg(not(test))]
pub fn symbol(name: &str) -> Option<*const c_void> {
    let name = std::ffi::CString::new(name).ok()?;
    // SAFETY: a symbol's address is taken, not used; the library is never unloaded.
    unsafe {
        sys::culib()
            .get::<*const c_void>(name.as_bytes_with_nul())
            .ok()
            .map(|found| *found)
    }
}

#[cfg(test)]
pub use super::double::symbol;

/// Registers memory of this process, and returns its device address. After an error it is not registered by this call.
///
/// # Errors
///
/// The driver's error code.
///
/// # Safety
///
/// The range is mapped, and stays so until it is unregistered.
pub unsafe fn register_host(
    pointer: *mut c_void,
    bytes: usize,
    flags: u32,
) -> Result<CUdeviceptr, CUresult> {
    let mut device = 0;
    // SAFETY: the caller vouches for the range; the other pointer is to a value that lives across the call.
    unsafe {
        cuMemHostRegister_v2(pointer, bytes, flags)?;
        cuMemHostGetDevicePointer_v2(&mut device, pointer, 0).inspect_err(|_| {
            let _ = cuMemHostUnregister(pointer);
        })?;
    }
    Ok(device)
}

/// Whether there is a libcuda to load.
pub fn is_present() -> bool {
    // SAFETY: loads the library that this process is for; its initialisers are trusted.
    unsafe { sys::is_culib_present() }
}

static VERSION: OnceLock<String> = OnceLock::new();

/// The start of the name of libcuda's file. The version follows.
const FILE: &str = "libcuda.so.";

/// Stores the version of libcuda, while the name of its file can be looked up.
///
/// Requires a libcuda ([`is_present`]).
pub fn note_version() {
    VERSION.get_or_init(|| {
        let file = symbol("cuInit").and_then(file_of);
        let file = file.and_then(|file| std::fs::canonicalize(file).ok());
        let name = file.as_deref().and_then(std::path::Path::file_name);
        name.and_then(|name| version_in(name.to_str()?))
            .unwrap_or_default()
            .to_owned()
    });
}

/// The version of libcuda, as in `580.65.06`; empty if the name of its file has none, or if it was not stored.
pub fn version() -> &'static str {
    VERSION.get().map_or("", String::as_str)
}

/// The file that code was loaded from.
fn file_of(code: *const c_void) -> Option<std::path::PathBuf> {
    use std::os::unix::ffi::OsStrExt as _;
    // SAFETY: zeros are a value of it.
    let mut found: libc::Dl_info = unsafe { std::mem::zeroed() };
    // SAFETY: the address is only looked up; the structure lives across the call.
    if unsafe { libc::dladdr(code, &mut found) } == 0 || found.dli_fname.is_null() {
        return None;
    }
    // SAFETY: a string of the dynamic linker's, which lives as long as the library: libcuda is never unloaded.
    let name = unsafe { std::ffi::CStr::from_ptr(found.dli_fname) };
    Some(std::ffi::OsStr::from_bytes(name.to_bytes()).into())
}

/// The version in a name of libcuda's file. The major number of the soname is not a version.
fn version_in(name: &str) -> Option<&str> {
    let version = name.strip_prefix(FILE)?;
    let is_number = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
    (version.contains('.') && version.split('.').all(is_number)).then_some(version)
}

/// A function that the host's libcuda may lack.
struct Symbol {
    name: &'static str,
    address: OnceLock<Option<usize>>,
}

impl Symbol {
    /// The function of this name, which is looked up at its first use.
    const fn new(name: &'static str) -> Self {
        Self {
            name,
            address: OnceLock::new(),
        }
    }

    /// Its address; `CUDA_ERROR_NOT_SUPPORTED` if the host's driver is too old to have it.
    fn address(&self) -> Result<*const c_void, CUresult> {
        let find = || symbol(self.name).map(|found| found as usize);
        self.address
            .get_or_init(find)
            .map(|found| found as *const c_void)
            .ok_or(CUDA_ERROR_NOT_SUPPORTED)
    }
}

/// Whether a kernel or the device has failed. From then on every call of the process may fail.
static FAILED: AtomicBool = AtomicBool::new(false);

/// Whether the driver has ever returned an error that ends all work on the GPU. It may have recovered since.
pub fn has_failed() -> bool {
    FAILED.load(Ordering::Relaxed)
}

/// Turns a result code into a `Result`.
pub fn check(code: CUresult) -> Result<(), CUresult> {
    if code == CUDA_SUCCESS {
        return Ok(());
    }
    // After an unknown error the state of the GPU is unknown, so callers of `has_failed` must assume a failure. A
    // guest's process continues, as it would with NVIDIA's library.
    if is_sticky(code) || code == CUDA_ERROR_UNKNOWN {
        FAILED.store(true, Ordering::Relaxed);
    }
    Err(code)
}

/// Defines every function of the driver API. The linker drops unused ones.
macro_rules! functions {
    ($($name:ident $since:literal $guest:ident $symbol:ident $($per_thread:ident)? ($($arg:ident : $ty:ty),*);)*) => {$(
        /// The driver API's function of this name.
        ///
        /// # Safety
        ///
        /// Handles come from the driver and are not destroyed; pointers are NULL or valid as CUDA requires.
        #[allow(dead_code, non_snake_case, clippy::too_many_arguments)]
        pub unsafe fn $symbol($($arg: $ty),*) -> Result<(), CUresult> {
            static SYMBOL: Symbol = Symbol::new(stringify!($symbol));
            let address = SYMBOL.address()?;
            // SAFETY: a symbol of this name has this signature in every libcuda.
            let function: signature::$symbol = unsafe { std::mem::transmute(address) };
            // SAFETY: the caller vouches for the arguments.
            check(unsafe { function($($arg),*) })
        }
    )*};
}

with_driver_api!(functions);
