// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The process's state of a library.

use std::collections::HashMap;

use gpgpu_locks::Mutex;

/// The process's state of a library.
#[derive(Debug, Default)]
pub struct LibraryData {
    /// The kernels that were looked up, by their names.
    pub kernels: Mutex<HashMap<String, u64>>,
    /// Its modules, by context.
    pub modules: Mutex<HashMap<u64, u64>>,
    /// Its functions, by kernel and context.
    pub functions: Mutex<HashMap<(u64, u64), u64>>,
}
