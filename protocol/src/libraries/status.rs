// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The results of libraries' functions.

use std::ffi::CStr;

use crate::cuda::*;

/// Done, or issued; all libraries use this number.
pub const SUCCESS: u32 = 0;

/// The statuses of a library.
#[derive(Debug)]
pub struct Statuses {
    /// There is no such handle.
    pub bad_handle: u32,
    /// The library is missing, or cannot be used.
    pub not_initialized: u32,
    /// Memory ran out.
    pub alloc_failed: u32,
    /// An argument is wrong.
    pub invalid_value: u32,
    /// The GPU failed, or an object that the handle needs was destroyed.
    pub execution_failed: u32,
    /// The library itself failed.
    pub internal_error: u32,
    /// The function does not exist here, or does not support this.
    pub not_supported: u32,
    /// Each with its name, and in words.
    pub names: &'static [(u32, &'static CStr, &'static CStr)],
    /// The name and the text for a number that is no status.
    pub unknown: (&'static CStr, &'static CStr),
}

impl Statuses {
    fn named(&self, status: u32) -> (&'static CStr, &'static CStr) {
        let found = self.names.iter().find(|(number, ..)| *number == status);
        found.map_or(self.unknown, |(_, name, text)| (*name, *text))
    }

    /// A status's name.
    pub fn name(&self, status: u32) -> &'static CStr {
        self.named(status).0
    }

    /// A status in words.
    pub fn text(&self, status: u32) -> &'static CStr {
        self.named(status).1
    }

    /// The code that libcuda reports for a failed posted call, because it cannot report the library's own status.
    pub fn as_code(&self, status: u32) -> CUresult {
        // A library may use one status for two of these.
        [
            (SUCCESS, CUDA_SUCCESS),
            (self.alloc_failed, CUDA_ERROR_OUT_OF_MEMORY),
            (self.invalid_value, CUDA_ERROR_INVALID_VALUE),
            (self.bad_handle, CUDA_ERROR_INVALID_HANDLE),
            (self.not_initialized, CUDA_ERROR_INVALID_HANDLE),
            (self.not_supported, CUDA_ERROR_NOT_SUPPORTED),
        ]
        .into_iter()
        .find(|(of, _)| *of == status)
        .map_or(CUDA_ERROR_UNKNOWN, |(_, code)| code)
    }

    /// The status for an error of the driver: the call did not reach the library.
    pub fn of_code(&self, code: CUresult) -> u32 {
        match code {
            CUDA_SUCCESS => SUCCESS,
            CUDA_ERROR_OUT_OF_MEMORY => self.alloc_failed,
            CUDA_ERROR_INVALID_VALUE | CUDA_ERROR_INVALID_HANDLE => self.invalid_value,
            CUDA_ERROR_NOT_SUPPORTED => self.not_supported,
            CUDA_ERROR_NOT_INITIALIZED
            | CUDA_ERROR_NO_DEVICE
            | CUDA_ERROR_INVALID_CONTEXT
            | CUDA_ERROR_CONTEXT_IS_DESTROYED => self.not_initialized,
            _ => self.execution_failed,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::libraries::Library;

    #[test]
    fn every_status_has_a_name_and_no_other_number_has() {
        for library in Library::ALL {
            let of = library.statuses();
            for status in [
                SUCCESS,
                of.bad_handle,
                of.not_initialized,
                of.alloc_failed,
                of.invalid_value,
                of.execution_failed,
                of.internal_error,
                of.not_supported,
            ] {
                assert_ne!(of.name(status), of.unknown.0, "{library:?}: {status}");
                assert_ne!(of.text(status), of.unknown.1, "{library:?}: {status}");
            }
            assert_eq!(of.name(77_777), of.unknown.0);
        }
    }

    #[test]
    fn a_status_and_a_code_say_the_same() {
        for library in Library::ALL {
            let of = library.statuses();
            for (status, code) in [
                (SUCCESS, CUDA_SUCCESS),
                (of.alloc_failed, CUDA_ERROR_OUT_OF_MEMORY),
                (of.invalid_value, CUDA_ERROR_INVALID_VALUE),
                (of.not_supported, CUDA_ERROR_NOT_SUPPORTED),
            ] {
                assert_eq!(of.as_code(status), code, "{library:?}");
                assert_eq!(of.of_code(code), status, "{library:?}");
            }
        }
    }
}
