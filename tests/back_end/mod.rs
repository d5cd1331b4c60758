// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Which back end the tests run.

use std::path::{Path, PathBuf};

/// The one of the bundle whose `tests` folder this program lies in, or the one that cargo built with it.
pub fn program() -> PathBuf {
    let own = std::env::current_exe().unwrap();
    let bundle = own.parent().and_then(Path::parent).unwrap();
    Some(bundle.join("bin/vhost-device-gpgpu"))
        .filter(|program| program.exists())
        .unwrap_or_else(|| env!("CARGO_BIN_EXE_vhost-device-gpgpu").into())
}
