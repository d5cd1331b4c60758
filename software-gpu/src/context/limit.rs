// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The limits of a context. A green context has those of its primary context.

use gpgpu_protocol::cuda::{
    CU_LIMIT_MALLOC_HEAP_SIZE, CU_LIMIT_MAX, CU_LIMIT_PRINTF_FIFO_SIZE, CUDA_ERROR_INVALID_VALUE,
    CUDA_ERROR_UNSUPPORTED_LIMIT, CUlimit,
};

use super::Context;
use crate::ffi::Result;

impl Context {
    /// A limit's value.
    pub fn limit(&self, limit: CUlimit) -> Result<usize> {
        match limit {
            0..=6 => Ok(self.home().limits.lock()[limit as usize]),
            7..CU_LIMIT_MAX => Err(CUDA_ERROR_UNSUPPORTED_LIMIT),
            _ => Err(CUDA_ERROR_INVALID_VALUE),
        }
    }

    /// The values of the limits that kernels can query, by number.
    pub fn limits(&self) -> [usize; 7] {
        let limits = self.home().limits.lock();
        std::array::from_fn(|number| limits[number])
    }

    /// Sets a limit.
    pub fn set_limit(&self, limit: CUlimit, value: usize) -> Result {
        match limit {
            0..=5 => {
                let mut limits = self.home().limits.lock();
                match limit {
                    CU_LIMIT_PRINTF_FIFO_SIZE => self.printed.set_limit(value),
                    CU_LIMIT_MALLOC_HEAP_SIZE => self.heap.set_limit(value)?,
                    _ => {}
                }
                limits[limit as usize] = value;
            }
            6..CU_LIMIT_MAX => return Err(CUDA_ERROR_UNSUPPORTED_LIMIT),
            _ => return Err(CUDA_ERROR_INVALID_VALUE),
        }
        Ok(())
    }
}
