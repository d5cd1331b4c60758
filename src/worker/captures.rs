// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Captures of the driver's, and the commands that invalidate them: those about a whole context.
//!
//! `cuCtxSynchronize` fails where a stream of the context is captured, in whatever mode and by whichever thread, and
//! the capture is worth nothing then (seen on an H200, driver 580.159.04). A guest's program knows of no capture here:
//! it records in its own process. So captures and these calls exclude each other.

use gpgpu_locks::{RwLock, RwLockWriteGuard};
use gpgpu_protocol::cuda::*;

use crate::cuda::driver;

static CAPTURES: RwLock<()> = RwLock::new(());

/// `cuCtxSynchronize` of the current context, once no stream is captured.
///
/// # Errors
///
/// The driver's.
pub fn synchronize() -> Result<(), CUresult> {
    // SAFETY: no arguments.
    outside(|| unsafe { driver::cuCtxSynchronize() })
}

/// Runs an operation about a whole context, once no stream is captured.
pub fn outside<T>(body: impl FnOnce() -> T) -> T {
    let _none = CAPTURES.read();
    body()
}

/// Lets this thread capture a stream, until it is dropped: once no thread waits for a context.
pub fn capture() -> RwLockWriteGuard<'static, ()> {
    CAPTURES.write()
}
