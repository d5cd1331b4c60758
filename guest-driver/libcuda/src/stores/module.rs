// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The process's state of a module.

use std::{collections::HashMap, sync::Arc};

use gpgpu_locks::Mutex;

/// The process's state of a module.
#[derive(Debug)]
pub struct ModuleData {
    /// The context into which it was loaded.
    pub context: u64,
    /// For a library's module in one context, the library.
    pub library: Option<u64>,
    /// The functions that were looked up, by their names.
    pub functions: Mutex<HashMap<String, u64>>,
}

impl ModuleData {
    /// A module of a context, possibly of a library.
    pub fn new(context: u64, library: Option<u64>) -> Arc<Self> {
        Arc::new(Self {
            context,
            library,
            functions: Mutex::default(),
        })
    }
}
