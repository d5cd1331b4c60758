// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Error codes, the last error of each thread, names and descriptions.

use crate::abi::{cudaError_t, cudart_abi};
use crate::codes;
use std::cell::Cell;
use std::ffi::{CStr, c_char};

/// The result of the library's internal functions: an error is the program's code.
pub type Result<T> = std::result::Result<T, cudaError_t>;

pub const SUCCESS: cudaError_t = 0;
pub const INVALID_VALUE: cudaError_t = 1;
pub const MEMORY_ALLOCATION: cudaError_t = 2;
pub const INITIALIZATION_ERROR: cudaError_t = 3;
pub const CUDART_UNLOADING: cudaError_t = 4;
pub const INVALID_CONFIGURATION: cudaError_t = 9;
pub const INVALID_PITCH_VALUE: cudaError_t = 12;
pub const INVALID_SYMBOL: cudaError_t = 13;
pub const INVALID_MEMCPY_DIRECTION: cudaError_t = 21;
pub const INSUFFICIENT_DRIVER: cudaError_t = 35;
pub const DEVICES_UNAVAILABLE: cudaError_t = 46;
pub const MISSING_CONFIGURATION: cudaError_t = 52;
pub const INVALID_DEVICE_FUNCTION: cudaError_t = 98;
pub const INVALID_DEVICE: cudaError_t = 101;
pub const INVALID_RESOURCE_HANDLE: cudaError_t = 400;
pub const SYMBOL_NOT_FOUND: cudaError_t = 500;
pub const NOT_READY: cudaError_t = 600;
pub const NOT_SUPPORTED: cudaError_t = 801;

thread_local! {
    // No destructor, so that it can be used while the thread is being torn down.
    static LAST: Cell<cudaError_t> = const { Cell::new(SUCCESS) };
}

/// Whether an error becomes the thread's last error. `cudaErrorNotReady` does not; observed with the runtime 13.0.
fn latches(error: cudaError_t) -> bool {
    error != NOT_READY
}

/// Runs the body of an exported function. Its error becomes the thread's last error; a success leaves the last error
/// unchanged.
pub fn record(body: impl FnOnce() -> Result<()>) -> cudaError_t {
    match body() {
        Ok(()) => SUCCESS,
        Err(error) => {
            if latches(error) {
                LAST.set(error);
            }
            error
        }
    }
}

/// The result of launching an address that is no kernel: 400 as observed with the runtime 13.0, 98 as documented for
/// earlier ones.
pub fn not_a_kernel() -> cudaError_t {
    if cudart_abi() >= 13000 {
        INVALID_RESOURCE_HANDLE
    } else {
        INVALID_DEVICE_FUNCTION
    }
}

/// The result of a launch with impossible dimensions: 1 as observed with the runtime 13.0, 9 as documented for earlier
/// ones.
pub fn bad_dimensions() -> cudaError_t {
    if cudart_abi() >= 13000 {
        INVALID_VALUE
    } else {
        INVALID_CONFIGURATION
    }
}

#[unsafe(no_mangle)]
extern "C" fn cudaGetLastError() -> cudaError_t {
    LAST.replace(SUCCESS)
}

#[unsafe(no_mangle)]
extern "C" fn cudaPeekAtLastError() -> cudaError_t {
    LAST.get()
}

const UNRECOGNIZED: &CStr = c"unrecognized error code";

#[unsafe(no_mangle)]
extern "C" fn cudaGetErrorName(error: cudaError_t) -> *const c_char {
    codes::CODES
        .iter()
        .find(|entry| entry.0 == error)
        .map_or(UNRECOGNIZED, |entry| entry.1)
        .as_ptr()
}

#[unsafe(no_mangle)]
extern "C" fn cudaGetErrorString(error: cudaError_t) -> *const c_char {
    let Some(entry) = codes::CODES.iter().find(|entry| entry.0 == error) else {
        return UNRECOGNIZED.as_ptr();
    };
    // Use the driver's own text if it is loaded; the query must not load it.
    if let Some(driver) = crate::driver::if_loaded() {
        let mut text = std::ptr::null();
        // SAFETY: `text` outlives the call; the string that comes back is the driver's, and static.
        if unsafe { driver.cuGetErrorString(error, &mut text) }.is_ok() && !text.is_null() {
            return text;
        }
    }
    entry.2.as_ptr()
}
