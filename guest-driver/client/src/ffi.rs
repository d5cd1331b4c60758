// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The entry of calls from C: no panic unwinds into C, and every failure is a `CUresult`.

use std::panic::{AssertUnwindSafe, catch_unwind};

use gpgpu_protocol::cuda::*;

use crate::log::{self, Level};

/// The result of a library function: nothing, or the code of its failure.
pub type Result<T = ()> = std::result::Result<T, CUresult>;

/// Runs the body of the exported function `name`.
#[inline]
pub fn enter(name: &str, body: impl FnOnce() -> Result) -> CUresult {
    // A panic is a bug of the library. Unwinding into C would be undefined behaviour in addition.
    let code = match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(())) => CUDA_SUCCESS,
        Ok(Err(code)) => code,
        Err(_) => CUDA_ERROR_UNKNOWN,
    };
    if code != CUDA_SUCCESS {
        log::say(Level::Debug, || {
            format!(
                "{name} returns {code} ({})",
                result_name(code).unwrap_or("unknown")
            )
        });
    }
    code
}
