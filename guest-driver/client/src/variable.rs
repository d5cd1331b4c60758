// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Environment variables that a program trusts only if it has its caller's rights.

use std::{env, ffi::OsString};

/// The value of a variable that names a file or a socket; `None` if it is unset or empty, and in a program with more
/// rights than its caller (set-user-ID): the caller could make the program open its own socket, or write to its owner's
/// files.
pub fn trusted(name: &str) -> Option<OsString> {
    // SAFETY: the call takes and returns numbers.
    let has_more_rights = unsafe { libc::getauxval(libc::AT_SECURE) } != 0;
    let value = env::var_os(name).filter(|value| !value.is_empty())?;
    (!has_more_rights).then_some(value)
}
