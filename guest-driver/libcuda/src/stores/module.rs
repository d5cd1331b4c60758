// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The process's state of a module.

use std::{collections::HashMap, sync::Arc};

use gpgpu_locks::Mutex;

/// The process's state of a module.
#[derive(Debug)]
pub struct ModuleData {
    /// The context that it was loaded into.
    pub context: u64,
    /// The library that it is in one context.
    pub library: Option<u64>,
    /// Its functions that were asked for, by their names.
    pub functions: Mutex<HashMap<String, u64>>,
}

impl ModuleData {
    /// A module of a context, of a library or its own.
    pub fn new(context: u64, library: Option<u64>) -> Arc<Self> {
        Arc::new(Self {
            context,
            library,
            functions: Mutex::default(),
        })
    }
}
