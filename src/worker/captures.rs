// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Captures in the driver, and the commands that would invalidate them because they concern a whole context.
//!
//! `cuCtxSynchronize` fails while a stream of the context is captured, in any mode and by any thread, and it
//! invalidates the capture (observed on an H200, driver 580.159.04). A guest's program does not know of the captures
//! here, because it records in its own process. So captures and these calls exclude each other.

use gpgpu_locks::{RwLock, RwLockWriteGuard};
use gpgpu_protocol::cuda::*;

use crate::cuda::driver;

static CAPTURES: RwLock<()> = RwLock::new(());

/// `cuCtxSynchronize` of the current context, when no stream is being captured.
///
/// # Errors
///
/// The driver's error code.
pub fn synchronize() -> Result<(), CUresult> {
    // SAFETY: no arguments.
    outside(|| unsafe { driver::cuCtxSynchronize() })
}

/// Runs an operation on a whole context, when no stream is being captured.
pub fn outside<T>(body: impl FnOnce() -> T) -> T {
    let _none = CAPTURES.read();
    body()
}

/// Allows this thread to capture a stream until the result is dropped. Waits for threads that synchronize a context.
pub fn capture() -> RwLockWriteGuard<'static, ()> {
    CAPTURES.write()
}
