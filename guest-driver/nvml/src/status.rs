// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! NVML's codes, and their names.

use std::ffi::{CStr, c_char};

/// An `nvmlReturn_t`.
pub type Status = u32;

macro_rules! statuses {
    ($($name:ident = $code:literal $text:literal;)*) => {
        $(
            /// NVML's code of this name.
            pub const $name: Status = $code;
        )*

        /// A short text for a code.
        pub fn text(status: Status) -> &'static CStr {
            match status {
                $($code => $text,)*
                _ => c"Unknown code",
            }
        }
    };
}

statuses! {
    SUCCESS = 0 c"Success";
    UNINITIALIZED = 1 c"Uninitialized";
    INVALID_ARGUMENT = 2 c"Invalid Argument";
    NOT_SUPPORTED = 3 c"Not Supported";
    NO_PERMISSION = 4 c"Insufficient Permissions";
    ALREADY_INITIALIZED = 5 c"Already Initialized";
    NOT_FOUND = 6 c"Not Found";
    INSUFFICIENT_SIZE = 7 c"Insufficient Size";
    INSUFFICIENT_POWER = 8 c"Insufficient External Power";
    DRIVER_NOT_LOADED = 9 c"Driver Not Loaded";
    TIMEOUT = 10 c"Timeout";
    IRQ_ISSUE = 11 c"Interrupt Request Issue";
    LIBRARY_NOT_FOUND = 12 c"NVML Shared Library Not Found";
    FUNCTION_NOT_FOUND = 13 c"Function Not Found";
    CORRUPTED_INFOROM = 14 c"Corrupted infoROM";
    GPU_IS_LOST = 15 c"GPU is lost";
    RESET_REQUIRED = 16 c"GPU requires reset";
    OPERATING_SYSTEM = 17 c"GPU access blocked by the operating system";
    LIB_RM_VERSION_MISMATCH = 18 c"Driver/library version mismatch";
    IN_USE = 19 c"In use by another client";
    MEMORY = 20 c"Insufficient Memory";
    NO_DATA = 21 c"No data";
    VGPU_ECC_NOT_SUPPORTED = 22 c"ECC is not supported by the vGPU";
    INSUFFICIENT_RESOURCES = 23 c"Insufficient Resources";
    FREQ_NOT_SUPPORTED = 24 c"Frequency not supported";
    ARGUMENT_VERSION_MISMATCH = 25 c"Argument version mismatch";
    DEPRECATED = 26 c"Deprecated";
    NOT_READY = 27 c"Not ready";
    GPU_NOT_FOUND = 28 c"No GPU found";
    INVALID_STATE = 29 c"Invalid state";
    UNKNOWN = 999 c"Unknown Error";
}

/// A short text for a code, as a static string.
#[unsafe(no_mangle)]
pub extern "C" fn nvmlErrorString(result: Status) -> *const c_char {
    text(result).as_ptr()
}
