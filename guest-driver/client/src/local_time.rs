// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Times for people, in the local time zone.

use std::{
    mem::MaybeUninit,
    time::{SystemTime, UNIX_EPOCH},
};

/// A time in the local time zone, and its milliseconds.
pub fn local_time(time: SystemTime) -> (libc::tm, u32) {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    let seconds = since.as_secs() as libc::time_t;
    let mut local = MaybeUninit::zeroed();
    // SAFETY: both pointers are to values that live across the call, and zeros are a `tm`.
    let local = unsafe {
        libc::localtime_r(&raw const seconds, local.as_mut_ptr());
        local.assume_init()
    };
    (local, since.subsec_millis())
}
